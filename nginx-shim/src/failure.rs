//! Why a call on a descriptor was not done by the stack, and how that becomes a C return value.

use ff_dataplane::sockets::SockError;

/// The other outcome of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The call fails with this errno.
    Errno(i32),
    /// The descriptor turned out to be the kernel's: make the real call.
    Kernel,
}

/// What a call gives.
pub type Outcome<T> = Result<T, Failure>;

impl From<SockError> for Failure {
    fn from(error: SockError) -> Self {
        Self::Errno(error.errno())
    }
}

/// Shorthand for the usual failure.
pub fn fail<T>(errno: i32) -> Outcome<T> {
    Err(Failure::Errno(errno))
}

/// This thread's errno.
pub fn errno() -> i32 {
    // SAFETY: the location is this thread's own and always valid.
    unsafe { *libc::__errno_location() }
}

/// Sets this thread's errno.
pub fn set_errno(errno: i32) {
    // SAFETY: the location is this thread's own and always valid.
    unsafe { *libc::__errno_location() = errno };
}

/// The result of a real call as an outcome: -1 becomes its errno.
pub fn real(result: libc::c_int) -> Outcome<libc::c_int> {
    if result < 0 { fail(errno()) } else { Ok(result) }
}
