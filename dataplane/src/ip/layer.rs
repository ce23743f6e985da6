//! The network layer with its state: what is sent finds its next hop, what is asked of us is answered.

use std::collections::VecDeque;
use std::hash::Hasher;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ff_flowmap::{FlowKey, HashKey, NeighbourWriter, Resolution};
use ff_handover::{DROP_REASONS, DropReason};
use ff_tcp::Instant;
use siphasher::sip::SipHasher13;

use super::addresses::{Addresses, Route, group_mac, solicited_group};
use super::hop_cache::HopCache;
use super::icmp::{self, RateLimit};
use super::link_address::{self, ARP_BYTES, LinkMessage, NDP_HOP_LIMIT};
use super::output::{Cut, FRAGMENT_BYTES, HOP_LIMIT, IpHeader, ethernet, header_bytes};
use super::parse::{ETHERNET_BYTES, ETHERTYPE_ARP, ICMPV6, Parsed, TCP, UDP};
use super::pmtu::PathMtus;
use super::reassembly::{Reassembler, ReassemblyLimits};
use super::waiting::Waiting;
use crate::io::{Capabilities, Frame, PacketIo};

/// Errors that we send a second, and at once.
const ERRORS_PER_SECOND: u64 = 1_000;
const ERRORS_BURST: u64 = 50;
/// Between two looks at packets that wait for a neighbour whose entry has not changed: it may be time to ask
/// again, or to give up.
const WAITING_CHECK_US: u64 = 100_000;
/// A packet waits so long at most: three questions, a second apart (RFC 4861, section 7.2.2), and some.
const WAIT_MAX_US: u64 = 5_000_000;
/// Questions to a known address go to it alone, so often; then to all, since it may have moved (RFC 1122,
/// section 2.3.2.1).
const UNICAST_PROBES: u32 = 3;
/// Packets to ourselves that wait for the next pass.
const LOOPED_MAX: usize = 1_024;
/// Flows reported as unreachable at once.
const UNREACHABLE_MAX: usize = 64;

/// Why a packet was not sent. What is not sent is counted where that is decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum SendError {
    #[error("no route to the destination")]
    NoRoute,
    #[error("no packet buffer left")]
    NoMemory,
    #[error("the packet is longer than {mtu} bytes, and may not be cut")]
    TooLong { mtu: u16 },
}

/// Drops by reason since the last report.
#[derive(Clone, Debug)]
pub(crate) struct Drops([u64; DROP_REASONS]);

impl Drops {
    pub(crate) fn count(&mut self, reason: DropReason) {
        self.0[reason as usize] += 1;
    }

    pub(crate) fn add(&mut self, reason: DropReason, n: u64) {
        self.0[reason as usize] += n;
    }

    pub(crate) fn take(&mut self, reason: DropReason) -> u64 {
        std::mem::take(&mut self.0[reason as usize])
    }

    pub(crate) fn get(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }
}

/// The network layer of one worker.
pub(crate) struct IpLayer<F> {
    pub(crate) addresses: Addresses,
    pub(crate) drops: Drops,
    pub(crate) reassembler: Reassembler,
    pub(crate) pmtus: PathMtus,
    capabilities: Capabilities,
    mtu: u16,
    neighbours: NeighbourWriter<'static>,
    hops: HopCache,
    waiting: Waiting<F>,
    /// Packets from this worker to itself.
    looped: VecDeque<F>,
    waiting_changes: u64,
    waiting_check: Instant,
    errors: RateLimit,
    defences: RateLimit,
    conflicts: u64,
    fragment_key: HashKey,
    fragment_counter: u32,
    /// Flows whose packets found no neighbour, for TCP and UDP to hear of, with the packet's sequence number.
    pub(crate) unreachable: Vec<(FlowKey, Option<u32>)>,
}

impl<F: Frame> IpLayer<F> {
    pub(crate) fn new(
        addresses: Addresses,
        capabilities: Capabilities,
        mtu: u16,
        neighbours: NeighbourWriter<'static>,
        fragment_key: HashKey,
    ) -> Self {
        Self {
            addresses,
            drops: Drops([0; DROP_REASONS]),
            reassembler: Reassembler::new(ReassemblyLimits::default()),
            pmtus: PathMtus::default(),
            capabilities,
            mtu,
            neighbours,
            hops: HopCache::new(),
            waiting: Waiting::new(),
            looped: VecDeque::new(),
            waiting_changes: 0,
            waiting_check: Instant(0),
            errors: RateLimit::new(ERRORS_PER_SECOND, ERRORS_BURST),
            // RFC 5227, section 2.4 b: one defence in ten seconds.
            defences: RateLimit::new(1, 1),
            conflicts: 0,
            fragment_key,
            fragment_counter: 0,
            unreachable: Vec::new(),
        }
    }

    /// The link's MTU in bytes.
    pub(crate) fn mtu(&self) -> u16 {
        self.mtu
    }

    pub(crate) fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Packets that wait for a neighbour.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Times that another host was seen with one of our addresses.
    pub(crate) fn conflicts(&self) -> u64 {
        self.conflicts
    }

    /// When [`tick`](Self::tick) has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let waiting = (!self.waiting.is_empty()).then_some(self.waiting_check);
        [waiting, self.reassembler.next_deadline()].into_iter().flatten().min()
    }

    /// Sends `payload` behind `header`, in fragments if it is too long and may be cut. For everything but
    /// TCP, which builds its segments in place.
    pub(crate) fn send<P: PacketIo<Frame = F>>(
        &mut self,
        io: &mut P,
        now: Instant,
        header: &IpHeader,
        payload: &[u8],
    ) -> Result<(), SendError> {
        let route = self.addresses.route(header.dst).ok_or(SendError::NoRoute)?;
        let ip_bytes = header_bytes(header.dst);
        let mtu = self.pmtus.get(now, header.dst, self.mtu);
        if ip_bytes + payload.len() <= usize::from(mtu) {
            let frame = self.fill(io, header, payload, None).ok_or(SendError::NoMemory)?;
            self.send_by(io, now, frame, route);
            return Ok(());
        }
        if header.dont_fragment {
            return Err(SendError::TooLong { mtu });
        }
        let fragment_header = if header.dst.is_ipv4() { 0 } else { FRAGMENT_BYTES };
        // Parts but the last are multiples of 8 bytes.
        let room = (usize::from(mtu) - ip_bytes - fragment_header) & !7;
        let id = self.fragment_id(header.dst);
        let mut at = 0;
        while at < payload.len() {
            let part = &payload[at..payload.len().min(at + room)];
            let cut = Cut { id, offset: at as u16, more: at + part.len() < payload.len() };
            let frame = self.fill(io, header, part, Some(cut)).ok_or(SendError::NoMemory)?;
            self.send_by(io, now, frame, route);
            at += part.len();
        }
        Ok(())
    }

    /// A frame with headers and payload; its Ethernet destination is filled in when the hop is known.
    fn fill<P: PacketIo<Frame = F>>(
        &mut self,
        io: &mut P,
        header: &IpHeader,
        payload: &[u8],
        cut: Option<Cut>,
    ) -> Option<F> {
        let mut at = ETHERNET_BYTES + header_bytes(header.dst);
        if cut.is_some() && !header.dst.is_ipv4() {
            at += FRAGMENT_BYTES;
        }
        let len = at + payload.len();
        let mut frame = io.alloc().filter(|frame| frame.capacity() >= len)?;
        frame.set_len(len);
        let bytes = frame.bytes_mut();
        bytes[at..].copy_from_slice(payload);
        let macs = ([0; 6], self.addresses.mac());
        match cut {
            Some(cut) => header.write_fragment(bytes, macs, cut),
            None => header.write(bytes, macs, false),
        }
        Some(frame)
    }

    /// Sends a finished frame. What goes to ourselves must have its checksums.
    pub(crate) fn send_by<P: PacketIo<Frame = F>>(
        &mut self,
        io: &mut P,
        now: Instant,
        frame: F,
        route: Route,
    ) {
        match route {
            Route::Hop(hop) => self.send_to_hop(io, now, frame, hop),
            Route::Own => self.loop_back(frame),
        }
    }

    fn loop_back(&mut self, mut frame: F) {
        if self.looped.len() >= LOOPED_MAX {
            return self.drops.count(DropReason::TxFull);
        }
        let mac = self.addresses.mac();
        frame.bytes_mut()[..6].copy_from_slice(&mac);
        self.looped.push_back(frame);
    }

    /// Appends up to `max` packets that this worker has sent to itself, and says how many.
    pub(crate) fn take_looped(&mut self, burst: &mut Vec<F>, max: usize) -> usize {
        let count = self.looped.len().min(max);
        burst.extend(self.looped.drain(..count));
        count
    }

    /// Packets to ourselves wait for the next pass.
    pub(crate) fn has_looped(&self) -> bool {
        !self.looped.is_empty()
    }

    /// Sends a finished frame to `hop`, now or when its address is known.
    fn send_to_hop<P: PacketIo<Frame = F>>(&mut self, io: &mut P, now: Instant, mut frame: F, hop: IpAddr) {
        let changes = self.neighbours.table().changes();
        if let Some(mac) = self.hops.get(now, changes, hop) {
            frame.bytes_mut()[..6].copy_from_slice(&mac);
            io.transmit(frame);
            return;
        }
        match self.neighbours.resolve(hop, now.0) {
            Resolution::Send { mac, probe } => {
                if !self.waiting.is_empty() {
                    // Another worker has learned the address; what waits goes first.
                    self.release(io, hop, mac);
                }
                self.hops.put(now, changes, hop, mac);
                frame.bytes_mut()[..6].copy_from_slice(&mac);
                io.transmit(frame);
                if probe {
                    self.ask(io, now, hop);
                }
            }
            Resolution::Wait { probe } => {
                if self.waiting.is_empty() {
                    self.waiting_check = now + WAITING_CHECK_US;
                }
                if self.waiting.push(now, hop, frame).is_err() {
                    self.drops.count(DropReason::NeighbourQueueFull);
                }
                if probe {
                    self.ask(io, now, hop);
                }
            }
            Resolution::Unreachable => self.give_up(frame),
        }
    }

    /// Looks after packets that wait, and fragments that have waited too long. To be called once a pass.
    pub(crate) fn tick<P: PacketIo<Frame = F>>(&mut self, io: &mut P, now: Instant) {
        if !self.waiting.is_empty() {
            let changes = self.neighbours.table().changes();
            if changes != self.waiting_changes || now >= self.waiting_check {
                self.waiting_changes = changes;
                self.waiting_check = now + WAITING_CHECK_US;
                self.look_at_waiting(io, now);
            }
        }
        if self.reassembler.next_deadline().is_some_and(|deadline| deadline <= now) {
            let mut expired = Vec::new();
            let count = self.reassembler.expire(now, |packet| expired.push(packet));
            self.drops.add(DropReason::FragmentTimeout, count as u64);
            for packet in expired {
                self.report_expired(io, now, &packet);
            }
        }
    }

    fn look_at_waiting<P: PacketIo<Frame = F>>(&mut self, io: &mut P, now: Instant) {
        let hops: Vec<(IpAddr, Instant)> = self.waiting.hops().collect();
        for (hop, since) in hops {
            // In a table that is too small neighbours push each other out, and nobody is ever found
            // unreachable: so there is a limit of time too.
            let waited_us = now.micros_since(since);
            match self.neighbours.resolve(hop, now.0) {
                Resolution::Send { mac, .. } => self.release(io, hop, mac),
                Resolution::Wait { probe } if waited_us < WAIT_MAX_US => {
                    if probe {
                        self.ask(io, now, hop);
                    }
                }
                Resolution::Wait { .. } | Resolution::Unreachable => {
                    for frame in self.waiting.take(hop) {
                        self.give_up(frame);
                    }
                }
            }
        }
    }

    fn release<P: PacketIo<Frame = F>>(&mut self, io: &mut P, hop: IpAddr, mac: [u8; 6]) {
        for mut frame in self.waiting.take(hop) {
            frame.bytes_mut()[..6].copy_from_slice(&mac);
            io.transmit(frame);
        }
    }

    /// Drops a packet of ours whose next hop does not answer, and remembers whose it was.
    fn give_up(&mut self, frame: F) {
        self.drops.count(DropReason::NeighbourUnreachable);
        if self.unreachable.len() < UNREACHABLE_MAX
            && let Some(sent) = sent_flow(frame.bytes())
            && !self.unreachable.iter().any(|(key, _)| *key == sent.0)
        {
            self.unreachable.push(sent);
        }
    }

    /// Asks for the MAC address of `hop`.
    fn ask<P: PacketIo<Frame = F>>(&mut self, io: &mut P, now: Instant, hop: IpAddr) {
        let Some(own) = self.addresses.source_for(hop) else { return };
        let known = self.neighbours.table().lookup(hop, now.0);
        let unicast = known.filter(|known| known.mac != [0; 6] && known.probes <= UNICAST_PROBES);
        let unicast = unicast.map(|known| known.mac);
        match (own, hop) {
            (IpAddr::V4(own), IpAddr::V4(hop)) => {
                let target = (hop, [0; 6]);
                self.send_arp(io, false, (own, self.addresses.mac()), target, unicast.unwrap_or([0xff; 6]));
            }
            (IpAddr::V6(own), IpAddr::V6(hop)) => {
                let dst = if unicast.is_some() { hop } else { solicited_group(hop) };
                let (message, len) = link_address::solicitation(own, dst, hop, self.addresses.mac());
                self.send_ndp(io, (own, dst), &message[..len], unicast.unwrap_or(group_mac(dst.into())));
            }
            _ => {}
        }
    }

    /// Tells the link which addresses are ours, and asks whether anybody else has them (RFC 5227; RFC 4862
    /// with RFC 4429: the addresses are used at once).
    pub(crate) fn announce<P: PacketIo<Frame = F>>(&mut self, io: &mut P) {
        let mac = self.addresses.mac();
        let own: Vec<IpAddr> = self.addresses.iter().collect();
        for ip in own {
            match ip {
                IpAddr::V4(ip) => self.send_arp(io, false, (ip, mac), (ip, [0; 6]), [0xff; 6]),
                IpAddr::V6(ip) => {
                    let dst = solicited_group(ip);
                    let (message, len) = link_address::solicitation(Ipv6Addr::UNSPECIFIED, dst, ip, mac);
                    self.send_ndp(io, (Ipv6Addr::UNSPECIFIED, dst), &message[..len], group_mac(dst.into()));
                    self.advertise(io, ip, None);
                }
            }
        }
    }

    /// Takes an ARP packet.
    pub(crate) fn on_arp<P: PacketIo<Frame = F>>(
        &mut self,
        io: &mut P,
        now: Instant,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let message = link_address::parse_arp(bytes)?;
        self.on_link_message(io, now, message);
        Ok(())
    }

    /// Takes an NDP message whose checksum is verified.
    pub(crate) fn on_ndp<P: PacketIo<Frame = F>>(
        &mut self,
        io: &mut P,
        now: Instant,
        parsed: &Parsed,
        message: &[u8],
    ) -> Result<(), DropReason> {
        let (IpAddr::V6(src), IpAddr::V6(dst)) = (parsed.src(), parsed.dst()) else {
            return Err(DropReason::BadIcmp);
        };
        let message = link_address::parse_ndp(message, src, dst, parsed.hop_limit)?;
        self.on_link_message(io, now, message);
        Ok(())
    }

    fn on_link_message<P: PacketIo<Frame = F>>(&mut self, io: &mut P, now: Instant, message: LinkMessage) {
        match message {
            LinkMessage::Ignored => {}
            LinkMessage::Question { sender, sender_mac, target } => {
                self.on_question(io, now, sender, sender_mac, target);
            }
            LinkMessage::Answer { target, mac, solicited, overrides } => {
                self.on_answer(io, now, target, mac, solicited, overrides);
            }
        }
    }

    fn on_question<P: PacketIo<Frame = F>>(
        &mut self,
        io: &mut P,
        now: Instant,
        sender: IpAddr,
        sender_mac: Option<[u8; 6]>,
        target: IpAddr,
    ) {
        let known = self.neighbours.table().lookup(sender, now.0).is_some();
        let to_us = self.addresses.is_own(target);
        if self.addresses.is_own(sender) {
            self.on_conflict(io, now, sender, sender_mac);
            return;
        }
        // Who asks us will be answered, so its address is worth a place; of others only what is known is
        // brought up to date (RFC 826; RFC 4861, section 7.2.3).
        if let Some(mac) = sender_mac
            && !sender.is_unspecified()
            && (to_us || known)
        {
            self.neighbours.learn(sender, mac, false, now.0);
        }
        if !to_us {
            return;
        }
        match (target, sender) {
            (IpAddr::V4(own), IpAddr::V4(sender)) => {
                // A probe for duplicates (RFC 5227) is answered like any question.
                let mac = sender_mac.unwrap_or([0xff; 6]);
                self.send_arp(io, true, (own, self.addresses.mac()), (sender, mac), mac);
            }
            (IpAddr::V6(own), IpAddr::V6(sender)) if sender.is_unspecified() => self.advertise(io, own, None),
            (IpAddr::V6(own), IpAddr::V6(sender)) => {
                let known = || self.neighbours.table().lookup(sender.into(), now.0).map(|known| known.mac);
                // Without the sender's MAC the answer would have to wait for a question of our own; the
                // sender asks again with it.
                if let Some(mac) = sender_mac.or_else(known).filter(|mac| *mac != [0; 6]) {
                    self.advertise(io, own, Some((sender, mac)));
                }
            }
            _ => {}
        }
    }

    fn on_answer<P: PacketIo<Frame = F>>(
        &mut self,
        io: &mut P,
        now: Instant,
        target: IpAddr,
        mac: Option<[u8; 6]>,
        solicited: bool,
        overrides: bool,
    ) {
        if self.addresses.is_own(target) {
            self.on_conflict(io, now, target, mac);
            return;
        }
        // An answer to a question that nobody asked is not believed (RFC 4861, section 7.2.5).
        let Some(known) = self.neighbours.table().lookup(target, now.0) else { return };
        let incomplete = known.mac == [0; 6];
        match mac {
            Some(mac) if incomplete || overrides || mac == known.mac => {
                self.neighbours.learn(target, mac, solicited, now.0);
            }
            None if solicited && !incomplete => self.neighbours.confirm(target, now.0),
            Some(_) | None => {}
        }
    }

    /// Another host uses an address of ours. It is told so, rarely; the address is kept, since a server that
    /// goes away because of one packet would be an easy prey (RFC 5227, section 2.4 c).
    fn on_conflict<P: PacketIo<Frame = F>>(
        &mut self,
        io: &mut P,
        now: Instant,
        ip: IpAddr,
        mac: Option<[u8; 6]>,
    ) {
        let own_mac = self.addresses.mac();
        // Our own words, looped back by a switch, a hub, or the other end of a TAP.
        if mac == Some(own_mac) {
            return;
        }
        self.conflicts += 1;
        if !self.defences.allow(Instant(now.0 / 10)) {
            return;
        }
        match ip {
            IpAddr::V4(ip) => self.send_arp(io, false, (ip, own_mac), (ip, [0; 6]), [0xff; 6]),
            IpAddr::V6(ip) => self.advertise(io, ip, None),
        }
    }

    /// Says that `own` is at our MAC address: to the one who asked, or to all.
    fn advertise<P: PacketIo<Frame = F>>(
        &mut self,
        io: &mut P,
        own: Ipv6Addr,
        to: Option<(Ipv6Addr, [u8; 6])>,
    ) {
        let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        let (dst, mac) = to.unwrap_or((all, group_mac(all.into())));
        let message = link_address::advertisement(own, dst, own, self.addresses.mac(), to.is_some());
        self.send_ndp(io, (own, dst), &message, mac);
    }

    fn send_arp<P: PacketIo<Frame = F>>(
        &mut self,
        io: &mut P,
        answer: bool,
        sender: (std::net::Ipv4Addr, [u8; 6]),
        target: (std::net::Ipv4Addr, [u8; 6]),
        dst_mac: [u8; 6],
    ) {
        let Some(mut frame) = io.alloc() else { return };
        frame.set_len(ETHERNET_BYTES + ARP_BYTES);
        let bytes = frame.bytes_mut();
        ethernet(bytes, (dst_mac, self.addresses.mac()), ETHERTYPE_ARP);
        link_address::write_arp(&mut bytes[ETHERNET_BYTES..], answer, sender, target);
        io.transmit(frame);
    }

    fn send_ndp<P: PacketIo<Frame = F>>(
        &mut self,
        io: &mut P,
        (src, dst): (Ipv6Addr, Ipv6Addr),
        message: &[u8],
        dst_mac: [u8; 6],
    ) {
        let header = IpHeader {
            src: src.into(),
            dst: dst.into(),
            protocol: ICMPV6,
            traffic_class: 0,
            hop_limit: NDP_HOP_LIMIT,
            dont_fragment: true,
        };
        let Some(mut frame) = self.fill(io, &header, message, None) else { return };
        frame.bytes_mut()[..6].copy_from_slice(&dst_mac);
        io.transmit(frame);
    }

    /// Answers an echo request. True if it was one.
    pub(crate) fn on_echo<P: PacketIo<Frame = F>>(
        &mut self,
        io: &mut P,
        now: Instant,
        parsed: &Parsed,
        bytes: &[u8],
    ) -> bool {
        let peer = parsed.src();
        // A ping to all is not answered over IPv4 (RFC 1122, section 3.2.2.6), over IPv6 it is.
        let src = match self.addresses.is_own(parsed.dst()) {
            true => parsed.dst(),
            false if peer.is_ipv4() => return true,
            false => match self.addresses.source_for(peer) {
                Some(src) => src,
                None => return true,
            },
        };
        let Some(reply) = icmp::echo_reply(parsed, bytes, src) else { return false };
        let header = IpHeader {
            src,
            dst: peer,
            protocol: parsed.key.protocol,
            traffic_class: parsed.traffic_class & !3,
            hop_limit: HOP_LIMIT,
            dont_fragment: false,
        };
        if self.send(io, now, &header, &reply) == Err(SendError::NoRoute) {
            self.drops.count(DropReason::NoRoute);
        }
        true
    }

    /// Answers a received packet with an error, if that may be, and not too often.
    pub(crate) fn send_error<P: PacketIo<Frame = F>>(
        &mut self,
        io: &mut P,
        now: Instant,
        parsed: &Parsed,
        bytes: &[u8],
        error: IcmpReply,
    ) {
        if !icmp::may_answer(parsed, error.multicast_too) {
            return;
        }
        let own = self.addresses.is_own(parsed.dst()).then(|| parsed.dst());
        let Some(src) = own.or_else(|| self.addresses.source_for(parsed.src())) else { return };
        self.send_error_to(io, now, (src, parsed.src()), parsed.l3_bytes(bytes), error);
    }

    fn send_error_to<P: PacketIo<Frame = F>>(
        &mut self,
        io: &mut P,
        now: Instant,
        (src, dst): (IpAddr, IpAddr),
        original: &[u8],
        error: IcmpReply,
    ) {
        if !self.errors.allow(now) {
            return;
        }
        let message = icmp::error_message((src, dst), error.icmp_type, error.code, error.word, original);
        let header = IpHeader {
            src,
            dst,
            protocol: icmp::protocol_for(dst),
            traffic_class: 0,
            hop_limit: HOP_LIMIT,
            dont_fragment: false,
        };
        // Without a route there is nobody to tell; without memory it is counted.
        let _ = self.send(io, now, &header, &message);
    }

    /// "Time exceeded in reassembly", for the beginning of a packet that never became whole.
    fn report_expired<P: PacketIo<Frame = F>>(&mut self, io: &mut P, now: Instant, packet: &[u8]) {
        let (src, dst, icmp_type) = match packet {
            [first, ..] if first >> 4 == 4 && packet.len() >= 20 => {
                let ip =
                    |at: usize| IpAddr::from([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]]);
                (ip(12), ip(16), 11)
            }
            [first, ..] if first >> 4 == 6 && packet.len() >= 40 => {
                let ip = |at: usize| IpAddr::V6(super::parse::address6(&packet[at..at + 16]));
                (ip(8), ip(24), 3)
            }
            _ => return,
        };
        if self.addresses.is_own(dst) && !src.is_unspecified() {
            let error = IcmpReply { icmp_type, code: 1, word: 0, multicast_too: false };
            self.send_error_to(io, now, (dst, src), packet, error);
        }
    }

    /// Identification of the next packet that is cut, hard to guess from others (RFC 7739, section 5.3).
    pub(crate) fn fragment_id(&mut self, dst: IpAddr) -> u32 {
        let mut hasher = SipHasher13::new_with_key(&self.fragment_key);
        match dst {
            IpAddr::V4(v4) => hasher.write(&v4.octets()),
            IpAddr::V6(v6) => hasher.write(&v6.octets()),
        }
        self.fragment_counter = self.fragment_counter.wrapping_add(1);
        (hasher.finish() as u32).wrapping_add(self.fragment_counter)
    }
}

/// An ICMP error that we send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IcmpReply {
    pub(crate) icmp_type: u8,
    pub(crate) code: u8,
    pub(crate) word: u32,
    pub(crate) multicast_too: bool,
}

impl IcmpReply {
    /// Nobody listens on the UDP port.
    pub(crate) fn port_unreachable(v4: bool) -> Self {
        let (icmp_type, code) = if v4 { (3, 3) } else { (1, 4) };
        Self { icmp_type, code, word: 0, multicast_too: false }
    }

    /// Nobody speaks the protocol (RFC 1122, section 3.2.2.1; RFC 8200, section 4).
    pub(crate) fn protocol_unreachable(v4: bool, pointer: u32) -> Self {
        let (icmp_type, code, word) = if v4 { (3, 2, 0) } else { (4, 1, pointer) };
        Self { icmp_type, code, word, multicast_too: false }
    }
}

/// The flow of a TCP or UDP packet that we built ourselves: no options, no extension headers.
fn sent_flow(frame: &[u8]) -> Option<(FlowKey, Option<u32>)> {
    let packet = frame.get(ETHERNET_BYTES..)?;
    let (protocol, src, dst, l4) = match packet.first()? >> 4 {
        4 => {
            let header: &[u8; 20] = packet.first_chunk()?;
            let src: [u8; 4] = *header[12..16].first_chunk()?;
            let dst: [u8; 4] = *header[16..20].first_chunk()?;
            (header[9], IpAddr::from(src), IpAddr::from(dst), &packet[20..])
        }
        6 => {
            let header: &[u8; 40] = packet.first_chunk()?;
            let src: [u8; 16] = *header[8..24].first_chunk()?;
            let dst: [u8; 16] = *header[24..40].first_chunk()?;
            (header[6], IpAddr::from(src), IpAddr::from(dst), &packet[40..])
        }
        _ => return None,
    };
    let seq = match protocol {
        TCP => Some(u32::from_be_bytes(*l4.get(4..8)?.first_chunk()?)),
        UDP => None,
        _ => return None,
    };
    let ports: &[u8; 4] = l4.first_chunk()?;
    let src_port = u16::from_be_bytes([ports[0], ports[1]]);
    let dst_port = u16::from_be_bytes([ports[2], ports[3]]);
    let key = FlowKey::new(protocol, SocketAddr::new(src, src_port), SocketAddr::new(dst, dst_port));
    Some((key, seq))
}
