//! Kernel descriptors that stand for sockets of ours.
//!
//! An accepted connection needs a descriptor number that the kernel knows to be taken. A closed one's is kept
//! and used again, so accept and close cost no system call in the steady state. All of them are duplicates of
//! one unbound socket: `fstat` says "socket", and a call that slipped past us fails instead of blocking. They
//! are closed on exec, since what they stand for does not survive it.

use std::os::fd::RawFd;

use crate::failure::{self, Outcome, fail};
use crate::real;
use crate::table::{self, Entry};

/// The pool of kept placeholders.
#[derive(Debug)]
pub struct Placeholders {
    seed: RawFd,
    kept: Vec<RawFd>,
}

/// Placeholders kept at most, whatever the limit of descriptors allows.
const KEPT_MAX: usize = 16_384;

impl Placeholders {
    /// An empty pool; the first placeholder makes the socket that they duplicate.
    pub const fn new() -> Self {
        Self { seed: -1, kept: Vec::new() }
    }

    /// A descriptor number for a new socket.
    ///
    /// # Errors
    /// EMFILE or ENFILE as the kernel says.
    pub fn take(&mut self) -> Outcome<RawFd> {
        if let Some(fd) = self.kept.pop() {
            table::set(fd, None);
            return Ok(fd);
        }
        if self.seed < 0 {
            // SAFETY: socket has no preconditions.
            let fd = unsafe { real::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
            self.seed = failure::real(fd)?;
            table::set(self.seed, Some(Entry::Kept));
        }
        // SAFETY: `seed` is an open descriptor of this pool's own.
        let fd = failure::real(unsafe { real::fcntl(self.seed, libc::F_DUPFD_CLOEXEC, 0) })?;
        if !table::fits(fd) {
            // SAFETY: `fd` was just made and nobody else knows it.
            unsafe { real::close(fd) };
            return fail(libc::EMFILE);
        }
        Ok(fd)
    }

    /// Takes back a placeholder whose socket is closed: keeps it, or closes it for good.
    pub fn give(&mut self, fd: RawFd) {
        let limit = descriptor_limit();
        // A quarter of the limit at most, and no high numbers: what is kept must not take the room of the
        // application's own files.
        if self.kept.len() < KEPT_MAX.min(limit / 4) && (fd as usize) < limit / 4 * 3 {
            table::set(fd, Some(Entry::Kept));
            self.kept.push(fd);
        } else {
            table::set(fd, None);
            // SAFETY: the caller gives the descriptor away.
            unsafe { real::close(fd) };
        }
    }

    /// Closes everything that is kept, to make room; says whether there was anything.
    pub fn drain(&mut self) -> bool {
        let any = !self.kept.is_empty();
        for fd in self.kept.drain(..) {
            table::set(fd, None);
            // SAFETY: a kept placeholder is the pool's own.
            unsafe { real::close(fd) };
        }
        any
    }

    /// Forgets a kept number that the application is about to take with `dup2`.
    pub fn lose(&mut self, fd: RawFd) {
        self.kept.retain(|&kept| kept != fd);
        if self.seed == fd {
            self.seed = -1;
        }
        table::set(fd, None);
    }
}

/// RLIMIT_NOFILE, looked at again after every [`LIMIT_USES`] uses: a process may change its own at any time.
fn descriptor_limit() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    const LIMIT_USES: usize = 1024;
    static USES: AtomicUsize = AtomicUsize::new(0);
    static LIMIT: AtomicUsize = AtomicUsize::new(0);
    if USES.fetch_add(1, Ordering::Relaxed).is_multiple_of(LIMIT_USES) {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` is valid for writing.
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
        LIMIT.store(usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX), Ordering::Relaxed);
    }
    LIMIT.load(Ordering::Relaxed)
}
