//! recvmsg and sendmsg with their control messages: IP_PKTINFO and IPV6_PKTINFO travel beside a datagram.

use std::borrow::Cow;
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::RawFd;

use ff_dataplane::sockets::{Domain, SockOptName, SockOptValue};
use libc::{c_int, cmsghdr, iovec, msghdr, size_t, socklen_t};

use super::transfer::{self, Got};
use crate::address::{self, Given};
use crate::failure::{Outcome, fail};
use crate::process;

/// IOV_MAX of Linux.
const VECTORS_MAX: usize = 1024;

/// An application's vector of buffers to be filled.
///
/// # Errors
/// EINVAL for a length out of range; EFAULT without a vector.
///
/// # Safety
/// `iov` is valid for `count` entries, each of them writable, for as long as the result is used.
pub unsafe fn buffers_mut<'a>(iov: *const iovec, count: usize) -> Outcome<Vec<IoSliceMut<'a>>> {
    if count > VECTORS_MAX {
        return fail(libc::EINVAL);
    }
    if iov.is_null() && count > 0 {
        return fail(libc::EFAULT);
    }
    let mut bufs = Vec::with_capacity(count);
    for at in 0..count {
        // SAFETY: entry `at` lies within the vector, and describes a writable buffer, by the caller's word; one
        // without bytes may have no address.
        bufs.push(IoSliceMut::new(unsafe {
            let entry = &*iov.add(at);
            slice_mut(entry.iov_base.cast(), entry.iov_len)
        }));
    }
    Ok(bufs)
}

/// An application's vector of buffers to be sent: as it stands where it can be, since `IoSlice` has the layout of
/// `iovec`; copied if a buffer without bytes has no address, which a slice must have.
///
/// # Errors
/// As [`buffers_mut`].
///
/// # Safety
/// As [`buffers_mut`], the buffers readable.
pub unsafe fn buffers<'a>(iov: *const iovec, count: usize) -> Outcome<Cow<'a, [IoSlice<'a>]>> {
    if count > VECTORS_MAX {
        return fail(libc::EINVAL);
    }
    if count == 0 {
        return Ok(Cow::Borrowed(&[]));
    }
    if iov.is_null() {
        return fail(libc::EFAULT);
    }
    // SAFETY: the vector is valid for `count` entries, by the caller's word.
    let entries = unsafe { std::slice::from_raw_parts(iov, count) };
    if entries.iter().all(|entry| !entry.iov_base.is_null()) {
        // SAFETY: the standard library guarantees that IoSlice is ABI-compatible with iovec on Unix; every entry
        // describes a readable buffer with an address.
        return Ok(Cow::Borrowed(unsafe { std::slice::from_raw_parts(iov.cast(), count) }));
    }
    // SAFETY: each entry describes a readable buffer, by the caller's word.
    Ok(entries
        .iter()
        .map(|entry| IoSlice::new(unsafe { slice(entry.iov_base.cast(), entry.iov_len) }))
        .collect())
}

/// A C buffer as a slice.
///
/// # Safety
/// `base` is valid for reads of `len` bytes, or `len` is 0.
pub unsafe fn slice<'a>(base: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: by the caller's word; no buffer is longer than half the address space.
    unsafe { std::slice::from_raw_parts(base, len.min(isize::MAX as usize)) }
}

/// A C buffer as a slice to be written.
///
/// # Safety
/// `base` is valid for writes of `len` bytes, or `len` is 0.
pub unsafe fn slice_mut<'a>(base: *mut u8, len: usize) -> &'a mut [u8] {
    if len == 0 {
        return &mut [];
    }
    // SAFETY: by the caller's word. The bytes may never have been written by Rust; they come from C, where every
    // byte of an object has a value.
    unsafe { std::slice::from_raw_parts_mut(base, len.min(isize::MAX as usize)) }
}

/// `recvmsg`.
///
/// # Errors
/// As `recvmsg(2)`; `Kernel` when the real call is to be made.
///
/// # Safety
/// `message` is valid, and so is everything that it points to.
pub unsafe fn receive(fd: RawFd, message: *mut msghdr, flags: c_int) -> Outcome<usize> {
    // SAFETY: `message` is valid by the caller's word.
    let Some(message) = (unsafe { message.as_mut() }) else { return fail(libc::EFAULT) };
    // SAFETY: the message's vector is valid by the caller's word.
    let mut bufs = unsafe { buffers_mut(message.msg_iov, message.msg_iovlen) }?;
    let got = transfer::receive(fd, &mut bufs, flags)?;
    message.msg_flags = 0;
    let Some(datagram) = got.datagram else {
        message.msg_namelen = 0;
        message.msg_controllen = 0;
        return Ok(got.len);
    };
    if datagram.full_len > datagram.len {
        message.msg_flags |= libc::MSG_TRUNC;
    }
    if message.msg_name.is_null() {
        message.msg_namelen = 0;
    } else {
        // SAFETY: the name has the room that `msg_namelen` says.
        unsafe {
            address::write(datagram.from, got.domain, message.msg_name.cast(), &mut message.msg_namelen)
        }?;
    }
    // SAFETY: the control buffer is valid by the caller's word.
    unsafe { tell_destination(fd, &got, datagram.to, message) };
    Ok(got.len)
}

/// Writes a control message with the destination address, if the application asked for it.
///
/// # Safety
/// `message`'s control buffer has the room that it says.
unsafe fn tell_destination(fd: RawFd, got: &Got, to: IpAddr, message: &mut msghdr) {
    let wanted = |name| {
        let mut process = process::lock();
        matches!(
            process.open_socket(fd).map(|(stack, socket)| stack.option(socket, name)),
            Ok(Ok(SockOptValue::Int(on))) if on != 0
        )
    };
    let room = message.msg_controllen;
    message.msg_controllen = 0;
    if message.msg_control.is_null() || room == 0 {
        return;
    }
    let mut written = false;
    match got.domain {
        Domain::Ipv4 if wanted(SockOptName::PktInfo) => {
            if let IpAddr::V4(v4) = to.to_canonical() {
                let raw = libc::in_addr { s_addr: u32::from_ne_bytes(v4.octets()) };
                let info = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: raw, ipi_addr: raw };
                // SAFETY: passed on from the caller.
                written = unsafe { put(message, room, libc::IPPROTO_IP, libc::IP_PKTINFO, info) };
            }
        }
        Domain::Ipv6 if wanted(SockOptName::RecvPktInfo6) => {
            let v6 = match to {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => v6,
            };
            let info =
                libc::in6_pktinfo { ipi6_addr: libc::in6_addr { s6_addr: v6.octets() }, ipi6_ifindex: 0 };
            // SAFETY: passed on from the caller.
            written = unsafe { put(message, room, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info) };
        }
        _ => return,
    }
    if !written {
        message.msg_flags |= libc::MSG_CTRUNC;
    }
}

/// Writes one control message; says whether it fitted.
///
/// # Safety
/// `message.msg_control` has `room` bytes.
unsafe fn put<T>(message: &mut msghdr, room: size_t, level: c_int, kind: c_int, value: T) -> bool {
    // SAFETY: CMSG_SPACE and CMSG_LEN only compute; the header and the value fit, as was compared with `room`.
    unsafe {
        let space = libc::CMSG_SPACE(size_of::<T>() as u32) as usize;
        if space > room {
            return false;
        }
        let header = message.msg_control.cast::<cmsghdr>();
        header.write_unaligned(cmsghdr {
            cmsg_len: libc::CMSG_LEN(size_of::<T>() as u32) as usize,
            cmsg_level: level,
            cmsg_type: kind,
        });
        libc::CMSG_DATA(header).cast::<T>().write_unaligned(value);
        message.msg_controllen = space;
    }
    true
}

/// The source address that a control message asks for.
///
/// # Safety
/// `message`'s control buffer is valid.
unsafe fn source_of(message: &msghdr) -> Option<IpAddr> {
    let mut source = None;
    // SAFETY: the CMSG macros walk the control buffer within the length that the message gives; each value is read
    // only when its header says that it is long enough.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            let entry = header.read_unaligned();
            let holds = |len: usize| entry.cmsg_len >= libc::CMSG_LEN(len as u32) as usize;
            match (entry.cmsg_level, entry.cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) if holds(size_of::<libc::in_pktinfo>()) => {
                    let info = libc::CMSG_DATA(header).cast::<libc::in_pktinfo>().read_unaligned();
                    let spec = Ipv4Addr::from(info.ipi_spec_dst.s_addr.to_ne_bytes());
                    source = Some(IpAddr::V4(spec));
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if holds(size_of::<libc::in6_pktinfo>()) => {
                    let info = libc::CMSG_DATA(header).cast::<libc::in6_pktinfo>().read_unaligned();
                    source = Some(IpAddr::V6(Ipv6Addr::from(info.ipi6_addr.s6_addr)));
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    source.filter(|source| !source.is_unspecified())
}

/// `sendmsg`.
///
/// # Errors
/// As `sendmsg(2)`; `Kernel` when the real call is to be made.
///
/// # Safety
/// `message` is valid, and so is everything that it points to.
pub unsafe fn send(fd: RawFd, message: *const msghdr, flags: c_int) -> Outcome<usize> {
    // SAFETY: `message` is valid by the caller's word.
    let Some(message) = (unsafe { message.as_ref() }) else { return fail(libc::EFAULT) };
    // SAFETY: the message's vector, name and control buffer are valid by the caller's word.
    let (bufs, to, source) = unsafe {
        let bufs = buffers(message.msg_iov, message.msg_iovlen)?;
        let to = destination(message.msg_name.cast(), message.msg_namelen)?;
        (bufs, to, source_of(message))
    };
    transfer::transmit(fd, &bufs, flags, to, source)
}

/// The destination that `sendto` or `sendmsg` names, if any.
///
/// # Errors
/// As [`address::read`].
///
/// # Safety
/// `addr` is null or valid for `len` bytes.
pub unsafe fn destination(
    addr: *const libc::sockaddr,
    len: socklen_t,
) -> Outcome<Option<std::net::SocketAddr>> {
    if addr.is_null() {
        return Ok(None);
    }
    // SAFETY: by the caller's word.
    match unsafe { address::read(addr, len) }? {
        Given::Inet(address) => Ok(Some(address)),
        Given::Unspecified => Ok(None),
    }
}
