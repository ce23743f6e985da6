//! What no user holds goes to another engine as a whole, when another process listens in this one's place: handshakes
//! half done, connections that nobody has accepted, and TIME-WAIT entries, which only an engine with a listener can end
//! for a new connection (RFC 6191).
//!
//! A half-open handshake has a record of its own: magic `FFTR`, and then as a connection's (see `export.rs`); TIME-WAIT
//! entries have one for many: magic `FFTT`. An established connection that waits to be accepted has a connection's.

use ff_flowmap::FlowIndex;

use crate::engine::{Engine, Target};
use crate::export::{self, ImportError, Reader, Writer, inconsistent};
use crate::header::{ACK, RST};
use crate::host::{Bare, Reply, Sacks};
use crate::listen::Request;
use crate::socket::{ConnId, ListenerId};
use crate::time::Instant;
use crate::timewait::TimeWait;

const MAGIC: [u8; 4] = *b"FFTR";
const TIME_WAIT_MAGIC: [u8; 4] = *b"FFTT";
/// TIME-WAIT entries in one record: about what a packet holds.
const TIME_WAITS_PER_RECORD: usize = 24;
/// Version of the layout: one more whenever a field changes.
const VERSION: u16 = 1;

impl<I: FlowIndex> Engine<I> {
    /// Gives away what waits at a listener: accepted by nobody, or half open. `give` gets a record at a time, for
    /// [`import_unaccepted`](Self::import_unaccepted) or [`import_request`](Self::import_request) of the other
    /// engine, and says whether it has put it where that engine looks before it believes the flow to be nobody's;
    /// only then the flow leaves this engine. Ends at the first record that is not taken. Says whether all were.
    ///
    /// Connections that are over by now stay behind.
    pub fn give_unaccepted(
        &mut self,
        now: Instant,
        id: ListenerId,
        mut give: impl FnMut(&[u8]) -> bool,
    ) -> bool {
        self.tick(now);
        let Some(listener) = self.listeners.slab.get_checked(id.index, id.generation) else { return true };
        let waiting: Vec<(u32, u32)> = listener.accept_queue.iter().copied().collect();
        let own = (id.index, id.generation);
        let half_open: Vec<u32> = match listener.requests {
            0 => Vec::new(),
            _ => self.requests.slab.iter().filter(|(_, _, r)| r.listener == own).map(|(i, _, _)| i).collect(),
        };
        let mut record = Vec::new();
        // In the order in which they came: the other listener's users accept them in it.
        let mut taken = true;
        for (index, generation) in waiting {
            let conn = ConnId { index, generation };
            record.clear();
            if self.record(now, conn, &mut record).is_err() {
                continue;
            }
            taken = give(&record);
            if !taken {
                break;
            }
            self.part_with(conn);
        }
        let conns = &self.conns;
        if let Some(listener) = self.listeners.slab.get_checked_mut(id.index, id.generation) {
            listener
                .accept_queue
                .retain(|&(index, generation)| conns.get_checked(index, generation).is_some());
        }
        if !taken {
            return false;
        }
        for i in half_open {
            let Some(request) = self.requests.slab.get(i) else { continue };
            record.clear();
            let start = export::begin(&mut record, MAGIC, VERSION);
            write_request(request, &mut Writer(&mut record));
            export::seal(&mut record, start);
            if !give(&record) {
                return false;
            }
            self.host.counters.exports += 1;
            self.drop_request(i);
        }
        true
    }

    /// Takes a half-open handshake over. It belongs to the listener at its local address; without one the peer is
    /// reset, as a SYN to that address would be.
    ///
    /// # Errors
    /// Nothing has changed. [`ImportError::Magic`]: it is no record of a handshake.
    pub fn import_request(&mut self, now: Instant, record: &[u8]) -> Result<(), ImportError> {
        self.tick(now);
        let mut r = export::unseal(record, MAGIC, VERSION)?;
        let mut request = read_request(&mut r)?;
        if !r.0.is_empty() {
            return Err(ImportError::Length);
        }
        let key = request.key;
        if self.index.lookup(&key).is_some() {
            return Err(ImportError::InUse);
        }
        let local = key.local_addr();
        let listener = self.listeners.find(local.ip(), local.port());
        let Some(of) = listener.and_then(|l| Some((l, self.listeners.slab.generation(l)?))) else {
            self.host.counters.rst_out += 1;
            self.host.reply(Reply::Bare(Bare {
                key,
                seq: request.iss.add(1),
                ack: request.irs.add(1),
                flags: RST | ACK,
                window: 0,
                timestamps: None,
                sacks: Sacks::default(),
            }));
            return Ok(());
        };
        if self.requests.slab.len() >= self.host.config.requests_max as usize {
            return Err(ImportError::NoRoom);
        }
        request.listener = of;
        let (i, _) = self.requests.adopt(request, now);
        if self.index.insert(&key, Target::Request(i).to_ref()).is_err() {
            self.requests.remove(i);
            return Err(ImportError::NoRoom);
        }
        if let Some(listener) = self.listeners.slab.get_checked_mut(of.0, of.1) {
            listener.requests += 1;
        }
        self.host.counters.imports += 1;
        Ok(())
    }

    /// Gives the TIME-WAIT entries away, as [`give_unaccepted`](Self::give_unaccepted) gives what waits: records for
    /// [`import_time_waits`](Self::import_time_waits), the oldest entries first, until one is not taken. Says whether all
    /// were.
    pub fn give_time_waits(&mut self, now: Instant, mut give: impl FnMut(&[u8]) -> bool) -> bool {
        self.tick(now);
        let mut record = Vec::new();
        let mut entries = Vec::with_capacity(TIME_WAITS_PER_RECORD);
        while self.time_waits.len() > 0 {
            entries.clear();
            entries.extend(self.time_waits.iter_oldest_first().take(TIME_WAITS_PER_RECORD));
            record.clear();
            let start = export::begin(&mut record, TIME_WAIT_MAGIC, VERSION);
            let mut w = Writer(&mut record);
            w.u16(entries.len() as u16);
            for entry in entries.iter().filter_map(|i| self.time_waits.get(*i)) {
                export::write_key(&entry.key(), &mut w);
                w.seq(entry.snd_nxt);
                w.seq(entry.rcv_nxt);
                w.bool(entry.timestamps());
                w.u32(entry.ts_recent);
                w.u16(entry.window);
                w.u32(entry.expires_ms());
            }
            export::seal(&mut record, start);
            if !give(&record) {
                return false;
            }
            entries.iter().for_each(|i| self.drop_time_wait(*i));
            self.host.counters.exports += entries.len() as u64;
        }
        true
    }

    /// Takes TIME-WAIT entries over; they end when they would have ended where they come from. One whose flow is known
    /// here, or for which there is no room, is left out.
    ///
    /// # Errors
    /// Nothing has changed. [`ImportError::Magic`]: it is no record of such entries.
    pub fn import_time_waits(&mut self, now: Instant, record: &[u8]) -> Result<(), ImportError> {
        self.tick(now);
        let mut r = export::unseal(record, TIME_WAIT_MAGIC, VERSION)?;
        let count = r.u16()?;
        let mut entries = Vec::new();
        for _ in 0..count {
            let key = export::read_key(&mut r)?;
            let (snd_nxt, rcv_nxt) = (r.seq()?, r.seq()?);
            let (timestamps, ts_recent) = (r.bool()?, r.u32()?);
            let window = r.u16()?;
            let entry = TimeWait::new(&key, snd_nxt, rcv_nxt, timestamps.then_some(ts_recent), window);
            let expires_ms = r.u32()?;
            // Not longer than an entry of this engine's would last.
            let longest_us = now.0 + 2 * self.host.config.msl_us;
            let longest_ms = longest_us.div_ceil(1_000) as u32;
            let over = expires_ms.wrapping_sub(longest_ms) as i32 > 0;
            entries.push((key, entry.until(if over { longest_ms } else { expires_ms })));
        }
        if !r.0.is_empty() {
            return Err(ImportError::Length);
        }
        for (key, entry) in entries {
            let full = self.time_waits.len() >= self.host.config.time_wait_max as usize;
            if full || self.index.lookup(&key).is_some() {
                continue;
            }
            let i = self.time_waits.adopt(entry);
            if self.index.insert(&key, Target::TimeWait(i).to_ref()).is_err() {
                self.time_waits.remove(i);
                continue;
            }
            self.host.counters.imports += 1;
        }
        Ok(())
    }
}

fn write_request(request: &Request, w: &mut Writer<'_>) {
    export::write_key(&request.key, w);
    w.seq(request.irs);
    w.seq(request.iss);
    w.u32(request.ts_recent);
    w.u16(request.peer_mss);
    w.u16(request.window);
    w.bool(request.peer_wscale.is_some());
    w.u8(request.peer_wscale.unwrap_or(0));
    w.u8(request.own_wscale);
    w.bool(request.sack);
    w.bool(request.timestamps);
    w.bool(request.ecn);
    w.bool(request.acked);
    w.u8(request.retries);
    w.u8(request.answers);
    w.u64(request.begun.0);
    w.u64(request.sent.0);
}

fn read_request(r: &mut Reader<'_>) -> Result<Request, ImportError> {
    let key = export::read_key(r)?;
    let (irs, iss, ts_recent) = (r.seq()?, r.seq()?, r.u32()?);
    let (peer_mss, window) = (r.u16()?, r.u16()?);
    let scaled = r.bool()?;
    let (theirs, ours) = (r.u8()?, r.u8()?);
    if theirs > 14 || ours > 14 {
        return inconsistent("a window scale is over 14");
    }
    if peer_mss == 0 {
        return inconsistent("the largest segment has no byte");
    }
    let (sack, timestamps, ecn, acked) = (r.bool()?, r.bool()?, r.bool()?, r.bool()?);
    let (retries, answers) = (r.u8()?, r.u8()?);
    let (begun, sent) = (Instant(r.u64()?), Instant(r.u64()?));
    // Of no listener yet.
    let mut request =
        Request::new(key, (0, 0), irs, iss, peer_mss, window, scaled.then_some(theirs), ours, begun);
    request.ts_recent = ts_recent;
    request.sack = sack;
    request.timestamps = timestamps;
    request.ecn = ecn;
    request.acked = acked;
    request.retries = retries;
    request.answers = answers;
    request.sent = sent;
    Ok(request)
}
