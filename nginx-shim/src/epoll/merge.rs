//! `epoll_wait` on a set that holds sockets of ours and, in the kernel's set beneath, everything else.

use std::os::fd::RawFd;

use ff_tcp::Instant;
use libc::{POLLIN, c_int, epoll_event, pollfd, sigset_t};

use crate::failure::{self, Outcome, fail};
use crate::process::{self, Process};
use crate::waiting::{self, Wait};
use crate::{clock, real};

/// How often the kernel's part is looked at while ours always has something, in microseconds. A look costs a
/// system call, about what a small request costs in the stack.
const KERNEL_INTERVAL_US: u64 = 50;

/// The kernel's ready descriptors, without waiting.
fn kernel_ready(epfd: RawFd, out: &mut [epoll_event]) -> Outcome<usize> {
    // SAFETY: `out` is valid for as many events as it says.
    let found = unsafe { real::epoll_wait(epfd, out.as_mut_ptr(), out.len() as c_int, 0) };
    match failure::real(found) {
        Ok(found) => Ok(found as usize),
        Err(failure::Failure::Errno(libc::EINTR)) => Ok(0),
        Err(failure) => Err(failure),
    }
}

/// What is ready now, of both parts.
fn collect(
    process: &mut Process,
    set: u32,
    epfd: RawFd,
    out: &mut [epoll_event],
    now: Instant,
    fresh: bool,
) -> Outcome<usize> {
    let Process { sets, stack, descriptions, .. } = process;
    let Some(set) = sets.get_mut(set) else { return fail(libc::EBADF) };
    let mut found = 0;
    let due = now.0 >= set.kernel_seen_us + KERNEL_INTERVAL_US && !(out.len() == 1 && set.kernel_had_turn);
    if due {
        // At most half the room, so that neither part starves the other.
        let room = out.len().div_ceil(2);
        found = kernel_ready(epfd, &mut out[..room])?;
        set.kernel_seen_us = now.0;
        set.kernel_had_turn = found > 0;
    }
    let ours = set.harvest(&mut out[found..], |description| {
        process::possible(stack.as_ref(), descriptions, description)
    });
    found += ours;
    if ours > 0 {
        set.kernel_had_turn = false;
    } else if found == 0 && !due && (fresh || now.0 >= set.kernel_seen_us + KERNEL_INTERVAL_US) {
        found = kernel_ready(epfd, out)?;
        set.kernel_seen_us = now.0;
    }
    Ok(found)
}

/// `epoll_wait`, `epoll_pwait` and `epoll_pwait2`: `timeout_us` is `None` for ever.
///
/// # Errors
/// EINVAL, EBADF, EINTR as Linux.
pub fn wait(
    set: u32,
    epfd: RawFd,
    out: &mut [epoll_event],
    timeout_us: Option<u64>,
    mask: *const sigset_t,
) -> Outcome<usize> {
    let deadline = timeout_us.map(|timeout_us| Instant(clock::now().0.saturating_add(timeout_us)));
    let kernel = [pollfd { fd: epfd, events: POLLIN, revents: 0 }];
    let wait = Wait { deadline, mask, kernel: &kernel, set: Some(set) };
    let found = waiting::until(wait, |process, now, fresh| {
        let found = collect(process, set, epfd, out, now, fresh)?;
        Ok((found > 0).then_some(found))
    })?;
    Ok(found.unwrap_or(0))
}
