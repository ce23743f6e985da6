//! IP headers written, and packets cut into fragments where they are longer than the path takes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::checksum::Checksum;
use super::parse::{ETHERNET_BYTES, ETHERTYPE_IPV4, ETHERTYPE_IPV6, IPV4_BYTES, IPV6_BYTES};

/// TTL and hop limit unless the socket says otherwise (RFC 1700's default).
pub const HOP_LIMIT: u8 = 64;
/// IPv6 fragment header.
pub(crate) const FRAGMENT_BYTES: usize = 8;
const FRAGMENT_HEADER: u8 = 44;

/// What an IP header says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IpHeader {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    /// It is not cut here either, if it is longer than the path takes.
    pub(crate) dont_fragment: bool,
}

/// Place of a fragment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub(crate) id: u32,
    pub(crate) offset: u16,
    pub(crate) more: bool,
}

/// Bytes of the IP header toward an address.
pub(crate) fn header_bytes(ip: IpAddr) -> usize {
    if ip.is_ipv4() { IPV4_BYTES } else { IPV6_BYTES }
}

impl IpHeader {
    /// Writes Ethernet and IP header into the front of `frame`, which holds the whole packet; the IPv4
    /// checksum is left 0 with `device_checksum`. Addresses must be of one family.
    pub(crate) fn write(&self, frame: &mut [u8], macs: ([u8; 6], [u8; 6]), device_checksum: bool) {
        let total = frame.len() - ETHERNET_BYTES;
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                ethernet(frame, macs, ETHERTYPE_IPV4);
                self.ipv4(&mut frame[ETHERNET_BYTES..], src, dst, total, None, device_checksum);
            }
            (src, dst) => {
                ethernet(frame, macs, ETHERTYPE_IPV6);
                let payload = total - IPV6_BYTES;
                self.ipv6(&mut frame[ETHERNET_BYTES..], v6(src), v6(dst), payload, self.protocol);
            }
        }
    }

    /// The same for a fragment: in IPv6 the fragment header is written too.
    pub(crate) fn write_fragment(&self, frame: &mut [u8], macs: ([u8; 6], [u8; 6]), cut: Cut) {
        let total = frame.len() - ETHERNET_BYTES;
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                ethernet(frame, macs, ETHERTYPE_IPV4);
                self.ipv4(&mut frame[ETHERNET_BYTES..], src, dst, total, Some(cut), false);
            }
            (src, dst) => {
                ethernet(frame, macs, ETHERTYPE_IPV6);
                let packet = &mut frame[ETHERNET_BYTES..];
                self.ipv6(packet, v6(src), v6(dst), total - IPV6_BYTES, FRAGMENT_HEADER);
                let header = &mut packet[IPV6_BYTES..IPV6_BYTES + FRAGMENT_BYTES];
                header[0] = self.protocol;
                header[1] = 0;
                header[2..4].copy_from_slice(&(cut.offset | u16::from(cut.more)).to_be_bytes());
                header[4..8].copy_from_slice(&cut.id.to_be_bytes());
            }
        }
    }

    fn ipv4(
        &self,
        packet: &mut [u8],
        src: Ipv4Addr,
        dst: Ipv4Addr,
        total: usize,
        cut: Option<Cut>,
        device_checksum: bool,
    ) {
        let (id, place) = match cut {
            Some(cut) => (cut.id as u16, (u16::from(cut.more) << 13) | (cut.offset / 8)),
            // What fits is never to be cut on the way: a router that cannot pass it on says so, and the path
            // MTU is learned. Such a packet needs no identification (RFC 6864, section 4.1).
            None => (0, 0x4000),
        };
        packet[0] = 0x45;
        packet[1] = self.traffic_class;
        // A TSO packet may be longer than the field can say; the device fills in each segment's.
        packet[2..4].copy_from_slice(&(total as u16).to_be_bytes());
        packet[4..6].copy_from_slice(&id.to_be_bytes());
        packet[6..8].copy_from_slice(&place.to_be_bytes());
        packet[8] = self.hop_limit;
        packet[9] = self.protocol;
        packet[10..12].fill(0);
        packet[12..16].copy_from_slice(&src.octets());
        packet[16..20].copy_from_slice(&dst.octets());
        if !device_checksum {
            let sum = Checksum::new().bytes(&packet[..IPV4_BYTES]).finish();
            packet[10..12].copy_from_slice(&sum);
        }
    }

    fn ipv6(&self, packet: &mut [u8], src: Ipv6Addr, dst: Ipv6Addr, payload: usize, next: u8) {
        packet[0] = 0x60 | self.traffic_class >> 4;
        packet[1] = self.traffic_class << 4;
        packet[2..4].fill(0);
        packet[4..6].copy_from_slice(&(payload as u16).to_be_bytes());
        packet[6] = next;
        packet[7] = self.hop_limit;
        packet[8..24].copy_from_slice(&src.octets());
        packet[24..40].copy_from_slice(&dst.octets());
    }
}

/// Writes an Ethernet header; `macs` are destination and source.
pub(crate) fn ethernet(frame: &mut [u8], macs: ([u8; 6], [u8; 6]), ethertype: u16) {
    frame[..6].copy_from_slice(&macs.0);
    frame[6..12].copy_from_slice(&macs.1);
    frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
}

fn v6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}
