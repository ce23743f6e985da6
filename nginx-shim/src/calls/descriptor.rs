//! close, dup, fcntl and ioctl: what a descriptor is, apart from what flows through it.

use std::os::fd::RawFd;

use libc::{c_int, c_long, c_ulong, c_void};

use crate::description::State;
use crate::failure::{self, Failure, Outcome, fail};
use crate::log::{self, Level};
use crate::process::{self, Process};
use crate::real;
use crate::table::{self, Entry};

/// `close` of a descriptor of ours.
///
/// # Errors
/// EBADF for a number that only we hold.
pub fn close(fd: RawFd) -> Outcome<()> {
    let mut process = process::lock();
    let Some(entry) = table::get(fd) else { return Err(Failure::Kernel) };
    if entry == Entry::Kept {
        return fail(libc::EBADF);
    }
    let pooled = forget(&mut process, fd, entry);
    if process.sleepers.len() > 1 {
        process.wake_sleepers();
    }
    if pooled {
        process.placeholders.give(fd);
        return Ok(());
    }
    drop(process);
    // SAFETY: the descriptor is the application's to close, and no longer in our table.
    failure::real(unsafe { real::close(fd) }).map(|_| ())
}

/// Takes a descriptor out of the table and lets go what it stood for; says whether it is a kept placeholder.
fn forget(process: &mut Process, fd: RawFd, entry: Entry) -> bool {
    table::set(fd, None);
    match entry {
        Entry::Socket { description, pooled } => {
            process.release(description);
            pooled
        }
        Entry::Epoll(set) => {
            process.release_set(set);
            false
        }
        Entry::Kept => false,
    }
}

/// Makes `to` a duplicate of `from`, in the kernel by `real` and for us. The number may be one that we keep for a later
/// socket: it is taken out of the pool before the kernel puts something else there, and nobody gets it meanwhile.
pub fn duplicate_onto(from: RawFd, to: RawFd, real: impl FnOnce() -> c_int) -> c_int {
    if table::get(from).is_none() && table::get(to).is_none() {
        return real();
    }
    let mut process = process::lock();
    let kept = table::get(to) == Some(Entry::Kept);
    if kept {
        process.placeholders.lose(to);
    }
    let new = real();
    if new >= 0 {
        duplicated_locked(&mut process, from, to);
    } else if kept {
        let errno = failure::errno();
        process.placeholders.give(to);
        failure::set_errno(errno);
    }
    new
}

/// `to` has become a duplicate of `from` in the kernel: makes it so for us.
pub fn duplicated(from: RawFd, to: RawFd) {
    duplicated_locked(&mut process::lock(), from, to);
}

fn duplicated_locked(process: &mut Process, from: RawFd, to: RawFd) {
    replaced_locked(process, to);
    match table::get(from) {
        Some(Entry::Socket { description, .. }) if table::fits(to) => {
            if let Some(entry) = process.descriptions.get_mut(description as usize) {
                entry.descriptors += 1;
                table::set(to, Some(Entry::Socket { description, pooled: false }));
            }
        }
        Some(Entry::Epoll(set)) if table::fits(to) => {
            if let Some(entry) = process.sets.get_mut(set) {
                entry.descriptors += 1;
                table::set(to, Some(Entry::Epoll(set)));
            }
        }
        _ => {}
    }
}

/// The kernel has put something else at `fd` (`dup2`): what it was to us is gone.
fn replaced_locked(process: &mut Process, fd: RawFd) {
    match table::get(fd) {
        Some(Entry::Kept) => process.placeholders.lose(fd),
        Some(entry) => {
            forget(process, fd, entry);
        }
        None => {}
    }
}

/// `fcntl` on a socket of ours; `real` makes the real call.
///
/// # Errors
/// As `fcntl(2)`; `Kernel` when the real call is to be made.
pub fn fcntl(fd: RawFd, cmd: c_int, arg: c_long) -> Outcome<c_int> {
    let pooled = match table::get(fd) {
        Some(Entry::Socket { pooled, .. }) => pooled,
        Some(Entry::Kept) => return fail(libc::EBADF),
        Some(Entry::Epoll(_)) | None => return Err(Failure::Kernel),
    };
    match cmd {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            // SAFETY: these commands take a number.
            let new = failure::real(unsafe { real::fcntl(fd, cmd, arg) })?;
            duplicated(fd, new);
            Ok(new)
        }
        libc::F_GETFL => {
            let mut process = process::lock();
            let nonblocking = process.description(fd)?.1.nonblocking;
            Ok(libc::O_RDWR | if nonblocking { libc::O_NONBLOCK } else { 0 })
        }
        libc::F_SETFL => {
            let mut process = process::lock();
            let description = process.description(fd)?.1;
            description.nonblocking = arg as c_int & libc::O_NONBLOCK != 0;
            if pooled {
                // All placeholders share one file description; its flags are nobody's.
                return Ok(0);
            }
            Err(Failure::Kernel)
        }
        libc::F_GETFD if pooled => {
            let mut process = process::lock();
            Ok(c_int::from(process.description(fd)?.1.cloexec) * libc::FD_CLOEXEC)
        }
        libc::F_SETFD if pooled => {
            let mut process = process::lock();
            process.description(fd)?.1.cloexec = arg as c_int & libc::FD_CLOEXEC != 0;
            Ok(0)
        }
        _ => Err(Failure::Kernel),
    }
}

/// `ioctl` on a socket of ours.
///
/// # Errors
/// As `ioctl(2)`; `Kernel` when the real call is to be made.
///
/// # Safety
/// `arg` is what the request asks for: for those that are handled here, a valid `int`.
pub unsafe fn ioctl(fd: RawFd, request: c_ulong, arg: *mut c_void) -> Outcome<c_int> {
    let mut process = process::lock();
    let description = process.description(fd)?.1;
    let open = matches!(description.state, State::Open(_));
    match request {
        libc::FIONBIO => {
            if arg.is_null() {
                return fail(libc::EFAULT);
            }
            // SAFETY: FIONBIO's argument is a valid int, by the caller's word.
            description.nonblocking = unsafe { arg.cast::<c_int>().read_unaligned() } != 0;
            if open { Ok(0) } else { Err(Failure::Kernel) }
        }
        libc::FIONREAD if open => {
            if arg.is_null() {
                return fail(libc::EFAULT);
            }
            let (stack, socket) = process.open_socket(fd)?;
            let bytes = stack.queued_bytes(socket)?.min(c_int::MAX as usize) as c_int;
            // SAFETY: FIONREAD's argument is a valid int, by the caller's word.
            unsafe { arg.cast::<c_int>().write_unaligned(bytes) };
            Ok(0)
        }
        libc::FIOASYNC if open => {
            // SAFETY: FIOASYNC's argument is a valid int, by the caller's word.
            let on = !arg.is_null() && unsafe { arg.cast::<c_int>().read_unaligned() } != 0;
            if !on {
                return Ok(0);
            }
            log::once(
                log::key(3, 0),
                Level::Warn,
                format_args!("signal-driven input (FIOASYNC) is not supported on sockets of the data plane"),
            );
            fail(libc::EOPNOTSUPP)
        }
        _ => Err(Failure::Kernel),
    }
}

/// `close_range` with CLOSE_RANGE_CLOEXEC has marked a range in the kernel. The placeholders in it are all marked
/// anyway; what the application sees of them is ours.
pub fn mark_range(first: RawFd, last: RawFd) {
    let mut process = process::lock();
    for (_, entry) in table::range(first, last) {
        if let Entry::Socket { description, pooled: true } = entry
            && let Some(description) = process.descriptions.get_mut(description as usize)
        {
            description.cloexec = true;
        }
    }
}

/// `close_range` that closes, and `closefrom`: lets go what is ours in the range, and says which parts of it
/// the real call has to close, so that what only we hold stays open.
pub fn close_range(first: RawFd, last: RawFd) -> Vec<(RawFd, RawFd)> {
    let ours: Vec<(RawFd, Entry)> = table::range(first, last).collect();
    let mut parts = Vec::new();
    let mut from = first;
    for (fd, entry) in ours {
        let keep = match entry {
            Entry::Kept => true,
            Entry::Socket { pooled: true, .. } => {
                // The only error is that another thread was faster.
                let _ = close(fd);
                true
            }
            Entry::Socket { .. } | Entry::Epoll(_) => {
                let mut process = process::lock();
                forget(&mut process, fd, entry);
                false
            }
        };
        if keep {
            if from < fd {
                parts.push((from, fd - 1));
            }
            from = fd + 1;
        }
    }
    if from <= last {
        parts.push((from, last));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_open(fd: RawFd) -> bool {
        // SAFETY: F_GETFD takes no argument that matters.
        unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFD) >= 0 }
    }

    /// A number of the pool that the application takes by `dup2` is out of the pool before it changes hands.
    #[test]
    fn a_kept_number_leaves_the_pool_before_it_is_replaced() {
        let kept = {
            let mut process = process::lock();
            let fd = process.placeholders.take().expect("a placeholder");
            process.placeholders.give(fd);
            fd
        };
        assert_eq!(table::get(kept), Some(Entry::Kept));
        // The kernel refuses: the number stays in the pool.
        let refused = duplicate_onto(-1, kept, || {
            assert_eq!(table::get(kept), None);
            failure::set_errno(libc::EBADF);
            -1
        });
        assert_eq!((refused, failure::errno()), (-1, libc::EBADF));
        assert_eq!(table::get(kept), Some(Entry::Kept));
        // It does it: nobody else has been given the number, before or after.
        let new = duplicate_onto(0, kept, || {
            assert_eq!(table::get(kept), None, "another thread would have been given it");
            // SAFETY: no preconditions.
            unsafe { libc::syscall(libc::SYS_dup2, 0, kept) as c_int }
        });
        assert_eq!(new, kept);
        assert_eq!(table::get(kept), None);
        assert_ne!(process::lock().placeholders.take().ok(), Some(kept));
        assert!(is_open(kept));
        // SAFETY: the test's own.
        unsafe { libc::syscall(libc::SYS_close, kept) };
    }
}
