//! The MAC addresses that this worker used last, in front of the shared table.
//!
//! A lookup in the shared table costs a keyed hash and two cache lines that other CPUs write to. Nearly all
//! packets of a server go to the gateway, so a few entries in front of it take that off the path.

use std::net::IpAddr;

use ff_tcp::Instant;

/// Entries; a power of two.
const ENTRIES: usize = 64;
/// An entry is used for so long without asking the table, which decides about probes once a second.
const LIFETIME_US: u64 = 1_000_000;

#[derive(Clone, Copy)]
struct Entry {
    hop: IpAddr,
    mac: [u8; 6],
    until: Instant,
}

/// A direct-mapped cache of next hops.
pub(crate) struct HopCache {
    entries: [Option<Entry>; ENTRIES],
    /// The table's count of changes when the entries were made; another one makes them all void.
    changes: u64,
}

impl HopCache {
    pub(crate) fn new() -> Self {
        Self { entries: [None; ENTRIES], changes: 0 }
    }

    pub(crate) fn get(&self, now: Instant, changes: u64, hop: IpAddr) -> Option<[u8; 6]> {
        match self.entries[place(hop)] {
            Some(entry) if entry.hop == hop && self.changes == changes && now < entry.until => {
                Some(entry.mac)
            }
            _ => None,
        }
    }

    pub(crate) fn put(&mut self, now: Instant, changes: u64, hop: IpAddr, mac: [u8; 6]) {
        if self.changes != changes {
            self.entries = [None; ENTRIES];
            self.changes = changes;
        }
        self.entries[place(hop)] = Some(Entry { hop, mac, until: Instant(now.0 + LIFETIME_US) });
    }
}

/// Collisions cost a lookup in the shared table and nothing else, so the hash need not be keyed.
fn place(hop: IpAddr) -> usize {
    let word = match hop {
        IpAddr::V4(v4) => u64::from(u32::from(v4)),
        IpAddr::V6(v6) => {
            let bits = u128::from(v6);
            (bits >> 64) as u64 ^ bits as u64
        }
    };
    (word.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize % ENTRIES
}
