//! What a connection sends, one segment a call: probes, retransmissions, new
//! data, acknowledgements, in this order (RFC 9293, section 3.8).

use crate::conn::{AckDue, Conn, NEVER, RtxTimer};
use crate::header::{ACK, CWR, ECE, FIN, HeaderOut, OptionWriter, PSH, SYN};
use crate::host::{Bare, Host, Reply, Sacks};
use crate::info::{CaState, State};
use crate::recovery::{EVER_RETX, Frto, LOST, MTU_PROBE, RETX, Record, SACKED, SYN_RECORD};
use crate::seq::Seq;
use crate::socket::{Ecn, Transmit};
use crate::time::Instant;
use ff_flowmap::FlowKey;

/// How long TCP_CORK holds a small segment back.
const CORK_US: u64 = 200_000;

/// What one segment carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    seq: Seq,
    /// Payload bytes.
    len: u32,
    flags: u8,
    ecn: Ecn,
    gso_size: Option<u16>,
}

/// What a connection has written into the caller's buffer. Small enough for a register: on its way up it would be
/// copied through memory, and each such copy waits until the stores before it, the segment's own into cold packet
/// memory among them, have reached the cache.
#[derive(Clone, Copy)]
pub(crate) struct Written {
    /// Bytes from the TCP header on.
    pub(crate) len: u32,
    /// Segment size if it is to be cut, else 0.
    gso_size: u16,
    ecn: Ecn,
}

impl Written {
    /// As the engine's caller gets it.
    pub(crate) fn of(self, key: FlowKey) -> Transmit {
        let gso_size = (self.gso_size > 0).then_some(self.gso_size);
        Transmit { key, len: self.len as usize, ecn: self.ecn, gso_size }
    }
}

impl Conn {
    /// Writes the next segment, or says that there is none now.
    pub(crate) fn transmit(&mut self, host: &mut Host, now: Instant, buf: &mut [u8]) -> Option<Written> {
        match self.state {
            State::Closed | State::TimeWait => return self.transmit_ack(host, now, buf),
            State::SynSent | State::SynReceived => return self.transmit_syn(host, now, buf),
            _ => {}
        }
        if (self.keep_probe || self.window_probe)
            && let Some(t) = self.transmit_probe(host, now, buf)
        {
            return Some(t);
        }
        if self.lost_bytes > self.retx_bytes
            && let Some(t) = self.transmit_lost(host, now, buf)
        {
            return Some(t);
        }
        if self.tlp_pending {
            self.tlp_pending = false;
            if let Some(t) = self.transmit_tlp(host, now, buf) {
                return Some(t);
            }
        }
        if (self.snd_nxt != self.data_end() || self.fin_queued && !self.fin_sent)
            && let Some(t) = self.transmit_new(host, now, buf, false)
        {
            return Some(t);
        }
        self.transmit_ack(host, now, buf)
    }

    fn transmit_ack(&mut self, host: &mut Host, now: Instant, buf: &mut [u8]) -> Option<Written> {
        if self.ack_due != AckDue::Now {
            return None;
        }
        let seq = self.snd_nxt;
        self.emit(host, now, buf, Plan { seq, len: 0, flags: ACK, ecn: Ecn::NotEct, gso_size: None })
    }

    /// SYN or SYN-ACK of an active or simultaneous open.
    fn transmit_syn(&mut self, host: &mut Host, now: Instant, buf: &mut [u8]) -> Option<Written> {
        let first = self.records.is_empty() && self.snd_nxt == self.iss;
        let again = self.lost_bytes > self.retx_bytes;
        if !first && !again {
            return None;
        }
        let with_ack = self.state == State::SynReceived;
        // A repeated SYN asks for less: some middleboxes drop ECN (RFC 3168, 6.1.1.1).
        let ecn = self.agreed.ecn && self.retransmits == 0;
        let mut options = OptionWriter::new();
        let mut own_mss = crate::conn::mss_for_mtu(&self.key, host.config.mtu);
        if self.options.mss_max_bytes > 0 {
            own_mss = own_mss.min(self.options.mss_max_bytes);
        }
        options.mss(own_mss);
        let ts =
            self.agreed.timestamps.then(|| (self.timestamp(now), if with_ack { self.ts_recent } else { 0 }));
        write_syn_options(&mut options, self.agreed.sack, ts, self.agreed.wscale.map(|w| w.1));
        let flags = match (with_ack, ecn) {
            (false, true) => SYN | ECE | CWR,
            (false, false) => SYN,
            (true, true) => SYN | ACK | ECE,
            (true, false) => SYN | ACK,
        };
        let header = HeaderOut {
            src_port: self.key.local_port,
            dst_port: self.key.remote_port,
            seq: self.iss,
            ack: if with_ack { self.rcv_nxt } else { Seq(0) },
            flags,
            window: self.rcv_buf_bytes.min(65_535) as u16,
        };
        let len = header.emit(options.finish(), buf)?;
        if first {
            self.records.push_back(host, Record { sent_us: now.0, seq: self.iss, len: 1, flags: SYN_RECORD });
            self.snd_nxt = self.iss.add(1);
            self.high_seq = self.snd_nxt;
        } else if let Some(r) = self.records.front_mut() {
            r.sent_us = now.0;
            r.flags |= RETX | EVER_RETX;
            self.retx_bytes = r.len;
            host.counters.retrans_segs += 1;
            self.stats.retrans_segs += 1;
        }
        self.stats.segs_out += 1;
        self.last_send = now;
        if self.rtx_timer != RtxTimer::Rto {
            self.arm_rto(host, now);
        }
        Some(Written { len: len as u32, ecn: Ecn::NotEct, gso_size: 0 })
    }

    /// A segment that the peer must answer: keep-alive, or a closed window
    /// (RFC 9293, 3.8.4 and 3.8.6.1). It repeats the last acknowledged number.
    fn transmit_probe(&mut self, host: &mut Host, now: Instant, buf: &mut [u8]) -> Option<Written> {
        let window_probe = std::mem::take(&mut self.window_probe);
        self.keep_probe = false;
        let unsent = self.data_end().since(self.snd_nxt);
        let usable = self.snd_una.add(self.snd_wnd).since(self.snd_nxt);
        if window_probe && self.records.is_empty() && unsent > 0 && usable > 0 {
            // A window too small for a whole segment is used after the wait.
            let len = unsent.min(usable).min(self.payload_max());
            return self.transmit_data(host, now, buf, len, false);
        }
        let seq = self.snd_una.sub(1);
        self.emit(host, now, buf, Plan { seq, len: 0, flags: ACK, ecn: Ecn::NotEct, gso_size: None })
    }

    /// The next segment taken as lost, if the window lets it out.
    fn transmit_lost(&mut self, host: &mut Host, now: Instant, buf: &mut [u8]) -> Option<Written> {
        if let Frto::NewData1 | Frto::NewData2 = self.frto {
            // RFC 5682, step 2b: new data first, to learn whether the time-out was real.
            if let Some(t) = self.transmit_new(host, now, buf, true) {
                self.frto = if self.frto == Frto::NewData2 { Frto::NewData1 } else { Frto::Waiting };
                return Some(t);
            }
            self.frto = Frto::Off;
        } else if self.frto == Frto::Waiting {
            return None;
        }
        if self.force_retx == 0 && self.pipe() + self.window.mss.min(self.lost_bytes) > self.window.cwnd {
            self.cwnd_limited = true;
            return None;
        }
        // A peer that took its window back gets what fits, and the head in any case.
        let i = self.records.iter().position(|r| r.flags & (LOST | RETX | SACKED) == LOST)?;
        let r = self.records[i];
        let edge = self.snd_una.add(self.snd_wnd);
        if i > 0 && r.end().gt(edge) {
            return None;
        }
        if r.is(MTU_PROBE) {
            self.fail_mtu_probe();
            self.records[i].flags &= !MTU_PROBE;
        }
        self.retransmit_record(host, now, buf, i)
    }

    /// Sends record `i` again.
    fn retransmit_record(
        &mut self,
        host: &mut Host,
        now: Instant,
        buf: &mut [u8],
        i: usize,
    ) -> Option<Written> {
        let r = self.records[i];
        let room = self.payload_max();
        if r.end().min(self.data_end()).since(r.seq) > room {
            self.split_record(i, r.seq.add(room));
        }
        let r = self.records[i];
        let payload = r.end().min(self.data_end()).since(r.seq);
        let mut flags = ACK;
        if r.end().gt(self.data_end()) {
            flags |= FIN;
        }
        if r.end().ge(self.data_end()) && payload > 0 {
            flags |= PSH;
        }
        // RFC 3168, 6.1.5: retransmissions are not marked.
        let plan = Plan { seq: r.seq, len: payload, flags, ecn: Ecn::NotEct, gso_size: None };
        let t = self.emit(host, now, buf, plan)?;
        let record = &mut self.records[i];
        if record.is(LOST) && !record.is(RETX) {
            record.flags |= RETX;
            self.retx_bytes += r.len;
        }
        record.flags |= EVER_RETX;
        record.sent_us = now.0;
        self.force_retx = self.force_retx.saturating_sub(1);
        self.prr.out_bytes = self.prr.out_bytes.saturating_add(r.len);
        let stamp = self.timestamp(now);
        if let Some(undo) = &mut self.undo {
            undo.open_retx += 1;
            undo.any_retx = true;
            if self.agreed.timestamps && self.retrans_stamp.is_none() {
                self.retrans_stamp = Some(stamp);
            }
        }
        host.counters.retrans_segs += 1;
        self.stats.retrans_segs += 1;
        self.stats.bytes_retrans += u64::from(payload);
        if !matches!(self.rtx_timer, RtxTimer::Rto) {
            self.arm_rto(host, now);
        }
        Some(t)
    }

    /// RFC 8985, 7.3: new data if there is any, else the last segment again.
    fn transmit_tlp(&mut self, host: &mut Host, now: Instant, buf: &mut [u8]) -> Option<Written> {
        let sent = match self.transmit_new(host, now, buf, true) {
            Some(t) => {
                self.tlp_retrans = false;
                Some(t)
            }
            None => {
                let last = self.records.len().checked_sub(1)?;
                if self.records[last].is(SACKED) {
                    return None;
                }
                self.tlp_retrans = true;
                let room = self.payload_max();
                if self.records[last].len > room {
                    let cut = self.records[last].end().sub(room);
                    self.split_record(last, cut);
                }
                let last = self.records.len() - 1;
                self.retransmit_record(host, now, buf, last)
            }
        };
        if sent.is_some() {
            self.tlp_end = Some(self.snd_nxt);
            self.arm_rto(host, now);
        }
        sent
    }

    /// New data, if windows and Nagle's rule let it out. `force` leaves the
    /// congestion window aside.
    fn transmit_new(
        &mut self,
        host: &mut Host,
        now: Instant,
        buf: &mut [u8],
        force: bool,
    ) -> Option<Written> {
        let unsent = self.data_end().since(self.snd_nxt);
        let fin = self.fin_queued && !self.fin_sent;
        if unsent == 0 && !fin {
            return None;
        }
        if self.pace_until > now.0 && !force {
            return None;
        }
        let mss = self.payload_max();
        if self.records.is_empty() && host.config.idle_restart {
            self.restart_after_idle(host, now);
        }
        let usable = self.snd_una.add(self.snd_wnd).since(self.snd_nxt);
        if usable == 0 {
            self.wait_for_window(host, now);
            return None;
        }
        if unsent == 0 {
            return self.transmit_data(host, now, buf, 0, true);
        }
        let pipe = self.pipe();
        if !force && pipe > 0 && pipe + mss.min(unsent) > self.window.cwnd {
            self.cwnd_limited = true;
            return None;
        }
        if !force && let Some(len) = self.mtu_probe_payload(host, now, unsent, usable) {
            let seq = self.snd_nxt;
            let t = self.transmit_data(host, now, buf, len, false)?;
            self.mtu_probe_sent(host, len, seq);
            if let Some(r) = self.records.back_mut() {
                r.flags |= MTU_PROBE;
            }
            return Some(t);
        }
        let mut len = unsent.min(usable).min(mss);
        if len < mss {
            let all = len == unsent;
            // Silly window avoidance (RFC 1122, 4.2.3.4).
            if !all && len < self.max_wnd / 2 {
                self.wait_for_window(host, now);
                return None;
            }
            if all && !fin && !force && !self.small_may_go(now) {
                return None;
            }
        } else if host.config.tso_max_bytes > mss && !force && unsent > mss && mss == self.window.mss {
            let room = self.window.cwnd.saturating_sub(pipe).max(mss);
            let many = unsent.min(usable).min(room).min(host.config.tso_max_bytes).min(60_000);
            let fits = (buf.len() as u32).saturating_sub(60);
            len = (many.min(fits) / mss).max(1) * mss;
        }
        let last = len == unsent;
        if last && !fin {
            self.cwnd_limited = false;
        }
        self.transmit_data(host, now, buf, len, last && fin)
    }

    /// Whether a segment that is not full may go out (RFC 1122, 4.2.3.4, with
    /// Minshall's change: only a small segment in flight holds it back).
    fn small_may_go(&mut self, now: Instant) -> bool {
        if self.options.cork {
            if std::mem::take(&mut self.cork_release) {
                return true;
            }
            if self.cork_until == NEVER {
                self.cork_until = now.0 + CORK_US;
            }
            return false;
        }
        self.cork_until = NEVER;
        self.options.nodelay || self.small_end.le(self.snd_una)
    }

    /// Nothing may leave: a probe will ask, if no ACK can be expected.
    fn wait_for_window(&mut self, host: &Host, now: Instant) {
        if self.records.is_empty() && self.rtx_timer == RtxTimer::None {
            self.arm_persist(host, now);
        }
    }

    /// RFC 5681, 4.1: after an idle time-out the window is the initial one.
    fn restart_after_idle(&mut self, host: &Host, now: Instant) {
        let idle = now.0.saturating_sub(self.stats.last_data_sent_us);
        let rto = u64::from(self.rtt.rto_us);
        if self.stats.last_data_sent_us == 0 || idle <= rto || self.ca_state != CaState::Open {
            return;
        }
        let restart = self.initial_window(host).min(self.window.cwnd);
        let mut cwnd = self.window.cwnd;
        let mut left = idle;
        // Halved once per time-out (RFC 2861), which is gentler and ends there.
        self.window.ssthresh = self.window.ssthresh.max(cwnd / 4 * 3);
        while left > rto && cwnd > restart {
            cwnd /= 2;
            left -= rto;
        }
        self.window.cwnd = cwnd.max(restart);
        use crate::congestion::Control;
        self.controller.on_restart();
    }

    /// Sends `len` new bytes, and FIN behind them if `fin`.
    fn transmit_data(
        &mut self,
        host: &mut Host,
        now: Instant,
        buf: &mut [u8],
        len: u32,
        fin: bool,
    ) -> Option<Written> {
        let mss = self.window.mss;
        let seq = self.snd_nxt;
        let mut flags = ACK;
        if seq.add(len) == self.data_end() && len > 0 {
            flags |= PSH;
        }
        if fin {
            flags |= FIN;
        }
        let mut ecn = Host::data_ecn(self.agreed.ecn && len > 0);
        if self.agreed.ecn && self.ecn_cwr_due && len > 0 {
            flags |= CWR;
            self.ecn_cwr_due = false;
        }
        if fin && len == 0 {
            ecn = Ecn::NotEct;
        }
        let gso_size = (len > mss && len.is_multiple_of(mss)).then_some(mss as u16);
        let t = self.emit(host, now, buf, Plan { seq, len, flags, ecn, gso_size })?;
        let sent = len;
        let idle = self.records.is_empty();
        let mut at = seq;
        let mut left = sent;
        loop {
            let n = if gso_size.is_some() { left.min(mss) } else { left };
            left -= n;
            let with_fin = u32::from(fin && left == 0);
            let record = Record { sent_us: now.0, seq: at, len: n + with_fin, flags: 0 };
            self.records.push_back(host, record);
            at = at.add(n + with_fin);
            if left == 0 {
                break;
            }
        }
        self.snd_nxt = at;
        if sent > 0 && sent < mss {
            self.small_end = self.snd_nxt;
        }
        if sent > 0 {
            self.stats.last_data_sent_us = now.0.max(1);
            self.stats.bytes_sent += u64::from(sent);
        }
        if fin {
            self.fin_sent = true;
        }
        if matches!(self.ca_state, CaState::Recovery | CaState::Cwr) {
            self.prr.out_bytes = self.prr.out_bytes.saturating_add(sent);
        }
        if idle || matches!(self.rtx_timer, RtxTimer::None | RtxTimer::Persist) {
            self.backoff = 0;
            self.arm_tlp_or_rto(host, now);
        } else if self.rtx_timer == RtxTimer::Tlp {
            // The probe waits from the last segment sent, the time-out does not move.
            self.arm_tlp_or_rto(host, now);
        } else if self.rtx_timer == RtxTimer::Rto {
            // Of a single segment in flight the peer may delay the ACK, and its probe would be later than the time-out.
            // With this one there are more.
            self.arm_tlp_if_earlier(host, now);
        }
        if host.config.pacing && self.rtt.srtt_us > 0 {
            // 2 in slow start, 1.2 after it, as RFC 9406 and common practice have it.
            let gain = if self.window.in_slow_start() { 200 } else { 120 };
            let rate = u64::from(self.window.cwnd) * gain / 100;
            self.pace_until = now.0 + u64::from(sent) * u64::from(self.rtt.srtt_us) / rate.max(1);
        }
        Some(t)
    }

    /// SACK blocks that the next segment carries, and their bytes in the options.
    fn sack_option_bytes(&self) -> u32 {
        if !self.agreed.sack {
            return 0;
        }
        let room = if self.agreed.timestamps { 3 } else { 4 };
        let held = self.ooo.as_ref().map_or(0, |o| o.sacks().len()) + usize::from(self.dsack.is_some());
        if held == 0 { 0 } else { 4 + 8 * held.min(room) as u32 }
    }

    /// Payload bytes of a full segment now: options beyond the usual ones come
    /// out of it (RFC 6691).
    fn payload_max(&self) -> u32 {
        self.window.mss.saturating_sub(self.sack_option_bytes()).max(8)
    }

    /// Writes header, options and payload, and settles what is acknowledged.
    fn emit(&mut self, host: &mut Host, now: Instant, buf: &mut [u8], plan: Plan) -> Option<Written> {
        let mut options = OptionWriter::new();
        if self.agreed.timestamps {
            options.timestamps(self.timestamp(now), self.ts_recent);
        }
        options.sacks(self.take_sacks(host).as_slice());
        let options = options.finish();
        let window = self.select_window(host);
        let mut flags = plan.flags;
        if self.ecn_echo && self.agreed.ecn {
            flags |= ECE;
        }
        let len = plan.len;
        let header = HeaderOut {
            src_port: self.key.local_port,
            dst_port: self.key.remote_port,
            seq: plan.seq,
            ack: self.rcv_nxt,
            flags,
            window,
        };
        let header_len = header.emit(options, buf)?;
        let total = header_len + len as usize;
        let out = buf.get_mut(header_len..total)?;
        if len > 0 {
            let copied = self.tx.copy_out(plan.seq.since(self.tx_base), out);
            debug_assert_eq!(copied, len as usize);
        }
        self.acknowledged(now);
        Some(Written { len: total as u32, ecn: plan.ecn, gso_size: plan.gso_size.unwrap_or(0) })
    }

    /// All that has arrived is acknowledged by what is being sent.
    fn acknowledged(&mut self, now: Instant) {
        self.ack_due = AckDue::No;
        self.ack_tells = false;
        self.delack_at = NEVER;
        self.rcv_acked = self.rcv_nxt;
        self.stats.segs_out += 1;
        self.last_send = now;
    }

    fn take_sacks(&mut self, host: &mut Host) -> Sacks {
        let mut sacks = Sacks::default();
        if !self.agreed.sack {
            return sacks;
        }
        if let Some(d) = self.dsack.take() {
            sacks.push(d);
            host.counters.dsack_out += 1;
        }
        if let Some(ooo) = &self.ooo {
            for &block in ooo.sacks() {
                sacks.push(block);
            }
        }
        sacks
    }

    /// Puts the acknowledgement that is due on the way as it is now. Several
    /// segments may arrive before the next is sent; each that is out of order
    /// has an ACK of its own (RFC 5681, 4.2), or the peer would count too few
    /// and see too few blocks.
    pub(crate) fn snapshot_ack(&mut self, host: &mut Host, now: Instant) {
        let timestamps = self.agreed.timestamps.then(|| (self.timestamp(now), self.ts_recent));
        let sacks = self.take_sacks(host);
        let window = self.select_window(host);
        let flags = if self.ecn_echo && self.agreed.ecn { ACK | ECE } else { ACK };
        let (key, seq, ack) = (self.key, self.snd_nxt, self.rcv_nxt);
        host.reply(Reply::Bare(Bare { key, seq, ack, flags, window, timestamps, sacks }));
        self.acknowledged(now);
    }

    // The receive window.

    /// The first window: what the SYN said, not scaled.
    pub(crate) fn open_window(&mut self) {
        self.rcv_adv = self.rcv_nxt.add(self.rcv_buf_bytes.min(65_535));
    }

    /// Right edge that the buffer would allow now.
    pub(crate) fn window_edge(&self, host: &Host) -> Seq {
        let mut space = self.rcv_buf_bytes.saturating_sub(self.rx.len());
        if host.pool.tight() {
            space = space.min(u32::from(self.rcv_mss) * 2);
        }
        self.rcv_nxt.add(space)
    }

    /// The window field, and with it the right edge that the peer now knows.
    /// It never moves left, and moves right only in useful steps (RFC 9293, 3.8.6.2.2).
    fn select_window(&mut self, host: &Host) -> u16 {
        if self.fin_received || matches!(self.state, State::Closed | State::TimeWait) {
            let shift = self.agreed.wscale.map_or(0, |w| w.1);
            return (self.rcv_buf_bytes.min(65_535 << shift) >> shift) as u16;
        }
        let target = self.window_edge(host);
        let step = (self.rcv_buf_bytes / 2).min(u32::from(self.rcv_mss));
        let edge = if target.since(self.rcv_adv) >= step { target } else { self.rcv_adv };
        let edge = edge.max(self.rcv_adv);
        let window = edge.since(self.rcv_nxt);
        match self.agreed.wscale {
            Some((_, shift)) => {
                // Rounded up, so that the edge never moves left by rounding.
                let field = window.div_ceil(1 << shift).min(65_535);
                let seen = self.rcv_nxt.add(field << shift);
                self.rcv_adv = self.rcv_adv.max(seen);
                field as u16
            }
            None => {
                let field = window.min(65_535);
                self.rcv_adv = self.rcv_adv.max(self.rcv_nxt.add(field));
                field as u16
            }
        }
    }
}

/// The options of a SYN or SYN-ACK after the MSS, in the usual order.
pub(crate) fn write_syn_options(
    options: &mut OptionWriter,
    sack: bool,
    timestamps: Option<(u32, u32)>,
    wscale: Option<u8>,
) {
    match (sack, timestamps) {
        (true, Some((val, ecr))) => {
            options.sack_permitted();
            options.timestamps_bare(val, ecr);
        }
        (false, Some((val, ecr))) => options.timestamps(val, ecr),
        (true, None) => {
            options.sack_permitted();
            // Two NOPs keep the window scale aligned.
            options.nops(2);
        }
        (false, None) => {}
    }
    if let Some(shift) = wscale {
        options.wscale(shift);
    }
}
