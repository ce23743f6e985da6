//! The local port of an active connection.
//!
//! RFC 6056, algorithm 3: the search begins at a keyed hash of the two
//! addresses and the peer's port, plus a counter, so that an outsider cannot
//! guess it and the same destination gets a fresh port each time.
//!
//! Two generations, and several workers, share one address and cannot ask each
//! other. So the ports are divided: port ≡ slot (mod slots), which for two
//! slots is even and odd, and within that by worker. A port that was bound
//! explicitly is not touched by this.

use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use siphasher::sip::SipHasher13;

use crate::key::HashKey;

/// Ports to choose from. RFC 6056, section 3.2 asks for as wide a range as
/// possible; below 10 000 servers live.
pub const EPHEMERAL_PORTS: RangeInclusive<u16> = 10_000..=65_535;

/// Which part of the ports is this worker's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortShare {
    /// Slots of the instance, at least 1.
    pub slots: u16,
    /// This generation's slot, below `slots`.
    pub slot: u16,
    /// Workers of a generation, at least 1.
    pub workers: u16,
    /// This worker, below `workers`.
    pub worker: u16,
}

impl PortShare {
    /// The ports of the share are those that leave [`remainder`](Self::remainder)
    /// when divided by this.
    fn modulus(self) -> u32 {
        u32::from(self.slots.max(1)) * u32::from(self.workers.max(1))
    }

    /// Chosen so that a port modulo `slots` is the slot.
    fn remainder(self) -> u32 {
        (u32::from(self.slot) + u32::from(self.slots.max(1)) * u32::from(self.worker)) % self.modulus()
    }

    /// True if `port` is of this share.
    pub fn holds(self, port: u16) -> bool {
        u32::from(port) % self.modulus() == self.remainder()
    }
}

/// Chooses ports for one worker.
#[derive(Clone, Debug)]
pub struct EphemeralPorts {
    secret: HashKey,
    share: PortShare,
    first: u32,
    count: u32,
    counter: u32,
}

impl EphemeralPorts {
    /// Chooses from `range` within `share`. `secret` is random and may be shared
    /// by all generations.
    pub fn new(secret: HashKey, share: PortShare, range: RangeInclusive<u16>) -> Self {
        let modulus = share.modulus();
        let start = u32::from(*range.start());
        let first = start + (share.remainder() + modulus - start % modulus) % modulus;
        let end = u32::from(*range.end());
        let count = if first > end { 0 } else { (end - first) / modulus + 1 };
        Self { secret, share, first, count, counter: 0 }
    }

    /// Ports there are for each destination.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// A port for a connection from `local` to `remote` that is not `in_use`;
    /// `None` if all are. At most [`count`](Self::count) questions.
    pub fn choose(
        &mut self,
        local: IpAddr,
        remote: SocketAddr,
        mut in_use: impl FnMut(u16) -> bool,
    ) -> Option<u16> {
        if self.count == 0 {
            return None;
        }
        let offset = self.offset(local, remote);
        for _ in 0..self.count {
            let position = offset.wrapping_add(u64::from(self.counter)) % u64::from(self.count);
            self.counter = self.counter.wrapping_add(1);
            // Below 65 536 by construction of `count`.
            let port = (self.first + position as u32 * self.share.modulus()) as u16;
            if !in_use(port) {
                return Some(port);
            }
        }
        None
    }

    fn offset(&self, local: IpAddr, remote: SocketAddr) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&self.secret);
        for ip in [local, remote.ip()] {
            match ip {
                IpAddr::V4(v4) => hasher.write(&v4.to_ipv6_mapped().octets()),
                IpAddr::V6(v6) => hasher.write(&v6.octets()),
            }
        }
        hasher.write_u16(remote.port());
        // Away from the top, so that adding a counter does not wrap unevenly.
        hasher.finish() >> 1
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
