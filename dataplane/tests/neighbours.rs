//! ARP and neighbour discovery: learned, asked for, waited for, defended.

mod support;

use std::io::IoSlice;

use ff_dataplane::sockets::{Domain, Kind, SockError, SocketId};
use ff_dataplane::{Shared, Stack};
use ff_flowmap::{HeapIndex, HeapMemory, NeighbourWriter, Owner, format_neighbours, neighbours_bytes};
use ff_handover::DropReason;
use ff_tcp::Instant;
use support::packets::*;
use support::{PEER_MAC, Pair, STACK_MAC, TestStack, addr, ip};

const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x33];

fn udp_socket(stack: &mut TestStack, domain: Domain) -> SocketId {
    stack.socket(domain, Kind::Datagram).expect("a socket")
}

fn send(stack: &mut TestStack, socket: SocketId, byte: u8, to: &str) -> Result<usize, SockError> {
    stack.send_to(socket, &[IoSlice::new(&[byte])], Some(addr(to)), None)
}

fn pass(pair: &mut Pair) {
    pair.net.set_now(pair.now_us);
    pair.stack.pass(Instant(pair.now_us));
}

fn sent(pair: &Pair) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| pair.net.eject(pair.peer_port)).collect()
}

#[test]
fn packets_wait_for_the_answer_and_keep_their_order() {
    let mut pair = Pair::new(1);
    let socket = udp_socket(&mut pair.stack, Domain::Ipv4);
    for byte in 0..20 {
        assert_eq!(send(&mut pair.stack, socket, byte, "198.18.0.1:9"), Ok(1));
    }
    pass(&mut pair);
    let questions = sent(&pair);
    assert_eq!(questions.len(), 1, "one question for all of them");
    assert_eq!(questions[0][12..22], [8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    assert_eq!(questions[0][..6], [0xff; 6]);
    assert_eq!(pair.stack.waiting_packets(), 20);
    pair.net.inject(pair.stack_port, &arp(2, ([198, 18, 0, 1], PEER_MAC), ([198, 18, 0, 2], STACK_MAC)));
    pass(&mut pair);
    let packets = sent(&pair);
    assert_eq!(packets.iter().map(|p| p[42]).collect::<Vec<_>>(), (0..20).collect::<Vec<u8>>());
    assert!(packets.iter().all(|p| p[..6] == PEER_MAC && p[6..12] == STACK_MAC));
    assert_eq!(pair.stack.waiting_packets(), 0);
}

#[test]
fn the_same_with_neighbour_discovery() {
    let mut pair = Pair::new(1);
    let socket = udp_socket(&mut pair.stack, Domain::Ipv6);
    assert_eq!(send(&mut pair.stack, socket, 7, "[2001:2::1]:9"), Ok(1));
    pass(&mut pair);
    let questions = sent(&pair);
    assert_eq!(questions.len(), 1);
    assert_eq!(questions[0][..6], [0x33, 0x33, 0xff, 0, 0, 1], "to the solicited-node group");
    assert_eq!((questions[0][54], questions[0][21]), (135, 255));
    let answer = advertisement(ip("2001:2::1"), ip("2001:2::2"), ip("2001:2::1"), 0x60, PEER_MAC);
    pair.net.inject(pair.stack_port, &answer);
    pass(&mut pair);
    assert_eq!(sent(&pair)[0][..6], PEER_MAC);
}

#[test]
fn nobody_answers() {
    let mut pair = Pair::new(1);
    let socket = udp_socket(&mut pair.stack, Domain::Ipv4);
    pair.stack.connect(socket, addr("198.18.0.77:9")).expect("connected");
    assert_eq!(pair.stack.send(socket, b"x"), Ok(1));
    let start_us = pair.now_us;
    let mut questions = 0;
    while pair.stack.drops(DropReason::NeighbourUnreachable) == 0 {
        pass(&mut pair);
        questions += sent(&pair).len();
        pair.now_us += 50_000;
        assert!(pair.now_us - start_us < 6_000_000, "still waiting");
    }
    assert_eq!(questions, 3, "one a second");
    assert_eq!(pair.stack.recv(socket, &mut [0], false), Err(SockError::HostUnreachable));
    assert_eq!(pair.stack.waiting_packets(), 0);
}

#[test]
fn the_queue_of_a_neighbour_is_bounded() {
    let mut pair = Pair::new(1);
    let socket = udp_socket(&mut pair.stack, Domain::Ipv4);
    for n in 0..1_000u32 {
        let to = format!("198.18.0.{}:9", 10 + n % 100);
        assert_eq!(send(&mut pair.stack, socket, 0, &to), Ok(1));
    }
    assert!(pair.stack.waiting_packets() <= 512);
    pair.run_for(10_000_000);
    assert_eq!(pair.stack.waiting_packets(), 0);
    let gone =
        pair.stack.drops(DropReason::NeighbourQueueFull) + pair.stack.drops(DropReason::NeighbourUnreachable);
    assert_eq!(gone, 1_000, "each of them is accounted for");
}

#[test]
fn questions_are_answered_and_the_asker_is_learned() {
    let mut pair = Pair::new(1);
    pair.net.inject(pair.stack_port, &arp(1, ([198, 18, 0, 1], PEER_MAC), ([198, 18, 0, 2], [0; 6])));
    pass(&mut pair);
    let answers = sent(&pair);
    let expected = arp(2, ([198, 18, 0, 2], STACK_MAC), ([198, 18, 0, 1], PEER_MAC));
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0][12..], expected[12..]);
    // Nobody else's address is answered for.
    pair.net.inject(pair.stack_port, &arp(1, ([198, 18, 0, 1], PEER_MAC), ([198, 18, 0, 3], [0; 6])));
    pass(&mut pair);
    assert!(sent(&pair).is_empty());
    // The asker can be sent to without a question.
    let socket = udp_socket(&mut pair.stack, Domain::Ipv4);
    assert_eq!(send(&mut pair.stack, socket, 1, "198.18.0.1:9"), Ok(1));
    pass(&mut pair);
    assert_eq!(sent(&pair)[0][..6], PEER_MAC);
}

#[test]
fn duplicate_address_detection_of_others_is_answered_to_all() {
    let mut pair = Pair::new(1);
    let probe = solicitation(ip("::"), ip("ff02::1:ff00:2"), ip("2001:2::2"), None);
    pair.net.inject(pair.stack_port, &probe);
    pass(&mut pair);
    let answers = sent(&pair);
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0][..6], [0x33, 0x33, 0, 0, 0, 1]);
    assert_eq!((answers[0][54], answers[0][58] & 0x40), (136, 0), "not solicited");
}

#[test]
fn answers_that_nobody_asked_for_are_not_believed() {
    let mut pair = Pair::new(1);
    pair.net.inject(pair.stack_port, &arp(2, ([198, 18, 0, 50], OTHER_MAC), ([198, 18, 0, 2], STACK_MAC)));
    let unasked = advertisement(ip("2001:2::50"), ip("ff02::1"), ip("2001:2::50"), 0x20, OTHER_MAC);
    pair.net.inject(pair.stack_port, &unasked);
    pass(&mut pair);
    let v4 = udp_socket(&mut pair.stack, Domain::Ipv4);
    let v6 = udp_socket(&mut pair.stack, Domain::Ipv6);
    assert_eq!(send(&mut pair.stack, v4, 1, "198.18.0.50:9"), Ok(1));
    assert_eq!(send(&mut pair.stack, v6, 1, "[2001:2::50]:9"), Ok(1));
    assert_eq!(pair.stack.waiting_packets(), 2);
    // From beyond the link (the hop limit tells) nothing is believed at all.
    let far = icmp_with(ip("2001:2::1"), ip("2001:2::2"), 136, 0, &[0; 20], 64);
    pair.net.inject(pair.stack_port, &far);
    pass(&mut pair);
    assert_eq!(pair.stack.drops(DropReason::BadHopLimit), 1);
}

#[test]
fn a_neighbour_that_moves_is_followed() {
    let mut pair = Pair::new(1);
    pair.net.inject(pair.stack_port, &arp(1, ([198, 18, 0, 1], PEER_MAC), ([198, 18, 0, 2], [0; 6])));
    pass(&mut pair);
    let socket = udp_socket(&mut pair.stack, Domain::Ipv4);
    assert_eq!(send(&mut pair.stack, socket, 1, "198.18.0.1:9"), Ok(1));
    // It says so itself (gratuitous ARP).
    pair.net.inject(pair.stack_port, &arp(1, ([198, 18, 0, 1], OTHER_MAC), ([198, 18, 0, 1], [0; 6])));
    pass(&mut pair);
    sent(&pair);
    assert_eq!(send(&mut pair.stack, socket, 1, "198.18.0.1:9"), Ok(1));
    pass(&mut pair);
    assert_eq!(sent(&pair)[0][..6], OTHER_MAC);
}

#[test]
fn a_stale_neighbour_is_used_and_asked_again() {
    let mut pair = Pair::new(1);
    pair.net.inject(pair.stack_port, &arp(1, ([198, 18, 0, 1], PEER_MAC), ([198, 18, 0, 2], [0; 6])));
    pass(&mut pair);
    sent(&pair);
    pair.now_us += 60_000_000;
    pass(&mut pair);
    let socket = udp_socket(&mut pair.stack, Domain::Ipv4);
    assert_eq!(send(&mut pair.stack, socket, 1, "198.18.0.1:9"), Ok(1));
    pass(&mut pair);
    let frames = sent(&pair);
    assert_eq!(frames.len(), 2, "the packet, and a question to the neighbour alone");
    assert_eq!(frames[1][..6], PEER_MAC);
    assert_eq!(frames[1][12..14], [8, 6]);
}

#[test]
fn another_host_with_our_address_is_told_so_rarely() {
    let mut pair = Pair::new(1);
    for _ in 0..100 {
        pair.net.inject(pair.stack_port, &arp(1, ([198, 18, 0, 2], OTHER_MAC), ([198, 18, 0, 9], [0; 6])));
        pass(&mut pair);
        pair.now_us += 10_000;
    }
    assert_eq!(sent(&pair).len(), 1);
    assert_eq!(pair.stack.address_conflicts(), 100);
    // Our own words coming back are no conflict.
    pair.net.inject(pair.stack_port, &arp(1, ([198, 18, 0, 2], STACK_MAC), ([198, 18, 0, 2], [0; 6])));
    pass(&mut pair);
    assert_eq!(pair.stack.address_conflicts(), 100);
}

#[test]
fn addresses_are_announced_at_the_start() {
    let mut config = support::stack_config();
    config.announce = true;
    let mut pair = Pair::with(1, config, support::port(STACK_MAC));
    pass(&mut pair);
    let frames = sent(&pair);
    let arps = frames.iter().filter(|f| f[12..14] == [8, 6]).count();
    let probes = frames.iter().filter(|f| f[12..14] == [0x86, 0xdd] && f[54] == 135).count();
    let told = frames.iter().filter(|f| f[12..14] == [0x86, 0xdd] && f[54] == 136).count();
    // One IPv4 address; one IPv6 address and the link-local one.
    assert_eq!((arps, probes, told), (1, 2, 2));
}

#[test]
fn what_one_worker_learns_the_other_knows() {
    let net = ff_dataplane::io::memory::MemoryNet::new(1);
    let mut settings = support::port(STACK_MAC);
    settings.queues = 2;
    let (stack_port, peer_port) = net.pair(settings, support::port(PEER_MAC));
    let memory: &'static HeapMemory = Box::leak(Box::new(HeapMemory::new(neighbours_bytes(64))));
    format_neighbours(memory.region(), 64, [1; 16]).expect("formatted");
    let mut workers: Vec<TestStack> = (0..2u16)
        .map(|index| {
            let mut config = support::stack_config();
            config.worker = support::worker(0, index);
            config.worker_count = 2;
            let owner = Owner { epoch: 1, pid: 100 + u32::from(index) };
            let mut shared = Shared::alone([1; 16]).expect("memory of our own");
            shared.neighbours = NeighbourWriter::open(memory.region(), owner).expect("opened");
            let io = net.attach(stack_port, config.worker, &[index]);
            Stack::new(config, io, HeapIndex::new([1; 16]), shared)
        })
        .collect();
    let now = Instant(1_000_000);
    net.set_now(now.0);
    // Both want to send; only one asks.
    let sockets: Vec<_> = workers.iter_mut().map(|stack| udp_socket(stack, Domain::Ipv4)).collect();
    for (stack, socket) in workers.iter_mut().zip(&sockets) {
        stack.pass(now);
        assert_eq!(send(stack, *socket, 1, "198.18.0.1:9"), Ok(1));
        stack.pass(now);
    }
    assert_eq!(std::iter::from_fn(|| net.eject(peer_port)).count(), 1);
    // The answer comes to queue 0, so worker 0 learns; worker 1 sees it in the table.
    net.inject(stack_port, &arp(2, ([198, 18, 0, 1], PEER_MAC), ([198, 18, 0, 2], STACK_MAC)));
    for stack in &mut workers {
        stack.pass(now);
        assert_eq!(stack.waiting_packets(), 0);
    }
    assert_eq!(std::iter::from_fn(|| net.eject(peer_port)).count(), 2);
}
