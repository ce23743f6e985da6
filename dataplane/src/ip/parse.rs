//! A received frame's headers, read once. What was read travels with the packet.
//!
//! Pure: bytes in, [`Parsed`] or the reason for a drop out. Only headers are read here; checksums over
//! payloads are verified when the packet is processed, and not by a worker that only passes it on.

use std::net::{IpAddr, SocketAddr};

use ff_flowmap::FlowKey;
use ff_handover::DropReason;

use super::checksum::Checksum;
use super::extension::{self, Chain};
use crate::io::{ChecksumState, RxChecksum};

/// Ethernet header without a tag, bytes.
pub const ETHERNET_BYTES: usize = 14;
/// IPv4 header without options, bytes.
pub const IPV4_BYTES: usize = 20;
/// IPv6 header, bytes.
pub const IPV6_BYTES: usize = 40;

/// EtherType of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// EtherType of ARP.
pub const ETHERTYPE_ARP: u16 = 0x0806;
/// EtherType of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;
const ETHERTYPE_QINQ: u16 = 0x88a8;
/// The VLAN's identifier in a tag; the rest is priority.
pub(crate) const VLAN_ID: u16 = 0x0fff;

/// IP protocol number of ICMP.
pub const ICMP: u8 = 1;
/// IP protocol number of TCP.
pub const TCP: u8 = 6;
/// IP protocol number of UDP.
pub const UDP: u8 = 17;
/// IP protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;

/// To how many the frame was sent, by its Ethernet destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cast {
    /// To one station.
    Unicast,
    /// To a group.
    Multicast,
    /// To all.
    Broadcast,
}

/// What the packet is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// ARP, not yet looked at.
    Arp,
    /// TCP; the flags are byte 13 of its header.
    Tcp {
        /// FIN 1, SYN 2, RST 4, PSH 8, ACK 16.
        flags: u8,
    },
    /// UDP.
    Udp,
    /// ICMP (RFC 792).
    Icmp {
        /// Type.
        kind: u8,
    },
    /// ICMPv6 (RFC 4443), NDP included.
    Icmpv6 {
        /// Type.
        kind: u8,
    },
    /// A part of a packet: `l4` is where its payload begins.
    Fragment(Fragment),
    /// Another protocol, `key.protocol`.
    Other,
    /// IPv6 with a header that we must answer (RFC 8200, section 4.2).
    ParameterProblem {
        /// ICMPv6 code: 0 erroneous field, 1 unknown next header, 2 unknown option.
        code: u8,
        /// Offset of the offending byte in the IPv6 packet.
        pointer: u16,
        /// Answered also when the packet was sent to a group (option type 10).
        multicast_too: bool,
    },
}

/// Place of a fragment in its packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// Identification: 16 bits in IPv4, 32 in IPv6.
    pub id: u32,
    /// Offset of the first byte, a multiple of 8.
    pub offset: u16,
    /// More fragments follow.
    pub more: bool,
    /// IPv6: offset in the frame of the next-header byte that the fragment header's own replaces.
    pub next_header_at: u16,
    /// IPv6: offset of the fragment header itself.
    pub header_at: u16,
}

/// A frame's headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parsed {
    /// The flow: `local` is the destination. Ports are 0 unless it is TCP or UDP, and nothing but zeros for
    /// ARP. The protocol is the one after all extension headers.
    pub key: FlowKey,
    /// What the packet is.
    pub class: Class,
    /// Ethernet destination.
    pub cast: Cast,
    /// Offset of the IP header (or of the ARP packet).
    pub l3: u16,
    /// Offset of the transport header.
    pub l4: u16,
    /// End of the IP packet; what follows is Ethernet padding. For UDP the end of the datagram.
    pub end: u32,
    /// TOS or traffic class.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// Ethernet source.
    pub source_mac: [u8; 6],
    /// The transport checksum, as far as the device looked at it.
    pub l4_checksum: ChecksumState,
}

impl Parsed {
    /// The sender's address.
    pub fn src(&self) -> IpAddr {
        self.key.remote_addr().ip()
    }

    /// The destination's address.
    pub fn dst(&self) -> IpAddr {
        self.key.local_addr().ip()
    }

    /// The transport header and payload.
    pub fn l4_bytes<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(usize::from(self.l4)..self.end as usize).unwrap_or_default()
    }

    /// The IP packet without padding.
    pub fn l3_bytes<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(usize::from(self.l3)..self.end as usize).unwrap_or_default()
    }

    /// Verifies the checksum of TCP, UDP, ICMP or ICMPv6, unless the device has. An IPv4 UDP datagram
    /// without one is good (RFC 768); an IPv6 one is not (RFC 8200, section 8.1).
    pub fn l4_checksum_is_good(&self, bytes: &[u8]) -> bool {
        match self.l4_checksum {
            ChecksumState::Good => return true,
            ChecksumState::Bad => return false,
            ChecksumState::Unknown => {}
        }
        let l4 = self.l4_bytes(bytes);
        let protocol = self.key.protocol;
        match self.class {
            Class::Icmp { .. } => Checksum::new().bytes(l4).is_good(),
            Class::Udp if matches!(l4.get(6..8), Some([0, 0])) => self.key.family == 4,
            Class::Tcp { .. } | Class::Udp | Class::Icmpv6 { .. } => {
                Checksum::new().pseudo(self.src(), self.dst(), protocol, l4.len()).bytes(l4).is_good()
            }
            Class::Arp | Class::Fragment(_) | Class::Other | Class::ParameterProblem { .. } => true,
        }
    }
}

/// Reads the headers of a frame.
///
/// # Errors
/// The reason for which the frame is dropped.
pub fn parse(frame: &[u8], own_mac: [u8; 6], rx: RxChecksum) -> Result<Parsed, DropReason> {
    let header: &[u8; ETHERNET_BYTES] = frame.first_chunk().ok_or(DropReason::Truncated)?;
    let cast = match header[..6] {
        [0xff, 0xff, 0xff, 0xff, 0xff, 0xff] => Cast::Broadcast,
        [first, ..] if first & 1 == 1 => Cast::Multicast,
        ref mac if *mac == own_mac => Cast::Unicast,
        _ => return Err(DropReason::NotForUs),
    };
    let mut source_mac = [0; 6];
    source_mac.copy_from_slice(&header[6..12]);
    let mut ethertype = u16::from_be_bytes([header[12], header[13]]);
    let mut l3 = ETHERNET_BYTES;
    if ethertype == ETHERTYPE_VLAN || ethertype == ETHERTYPE_QINQ {
        let tag: &[u8; 4] = frame.get(l3..).and_then(|f| f.first_chunk()).ok_or(DropReason::Truncated)?;
        // Identifier 0 is a priority and no VLAN (IEEE 802.1Q, section 9.6). A frame of another network is not for
        // the stack: its answer would go out untagged, into this one.
        if u16::from_be_bytes([tag[0], tag[1]]) & VLAN_ID != 0 {
            return Err(DropReason::Vlan);
        }
        ethertype = u16::from_be_bytes([tag[2], tag[3]]);
        l3 += 4;
    }
    let link = Link { cast, source_mac, l3, rx };
    match ethertype {
        ETHERTYPE_IPV4 => ipv4(frame, link),
        ETHERTYPE_IPV6 => ipv6(frame, link),
        ETHERTYPE_ARP => Ok(link.arp(frame)),
        ETHERTYPE_VLAN | ETHERTYPE_QINQ => Err(DropReason::Vlan),
        _ => Err(DropReason::NotForUs),
    }
}

/// Reads the headers of an IP packet that was put together from fragments. `packet` begins with the IP
/// header; `first` is what was read of the fragment that came last.
///
/// # Errors
/// The reason for which the packet is dropped.
pub fn parse_reassembled(packet: &[u8], first: &Parsed) -> Result<Parsed, DropReason> {
    // The IPv4 header was verified with each fragment, and rewritten; the transport checksum never was.
    let rx = RxChecksum { l3: ChecksumState::Good, l4: ChecksumState::Unknown };
    let link = Link { cast: first.cast, source_mac: first.source_mac, l3: 0, rx };
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => ipv4(packet, link),
        Some(6) => ipv6(packet, link),
        _ => Err(DropReason::BadIpHeader),
    }
}

/// What the Ethernet header said.
struct Link {
    cast: Cast,
    source_mac: [u8; 6],
    l3: usize,
    rx: RxChecksum,
}

impl Link {
    fn arp(&self, frame: &[u8]) -> Parsed {
        let nobody = SocketAddr::from(([0, 0, 0, 0], 0));
        Parsed {
            key: FlowKey::new(0, nobody, nobody),
            class: Class::Arp,
            cast: self.cast,
            l3: self.l3 as u16,
            l4: self.l3 as u16,
            end: frame.len() as u32,
            traffic_class: 0,
            hop_limit: 0,
            source_mac: self.source_mac,
            l4_checksum: ChecksumState::Good,
        }
    }
}

fn ipv4(frame: &[u8], link: Link) -> Result<Parsed, DropReason> {
    let packet = &frame[link.l3..];
    let header: &[u8; IPV4_BYTES] = packet.first_chunk().ok_or(DropReason::BadIpHeader)?;
    let header_bytes = usize::from(header[0] & 0xf) * 4;
    let total_bytes = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if header[0] >> 4 != 4
        || header_bytes < IPV4_BYTES
        || total_bytes < header_bytes
        || total_bytes > packet.len()
    {
        return Err(DropReason::BadIpHeader);
    }
    let good = match link.rx.l3 {
        ChecksumState::Good => true,
        ChecksumState::Bad => false,
        ChecksumState::Unknown => Checksum::new().bytes(&packet[..header_bytes]).is_good(),
    };
    if !good {
        return Err(DropReason::BadIpChecksum);
    }
    if header_bytes > IPV4_BYTES {
        extension::check_ipv4_options(&packet[IPV4_BYTES..header_bytes])?;
    }
    let src = std::net::Ipv4Addr::new(header[12], header[13], header[14], header[15]);
    let dst = std::net::Ipv4Addr::new(header[16], header[17], header[18], header[19]);
    // A sender that is a group, all, or this host itself is a lie (RFC 1122, section 3.2.1.3).
    if src.is_multicast()
        || src.is_broadcast()
        || src.is_loopback()
        || dst.is_loopback()
        || dst.is_unspecified()
    {
        return Err(DropReason::BadSource);
    }
    let place = u16::from_be_bytes([header[6], header[7]]);
    let mut parsed = Parsed {
        key: FlowKey::new(header[9], SocketAddr::new(dst.into(), 0), SocketAddr::new(src.into(), 0)),
        class: Class::Other,
        cast: link.cast,
        l3: link.l3 as u16,
        l4: (link.l3 + header_bytes) as u16,
        end: (link.l3 + total_bytes) as u32,
        traffic_class: header[1],
        hop_limit: header[8],
        source_mac: link.source_mac,
        l4_checksum: link.rx.l4,
    };
    if place & 0x3fff != 0 {
        parsed.class = Class::Fragment(Fragment {
            id: u32::from(u16::from_be_bytes([header[4], header[5]])),
            offset: (place & 0x1fff) * 8,
            more: place & 0x2000 != 0,
            next_header_at: 0,
            header_at: 0,
        });
        return Ok(parsed);
    }
    transport(frame, parsed)
}

fn ipv6(frame: &[u8], link: Link) -> Result<Parsed, DropReason> {
    let packet = &frame[link.l3..];
    let header: &[u8; IPV6_BYTES] = packet.first_chunk().ok_or(DropReason::BadIpHeader)?;
    let total_bytes = IPV6_BYTES + usize::from(u16::from_be_bytes([header[4], header[5]]));
    if header[0] >> 4 != 6 || total_bytes > packet.len() {
        return Err(DropReason::BadIpHeader);
    }
    let src = address6(&header[8..24]);
    let dst = address6(&header[24..40]);
    if src.is_multicast() || src.is_loopback() || dst.is_loopback() || dst.is_unspecified() {
        return Err(DropReason::BadSource);
    }
    // Such addresses on the wire have no meaning, and would be taken for IPv4 flows (RFC 4942, 2.2).
    if src.to_ipv4_mapped().is_some() || dst.to_ipv4_mapped().is_some() {
        return Err(DropReason::BadSource);
    }
    let chain = extension::walk(&packet[..total_bytes], header[6])?;
    let (protocol, class, l4) = match chain {
        Chain::Transport { protocol, at } => (protocol, Class::Other, at),
        Chain::Fragment { protocol, fragment, at } => {
            let fragment = Fragment {
                next_header_at: fragment.next_header_at + link.l3 as u16,
                header_at: fragment.header_at + link.l3 as u16,
                ..fragment
            };
            (protocol, Class::Fragment(fragment), at)
        }
        Chain::Problem { code, pointer, multicast_too } => {
            (0, Class::ParameterProblem { code, pointer, multicast_too }, IPV6_BYTES)
        }
    };
    let parsed = Parsed {
        key: FlowKey::new(protocol, SocketAddr::new(dst.into(), 0), SocketAddr::new(src.into(), 0)),
        class,
        cast: link.cast,
        l3: link.l3 as u16,
        l4: (link.l3 + l4) as u16,
        end: (link.l3 + total_bytes) as u32,
        traffic_class: header[0] << 4 | header[1] >> 4,
        hop_limit: header[7],
        source_mac: link.source_mac,
        l4_checksum: link.rx.l4,
    };
    match class {
        Class::Other => transport(frame, parsed),
        _ => Ok(parsed),
    }
}

/// Reads ports and flags of a whole packet.
fn transport(frame: &[u8], mut parsed: Parsed) -> Result<Parsed, DropReason> {
    let l4 = &frame[usize::from(parsed.l4)..parsed.end as usize];
    match (parsed.key.protocol, parsed.key.family) {
        (TCP, _) => {
            let header: &[u8; 20] = l4.first_chunk().ok_or(DropReason::BadTcpHeader)?;
            let header_bytes = usize::from(header[12] >> 4) * 4;
            if header_bytes < 20 || header_bytes > l4.len() {
                return Err(DropReason::BadTcpHeader);
            }
            parsed.class = Class::Tcp { flags: header[13] };
            set_ports(&mut parsed, header);
        }
        (UDP, _) => {
            let header: &[u8; 8] = l4.first_chunk().ok_or(DropReason::BadUdpHeader)?;
            let datagram_bytes = usize::from(u16::from_be_bytes([header[4], header[5]]));
            if datagram_bytes < 8 || datagram_bytes > l4.len() {
                return Err(DropReason::BadUdpHeader);
            }
            parsed.class = Class::Udp;
            parsed.end = u32::from(parsed.l4) + datagram_bytes as u32;
            set_ports(&mut parsed, header);
        }
        (ICMP, 4) | (ICMPV6, 6) => {
            let header: &[u8; 8] = l4.first_chunk().ok_or(DropReason::BadIcmp)?;
            let kind = header[0];
            parsed.class = if parsed.key.family == 4 { Class::Icmp { kind } } else { Class::Icmpv6 { kind } };
        }
        _ => {}
    }
    Ok(parsed)
}

fn set_ports(parsed: &mut Parsed, l4: &[u8]) {
    parsed.key.remote_port = u16::from_be_bytes([l4[0], l4[1]]);
    parsed.key.local_port = u16::from_be_bytes([l4[2], l4[3]]);
}

pub(crate) fn address6(bytes: &[u8]) -> std::net::Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(bytes);
    octets.into()
}

#[cfg(test)]
mod tests;
