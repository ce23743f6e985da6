//! Two engines over a simulated link, in virtual time.
#![allow(dead_code)] // Each test file uses its own part.
#![allow(clippy::unwrap_used)]

pub mod peer;
pub mod script;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
pub use std::net::{IpAddr, SocketAddr};

pub use ff_tcp::*;

/// A small generator with good statistics and a seed that prints.
#[derive(Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1)
    }
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
    pub fn chance(&mut self, ppm: u32) -> bool {
        self.below(1_000_000) < u64::from(ppm)
    }
}

/// What the link does to segments, in each direction.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    pub delay_us: u64,
    pub jitter_us: u64,
    pub loss_ppm: u32,
    pub duplicate_ppm: u32,
    pub corrupt_ppm: u32,
    /// Bits a second, 0 for no limit.
    pub rate_bps: u64,
    /// Largest IP packet; larger ones are dropped, with ICMP if `icmp`.
    pub mtu: usize,
    pub icmp: bool,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            delay_us: 1_000,
            jitter_us: 0,
            loss_ppm: 0,
            duplicate_ppm: 0,
            corrupt_ppm: 0,
            rate_bps: 0,
            mtu: 65_535,
            icmp: true,
        }
    }
}

/// One segment on the way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Packet {
    pub src: SocketAddr,
    pub dst: SocketAddr,
    pub ecn: u8,
    pub tcp: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum End {
    A,
    B,
}

/// The link: a queue of segments in order of their arrival.
pub struct Link {
    pub config: LinkConfig,
    pub rng: Rng,
    queue: BinaryHeap<Reverse<(u64, u64, End, Packet)>>,
    free_at: [u64; 2],
    count: u64,
    /// Decides over segments by hand: `false` drops.
    #[allow(clippy::type_complexity)]
    pub filter: Option<Box<dyn FnMut(u64, End, &Packet) -> bool>>,
    pub sent: u64,
    pub dropped: u64,
    pub too_big: Vec<(End, Packet, u16)>,
    pub log: bool,
}

impl Link {
    pub fn new(config: LinkConfig, seed: u64) -> Self {
        Self {
            config,
            rng: Rng::new(seed),
            queue: BinaryHeap::new(),
            free_at: [0; 2],
            count: 0,
            filter: None,
            sent: 0,
            dropped: 0,
            too_big: Vec::new(),
            log: false,
        }
    }

    /// Sends towards `to`.
    pub fn send(&mut self, now: u64, to: End, packet: Packet) {
        self.sent += 1;
        if self.log {
            println!("{now:>9} -> {to:?} {}", describe(&packet.tcp));
        }
        if let Some(filter) = &mut self.filter
            && !filter(now, to, &packet)
        {
            self.dropped += 1;
            return;
        }
        let ip = if packet.src.is_ipv4() { 20 } else { 40 };
        if packet.tcp.len() + ip > self.config.mtu {
            self.dropped += 1;
            if self.config.icmp {
                let mtu = self.config.mtu as u16;
                self.too_big.push((to, packet, mtu));
            }
            return;
        }
        if self.rng.chance(self.config.loss_ppm) {
            self.dropped += 1;
            return;
        }
        if self.rng.chance(self.config.corrupt_ppm) && corrupted_is_noticed(&packet, &mut self.rng) {
            self.dropped += 1;
            return;
        }
        let copies = 1 + u32::from(self.rng.chance(self.config.duplicate_ppm));
        let lane = to as usize;
        let mut at = now;
        let bits = (packet.tcp.len() as u64 + 40) * 8;
        if let Some(us) = (bits * 1_000_000).checked_div(self.config.rate_bps) {
            at = at.max(self.free_at[lane]) + us;
            self.free_at[lane] = at;
        }
        for _ in 0..copies {
            let jitter = if self.config.jitter_us > 0 { self.rng.below(self.config.jitter_us) } else { 0 };
            self.count += 1;
            self.queue.push(Reverse((at + self.config.delay_us + jitter, self.count, to, packet.clone())));
        }
    }

    pub fn next_at(&self) -> Option<u64> {
        self.queue.peek().map(|Reverse(e)| e.0)
    }

    pub fn receive(&mut self, now: u64) -> Option<(End, Packet)> {
        if self.next_at()? > now {
            return None;
        }
        self.queue.pop().map(|Reverse((_, _, to, packet))| (to, packet))
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

/// Flips a bit and asks the checksum.
fn corrupted_is_noticed(packet: &Packet, rng: &mut Rng) -> bool {
    use smoltcp::wire::{IpAddress, TcpPacket};
    let (src, dst): (IpAddress, IpAddress) = (packet.src.ip().into(), packet.dst.ip().into());
    let mut bytes = packet.tcp.clone();
    TcpPacket::new_unchecked(&mut bytes[..]).fill_checksum(&src, &dst);
    assert!(TcpPacket::new_unchecked(&bytes[..]).verify_checksum(&src, &dst));
    let bit = rng.below(bytes.len() as u64 * 8) as usize;
    bytes[bit / 8] ^= 1 << (bit % 8);
    !TcpPacket::new_unchecked(&bytes[..]).verify_checksum(&src, &dst)
}

/// One line about a segment.
pub fn describe(tcp: &[u8]) -> String {
    let f = tcp[13];
    let names = ["F", "S", "R", "P", ".", "U", "E", "W"];
    let flags: String = (0..8).filter(|b| f & (1 << b) != 0).map(|b| names[b]).collect();
    let seq = u32::from_be_bytes(tcp[4..8].try_into().unwrap());
    let ack = u32::from_be_bytes(tcp[8..12].try_into().unwrap());
    let hdr = usize::from(tcp[12] >> 4) * 4;
    let wnd = u16::from_be_bytes(tcp[14..16].try_into().unwrap());
    format!(
        "{flags} {seq}:{}({}) ack {ack} win {wnd} opts {:02x?}",
        seq.wrapping_add((tcp.len() - hdr) as u32),
        tcp.len() - hdr,
        &tcp[20..hdr]
    )
}

pub fn secrets() -> Secrets {
    Secrets { isn: [1; 16], timestamp: [2; 16], cookie: [3; 16] }
}

pub fn addr(s: &str) -> SocketAddr {
    s.parse().unwrap()
}

pub fn index() -> HeapIndex {
    HeapIndex::new([7; 16])
}

pub type TestEngine = Engine<HeapIndex>;

/// Client `a` and server `b`.
pub struct Pair {
    pub now: u64,
    pub a: TestEngine,
    pub b: TestEngine,
    pub link: Link,
    pub listener: ListenerId,
    buf: Vec<u8>,
}

pub const A: &str = "198.18.0.1:40000";
pub const B: &str = "198.18.0.2:80";

impl Pair {
    pub fn new(config: LinkConfig, seed: u64) -> Self {
        Self::with(config, seed, EngineConfig::default(), EngineConfig::default())
    }

    pub fn with(config: LinkConfig, seed: u64, ca: EngineConfig, cb: EngineConfig) -> Self {
        let a = Engine::new(ca, secrets(), index());
        let mut b = Engine::new(cb, secrets(), index());
        let listener = b.listen(ListenAddr::any(80), ListenOptions::default()).unwrap();
        Self { now: 1_000_000, a, b, link: Link::new(config, seed), listener, buf: vec![0; 70_000] }
    }

    pub fn time(&self) -> Instant {
        Instant(self.now)
    }

    pub fn engine(&mut self, end: End) -> &mut TestEngine {
        match end {
            End::A => &mut self.a,
            End::B => &mut self.b,
        }
    }

    pub fn connect(&mut self) -> ConnId {
        self.a.connect(Instant(self.now), addr(A), addr(B)).unwrap()
    }

    /// Connects and accepts.
    pub fn open(&mut self) -> (ConnId, ConnId) {
        let a = self.connect();
        for _ in 0..1_000 {
            self.step();
            if let Some(b) = self.b.accept(self.listener) {
                return (a, b);
            }
        }
        panic!("no connection after 1000 steps");
    }

    /// Puts everything that both have to send onto the link.
    pub fn flush(&mut self) {
        for (end, to) in [(End::A, End::B), (End::B, End::A)] {
            let now = Instant(self.now);
            let engine = match end {
                End::A => &mut self.a,
                End::B => &mut self.b,
            };
            let mut n = 0;
            while let Some(t) = engine.poll_transmit(now, &mut self.buf) {
                for tcp in segments(&self.buf[..t.len], t.gso_size) {
                    self.link.send(
                        self.now,
                        to,
                        Packet { src: t.local(), dst: t.remote(), ecn: t.ecn.bits(), tcp },
                    );
                }
                n += 1;
                assert!(n < 100_000, "an engine sends without end");
            }
        }
        for (to, packet, mtu) in std::mem::take(&mut self.link.too_big) {
            let seq = u32::from_be_bytes(packet.tcp[4..8].try_into().unwrap());
            let key = FlowKey::new(6, packet.src, packet.dst);
            let now = Instant(self.now);
            let sender = if to == End::A { &mut self.b } else { &mut self.a };
            sender.on_icmp_error(now, &key, IcmpError::TooBig { mtu }, Some(seq));
        }
    }

    /// When something happens next.
    pub fn next_at(&self) -> Option<u64> {
        [self.link.next_at(), self.a.next_deadline().map(|t| t.0), self.b.next_deadline().map(|t| t.0)]
            .into_iter()
            .flatten()
            .min()
    }

    /// Sends, goes to the next thing that happens, and lets it happen.
    /// `false`: nothing is left to happen.
    pub fn step(&mut self) -> bool {
        self.flush();
        let Some(at) = self.next_at() else { return false };
        self.now = self.now.max(at);
        self.arrive();
        true
    }

    /// Lets everything happen that is due now.
    pub fn arrive(&mut self) {
        let now = Instant(self.now);
        while let Some((to, packet)) = self.link.receive(self.now) {
            let meta =
                SegmentMeta { src: packet.src.ip(), dst: packet.dst.ip(), ecn: Ecn::from_bits(packet.ecn) };
            self.engine(to).on_segment(now, meta, &packet.tcp, None);
        }
        for end in [End::A, End::B] {
            let engine = self.engine(end);
            if engine.next_deadline().is_some_and(|t| t <= now) {
                engine.on_deadline(now);
            }
        }
        self.flush();
    }

    /// Runs for `us` of virtual time.
    pub fn run_us(&mut self, us: u64) {
        let end = self.now + us;
        loop {
            self.flush();
            match self.next_at() {
                Some(at) if at <= end => {
                    self.now = self.now.max(at);
                    self.arrive();
                }
                _ => break,
            }
        }
        self.now = end;
    }
}

/// Cuts a segment as a device with TSO would.
pub fn segments(tcp: &[u8], gso: Option<u16>) -> Vec<Vec<u8>> {
    let Some(mss) = gso else { return vec![tcp.to_vec()] };
    let hdr = usize::from(tcp[12] >> 4) * 4;
    let seq = u32::from_be_bytes(tcp[4..8].try_into().unwrap());
    let payload = &tcp[hdr..];
    let n = payload.len().div_ceil(mss as usize);
    payload
        .chunks(mss as usize)
        .enumerate()
        .map(|(i, chunk)| {
            let mut s = tcp[..hdr].to_vec();
            s[4..8].copy_from_slice(&seq.wrapping_add((i * mss as usize) as u32).to_be_bytes());
            if i + 1 < n {
                s[13] &= !0x09;
            }
            if i > 0 {
                s[13] &= !0x80;
            }
            s.extend_from_slice(chunk);
            s
        })
        .collect()
}

/// Byte `i` of a stream, different for each stream.
pub fn pattern(stream: u64, i: u64) -> u8 {
    let x = i.wrapping_mul(0x9e37_79b9).wrapping_add(stream.wrapping_mul(0x85eb_ca6b));
    (x ^ (x >> 8) ^ (x >> 17)) as u8
}

/// A stream's writer and reader at one end.
pub struct Flow {
    pub conn: ConnId,
    pub out_stream: u64,
    pub out_total: u64,
    pub written: u64,
    pub shut: bool,
    pub in_stream: u64,
    pub read: u64,
    pub eof: bool,
}

impl Flow {
    pub fn new(conn: ConnId, out_stream: u64, out_total: u64, in_stream: u64) -> Self {
        Self { conn, out_stream, out_total, written: 0, shut: false, in_stream, read: 0, eof: false }
    }

    /// Writes and reads what can be; `chunk` bounds each call.
    pub fn pump(&mut self, engine: &mut TestEngine, now: u64, chunk: usize) -> Result<(), String> {
        let mut buf = vec![0u8; chunk];
        while self.written < self.out_total {
            let n = chunk.min((self.out_total - self.written) as usize);
            for (i, b) in buf[..n].iter_mut().enumerate() {
                *b = pattern(self.out_stream, self.written + i as u64);
            }
            match engine.write(Instant(now), self.conn, &buf[..n]) {
                Ok(n) => self.written += n as u64,
                Err(WriteError::WouldBlock) => break,
                Err(e) => return Err(format!("write: {e}")),
            }
        }
        if self.written == self.out_total && !self.shut {
            self.shut = true;
            engine.shutdown_write(Instant(now), self.conn);
        }
        while !self.eof {
            match engine.read(self.conn, &mut buf) {
                Ok(0) => self.eof = true,
                Ok(n) => {
                    for (i, &b) in buf[..n].iter().enumerate() {
                        let want = pattern(self.in_stream, self.read + i as u64);
                        if b != want {
                            return Err(format!("byte {} is {b:#x}, not {want:#x}", self.read + i as u64));
                        }
                    }
                    self.read += n as u64;
                }
                Err(ReadError::WouldBlock) => break,
                Err(e) => return Err(format!("read: {e}")),
            }
        }
        Ok(())
    }

    pub fn done(&self) -> bool {
        self.eof && self.shut
    }
}

pub fn ip(s: &str) -> IpAddr {
    s.parse().unwrap()
}
