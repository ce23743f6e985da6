//! One connection: its numbers, queues and timers, and how it begins and ends.
//!
//! What arrives is in `input`, what leaves in `output`, loss and its repair in
//! `recovery`, deadlines in `deadlines`.

use ff_flowmap::FlowKey;
use std::cell::Cell;

use crate::buffers::Ring;
use crate::congestion::{Controller, HyStart, Window};
use crate::error::ConnError;
use crate::flight::Flight;
use crate::header::{ACK, RST};
use crate::host::{Bare, Host, Reply, Sacks};
use crate::info::{CaState, State};
use crate::numbers;
use crate::reassembly::{Range, Reassembly};
use crate::recovery::{Prr, Rack};
use crate::rtt::Rtt;
use crate::seq::Seq;
use crate::socket::{ConnId, Readiness, SocketOptions};
use crate::time::Instant;

/// No deadline.
pub(crate) const NEVER: u64 = u64::MAX;
/// Segment size of a peer that names none (RFC 9293, 3.7.1).
pub(crate) const MSS_DEFAULT: u16 = 536;
/// The same for IPv6 (RFC 8200 minimum MTU).
pub(crate) const MSS_DEFAULT_V6: u16 = 1_220;

/// What the one retransmission timer stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum RtxTimer {
    None = 0,
    /// Retransmission time-out.
    Rto = 1,
    /// Tail loss probe.
    Tlp = 2,
    /// RACK's reordering window.
    Reorder = 3,
    /// Window probe.
    Persist = 4,
}

/// When an acknowledgement is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum AckDue {
    No = 0,
    Delayed = 1,
    Now = 2,
}

/// What the handshake agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub(crate) peer_mss: u16,
    /// Both shifts, or `None`: no scaling. `.0` is for windows that the peer
    /// sends, `.1` for ours.
    pub(crate) wscale: Option<(u8, u8)>,
    pub(crate) sack: bool,
    pub(crate) timestamps: bool,
    pub(crate) ecn: bool,
}

/// One connection. The order of fields is the order of cache lines: what
/// nearly every segment reads and writes comes first, in eight lines.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Conn {
    // With the slot's generation, one line: who it is and how it stands.
    pub(crate) key: FlowKey,
    pub(crate) state: State,
    pub(crate) ca_state: CaState,
    pub(crate) ack_due: AckDue,
    /// The ACK that is due tells of a segment out of order or repeated.
    pub(crate) ack_tells: bool,
    /// In the work list.
    pub(crate) queued: bool,
    /// In the event list.
    pub(crate) event_queued: bool,
    /// The user holds it (accepted or connected).
    pub(crate) held: bool,
    /// The user has closed it.
    pub(crate) orphan: bool,
    /// The flow table no longer leads here.
    pub(crate) detached: bool,
    pub(crate) fin_queued: bool,
    pub(crate) fin_sent: bool,
    pub(crate) fin_received: bool,
    pub(crate) read_shut: bool,
    /// A writer found no room, or somebody who asked was told that there is none: it waits for some. Asking counts,
    /// because the limit of the buffer may shrink between the event and the question: what was told as an event and
    /// denied to the question is told again.
    pub(crate) nospace: Cell<bool>,
    /// It was told that there is memory again, and has not tried to write since.
    pub(crate) memory_told: bool,
    pub(crate) edges: Readiness,
    pub(crate) quick_acks: u8,
    /// Its timer is to be set from its deadlines at the end of the pass.
    pub(crate) timer_stale: bool,

    // Numbers.
    pub(crate) snd_una: Seq,
    pub(crate) snd_nxt: Seq,
    pub(crate) snd_wnd: u32,
    pub(crate) snd_wl1: Seq,
    /// Largest window that the peer ever offered.
    pub(crate) max_wnd: u32,
    pub(crate) rcv_nxt: Seq,
    /// `rcv_nxt` as last acknowledged.
    pub(crate) rcv_acked: Seq,
    /// Right edge of the window as last told.
    pub(crate) rcv_adv: Seq,
    pub(crate) rcv_buf_bytes: u32,
    pub(crate) ts_recent: u32,
    pub(crate) ts_recent_ms: u32,
    pub(crate) ts_offset: u32,
    /// Sequence number of the first byte in `tx`.
    pub(crate) tx_base: Seq,
    /// End of the last small segment that was sent (Minshall's Nagle).
    pub(crate) small_end: Seq,
    /// End of the episode: what was sent when it began.
    pub(crate) high_seq: Seq,
    pub(crate) rcv_mss: u16,
    pub(crate) rtx_timer: RtxTimer,
    pub(crate) cwnd_limited: bool,

    // Queues.
    pub(crate) tx: Ring,
    pub(crate) rx: Ring,

    // In flight.
    pub(crate) records: Flight,
    pub(crate) sacked_bytes: u32,
    pub(crate) lost_bytes: u32,
    pub(crate) retx_bytes: u32,
    pub(crate) window: Window,
    pub(crate) agreed: Agreed,

    // Times.
    pub(crate) rtx_at: u64,
    pub(crate) delack_at: u64,
    pub(crate) keep_at: u64,
    pub(crate) life_at: u64,
    pub(crate) cork_until: u64,
    pub(crate) pace_until: u64,
    pub(crate) last_recv: Instant,
    pub(crate) last_send: Instant,

    // Round trips and RACK.
    pub(crate) rtt: Rtt,
    pub(crate) rack: Rack,

    // Small things that most segments look at.
    pub(crate) index: u32,
    pub(crate) generation: u32,
    pub(crate) token: u64,
    pub(crate) ooo: Option<Box<Reassembly>>,
    /// Sequence number of the peer's FIN, once seen.
    pub(crate) peer_fin: Option<Seq>,
    pub(crate) tlp_end: Option<Seq>,
    pub(crate) drs_copied: u32,
    pub(crate) drs_space: u32,
    /// Auto-tuning: start of the measured round trip, bytes the user took in it.
    pub(crate) drs_start: Instant,
    pub(crate) pmtu: u16,
    pub(crate) dupacks: u8,
    pub(crate) backoff: u8,
    pub(crate) retransmits: u8,
    pub(crate) probes: u8,
    /// Segments that may go out whatever the window says.
    pub(crate) force_retx: u8,
    pub(crate) frto: crate::recovery::Frto,
    pub(crate) tlp_pending: bool,
    pub(crate) tlp_retrans: bool,
    pub(crate) window_probe: bool,
    pub(crate) keep_probe: bool,
    pub(crate) ecn_echo: bool,
    pub(crate) ecn_cwr_due: bool,
    /// Corked data has waited long enough.
    pub(crate) cork_release: bool,
    pub(crate) traced: bool,
    pub(crate) error: Option<ConnError>,
    pub(crate) soft_error: Option<ConnError>,
    pub(crate) last_sacks_len: u8,

    pub(crate) probe: crate::pmtu::Probing,

    // Counts and options.
    pub(crate) stats: Stats,
    pub(crate) options: SocketOptions,

    // What only loss, congestion and the ends of a connection need.
    pub(crate) dsack: Option<Range>,
    pub(crate) prr: Prr,
    pub(crate) undo: Option<crate::recovery::Undo>,
    /// Timestamp of the first retransmission of an episode (RFC 3522).
    pub(crate) retrans_stamp: Option<u32>,
    /// When the segment that now times out was first sent.
    pub(crate) stalled_since: u64,
    pub(crate) last_oow_ack_us: u64,
    pub(crate) last_sacks: [Range; 4],
    pub(crate) controller: Controller,
    pub(crate) hystart: HyStart,
    pub(crate) listener: Option<(u32, u32)>,
    pub(crate) iss: Seq,
    pub(crate) irs: Seq,
}

/// Counts for TCP_INFO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    pub(crate) bytes_acked: u64,
    pub(crate) bytes_received: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_retrans: u64,
    pub(crate) segs_in: u64,
    pub(crate) segs_out: u64,
    pub(crate) retrans_segs: u32,
    pub(crate) dsack_dups: u32,
    pub(crate) last_data_sent_us: u64,
    pub(crate) last_data_recv_us: u64,
    pub(crate) last_ack_recv_us: u64,
}

/// Bytes of an IP header without options.
pub(crate) fn ip_header_bytes(key: &FlowKey) -> u16 {
    if key.family == 4 { 20 } else { 40 }
}

/// The segment size that a path of `mtu` carries without TCP options.
pub(crate) fn mss_for_mtu(key: &FlowKey, mtu: u16) -> u16 {
    mtu.saturating_sub(ip_header_bytes(key) + 20).max(48)
}

impl Conn {
    /// A connection in `state` whose numbers the caller sets further.
    pub(crate) fn new(host: &mut Host, key: FlowKey, state: State, iss: Seq, agreed: Agreed) -> Self {
        let config = &host.config;
        let pmtu = config.mtu;
        let now = host.now;
        let options = config.socket;
        let algorithm = options.congestion.unwrap_or(config.congestion);
        let mut conn = Self {
            key,
            state,
            ca_state: CaState::Open,
            ack_due: AckDue::No,
            rtx_timer: RtxTimer::None,
            queued: false,
            event_queued: false,
            timer_stale: false,
            agreed,
            snd_una: iss,
            snd_nxt: iss,
            snd_wnd: 0,
            snd_wl1: Seq(0),
            max_wnd: 0,
            rcv_nxt: Seq(0),
            rcv_acked: Seq(0),
            rcv_adv: Seq(0),
            rcv_buf_bytes: options
                .rcvbuf_bytes
                .unwrap_or(config.rcv_buf_initial_bytes)
                .min(config.rcv_buf_max_bytes),
            ts_recent: 0,
            ts_recent_ms: 0,
            ts_offset: numbers::timestamp_offset(&host.secrets, &key),
            window: Window { cwnd: 0, ssthresh: u32::MAX, mss: 0 },
            rtx_at: NEVER,
            delack_at: NEVER,
            tx: Ring::default(),
            tx_base: iss.add(1),
            records: Flight::default(),
            sacked_bytes: 0,
            lost_bytes: 0,
            retx_bytes: 0,
            rx: Ring::default(),
            ooo: None,
            last_recv: now,
            last_send: now,
            index: 0,
            generation: 0,
            token: 0,
            edges: Readiness::NONE,
            listener: None,
            held: false,
            orphan: false,
            detached: false,
            error: None,
            soft_error: None,
            iss,
            fin_queued: false,
            fin_sent: false,
            nospace: Cell::new(false),
            memory_told: false,
            small_end: iss,
            cork_until: NEVER,
            cork_release: false,
            cwnd_limited: false,
            pace_until: 0,
            pmtu,
            probe: crate::pmtu::Probing::default(),
            irs: Seq(0),
            peer_fin: None,
            fin_received: false,
            read_shut: false,
            rcv_mss: MSS_DEFAULT,
            quick_acks: 0,
            dsack: None,
            ack_tells: false,
            last_oow_ack_us: 0,
            drs_start: now,
            drs_copied: 0,
            drs_space: 0,
            rtt: Rtt::new(config.rto_initial_us),
            controller: Controller::new(algorithm),
            hystart: HyStart::default(),
            rack: Rack::default(),
            prr: Prr::default(),
            high_seq: iss,
            dupacks: 0,
            backoff: 0,
            retransmits: 0,
            probes: 0,
            force_retx: 0,
            tlp_pending: false,
            tlp_end: None,
            tlp_retrans: false,
            window_probe: false,
            keep_probe: false,
            frto: crate::recovery::Frto::Off,
            undo: None,
            retrans_stamp: None,
            stalled_since: 0,
            last_sacks: [(Seq(0), Seq(0)); 4],
            last_sacks_len: 0,
            ecn_echo: false,
            ecn_cwr_due: false,
            keep_at: NEVER,
            life_at: NEVER,
            options,
            stats: Stats::default(),
            traced: false,
        };
        conn.sync_mss(host);
        conn.window.cwnd = conn.initial_window(host);
        conn
    }

    /// Takes what follows from options that were set after `new`.
    pub(crate) fn inherit(&mut self, host: &Host) {
        let config = &host.config;
        self.rcv_buf_bytes =
            self.options.rcvbuf_bytes.unwrap_or(config.rcv_buf_initial_bytes).min(config.rcv_buf_max_bytes);
        let algorithm = self.options.congestion.unwrap_or(config.congestion);
        if self.controller.algorithm() != algorithm {
            self.controller = Controller::new(algorithm);
        }
        self.sync_mss(host);
        self.window.cwnd = self.initial_window(host);
    }

    /// An ICMP error about something in flight: before the handshake it ends
    /// the attempt, later it only says what a time-out will be called
    /// (RFC 1122, 4.2.3.9; RFC 5461).
    pub(crate) fn on_unreachable(&mut self, host: &mut Host, code: u8) {
        let v4 = self.key.family == 4;
        let (error, hard) = match (v4, code) {
            (true, 0 | 5 | 6 | 9 | 11) => (ConnError::NetUnreachable, false),
            (true, 2 | 3) => (ConnError::Refused, true),
            (true, _) => (ConnError::HostUnreachable, code == 10 || code == 13),
            (false, 0) => (ConnError::NetUnreachable, false),
            (false, 4) => (ConnError::Refused, true),
            (false, 1) => (ConnError::HostUnreachable, true),
            (false, _) => (ConnError::HostUnreachable, false),
        };
        if matches!(self.state, State::SynSent | State::SynReceived) && hard {
            self.fail(host, error);
        } else {
            self.soft_error = Some(error);
        }
    }

    pub(crate) fn id(&self) -> ConnId {
        ConnId { index: self.index, generation: self.generation }
    }

    /// Payload bytes of a full segment: the peer's bound and the path's, less
    /// the options that every segment carries (RFC 6691).
    pub(crate) fn sync_mss(&mut self, host: &Host) {
        let mut mss = self.agreed.peer_mss.min(mss_for_mtu(&self.key, self.pmtu));
        if self.options.mss_max_bytes > 0 {
            mss = mss.min(self.options.mss_max_bytes);
        }
        mss = mss.max(host.config.mss_min);
        if self.agreed.timestamps {
            mss -= 12;
        }
        self.window.mss = u32::from(mss);
    }

    /// Initial window in bytes (RFC 6928).
    pub(crate) fn initial_window(&self, host: &Host) -> u32 {
        let (mss, segments) = (self.window.mss, host.config.initial_window_segments);
        (segments * mss).min((2 * mss).max(segments * 1_460))
    }

    /// Our timestamp now.
    #[inline]
    pub(crate) fn timestamp(&self, now: Instant) -> u32 {
        Host::timestamp_clock(now).wrapping_add(self.ts_offset)
    }

    /// Sequence number just after the last byte written.
    #[inline]
    pub(crate) fn data_end(&self) -> Seq {
        self.tx_base.add(self.tx.len())
    }

    /// Bytes in flight that are neither acknowledged, SACKed nor lost.
    #[inline]
    pub(crate) fn pipe(&self) -> u32 {
        (self.snd_nxt.since(self.snd_una) + self.retx_bytes)
            .saturating_sub(self.sacked_bytes + self.lost_bytes)
    }

    /// Bytes that the send buffer may hold.
    pub(crate) fn snd_limit(&self, host: &Host) -> u32 {
        match self.options.sndbuf_bytes {
            Some(bytes) => bytes.clamp(4_096, host.config.snd_buf_max_bytes),
            None if host.pool.pressure() => host.config.snd_buf_initial_bytes,
            None => host
                .config
                .snd_buf_initial_bytes
                .max(self.window.cwnd.saturating_mul(2))
                .min(host.config.snd_buf_max_bytes),
        }
    }

    /// Whether the handshake is done and our direction is open.
    pub(crate) fn can_send(&self) -> bool {
        matches!(self.state, State::Established | State::CloseWait) && !self.fin_queued
    }

    /// Whether the peer may still send.
    pub(crate) fn can_receive(&self) -> bool {
        matches!(self.state, State::Established | State::FinWait1 | State::FinWait2)
    }

    /// Whether `transmit` might have something to write.
    #[inline]
    pub(crate) fn may_have_output(&self) -> bool {
        self.snd_nxt != self.data_end()
            || self.ack_due == AckDue::Now
            || self.lost_bytes != self.retx_bytes
            || self.fin_queued != self.fin_sent
            || self.tlp_pending
            || self.keep_probe
            || self.window_probe
            || !matches!(self.state, State::Established | State::CloseWait)
    }

    /// Reads a word of each line that the next segment will need.
    #[inline]
    pub(crate) fn touch(&self) -> u64 {
        u64::from(self.snd_una.0)
            ^ u64::from(self.tx.len())
            ^ u64::from(self.window.cwnd)
            ^ self.keep_at
            ^ u64::from(self.rtt.srtt_us)
            ^ u64::from(self.rack.fack.0)
            ^ self.token
            ^ self.stats.bytes_acked
            ^ self.stats.last_ack_recv_us
            ^ u64::from(self.probe.enabled)
            ^ u64::from(self.options.nodelay)
            ^ self.records.front().map_or(0, |r| r.sent_us)
            ^ self.tx.touch()
    }

    /// Puts it on the work list.
    #[inline]
    pub(crate) fn want_output(&mut self, host: &mut Host) {
        if !self.queued {
            self.queued = true;
            host.work.push_back(self.index);
        }
    }

    /// Says that something newly happened.
    #[inline]
    pub(crate) fn notify(&mut self, host: &mut Host, edges: Readiness) {
        if !self.held || self.orphan {
            return;
        }
        self.edges |= edges;
        if !self.event_queued {
            self.event_queued = true;
            host.conn_events.push_back((self.index, self.generation));
        }
    }

    /// The earliest deadline, or `NEVER`.
    #[inline]
    pub(crate) fn next_deadline(&self) -> u64 {
        let mut at = self.rtx_at.min(self.delack_at).min(self.keep_at).min(self.life_at).min(self.cork_until);
        if self.pace_until != 0 {
            at = at.min(self.pace_until);
        }
        at
    }

    /// Bytes the user could read now.
    pub(crate) fn readable(&self) -> u32 {
        self.rx.len()
    }

    /// What is ready, as `poll(2)` would say.
    pub(crate) fn readiness(&self, host: &Host) -> Readiness {
        let mut r = Readiness::NONE;
        if matches!(self.state, State::SynSent | State::SynReceived) {
            return r;
        }
        let closed = matches!(self.state, State::Closed | State::TimeWait);
        let rd_end = self.fin_received || self.read_shut || closed;
        let wr_end = self.fin_queued || closed;
        if !self.rx.is_empty() || rd_end {
            r |= Readiness::READABLE;
        }
        if rd_end {
            r |= Readiness::RDHUP;
        }
        if wr_end || self.has_write_space(host) {
            r |= Readiness::WRITABLE;
        } else {
            self.nospace.set(true);
        }
        if (rd_end && wr_end) || closed {
            r |= Readiness::HUP;
        }
        if self.error.is_some() {
            r |= Readiness::ERR | Readiness::READABLE | Readiness::WRITABLE;
        }
        r
    }

    /// Linux's rule for a writable stream: a third of the buffer is free.
    pub(crate) fn has_write_space(&self, host: &Host) -> bool {
        let limit = self.snd_limit(host);
        u64::from(self.tx.len()) * 3 <= u64::from(limit) * 2
            && (self.tx.capacity() > 0 || self.memory_told || !host.pool.tight())
    }

    /// Queues a RST for this connection.
    pub(crate) fn send_rst(&mut self, host: &mut Host, now: Instant) {
        let timestamps = self.agreed.timestamps.then(|| (self.timestamp(now), self.ts_recent));
        host.counters.rst_out += 1;
        let key = self.key;
        let (seq, ack) = (self.snd_nxt, self.rcv_nxt);
        host.reply(Reply::Bare(Bare {
            key,
            seq,
            ack,
            flags: RST | ACK,
            window: 0,
            timestamps,
            sacks: Sacks::default(),
        }));
    }

    /// Ends it with an error for the user.
    pub(crate) fn fail(&mut self, host: &mut Host, error: ConnError) {
        match self.state {
            State::SynSent | State::SynReceived => host.counters.attempt_fails += 1,
            State::Established | State::CloseWait => host.counters.estab_resets += 1,
            _ => {}
        }
        self.error = Some(error);
        // What had arrived in order can still be read, as in Linux.
        self.shut_down(host);
        self.notify(
            host,
            Readiness::READABLE | Readiness::WRITABLE | Readiness::RDHUP | Readiness::HUP | Readiness::ERR,
        );
    }

    /// Goes to CLOSED: no timer, nothing to send. Unread bytes stay readable.
    pub(crate) fn shut_down(&mut self, host: &mut Host) {
        self.state = State::Closed;
        self.release_send(host);
        if let Some(ooo) = self.ooo.take() {
            host.put_reassembly(ooo);
        }
        self.stop_timers();
    }

    pub(crate) fn stop_timers(&mut self) {
        self.rtx_timer = RtxTimer::None;
        self.rtx_at = NEVER;
        self.delack_at = NEVER;
        self.keep_at = NEVER;
        self.life_at = NEVER;
        self.cork_until = NEVER;
        self.pace_until = 0;
        self.ack_due = AckDue::No;
    }

    /// Gives the send queue's memory back.
    pub(crate) fn release_send(&mut self, host: &mut Host) {
        self.tx.clear(&mut host.pool);
        self.records.release(host);
        self.sacked_bytes = 0;
        self.lost_bytes = 0;
        self.retx_bytes = 0;
    }

    /// Gives all memory back before the connection is forgotten.
    pub(crate) fn release(&mut self, host: &mut Host) {
        self.release_send(host);
        self.rx.clear(&mut host.pool);
        if let Some(ooo) = self.ooo.take() {
            host.put_reassembly(ooo);
        }
    }

    /// The handshake is done.
    pub(crate) fn establish(&mut self, host: &mut Host, now: Instant) {
        self.state = State::Established;
        self.backoff = 0;
        self.retransmits = 0;
        self.drs_start = now;
        self.drs_space = self.rcv_buf_bytes / 4;
        self.probe.start(host, self.agreed.peer_mss, &self.key, self.pmtu);
        self.arm_keepalive(now);
        if self.fin_queued {
            self.state = State::FinWait1;
        }
    }

    /// Sets the keep-alive deadline from the options.
    pub(crate) fn arm_keepalive(&mut self, now: Instant) {
        let k = self.options.keepalive;
        self.keep_at = if k.enabled { now.0.saturating_add(k.idle_us) } else { NEVER };
    }
}

/// The slot of a connection, its share of every idle connection's memory.
const _: () = assert!(size_of::<Conn>() <= 1_144);
