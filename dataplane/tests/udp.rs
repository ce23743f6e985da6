//! UDP against an independent peer, and ICMP errors about it.

mod support;

use std::io::{IoSlice, IoSliceMut};

use ff_dataplane::sockets::{Domain, Kind, Received, Shutdown, SockError, SockOpt, SocketId};
use ff_handover::DropReason;
use smoltcp::iface::SocketHandle;
use smoltcp::socket::udp;
use smoltcp::wire::IpEndpoint;
use support::packets;
use support::{Pair, addr, ip, pattern};

fn peer_socket(pair: &mut Pair, port: u16) -> SocketHandle {
    let buffer = || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; 64], vec![0; 65_536]);
    let mut socket = udp::Socket::new(buffer(), buffer());
    socket.bind(port).expect("bound");
    pair.peer.sockets.add(socket)
}

fn peer_send(pair: &mut Pair, handle: SocketHandle, payload: &[u8], to: &str) {
    let to: IpEndpoint = addr(to).into();
    pair.peer.sockets.get_mut::<udp::Socket>(handle).send_slice(payload, to).expect("sent");
}

fn peer_recv(pair: &mut Pair, handle: SocketHandle) -> Option<(Vec<u8>, IpEndpoint)> {
    let socket = pair.peer.sockets.get_mut::<udp::Socket>(handle);
    socket.recv().ok().map(|(payload, meta)| (payload.to_vec(), meta.endpoint))
}

fn bound(pair: &mut Pair, at: &str) -> SocketId {
    let domain = if at.contains('[') { Domain::Ipv6 } else { Domain::Ipv4 };
    let socket = pair.stack.socket(domain, Kind::Datagram).expect("a socket");
    pair.stack.bind(socket, addr(at)).expect("bound");
    socket
}

fn recv(pair: &mut Pair, socket: SocketId) -> Result<(Vec<u8>, Received), SockError> {
    let mut bytes = vec![0; 70_000];
    let received = pair.stack.recv_from(socket, &mut [IoSliceMut::new(&mut bytes)], false)?;
    bytes.truncate(received.len);
    Ok((bytes, received))
}

fn send(pair: &mut Pair, socket: SocketId, payload: &[u8], to: Option<&str>) -> Result<usize, SockError> {
    pair.stack.send_to(socket, &[IoSlice::new(payload)], to.map(addr), None)
}

#[test]
fn echo_with_the_address_that_was_asked() {
    for (at, asked, client) in [
        ("0.0.0.0:53", "198.18.0.2:53", "198.18.0.1:4000"),
        ("[::]:53", "[2001:2::2]:53", "[2001:2::1]:4000"),
    ] {
        let mut pair = Pair::new(1);
        let server = bound(&mut pair, at);
        let handle = peer_socket(&mut pair, 4000);
        peer_send(&mut pair, handle, b"question", asked);
        pair.run_until(5_000_000, |pair| pair.stack.queued_bytes(server) == Ok(8));
        let event = pair.stack.next_event().expect("an event");
        assert_eq!(event.socket, server);
        let (payload, received) = recv(&mut pair, server).expect("a datagram");
        assert_eq!(payload, b"question");
        assert_eq!((received.from, received.to), (addr(client), addr(asked).ip()));
        let sent = pair.stack.send_to(
            server,
            &[IoSlice::new(b"ans"), IoSlice::new(b"wer")],
            Some(received.from),
            Some(received.to),
        );
        assert_eq!(sent, Ok(6));
        let mut answer = None;
        pair.run_until(5_000_000, |pair| {
            answer = peer_recv(pair, handle);
            answer.is_some()
        });
        assert_eq!(answer, Some((b"answer".to_vec(), addr(asked).into())));
    }
}

#[test]
fn a_dual_stack_socket_shows_ipv4_mapped() {
    let mut pair = Pair::new(1);
    let server = bound(&mut pair, "[::]:53");
    let handle = peer_socket(&mut pair, 4000);
    peer_send(&mut pair, handle, b"q", "198.18.0.2:53");
    pair.run_until(5_000_000, |pair| pair.stack.queued_bytes(server) == Ok(1));
    let (_, received) = recv(&mut pair, server).expect("a datagram");
    assert_eq!(received.from, addr("[::ffff:198.18.0.1]:4000"));
    assert_eq!(received.to, ip("::ffff:198.18.0.2"));
    assert_eq!(
        pair.stack.send_to(server, &[IoSlice::new(b"a")], Some(received.from), Some(received.to)),
        Ok(1)
    );
    pair.run_until(5_000_000, |pair| peer_recv(pair, handle).is_some());
}

#[test]
fn an_ipv6_only_socket_hears_no_ipv4() {
    let mut pair = Pair::new(1);
    let server = pair.stack.socket(Domain::Ipv6, Kind::Datagram).expect("a socket");
    pair.stack.set_option(server, SockOpt::V6Only(true)).expect("set");
    pair.stack.bind(server, addr("[::]:53")).expect("bound");
    assert_eq!(pair.stack.set_option(server, SockOpt::V6Only(false)), Err(SockError::Invalid));
    let other = bound(&mut pair, "0.0.0.0:53");
    let handle = peer_socket(&mut pair, 4000);
    peer_send(&mut pair, handle, b"four", "198.18.0.2:53");
    pair.run_until(5_000_000, |pair| pair.stack.queued_bytes(other) == Ok(4));
    assert_eq!(pair.stack.queued_bytes(server), Ok(0));
}

#[test]
fn a_connected_socket_hears_its_peer_only_and_its_errors() {
    let mut pair = Pair::new(1);
    let client = pair.stack.socket(Domain::Ipv4, Kind::Datagram).expect("a socket");
    assert_eq!(send(&mut pair, client, b"x", None), Err(SockError::DestinationRequired));
    pair.stack.connect(client, addr("198.18.0.1:7000")).expect("connected");
    assert_eq!(pair.stack.peer_addr(client), Ok(addr("198.18.0.1:7000")));
    let local = pair.stack.local_addr(client).expect("an address");
    assert_eq!(local.ip(), ip("198.18.0.2"));
    // From the right address but another port: not for this socket, and there is no other.
    let stranger = packets::udp(addr("198.18.0.1:7001"), local, b"stranger");
    pair.net.inject(pair.stack_port, &stranger);
    pair.run_for(10_000);
    assert_eq!(recv(&mut pair, client), Err(SockError::WouldBlock));
    assert_eq!(pair.stack.drops(DropReason::NoUdpSocket), 1);
    // Nobody listens on 7000: smoltcp says "port unreachable", and the next call hears of it.
    assert_eq!(send(&mut pair, client, b"hello?", None), Ok(6));
    pair.run_until(5_000_000, |pair| {
        pair.stack.readiness(client).contains(ff_dataplane::sockets::Readiness::ERR)
    });
    assert_eq!(recv(&mut pair, client), Err(SockError::Refused));
    assert_eq!(recv(&mut pair, client), Err(SockError::WouldBlock), "an error is told once");
}

#[test]
fn nobody_listens_so_the_peer_is_told() {
    let mut pair = Pair::new(1);
    // Let the stack know its neighbours first.
    let handle = peer_socket(&mut pair, 4000);
    for (source, target) in [("198.18.0.1:4000", "198.18.0.2:99"), ("[2001:2::1]:4000", "[2001:2::2]:99")] {
        peer_send(&mut pair, handle, b"anybody?", target);
        pair.run_for(1_000_000);
        let before = pair.stack.drops(DropReason::NoUdpSocket);
        // By hand, to see the answer on the wire.
        pair.net.inject(pair.stack_port, &packets::udp(addr(source), addr(target), b"anybody?"));
        pair.stack.pass(ff_tcp::Instant(pair.now_us));
        assert_eq!(pair.stack.drops(DropReason::NoUdpSocket), before + 1);
        let answer = pair.net.eject(pair.peer_port).expect("an ICMP error");
        let (l4, kind) = if source.contains('[') { (54, [1, 4]) } else { (34, [3, 3]) };
        assert_eq!(answer[l4..l4 + 2], kind);
    }
}

#[test]
fn errors_are_sent_at_a_bounded_rate() {
    let mut pair = Pair::new(1);
    let handle = peer_socket(&mut pair, 4000);
    peer_send(&mut pair, handle, b"hello", "198.18.0.2:99");
    pair.run_for(1_000_000);
    for _ in 0..2_000 {
        pair.net
            .inject(pair.stack_port, &packets::udp(addr("198.18.0.1:1"), addr("198.18.0.2:99"), b"flood"));
    }
    while pair.stack.pass(ff_tcp::Instant(pair.now_us)).rx > 0 {}
    let answers = std::iter::from_fn(|| pair.net.eject(pair.peer_port)).count();
    assert!((1..=51).contains(&answers), "{answers} errors at one instant");
}

#[test]
fn a_full_queue_drops_the_newest_and_counts() {
    let mut pair = Pair::new(1);
    let server = bound(&mut pair, "0.0.0.0:53");
    pair.stack.set_option(server, SockOpt::RcvBuf(4_096)).expect("set");
    for n in 0..100u8 {
        let datagram = packets::udp(addr("198.18.0.1:4000"), addr("198.18.0.2:53"), &[n; 256]);
        pair.net.inject(pair.stack_port, &datagram);
    }
    pair.run_for(10_000);
    let mut kept = 0;
    while let Ok((payload, _)) = recv(&mut pair, server) {
        assert_eq!(payload, [kept; 256]);
        kept += 1;
    }
    assert_eq!(u64::from(kept), 8_192 / 512);
    assert_eq!(pair.stack.drops(DropReason::UdpSocketFull), 100 - u64::from(kept));
}

#[test]
fn fragments_in_the_wrong_order_become_a_datagram() {
    let mut pair = Pair::new(1);
    let server = bound(&mut pair, "0.0.0.0:53");
    let payload = pattern(1_480, 5);
    let datagram = packets::udp_bytes(addr("198.18.0.1:4000"), addr("198.18.0.2:53"), &payload);
    let mut parts = packets::fragments_v4(ip("198.18.0.1"), ip("198.18.0.2"), 17, 77, &datagram, 400);
    parts.reverse();
    for part in &parts {
        pair.net.inject(pair.stack_port, part);
    }
    pair.run_for(1_000);
    assert_eq!(recv(&mut pair, server).map(|(got, _)| got), Ok(payload));
    assert_eq!(pair.stack.unfinished_fragments(), (0, 0));
}

#[test]
fn the_largest_datagram_survives_between_two_stacks() {
    use ff_dataplane::io::memory::MemoryNet;
    use support::{STACK_MAC, port, stack_config, stack_on, worker};
    for (server_at, client_at, max) in
        [("198.18.0.2:53", "198.18.0.3:0", 65_507), ("[2001:2::2]:53", "[2001:2::3]:0", 65_527)]
    {
        let net = MemoryNet::new(3);
        let (a, b) = net.pair(port(STACK_MAC), port([2, 0, 0, 0, 0, 3]));
        let mut server = stack_on(&net, a, stack_config());
        let mut config = stack_config();
        config.addresses = vec![(ip("198.18.0.3"), 24), (ip("2001:2::3"), 64)];
        config.worker = worker(0, 0);
        let mut client = stack_on(&net, b, config);
        let domain = if server_at.contains('[') { Domain::Ipv6 } else { Domain::Ipv4 };
        let listener = server.socket(domain, Kind::Datagram).expect("a socket");
        server.bind(listener, addr(server_at)).expect("bound");
        let sender = client.socket(domain, Kind::Datagram).expect("a socket");
        client.bind(sender, addr(client_at)).expect("bound");
        let payload = pattern(max, 9);
        let too_long = vec![0; max + 1];
        let to = Some(addr(server_at));
        let mut buf = vec![0; 70_000];
        assert_eq!(
            client.send_to(sender, &[IoSlice::new(&too_long)], to, None),
            Err(SockError::MessageTooLong)
        );
        assert_eq!(client.send_to(sender, &[IoSlice::new(&payload)], to, None), Ok(max));
        let mut now_us = 1_000;
        let received = loop {
            assert!(now_us < 5_000_000, "nothing came");
            net.set_now(now_us);
            client.pass(ff_tcp::Instant(now_us));
            server.pass(ff_tcp::Instant(now_us));
            match server.recv_from(listener, &mut [IoSliceMut::new(&mut buf)], false) {
                Ok(received) => break received,
                Err(error) => assert_eq!(error, SockError::WouldBlock),
            }
            now_us += 1_000;
        };
        assert_eq!(received.len, max);
        assert!(buf[..max] == payload[..], "the datagram is not what was sent");
    }
}

#[test]
fn truncation_and_peek() {
    let mut pair = Pair::new(1);
    let server = bound(&mut pair, "0.0.0.0:53");
    for text in ["first datagram", "second"] {
        let datagram = packets::udp(addr("198.18.0.1:4000"), addr("198.18.0.2:53"), text.as_bytes());
        pair.net.inject(pair.stack_port, &datagram);
    }
    pair.run_for(1_000);
    let mut small = [0; 5];
    let received =
        pair.stack.recv_from(server, &mut [IoSliceMut::new(&mut small)], true).expect("a datagram");
    assert_eq!((received.len, received.full_len, &small), (5, 14, b"first"));
    let (mut a, mut b) = ([0; 6], [0; 2]);
    let received = pair
        .stack
        .recv_from(server, &mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)], false)
        .expect("still there");
    assert_eq!((received.len, received.full_len, &a, &b), (8, 14, b"first ", b"da"));
    assert_eq!(recv(&mut pair, server).map(|(got, _)| got), Ok(b"second".to_vec()), "the rest is gone");
}

#[test]
fn shutdown_of_a_datagram_socket() {
    let mut pair = Pair::new(1);
    let socket = bound(&mut pair, "0.0.0.0:53");
    assert_eq!(pair.stack.shutdown(socket, Shutdown::Both), Err(SockError::NotConnected));
    pair.stack.connect(socket, addr("198.18.0.1:1")).expect("connected");
    assert_eq!(pair.stack.shutdown(socket, Shutdown::Both), Ok(()));
    assert_eq!(recv(&mut pair, socket).map(|(got, _)| got), Ok(Vec::new()));
    assert_eq!(send(&mut pair, socket, b"x", None), Err(SockError::BrokenPipe));
}

#[test]
fn path_mtu_is_learned_for_a_flow_of_ours_only() {
    let mut pair = Pair::new(1);
    let socket = bound(&mut pair, "198.18.0.2:53");
    let handle = peer_socket(&mut pair, 4000);
    peer_send(&mut pair, handle, b"hello", "198.18.0.2:53");
    pair.run_for(100_000);
    let payload = pattern(1_400, 1);
    let frames_for = |pair: &mut Pair| {
        assert_eq!(send(pair, socket, &payload, Some("198.18.0.1:4000")), Ok(1_400));
        pair.stack.pass(ff_tcp::Instant(pair.now_us));
        std::iter::from_fn(|| pair.net.eject(pair.peer_port)).count()
    };
    assert_eq!(frames_for(&mut pair), 1);
    let too_big = |from: &str| {
        let quoted = packets::udp(addr(from), addr("198.18.0.1:4000"), &[0; 8]);
        let rest = [&[0, 0, 0x02, 0x58][..], &quoted[14..]].concat();
        packets::icmp(ip("198.18.0.77"), ip("198.18.0.2"), 3, 4, &rest)
    };
    pair.net.inject(pair.stack_port, &too_big("198.18.0.2:54"));
    pair.stack.pass(ff_tcp::Instant(pair.now_us));
    assert_eq!(frames_for(&mut pair), 1, "about a socket that does not exist");
    pair.net.inject(pair.stack_port, &too_big("198.18.0.2:53"));
    pair.stack.pass(ff_tcp::Instant(pair.now_us));
    assert_eq!(frames_for(&mut pair), 3, "600 bytes at a time");
}
