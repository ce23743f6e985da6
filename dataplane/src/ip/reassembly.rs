//! Fragments put together again, IPv4 and IPv6, within fixed bounds.
//!
//! Overlapping fragments end the packet (RFC 5722; for IPv4 as well: nobody honest sends them). A repeated
//! fragment with the same contents does not: networks duplicate.

use std::collections::{HashMap, VecDeque};

use ff_flowmap::FlowKey;
use ff_handover::DropReason;
use ff_tcp::Instant;

use super::parse::{Class, Fragment, IPV4_BYTES, IPV6_BYTES, Parsed};

/// What all unfinished packets together may take.
#[derive(Clone, Copy, Debug)]
pub struct ReassemblyLimits {
    /// Packets at once; beyond it the oldest is given up.
    pub packets_max: usize,
    /// Bytes of payload held at once; beyond it the oldest is given up.
    pub bytes_max: usize,
    /// Pieces that one packet may consist of at any moment.
    pub pieces_max: usize,
    /// Microseconds until an unfinished packet is given up (Linux: 30 s; RFC 8200: 60 s).
    pub timeout_us: u64,
}

impl Default for ReassemblyLimits {
    fn default() -> Self {
        Self { packets_max: 256, bytes_max: 4 << 20, pieces_max: 64, timeout_us: 30_000_000 }
    }
}

/// What became of a fragment.
#[derive(PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The packet is whole; it begins with its IP header.
    Whole(Vec<u8>),
    /// More has to come.
    Kept,
    /// The fragment is not used.
    Dropped(DropReason),
}

/// Packets that are not whole yet.
pub struct Reassembler {
    limits: ReassemblyLimits,
    packets: HashMap<PacketId, Packet>,
    /// In the order of their deadlines. May name packets that are gone: the serial tells.
    order: VecDeque<(Instant, PacketId, u64)>,
    bytes: usize,
    serial: u64,
    evicted: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct PacketId {
    ends: FlowKey,
    id: u32,
}

struct Packet {
    serial: u64,
    /// The header that goes before the payload: that of the first fragment.
    header: Option<Vec<u8>>,
    payload: Vec<u8>,
    /// Ranges of `payload` that are there, in order, not touching.
    pieces: Vec<(usize, usize)>,
    total: Option<usize>,
    /// An overlap was seen: everything of this packet is dropped until its time is up.
    poisoned: bool,
}

impl Reassembler {
    /// An empty reassembler.
    pub fn new(limits: ReassemblyLimits) -> Self {
        Self { limits, packets: HashMap::new(), order: VecDeque::new(), bytes: 0, serial: 0, evicted: 0 }
    }

    /// Takes a fragment; `parsed` must be what was read of `bytes`, and be a fragment.
    pub fn push(&mut self, now: Instant, parsed: &Parsed, bytes: &[u8]) -> Outcome {
        let Class::Fragment(fragment) = parsed.class else {
            return Outcome::Dropped(DropReason::BadIpHeader);
        };
        let part = parsed.l4_bytes(bytes);
        let start = usize::from(fragment.offset);
        let end = start + part.len();
        let Some(header) = header_of(parsed, &fragment, bytes) else {
            return Outcome::Dropped(DropReason::BadIpHeader);
        };
        // A part that is not the last must be a multiple of 8 bytes (RFC 791; RFC 8200, section 4.5), and the
        // whole must fit into the length field.
        let counted = header.len() - if parsed.key.family == 4 { 0 } else { IPV6_BYTES };
        if part.is_empty()
            || (fragment.more && !part.len().is_multiple_of(8))
            || end + counted > usize::from(u16::MAX)
        {
            return Outcome::Dropped(DropReason::BadFragment);
        }
        // The protocol is part of the name in IPv4, not in IPv6, where a later fragment may show another.
        let mut ends = parsed.key;
        if ends.family == 6 {
            ends.protocol = 0;
        }
        let id = PacketId { ends, id: fragment.id };
        self.make_room(&id, end);
        let packet = match self.packets.entry(id) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => {
                self.serial += 1;
                self.order.push_back((Instant(now.0 + self.limits.timeout_us), id, self.serial));
                place.insert(Packet::new(self.serial))
            }
        };
        let before = packet.payload.len();
        let verdict = packet.add(start, part, fragment.more, self.limits.pieces_max);
        if start == 0 && verdict.is_ok() && packet.header.is_none() {
            packet.header = Some(header.to_vec());
        }
        self.bytes = self.bytes + packet.payload.len() - before;
        match verdict {
            Err(reason) => Outcome::Dropped(reason),
            Ok(()) if packet.is_whole() => match self.remove(&id) {
                Some(packet) => Outcome::Whole(packet.assemble(parsed.key.family, parsed.key.protocol)),
                None => Outcome::Kept,
            },
            Ok(()) => Outcome::Kept,
        }
    }

    /// Gives up packets whose time is over, and hands the beginning of each whose first fragment is there to
    /// `expired` (for "time exceeded", RFC 1122, section 3.3.2). Says how many packets it gave up.
    pub fn expire(&mut self, now: Instant, mut expired: impl FnMut(Vec<u8>)) -> usize {
        let mut count = 0;
        while let Some((deadline, id, serial)) = self.order.front().copied() {
            let alive = self.packets.get(&id).is_some_and(|packet| packet.serial == serial);
            if alive && deadline > now {
                break;
            }
            self.order.pop_front();
            if !alive {
                continue;
            }
            if let Some(mut packet) = self.remove(&id) {
                count += 1;
                let first_bytes = packet.pieces.first().filter(|p| p.0 == 0).map_or(0, |p| p.1);
                if packet.header.is_some() && !packet.poisoned {
                    packet.payload.truncate(first_bytes);
                    expired(packet.assemble(id.ends.family, id.ends.protocol));
                }
            }
        }
        count
    }

    /// When [`expire`](Self::expire) has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.order.front().map(|(deadline, ..)| *deadline)
    }

    /// Packets given up for want of room since the last call.
    pub fn take_evicted(&mut self) -> u64 {
        std::mem::take(&mut self.evicted)
    }

    /// Unfinished packets.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// No unfinished packet.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Bytes of payload that they hold.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives up the oldest packets until one with a payload of `end` bytes, named `id`, has room.
    fn make_room(&mut self, id: &PacketId, end: usize) {
        loop {
            // Anew each time: the packet given up may have been this one.
            let known = self.packets.get(id);
            let new_packets = usize::from(known.is_none());
            let new_bytes = end.saturating_sub(known.map_or(0, |packet| packet.payload.len()));
            let fits = self.packets.len() + new_packets <= self.limits.packets_max
                && (self.bytes + new_bytes <= self.limits.bytes_max || self.packets.is_empty());
            if fits {
                break;
            }
            let Some((_, oldest, serial)) = self.order.pop_front() else { return };
            if self.packets.get(&oldest).is_some_and(|packet| packet.serial == serial) {
                self.remove(&oldest);
                self.evicted += 1;
            }
        }
        // Names of packets that are gone must not pile up behind a long-lived first one.
        if self.order.len() > 4 * self.limits.packets_max {
            let packets = &self.packets;
            self.order.retain(|(_, id, serial)| packets.get(id).is_some_and(|p| p.serial == *serial));
        }
    }

    fn remove(&mut self, id: &PacketId) -> Option<Packet> {
        let packet = self.packets.remove(id)?;
        self.bytes -= packet.payload.len();
        Some(packet)
    }
}

impl Packet {
    fn new(serial: u64) -> Self {
        Self { serial, header: None, payload: Vec::new(), pieces: Vec::new(), total: None, poisoned: false }
    }

    fn add(&mut self, start: usize, part: &[u8], more: bool, pieces_max: usize) -> Result<(), DropReason> {
        let end = start + part.len();
        if self.poisoned {
            return Err(DropReason::BadFragment);
        }
        let contradicts = match self.total {
            Some(total) => end > total || (!more && end != total),
            None => !more && self.pieces.last().is_some_and(|piece| piece.1 > end),
        };
        // Where the piece belongs: before the first that begins behind it.
        let at = self.pieces.partition_point(|piece| piece.0 <= start);
        let touches_before = at > 0 && self.pieces[at - 1].1 > start;
        let touches_after = self.pieces.get(at).is_some_and(|piece| piece.0 < end);
        if touches_before && self.pieces[at - 1].1 >= end && self.payload[start..end] == *part && !contradicts
        {
            return Ok(());
        }
        if contradicts || touches_before || touches_after {
            self.poison();
            return Err(DropReason::BadFragment);
        }
        if self.pieces.len() >= pieces_max {
            self.poison();
            return Err(DropReason::BadFragment);
        }
        if self.payload.len() < end {
            self.payload.resize(end, 0);
        }
        self.payload[start..end].copy_from_slice(part);
        if !more {
            self.total = Some(end);
        }
        self.pieces.insert(at, (start, end));
        if at + 1 < self.pieces.len() && self.pieces[at + 1].0 == end {
            self.pieces[at].1 = self.pieces[at + 1].1;
            self.pieces.remove(at + 1);
        }
        if at > 0 && self.pieces[at - 1].1 == start {
            self.pieces[at - 1].1 = self.pieces[at].1;
            self.pieces.remove(at);
        }
        Ok(())
    }

    fn poison(&mut self) {
        self.poisoned = true;
        self.payload = Vec::new();
        self.pieces = Vec::new();
        self.header = None;
    }

    fn is_whole(&self) -> bool {
        self.header.is_some() && self.total.is_some_and(|total| self.pieces == [(0, total)])
    }

    /// The packet with its lengths set right, and without any sign of fragmentation.
    fn assemble(self, family: u8, protocol: u8) -> Vec<u8> {
        let mut packet = self.header.unwrap_or_default();
        if family == 4 {
            let total = (packet.len() + self.payload.len()) as u16;
            packet[2..4].copy_from_slice(&total.to_be_bytes());
            packet[6..8].fill(0);
            packet[9] = protocol;
        } else {
            let payload = (packet.len() - IPV6_BYTES + self.payload.len()) as u16;
            packet[4..6].copy_from_slice(&payload.to_be_bytes());
        }
        packet.extend_from_slice(&self.payload);
        packet
    }
}

/// The header that a packet gets from its first fragment: IPv4 with options, or IPv6 with what stands before
/// the fragment header, whose next header takes the fragment header's place.
fn header_of(parsed: &Parsed, fragment: &Fragment, bytes: &[u8]) -> Option<Vec<u8>> {
    let l3 = usize::from(parsed.l3);
    if parsed.key.family == 4 {
        let header = bytes.get(l3..usize::from(parsed.l4))?;
        return (header.len() >= IPV4_BYTES).then(|| header.to_vec());
    }
    let mut header = bytes.get(l3..usize::from(fragment.header_at))?.to_vec();
    if header.len() < IPV6_BYTES {
        return None;
    }
    *header.get_mut(usize::from(fragment.next_header_at).checked_sub(l3)?)? = parsed.key.protocol;
    Some(header)
}

#[cfg(test)]
mod tests;
