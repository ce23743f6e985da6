//! recvmsg, sendmsg and their plural forms.

use libc::{c_int, c_uint, mmsghdr, msghdr, ssize_t, timespec};

use super::length;
use crate::calls::message;
use crate::failure::{Failure, Outcome, set_errno};
use crate::{batch, clock, real, table};

/// UIO_MAXIOV: messages of one call.
const MESSAGES_MAX: c_uint = 1024;

#[unsafe(no_mangle)]
unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::recvmsg(fd, message, flags) };
    if table::socket(fd).is_none() {
        return real();
    }
    // SAFETY: the application's message is valid.
    length(unsafe { message::receive(fd, message, flags) }, real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::sendmsg(fd, message, flags) };
    if table::socket(fd).is_none() {
        // SAFETY: the application's message is valid.
        if let Some(taken) = unsafe { batch::holds_back(fd, message) } {
            return taken;
        }
        return real();
    }
    // SAFETY: the application's message is valid.
    length(unsafe { message::send(fd, message, flags) }, real)
}

/// Makes `one` for each message until one fails; a failure after the first message is for the next call.
fn each(count: c_uint, mut one: impl FnMut(usize) -> Outcome<()>, real: impl FnOnce() -> c_int) -> c_int {
    for at in 0..count.min(MESSAGES_MAX) as usize {
        match one(at) {
            Ok(()) => {}
            Err(_) if at > 0 => return at as c_int,
            Err(Failure::Kernel) => return real(),
            Err(Failure::Errno(errno)) => {
                set_errno(errno);
                return -1;
            }
        }
    }
    count.min(MESSAGES_MAX) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::recvmmsg(fd, messages, count, flags, timeout) };
    if table::socket(fd).is_none() {
        return real();
    }
    // SAFETY: the application's timeout is null or valid.
    let span_us = unsafe { timeout.as_ref() }.map(clock::us_of_timespec);
    if span_us == Some(None) {
        set_errno(libc::EINVAL);
        return -1;
    }
    let end_us = span_us.flatten().map(|span_us| clock::now().0.saturating_add(span_us));
    let one = |at: usize| {
        // As the kernel: the time is looked at after each message, and MSG_WAITFORONE waits for the first only.
        if at > 0 && end_us.is_some_and(|end_us| clock::now().0 >= end_us) {
            return Err(Failure::Errno(libc::EAGAIN));
        }
        let flags =
            if at > 0 && flags & libc::MSG_WAITFORONE != 0 { flags | libc::MSG_DONTWAIT } else { flags };
        // SAFETY: the application's vector is valid for `count` messages, and `at` is below that.
        unsafe {
            let entry = messages.add(at);
            (*entry).msg_len = message::receive(fd, &raw mut (*entry).msg_hdr, flags)? as c_uint;
        }
        Ok(())
    };
    each(count, one, real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::sendmmsg(fd, messages, count, flags) };
    if table::socket(fd).is_none() {
        return real();
    }
    let one = |at: usize| {
        // SAFETY: the application's vector is valid for `count` messages, and `at` is below that.
        unsafe {
            let entry = messages.add(at);
            (*entry).msg_len = message::send(fd, &raw const (*entry).msg_hdr, flags)? as c_uint;
        }
        Ok(())
    };
    each(count, one, real)
}
