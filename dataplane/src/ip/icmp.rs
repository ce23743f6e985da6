//! ICMP (RFC 792, 1122) and ICMPv6 (RFC 4443): errors read and written, echo.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ff_flowmap::FlowKey;
use ff_tcp::{IcmpError, Instant};

use super::checksum::Checksum;
use super::extension::{self, Chain};
use super::parse::{Cast, Class, ICMP, ICMPV6, IPV4_BYTES, IPV6_BYTES, Parsed, TCP, UDP, address6};

/// Bytes of the packet that an IPv4 error quotes at most, headers of the error included (RFC 1812, 4.3.2.3).
const ERROR_BYTES_MAX_V4: usize = 576;
/// The same for IPv6: the smallest link MTU (RFC 4443, section 2.4).
const ERROR_BYTES_MAX_V6: usize = 1280;
const HEADER_BYTES: usize = 8;

/// An error about a packet of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Embedded {
    /// The flow of the packet that the error is about, as we see it.
    pub key: FlowKey,
    /// What went wrong.
    pub error: IcmpError,
    /// TCP: its sequence number.
    pub seq: Option<u32>,
}

/// Reads the error in an ICMP or ICMPv6 message. `None`: not an error, or not about a TCP or UDP packet, or
/// not well-formed. The checksum is not verified here.
pub fn embedded(parsed: &Parsed, frame: &[u8]) -> Option<Embedded> {
    let message = parsed.l4_bytes(frame);
    let (header, inner) = message.split_at_checked(HEADER_BYTES)?;
    let error = match parsed.class {
        Class::Icmp { .. } => error_v4(header)?,
        Class::Icmpv6 { .. } => error_v6(header)?,
        _ => return None,
    };
    let (src, dst, protocol, l4) = if parsed.key.family == 4 { inner_v4(inner)? } else { inner_v6(inner)? };
    let ports: &[u8; 4] = l4.first_chunk()?;
    let src_port = u16::from_be_bytes([ports[0], ports[1]]);
    let dst_port = u16::from_be_bytes([ports[2], ports[3]]);
    let seq = match protocol {
        TCP => Some(u32::from_be_bytes(*l4.get(4..8)?.first_chunk()?)),
        UDP => None,
        _ => return None,
    };
    // The packet inside is one that we sent: its source is our end.
    let key = FlowKey::new(protocol, SocketAddr::new(src, src_port), SocketAddr::new(dst, dst_port));
    Some(Embedded { key, error, seq })
}

fn error_v4(header: &[u8]) -> Option<IcmpError> {
    match header[0] {
        3 if header[1] == 4 => Some(IcmpError::TooBig { mtu: u16::from_be_bytes([header[6], header[7]]) }),
        3 => Some(IcmpError::Unreachable { code: header[1] }),
        11 | 12 => Some(IcmpError::TimeExceeded),
        _ => None,
    }
}

fn error_v6(header: &[u8]) -> Option<IcmpError> {
    match header[0] {
        1 => Some(IcmpError::Unreachable { code: header[1] }),
        2 => {
            let mtu = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
            Some(IcmpError::TooBig { mtu: u16::try_from(mtu).unwrap_or(u16::MAX) })
        }
        3 | 4 => Some(IcmpError::TimeExceeded),
        _ => None,
    }
}

type Inner<'a> = (IpAddr, IpAddr, u8, &'a [u8]);

fn inner_v4(packet: &[u8]) -> Option<Inner<'_>> {
    let header: &[u8; IPV4_BYTES] = packet.first_chunk()?;
    let header_bytes = usize::from(header[0] & 0xf) * 4;
    // Only the first fragment has ports.
    let offset = u16::from_be_bytes([header[6], header[7]]) & 0x1fff;
    if header[0] >> 4 != 4 || header_bytes < IPV4_BYTES || offset != 0 {
        return None;
    }
    let src = Ipv4Addr::new(header[12], header[13], header[14], header[15]);
    let dst = Ipv4Addr::new(header[16], header[17], header[18], header[19]);
    Some((src.into(), dst.into(), header[9], packet.get(header_bytes..)?))
}

fn inner_v6(packet: &[u8]) -> Option<Inner<'_>> {
    let header: &[u8; IPV6_BYTES] = packet.first_chunk()?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let (src, dst) = (address6(&header[8..24]), address6(&header[24..40]));
    let (protocol, at) = match extension::walk(packet, header[6]).ok()? {
        Chain::Transport { protocol, at } => (protocol, at),
        Chain::Fragment { protocol, fragment, at } if fragment.offset == 0 => (protocol, at),
        Chain::Fragment { .. } | Chain::Problem { .. } => return None,
    };
    Some((src.into(), dst.into(), protocol, packet.get(at..)?))
}

/// Whether a message is an error, which must not be answered with one (RFC 1122, section 3.2.2; RFC 4443,
/// section 2.4 e).
fn is_error(parsed: &Parsed) -> bool {
    match parsed.class {
        Class::Icmp { kind } => !matches!(kind, 0 | 8 | 13..=18),
        Class::Icmpv6 { kind } => kind < 128,
        _ => false,
    }
}

/// Whether a packet may be answered with an error: it came to us alone, from one station, and is no error
/// itself. `multicast_too` is for the two cases of RFC 4443, section 2.4 e.3, that answer groups as well.
pub(crate) fn may_answer(parsed: &Parsed, multicast_too: bool) -> bool {
    let to_group = parsed.cast != Cast::Unicast || parsed.dst().is_multicast();
    let src = parsed.src();
    !is_error(parsed) && (multicast_too || !to_group) && !src.is_unspecified() && !src.is_multicast()
}

/// An error about the received packet `original` (from its IP header on), to be sent from `src` to its
/// sender. `word` is the second word of the header: a pointer, an MTU, or 0.
pub(crate) fn error_message(
    (src, dst): (IpAddr, IpAddr),
    icmp_type: u8,
    code: u8,
    word: u32,
    original: &[u8],
) -> Vec<u8> {
    let (ip_bytes, max) = match dst {
        IpAddr::V4(_) => (IPV4_BYTES, ERROR_BYTES_MAX_V4),
        IpAddr::V6(_) => (IPV6_BYTES, ERROR_BYTES_MAX_V6),
    };
    let quoted = &original[..original.len().min(max - ip_bytes - HEADER_BYTES)];
    let mut message = Vec::with_capacity(HEADER_BYTES + quoted.len());
    message.extend_from_slice(&[icmp_type, code, 0, 0]);
    message.extend_from_slice(&word.to_be_bytes());
    message.extend_from_slice(quoted);
    fill_checksum(&mut message, src, dst);
    message
}

/// The reply to an echo request whose checksum is verified, from `src`; `None` if it is no echo request.
pub(crate) fn echo_reply(parsed: &Parsed, frame: &[u8], src: IpAddr) -> Option<Vec<u8>> {
    let request = parsed.l4_bytes(frame);
    let reply_type = match (parsed.class, request) {
        (Class::Icmp { .. }, [8, 0, ..]) => 0,
        (Class::Icmpv6 { .. }, [128, 0, ..]) => 129,
        _ => return None,
    };
    if request.len() < HEADER_BYTES {
        return None;
    }
    let mut reply = request.to_vec();
    reply[0] = reply_type;
    reply[2..4].fill(0);
    fill_checksum(&mut reply, src, parsed.src());
    Some(reply)
}

fn fill_checksum(message: &mut [u8], src: IpAddr, dst: IpAddr) {
    let sum = match dst {
        IpAddr::V4(_) => Checksum::new(),
        IpAddr::V6(_) => Checksum::new().pseudo(src, dst, ICMPV6, message.len()),
    };
    let sum = sum.bytes(message).finish();
    message[2..4].copy_from_slice(&sum);
}

/// The protocol number of ICMP for an address.
pub(crate) fn protocol_for(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { ICMP } else { ICMPV6 }
}

/// A token bucket, so that nobody can make us send errors without end (RFC 4443, section 2.4 f).
#[derive(Clone, Debug)]
pub(crate) struct RateLimit {
    per_second: u64,
    burst: u64,
    /// Tokens in millionths.
    micro_tokens: u64,
    last: Instant,
}

impl RateLimit {
    pub(crate) fn new(per_second: u64, burst: u64) -> Self {
        Self { per_second, burst, micro_tokens: burst * 1_000_000, last: Instant(0) }
    }

    /// Takes a token if there is one.
    pub(crate) fn allow(&mut self, now: Instant) -> bool {
        let elapsed_us = now.0.saturating_sub(self.last.0);
        self.last = now;
        let earned = elapsed_us.saturating_mul(self.per_second);
        self.micro_tokens = self.micro_tokens.saturating_add(earned).min(self.burst * 1_000_000);
        match self.micro_tokens.checked_sub(1_000_000) {
            Some(left) => {
                self.micro_tokens = left;
                true
            }
            None => false,
        }
    }
}
