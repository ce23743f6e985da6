//! Listeners, half-open requests and SYN cookies (RFC 4987).

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use ff_flowmap::FlowKey;

use crate::seq::Seq;
use crate::slab::Slab;
use crate::socket::{ListenAddr, ListenOptions};
use crate::time::Instant;

const NONE: u32 = u32::MAX;
/// Retransmissions that have a list of their own; more share the last.
const LEVELS: usize = 8;
/// Wait before the first retransmission of a SYN-ACK (RFC 6298).
pub(crate) const SYNACK_TIMEOUT_US: u64 = 1_000_000;

/// One listener.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) addr: ListenAddr,
    pub(crate) options: ListenOptions,
    /// Established and not accepted: slab index and generation.
    pub(crate) accept_queue: VecDeque<(u32, u32)>,
    /// Half-open requests of this listener.
    pub(crate) requests: u32,
    pub(crate) event_queued: bool,
}

/// All listeners by port.
#[derive(Debug)]
pub(crate) struct Listeners {
    pub(crate) slab: Slab<Listener>,
    by_port: HashMap<u16, Vec<u32>>,
}

impl Listeners {
    pub(crate) fn new() -> Self {
        Self { slab: Slab::new(), by_port: HashMap::new() }
    }

    /// Whether a listener of this address would hide or be hidden.
    pub(crate) fn in_use(&self, addr: &ListenAddr) -> bool {
        let overlap = |a: &ListenAddr| match (a.ip, addr.ip) {
            (Some(x), Some(y)) => x == y,
            (None, None) => !(a.v6_only && addr.v4_only || a.v4_only && addr.v6_only),
            _ => false,
        };
        self.by_port
            .get(&addr.port)
            .is_some_and(|v| v.iter().filter_map(|&i| self.slab.get(i)).any(|l| overlap(&l.addr)))
    }

    pub(crate) fn insert(&mut self, listener: Listener) -> (u32, u32) {
        let port = listener.addr.port;
        let (index, generation) = self.slab.insert(listener);
        self.by_port.entry(port).or_default().push(index);
        (index, generation)
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<Listener> {
        let listener = self.slab.remove(index)?;
        if let Some(v) = self.by_port.get_mut(&listener.addr.port) {
            v.retain(|&i| i != index);
            if v.is_empty() {
                self.by_port.remove(&listener.addr.port);
            }
        }
        Some(listener)
    }

    /// The listener of a segment to `ip:port`: an exact address goes first.
    pub(crate) fn find(&self, ip: IpAddr, port: u16) -> Option<u32> {
        let candidates = self.by_port.get(&port)?;
        let matches = |i: &&u32| self.slab.get(**i).is_some_and(|l| l.addr.accepts(ip));
        let exact = |i: &&u32| self.slab.get(**i).is_some_and(|l| l.addr.ip.is_some());
        candidates.iter().filter(matches).find(exact).or_else(|| candidates.iter().find(matches)).copied()
    }
}

/// A half-open handshake: no buffers, no connection.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) key: FlowKey,
    pub(crate) listener: (u32, u32),
    pub(crate) irs: Seq,
    pub(crate) iss: Seq,
    pub(crate) ts_recent: u32,
    pub(crate) peer_mss: u16,
    pub(crate) window: u16,
    /// The peer's shift, if it scales.
    pub(crate) peer_wscale: Option<u8>,
    pub(crate) own_wscale: u8,
    pub(crate) sack: bool,
    pub(crate) timestamps: bool,
    pub(crate) ecn: bool,
    /// The final ACK came, but TCP_DEFER_ACCEPT or a full queue let it pass by.
    pub(crate) acked: bool,
    pub(crate) retries: u8,
    /// SYN-ACKs sent so far, repetitions included.
    pub(crate) answers: u8,
    pub(crate) begun: Instant,
    /// When the last one was sent.
    pub(crate) sent: Instant,
    /// When a repeated SYN was last answered.
    pub(crate) repeated: Option<Instant>,
    pub(crate) deadline: Instant,
    prev: u32,
    next: u32,
}

impl Request {
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        key: FlowKey,
        listener: (u32, u32),
        irs: Seq,
        iss: Seq,
        peer_mss: u16,
        window: u16,
        peer_wscale: Option<u8>,
        own_wscale: u8,
        now: Instant,
    ) -> Self {
        Self {
            key,
            listener,
            irs,
            iss,
            ts_recent: 0,
            peer_mss,
            window,
            peer_wscale,
            own_wscale,
            sack: false,
            timestamps: false,
            ecn: false,
            acked: false,
            retries: 0,
            answers: 0,
            begun: now,
            sent: now,
            repeated: None,
            deadline: now + SYNACK_TIMEOUT_US,
            prev: NONE,
            next: NONE,
        }
    }
}

/// All requests, in one list for each number of retransmissions: within a list
/// the waits are equal, so that it is in order of its deadlines.
#[derive(Debug)]
pub(crate) struct Requests {
    pub(crate) slab: Slab<Request>,
    first: [u32; LEVELS],
    last: [u32; LEVELS],
}

impl Requests {
    pub(crate) fn new() -> Self {
        Self { slab: Slab::new(), first: [NONE; LEVELS], last: [NONE; LEVELS] }
    }

    pub(crate) fn insert(&mut self, request: Request) -> (u32, u32) {
        let (index, generation) = self.slab.insert(request);
        self.append(index);
        (index, generation)
    }

    fn append(&mut self, index: u32) {
        let Some(r) = self.slab.get_mut(index) else { return };
        let level = (r.retries as usize).min(LEVELS - 1);
        r.prev = self.last[level];
        r.next = NONE;
        let prev = r.prev;
        match self.slab.get_mut(prev) {
            Some(p) if prev != NONE => p.next = index,
            _ => self.first[level] = index,
        }
        self.last[level] = index;
    }

    fn unlink(&mut self, index: u32) {
        let Some(r) = self.slab.get(index) else { return };
        let (prev, next, level) = (r.prev, r.next, (r.retries as usize).min(LEVELS - 1));
        match self.slab.get_mut(prev) {
            Some(p) if prev != NONE => p.next = next,
            _ => self.first[level] = next,
        }
        match self.slab.get_mut(next) {
            Some(n) if next != NONE => n.prev = prev,
            _ => self.last[level] = prev,
        }
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<Request> {
        self.unlink(index);
        self.slab.remove(index)
    }

    /// Puts in a request that another engine has begun. The wait before its next repetition begins anew, so that
    /// its list stays in order.
    pub(crate) fn adopt(&mut self, mut request: Request, now: Instant) -> (u32, u32) {
        request.deadline = now + (SYNACK_TIMEOUT_US << request.retries.min(LEVELS as u8 - 1));
        self.insert(request)
    }

    /// Counts a retransmission and waits twice as long for the next.
    pub(crate) fn back_off(&mut self, index: u32, now: Instant) {
        self.unlink(index);
        if let Some(r) = self.slab.get_mut(index) {
            r.retries = r.retries.saturating_add(1);
            r.deadline = now + (SYNACK_TIMEOUT_US << r.retries.min(LEVELS as u8 - 1));
        }
        self.append(index);
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.first.iter().filter_map(|&i| self.slab.get(i)).map(|r| r.deadline).min()
    }

    /// A request whose wait is over.
    pub(crate) fn due(&self, now: Instant) -> Option<u32> {
        self.first.iter().copied().find(|&i| self.slab.get(i).is_some_and(|r| r.deadline <= now))
    }
}
