//! Addresses of the client's end of a wire: chosen from the prefixes of the server's end. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ff_control::AddressPlan;

/// Most source addresses of each family.
pub const SOURCES_MAX: u16 = 256;

/// `count` addresses of each family that the server has, with their prefix lengths: hosts of its first prefix, from
/// the top down, that are neither in `taken` nor the prefix's broadcast address. A prefix that has fewer gives fewer.
pub fn choose(server: &[AddressPlan], taken: &[IpAddr], count: u16) -> Vec<(IpAddr, u8)> {
    let mut chosen = Vec::new();
    for is_ipv4 in [true, false] {
        let Some(prefix) = server.iter().find(|address| address.addr.is_ipv4() == is_ipv4) else { continue };
        let is_free = |ip: &IpAddr| {
            prefix.contains(*ip) && !taken.contains(ip) && server.iter().all(|address| address.addr != *ip)
        };
        let hosts = (1..=u16::MAX).map_while(|nth| host_from_top(prefix, nth));
        chosen.extend(hosts.filter(is_free).take(usize::from(count)).map(|ip| (ip, prefix.prefix_len)));
    }
    chosen
}

/// The `nth` address from the top of the prefix, which has itself the number 0; `None` below the first host.
fn host_from_top(prefix: &AddressPlan, nth: u16) -> Option<IpAddr> {
    match prefix.addr {
        IpAddr::V4(addr) => {
            let host_bits = 32 - u32::from(prefix.prefix_len.min(32));
            let hosts = (1u64 << host_bits) - 1;
            let top = addr.to_bits() | hosts as u32;
            (u64::from(nth) < hosts).then(|| Ipv4Addr::from_bits(top - u32::from(nth)).into())
        }
        IpAddr::V6(addr) => {
            let host_bits = 128 - u32::from(prefix.prefix_len.min(128));
            let hosts = u128::MAX.checked_shr(128 - host_bits).unwrap_or(0);
            let top = addr.to_bits() | hosts;
            (u128::from(nth) < hosts).then(|| Ipv6Addr::from_bits(top - u128::from(nth)).into())
        }
    }
}

/// The client's MAC address: the server's with its last bit flipped, as the far end of a TAP has it.
pub fn client_mac(mut server: [u8; 6]) -> [u8; 6] {
    server[5] ^= 1;
    server
}

#[cfg(test)]
mod tests;
