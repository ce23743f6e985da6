//! Every wait of the application: passes of the stack until something is ready, the time is up or a signal
//! came. Spins for a short while, then sleeps in one `ppoll` on everything that can end the wait.

use std::os::fd::RawFd;

use ff_tcp::Instant;
use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, c_short, pollfd, sigset_t};

use crate::failure::{self, Outcome, fail};
use crate::process::{self, Guard};
use crate::signals::{self, Waiting};
use crate::{clock, real};

/// Longest sleep in microseconds: the worker's heartbeat must go on.
const SLEEP_US_MAX: u64 = 100_000;

/// Longest spin in microseconds. A spin that pays, or a sleep so short that a spin would have paid, doubles the
/// next one up to this; a spin in vain halves it.
const SPIN_US_MAX: u64 = 20;

/// Shortest sleep on a device that wakes nobody, in microseconds.
const STEP_US_MIN: u64 = 20;

/// Sleep on a device that reports nothing but an error, in microseconds: its interface was removed, or taken down.
const BROKEN_STEP_US: u64 = 10_000;

/// What a wait is about.
pub struct Wait<'a> {
    /// When it ends without anything, `None` for never.
    pub deadline: Option<Instant>,
    /// Signals blocked meanwhile, as in `ppoll`; null for no change.
    pub mask: *const sigset_t,
    /// Descriptors of the kernel that also end a sleep.
    pub kernel: &'a [pollfd],
    /// The epoll set that is waited on.
    pub set: Option<u32>,
}

/// Runs passes until `ready` gives something. `None` when the deadline is over.
///
/// `ready` is asked after each pass; it must not block. What costs a system call it need not look at after every
/// pass of a spin: it is told whether this is the first pass, or the first after a sleep.
///
/// # Errors
/// What `ready` says; EINTR when a signal handler has run on this thread.
pub fn until<T>(
    wait: Wait<'_>,
    mut ready: impl FnMut(&mut Guard, Instant, bool) -> Outcome<Option<T>>,
) -> Outcome<Option<T>> {
    let waker = signals::waker()?;
    let _waiting = Waiting::begin(waker);
    // Ends after every guard of the loop below.
    let _stay = Stay::begin(wait.set);
    let seen = signals::seen();
    let mut spin_end = None;
    let mut spun = false;
    let mut fresh = true;
    loop {
        let mut process = process::lock();
        // Under the lock: another thread's pass must not lie ahead of it.
        let now = clock::now();
        let report = process.pass(now);
        if let Some(found) = ready(&mut process, now, std::mem::take(&mut fresh))? {
            if spun {
                lengthen_spin(&mut process);
            }
            return Ok(Some(found));
        }
        if wait.deadline.is_some_and(|deadline| deadline <= now) {
            return Ok(None);
        }
        if signals::seen() != seen {
            return fail(libc::EINTR);
        }
        if report.more {
            continue;
        }
        let spin_us = process.spin_us;
        let end = *spin_end.get_or_insert(Instant(now.0 + spin_us));
        if report.rx > 0 {
            spin_end = Some(Instant(now.0 + spin_us));
            continue;
        }
        if now < end && wait.mask.is_null() {
            spun = true;
            drop(process);
            std::hint::spin_loop();
            continue;
        }
        if spun {
            process.spin_us /= 2;
            spun = false;
        }
        let woken = sleep(process, &wait, waker, now)?;
        // A sleep that a packet ended is worth a spin: the next one follows soon.
        spin_end = None;
        // One that only the time ended has looked at the kernel's descriptors already.
        fresh = woken;
    }
}

fn lengthen_spin(process: &mut Guard) {
    process.spin_us = (process.spin_us * 2).clamp(2, SPIN_US_MAX);
}

/// How long to sleep on a device that wakes nobody, after `idle_us` without a packet: an eighth of that, so that a
/// conversation with short pauses hardly notices, between [`STEP_US_MIN`] and `longest_us`.
fn step_us(idle_us: u64, longest_us: u64) -> u64 {
    (idle_us / 8).max(STEP_US_MIN).min(longest_us)
}

/// One sleep, with the lock released; says whether a descriptor ended it.
fn sleep(mut process: Guard, wait: &Wait<'_>, waker: RawFd, now: Instant) -> Outcome<bool> {
    let mut until = now.0 + SLEEP_US_MAX;
    if let Some(deadline) = wait.deadline {
        until = until.min(deadline.0);
    }
    let mut fds = Vec::with_capacity(wait.kernel.len() + 4);
    fds.extend_from_slice(wait.kernel);
    fds.push(pollfd { fd: waker, events: POLLIN, revents: 0 });
    if let Some(stack) = &process.stack {
        if let Some(deadline) = stack.0.next_deadline() {
            until = until.min(deadline.0);
        }
        let wait_fds = stack.0.wait_fds();
        if wait_fds.is_empty() {
            until = until.min(now.0 + step_us(now.0 - process.received_us, process.idle_step_us));
        }
        fds.extend(wait_fds.iter().map(|&fd| pollfd { fd, events: POLLIN, revents: 0 }));
    }
    // With `idle_sleep=0` the operator gives the CPU for the time that a wake-up takes: only a look.
    let only_looks = process.stack.is_some() && process.idle_step_us == 0;
    if only_looks {
        until = now.0;
    } else if until <= now.0 {
        return Ok(false);
    }
    if let Some(stack) = &mut process.stack {
        stack.0.note_sleep();
    }
    process.sleepers.push(waker);
    drop(process);
    let mut result = poll(&mut fds, until - now.0, wait.mask);
    let mut error = failure::errno();
    let own = wait.kernel.len() + 1;
    if result > 0 && only_broken(&fds, own) {
        // It would end every sleep at once, and the worker would use its CPU whole for nothing.
        fds[own..].iter().for_each(|device| clear_error(device.fd));
        result = poll(&mut fds[..own], (until - now.0).min(BROKEN_STEP_US), wait.mask);
        error = failure::errno();
    }
    let mut process = process::lock();
    process.sleepers.retain(|&sleeper| sleeper != waker);
    if result > 0 && clock::now().0 - now.0 <= SPIN_US_MAX {
        lengthen_spin(&mut process);
    }
    drop(process);
    if fds[wait.kernel.len()].revents != 0 {
        signals::drain(waker);
    }
    if result < 0 { fail(error) } else { Ok(result > 0) }
}

fn poll(fds: &mut [pollfd], timeout_us: u64, mask: *const sigset_t) -> i32 {
    let timeout = clock::timespec_of(timeout_us);
    // SAFETY: `fds` and `timeout` live through the call; the mask is null or the caller's valid one.
    unsafe { real::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, &timeout, mask) }
}

/// Whether nothing has ended the sleep but an error of the device's descriptors, which begin at `device`.
fn only_broken(fds: &[pollfd], device: usize) -> bool {
    const BROKEN: c_short = POLLERR | POLLHUP | POLLNVAL;
    let (others, devices) = fds.split_at(device);
    others.iter().all(|fd| fd.revents == 0)
        && devices.iter().all(|fd| fd.revents & !BROKEN == 0)
        && devices.iter().any(|fd| fd.revents != 0)
}

/// A packet socket reports that its interface went down until the error is fetched (packet(7)); on a descriptor that
/// is no socket this does nothing.
fn clear_error(fd: RawFd) {
    let mut error: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: both out-parameters live through the call and `len` says how large the first is. The system call is
    // made directly, because the descriptor is the kernel's and none of the table.
    unsafe {
        libc::syscall(
            libc::SYS_getsockopt,
            fd,
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            &raw mut error,
            &raw mut len,
        );
    }
}

/// A thread's stay in a wait on an epoll set.
struct Stay(Option<u32>);

impl Stay {
    fn begin(set: Option<u32>) -> Self {
        note_waiter(set, 1);
        Self(set)
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        note_waiter(self.0, -1);
    }
}

fn note_waiter(set: Option<u32>, change: i32) {
    if let Some(set) = set
        && let Some(set) = process::lock().sets.get_mut(set)
    {
        set.waiters = set.waiters.saturating_add_signed(change);
    }
}

/// Waits until a blocking call can go on. `attempt` makes the call; `EAGAIN` means "not yet".
///
/// # Errors
/// What `attempt` says; EAGAIN when `timeout_us` (0 for none) is over; EINTR unless the handler restarts calls.
pub fn block_on<T>(timeout_us: u64, mut attempt: impl FnMut(&mut Guard) -> Outcome<T>) -> Outcome<T> {
    let deadline = (timeout_us > 0).then(|| Instant(clock::now().0.saturating_add(timeout_us)));
    loop {
        let wait = Wait { deadline, mask: std::ptr::null(), kernel: &[], set: None };
        let result = until(wait, |process, _, _| match attempt(process) {
            Ok(value) => Ok(Some(value)),
            Err(failure::Failure::Errno(libc::EAGAIN)) => Ok(None),
            Err(failure) => Err(failure),
        });
        match result {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => return fail(libc::EAGAIN),
            // Linux restarts a call without a time-out if the handler was installed so.
            Err(failure::Failure::Errno(libc::EINTR)) if timeout_us == 0 && signals::last_restarts() => {}
            Err(failure) => return Err(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fds(revents: &[c_short]) -> Vec<pollfd> {
        revents.iter().map(|&revents| pollfd { fd: -1, events: POLLIN, revents }).collect()
    }

    #[test]
    fn a_device_is_broken_when_it_reports_nothing_but_errors() {
        assert!(only_broken(&fds(&[0, 0, POLLERR]), 2));
        assert!(only_broken(&fds(&[0, POLLHUP, 0]), 1));
        // A packet, another descriptor, a time-out.
        assert!(!only_broken(&fds(&[0, POLLERR | POLLIN]), 1));
        assert!(!only_broken(&fds(&[0, POLLERR, POLLIN]), 1));
        assert!(!only_broken(&fds(&[POLLIN, POLLERR]), 1));
        assert!(!only_broken(&fds(&[0, 0]), 1));
        assert!(!only_broken(&fds(&[POLLERR]), 1));
    }
}
