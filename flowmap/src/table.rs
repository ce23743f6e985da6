//! A table of flows in shared memory: one writer, any number of readers in
//! other processes, no lock.
//!
//! ```text
//! header (2 lines) │ buckets: 7 slots + overflow count │ entries: one line each
//!                             slot = tag << 32 | entry + 1      meta, key × 5, stamp, spare
//! ```
//!
//! A lookup reads one bucket line and, when a tag agrees, one entry line.
//!
//! **Publishing.** An entry is written under its sequence number (odd while it
//! is being written) before its slot is stored, and it never moves. The slot is
//! one word, so a reader sees the flow or does not. Removing clears the slot
//! first; an entry is rewritten only after that, so a reader that meets an odd
//! sequence number need only look at the slot again: it has changed. Nobody
//! waits for a writer, hence a killed or stopped writer holds up nobody.
//!
//! **No tombstones.** A full bucket counts the flows that had to go past it, and
//! removing such a flow counts down again. A search ends at the first bucket
//! that nobody went past. Churn therefore leaves no trace.
//!
//! **After a kill.** Between any two stores of an insertion or removal the
//! tables hold only whole flows; at worst an overflow count is too high, which
//! costs a look at one more bucket. The next writer resets the table.

use crate::key::{FlowKey, HashKey};
use crate::memory::{LINE_BYTES, Line, Region, RegionError, prefetch};
use crate::owner::Owner;
use crate::sync::{Ordering, fence};

pub(crate) mod writer;

/// Words of the first header line.
const KIND: usize = 0;
const CAPACITY: usize = 1;
const BUCKETS: usize = 2;
const HASH_KEY: usize = 3; // and 4
const OWNER: usize = 5;
const FLOWS: usize = 6;
const REFUSED: usize = 7;

/// Words of the second header line, for the tables built on this one.
pub(crate) const EXTRA_WORDS: usize = 8;

const TABLE_HEADER_LINES: usize = 2;

/// Slots in a bucket; the eighth word counts the flows that went past it.
pub(crate) const SLOTS: usize = 7;
const OVERFLOW: usize = 7;

/// Words of an entry.
const META: usize = 0; // sequence number << 32 | flow
const KEY: usize = 1; // to 5
const STAMP: usize = 6;

/// Flows for each bucket of seven slots at most; the power of two usually
/// leaves it nearer to four. With five, fewer than 14 % of the buckets overflow.
const FLOWS_PER_BUCKET_MAX: usize = 5;

/// Buckets that a search visits at most. At the highest load about one bucket
/// in five is full, so that this many in a row do not happen.
const PROBES_MAX: usize = 32;

/// How often a reader looks at a slot again because the writer rewrote the
/// entry meanwhile. Each time means a removal and an insertion of that slot's
/// flow within some 20 ns.
const RETRIES_MAX: usize = 1_000;

/// The largest capacity of a table, in flows.
pub const CAPACITY_MAX: u32 = 1 << 26;

/// Numbers that tell the layout, for a region's fingerprint.
pub const TABLE_LAYOUT: [u64; 10] = [
    TABLE_HEADER_LINES as u64,
    SLOTS as u64,
    OVERFLOW as u64,
    META as u64,
    KEY as u64,
    STAMP as u64,
    CAPACITY as u64,
    HASH_KEY as u64,
    OWNER as u64,
    FLOWS_PER_BUCKET_MAX as u64,
];

/// Why a table cannot be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TableOpenError {
    /// The memory does not hold a table of this kind.
    #[error("the shared memory holds no such table (mark {found:#018x}): it was never formatted")]
    NoTable {
        /// The mark that was found.
        found: u64,
    },
    /// Its numbers do not fit together or into the memory.
    #[error("a table for {capacity} flows in {buckets} buckets does not fit here: its header is damaged")]
    Damaged {
        /// Capacity in the header.
        capacity: u64,
        /// Buckets in the header.
        buckets: u64,
    },
    /// The memory is too small.
    #[error(transparent)]
    Region(#[from] RegionError),
}

/// How many lines a table takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    capacity: usize,
    buckets: usize,
}

impl Shape {
    /// The shape for `capacity` flows, between 1 and [`CAPACITY_MAX`] (a value
    /// outside is moved to the nearest of them).
    pub(crate) fn new(capacity: u32) -> Self {
        let capacity = capacity.clamp(1, CAPACITY_MAX) as usize;
        Self { capacity, buckets: capacity.div_ceil(FLOWS_PER_BUCKET_MAX).next_power_of_two() }
    }

    pub(crate) fn lines(self) -> usize {
        TABLE_HEADER_LINES + self.buckets + self.capacity
    }

    pub(crate) fn bytes(self) -> usize {
        self.lines() * LINE_BYTES
    }
}

/// The reading side. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Table<'m> {
    header: &'m Line,
    extra: &'m Line,
    buckets: &'m [Line],
    entries: &'m [Line],
    mask: usize,
    hash_key: HashKey,
}

/// A flow as it was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    bucket: usize,
    slot: usize,
    entry: usize,
    pub(crate) flow: u32,
    pub(crate) stamp: u64,
}

/// A key with its hash: computed once, used for prefetch and search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hashed {
    words: [u64; 5],
    hash: u64,
}

impl Hashed {
    fn tag(self) -> u64 {
        self.hash >> 32
    }

    /// Odd, so that a search goes through all buckets, and from the tag, so
    /// that two flows that meet in one full bucket part again after it.
    fn stride(self) -> usize {
        (self.tag() as usize) * 2 + 1
    }
}

/// An entry that was read whole.
struct Snapshot {
    key: [u64; 5],
    flow: u32,
    stamp: u64,
}

impl<'m> Table<'m> {
    /// Writes an empty table over whatever `region` held. Only while nobody
    /// else can have it open.
    pub(crate) fn format(
        region: Region<'m>,
        kind: u64,
        capacity: u32,
        hash_key: HashKey,
    ) -> Result<(), TableOpenError> {
        let shape = Shape::new(capacity);
        let lines = region.part(0, shape.lines())?.lines();
        let header = &lines[0];
        header.word(KIND).store(0, Ordering::SeqCst);
        for line in &lines[1..TABLE_HEADER_LINES + shape.buckets] {
            for position in 0..EXTRA_WORDS {
                line.word(position).store(0, Ordering::Relaxed);
            }
        }
        header.word(CAPACITY).store(shape.capacity as u64, Ordering::Relaxed);
        header.word(BUCKETS).store(shape.buckets as u64, Ordering::Relaxed);
        for (position, half) in hash_key.as_chunks::<8>().0.iter().enumerate() {
            header.word(HASH_KEY + position).store(u64::from_ne_bytes(*half), Ordering::Relaxed);
        }
        for position in [OWNER, FLOWS, REFUSED] {
            header.word(position).store(0, Ordering::Relaxed);
        }
        header.word(KIND).store(kind, Ordering::Release);
        Ok(())
    }

    pub(crate) fn open(region: Region<'m>, kind: u64) -> Result<Self, TableOpenError> {
        let header = region.line(0)?;
        let found = header.word(KIND).load(Ordering::Acquire);
        if found != kind {
            return Err(TableOpenError::NoTable { found });
        }
        let capacity = header.word(CAPACITY).load(Ordering::Relaxed);
        let buckets = header.word(BUCKETS).load(Ordering::Relaxed);
        let shape = u32::try_from(capacity).map(Shape::new).ok();
        let Some(shape) =
            shape.filter(|shape| shape.capacity as u64 == capacity && shape.buckets as u64 == buckets)
        else {
            return Err(TableOpenError::Damaged { capacity, buckets });
        };
        let mut hash_key = [0; 16];
        for (position, half) in hash_key.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *half = header.word(HASH_KEY + position).load(Ordering::Relaxed).to_ne_bytes();
        }
        Ok(Self {
            header,
            extra: region.line(1)?,
            buckets: region.part(TABLE_HEADER_LINES, shape.buckets)?.lines(),
            entries: region.part(TABLE_HEADER_LINES + shape.buckets, shape.capacity)?.lines(),
            mask: shape.buckets - 1,
            hash_key,
        })
    }

    pub(crate) fn extra(&self) -> &'m Line {
        self.extra
    }

    pub(crate) fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// Who writes it, or wrote it last.
    pub(crate) fn owner(&self) -> Option<Owner> {
        Owner::from_word(self.header.word(OWNER).load(Ordering::Acquire))
    }

    pub(crate) fn flows(&self) -> usize {
        self.header.word(FLOWS).load(Ordering::Relaxed) as usize
    }

    pub(crate) fn refused(&self) -> u64 {
        self.header.word(REFUSED).load(Ordering::Relaxed)
    }

    pub(crate) fn hashed(&self, key: &FlowKey) -> Hashed {
        Hashed { words: key.words(), hash: key.hash_with(&self.hash_key) }
    }

    pub(crate) fn prefetch_bucket(&self, hashed: Hashed) {
        prefetch(&self.buckets[self.home(hashed)]);
    }

    /// Brings the first entry with the right tag in the home bucket closer.
    pub(crate) fn prefetch_entry(&self, hashed: Hashed) {
        let bucket = &self.buckets[self.home(hashed)];
        for slot in 0..SLOTS {
            let word = bucket.word(slot).load(Ordering::Relaxed);
            if let Some(entry) = entry_of(word).filter(|_| word >> 32 == hashed.tag()) {
                if let Some(line) = self.entries.get(entry) {
                    prefetch(line);
                }
                return;
            }
        }
    }

    pub(crate) fn find(&self, hashed: Hashed) -> Option<Found> {
        let mut at = self.home(hashed);
        for _ in 0..self.probes() {
            let bucket = &self.buckets[at];
            for slot in 0..SLOTS {
                if let Some(mut found) = self.find_in_slot(bucket, slot, hashed) {
                    found.bucket = at;
                    return Some(found);
                }
            }
            if bucket.word(OVERFLOW).load(Ordering::Acquire) == 0 {
                return None;
            }
            at = (at + hashed.stride()) & self.mask;
        }
        None
    }

    fn find_in_slot(&self, bucket: &Line, slot: usize, hashed: Hashed) -> Option<Found> {
        for _ in 0..RETRIES_MAX {
            let word = bucket.word(slot).load(Ordering::Acquire);
            let entry = entry_of(word)?;
            if word >> 32 != hashed.tag() {
                return None;
            }
            // A torn read means that the slot has been given to another flow:
            // look at the slot again, not at the entry.
            if let Some(whole) = self.snapshot(entry)? {
                return (whole.key == hashed.words).then_some(Found {
                    bucket: 0,
                    slot,
                    entry,
                    flow: whole.flow,
                    stamp: whole.stamp,
                });
            }
        }
        None
    }

    /// The flow in `slot` of `bucket`, whole.
    pub(crate) fn read_slot(&self, bucket: usize, slot: usize) -> Option<(FlowKey, u32, u64)> {
        let bucket = self.buckets.get(bucket)?;
        for _ in 0..RETRIES_MAX {
            let entry = entry_of(bucket.word(slot).load(Ordering::Acquire))?;
            if let Some(whole) = self.snapshot(entry)? {
                return Some((FlowKey::from_words(whole.key), whole.flow, whole.stamp));
            }
        }
        None
    }

    /// All flows. What comes or goes meanwhile may be in it or not; no flow is
    /// torn, and none that stays is missing or there twice.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (FlowKey, u32, u64)> {
        (0..self.buckets.len())
            .flat_map(move |bucket| (0..SLOTS).filter_map(move |slot| self.read_slot(bucket, slot)))
    }

    pub(crate) fn bucket_count(&self) -> usize {
        self.buckets.len()
    }

    /// Flows that went past `bucket`.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub(crate) fn overflow(&self, bucket: usize) -> u64 {
        self.buckets[bucket].word(OVERFLOW).load(Ordering::Acquire)
    }

    fn home(&self, hashed: Hashed) -> usize {
        hashed.hash as usize & self.mask
    }

    fn probes(&self) -> usize {
        PROBES_MAX.min(self.buckets.len())
    }

    /// Outer `None`: there is no such entry. Inner `None`: it is being
    /// rewritten.
    fn snapshot(&self, entry: usize) -> Option<Option<Snapshot>> {
        let line = self.entries.get(entry)?;
        let before = line.word(META).load(Ordering::Acquire);
        if before >> 32 & 1 == 1 {
            return Some(None);
        }
        let key = std::array::from_fn(|position| line.word(KEY + position).load(Ordering::Relaxed));
        let stamp = line.word(STAMP).load(Ordering::Relaxed);
        // Pairs with the writer's fence: if any key word above came from a
        // rewrite, the load below sees that rewrite's odd number or a later one.
        fence(Ordering::Acquire);
        let after = line.word(META).load(Ordering::Relaxed);
        Some((before >> 32 == after >> 32).then_some(Snapshot { key, flow: before as u32, stamp }))
    }
}

fn entry_of(slot: u64) -> Option<usize> {
    ((slot & 0xffff_ffff) as usize).checked_sub(1)
}
