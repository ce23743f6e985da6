//! The driver against a network in memory: our own stack as the client, our own stack as a small HTTP server behind
//! it, virtual time.

use std::collections::HashMap;

use ff_dataplane::io::memory::{MemoryIo, MemoryNet, PortSettings};
use ff_dataplane::io::{Capabilities, WorkerRef};
use ff_dataplane::sockets::{Domain, Kind, Readiness, SockError, SockOpt, SocketId};
use ff_dataplane::{Shared, Stack, StackConfig};
use ff_flowmap::HeapIndex;
use ff_tcp::Instant;

use super::*;
use crate::expectation::Expectation;
use crate::request::RequestSpec;

type MemoryStack = Stack<MemoryIo, HeapIndex>;

const SERVER: [u8; 4] = [198, 18, 0, 2];
const CLIENT: [u8; 4] = [198, 18, 0, 1];
/// One step of virtual time.
const STEP_US: u64 = 50;

/// What the server does with a request.
#[derive(Clone, Copy, PartialEq)]
enum Behaviour {
    Serve,
    /// Answers nothing.
    Silent,
    /// The body of every tenth response has a wrong byte.
    Corrupt,
    /// Resets every tenth connection at its request.
    Reset,
    /// Ends every tenth response in its middle.
    Cut,
    /// Every response says that the connection ends with it.
    CloseAlways,
}

struct Server {
    stack: MemoryStack,
    listener: SocketId,
    behaviour: Behaviour,
    generation: &'static str,
    requests: HashMap<u64, Vec<u8>>,
    served: u64,
    body: Vec<u8>,
}

impl Server {
    fn step(&mut self, now_us: u64) {
        self.stack.pass(Instant(now_us));
        while let Some(event) = self.stack.next_event() {
            if event.socket == self.listener {
                self.accept();
            } else if event.edges.intersects(Readiness::READABLE | Readiness::RDHUP | Readiness::ERR) {
                self.read(event.socket);
            }
        }
    }

    fn accept(&mut self) {
        while let Ok((socket, _)) = self.stack.accept(self.listener) {
            self.requests.insert(socket.to_u64(), Vec::new());
            self.read(socket);
        }
    }

    fn read(&mut self, socket: SocketId) {
        let mut buffer = [0; 4096];
        loop {
            match self.stack.recv(socket, &mut buffer, false) {
                Ok(0) | Err(SockError::Reset) => return self.close(socket),
                Ok(len) => {
                    let Some(request) = self.requests.get_mut(&socket.to_u64()) else { return };
                    request.extend_from_slice(&buffer[..len]);
                    if request.ends_with(b"\r\n\r\n") {
                        let close = request.windows(17).any(|part| part == b"Connection: close");
                        request.clear();
                        self.answer(socket, close);
                        if !self.requests.contains_key(&socket.to_u64()) {
                            return;
                        }
                    }
                }
                Err(SockError::WouldBlock) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn answer(&mut self, socket: SocketId, close: bool) {
        self.served += 1;
        let tenth = self.served.is_multiple_of(10);
        if self.behaviour == Behaviour::Silent {
            return;
        }
        if self.behaviour == Behaviour::Reset && tenth {
            self.stack.set_option(socket, SockOpt::Linger(Some(0))).unwrap();
            return self.close(socket);
        }
        let close = close || self.behaviour == Behaviour::CloseAlways;
        let connection = if close { "close" } else { "keep-alive" };
        let mut response = format!(
            "HTTP/1.1 200 OK\r\nX-Generation: {}\r\nConnection: {connection}\r\nContent-Length: {}\r\n\r\n",
            self.generation,
            self.body.len()
        )
        .into_bytes();
        response.extend_from_slice(&self.body);
        if self.behaviour == Behaviour::Corrupt && tenth {
            *response.last_mut().unwrap() ^= 1;
        }
        if self.behaviour == Behaviour::Cut && tenth {
            response.truncate(response.len() - 100);
            assert_eq!(self.stack.send(socket, &response), Ok(response.len()));
            return self.close(socket);
        }
        assert_eq!(self.stack.send(socket, &response), Ok(response.len()));
        if close {
            self.close(socket);
        }
    }

    fn close(&mut self, socket: SocketId) {
        self.requests.remove(&socket.to_u64());
        self.stack.close(socket).unwrap();
    }
}

fn stack(net: &MemoryNet, port: ff_dataplane::io::memory::PortId, address: [u8; 4]) -> MemoryStack {
    let io = net.attach(port, WorkerRef { slot: 0, index: 0 }, &[0]);
    let key = [address[3]; 16];
    let config =
        StackConfig { addresses: vec![(address.into(), 24)], hash_key: key, ..StackConfig::default() };
    Stack::new(config, io, HeapIndex::new(key), Shared::alone(key).unwrap())
}

struct Run {
    net: MemoryNet,
    server: Server,
    driver: Driver<MemoryStack>,
    now_us: u64,
}

impl Run {
    fn new(behaviour: Behaviour, change: impl FnOnce(&mut Load)) -> Self {
        let net = MemoryNet::new(7);
        let end = |last: u8| PortSettings {
            capabilities: Capabilities { mtu: 1500, mac: [2, 0, 0, 0, 0, last], ..Capabilities::default() },
            ..PortSettings::default()
        };
        let (near, far) = net.pair(end(1), end(2));
        let mut stack_of_server = stack(&net, far, SERVER);
        let listener = stack_of_server.socket(Domain::Ipv4, Kind::Stream).unwrap();
        stack_of_server.bind(listener, (SERVER, 80).into()).unwrap();
        stack_of_server.listen(listener, 4096).unwrap();
        let server = Server {
            stack: stack_of_server,
            listener,
            behaviour,
            generation: "1",
            requests: HashMap::new(),
            served: 0,
            body: (0..600u32).map(|nth| nth as u8).collect(),
        };
        let mut load = Load {
            remotes: vec![(SERVER, 80).into()],
            sources: vec![],
            connections: 8,
            requests_per_connection: u32::MAX,
            rate_per_s: None,
            warmup_us: 0,
            duration_us: 200_000,
            requests_max: u64::MAX,
            timeout_us: 100_000,
            handshakes_max: 256,
            record_header: None,
            interval_us: 0,
        };
        change(&mut load);
        let spec = RequestSpec { method: "GET".into(), host: "s".into(), headers: vec![], body: None };
        let body = Expectation::one_of(vec![server.body.clone()]).unwrap();
        let targets = vec![Target::new(&spec, "/", body).unwrap()];
        let client = stack(&net, near, CLIENT);
        Self { net, server, driver: Driver::new(client, load, targets, 1_000_000), now_us: 1_000_000 }
    }

    fn step(&mut self) -> bool {
        self.now_us += STEP_US;
        self.net.set_now(self.now_us);
        self.server.step(self.now_us);
        self.driver.step(self.now_us).done
    }

    fn run_to_end(mut self) -> (Self, Vec<(Failure, u64)>) {
        for _ in 0..1_000_000 {
            if self.step() {
                let of_kind = |failure: Failure| (failure, self.driver.statistics().failures(failure));
                let failures =
                    Failure::ALL.map(of_kind).into_iter().filter(|(_, count)| *count > 0).collect();
                return (self, failures);
            }
        }
        panic!("no end");
    }
}

#[test]
fn kept_connections() {
    let (run, failures) = Run::new(Behaviour::Serve, |_| ()).run_to_end();
    let statistics = run.driver.statistics();
    assert_eq!(failures, []);
    assert_eq!((statistics.opened, statistics.connected), (8, 8));
    assert!(statistics.good > 8 * 500, "{}", statistics.good);
    assert_eq!(statistics.good, statistics.begun);
    assert_eq!(run.server.served, statistics.good);
    assert!(statistics.latency_us.max() <= 1_000);
    // Nobody is left behind, on either end.
    assert_eq!(run.server.requests.len(), 0);
    assert_eq!(run.driver.network().socket_count(), 0);
}

#[test]
fn a_connection_for_each_request() {
    let (run, failures) = Run::new(Behaviour::Serve, |load| load.requests_per_connection = 1).run_to_end();
    let statistics = run.driver.statistics();
    assert_eq!(failures, []);
    assert!(statistics.good > 1_000, "{}", statistics.good);
    assert_eq!(statistics.connected, statistics.good);
    assert_eq!(run.server.requests.len(), 0);
}

#[test]
fn three_requests_on_a_connection_and_a_bound() {
    let change = |load: &mut Load| {
        load.requests_per_connection = 3;
        load.requests_max = 300;
        load.duration_us = u64::MAX / 4;
    };
    let (run, failures) = Run::new(Behaviour::Serve, change).run_to_end();
    let statistics = run.driver.statistics();
    assert_eq!(failures, []);
    assert_eq!((statistics.good, statistics.begun), (300, 300));
    assert!((100..=107).contains(&statistics.connected), "{}", statistics.connected);
    assert!(statistics.measured_s() < 1.0);
    assert_eq!(statistics.measured, 300);
}

#[test]
fn the_server_may_close_after_each_response() {
    let (run, failures) = Run::new(Behaviour::CloseAlways, |_| ()).run_to_end();
    assert_eq!(failures, []);
    assert_eq!(run.driver.statistics().connected, run.driver.statistics().good);
}

#[test]
fn a_constant_rate() {
    let change = |load: &mut Load| {
        load.rate_per_s = Some(2_000.0);
        load.duration_us = 500_000;
    };
    let (run, failures) = Run::new(Behaviour::Serve, change).run_to_end();
    let statistics = run.driver.statistics();
    assert_eq!(failures, []);
    assert!((999..=1_001).contains(&statistics.begun), "{}", statistics.begun);
    // Each place gets its turn.
    assert_eq!(statistics.opened, 8);
}

#[test]
fn at_a_constant_rate_a_stalled_server_is_seen_by_all_who_wait() {
    let change = |load: &mut Load| {
        load.rate_per_s = Some(1_000.0);
        load.duration_us = 400_000;
    };
    let mut run = Run::new(Behaviour::Serve, change);
    for _ in 0..2_000 {
        run.step();
    }
    // The server stands still for 50 ms, in which 50 requests are due and 8 can be sent.
    for _ in 0..1_000 {
        run.now_us += STEP_US;
        run.net.set_now(run.now_us);
        run.driver.step(run.now_us);
    }
    let (run, failures) = run.run_to_end();
    assert_eq!(failures, []);
    let slow = run.driver.statistics().latency_us.count_between(5_000, 60_000);
    assert!((40..=52).contains(&slow), "{slow} slow responses");
}

#[test]
fn at_a_constant_rate_what_was_due_at_the_end_still_begins() {
    let change = |load: &mut Load| {
        load.rate_per_s = Some(1_000.0);
        load.duration_us = 100_000;
    };
    let mut run = Run::new(Behaviour::Serve, change);
    for _ in 0..1_200 {
        run.step();
    }
    // The server stands still over the end of the run: 40 requests are due meanwhile, and 8 can be sent.
    for _ in 0..1_000 {
        run.now_us += STEP_US;
        run.net.set_now(run.now_us);
        run.driver.step(run.now_us);
    }
    let (run, failures) = run.run_to_end();
    assert_eq!(failures, []);
    let statistics = run.driver.statistics();
    assert_eq!((statistics.begun, statistics.good, statistics.not_begun), (101, 101, 0));
}

#[test]
fn nobody_listens() {
    let change = |load: &mut Load| {
        load.remotes = vec![(SERVER, 81).into()];
        load.duration_us = 100_000;
    };
    let (run, failures) = Run::new(Behaviour::Serve, change).run_to_end();
    let statistics = run.driver.statistics();
    let [(Failure::Refused, refused)] = failures[..] else { panic!("{failures:?}") };
    assert_eq!(refused, statistics.begun);
    // A place that fails waits 1, 2, 4 ... ms: about 7 tries in 100 ms, not 2 000.
    assert!((8 * 5..=8 * 9).contains(&refused), "{refused}");
    assert!(statistics.examples.iter().all(|example| !example.established));
}

#[test]
fn nobody_is_there() {
    let change = |load: &mut Load| load.remotes = vec![([198, 18, 0, 77], 80).into()];
    let (_, failures) = Run::new(Behaviour::Serve, change).run_to_end();
    assert!(
        failures.iter().all(|(kind, _)| matches!(kind, Failure::Timeout | Failure::Unreachable)),
        "{failures:?}"
    );
    assert!(!failures.is_empty());
}

#[test]
fn no_answer_is_a_timeout() {
    let (run, failures) = Run::new(Behaviour::Silent, |load| load.duration_us = 150_000).run_to_end();
    let [(Failure::Timeout, timeouts)] = failures[..] else { panic!("{failures:?}") };
    assert_eq!(timeouts, run.driver.statistics().begun);
    assert_eq!(run.driver.statistics().good, 0);
}

#[test]
fn wrong_bytes_resets_and_cuts_are_told_apart() {
    for (behaviour, kind) in [
        (Behaviour::Corrupt, Failure::WrongBytes),
        (Behaviour::Reset, Failure::Reset),
        (Behaviour::Cut, Failure::ClosedEarly),
    ] {
        let (run, failures) = Run::new(behaviour, |_| ()).run_to_end();
        let tenth = run.server.served / 10;
        assert!(tenth > 10);
        assert_eq!(failures, [(kind, tenth)]);
        assert_eq!(run.driver.statistics().good, run.server.served - tenth);
    }
}

#[test]
fn which_generation_answered_when() {
    let change = |load: &mut Load| load.record_header = Some("x-generation".into());
    let mut run = Run::new(Behaviour::Serve, change);
    for _ in 0..2_000 {
        run.step();
    }
    run.server.generation = "2";
    let (run, failures) = run.run_to_end();
    assert_eq!(failures, []);
    let versions = &run.driver.statistics().versions;
    assert_eq!(versions.len(), 2);
    assert!(versions["1"].last_us <= versions["2"].first_us);
    assert!((99_000..=101_000).contains(&versions["2"].first_us), "{versions:?}");
    assert_eq!(versions["1"].responses + versions["2"].responses, run.driver.statistics().good);
}

#[test]
fn several_source_addresses_take_turns() {
    let mut run = Run::new(Behaviour::Serve, |load| {
        load.sources = vec![CLIENT.into()];
        load.requests_per_connection = 1;
    });
    run.driver.load.sources.push([198, 18, 0, 3].into());
    let net = run.net.clone();
    // The second address is not the stack's: half of the places cannot open.
    let (run, failures) = run.run_to_end();
    drop(net);
    let [(Failure::Exhausted, exhausted)] = failures[..] else { panic!("{failures:?}") };
    assert!(exhausted > 0 && run.driver.statistics().good > 0);
}
