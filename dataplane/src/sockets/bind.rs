//! Which addresses and ports are taken, as Linux decides it.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use super::SocketId;

/// The addresses that a bound socket covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Scope {
    /// `None`: any address of the families below.
    pub(crate) ip: Option<IpAddr>,
    pub(crate) v4: bool,
    pub(crate) v6: bool,
}

impl Scope {
    /// The scope of `addr` (canonical: not v4-mapped) bound by a socket that is IPv6-only or not.
    pub(crate) fn new(addr: SocketAddr, v6_only: bool) -> Self {
        let ip = addr.ip();
        if ip.is_unspecified() {
            Self { ip: None, v4: ip.is_ipv4() || !v6_only, v6: ip.is_ipv6() }
        } else {
            Self { ip: Some(ip), v4: ip.is_ipv4(), v6: ip.is_ipv6() }
        }
    }

    fn overlaps(&self, other: &Self) -> bool {
        let family = (self.v4 && other.v4) || (self.v6 && other.v6);
        family && (self.ip.is_none() || other.ip.is_none() || self.ip == other.ip)
    }
}

/// A socket's hold on a port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub(crate) id: SocketId,
    pub(crate) scope: Scope,
    pub(crate) reuse_addr: bool,
    pub(crate) reuse_port: bool,
    pub(crate) listening: bool,
}

/// Ports that sockets hold, of one protocol.
#[derive(Debug, Default)]
pub(crate) struct PortMap(HashMap<u16, Vec<Hold>>);

impl PortMap {
    /// Whether `hold` may not have the port, to bind to it or to listen on it. Two may share it with
    /// SO_REUSEPORT on both, or with SO_REUSEADDR on both while the other does not listen (for UDP nobody
    /// ever does).
    pub(crate) fn conflicts(&self, port: u16, hold: &Hold) -> bool {
        self.0.get(&port).is_some_and(|holds| {
            holds.iter().any(|other| {
                other.id != hold.id
                    && other.scope.overlaps(&hold.scope)
                    && !(other.reuse_port && hold.reuse_port)
                    && !(other.reuse_addr && hold.reuse_addr && !other.listening)
            })
        })
    }

    /// Stores a hold, or what has changed of it.
    pub(crate) fn set(&mut self, port: u16, hold: Hold) {
        let holds = self.0.entry(port).or_default();
        match holds.iter_mut().find(|known| known.id == hold.id) {
            Some(known) => *known = hold,
            None => holds.push(hold),
        }
    }

    pub(crate) fn remove(&mut self, port: u16, id: SocketId) {
        if let Some(holds) = self.0.get_mut(&port) {
            holds.retain(|hold| hold.id != id);
            if holds.is_empty() {
                self.0.remove(&port);
            }
        }
    }

    /// Whether any socket holds the port.
    pub(crate) fn is_held(&self, port: u16) -> bool {
        self.0.contains_key(&port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(index: u32, addr: &str, v6_only: bool) -> Hold {
        Hold {
            id: SocketId { index, generation: 0 },
            scope: Scope::new(addr.parse().expect("an address"), v6_only),
            reuse_addr: false,
            reuse_port: false,
            listening: false,
        }
    }

    #[test]
    fn overlaps_as_linux_sees_them() {
        for (a, b, v6_only, expected) in [
            ("0.0.0.0:80", "198.18.0.2:80", false, true),
            ("198.18.0.3:80", "198.18.0.2:80", false, false),
            ("[::]:80", "0.0.0.0:80", false, true),
            ("[::]:80", "0.0.0.0:80", true, false),
            ("[::]:80", "[2001:2::2]:80", true, true),
            ("[2001:2::2]:80", "0.0.0.0:80", false, false),
        ] {
            let mut ports = PortMap::default();
            ports.set(80, hold(1, a, v6_only));
            assert_eq!(ports.conflicts(80, &hold(2, b, v6_only)), expected, "{a} {b} {v6_only}");
            assert!(!ports.conflicts(81, &hold(2, b, v6_only)));
        }
    }

    #[test]
    fn reuse() {
        let mut ports = PortMap::default();
        let with = |reuse_addr, reuse_port, listening, index| Hold {
            reuse_addr,
            reuse_port,
            listening,
            ..hold(index, "0.0.0.0:80", false)
        };
        ports.set(80, with(true, false, false, 1));
        assert!(!ports.conflicts(80, &with(true, false, false, 2)));
        assert!(ports.conflicts(80, &with(false, false, false, 2)));
        ports.set(80, with(true, false, true, 1));
        assert!(
            ports.conflicts(80, &with(true, false, false, 2)),
            "a listener does not share by SO_REUSEADDR"
        );
        ports.set(80, with(true, true, true, 1));
        assert!(!ports.conflicts(80, &with(false, true, true, 2)));
        ports.remove(80, SocketId { index: 1, generation: 0 });
        assert!(!ports.is_held(80));
    }
}
