//! One generation follows another: what was begun and not accepted when the old one closes its listeners goes on in the
//! new one. The coordinator's part is played by the test.

mod support;

use ff_dataplane::io::memory::{Faults, MemoryNet, PortId, Rng};
use ff_dataplane::sockets::{Domain, Kind, SockError, SocketId};
use ff_flowmap::Owner;
use ff_handover::{DropReason, EpochSlot, Instance, ParkOrder, ParkWord};
use ff_tcp::Instant;
use support::instance::{WorkerStack, at, client, instance, listen, worker};
use support::{PEER_MAC, STACK_MAC, TestStack, addr, pattern};

/// A client, and two generations of one worker.
struct Scene {
    net: MemoryNet,
    ports: [PortId; 2],
    instance: Instance<'static>,
    now: Instant,
    peer: TestStack,
    old: WorkerStack,
    new: WorkerStack,
}

fn owner(slot: u32) -> Owner {
    // As `worker` has it.
    Owner { epoch: 1 + slot, pid: 100 }
}

impl Scene {
    /// The first generation has the queue; the second is READY. An inbox holds `inbox_frames`.
    fn new(inbox_frames: usize) -> Self {
        Self::with_seed(inbox_frames, 1)
    }

    fn with_seed(inbox_frames: usize, seed: u64) -> Self {
        let net = MemoryNet::new(seed);
        let settings =
            ff_dataplane::io::memory::PortSettings { queue_frames: inbox_frames, ..support::port(STACK_MAC) };
        let (stack_port, peer_port) = net.pair(settings, support::port(PEER_MAC));
        let instance = instance(1);
        let directory = instance.directory();
        let now = Instant(1_000_000);
        net.set_now(now.0);
        directory.generation(0).expect("a slot").begin(1, None, 1, now.0);
        directory.instance().set_active(Some(EpochSlot { epoch: 1, slot: 0 }));
        let old = worker(&net, stack_port, &instance, at(0, 0), &[]);
        let new = worker(&net, stack_port, &instance, at(1, 0), &[]);
        directory.worker(0, 0).expect("a worker").set_ready(owner(0), now.0);
        assert!(directory.queue(0).expect("a queue").assign(owner(0)));
        let peer = client(&net, peer_port);
        let mut scene = Self { net, ports: [stack_port, peer_port], instance, now, peer, old, new };
        scene.stacks(2);
        // The hosts get to know each other: nobody listens yet.
        let stranger = scene.connect();
        scene.run(10);
        assert!(!scene.is_connected(stranger));
        scene.peer.close(stranger).expect("closed");
        scene
    }

    fn set_faults(&self, faults: &Faults) {
        self.ports.iter().for_each(|port| self.net.set_faults(*port, *faults));
    }

    fn tick(&mut self) {
        self.now = self.now + 1_000;
        self.net.set_now(self.now.0);
    }

    /// Passes of the two generations, and none of the client.
    fn stacks(&mut self, count: u32) {
        for _ in 0..count {
            self.tick();
            self.old.pass(self.now);
            self.new.pass(self.now);
        }
    }

    fn run(&mut self, count: u32) {
        for _ in 0..count {
            self.peer.pass(self.now);
            self.stacks(1);
        }
    }

    fn connect(&mut self) -> SocketId {
        let socket = self.peer.socket(Domain::Ipv4, Kind::Stream).expect("a socket");
        assert_eq!(self.peer.connect(socket, addr("198.18.0.2:80")), Err(SockError::InProgress));
        socket
    }

    /// The receive side goes to the second generation.
    fn flip(&mut self) {
        let directory = self.instance.directory();
        let target = EpochSlot { epoch: 2, slot: 1 };
        let predecessor = Some(EpochSlot { epoch: 1, slot: 0 });
        directory.generation(1).expect("a slot").begin(2, predecessor, 1, self.now.0);
        directory.worker(1, 0).expect("a worker").set_ready(owner(1), self.now.0);
        directory.instance().set_target(Some(target));
        directory.instance().set_park_order(Some(ParkWord { epoch: 2, order: ParkOrder::HandOver }));
        self.stacks(2);
        assert_eq!(directory.queue(0).expect("a queue").owner(), Some(owner(1)));
    }

    /// Accepts at the second generation all that there is: the peers' ports.
    fn accept(&mut self, listener: SocketId) -> Vec<(SocketId, u16)> {
        std::iter::from_fn(|| self.new.accept(listener).ok()).map(|(s, from)| (s, from.port())).collect()
    }

    fn port_of(&self, client: SocketId) -> u16 {
        self.peer.local_addr(client).expect("an address").port()
    }

    fn is_connected(&mut self, client: SocketId) -> bool {
        self.peer.peer_addr(client).is_ok() && self.peer.take_error(client).is_none()
    }
}

#[test]
fn handshakes_half_done_and_connections_not_accepted_go_on_in_the_next_generation() {
    let mut scene = Scene::new(4_096);
    let old_listener = listen(&mut scene.old, 80);
    let waiting = scene.connect();
    scene.run(10);
    // More than one frame of it, and its end behind it.
    let data = pattern(20_000, 1);
    assert_eq!(scene.peer.send(waiting, &data), Ok(data.len()));
    let ended = scene.connect();
    scene.run(20);
    assert_eq!(scene.peer.send(ended, b"last words"), Ok(10));
    scene.peer.shutdown(ended, ff_dataplane::sockets::Shutdown::Write).expect("ended");
    scene.run(10);
    // Their SYNs arrive, the answers are on the wire.
    let half_open: Vec<SocketId> = (0..5).map(|_| scene.connect()).collect();
    scene.peer.pass(scene.now);
    scene.stacks(2);
    assert_eq!(scene.old.engine().request_count(), 5);
    assert_eq!(scene.old.engine().conn_count(), 2);

    let new_listener = listen(&mut scene.new, 80);
    scene.flip();
    scene.old.close(old_listener).expect("closed");
    assert_eq!(scene.old.engine().request_count() + scene.old.engine().conn_count(), 0, "all is given away");
    assert_eq!(scene.old.owed(), 0);
    scene.run(400);
    let accepted = scene.accept(new_listener);
    assert_eq!(accepted.len(), 7);
    for client in half_open.iter().chain([&waiting, &ended]) {
        assert!(scene.is_connected(*client));
        assert!(accepted.iter().any(|(_, port)| *port == scene.port_of(*client)));
    }
    let (socket, _) = accepted[0];
    let mut bytes = vec![0; 30_000];
    let mut received = 0;
    while let Ok(n @ 1..) = scene.new.recv(socket, &mut bytes[received..], false) {
        received += n;
    }
    assert_eq!(received, data.len());
    assert!(bytes[..received] == data);
    let (socket, _) = accepted[1];
    assert_eq!(scene.new.recv(socket, &mut bytes, false), Ok(10));
    assert_eq!(scene.new.recv(socket, &mut bytes, false), Ok(0));
    // And they serve both ways.
    for (socket, _) in &accepted {
        assert_eq!(scene.new.send(*socket, b"hello"), Ok(5));
    }
    scene.run(400);
    for client in &half_open {
        assert_eq!(scene.peer.recv(*client, &mut bytes, false), Ok(5));
    }
    assert_eq!(scene.new.drops(DropReason::FlowTableFull), 0);
}

/// An ACK that overtakes the record of its handshake, and a repeated SYN that does.
#[test]
fn a_packet_that_overtakes_its_record_waits_for_it() {
    let mut scene = Scene::new(4_096);
    let old_listener = listen(&mut scene.old, 80);
    let clients: Vec<SocketId> = (0..3).map(|_| scene.connect()).collect();
    scene.peer.pass(scene.now);
    scene.stacks(2);
    assert_eq!(scene.old.engine().request_count(), 3);
    let new_listener = listen(&mut scene.new, 80);
    scene.flip();
    // The clients' ACKs are in the queue of the new worker before the old one closes its listener; the records come
    // into its inbox while it is in the middle of the burst.
    scene.peer.pass(scene.now);
    scene.tick();
    scene.old.close(old_listener).expect("closed");
    scene.run(100);
    assert_eq!(scene.accept(new_listener).len(), 3);
    assert!(clients.iter().all(|client| scene.is_connected(*client)));
}

#[test]
fn what_does_not_fit_into_the_inbox_waits_for_the_next_pass() {
    let mut scene = Scene::new(8);
    let old_listener = listen(&mut scene.old, 80);
    let mut clients = Vec::new();
    for _ in 0..30 {
        clients.push(scene.connect());
        scene.run(5);
    }
    assert_eq!(scene.old.engine().conn_count(), 30);
    let new_listener = listen(&mut scene.new, 80);
    scene.flip();
    scene.old.close(old_listener).expect("closed");
    assert_eq!(scene.old.engine().conn_count(), 22);
    assert_eq!(scene.old.owed(), 22);
    scene.run(10);
    assert_eq!((scene.old.engine().conn_count(), scene.old.owed()), (0, 0));
    assert_eq!(scene.accept(new_listener).len(), 30);
    assert!(clients.iter().all(|client| scene.is_connected(*client)));
}

#[test]
fn a_listener_that_closes_for_good_resets_who_waits() {
    let mut scene = Scene::new(4_096);
    let old_listener = listen(&mut scene.old, 80);
    let waiting = scene.connect();
    scene.run(10);
    scene.old.close(old_listener).expect("closed");
    scene.run(10);
    assert_eq!(scene.peer.recv(waiting, &mut [0; 8], false), Err(SockError::Reset));
}

#[test]
fn cookies_of_the_old_generation_are_good_in_the_new_one() {
    let mut scene = Scene::new(4_096);
    let socket = scene.old.socket(Domain::Ipv4, Kind::Stream).expect("a socket");
    scene.old.bind(socket, addr("0.0.0.0:80")).expect("bound");
    scene.old.listen(socket, 1).expect("listening");
    let clients: Vec<SocketId> = (0..4).map(|_| scene.connect()).collect();
    scene.peer.pass(scene.now);
    scene.stacks(2);
    assert_eq!(scene.old.engine().request_count(), 1);
    assert_eq!(scene.old.engine().counters().cookies_sent, 3);
    let new_listener = listen(&mut scene.new, 80);
    scene.flip();
    scene.old.close(socket).expect("closed");
    scene.run(100);
    assert_eq!(scene.accept(new_listener).len(), 4);
    assert!(clients.iter().all(|client| scene.is_connected(*client)));
}

/// A server's connection: what came, and what has been sent.
struct Served {
    socket: SocketId,
    request: usize,
    sent: usize,
}

const REQUEST_BYTES: usize = 3_000;
const RESPONSE_BYTES: usize = 20_000;

/// Accepts, reads requests whole, answers, closes.
fn serve(
    stack: &mut WorkerStack,
    listener: Option<SocketId>,
    served: &mut Vec<Served>,
    response: &[u8],
) -> usize {
    if let Some(listener) = listener {
        let accepted = std::iter::from_fn(|| stack.accept(listener).ok());
        served.extend(accepted.map(|(socket, _)| Served { socket, request: 0, sent: 0 }));
    }
    let mut bytes = [0; 4_096];
    for connection in served.iter_mut() {
        while let Ok(n @ 1..) = stack.recv(connection.socket, &mut bytes, false) {
            connection.request += n;
        }
        while connection.request == REQUEST_BYTES && connection.sent < response.len() {
            let Ok(n) = stack.send(connection.socket, &response[connection.sent..]) else { break };
            connection.sent += n;
        }
        if connection.sent == response.len() {
            stack.close(connection.socket).expect("closed");
        }
    }
    let before = served.len();
    served.retain(|connection| connection.sent < response.len());
    before - served.len()
}

/// Clients come all the time, over a link that loses and reorders, while one generation follows the other: every one
/// of them is answered.
#[test]
fn no_client_notices_who_serves_it() {
    const CLIENTS: usize = 40;
    let seeds = std::env::var("FF_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(60);
    let only: Option<u64> = std::env::var("FF_SEED").ok().and_then(|seed| seed.parse().ok());
    let response = pattern(RESPONSE_BYTES, 2);
    let request = pattern(REQUEST_BYTES, 3);
    for seed in only.map_or(0..seeds, |seed| seed..seed + 1) {
        let mut rng = Rng::new(seed);
        let mut below = |n: u64| rng.next_u64() % n;
        let mut scene = Scene::with_seed(4_096, seed);
        let faults = Faults {
            loss_ppm: [0, 20_000, 50_000][below(3) as usize],
            duplicate_ppm: [0, 10_000][below(2) as usize],
            reorder_ppm: [0, 50_000][below(2) as usize],
            reorder_us: 5_000,
            delay_us: [50, 3_000][below(2) as usize],
            ..Faults::NONE
        };
        scene.set_faults(&faults);
        let old_listener = listen(&mut scene.old, 80);
        let flip_at = below(60) as u32;
        let close_at = flip_at + 1 + below(30) as u32;
        let lazy_us = below(4);
        let (mut old_served, mut new_served) = (Vec::new(), Vec::new());
        let mut clients: Vec<(SocketId, usize, Vec<u8>)> = Vec::new();
        let (mut new_listener, mut answered, mut by_new) = (None, 0, 0);
        for step in 0..60_000u32 {
            if clients.len() < CLIENTS && below(3) == 0 {
                clients.push((scene.connect(), 0, Vec::new()));
            }
            if step == flip_at {
                new_listener = Some(listen(&mut scene.new, 80));
                scene.flip();
            }
            let old_listens = step < close_at;
            if step == close_at {
                scene.old.close(old_listener).expect("closed");
            }
            // A server that does not get to accepting at once.
            if below(lazy_us + 1) == 0 {
                let listener = old_listens.then_some(old_listener);
                answered += serve(&mut scene.old, listener, &mut old_served, &response);
                let count = serve(&mut scene.new, new_listener, &mut new_served, &response);
                (answered, by_new) = (answered + count, by_new + count);
            }
            scene.run(1);
            let mut bytes = [0; 8_192];
            for (socket, sent, received) in &mut clients {
                if *sent < REQUEST_BYTES
                    && let Ok(n) = scene.peer.send(*socket, &request[*sent..])
                {
                    *sent += n;
                }
                loop {
                    match scene.peer.recv(*socket, &mut bytes, false) {
                        Ok(0) | Err(SockError::WouldBlock) => break,
                        Ok(n) => received.extend_from_slice(&bytes[..n]),
                        Err(error) => panic!("FF_SEED={seed}: a client gets {error:?} at step {step}"),
                    }
                }
            }
            if clients.len() == CLIENTS && clients.iter().all(|(_, _, got)| got.len() == RESPONSE_BYTES) {
                break;
            }
        }
        assert_eq!(answered, CLIENTS, "FF_SEED={seed}");
        for (index, (_, _, received)) in clients.iter().enumerate() {
            assert!(*received == response, "FF_SEED={seed}: client {index} has {} bytes", received.len());
        }
        assert!(flip_at > 55 || by_new > 0, "FF_SEED={seed}: the new generation serves nobody");
    }
}

/// A client comes again from the port of a connection that the old generation closed first.
#[test]
fn a_port_in_time_wait_is_good_for_a_new_connection_in_the_next_generation() {
    let mut scene = Scene::new(4_096);
    let old_listener = listen(&mut scene.old, 80);
    let mut ports = Vec::new();
    for _ in 0..250 {
        let client = scene.connect();
        scene.run(4);
        ports.push(scene.port_of(client));
        let (socket, _) = scene.old.accept(old_listener).expect("a connection");
        scene.old.close(socket).expect("closed");
        scene.run(4);
        scene.peer.close(client).expect("closed");
        scene.run(4);
    }
    assert_eq!(scene.old.engine().time_wait_count(), 250);
    let new_listener = listen(&mut scene.new, 80);
    scene.flip();
    scene.old.close(old_listener).expect("closed");
    scene.run(10);
    assert_eq!(scene.old.engine().time_wait_count(), 0);
    assert_eq!(scene.new.engine().time_wait_count(), 250);
    for port in [ports[0], ports[100], ports[249]] {
        let client = scene.peer.socket(Domain::Ipv4, Kind::Stream).expect("a socket");
        scene.peer.bind(client, addr(&format!("198.18.0.1:{port}"))).expect("bound");
        assert_eq!(scene.peer.connect(client, addr("198.18.0.2:80")), Err(SockError::InProgress));
        scene.run(10);
        assert!(scene.is_connected(client), "port {port}");
        assert_eq!(scene.accept(new_listener).len(), 1);
    }
}
