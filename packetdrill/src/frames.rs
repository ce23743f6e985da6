//! IP headers around the engine's segments, and what an IP packet of the script is for the engine.

use std::net::{IpAddr, SocketAddr};

use ff_flowmap::FlowKey;
use ff_tcp::{Ecn, IcmpError, SegmentMeta, Transmit};
use smoltcp::wire::{IpAddress, IpProtocol, Ipv4Packet, Ipv6Packet, TcpPacket};

const TTL: u8 = 64;
const TCP: u8 = 6;

/// An IP packet that arrived.
#[derive(Debug)]
pub(crate) enum Incoming<'a> {
    /// A TCP segment.
    Segment(SegmentMeta, &'a [u8]),
    /// An ICMP error about one of ours: its flow and the quoted sequence number.
    Icmp(FlowKey, IcmpError, Option<u32>),
}

/// Bytes of the IP header before a segment to `remote`.
pub(crate) fn header_bytes(remote: &SocketAddr) -> usize {
    if remote.is_ipv4() { 20 } else { 40 }
}

/// Writes the IP header of segment `t` into `packet`, whose segment follows it already. `tos` is the socket's
/// IP_TOS or IPV6_TCLASS; its two low bits are the engine's.
pub(crate) fn finish(packet: &mut [u8], t: &Transmit, tos: u8) {
    let header = header_bytes(&t.remote());
    let class = tos & !3 | t.ecn.bits();
    {
        let (src, dst) = (IpAddress::from(t.local().ip()), IpAddress::from(t.remote().ip()));
        TcpPacket::new_unchecked(&mut packet[header..]).fill_checksum(&src, &dst);
    }
    match (t.local().ip(), t.remote().ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let len = packet.len().min(usize::from(u16::MAX)) as u16;
            let mut ip = Ipv4Packet::new_unchecked(packet);
            ip.set_version(4);
            ip.set_header_len(20);
            ip.set_dscp(class >> 2);
            ip.set_ecn(class & 3);
            ip.set_total_len(len);
            ip.set_ident(0);
            ip.clear_flags();
            ip.set_dont_frag(true);
            ip.set_frag_offset(0);
            ip.set_hop_limit(TTL);
            ip.set_next_header(IpProtocol::Tcp);
            ip.set_src_addr(src);
            ip.set_dst_addr(dst);
            ip.fill_checksum();
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let len = (packet.len() - 40).min(usize::from(u16::MAX)) as u16;
            let mut ip = Ipv6Packet::new_unchecked(packet);
            ip.set_version(6);
            ip.set_traffic_class(class);
            ip.set_flow_label(0);
            ip.set_payload_len(len);
            ip.set_next_header(IpProtocol::Tcp);
            ip.set_hop_limit(TTL);
            ip.set_src_addr(src);
            ip.set_dst_addr(dst);
        }
        // The engine makes no flow of two families.
        _ => {}
    }
}

/// Reads a packet of the script; `None` for what TCP has no use for.
pub(crate) fn parse(packet: &[u8]) -> Option<Incoming<'_>> {
    match packet.first()? >> 4 {
        4 => {
            let ip = Ipv4Packet::new_checked(packet).ok()?;
            let (src, dst) = (IpAddr::V4(ip.src_addr()), IpAddr::V4(ip.dst_addr()));
            let payload = packet.get(usize::from(ip.header_len())..usize::from(ip.total_len()))?;
            match ip.next_header() {
                IpProtocol::Tcp => {
                    let meta = SegmentMeta { src, dst, ecn: Ecn::from_bits(ip.ecn()) };
                    Some(Incoming::Segment(meta, payload))
                }
                IpProtocol::Icmp => icmp_v4(payload),
                _ => None,
            }
        }
        6 => {
            let ip = Ipv6Packet::new_checked(packet).ok()?;
            let (src, dst) = (IpAddr::V6(ip.src_addr()), IpAddr::V6(ip.dst_addr()));
            let payload = packet.get(40..40 + usize::from(ip.payload_len()))?;
            match ip.next_header() {
                IpProtocol::Tcp => {
                    let meta = SegmentMeta { src, dst, ecn: Ecn::from_bits(ip.traffic_class()) };
                    Some(Incoming::Segment(meta, payload))
                }
                IpProtocol::Icmpv6 => icmp_v6(payload),
                _ => None,
            }
        }
        _ => None,
    }
}

fn icmp_v4(icmp: &[u8]) -> Option<Incoming<'_>> {
    let (kind, code) = (*icmp.first()?, *icmp.get(1)?);
    let mtu = u16::from_be_bytes([*icmp.get(6)?, *icmp.get(7)?]);
    let error = match (kind, code) {
        (3, 4) => IcmpError::TooBig { mtu },
        (3, code) => IcmpError::Unreachable { code },
        (11 | 12, _) => IcmpError::TimeExceeded,
        _ => return None,
    };
    let quoted = icmp.get(8..)?;
    let header = usize::from(quoted.first()? & 15) * 4;
    if *quoted.get(9)? != TCP {
        return None;
    }
    let src: [u8; 4] = quoted.get(12..16)?.try_into().ok()?;
    let dst: [u8; 4] = quoted.get(16..20)?.try_into().ok()?;
    quoted_flow(IpAddr::from(src), IpAddr::from(dst), quoted.get(header..)?, error)
}

fn icmp_v6(icmp: &[u8]) -> Option<Incoming<'_>> {
    let (kind, code) = (*icmp.first()?, *icmp.get(1)?);
    let word: [u8; 4] = icmp.get(4..8)?.try_into().ok()?;
    let error = match kind {
        1 => IcmpError::Unreachable { code },
        2 => IcmpError::TooBig { mtu: u32::from_be_bytes(word).min(u32::from(u16::MAX)) as u16 },
        3 | 4 => IcmpError::TimeExceeded,
        _ => return None,
    };
    let quoted = icmp.get(8..)?;
    if *quoted.get(6)? != TCP {
        return None;
    }
    let src: [u8; 16] = quoted.get(8..24)?.try_into().ok()?;
    let dst: [u8; 16] = quoted.get(24..40)?.try_into().ok()?;
    quoted_flow(IpAddr::from(src), IpAddr::from(dst), quoted.get(40..)?, error)
}

/// The flow as this host sees it: the quoted packet is one that it sent.
fn quoted_flow(src: IpAddr, dst: IpAddr, tcp: &[u8], error: IcmpError) -> Option<Incoming<'static>> {
    let port = |i: usize| Some(u16::from_be_bytes([*tcp.get(i)?, *tcp.get(i + 1)?]));
    let key = FlowKey::new(TCP, SocketAddr::new(src, port(0)?), SocketAddr::new(dst, port(2)?));
    let seq: Option<[u8; 4]> = tcp.get(4..8).and_then(|b| b.try_into().ok());
    Some(Incoming::Icmp(key, error, seq.map(u32::from_be_bytes)))
}
