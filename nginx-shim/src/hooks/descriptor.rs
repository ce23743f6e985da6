//! close, dup, fcntl, ioctl.

use libc::{c_int, c_long, c_uint, c_ulong, c_void};

use super::{number, status};
use crate::calls::descriptor;
use crate::failure::set_errno;
use crate::table::{self, Entry};
use crate::{batch, process, real};

#[unsafe(no_mangle)]
unsafe extern "C" fn close(fd: c_int) -> c_int {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::close(fd) };
    if table::get(fd).is_none() {
        batch::closes(fd);
        return real();
    }
    status(descriptor::close(fd), real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let cloexec = flags & libc::CLOSE_RANGE_CLOEXEC as c_int != 0;
    let known = (libc::CLOSE_RANGE_CLOEXEC | libc::CLOSE_RANGE_UNSHARE) as c_int;
    if process::role() == process::Role::Inert || flags & !known != 0 || first > last {
        // SAFETY: passed through with the application's arguments.
        return unsafe { real::close_range(first, last, flags) };
    }
    let as_fd = |number: c_uint| number.min(c_int::MAX as c_uint) as c_int;
    if cloexec {
        // SAFETY: passed through with the application's arguments.
        let result = unsafe { real::close_range(first, last, flags) };
        if result == 0 {
            descriptor::mark_range(as_fd(first), as_fd(last));
        }
        return result;
    }
    for (first, last) in descriptor::close_range(as_fd(first), as_fd(last)) {
        // SAFETY: passed through with a part of the application's range.
        let result = unsafe { real::close_range(first as c_uint, last as c_uint, flags) };
        if result != 0 {
            return result;
        }
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn closefrom(first: c_int) {
    if process::role() == process::Role::Inert {
        // SAFETY: passed through with the application's arguments.
        return unsafe { real::closefrom(first) };
    }
    for (first, last) in descriptor::close_range(first.max(0), c_int::MAX) {
        // SAFETY: passed through with a part of the application's range.
        unsafe { real::close_range(first as c_uint, last as c_uint, 0) };
    }
}

/// What the application believes to be closed cannot be duplicated.
fn is_open(fd: c_int) -> bool {
    if table::get(fd) == Some(Entry::Kept) {
        set_errno(libc::EBADF);
        return false;
    }
    true
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup(fd: c_int) -> c_int {
    if !is_open(fd) {
        return -1;
    }
    // SAFETY: passed through with the application's arguments.
    let new = unsafe { real::dup(fd) };
    if new >= 0 && table::get(fd).is_some() {
        descriptor::duplicated(fd, new);
    }
    new
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    if !is_open(fd) {
        return -1;
    }
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::dup2(fd, to) };
    if fd == to { real() } else { descriptor::duplicate_onto(fd, to, real) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    if !is_open(fd) {
        return -1;
    }
    // SAFETY: passed through with the application's arguments.
    descriptor::duplicate_onto(fd, to, || unsafe { real::dup3(fd, to, flags) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl(fd: c_int, cmd: c_int, arg: c_long) -> c_int {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::fcntl(fd, cmd, arg) };
    if table::socket(fd).is_none() {
        return real();
    }
    number(descriptor::fcntl(fd, cmd, arg), real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl64(fd: c_int, cmd: c_int, arg: c_long) -> c_int {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::fcntl64(fd, cmd, arg) };
    if table::socket(fd).is_none() {
        return real();
    }
    number(descriptor::fcntl(fd, cmd, arg), real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, arg: *mut c_void) -> c_int {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::ioctl(fd, request, arg) };
    if table::socket(fd).is_none() {
        return real();
    }
    // SAFETY: the application's argument is what its request asks for.
    number(unsafe { descriptor::ioctl(fd, request, arg) }, real)
}
