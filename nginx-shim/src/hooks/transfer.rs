//! read, recv, write, send, their vectored and fortified forms, and sendfile.

use std::io::{IoSlice, IoSliceMut};

use libc::{c_int, c_uint, c_void, iovec, off_t, size_t, sockaddr, socklen_t, ssize_t};

use super::length;
use crate::calls::{message, sendfile as files, transfer};
use crate::failure::{Outcome, fail, set_errno};
use crate::log::{self, Level};
use crate::{address, real, table};

/// Receives into one C buffer; the sender's address goes to `addr`.
///
/// # Safety
/// `buf` is valid for writes of `len` bytes; `addr` and `addr_len` as for `recvfrom`.
unsafe fn receive(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> Outcome<usize> {
    if buf.is_null() && len > 0 {
        return fail(libc::EFAULT);
    }
    // SAFETY: by the caller's word.
    let buf = unsafe { message::slice_mut(buf.cast(), len) };
    let got = transfer::receive(fd, &mut [IoSliceMut::new(buf)], flags)?;
    match got.datagram {
        // SAFETY: by the caller's word.
        Some(datagram) => unsafe { address::write(datagram.from, got.domain, addr, addr_len) }?,
        None => {
            // SAFETY: a stream tells no address: the length is set to 0, as by the kernel.
            if let Some(addr_len) = unsafe { addr_len.as_mut() }
                && !addr.is_null()
            {
                *addr_len = 0;
            }
        }
    }
    Ok(got.len)
}

/// Sends one C buffer.
///
/// # Safety
/// `buf` is valid for reads of `len` bytes; `addr` is null or valid for `addr_len` bytes.
unsafe fn transmit(
    fd: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
    addr: *const sockaddr,
    addr_len: socklen_t,
) -> Outcome<usize> {
    if buf.is_null() && len > 0 {
        return fail(libc::EFAULT);
    }
    // SAFETY: by the caller's word.
    let (buf, to) = unsafe { (message::slice(buf.cast(), len), message::destination(addr, addr_len)?) };
    transfer::transmit(fd, &[IoSlice::new(buf)], flags, to, None)
}

/// A fortified call whose buffer is too small is a bug that the C library ends the process for.
fn check_room(len: size_t, room: size_t) {
    if len > room {
        log::line(Level::Emerg, format_args!("a buffer of {room} bytes was to take {len}: buffer overflow"));
        // SAFETY: abort has no preconditions.
        unsafe { libc::abort() };
    }
}

const NO_ADDR: *mut sockaddr = std::ptr::null_mut();
const NO_LEN: *mut socklen_t = std::ptr::null_mut();

#[unsafe(no_mangle)]
unsafe extern "C" fn read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::read(fd, buf, len) };
    if table::socket(fd).is_none() {
        return real();
    }
    // SAFETY: the application's buffer is valid for its length.
    length(unsafe { receive(fd, buf, len, 0, NO_ADDR, NO_LEN) }, real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __read_chk(fd: c_int, buf: *mut c_void, len: size_t, room: size_t) -> ssize_t {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::__read_chk(fd, buf, len, room) };
    if table::socket(fd).is_none() {
        return real();
    }
    check_room(len, room);
    // SAFETY: the application's buffer is valid for its length.
    length(unsafe { receive(fd, buf, len, 0, NO_ADDR, NO_LEN) }, real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::readv(fd, iov, count) };
    if table::socket(fd).is_none() {
        return real();
    }
    let Ok(entries) = usize::try_from(count) else {
        set_errno(libc::EINVAL);
        return -1;
    };
    // SAFETY: the application's vector is valid for its count.
    let result = unsafe { message::buffers_mut(iov, entries) }
        .and_then(|mut bufs| Ok(transfer::receive(fd, &mut bufs, 0)?.len));
    length(result, real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recv(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::recv(fd, buf, len, flags) };
    if table::socket(fd).is_none() {
        return real();
    }
    // SAFETY: the application's buffer is valid for its length.
    length(unsafe { receive(fd, buf, len, flags, NO_ADDR, NO_LEN) }, real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __recv_chk(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::__recv_chk(fd, buf, len, room, flags) };
    if table::socket(fd).is_none() {
        return real();
    }
    check_room(len, room);
    // SAFETY: the application's buffer is valid for its length.
    length(unsafe { receive(fd, buf, len, flags, NO_ADDR, NO_LEN) }, real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recvfrom(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::recvfrom(fd, buf, len, flags, addr, addr_len) };
    if table::socket(fd).is_none() {
        return real();
    }
    // SAFETY: the application's buffers are valid for their lengths.
    length(unsafe { receive(fd, buf, len, flags, addr, addr_len) }, real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::__recvfrom_chk(fd, buf, len, room, flags, addr, addr_len) };
    if table::socket(fd).is_none() {
        return real();
    }
    check_room(len, room);
    // SAFETY: the application's buffers are valid for their lengths.
    length(unsafe { receive(fd, buf, len, flags, addr, addr_len) }, real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::write(fd, buf, len) };
    if table::socket(fd).is_none() {
        return real();
    }
    // SAFETY: the application's buffer is valid for its length.
    length(unsafe { transmit(fd, buf, len, 0, std::ptr::null(), 0) }, real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::writev(fd, iov, count) };
    if table::socket(fd).is_none() {
        return real();
    }
    let Ok(entries) = usize::try_from(count) else {
        set_errno(libc::EINVAL);
        return -1;
    };
    // SAFETY: the application's vector is valid for its count.
    let result = unsafe { message::buffers(iov, entries) }
        .and_then(|bufs| transfer::transmit(fd, &bufs, 0, None, None));
    length(result, real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn send(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::send(fd, buf, len, flags) };
    if table::socket(fd).is_none() {
        return real();
    }
    // SAFETY: the application's buffer is valid for its length.
    length(unsafe { transmit(fd, buf, len, flags, std::ptr::null(), 0) }, real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendto(
    fd: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
    addr: *const sockaddr,
    addr_len: socklen_t,
) -> ssize_t {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::sendto(fd, buf, len, flags, addr, addr_len) };
    if table::socket(fd).is_none() {
        return real();
    }
    // SAFETY: the application's buffers are valid for their lengths.
    length(unsafe { transmit(fd, buf, len, flags, addr, addr_len) }, real)
}

/// `sendfile` and `sendfile64` are one function on 64-bit Linux.
///
/// # Safety
/// `offset` is null or valid.
unsafe fn send_file(out: c_int, input: c_int, offset: *mut off_t, count: size_t) -> Outcome<usize> {
    if table::socket(input).is_some() {
        // As the kernel: a socket cannot be the input.
        return fail(libc::EINVAL);
    }
    // SAFETY: by the caller's word.
    let offset = unsafe { offset.as_mut() };
    if offset.as_deref().is_some_and(|&offset| offset < 0) {
        return fail(libc::EINVAL);
    }
    files::sendfile(out, input, offset, count)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile(out: c_int, input: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::sendfile(out, input, offset, count) };
    if table::socket(out).is_none() {
        return real();
    }
    // SAFETY: the application's offset is null or valid.
    length(unsafe { send_file(out, input, offset, count) }, real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile64(out: c_int, input: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::sendfile64(out, input, offset, count) };
    if table::socket(out).is_none() {
        return real();
    }
    // SAFETY: the application's offset is null or valid.
    length(unsafe { send_file(out, input, offset, count) }, real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn splice(
    input: c_int,
    input_offset: *mut off_t,
    out: c_int,
    out_offset: *mut off_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    if table::socket(input).is_none() && table::socket(out).is_none() {
        // SAFETY: passed through with the application's arguments.
        return unsafe { real::splice(input, input_offset, out, out_offset, len, flags) };
    }
    log::once(
        log::key(4, 0),
        Level::Warn,
        format_args!("splice is not supported on sockets of the data plane (EINVAL)"),
    );
    // As for a file system without splice: programs fall back to read and write.
    set_errno(libc::EINVAL);
    -1
}
