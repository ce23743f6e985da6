//! The engine: all connections of one worker. Segments in, segments out, time.

use std::collections::VecDeque;
use std::net::SocketAddr;

use ff_flowmap::{FlowIndex, FlowKey, FlowRef};

use crate::config::{EngineConfig, Secrets};
use crate::conn::{AckDue, Conn, NEVER};
use crate::error::ConnError;
use crate::header::{ACK, FIN, RST, SYN, Segment};
use crate::host::{Bare, Host, Reply, Sacks};
use crate::info::{Counters, State};
use crate::listen::{Listeners, Requests};
use crate::seq::Seq;
use crate::slab::Slab;
use crate::socket::*;
use crate::time::Instant;
use crate::timewait::{TimeWait, TimeWaits};
use crate::trace::{Direction, TraceSink};

/// IP protocol number.
pub(crate) const TCP: u8 = 6;
/// Segments that one connection may send before the next has its turn.
const BURST: u32 = 32;
/// Connections whose timers may wait to be set.
const STALE_TIMERS_MAX: usize = 256;

/// What a [`FlowRef`] leads to: two bits of kind, thirty of index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    Conn(u32),
    Request(u32),
    TimeWait(u32),
}

impl Target {
    const SHIFT: u32 = 30;

    pub(crate) fn to_ref(self) -> FlowRef {
        FlowRef(match self {
            Target::Conn(i) => i,
            Target::Request(i) => i | 1 << Self::SHIFT,
            Target::TimeWait(i) => i | 2 << Self::SHIFT,
        })
    }

    pub(crate) fn from_ref(flow: FlowRef) -> Option<Target> {
        let i = flow.0 & ((1 << Self::SHIFT) - 1);
        match flow.0 >> Self::SHIFT {
            0 => Some(Target::Conn(i)),
            1 => Some(Target::Request(i)),
            2 => Some(Target::TimeWait(i)),
            _ => None,
        }
    }
}

/// All TCP connections and listeners of one worker.
pub struct Engine<I: FlowIndex> {
    pub(crate) index: I,
    pub(crate) host: Host,
    pub(crate) conns: Slab<Conn>,
    pub(crate) listeners: Listeners,
    pub(crate) requests: Requests,
    pub(crate) time_waits: TimeWaits,
    /// Listeners with events: index and generation.
    pub(crate) listener_events: VecDeque<(u32, u32)>,
    /// The connection that sends now, and how much of its turn is left.
    current: Option<(u32, u32)>,
    /// Until when cookies were sent, by anybody whose packets come here now.
    pub(crate) last_cookie: Option<Instant>,
    trace: Option<Trace>,
}

struct Trace {
    sink: Box<dyn TraceSink>,
    all: bool,
}

impl<I: FlowIndex> Engine<I> {
    /// An empty engine. `index` is the demultiplexing table: it is looked up
    /// for segments without a [`FlowRef`], and kept up to date. `secrets` must
    /// be the same in all processes that serve the same addresses.
    pub fn new(config: EngineConfig, secrets: Secrets, index: I) -> Self {
        Self {
            index,
            host: Host::new(config, secrets),
            conns: Slab::new(),
            listeners: Listeners::new(),
            requests: Requests::new(),
            time_waits: TimeWaits::new(),
            listener_events: VecDeque::new(),
            current: None,
            last_cookie: None,
            trace: None,
        }
    }

    /// The demultiplexing table.
    pub fn index(&self) -> &I {
        &self.index
    }

    /// The settings it was made with.
    pub fn config(&self) -> &EngineConfig {
        &self.host.config
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.host.counters
    }

    /// Bytes that all buffers hold now.
    pub fn memory_bytes(&self) -> u64 {
        self.host.pool.in_use_bytes()
    }

    /// Connections: those in accept queues and orphans included, half-open
    /// ones and TIME-WAIT not.
    pub fn conn_count(&self) -> usize {
        self.conns.len()
    }

    /// Half-open handshakes.
    pub fn request_count(&self) -> usize {
        self.requests.slab.len()
    }

    /// Entries in TIME-WAIT.
    pub fn time_wait_count(&self) -> usize {
        self.time_waits.len()
    }

    /// Gives segments of traced flows to `sink`; `all` traces every flow,
    /// otherwise those of [`trace_conn`](Self::trace_conn).
    pub fn set_trace(&mut self, sink: Option<Box<dyn TraceSink>>, all: bool) {
        self.trace = sink.map(|sink| Trace { sink, all });
    }

    /// Switches the trace of one connection.
    pub fn trace_conn(&mut self, id: ConnId, on: bool) {
        if let Some(conn) = self.conns.get_checked_mut(id.index, id.generation) {
            conn.traced = on;
        }
    }

    #[cold]
    #[inline(never)]
    fn trace_segment(
        &mut self,
        now: Instant,
        key: &FlowKey,
        target: Option<Target>,
        direction: Direction,
        tcp: &[u8],
    ) {
        let Some(trace) = &mut self.trace else { return };
        let traced = match target {
            Some(Target::Conn(i)) => self.conns.get(i).is_some_and(|c| c.traced),
            _ => false,
        };
        if trace.all || traced {
            trace.sink.segment(now, key, direction, tcp);
        }
    }

    pub(crate) fn tick(&mut self, now: Instant) {
        self.host.now = self.host.now.max(now);
    }

    // Segments in.

    /// Takes a segment: `tcp` is the TCP header and what follows it, its
    /// checksum verified. `flow` is what a lookup of the flow gave that the
    /// caller has made already; a stale answer does no harm.
    pub fn on_segment(&mut self, now: Instant, meta: SegmentMeta, tcp: &[u8], flow: Option<FlowRef>) {
        self.tick(now);
        self.host.counters.segs_in += 1;
        let Some(seg) = Segment::parse(tcp) else {
            self.host.counters.drop_malformed += 1;
            return;
        };
        if seg.src_port == 0 || seg.dst_port == 0 {
            self.host.counters.drop_malformed += 1;
            return;
        }
        let key = FlowKey::new(
            TCP,
            SocketAddr::new(meta.dst, seg.dst_port),
            SocketAddr::new(meta.src, seg.src_port),
        );
        let target = self.resolve(&key, flow);
        if self.trace.is_some() {
            self.trace_segment(now, &key, target, Direction::In, tcp);
        }
        match target {
            Some(Target::Conn(i)) => {
                if let Some(conn) = self.conns.get_mut(i) {
                    conn.on_segment(&mut self.host, now, meta.ecn, &seg);
                    self.settle(i);
                }
            }
            Some(Target::Request(i)) => self.request_segment(now, &meta, &seg, i),
            Some(Target::TimeWait(i)) => self.time_wait_segment(now, &meta, &seg, &key, i),
            None => self.unknown_segment(now, &meta, &seg, &key, None),
        }
    }

    /// Fetches into the cache what a segment of `flow` will need. To be called
    /// for a whole burst before its segments: the loads of several flows then
    /// overlap, where each alone would be waited for.
    #[inline]
    pub fn prefetch(&self, flow: FlowRef) {
        if let Some(Target::Conn(i)) = Target::from_ref(flow)
            && let Some(conn) = self.conns.get(i)
        {
            std::hint::black_box(conn.touch() ^ self.host.wheel.touch(i));
        }
    }

    /// What a flow leads to. The caller's lookup may be older than what other
    /// segments of its burst have done, so it counts only if the key agrees.
    fn resolve(&self, key: &FlowKey, flow: Option<FlowRef>) -> Option<Target> {
        if let Some(target) = flow.and_then(Target::from_ref)
            && self.leads_to(key, target)
        {
            return Some(target);
        }
        let target = Target::from_ref(self.index.lookup(key)?)?;
        self.leads_to(key, target).then_some(target)
    }

    fn leads_to(&self, key: &FlowKey, target: Target) -> bool {
        match target {
            Target::Conn(i) => self.conns.get(i).is_some_and(|c| c.key == *key && !c.detached),
            Target::Request(i) => self.requests.slab.get(i).is_some_and(|r| r.key == *key),
            Target::TimeWait(i) => self.time_waits.get(i).is_some_and(|t| t.is_for(key)),
        }
    }

    /// RST for a segment that nobody wants (RFC 9293, 3.10.7.1).
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse(&mut self, seg: &Segment<'_>, key: &FlowKey) {
        if seg.has(RST) || !self.host.config.rst_unknown {
            return;
        }
        self.host.counters.rst_out += 1;
        let (seq, ack, flags) =
            if seg.has(ACK) { (seg.ack, Seq(0), RST) } else { (Seq(0), seg.seq.add(seg.len()), RST | ACK) };
        self.host.reply(Reply::Bare(Bare {
            key: *key,
            seq,
            ack,
            flags,
            window: 0,
            timestamps: None,
            sacks: Sacks::default(),
        }));
    }

    #[cold]
    #[inline(never)]
    fn time_wait_segment(
        &mut self,
        now: Instant,
        meta: &SegmentMeta,
        seg: &Segment<'_>,
        key: &FlowKey,
        i: u32,
    ) {
        let Some(tw) = self.time_waits.get(i).copied() else { return };
        let lasts_us = 2 * self.host.config.msl_us;
        let ts = seg.options.timestamp.filter(|_| tw.timestamps());
        let old_ts = ts.is_some_and(|(val, _)| (val.wrapping_sub(tw.ts_recent) as i32) < 0);
        if seg.has(RST) {
            // RFC 1337: nothing but time ends TIME-WAIT.
            self.host.counters.rst_ignored += 1;
            return;
        }
        if seg.has(SYN) && !seg.has(ACK) && !old_ts {
            let newer = seg.seq.gt(tw.rcv_nxt)
                || ts.is_some_and(|(val, _)| (val.wrapping_sub(tw.ts_recent) as i32) > 0);
            if newer && self.listeners.find(meta.dst, seg.dst_port).is_some() {
                // RFC 6191, and RFC 9293's 3.6.1: our number goes on from the old one.
                self.host.counters.time_wait_reused += 1;
                self.drop_time_wait(i);
                let isn_after = tw.snd_nxt.add(65_535 + 2);
                return self.unknown_segment(now, meta, seg, key, Some(isn_after));
            }
        }
        if old_ts {
            self.host.counters.drop_paws += 1;
        } else if let Some((val, _)) = ts.filter(|_| seg.seq.le(tw.rcv_nxt)) {
            self.time_waits.set_ts_recent(i, val);
        }
        let answer = seg.has(SYN | FIN) || !seg.payload.is_empty() || old_ts || seg.seq != tw.rcv_nxt;
        if answer {
            if !old_ts {
                self.time_waits.restart(i, now, lasts_us);
            }
            let offset = crate::numbers::timestamp_offset(&self.host.secrets, key);
            let clock = Host::timestamp_clock(now).wrapping_add(offset);
            self.host.reply(Reply::Bare(Bare {
                key: *key,
                seq: tw.snd_nxt,
                ack: tw.rcv_nxt,
                flags: ACK,
                window: tw.window,
                timestamps: tw.timestamps().then_some((clock, tw.ts_recent)),
                sacks: Sacks::default(),
            }));
        }
    }

    pub(crate) fn drop_time_wait(&mut self, i: u32) {
        if let Some(tw) = self.time_waits.remove(i) {
            self.index.remove(&tw.key());
        }
    }

    /// Takes an ICMP error about the flow `key` (as this host sees it). `seq`
    /// is the sequence number in the quoted header: without it, or outside of
    /// what is in flight, the error is ignored (RFC 5927).
    pub fn on_icmp_error(&mut self, now: Instant, key: &FlowKey, error: IcmpError, seq: Option<u32>) {
        self.tick(now);
        let target = self.resolve(key, None);
        let seq = seq.map(Seq);
        let Some(Target::Conn(i)) = target else {
            self.host.counters.icmp_ignored += 1;
            return;
        };
        let Some(conn) = self.conns.get_mut(i) else { return };
        let in_flight = seq.is_some_and(|s| s.ge(conn.snd_una) && s.lt(conn.snd_nxt));
        let used = in_flight
            && match error {
                IcmpError::TooBig { mtu } => conn.on_too_big(&mut self.host, mtu, seq),
                IcmpError::TimeExceeded => {
                    conn.soft_error = Some(ConnError::HostUnreachable);
                    true
                }
                IcmpError::Unreachable { code } => {
                    conn.on_unreachable(&mut self.host, code);
                    true
                }
            };
        if used {
            self.host.counters.icmp_used += 1;
        } else {
            self.host.counters.icmp_ignored += 1;
        }
        self.settle(i);
    }

    // After each change of a connection.

    /// Does what a connection's new state asks of the tables: leaves the flow
    /// table, becomes a TIME-WAIT entry, is forgotten, or has its timer set.
    pub(crate) fn settle(&mut self, i: u32) {
        let Some(conn) = self.conns.get_mut(i) else { return };
        if !conn.detached {
            match conn.state {
                State::TimeWait => self.become_time_wait(i),
                State::Closed => {
                    conn.detached = true;
                    self.index.remove(&conn.key);
                    self.host.wheel.cancel(i);
                }
                _ => {
                    if !conn.timer_stale {
                        conn.timer_stale = true;
                        self.host.stale_timers.push(i);
                        if self.host.stale_timers.len() > STALE_TIMERS_MAX {
                            self.set_timers();
                        }
                    }
                    return;
                }
            }
        }
        let Some(conn) = self.conns.get(i) else { return };
        if conn.detached && conn.orphan {
            self.forget(i);
        }
    }

    /// Sets the timers of all connections that this pass has touched.
    fn set_timers(&mut self) {
        while let Some(i) = self.host.stale_timers.pop() {
            let Some(conn) = self.conns.get_mut(i) else { continue };
            if std::mem::take(&mut conn.timer_stale) && !conn.detached {
                // What has run does not run again at the same time.
                let at = conn.next_deadline().max(self.host.now.0 + 1);
                if at != NEVER {
                    self.host.wheel.at_latest(i, Instant(at));
                }
            }
        }
    }

    /// Frees a connection that nothing leads to any more.
    #[inline(never)]
    pub(crate) fn forget(&mut self, i: u32) {
        self.host.wheel.cancel(i);
        if let Some(mut conn) = self.conns.remove(i) {
            if conn.orphan {
                self.host.orphans = self.host.orphans.saturating_sub(1);
            }
            conn.release(&mut self.host);
        }
    }

    #[inline(never)]
    fn become_time_wait(&mut self, i: u32) {
        let Some(conn) = self.conns.get_mut(i) else { return };
        let now = self.host.now;
        let shift = conn.agreed.wscale.map_or(0, |w| w.1);
        let window = (conn.rcv_buf_bytes.min(65_535 << shift) >> shift) as u16;
        let key = conn.key;
        if conn.ack_due != AckDue::No {
            conn.ack_due = AckDue::No;
            let timestamps = conn.agreed.timestamps.then(|| (conn.timestamp(now), conn.ts_recent));
            let (seq, ack) = (conn.snd_nxt, conn.rcv_nxt);
            conn.stats.segs_out += 1;
            self.host.reply(Reply::Bare(Bare {
                key,
                seq,
                ack,
                flags: ACK,
                window,
                timestamps,
                sacks: Sacks::default(),
            }));
        }
        conn.detached = true;
        let ts = conn.agreed.timestamps.then_some(conn.ts_recent);
        let entry = TimeWait::new(&key, conn.snd_nxt, conn.rcv_nxt, ts, window);
        self.host.wheel.cancel(i);
        if self.time_waits.len() >= self.host.config.time_wait_max as usize
            && let Some(oldest) = self.time_waits.oldest()
        {
            self.host.counters.time_wait_overflow += 1;
            self.drop_time_wait(oldest);
        }
        let lasts_us = 2 * self.host.config.msl_us;
        if self.host.config.time_wait_max == 0 {
            self.index.remove(&key);
            return;
        }
        let t = self.time_waits.insert(entry, now, lasts_us);
        if self.index.insert(&key, Target::TimeWait(t).to_ref()).is_err() {
            // A replacement needs no room; a table that refuses it loses the
            // flow, and 2MSL with it.
            self.time_waits.remove(t);
            self.index.remove(&key);
        } else {
            self.host.counters.time_waits += 1;
        }
    }

    // Segments out.

    /// Writes the next segment into `buf` (room for one MTU, or for
    /// `tso_max_bytes` and a header), or says that there is nothing to send
    /// now. The checksum field is 0.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        self.tick(now);
        while let Some(reply) = self.host.replies.pop_front() {
            if let Some((key, len)) = self.emit_reply(now, &reply, buf) {
                self.host.counters.segs_out += 1;
                if self.trace.is_some() {
                    self.trace_segment(now, &key, None, Direction::Out, &buf[..len]);
                }
                return Some(Transmit { key, len, ecn: Ecn::NotEct, gso_size: None });
            }
        }
        loop {
            let (i, left) = match self.current.take() {
                Some(current) => current,
                None => match self.host.work.pop_front() {
                    Some(i) => (i, BURST),
                    None => {
                        self.set_timers();
                        return None;
                    }
                },
            };
            let Some(conn) = self.conns.get_mut(i) else { continue };
            if !conn.queued {
                continue;
            }
            match conn.transmit(&mut self.host, now, buf) {
                Some(written) => {
                    let key = conn.key;
                    self.host.counters.segs_out += 1;
                    if !conn.may_have_output() {
                        conn.queued = false;
                    } else if left > 1 {
                        self.current = Some((i, left - 1));
                    } else {
                        self.host.work.push_back(i);
                    }
                    if self.trace.is_some() {
                        let segment = &buf[..written.len as usize];
                        self.trace_segment(now, &key, Some(Target::Conn(i)), Direction::Out, segment);
                    }
                    self.settle(i);
                    return Some(written.of(key));
                }
                None => {
                    conn.queued = false;
                    self.settle(i);
                }
            }
        }
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) might have a segment now.
    pub fn may_transmit(&self) -> bool {
        !self.host.replies.is_empty() || self.current.is_some() || !self.host.work.is_empty()
    }

    // Time.

    /// When [`on_deadline`](Self::on_deadline) has something to do next.
    pub fn next_deadline(&self) -> Option<Instant> {
        let stale = self.host.stale_timers.iter().filter_map(|&i| self.conns.get(i));
        let stale = stale.filter(|c| !c.detached).map(Conn::next_deadline).filter(|&at| at != NEVER).min();
        [
            stale.map(Instant),
            self.host.wheel.next_deadline(),
            self.requests.next_deadline(),
            self.time_waits.next_deadline(self.host.now),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Does what is due at `now`.
    pub fn on_deadline(&mut self, now: Instant) {
        self.tick(now);
        self.set_timers();
        while let Some(i) = self.host.wheel.pop_due(now) {
            if let Some(conn) = self.conns.get_mut(i) {
                conn.on_deadline(&mut self.host, now);
                self.settle(i);
            }
        }
        while let Some(i) = self.requests.due(now) {
            self.request_timeout(now, i);
        }
        while let Some(i) = self.time_waits.due(now) {
            self.drop_time_wait(i);
        }
    }

    // Events.

    /// The next event: each socket at most once for all that happened since
    /// its last one.
    pub fn poll_event(&mut self) -> Option<Event> {
        while !self.host.memory_waiters.is_empty() && !self.host.pool.tight() {
            if let Some((i, g)) = self.host.memory_waiters.pop_front()
                && let Some(conn) = self.conns.get_checked_mut(i, g)
                && conn.nospace.get()
                && conn.has_write_space(&self.host)
            {
                conn.nospace.set(false);
                conn.memory_told = true;
                conn.notify(&mut self.host, Readiness::WRITABLE);
            }
        }
        while let Some((index, generation)) = self.listener_events.pop_front() {
            if let Some(l) = self.listeners.slab.get_checked_mut(index, generation) {
                l.event_queued = false;
                return Some(Event {
                    socket: SocketRef::Listener(ListenerId { index, generation }),
                    token: l.options.token,
                    edges: Readiness::READABLE,
                });
            }
        }
        while let Some((index, generation)) = self.host.conn_events.pop_front() {
            if let Some(conn) = self.conns.get_checked_mut(index, generation) {
                conn.event_queued = false;
                let edges = std::mem::take(&mut conn.edges);
                if conn.orphan || edges.is_empty() {
                    continue;
                }
                return Some(Event { socket: SocketRef::Conn(conn.id()), token: conn.token, edges });
            }
        }
        None
    }
}
