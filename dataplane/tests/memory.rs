//! A worker whose frames are all on their way.

mod support;

use ff_dataplane::io::memory::{MemoryNet, PortSettings};
use ff_dataplane::sockets::{Domain, Kind, SockError};
use ff_tcp::Instant;
use support::{PEER_MAC, STACK_MAC, addr, ip, pattern};

#[test]
fn a_pass_that_lacked_a_frame_asks_for_another_one() {
    let net = MemoryNet::new(1);
    let settings = PortSettings { pool_frames: 4, ..support::port(STACK_MAC) };
    let (stack_port, peer_port) = net.pair(settings, support::port(PEER_MAC));
    let mut server = support::stack_on(&net, stack_port, support::stack_config());
    let mut config = support::stack_config();
    config.addresses = vec![(ip("198.18.0.1"), 24)];
    config.gateway4 = None;
    let mut peer = support::stack_on(&net, peer_port, config);
    let mut now = Instant(1_000_000);
    let mut tick = || {
        now = now + 100;
        net.set_now(now.0);
        now
    };
    let listener = server.socket(Domain::Ipv4, Kind::Stream).expect("a socket");
    server.pass(tick());
    server.bind(listener, addr("198.18.0.2:80")).expect("bound");
    server.listen(listener, 16).expect("listening");
    let client = peer.socket(Domain::Ipv4, Kind::Stream).expect("a socket");
    peer.pass(tick());
    assert_eq!(peer.connect(client, addr("198.18.0.2:80")), Err(SockError::InProgress));
    for _ in 0..20 {
        peer.pass(tick());
        server.pass(tick());
    }
    let (socket, _) = server.accept(listener).expect("a connection");
    let data = pattern(12_000, 1);
    assert_eq!(server.send(socket, &data), Ok(data.len()));
    // Nine segments within the first window, and four frames.
    let report = server.pass(tick());
    assert_eq!(report.tx, 4);
    assert!(report.more, "five segments wait for frames, and nobody tells when there are some");
    assert!(server.pass(tick()).more);
    let mut received = Vec::new();
    let mut bytes = [0; 4_096];
    for _ in 0..20 {
        peer.pass(tick());
        while let Ok(n @ 1..) = peer.recv(client, &mut bytes, false) {
            received.extend_from_slice(&bytes[..n]);
        }
        server.pass(tick());
    }
    assert!(received == data);
    assert!(!server.pass(tick()).more, "nothing is left to be sent");
}
