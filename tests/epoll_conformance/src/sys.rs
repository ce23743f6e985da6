//! The C library's calls with Rust's types: every one goes through the C library's symbols, so that a preloaded
//! library sees it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use libc::{c_int, c_void, epoll_event, socklen_t};

/// What a call returned, or the name of its errno.
pub type Outcome<T> = Result<T, String>;

fn check(result: isize) -> Outcome<usize> {
    usize::try_from(result).map_err(|_| name_of(errno()))
}

pub fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// The name of an errno.
pub fn name_of(errno: i32) -> String {
    let names = [
        (0, "none"),
        (libc::EAGAIN, "EAGAIN"),
        (libc::EINTR, "EINTR"),
        (libc::EBADF, "EBADF"),
        (libc::EINVAL, "EINVAL"),
        (libc::EEXIST, "EEXIST"),
        (libc::ENOENT, "ENOENT"),
        (libc::EFAULT, "EFAULT"),
        (libc::EPERM, "EPERM"),
        (libc::EDOM, "EDOM"),
        (libc::ENOTCONN, "ENOTCONN"),
        (libc::EISCONN, "EISCONN"),
        (libc::EPIPE, "EPIPE"),
        (libc::ECONNRESET, "ECONNRESET"),
        (libc::ECONNREFUSED, "ECONNREFUSED"),
        (libc::EADDRINUSE, "EADDRINUSE"),
        (libc::EADDRNOTAVAIL, "EADDRNOTAVAIL"),
        (libc::EDESTADDRREQ, "EDESTADDRREQ"),
        (libc::ENOPROTOOPT, "ENOPROTOOPT"),
        (libc::EOPNOTSUPP, "EOPNOTSUPP"),
        (libc::EINPROGRESS, "EINPROGRESS"),
        (libc::EALREADY, "EALREADY"),
        (libc::EMSGSIZE, "EMSGSIZE"),
        (libc::ETIMEDOUT, "ETIMEDOUT"),
        (libc::EMFILE, "EMFILE"),
    ];
    names
        .iter()
        .find(|(number, _)| *number == errno)
        .map_or_else(|| format!("errno {errno}"), |(_, name)| (*name).to_owned())
}

/// A socket address in C's form.
pub fn to_c(address: SocketAddr) -> (libc::sockaddr_storage, socklen_t) {
    // SAFETY: all zeroes is a valid sockaddr_storage, which is large and aligned enough for both kinds.
    unsafe {
        let mut storage: libc::sockaddr_storage = std::mem::zeroed();
        let len = match address {
            SocketAddr::V4(v4) => {
                let raw = (&raw mut storage).cast::<libc::sockaddr_in>();
                (*raw).sin_family = libc::AF_INET as u16;
                (*raw).sin_port = v4.port().to_be();
                (*raw).sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                let raw = (&raw mut storage).cast::<libc::sockaddr_in6>();
                (*raw).sin6_family = libc::AF_INET6 as u16;
                (*raw).sin6_port = v6.port().to_be();
                (*raw).sin6_addr.s6_addr = v6.ip().octets();
                size_of::<libc::sockaddr_in6>()
            }
        };
        (storage, len as socklen_t)
    }
}

/// A socket address in Rust's form.
pub fn from_c(storage: &libc::sockaddr_storage) -> SocketAddr {
    let raw: *const libc::sockaddr_storage = storage;
    // SAFETY: the family says which kind the storage holds.
    unsafe {
        if c_int::from(storage.ss_family) == libc::AF_INET6 {
            let raw = raw.cast::<libc::sockaddr_in6>();
            SocketAddr::new(
                IpAddr::V6(Ipv6Addr::from((*raw).sin6_addr.s6_addr)),
                u16::from_be((*raw).sin6_port),
            )
        } else {
            let raw = raw.cast::<libc::sockaddr_in>();
            let ip = Ipv4Addr::from((*raw).sin_addr.s_addr.to_ne_bytes());
            SocketAddr::new(IpAddr::V4(ip), u16::from_be((*raw).sin_port))
        }
    }
}

pub fn socket(domain: c_int, kind: c_int) -> Outcome<c_int> {
    // SAFETY: no preconditions.
    check(unsafe { libc::socket(domain, kind, 0) } as isize).map(|fd| fd as c_int)
}

pub fn bind(fd: c_int, address: SocketAddr) -> Outcome<usize> {
    let (storage, len) = to_c(address);
    // SAFETY: the address lives through the call.
    check(unsafe { libc::bind(fd, (&raw const storage).cast(), len) } as isize)
}

pub fn connect(fd: c_int, address: SocketAddr) -> Outcome<usize> {
    let (storage, len) = to_c(address);
    // SAFETY: the address lives through the call.
    check(unsafe { libc::connect(fd, (&raw const storage).cast(), len) } as isize)
}

pub fn listen(fd: c_int, backlog: c_int) -> Outcome<usize> {
    // SAFETY: no preconditions.
    check(unsafe { libc::listen(fd, backlog) } as isize)
}

pub fn accept4(fd: c_int, flags: c_int) -> Outcome<(c_int, SocketAddr)> {
    // SAFETY: all zeroes is a valid sockaddr_storage; address and length live through the call.
    unsafe {
        let mut storage: libc::sockaddr_storage = std::mem::zeroed();
        let mut len = size_of::<libc::sockaddr_storage>() as socklen_t;
        let fd = check(libc::accept4(fd, (&raw mut storage).cast(), &mut len, flags) as isize)?;
        Ok((fd as c_int, from_c(&storage)))
    }
}

pub fn name(fd: c_int, peer: bool) -> Outcome<SocketAddr> {
    // SAFETY: all zeroes is a valid sockaddr_storage; address and length live through the call.
    unsafe {
        let mut storage: libc::sockaddr_storage = std::mem::zeroed();
        let mut len = size_of::<libc::sockaddr_storage>() as socklen_t;
        let call = if peer { libc::getpeername } else { libc::getsockname };
        check(call(fd, (&raw mut storage).cast(), &mut len) as isize)?;
        Ok(from_c(&storage))
    }
}

pub fn close(fd: c_int) -> Outcome<usize> {
    // SAFETY: the caller owns the descriptor.
    check(unsafe { libc::close(fd) } as isize)
}

pub fn shutdown(fd: c_int, how: c_int) -> Outcome<usize> {
    // SAFETY: no preconditions.
    check(unsafe { libc::shutdown(fd, how) } as isize)
}

pub fn read(fd: c_int, len: usize) -> Outcome<usize> {
    let mut buf = vec![0_u8; len];
    // SAFETY: the buffer has `len` bytes.
    check(unsafe { libc::read(fd, buf.as_mut_ptr().cast(), len) })
}

pub fn recv(fd: c_int, len: usize, flags: c_int) -> Outcome<usize> {
    let mut buf = vec![0_u8; len];
    // SAFETY: the buffer has `len` bytes.
    check(unsafe { libc::recv(fd, buf.as_mut_ptr().cast(), len, flags) })
}

pub fn write(fd: c_int, bytes: &[u8]) -> Outcome<usize> {
    // SAFETY: the buffer lives through the call.
    check(unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) })
}

pub fn send(fd: c_int, bytes: &[u8], flags: c_int) -> Outcome<usize> {
    // SAFETY: the buffer lives through the call.
    check(unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) })
}

pub fn fcntl(fd: c_int, cmd: c_int, arg: c_int) -> Outcome<c_int> {
    // SAFETY: only commands with a number are used.
    check(unsafe { libc::fcntl(fd, cmd, arg) } as isize).map(|value| value as c_int)
}

/// FIONBIO or FIONREAD: gives the number back.
pub fn ioctl(fd: c_int, request: libc::c_ulong, value: c_int) -> Outcome<c_int> {
    let mut value = value;
    // SAFETY: the integer lives through the call.
    check(unsafe { libc::ioctl(fd, request, &raw mut value) } as isize).map(|_| value)
}

pub fn set(fd: c_int, level: c_int, name: c_int, value: &[u8]) -> Outcome<usize> {
    // SAFETY: the value lives through the call.
    check(unsafe { libc::setsockopt(fd, level, name, value.as_ptr().cast(), value.len() as socklen_t) }
        as isize)
}

pub fn set_int(fd: c_int, level: c_int, name: c_int, value: c_int) -> Outcome<usize> {
    set(fd, level, name, &value.to_ne_bytes())
}

pub fn get(fd: c_int, level: c_int, name: c_int) -> Outcome<Vec<u8>> {
    let mut value = vec![0_u8; 256];
    let mut len = value.len() as socklen_t;
    // SAFETY: the value has the room that `len` says.
    check(unsafe { libc::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &mut len) } as isize)?;
    value.truncate(len as usize);
    Ok(value)
}

pub fn get_int(fd: c_int, level: c_int, name: c_int) -> Outcome<c_int> {
    let value = get(fd, level, name)?;
    match value.first_chunk::<4>() {
        Some(bytes) => Ok(c_int::from_ne_bytes(*bytes)),
        None => Err(format!("only {} bytes", value.len())),
    }
}

pub fn epoll() -> c_int {
    // SAFETY: no preconditions.
    let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    assert!(fd >= 0, "epoll_create1: {}", name_of(errno()));
    fd
}

pub fn ctl(epfd: c_int, op: c_int, fd: c_int, events: c_int, data: u64) -> Outcome<usize> {
    let mut event = epoll_event { events: events as u32, u64: data };
    // SAFETY: the event lives through the call.
    check(unsafe { libc::epoll_ctl(epfd, op, fd, &mut event) } as isize)
}

/// The events of one `epoll_wait`, as (data, bits).
pub fn wait(epfd: c_int, max: usize, timeout_ms: c_int) -> Outcome<Vec<(u64, u32)>> {
    let mut events = vec![epoll_event { events: 0, u64: 0 }; max];
    // SAFETY: the events have room for `max`.
    let found =
        check(unsafe { libc::epoll_wait(epfd, events.as_mut_ptr(), max as c_int, timeout_ms) } as isize)?;
    Ok(events[..found].iter().map(|event| (event.u64, event.events)).collect())
}

pub fn poll(fds: &mut [libc::pollfd], timeout_ms: c_int) -> Outcome<usize> {
    // SAFETY: the entries live through the call.
    check(unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout_ms) } as isize)
}

/// `recvmsg` into one buffer: length, flags, and the destination of an IP_PKTINFO or IPV6_PKTINFO.
pub fn recvmsg(fd: c_int, len: usize) -> Outcome<(usize, c_int, Option<IpAddr>)> {
    let mut buf = vec![0_u8; len];
    let mut control = [0_u64; 32];
    // SAFETY: all parts of the message live through the calls; the CMSG macros walk what the kernel wrote.
    unsafe {
        let mut iov = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: len };
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut iov;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast::<c_void>();
        message.msg_controllen = size_of_val(&control);
        let got = check(libc::recvmsg(fd, &mut message, 0))?;
        let mut to = None;
        let mut header = libc::CMSG_FIRSTHDR(&message);
        while !header.is_null() {
            match ((*header).cmsg_level, (*header).cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info = libc::CMSG_DATA(header).cast::<libc::in_pktinfo>().read_unaligned();
                    to = Some(IpAddr::V4(Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes())));
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = libc::CMSG_DATA(header).cast::<libc::in6_pktinfo>().read_unaligned();
                    to = Some(IpAddr::V6(Ipv6Addr::from(info.ipi6_addr.s6_addr)));
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(&message, header);
        }
        Ok((got, message.msg_flags & libc::MSG_TRUNC, to))
    }
}

/// `recvfrom`: length and sender.
pub fn recvfrom(fd: c_int, len: usize, flags: c_int) -> Outcome<(usize, SocketAddr)> {
    let mut buf = vec![0_u8; len];
    // SAFETY: all zeroes is a valid sockaddr_storage; everything lives through the call.
    unsafe {
        let mut storage: libc::sockaddr_storage = std::mem::zeroed();
        let mut room = size_of::<libc::sockaddr_storage>() as socklen_t;
        let got = check(libc::recvfrom(
            fd,
            buf.as_mut_ptr().cast(),
            len,
            flags,
            (&raw mut storage).cast(),
            &mut room,
        ))?;
        Ok((got, from_c(&storage)))
    }
}

pub fn sendto(fd: c_int, bytes: &[u8], to: SocketAddr) -> Outcome<usize> {
    let (storage, len) = to_c(to);
    // SAFETY: everything lives through the call.
    check(unsafe {
        libc::sendto(fd, bytes.as_ptr().cast(), bytes.len(), 0, (&raw const storage).cast(), len)
    })
}

/// `writev` of several buffers.
pub fn writev(fd: c_int, parts: &[&[u8]]) -> Outcome<usize> {
    let iov: Vec<libc::iovec> = parts
        .iter()
        .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() })
        .collect();
    // SAFETY: the buffers live through the call.
    check(unsafe { libc::writev(fd, iov.as_ptr(), iov.len() as c_int) })
}

/// `readv` into buffers of these lengths: how much came.
pub fn readv(fd: c_int, lens: &[usize]) -> Outcome<usize> {
    let mut parts: Vec<Vec<u8>> = lens.iter().map(|len| vec![0; *len]).collect();
    let iov: Vec<libc::iovec> = parts
        .iter_mut()
        .map(|part| libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() })
        .collect();
    // SAFETY: the buffers live through the call.
    check(unsafe { libc::readv(fd, iov.as_ptr(), iov.len() as c_int) })
}

/// epoll bits by name.
pub fn bits(bits: u32) -> String {
    let names = [
        (libc::EPOLLIN, "IN"),
        (libc::EPOLLPRI, "PRI"),
        (libc::EPOLLOUT, "OUT"),
        (libc::EPOLLRDHUP, "RDHUP"),
        (libc::EPOLLERR, "ERR"),
        (libc::EPOLLHUP, "HUP"),
    ];
    let set: Vec<&str> =
        names.iter().filter(|(bit, _)| bits & *bit as u32 != 0).map(|(_, name)| *name).collect();
    if set.is_empty() { "nothing".to_owned() } else { set.join("|") }
}
