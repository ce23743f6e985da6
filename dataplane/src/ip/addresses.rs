//! The worker's addresses and routes: which destinations are ours, which source a packet gets, and which
//! neighbour it goes to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses and routes of a port. Constant for the life of a worker.
#[derive(Clone, Debug)]
pub struct Addresses {
    mac: [u8; 6],
    own: Vec<Own>,
    gateway4: Option<Ipv4Addr>,
    gateway6: Option<Ipv6Addr>,
}

#[derive(Clone, Copy, Debug)]
struct Own {
    ip: IpAddr,
    prefix_len: u8,
}

/// Where a packet that we send goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// To a neighbour on the link.
    Hop(IpAddr),
    /// Back to this worker: the destination is an address of ours.
    Own,
}

/// What a destination address means to us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// One of our addresses.
    Own,
    /// A group that we are in, or all on the link.
    Group,
    /// Someone else.
    Foreign,
}

impl Addresses {
    /// Addresses with their prefix lengths, and the gateways. Every port has an IPv6 link-local address, made
    /// from the MAC (RFC 4291, appendix A) unless one is given.
    pub fn new(
        mac: [u8; 6],
        addresses: &[(IpAddr, u8)],
        gateway4: Option<Ipv4Addr>,
        gateway6: Option<Ipv6Addr>,
    ) -> Self {
        let mut own: Vec<Own> = addresses.iter().map(|(ip, len)| Own { ip: *ip, prefix_len: *len }).collect();
        let link_local = |own: &Own| matches!(own.ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        if own.iter().any(|own| own.ip.is_ipv6()) && !own.iter().any(link_local) {
            own.push(Own { ip: link_local_of(mac).into(), prefix_len: 64 });
        }
        Self { mac, own, gateway4, gateway6 }
    }

    /// The port's MAC address.
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// All of our addresses.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.own.iter().map(|own| own.ip)
    }

    /// Whether `ip` is one of our addresses.
    pub fn is_own(&self, ip: IpAddr) -> bool {
        self.own.iter().any(|own| own.ip == ip)
    }

    /// What a packet's destination means.
    pub fn destination(&self, ip: IpAddr) -> Destination {
        if self.is_own(ip) {
            return Destination::Own;
        }
        let group = match ip {
            IpAddr::V4(ip) => ip.is_multicast() || ip.is_broadcast() || self.is_subnet_broadcast(ip),
            // All nodes, and the solicited-node group of each address (RFC 4291, section 2.8). Others only
            // pass when a switch floods them.
            IpAddr::V6(ip) => {
                ip == Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1)
                    || self.iter().any(|own| in_solicited_group(own, ip))
            }
        };
        if group { Destination::Group } else { Destination::Foreign }
    }

    /// Where a packet to `dst` goes; `None` without a route.
    pub fn route(&self, dst: IpAddr) -> Option<Route> {
        if self.is_own(dst) { Some(Route::Own) } else { self.next_hop(dst).map(Route::Hop) }
    }

    /// The neighbour that a packet to `dst` is handed to: `dst` itself on the link, else the gateway; `None`
    /// without a route, or for destinations that have no neighbour.
    pub fn next_hop(&self, dst: IpAddr) -> Option<IpAddr> {
        if dst.is_unspecified() || dst.is_multicast() || self.is_own(dst) {
            return None;
        }
        match dst {
            IpAddr::V4(v4) if v4.is_broadcast() || self.is_subnet_broadcast(v4) => None,
            IpAddr::V6(v6) if v6.is_unicast_link_local() => Some(dst),
            _ if self.is_on_link(dst) => Some(dst),
            IpAddr::V4(_) => self.gateway4.map(IpAddr::V4),
            IpAddr::V6(_) => self.gateway6.map(IpAddr::V6),
        }
    }

    /// The source address of a packet to `dst` whose sender has not chosen one: an address of the same
    /// subnet, else of the subnet of the gateway, else the first of the family (a simple form of RFC 6724:
    /// same scope, longest common prefix).
    pub fn source_for(&self, dst: IpAddr) -> Option<IpAddr> {
        if self.is_own(dst) {
            return Some(dst);
        }
        let hop = self.next_hop(dst)?;
        let link_local = matches!(dst, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let fits = |own: &&Own| {
            own.ip.is_ipv4() == dst.is_ipv4()
                && matches!(own.ip, IpAddr::V6(v6) if v6.is_unicast_link_local()) == link_local
        };
        let on_link = self.own.iter().filter(fits).find(|own| own.covers(dst) || own.covers(hop));
        on_link.or_else(|| self.own.iter().find(fits)).map(|own| own.ip)
    }

    fn is_on_link(&self, ip: IpAddr) -> bool {
        self.own.iter().any(|own| own.covers(ip))
    }

    fn is_subnet_broadcast(&self, ip: Ipv4Addr) -> bool {
        self.own.iter().any(|own| match own.ip {
            IpAddr::V4(v4) if own.prefix_len < 31 => {
                let host = u32::MAX.checked_shr(u32::from(own.prefix_len)).unwrap_or(0);
                u32::from(v4) | host == u32::from(ip)
            }
            _ => false,
        })
    }
}

impl Own {
    fn covers(&self, ip: IpAddr) -> bool {
        let shared_bits = match (self.ip, ip) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (u32::from(a) ^ u32::from(b)).leading_zeros(),
            (IpAddr::V6(a), IpAddr::V6(b)) => (u128::from(a) ^ u128::from(b)).leading_zeros(),
            _ => return false,
        };
        shared_bits >= u32::from(self.prefix_len)
    }
}

/// The solicited-node group of an address (RFC 4291, section 2.7.1).
pub fn solicited_group(ip: Ipv6Addr) -> Ipv6Addr {
    let low = u128::from(ip) & 0xff_ffff;
    Ipv6Addr::from(0xff02_0000_0000_0000_0000_0001_ff00_0000 | low)
}

fn in_solicited_group(own: IpAddr, group: Ipv6Addr) -> bool {
    matches!(own, IpAddr::V6(own) if solicited_group(own) == group)
}

/// The MAC address that stands for a group (RFC 1112, section 6.4; RFC 2464, section 7) or for all.
pub fn group_mac(group: IpAddr) -> [u8; 6] {
    match group {
        IpAddr::V4(v4) if v4.is_multicast() => {
            let [_, b, c, d] = v4.octets();
            [0x01, 0x00, 0x5e, b & 0x7f, c, d]
        }
        IpAddr::V4(_) => [0xff; 6],
        IpAddr::V6(v6) => {
            let octets = v6.octets();
            [0x33, 0x33, octets[12], octets[13], octets[14], octets[15]]
        }
    }
}

/// The link-local address with the modified EUI-64 of a MAC address.
pub fn link_local_of(mac: [u8; 6]) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac;
    let word = |high, low| u16::from_be_bytes([high, low]);
    Ipv6Addr::new(0xfe80, 0, 0, 0, word(a ^ 2, b), word(c, 0xff), word(0xfe, d), word(e, f))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn addresses() -> Addresses {
        let own = [(ip("198.18.0.2"), 24), (ip("198.18.5.2"), 31), (ip("2001:2::2"), 64)];
        Addresses::new([2, 0, 0, 0, 0, 1], &own, Some(Ipv4Addr::new(198, 18, 0, 1)), None)
    }

    #[test]
    fn next_hops() {
        let a = addresses();
        assert_eq!(a.next_hop(ip("198.18.0.77")), Some(ip("198.18.0.77")));
        assert_eq!(a.next_hop(ip("198.19.0.77")), Some(ip("198.18.0.1")));
        assert_eq!(a.next_hop(ip("198.18.5.3")), Some(ip("198.18.5.3")), "a /31 has no broadcast (RFC 3021)");
        assert_eq!(a.next_hop(ip("198.18.0.255")), None);
        assert_eq!(a.next_hop(ip("198.18.0.2")), None);
        assert_eq!(a.next_hop(ip("2001:2::77")), Some(ip("2001:2::77")));
        assert_eq!(a.next_hop(ip("2001:3::77")), None, "no gateway6");
        assert_eq!(a.next_hop(ip("fe80::77")), Some(ip("fe80::77")));
    }

    #[test]
    fn sources() {
        let a = addresses();
        assert_eq!(a.source_for(ip("198.18.5.3")), Some(ip("198.18.5.2")));
        assert_eq!(a.source_for(ip("198.19.0.1")), Some(ip("198.18.0.2")));
        assert_eq!(a.source_for(ip("2001:2::1")), Some(ip("2001:2::2")));
        assert_eq!(a.source_for(ip("fe80::1")), Some(link_local_of([2, 0, 0, 0, 0, 1]).into()));
    }

    #[test]
    fn destinations() {
        let a = addresses();
        for (text, expected) in [
            ("198.18.0.2", Destination::Own),
            ("198.18.0.255", Destination::Group),
            ("255.255.255.255", Destination::Group),
            ("224.0.0.1", Destination::Group),
            ("198.18.0.3", Destination::Foreign),
            ("ff02::1:ff00:2", Destination::Group),
            ("ff02::1:ff00:3", Destination::Foreign),
            ("ff02::1", Destination::Group),
            ("fe80::ff:fe00:1", Destination::Own),
        ] {
            assert_eq!(a.destination(ip(text)), expected, "{text}");
        }
    }
}
