//! The socket calls as Linux has them: binding, listening, connecting, options, ends and errors.

mod support;

use std::io::{IoSlice, IoSliceMut};

use ff_dataplane::io::PacketIo;
use ff_dataplane::sockets::{
    Domain, Kind, Readiness, Shutdown, SockError, SockOpt, SockOptName, SockOptValue, SocketId,
};
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp;
use smoltcp::wire::IpEndpoint;
use support::{Pair, addr, pattern};

fn stream(pair: &mut Pair, domain: Domain) -> SocketId {
    pair.stack.socket(domain, Kind::Stream).expect("a socket")
}

fn bind(pair: &mut Pair, at: &str, options: &[SockOpt]) -> Result<SocketId, SockError> {
    let socket = stream(pair, if at.contains('[') { Domain::Ipv6 } else { Domain::Ipv4 });
    for option in options {
        pair.stack.set_option(socket, option.clone()).expect("set");
    }
    match pair.stack.bind(socket, addr(at)) {
        Ok(()) => Ok(socket),
        Err(error) => {
            pair.stack.close(socket).expect("closed");
            Err(error)
        }
    }
}

fn listen(pair: &mut Pair, at: &str, options: &[SockOpt]) -> SocketId {
    let socket = bind(pair, at, options).expect("bound");
    pair.stack.listen(socket, 16).expect("listening");
    socket
}

fn peer_socket(pair: &mut Pair) -> SocketHandle {
    let buffer = || tcp::SocketBuffer::new(vec![0; 16_384]);
    pair.peer.sockets.add(tcp::Socket::new(buffer(), buffer()))
}

fn peer_connect(pair: &mut Pair, to: &str, port: u16) -> SocketHandle {
    let handle = peer_socket(pair);
    let to: IpEndpoint = addr(to).into();
    let peer = &mut pair.peer;
    peer.sockets.get_mut::<tcp::Socket>(handle).connect(peer.iface.context(), to, port).expect("connecting");
    handle
}

fn peer_listen(pair: &mut Pair, port: u16) -> SocketHandle {
    let handle = peer_socket(pair);
    pair.peer.sockets.get_mut::<tcp::Socket>(handle).listen(port).expect("listening");
    handle
}

fn accept(pair: &mut Pair, listener: SocketId) -> SocketId {
    let mut accepted = None;
    pair.run_until(5_000_000, |pair| {
        accepted = pair.stack.accept(listener).ok();
        accepted.is_some()
    });
    accepted.expect("accepted").0
}

fn peer_state(pair: &mut Pair, handle: SocketHandle) -> tcp::State {
    pair.peer.sockets.get_mut::<tcp::Socket>(handle).state()
}

/// A connection from the peer: the socket on the stack, and smoltcp's.
fn connected(pair: &mut Pair) -> (SocketId, SocketHandle) {
    let listener = listen(pair, "198.18.0.2:80", &[]);
    let handle = peer_connect(pair, "198.18.0.2:80", 40_000);
    let socket = accept(pair, listener);
    pair.stack.close(listener).expect("closed");
    (socket, handle)
}

fn int(pair: &mut Pair, socket: SocketId, name: SockOptName) -> Result<i32, SockError> {
    match pair.stack.option(socket, name)? {
        SockOptValue::Int(value) => Ok(value),
        other => panic!("{other:?} is no int"),
    }
}

#[test]
fn bind_says_what_linux_says() {
    let mut pair = Pair::new(1);
    assert_eq!(bind(&mut pair, "198.18.0.9:80", &[]), Err(SockError::AddressNotAvailable));
    let first = bind(&mut pair, "198.18.0.2:80", &[]).expect("bound");
    assert_eq!(pair.stack.bind(first, addr("198.18.0.2:81")), Err(SockError::Invalid), "bound already");
    assert_eq!(bind(&mut pair, "0.0.0.0:80", &[]), Err(SockError::AddressInUse));
    assert_eq!(bind(&mut pair, "[::]:80", &[]), Err(SockError::AddressInUse), "dual-stack covers IPv4");
    bind(&mut pair, "[::]:80", &[SockOpt::V6Only(true)]).expect("IPv6 alone");
    pair.stack.close(first).expect("closed");
    bind(&mut pair, "0.0.0.0:80", &[]).expect("free again");

    let v4 = stream(&mut pair, Domain::Ipv4);
    assert_eq!(pair.stack.bind(v4, addr("[::]:99")), Err(SockError::FamilyNotSupported));
    let v6 = stream(&mut pair, Domain::Ipv6);
    assert_eq!(pair.stack.bind(v6, addr("0.0.0.0:99")), Err(SockError::Invalid));
    pair.stack.bind(v6, addr("[::ffff:198.18.0.2]:99")).expect("a v4-mapped address");
    assert_eq!(pair.stack.local_addr(v6), Ok(addr("[::ffff:198.18.0.2]:99")));

    let any = stream(&mut pair, Domain::Ipv4);
    assert_eq!(pair.stack.local_addr(any), Ok(addr("0.0.0.0:0")));
    pair.stack.bind(any, addr("0.0.0.0:0")).expect("a free port");
    assert_ne!(pair.stack.local_addr(any).expect("an address").port(), 0);
}

#[test]
fn reuse_of_a_port() {
    let mut pair = Pair::new(1);
    let a = bind(&mut pair, "0.0.0.0:80", &[SockOpt::ReuseAddr(true)]).expect("bound");
    let b = bind(&mut pair, "0.0.0.0:80", &[SockOpt::ReuseAddr(true)]).expect("neither listens");
    pair.stack.listen(a, 1).expect("listening");
    assert_eq!(pair.stack.listen(b, 1), Err(SockError::AddressInUse));
    assert_eq!(bind(&mut pair, "0.0.0.0:80", &[SockOpt::ReuseAddr(true)]), Err(SockError::AddressInUse));
    pair.stack.close(a).expect("closed");
    pair.stack.listen(b, 1).expect("now it may");
}

#[test]
fn sockets_that_share_a_port_share_its_connections() {
    let mut pair = Pair::new(1);
    let options = [SockOpt::ReusePort(true)];
    let a = listen(&mut pair, "0.0.0.0:80", &options);
    let b = listen(&mut pair, "0.0.0.0:80", &options);
    assert_eq!(bind(&mut pair, "0.0.0.0:80", &[]), Err(SockError::AddressInUse));
    peer_connect(&mut pair, "198.18.0.2:80", 40_000);
    peer_connect(&mut pair, "198.18.0.2:80", 40_001);
    let mut events = Vec::new();
    pair.run_until(5_000_000, |pair| {
        events.extend(std::iter::from_fn(|| pair.stack.next_event()).map(|event| event.socket));
        pair.stack.readiness(a) == Readiness::READABLE && events.len() >= 2
    });
    events.sort();
    events.dedup();
    assert_eq!(events, [a, b], "both hear of it");
    pair.run_for(100_000);
    pair.stack.accept(a).expect("the first");
    pair.stack.close(a).expect("closed");
    pair.stack.accept(b).expect("the second; it stayed when the other socket went");
    assert_eq!(pair.stack.accept(b), Err(SockError::WouldBlock));
}

#[test]
fn a_dual_stack_listener_and_one_for_each_family() {
    let mut pair = Pair::new(1);
    let both = listen(&mut pair, "[::]:80", &[]);
    peer_connect(&mut pair, "198.18.0.2:80", 40_000);
    let conn = accept(&mut pair, both);
    assert_eq!(pair.stack.peer_addr(conn), Ok(addr("[::ffff:198.18.0.1]:40000")));
    assert_eq!(pair.stack.local_addr(conn), Ok(addr("[::ffff:198.18.0.2]:80")));
    peer_connect(&mut pair, "[2001:2::2]:80", 40_000);
    let conn = accept(&mut pair, both);
    assert_eq!(pair.stack.peer_addr(conn), Ok(addr("[2001:2::1]:40000")));

    let six = listen(&mut pair, "[::]:81", &[SockOpt::V6Only(true)]);
    let four = listen(&mut pair, "0.0.0.0:81", &[]);
    peer_connect(&mut pair, "198.18.0.2:81", 40_001);
    accept(&mut pair, four);
    peer_connect(&mut pair, "[2001:2::2]:81", 40_001);
    accept(&mut pair, six);
}

#[test]
fn connect_both_families_and_carry_data() {
    for (target, local) in [("198.18.0.1:7000", "198.18.0.2"), ("[2001:2::1]:7000", "2001:2::2")] {
        let mut pair = Pair::new(1);
        let server = peer_listen(&mut pair, 7_000);
        let domain = if target.contains('[') { Domain::Ipv6 } else { Domain::Ipv4 };
        let client = stream(&mut pair, domain);
        assert_eq!(pair.stack.connect(client, addr(target)), Err(SockError::InProgress));
        assert_eq!(pair.stack.connect(client, addr(target)), Err(SockError::Already));
        assert_eq!(pair.stack.peer_addr(client), Err(SockError::NotConnected));
        assert!(!pair.stack.readiness(client).contains(Readiness::WRITABLE));
        pair.run_until(5_000_000, |pair| pair.stack.readiness(client).contains(Readiness::WRITABLE));
        let event = pair.stack.next_event().expect("an event");
        assert!(event.socket == client && event.edges.contains(Readiness::WRITABLE));
        assert_eq!(int(&mut pair, client, SockOptName::Error), Ok(0));
        assert_eq!(pair.stack.connect(client, addr(target)), Err(SockError::IsConnected));
        assert_eq!(pair.stack.peer_addr(client), Ok(addr(target)));
        assert_eq!(pair.stack.local_addr(client).map(|addr| addr.ip().to_string()), Ok(local.to_string()));
        assert_eq!(pair.stack.send_vectored(client, &[IoSlice::new(b"he"), IoSlice::new(b"llo")]), Ok(5));
        pair.run_until(5_000_000, |pair| pair.peer.sockets.get_mut::<tcp::Socket>(server).recv_queue() == 5);
        pair.peer.sockets.get_mut::<tcp::Socket>(server).send_slice(b"and back").expect("sent");
        pair.run_until(5_000_000, |pair| pair.stack.queued_bytes(client) == Ok(8));
        let (mut a, mut b) = ([0; 3], [0; 16]);
        let mut bufs = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
        assert_eq!(pair.stack.recv_vectored(client, &mut bufs, false), Ok(8));
        assert_eq!((&a, &b[..5]), (b"and", &b" back"[..]));
        assert_eq!(pair.stack.recv(client, &mut b, false), Err(SockError::WouldBlock));
    }
}

#[test]
fn connects_that_fail_and_how() {
    let mut pair = Pair::new(1);
    // Nobody listens.
    let refused = stream(&mut pair, Domain::Ipv4);
    assert_eq!(pair.stack.connect(refused, addr("198.18.0.1:9")), Err(SockError::InProgress));
    pair.run_until(5_000_000, |pair| pair.stack.readiness(refused).contains(Readiness::ERR));
    let ready = pair.stack.readiness(refused);
    assert!(ready.contains(Readiness::WRITABLE | Readiness::HUP), "{ready:?}");
    assert_eq!(int(&mut pair, refused, SockOptName::Error), Ok(libc::ECONNREFUSED));
    assert_eq!(int(&mut pair, refused, SockOptName::Error), Ok(0));

    // Nobody is there: the neighbour does not answer.
    let nowhere = stream(&mut pair, Domain::Ipv4);
    assert_eq!(pair.stack.connect(nowhere, addr("198.18.0.200:9")), Err(SockError::InProgress));
    pair.run_until(8_000_000, |pair| pair.stack.readiness(nowhere).contains(Readiness::ERR));
    assert_eq!(pair.stack.take_error(nowhere), Some(SockError::HostUnreachable));

    let v4 = stream(&mut pair, Domain::Ipv4);
    assert_eq!(pair.stack.connect(v4, addr("[2001:2::1]:9")), Err(SockError::FamilyNotSupported));
    assert_eq!(pair.stack.connect(v4, addr("255.255.255.255:9")), Err(SockError::NetUnreachable));
    assert_eq!(pair.stack.send(v4, b"x"), Err(SockError::BrokenPipe));
    assert_eq!(pair.stack.recv(v4, &mut [0], false), Err(SockError::NotConnected));
    assert_eq!(pair.stack.shutdown(v4, Shutdown::Both), Err(SockError::NotConnected));
    assert_eq!(pair.stack.accept(v4), Err(SockError::Invalid));
    assert_eq!(pair.stack.readiness(v4), Readiness::WRITABLE | Readiness::HUP);
}

#[test]
fn ephemeral_ports_are_of_this_workers_share() {
    let mut config = support::stack_config();
    config.slot_count = 2;
    config.worker_count = 3;
    config.worker = support::worker(1, 2);
    let mut pair = Pair::with(1, config, support::port(support::STACK_MAC));
    for _ in 0..50 {
        let client = stream(&mut pair, Domain::Ipv4);
        assert_eq!(pair.stack.connect(client, addr("198.18.0.1:9")), Err(SockError::InProgress));
        let port = pair.stack.local_addr(client).expect("an address").port();
        assert_eq!(port % 2, 1, "the slot's parity");
        assert_eq!(port % 6, 5, "the worker's share of it");
    }
}

#[test]
fn half_close_then_the_other_half() {
    let mut pair = Pair::new(1);
    let (server, client) = connected(&mut pair);
    pair.peer.sockets.get_mut::<tcp::Socket>(client).close();
    pair.run_until(5_000_000, |pair| pair.stack.readiness(server).contains(Readiness::RDHUP));
    assert_eq!(pair.stack.recv(server, &mut [0; 16], false), Ok(0));
    assert_eq!(pair.stack.recv(server, &mut [0; 16], false), Ok(0));
    assert!(!pair.stack.readiness(server).contains(Readiness::HUP), "only one half has ended");
    assert_eq!(pair.stack.send(server, b"still"), Ok(5));
    pair.run_until(5_000_000, |pair| pair.peer.sockets.get_mut::<tcp::Socket>(client).recv_queue() == 5);
    pair.stack.shutdown(server, Shutdown::Write).expect("shut down");
    assert_eq!(pair.stack.send(server, b"x"), Err(SockError::BrokenPipe));
    pair.run_until(5_000_000, |pair| pair.stack.readiness(server).contains(Readiness::HUP));
    pair.stack.close(server).expect("closed");
    assert_eq!(pair.stack.recv(server, &mut [0], false), Err(SockError::BadSocket));
    pair.run_until(5_000_000, |pair| pair.stack.engine().conn_count() == 0);
}

#[test]
fn what_was_written_before_close_arrives() {
    let mut pair = Pair::new(1);
    let (server, client) = connected(&mut pair);
    let bytes = pattern(60_000, 4);
    assert_eq!(pair.stack.send(server, &bytes), Ok(60_000));
    pair.stack.close(server).expect("closed");
    assert_eq!(pair.stack.lingering(), 1);
    let mut got = Vec::new();
    pair.run_until(20_000_000, |pair| {
        let client = pair.peer.sockets.get_mut::<tcp::Socket>(client);
        while client.can_recv() {
            client.recv(|part| (part.len(), got.extend_from_slice(part))).expect("received");
        }
        got.len() == bytes.len()
    });
    assert!(got == bytes);
    pair.peer.sockets.get_mut::<tcp::Socket>(client).close();
    pair.run_until(5_000_000, |pair| pair.stack.lingering() == 0);
}

#[test]
fn close_with_unread_data_and_linger_zero_reset() {
    let mut pair = Pair::new(1);
    let (server, client) = connected(&mut pair);
    pair.peer.sockets.get_mut::<tcp::Socket>(client).send_slice(b"unread").expect("sent");
    pair.run_until(5_000_000, |pair| pair.stack.queued_bytes(server) == Ok(6));
    pair.stack.close(server).expect("closed");
    pair.run_until(5_000_000, |pair| peer_state(pair, client) == tcp::State::Closed);

    let (server, client) = connected(&mut pair);
    pair.stack.set_option(server, SockOpt::Linger(Some(0))).expect("set");
    pair.stack.close(server).expect("closed");
    pair.run_until(5_000_000, |pair| peer_state(pair, client) == tcp::State::Closed);
    assert_eq!(pair.stack.engine().conn_count(), 0);
}

#[test]
fn a_reset_is_told_once_and_then_it_is_the_end() {
    let mut pair = Pair::new(1);
    let (server, client) = connected(&mut pair);
    pair.peer.sockets.get_mut::<tcp::Socket>(client).abort();
    pair.run_until(5_000_000, |pair| pair.stack.readiness(server).contains(Readiness::ERR));
    assert_eq!(pair.stack.recv(server, &mut [0; 16], false), Err(SockError::Reset));
    assert_eq!(pair.stack.recv(server, &mut [0; 16], false), Ok(0));
    assert_eq!(pair.stack.send(server, b"x"), Err(SockError::BrokenPipe));
    assert_eq!(pair.stack.peer_addr(server), Err(SockError::NotConnected));
    assert!(pair.stack.readiness(server).contains(Readiness::HUP));
}

#[test]
fn events_are_edges_and_carry_the_users_word() {
    let mut pair = Pair::new(1);
    let (server, client) = connected(&mut pair);
    pair.stack.set_user(server, 77);
    while pair.stack.next_event().is_some() {}
    for _ in 0..3 {
        // New data is an edge even while old data is unread.
        pair.peer.sockets.get_mut::<tcp::Socket>(client).send_slice(b"more").expect("sent");
        pair.run_for(300_000);
        let event = pair.stack.next_event().expect("an event");
        assert_eq!((event.socket, event.user), (server, 77));
        assert!(event.edges.contains(Readiness::READABLE));
        assert_eq!(pair.stack.next_event(), None);
    }
    pair.stack.close(server).expect("closed");
    pair.run_for(100_000);
    assert_eq!(pair.stack.next_event(), None, "a closed socket is silent");
}

#[test]
fn a_full_send_buffer_blocks_and_frees() {
    let mut pair = Pair::new(1);
    let (server, client) = connected(&mut pair);
    let bytes = pattern(8 << 20, 1);
    let mut sent = 0;
    pair.run_until(60_000_000, |pair| {
        while let Ok(n) = pair.stack.send(server, &bytes[sent % 4096..][..65_536]) {
            sent += n;
        }
        pair.stack.send(server, b"x") == Err(SockError::WouldBlock)
            && pair.peer.sockets.get_mut::<tcp::Socket>(client).recv_queue() == 16_384
    });
    assert!(!pair.stack.readiness(server).contains(Readiness::WRITABLE));
    while pair.stack.next_event().is_some() {}
    let mut freed = false;
    pair.run_until(60_000_000, |pair| {
        let client = pair.peer.sockets.get_mut::<tcp::Socket>(client);
        if client.can_recv() {
            client.recv(|part| (part.len(), ())).expect("received");
        }
        while let Some(event) = pair.stack.next_event() {
            freed |= event.edges.contains(Readiness::WRITABLE);
        }
        freed && pair.stack.readiness(server).contains(Readiness::WRITABLE)
    });
}

#[test]
fn the_backlog_is_honoured() {
    let mut pair = Pair::new(1);
    let listener = bind(&mut pair, "198.18.0.2:80", &[]).expect("bound");
    pair.stack.listen(listener, 2).expect("listening");
    let clients: Vec<_> = (0..8).map(|n| peer_connect(&mut pair, "198.18.0.2:80", 40_000 + n)).collect();
    pair.run_for(500_000);
    let waiting = std::iter::from_fn(|| pair.stack.accept(listener).ok()).count();
    // Linux lets one more than the backlog wait.
    assert!((2..=3).contains(&waiting), "{waiting} connections waited");
    // The rest believe that they are connected: they were answered with a cookie, and nothing was kept of
    // them. Their first data brings the cookie back.
    for client in &clients {
        pair.peer.sockets.get_mut::<tcp::Socket>(*client).send_slice(b"GET").expect("sent");
    }
    let mut total = waiting;
    pair.run_until(60_000_000, |pair| {
        total += std::iter::from_fn(|| pair.stack.accept(listener).ok()).count();
        total == clients.len()
    });
}

#[test]
fn options_keep_what_linux_keeps() {
    let mut pair = Pair::new(1);
    let s = stream(&mut pair, Domain::Ipv4);
    for (option, name, shown) in [
        (SockOpt::ReuseAddr(true), SockOptName::ReuseAddr, 1),
        (SockOpt::ReusePort(true), SockOptName::ReusePort, 1),
        (SockOpt::KeepAlive(true), SockOptName::KeepAlive, 1),
        (SockOpt::KeepIdle(30), SockOptName::KeepIdle, 30),
        (SockOpt::KeepIntvl(5), SockOptName::KeepIntvl, 5),
        (SockOpt::KeepCnt(4), SockOptName::KeepCnt, 4),
        (SockOpt::NoDelay(true), SockOptName::NoDelay, 1),
        (SockOpt::Cork(true), SockOptName::Cork, 1),
        (SockOpt::DeferAccept(5), SockOptName::DeferAccept, 7),
        (SockOpt::UserTimeout(1_234), SockOptName::UserTimeout, 1_234),
        (SockOpt::RcvBuf(50_000), SockOptName::RcvBuf, 100_000),
        (SockOpt::SndBuf(50_000), SockOptName::SndBuf, 100_000),
        (SockOpt::MaxSeg(1_000), SockOptName::MaxSeg, 1_000),
        (SockOpt::QuickAck(false), SockOptName::QuickAck, 0),
        (SockOpt::Broadcast(true), SockOptName::Broadcast, 1),
        (SockOpt::BindAddressNoPort(true), SockOptName::BindAddressNoPort, 1),
        (SockOpt::Tos(0x10), SockOptName::Tos, 0x10),
        (SockOpt::Ttl(32), SockOptName::Ttl, 32),
    ] {
        pair.stack.set_option(s, option.clone()).expect("set");
        assert_eq!(int(&mut pair, s, name), Ok(shown), "{option:?}");
    }
    for (name, shown) in [
        (SockOptName::Type, libc::SOCK_STREAM),
        (SockOptName::Domain, libc::AF_INET),
        (SockOptName::Protocol, libc::IPPROTO_TCP),
        (SockOptName::AcceptConn, 0),
        (SockOptName::FastOpen, 0),
    ] {
        assert_eq!(int(&mut pair, s, name), Ok(shown), "{name:?}");
    }
    assert_eq!(pair.stack.set_option(s, SockOpt::FastOpen(5)), Err(SockError::NotSupported));
    assert_eq!(pair.stack.set_option(s, SockOpt::V6Only(true)), Err(SockError::NoSuchOption));
    assert_eq!(
        pair.stack.set_option(s, SockOpt::Congestion("vegas".into())),
        Err(SockError::NoSuchCongestionControl)
    );
    pair.stack.set_option(s, SockOpt::Congestion("reno".into())).expect("set");
    assert!(matches!(pair.stack.option(s, SockOptName::Congestion), Ok(SockOptValue::Name("reno"))));
    assert!(matches!(pair.stack.option(s, SockOptName::Linger), Ok(SockOptValue::Linger(None))));
    pair.stack.set_option(s, SockOpt::Linger(Some(7))).expect("set");
    assert!(matches!(pair.stack.option(s, SockOptName::Linger), Ok(SockOptValue::Linger(Some(7)))));
    let d = pair.stack.socket(Domain::Ipv4, Kind::Datagram).expect("a socket");
    assert_eq!(pair.stack.set_option(d, SockOpt::NoDelay(true)), Err(SockError::NoSuchOption));
    assert_eq!(int(&mut pair, d, SockOptName::NoDelay), Err(SockError::NoSuchOption));
    assert_eq!(int(&mut pair, d, SockOptName::Type), Ok(libc::SOCK_DGRAM));
    pair.stack.set_option(d, SockOpt::PktInfo(true)).expect("set");
    assert_eq!(int(&mut pair, d, SockOptName::PktInfo), Ok(1));
}

#[test]
fn options_go_from_the_listener_to_its_connections() {
    let mut pair = Pair::new(1);
    let listener = listen(&mut pair, "198.18.0.2:80", &[SockOpt::NoDelay(true)]);
    pair.stack.set_option(listener, SockOpt::KeepAlive(true)).expect("set after listen");
    assert_eq!(int(&mut pair, listener, SockOptName::AcceptConn), Ok(1));
    peer_connect(&mut pair, "198.18.0.2:80", 40_000);
    let conn = accept(&mut pair, listener);
    assert_eq!(int(&mut pair, conn, SockOptName::NoDelay), Ok(1));
    assert_eq!(int(&mut pair, conn, SockOptName::KeepAlive), Ok(1));
    assert_eq!(int(&mut pair, conn, SockOptName::AcceptConn), Ok(0));
    assert_eq!(int(&mut pair, conn, SockOptName::MaxSeg), Ok(1_460));
    let Ok(SockOptValue::TcpInfo(info)) = pair.stack.option(conn, SockOptName::TcpInfo) else {
        panic!("no TCP_INFO")
    };
    assert_eq!(info.state, ff_tcp::State::Established);
}

#[test]
fn a_deferred_accept_waits_for_data() {
    let mut pair = Pair::new(1);
    let listener = listen(&mut pair, "198.18.0.2:80", &[SockOpt::DeferAccept(30)]);
    let client = peer_connect(&mut pair, "198.18.0.2:80", 40_000);
    pair.run_for(500_000);
    assert_eq!(pair.stack.accept(listener), Err(SockError::WouldBlock));
    pair.peer.sockets.get_mut::<tcp::Socket>(client).send_slice(b"GET").expect("sent");
    let conn = accept(&mut pair, listener);
    pair.run_until(2_000_000, |pair| pair.stack.queued_bytes(conn) == Ok(3));
}

#[test]
fn more_sockets_than_allowed() {
    let mut config = support::stack_config();
    config.sockets_max = 3;
    let mut pair = Pair::with(1, config, support::port(support::STACK_MAC));
    let listener = listen(&mut pair, "198.18.0.2:80", &[]);
    let other = stream(&mut pair, Domain::Ipv4);
    let third = stream(&mut pair, Domain::Ipv4);
    assert_eq!(pair.stack.socket(Domain::Ipv4, Kind::Stream), Err(SockError::TooManySockets));
    peer_connect(&mut pair, "198.18.0.2:80", 40_000);
    pair.run_until(5_000_000, |pair| pair.stack.readiness(listener) == Readiness::READABLE);
    assert_eq!(pair.stack.accept(listener), Err(SockError::TooManySockets));
    pair.stack.close(other).expect("closed");
    pair.stack.accept(listener).expect("the connection had stayed in the queue");
    pair.stack.close(third).expect("closed");
    assert_eq!(pair.stack.close(third), Err(SockError::BadSocket));
    let again = stream(&mut pair, Domain::Ipv4);
    assert_ne!(again, third, "an id is not used twice");
    assert_eq!(SocketId::from_u64(again.to_u64()), again);
}

#[test]
fn a_listener_that_is_shut_down_listens_no_more() {
    let mut pair = Pair::new(1);
    let listener = listen(&mut pair, "198.18.0.2:80", &[]);
    pair.stack.shutdown(listener, Shutdown::Read).expect("shut down");
    let client = peer_connect(&mut pair, "198.18.0.2:80", 40_000);
    pair.run_until(5_000_000, |pair| peer_state(pair, client) == tcp::State::Closed);
    pair.stack.listen(listener, 1).expect("listening again");
    peer_connect(&mut pair, "198.18.0.2:80", 40_001);
    accept(&mut pair, listener);
}

#[test]
fn a_worker_reaches_its_own_addresses() {
    for at in ["198.18.0.2:80", "[2001:2::2]:80"] {
        let mut pair = Pair::new(1);
        let listener = listen(&mut pair, at, &[]);
        let domain = if at.contains('[') { Domain::Ipv6 } else { Domain::Ipv4 };
        let client = stream(&mut pair, domain);
        assert_eq!(pair.stack.connect(client, addr(at)), Err(SockError::InProgress));
        let server = accept(&mut pair, listener);
        let bytes = pattern(200_000, 6);
        let (mut sent, mut got) = (0, Vec::new());
        pair.run_until(10_000_000, |pair| {
            sent += pair.stack.send(client, &bytes[sent..]).unwrap_or(0);
            let mut buf = [0; 8_192];
            while let Ok(n) = pair.stack.recv(server, &mut buf, false) {
                got.extend_from_slice(&buf[..n]);
            }
            got.len() == bytes.len()
        });
        assert!(got == bytes);
        assert_eq!(pair.stack.io().counters().tx_frames, 0, "nothing of it was on the wire");

        let receiver = pair.stack.socket(domain, Kind::Datagram).expect("a socket");
        pair.stack.bind(receiver, addr(&at.replace("80", "53"))).expect("bound");
        let sender = pair.stack.socket(domain, Kind::Datagram).expect("a socket");
        let to = Some(addr(&at.replace("80", "53")));
        assert_eq!(pair.stack.send_to(sender, &[IoSlice::new(&bytes[..5_000])], to, None), Ok(5_000));
        pair.run_until(1_000_000, |pair| pair.stack.queued_bytes(receiver) == Ok(5_000));
    }
}
