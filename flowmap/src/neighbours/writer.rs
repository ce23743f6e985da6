//! Learning neighbours, and deciding who asks for them.

use std::net::IpAddr;

use super::{
    BUCKET_LINES, CHANGES, CONFIRMED, EVICTED, IP, LINK, LOCK, Neighbour, NeighbourState, Neighbours, PROBED,
    PROBES, SEQUENCE, Sought, TAGS, WAYS, read_words,
};
use crate::memory::{Line, Region};
use crate::owner::Owner;
use crate::sync::{Ordering, fence};
use crate::table::TableOpenError;

/// Time between two questions for one address (RFC 4861, section 10,
/// RETRANS_TIMER; RFC 1122, section 2.3.2.1: no more than one ARP a second).
pub const PROBE_INTERVAL_US: u64 = 1_000_000;

/// Questions without an answer after which an address counts as unreachable
/// (RFC 4861, section 10, MAX_MULTICAST_SOLICIT).
pub const PROBES_MAX: u32 = 3;

/// For so long an unreachable address is not asked for again.
pub const UNREACHABLE_HOLD_US: u64 = 3_000_000;

/// What to do with a packet to a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolution {
    /// Send it to `mac`.
    Send {
        /// The neighbour's address.
        mac: [u8; 6],
        /// This caller, and no other of the host, asks again for the address.
        probe: bool,
    },
    /// Keep it until [`Neighbours::changes`] moves.
    Wait {
        /// As above.
        probe: bool,
    },
    /// Nobody answered [`PROBES_MAX`] times: drop it, the host is unreachable.
    Unreachable,
}

/// What learning an address changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Learned {
    /// It was not known.
    New,
    /// It had another MAC address.
    Moved {
        /// The MAC address until now.
        from: [u8; 6],
    },
    /// It is confirmed.
    Confirmed,
    /// Not stored: somebody else is just writing to that bucket. The next
    /// packet brings the address again.
    Busy,
}

/// The neighbour table with the right to write: one for each process that
/// learns addresses, any number of them at once.
#[derive(Debug)]
pub struct NeighbourWriter<'m> {
    table: Neighbours<'m>,
    owner: Owner,
}

impl<'m> NeighbourWriter<'m> {
    /// Opens the table in `region` for the process `owner`. A bucket in which
    /// another one was killed takes nothing new until
    /// [`Neighbours::reclaim`].
    pub fn open(region: Region<'m>, owner: Owner) -> Result<Self, TableOpenError> {
        Ok(Self { table: Neighbours::open(region)?, owner })
    }

    /// The table, for reading.
    pub fn table(&self) -> &Neighbours<'m> {
        &self.table
    }

    /// Where a packet to `ip` goes, and whether this caller has to ask for the
    /// address: of all workers of the host exactly one is told so, once in
    /// [`PROBE_INTERVAL_US`].
    pub fn resolve(&self, ip: IpAddr, now_us: u64) -> Resolution {
        let sought = Sought::new(ip, &self.table.hash_key);
        let known = self
            .table
            .find(&sought)
            .and_then(|(entry, _)| self.table.read(entry, now_us).map(|neighbour| (entry, neighbour)));
        let Some((entry, neighbour)) = known else {
            let added = self.locked(&sought, |bucket| {
                let (way, _) = self.place(bucket, &sought, now_us);
                write(
                    bucket,
                    way,
                    &sought,
                    [0; 6],
                    NeighbourState::Incomplete,
                    Stamps { confirmed_us: 0, probed_us: now_us, probes: 1 },
                );
            });
            return Resolution::Wait { probe: added.is_some() };
        };
        match neighbour.state {
            NeighbourState::Reachable => Resolution::Send { mac: neighbour.mac, probe: false },
            NeighbourState::Stale => {
                Resolution::Send { mac: neighbour.mac, probe: ask(entry, &neighbour, now_us) }
            }
            NeighbourState::Incomplete => resolve_incomplete(entry, &neighbour, now_us),
        }
    }

    /// `ip` is at `mac`: an answer was received, or a question that tells it.
    /// `confirmed`: the neighbour answered *us*, so it is reachable; otherwise
    /// the address is only known (RFC 4861, section 7.2.3).
    pub fn learn(&self, ip: IpAddr, mac: [u8; 6], confirmed: bool, now_us: u64) -> Learned {
        let sought = Sought::new(ip, &self.table.hash_key);
        let state = if confirmed { NeighbourState::Reachable } else { NeighbourState::Stale };
        let learned = self.locked(&sought, |bucket| {
            let (way, known) = self.place(bucket, &sought, now_us);
            let learned = match known {
                None => Learned::New,
                Some(old) if old.state == NeighbourState::Incomplete => Learned::New,
                Some(old) if old.mac != mac => Learned::Moved { from: old.mac },
                // An unconfirmed address that is known already changes nothing.
                Some(_) if !confirmed => return Learned::Confirmed,
                Some(_) => Learned::Confirmed,
            };
            let stamps = Stamps { confirmed_us: now_us, probed_us: now_us, probes: 0 };
            write(bucket, way, &sought, mac, state, stamps);
            learned
        });
        match learned {
            Some(learned @ (Learned::New | Learned::Moved { .. })) => {
                self.table.header.word(CHANGES).fetch_add(1, Ordering::Release);
                learned
            }
            Some(learned) => learned,
            None => Learned::Busy,
        }
    }

    /// Forward progress was seen from above (RFC 4861, section 7.3.1): data was
    /// acknowledged. Takes no lock.
    pub fn confirm(&self, ip: IpAddr, now_us: u64) {
        let sought = Sought::new(ip, &self.table.hash_key);
        let Some((entry, _)) = self.table.find(&sought) else { return };
        // A race with a writer that gives the entry to another address only
        // makes that one look confirmed for up to 30 s; it was just learned.
        if self.table.read(entry, now_us).is_some_and(|known| known.state != NeighbourState::Incomplete) {
            entry.word(CONFIRMED).store(now_us, Ordering::Relaxed);
            entry.word(PROBES).store(0, Ordering::Relaxed);
        }
    }

    /// Forgets `ip`. True if it was known (and nobody else was writing there).
    pub fn forget(&self, ip: IpAddr) -> bool {
        let sought = Sought::new(ip, &self.table.hash_key);
        self.locked(&sought, |bucket| match self.table.find(&sought) {
            Some((_, way)) => {
                bucket[0].word(TAGS + way).store(0, Ordering::Release);
                true
            }
            None => false,
        })
        .unwrap_or(false)
    }

    /// Runs `change` with the bucket's lock, or not at all.
    fn locked<T>(&self, sought: &Sought, change: impl FnOnce(&'m [Line]) -> T) -> Option<T> {
        let bucket = self.table.bucket(sought);
        let lock = bucket[0].word(LOCK);
        lock.compare_exchange(0, self.owner.word(), Ordering::Acquire, Ordering::Relaxed).ok()?;
        let result = change(bucket);
        lock.store(0, Ordering::Release);
        Some(result)
    }

    /// Where the neighbour is, or where it is to go. Under the lock.
    fn place(&self, bucket: &[Line], sought: &Sought, now_us: u64) -> (usize, Option<Neighbour>) {
        if let Some((entry, way)) = self.table.find(sought) {
            return (way, self.table.read(entry, now_us));
        }
        let free = (0..WAYS).find(|way| bucket[0].word(TAGS + way).load(Ordering::Relaxed) == 0);
        let way = free.unwrap_or_else(|| {
            self.table.header.word(EVICTED).fetch_add(1, Ordering::Relaxed);
            self.least_useful(bucket, now_us)
        });
        (way, None)
    }

    /// Unanswered questions first (a scan of the network makes many), then the
    /// address that was confirmed longest ago.
    fn least_useful(&self, bucket: &[Line], now_us: u64) -> usize {
        (0..WAYS)
            .max_by_key(|way| match self.table.read(&bucket[1 + way], now_us) {
                None => (2, i64::MAX),
                Some(known) if known.state == NeighbourState::Incomplete => {
                    (1, now_us.wrapping_sub(known.probed_us) as i64)
                }
                Some(known) => (0, now_us.wrapping_sub(known.confirmed_us) as i64),
            })
            .unwrap_or(0)
    }
}

struct Stamps {
    confirmed_us: u64,
    probed_us: u64,
    probes: u64,
}

/// Writes an entry and its tag. Under the lock.
fn write(bucket: &[Line], way: usize, sought: &Sought, mac: [u8; 6], state: NeighbourState, stamps: Stamps) {
    let entry = &bucket[1 + way];
    let writing = entry.word(SEQUENCE).load(Ordering::Relaxed).wrapping_add(1) | 1;
    entry.word(SEQUENCE).store(writing, Ordering::Relaxed);
    fence(Ordering::Release);
    for (position, word) in sought.words.iter().enumerate() {
        entry.word(IP + position).store(*word, Ordering::Relaxed);
    }
    let mut link = [0; 8];
    link[..6].copy_from_slice(&mac);
    entry.word(LINK).store(u64::from_be_bytes(link) | state.number(), Ordering::Relaxed);
    entry.word(CONFIRMED).store(stamps.confirmed_us, Ordering::Relaxed);
    entry.word(PROBED).store(stamps.probed_us, Ordering::Relaxed);
    entry.word(PROBES).store(stamps.probes, Ordering::Relaxed);
    entry.word(SEQUENCE).store(writing.wrapping_add(1), Ordering::Release);
    bucket[0].word(TAGS + way).store(sought.tag, Ordering::Release);
}

impl Neighbours<'_> {
    /// Unlocks what a *dead* writer left locked, and frees what it left half
    /// written; says how many buckets that were. The caller knows from a pidfd
    /// that `dead` is dead: as long as its word is in a lock, nobody else
    /// touches that bucket.
    pub fn reclaim(&self, dead: Owner) -> usize {
        let locked = |bucket: &&[Line]| bucket[0].word(LOCK).load(Ordering::Acquire) == dead.word();
        self.lines
            .chunks_exact(BUCKET_LINES)
            .filter(locked)
            .inspect(|bucket| {
                mend(bucket);
                bucket[0].word(LOCK).store(0, Ordering::Release);
            })
            .count()
    }
}

/// Frees what a dead writer left half written. Under its lock.
fn mend(bucket: &[Line]) {
    for way in 0..WAYS {
        if read_words(&bucket[1 + way]).is_none() {
            bucket[0].word(TAGS + way).store(0, Ordering::Release);
        }
    }
}

fn resolve_incomplete(entry: &Line, neighbour: &Neighbour, now_us: u64) -> Resolution {
    let since_us = now_us.wrapping_sub(neighbour.probed_us) as i64;
    if neighbour.probes < PROBES_MAX {
        return Resolution::Wait { probe: ask(entry, neighbour, now_us) };
    }
    if since_us < PROBE_INTERVAL_US as i64 {
        return Resolution::Wait { probe: false };
    }
    if since_us < UNREACHABLE_HOLD_US as i64 {
        return Resolution::Unreachable;
    }
    let mine = claim(entry, neighbour, now_us);
    if mine {
        entry.word(PROBES).store(1, Ordering::Relaxed);
    }
    Resolution::Wait { probe: mine }
}

/// True for exactly one caller once the interval since the last question is over.
fn ask(entry: &Line, neighbour: &Neighbour, now_us: u64) -> bool {
    let since_us = now_us.wrapping_sub(neighbour.probed_us) as i64;
    if since_us < PROBE_INTERVAL_US as i64 || !claim(entry, neighbour, now_us) {
        return false;
    }
    entry.word(PROBES).fetch_add(1, Ordering::Relaxed);
    true
}

fn claim(entry: &Line, neighbour: &Neighbour, now_us: u64) -> bool {
    entry
        .word(PROBED)
        .compare_exchange(neighbour.probed_us, now_us, Ordering::Relaxed, Ordering::Relaxed)
        .is_ok()
}
