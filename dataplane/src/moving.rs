//! Connections that change the process, on purpose and as a whole: idle ones that the application of an old generation
//! gives up only because it ends; what waits at a listener that it closes for the same reason: handshakes half done, and
//! connections that it has not accepted; and TIME-WAIT entries.
//!
//! The connection's record goes to the worker of the same index in the generation that has the receive side, in one or
//! several frames in the ring between the two. Packets of the connection meet it on its way: the new owner of the queue asks the
//! flow tables, and as long as the old worker's names the flow, forwards to it. So the order is: the record into the
//! ring, then the flow out of the old table. Who does not find the flow in any table finds the record in its inbox, and
//! looks there before it believes the flow to be nobody's. What was forwarded to the old worker and finds the flow
//! gone goes the record's way, behind it in the same ring: always to a newer generation, so it comes to an end.

use ff_flowmap::FlowIndex;
use ff_handover::DropReason;
use ff_tcp::{ImportError, ListenerId, State};

use crate::dispatch::Own;
use crate::input::Origin;
use crate::io::{Frame, PacketIo, WorkerRef};
use crate::ip::parse::{self, Class, ETHERNET_BYTES, Parsed};
use crate::orders::Orders;
use crate::sockets::SocketId;
use crate::sockets::table::Body;
use crate::stack::Stack;

/// EtherType of a record's frame: "local experimental" (IEEE 802). Only what comes out of an inbox is looked at for it,
/// and the dispatcher puts no received frame of that type there.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
/// Bytes of a record in one frame: every device has mbufs of this size.
const PART_BYTES: usize = 1_400;
/// A longer record is not sent, and not believed.
const RECORD_BYTES_MAX: usize = 1 << 20;
/// Records of TIME-WAIT entries that one pass sends at most: the ring is there for connections first.
const TIME_WAIT_RECORDS_PER_PASS: usize = 8;
/// Looks into the inboxes at most this often in a row.
const INBOX_ROUNDS: usize = 16;

/// What a connection's application has read first: whether the stream may begin anew before another process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum FirstBytes {
    /// Nothing.
    #[default]
    None,
    /// A request of HTTP/1: between two of them nothing is left of the one before.
    Http1,
    /// Anything else, TLS and HTTP/2 for example, whose state is in the application.
    Other,
}

impl FirstBytes {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let method = bytes.iter().take(24).position(|byte| *byte == b' ').map(|end| &bytes[..end]);
        match method {
            // `PROXY` is a header before the stream, `PRI` the beginning of HTTP/2 (RFC 9113, section 3.4).
            Some(b"PROXY" | b"PRI" | b"") | None => Self::Other,
            Some(method) if method.iter().all(u8::is_ascii_uppercase) => Self::Http1,
            Some(_) => Self::Other,
        }
    }
}

/// Whether an inbox's frame is a record.
pub(crate) fn is_record(bytes: &[u8]) -> bool {
    bytes.get(12..14) == Some(&ETHERTYPE)
}

/// Whether a packet of no known flow may be one of a connection that has moved: also a repeated SYN, of a handshake that
/// was half done.
fn may_have_moved(parsed: &Parsed, own: Own) -> bool {
    matches!(parsed.class, Class::Tcp { .. }) && own == Own::Unknown
}

/// The header of a record's frame, in the place of an Ethernet header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PartHeader {
    /// Bytes of the record.
    total: usize,
    /// Place of this frame's bytes in it.
    offset: usize,
    /// Who sends it. Its frames come one behind the other, and so do its records; those of several workers may mix.
    from: WorkerRef,
}

impl PartHeader {
    fn write(self) -> [u8; ETHERNET_BYTES] {
        let mut bytes = [0; ETHERNET_BYTES];
        bytes[..4].copy_from_slice(&(self.total as u32).to_le_bytes());
        bytes[4..8].copy_from_slice(&(self.offset as u32).to_le_bytes());
        bytes[8..10].copy_from_slice(&self.from.slot.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.from.index.to_le_bytes());
        bytes[12..].copy_from_slice(&ETHERTYPE);
        bytes
    }

    fn read(frame: &[u8]) -> Option<Self> {
        let bytes: &[u8; ETHERNET_BYTES] = frame.first_chunk()?;
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Some(Self {
            total: word(0) as usize,
            offset: word(4) as usize,
            from: WorkerRef { slot: half(8), index: half(10) },
        })
    }
}

/// Records of which some frames have come, by sender.
#[derive(Default)]
pub(crate) struct Unfinished(Vec<(WorkerRef, Vec<u8>)>);

impl Unfinished {
    /// Takes a frame; gives the record that it completes. A sender that gives up in the middle, or is replaced by
    /// another process, begins its next record anew.
    fn push(&mut self, header: PartHeader, part: &[u8]) -> Option<Vec<u8>> {
        let PartHeader { total, offset, from } = header;
        let place = self.0.iter().position(|(sender, _)| *sender == from);
        let mut record = match place {
            Some(place) => self.0.swap_remove(place).1,
            None => Vec::new(),
        };
        if offset == 0 {
            record.clear();
        }
        if record.len() != offset || offset + part.len() > total || total > RECORD_BYTES_MAX {
            return None;
        }
        record.extend_from_slice(part);
        if record.len() == total {
            return Some(record);
        }
        self.0.push((from, record));
        None
    }
}

/// Puts a record into the inbox of `to`. False: the inbox does not have it, or a part of it that is worth nothing.
fn send_record<P: PacketIo>(io: &mut P, from: WorkerRef, to: WorkerRef, record: &[u8]) -> bool {
    if record.len() > RECORD_BYTES_MAX {
        return false;
    }
    record.chunks(PART_BYTES).enumerate().all(|(number, part)| {
        let header = PartHeader { total: record.len(), offset: number * PART_BYTES, from };
        let bytes = ETHERNET_BYTES + part.len();
        let Some(mut frame) = io.alloc().filter(|frame| frame.capacity() >= bytes) else { return false };
        frame.set_len(bytes);
        frame.bytes_mut()[..ETHERNET_BYTES].copy_from_slice(&header.write());
        frame.bytes_mut()[ETHERNET_BYTES..].copy_from_slice(part);
        io.forward(to, frame).is_ok()
    })
}

impl<P: PacketIo, I: FlowIndex> Stack<P, I> {
    /// The application gives the connection `s` up because it ends, and not because the connection has to: gives it to
    /// the generation that has the receive side, to be accepted there anew. False when that is not possible; nothing
    /// has changed then. `unread`: only if the application has read nothing of it yet.
    pub fn hand_on(&mut self, s: SocketId, unread: bool) -> bool {
        let Some(to) = self.orders.as_ref().and_then(Orders::successor) else { return false };
        let Ok(socket) = self.sockets.get(s) else { return false };
        let Body::TcpConn { conn } = socket.body else { return false };
        let begins_anew = match socket.flags.first_bytes {
            FirstBytes::Http1 => !unread,
            FirstBytes::None => {
                let sent = self.engine.info(conn).map(|info| info.bytes_sent);
                sent == Some(socket.flags.sent_before)
            }
            FirstBytes::Other => false,
        };
        if !socket.flags.accepted || !begins_anew || self.engine.state(conn) != Some(State::Established) {
            return false;
        }
        let mut record = Vec::new();
        // The socket's number means nothing where it goes.
        self.engine.set_token(conn, 0);
        let recorded = self.engine.record(self.now, conn, &mut record).is_ok();
        if !recorded || !send_record(&mut self.io, self.view.me, to, &record) {
            self.engine.set_token(conn, s.to_u64());
            return false;
        }
        self.moved_to = Some(to);
        self.engine.part_with(conn);
        // It was there a moment ago.
        let _ = self.sockets.remove(s);
        true
    }

    /// The last socket of a listener is closed. What waits there goes to the worker that has the receive side by now,
    /// if there is one: nobody here will accept it.
    pub(crate) fn end_listener(&mut self, listener: ListenerId) {
        self.leaving.push(listener);
        self.give_leaving();
    }

    /// Gives away what waits at listeners that nobody holds any more, and closes them. What does not fit into the inbox
    /// at once, or whose new owner has just died and is about to be replaced, waits here for the next pass; handshakes
    /// go on meanwhile.
    pub(crate) fn give_leaving(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let superseded = self.orders.as_ref().is_some_and(Orders::is_superseded);
        let to = self.orders.as_ref().and_then(Orders::successor);
        for listener in std::mem::take(&mut self.leaving) {
            let gone = match to {
                Some(to) => {
                    self.moved_to = Some(to);
                    let (io, me) = (&mut self.io, self.view.me);
                    self.engine.give_unaccepted(self.now, listener, |record| send_record(io, me, to, record))
                }
                None => !superseded || self.is_deserted(listener),
            };
            if gone {
                self.engine.close_listener(listener);
            } else {
                self.leaving.push(listener);
            }
        }
    }

    /// A generation that has given its queues away keeps no TIME-WAIT entries: a client that comes again from the same
    /// port would be sent here by the flow table, and here nobody listens.
    pub(crate) fn give_time_waits(&mut self) {
        if self.engine.time_wait_count() == 0 {
            return;
        }
        let Some(to) = self.orders.as_ref().and_then(Orders::successor) else { return };
        self.moved_to = Some(to);
        let (io, me) = (&mut self.io, self.view.me);
        // The others in the next passes.
        let mut left = TIME_WAIT_RECORDS_PER_PASS;
        self.engine.give_time_waits(self.now, |record| {
            let taken = left > 0 && send_record(io, me, to, record);
            left -= usize::from(taken);
            taken
        });
    }

    /// Whether nobody waits at a listener.
    fn is_deserted(&self, listener: ListenerId) -> bool {
        self.engine.accept_queue_len(listener) + self.engine.listener_request_count(listener) == 0
    }

    /// What waits at listeners that are about to close.
    pub(crate) fn leaving_len(&self) -> usize {
        let waits =
            |id: &ListenerId| self.engine.accept_queue_len(*id) + self.engine.listener_request_count(*id);
        self.leaving.iter().map(waits).sum()
    }

    /// A frame of a record came.
    pub(crate) fn take_record(&mut self, frame: &[u8]) {
        let Some(header) = PartHeader::read(frame) else { return };
        let part = &frame[ETHERNET_BYTES..];
        let whole;
        let record = if header.offset == 0 && header.total == part.len() {
            part
        } else {
            let Some(record) = self.unfinished.push(header, part) else { return };
            whole = record;
            &whole[..]
        };
        let taken = match self.engine.import_request(self.now, record) {
            Err(ImportError::Magic) => match self.engine.import_time_waits(self.now, record) {
                Err(ImportError::Magic) => self.engine.import_unaccepted(self.now, record),
                result => result,
            },
            result => result,
        };
        if taken.is_err() {
            // No room: the peer finds out with its next segment.
            self.ip.drops.count(DropReason::FlowTableFull);
        }
    }

    /// A packet that is nobody's by the tables. True if it is worth another look, since a record came meanwhile.
    pub(crate) fn look_for_record(&mut self, parsed: &Parsed, own: Own, origin: Origin) -> bool {
        if origin != Origin::Queue || self.view.others.is_empty() || !may_have_moved(parsed, own) {
            return false;
        }
        let mut late = Vec::new();
        let mut found = false;
        for _ in 0..INBOX_ROUNDS {
            if self.io.receive_forwarded(&mut late) == 0 {
                break;
            }
            for frame in late.drain(..) {
                found = true;
                self.take_forwarded(frame);
            }
        }
        found
    }

    fn take_forwarded(&mut self, frame: P::Frame) {
        if is_record(frame.bytes()) {
            return self.take_record(frame.bytes());
        }
        match parse::parse(frame.bytes(), self.ip.addresses.mac(), frame.rx_checksum()) {
            Ok(parsed) => self.take_frame(frame, &parsed, Origin::Forwarded),
            Err(reason) => self.ip.drops.count(reason),
        }
    }

    /// Where a packet goes that was forwarded here for a flow that has moved on meanwhile.
    pub(crate) fn follows_record(&self, parsed: &Parsed, own: Own, origin: Origin) -> bool {
        origin == Origin::Forwarded && self.moved_to.is_some() && may_have_moved(parsed, own)
    }

    /// Sends it there.
    pub(crate) fn forward_after_record(&mut self, frame: P::Frame) {
        if let Some(to) = self.moved_to
            && self.io.forward(to, frame).is_err()
        {
            self.ip.drops.count(DropReason::ForwardFull);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_in_several_frames() {
        let from = |index| WorkerRef { slot: 1, index };
        let header = |offset, index| PartHeader { total: 5, offset, from: from(index) };
        assert_eq!(PartHeader::read(&header(3, 2).write()), Some(header(3, 2)));
        assert!(is_record(&header(3, 2).write()));
        let mut unfinished = Unfinished::default();
        // Of two senders at once.
        assert_eq!(unfinished.push(header(0, 0), b"abc"), None);
        assert_eq!(unfinished.push(header(0, 1), b"1234"), None);
        assert_eq!(unfinished.push(header(3, 0), b"de"), Some(b"abcde".to_vec()));
        // Given up, and begun anew.
        assert_eq!(unfinished.push(header(0, 1), b"678"), None);
        assert_eq!(unfinished.push(header(3, 1), b"90"), Some(b"67890".to_vec()));
        // Nonsense: a gap, too much, a beginning that nobody has seen.
        assert_eq!(unfinished.push(header(0, 0), b"ab"), None);
        assert_eq!(unfinished.push(header(3, 0), b"de"), None);
        assert_eq!(unfinished.push(header(0, 0), b"abcdef"), None);
        assert_eq!(unfinished.push(header(2, 0), b"cde"), None);
        assert!(unfinished.0.is_empty());
    }

    #[test]
    fn what_may_begin_anew() {
        for request in ["GET / HTTP/1.1\r\n", "POST /a", "PROPFIND / HTTP/1.1", "M-SEARCH"] {
            let expected = if request.contains('-') { FirstBytes::Other } else { FirstBytes::Http1 };
            assert_eq!(FirstBytes::of(request.as_bytes()), expected, "{request}");
        }
        for other in [
            &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
            b"PROXY TCP4 198.18.0.1 198.18.0.2 1 2\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"\r\n\r\n\0\r\nQUIT\n",
            b"G",
            b" x",
            b"",
        ] {
            assert_eq!(FirstBytes::of(other), FirstBytes::Other, "{other:?}");
        }
    }
}
