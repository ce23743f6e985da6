//! The TCP flow table of one (worker, slot): the worker's own demultiplexing
//! table, and at the same time the exact answer to "is this flow theirs?" for
//! the other generations.
//!
//! Written only by its worker, through [`TcpTableWriter`]; read by every
//! process, at any time, through [`TcpTableReader`].

use crate::key::{FlowIndex, FlowKey, FlowRef, HashKey, TableFull};
use crate::memory::Region;
use crate::owner::Owner;
use crate::table::writer::{TableWriter, reclaim};
use crate::table::{Hashed, Shape, Table, TableOpenError};

const KIND: u64 = u64::from_be_bytes(*b"ff-tcpfl");

/// Keys that are hashed and prefetched together: a burst of DPDK.
const BURST: usize = 32;

/// Bytes of shared memory that a table for `capacity` flows takes (1 to
/// [`CAPACITY_MAX`](crate::CAPACITY_MAX)): 64 for each flow and 64 for each bucket.
pub fn tcp_table_bytes(capacity: u32) -> usize {
    Shape::new(capacity).bytes()
}

/// Writes an empty table for `capacity` flows over `region`. Only the creator
/// of the memory does this, before anybody else opens it.
pub fn format_tcp_table(region: Region<'_>, capacity: u32, hash_key: HashKey) -> Result<(), TableOpenError> {
    Table::format(region, KIND, capacity, hash_key)
}

/// Reads a table from any process, without a lock.
#[derive(Clone, Debug)]
pub struct TcpTableReader<'m> {
    table: Table<'m>,
}

impl<'m> TcpTableReader<'m> {
    /// Opens the table in `region`.
    pub fn open(region: Region<'m>) -> Result<Self, TableOpenError> {
        Ok(Self { table: Table::open(region, KIND)? })
    }

    /// The connection of `key`, if the table holds it. Exact: a flow that is in
    /// the table before the call and still after it is found.
    pub fn lookup(&self, key: &FlowKey) -> Option<FlowRef> {
        self.table.find(self.table.hashed(key)).map(|found| FlowRef(found.flow))
    }

    /// Looks up `keys[i]` into `flows[i]`, as far as both reach. All buckets are
    /// brought into the cache first, then all entries, so that the misses
    /// overlap.
    pub fn lookup_burst(&self, keys: &[FlowKey], flows: &mut [Option<FlowRef>]) {
        for (keys, flows) in keys.chunks(BURST).zip(flows.chunks_mut(BURST)) {
            let mut hashed = [None::<Hashed>; BURST];
            for (hashed, key) in hashed.iter_mut().zip(keys) {
                let one = self.table.hashed(key);
                self.table.prefetch_bucket(one);
                *hashed = Some(one);
            }
            for one in hashed.iter().flatten() {
                self.table.prefetch_entry(*one);
            }
            for (flow, one) in flows.iter_mut().zip(hashed.iter().flatten()) {
                *flow = self.table.find(*one).map(|found| FlowRef(found.flow));
            }
        }
    }

    /// Brings the first line that a lookup of `key` needs into the cache.
    pub fn prefetch(&self, key: &FlowKey) {
        self.table.prefetch_bucket(self.table.hashed(key));
    }

    /// All flows; what comes or goes meanwhile may be among them or not.
    pub fn iter(&self) -> impl Iterator<Item = (FlowKey, FlowRef)> + '_ {
        self.table.iter().map(|(key, flow, _)| (key, FlowRef(flow)))
    }

    /// Flows in the table, as its writer last said.
    pub fn flows(&self) -> usize {
        self.table.flows()
    }

    /// Flows that it can hold.
    pub fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// Flows refused because it was full, since its writer opened it.
    pub fn refused(&self) -> u64 {
        self.table.refused()
    }

    /// Who writes it; `None` before the first writer and after a
    /// [`reclaim`](Self::reclaim).
    pub fn owner(&self) -> Option<Owner> {
        self.table.owner()
    }

    /// Empties what a *dead* writer left, so that nobody forwards to it any
    /// more. False, and nothing done, if the table is not of `dead`. The caller
    /// knows from a pidfd that `dead` is dead.
    pub fn reclaim(&self, dead: Owner) -> bool {
        reclaim(&self.table, dead)
    }
}

/// Writes a table: the [`FlowIndex`] of a worker's engine.
#[derive(Debug)]
pub struct TcpTableWriter<'m> {
    writer: TableWriter<'m>,
}

impl<'m> TcpTableWriter<'m> {
    /// Opens the table for writing as `owner` and empties it: what an earlier
    /// writer left is gone, as is that writer (the caller sees to it that there
    /// is only one).
    pub fn open(region: Region<'m>, owner: Owner) -> Result<Self, TableOpenError> {
        Ok(Self { writer: TableWriter::open(region, KIND, owner)? })
    }

    /// A reader of the same table, for the dispatcher's bursts.
    pub fn reader(&self) -> TcpTableReader<'m> {
        TcpTableReader { table: self.writer.table().clone() }
    }
}

impl FlowIndex for TcpTableWriter<'_> {
    fn lookup(&self, key: &FlowKey) -> Option<FlowRef> {
        let table = self.writer.table();
        table.find(table.hashed(key)).map(|found| FlowRef(found.flow))
    }

    fn insert(&mut self, key: &FlowKey, flow: FlowRef) -> Result<(), TableFull> {
        let hashed = self.writer.table().hashed(key);
        match self.writer.table().find(hashed) {
            Some(found) => {
                self.writer.replace(found, flow.0);
                Ok(())
            }
            None => self.writer.add(hashed, flow.0, 0),
        }
    }

    fn remove(&mut self, key: &FlowKey) -> bool {
        let hashed = self.writer.table().hashed(key);
        match self.writer.table().find(hashed) {
            Some(found) => {
                self.writer.remove(hashed, found);
                true
            }
            None => false,
        }
    }

    fn len(&self) -> usize {
        self.writer.flows()
    }

    fn prefetch(&self, key: &FlowKey) {
        let table = self.writer.table();
        table.prefetch_bucket(table.hashed(key));
    }
}

#[cfg(test)]
mod tests;
