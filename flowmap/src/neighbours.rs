//! The neighbour table of the host: IP address → MAC address, learned once,
//! known to every worker of every generation, and alive across reloads.
//!
//! Many readers, none of which waits for anybody: each entry has a sequence
//! number, and an entry that is being written counts as absent. Writers in
//! several processes take a bucket's lock word, which holds their (epoch, pid).
//! Nobody waits for that lock either: who does not get it at once gives up (the
//! next packet tries again), and a lock whose owner is *dead* is taken over and
//! its bucket mended. So a killed writer costs nothing, and a stopped one keeps
//! new addresses out of one bucket only.
//!
//! ```text
//! header (1 line) │ buckets of 8 lines: lock + 7 tags │ 7 entries: seq, ip × 2, mac+state, stamps
//! ```

use std::net::IpAddr;

use crate::key::HashKey;
use crate::memory::{LINE_BYTES, Line, Region};
use crate::sync::{Ordering, fence};
use crate::table::TableOpenError;

mod writer;

pub use writer::{Learned, NeighbourWriter, PROBE_INTERVAL_US, PROBES_MAX, Resolution, UNREACHABLE_HOLD_US};

const KIND_MARK: u64 = u64::from_be_bytes(*b"ff-neigh");

/// Words of the header line.
const KIND: usize = 0;
const BUCKETS: usize = 1;
const HASH_KEY: usize = 2; // and 3
const CHANGES: usize = 4;
const EVICTED: usize = 5;

/// Words of a bucket's first line: the lock, then a tag for each entry.
const LOCK: usize = 0;
const TAGS: usize = 1;

/// Entries in a bucket.
const WAYS: usize = 7;
const BUCKET_LINES: usize = 1 + WAYS;

/// Words of an entry.
const SEQUENCE: usize = 0;
const IP: usize = 1; // and 2; IPv4 v4-mapped
const LINK: usize = 3; // MAC << 16 | state
const CONFIRMED: usize = 4;
const PROBED: usize = 5;
const PROBES: usize = 6;

/// Neighbours for each bucket: with one on average, more than seven meet in one
/// of 100 000 buckets, and then the least useful gives way.
const NEIGHBOURS_PER_BUCKET: u32 = 1;

/// Neighbours of a host unless configured otherwise.
pub const NEIGHBOURS_DEFAULT: u32 = 1_024;

/// The largest capacity.
pub const NEIGHBOURS_MAX: u32 = 1 << 20;

/// How long a confirmed address counts as reachable (RFC 4861, section 10,
/// REACHABLE_TIME; also used for ARP).
pub const REACHABLE_US: u64 = 30_000_000;

/// Numbers that tell the layout, for a region's fingerprint.
pub const NEIGHBOUR_LAYOUT: [u64; 9] = [
    BUCKET_LINES as u64,
    WAYS as u64,
    LOCK as u64,
    TAGS as u64,
    IP as u64,
    LINK as u64,
    CONFIRMED as u64,
    PROBED as u64,
    NEIGHBOURS_PER_BUCKET as u64,
];

/// What is known of a neighbour (RFC 4861, section 7.3.2; DELAY and PROBE are
/// STALE with probes under way).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NeighbourState {
    /// Asked for, not answered yet.
    Incomplete,
    /// Confirmed within [`REACHABLE_US`].
    Reachable,
    /// Known, but not confirmed lately: to be used, and asked for again.
    Stale,
}

impl NeighbourState {
    fn number(self) -> u64 {
        match self {
            Self::Incomplete => 1,
            Self::Reachable => 2,
            Self::Stale => 3,
        }
    }

    fn from_number(number: u64) -> Option<Self> {
        match number {
            1 => Some(Self::Incomplete),
            2 => Some(Self::Reachable),
            3 => Some(Self::Stale),
            _ => None,
        }
    }
}

/// A neighbour as it was when it was looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbour {
    /// Its IP address.
    pub ip: IpAddr,
    /// Its MAC address; all zero while incomplete.
    pub mac: [u8; 6],
    /// What is known of it, at the time of the lookup.
    pub state: NeighbourState,
    /// When it was last confirmed.
    pub confirmed_us: u64,
    /// When it was last asked for.
    pub probed_us: u64,
    /// Questions since the last answer.
    pub probes: u32,
}

/// Bytes of shared memory for `capacity` neighbours (1 to [`NEIGHBOURS_MAX`]).
pub fn neighbours_bytes(capacity: u32) -> usize {
    (1 + buckets(capacity) * BUCKET_LINES) * LINE_BYTES
}

fn buckets(capacity: u32) -> usize {
    capacity.clamp(1, NEIGHBOURS_MAX).div_ceil(NEIGHBOURS_PER_BUCKET).next_power_of_two() as usize
}

/// Writes an empty table for `capacity` neighbours over `region`. Only the
/// creator of the memory does this, before anybody else opens it.
pub fn format_neighbours(region: Region<'_>, capacity: u32, hash_key: HashKey) -> Result<(), TableOpenError> {
    let buckets = buckets(capacity);
    let lines = region.part(0, 1 + buckets * BUCKET_LINES)?.lines();
    let header = &lines[0];
    header.word(KIND).store(0, Ordering::SeqCst);
    for line in &lines[1..] {
        for position in 0..crate::memory::LINE_WORDS {
            line.word(position).store(0, Ordering::Relaxed);
        }
    }
    header.word(BUCKETS).store(buckets as u64, Ordering::Relaxed);
    for (position, half) in hash_key.as_chunks::<8>().0.iter().enumerate() {
        header.word(HASH_KEY + position).store(u64::from_ne_bytes(*half), Ordering::Relaxed);
    }
    header.word(CHANGES).store(0, Ordering::Relaxed);
    header.word(EVICTED).store(0, Ordering::Relaxed);
    header.word(KIND).store(KIND_MARK, Ordering::Release);
    Ok(())
}

/// The table, for reading from any process.
#[derive(Clone, Debug)]
pub struct Neighbours<'m> {
    header: &'m Line,
    lines: &'m [Line],
    mask: usize,
    hash_key: HashKey,
}

impl<'m> Neighbours<'m> {
    /// Opens the table in `region`.
    pub fn open(region: Region<'m>) -> Result<Self, TableOpenError> {
        let header = region.line(0)?;
        let found = header.word(KIND).load(Ordering::Acquire);
        if found != KIND_MARK {
            return Err(TableOpenError::NoTable { found });
        }
        let buckets = header.word(BUCKETS).load(Ordering::Relaxed);
        if !buckets.is_power_of_two() || buckets > u64::from(NEIGHBOURS_MAX) {
            return Err(TableOpenError::Damaged { capacity: 0, buckets });
        }
        let mut hash_key = [0; 16];
        for (position, half) in hash_key.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *half = header.word(HASH_KEY + position).load(Ordering::Relaxed).to_ne_bytes();
        }
        let lines = region.part(1, buckets as usize * BUCKET_LINES)?.lines();
        Ok(Self { header, lines, mask: buckets as usize - 1, hash_key })
    }

    /// What is known of `ip` at `now_us`.
    pub fn lookup(&self, ip: IpAddr, now_us: u64) -> Option<Neighbour> {
        let (entry, _) = self.find(&Sought::new(ip, &self.hash_key))?;
        self.read(entry, now_us).filter(|neighbour| neighbour.ip == ip.to_canonical())
    }

    /// All neighbours. None is torn; what changes meanwhile may be in it or not.
    pub fn iter(&self, now_us: u64) -> impl Iterator<Item = Neighbour> + '_ {
        self.lines
            .chunks_exact(BUCKET_LINES)
            .flat_map(move |bucket| {
                (0..WAYS)
                    .filter(|way| bucket[0].word(TAGS + way).load(Ordering::Acquire) != 0)
                    .map(|way| &bucket[1 + way])
            })
            .filter_map(move |entry| self.read(entry, now_us))
    }

    /// Grows whenever an address is learned or changes: a worker with packets
    /// that wait for an answer looks at this word instead of at each of them.
    pub fn changes(&self) -> u64 {
        self.header.word(CHANGES).load(Ordering::Acquire)
    }

    /// Entries that gave way to others.
    pub fn evicted(&self) -> u64 {
        self.header.word(EVICTED).load(Ordering::Relaxed)
    }

    /// The entry of the neighbour, and its position in the bucket.
    fn find(&self, sought: &Sought) -> Option<(&'m Line, usize)> {
        let bucket = self.bucket(sought);
        (0..WAYS)
            .filter(|way| bucket[0].word(TAGS + way).load(Ordering::Acquire) == sought.tag)
            .map(|way| (&bucket[1 + way], way))
            .find(|(entry, _)| read_words(entry).is_some_and(|words| words[..2] == sought.words))
    }

    fn bucket(&self, sought: &Sought) -> &'m [Line] {
        let first = (sought.hash as usize & self.mask) * BUCKET_LINES;
        &self.lines[first..first + BUCKET_LINES]
    }

    fn read(&self, entry: &Line, now_us: u64) -> Option<Neighbour> {
        let words = read_words(entry)?;
        let state = NeighbourState::from_number(words[2] & 0xffff)?;
        let confirmed_us = words[3];
        let aged = now_us.wrapping_sub(confirmed_us) as i64 > REACHABLE_US as i64;
        let mut ip = [0; 16];
        for (half, word) in ip.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *half = word.to_ne_bytes();
        }
        let mut mac = [0; 6];
        mac.copy_from_slice(&words[2].to_be_bytes()[..6]);
        Some(Neighbour {
            ip: IpAddr::from(ip).to_canonical(),
            mac,
            state: if state == NeighbourState::Reachable && aged { NeighbourState::Stale } else { state },
            confirmed_us,
            probed_us: words[4],
            probes: words[5] as u32,
        })
    }
}

/// An address with its hash.
struct Sought {
    words: [u64; 2],
    hash: u64,
    tag: u64,
}

impl Sought {
    fn new(ip: IpAddr, hash_key: &HashKey) -> Self {
        let octets = match ip {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        let mut words = [0; 2];
        for (word, half) in words.iter_mut().zip(octets.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*half);
        }
        let mut hasher = siphasher::sip::SipHasher13::new_with_key(hash_key);
        for word in words {
            std::hash::Hasher::write_u64(&mut hasher, word);
        }
        let hash = std::hash::Hasher::finish(&hasher);
        // Never 0: that is a free entry.
        Self { words, hash, tag: hash | 1 << 63 }
    }
}

/// The words of an entry from [`IP`] on, if they were read whole. A writer at
/// work, alive or dead, makes the entry absent.
fn read_words(entry: &Line) -> Option<[u64; 6]> {
    let before = entry.word(SEQUENCE).load(Ordering::Acquire);
    if before & 1 == 1 {
        return None;
    }
    let words = std::array::from_fn(|position| entry.word(IP + position).load(Ordering::Relaxed));
    // Pairs with the writer's fence after its odd number.
    fence(Ordering::Acquire);
    (entry.word(SEQUENCE).load(Ordering::Relaxed) == before).then_some(words)
}

#[cfg(test)]
mod tests;
