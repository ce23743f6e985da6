//! Passive opens: from a SYN to a connection in the accept queue.

use ff_flowmap::{FlowIndex, FlowKey};

use crate::config::EcnMode;
use crate::conn::{Agreed, Conn, MSS_DEFAULT, MSS_DEFAULT_V6, mss_for_mtu};
use crate::engine::{Engine, Target};
use crate::header::{ACK, CWR, ECE, FIN, HeaderOut, OptionWriter, RST, SYN, Segment};
use crate::host::{Bare, Host, Reply, Sacks};
use crate::info::State;
use crate::listen::Request;
use crate::numbers::{self, CookieOffer};
use crate::output::write_syn_options;
use crate::seq::Seq;
use crate::socket::SegmentMeta;
use crate::time::Instant;

/// How long after the last cookie one may come back.
const COOKIE_LIFE_US: u64 = 128_000_000;

/// Between two answers to repetitions of a SYN.
const SYN_REPEAT_INTERVAL_US: u64 = 500_000;
/// Longest round trip that the echo of a SYN-ACK's timestamp is believed to tell.
const SYNACK_RTT_US_MAX: u64 = 60_000_000;

/// The shift with which a receive buffer of `bytes` fits the window field.
pub(crate) fn window_scale(bytes: u32) -> u8 {
    (0..14).find(|&s| bytes >> s <= 65_535).unwrap_or(14)
}

impl<I: FlowIndex> Engine<I> {
    /// A segment of no flow that is known: a listener's, or nobody's.
    /// `isn_after` is a number that the answer's must not lie below.
    #[inline(never)]
    pub(crate) fn unknown_segment(
        &mut self,
        now: Instant,
        meta: &SegmentMeta,
        seg: &Segment<'_>,
        key: &FlowKey,
        isn_after: Option<Seq>,
    ) {
        if seg.has(RST) {
            self.host.counters.drop_no_socket += 1;
            return;
        }
        let Some(l) = self.listeners.find(meta.dst, seg.dst_port) else {
            self.host.counters.drop_no_socket += 1;
            return self.refuse(seg, key);
        };
        if seg.has(ACK) {
            if !seg.has(SYN) && self.take_cookie(now, meta, seg, key, l) {
                return;
            }
            self.host.counters.drop_no_socket += 1;
            return self.refuse(seg, key);
        }
        if !seg.has(SYN) || seg.has(FIN) {
            self.host.counters.drop_bad_flags += 1;
            return;
        }
        self.take_syn(now, seg, key, l, isn_after);
    }

    fn take_syn(&mut self, now: Instant, seg: &Segment<'_>, key: &FlowKey, l: u32, isn_after: Option<Seq>) {
        let Some((listener, listener_id)) = self.listener_with_id(l) else { return };
        let backlog = listener.options.backlog.clamp(1, self.host.config.somaxconn);
        if listener.accept_queue.len() > backlog as usize {
            self.host.counters.drop_syn_accept_queue += 1;
            return;
        }
        let full = listener.requests >= backlog
            || self.requests.slab.len() >= self.host.config.requests_max as usize;
        let rcv_buf = self.listener_rcv_buf(l);
        let mss_max = self.listeners.slab.get(l).map_or(0, |l| l.options.socket.mss_max_bytes);
        let config = &self.host.config;
        let options = &seg.options;
        let default = if key.family == 4 { MSS_DEFAULT } else { MSS_DEFAULT_V6 };
        let mut peer_mss = options.mss.unwrap_or(default).max(config.mss_min);
        if mss_max > 0 {
            peer_mss = peer_mss.min(mss_max);
        }
        let timestamps = config.timestamps && options.timestamp.is_some();
        let wscale = options.wscale.filter(|_| config.window_scaling);
        let sack = config.sack && options.sack_permitted;
        let ecn = config.ecn != EcnMode::Off && seg.has(ECE) && seg.has(CWR);
        let own_wscale = self.own_wscale(l);
        if full {
            if !config.syn_cookies {
                self.host.counters.drop_syn_backlog += 1;
                return;
            }
            let offer = CookieOffer { mss: peer_mss, wscale, sack, ecn, timestamps };
            return self.send_cookie(now, seg, key, &offer, own_wscale);
        }
        let iss = match isn_after {
            Some(after) => numbers::initial_sequence(&self.host.secrets, key, now).max(after),
            None => numbers::initial_sequence(&self.host.secrets, key, now),
        };
        let window = rcv_buf.min(65_535) as u16;
        let mut request =
            Request::new(*key, listener_id, seg.seq, iss, peer_mss, window, wscale, own_wscale, now);
        request.sack = sack;
        request.timestamps = timestamps;
        request.ecn = ecn;
        request.ts_recent = options.timestamp.map_or(0, |t| t.0);
        let (i, generation) = self.requests.insert(request);
        if self.index.insert(key, Target::Request(i).to_ref()).is_err() {
            self.requests.remove(i);
            self.host.counters.drop_syn_table_full += 1;
            return;
        }
        if let Some(l) = self.listeners.slab.get_mut(l) {
            l.requests += 1;
        }
        self.host.reply(Reply::SynAck(i, generation));
    }

    fn listener_with_id(&self, l: u32) -> Option<(&crate::listen::Listener, (u32, u32))> {
        let listener = self.listeners.slab.get(l)?;
        Some((listener, (l, self.listeners.slab.generation(l)?)))
    }

    fn listener_rcv_buf(&self, l: u32) -> u32 {
        let own = self.listeners.slab.get(l).and_then(|l| l.options.socket.rcvbuf_bytes);
        let own = own.or(self.host.config.socket.rcvbuf_bytes);
        own.unwrap_or(self.host.config.rcv_buf_initial_bytes).min(self.host.config.rcv_buf_max_bytes)
    }

    fn own_wscale(&self, l: u32) -> u8 {
        let own = self.listeners.slab.get(l).and_then(|l| l.options.socket.rcvbuf_bytes);
        window_scale(
            own.unwrap_or(self.host.config.rcv_buf_max_bytes).min(self.host.config.rcv_buf_max_bytes),
        )
    }

    // Cookies.

    /// Cookies may come back that were sent up to now: by this engine, or by another one with the same
    /// [`Secrets`](crate::Secrets) whose packets come here from now on. Without this word an ACK that claims to be
    /// one's answer is refused unseen: a cookie has 24 bits of proof, which a patient sender would guess in time.
    pub fn expect_cookies(&mut self, now: Instant) {
        self.last_cookie = Some(now);
    }

    fn send_cookie(
        &mut self,
        now: Instant,
        seg: &Segment<'_>,
        key: &FlowKey,
        offer: &CookieOffer,
        own_wscale: u8,
    ) {
        self.host.counters.cookies_sent += 1;
        self.expect_cookies(now);
        let seq = numbers::cookie_sequence(&self.host.secrets, key, seg.seq, offer.mss, now);
        let timestamps = offer.timestamps.then(|| {
            let offset = numbers::timestamp_offset(&self.host.secrets, key);
            let clock = numbers::cookie_timestamp(Host::timestamp_clock(now), offer);
            (clock.wrapping_add(offset), seg.options.timestamp.map_or(0, |t| t.0))
        });
        // Without timestamps there is nowhere to keep what the options said.
        let kept = offer.timestamps;
        self.host.reply(Reply::Cookie {
            key: *key,
            seq,
            ack: seg.seq.add(1),
            wscale: offer.wscale.filter(|_| kept).map(|_| own_wscale),
            sack: offer.sack && kept,
            ecn: offer.ecn && kept,
            timestamps,
        });
    }

    /// An ACK of no known flow to a listener: perhaps of a cookie.
    fn take_cookie(
        &mut self,
        now: Instant,
        meta: &SegmentMeta,
        seg: &Segment<'_>,
        key: &FlowKey,
        l: u32,
    ) -> bool {
        if self.last_cookie.is_none_or(|t| now.micros_since(t) > COOKIE_LIFE_US) {
            return false;
        }
        let offset = numbers::timestamp_offset(&self.host.secrets, key);
        let echoed = seg.options.timestamp.map(|t| t.1.wrapping_sub(offset));
        let cookie = seg.ack.sub(1);
        let irs = seg.seq.sub(1);
        let Some(offer) = numbers::cookie_check(&self.host.secrets, key, irs, cookie, echoed, now) else {
            self.host.counters.cookies_bad += 1;
            return false;
        };
        let Some((listener, listener_id)) = self.listener_with_id(l) else { return false };
        let backlog = listener.options.backlog.clamp(1, self.host.config.somaxconn);
        if listener.accept_queue.len() > backlog as usize {
            self.host.counters.drop_ack_accept_queue += 1;
            return true;
        }
        self.host.counters.cookies_ok += 1;
        let own_wscale = self.own_wscale(l);
        let window = self.listener_rcv_buf(l).min(65_535) as u16;
        let mut request =
            Request::new(*key, listener_id, irs, cookie, offer.mss, window, offer.wscale, own_wscale, now);
        request.sack = offer.sack && self.host.config.sack;
        request.timestamps = offer.timestamps && self.host.config.timestamps;
        request.ecn = offer.ecn && self.host.config.ecn != EcnMode::Off;
        request.ts_recent = seg.options.timestamp.map_or(0, |t| t.0);
        // How long ago it was sent is not known: no sample.
        request.retries = 1;
        self.open_from(now, meta, seg, &request, None);
        true
    }

    // Requests.

    #[inline(never)]
    pub(crate) fn request_segment(&mut self, now: Instant, meta: &SegmentMeta, seg: &Segment<'_>, i: u32) {
        let Some(request) = self.requests.slab.get(i) else { return };
        let request = request.clone();
        let first = request.irs.add(1);
        if seg.has(RST) {
            // RFC 5961 in the small: only the exact number.
            if seg.seq == first {
                self.host.counters.rst_in += 1;
                self.host.counters.attempt_fails += 1;
                self.drop_request(i);
            } else {
                self.host.counters.rst_ignored += 1;
            }
            return;
        }
        if seg.has(SYN) {
            if seg.seq == request.irs && !seg.has(ACK) {
                // The SYN again: our answer may be lost. Or somebody makes us answer more than he sends.
                let recent = request.repeated.is_some_and(|t| now.micros_since(t) < SYN_REPEAT_INTERVAL_US);
                if recent {
                    self.host.counters.synack_limited += 1;
                } else {
                    if let Some(r) = self.requests.slab.get_mut(i) {
                        r.repeated = Some(now);
                        // RFC 7323, 4.3: the peer measures by what is echoed, and would take the time-out of its
                        // SYN for a round trip.
                        let newer = |t: &u32| (t.wrapping_sub(r.ts_recent) as i32) > 0;
                        if let Some(val) = seg.options.timestamp.map(|t| t.0).filter(newer) {
                            r.ts_recent = val;
                        }
                    }
                    self.answer_request_again(i);
                }
            } else {
                self.host.counters.syn_in_conn += 1;
                if self.host.challenge_allowed(now) {
                    self.ack_for_request(now, &request);
                }
            }
            return;
        }
        if !seg.has(ACK) {
            self.host.counters.drop_bad_flags += 1;
            return;
        }
        let edge = first.add(u32::from(request.window));
        let end = seg.seq.add(seg.len());
        let old_ts = request.timestamps
            && seg.options.timestamp.is_some_and(|t| (t.0.wrapping_sub(request.ts_recent) as i32) < 0);
        if end.lt(first) || seg.seq.gt(edge) || old_ts {
            if old_ts {
                self.host.counters.drop_paws += 1;
            } else {
                self.host.counters.drop_out_of_window += 1;
            }
            if self.host.challenge_allowed(now) {
                self.ack_for_request(now, &request);
            }
            return;
        }
        if seg.ack != request.iss.add(1) {
            self.host.counters.drop_bad_ack += 1;
            let key = request.key;
            return self.refuse(seg, &key);
        }
        let Some(listener) = self.listeners.slab.get_checked(request.listener.0, request.listener.1) else {
            self.drop_request(i);
            let key = request.key;
            return self.refuse(seg, &key);
        };
        let backlog = listener.options.backlog.clamp(1, self.host.config.somaxconn);
        if listener.accept_queue.len() > backlog as usize {
            self.host.counters.drop_ack_accept_queue += 1;
            if self.host.config.abort_on_overflow {
                self.drop_request(i);
                let key = request.key;
                return self.refuse(seg, &key);
            }
            if let Some(r) = self.requests.slab.get_mut(i) {
                r.acked = true;
            }
            return;
        }
        let defer_us = listener.options.defer_accept_us;
        let bare = seg.payload.is_empty() && !seg.has(FIN);
        if defer_us > 0 && bare && now.micros_since(request.begun) < defer_us {
            if let Some(r) = self.requests.slab.get_mut(i) {
                r.acked = true;
            }
            return;
        }
        self.open_from(now, meta, seg, &request, Some(i));
    }

    fn answer_request_again(&mut self, i: u32) {
        if let Some(generation) = self.requests.slab.generation(i) {
            self.host.counters.synack_retrans += 1;
            self.host.reply(Reply::SynAck(i, generation));
        }
    }

    fn ack_for_request(&mut self, now: Instant, request: &Request) {
        let offset = numbers::timestamp_offset(&self.host.secrets, &request.key);
        let clock = Host::timestamp_clock(now).wrapping_add(offset);
        self.host.reply(Reply::Bare(Bare {
            key: request.key,
            seq: request.iss.add(1),
            ack: request.irs.add(1),
            flags: ACK,
            window: request.window,
            timestamps: request.timestamps.then_some((clock, request.ts_recent)),
            sacks: Sacks::default(),
        }));
    }

    /// Forgets a request and its flow.
    pub(crate) fn drop_request(&mut self, i: u32) {
        if let Some(request) = self.requests.remove(i) {
            self.index.remove(&request.key);
            if let Some(l) = self.listeners.slab.get_checked_mut(request.listener.0, request.listener.1) {
                l.requests = l.requests.saturating_sub(1);
            }
        }
    }

    pub(crate) fn request_timeout(&mut self, now: Instant, i: u32) {
        let Some(r) = self.requests.slab.get(i) else { return };
        let defer_us = self
            .listeners
            .slab
            .get_checked(r.listener.0, r.listener.1)
            .map_or(0, |l| l.options.defer_accept_us);
        let waits_for_data = r.acked && defer_us > 0 && now.micros_since(r.begun) < defer_us;
        if r.retries >= self.host.config.synack_retries {
            self.host.counters.request_timeouts += 1;
            self.host.counters.attempt_fails += 1;
            return self.drop_request(i);
        }
        self.requests.back_off(i, now);
        if !waits_for_data {
            self.answer_request_again(i);
        }
    }

    /// The round trip that the ACK of a SYN-ACK shows. Of one that was repeated it is not known which of them is
    /// acknowledged (RFC 6298, section 3), unless its timestamp says it (RFC 7323, section 4).
    fn syn_ack_rtt_us(&self, now: Instant, seg: &Segment<'_>, request: &Request) -> Option<u64> {
        if request.answers <= 1 {
            return Some(now.micros_since(request.sent));
        }
        let (_, echo) = seg.options.timestamp.filter(|_| request.timestamps)?;
        let offset = numbers::timestamp_offset(&self.host.secrets, &request.key);
        let clock = Host::timestamp_clock(now).wrapping_add(offset);
        let rtt_us = u64::from(clock.wrapping_sub(echo)) * 1_000;
        (rtt_us <= SYNACK_RTT_US_MAX).then_some(rtt_us.max(1_000))
    }

    /// Makes a connection of a request whose final ACK has come.
    fn open_from(
        &mut self,
        now: Instant,
        meta: &SegmentMeta,
        seg: &Segment<'_>,
        request: &Request,
        from: Option<u32>,
    ) {
        let (l, l_generation) = request.listener;
        if self.conns.len() >= self.host.config.conns_max as usize {
            self.host.counters.drop_conns_max += 1;
            return;
        }
        let agreed = Agreed {
            peer_mss: request.peer_mss,
            wscale: request.peer_wscale.map(|theirs| (theirs, request.own_wscale)),
            sack: request.sack,
            timestamps: request.timestamps,
            ecn: request.ecn,
        };
        let mut conn = Conn::new(&mut self.host, request.key, State::SynReceived, request.iss, agreed);
        if let Some(listener) = self.listeners.slab.get(l) {
            conn.options = listener.options.socket;
        }
        conn.inherit(&self.host);
        conn.irs = request.irs;
        conn.rcv_nxt = request.irs.add(1);
        conn.rcv_acked = conn.rcv_nxt;
        conn.rcv_adv = conn.rcv_nxt.add(u32::from(request.window));
        conn.ts_recent = request.ts_recent;
        conn.ts_recent_ms = Host::timestamp_clock(now);
        conn.snd_una = request.iss.add(1);
        conn.snd_nxt = conn.snd_una;
        conn.high_seq = conn.snd_una;
        conn.small_end = conn.snd_una;
        conn.rack.fack = conn.snd_una;
        conn.snd_wl1 = seg.seq;
        conn.snd_wnd = u32::from(seg.window) << agreed.wscale.map_or(0, |w| w.0);
        conn.max_wnd = conn.snd_wnd;
        conn.listener = Some((l, l_generation));
        if request.retries > 0 && from.is_some() {
            // RFC 6298, 5.7: after a lost SYN-ACK the time-out begins at 3 s,
            // and the window at one segment.
            conn.rtt.rto_us = 3_000_000;
            conn.window.cwnd = conn.window.mss;
        }
        if let Some(rtt_us) = from.and_then(|_| self.syn_ack_rtt_us(now, seg, request)) {
            conn.rtt.sample(now, rtt_us, 1, self.host.config.rto_min_us, self.host.config.rto_max_us);
        }
        conn.establish(&mut self.host, now);
        let key = request.key;
        let (index, generation) = self.conns.insert(conn);
        if self.index.insert(&key, Target::Conn(index).to_ref()).is_err() {
            self.host.counters.drop_syn_table_full += 1;
            self.conns.remove(index);
            return;
        }
        if let Some(i) = from {
            // The flow table leads to the connection now; the request goes quietly.
            self.requests.remove(i);
            if let Some(l) = self.listeners.slab.get_checked_mut(l, l_generation) {
                l.requests = l.requests.saturating_sub(1);
            }
        }
        self.host.counters.passive_opens += 1;
        if let Some(listener) = self.listeners.slab.get_checked_mut(l, l_generation) {
            listener.accept_queue.push_back((index, generation));
            if !listener.event_queued {
                listener.event_queued = true;
                self.listener_events.push_back((l, l_generation));
            }
        }
        if let Some(conn) = self.conns.get_mut(index) {
            conn.index = index;
            conn.generation = generation;
            conn.on_segment(&mut self.host, now, meta.ecn, seg);
        }
        self.settle(index);
    }

    // Output.

    /// Writes a reply; returns its flow and length, or `None` if it is moot.
    pub(crate) fn emit_reply(
        &mut self,
        now: Instant,
        reply: &Reply,
        buf: &mut [u8],
    ) -> Option<(FlowKey, usize)> {
        match *reply {
            Reply::Bare(bare) => Some((bare.key, bare.emit(buf)?)),
            Reply::SynAck(i, generation) => {
                let r = self.requests.slab.get_checked_mut(i, generation)?;
                r.sent = now;
                r.answers = r.answers.saturating_add(1);
                let r = r.clone();
                let offset = numbers::timestamp_offset(&self.host.secrets, &r.key);
                let clock = Host::timestamp_clock(now).wrapping_add(offset);
                let syn_ack = SynAck {
                    seq: r.iss,
                    ack: r.irs.add(1),
                    wscale: r.peer_wscale.map(|_| r.own_wscale),
                    sack: r.sack,
                    ecn: r.ecn && r.retries == 0,
                    timestamps: r.timestamps.then_some((clock, r.ts_recent)),
                    window: r.window,
                    mss_max: self
                        .listeners
                        .slab
                        .get(r.listener.0)
                        .map_or(0, |l| l.options.socket.mss_max_bytes),
                };
                Some((r.key, self.emit_syn_ack(&r.key, &syn_ack, buf)?))
            }
            Reply::Cookie { key, seq, ack, wscale, sack, ecn, timestamps } => {
                let window = self.host.config.rcv_buf_initial_bytes.min(65_535) as u16;
                let syn_ack = SynAck { seq, ack, wscale, sack, ecn, timestamps, window, mss_max: 0 };
                Some((key, self.emit_syn_ack(&key, &syn_ack, buf)?))
            }
        }
    }

    fn emit_syn_ack(&self, key: &FlowKey, s: &SynAck, buf: &mut [u8]) -> Option<usize> {
        let mut options = OptionWriter::new();
        let mut mss = mss_for_mtu(key, self.host.config.mtu);
        if s.mss_max > 0 {
            mss = mss.min(s.mss_max);
        }
        options.mss(mss);
        write_syn_options(&mut options, s.sack, s.timestamps, s.wscale);
        HeaderOut {
            src_port: key.local_port,
            dst_port: key.remote_port,
            seq: s.seq,
            ack: s.ack,
            flags: SYN | ACK | if s.ecn { ECE } else { 0 },
            window: s.window,
        }
        .emit(options.finish(), buf)
    }
}

/// What a SYN-ACK says.
struct SynAck {
    seq: Seq,
    ack: Seq,
    wscale: Option<u8>,
    sack: bool,
    ecn: bool,
    timestamps: Option<(u32, u32)>,
    window: u16,
    mss_max: u16,
}
