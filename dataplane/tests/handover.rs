//! One generation follows another: what was begun and not accepted when the old one closes its listeners goes on in the
//! new one. The coordinator's part is played by the test.

mod support;

use ff_dataplane::io::memory::MemoryNet;
use ff_dataplane::sockets::{Domain, Kind, SockError, SocketId};
use ff_flowmap::Owner;
use ff_handover::{DropReason, EpochSlot, Instance, ParkOrder, ParkWord};
use ff_tcp::Instant;
use support::instance::{WorkerStack, at, client, instance, listen, worker};
use support::{PEER_MAC, STACK_MAC, TestStack, addr, pattern};

/// A client, and two generations of one worker.
struct Scene {
    net: MemoryNet,
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
        let net = MemoryNet::new(1);
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
        let mut scene = Self { net, instance, now, peer, old, new };
        scene.stacks(2);
        // The hosts get to know each other: nobody listens yet.
        let stranger = scene.connect();
        scene.run(10);
        assert!(!scene.is_connected(stranger));
        scene.peer.close(stranger).expect("closed");
        scene
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
