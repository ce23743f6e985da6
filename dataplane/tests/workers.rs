//! Several workers of one instance on one port: flows that come to the wrong queue, counters in the shared
//! directory, devices that do part of the work.

mod support;

use std::io::{IoSlice, IoSliceMut};

use ff_dataplane::io::memory::{Faults, MemoryNet, PortSettings};
use ff_dataplane::io::{Capabilities, PacketIo};
use ff_dataplane::sockets::{Domain, Kind, SockError, SocketId};
use ff_flowmap::Publication;
use ff_handover::{DropReason, WorkerCounter, WorkerGauge};
use ff_tcp::Instant;
use support::instance::{WorkerStack, at, client, instance, listen, worker};
use support::packets::{fragments_v4, udp, udp_bytes};
use support::{PEER_MAC, STACK_MAC, addr, ip, pattern};

#[test]
fn flows_of_a_sibling_reach_it_and_are_counted() {
    let net = MemoryNet::new(1);
    let settings = PortSettings { queues: 2, ..support::port(STACK_MAC) };
    let (stack_port, peer_port) = net.pair(settings, support::port(PEER_MAC));
    let instance = instance(2);
    let mut workers = [
        worker(&net, stack_port, &instance, at(0, 0), &[0]),
        worker(&net, stack_port, &instance, at(0, 1), &[1]),
    ];
    let mut peer = client(&net, peer_port);
    let mut now = Instant(1_000_000);
    let mut run = |workers: &mut [WorkerStack], peer: &mut support::TestStack, steps: u32| {
        for _ in 0..steps {
            now = now + 1_000;
            net.set_now(now.0);
            peer.pass(now);
            for stack in workers.iter_mut() {
                stack.pass(now);
            }
        }
    };
    run(&mut workers, &mut peer, 1);
    let listeners = [listen(&mut workers[0], 80), listen(&mut workers[1], 80)];
    let clients: Vec<SocketId> = (0..40)
        .map(|_| {
            let socket = peer.socket(Domain::Ipv4, Kind::Stream).expect("a socket");
            assert_eq!(peer.connect(socket, addr("198.18.0.2:80")), Err(SockError::InProgress));
            socket
        })
        .collect();
    run(&mut workers, &mut peer, 20);
    let mut accepted: Vec<(usize, SocketId)> = Vec::new();
    for (index, stack) in workers.iter_mut().enumerate() {
        accepted.extend(std::iter::from_fn(|| stack.accept(listeners[index]).ok()).map(|(s, _)| (index, s)));
    }
    assert_eq!(accepted.len(), 40);
    assert!((0..2).all(|index| accepted.iter().any(|(of, _)| *of == index)), "both have some");

    // The queues change their readers, as a TAP device does when it steers anew: every packet now comes to the
    // wrong worker, and goes on to the right one.
    workers[0].io_mut().set_owned_queues(&[1]);
    workers[1].io_mut().set_owned_queues(&[0]);
    for socket in &clients {
        assert_eq!(peer.send(*socket, b"hello"), Ok(5));
    }
    run(&mut workers, &mut peer, 400);
    for (index, socket) in &accepted {
        let mut bytes = [0; 16];
        assert_eq!(workers[*index].recv(*socket, &mut bytes, false), Ok(5));
        assert_eq!(workers[*index].send(*socket, b"world"), Ok(5));
    }
    run(&mut workers, &mut peer, 400);
    for socket in &clients {
        assert_eq!(peer.recv(*socket, &mut [0; 16], false), Ok(5));
    }
    for (index, stack) in workers.iter_mut().enumerate() {
        stack.report_counters();
        let words = instance.directory().worker(0, index).expect("a worker");
        let own = accepted.iter().filter(|(of, _)| *of == index).count() as u64;
        assert_eq!(words.gauge(WorkerGauge::TcpFlows), own);
        assert_eq!(words.gauge(WorkerGauge::TcpListeners), 1);
        assert_eq!(instance.tcp_reader(0, index).expect("opened").flows() as u64, own);
        assert!(words.counter(WorkerCounter::Forwarded) >= 40 - own);
        assert!(words.counter(WorkerCounter::ForwardedIn) >= own);
        assert!(words.counter(WorkerCounter::RxPackets) > 0 && words.counter(WorkerCounter::TxBytes) > 0);
        assert!(words.heartbeat_us() > 1_000_000);
        assert_eq!(words.drops(DropReason::ForwardFull), 0);
    }
}

#[test]
fn a_reassembled_datagram_goes_to_the_generation_that_publishes_its_flow() {
    let net = MemoryNet::new(1);
    let (stack_port, _) = net.pair(support::port(STACK_MAC), support::port(PEER_MAC));
    let instance = instance(1);
    let mut old = worker(&net, stack_port, &instance, at(0, 0), &[0]);
    let mut now = Instant(1_000_000);
    let mut pass = |stack: &mut WorkerStack| {
        now = now + 1_000;
        net.set_now(now.0);
        stack.pass(now);
        stack.pass(now);
    };
    pass(&mut old);
    let bind = |stack: &mut WorkerStack| {
        let socket = stack.socket(Domain::Ipv4, Kind::Datagram).expect("a socket");
        stack.bind(socket, addr("0.0.0.0:53")).expect("bound");
        socket
    };
    let old_socket = bind(&mut old);
    let (known, stranger) = (addr("198.18.0.1:4000"), addr("198.18.0.1:4001"));
    net.inject(stack_port, &udp(known, addr("198.18.0.2:53"), b"hello"));
    pass(&mut old);
    let mut buf = vec![0; 8_000];
    assert_eq!(old.recv(old_socket, &mut buf, false), Ok(5));

    // A new generation takes the queue; the old one publishes what it holds.
    old.io_mut().set_owned_queues(&[]);
    let mut new = worker(&net, stack_port, &instance, at(1, 0), &[0]);
    let peer = ff_dataplane::dispatch::Peer {
        worker: at(0, 0),
        tcp: instance.tcp_reader(0, 0).expect("opened"),
        udp: instance.udp_reader(0, 0).expect("opened"),
    };
    new.view_mut().others.push(peer);
    old.publish_udp(Publication::Publishing { window: 2 });
    pass(&mut new);
    let new_socket = bind(&mut new);
    let payload = pattern(5_000, 1);
    for (id, from) in [(1, known), (2, stranger)] {
        let datagram = udp_bytes(from, addr("198.18.0.2:53"), &payload);
        for part in fragments_v4(ip("198.18.0.1"), ip("198.18.0.2"), 17, id, &datagram, 1_000) {
            net.inject(stack_port, &part);
        }
    }
    pass(&mut new);
    pass(&mut old);
    let received = |stack: &mut WorkerStack, socket, buf: &mut [u8]| {
        let got = stack.recv_from(socket, &mut [IoSliceMut::new(buf)], false).map(|got| (got.len, got.from));
        assert!(buf[..5_000] == payload[..]);
        got
    };
    assert_eq!(received(&mut old, old_socket, &mut buf), Ok((5_000, known)));
    assert_eq!(received(&mut new, new_socket, &mut buf), Ok((5_000, stranger)));
    assert_eq!(old.recv(old_socket, &mut buf, false), Err(SockError::WouldBlock));
    assert_eq!(new.recv(new_socket, &mut buf, false), Err(SockError::WouldBlock));
}

/// A device that computes checksums, and one that cuts segments too.
#[test]
fn devices_that_do_part_of_the_work() {
    for (checksums, tso) in [(true, false), (true, true), (false, false)] {
        for (domain, target) in [(Domain::Ipv4, "198.18.0.2:80"), (Domain::Ipv6, "[2001:2::2]:80")] {
            let net = MemoryNet::new(7);
            let capabilities = Capabilities {
                mtu: 1_500,
                mac: STACK_MAC,
                tx_ip_checksum: checksums,
                tx_l4_checksum: checksums,
                tso,
                tso_max_bytes: if tso { 65_000 } else { 0 },
                rx_l4_checksum: false,
            };
            let settings = PortSettings { capabilities, ..PortSettings::default() };
            let (a, b) = net.pair(settings, support::port(PEER_MAC));
            let mut server = support::stack_on(&net, a, support::stack_config());
            let mut peer = client(&net, b);
            net.set_faults(a, Faults { delay_us: 1_000, loss_ppm: 5_000, ..Faults::NONE });
            let mut now = Instant(1_000_000);
            server.pass(now);
            peer.pass(now);
            let listener = server.socket(domain, Kind::Stream).expect("a socket");
            server.bind(listener, addr(target)).expect("bound");
            server.listen(listener, 8).expect("listening");
            let socket = peer.socket(domain, Kind::Stream).expect("a socket");
            assert_eq!(peer.connect(socket, addr(target)), Err(SockError::InProgress));
            let bytes = pattern(3_000_000, 3);
            let (mut conn, mut sent, mut got) = (None, 0, Vec::new());
            let mut buf = vec![0; 65_536];
            while got.len() < bytes.len() {
                assert!(now < Instant(120_000_000), "{} of {} bytes came", got.len(), bytes.len());
                now = now + 200;
                net.set_now(now.0);
                server.pass(now);
                peer.pass(now);
                conn = conn.or_else(|| server.accept(listener).ok().map(|(socket, _)| socket));
                if let Some(conn) = conn
                    && let Ok(n) = server.send_vectored(conn, &[IoSlice::new(&bytes[sent..])])
                {
                    sent += n;
                }
                while let Ok(n) = peer.recv(socket, &mut buf, false) {
                    got.extend_from_slice(&buf[..n]);
                }
            }
            assert!(got == bytes, "checksums {checksums}, tso {tso}, {target}");
            assert_eq!(peer.drops(DropReason::BadTcpChecksum), 0);
            assert_eq!(peer.drops(DropReason::BadIpChecksum), 0);
            let frames = server.io().counters().tx_frames;
            assert!(!tso || frames < 1_200, "{frames} frames for 3 MB: nothing was left to the device");
        }
    }
}
