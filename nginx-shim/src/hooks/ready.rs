//! epoll, poll and select.

use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

use super::number;
use crate::calls::poll::{self as polls, Selected};
use crate::epoll::{control, merge};
use crate::failure::{Outcome, fail, set_errno};
use crate::process::{self, Role};
use crate::table::{self, Entry};
use crate::{clock, real};

/// The emulated set behind an epoll descriptor, in a process that can have something ready in it.
fn emulated(epfd: c_int) -> Option<u32> {
    match table::get(epfd) {
        Some(Entry::Epoll(set)) if process::role() == Role::Worker => Some(set),
        _ => None,
    }
}

fn of_ms(timeout: c_int) -> Option<u64> {
    u64::try_from(timeout).ok().map(|ms| ms * 1_000)
}

/// A time-out as `timespec`: null is for ever.
///
/// # Safety
/// `timeout` is null or valid.
unsafe fn of_timespec(timeout: *const timespec) -> Outcome<Option<u64>> {
    // SAFETY: by the caller's word.
    match unsafe { timeout.as_ref() } {
        None => Ok(None),
        Some(timeout) => match clock::us_of_timespec(timeout) {
            Some(us) => Ok(Some(us)),
            None => fail(libc::EINVAL),
        },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::epoll_ctl(epfd, op, fd, event) };
    if table::socket(fd).is_none() {
        return real();
    }
    // SAFETY: the application's event is null or valid.
    let event = unsafe { event.as_ref() }.copied();
    super::status(control::control(epfd, op, fd, event), real)
}

/// The common part of the three waits.
///
/// # Safety
/// `events` is valid for writes of `max` events.
unsafe fn wait(
    set: u32,
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout_us: Option<u64>,
    mask: *const sigset_t,
) -> Outcome<c_int> {
    if max <= 0 {
        return fail(libc::EINVAL);
    }
    if events.is_null() {
        return fail(libc::EFAULT);
    }
    // SAFETY: by the caller's word; an event is plain data.
    let out = unsafe { std::slice::from_raw_parts_mut(events, max as usize) };
    merge::wait(set, epfd, out, timeout_us, mask).map(|found| found as c_int)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_wait(epfd: c_int, events: *mut epoll_event, max: c_int, timeout: c_int) -> c_int {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::epoll_wait(epfd, events, max, timeout) };
    let Some(set) = emulated(epfd) else { return real() };
    // SAFETY: the application's events have room for `max`.
    number(unsafe { wait(set, epfd, events, max, of_ms(timeout), std::ptr::null()) }, real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_pwait(
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::epoll_pwait(epfd, events, max, timeout, mask) };
    let Some(set) = emulated(epfd) else { return real() };
    // SAFETY: the application's events have room for `max`.
    number(unsafe { wait(set, epfd, events, max, of_ms(timeout), mask) }, real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_pwait2(
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::epoll_pwait2(epfd, events, max, timeout, mask) };
    let Some(set) = emulated(epfd) else { return real() };
    // SAFETY: the application's time-out is null or valid, its events have room for `max`.
    let result = unsafe { of_timespec(timeout).and_then(|us| wait(set, epfd, events, max, us, mask)) };
    number(result, real)
}

/// The descriptors of a `poll`.
///
/// # Safety
/// `fds` is valid for `count` entries, or `count` is 0.
unsafe fn entries<'a>(fds: *mut pollfd, count: nfds_t) -> &'a mut [pollfd] {
    if count == 0 || fds.is_null() {
        return &mut [];
    }
    // SAFETY: by the caller's word.
    unsafe { std::slice::from_raw_parts_mut(fds, count as usize) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::poll(fds, count, timeout) };
    // SAFETY: the application's entries are valid for their count.
    let entries = unsafe { entries(fds, count) };
    if !polls::concerns_us(entries) {
        return real();
    }
    number(polls::poll(entries, of_ms(timeout), std::ptr::null()).map(|n| n as c_int), real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int {
    // SAFETY: the application's entries are valid for their count; the check is the C library's own.
    unsafe {
        if (room / size_of::<pollfd>()) < count as usize || !polls::concerns_us(entries(fds, count)) {
            return real::__poll_chk(fds, count, timeout, room);
        }
        poll(fds, count, timeout)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::ppoll(fds, count, timeout, mask) };
    // SAFETY: the application's entries are valid for their count.
    let entries = unsafe { entries(fds, count) };
    if !polls::concerns_us(entries) {
        return real();
    }
    // SAFETY: the application's time-out is null or valid.
    let result = unsafe { of_timespec(timeout) }.and_then(|us| polls::poll(entries, us, mask));
    number(result.map(|n| n as c_int), real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: size_t,
) -> c_int {
    // SAFETY: the application's entries are valid for their count; the check is the C library's own.
    unsafe {
        if (room / size_of::<pollfd>()) < count as usize || !polls::concerns_us(entries(fds, count)) {
            return real::__ppoll_chk(fds, count, timeout, mask, room);
        }
        ppoll(fds, count, timeout, mask)
    }
}

/// The sets of a `select`.
///
/// # Safety
/// Each set is null or valid for `count` bits.
unsafe fn selected<'a>(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
) -> Selected<'a> {
    // SAFETY: by the caller's word.
    unsafe {
        Selected {
            read: polls::words(read, count),
            write: polls::words(write, count),
            except: polls::words(except, count),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::select(count, read, write, except, timeout) };
    // SAFETY: the application's sets are null or valid for their count.
    let sets = unsafe { selected(count, read, write, except) };
    if !polls::select_concerns_us(count, &sets) {
        return real();
    }
    // SAFETY: the application's time-out is null or valid.
    let timeout = unsafe { timeout.as_mut() };
    let span_us = timeout.as_deref().map(clock::us_of_timeval);
    if span_us == Some(None) {
        set_errno(libc::EINVAL);
        return -1;
    }
    let begun = clock::now();
    let result = polls::select(count, sets, span_us.flatten(), std::ptr::null());
    if let (Some(timeout), Some(span_us)) = (timeout, span_us.flatten()) {
        // Linux tells what is left of the time.
        let left = span_us.saturating_sub(clock::now().0 - begun.0);
        *timeout = timeval { tv_sec: (left / 1_000_000) as libc::time_t, tv_usec: (left % 1_000_000) as i64 };
    }
    number(result.map(|n| n as c_int), real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::pselect(count, read, write, except, timeout, mask) };
    // SAFETY: the application's sets are null or valid for their count.
    let sets = unsafe { selected(count, read, write, except) };
    if !polls::select_concerns_us(count, &sets) {
        return real();
    }
    // SAFETY: the application's time-out is null or valid.
    let result = unsafe { of_timespec(timeout) }.and_then(|us| polls::select(count, sets, us, mask));
    number(result.map(|n| n as c_int), real)
}
