//! Receiving: a burst is read as a whole, then each packet is judged and taken.

use ff_flowmap::{FlowIndex, FlowKey};
use ff_handover::DropReason;
use ff_tcp::{Ecn, SegmentMeta};

use crate::dispatch::{Own, Verdict, dispatch};
use crate::io::{BURST, Frame, PacketIo, WorkerRef};
use crate::ip::addresses::Destination;
use crate::ip::icmp::{self, Embedded};
use crate::ip::layer::IcmpReply;
use crate::ip::link_address::is_ndp;
use crate::ip::output::{Cut, IpHeader, header_bytes};
use crate::ip::parse::{self, Class, ETHERNET_BYTES, Parsed, TCP, UDP};
use crate::ip::reassembly::Outcome;
use crate::moving::is_record;
use crate::stack::Stack;

/// What was read of a frame of the burst. It travels with the frame, so nothing is parsed twice.
pub(crate) struct Item {
    parsed: Result<Parsed, DropReason>,
    origin: Origin,
}

/// How a frame came to this worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// From a queue of the device.
    Queue,
    /// Another worker has handed it over.
    Forwarded,
    /// This worker has sent it to itself.
    Looped,
}

/// What was found out about a packet before it is taken.
struct Judged {
    verdict: Verdict,
    own: Own,
    embedded: Option<Embedded>,
}

impl<P: PacketIo, I: FlowIndex> Stack<P, I> {
    /// Receives a burst from the inboxes and one from the queues, and takes it. Says how many frames.
    pub(crate) fn receive(&mut self) -> usize {
        let mut burst = std::mem::take(&mut self.burst);
        let mut items = std::mem::take(&mut self.items);
        // The inboxes first: a connection's record that is among them comes before packets of its flow.
        let from_inboxes = self.io.receive_forwarded(&mut burst);
        let count = from_inboxes + self.io.receive(&mut burst);
        self.ip.take_looped(&mut burst, BURST);
        let mac = self.ip.addresses.mac();
        for (position, frame) in burst.iter().enumerate() {
            let parsed = parse::parse(frame.bytes(), mac, frame.rx_checksum());
            if let Ok(parsed) = &parsed
                && parsed.key.protocol == TCP
            {
                self.engine.index().prefetch(&parsed.key);
            }
            let origin = match position {
                _ if position < from_inboxes => Origin::Forwarded,
                _ if position < count => Origin::Queue,
                _ => Origin::Looped,
            };
            items.push(Item { parsed, origin });
        }
        // The lookup is made when the packet's turn comes: a packet before it in the burst may have changed
        // the table. Its cache lines are on their way since the loop above.
        for (frame, item) in burst.drain(..).zip(items.drain(..)) {
            if item.origin == Origin::Forwarded && is_record(frame.bytes()) {
                self.take_record(frame.bytes());
                continue;
            }
            match item.parsed {
                Ok(parsed) => self.take_frame(frame, &parsed, item.origin),
                Err(reason) => self.ip.drops.count(reason),
            }
        }
        self.burst = burst;
        self.items = items;
        count
    }

    pub(crate) fn take_frame(&mut self, frame: P::Frame, parsed: &Parsed, origin: Origin) {
        let mut judged = self.judge(parsed, frame.bytes(), origin);
        if judged.verdict == Verdict::Local && self.look_for_record(parsed, judged.own, origin) {
            judged = self.judge(parsed, frame.bytes(), origin);
        }
        match judged.verdict {
            Verdict::Local if self.follows_record(parsed, judged.own, origin) => {
                self.forward_after_record(frame);
            }
            Verdict::Local => self.take_packet(parsed, frame.bytes(), &judged, origin),
            Verdict::Forward(worker) => {
                if self.io.forward(worker, frame).is_err() {
                    self.ip.drops.count(DropReason::ForwardFull);
                }
            }
            Verdict::Kernel => self.ip.drops.count(DropReason::KernelPathFull),
        }
    }

    fn judge(&self, parsed: &Parsed, bytes: &[u8], origin: Origin) -> Judged {
        let embedded = match parsed.class {
            Class::Icmp { .. } => icmp::embedded(parsed, bytes),
            Class::Icmpv6 { kind } if !is_ndp(kind) => icmp::embedded(parsed, bytes),
            _ => None,
        };
        let own = match (&parsed.class, &embedded) {
            (Class::Tcp { .. } | Class::Udp, _) => self.own(&parsed.key),
            (_, Some(embedded)) => self.own(&embedded.key),
            _ => Own::Unknown,
        };
        let handed_over = origin != Origin::Queue;
        let verdict = dispatch(parsed, embedded.as_ref(), own, handed_over, &self.view, self.now.0);
        Judged { verdict, own, embedded }
    }

    /// What my tables say about a flow.
    fn own(&self, key: &FlowKey) -> Own {
        match key.protocol {
            TCP => self.engine.index().lookup(key).map_or(Own::Unknown, Own::Tcp),
            // Alone there is nobody else to ask, so it need not be known.
            UDP if !self.view.siblings.is_empty() || !self.view.others.is_empty() => match &self.udp_table {
                Some(table) if table.is_live(key, self.now.0) => Own::Udp,
                _ => Own::Unknown,
            },
            _ => Own::Unknown,
        }
    }

    /// Takes a packet that is for this worker. `bytes` is what `parsed` was read from.
    fn take_packet(&mut self, parsed: &Parsed, bytes: &[u8], judged: &Judged, origin: Origin) {
        if parsed.class == Class::Arp {
            let arp = bytes.get(usize::from(parsed.l3)..).unwrap_or_default();
            if let Err(reason) = self.ip.on_arp(&mut self.io, self.now, arp) {
                self.ip.drops.count(reason);
            }
            return;
        }
        let destination = self.ip.addresses.destination(parsed.dst());
        if destination == Destination::Foreign {
            return self.ip.drops.count(DropReason::WrongAddress);
        }
        if origin != Origin::Looped && self.ip.addresses.is_own(parsed.src()) {
            return self.ip.drops.count(DropReason::BadSource);
        }
        match parsed.class {
            Class::Arp => {}
            Class::Fragment(_) => self.take_fragment(parsed, bytes, origin),
            Class::Tcp { .. } => self.take_tcp(parsed, bytes, destination, judged.own),
            Class::Udp => self.take_udp(parsed, bytes, destination),
            Class::Icmp { .. } | Class::Icmpv6 { .. } => self.take_icmp(parsed, bytes, judged.embedded),
            Class::ParameterProblem { code, pointer, multicast_too } => {
                self.ip.drops.count(DropReason::BadExtensionHeader);
                let word = u32::from(pointer);
                let error = IcmpReply { icmp_type: 4, code, word, multicast_too };
                self.ip.send_error(&mut self.io, self.now, parsed, bytes, error);
            }
            Class::Other => {
                self.ip.drops.count(DropReason::UnknownProtocol);
                // The pointer of IPv6 is at the field that named the protocol; without extension headers that
                // is byte 6, and with some it is their last one's first byte, which is not kept.
                let error = IcmpReply::protocol_unreachable(parsed.key.family == 4, 6);
                self.ip.send_error(&mut self.io, self.now, parsed, bytes, error);
            }
        }
    }

    fn take_tcp(&mut self, parsed: &Parsed, bytes: &[u8], destination: Destination, own: Own) {
        // A segment to many has no one to answer it (RFC 9293, section 3.9.2.3).
        if destination != Destination::Own || parsed.cast != parse::Cast::Unicast {
            return self.ip.drops.count(DropReason::WrongAddress);
        }
        if parsed.src().is_unspecified() {
            return self.ip.drops.count(DropReason::BadSource);
        }
        if !parsed.l4_checksum_is_good(bytes) {
            return self.ip.drops.count(DropReason::BadTcpChecksum);
        }
        let flow = match own {
            Own::Tcp(flow) => Some(flow),
            Own::Udp | Own::Unknown => None,
        };
        let meta =
            SegmentMeta { src: parsed.src(), dst: parsed.dst(), ecn: Ecn::from_bits(parsed.traffic_class) };
        self.engine.on_segment(self.now, meta, parsed.l4_bytes(bytes), flow);
    }

    fn take_udp(&mut self, parsed: &Parsed, bytes: &[u8], destination: Destination) {
        if destination != Destination::Own || parsed.src().is_unspecified() {
            return self.ip.drops.count(DropReason::NoUdpSocket);
        }
        if !parsed.l4_checksum_is_good(bytes) {
            return self.ip.drops.count(DropReason::BadUdpChecksum);
        }
        let payload = parsed.l4_bytes(bytes).get(crate::udp::HEADER_BYTES..).unwrap_or_default();
        match self.deliver_udp(&parsed.key, payload) {
            Some(true) => {}
            Some(false) => self.ip.drops.count(DropReason::UdpSocketFull),
            None => {
                self.ip.drops.count(DropReason::NoUdpSocket);
                if !self.config.udp_blackhole {
                    let error = IcmpReply::port_unreachable(parsed.key.family == 4);
                    self.ip.send_error(&mut self.io, self.now, parsed, bytes, error);
                }
            }
        }
    }

    fn take_icmp(&mut self, parsed: &Parsed, bytes: &[u8], embedded: Option<Embedded>) {
        if !parsed.l4_checksum_is_good(bytes) {
            return self.ip.drops.count(DropReason::BadIcmp);
        }
        if let Class::Icmpv6 { kind } = parsed.class
            && is_ndp(kind)
        {
            let message = parsed.l4_bytes(bytes);
            if let Err(reason) = self.ip.on_ndp(&mut self.io, self.now, parsed, message) {
                self.ip.drops.count(reason);
            }
            return;
        }
        if let Some(Embedded { key, error, seq }) = embedded {
            match key.protocol {
                TCP => self.engine.on_icmp_error(self.now, &key, error, seq),
                _ => self.on_udp_error(&key, error),
            }
            return;
        }
        self.ip.on_echo(&mut self.io, self.now, parsed, bytes);
    }

    fn take_fragment(&mut self, parsed: &Parsed, bytes: &[u8], origin: Origin) {
        let outcome = self.ip.reassembler.push(self.now, parsed, bytes);
        let evicted = self.ip.reassembler.take_evicted();
        self.ip.drops.add(DropReason::FragmentMemory, evicted);
        match outcome {
            Outcome::Kept => {}
            Outcome::Dropped(reason) => self.ip.drops.count(reason),
            Outcome::Whole(packet) => match parse::parse_reassembled(&packet, parsed) {
                Err(reason) => self.ip.drops.count(reason),
                // Fragments within fragments do not exist.
                Ok(whole) if matches!(whole.class, Class::Fragment(_)) => {
                    self.ip.drops.count(DropReason::BadFragment);
                }
                Ok(whole) => {
                    let judged = self.judge(&whole, &packet, origin);
                    match judged.verdict {
                        Verdict::Local => self.take_packet(&whole, &packet, &judged, origin),
                        Verdict::Forward(worker) => self.forward_whole(worker, &whole, &packet),
                        Verdict::Kernel => self.ip.drops.count(DropReason::KernelPathFull),
                    }
                }
            },
        }
    }

    /// Hands a packet that was put together to another worker: in fragments again, since it may be longer
    /// than a frame. That worker puts them together; it takes whatever is forwarded to it.
    fn forward_whole(&mut self, worker: WorkerRef, whole: &Parsed, packet: &[u8]) {
        let payload = packet.get(usize::from(whole.l4)..).unwrap_or_default();
        let header = IpHeader {
            src: whole.src(),
            dst: whole.dst(),
            protocol: whole.key.protocol,
            traffic_class: whole.traffic_class,
            hop_limit: whole.hop_limit,
            dont_fragment: false,
        };
        let fragment_header = if header.dst.is_ipv4() { 0 } else { crate::ip::output::FRAGMENT_BYTES };
        let at = ETHERNET_BYTES + header_bytes(header.dst) + fragment_header;
        let room = (usize::from(self.ip.mtu()) + ETHERNET_BYTES - at) & !7;
        let id = self.ip.fragment_id(header.src);
        let macs = (self.ip.addresses.mac(), whole.source_mac);
        for (number, part) in payload.chunks(room).enumerate() {
            let offset = number * room;
            let cut = Cut { id, offset: offset as u16, more: offset + part.len() < payload.len() };
            let Some(mut frame) = self.io.alloc().filter(|frame| frame.capacity() >= at + part.len()) else {
                return;
            };
            frame.set_len(at + part.len());
            frame.bytes_mut()[at..].copy_from_slice(part);
            header.write_fragment(frame.bytes_mut(), macs, cut);
            if self.io.forward(worker, frame).is_err() {
                return self.ip.drops.count(DropReason::ForwardFull);
            }
        }
    }

    /// Tells TCP and UDP of flows whose next hop does not answer.
    pub(crate) fn report_unreachable(&mut self) {
        while let Some((key, seq)) = self.ip.unreachable.pop() {
            // Of the codes that mean an unreachable host, the ones that end a handshake at once, as Linux ends
            // it when nobody answers ARP: "administratively prohibited" of both families. An established
            // connection only remembers it.
            let code = if key.family == 4 { 13 } else { 1 };
            let error = ff_tcp::IcmpError::Unreachable { code };
            match key.protocol {
                TCP => self.engine.on_icmp_error(self.now, &key, error, seq),
                _ => self.on_udp_error(&key, error),
            }
        }
    }
}
