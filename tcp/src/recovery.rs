//! Loss: the scoreboard (RFC 2018, 6675), its detection by RACK-TLP (RFC 8985)
//! or by duplicate ACKs (RFC 6582), the window during repair (RFC 6937), and
//! what takes a reduction back (RFC 3522, 5682, and DSACK, RFC 3708).

use crate::congestion::{AckSample, Control, Growth};
use crate::conn::{Conn, NEVER, RtxTimer};
use crate::header::Segment;
use crate::host::Host;
use crate::info::{CaState, State};
use crate::reassembly::Range;
use crate::seq::Seq;
use crate::time::Instant;

/// Held by the receiver.
pub(crate) const SACKED: u8 = 0x01;
/// Taken as lost.
pub(crate) const LOST: u8 = 0x02;
/// A retransmission of it is in flight.
pub(crate) const RETX: u8 = 0x04;
/// It has been retransmitted at least once.
pub(crate) const EVER_RETX: u8 = 0x08;
/// It is the SYN.
pub(crate) const SYN_RECORD: u8 = 0x10;
/// It is a path MTU probe.
pub(crate) const MTU_PROBE: u8 = 0x40;

/// Duplicate ACKs that mean a loss (RFC 5681).
const DUP_THRESH: u32 = 3;
/// Timer granularity that TLP and RACK never go below.
const TIMER_MIN_US: u64 = 1_000;
/// The peer's delayed ACK, as RFC 8985 assumes it.
const PEER_DELACK_US: u64 = 200_000;

/// One segment in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) sent_us: u64,
    pub(crate) seq: Seq,
    /// Sequence numbers, FIN or SYN included.
    pub(crate) len: u32,
    pub(crate) flags: u8,
}

impl Record {
    #[inline]
    pub(crate) fn end(&self) -> Seq {
        self.seq.add(self.len)
    }

    #[inline]
    pub(crate) fn is(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }
}

/// RACK's view (RFC 8985, section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rack {
    /// Send time of the most recently sent segment that was delivered, 0 before one was.
    pub(crate) sent_us: u64,
    pub(crate) end: Seq,
    pub(crate) rtt_us: u32,
    /// Highest sequence number known to be delivered.
    pub(crate) fack: Seq,
    pub(crate) reo_mult: u8,
    pub(crate) reo_persist: u8,
    pub(crate) reordering: bool,
    /// Largest distance at which a segment was seen to be overtaken, bytes.
    pub(crate) reordering_bytes: u32,
    /// `snd_nxt` when a DSACK last widened the window.
    pub(crate) dsack_round: Option<Seq>,
}

impl Default for Rack {
    fn default() -> Self {
        Self {
            sent_us: 0,
            end: Seq(0),
            rtt_us: 0,
            fack: Seq(0),
            reo_mult: 1,
            reo_persist: 16,
            reordering: false,
            reordering_bytes: 0,
            dsack_round: None,
        }
    }
}

/// Proportional rate reduction (RFC 6937).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prr {
    pub(crate) flight_bytes: u32,
    pub(crate) delivered_bytes: u32,
    pub(crate) out_bytes: u32,
}

/// Forward RTO-recovery (RFC 5682).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Frto {
    Off = 0,
    /// The first segment was retransmitted; nothing heard yet.
    Armed = 1,
    /// It was acknowledged: up to two new segments go out, this one the first.
    NewData2 = 2,
    /// One new segment may still go out.
    NewData1 = 3,
    /// Waiting for what their acknowledgement says.
    Waiting = 4,
}

/// What an undone reduction goes back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Undo {
    pub(crate) cwnd: u32,
    pub(crate) ssthresh: u32,
    /// Retransmissions that no DSACK has called needless.
    pub(crate) open_retx: u32,
    pub(crate) any_retx: bool,
}

/// What one ACK did to the scoreboard.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckEvents {
    /// Bytes cumulatively acknowledged.
    pub(crate) acked_bytes: u32,
    /// Bytes newly known to be delivered, by ACK or SACK.
    pub(crate) delivered_bytes: u32,
    /// Round trip of the oldest segment that was sent once.
    pub(crate) rtt_us: Option<u64>,
    pub(crate) dsack: bool,
    pub(crate) retx_acked: bool,
    /// A segment sent once, before the episode's end, is delivered.
    pub(crate) original_delivered: bool,
    pub(crate) advanced: bool,
    pub(crate) duplicate: bool,
    pub(crate) echo: Option<u32>,
    pub(crate) new_sack: bool,
}

impl Conn {
    /// The index of the first record that ends beyond `seq`.
    fn record_at(&self, seq: Seq) -> usize {
        self.records.ending_beyond(seq)
    }

    /// Cuts record `i` so that it ends at `seq`; the rest follows it.
    pub(crate) fn split_record(&mut self, i: usize, seq: Seq) {
        let r = self.records[i];
        let head = seq.since(r.seq);
        if head == 0 || head >= r.len {
            return;
        }
        self.records[i].len = head;
        self.records.insert_after(i, Record { seq, len: r.len - head, flags: r.flags & !SYN_RECORD, ..r });
    }

    /// A record was delivered: what RACK and the reordering detector learn.
    fn on_delivered(&mut self, r: &Record, now: Instant, events: &mut AckEvents) {
        events.delivered_bytes += r.len;
        if r.is(EVER_RETX) {
            events.retx_acked = true;
        } else {
            events.original_delivered |= r.end().le(self.high_seq);
            if r.end().lt(self.rack.fack) {
                self.rack.reordering = true;
                let distance = self.rack.fack.since(r.seq);
                self.rack.reordering_bytes = self.rack.reordering_bytes.max(distance);
            }
        }
        self.rack.fack = self.rack.fack.max(r.end());
        let rtt = now.0.saturating_sub(r.sent_us);
        if r.is(EVER_RETX) {
            // RFC 8985, step 2: an ACK that is too quick for the retransmission
            // is for the original.
            if rtt < u64::from(self.rtt.min_us) && self.rtt.min_us != u32::MAX {
                return;
            }
            // The echo does not help: out of order it is that of an earlier segment.
        }
        let later =
            r.sent_us > self.rack.sent_us || r.sent_us == self.rack.sent_us && r.end().gt(self.rack.end);
        if later {
            self.rack.sent_us = r.sent_us;
            self.rack.end = r.end();
            self.rack.rtt_us = rtt.min(u64::from(u32::MAX)) as u32;
        }
    }

    /// Takes record `i`'s flags out of the sums.
    fn forget_flags(&mut self, r: &Record) {
        if r.is(SACKED) {
            self.sacked_bytes -= r.len;
        }
        if r.is(LOST) {
            self.lost_bytes -= r.len;
        }
        if r.is(RETX) {
            self.retx_bytes -= r.len;
        }
    }

    /// Enters the SACK blocks of an ACK.
    pub(crate) fn apply_sacks(
        &mut self,
        host: &mut Host,
        now: Instant,
        ack: Seq,
        seg: &Segment<'_>,
        events: &mut AckEvents,
    ) {
        let blocks = seg.options.sacks();
        let mut first = 0;
        if let Some(&(s, e)) = blocks.first() {
            let inside = blocks.get(1).is_some_and(|b| s.ge(b.0) && e.le(b.1));
            if s.lt(e) && (e.le(ack) || inside) {
                first = 1;
                self.on_dsack(host, (s, e), events);
            }
        }
        let cached = self.last_sacks;
        let cached = &cached[..self.last_sacks_len as usize];
        for &(s, e) in &blocks[first..] {
            if s.ge(e) || e.gt(self.snd_nxt) || e.le(self.snd_una) {
                continue;
            }
            let s = s.max(self.snd_una).max(ack);
            if s.ge(e) {
                continue;
            }
            // What the last ACK said already need not be walked again.
            match cached.iter().find(|c| s.le(c.0) && c.1.le(e) && c.0.ge(ack)) {
                Some(&(cs, ce)) => {
                    self.mark_sacked(now, s, cs, events);
                    self.mark_sacked(now, ce, e, events);
                }
                None => self.mark_sacked(now, s, e, events),
            }
        }
        self.last_sacks_len = 0;
        for &(s, e) in &blocks[first..] {
            if s.lt(e) && e.le(self.snd_nxt) && s.ge(self.snd_una) {
                self.last_sacks[self.last_sacks_len as usize] = (s, e);
                self.last_sacks_len += 1;
            }
        }
    }

    fn mark_sacked(&mut self, now: Instant, start: Seq, end: Seq, events: &mut AckEvents) {
        if start.ge(end) {
            return;
        }
        // A peer that SACKs parts of segments cannot make the board grow without bound.
        let splits_ok = self.records.len()
            < 4 * (self.snd_nxt.since(self.snd_una) / self.window.mss.max(1)) as usize + 64;
        let mut i = self.record_at(start);
        while i < self.records.len() {
            let r = self.records[i];
            if r.seq.ge(end) {
                break;
            }
            if r.is(SACKED | SYN_RECORD) {
                i += 1;
                continue;
            }
            if r.seq.lt(start) {
                if splits_ok {
                    self.split_record(i, start);
                }
                i += 1;
                continue;
            }
            if r.end().gt(end) {
                if !splits_ok {
                    break;
                }
                self.split_record(i, end);
            }
            let r = self.records[i];
            self.forget_flags(&r);
            self.sacked_bytes += r.len;
            self.records[i].flags = r.flags & !(LOST | RETX) | SACKED;
            self.on_delivered(&r, now, events);
            events.new_sack = true;
            if !r.is(EVER_RETX) {
                self.rack_rtt_hint(now, &r, events);
            }
            i += 1;
        }
    }

    fn rack_rtt_hint(&mut self, now: Instant, r: &Record, events: &mut AckEvents) {
        // A SACK's round trip refreshes the minimum, not the estimate, unless
        // the ACK has nothing better.
        let rtt = now.0.saturating_sub(r.sent_us);
        events.rtt_us = Some(events.rtt_us.map_or(rtt, |v| v.max(rtt)));
    }

    fn on_dsack(&mut self, host: &mut Host, block: Range, events: &mut AckEvents) {
        events.dsack = true;
        host.counters.dsack_in += 1;
        self.stats.dsack_dups += 1;
        let segments = (block.1.since(block.0)).div_ceil(self.window.mss.max(1));
        if let Some(undo) = &mut self.undo {
            undo.open_retx = undo.open_retx.saturating_sub(segments);
        }
        // RFC 8985, step 4: each round trip with a DSACK widens the reordering
        // window by a quarter of the minimum RTT; it stays so for 16 recoveries.
        if self.rack.dsack_round.is_none_or(|r| self.snd_una.ge(r)) {
            self.rack.dsack_round = Some(self.snd_nxt);
            self.rack.reo_mult = self.rack.reo_mult.saturating_add(1).min(64);
            self.rack.reo_persist = 16;
        }
    }

    /// Takes what `ack` covers off the board.
    pub(crate) fn clean_acked(&mut self, host: &mut Host, now: Instant, ack: Seq, events: &mut AckEvents) {
        while let Some(r) = self.records.front().copied() {
            if r.end().gt(ack) {
                if r.seq.lt(ack) {
                    // A part of a segment: the rest stays, with its own sums.
                    let gone = ack.since(r.seq);
                    let part = Record { len: gone, ..r };
                    self.forget_flags(&part);
                    let front = &mut self.records[0];
                    front.seq = ack;
                    front.len = r.len - gone;
                    events.acked_bytes += gone;
                    if !r.is(SACKED) {
                        events.delivered_bytes += gone;
                    }
                }
                break;
            }
            self.records.pop_front();
            self.forget_flags(&r);
            events.acked_bytes += r.len;
            if r.is(MTU_PROBE) {
                self.on_mtu_probe_acked(host, &r);
            }
            if !r.is(SACKED) {
                self.on_delivered(&r, now, events);
                if !r.is(EVER_RETX) && (events.rtt_us.is_none() || !events.advanced) {
                    events.rtt_us = Some(now.0.saturating_sub(r.sent_us));
                    events.advanced = true;
                }
            }
        }
        events.advanced = true;
        if self.records.is_empty() && self.tx.is_empty() {
            self.records.release(host);
        }
    }

    /// Runs the congestion state machine after an ACK has been entered.
    pub(crate) fn after_ack(&mut self, host: &mut Host, now: Instant, prior_pipe: u32, events: &AckEvents) {
        let prior_lost = self.lost_bytes - self.retx_bytes.min(self.lost_bytes);
        if events.advanced {
            self.force_retx = 0;
        }
        self.tlp_on_ack(host, now, events);
        match self.ca_state {
            CaState::Loss => self.loss_on_ack(host, events),
            CaState::Recovery | CaState::Cwr => self.recovery_on_ack(host, events),
            CaState::Open | CaState::Disorder => {}
        }
        // Detection.
        let mut reorder_left = None;
        if self.agreed.sack {
            if self.sacked_bytes > 0
                || self.lost_bytes > 0
                || self.ca_state != CaState::Open
                || events.new_sack
            {
                reorder_left = self.rack_detect(host, now);
            }
        } else {
            self.reno_on_ack(events);
        }
        let unrepaired = self.lost_bytes > 0;
        if unrepaired && matches!(self.ca_state, CaState::Open | CaState::Disorder | CaState::Cwr) {
            self.enter_recovery(host, now);
        } else if self.ca_state == CaState::Open && self.sacked_bytes > 0 {
            self.ca_state = CaState::Disorder;
        } else if self.ca_state == CaState::Disorder && self.sacked_bytes == 0 {
            self.ca_state = CaState::Open;
        }
        // Window.
        match self.ca_state {
            CaState::Recovery | CaState::Cwr => {
                let newly_lost = self.lost_bytes.saturating_sub(self.retx_bytes) > prior_lost;
                self.prr_on_ack(events, newly_lost);
            }
            _ if events.acked_bytes > 0 => self.grow(host, now, prior_pipe, events),
            _ => {}
        }
        self.rearm(host, now, events, reorder_left);
    }

    fn grow(&mut self, host: &Host, now: Instant, prior_pipe: u32, events: &AckEvents) {
        let slow = self.window.in_slow_start();
        let used = prior_pipe.saturating_add(self.window.mss);
        let limited = self.cwnd_limited
            || used > self.window.cwnd
            || slow && prior_pipe.saturating_mul(2) >= self.window.cwnd;
        if !limited {
            return;
        }
        let mut acked = events.acked_bytes;
        if slow {
            let growth = if host.config.hystart && self.window.ssthresh == u32::MAX {
                let rtt = events.rtt_us.map(|r| r.min(u64::from(u32::MAX - 1)) as u32);
                self.hystart.on_ack(self.snd_una, self.snd_nxt, rtt)
            } else {
                Growth::Full
            };
            let room = self.window.ssthresh - self.window.cwnd;
            let step = match growth {
                Growth::Full => acked.min(room),
                Growth::Divided(d) => (acked / d).min(room),
                Growth::Leave => {
                    self.window.ssthresh = self.window.cwnd;
                    0
                }
            };
            self.window.cwnd = self.window.cwnd.saturating_add(step).min(1 << 30);
            acked -= acked.min(match growth {
                Growth::Full => step,
                _ => acked,
            });
            if acked == 0 {
                return;
            }
        }
        let sample = AckSample { now, acked_bytes: acked, srtt_us: self.rtt.srtt_us };
        self.controller.on_ack(&mut self.window, &sample);
        self.window.cwnd = self.window.cwnd.min(1 << 30);
    }

    fn save_undo(&mut self) {
        self.undo = Some(Undo {
            cwnd: self.window.cwnd,
            ssthresh: self.window.ssthresh,
            open_retx: 0,
            any_retx: false,
        });
        self.retrans_stamp = None;
    }

    /// Whether all that is lost is a path MTU probe: that says nothing about
    /// congestion (RFC 4821, 7.5). Its bytes are sent again in usual segments,
    /// and the window stays.
    fn only_probe_lost(&mut self, host: &mut Host) -> bool {
        if self.probe.size == 0 {
            return false;
        }
        let lost = self.lost_bytes;
        let probe = self.records.iter_mut().find(|r| r.is(MTU_PROBE) && r.is(LOST) && r.len == lost);
        let Some(probe) = probe else { return false };
        probe.flags &= !MTU_PROBE;
        self.fail_mtu_probe();
        self.ca_state = CaState::Loss;
        self.high_seq = self.snd_nxt;
        self.undo = None;
        self.frto = Frto::Off;
        self.force_retx = self.force_retx.max(2);
        self.want_output(host);
        true
    }

    fn enter_recovery(&mut self, host: &mut Host, now: Instant) {
        if self.only_probe_lost(host) {
            return;
        }
        if self.agreed.sack {
            host.counters.sack_recoveries += 1;
        } else {
            host.counters.reno_recoveries += 1;
        }
        if self.ca_state != CaState::Cwr {
            self.begin_reduction(now);
        }
        self.ca_state = CaState::Recovery;
        self.high_seq = self.snd_nxt;
        self.force_retx = self.force_retx.max(1);
        self.want_output(host);
    }

    fn begin_reduction(&mut self, now: Instant) {
        self.save_undo();
        let flight = self.snd_nxt.since(self.snd_una);
        self.window.ssthresh = self.controller.on_congestion(&self.window, flight, now);
        self.prr = Prr { flight_bytes: flight.max(1), delivered_bytes: 0, out_bytes: 0 };
        self.high_seq = self.snd_nxt;
    }

    /// Reduces the window without a loss: an ECN echo, or a loss that a tail
    /// probe repaired.
    pub(crate) fn enter_cwr(&mut self, now: Instant) {
        if matches!(self.ca_state, CaState::Open | CaState::Disorder) {
            self.begin_reduction(now);
            self.undo = None;
            self.ca_state = CaState::Cwr;
        }
    }

    fn end_reduction(&mut self) {
        if self.window.ssthresh < u32::MAX {
            self.window.cwnd = self.window.ssthresh.max(2 * self.window.mss);
        }
        self.ca_state = CaState::Open;
        self.dupacks = 0;
        self.undo = None;
        self.retrans_stamp = None;
        if self.rack.reo_mult > 1 {
            self.rack.reo_persist = self.rack.reo_persist.saturating_sub(1);
            if self.rack.reo_persist == 0 {
                self.rack.reo_mult = 1;
                self.rack.reo_persist = 16;
            }
        }
    }

    /// Whether the episode's retransmissions turn out to have been needless.
    fn undo_reason(&self, events: &AckEvents) -> bool {
        let Some(undo) = self.undo else { return false };
        if !undo.any_retx {
            return false;
        }
        // Eifel: the peer answers a segment sent before the first retransmission.
        let eifel = match (self.retrans_stamp, events.echo) {
            (Some(stamp), Some(echo)) => events.acked_bytes > 0 && (echo.wrapping_sub(stamp) as i32) < 0,
            _ => false,
        };
        eifel || events.dsack && undo.open_retx == 0
    }

    fn undo_reduction(&mut self, host: &mut Host, keep_lost: bool) {
        let Some(undo) = self.undo.take() else { return };
        host.counters.undo_recoveries += 1;
        if !keep_lost {
            for r in self.records.iter_mut() {
                r.flags &= !(LOST | RETX);
            }
            self.lost_bytes = 0;
            self.retx_bytes = 0;
        }
        self.window.cwnd = self.window.cwnd.max(undo.cwnd);
        self.window.ssthresh = self.window.ssthresh.max(undo.ssthresh);
        self.controller.on_undo();
        self.retrans_stamp = None;
        self.frto = Frto::Off;
        self.dupacks = 0;
        self.ca_state = CaState::Open;
    }

    fn recovery_on_ack(&mut self, host: &mut Host, events: &AckEvents) {
        if self.undo_reason(events) {
            self.undo_reduction(host, false);
            return;
        }
        if self.snd_una.ge(self.high_seq) && events.acked_bytes > 0 {
            self.end_reduction();
        }
    }

    fn loss_on_ack(&mut self, host: &mut Host, events: &AckEvents) {
        if self.undo_reason(events) || self.frto != Frto::Off && events.original_delivered {
            host.counters.rto_spurious += 1;
            self.undo_reduction(host, false);
            return;
        }
        if self.snd_una.ge(self.high_seq) && events.acked_bytes > 0 {
            self.frto = Frto::Off;
            self.ca_state = CaState::Open;
            self.dupacks = 0;
            self.undo = None;
            self.retrans_stamp = None;
            return;
        }
        match self.frto {
            Frto::Armed if events.acked_bytes > 0 => self.frto = Frto::NewData2,
            Frto::Armed | Frto::Off => {}
            // A second ACK that tells of no original: the losses are real.
            _ if events.acked_bytes > 0 || events.duplicate => self.frto = Frto::Off,
            _ => {}
        }
    }

    /// Duplicate ACKs without SACK: each says that a segment has left.
    fn reno_on_ack(&mut self, events: &AckEvents) {
        if events.acked_bytes > 0 {
            self.sacked_bytes = 0;
            if self.ca_state == CaState::Recovery {
                // A partial ACK: the next segment is lost too (RFC 6582). What
                // the duplicates told of stays, less what is now acknowledged.
                let told = u32::from(self.dupacks) * self.window.mss;
                let left = told.saturating_sub(events.acked_bytes.saturating_sub(self.window.mss));
                self.dupacks = (left / self.window.mss.max(1)).min(255) as u8;
                self.mark_head_lost();
            } else {
                self.dupacks = 0;
            }
        } else if events.duplicate && !self.records.is_empty() {
            self.dupacks = self.dupacks.saturating_add(1);
            if u32::from(self.dupacks) >= DUP_THRESH
                && matches!(self.ca_state, CaState::Open | CaState::Disorder)
            {
                self.mark_head_lost();
            }
        }
        let head = self.records.front().map_or(0, |r| r.len);
        let behind_head = self.snd_nxt.since(self.snd_una).saturating_sub(head.max(self.lost_bytes));
        self.sacked_bytes = (u32::from(self.dupacks) * self.window.mss).min(behind_head);
    }

    fn mark_head_lost(&mut self) {
        if let Some(r) = self.records.front_mut()
            && !r.is(LOST)
        {
            r.flags |= LOST;
            self.lost_bytes += r.len;
        }
    }

    /// RACK's reordering window (RFC 8985, section 6.2, step 4).
    fn reordering_window_us(&self) -> u64 {
        let dup_thresh = self.sacked_bytes >= DUP_THRESH * self.window.mss;
        if !self.rack.reordering && (matches!(self.ca_state, CaState::Recovery | CaState::Loss) || dup_thresh)
        {
            return 0;
        }
        if self.rtt.min_us == u32::MAX {
            return 0;
        }
        let window = u64::from(self.rtt.min_us) / 4 * u64::from(self.rack.reo_mult);
        window.min(u64::from(self.rtt.srtt_us))
    }

    /// Marks what was sent long enough before something that was delivered.
    /// Returns how long until the next segment is due, if one is near.
    pub(crate) fn rack_detect(&mut self, host: &mut Host, now: Instant) -> Option<u64> {
        if self.rack.sent_us == 0 {
            return None;
        }
        let window = self.reordering_window_us();
        let mut left_max: Option<u64> = None;
        let mut lost = 0;
        for r in self.records.iter_mut() {
            if r.sent_us > self.rack.sent_us {
                // Not yet retransmitted records are in order of sending: beyond
                // the newest delivered one only retransmissions could follow.
                if !r.is(EVER_RETX) {
                    break;
                }
                continue;
            }
            if r.is(SACKED) || r.is(LOST) && !r.is(RETX) {
                continue;
            }
            if r.sent_us == self.rack.sent_us && r.end().ge(self.rack.end) {
                continue;
            }
            let due = r.sent_us + u64::from(self.rack.rtt_us) + window;
            if due <= now.0 {
                if r.is(RETX) {
                    r.flags &= !RETX;
                    self.retx_bytes -= r.len;
                } else {
                    r.flags |= LOST;
                    self.lost_bytes += r.len;
                }
                lost += 1;
            } else {
                let left = due - now.0;
                left_max = Some(left_max.map_or(left, |l| l.max(left)));
            }
        }
        host.counters.rack_lost += lost;
        left_max
    }

    /// The reordering window has passed: looks again.
    pub(crate) fn on_reorder_timer(&mut self, host: &mut Host, now: Instant) {
        let left = self.rack_detect(host, now);
        if self.lost_bytes > 0 {
            if matches!(self.ca_state, CaState::Open | CaState::Disorder | CaState::Cwr) {
                self.enter_recovery(host, now);
            }
            if self.ca_state == CaState::Recovery {
                self.prr_on_ack(&AckEvents::default(), true);
            }
            self.want_output(host);
        }
        self.arm_rto(host, now);
        if let Some(left) = left {
            self.arm(RtxTimer::Reorder, now.0 + left.max(TIMER_MIN_US));
        }
    }

    fn prr_on_ack(&mut self, events: &AckEvents, newly_lost: bool) {
        let mss = self.window.mss;
        let delivered = if self.agreed.sack {
            events.delivered_bytes
        } else if events.acked_bytes == 0 && events.duplicate {
            mss
        } else {
            events.delivered_bytes
        };
        self.prr.delivered_bytes = self.prr.delivered_bytes.saturating_add(delivered);
        let pipe = self.pipe();
        let ssthresh = self.window.ssthresh;
        let send = if pipe > ssthresh {
            let goal = (u64::from(self.prr.delivered_bytes) * u64::from(ssthresh))
                .div_ceil(u64::from(self.prr.flight_bytes.max(1)));
            (goal as u32).saturating_sub(self.prr.out_bytes)
        } else {
            let mut limit = self.prr.delivered_bytes.saturating_sub(self.prr.out_bytes);
            if events.acked_bytes > 0 && !newly_lost {
                limit = limit.max(delivered) + mss;
            }
            limit.min(ssthresh - pipe)
        };
        // The first retransmission goes out whatever the sums say.
        let send = if self.prr.out_bytes == 0 { send.max(mss) } else { send };
        self.window.cwnd = (pipe + send).max(mss);
    }

    /// A retransmission time-out (RFC 6298, 5.4 to 5.7; RFC 5681).
    pub(crate) fn enter_loss(&mut self, host: &mut Host, now: Instant) {
        let fresh = self.ca_state != CaState::Loss || self.snd_una.ge(self.high_seq);
        let from_recovery = self.ca_state == CaState::Recovery;
        if fresh {
            if !matches!(self.ca_state, CaState::Recovery | CaState::Cwr) || self.undo.is_none() {
                self.save_undo();
                let flight = self.snd_nxt.since(self.snd_una);
                self.window.ssthresh = self.controller.on_congestion(&self.window, flight, now);
            }
            self.retrans_stamp = None;
        }
        if !self.agreed.sack {
            self.sacked_bytes = 0;
        }
        self.dupacks = 0;
        // A SACKed head means that the receiver dropped what it held (RFC 2018, section 8).
        let reneged = self.records.front().is_some_and(|r| r.is(SACKED));
        if reneged {
            host.counters.sack_reneges += 1;
        }
        self.retx_bytes = 0;
        self.lost_bytes = 0;
        self.sacked_bytes = 0;
        self.last_sacks_len = 0;
        let recent_us = u64::from(self.rack.rtt_us);
        let sack = self.agreed.sack;
        for (i, r) in self.records.iter_mut().enumerate() {
            if reneged {
                r.flags &= !SACKED;
            }
            r.flags &= !RETX;
            if r.is(SACKED) {
                self.sacked_bytes += r.len;
                continue;
            }
            // What was sent within the last round trip may yet arrive.
            let recent = sack && !reneged && i > 0 && !r.is(LOST) && r.sent_us + recent_us > now.0;
            if recent {
                continue;
            }
            r.flags |= LOST;
            self.lost_bytes += r.len;
        }
        self.controller.on_restart();
        self.window.cwnd = self.window.mss;
        self.ca_state = CaState::Loss;
        self.high_seq = self.snd_nxt;
        // After a recovery, deliveries of what was in flight say nothing about
        // this time-out (RFC 5682, section 2.1, step 1).
        let may = fresh && !from_recovery && self.state != State::SynSent;
        self.frto = if may { Frto::Armed } else { Frto::Off };
        self.tlp_end = None;
        self.tlp_pending = false;
        self.force_retx = 1;
    }

    /// Sends everything above the new segment size again, without a reduction
    /// (RFC 1191, 6.5).
    pub(crate) fn resend_oversized(&mut self, host: &mut Host) {
        let mss = self.window.mss;
        let mut any = false;
        for r in self.records.iter_mut() {
            if r.len > mss && !r.is(SACKED) && (!r.is(LOST) || r.is(RETX)) {
                if r.is(RETX) {
                    r.flags &= !RETX;
                    self.retx_bytes -= r.len;
                } else {
                    r.flags |= LOST;
                    self.lost_bytes += r.len;
                }
                any = true;
            }
        }
        if any {
            if matches!(self.ca_state, CaState::Open | CaState::Disorder) {
                self.ca_state = CaState::Loss;
                self.high_seq = self.snd_nxt;
                self.undo = None;
                self.frto = Frto::Off;
            }
            self.force_retx = self.force_retx.max(1);
            self.want_output(host);
        }
    }

    // Tail loss probes (RFC 8985, section 7).

    fn tlp_on_ack(&mut self, host: &mut Host, now: Instant, events: &AckEvents) {
        let Some(end) = self.tlp_end else { return };
        if self.snd_una.lt(end) {
            return;
        }
        if self.tlp_retrans && !events.dsack {
            if self.snd_una.gt(end) || events.acked_bytes > 0 && !self.agreed.sack {
                self.tlp_end = None;
                host.counters.tlp_recoveries += 1;
                self.enter_cwr(now);
            } else if events.acked_bytes == 0 && !events.new_sack {
                // The original and the probe both arrived.
                self.tlp_end = None;
            }
            return;
        }
        self.tlp_end = None;
    }

    /// When the probe is due, if one may be sent.
    fn tlp_deadline(&self, host: &Host, now: Instant) -> Option<u64> {
        let may = host.config.tlp
            && self.agreed.sack
            && self.ca_state == CaState::Open
            && self.sacked_bytes == 0
            && self.tlp_end.is_none()
            && self.state != State::SynSent
            && self.state != State::SynReceived
            && !self.records.is_empty();
        if !may {
            return None;
        }
        let mut pto = if self.rtt.srtt_us == 0 {
            1_000_000
        } else {
            let mut pto = 2 * u64::from(self.rtt.srtt_us);
            if self.snd_nxt.since(self.snd_una) <= self.window.mss {
                pto += PEER_DELACK_US;
            }
            pto
        };
        pto = pto.max(2 * TIMER_MIN_US);
        Some(now.0 + pto)
    }

    // The timer.

    pub(crate) fn arm(&mut self, timer: RtxTimer, at: u64) {
        self.rtx_timer = timer;
        self.rtx_at = at;
    }

    /// Time-out from now.
    pub(crate) fn arm_rto(&mut self, host: &Host, now: Instant) {
        if self.records.is_empty() {
            self.arm(RtxTimer::None, NEVER);
            return;
        }
        let rto = self.rtt.rto_backed_off_us(self.backoff, host.config.rto_max_us);
        self.arm(RtxTimer::Rto, now.0 + rto);
    }

    /// Chooses probe or time-out from now.
    pub(crate) fn arm_tlp_or_rto(&mut self, host: &Host, now: Instant) {
        self.arm_rto(host, now);
        self.arm_tlp_if_earlier(host, now);
    }

    /// Puts a probe before the time-out that is set.
    pub(crate) fn arm_tlp_if_earlier(&mut self, host: &Host, now: Instant) {
        if let Some(at) = self.tlp_deadline(host, now)
            && at < self.rtx_at
        {
            self.arm(RtxTimer::Tlp, at);
        }
    }

    fn rearm(&mut self, host: &mut Host, now: Instant, events: &AckEvents, reorder_left: Option<u64>) {
        if self.records.is_empty() {
            if self.rtx_timer != RtxTimer::Persist {
                self.arm(RtxTimer::None, NEVER);
            }
            return;
        }
        if events.acked_bytes > 0 || events.new_sack || self.rtx_timer == RtxTimer::None {
            self.arm_tlp_or_rto(host, now);
        }
        if let Some(left) = reorder_left {
            let at = now.0 + left.max(TIMER_MIN_US);
            if self.lost_bytes == self.retx_bytes || at < self.rtx_at {
                self.arm(RtxTimer::Reorder, at);
            }
        } else if self.rtx_timer == RtxTimer::Reorder {
            self.arm_rto(host, now);
        }
    }
}
