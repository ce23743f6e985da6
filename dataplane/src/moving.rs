//! Connections that change the process, on purpose and as a whole: idle ones that the application of an old generation
//! gives up only because it ends.
//!
//! The connection's record goes to the worker of the same index in the generation that has the receive side, as a
//! frame in the ring between the two. Packets of the connection meet it on its way: the new owner of the queue asks the
//! flow tables, and as long as the old worker's names the flow, forwards to it. So the order is: the record into the
//! ring, then the flow out of the old table. Who does not find the flow in any table finds the record in its inbox, and
//! looks there before it believes the flow to be nobody's. What was forwarded to the old worker and finds the flow
//! gone goes the record's way, behind it in the same ring: always to a newer generation, so it comes to an end.

use ff_flowmap::FlowIndex;
use ff_handover::DropReason;
use ff_tcp::State;

use crate::dispatch::Own;
use crate::input::Origin;
use crate::io::{Frame, PacketIo};
use crate::ip::parse::{self, Class, ETHERNET_BYTES, Parsed};
use crate::sockets::SocketId;
use crate::sockets::table::Body;
use crate::stack::Stack;

/// EtherType of a record's frame: "local experimental" (IEEE 802). Only what comes out of an inbox is looked at for it,
/// and the dispatcher puts no received frame of that type there.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
/// Looks into the inboxes at most this often in a row.
const INBOX_ROUNDS: usize = 16;

/// SYN and ACK in a TCP header's flags (RFC 9293, section 3.1).
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

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

/// Whether a packet of no known flow may be one of a connection that has moved.
fn may_have_moved(parsed: &Parsed, own: Own) -> bool {
    match parsed.class {
        Class::Tcp { flags } => own == Own::Unknown && flags & (SYN | ACK) != SYN,
        _ => false,
    }
}

impl<P: PacketIo, I: FlowIndex> Stack<P, I> {
    /// The application gives the connection `s` up because it ends, and not because the connection has to: gives it to
    /// the generation that has the receive side, to be accepted there anew. False when that is not possible; nothing
    /// has changed then. `unread`: only if the application has read nothing of it yet.
    pub fn hand_on(&mut self, s: SocketId, unread: bool) -> bool {
        let Some(to) = self.orders.as_ref().and_then(|orders| orders.successor()) else { return false };
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
        let Some(mut frame) = self.io.alloc() else { return false };
        let mut bytes = vec![0; ETHERNET_BYTES];
        bytes[12..14].copy_from_slice(&ETHERTYPE);
        // The socket's number means nothing where it goes.
        self.engine.set_token(conn, 0);
        let recorded =
            self.engine.record(self.now, conn, &mut bytes).is_ok() && bytes.len() <= frame.capacity();
        if recorded {
            frame.set_len(bytes.len());
            frame.bytes_mut().copy_from_slice(&bytes);
        }
        if !recorded || self.io.forward(to, frame).is_err() {
            self.engine.set_token(conn, s.to_u64());
            return false;
        }
        self.moved_to = Some(to);
        self.engine.part_with(conn);
        // It was there a moment ago.
        let _ = self.sockets.remove(s);
        true
    }

    /// A record came.
    pub(crate) fn take_record(&mut self, frame: &[u8]) {
        let record = frame.get(ETHERNET_BYTES..).unwrap_or_default();
        if self.engine.import_unaccepted(self.now, record).is_err() {
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
