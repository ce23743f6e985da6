//! The UDP publish table of one (worker, slot): which UDP flows it serves.
//!
//! UDP has no end that could be seen, so a flow is what had a datagram lately.
//! The worker records every datagram in and out, always; when it has lost its
//! queue to a newer generation it *publishes*, and from then on the newer
//! one's dispatcher sends it the datagrams of its live flows. A flow idle for
//! longer than `reload_udp_idle_ms` is taken over.
//!
//! Ages are *signed* differences: two processes read the clock at different
//! moments, and a stamp slightly ahead of the reader's clock is a live flow,
//! not one of 584 000 years ago.

use crate::key::{FlowKey, HashKey, TableFull};
use crate::memory::{Line, Region};
use crate::owner::Owner;
use crate::sync::Ordering;
use crate::table::writer::{TableWriter, reclaim};
use crate::table::{SLOTS, Shape, Table, TableOpenError};

const KIND: u64 = u64::from_be_bytes(*b"ff-udpfl");

/// Word of the table's second header line: window << 32 | state.
const PUBLISHED: usize = 0;

/// Flows of a table unless configured otherwise.
pub const UDP_FLOWS_DEFAULT: u32 = 16_384;

/// Buckets looked at for aged flows with every new flow: two for each new one
/// go through the whole table before it can fill again.
const SWEEP_BUCKETS: usize = 2;

/// Buckets looked at when the table is full.
const SWEEP_BUCKETS_FULL: usize = 64;

/// Bytes of shared memory that a table for `capacity` flows takes.
pub fn udp_table_bytes(capacity: u32) -> usize {
    Shape::new(capacity).bytes()
}

/// Writes an empty table for `capacity` flows over `region`. Only the creator
/// of the memory does this, before anybody else opens it.
pub fn format_udp_table(region: Region<'_>, capacity: u32, hash_key: HashKey) -> Result<(), TableOpenError> {
    Table::format(region, KIND, capacity, hash_key)
}

/// What the owner says about its flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Publication {
    /// It owns its queue, or knows nothing of windows.
    None,
    /// It lost its queue in this window: datagrams of its live flows are its own.
    Publishing {
        /// Epoch of the generation that took the queue.
        window: u32,
    },
    /// It is done with UDP: everything belongs to the newer generation.
    Handed {
        /// As above.
        window: u32,
    },
}

impl Publication {
    fn word(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Publishing { window } => (u64::from(window) << 32) | 1,
            Self::Handed { window } => (u64::from(window) << 32) | 2,
        }
    }

    /// An unknown state, from a newer version, counts as none.
    fn from_word(word: u64) -> Self {
        let window = (word >> 32) as u32;
        match word & 0xffff_ffff {
            1 => Self::Publishing { window },
            2 => Self::Handed { window },
            _ => Self::None,
        }
    }
}

/// Whose a datagram is, by one published table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UdpFlow {
    /// The table does not hold the flow, or its owner does not publish.
    Unknown,
    /// The owner serves it: forward.
    Live,
    /// The owner had it, too long ago: take it over.
    Aged,
}

/// Reads a table from any process, without a lock.
#[derive(Clone, Debug)]
pub struct UdpTableReader<'m> {
    table: Table<'m>,
}

impl<'m> UdpTableReader<'m> {
    /// Opens the table in `region`.
    pub fn open(region: Region<'m>) -> Result<Self, TableOpenError> {
        Ok(Self { table: Table::open(region, KIND)? })
    }

    /// What the owner says about its flows now.
    pub fn publication(&self) -> Publication {
        Publication::from_word(published(self.table.extra()).load(Ordering::Acquire))
    }

    /// Whose a datagram of `key` is, for a flow that may be idle for `idle_us`.
    pub fn judge(&self, key: &FlowKey, now_us: u64, idle_us: u64) -> UdpFlow {
        match self.publication() {
            Publication::None | Publication::Handed { .. } => UdpFlow::Unknown,
            Publication::Publishing { .. } => match self.table.find(self.table.hashed(key)) {
                None => UdpFlow::Unknown,
                Some(found) if is_aged(found.stamp, now_us, idle_us) => UdpFlow::Aged,
                Some(_) => UdpFlow::Live,
            },
        }
    }

    /// True if the owner has seen a datagram of `key` within `idle_us`, whatever
    /// it publishes: for workers of one generation, which serve side by side.
    pub fn is_live(&self, key: &FlowKey, now_us: u64, idle_us: u64) -> bool {
        let found = self.table.find(self.table.hashed(key));
        found.is_some_and(|found| !is_aged(found.stamp, now_us, idle_us))
    }

    /// Brings the first line that a lookup of `key` needs into the cache.
    pub fn prefetch(&self, key: &FlowKey) {
        self.table.prefetch_bucket(self.table.hashed(key));
    }

    /// All flows with the time of their last datagram.
    pub fn iter(&self) -> impl Iterator<Item = (FlowKey, u64)> + '_ {
        self.table.iter().map(|(key, _, stamp)| (key, stamp))
    }

    /// Flows that had a datagram within `idle_us`. Walks the whole table.
    pub fn live_flows(&self, now_us: u64, idle_us: u64) -> usize {
        self.iter().filter(|(_, stamp)| !is_aged(*stamp, now_us, idle_us)).count()
    }

    /// Flows in the table, aged ones included.
    pub fn flows(&self) -> usize {
        self.table.flows()
    }

    /// Flows that it can hold.
    pub fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// Datagrams whose flow was not recorded because the table was full.
    pub fn unrecorded(&self) -> u64 {
        self.table.refused()
    }

    /// Who writes it.
    pub fn owner(&self) -> Option<Owner> {
        self.table.owner()
    }

    /// Empties what a *dead* writer left. False, and nothing done, if the table
    /// is not of `dead`.
    pub fn reclaim(&self, dead: Owner) -> bool {
        if self.table.owner() != Some(dead) {
            return false;
        }
        published(self.table.extra()).store(Publication::None.word(), Ordering::Release);
        reclaim(&self.table, dead)
    }
}

/// Writes a table; one at a time, in the worker.
#[derive(Debug)]
pub struct UdpTableWriter<'m> {
    writer: TableWriter<'m>,
    idle_us: u64,
    /// Bucket at which the search for aged flows goes on.
    hand: usize,
}

impl<'m> UdpTableWriter<'m> {
    /// Opens the table for writing as `owner`, empties it and publishes
    /// nothing. Flows idle for `idle_us` may make room for others.
    pub fn open(region: Region<'m>, owner: Owner, idle_us: u64) -> Result<Self, TableOpenError> {
        let writer = TableWriter::open(region, KIND, owner)?;
        published(writer.table().extra()).store(Publication::None.word(), Ordering::Release);
        Ok(Self { writer, idle_us, hand: 0 })
    }

    /// A datagram of `key` came or went at `now_us`. If the table is full, even
    /// after looking for aged flows, it is counted and not recorded.
    pub fn record(&mut self, key: &FlowKey, now_us: u64) -> Result<(), TableFull> {
        let hashed = self.writer.table().hashed(key);
        if let Some(found) = self.writer.table().find(hashed) {
            self.writer.touch(found, now_us);
            return Ok(());
        }
        self.sweep(now_us, SWEEP_BUCKETS);
        if self.writer.flows() >= self.writer.table().capacity() {
            self.sweep(now_us, SWEEP_BUCKETS_FULL);
        }
        self.writer.add(hashed, 0, now_us)
    }

    /// Forgets `key`, for instance because its socket was closed. True if it
    /// was there.
    pub fn forget(&mut self, key: &FlowKey) -> bool {
        let hashed = self.writer.table().hashed(key);
        let found = self.writer.table().find(hashed);
        if let Some(found) = found {
            self.writer.remove(hashed, found);
        }
        found.is_some()
    }

    /// True if this worker has seen a datagram of `key` within the idle time.
    pub fn is_live(&self, key: &FlowKey, now_us: u64) -> bool {
        let table = self.writer.table();
        table.find(table.hashed(key)).is_some_and(|found| !is_aged(found.stamp, now_us, self.idle_us))
    }

    /// Says who the flows belong to. To be called when the queue's *owner word*
    /// has changed, not at the park order: until then this worker receives
    /// everything itself.
    pub fn publish(&mut self, publication: Publication) {
        published(self.writer.table().extra()).store(publication.word(), Ordering::Release);
    }

    /// A reader of the same table.
    pub fn reader(&self) -> UdpTableReader<'m> {
        UdpTableReader { table: self.writer.table().clone() }
    }

    /// Flows in the table, aged ones included.
    pub fn flows(&self) -> usize {
        self.writer.flows()
    }

    /// Removes aged flows from the next `buckets` buckets.
    fn sweep(&mut self, now_us: u64, buckets: usize) {
        let count = self.writer.table().bucket_count();
        for _ in 0..buckets.min(count) {
            for slot in 0..SLOTS {
                let Some((key, _, stamp)) = self.writer.table().read_slot(self.hand, slot) else { continue };
                if is_aged(stamp, now_us, self.idle_us) {
                    self.forget(&key);
                }
            }
            self.hand = (self.hand + 1) % count;
        }
    }
}

fn published(extra: &Line) -> &crate::sync::AtomicU64 {
    extra.word(PUBLISHED)
}

/// Whether the last datagram, at `stamp_us`, is longer ago than `idle_us`.
fn is_aged(stamp_us: u64, now_us: u64, idle_us: u64) -> bool {
    let age_us = now_us.wrapping_sub(stamp_us) as i64;
    age_us > i64::try_from(idle_us).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
