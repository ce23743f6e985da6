//! `struct sockaddr` in and out. IPv4-mapped addresses of IPv6 sockets are IPv4 inside.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes of the largest address written here (`struct sockaddr_in6`).
pub(crate) const SOCKADDR_BYTES_MAX: usize = 28;

/// What a call's address says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Address {
    /// AF_UNSPEC: `connect` takes it as "disconnect".
    Unspecified,
    /// An internet address.
    Inet(SocketAddr),
}

/// Reads a `struct sockaddr` of the caller; `None` is one that no internet socket takes.
pub(crate) fn read(bytes: &[u8]) -> Option<Address> {
    let family = i32::from(u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?]));
    let port = || Some(u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]));
    match family {
        libc::AF_UNSPEC => Some(Address::Unspecified),
        libc::AF_INET => {
            let ip: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some(Address::Inet(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(ip)), port()?)))
        }
        libc::AF_INET6 => {
            let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            let ip = Ipv6Addr::from(ip);
            let ip = ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4);
            Some(Address::Inet(SocketAddr::new(ip, port()?)))
        }
        _ => None,
    }
}

/// The `struct sockaddr` that a socket of family `v6` reports for `addr`.
pub(crate) fn write(addr: SocketAddr, v6: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(SOCKADDR_BYTES_MAX);
    if v6 {
        let ip = match addr.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        out.extend((libc::AF_INET6 as u16).to_ne_bytes());
        out.extend(addr.port().to_be_bytes());
        out.extend([0; 4]);
        out.extend(ip.octets());
        out.extend([0; 4]);
    } else {
        let ip = match addr.ip() {
            IpAddr::V4(ip) => ip,
            IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
        };
        out.extend((libc::AF_INET as u16).to_ne_bytes());
        out.extend(addr.port().to_be_bytes());
        out.extend(ip.octets());
        out.extend([0; 8]);
    }
    out
}
