//! The writing side of a table: one at a time, in the process that owns it.

use super::{
    BUCKETS, FLOWS, Found, HASH_KEY, Hashed, KEY, META, OVERFLOW, OWNER, REFUSED, SLOTS, STAMP, Table,
    TableOpenError,
};
use crate::key::TableFull;
use crate::memory::{LINE_WORDS, Region};
use crate::owner::Owner;
use crate::sync::{Ordering, fence};

const _: () = assert!(HASH_KEY + 2 == OWNER && BUCKETS < HASH_KEY && SLOTS < LINE_WORDS);

/// A table with the right to write. What it needs to know of free entries is
/// on its own heap: after a kill it would be worth nothing anyway.
#[derive(Debug)]
pub(crate) struct TableWriter<'m> {
    table: Table<'m>,
    /// Entries that were used and are free again, last in first out: the next
    /// one is likely still in the cache.
    free: Vec<u32>,
    /// Entries from here on were never used.
    fresh: u32,
    flows: usize,
}

impl<'m> TableWriter<'m> {
    /// Opens the table for writing as `owner` and empties it.
    pub(crate) fn open(region: Region<'m>, kind: u64, owner: Owner) -> Result<Self, TableOpenError> {
        let table = Table::open(region, kind)?;
        table.header.word(OWNER).store(owner.word(), Ordering::Release);
        let free = Vec::with_capacity(table.capacity());
        let mut writer = Self { table, free, fresh: 0, flows: 0 };
        writer.reset();
        Ok(writer)
    }

    pub(crate) fn table(&self) -> &Table<'m> {
        &self.table
    }

    pub(crate) fn flows(&self) -> usize {
        self.flows
    }

    /// Empties the table. The sequence numbers of the entries stay, so that a
    /// reader that is just looking at one notices when it is used again.
    pub(crate) fn reset(&mut self) {
        clear(&self.table);
        self.free.clear();
        self.fresh = 0;
        self.set_flows(0);
        self.table.header.word(REFUSED).store(0, Ordering::Relaxed);
    }

    /// Replaces what an existing flow maps to.
    pub(crate) fn replace(&mut self, found: Found, flow: u32) {
        let meta = self.table.entries[found.entry].word(META);
        let sequence = (meta.load(Ordering::Relaxed) >> 32) as u32;
        meta.store(meta_word(sequence.wrapping_add(2), flow), Ordering::Release);
    }

    /// Stores a new stamp in an existing flow.
    pub(crate) fn touch(&mut self, found: Found, stamp: u64) {
        self.table.entries[found.entry].word(STAMP).store(stamp, Ordering::Relaxed);
    }

    /// Adds a flow that the table does not hold.
    pub(crate) fn add(&mut self, hashed: Hashed, flow: u32, stamp: u64) -> Result<(), TableFull> {
        let Some((steps, bucket, slot)) = self.free_slot(hashed) else { return self.refuse() };
        let Some(entry) = self.take_entry() else { return self.refuse() };

        let line = &self.table.entries[entry as usize];
        // The number may be odd already if the last writer was killed here.
        let writing = ((line.word(META).load(Ordering::Relaxed) >> 32) as u32).wrapping_add(1) | 1;
        // Release: whoever sees the odd number also sees the slot of the
        // entry's last flow cleared, and so knows that there is nothing to wait for.
        line.word(META).store(meta_word(writing, 0), Ordering::Release);
        fence(Ordering::Release);
        for (position, word) in hashed.words.iter().enumerate() {
            line.word(KEY + position).store(*word, Ordering::Relaxed);
        }
        line.word(STAMP).store(stamp, Ordering::Relaxed);
        line.word(META).store(meta_word(writing.wrapping_add(1), flow), Ordering::Release);

        // Before the slot: a reader must not stop short of it.
        self.count_past(hashed, steps, 1);
        let word = (hashed.tag() << 32) | u64::from(entry + 1);
        self.table.buckets[bucket].word(slot).store(word, Ordering::Release);
        self.set_flows(self.flows + 1);
        Ok(())
    }

    /// Removes a flow that was found.
    pub(crate) fn remove(&mut self, hashed: Hashed, found: Found) {
        self.table.buckets[found.bucket].word(found.slot).store(0, Ordering::Release);
        self.count_past(hashed, self.steps_to(hashed, found.bucket), u64::MAX);
        self.free.push(found.entry as u32);
        self.set_flows(self.flows - 1);
    }

    /// Counts a flow that found no place.
    pub(crate) fn refuse(&mut self) -> Result<(), TableFull> {
        let refused = self.table.header.word(REFUSED);
        refused.store(refused.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Err(TableFull)
    }

    /// The first free slot on the way of `hashed`: buckets passed, bucket, slot.
    fn free_slot(&self, hashed: Hashed) -> Option<(usize, usize, usize)> {
        let mut at = self.table.home(hashed);
        for steps in 0..self.table.probes() {
            let bucket = &self.table.buckets[at];
            for slot in 0..SLOTS {
                if bucket.word(slot).load(Ordering::Relaxed) == 0 {
                    return Some((steps, at, slot));
                }
            }
            at = (at + hashed.stride()) & self.table.mask;
        }
        None
    }

    fn take_entry(&mut self) -> Option<u32> {
        if let Some(entry) = self.free.pop() {
            return Some(entry);
        }
        let entry = self.fresh;
        if entry as usize >= self.table.capacity() {
            return None;
        }
        self.fresh += 1;
        Some(entry)
    }

    /// How many buckets `hashed` passes on its way to `bucket`.
    fn steps_to(&self, hashed: Hashed, bucket: usize) -> usize {
        let mut at = self.table.home(hashed);
        (0..self.table.probes())
            .find(|_| {
                let there = at == bucket;
                at = (at + hashed.stride()) & self.table.mask;
                there
            })
            .unwrap_or(0)
    }

    /// Adds `change` to the overflow counts of the first `steps` buckets on the
    /// way of `hashed`.
    fn count_past(&self, hashed: Hashed, steps: usize, change: u64) {
        let mut at = self.table.home(hashed);
        for _ in 0..steps {
            let count = self.table.buckets[at].word(OVERFLOW);
            count.store(count.load(Ordering::Relaxed).wrapping_add(change), Ordering::Release);
            at = (at + hashed.stride()) & self.table.mask;
        }
    }

    fn set_flows(&mut self, flows: usize) {
        self.flows = flows;
        self.table.header.word(FLOWS).store(flows as u64, Ordering::Relaxed);
    }
}

/// Clears all buckets. Slots before counts, so that no reader stops short of a
/// slot that is still there.
pub(super) fn clear(table: &Table<'_>) {
    for bucket in table.buckets {
        for slot in 0..SLOTS {
            bucket.word(slot).store(0, Ordering::Release);
        }
    }
    for bucket in table.buckets {
        bucket.word(OVERFLOW).store(0, Ordering::Release);
    }
}

/// Empties the table of a dead owner; its owner word is cleared last. False if
/// `dead` does not own it.
pub(crate) fn reclaim(table: &Table<'_>, dead: Owner) -> bool {
    if table.owner() != Some(dead) {
        return false;
    }
    clear(table);
    table.header.word(FLOWS).store(0, Ordering::Relaxed);
    table.header.word(OWNER).store(0, Ordering::Release);
    true
}

fn meta_word(sequence: u32, flow: u32) -> u64 {
    (u64::from(sequence) << 32) | u64::from(flow)
}
