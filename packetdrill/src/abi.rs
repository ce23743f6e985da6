//! The C boundary: `packetdrill_interface_init`, the functions behind it, and two that the library takes the
//! place of when it is preloaded.
//!
//! All `unsafe` of the crate is here. What the blocks rely on is the same each time, and is what `packetdrill.h`
//! says of the interface: it has the signatures of the system calls, and packetdrill passes what it would pass to
//! the system. So a pointer is either null or points to as many bytes as its length says, readable for inputs and
//! writable for outputs, not used by anybody else during the call. Null is checked for where a script may pass it.

use std::ffi::{CStr, c_char, c_int, c_long, c_longlong, c_ulong, c_void};
use std::sync::OnceLock;

use libc::{iovec, msghdr, pollfd, sockaddr, socklen_t, ssize_t, timeval};

use crate::address;
use crate::poll::PollFd;
use crate::world::{Errno, World};

static WORLD: OnceLock<World> = OnceLock::new();

/// Not an errno of Linux's calls: the library was not initialised.
const NO_WORLD: Errno = libc::ENOSYS;

type User = *mut c_void;

/// `struct packetdrill_interface`, field by field. `fcntl` and `ioctl` are variadic there; their third argument is
/// an `int` or a pointer, which the calling conventions of Linux pass as that of an ordinary function.
#[repr(C)]
#[allow(clippy::type_complexity)]
pub struct Interface {
    userdata: User,
    free: unsafe extern "C" fn(User),
    socket: unsafe extern "C" fn(User, c_int, c_int, c_int) -> c_int,
    bind: unsafe extern "C" fn(User, c_int, *const sockaddr, socklen_t) -> c_int,
    listen: unsafe extern "C" fn(User, c_int, c_int) -> c_int,
    accept: unsafe extern "C" fn(User, c_int, *mut sockaddr, *mut socklen_t) -> c_int,
    connect: unsafe extern "C" fn(User, c_int, *const sockaddr, socklen_t) -> c_int,
    read: unsafe extern "C" fn(User, c_int, *mut u8, usize) -> ssize_t,
    readv: unsafe extern "C" fn(User, c_int, *const iovec, c_int) -> ssize_t,
    recv: unsafe extern "C" fn(User, c_int, *mut u8, usize, c_int) -> ssize_t,
    recvfrom:
        unsafe extern "C" fn(User, c_int, *mut u8, usize, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t,
    recvmsg: unsafe extern "C" fn(User, c_int, *mut msghdr, c_int) -> ssize_t,
    write: unsafe extern "C" fn(User, c_int, *const u8, usize) -> ssize_t,
    writev: unsafe extern "C" fn(User, c_int, *const iovec, c_int) -> ssize_t,
    send: unsafe extern "C" fn(User, c_int, *const u8, usize, c_int) -> ssize_t,
    sendto: unsafe extern "C" fn(User, c_int, *const u8, usize, c_int, *const sockaddr, socklen_t) -> ssize_t,
    sendmsg: unsafe extern "C" fn(User, c_int, *const msghdr, c_int) -> ssize_t,
    fcntl: unsafe extern "C" fn(User, c_int, c_int, c_long) -> c_int,
    ioctl: unsafe extern "C" fn(User, c_int, c_ulong, *mut c_int) -> c_int,
    close: unsafe extern "C" fn(User, c_int) -> c_int,
    shutdown: unsafe extern "C" fn(User, c_int, c_int) -> c_int,
    getsockopt: unsafe extern "C" fn(User, c_int, c_int, c_int, *mut u8, *mut socklen_t) -> c_int,
    setsockopt: unsafe extern "C" fn(User, c_int, c_int, c_int, *const u8, socklen_t) -> c_int,
    poll: unsafe extern "C" fn(User, *mut pollfd, libc::nfds_t, c_int) -> c_int,
    netdev_send: unsafe extern "C" fn(User, *const u8, usize) -> c_int,
    netdev_receive: unsafe extern "C" fn(User, *mut u8, *mut usize, *mut c_longlong) -> c_int,
    usleep: unsafe extern "C" fn(User, libc::useconds_t) -> c_int,
    gettimeofday: unsafe extern "C" fn(User, *mut timeval, *mut c_void) -> c_int,
    epoll_create: unsafe extern "C" fn(User, c_int) -> c_int,
    epoll_ctl: unsafe extern "C" fn(User, c_int, c_int, c_int, *mut libc::epoll_event) -> c_int,
    epoll_wait: unsafe extern "C" fn(User, c_int, *mut libc::epoll_event, c_int, c_int) -> c_int,
    pipe: unsafe extern "C" fn(User, *mut c_int) -> c_int,
    splice:
        unsafe extern "C" fn(User, c_int, *mut libc::loff_t, c_int, *mut libc::loff_t, usize, u32) -> c_int,
}

/// packetdrill calls this once, on its main thread, before the script's first line.
///
/// # Safety
/// `interface` must be writable, and `flags` null or a string, as `packetdrill.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetdrill_interface_init(flags: *const c_char, interface: *mut Interface) {
    let flags = if flags.is_null() {
        String::new()
    } else {
        // SAFETY: not null, so the string of `--so_flags`, which lives for the call.
        unsafe { CStr::from_ptr(flags) }.to_string_lossy().into_owned()
    };
    WORLD.get_or_init(|| World::new(&flags));
    let ours = Interface {
        userdata: std::ptr::null_mut(),
        free,
        socket,
        bind,
        listen,
        accept,
        connect,
        read,
        readv,
        recv,
        recvfrom,
        recvmsg,
        write,
        writev,
        send,
        sendto,
        sendmsg,
        fcntl,
        ioctl,
        close,
        shutdown,
        getsockopt: getsockopt_of_script,
        setsockopt,
        poll,
        netdev_send,
        netdev_receive,
        usleep,
        gettimeofday,
        epoll_create,
        epoll_ctl,
        epoll_wait,
        pipe,
        splice,
    };
    // SAFETY: the caller's structure, of the type that the header has, and large enough for all of it.
    unsafe { interface.write(ours) };
}

fn world() -> Result<&'static World, Errno> {
    WORLD.get().ok_or(NO_WORLD)
}

fn fail(errno: Errno) {
    // SAFETY: errno's place of this thread, which the C library keeps as long as the thread lives.
    unsafe { *libc::__errno_location() = errno };
}

fn int(result: Result<i32, Errno>) -> c_int {
    result.unwrap_or_else(|errno| {
        fail(errno);
        -1
    })
}

fn size(result: Result<usize, Errno>) -> ssize_t {
    match result {
        Ok(n) => n as ssize_t,
        Err(errno) => {
            fail(errno);
            -1
        }
    }
}

/// What the caller wants to be read, or `None` for null.
///
/// # Safety
/// `data` is null or readable for `len` bytes during the caller's call.
unsafe fn bytes<'a>(data: *const u8, len: usize) -> Option<&'a [u8]> {
    if len == 0 {
        return Some(&[]);
    }
    // SAFETY: not null, and readable as the caller of this says.
    (!data.is_null()).then(|| unsafe { std::slice::from_raw_parts(data, len) })
}

/// Copies as much as fits to the caller's memory.
///
/// # Safety
/// `to` is null or writable for `room` bytes.
unsafe fn give(from: &[u8], to: *mut u8, room: usize) {
    if !to.is_null() {
        // SAFETY: at most `room` bytes of the caller's memory; Rust's own slice cannot overlap it.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len().min(room)) };
    }
}

/// Copies over the pieces of `iov`.
///
/// # Safety
/// `iov` is null or has `count` entries, whose memory is writable.
unsafe fn give_pieces(mut from: &[u8], iov: *const iovec, count: usize) {
    for i in 0..count {
        // SAFETY: entry `i` of `count`.
        let piece = unsafe { &*iov.add(i) };
        let n = piece.iov_len.min(from.len());
        // SAFETY: the piece is writable for its length.
        unsafe { give(&from[..n], piece.iov_base.cast(), piece.iov_len) };
        from = &from[n..];
    }
}

/// The pieces of `iov` in one, or `None` if one has no memory.
///
/// # Safety
/// `iov` is null or has `count` entries, whose memory is readable.
unsafe fn gather(iov: *const iovec, count: usize) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    for i in 0..count {
        // SAFETY: entry `i` of `count`.
        let piece = unsafe { &*iov.add(i) };
        // SAFETY: the piece is readable for its length.
        all.extend_from_slice(unsafe { bytes(piece.iov_base as *const u8, piece.iov_len) }?);
    }
    Some(all)
}

/// Bytes of all pieces.
///
/// # Safety
/// `iov` is null or has `count` entries.
unsafe fn total(iov: *const iovec, count: usize) -> usize {
    // SAFETY: entries below `count`.
    (0..count).map(|i| unsafe { (*iov.add(i)).iov_len }).sum()
}

unsafe extern "C" fn free(_: User) {}

unsafe extern "C" fn socket(_: User, domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    int(world().and_then(|w| w.socket(domain, kind, protocol)))
}

unsafe extern "C" fn bind(_: User, fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: an address of `len` bytes, see the top.
    let addr = unsafe { bytes(addr.cast(), len as usize) }.and_then(address::read);
    int(world().and_then(|w| w.bind(fd, addr)))
}

unsafe extern "C" fn listen(_: User, fd: c_int, backlog: c_int) -> c_int {
    int(world().and_then(|w| w.listen(fd, backlog)))
}

unsafe extern "C" fn accept(_: User, fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    match world().and_then(|w| w.accept(fd)) {
        Ok((fd, remote, v6)) => {
            let name = address::write(remote, v6);
            if !addr.is_null() && !len.is_null() {
                // SAFETY: `len` says how much room `addr` has, and takes what the name needs.
                unsafe {
                    give(&name, addr.cast(), *len as usize);
                    *len = name.len() as socklen_t;
                }
            }
            fd
        }
        Err(errno) => int(Err(errno)),
    }
}

unsafe extern "C" fn connect(_: User, fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    // packetdrill sets only the family of an AF_UNSPEC address and leaves the length as it was.
    // SAFETY: an address of `len` bytes, see the top.
    let addr = unsafe { bytes(addr.cast(), len as usize) }.and_then(address::read);
    int(world().and_then(|w| w.connect(fd, addr)))
}

/// # Safety
/// `buf` is null or writable for `count` bytes.
unsafe fn receive(fd: c_int, buf: *mut u8, count: usize, flags: c_int) -> ssize_t {
    let known = !buf.is_null() || count == 0;
    size(world().and_then(|w| w.receive(fd, count, flags, known)).map(|got| {
        // SAFETY: writable for `count` bytes.
        unsafe { give(&got.bytes, buf, count) };
        got.bytes.len()
    }))
}

unsafe extern "C" fn read(_: User, fd: c_int, buf: *mut u8, count: usize) -> ssize_t {
    // SAFETY: see the top.
    unsafe { receive(fd, buf, count, 0) }
}

unsafe extern "C" fn readv(_: User, fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    let count = count.max(0) as usize;
    // SAFETY: `count` entries, see the top.
    let room = unsafe { total(iov, count) };
    size(world().and_then(|w| w.receive(fd, room, 0, true)).map(|got| {
        // SAFETY: the pieces are the caller's and writable.
        unsafe { give_pieces(&got.bytes, iov, count) };
        got.bytes.len()
    }))
}

unsafe extern "C" fn recv(_: User, fd: c_int, buf: *mut u8, count: usize, flags: c_int) -> ssize_t {
    // SAFETY: see the top.
    unsafe { receive(fd, buf, count, flags) }
}

unsafe extern "C" fn recvfrom(
    _: User,
    fd: c_int,
    buf: *mut u8,
    count: usize,
    flags: c_int,
    _addr: *mut sockaddr,
    len: *mut socklen_t,
) -> ssize_t {
    if !len.is_null() {
        // SAFETY: writable, see the top. A stream socket names no sender.
        unsafe { *len = 0 };
    }
    // SAFETY: see the top.
    unsafe { receive(fd, buf, count, flags) }
}

unsafe extern "C" fn recvmsg(_: User, fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's header, which nobody else uses now.
    let msg = unsafe { &mut *msg };
    // SAFETY: the header says how many pieces there are.
    let room = unsafe { total(msg.msg_iov, msg.msg_iovlen) };
    size(world().and_then(|w| w.receive(fd, room, flags, true)).map(|got| {
        // SAFETY: the pieces are the caller's and writable.
        unsafe { give_pieces(&got.bytes, msg.msg_iov, msg.msg_iovlen) };
        let control = got.left.map(inq_message).unwrap_or_default();
        if control.len() <= msg.msg_controllen {
            // SAFETY: the control buffer is writable for `msg_controllen` bytes.
            unsafe { give(&control, msg.msg_control.cast(), msg.msg_controllen) };
            msg.msg_controllen = control.len();
            msg.msg_flags = 0;
        } else {
            msg.msg_controllen = 0;
            msg.msg_flags = if control.is_empty() { 0 } else { libc::MSG_CTRUNC };
        }
        msg.msg_namelen = 0;
        got.bytes.len()
    }))
}

/// The control message of TCP_INQ.
fn inq_message(left: i32) -> Vec<u8> {
    const TCP_CM_INQ: i32 = 36;
    let mut out = Vec::new();
    out.extend(20usize.to_ne_bytes());
    out.extend(libc::IPPROTO_TCP.to_ne_bytes());
    out.extend(TCP_CM_INQ.to_ne_bytes());
    out.extend(left.to_ne_bytes());
    out.extend([0; 4]);
    out
}

/// # Safety
/// `buf` is null or readable for `count` bytes.
unsafe fn transmit(fd: c_int, buf: *const u8, count: usize, flags: c_int) -> ssize_t {
    // SAFETY: as the caller of this says.
    let data = unsafe { bytes(buf, count) };
    size(world().and_then(|w| w.send(fd, data, flags)))
}

unsafe extern "C" fn write(_: User, fd: c_int, buf: *const u8, count: usize) -> ssize_t {
    // SAFETY: see the top.
    unsafe { transmit(fd, buf, count, 0) }
}

unsafe extern "C" fn writev(_: User, fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: `count` entries, see the top.
    let data = unsafe { gather(iov, count.max(0) as usize) };
    size(world().and_then(|w| w.send(fd, data.as_deref(), 0)))
}

unsafe extern "C" fn send(_: User, fd: c_int, buf: *const u8, count: usize, flags: c_int) -> ssize_t {
    // SAFETY: see the top.
    unsafe { transmit(fd, buf, count, flags) }
}

unsafe extern "C" fn sendto(
    _: User,
    fd: c_int,
    buf: *const u8,
    count: usize,
    flags: c_int,
    _addr: *const sockaddr,
    _len: socklen_t,
) -> ssize_t {
    // A stream socket that is connected ignores the address.
    // SAFETY: see the top.
    unsafe { transmit(fd, buf, count, flags) }
}

unsafe extern "C" fn sendmsg(_: User, fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's header.
    let msg = unsafe { &*msg };
    // SAFETY: the header says how many pieces there are.
    let data = unsafe { gather(msg.msg_iov, msg.msg_iovlen) };
    size(world().and_then(|w| w.send(fd, data.as_deref(), flags)))
}

unsafe extern "C" fn fcntl(_: User, fd: c_int, command: c_int, argument: c_long) -> c_int {
    int(world().and_then(|w| w.fcntl(fd, command, argument)))
}

unsafe extern "C" fn ioctl(_: User, fd: c_int, request: c_ulong, value: *mut c_int) -> c_int {
    int(world().and_then(|w| w.ioctl(fd, request)).and_then(|v| {
        if value.is_null() {
            return Err(libc::EFAULT);
        }
        // SAFETY: not null; packetdrill passes an int for the requests that are served.
        unsafe { *value = v };
        Ok(0)
    }))
}

unsafe extern "C" fn close(_: User, fd: c_int) -> c_int {
    int(world().and_then(|w| w.close(fd)).inspect(|_| {
        // SAFETY: the descriptor was opened for this socket alone, and is forgotten by now.
        unsafe { libc::close(fd) };
    }))
}

unsafe extern "C" fn shutdown(_: User, fd: c_int, how: c_int) -> c_int {
    int(world().and_then(|w| w.shutdown(fd, how)))
}

unsafe extern "C" fn getsockopt_of_script(
    _: User,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut u8,
    len: *mut socklen_t,
) -> c_int {
    int(world().and_then(|w| w.getsockopt(fd, level, name)).map(|got| {
        // SAFETY: `len` says how much room `value` has, and takes how much was used.
        unsafe {
            let room = (*len as usize).min(got.len());
            give(&got, value, room);
            *len = room as socklen_t;
        }
        0
    }))
}

unsafe extern "C" fn setsockopt(
    _: User,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const u8,
    len: socklen_t,
) -> c_int {
    // SAFETY: `len` bytes, see the top.
    let value = unsafe { bytes(value, len as usize) };
    int(world().and_then(|w| w.setsockopt(fd, level, name, value.ok_or(libc::EFAULT)?)))
}

unsafe extern "C" fn poll(_: User, fds: *mut pollfd, count: libc::nfds_t, timeout_ms: c_int) -> c_int {
    let fds: &mut [pollfd] = if fds.is_null() {
        &mut []
    } else {
        // SAFETY: `count` entries that only this call uses.
        unsafe { std::slice::from_raw_parts_mut(fds, count as usize) }
    };
    let mut asked: Vec<PollFd> =
        fds.iter().map(|p| PollFd { fd: p.fd, events: p.events, revents: 0 }).collect();
    let result = world().and_then(|w| w.poll(&mut asked, timeout_ms));
    for (out, p) in fds.iter_mut().zip(&asked) {
        out.revents = p.revents;
    }
    int(result)
}

unsafe extern "C" fn netdev_send(_: User, packet: *const u8, len: usize) -> c_int {
    // SAFETY: a packet of `len` bytes.
    let packet = unsafe { bytes(packet, len) };
    int(world().and_then(|w| {
        w.packet_in(packet.ok_or(libc::EFAULT)?);
        Ok(0)
    }))
}

unsafe extern "C" fn netdev_receive(
    _: User,
    buf: *mut u8,
    count: *mut usize,
    time_us: *mut c_longlong,
) -> c_int {
    // An empty packet ends packetdrill's waiting: it reports that it could not be parsed.
    let (at, packet) = world().ok().and_then(|w| w.packet_out()).unwrap_or_default();
    if packet.is_empty() {
        eprintln!("ff-packetdrill: no packet left the stack, and none will");
    }
    // SAFETY: `count` says how much room `buf` has, and takes how much was used.
    unsafe {
        give(&packet, buf, *count);
        *count = packet.len().min(*count);
        *time_us = at as c_longlong;
    }
    0
}

unsafe extern "C" fn usleep(_: User, us: libc::useconds_t) -> c_int {
    int(world().map(|w| {
        w.sleep(u64::from(us));
        0
    }))
}

unsafe extern "C" fn gettimeofday(_: User, tv: *mut timeval, _: *mut c_void) -> c_int {
    int(world().map(|w| {
        let us = w.time_us() as i64;
        if !tv.is_null() {
            // SAFETY: not null, and the caller's.
            unsafe { *tv = timeval { tv_sec: us / 1_000_000, tv_usec: us % 1_000_000 } };
        }
        0
    }))
}

unsafe extern "C" fn epoll_create(_: User, count: c_int) -> c_int {
    int(world().and_then(|w| w.epoll_create(count)))
}

unsafe extern "C" fn epoll_ctl(
    _: User,
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *mut libc::epoll_event,
) -> c_int {
    let event = if event.is_null() {
        (0, 0)
    } else {
        // SAFETY: not null, and the caller's; the structure is packed, so its fields are copied.
        unsafe { ((*event).events, (*event).u64) }
    };
    int(world().and_then(|w| w.epoll_ctl(epfd, op, fd, event)))
}

unsafe extern "C" fn epoll_wait(
    _: User,
    epfd: c_int,
    events: *mut libc::epoll_event,
    max: c_int,
    timeout_ms: c_int,
) -> c_int {
    int(world().and_then(|w| {
        let max = usize::try_from(max).ok().filter(|&m| m > 0).ok_or(libc::EINVAL)?;
        let ready = w.epoll_wait(epfd, max, timeout_ms)?;
        for (i, &(bits, data)) in ready.iter().enumerate() {
            // SAFETY: the caller's array has `max` entries, and no more than that are ready.
            unsafe { events.add(i).write_unaligned(libc::epoll_event { events: bits, u64: data }) };
        }
        Ok(ready.len() as i32)
    }))
}

unsafe extern "C" fn pipe(_: User, _fds: *mut c_int) -> c_int {
    int(Err(libc::ENOSYS))
}

unsafe extern "C" fn splice(
    _: User,
    _: c_int,
    _: *mut libc::loff_t,
    _: c_int,
    _: *mut libc::loff_t,
    _: usize,
    _: u32,
) -> c_int {
    int(Err(libc::ENOSYS))
}

// packetdrill asks the kernel itself for the TCP_INFO that a script's `%{ }%` lines look at, and for `sendfile`,
// whatever stack it tests. Preloaded, the library answers these for its own sockets.

/// The C library's function of that name.
fn next(name: &CStr) -> *mut c_void {
    // SAFETY: a lookup by a string that ends in 0; it has no other precondition.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// `getsockopt(2)`.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut u8,
    len: *mut socklen_t,
) -> c_int {
    if WORLD.get().is_some_and(|w| w.has(fd)) {
        // SAFETY: the same arguments.
        return unsafe { getsockopt_of_script(std::ptr::null_mut(), fd, level, name, value, len) };
    }
    type Real = unsafe extern "C" fn(c_int, c_int, c_int, *mut u8, *mut socklen_t) -> c_int;
    let real = next(c"getsockopt");
    if real.is_null() {
        return int(Err(libc::ENOSYS));
    }
    // SAFETY: the C library's getsockopt has this type.
    let real = unsafe { std::mem::transmute::<*mut c_void, Real>(real) };
    // SAFETY: the caller's own arguments.
    unsafe { real(fd, level, name, value, len) }
}

/// `sendfile(2)`.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile(
    out: c_int,
    input: c_int,
    offset: *mut libc::off_t,
    count: usize,
) -> ssize_t {
    let Some(w) = WORLD.get().filter(|w| w.has(out)) else {
        type Real = unsafe extern "C" fn(c_int, c_int, *mut libc::off_t, usize) -> ssize_t;
        let real = next(c"sendfile");
        if real.is_null() {
            return size(Err(libc::ENOSYS));
        }
        // SAFETY: the C library's sendfile has this type.
        let real = unsafe { std::mem::transmute::<*mut c_void, Real>(real) };
        // SAFETY: the caller's own arguments.
        return unsafe { real(out, input, offset, count) };
    };
    let mut data = vec![0u8; count.min(16 << 20)];
    // SAFETY: `data` is ours and as long as said; a null offset means the file's own position.
    let n = unsafe {
        if offset.is_null() {
            libc::read(input, data.as_mut_ptr().cast(), data.len())
        } else {
            libc::pread(input, data.as_mut_ptr().cast(), data.len(), *offset)
        }
    };
    if n <= 0 {
        return n;
    }
    let sent = w.send(out, Some(&data[..n as usize]), 0);
    if let Ok(sent) = sent
        && !offset.is_null()
    {
        // SAFETY: not null, and the caller's.
        unsafe { *offset += sent as libc::off_t };
    }
    size(sent)
}

/// packetdrill asks for a real-time priority, so that its packets leave on time. The time is virtual here, and the
/// machine is for others too.
///
/// # Safety
/// None of the arguments is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_setscheduler(_pid: c_int, _policy: c_int, _param: *const c_void) -> c_int {
    0
}
