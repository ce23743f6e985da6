//! ARP (RFC 826, 5227) and neighbour discovery (RFC 4861, 4862): read and written.
//!
//! Pure formats; what is done with them is in [`layer`](super::layer).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::checksum::Checksum;
use super::parse::{ICMPV6, address6};
use ff_handover::DropReason;

/// An ARP packet for IPv4 over Ethernet.
pub(crate) const ARP_BYTES: usize = 28;
/// A neighbour solicitation or advertisement with one link-layer address option.
pub(crate) const NDP_BYTES: usize = 32;
/// Hop limit of all NDP messages: one from beyond the link has less (RFC 4861, section 11.2).
pub(crate) const NDP_HOP_LIMIT: u8 = 255;

/// ICMPv6 type of a neighbour solicitation.
pub(crate) const SOLICITATION: u8 = 135;
/// ICMPv6 type of a neighbour advertisement.
pub(crate) const ADVERTISEMENT: u8 = 136;

/// What an ARP packet or an NDP message says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkMessage {
    /// Who has `target`? The sender is at `sender_mac`, if it says so.
    Question {
        /// The sender's address; unspecified while it checks for duplicates.
        sender: IpAddr,
        /// The sender's MAC address.
        sender_mac: Option<[u8; 6]>,
        /// The address that is sought.
        target: IpAddr,
    },
    /// `target` is at `mac`.
    Answer {
        /// The address.
        target: IpAddr,
        /// Its MAC address; NDP may leave it out.
        mac: Option<[u8; 6]>,
        /// It answers a question of ours.
        solicited: bool,
        /// It replaces what was known (RFC 4861, section 7.2.5).
        overrides: bool,
    },
    /// Well-formed, and not for us: router solicitations and advertisements, redirects.
    Ignored,
}

/// Reads an ARP packet; bytes behind it are padding.
///
/// # Errors
/// It is not well-formed, or not IPv4 over Ethernet.
pub fn parse_arp(bytes: &[u8]) -> Result<LinkMessage, DropReason> {
    let arp: &[u8; ARP_BYTES] = bytes.first_chunk().ok_or(DropReason::BadArp)?;
    if arp[..6] != [0, 1, 8, 0, 6, 4] {
        return Err(DropReason::BadArp);
    }
    let sender_mac = [arp[8], arp[9], arp[10], arp[11], arp[12], arp[13]];
    let sender = Ipv4Addr::new(arp[14], arp[15], arp[16], arp[17]);
    let target = Ipv4Addr::new(arp[24], arp[25], arp[26], arp[27]);
    // A group has no MAC address of its own, and neither has a station whose MAC is a group's.
    if sender_mac[0] & 1 == 1 || sender.is_multicast() || sender.is_broadcast() {
        return Err(DropReason::BadArp);
    }
    match (arp[6], arp[7]) {
        (0, 1) => Ok(LinkMessage::Question {
            sender: sender.into(),
            sender_mac: Some(sender_mac),
            target: target.into(),
        }),
        (0, 2) if sender.is_unspecified() => Err(DropReason::BadArp),
        (0, 2) => Ok(LinkMessage::Answer {
            target: sender.into(),
            mac: Some(sender_mac),
            solicited: sender != target,
            overrides: true,
        }),
        _ => Err(DropReason::BadArp),
    }
}

/// Writes an ARP packet: a question, or an answer with `answer`.
pub(crate) fn write_arp(
    out: &mut [u8],
    answer: bool,
    sender: (Ipv4Addr, [u8; 6]),
    target: (Ipv4Addr, [u8; 6]),
) {
    out[..6].copy_from_slice(&[0, 1, 8, 0, 6, 4]);
    out[6..8].copy_from_slice(&[0, if answer { 2 } else { 1 }]);
    out[8..14].copy_from_slice(&sender.1);
    out[14..18].copy_from_slice(&sender.0.octets());
    out[18..24].copy_from_slice(&target.1);
    out[24..28].copy_from_slice(&target.0.octets());
}

/// Whether an ICMPv6 type is one of NDP's.
pub(crate) fn is_ndp(icmp_type: u8) -> bool {
    (133..=137).contains(&icmp_type)
}

/// Reads an NDP message (an ICMPv6 message whose checksum is verified) with the checks of RFC 4861, sections
/// 7.1.1 and 7.1.2.
///
/// # Errors
/// A check failed.
pub fn parse_ndp(
    message: &[u8],
    src: Ipv6Addr,
    dst: Ipv6Addr,
    hop_limit: u8,
) -> Result<LinkMessage, DropReason> {
    const MALFORMED: DropReason = DropReason::BadIcmp;
    let [icmp_type, code, ..] = *message else { return Err(MALFORMED) };
    if hop_limit != NDP_HOP_LIMIT {
        return Err(DropReason::BadHopLimit);
    }
    if code != 0 {
        return Err(MALFORMED);
    }
    if icmp_type != SOLICITATION && icmp_type != ADVERTISEMENT {
        return Ok(LinkMessage::Ignored);
    }
    let fixed: &[u8; 24] = message.first_chunk().ok_or(MALFORMED)?;
    let target = address6(&fixed[8..24]);
    if target.is_multicast() || target.is_unspecified() {
        return Err(MALFORMED);
    }
    let wanted = if icmp_type == SOLICITATION { 1 } else { 2 };
    let mac = link_layer_option(&message[24..], wanted)?;
    if icmp_type == SOLICITATION {
        // While it checks for duplicates the sender asks the group, and has no address to tell.
        if src.is_unspecified() && (mac.is_some() || !dst.is_multicast()) {
            return Err(MALFORMED);
        }
        return Ok(LinkMessage::Question { sender: src.into(), sender_mac: mac, target: target.into() });
    }
    let (solicited, overrides) = (fixed[4] & 0x40 != 0, fixed[4] & 0x20 != 0);
    if solicited && dst.is_multicast() {
        return Err(MALFORMED);
    }
    Ok(LinkMessage::Answer { target: target.into(), mac, solicited, overrides })
}

/// The link-layer address in the option of that type. All options must have a length.
fn link_layer_option(mut options: &[u8], wanted: u8) -> Result<Option<[u8; 6]>, DropReason> {
    let mut found = None;
    while let [kind, units, ..] = *options {
        let length = usize::from(units) * 8;
        if length == 0 || length > options.len() {
            return Err(DropReason::BadIcmp);
        }
        if kind == wanted && length == 8 && options[2] & 1 == 0 {
            found = options[2..8].try_into().ok();
        }
        options = &options[length..];
    }
    if options.is_empty() { Ok(found) } else { Err(DropReason::BadIcmp) }
}

/// A neighbour solicitation from `src` for `target`; without a source (duplicate address detection) it is 8
/// bytes shorter, since there is no address to tell.
pub(crate) fn solicitation(
    src: Ipv6Addr,
    dst: Ipv6Addr,
    target: Ipv6Addr,
    mac: [u8; 6],
) -> ([u8; NDP_BYTES], usize) {
    let len = if src.is_unspecified() { NDP_BYTES - 8 } else { NDP_BYTES };
    (message(SOLICITATION, 0, (src, dst), target, (1, mac), len), len)
}

/// A neighbour advertisement of `target`, which is ours.
pub(crate) fn advertisement(
    src: Ipv6Addr,
    dst: Ipv6Addr,
    target: Ipv6Addr,
    mac: [u8; 6],
    solicited: bool,
) -> [u8; NDP_BYTES] {
    let flags = 0x20 | if solicited { 0x40 } else { 0 };
    message(ADVERTISEMENT, flags, (src, dst), target, (2, mac), NDP_BYTES)
}

fn message(
    icmp_type: u8,
    flags: u8,
    ends: (Ipv6Addr, Ipv6Addr),
    target: Ipv6Addr,
    option: (u8, [u8; 6]),
    len: usize,
) -> [u8; NDP_BYTES] {
    let mut out = [0; NDP_BYTES];
    out[0] = icmp_type;
    out[4] = flags;
    out[8..24].copy_from_slice(&target.octets());
    out[24..26].copy_from_slice(&[option.0, 1]);
    out[26..32].copy_from_slice(&option.1);
    let sum = Checksum::new().pseudo(ends.0.into(), ends.1.into(), ICMPV6, len).bytes(&out[..len]);
    out[2..4].copy_from_slice(&sum.finish());
    out
}
