//! The table of the module's head, row by row, over real tables.

use std::net::SocketAddr;

use ff_flowmap::{
    FlowIndex, FlowRef, HeapMemory, Owner, Publication, Region, TcpTableWriter, UdpTableWriter,
    format_tcp_table, format_udp_table, tcp_table_bytes, udp_table_bytes,
};
use ff_tcp::IcmpError;

use super::*;
use crate::io::RxChecksum;
use crate::ip::parse::{Fragment, parse};

const IDLE_US: u64 = 10_000_000;
const NOW_US: u64 = 100_000_000;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn me() -> WorkerRef {
    WorkerRef { slot: 1, index: 0 }
}

fn leak(bytes: usize) -> Region<'static> {
    let memory: &'static HeapMemory = Box::leak(Box::new(HeapMemory::new(bytes)));
    memory.region()
}

struct Other {
    tcp: TcpTableWriter<'static>,
    udp: UdpTableWriter<'static>,
}

impl Other {
    fn new() -> Self {
        let owner = Owner { epoch: 1, pid: 7 };
        let (tcp, udp) = (leak(tcp_table_bytes(64)), leak(udp_table_bytes(64)));
        format_tcp_table(tcp, 64, [1; 16]).expect("formatted");
        format_udp_table(udp, 64, [1; 16]).expect("formatted");
        Self {
            tcp: TcpTableWriter::open(tcp, owner).expect("opened"),
            udp: UdpTableWriter::open(udp, owner, IDLE_US).expect("opened"),
        }
    }

    fn peer(&self, slot: u16, index: u16) -> Peer {
        Peer { worker: WorkerRef { slot, index }, tcp: self.tcp.reader(), udp: self.udp.reader() }
    }
}

fn key(protocol: u8) -> FlowKey {
    let local: SocketAddr = "198.18.0.2:80".parse().expect("an address");
    let remote: SocketAddr = "198.18.0.1:4000".parse().expect("an address");
    FlowKey::new(protocol, local, remote)
}

fn packet(class: Class, protocol: u8) -> Parsed {
    Parsed {
        key: key(protocol),
        class,
        cast: Cast::Unicast,
        l3: 14,
        l4: 34,
        end: 74,
        traffic_class: 0,
        hop_limit: 64,
        source_mac: [0; 6],
        l4_checksum: crate::io::ChecksumState::Unknown,
    }
}

fn tcp() -> Parsed {
    packet(Class::Tcp { flags: 0x10 }, TCP)
}

fn udp() -> Parsed {
    packet(Class::Udp, UDP)
}

fn judge(parsed: &Parsed, own: Own, forwarded: bool, view: &View) -> Verdict {
    dispatch(parsed, None, own, forwarded, view, NOW_US)
}

#[test]
fn tcp_goes_to_whoever_holds_the_flow() {
    let (mut sibling, mut old) = (Other::new(), Other::new());
    let mut view = View::alone(me());
    view.siblings.push(sibling.peer(1, 1));
    view.others.push(old.peer(0, 0));
    let syn = packet(Class::Tcp { flags: 2 }, TCP);
    assert_eq!(judge(&tcp(), Own::Unknown, false, &view), Verdict::Local, "a stray ACK gets its RST here");
    assert_eq!(judge(&syn, Own::Unknown, false, &view), Verdict::Local, "a new SYN is for the listener");

    old.tcp.insert(&key(TCP), FlowRef(3)).expect("room");
    let to_old = Verdict::Forward(WorkerRef { slot: 0, index: 0 });
    assert_eq!(judge(&tcp(), Own::Unknown, false, &view), to_old);
    assert_eq!(judge(&syn, Own::Unknown, false, &view), to_old, "a SYN that the old one knows");
    assert_eq!(judge(&udp(), Own::Unknown, false, &view), Verdict::Local, "the protocol is part of the flow");
    assert_eq!(judge(&tcp(), Own::Tcp(FlowRef(9)), false, &view), Verdict::Local, "mine before theirs");
    assert_eq!(judge(&tcp(), Own::Unknown, true, &view), Verdict::Local, "never forwarded twice");

    sibling.tcp.insert(&key(TCP), FlowRef(4)).expect("room");
    let to_sibling = Verdict::Forward(WorkerRef { slot: 1, index: 1 });
    assert_eq!(judge(&tcp(), Own::Unknown, false, &view), to_sibling, "siblings are asked first");
    sibling.tcp.remove(&key(TCP));
    old.tcp.remove(&key(TCP));
    assert_eq!(judge(&tcp(), Own::Unknown, false, &view), Verdict::Local);
}

#[test]
fn udp_goes_to_the_old_one_while_it_publishes_and_is_not_idle() {
    let mut old = Other::new();
    let mut view = View::alone(me());
    view.udp_idle_us = IDLE_US;
    view.others.push(old.peer(0, 0));
    old.udp.record(&key(UDP), NOW_US - 1_000).expect("room");
    assert_eq!(judge(&udp(), Own::Unknown, false, &view), Verdict::Local, "nothing is published yet");
    old.udp.publish(Publication::Publishing { window: 2 });
    let to_old = Verdict::Forward(WorkerRef { slot: 0, index: 0 });
    assert_eq!(judge(&udp(), Own::Unknown, false, &view), to_old);
    assert_eq!(judge(&udp(), Own::Udp, false, &view), Verdict::Local, "taken over before");
    let later = |us| dispatch(&udp(), None, Own::Unknown, false, &view, us);
    assert_eq!(later(NOW_US + IDLE_US * 2), Verdict::Local, "aged");
    assert_eq!(later(NOW_US - 500_000), to_old, "the other's clock may be ahead");
    old.udp.publish(Publication::Handed { window: 2 });
    assert_eq!(judge(&udp(), Own::Unknown, false, &view), Verdict::Local, "handed over");
}

#[test]
fn udp_goes_to_a_sibling_that_has_the_flow() {
    let mut sibling = Other::new();
    let mut view = View::alone(me());
    view.siblings.push(sibling.peer(1, 1));
    assert_eq!(judge(&udp(), Own::Unknown, false, &view), Verdict::Local);
    sibling.udp.record(&key(UDP), NOW_US - 1_000).expect("room");
    let to_sibling = Verdict::Forward(WorkerRef { slot: 1, index: 1 });
    assert_eq!(judge(&udp(), Own::Unknown, false, &view), to_sibling, "without any window");
    let later = dispatch(&udp(), None, Own::Unknown, false, &view, NOW_US + 2 * IDLE_US);
    assert_eq!(later, Verdict::Local, "aged");
}

#[test]
fn an_error_goes_where_the_flow_inside_it_is() {
    let mut old = Other::new();
    let mut view = View::alone(me());
    view.others.push(old.peer(0, 0));
    view.newest = WorkerRef { slot: 0, index: 0 };
    old.tcp.insert(&key(TCP), FlowRef(1)).expect("room");
    let message = packet(Class::Icmp { kind: 3 }, 1);
    let error = IcmpError::Unreachable { code: 1 };
    let inside = Embedded { key: key(TCP), error, seq: Some(1) };
    let to_old = Verdict::Forward(WorkerRef { slot: 0, index: 0 });
    assert_eq!(dispatch(&message, Some(&inside), Own::Unknown, false, &view, NOW_US), to_old);
    let unknown = Embedded { key: key(UDP), error, seq: None };
    assert_eq!(dispatch(&message, Some(&unknown), Own::Unknown, false, &view, NOW_US), Verdict::Local);
}

#[test]
fn what_belongs_to_no_flow_goes_to_the_newest_generation() {
    let mut view = View::alone(me());
    let newest = WorkerRef { slot: 2, index: 0 };
    view.newest = newest;
    let broadcast = Parsed { cast: Cast::Broadcast, ..udp() };
    for parsed in [packet(Class::Icmp { kind: 8 }, 1), packet(Class::Other, 47), broadcast] {
        assert_eq!(
            judge(&parsed, Own::Unknown, false, &view),
            Verdict::Forward(newest),
            "{:?}",
            parsed.class
        );
        assert_eq!(judge(&parsed, Own::Unknown, true, &view), Verdict::Local, "never forwarded twice");
    }
    let fragment = Fragment { id: 1, offset: 0, more: true, next_header_at: 0, header_at: 0 };
    let local = [
        packet(Class::Arp, 0),
        packet(Class::Icmpv6 { kind: 135 }, 58),
        packet(Class::Icmpv6 { kind: 136 }, 58),
        packet(Class::Fragment(fragment), UDP),
        packet(Class::ParameterProblem { code: 1, pointer: 6, multicast_too: false }, 0),
    ];
    for parsed in local {
        assert_eq!(judge(&parsed, Own::Unknown, false, &view), Verdict::Local, "{:?}", parsed.class);
    }
    view.newest = me();
    assert_eq!(judge(&broadcast, Own::Unknown, false, &view), Verdict::Local);
}

#[test]
fn ports_of_the_kernel() {
    let mut view = View::alone(me());
    view.kernel = KernelPorts { tcp: vec![(22, 22), (80, 90)], udp: vec![(53, 53)] };
    assert_eq!(judge(&tcp(), Own::Unknown, false, &view), Verdict::Kernel);
    assert_eq!(judge(&udp(), Own::Unknown, false, &view), Verdict::Local, "80 is the kernel's over TCP only");
    assert_eq!(judge(&tcp(), Own::Tcp(FlowRef(1)), false, &view), Verdict::Local, "a connection of mine");
}

#[test]
fn a_parsed_frame_is_judged_by_its_own_flow() {
    let mut old = Other::new();
    let mut view = View::alone(me());
    view.others.push(old.peer(0, 0));
    old.tcp.insert(&key(TCP), FlowRef(1)).expect("room");
    let mut frame = vec![0; 54];
    frame[..6].copy_from_slice(&MAC);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..34]
        .copy_from_slice(&[0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2]);
    frame[34..38].copy_from_slice(&[0x0f, 0xa0, 0, 80]);
    frame[46] = 0x50;
    let sum = crate::ip::checksum::Checksum::new().bytes(&frame[14..34]).finish();
    frame[24..26].copy_from_slice(&sum);
    let parsed = parse(&frame, MAC, RxChecksum::UNKNOWN).expect("well-formed");
    assert_eq!(parsed.key, key(TCP));
    let verdict = judge(&parsed, Own::Unknown, false, &view);
    assert_eq!(verdict, Verdict::Forward(WorkerRef { slot: 0, index: 0 }));
}
