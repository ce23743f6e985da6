//! What the engine costs, beside smoltcp with one SocketSet per flow, in one
//! run on one thread, without checksums: medians of five.
//!
//! `cargo run --release -p ff-tcp --example stack_bench -- [--json] [--quick] [--million]`
//!
//! Requests: 100 B in, 600 B out, server side only. What the client does is
//! prepared and taken apart outside of the measured time, in bursts of 32 over
//! flows in random order, as a worker sees them.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::VecDeque;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant as Clock;

use ff_tcp::*;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant as SmolInstant;
use smoltcp::wire::{HardwareAddress, IpCidr, IpProtocol, Ipv4Packet, Ipv4Repr};

const REQUEST_BYTES: usize = 100;
const RESPONSE_BYTES: usize = 600;
const BURST: usize = 32;
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 0, 2));
const PORT: u16 = 80;

type Server = Engine<HeapIndex>;

fn secrets() -> Secrets {
    Secrets { isn: [1; 16], timestamp: [2; 16], cookie: [3; 16] }
}

fn engine(config: EngineConfig) -> Server {
    Engine::new(config, secrets(), HeapIndex::new([7; 16]))
}

fn client_addr(i: usize) -> SocketAddr {
    let ip = Ipv4Addr::new(198, 19, (i / 50_000) as u8, 1 + (i / 50_000 / 256) as u8);
    SocketAddr::new(IpAddr::V4(ip), 1_024 + (i % 50_000) as u16)
}

fn be32(b: &[u8]) -> u32 {
    u32::from_be_bytes([b[0], b[1], b[2], b[3]])
}

/// The client's half of a flow: its numbers, nothing more.
#[derive(Clone, Copy)]
struct Client {
    addr: SocketAddr,
    seq: u32,
    ack: u32,
    ts: u32,
}

impl Client {
    fn segment(&self, flags: u8, syn_options: bool, payload: &[u8], ts: u32, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.addr.port().to_be_bytes());
        out.extend_from_slice(&PORT.to_be_bytes());
        out.extend_from_slice(&self.seq.to_be_bytes());
        out.extend_from_slice(&self.ack.to_be_bytes());
        let header = if syn_options { 40 } else { 32 };
        out.extend_from_slice(&[(header / 4) << 4, flags, 0x40, 0, 0, 0, 0, 0]);
        if syn_options {
            out.extend_from_slice(&[2, 4, 5, 0xb4, 4, 2, 8, 10]);
        } else {
            out.extend_from_slice(&[1, 1, 8, 10]);
        }
        out.extend_from_slice(&ts.to_be_bytes());
        out.extend_from_slice(&self.ts.to_be_bytes());
        if syn_options {
            out.extend_from_slice(&[1, 3, 3, 7]);
        }
        out.extend_from_slice(payload);
    }

    /// Takes what the server sent.
    fn take(&mut self, tcp: &[u8]) -> usize {
        let header = usize::from(tcp[12] >> 4) * 4;
        let payload = tcp.len() - header;
        let fin_syn = u32::from(tcp[13] & 1) + u32::from(tcp[13] >> 1 & 1);
        self.ack = be32(&tcp[4..8]).wrapping_add(payload as u32 + fin_syn);
        let options = &tcp[20..header];
        if let Some(at) = options.windows(2).position(|w| w == [8, 10]) {
            self.ts = be32(&options[at + 2..]);
        }
        payload
    }
}

fn meta(c: &Client) -> SegmentMeta {
    SegmentMeta { src: c.addr.ip(), dst: SERVER, ecn: Ecn::NotEct }
}

/// Times of single bursts. The slowest fiftieth is left out: a shared machine
/// takes the core away in the middle of some.
#[derive(Default)]
struct Bursts(Vec<f64>);

impl Bursts {
    fn add(&mut self, ns: f64) {
        self.0.push(ns);
    }

    fn mean(&mut self) -> f64 {
        self.0.sort_by(f64::total_cmp);
        let keep = self.0.len() - self.0.len() / 50;
        self.0[..keep].iter().sum::<f64>() / keep as f64
    }
}

struct Order(u64);
impl Order {
    fn next(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
    /// `n` different flows of `flows`.
    fn burst(&mut self, flows: usize, out: &mut Vec<usize>) {
        out.clear();
        let n = BURST.min(flows);
        while out.len() < n {
            let i = self.next(flows);
            if !out.contains(&i) {
                out.push(i);
            }
        }
    }
}

/// What two clock readings cost.
fn clock_ns() -> f64 {
    let start = Clock::now();
    for _ in 0..100_000 {
        black_box(Clock::now());
    }
    start.elapsed().as_nanos() as f64 / 100_000.0
}

fn median(mut v: Vec<f64>) -> f64 {
    v.sort_by(f64::total_cmp);
    v[v.len() / 2]
}

/// Virtual time runs on with the requests, so that timers have something to do:
/// each flow's next request, and with it the ACK of its last response, comes
/// within a fraction of the smallest retransmission time-out.
fn us_per_burst(flows: usize) -> u64 {
    if flows > 200_000 { 2 } else { 20 }
}

struct EngineSide {
    engine: Server,
    listener: ListenerId,
    clients: Vec<Client>,
    now: u64,
    bufs: Vec<Vec<u8>>,
}

impl EngineSide {
    fn new(flows: usize) -> Self {
        let mut engine = engine(EngineConfig { conns_max: 4_000_000, ..Default::default() });
        let options = ListenOptions {
            backlog: 1_000,
            socket: SocketOptions { nodelay: true, ..Default::default() },
            ..Default::default()
        };
        let listener = engine.listen(ListenAddr::any(PORT), options).unwrap();
        let mut side = Self {
            engine,
            listener,
            clients: Vec::with_capacity(flows),
            now: 1_000_000,
            bufs: vec![vec![0; 2_048]; BURST * 2],
        };
        for i in 0..flows {
            let c = side.handshake(client_addr(i));
            side.clients.push(c);
        }
        side
    }

    fn handshake(&mut self, addr: SocketAddr) -> Client {
        let mut c = Client { addr, seq: 1_000, ack: 0, ts: 0 };
        let mut out = Vec::new();
        self.now += 10;
        let now = Instant(self.now);
        c.segment(2, true, &[], (self.now / 1_000) as u32, &mut out);
        self.engine.on_segment(now, meta(&c), &out, None);
        let t = self.engine.poll_transmit(now, &mut self.bufs[0]).unwrap();
        c.take(&self.bufs[0][..t.len]);
        c.seq += 1;
        c.segment(0x10, false, &[], (self.now / 1_000) as u32, &mut out);
        self.engine.on_segment(now, meta(&c), &out, None);
        let id = self.engine.accept(self.listener).unwrap();
        self.engine.set_token(id, 1);
        while self.engine.poll_event().is_some() {}
        while self.engine.poll_transmit(now, &mut self.bufs[0]).is_some() {}
        c
    }

    /// Acknowledges all responses: what is left is idle.
    fn quiet(&mut self) {
        let mut out = Vec::new();
        self.now += 1_000;
        for c in &self.clients {
            c.segment(0x10, false, &[], (self.now / 1_000) as u32, &mut out);
            self.engine.on_segment(Instant(self.now), meta(c), &out, None);
            while self.engine.poll_event().is_some() {}
        }
        self.now += 2_000_000;
        self.engine.on_deadline(Instant(self.now));
        while self.engine.poll_transmit(Instant(self.now), &mut self.bufs[0]).is_some() {}
        assert_eq!(self.engine.memory_bytes(), 0, "an idle connection holds no buffers");
        assert_eq!(self.engine.conn_count(), self.clients.len());
    }

    /// Nanoseconds a request.
    fn run(&mut self, requests: usize, order: &mut Order, clock_ns: f64) -> f64 {
        let payload = [b'q'; REQUEST_BYTES];
        let response = [b'r'; RESPONSE_BYTES];
        let mut packets: Vec<Vec<u8>> = vec![Vec::new(); BURST];
        let mut burst = Vec::new();
        let mut lens = Vec::with_capacity(BURST * 2);
        let mut flows = Vec::with_capacity(BURST);
        let mut buf = [0u8; 4_096];
        let (mut spent, mut done) = (Bursts::default(), 0usize);
        while done < requests {
            order.burst(self.clients.len(), &mut burst);
            let ts = (self.now / 1_000) as u32;
            for (packet, &i) in packets.iter_mut().zip(&burst) {
                self.clients[i].segment(0x18, false, &payload, ts, packet);
                self.clients[i].seq = self.clients[i].seq.wrapping_add(REQUEST_BYTES as u32);
            }
            self.now += us_per_burst(self.clients.len());
            lens.clear();
            let start = Clock::now();
            let now = Instant(self.now);
            if self.engine.next_deadline().is_some_and(|t| t <= now) {
                self.engine.on_deadline(now);
            }
            flows.clear();
            for &i in &burst {
                let key = FlowKey::new(6, SocketAddr::new(SERVER, PORT), self.clients[i].addr);
                flows.push(self.engine.index().lookup(&key));
            }
            for flow in flows.iter().flatten() {
                self.engine.prefetch(*flow);
            }
            for ((packet, &i), &flow) in packets.iter().zip(&burst).zip(&flows) {
                self.engine.on_segment(now, meta(&self.clients[i]), packet, flow);
            }
            while let Some(e) = self.engine.poll_event() {
                if let SocketRef::Conn(id) = e.socket {
                    while let Ok(n) = self.engine.read(id, &mut buf) {
                        if n == 0 {
                            break;
                        }
                        self.engine.write(now, id, &response).unwrap();
                    }
                }
            }
            let mut n = 0;
            while let Some(t) = self.engine.poll_transmit(now, &mut self.bufs[n]) {
                lens.push((t.remote(), t.len));
                n += 1;
            }
            spent.add(start.elapsed().as_nanos() as f64 - clock_ns);
            done += burst.len();
            let mut answered = 0;
            for (k, &(remote, len)) in lens.iter().enumerate() {
                // Responses come in the order of the requests; others are found.
                let at = if k < burst.len() && self.clients[burst[k]].addr == remote {
                    burst[k]
                } else if let Some(&i) = burst.iter().find(|&&i| self.clients[i].addr == remote) {
                    i
                } else {
                    continue;
                };
                if self.clients[at].take(&self.bufs[k][..len]) == RESPONSE_BYTES {
                    answered += 1;
                }
            }
            assert_eq!(answered, burst.len(), "every request has its response");
        }
        spent.mean() / burst.len() as f64
    }
}

// smoltcp, one SocketSet a flow.

struct Queues {
    rx: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    tx: Vec<Vec<u8>>,
}
struct Rx(Vec<u8>);
impl RxToken for Rx {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}
struct Tx<'a>(&'a mut Queues);
impl TxToken for Tx<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut buf = self.0.spare.pop().unwrap_or_default();
        buf.resize(len, 0);
        let r = f(&mut buf);
        self.0.tx.push(buf);
        r
    }
}
impl Device for Queues {
    type RxToken<'a> = Rx;
    type TxToken<'a> = Tx<'a>;
    fn receive(&mut self, _: SmolInstant) -> Option<(Rx, Tx<'_>)> {
        let packet = self.rx.pop_front()?;
        Some((Rx(packet), Tx(self)))
    }
    fn transmit(&mut self, _: SmolInstant) -> Option<Tx<'_>> {
        Some(Tx(self))
    }
    fn capabilities(&self) -> DeviceCapabilities {
        let mut c = DeviceCapabilities::default();
        c.medium = Medium::Ip;
        c.max_transmission_unit = 1_500;
        c.checksum = ChecksumCapabilities::ignored();
        c.checksum.ipv4 = Checksum::None;
        c
    }
}

struct SmolSide {
    device: Queues,
    iface: Interface,
    flows: Vec<(SocketSet<'static>, SocketHandle)>,
    index: HeapIndex,
    clients: Vec<Client>,
    now: u64,
}

fn ip_wrap(c: &Client, tcp: &[u8], out: &mut Vec<u8>) {
    let IpAddr::V4(src) = c.addr.ip() else { return };
    let repr = Ipv4Repr {
        src_addr: src,
        dst_addr: Ipv4Addr::new(198, 18, 0, 2),
        next_header: IpProtocol::Tcp,
        payload_len: tcp.len(),
        hop_limit: 64,
    };
    out.clear();
    out.resize(20 + tcp.len(), 0);
    let mut ip = Ipv4Packet::new_unchecked(&mut out[..]);
    repr.emit(&mut ip, &ChecksumCapabilities::ignored());
    ip.payload_mut().copy_from_slice(tcp);
}

impl SmolSide {
    fn new(flows: usize) -> Self {
        let mut device = Queues { rx: VecDeque::new(), spare: Vec::new(), tx: Vec::new() };
        let mut iface =
            Interface::new(Config::new(HardwareAddress::Ip), &mut device, SmolInstant::from_secs(1));
        iface.update_ip_addrs(|a| a.push(IpCidr::new(SERVER.into(), 8)).unwrap());
        let mut side = Self {
            device,
            iface,
            flows: Vec::with_capacity(flows),
            index: HeapIndex::new([7; 16]),
            clients: Vec::with_capacity(flows),
            now: 1_000_000,
        };
        let mut tcp_bytes = Vec::new();
        for i in 0..flows {
            let mut set = SocketSet::new(Vec::with_capacity(1));
            let mut socket = tcp::Socket::new(
                tcp::SocketBuffer::new(vec![0; 2_048]),
                tcp::SocketBuffer::new(vec![0; 2_048]),
            );
            socket.set_nagle_enabled(false);
            socket.listen(PORT).unwrap();
            let handle = set.add(socket);
            let mut c = Client { addr: client_addr(i), seq: 1_000, ack: 0, ts: 0 };
            side.now += 10;
            for syn in [true, false] {
                let flags = if syn { 2 } else { 0x10 };
                c.segment(flags, syn, &[], (side.now / 1_000) as u32, &mut tcp_bytes);
                let mut packet = Vec::new();
                ip_wrap(&c, &tcp_bytes, &mut packet);
                side.device.rx.push_back(packet);
                let now = SmolInstant::from_micros(side.now as i64);
                side.iface.poll_ingress_single(now, &mut side.device, &mut set);
                side.iface.poll_egress(now, &mut side.device, &mut set);
                for p in side.device.tx.drain(..) {
                    c.take(&p[20..]);
                }
                if syn {
                    c.seq += 1;
                }
            }
            let key = FlowKey::new(6, SocketAddr::new(SERVER, PORT), c.addr);
            side.index.insert(&key, FlowRef(i as u32)).unwrap();
            side.flows.push((set, handle));
            side.clients.push(c);
        }
        side
    }

    fn run(&mut self, requests: usize, order: &mut Order, clock_ns: f64) -> f64 {
        let payload = [b'q'; REQUEST_BYTES];
        let response = [b'r'; RESPONSE_BYTES];
        let mut packets: Vec<Vec<u8>> = vec![Vec::new(); BURST];
        let mut tcp_bytes = Vec::new();
        let mut burst = Vec::new();
        let mut flows = Vec::with_capacity(BURST);
        let mut buf = [0u8; 4_096];
        let (mut spent, mut done) = (Bursts::default(), 0usize);
        while done < requests {
            order.burst(self.clients.len(), &mut burst);
            let ts = (self.now / 1_000) as u32;
            for (packet, &i) in packets.iter_mut().zip(&burst) {
                self.clients[i].segment(0x18, false, &payload, ts, &mut tcp_bytes);
                ip_wrap(&self.clients[i], &tcp_bytes, packet);
                self.clients[i].seq = self.clients[i].seq.wrapping_add(REQUEST_BYTES as u32);
            }
            self.now += us_per_burst(self.clients.len());
            let start = Clock::now();
            let now = SmolInstant::from_micros(self.now as i64);
            flows.clear();
            for &i in &burst {
                let key = FlowKey::new(6, SocketAddr::new(SERVER, PORT), self.clients[i].addr);
                flows.push(self.index.lookup(&key).unwrap().0 as usize);
            }
            for (packet, &flow) in packets.iter_mut().zip(&flows) {
                let (set, handle) = &mut self.flows[flow];
                self.device.rx.push_back(std::mem::take(packet));
                self.iface.poll_ingress_single(now, &mut self.device, set);
                let socket = set.get_mut::<tcp::Socket>(*handle);
                if socket.can_recv() {
                    socket.recv_slice(&mut buf).unwrap();
                    socket.send_slice(&response).unwrap();
                }
                self.iface.poll_egress(now, &mut self.device, set);
                black_box(self.iface.poll_at(now, set));
            }
            spent.add(start.elapsed().as_nanos() as f64 - clock_ns);
            done += burst.len();
            let mut answered = 0;
            for p in self.device.tx.drain(..) {
                let port = u16::from_be_bytes([p[22], p[23]]);
                let ip = Ipv4Addr::new(p[16], p[17], p[18], p[19]);
                let addr = SocketAddr::new(IpAddr::V4(ip), port);
                if let Some(&i) = burst.iter().find(|&&i| self.clients[i].addr == addr)
                    && self.clients[i].take(&p[20..]) == RESPONSE_BYTES
                {
                    answered += 1;
                }
                self.device.spare.push(p);
            }
            assert_eq!(answered, burst.len(), "every request has its response");
        }
        spent.mean() / burst.len() as f64
    }
}

/// One flow, both ends on this thread: Gbit/s of payload by the time of both,
/// of the sender and of the receiver.
fn bulk(bytes: u64, tso: u32) -> (f64, f64, f64) {
    let cfg = EngineConfig {
        timestamps: false,
        tso_max_bytes: tso,
        snd_buf_initial_bytes: 256 * 1024,
        snd_buf_max_bytes: 256 * 1024,
        rcv_buf_initial_bytes: 256 * 1024,
        rcv_buf_max_bytes: 256 * 1024,
        ..Default::default()
    };
    let (mut a, mut b) = (engine(cfg.clone()), engine(cfg));
    let l = b.listen(ListenAddr::any(PORT), ListenOptions::default()).unwrap();
    let server = SocketAddr::new(SERVER, PORT);
    let mut now = 1_000_000u64;
    let conn = a.connect(Instant(now), client_addr(0), server).unwrap();
    let mut wire = vec![vec![0u8; 66_000]; 64];
    let mut back = vec![vec![0u8; 256]; 64];
    let chunk = vec![5u8; 65_536];
    let mut sink = vec![0u8; 65_536];
    let mut peer = None;
    let (mut sent_ns, mut recv_ns) = (Bursts::default(), Bursts::default());
    let mut got = 0u64;
    while got < bytes {
        now += 5;
        let t = Instant(now);
        let start = Clock::now();
        if a.next_deadline().is_some_and(|d| d <= t) {
            a.on_deadline(t);
        }
        let _ = a.write(t, conn, &chunk);
        let mut lens = [0usize; 64];
        let mut n = 0;
        while n < 64 {
            let Some(x) = a.poll_transmit(t, &mut wire[n]) else { break };
            lens[n] = x.len;
            n += 1;
        }
        while a.poll_event().is_some() {}
        let mid = Clock::now();
        let m = SegmentMeta { src: client_addr(0).ip(), dst: SERVER, ecn: Ecn::NotEct };
        for k in 0..n {
            b.on_segment(t, m, &wire[k][..lens[k]], None);
        }
        if b.next_deadline().is_some_and(|d| d <= t) {
            b.on_deadline(t);
        }
        peer = peer.or_else(|| b.accept(l));
        if let Some(p) = peer {
            while let Ok(k) = b.read(p, &mut sink) {
                got += k as u64;
            }
        }
        while b.poll_event().is_some() {}
        let mut k = 0;
        while k < 64 {
            let Some(x) = b.poll_transmit(t, &mut back[k]) else { break };
            lens[k] = x.len;
            k += 1;
        }
        let end = Clock::now();
        let m = SegmentMeta { src: SERVER, dst: client_addr(0).ip(), ecn: Ecn::NotEct };
        for i in 0..k {
            a.on_segment(t, m, &back[i][..lens[i]], None);
        }
        sent_ns.add((mid - start).as_nanos() as f64 + end.elapsed().as_nanos() as f64);
        recv_ns.add((end - mid).as_nanos() as f64);
    }
    let bits = got as f64 * 8.0 / sent_ns.0.len() as f64;
    let (sent, received) = (sent_ns.mean(), recv_ns.mean());
    (bits / (sent + received), bits / sent, bits / received)
}

/// Open, one request, one response with FIN, closed by both: connections a
/// second of the server's time.
fn connections(n: usize, clock_ns: f64) -> f64 {
    let mut e = engine(EngineConfig { time_wait_max: 65_536, ..Default::default() });
    let l = e.listen(ListenAddr::any(PORT), ListenOptions { backlog: 1_000, ..Default::default() }).unwrap();
    let mut bufs = vec![vec![0u8; 2_048]; 4 * BURST];
    let response = [b'r'; RESPONSE_BYTES];
    let request = [b'q'; REQUEST_BYTES];
    let mut read = [0u8; 4_096];
    let mut now = 1_000_000u64;
    let mut spent: [Bursts; 4] = Default::default();
    let mut packets: Vec<Vec<u8>> = vec![Vec::new(); BURST];
    for round in 0..n / BURST {
        let mut clients: Vec<Client> = (0..BURST)
            .map(|i| Client { addr: client_addr(round * BURST + i), seq: 77, ack: 0, ts: 0 })
            .collect();
        for phase in 0..4 {
            now += 10;
            let t = Instant(now);
            let ts = (now / 1_000) as u32;
            for (c, p) in clients.iter_mut().zip(&mut packets) {
                match phase {
                    0 => c.segment(2, true, &[], ts, p),
                    1 => c.segment(0x10, false, &[], ts, p),
                    2 => c.segment(0x18, false, &request, ts, p),
                    _ => c.segment(0x11, false, &[], ts, p),
                }
                c.seq += [1, 0, REQUEST_BYTES as u32, 1][phase];
            }
            let mut lens = Vec::with_capacity(4 * BURST);
            let start = Clock::now();
            if e.next_deadline().is_some_and(|d| d <= t) {
                e.on_deadline(t);
            }
            for (c, p) in clients.iter().zip(&packets) {
                let key = FlowKey::new(6, SocketAddr::new(SERVER, PORT), c.addr);
                let flow = e.index().lookup(&key);
                e.on_segment(t, meta(c), p, flow);
            }
            while let Some(id) = e.accept(l) {
                e.set_token(id, 1);
            }
            while let Some(ev) = e.poll_event() {
                if let SocketRef::Conn(id) = ev.socket
                    && e.read(id, &mut read).is_ok_and(|n| n > 0)
                {
                    e.write(t, id, &response).unwrap();
                    e.close(t, id);
                }
            }
            let mut k = 0;
            while let Some(x) = e.poll_transmit(t, &mut bufs[k]) {
                lens.push((x.remote(), x.len));
                k += 1;
            }
            spent[phase].add(start.elapsed().as_nanos() as f64 - clock_ns);
            for (k, &(remote, len)) in lens.iter().enumerate() {
                if let Some(c) = clients.iter_mut().find(|c| c.addr == remote) {
                    c.take(&bufs[k][..len]);
                }
            }
        }
    }
    assert_eq!(e.conn_count(), 0, "every connection is done");
    1e9 * BURST as f64 / spent.iter_mut().map(Bursts::mean).sum::<f64>()
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|s| s.parse::<u64>().ok()).unwrap_or(0) * 4_096
}

/// Resident memory that each of `n` idle connections takes, each of which has
/// had a request. The clients' own table is not counted.
fn idle_bytes(n: usize) -> f64 {
    let clients_bytes = (n * size_of::<Client>()) as u64;
    let before = resident_bytes();
    let mut side = EngineSide::new(n);
    side.run(n, &mut Order(3), 0.0);
    side.quiet();
    let after = resident_bytes();
    (after.saturating_sub(before + clients_bytes)) as f64 / n as f64
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let has = |flag: &str| args.iter().any(|a| a == flag);
    let (json, quick) = (has("--json"), has("--quick"));
    let rounds = if quick { 1 } else { 5 };
    if let Some(flows) = args.iter().position(|a| a == "--profile").and_then(|i| args.get(i + 1)) {
        // The engine's requests alone, for a profiler.
        let mut engine = EngineSide::new(flows.parse().unwrap());
        let ns = engine.run(3_000_000, &mut Order(0x1234_5678), clock_ns());
        println!("{ns:.1} ns a request");
        return;
    }
    let clock = clock_ns();
    // Before anything else has grown the heap.
    let idle = idle_bytes(if quick { 10_000 } else { 100_000 });
    let million = has("--million").then(|| idle_bytes(1_000_000));
    if has("--idle-only") {
        println!("idle connection: {idle:.0} bytes, of a million: {:.0}", million.unwrap_or(f64::NAN));
        return;
    }
    let mut rows = Vec::new();
    for flows in [1usize, 1_000, 100_000] {
        let requests = if quick { 50_000 } else { 300_000 };
        let mut engine = EngineSide::new(flows);
        let mut smol = SmolSide::new(flows);
        let (mut ev, mut sv) = (Vec::new(), Vec::new());
        let mut order = Order(0x1234_5678);
        engine.run(requests / 4, &mut order, clock);
        smol.run(requests / 4, &mut order, clock);
        for _ in 0..rounds {
            ev.push(engine.run(requests, &mut order, clock));
            sv.push(smol.run(requests, &mut order, clock));
        }
        rows.push((flows, median(ev), median(sv)));
    }
    let bytes = if quick { 1 << 30 } else { 4 << 30 };
    let runs: Vec<_> = (0..rounds).map(|_| bulk(bytes, 0)).collect();
    let both = median(runs.iter().map(|r| r.0).collect());
    let sender = median(runs.iter().map(|r| r.1).collect());
    let receiver = median(runs.iter().map(|r| r.2).collect());
    let tso = median((0..rounds).map(|_| bulk(bytes, 60_000).0).collect());
    let conns =
        median((0..rounds).map(|_| connections(if quick { 50_000 } else { 200_000 }, clock)).collect());
    if json {
        let requests: Vec<String> = rows
            .iter()
            .map(|(f, e, s)| format!("{{\"flows\":{f},\"engine_ns\":{e:.1},\"smoltcp_ns\":{s:.1}}}"))
            .collect();
        let million = million.map_or("null".to_string(), |m| format!("{m:.0}"));
        println!(
            "{{\"requests\":[{}],\"bulk_gbit_s\":{both:.2},\"bulk_sender_gbit_s\":{sender:.2},\
             \"bulk_receiver_gbit_s\":{receiver:.2},\"bulk_tso_gbit_s\":{tso:.2},\"connections_per_s\":{conns:.0},\
             \"idle_bytes_per_connection\":{idle:.0},\"idle_bytes_per_connection_1m\":{million}}}",
            requests.join(",")
        );
        return;
    }
    println!("flows      engine ns   smoltcp ns   ratio");
    for (f, e, s) in &rows {
        println!("{f:<9} {e:>10.1} {s:>12.1} {:>7.2}", e / s);
    }
    println!(
        "bulk, both ends on this core: {both:.2} Gbit/s (sender alone {sender:.2}, receiver alone {receiver:.2}, with TSO {tso:.2})"
    );
    println!("connections: {conns:.0} a second");
    println!("idle connection: {idle:.0} bytes");
    if let Some(m) = million {
        println!("idle connection of a million: {m:.0} bytes");
    }
}
