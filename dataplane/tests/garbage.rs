//! A million random and mutated frames: no panic, no growth, every counter that should move does.
//!
//! `cargo test --release -p ff-dataplane --test garbage`; without `--release` a tenth of the frames.

mod support;

use std::io::IoSliceMut;

use ff_dataplane::io::memory::Rng;
use ff_dataplane::sockets::{Domain, Kind, SocketId};
use ff_handover::DropReason;
use smoltcp::socket::tcp;
use support::packets::*;
use support::{PEER_MAC, Pair, STACK_MAC, addr, ip};

const FRAMES: u64 = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };

/// Frames as they should be, one of every kind the stack knows.
fn templates(rng: &mut Rng) -> Vec<Vec<u8>> {
    let (c4, s4, c6, s6) = (ip("198.18.0.1"), ip("198.18.0.2"), ip("2001:2::1"), ip("2001:2::2"));
    let port = 1024 + rng.up_to(64) as u16;
    let (client4, client6) = (std::net::SocketAddr::new(c4, port), std::net::SocketAddr::new(c6, port));
    let (web4, web6) = (addr("198.18.0.2:80"), addr("[2001:2::2]:80"));
    let (dns4, dns6) = (addr("198.18.0.2:53"), addr("[2001:2::2]:53"));
    let (seq, ack) = (rng.next_u64() as u32, rng.next_u64() as u32);
    let mut payload = vec![0; rng.up_to(600) as usize];
    rng.fill(&mut payload);
    let id = rng.up_to(20) as u32;
    let mut long = vec![0; 2_400];
    rng.fill(&mut long);
    let options = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];
    let inner = udp(dns4, client4, b"was sent by us");
    let inner_tcp = tcp(web6, client6, ack, seq, 0x10, &[], b"so was this");
    let hop_by_hop = {
        let mut body = vec![17, 0, 5, 2, 0, 0, 1, 0];
        body.extend_from_slice(&udp_bytes(client6, dns6, &payload));
        ipv6(c6, s6, 0, 64, &body)
    };
    let routed = {
        let mut body = vec![6, 0, 0, rng.up_to(1) as u8, 0, 0, 0, 0];
        body.extend_from_slice(&[0; 20]);
        ipv6(c6, s6, 43, 64, &body)
    };
    let with_inner = |quoted: &[u8]| [&[0, 0, 5, 0][..], &quoted[14..]].concat();
    let mut all = vec![
        arp(1, ([198, 18, 0, 1], PEER_MAC), ([198, 18, 0, 2], [0; 6])),
        arp(2, ([198, 18, 0, 1], PEER_MAC), ([198, 18, 0, 2], STACK_MAC)),
        icmp(c4, s4, 8, 0, &[0, 1, 0, 1, 1, 2, 3, 4]),
        icmp(c6, s6, 128, 0, &[0, 1, 0, 1, 1, 2, 3, 4]),
        icmp(c4, s4, 3, 3, &with_inner(&inner)),
        icmp(c4, s4, 3, 4, &with_inner(&inner)),
        icmp(c6, s6, 2, 0, &with_inner(&inner_tcp)),
        solicitation(c6, ip("ff02::1:ff00:2"), s6, Some(PEER_MAC)),
        advertisement(c6, s6, c6, 0x60, PEER_MAC),
        icmp_with(c6, ip("ff02::1"), 134, 0, &[0; 12], 255),
        tcp(client4, web4, seq, 0, 2, &options, &[]),
        tcp(client6, web6, seq, 0, 2, &options, &[]),
        tcp(client4, web4, seq, ack, 0x18, &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0], &payload),
        tcp(client6, web6, seq, ack, 0x11, &[], &payload),
        tcp(client4, web4, seq, ack, 4, &[], &[]),
        udp(client4, dns4, &payload),
        udp(client6, dns6, &payload),
        udp(client4, addr("198.18.0.2:99"), &payload),
        ipv4(c4, s4, 17, (1, 0), &[7, 7, 4, 0, 0, 0, 0, 0], &udp_bytes(client4, dns4, &payload)),
        ipv4(c4, s4, 47, (1, 0), &[], &payload),
        ipv6(c6, s6, 47, 64, &payload),
        hop_by_hop,
        routed,
        vlan(1, &udp(client4, dns4, &payload)),
        vlan(2, &udp(client4, dns4, &payload)),
    ];
    let datagram4 = udp_bytes(client4, dns4, &long);
    let datagram6 = udp_bytes(client6, dns6, &long);
    all.extend(fragments_v4(c4, s4, 17, id as u16, &datagram4, 800));
    all.extend(fragments_v6(c6, s6, 17, id, &datagram6, 800));
    // Overlaps: other boundaries under the same identification.
    all.extend(fragments_v4(c4, s4, 17, id as u16, &datagram4, 640));
    all.extend(fragments_v6(c6, s6, 17, id, &datagram6, 640));
    all
}

fn spoil(frame: &mut Vec<u8>, rng: &mut Rng) {
    match rng.up_to(9) {
        0 => frame.truncate(rng.up_to(frame.len() as u64) as usize),
        1 => {
            let more = rng.up_to(1_600) as usize;
            let mut tail = vec![0; more];
            rng.fill(&mut tail);
            frame.extend_from_slice(&tail);
        }
        2 => rng.fill(frame),
        // As it is.
        3 => {}
        // One byte of the headers becomes something else: over a run, every field every value.
        4..=6 => {
            let reach = (frame.len() as u64 - 1).min(79);
            let at = rng.up_to(reach) as usize;
            frame[at] = rng.next_u64() as u8;
        }
        7 => {
            let at = rng.up_to(frame.len() as u64 - 1) as usize;
            frame[at] ^= 1 << rng.up_to(7);
        }
        _ => {
            for _ in 0..=rng.up_to(8) {
                let at = rng.up_to(frame.len() as u64 - 1) as usize;
                frame[at] = [0, 0xff, 0x7f, 0x80, rng.next_u64() as u8][rng.up_to(4) as usize];
            }
        }
    }
    if rng.up_to(1) == 1 {
        mend(frame);
    }
}

struct Server {
    tcp: [SocketId; 2],
    udp: [SocketId; 2],
    open: Vec<SocketId>,
}

impl Server {
    fn new(pair: &mut Pair) -> Self {
        let mut make = |domain, kind, at: &str| {
            let socket = pair.stack.socket(domain, kind).expect("a socket");
            pair.stack.bind(socket, addr(at)).expect("bound");
            if kind == Kind::Stream {
                pair.stack.listen(socket, 64).expect("listening");
            }
            socket
        };
        Self {
            tcp: [
                make(Domain::Ipv4, Kind::Stream, "0.0.0.0:80"),
                make(Domain::Ipv6, Kind::Stream, "[2001:2::2]:80"),
            ],
            udp: [
                make(Domain::Ipv4, Kind::Datagram, "0.0.0.0:53"),
                make(Domain::Ipv6, Kind::Datagram, "[2001:2::2]:53"),
            ],
            open: Vec::new(),
        }
    }

    /// What an application would do: accept, echo, close on the end.
    fn serve(&mut self, pair: &mut Pair) {
        while pair.stack.next_event().is_some() {}
        for listener in self.tcp {
            while let Ok((socket, _)) = pair.stack.accept(listener) {
                self.open.push(socket);
            }
        }
        let mut bytes = [0; 2_048];
        self.open.retain(|socket| match pair.stack.recv(*socket, &mut bytes, false) {
            Ok(0) => {
                pair.stack.close(*socket).expect("closed");
                false
            }
            Ok(n) => {
                let _ = pair.stack.send(*socket, &bytes[..n]);
                true
            }
            Err(ff_dataplane::sockets::SockError::WouldBlock) => true,
            Err(_) => {
                pair.stack.close(*socket).expect("closed");
                false
            }
        });
        for socket in self.udp {
            while pair.stack.recv_from(socket, &mut [IoSliceMut::new(&mut bytes)], false).is_ok() {}
        }
    }
}

/// Resident memory of this process.
fn resident_kib() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a number");
    pages * 4
}

#[test]
fn a_million_bad_frames() {
    let seed = 0x6a5b;
    let mut rng = Rng::new(seed);
    let mut pair = Pair::new(seed);
    let mut server = Server::new(&mut pair);
    let mut sent = 0;
    let mut answered = 0u64;
    let mut resident_early_kib = 0;
    while sent < FRAMES {
        if resident_early_kib == 0 && sent > FRAMES / 5 {
            resident_early_kib = resident_kib();
        }
        for mut frame in templates(&mut rng) {
            spoil(&mut frame, &mut rng);
            pair.net.inject(pair.stack_port, &frame);
            sent += 1;
        }
        // Time goes on, now and then by leaps, so that timers of all kinds run out.
        pair.now_us += match rng.up_to(999) {
            0 => 40_000_000,
            1..=50 => 1_100_000,
            _ => 200,
        };
        pair.net.set_now(pair.now_us);
        for _ in 0..16 {
            let report = pair.stack.pass(ff_tcp::Instant(pair.now_us));
            server.serve(&mut pair);
            if report.rx == 0 {
                break;
            }
        }
        while pair.net.eject(pair.peer_port).is_some() {
            answered += 1;
        }
        let (packets, bytes) = pair.stack.unfinished_fragments();
        assert!(packets <= 256 && bytes <= 4 << 20, "{packets} packets, {bytes} bytes wait for fragments");
        assert!(pair.stack.waiting_packets() <= 512);
        assert!(pair.stack.io().pool().in_use() <= 600, "{} frames in use", pair.stack.io().pool().in_use());
    }
    assert!(answered > sent / 100, "only {answered} of {sent} were answered");
    let grown_kib = resident_kib().saturating_sub(resident_early_kib);
    println!("{sent} frames, {answered} answers, {grown_kib} KiB grown since the first fifth");
    assert!(grown_kib < 8 * 1024, "{grown_kib} KiB more than after the first fifth of the frames");
    for reason in DropReason::ALL {
        println!("{:>24} {}", reason.name(), pair.stack.drops(*reason));
    }
    for reason in [
        DropReason::Truncated,
        DropReason::NotForUs,
        DropReason::Vlan,
        DropReason::BadArp,
        DropReason::BadIpHeader,
        DropReason::BadIpChecksum,
        DropReason::BadSource,
        DropReason::WrongAddress,
        DropReason::BadHopLimit,
        DropReason::BadExtensionHeader,
        DropReason::BadTcpHeader,
        DropReason::BadTcpChecksum,
        DropReason::BadUdpHeader,
        DropReason::BadUdpChecksum,
        DropReason::BadIcmp,
        DropReason::UnknownProtocol,
        DropReason::NoUdpSocket,
        DropReason::BadFragment,
        DropReason::FragmentTimeout,
        DropReason::NeighbourUnreachable,
        DropReason::NoRoute,
    ] {
        assert!(pair.stack.drops(reason) > 0, "nothing was dropped as {}", reason.name());
    }

    // When the storm is over everything is given back.
    for socket in server.open.drain(..) {
        pair.stack.close(socket).expect("closed");
    }
    // The peer is silent, so what was to be told to it is given up after the last retransmission.
    for _ in 0..2_000 {
        pair.now_us += 1_000_000;
        pair.net.set_now(pair.now_us);
        while pair.stack.pass(ff_tcp::Instant(pair.now_us)).more {}
        server.serve(&mut pair);
        while pair.net.eject(pair.peer_port).is_some() {}
    }
    let left: Vec<_> = pair.stack.engine().connections().collect();
    assert!(left.is_empty(), "connections are left: {left:#?}");
    assert_eq!(pair.stack.engine().request_count(), 0);
    assert_eq!(pair.stack.engine().memory_bytes(), 0);
    assert_eq!(pair.stack.unfinished_fragments(), (0, 0));
    assert_eq!(pair.stack.waiting_packets(), 0);
    // One frame is kept for the next segment.
    assert!(pair.stack.io().pool().in_use() <= 1);
    assert_eq!(pair.stack.socket_count(), 4);

    // And an honest client is served.
    let buffer = || tcp::SocketBuffer::new(vec![0; 4_096]);
    let handle = pair.peer.sockets.add(tcp::Socket::new(buffer(), buffer()));
    {
        let peer = &mut pair.peer;
        let socket = peer.sockets.get_mut::<tcp::Socket>(handle);
        let target: smoltcp::wire::IpEndpoint = addr("198.18.0.2:80").into();
        socket.connect(peer.iface.context(), target, 50_000).expect("connecting");
    }
    let mut said = false;
    pair.run_until(10_000_000, |pair| {
        server.serve(pair);
        let client = pair.peer.sockets.get_mut::<tcp::Socket>(handle);
        if client.can_send() && !said {
            client.send_slice(b"still there?").expect("sent");
            said = true;
        }
        client.can_recv()
    });
    let client = pair.peer.sockets.get_mut::<tcp::Socket>(handle);
    client.recv(|bytes| (bytes.len(), assert_eq!(bytes, b"still there?"))).expect("echoed");
}
