//! What a request costs the stack, in memory: two stacks on one wire, one of them timed.
//!
//! `cargo run --release -p ff-dataplane --no-default-features --example request_cost -- [--json] [FLOWS ...]`
//!
//! A request is 100 bytes and its response 600, on connections that stay open; each flow has its turn. Timed
//! is what the server does: its passes and its socket calls, frames, checksums and its side of the in-memory
//! wire included. The number is the median over batches, so that what else the machine does is not in it.

use std::time::{Duration, Instant as Clock};

use ff_dataplane::io::memory::{MemoryIo, MemoryNet, PortId, PortSettings};
use ff_dataplane::io::{Capabilities, WorkerRef};
use ff_dataplane::sockets::{Domain, Kind, SockError, SocketId};
use ff_dataplane::{Shared, Stack, StackConfig};
use ff_flowmap::{HeapMemory, Owner, TcpTableWriter, format_tcp_table, tcp_table_bytes};
use ff_tcp::{EngineConfig, Instant};

const REQUEST: [u8; 100] = [b'q'; 100];
const RESPONSE: [u8; 600] = [b'a'; 600];
/// Requests timed for each number of flows.
const REQUESTS: usize = 200_000;
/// Requests in flight.
const BATCH: usize = 16;

type BenchStack = Stack<MemoryIo, TcpTableWriter<'static>>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    let mut flows: Vec<usize> = arguments.iter().filter_map(|argument| argument.parse().ok()).collect();
    if flows.is_empty() {
        flows = vec![1, 1_000, 100_000];
    }
    let mut lines = Vec::new();
    for flows in flows {
        let cost_ns = measure(flows)?;
        if json {
            lines.push(format!("{{\"flows\":{flows},\"stack_ns\":{cost_ns:.0}}}"));
        } else {
            println!("{flows:>8} flows: {cost_ns:>6.0} ns a request");
        }
    }
    if json {
        println!("{{\"requests\":[{}]}}", lines.join(","));
    }
    Ok(())
}

fn stack(
    net: &MemoryNet,
    port: PortId,
    last: u8,
    flows: usize,
) -> Result<BenchStack, Box<dyn std::error::Error>> {
    let capacity = (flows + 1_024) as u32;
    let memory: &'static HeapMemory = Box::leak(Box::new(HeapMemory::new(tcp_table_bytes(capacity))));
    format_tcp_table(memory.region(), capacity, [5; 16])?;
    let table = TcpTableWriter::open(memory.region(), Owner { epoch: 1, pid: u32::from(last) })?;
    let worker = WorkerRef { slot: 0, index: 0 };
    // Enough addresses for the client's ports.
    let addresses = (0..4).map(|n| ([198, 18, n, last].into(), 16)).collect();
    let config = StackConfig {
        addresses,
        engine: EngineConfig { memory_limit_bytes: 8 << 30, ..EngineConfig::default() },
        sockets_max: flows + 16,
        ..StackConfig::default()
    };
    Ok(Stack::new(config, net.attach(port, worker, &[0]), table, Shared::alone([6; 16])?))
}

fn measure(flows: usize) -> Result<f64, Box<dyn std::error::Error>> {
    let net = MemoryNet::new(1);
    let port = |last| PortSettings {
        capabilities: Capabilities { mtu: 1_500, mac: [2, 0, 0, 0, 0, last], ..Capabilities::default() },
        queue_frames: 65_536,
        ..PortSettings::default()
    };
    let (a, b) = net.pair(port(1), port(2));
    let (mut server, mut client) = (stack(&net, a, 1, flows)?, stack(&net, b, 2, flows)?);
    let mut now_us = 1_000_000;
    let mut pass = |server: &mut BenchStack, client: &mut BenchStack| {
        now_us += 10;
        net.set_now(now_us);
        client.pass(Instant(now_us));
        let begin = Clock::now();
        server.pass(Instant(now_us));
        begin.elapsed()
    };
    pass(&mut server, &mut client);
    let listener = server.socket(Domain::Ipv4, Kind::Stream)?;
    server.bind(listener, "0.0.0.0:80".parse()?)?;
    server.listen(listener, 4_096)?;
    let mut pairs: Vec<(SocketId, SocketId)> = Vec::new();
    for n in 0..flows {
        let socket = client.socket(Domain::Ipv4, Kind::Stream)?;
        client.bind(socket, format!("198.18.{}.2:{}", n / 50_000, 10_000 + n % 50_000).parse()?)?;
        match client.connect(socket, "198.18.0.1:80".parse()?) {
            Err(SockError::InProgress) => {}
            other => return Err(format!("connect gave {other:?}").into()),
        }
        let mut accepted = None;
        for _ in 0..50 {
            pass(&mut server, &mut client);
            accepted = accepted.or(server.accept(listener).ok());
            if accepted.is_some() {
                break;
            }
        }
        let (accepted, _) = accepted.ok_or("a connection was not made")?;
        server.set_user(accepted, n as u64);
        pairs.push((socket, accepted));
    }
    while server.next_event().is_some() || client.next_event().is_some() {}

    let mut buf = [0; 2_048];
    let mut costs_ns = Vec::with_capacity(REQUESTS / BATCH + 1);
    let (mut sent, mut answered) = (0, 0);
    let mut next = 0;
    while answered < REQUESTS {
        let batch = BATCH.min(flows);
        let mut busy = Duration::ZERO;
        for _ in 0..batch {
            client.send(pairs[next].0, &REQUEST)?;
            next = (next + 1) % flows;
            sent += 1;
        }
        while answered < sent {
            busy += pass(&mut server, &mut client);
            let begin = Clock::now();
            while let Some(event) = server.next_event() {
                if let Ok(n) = server.recv(event.socket, &mut buf, false)
                    && n == REQUEST.len()
                {
                    server.send(event.socket, &RESPONSE)?;
                }
            }
            busy += begin.elapsed();
            while let Some(event) = client.next_event() {
                if let Ok(n) = client.recv(event.socket, &mut buf, false)
                    && n > 0
                {
                    assert_eq!(n, RESPONSE.len());
                    answered += 1;
                }
            }
        }
        costs_ns.push(busy.as_nanos() as f64 / batch as f64);
    }
    costs_ns.sort_by(f64::total_cmp);
    Ok(costs_ns[costs_ns.len() / 2])
}
