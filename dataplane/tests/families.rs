//! IPv4 and IPv6 at the same time, on a device whose frames hold a packet and not more.

mod support;

use ff_dataplane::io::memory::MemoryNet;
use ff_dataplane::sockets::{Domain, Kind, SockError, SocketId};
use ff_tcp::Instant;
use support::{PEER_MAC, STACK_MAC, TestStack, addr, ip, pattern};

const BYTES: usize = 300_000;

fn listen(stack: &mut TestStack, domain: Domain, at: &str) -> SocketId {
    let socket = stack.socket(domain, Kind::Stream).expect("a socket");
    stack.bind(socket, addr(at)).expect("bound");
    stack.listen(socket, 16).expect("listening");
    socket
}

/// Full segments of the two families differ by 20 bytes, and are written before their header's length is known.
#[test]
fn full_segments_of_both_families_fit_into_any_frame() {
    let net = MemoryNet::new(1);
    let (stack_port, peer_port) = net.pair(support::port(STACK_MAC), support::port(PEER_MAC));
    let mut server = support::stack_on(&net, stack_port, support::stack_config());
    let mut config = support::stack_config();
    config.addresses = vec![(ip("198.18.0.1"), 24), (ip("2001:2::1"), 64)];
    (config.gateway4, config.gateway6) = (None, None);
    let mut peer = support::stack_on(&net, peer_port, config);
    let mut now = Instant(1_000_000);
    net.set_now(now.0);
    server.pass(now);
    peer.pass(now);
    let listeners = [
        listen(&mut server, Domain::Ipv4, "198.18.0.2:80"),
        listen(&mut server, Domain::Ipv6, "[2001:2::2]:80"),
    ];
    let clients: Vec<SocketId> = (0..6)
        .map(|index| {
            let (domain, to) = match index % 2 {
                0 => (Domain::Ipv4, "198.18.0.2:80"),
                _ => (Domain::Ipv6, "[2001:2::2]:80"),
            };
            let socket = peer.socket(domain, Kind::Stream).expect("a socket");
            assert_eq!(peer.connect(socket, addr(to)), Err(SockError::InProgress));
            socket
        })
        .collect();
    let data = pattern(BYTES, 5);
    let (mut accepted, mut received) = (Vec::new(), vec![Vec::new(); clients.len()]);
    for _ in 0..20_000 {
        now = now + 200;
        net.set_now(now.0);
        server.pass(now);
        peer.pass(now);
        while server.next_event().is_some() {}
        while peer.next_event().is_some() {}
        for listener in listeners {
            accepted.extend(server.accept(listener).map(|(socket, _)| (socket, 0)));
        }
        for (socket, sent) in &mut accepted {
            while let Ok(n) = server.send(*socket, &data[*sent..]) {
                *sent += n;
                if *sent == BYTES {
                    break;
                }
            }
        }
        let mut bytes = [0; 65_536];
        for (client, received) in clients.iter().zip(&mut received) {
            while let Ok(n @ 1..) = peer.recv(*client, &mut bytes, false) {
                received.extend_from_slice(&bytes[..n]);
            }
        }
        if received.iter().all(|received| received.len() == BYTES) {
            break;
        }
    }
    for (index, received) in received.iter().enumerate() {
        assert_eq!(received.len(), BYTES, "connection {index} stalls");
        assert!(*received == data, "connection {index} gets wrong bytes");
    }
}
