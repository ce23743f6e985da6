//! poll and select over sockets of ours and descriptors of the kernel, mixed.

use std::os::fd::RawFd;

use ff_tcp::Instant;
use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, c_int, c_short, fd_set, pollfd, sigset_t};

use crate::failure::{self, Failure, Outcome, fail};
use crate::process::{self, Process, Role};
use crate::table::{self, Entry};
use crate::waiting::{self, Wait};
use crate::{clock, real};

/// Whether any of the descriptors needs us.
pub fn concerns_us(fds: &[pollfd]) -> bool {
    process::role() == Role::Worker && fds.iter().any(|entry| is_ours(entry.fd))
}

fn is_ours(fd: RawFd) -> bool {
    matches!(table::get(fd), Some(Entry::Socket { .. } | Entry::Epoll(_)))
}

/// What is possible on a descriptor of ours now; poll's bits are epoll's.
fn possible(process: &mut Process, fd: RawFd) -> c_short {
    match table::get(fd) {
        Some(Entry::Socket { description, .. }) => process.possible(description) as c_short,
        Some(Entry::Epoll(set)) => {
            let Process { sets, stack, descriptions, .. } = process;
            let ready = sets.get(set).is_some_and(|set| {
                set.any_ready(|description| process::possible(stack.as_ref(), descriptions, description))
            });
            if ready { POLLIN } else { 0 }
        }
        Some(Entry::Kept) | None => POLLNVAL,
    }
}

/// `poll` and `ppoll` with at least one descriptor of ours.
///
/// # Errors
/// As `poll(2)`.
pub fn poll(fds: &mut [pollfd], timeout_us: Option<u64>, mask: *const sigset_t) -> Outcome<usize> {
    let deadline = timeout_us.map(|timeout_us| Instant(clock::now().0.saturating_add(timeout_us)));
    // The kernel's share keeps its places; ours are skipped by it. An epoll set is asked on both sides.
    let mut kernel: Vec<pollfd> = fds
        .iter()
        .map(|entry| {
            let skip = matches!(table::get(entry.fd), Some(Entry::Socket { .. }));
            pollfd { fd: if skip { -1 } else { entry.fd }, events: entry.events, revents: 0 }
        })
        .collect();
    let sleep_on: Vec<pollfd> = kernel.iter().filter(|entry| entry.fd >= 0).copied().collect();
    let wait = Wait { deadline, mask, kernel: &sleep_on, set: None };
    let found = waiting::until(wait, |process, _, _| {
        let mut found = 0;
        if !sleep_on.is_empty() {
            let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: `kernel` and `zero` live through the call; a null mask changes nothing.
            let result = unsafe {
                real::ppoll(kernel.as_mut_ptr(), kernel.len() as libc::nfds_t, &zero, std::ptr::null())
            };
            match failure::real(result) {
                Ok(_) | Err(Failure::Errno(libc::EINTR)) => {}
                Err(failure) => return Err(failure),
            }
        }
        for (entry, kernels) in fds.iter_mut().zip(&kernel) {
            entry.revents = if kernels.fd >= 0 { kernels.revents } else { 0 };
            if entry.fd >= 0 && is_ours(entry.fd) {
                entry.revents |= possible(process, entry.fd) & (entry.events | POLLERR | POLLHUP);
            }
            found += usize::from(entry.revents != 0);
        }
        Ok((found > 0).then_some(found))
    })?;
    Ok(found.unwrap_or(0))
}

/// The three sets of `select`, as the words that `fd_set` consists of.
pub struct Selected<'a> {
    /// Readable.
    pub read: Option<&'a mut [u64]>,
    /// Writable.
    pub write: Option<&'a mut [u64]>,
    /// Exceptional.
    pub except: Option<&'a mut [u64]>,
}

/// `fd_set`s for `count` descriptors as words.
///
/// # Safety
/// `set` is null or valid for `count` bits, rounded up to 64.
pub unsafe fn words<'a>(set: *mut fd_set, count: c_int) -> Option<&'a mut [u64]> {
    if set.is_null() {
        return None;
    }
    let words = (count.max(0) as usize).div_ceil(64);
    // SAFETY: by the caller's word; an fd_set is an array of 64-bit words on 64-bit Linux.
    Some(unsafe { std::slice::from_raw_parts_mut(set.cast::<u64>(), words) })
}

fn has(words: &Option<&mut [u64]>, fd: usize) -> bool {
    words.as_ref().is_some_and(|words| words[fd / 64] >> (fd % 64) & 1 != 0)
}

/// Whether `select` on these sets needs us.
pub fn select_concerns_us(count: c_int, sets: &Selected<'_>) -> bool {
    process::role() == Role::Worker
        && (0..count.max(0) as usize).any(|fd| {
            is_ours(fd as RawFd) && (has(&sets.read, fd) || has(&sets.write, fd) || has(&sets.except, fd))
        })
}

/// `select` and `pselect`, by way of [`poll`].
///
/// # Errors
/// As `select(2)`.
pub fn select(
    count: c_int,
    sets: Selected<'_>,
    timeout_us: Option<u64>,
    mask: *const sigset_t,
) -> Outcome<usize> {
    // The bits that make select call a descriptor readable, writable or exceptional (select(2), "Correspondence").
    const READ: c_short = libc::POLLRDNORM | libc::POLLRDBAND | POLLIN | POLLHUP | POLLERR;
    const WRITE: c_short = libc::POLLWRBAND | libc::POLLWRNORM | libc::POLLOUT | POLLERR;
    const EXCEPT: c_short = libc::POLLPRI;
    let mut fds = Vec::new();
    for fd in 0..count.max(0) as usize {
        let mut events = 0;
        for (set, bits) in [(&sets.read, READ), (&sets.write, WRITE), (&sets.except, EXCEPT)] {
            if has(set, fd) {
                events |= bits;
            }
        }
        if events != 0 {
            fds.push(pollfd { fd: fd as RawFd, events, revents: 0 });
        }
    }
    poll(&mut fds, timeout_us, mask)?;
    if fds.iter().any(|entry| entry.revents & POLLNVAL != 0) {
        return fail(libc::EBADF);
    }
    let mut found = 0;
    for (set, bits) in [(sets.read, READ), (sets.write, WRITE), (sets.except, EXCEPT)] {
        let Some(words) = set else { continue };
        let asked: Vec<u64> = words.to_vec();
        words.fill(0);
        for entry in &fds {
            let (word, bit) = (entry.fd as usize / 64, entry.fd as usize % 64);
            if asked[word] >> bit & 1 != 0 && entry.revents & bits != 0 {
                words[word] |= 1 << bit;
                found += 1;
            }
        }
    }
    Ok(found)
}
