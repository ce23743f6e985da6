//! What a segment does to a connection (RFC 9293, section 3.10.7).

use crate::conn::{AckDue, Conn, NEVER};
use crate::error::ConnError;
use crate::header::{ACK, CWR, ECE, FIN, RST, SYN, Segment, URG};
use crate::host::{Bare, Host, Reply, Sacks};
use crate::info::{CaState, State};
use crate::reassembly::Inserted;
use crate::recovery::AckEvents;
use crate::seq::Seq;
use crate::socket::{Ecn, Readiness};
use crate::time::Instant;

/// Between two answers to segments outside of the window, per connection.
const OOW_ACK_INTERVAL_US: u64 = 500_000;
/// A timestamp older than this says nothing (RFC 7323, 5.5).
const PAWS_IDLE_MS: u32 = 24 * 24 * 3_600 * 1_000;
/// Acknowledgements that go out at once after a hole, for the peer's recovery.
const QUICK_ACKS: u8 = 16;

impl Conn {
    /// Takes a segment of this connection.
    pub(crate) fn on_segment(&mut self, host: &mut Host, now: Instant, ecn: Ecn, seg: &Segment<'_>) {
        self.stats.segs_in += 1;
        match self.state {
            State::SynSent => return self.in_syn_sent(host, now, seg),
            State::Closed | State::TimeWait => return,
            _ => {}
        }
        if !self.timestamps_fine(host, now, seg) || !self.in_window(host, now, seg) {
            return;
        }
        if seg.has(RST) {
            return self.in_rst(host, now, seg);
        }
        if seg.has(SYN) {
            // RFC 5961, section 4: never ends anything.
            host.counters.syn_in_conn += 1;
            return self.challenge(host, now);
        }
        if !seg.has(ACK) {
            host.counters.drop_bad_flags += 1;
            return;
        }
        self.last_recv = now;
        self.take_timestamp(now, seg);
        if self.agreed.ecn {
            self.take_ecn(host, now, ecn, seg);
        }
        if !self.in_ack(host, now, seg) {
            return;
        }
        if seg.has(URG) {
            // Urgent data is ordinary data here, as RFC 6093 advises.
            host.counters.urgent_in += 1;
        }
        if !seg.payload.is_empty() || seg.has(FIN) {
            self.in_data(host, now, seg);
        }
        if self.ack_due == AckDue::Now {
            self.want_output(host);
        }
    }

    // Checks.

    /// PAWS (RFC 7323, section 5).
    fn timestamps_fine(&mut self, host: &mut Host, now: Instant, seg: &Segment<'_>) -> bool {
        if !self.agreed.timestamps || seg.has(RST) {
            return true;
        }
        let Some((val, _)) = seg.options.timestamp else { return true };
        if (val.wrapping_sub(self.ts_recent) as i32) >= 0 {
            return true;
        }
        let idle_ms = Host::timestamp_clock(now).wrapping_sub(self.ts_recent_ms);
        if idle_ms > PAWS_IDLE_MS {
            return true;
        }
        // A bare ACK that was overtaken is late, not old.
        if seg.payload.is_empty() && !seg.has(SYN | FIN) && seg.seq == self.rcv_nxt && seg.has(ACK) {
            let late = self.ts_recent.wrapping_sub(val);
            if u64::from(late) * 1_000 <= self.rtt.rto_backed_off_us(0, u64::MAX) {
                return true;
            }
        }
        host.counters.drop_paws += 1;
        self.answer_out_of_window(host, now, seg);
        false
    }

    /// RFC 9293's first check, against what was last acknowledged: a segment
    /// that repeats what an ACK in flight covers is no reason for another.
    fn in_window(&mut self, host: &mut Host, now: Instant, seg: &Segment<'_>) -> bool {
        let end = seg.seq.add(seg.len());
        let edge = self.rcv_adv.max(self.rcv_nxt);
        if end.ge(self.rcv_acked) && seg.seq.le(edge) {
            return true;
        }
        host.counters.drop_out_of_window += 1;
        if !seg.has(RST) {
            self.answer_out_of_window(host, now, seg);
        }
        false
    }

    /// A segment outside the window is answered with an ACK, and one without
    /// data only twice a second: two confused ends must not echo for ever.
    fn answer_out_of_window(&mut self, host: &mut Host, now: Instant, seg: &Segment<'_>) {
        if seg.has(SYN) {
            host.counters.syn_in_conn += 1;
            return self.challenge(host, now);
        }
        if seg.payload.is_empty() && !seg.has(FIN) {
            if self.last_oow_ack_us != 0 && now.0 < self.last_oow_ack_us + OOW_ACK_INTERVAL_US {
                return;
            }
            self.last_oow_ack_us = now.0.max(1);
        } else {
            let end = seg.seq.add(seg.len());
            if seg.seq.lt(self.rcv_nxt) && self.agreed.sack {
                host.counters.dup_in += 1;
                if self.ack_tells && self.ack_due == AckDue::Now {
                    self.snapshot_ack(host, now);
                }
                self.ack_tells = true;
                self.dsack = Some((seg.seq, end.min(self.rcv_nxt)));
            }
            self.quick_acks = QUICK_ACKS;
        }
        self.ack_due = AckDue::Now;
        self.want_output(host);
    }

    /// A challenge ACK (RFC 5961), limited per connection and per host.
    fn challenge(&mut self, host: &mut Host, now: Instant) {
        if self.last_oow_ack_us != 0 && now.0 < self.last_oow_ack_us + OOW_ACK_INTERVAL_US {
            host.counters.challenge_acks_limited += 1;
            return;
        }
        if host.challenge_allowed(now) {
            self.last_oow_ack_us = now.0.max(1);
            self.ack_due = AckDue::Now;
            self.want_output(host);
        }
    }

    /// RFC 5961, section 3: only the exact next sequence number resets. Where
    /// data is held beyond a hole, its end counts as exact too: a peer that
    /// has sent it resets from there.
    fn in_rst(&mut self, host: &mut Host, now: Instant, seg: &Segment<'_>) {
        let beyond = self.ooo.as_ref().and_then(|o| o.end());
        if seg.seq != self.rcv_nxt && beyond != Some(seg.seq) {
            host.counters.rst_ignored += 1;
            return self.challenge(host, now);
        }
        host.counters.rst_in += 1;
        let error = match self.state {
            State::SynReceived => ConnError::Refused,
            State::CloseWait => ConnError::BrokenPipe,
            _ => ConnError::Reset,
        };
        self.fail(host, error);
    }

    fn take_timestamp(&mut self, now: Instant, seg: &Segment<'_>) {
        if let Some((val, _)) = seg.options.timestamp
            && self.agreed.timestamps
            && seg.seq.le(self.rcv_acked)
            && (val.wrapping_sub(self.ts_recent) as i32) >= 0
        {
            self.ts_recent = val;
            self.ts_recent_ms = Host::timestamp_clock(now);
        }
    }

    fn take_ecn(&mut self, host: &mut Host, now: Instant, ecn: Ecn, seg: &Segment<'_>) {
        if seg.has(CWR) {
            self.ecn_echo = false;
        }
        if ecn == Ecn::Ce && !seg.payload.is_empty() {
            host.counters.ecn_ce_in += 1;
            self.ecn_echo = true;
            self.quick_acks = self.quick_acks.max(2);
        }
        if seg.has(ECE) && matches!(self.ca_state, CaState::Open | CaState::Disorder) {
            host.counters.ecn_cwr += 1;
            self.enter_cwr(now);
            self.ecn_cwr_due = true;
        }
    }

    // Acknowledgements.

    /// Returns whether the rest of the segment is to be looked at.
    fn in_ack(&mut self, host: &mut Host, now: Instant, seg: &Segment<'_>) -> bool {
        let ack = seg.ack;
        if self.state == State::SynReceived {
            if ack.le(self.iss) || ack.gt(self.snd_nxt) {
                host.counters.drop_bad_ack += 1;
                let key = self.key;
                host.counters.rst_out += 1;
                host.reply(Reply::Bare(Bare {
                    key,
                    seq: ack,
                    ack: Seq(0),
                    flags: RST,
                    window: 0,
                    timestamps: None,
                    sacks: Sacks::default(),
                }));
                return false;
            }
            self.snd_wl1 = seg.seq;
            self.establish(host, now);
            self.notify(host, Readiness::WRITABLE);
        }
        if ack.gt(self.snd_nxt) {
            host.counters.drop_bad_ack += 1;
            self.challenge(host, now);
            return false;
        }
        if ack.lt(self.snd_una) {
            // RFC 5961, section 5: too old is an attack, merely old is late. The
            // data that came along is good either way if the first test holds.
            if self.snd_una.since(ack) > self.max_wnd.max(65_535) {
                host.counters.drop_bad_ack += 1;
                self.challenge(host, now);
                return false;
            }
            if self.agreed.sack && seg.options.sacks_len > 0 {
                self.ack_board(host, now, seg, self.snd_una, false);
            }
            return true;
        }
        self.stats.last_ack_recv_us = now.0;
        let window = self.take_window(seg);
        let quiet = seg.payload.is_empty() && !seg.has(FIN);
        let duplicate = ack == self.snd_una && quiet && !window && self.snd_nxt != self.snd_una;
        if ack == self.snd_una && seg.options.sacks_len == 0 && !duplicate && self.tlp_end.is_none() {
            // Nothing new about what is in flight.
            self.probes = 0;
            if window {
                self.on_window_opened(host);
            }
            return true;
        }
        self.probes = 0;
        self.ack_board(host, now, seg, ack, duplicate);
        if window || self.snd_una == ack {
            self.on_window_opened(host);
        }
        self.on_fin_acked(host, now);
        true
    }

    /// Enters an ACK into the scoreboard and runs what follows from it.
    fn ack_board(&mut self, host: &mut Host, now: Instant, seg: &Segment<'_>, ack: Seq, duplicate: bool) {
        let prior_pipe = self.pipe();
        let prior_una = self.snd_una;
        let mut events = AckEvents { duplicate, ..AckEvents::default() };
        if self.agreed.timestamps {
            events.echo = seg.options.timestamp.map(|t| t.1);
        }
        if self.agreed.sack && seg.options.sacks_len > 0 {
            self.apply_sacks(host, now, ack, seg, &mut events);
        }
        if ack.gt(prior_una) {
            self.clean_acked(host, now, ack, &mut events);
            self.snd_una = ack;
            self.rack.fack = self.rack.fack.max(ack);
            self.backoff = 0;
            self.retransmits = 0;
            self.stalled_since = 0;
            self.soft_error = None;
            let bytes = ack.min(self.data_end()).since(self.tx_base);
            if bytes > 0 {
                self.stats.bytes_acked += u64::from(bytes);
                self.tx.consume(&mut host.pool, bytes, true);
                self.tx_base = self.tx_base.add(bytes);
            }
        } else {
            events.acked_bytes = 0;
        }
        self.sample_rtt(host, now, &mut events);
        self.after_ack(host, now, prior_pipe, &events);
        if events.acked_bytes > 0 || events.new_sack || events.duplicate {
            if !self.tx.is_empty() || self.snd_nxt != self.snd_una || self.fin_queued {
                self.want_output(host);
            }
            if self.nospace.get() && self.has_write_space(host) {
                self.nospace.set(false);
                self.notify(host, Readiness::WRITABLE);
            }
        }
    }

    fn sample_rtt(&mut self, host: &Host, now: Instant, events: &mut AckEvents) {
        if events.retx_acked {
            // Karn: only timestamps tell which of the copies is answered.
            events.rtt_us = None;
            if events.acked_bytes > 0
                && let Some(echo) = events.echo.filter(|e| *e != 0)
            {
                let age_ms = self.timestamp(now).wrapping_sub(echo);
                if age_ms < 1 << 30 {
                    events.rtt_us = Some((u64::from(age_ms) * 1_000).max(1));
                }
            }
        }
        if let Some(rtt) = events.rtt_us {
            let in_flight = self.window.cwnd.min(self.snd_nxt.since(self.snd_una) + events.acked_bytes);
            let segments = in_flight / self.window.mss.max(1);
            self.rtt.sample(now, rtt, segments / 2, host.config.rto_min_us, host.config.rto_max_us);
        }
    }

    /// RFC 9293's rule, and one more: at equal numbers only a larger window or
    /// a closed one is news.
    fn take_window(&mut self, seg: &Segment<'_>) -> bool {
        let shift = if seg.has(SYN) { 0 } else { self.agreed.wscale.map_or(0, |w| w.0) };
        let window = u32::from(seg.window) << shift;
        let newer = seg.ack.gt(self.snd_una)
            || seg.seq.gt(self.snd_wl1)
            || seg.seq == self.snd_wl1 && (window > self.snd_wnd || window == 0);
        if !newer {
            return false;
        }
        self.snd_wl1 = seg.seq;
        if window == self.snd_wnd {
            return false;
        }
        self.snd_wnd = window;
        self.max_wnd = self.max_wnd.max(window);
        true
    }

    fn on_window_opened(&mut self, host: &mut Host) {
        if self.rtx_timer == crate::conn::RtxTimer::Persist {
            self.backoff = 0;
            self.rtx_timer = crate::conn::RtxTimer::None;
            self.rtx_at = NEVER;
        }
        if self.records.is_empty() && self.snd_nxt == self.data_end() && !self.fin_queued {
            return;
        }
        self.want_output(host);
    }

    fn on_fin_acked(&mut self, host: &mut Host, now: Instant) {
        if !self.fin_sent || self.snd_una != self.data_end().add(1) {
            return;
        }
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                self.notify(host, Readiness::WRITABLE);
                if self.orphan {
                    self.arm_fin_wait2(host, now);
                }
            }
            State::Closing => self.enter_time_wait(host),
            State::LastAck => {
                self.shut_down(host);
                self.notify(host, Readiness::HUP);
            }
            _ => {}
        }
    }

    /// Time in FIN-WAIT-2 is limited once the user has closed.
    pub(crate) fn arm_fin_wait2(&mut self, host: &Host, now: Instant) {
        let us =
            if self.options.fin_wait2_us > 0 { self.options.fin_wait2_us } else { host.config.fin_wait2_us };
        self.life_at = now.0.saturating_add(us);
    }

    fn enter_time_wait(&mut self, host: &mut Host) {
        self.state = State::TimeWait;
        let due = self.ack_due;
        self.release_send(host);
        self.stop_timers();
        self.ack_due = due;
        self.notify(host, Readiness::READABLE | Readiness::RDHUP | Readiness::HUP);
    }

    // Data.

    fn in_data(&mut self, host: &mut Host, now: Instant, seg: &Segment<'_>) {
        let fin_seq = seg.seq.add(seg.payload.len() as u32);
        if !self.can_receive() {
            // The peer sends beyond its own FIN, or repeats what is acknowledged.
            host.counters.dup_in += 1;
            if self.agreed.sack && seg.seq.lt(self.rcv_nxt) {
                self.dsack = Some((seg.seq, seg.seq.add(seg.len()).min(self.rcv_nxt)));
            }
            self.ack_due = AckDue::Now;
            return;
        }
        if self.orphan && !seg.payload.is_empty() && fin_seq.gt(self.rcv_nxt) {
            // Nobody is left to read it (RFC 2525, 2.17).
            host.counters.drop_after_close += 1;
            self.send_rst(host, now);
            self.shut_down(host);
            return;
        }
        if self.ack_tells && self.ack_due == AckDue::Now && seg.seq != self.rcv_nxt {
            self.snapshot_ack(host, now);
        }
        self.stats.last_data_recv_us = now.0;
        if seg.has(FIN) && fin_seq.le(self.rcv_adv.max(self.rcv_nxt)) {
            self.peer_fin = Some(fin_seq);
        }
        if !seg.payload.is_empty() {
            self.rcv_mss = self.rcv_mss.max((seg.payload.len() as u32).min(u32::from(self.pmtu)) as u16);
            self.take_payload(host, now, seg);
        }
        if self.peer_fin == Some(self.rcv_nxt) && !self.fin_received {
            self.take_fin(host);
        } else if seg.has(FIN) {
            self.ack_due = AckDue::Now;
        }
    }

    fn take_payload(&mut self, host: &mut Host, now: Instant, seg: &Segment<'_>) {
        let mut start = seg.seq;
        let mut data = seg.payload;
        if start.lt(self.rcv_nxt) {
            let old = self.rcv_nxt.since(start).min(data.len() as u32);
            if self.agreed.sack {
                self.dsack = Some((start, start.add(old)));
            }
            data = &data[old as usize..];
            start = start.add(old);
            if data.is_empty() {
                host.counters.dup_in += 1;
                self.quick_acks = QUICK_ACKS;
                self.ack_due = AckDue::Now;
                self.ack_tells = true;
                return;
            }
        }
        let room = self.rcv_adv.since(start);
        if (data.len() as u32) > room {
            // Beyond the window: a probe of a closed window, or a peer gone mad.
            host.counters.drop_out_of_window += 1;
            self.ack_due = AckDue::Now;
            data = &data[..room as usize];
            if self.peer_fin.is_some_and(|f| f.gt(start.add(room))) {
                self.peer_fin = None;
            }
            if data.is_empty() {
                return;
            }
        }
        if start == self.rcv_nxt {
            self.take_in_order(host, now, data);
        } else {
            self.take_out_of_order(host, start, data);
        }
    }

    fn take_in_order(&mut self, host: &mut Host, now: Instant, data: &[u8]) {
        let len = data.len() as u32;
        if self.ooo.is_none() {
            if !self.rx.push(&mut host.pool, data, crate::buffers::Use::InOrder) {
                host.counters.drop_no_memory += 1;
                self.peer_fin = None;
                return;
            }
            self.rcv_nxt = self.rcv_nxt.add(len);
        } else {
            let Some(mut ooo) = self.ooo.take() else { return };
            let live = ooo.end().map_or(0, |e| self.rx.len() + e.since(self.rcv_nxt));
            if !self.rx.store(&mut host.pool, self.rx.len(), data, live) {
                host.counters.drop_no_memory += 1;
                self.ooo = Some(ooo);
                return;
            }
            let end = self.rcv_nxt.add(len);
            if let Some(dup) = ooo.ranges().next().filter(|r| r.0.lt(end)) {
                // A part of it was there already (RFC 2883, section 4).
                self.dsack = Some((dup.0, dup.1.min(end)));
            }
            let edge = ooo.advance(end);
            self.rx.commit(edge.since(self.rcv_nxt));
            self.rcv_nxt = edge;
            // A filled hole is told at once (RFC 5681, section 4.2).
            self.ack_due = AckDue::Now;
            if ooo.is_empty() {
                host.put_reassembly(ooo);
            } else {
                self.ooo = Some(ooo);
            }
        }
        self.stats.bytes_received = self.stats.bytes_received.wrapping_add(u64::from(len));
        self.delay_ack(host, now);
        self.notify(host, Readiness::READABLE);
    }

    fn take_out_of_order(&mut self, host: &mut Host, start: Seq, data: &[u8]) {
        host.counters.ooo_in += 1;
        self.ack_tells = true;
        let end = start.add(data.len() as u32);
        self.ack_due = AckDue::Now;
        self.quick_acks = QUICK_ACKS;
        let mut ooo = self.ooo.take().unwrap_or_else(|| host.take_reassembly());
        let live = ooo.end().map_or(0, |e| self.rx.len() + e.since(self.rcv_nxt));
        let offset = self.rx.len() + start.since(self.rcv_nxt);
        if !ooo.fits(start, end) {
            host.counters.drop_ooo_limit += 1;
        } else if !self.rx.store(&mut host.pool, offset, data, live) {
            host.counters.drop_no_memory += 1;
        } else {
            let before = ooo.containing(start);
            if ooo.insert(start, end) == Inserted::Duplicate && self.agreed.sack {
                host.counters.dup_in += 1;
                self.dsack = Some((start, end));
            } else if let Some((_, e)) = before.filter(|r| r.1.gt(start) && self.agreed.sack) {
                self.dsack = Some((start, e.min(end)));
            }
        }
        if ooo.is_empty() {
            host.put_reassembly(ooo);
        } else {
            self.ooo = Some(ooo);
        }
    }

    /// RFC 5681, section 4.2: every second full segment at once, else within
    /// the delay.
    fn delay_ack(&mut self, host: &Host, now: Instant) {
        if self.ack_due == AckDue::Now {
            return;
        }
        let unacked = self.rcv_nxt.since(self.rcv_acked);
        if !host.config.delayed_ack
            || self.options.quickack
            || self.quick_acks > 0
            || unacked > u32::from(self.rcv_mss)
        {
            self.quick_acks = self.quick_acks.saturating_sub(1);
            self.ack_due = AckDue::Now;
            return;
        }
        if self.ack_due == AckDue::No {
            self.ack_due = AckDue::Delayed;
            self.delack_at = now.0 + host.config.delayed_ack_us;
        }
    }

    fn take_fin(&mut self, host: &mut Host) {
        self.fin_received = true;
        self.rcv_nxt = self.rcv_nxt.add(1);
        self.ack_due = AckDue::Now;
        if let Some(ooo) = self.ooo.take() {
            host.put_reassembly(ooo);
        }
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => {
                // Our FIN's ACK, if it came along, was seen before.
                self.state = State::Closing;
            }
            State::FinWait2 => self.enter_time_wait(host),
            _ => {}
        }
        self.notify(host, Readiness::READABLE | Readiness::RDHUP);
    }

    // Active open.

    fn in_syn_sent(&mut self, host: &mut Host, now: Instant, seg: &Segment<'_>) {
        let acks_us = seg.has(ACK);
        if acks_us && (seg.ack.le(self.iss) || seg.ack.gt(self.snd_nxt)) {
            host.counters.drop_bad_ack += 1;
            if !seg.has(RST) {
                host.counters.rst_out += 1;
                let key = self.key;
                host.reply(Reply::Bare(Bare {
                    key,
                    seq: seg.ack,
                    ack: Seq(0),
                    flags: RST,
                    window: 0,
                    timestamps: None,
                    sacks: Sacks::default(),
                }));
            }
            return;
        }
        if seg.has(RST) {
            if acks_us {
                host.counters.rst_in += 1;
                self.fail(host, ConnError::Refused);
            }
            return;
        }
        if !seg.has(SYN) {
            return;
        }
        if self.agreed.timestamps && acks_us && seg.options.timestamp.is_some_and(|t| t.1 != 0) {
            // RFC 7323, 5.2: an echo from another time is for another SYN.
            let echo = seg.options.timestamp.map_or(0, |t| t.1);
            if self.timestamp(now).wrapping_sub(echo) > 1 << 30 {
                return;
            }
        }
        self.last_recv = now;
        self.irs = seg.seq;
        self.rcv_nxt = seg.seq.add(1);
        self.rcv_acked = self.rcv_nxt;
        let config = &host.config;
        let options = &seg.options;
        let default =
            if self.key.family == 4 { crate::conn::MSS_DEFAULT } else { crate::conn::MSS_DEFAULT_V6 };
        self.agreed.peer_mss = options.mss.unwrap_or(default).max(config.mss_min);
        self.agreed.sack &= options.sack_permitted;
        self.agreed.timestamps &= options.timestamp.is_some();
        self.agreed.wscale = match (self.agreed.wscale, options.wscale) {
            (Some((_, ours)), Some(theirs)) => Some((theirs, ours)),
            _ => None,
        };
        self.agreed.ecn &= if acks_us { seg.has(ECE) && !seg.has(CWR) } else { seg.has(ECE) && seg.has(CWR) };
        if let Some((val, _)) = options.timestamp.filter(|_| self.agreed.timestamps) {
            self.ts_recent = val;
            self.ts_recent_ms = Host::timestamp_clock(now);
        }
        self.sync_mss(host);
        self.open_window();
        self.snd_wl1 = seg.seq;
        self.snd_wnd = u32::from(seg.window);
        self.max_wnd = self.snd_wnd;
        if acks_us {
            let retransmitted = self.retransmits > 0;
            let mut events = AckEvents::default();
            self.clean_acked(host, now, seg.ack, &mut events);
            self.snd_una = seg.ack;
            self.rack.fack = seg.ack;
            events.echo = options.timestamp.map(|t| t.1).filter(|_| self.agreed.timestamps);
            self.sample_rtt(host, now, &mut events);
            self.establish(host, now);
            // RFC 6928: a lost SYN means a window of one segment.
            self.window.cwnd = if retransmitted { self.window.mss } else { self.initial_window(host) };
            self.ca_state = CaState::Open;
            self.rtx_at = NEVER;
            self.rtx_timer = crate::conn::RtxTimer::None;
            self.force_retx = 0;
            self.frto = crate::recovery::Frto::Off;
            self.undo = None;
            self.window.ssthresh = u32::MAX;
            self.ack_due = AckDue::Now;
            self.notify(host, Readiness::WRITABLE);
        } else {
            // Both ends open at once (RFC 9293, figure 8).
            self.state = State::SynReceived;
            if let Some(r) = self.records.front_mut() {
                r.flags |= crate::recovery::LOST;
                self.lost_bytes = r.len;
                self.retx_bytes = 0;
                r.flags &= !crate::recovery::RETX;
            }
            self.force_retx = 1;
        }
        if acks_us && (!seg.payload.is_empty() || seg.has(FIN)) {
            // Data on a SYN-ACK follows the SYN.
            let rest = Segment { seq: seg.seq.add(1), flags: seg.flags & !SYN, ..*seg };
            self.in_data(host, now, &rest);
        }
        self.want_output(host);
    }
}
