//! What is fuzzed: a function for each parser that reads bytes of others.
//!
//! `cargo +nightly fuzz run TARGET corpus/TARGET seeds/TARGET` lets libFuzzer choose the bytes; the ordinary test
//! `dataplane/tests/fuzz_corpus.rs` replays `seeds/TARGET/` and variations of it.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ff_dataplane::dispatch::{Own, View, dispatch};
use ff_dataplane::io::memory::{MemoryNet, PortSettings};
use ff_dataplane::io::{Capabilities, ChecksumState, RxChecksum, WorkerRef};
use ff_dataplane::ip::parse::{Cast, Class, Fragment, Parsed, parse, parse_reassembled};
use ff_dataplane::ip::reassembly::{Outcome, Reassembler, ReassemblyLimits};
use ff_dataplane::ip::{icmp as icmp_format, link_address};
use ff_dataplane::sockets::{Domain, Kind};
use ff_dataplane::{Shared, Stack, StackConfig};
use ff_flowmap::{FlowKey, HeapIndex};
use ff_tcp::{
    Ecn, Engine, EngineConfig, Instant, ListenAddr, ListenOptions, Secrets, SegmentMeta, SocketRef,
};

/// Our MAC address in all frames.
pub const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const WORKER: WorkerRef = WorkerRef { slot: 0, index: 0 };
const SECRETS: Secrets = Secrets { isn: [1; 16], timestamp: [2; 16], cookie: [3; 16] };

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Splits data into pieces of which each begins with its length in two bytes.
fn pieces(mut data: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = data.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_le_bytes(*length) & 0x7ff).min(rest.len());
        let (piece, rest) = rest.split_at(length);
        data = rest;
        Some(piece)
    })
}

/// A frame's headers and the verdict on it.
pub fn ip_dispatch(data: &[u8]) {
    let Ok(parsed) = parse(data, MAC, RxChecksum::UNKNOWN) else { return };
    assert!(usize::from(parsed.l3) <= data.len() && parsed.end as usize <= data.len());
    let _ = parsed.l3_bytes(data);
    let _ = parsed.l4_checksum_is_good(data);
    let embedded = icmp_format::embedded(&parsed, data);
    let view = View::alone(WORKER);
    dispatch(&parsed, embedded.as_ref(), Own::Unknown, false, &view, 0);
}

/// ARP packets and NDP messages.
pub fn link_messages(data: &[u8]) {
    let _ = link_address::parse_arp(data);
    for src in [Ipv6Addr::UNSPECIFIED, Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1)] {
        for dst in [Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 2)] {
            let _ = link_address::parse_ndp(data, src, dst, 255);
        }
    }
}

fn parsed(class: Class, v4: bool, l4: u16, end: usize) -> Parsed {
    let (local, remote) = if v4 { ("198.18.0.2", "198.18.0.1") } else { ("2001:2::2", "2001:2::1") };
    let protocol = if v4 { 1 } else { 58 };
    Parsed {
        key: FlowKey::new(protocol, SocketAddr::new(ip(local), 0), SocketAddr::new(ip(remote), 0)),
        class,
        cast: Cast::Unicast,
        l3: 0,
        l4,
        end: end as u32,
        traffic_class: 0,
        hop_limit: 64,
        source_mac: [0; 6],
        l4_checksum: ChecksumState::Unknown,
    }
}

/// ICMP and ICMPv6 errors with the packet inside.
pub fn icmp(data: &[u8]) {
    let kind = data.first().copied().unwrap_or(0);
    let _ = icmp_format::embedded(&parsed(Class::Icmp { kind }, true, 0, data.len()), data);
    let _ = icmp_format::embedded(&parsed(Class::Icmpv6 { kind }, false, 0, data.len()), data);
}

/// Fragments of a few packets, in any order, of any kind.
pub fn reassembly(data: &[u8]) {
    let limits = ReassemblyLimits { packets_max: 4, bytes_max: 100_000, pieces_max: 8, timeout_us: 1_000 };
    let mut reassembler = Reassembler::new(limits);
    let mut now = Instant(0);
    for piece in pieces(data) {
        let Some((head, part)) = piece.split_first_chunk::<4>() else { continue };
        let v4 = head[0] & 1 == 0;
        let header_bytes = if v4 { 20 } else { 40 };
        let mut bytes = vec![0; header_bytes];
        bytes[0] = if v4 { 0x45 } else { 0x60 };
        bytes.extend_from_slice(part);
        let fragment = Fragment {
            id: u32::from(head[0] >> 2 & 7),
            offset: u16::from_le_bytes([head[1], head[2]]) & 0xfff8,
            more: head[0] & 2 != 0,
            next_header_at: 6,
            header_at: header_bytes as u16,
        };
        let first = parsed(Class::Fragment(fragment), v4, header_bytes as u16, bytes.len());
        if let Outcome::Whole(packet) = reassembler.push(now, &first, &bytes) {
            let _ = parse_reassembled(&packet, &first);
        }
        assert!(reassembler.len() <= 4 && reassembler.bytes() <= 100_000);
        now = now + u64::from(head[3]);
        reassembler.expire(now, |packet| assert!(packet.len() <= 65_575));
    }
}

/// Segments to a listening engine, which accepts, reads, answers and closes.
pub fn tcp_segments(data: &[u8]) {
    let config = EngineConfig { conns_max: 64, requests_max: 64, ..EngineConfig::default() };
    let mut engine = Engine::new(config, SECRETS, HeapIndex::new([9; 16]));
    let listener = engine.listen(ListenAddr::any(80), ListenOptions::default()).expect("listening");
    let (src, dst) = (ip("198.18.0.1"), ip("198.18.0.2"));
    let mut now = Instant(1_000_000);
    let mut buf = [0; 1_500];
    for piece in pieces(data) {
        let mut segment = piece.to_vec();
        // Most of what is tried is for the listener, from few ports.
        if let Some(ports) = segment.first_chunk_mut::<4>() {
            *ports = [0, ports[1] & 3 | 8, 0, 80];
        }
        // An answer that acknowledges what we sent last would hardly ever be guessed.
        let meta = SegmentMeta { src, dst, ecn: Ecn::from_bits(piece.len() as u8) };
        engine.on_segment(now, meta, &segment, None);
        while let Some(sent) = engine.poll_transmit(now, &mut buf) {
            if sent.len >= 20 && segment.len() >= 20 && buf[13] & 2 != 0 {
                let seq = u32::from_be_bytes([buf[4], buf[5], buf[6], buf[7]]).wrapping_add(1);
                segment[8..12].copy_from_slice(&seq.to_be_bytes());
                let peer_seq = u32::from_be_bytes([segment[4], segment[5], segment[6], segment[7]]);
                segment[4..8].copy_from_slice(&peer_seq.wrapping_add(1).to_be_bytes());
                segment[13] = segment[13] & !6 | 16;
                engine.on_segment(now, meta, &segment, None);
            }
        }
        while let Some(conn) = engine.accept(listener) {
            let _ = engine.write(now, conn, b"an answer");
        }
        while let Some(event) = engine.poll_event() {
            if let SocketRef::Conn(conn) = event.socket {
                match engine.read(conn, &mut buf) {
                    Ok(0) => engine.close(now, conn),
                    Ok(n) => drop(engine.write(now, conn, &buf[..n])),
                    Err(_) => {}
                }
            }
        }
        now = now + u64::from(piece.first().copied().unwrap_or(1)) * 10_000;
        engine.on_deadline(now);
    }
}

/// Whole frames to a whole stack.
pub fn stack_frames(data: &[u8]) {
    let net = MemoryNet::new(1);
    let capabilities = Capabilities { mtu: 1_500, mac: MAC, ..Capabilities::default() };
    let port = net.add_port(PortSettings { capabilities, trust_checksums: true, ..PortSettings::default() });
    let config = StackConfig {
        addresses: vec![(ip("198.18.0.2"), 24), (ip("2001:2::2"), 64)],
        gateway4: Some([198, 18, 0, 1].into()),
        ..StackConfig::default()
    };
    thread_local! {
        // Tables are of static life, so one is made for all runs of a thread.
        static MEMORY: &'static ff_flowmap::HeapMemory = Box::leak(Box::new(Shared::memory()));
    }
    let shared = Shared::alone_in(MEMORY.with(|memory| *memory), [1; 16]).expect("memory of our own");
    let mut stack = Stack::new(config, net.attach(port, WORKER, &[0]), HeapIndex::new([9; 16]), shared);
    let mut now = Instant(1_000_000);
    stack.pass(now);
    for (domain, at) in [(Domain::Ipv4, "0.0.0.0:80"), (Domain::Ipv6, "[2001:2::2]:80")] {
        for kind in [Kind::Stream, Kind::Datagram] {
            let socket = stack.socket(domain, kind).expect("a socket");
            stack.bind(socket, at.parse().expect("an address")).expect("bound");
            if kind == Kind::Stream {
                stack.listen(socket, 8).expect("listening");
            }
        }
    }
    for piece in pieces(data) {
        net.inject(port, piece);
        now = now + 1 + u64::from(piece.last().copied().unwrap_or(0)) * 1_000;
        net.set_now(now.0);
        stack.pass(now);
        while stack.next_event().is_some() {}
    }
}

/// The text of f-stack.conf.
pub fn config_text(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let checked = ff_config::Config::parse("f-stack.conf", text);
        // What is found must be sayable.
        for finding in &checked.findings {
            let _ = finding.to_string();
        }
    }
}

/// `data` as a record of the engine's, with a header that is right: magic, version, length, checksum.
fn sealed(magic: &[u8; 4], version: u16, data: &[u8]) -> Vec<u8> {
    use std::hash::Hasher;
    let mut record = magic.to_vec();
    record.extend_from_slice(&version.to_le_bytes());
    record.extend_from_slice(&[0; 2]);
    record.extend_from_slice(&((data.len() + 20) as u32).to_le_bytes());
    let mut hasher = siphasher::sip::SipHasher24::new_with_key(b"ff-tcp export v1");
    hasher.write(data);
    record.extend_from_slice(&hasher.finish().to_le_bytes());
    record.extend_from_slice(data);
    record
}

/// Records of what no user holds: half-open handshakes, TIME-WAIT entries.
fn unheld_records(data: &[u8]) {
    let mut engine = Engine::new(EngineConfig::default(), SECRETS, HeapIndex::new([9; 16]));
    let _ = engine.listen(ff_tcp::ListenAddr::any(80), ff_tcp::ListenOptions::default());
    let mut now = Instant(1_000_000);
    let _ = engine.import_request(now, &sealed(b"FFTR", 1, data));
    let _ = engine.import_time_waits(now, &sealed(b"FFTT", 1, data));
    let mut buf = [0; 1_500];
    for _ in 0..20 {
        while engine.poll_transmit(now, &mut buf).is_some() {}
        now = now + 10_000_000;
        engine.on_deadline(now);
    }
    assert_eq!(
        (engine.request_count(), engine.time_wait_count(), ff_flowmap::FlowIndex::len(engine.index())),
        (0, 0, 0)
    );
}

/// The record of an exported connection, and of what else an engine gives away.
pub fn export_record(data: &[u8]) {
    unheld_records(data);
    let record = sealed(b"FFTC", ff_tcp::EXPORT_VERSION, data);
    for record in [&record[..], data] {
        let mut engine = Engine::new(EngineConfig::default(), SECRETS, HeapIndex::new([9; 16]));
        let mut now = Instant(1_000_000);
        let Ok(conn) = engine.import(now, record) else { continue };
        let mut buf = [0; 1_500];
        for _ in 0..20 {
            let _ = engine.read(conn, &mut buf);
            let _ = engine.write(now, conn, b"more");
            while engine.poll_transmit(now, &mut buf).is_some() {}
            now = now + 500_000;
            engine.on_deadline(now);
        }
        let mut again = Vec::new();
        let _ = engine.export(now, conn, &mut again);
    }
}
