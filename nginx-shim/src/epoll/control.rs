//! `epoll_ctl` on a socket of ours.

use std::os::fd::RawFd;

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, c_int, epoll_event};

use crate::attach;
use crate::calls::establish;
use crate::description::State;
use crate::environment::{self, AttachWhen};
use crate::failure::{self, Outcome, fail};
use crate::process::{self, Process, Role};
use crate::real;
use crate::table::{self, Entry};

/// `epoll_ctl`. An epoll descriptor gets its emulated set when the first socket of ours is added.
///
/// # Errors
/// As `epoll_ctl(2)`; `Kernel` when the real call is to be made.
pub fn control(epfd: RawFd, op: c_int, fd: RawFd, event: Option<epoll_event>) -> Outcome<()> {
    if process::role() != Role::Worker
        && environment::get().is_some_and(|environment| environment.attach == AttachWhen::Listen)
        && process::lock().description(fd)?.1.recorded_address().is_some()
    {
        attach::attach_here();
    }
    let mut process = process::lock();
    let set = match table::get(epfd) {
        Some(Entry::Epoll(set)) => set,
        Some(Entry::Socket { .. }) => return fail(libc::EINVAL),
        Some(Entry::Kept) => return fail(libc::EBADF),
        None => new_set(&mut process, epfd, fd)?,
    };
    let (description, entry) = process.description(fd)?;
    if entry.state == State::Lost && op != EPOLL_CTL_DEL {
        return fail(libc::EBADF);
    }
    // A socket that the attach left alone is used now.
    if op == EPOLL_CTL_ADD && entry.recorded_address().is_some() && process.stack.is_some() {
        establish::open(&mut process, description)?;
    }
    let ready = process.possible(description);
    let Process { descriptions, sets, .. } = &mut *process;
    let watches = &mut descriptions[description as usize].watches;
    sets.control(set, op, fd, description, event, watches, ready)
}

/// Makes the emulated set beside a real one. Whether `epfd` is one, the kernel says best: taking out a socket that
/// is not in it fails with ENOENT, and with something else if `epfd` is no epoll descriptor.
fn new_set(process: &mut Process, epfd: RawFd, fd: RawFd) -> Outcome<u32> {
    // SAFETY: a null event is allowed for EPOLL_CTL_DEL.
    let result = unsafe { real::epoll_ctl(epfd, EPOLL_CTL_DEL, fd, std::ptr::null_mut()) };
    match failure::real(result) {
        Ok(_) | Err(failure::Failure::Errno(libc::ENOENT)) => {}
        Err(failure) => return Err(failure),
    }
    if !table::fits(epfd) {
        return fail(libc::EMFILE);
    }
    let set = process.sets.create(epfd);
    table::set(epfd, Some(Entry::Epoll(set)));
    Ok(set)
}
