//! The TCP header and its options: parsing without trust, writing without
//! allocation (RFC 9293, 3.1; RFC 7323; RFC 2018).
//!
//! Options have a parser of their own: up to four SACK blocks must be read and
//! written, and the wire crate stops at three.

use smoltcp::wire::TcpPacket;

use crate::reassembly::Range;
use crate::seq::Seq;

pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const PSH: u8 = 0x08;
pub(crate) const ACK: u8 = 0x10;
pub(crate) const URG: u8 = 0x20;
pub(crate) const ECE: u8 = 0x40;
pub(crate) const CWR: u8 = 0x80;

/// Bytes of a header without options.
pub(crate) const HEADER_BYTES: usize = 20;
/// Bytes of options at most.
pub(crate) const OPTIONS_MAX_BYTES: usize = 40;

/// A segment as it came in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'a> {
    pub(crate) src_port: u16,
    pub(crate) dst_port: u16,
    pub(crate) seq: Seq,
    pub(crate) ack: Seq,
    pub(crate) flags: u8,
    /// As in the header, not scaled.
    pub(crate) window: u16,
    pub(crate) options: Options,
    pub(crate) payload: &'a [u8],
}

/// The options that mean something here.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    pub(crate) timestamp: Option<(u32, u32)>,
    pub(crate) mss: Option<u16>,
    pub(crate) wscale: Option<u8>,
    pub(crate) sack_permitted: bool,
    pub(crate) sacks: [Range; 4],
    pub(crate) sacks_len: u8,
}

impl Options {
    pub(crate) fn sacks(&self) -> &[Range] {
        &self.sacks[..self.sacks_len as usize]
    }
}

impl<'a> Segment<'a> {
    /// Reads header and options; `None` if the lengths do not fit.
    #[inline]
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Segment<'a>> {
        let packet = TcpPacket::new_checked(bytes).ok()?;
        let header_len = packet.header_len() as usize;
        Some(Segment {
            src_port: packet.src_port(),
            dst_port: packet.dst_port(),
            seq: Seq(packet.seq_number().0 as u32),
            ack: Seq(packet.ack_number().0 as u32),
            flags: bytes[13],
            window: packet.window_len(),
            options: parse_options(&bytes[HEADER_BYTES..header_len]),
            payload: &bytes[header_len..],
        })
    }

    /// Sequence numbers that it takes: payload, SYN and FIN.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.payload.len() as u32 + u32::from(self.flags & SYN != 0) + u32::from(self.flags & FIN != 0)
    }

    #[inline]
    pub(crate) fn has(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }
}

#[inline]
fn be32(b: &[u8]) -> u32 {
    u32::from_be_bytes([b[0], b[1], b[2], b[3]])
}

#[inline]
fn parse_options(mut rest: &[u8]) -> Options {
    let mut options = Options::default();
    // What nearly every segment of a connection carries: NOP NOP timestamps.
    if rest.len() == 12 && rest[..4] == [1, 1, 8, 10] {
        options.timestamp = Some((be32(&rest[4..8]), be32(&rest[8..12])));
        return options;
    }
    while let [kind, tail @ ..] = rest {
        match kind {
            0 => break,
            1 => {
                rest = tail;
                continue;
            }
            _ => {}
        }
        let len = tail.first().copied().unwrap_or(0) as usize;
        // A length that cannot be ends the options; the segment stands.
        if len < 2 || len > rest.len() {
            break;
        }
        let body = &rest[2..len];
        match (kind, body.len()) {
            (2, 2) => options.mss = Some(u16::from_be_bytes([body[0], body[1]])),
            (3, 1) => options.wscale = Some(body[0].min(14)),
            (4, 0) => options.sack_permitted = true,
            (5, 8 | 16 | 24 | 32) => {
                for (i, block) in body.chunks_exact(8).enumerate() {
                    options.sacks[i] = (Seq(be32(block)), Seq(be32(&block[4..])));
                }
                options.sacks_len = (body.len() / 8) as u8;
            }
            (8, 8) => options.timestamp = Some((be32(body), be32(&body[4..]))),
            _ => {}
        }
        rest = &rest[len..];
    }
    options
}

/// Options being written.
#[derive(Debug)]
pub(crate) struct OptionWriter {
    bytes: [u8; OPTIONS_MAX_BYTES],
    len: usize,
}

impl OptionWriter {
    #[inline]
    pub(crate) fn new() -> Self {
        Self { bytes: [1; OPTIONS_MAX_BYTES], len: 0 }
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    pub(crate) fn mss(&mut self, mss: u16) {
        self.put(&[2, 4]);
        self.put(&mss.to_be_bytes());
    }

    pub(crate) fn wscale(&mut self, shift: u8) {
        self.put(&[1, 3, 3, shift]);
    }

    pub(crate) fn sack_permitted(&mut self) {
        self.put(&[4, 2]);
    }

    /// `n` NOPs.
    pub(crate) fn nops(&mut self, n: usize) {
        self.put(&[1, 1, 1, 1][..n.min(4)]);
    }

    /// Bare timestamps, to follow `sack_permitted`.
    pub(crate) fn timestamps_bare(&mut self, val: u32, ecr: u32) {
        self.put(&[8, 10]);
        self.put(&val.to_be_bytes());
        self.put(&ecr.to_be_bytes());
    }

    /// Timestamps with the two NOPs that align them.
    #[inline]
    pub(crate) fn timestamps(&mut self, val: u32, ecr: u32) {
        self.put(&[1, 1]);
        self.timestamps_bare(val, ecr);
    }

    /// As many blocks as there is room for.
    pub(crate) fn sacks(&mut self, blocks: &[Range]) {
        let room = (OPTIONS_MAX_BYTES - self.len).saturating_sub(4) / 8;
        let n = blocks.len().min(room);
        if n == 0 {
            return;
        }
        self.put(&[1, 1, 5, (2 + 8 * n) as u8]);
        for &(start, end) in &blocks[..n] {
            self.put(&start.0.to_be_bytes());
            self.put(&end.0.to_be_bytes());
        }
    }

    /// The options, padded to whole words with NOPs.
    #[inline]
    pub(crate) fn finish(&self) -> &[u8] {
        &self.bytes[..self.len.next_multiple_of(4)]
    }
}

/// A header being written. The checksum stays 0: the caller or the device has
/// the pseudo header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeaderOut {
    pub(crate) src_port: u16,
    pub(crate) dst_port: u16,
    pub(crate) seq: Seq,
    pub(crate) ack: Seq,
    pub(crate) flags: u8,
    pub(crate) window: u16,
}

impl HeaderOut {
    /// Writes header and options; returns their length, or `None` if `buf` is
    /// too small.
    #[inline]
    pub(crate) fn emit(&self, options: &[u8], buf: &mut [u8]) -> Option<usize> {
        let len = HEADER_BYTES + options.len();
        let out = buf.get_mut(..len)?;
        let mut h = [0u8; HEADER_BYTES];
        h[0..2].copy_from_slice(&self.src_port.to_be_bytes());
        h[2..4].copy_from_slice(&self.dst_port.to_be_bytes());
        h[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        h[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        h[12] = ((len / 4) << 4) as u8;
        h[13] = self.flags;
        h[14..16].copy_from_slice(&self.window.to_be_bytes());
        out[..HEADER_BYTES].copy_from_slice(&h);
        out[HEADER_BYTES..].copy_from_slice(options);
        Some(len)
    }
}
