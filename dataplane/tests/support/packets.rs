//! Packets built by hand, to be sent as they are or spoilt.

#![allow(dead_code)]

use std::net::{IpAddr, SocketAddr};

use ff_dataplane::ip::checksum::Checksum;

use super::{PEER_MAC, STACK_MAC};

pub fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend_from_slice(&STACK_MAC);
    frame.extend_from_slice(&PEER_MAC);
    frame.extend_from_slice(&ethertype.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

pub fn vlan(tags: usize, frame: &[u8]) -> Vec<u8> {
    let mut tagged = frame[..12].to_vec();
    for _ in 0..tags {
        tagged.extend_from_slice(&[0x81, 0, 0, 7]);
    }
    tagged.extend_from_slice(&frame[12..]);
    tagged
}

pub fn arp(operation: u16, sender: ([u8; 4], [u8; 6]), target: ([u8; 4], [u8; 6])) -> Vec<u8> {
    let mut arp = vec![0, 1, 8, 0, 6, 4];
    arp.extend_from_slice(&operation.to_be_bytes());
    arp.extend_from_slice(&sender.1);
    arp.extend_from_slice(&sender.0);
    arp.extend_from_slice(&target.1);
    arp.extend_from_slice(&target.0);
    ethernet(0x0806, &arp)
}

/// An IPv4 packet: identification, flags and offset as they stand on the wire.
pub fn ipv4(
    src: IpAddr,
    dst: IpAddr,
    protocol: u8,
    place: (u16, u16),
    options: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (src, dst) else { panic!("IPv4 addresses") };
    assert_eq!(options.len() % 4, 0);
    let header_bytes = 20 + options.len();
    let mut packet = vec![0x40 | (header_bytes / 4) as u8, 0];
    packet.extend_from_slice(&((header_bytes + payload.len()) as u16).to_be_bytes());
    packet.extend_from_slice(&place.0.to_be_bytes());
    packet.extend_from_slice(&place.1.to_be_bytes());
    packet.extend_from_slice(&[64, protocol, 0, 0]);
    packet.extend_from_slice(&src.octets());
    packet.extend_from_slice(&dst.octets());
    packet.extend_from_slice(options);
    let sum = Checksum::new().bytes(&packet).finish();
    packet[10..12].copy_from_slice(&sum);
    packet.extend_from_slice(payload);
    ethernet(0x0800, &packet)
}

pub fn ipv6(src: IpAddr, dst: IpAddr, next: u8, hop_limit: u8, payload: &[u8]) -> Vec<u8> {
    let (IpAddr::V6(src), IpAddr::V6(dst)) = (src, dst) else { panic!("IPv6 addresses") };
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend_from_slice(&(payload.len() as u16).to_be_bytes());
    packet.extend_from_slice(&[next, hop_limit]);
    packet.extend_from_slice(&src.octets());
    packet.extend_from_slice(&dst.octets());
    packet.extend_from_slice(payload);
    ethernet(0x86dd, &packet)
}

/// An IP packet of the addresses' family around a transport payload.
pub fn ip_packet(src: IpAddr, dst: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    match src {
        IpAddr::V4(_) => ipv4(src, dst, protocol, (0, 0x4000), &[], payload),
        IpAddr::V6(_) => ipv6(src, dst, protocol, 64, payload),
    }
}

pub fn udp_bytes(src: SocketAddr, dst: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let mut udp = Vec::new();
    udp.extend_from_slice(&src.port().to_be_bytes());
    udp.extend_from_slice(&dst.port().to_be_bytes());
    udp.extend_from_slice(&((8 + payload.len()) as u16).to_be_bytes());
    udp.extend_from_slice(&[0, 0]);
    udp.extend_from_slice(payload);
    let sum = Checksum::new().pseudo(src.ip(), dst.ip(), 17, udp.len()).bytes(&udp).finish();
    udp[6..8].copy_from_slice(&sum);
    udp
}

pub fn udp(src: SocketAddr, dst: SocketAddr, payload: &[u8]) -> Vec<u8> {
    ip_packet(src.ip(), dst.ip(), 17, &udp_bytes(src, dst, payload))
}

pub fn tcp(
    src: SocketAddr,
    dst: SocketAddr,
    seq: u32,
    ack: u32,
    flags: u8,
    options: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    assert_eq!(options.len() % 4, 0);
    let mut tcp = Vec::new();
    tcp.extend_from_slice(&src.port().to_be_bytes());
    tcp.extend_from_slice(&dst.port().to_be_bytes());
    tcp.extend_from_slice(&seq.to_be_bytes());
    tcp.extend_from_slice(&ack.to_be_bytes());
    tcp.extend_from_slice(&[(((20 + options.len()) / 4) as u8) << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
    tcp.extend_from_slice(options);
    tcp.extend_from_slice(payload);
    let sum = Checksum::new().pseudo(src.ip(), dst.ip(), 6, tcp.len()).bytes(&tcp).finish();
    tcp[16..18].copy_from_slice(&sum);
    ip_packet(src.ip(), dst.ip(), 6, &tcp)
}

/// An ICMP or ICMPv6 message, by the family.
pub fn icmp(src: IpAddr, dst: IpAddr, kind: u8, code: u8, rest: &[u8]) -> Vec<u8> {
    icmp_with(src, dst, kind, code, rest, 64)
}

pub fn icmp_with(src: IpAddr, dst: IpAddr, kind: u8, code: u8, rest: &[u8], hop_limit: u8) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend_from_slice(rest);
    match src {
        IpAddr::V4(_) => {
            let sum = Checksum::new().bytes(&message).finish();
            message[2..4].copy_from_slice(&sum);
            ipv4(src, dst, 1, (0, 0), &[], &message)
        }
        IpAddr::V6(_) => {
            let sum = Checksum::new().pseudo(src, dst, 58, message.len()).bytes(&message).finish();
            message[2..4].copy_from_slice(&sum);
            ipv6(src, dst, 58, hop_limit, &message)
        }
    }
}

/// A neighbour solicitation with a source link-layer address.
pub fn solicitation(src: IpAddr, dst: IpAddr, target: IpAddr, mac: Option<[u8; 6]>) -> Vec<u8> {
    let IpAddr::V6(target) = target else { panic!("an IPv6 address") };
    let mut rest = vec![0; 4];
    rest.extend_from_slice(&target.octets());
    if let Some(mac) = mac {
        rest.extend_from_slice(&[1, 1]);
        rest.extend_from_slice(&mac);
    }
    icmp_with(src, dst, 135, 0, &rest, 255)
}

pub fn advertisement(src: IpAddr, dst: IpAddr, target: IpAddr, flags: u8, mac: [u8; 6]) -> Vec<u8> {
    let IpAddr::V6(target) = target else { panic!("an IPv6 address") };
    let mut rest = vec![flags, 0, 0, 0];
    rest.extend_from_slice(&target.octets());
    rest.extend_from_slice(&[2, 1]);
    rest.extend_from_slice(&mac);
    icmp_with(src, dst, 136, 0, &rest, 255)
}

/// The transport payload cut into IPv4 fragments of `part` bytes.
pub fn fragments_v4(
    src: IpAddr,
    dst: IpAddr,
    protocol: u8,
    id: u16,
    payload: &[u8],
    part: usize,
) -> Vec<Vec<u8>> {
    let count = payload.len().div_ceil(part);
    (0..count)
        .map(|n| {
            let end = payload.len().min((n + 1) * part);
            let more = if end < payload.len() { 0x2000 } else { 0 };
            let place = more | (n * part / 8) as u16;
            ipv4(src, dst, protocol, (id, place), &[], &payload[n * part..end])
        })
        .collect()
}

/// The same for IPv6.
pub fn fragments_v6(
    src: IpAddr,
    dst: IpAddr,
    protocol: u8,
    id: u32,
    payload: &[u8],
    part: usize,
) -> Vec<Vec<u8>> {
    let count = payload.len().div_ceil(part);
    (0..count)
        .map(|n| {
            let end = payload.len().min((n + 1) * part);
            let place = (n * part) as u16 | u16::from(end < payload.len());
            let mut body = vec![protocol, 0];
            body.extend_from_slice(&place.to_be_bytes());
            body.extend_from_slice(&id.to_be_bytes());
            body.extend_from_slice(&payload[n * part..end]);
            ipv6(src, dst, 44, 64, &body)
        })
        .collect()
}

/// Makes the checksums of a frame right again, as far as its headers let that be told: so that a spoilt field
/// is seen by what lies behind the checksum.
pub fn mend(frame: &mut [u8]) {
    let l3 = if frame.get(12..14) == Some(&[0x81, 0]) { 18 } else { 14 };
    match frame.get(l3 - 2..l3) {
        Some([0x08, 0x00]) => mend_v4(frame, l3),
        Some([0x86, 0xdd]) => mend_v6(frame, l3),
        _ => {}
    }
}

fn mend_v4(frame: &mut [u8], l3: usize) {
    let Some(first) = frame.get(l3) else { return };
    let header_bytes = usize::from(first & 0xf) * 4;
    let l4 = l3 + header_bytes;
    if header_bytes < 20 || frame.len() < l4 {
        return;
    }
    frame[l3 + 10..l3 + 12].fill(0);
    let sum = Checksum::new().bytes(&frame[l3..l4]).finish();
    frame[l3 + 10..l3 + 12].copy_from_slice(&sum);
    let total = usize::from(u16::from_be_bytes([frame[l3 + 2], frame[l3 + 3]]));
    let end = (l3 + total).clamp(l4, frame.len());
    let ip = |at: usize| IpAddr::from([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
    let (src, dst, protocol) = (ip(l3 + 12), ip(l3 + 16), frame[l3 + 9]);
    mend_l4(&mut frame[l4..end], src, dst, protocol);
}

fn mend_v6(frame: &mut [u8], l3: usize) {
    if frame.len() < l3 + 40 {
        return;
    }
    let octets = |at: usize| -> [u8; 16] { frame[at..at + 16].try_into().expect("16 bytes") };
    let (src, dst) = (IpAddr::from(octets(l3 + 8)), IpAddr::from(octets(l3 + 24)));
    let end = (l3 + 40 + usize::from(u16::from_be_bytes([frame[l3 + 4], frame[l3 + 5]]))).min(frame.len());
    let protocol = frame[l3 + 6];
    mend_l4(&mut frame[l3 + 40..end], src, dst, protocol);
}

fn mend_l4(l4: &mut [u8], src: IpAddr, dst: IpAddr, protocol: u8) {
    let at = match protocol {
        6 => 16,
        17 => 6,
        1 | 58 => 2,
        _ => return,
    };
    if l4.len() < at + 2 {
        return;
    }
    l4[at..at + 2].fill(0);
    let start =
        if protocol == 1 { Checksum::new() } else { Checksum::new().pseudo(src, dst, protocol, l4.len()) };
    let sum = start.bytes(l4).finish();
    l4[at..at + 2].copy_from_slice(&sum);
}
