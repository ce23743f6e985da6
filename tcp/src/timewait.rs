//! TIME-WAIT in 64 bytes an entry (RFC 9293, 3.6.1; RFC 6191; RFC 1337).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ff_flowmap::FlowKey;

use crate::seq::Seq;
use crate::time::Instant;

const CHUNK: usize = 256;
const NONE: u32 = u32::MAX;

const LIVE: u8 = 1;
const V6: u8 = 2;
const TIMESTAMPS: u8 = 4;

/// One entry. Entries form a list in order of expiry: all last equally long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeWait {
    local: [u8; 16],
    remote: [u8; 16],
    local_port: u16,
    remote_port: u16,
    pub(crate) snd_nxt: Seq,
    pub(crate) rcv_nxt: Seq,
    pub(crate) ts_recent: u32,
    /// Milliseconds, modulo 2^32.
    expires_ms: u32,
    prev: u32,
    next: u32,
    /// Window field of the ACKs it sends.
    pub(crate) window: u16,
    flags: u8,
    _spare: u8,
}

const _: () = assert!(size_of::<TimeWait>() <= 64);

impl TimeWait {
    pub(crate) fn new(
        key: &FlowKey,
        snd_nxt: Seq,
        rcv_nxt: Seq,
        ts_recent: Option<u32>,
        window: u16,
    ) -> Self {
        let mut flags = LIVE;
        if key.family != 4 {
            flags |= V6;
        }
        if ts_recent.is_some() {
            flags |= TIMESTAMPS;
        }
        Self {
            local: key.local,
            remote: key.remote,
            local_port: key.local_port,
            remote_port: key.remote_port,
            snd_nxt,
            rcv_nxt,
            ts_recent: ts_recent.unwrap_or(0),
            expires_ms: 0,
            prev: NONE,
            next: NONE,
            window,
            flags,
            _spare: 0,
        }
    }

    /// The entry to end at `expires_ms`.
    pub(crate) fn until(self, expires_ms: u32) -> Self {
        Self { expires_ms, ..self }
    }

    /// When it ends, in milliseconds modulo 2^32.
    pub(crate) fn expires_ms(&self) -> u32 {
        self.expires_ms
    }

    pub(crate) fn timestamps(&self) -> bool {
        self.flags & TIMESTAMPS != 0
    }

    pub(crate) fn key(&self) -> FlowKey {
        let addr = |octets: [u8; 16], port| {
            let v6 = Ipv6Addr::from(octets);
            let ip = if self.flags & V6 == 0 {
                v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4)
            } else {
                IpAddr::V6(v6)
            };
            SocketAddr::new(ip, port)
        };
        FlowKey::new(6, addr(self.local, self.local_port), addr(self.remote, self.remote_port))
    }

    pub(crate) fn is_for(&self, key: &FlowKey) -> bool {
        self.local_port == key.local_port
            && self.remote_port == key.remote_port
            && self.remote == key.remote
            && self.local == key.local
            && (self.flags & V6 == 0) == (key.family == 4)
    }
}

/// All entries of an engine.
#[derive(Debug)]
pub(crate) struct TimeWaits {
    chunks: Vec<Box<[TimeWait]>>,
    free: u32,
    oldest: u32,
    newest: u32,
    len: u32,
}

impl TimeWaits {
    pub(crate) fn new() -> Self {
        Self { chunks: Vec::new(), free: NONE, oldest: NONE, newest: NONE, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    fn slot(&mut self, i: u32) -> &mut TimeWait {
        &mut self.chunks[i as usize / CHUNK][i as usize % CHUNK]
    }

    pub(crate) fn get(&self, i: u32) -> Option<&TimeWait> {
        self.chunks.get(i as usize / CHUNK).map(|c| &c[i as usize % CHUNK]).filter(|t| t.flags & LIVE != 0)
    }

    pub(crate) fn insert(&mut self, entry: TimeWait, now: Instant, lasts_us: u64) -> u32 {
        let i = self.store(TimeWait { expires_ms: (now.0 + lasts_us).div_ceil(1_000) as u32, ..entry });
        self.append(i);
        i
    }

    /// Puts in an entry that another engine has begun, to end when it would have ended there. It finds its place from
    /// the newest on: what comes from elsewhere is not much older than what is here.
    pub(crate) fn adopt(&mut self, entry: TimeWait) -> u32 {
        let i = self.store(entry);
        let mut before = self.newest;
        while before != NONE && (self.slot(before).expires_ms.wrapping_sub(entry.expires_ms) as i32) > 0 {
            before = self.slot(before).prev;
        }
        self.link_behind(i, before);
        i
    }

    fn store(&mut self, entry: TimeWait) -> u32 {
        if self.free == NONE {
            let base = (self.chunks.len() * CHUNK) as u32;
            let blank = TimeWait { flags: 0, ..entry };
            let mut chunk = vec![blank; CHUNK].into_boxed_slice();
            for (i, t) in chunk.iter_mut().enumerate() {
                t.next = if i + 1 == CHUNK { NONE } else { base + i as u32 + 1 };
            }
            self.chunks.push(chunk);
            self.free = base;
        }
        let i = self.free;
        self.free = self.slot(i).next;
        *self.slot(i) = entry;
        self.len += 1;
        i
    }

    fn append(&mut self, i: u32) {
        self.link_behind(i, self.newest);
    }

    /// Links an entry behind `before`, or as the oldest.
    fn link_behind(&mut self, i: u32, before: u32) {
        let after = if before == NONE { self.oldest } else { self.slot(before).next };
        let t = self.slot(i);
        (t.prev, t.next) = (before, after);
        match before {
            NONE => self.oldest = i,
            _ => self.slot(before).next = i,
        }
        match after {
            NONE => self.newest = i,
            _ => self.slot(after).prev = i,
        }
    }

    fn unlink(&mut self, i: u32) {
        let TimeWait { prev, next, .. } = *self.slot(i);
        if prev == NONE {
            self.oldest = next;
        } else {
            self.slot(prev).next = next;
        }
        if next == NONE {
            self.newest = prev;
        } else {
            self.slot(next).prev = prev;
        }
    }

    /// Takes an entry out.
    pub(crate) fn remove(&mut self, i: u32) -> Option<TimeWait> {
        let entry = *self.get(i)?;
        self.unlink(i);
        let free = self.free;
        let t = self.slot(i);
        t.flags = 0;
        t.next = free;
        self.free = i;
        self.len -= 1;
        Some(entry)
    }

    /// Starts an entry's time again.
    pub(crate) fn restart(&mut self, i: u32, now: Instant, lasts_us: u64) {
        if self.get(i).is_none() {
            return;
        }
        self.unlink(i);
        self.slot(i).expires_ms = (now.0 + lasts_us).div_ceil(1_000) as u32;
        self.append(i);
    }

    /// Remembers a newer timestamp of the peer.
    pub(crate) fn set_ts_recent(&mut self, i: u32, ts: u32) {
        if self.get(i).is_some() {
            self.slot(i).ts_recent = ts;
        }
    }

    /// The entry that goes first.
    pub(crate) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// The entries in the order in which they end.
    pub(crate) fn iter_oldest_first(&self) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(self.oldest(), |i| self.get(*i).map(|t| t.next).filter(|next| *next != NONE))
    }

    /// When the oldest entry ends.
    pub(crate) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let t = self.get(self.oldest)?;
        let now_ms = now.millis();
        let left = t.expires_ms.wrapping_sub(now_ms as u32) as i32;
        Some(Instant((now_ms as i64 + i64::from(left)).max(0) as u64 * 1_000))
    }

    /// An entry that has ended by `now`.
    pub(crate) fn due(&self, now: Instant) -> Option<u32> {
        let t = self.get(self.oldest)?;
        ((t.expires_ms.wrapping_sub(now.millis() as u32) as i32) <= 0).then_some(self.oldest)
    }
}
