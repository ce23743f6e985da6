//! Socket addresses between C and Rust.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use ff_dataplane::sockets::Domain;
use libc::{c_int, sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};

use crate::failure::{Outcome, fail};

/// An address that an application gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Given {
    /// AF_INET or AF_INET6.
    Inet(SocketAddr),
    /// AF_UNSPEC: dissolves a datagram socket's association.
    Unspecified,
}

/// Reads an application's address.
///
/// # Errors
/// EINVAL when it is too short, EFAULT when there is none, EAFNOSUPPORT for another family.
///
/// # Safety
/// `addr` is null or valid for reads of `len` bytes.
pub unsafe fn read(addr: *const sockaddr, len: socklen_t) -> Outcome<Given> {
    if addr.is_null() {
        return fail(libc::EFAULT);
    }
    let len = len as usize;
    if len < size_of::<sa_family_t>() {
        return fail(libc::EINVAL);
    }
    // SAFETY: `len` covers the family, which lies first; sockaddr has no stricter alignment to keep here, as
    // the read is unaligned.
    let family = c_int::from(unsafe { addr.cast::<sa_family_t>().read_unaligned() });
    match family {
        libc::AF_UNSPEC => Ok(Given::Unspecified),
        libc::AF_INET if len >= size_of::<sockaddr_in>() => {
            // SAFETY: `len` covers a whole sockaddr_in.
            let raw = unsafe { addr.cast::<sockaddr_in>().read_unaligned() };
            let ip = IpAddr::from(raw.sin_addr.s_addr.to_ne_bytes());
            Ok(Given::Inet(SocketAddr::new(ip, u16::from_be(raw.sin_port))))
        }
        // The scope id is the one member that an application may leave out (RFC 2133 had none).
        libc::AF_INET6 if len >= size_of::<sockaddr_in6>() - size_of::<u32>() => {
            // SAFETY: `len` covers all members but the scope id; members are read one by one, unaligned.
            let (port, octets) = unsafe {
                let raw = addr.cast::<sockaddr_in6>();
                (
                    (&raw const (*raw).sin6_port).read_unaligned(),
                    (&raw const (*raw).sin6_addr).read_unaligned(),
                )
            };
            let ip = Ipv6Addr::from(octets.s6_addr);
            Ok(Given::Inet(SocketAddr::V6(SocketAddrV6::new(ip, u16::from_be(port), 0, 0))))
        }
        libc::AF_INET | libc::AF_INET6 => fail(libc::EINVAL),
        _ => fail(libc::EAFNOSUPPORT),
    }
}

/// Gives an address to an application, cut to the room it has, with the full length in `len`, as Linux does.
/// An IPv4 address on an IPv6 socket is v4-mapped. Without an `addr` nothing is written.
///
/// # Errors
/// EFAULT when there is room for an address and none for its length; EINVAL for a negative length.
///
/// # Safety
/// `len` is null or valid; `addr` is null or valid for writes of `*len` bytes.
pub unsafe fn write(
    address: SocketAddr,
    domain: Domain,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> Outcome<()> {
    if addr.is_null() {
        return Ok(());
    }
    if len.is_null() {
        return fail(libc::EFAULT);
    }
    // SAFETY: `len` is valid.
    let room = unsafe { *len };
    if (room as i32) < 0 {
        return fail(libc::EINVAL);
    }
    let (raw, used) = encode(address, domain);
    let copied = used.min(room as usize);
    // SAFETY: `raw` is larger than `used`, and `addr` is valid for `room` bytes by the caller's word.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const raw).cast::<u8>(), addr.cast::<u8>(), copied);
        *len = used as socklen_t;
    }
    Ok(())
}

/// The C form and its length.
pub fn encode(address: SocketAddr, domain: Domain) -> (libc::sockaddr_storage, usize) {
    // SAFETY: all zeroes is a valid sockaddr_storage.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let used = match (domain, address) {
        (Domain::Ipv4, SocketAddr::V4(v4)) => {
            let raw = sockaddr_in {
                sin_family: libc::AF_INET as sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: sockaddr_storage is large and aligned enough for any socket address.
            unsafe { (&raw mut storage).cast::<sockaddr_in>().write(raw) };
            size_of::<sockaddr_in>()
        }
        (_, address) => {
            let ip = match address.ip() {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => v6,
            };
            let raw = sockaddr_in6 {
                sin6_family: libc::AF_INET6 as sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: ip.octets() },
                sin6_scope_id: 0,
            };
            // SAFETY: sockaddr_storage is large and aligned enough for any socket address.
            unsafe { (&raw mut storage).cast::<sockaddr_in6>().write(raw) };
            size_of::<sockaddr_in6>()
        }
    };
    (storage, used)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(address: &str, domain: Domain) -> SocketAddr {
        let (storage, used) = encode(address.parse().unwrap(), domain);
        // SAFETY: the storage holds `used` bytes.
        match unsafe { read((&raw const storage).cast(), used as socklen_t) } {
            Ok(Given::Inet(address)) => address,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn addresses_survive_both_ways() {
        assert_eq!(round_trip("198.18.0.2:80", Domain::Ipv4), "198.18.0.2:80".parse().unwrap());
        assert_eq!(round_trip("[2001:2::2]:443", Domain::Ipv6), "[2001:2::2]:443".parse().unwrap());
        assert_eq!(round_trip("198.18.0.2:80", Domain::Ipv6), "[::ffff:198.18.0.2]:80".parse().unwrap());
    }

    #[test]
    fn a_short_buffer_gets_the_full_length() {
        let mut room = [0xff_u8; 4];
        let mut len: socklen_t = 4;
        // SAFETY: `room` has the 4 bytes that `len` says.
        unsafe { write("198.18.0.2:80".parse().unwrap(), Domain::Ipv4, room.as_mut_ptr().cast(), &mut len) }
            .unwrap();
        assert_eq!(len, 16);
        assert_eq!(room[2..], 80_u16.to_be_bytes());
    }

    #[test]
    fn bad_addresses_have_linux_errnos() {
        let (storage, used) = encode("198.18.0.2:80".parse().unwrap(), Domain::Ipv4);
        let at = (&raw const storage).cast();
        // SAFETY: the storage holds `used` bytes, and null is allowed.
        unsafe {
            assert_eq!(read(std::ptr::null(), 16), fail(libc::EFAULT));
            assert_eq!(read(at, used as socklen_t - 1), fail(libc::EINVAL));
            assert_eq!(read(at, 1), fail(libc::EINVAL));
        }
    }
}
