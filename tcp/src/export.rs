//! A connection as bytes: taken out of one engine, put into another, in
//! another process or another build, without the peer noticing.
//!
//! Layout: magic `FFTC`, version (u16), flags (u16), total length (u32),
//! SipHash-2-4 of what follows (u64), then the fields in the order of
//! `Record`'s code below, integers little-endian, and at the end the bytes:
//! unread, out of order, unacknowledged. A record without payload has under
//! 600 bytes. The key of the hash is fixed: it finds damage, not forgery; a
//! record must come from a process that is trusted.

use std::hash::Hasher;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ff_flowmap::{FlowIndex, FlowKey};
use siphasher::sip::SipHasher24;
use thiserror::Error;

use crate::buffers::{RING_MAX_BYTES, Use};
use crate::congestion::{Algorithm, Controller, Cubic, HyStart, NewReno};
use crate::conn::{AckDue, Agreed, Conn, NEVER, RtxTimer};
use crate::engine::{Engine, TCP, Target};
use crate::error::ConnError;
use crate::host::Host;
use crate::info::{CaState, State};
use crate::recovery::{Frto, LOST, RETX, Record, SACKED, Undo};
use crate::seq::Seq;
use crate::socket::{ConnId, Keepalive, SocketOptions};
use crate::time::Instant;

const MAGIC: [u8; 4] = *b"FFTC";
/// Version of the layout: one more whenever a field changes.
pub const EXPORT_VERSION: u16 = 1;
const HEADER_BYTES: usize = 20;
/// Records of segments in flight that an import believes.
const RECORDS_MAX: usize = 1 << 20;

/// Why a connection could not be exported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ExportError {
    /// No such connection.
    #[error("there is no such connection")]
    NotFound,
    /// Its handshake is not done, or it is over: there is nothing to hand on.
    #[error("the connection is not in a state that can be handed on")]
    State,
}

/// Why a record could not be imported. The engine is unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ImportError {
    /// Not a record.
    #[error("the bytes are not a connection record")]
    Magic,
    /// A record of another layout.
    #[error("the record has version {0}, this engine reads {EXPORT_VERSION}")]
    Version(u16),
    /// Cut short or too long.
    #[error("the record's length is not what it says")]
    Length,
    /// Damaged.
    #[error("the record is damaged: its checksum does not match")]
    Checksum,
    /// Fields that contradict each other.
    #[error("the record contradicts itself: {0}")]
    Inconsistent(&'static str),
    /// The flow is in this engine already.
    #[error("the flow exists in this engine already")]
    InUse,
    /// No memory for its bytes, or no room in the flow table.
    #[error("there is no room for the connection")]
    NoRoom,
}

/// Writes fields.
pub(crate) struct Writer<'a>(pub(crate) &'a mut Vec<u8>);

impl Writer<'_> {
    pub(crate) fn u8(&mut self, v: u8) {
        self.0.push(v);
    }
    pub(crate) fn bool(&mut self, v: bool) {
        self.0.push(u8::from(v));
    }
    pub(crate) fn u16(&mut self, v: u16) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }
    pub(crate) fn u32(&mut self, v: u32) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }
    pub(crate) fn u64(&mut self, v: u64) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }
    pub(crate) fn seq(&mut self, v: Seq) {
        self.u32(v.0);
    }
    pub(crate) fn opt_u32(&mut self, v: Option<u32>) {
        self.bool(v.is_some());
        self.u32(v.unwrap_or(0));
    }
    pub(crate) fn opt_seq(&mut self, v: Option<Seq>) {
        self.opt_u32(v.map(|s| s.0));
    }
    pub(crate) fn f64(&mut self, v: f64) {
        self.u64(v.to_bits());
    }
}

/// Reads them.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

pub(crate) type Read<T> = Result<T, ImportError>;

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, n: usize) -> Read<&'a [u8]> {
        if n > self.0.len() {
            return Err(ImportError::Length);
        }
        let (head, tail) = self.0.split_at(n);
        self.0 = tail;
        Ok(head)
    }
    pub(crate) fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.bytes(N)?);
        Ok(out)
    }
    pub(crate) fn u8(&mut self) -> Read<u8> {
        Ok(self.array::<1>()?[0])
    }
    pub(crate) fn bool(&mut self) -> Read<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(ImportError::Inconsistent("a flag is neither 0 nor 1")),
        }
    }
    pub(crate) fn u16(&mut self) -> Read<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    pub(crate) fn u32(&mut self) -> Read<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    pub(crate) fn u64(&mut self) -> Read<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    pub(crate) fn seq(&mut self) -> Read<Seq> {
        Ok(Seq(self.u32()?))
    }
    pub(crate) fn opt_u32(&mut self) -> Read<Option<u32>> {
        let some = self.bool()?;
        let v = self.u32()?;
        Ok(some.then_some(v))
    }
    pub(crate) fn opt_seq(&mut self) -> Read<Option<Seq>> {
        Ok(self.opt_u32()?.map(Seq))
    }
    pub(crate) fn f64(&mut self) -> Read<f64> {
        let v = f64::from_bits(self.u64()?);
        if v.is_finite() { Ok(v) } else { Err(ImportError::Inconsistent("a number is not finite")) }
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new_with_key(b"ff-tcp export v1");
    hasher.write(bytes);
    hasher.finish()
}

/// Begins a record at the end of `out`; gives what [`seal`] wants to know.
pub(crate) fn begin(out: &mut Vec<u8>, magic: [u8; 4], version: u16) -> usize {
    let start = out.len();
    out.extend_from_slice(&magic);
    out.extend_from_slice(&version.to_le_bytes());
    out.extend_from_slice(&[0; 14]);
    start
}

/// Ends the record that began at `start`: its length and its checksum.
pub(crate) fn seal(out: &mut [u8], start: usize) {
    let len = (out.len() - start) as u32;
    out[start + 8..start + 12].copy_from_slice(&len.to_le_bytes());
    let sum = checksum(&out[start + HEADER_BYTES..]);
    out[start + 12..start + HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
}

/// The fields of a sealed record.
pub(crate) fn unseal(record: &[u8], magic: [u8; 4], version: u16) -> Read<Reader<'_>> {
    if record.get(..4) != Some(&magic[..]) {
        return Err(ImportError::Magic);
    }
    let mut r = Reader(&record[4..]);
    let theirs = r.u16()?;
    if theirs != version {
        return Err(ImportError::Version(theirs));
    }
    let _flags = r.u16()?;
    if r.u32()? as usize != record.len() {
        return Err(ImportError::Length);
    }
    if r.u64()? != checksum(&record[HEADER_BYTES..]) {
        return Err(ImportError::Checksum);
    }
    Ok(r)
}

/// Writes a flow.
pub(crate) fn write_key(key: &FlowKey, w: &mut Writer<'_>) {
    w.u8(key.family);
    w.0.extend_from_slice(&key.local);
    w.0.extend_from_slice(&key.remote);
    w.u16(key.local_port);
    w.u16(key.remote_port);
}

impl<I: FlowIndex> Engine<I> {
    /// Appends a record of the connection to `out` and takes the connection
    /// out of this engine, without a word to the peer. Its id is void after
    /// it. Works for what the user holds, for what waits to be accepted, and
    /// for orphans (found by [`connections`](Self::connections)).
    ///
    /// Both processes must share the [`Secrets`](crate::Secrets) and the clock.
    pub fn export(&mut self, now: Instant, id: ConnId, out: &mut Vec<u8>) -> Result<(), ExportError> {
        self.record(now, id, out)?;
        self.part_with(id);
        Ok(())
    }

    /// The first half of [`export`](Self::export): the record. The connection is still this engine's, and nothing
    /// may happen to it any more, or the record is worth nothing.
    pub fn record(&mut self, now: Instant, id: ConnId, out: &mut Vec<u8>) -> Result<(), ExportError> {
        self.tick(now);
        let conn = self.conns.get_checked(id.index, id.generation).ok_or(ExportError::NotFound)?;
        let live = matches!(
            conn.state,
            State::Established
                | State::CloseWait
                | State::FinWait1
                | State::FinWait2
                | State::Closing
                | State::LastAck
        );
        if !live || conn.detached {
            return Err(ExportError::State);
        }
        let start = begin(out, MAGIC, EXPORT_VERSION);
        write_conn(conn, &mut Writer(out));
        seal(out, start);
        Ok(())
    }

    /// The second half: the connection leaves this engine, and its flow the table. Between the two the record can be
    /// put where the new owner looks for it before it believes the flow to be nobody's.
    pub fn part_with(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_checked(id.index, id.generation) else { return };
        let key = conn.key;
        self.host.counters.exports += 1;
        self.index.remove(&key);
        self.forget(id.index);
    }

    /// As [`import`](Self::import), for a connection that the user here has not accepted: it waits in the queue of
    /// the listener at its local address. Without one it is reset, as a SYN to that address would be.
    pub fn import_unaccepted(&mut self, now: Instant, record: &[u8]) -> Result<(), ImportError> {
        let id = self.import(now, record)?;
        let Some(conn) = self.conns.get_checked(id.index, id.generation) else { return Ok(()) };
        let local = conn.key.local_addr();
        let listener = self.listeners.find(local.ip(), local.port());
        let of = listener.and_then(|l| Some((l, self.listeners.slab.generation(l)?)));
        let Some((l, l_generation)) = of.filter(|_| !conn.orphan) else {
            self.abort(now, id);
            return Ok(());
        };
        if let Some(conn) = self.conns.get_checked_mut(id.index, id.generation) {
            conn.held = false;
            conn.token = 0;
            conn.listener = Some((l, l_generation));
        }
        if let Some(listener) = self.listeners.slab.get_checked_mut(l, l_generation) {
            listener.accept_queue.push_back((id.index, id.generation));
            if !listener.event_queued {
                listener.event_queued = true;
                self.listener_events.push_back((l, l_generation));
            }
        }
        Ok(())
    }

    /// Puts a record of [`export`](Self::export) in. The connection goes on
    /// where it stopped: timers that have run out meanwhile run now. It counts
    /// as held by the user, unless the record is of an orphan.
    pub fn import(&mut self, now: Instant, record: &[u8]) -> Result<ConnId, ImportError> {
        self.tick(now);
        let mut r = unseal(record, MAGIC, EXPORT_VERSION)?;
        if self.conns.len() >= self.host.config.conns_max as usize {
            return Err(ImportError::NoRoom);
        }
        let mut conn = read_conn(&mut self.host, &mut r)?;
        if !r.0.is_empty() {
            conn.release(&mut self.host);
            return Err(ImportError::Length);
        }
        if let Err(e) = check(&conn) {
            conn.release(&mut self.host);
            return Err(e);
        }
        let key = conn.key;
        if self.index.lookup(&key).is_some() {
            conn.release(&mut self.host);
            return Err(ImportError::InUse);
        }
        let orphan = conn.orphan;
        let (index, generation) = self.conns.insert(conn);
        if self.index.insert(&key, Target::Conn(index).to_ref()).is_err() {
            if let Some(mut conn) = self.conns.remove(index) {
                conn.release(&mut self.host);
            }
            return Err(ImportError::NoRoom);
        }
        if orphan {
            self.host.orphans += 1;
        }
        self.host.counters.imports += 1;
        if let Some(conn) = self.conns.get_mut(index) {
            conn.index = index;
            conn.generation = generation;
            conn.want_output(&mut self.host);
        }
        self.settle(index);
        Ok(ConnId { index, generation })
    }
}

fn write_conn(c: &Conn, w: &mut Writer<'_>) {
    // Identity.
    write_key(&c.key, w);
    w.u8(c.state as u8);
    w.u64(c.token);
    w.bool(c.orphan);
    w.u8(c.error.map_or(0, ConnError::to_u8));
    w.u8(c.soft_error.map_or(0, ConnError::to_u8));
    // What was agreed.
    w.u16(c.agreed.peer_mss);
    w.bool(c.agreed.wscale.is_some());
    let (theirs, ours) = c.agreed.wscale.unwrap_or((0, 0));
    w.u8(theirs);
    w.u8(ours);
    w.bool(c.agreed.sack);
    w.bool(c.agreed.timestamps);
    w.bool(c.agreed.ecn);
    // Numbers.
    for s in [
        c.iss,
        c.irs,
        c.snd_una,
        c.snd_nxt,
        c.snd_wl1,
        c.rcv_nxt,
        c.rcv_acked,
        c.rcv_adv,
        c.tx_base,
        c.small_end,
        c.high_seq,
    ] {
        w.seq(s);
    }
    for v in [c.snd_wnd, c.max_wnd, c.rcv_buf_bytes, c.ts_recent, c.ts_recent_ms, c.ts_offset] {
        w.u32(v);
    }
    w.bool(c.fin_queued);
    w.bool(c.fin_sent);
    w.bool(c.fin_received);
    w.bool(c.read_shut);
    w.opt_seq(c.peer_fin);
    w.u16(c.pmtu);
    w.u16(c.rcv_mss);
    w.u8(c.ack_due as u8);
    w.u8(c.quick_acks);
    w.bool(c.ecn_echo);
    w.bool(c.ecn_cwr_due);
    w.bool(c.dsack.is_some());
    let (ds, de) = c.dsack.unwrap_or((Seq(0), Seq(0)));
    w.seq(ds);
    w.seq(de);
    // Congestion and loss.
    for v in [c.window.cwnd, c.window.ssthresh, c.rtt.srtt_us, c.rtt.rttvar_us, c.rtt.min_us, c.rtt.rto_us] {
        w.u32(v);
    }
    w.u32(c.rtt.latest_us);
    w.u64(c.rtt.min_at.0);
    w.u8(c.ca_state as u8);
    match &c.controller {
        Controller::Cubic(q) => {
            w.u8(0);
            for v in [q.w_max, q.k, q.w_est, q.cwnd_prior, q.credit, q.undo.0, q.undo.1] {
                w.f64(v);
            }
            w.u64(q.epoch_us);
        }
        Controller::NewReno(n) => {
            w.u8(1);
            w.u32(n.acked_bytes);
        }
    }
    let h = &c.hystart;
    for v in [h.last_round_min_us, h.round_min_us, h.css_baseline_us] {
        w.u32(v);
    }
    w.seq(h.window_end);
    w.u8(h.samples);
    w.u8(h.css_round);
    w.bool(h.in_css);
    w.bool(h.started);
    let k = &c.rack;
    w.u64(k.sent_us);
    w.seq(k.end);
    w.u32(k.rtt_us);
    w.seq(k.fack);
    w.u8(k.reo_mult);
    w.u8(k.reo_persist);
    w.bool(k.reordering);
    w.u32(k.reordering_bytes);
    w.opt_seq(k.dsack_round);
    for v in [c.prr.flight_bytes, c.prr.delivered_bytes, c.prr.out_bytes] {
        w.u32(v);
    }
    for v in [c.dupacks, c.backoff, c.retransmits, c.probes, c.force_retx, c.frto as u8] {
        w.u8(v);
    }
    w.bool(c.undo.is_some());
    let u = c.undo.unwrap_or(Undo { cwnd: 0, ssthresh: 0, open_retx: 0, any_retx: false });
    w.u32(u.cwnd);
    w.u32(u.ssthresh);
    w.u32(u.open_retx);
    w.bool(u.any_retx);
    w.opt_u32(c.retrans_stamp);
    w.opt_seq(c.tlp_end);
    w.bool(c.tlp_retrans);
    w.bool(c.tlp_pending);
    w.bool(c.window_probe);
    w.bool(c.keep_probe);
    w.bool(c.cwnd_limited);
    // Path MTU probing.
    let p = &c.probe;
    w.bool(p.enabled);
    w.u16(p.low);
    w.u16(p.high);
    w.u16(p.size);
    w.seq(p.seq);
    w.u8(p.tries);
    w.u64(p.next_us);
    // Times.
    w.u8(c.rtx_timer as u8);
    for v in [
        c.rtx_at,
        c.delack_at,
        c.keep_at,
        c.life_at,
        c.cork_until,
        c.pace_until,
        c.last_recv.0,
        c.last_send.0,
        c.stalled_since,
        c.last_oow_ack_us,
        c.drs_start.0,
    ] {
        w.u64(v);
    }
    w.u32(c.drs_copied);
    w.u32(c.drs_space);
    // Options.
    let o = &c.options;
    w.bool(o.nodelay);
    w.bool(o.cork);
    w.bool(o.quickack);
    w.bool(o.keepalive.enabled);
    w.u64(o.keepalive.idle_us);
    w.u64(o.keepalive.interval_us);
    w.u8(o.keepalive.count);
    w.u64(o.user_timeout_us);
    w.opt_u32(o.rcvbuf_bytes);
    w.opt_u32(o.sndbuf_bytes);
    w.opt_u32(o.linger_s);
    w.u64(o.fin_wait2_us);
    w.u16(o.mss_max_bytes);
    // Counts.
    let s = &c.stats;
    for v in [
        s.bytes_acked,
        s.bytes_received,
        s.bytes_sent,
        s.bytes_retrans,
        s.segs_in,
        s.segs_out,
        s.last_data_sent_us,
        s.last_data_recv_us,
        s.last_ack_recv_us,
    ] {
        w.u64(v);
    }
    w.u32(s.retrans_segs);
    w.u32(s.dsack_dups);
    // Segments in flight.
    w.u32(c.records.len() as u32);
    for r in c.records.iter() {
        w.u64(r.sent_us);
        w.seq(r.seq);
        w.u32(r.len);
        w.u8(r.flags);
    }
    w.u32(c.sacked_bytes);
    // Bytes.
    put_bytes(w, c.rx.len(), |out| {
        c.rx.copy_out(0, out);
    });
    let ranges = c.ooo.as_ref().map(|o| o.ranges().collect::<Vec<_>>()).unwrap_or_default();
    w.u32(ranges.len() as u32);
    for (start, end) in ranges {
        w.seq(start);
        let offset = c.rx.len() + start.since(c.rcv_nxt);
        put_bytes(w, end.since(start), |out| c.rx.copy_stored(offset, out));
    }
    let sacks = c.ooo.as_ref().map(|o| o.sacks().to_vec()).unwrap_or_default();
    w.u8(sacks.len() as u8);
    for (start, end) in sacks {
        w.seq(start);
        w.seq(end);
    }
    put_bytes(w, c.tx.len(), |out| {
        c.tx.copy_out(0, out);
    });
}

fn put_bytes(w: &mut Writer<'_>, len: u32, fill: impl FnOnce(&mut [u8])) {
    w.u32(len);
    let at = w.0.len();
    w.0.resize(at + len as usize, 0);
    fill(&mut w.0[at..]);
}

pub(crate) fn inconsistent<T>(what: &'static str) -> Read<T> {
    Err(ImportError::Inconsistent(what))
}

fn read_addr(family: u8, octets: [u8; 16], port: u16) -> SocketAddr {
    let v6 = Ipv6Addr::from(octets);
    let ip = match family {
        4 => v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4),
        _ => IpAddr::V6(v6),
    };
    SocketAddr::new(ip, port)
}

/// Reads a flow.
pub(crate) fn read_key(r: &mut Reader<'_>) -> Read<FlowKey> {
    let family = r.u8()?;
    if family != 4 && family != 6 {
        return inconsistent("the address family is neither 4 nor 6");
    }
    let (local, remote) = (r.array::<16>()?, r.array::<16>()?);
    let (local_port, remote_port) = (r.u16()?, r.u16()?);
    let (local, remote) = (read_addr(family, local, local_port), read_addr(family, remote, remote_port));
    let key = FlowKey::new(TCP, local, remote);
    if key.family != family {
        return inconsistent("the addresses are not of the family");
    }
    Ok(key)
}

fn read_conn(host: &mut Host, r: &mut Reader<'_>) -> Read<Conn> {
    let key = read_key(r)?;
    let Some(state) = State::from_u8(r.u8()?) else { return inconsistent("unknown state") };
    let token = r.u64()?;
    let orphan = r.bool()?;
    let error = ConnError::from_u8(r.u8()?);
    let soft_error = ConnError::from_u8(r.u8()?);
    let peer_mss = r.u16()?;
    let scaled = r.bool()?;
    let (theirs, ours) = (r.u8()?, r.u8()?);
    if theirs > 14 || ours > 14 {
        return inconsistent("a window scale is over 14");
    }
    let agreed = Agreed {
        peer_mss,
        wscale: scaled.then_some((theirs, ours)),
        sack: r.bool()?,
        timestamps: r.bool()?,
        ecn: r.bool()?,
    };
    let iss = r.seq()?;
    let mut c = Conn::new(host, key, state, iss, agreed);
    // From here on nothing but the bytes at the end takes memory.
    c.token = token;
    c.orphan = orphan;
    c.held = true;
    c.error = error;
    c.soft_error = soft_error;
    for s in [
        &mut c.irs,
        &mut c.snd_una,
        &mut c.snd_nxt,
        &mut c.snd_wl1,
        &mut c.rcv_nxt,
        &mut c.rcv_acked,
        &mut c.rcv_adv,
        &mut c.tx_base,
        &mut c.small_end,
        &mut c.high_seq,
    ] {
        *s = r.seq()?;
    }
    for v in [
        &mut c.snd_wnd,
        &mut c.max_wnd,
        &mut c.rcv_buf_bytes,
        &mut c.ts_recent,
        &mut c.ts_recent_ms,
        &mut c.ts_offset,
    ] {
        *v = r.u32()?;
    }
    c.fin_queued = r.bool()?;
    c.fin_sent = r.bool()?;
    c.fin_received = r.bool()?;
    c.read_shut = r.bool()?;
    c.peer_fin = r.opt_seq()?;
    c.pmtu = r.u16()?;
    c.rcv_mss = r.u16()?;
    c.ack_due = match r.u8()? {
        0 => AckDue::No,
        1 => AckDue::Delayed,
        2 => AckDue::Now,
        _ => return inconsistent("unknown acknowledgement state"),
    };
    c.quick_acks = r.u8()?;
    c.ecn_echo = r.bool()?;
    c.ecn_cwr_due = r.bool()?;
    let has_dsack = r.bool()?;
    let dsack = (r.seq()?, r.seq()?);
    c.dsack = has_dsack.then_some(dsack);
    for v in [
        &mut c.window.cwnd,
        &mut c.window.ssthresh,
        &mut c.rtt.srtt_us,
        &mut c.rtt.rttvar_us,
        &mut c.rtt.min_us,
        &mut c.rtt.rto_us,
        &mut c.rtt.latest_us,
    ] {
        *v = r.u32()?;
    }
    c.rtt.min_at = Instant(r.u64()?);
    c.ca_state = match r.u8()? {
        0 => CaState::Open,
        1 => CaState::Disorder,
        2 => CaState::Cwr,
        3 => CaState::Recovery,
        4 => CaState::Loss,
        _ => return inconsistent("unknown congestion state"),
    };
    c.controller = match r.u8()? {
        0 => Controller::Cubic(Cubic {
            w_max: r.f64()?,
            k: r.f64()?,
            w_est: r.f64()?,
            cwnd_prior: r.f64()?,
            credit: r.f64()?,
            undo: (r.f64()?, r.f64()?),
            epoch_us: r.u64()?,
        }),
        1 => Controller::NewReno(NewReno { acked_bytes: r.u32()? }),
        _ => return inconsistent("unknown congestion control"),
    };
    c.hystart = HyStart {
        last_round_min_us: r.u32()?,
        round_min_us: r.u32()?,
        css_baseline_us: r.u32()?,
        window_end: r.seq()?,
        samples: r.u8()?,
        css_round: r.u8()?,
        in_css: r.bool()?,
        started: r.bool()?,
    };
    c.rack.sent_us = r.u64()?;
    c.rack.end = r.seq()?;
    c.rack.rtt_us = r.u32()?;
    c.rack.fack = r.seq()?;
    c.rack.reo_mult = r.u8()?;
    c.rack.reo_persist = r.u8()?;
    c.rack.reordering = r.bool()?;
    c.rack.reordering_bytes = r.u32()?;
    c.rack.dsack_round = r.opt_seq()?;
    c.prr.flight_bytes = r.u32()?;
    c.prr.delivered_bytes = r.u32()?;
    c.prr.out_bytes = r.u32()?;
    for v in [&mut c.dupacks, &mut c.backoff, &mut c.retransmits, &mut c.probes, &mut c.force_retx] {
        *v = r.u8()?;
    }
    c.frto = match r.u8()? {
        0 => Frto::Off,
        1 => Frto::Armed,
        2 => Frto::NewData2,
        3 => Frto::NewData1,
        4 => Frto::Waiting,
        _ => return inconsistent("unknown F-RTO state"),
    };
    let has_undo = r.bool()?;
    let undo = Undo { cwnd: r.u32()?, ssthresh: r.u32()?, open_retx: r.u32()?, any_retx: r.bool()? };
    c.undo = has_undo.then_some(undo);
    c.retrans_stamp = r.opt_u32()?;
    c.tlp_end = r.opt_seq()?;
    c.tlp_retrans = r.bool()?;
    c.tlp_pending = r.bool()?;
    c.window_probe = r.bool()?;
    c.keep_probe = r.bool()?;
    c.cwnd_limited = r.bool()?;
    c.probe.enabled = r.bool()?;
    c.probe.low = r.u16()?;
    c.probe.high = r.u16()?;
    c.probe.size = r.u16()?;
    c.probe.seq = r.seq()?;
    c.probe.tries = r.u8()?;
    c.probe.next_us = r.u64()?;
    c.rtx_timer = match r.u8()? {
        0 => RtxTimer::None,
        1 => RtxTimer::Rto,
        2 => RtxTimer::Tlp,
        3 => RtxTimer::Reorder,
        4 => RtxTimer::Persist,
        _ => return inconsistent("unknown timer"),
    };
    for v in [
        &mut c.rtx_at,
        &mut c.delack_at,
        &mut c.keep_at,
        &mut c.life_at,
        &mut c.cork_until,
        &mut c.pace_until,
        &mut c.last_recv.0,
        &mut c.last_send.0,
        &mut c.stalled_since,
        &mut c.last_oow_ack_us,
        &mut c.drs_start.0,
    ] {
        *v = r.u64()?;
    }
    c.drs_copied = r.u32()?;
    c.drs_space = r.u32()?;
    c.options = SocketOptions {
        nodelay: r.bool()?,
        cork: r.bool()?,
        quickack: r.bool()?,
        keepalive: Keepalive { enabled: r.bool()?, idle_us: r.u64()?, interval_us: r.u64()?, count: r.u8()? },
        user_timeout_us: r.u64()?,
        rcvbuf_bytes: r.opt_u32()?,
        sndbuf_bytes: r.opt_u32()?,
        linger_s: r.opt_u32()?,
        fin_wait2_us: r.u64()?,
        mss_max_bytes: r.u16()?,
        congestion: Some(match &c.controller {
            Controller::Cubic(_) => Algorithm::Cubic,
            Controller::NewReno(_) => Algorithm::NewReno,
        }),
    };
    let s = &mut c.stats;
    for v in [
        &mut s.bytes_acked,
        &mut s.bytes_received,
        &mut s.bytes_sent,
        &mut s.bytes_retrans,
        &mut s.segs_in,
        &mut s.segs_out,
        &mut s.last_data_sent_us,
        &mut s.last_data_recv_us,
        &mut s.last_ack_recv_us,
    ] {
        *v = r.u64()?;
    }
    c.stats.retrans_segs = r.u32()?;
    c.stats.dsack_dups = r.u32()?;
    c.sync_mss(host);
    let result = read_queues(host, r, &mut c);
    if let Err(e) = result {
        c.release(host);
        return Err(e);
    }
    // A window that opened elsewhere may let a writer on.
    c.nospace.set(true);
    Ok(c)
}

/// Segments in flight and the three byte queues.
fn read_queues(host: &mut Host, r: &mut Reader<'_>, c: &mut Conn) -> Read<()> {
    let n = r.u32()? as usize;
    if n > RECORDS_MAX || n * 17 > r.0.len() {
        return Err(ImportError::Length);
    }
    for _ in 0..n {
        let record = Record { sent_us: r.u64()?, seq: r.seq()?, len: r.u32()?, flags: r.u8()? };
        if record.flags & LOST != 0 {
            c.lost_bytes = c.lost_bytes.saturating_add(record.len);
        }
        if record.flags & RETX != 0 {
            c.retx_bytes = c.retx_bytes.saturating_add(record.len);
        }
        c.records.push_back(host, record);
    }
    c.sacked_bytes = r.u32()?;
    let len = r.u32()?;
    let unread = r.bytes(len as usize)?;
    if len > RING_MAX_BYTES || !c.rx.push(&mut host.pool, unread, Use::InOrder) {
        return Err(ImportError::NoRoom);
    }
    let ranges = r.u32()? as usize;
    if ranges > crate::reassembly::RANGES_MAX {
        return inconsistent("too many ranges out of order");
    }
    if ranges > 0 {
        let mut ooo = host.take_reassembly();
        let mut edge = c.rcv_nxt;
        let mut result = Ok(());
        for _ in 0..ranges {
            result = read_range(host, r, c, &mut ooo, &mut edge);
            if result.is_err() {
                break;
            }
        }
        c.ooo = Some(ooo);
        result?;
    }
    let sacks = r.u8()?;
    let mut blocks = [(Seq(0), Seq(0)); 4];
    for i in 0..sacks as usize {
        let block = (r.seq()?, r.seq()?);
        *blocks.get_mut(i).ok_or(ImportError::Inconsistent("too many SACK blocks"))? = block;
    }
    if let Some(ooo) = &mut c.ooo {
        ooo.set_sacks(&blocks[..sacks as usize]);
    }
    let len = r.u32()?;
    let unacked = r.bytes(len as usize)?;
    if len > RING_MAX_BYTES || !c.tx.push(&mut host.pool, unacked, Use::InOrder) {
        return Err(ImportError::NoRoom);
    }
    Ok(())
}

fn read_range(
    host: &mut Host,
    r: &mut Reader<'_>,
    c: &mut Conn,
    ooo: &mut crate::reassembly::Reassembly,
    edge: &mut Seq,
) -> Read<()> {
    let start = r.seq()?;
    let len = r.u32()?;
    let bytes = r.bytes(len as usize)?;
    let end = start.add(len);
    if len == 0 || len > RING_MAX_BYTES || start.le(*edge) || end.since(c.rcv_nxt) > RING_MAX_BYTES / 2 {
        return inconsistent("ranges out of order are not in order");
    }
    let live = c.rx.len() + edge.since(c.rcv_nxt);
    if !c.rx.store(&mut host.pool, c.rx.len() + start.since(c.rcv_nxt), bytes, live) {
        return Err(ImportError::NoRoom);
    }
    ooo.insert(start, end);
    *edge = end;
    Ok(())
}

/// What must hold between the fields, so that nothing later can go wrong.
fn check(c: &Conn) -> Read<()> {
    let s = &c.stats;
    let counts = [s.bytes_acked, s.bytes_received, s.bytes_sent, s.bytes_retrans, s.segs_in, s.segs_out];
    if counts.iter().any(|count| count >> 62 != 0) || s.retrans_segs >> 30 != 0 || s.dsack_dups >> 30 != 0 {
        return inconsistent("a count is larger than any connection can reach");
    }
    if c.pmtu < 68 || c.window.cwnd == 0 || c.window.cwnd > 1 << 30 {
        return inconsistent("path MTU or window is out of range");
    }
    if c.rcv_buf_bytes > RING_MAX_BYTES || c.rx.len() > RING_MAX_BYTES / 2 {
        return inconsistent("the receive buffer is out of range");
    }
    let data_end = c.data_end();
    let sent_end = data_end.add(u32::from(c.fin_sent));
    if c.snd_una.gt(c.snd_nxt) || c.snd_nxt.gt(sent_end) || c.fin_sent && !c.fin_queued {
        return inconsistent("send numbers are not in order");
    }
    if c.tx_base != c.snd_una && !(c.fin_sent && c.snd_una == sent_end && c.tx_base == data_end) {
        return inconsistent("the send queue does not begin at the first unacknowledged byte");
    }
    let mut at = c.snd_una;
    let mut sacked = 0u32;
    for r in c.records.iter() {
        if r.seq != at || r.len == 0 || r.flags & (SACKED | LOST) == SACKED | LOST || r.len > RING_MAX_BYTES {
            return inconsistent("segments in flight do not follow each other");
        }
        if r.flags & RETX != 0 && r.flags & LOST == 0 {
            return inconsistent("a segment is sent again and not lost");
        }
        if r.flags & SACKED != 0 {
            sacked += r.len;
        }
        at = r.end();
    }
    if at != c.snd_nxt {
        return inconsistent("segments in flight do not end at the next number");
    }
    let flight = c.snd_nxt.since(c.snd_una);
    if c.agreed.sack && sacked != c.sacked_bytes || c.sacked_bytes > flight {
        return inconsistent("the SACKed bytes do not add up");
    }
    if c.rcv_acked.gt(c.rcv_nxt) || c.rcv_adv.since(c.rcv_nxt) > RING_MAX_BYTES / 2 {
        return inconsistent("receive numbers are not in order");
    }
    let wants_fin = matches!(c.state, State::FinWait1 | State::FinWait2 | State::Closing | State::LastAck);
    let has_fin = matches!(c.state, State::CloseWait | State::Closing | State::LastAck);
    let live = wants_fin || has_fin || c.state == State::Established;
    if !live || wants_fin != c.fin_queued || has_fin != c.fin_received {
        return inconsistent("the state does not fit the FINs");
    }
    if c.rtx_timer == RtxTimer::None && c.rtx_at != NEVER {
        return inconsistent("a timer runs that does not exist");
    }
    Ok(())
}
