//! A transfer never stands still: loss in both directions, processes that the machine leaves waiting for up to half a
//! second, receive queues that overflow meanwhile, applications that act on events alone, readers that are slow.
//!
//! Each end runs as a worker does: a burst is received, timers that are due run, what is ready is sent, and only
//! then the application hears what happened; what it writes leaves with the next pass. `FF_SEEDS=10000 cargo test
//! --release -p ff-tcp --test stalls` runs that many seeds; `FF_SEED=n` replays one with a log of its segments.
#![allow(clippy::unwrap_used)]

mod support;
use std::collections::VecDeque;

use support::*;

/// Segments that one pass takes and sends at most.
const BURST: usize = 32;
const SEGMENTS_PER_PASS: usize = 256;
/// Segments that wait for a process; more are lost.
const QUEUE: usize = 512;
/// Longest time in which a reader gets nothing. Several retransmissions in a row get lost now and then, and each
/// waits twice as long as the one before; six of them are 0.02^6.
const STALL_US_MAX: u64 = 20_000_000;

fn seeds() -> std::ops::Range<u64> {
    if let Ok(seed) = std::env::var("FF_SEED") {
        let seed = seed.parse().unwrap();
        return seed..seed + 1;
    }
    let n = std::env::var("FF_SEEDS").ok().and_then(|s| s.parse().ok());
    0..n.unwrap_or(if cfg!(debug_assertions) { 300 } else { 10_000 })
}

/// A process: it has an engine, and the machine lets it run or not.
struct Process {
    end: End,
    received: VecDeque<Packet>,
    /// It does not run before.
    runs_at: u64,
    /// It has something to do at once.
    more: bool,
    conn: Option<ConnId>,
    /// Bytes to be written, and written so far; writing goes on when the event says so.
    total: u64,
    written: u64,
    shut: bool,
    may_write: bool,
    read: u64,
    eof: bool,
    may_read: bool,
    /// A slow reader: so many bytes, and a pause after them.
    slow: Option<(usize, u64)>,
    reads_at: u64,
    buf: Vec<u8>,
}

impl Process {
    fn new(end: End, total: u64, slow: Option<(usize, u64)>) -> Self {
        Self {
            end,
            received: VecDeque::new(),
            runs_at: 0,
            more: false,
            conn: None,
            total,
            written: 0,
            shut: false,
            may_write: false,
            read: 0,
            eof: false,
            may_read: false,
            slow,
            reads_at: 0,
            buf: vec![0; 70_000],
        }
    }

    /// When it wants to run next, without regard to whether it may.
    fn wants(&self, engine: &TestEngine, now: u64) -> Option<u64> {
        if self.more || !self.received.is_empty() {
            return Some(now);
        }
        let reads = (self.may_read && self.conn.is_some() && !self.eof).then_some(self.reads_at);
        [engine.next_deadline().map(|t| t.0), reads].into_iter().flatten().min()
    }

    fn pass(&mut self, now: u64, engine: &mut TestEngine, link: &mut Link, listener: Option<ListenerId>) {
        let time = Instant(now);
        for _ in 0..BURST {
            let Some(packet) = self.received.pop_front() else { break };
            let meta =
                SegmentMeta { src: packet.src.ip(), dst: packet.dst.ip(), ecn: Ecn::from_bits(packet.ecn) };
            engine.on_segment(time, meta, &packet.tcp, None);
        }
        if engine.next_deadline().is_some_and(|t| t <= time) {
            engine.on_deadline(time);
        }
        let to = if self.end == End::A { End::B } else { End::A };
        self.more = true;
        for _ in 0..SEGMENTS_PER_PASS {
            let Some(t) = engine.poll_transmit(time, &mut self.buf) else {
                self.more = false;
                break;
            };
            for tcp in segments(&self.buf[..t.len], t.gso_size) {
                link.send(now, to, Packet { src: t.local(), dst: t.remote(), ecn: t.ecn.bits(), tcp });
            }
        }
        while let Some(event) = engine.poll_event() {
            match event.socket {
                SocketRef::Listener(l) => {
                    assert_eq!(Some(l), listener);
                    self.conn = engine.accept(l);
                    (self.may_read, self.may_write) = (true, true);
                }
                SocketRef::Conn(conn) => {
                    // As epoll does: an event is told if it still holds when the application asks. What does not
                    // hold any more has to be told again when it does.
                    let possible = engine.readiness(conn);
                    let holds = |what| event.edges.intersects(what) && possible.intersects(what);
                    self.may_write |= holds(Readiness::WRITABLE);
                    self.may_read |=
                        holds(Readiness::READABLE | Readiness::RDHUP | Readiness::HUP | Readiness::ERR);
                    self.more = true;
                }
            }
        }
        self.act(now, engine);
    }

    /// The application, edge-triggered: it goes on until the call would block, and then waits for the event.
    fn act(&mut self, now: u64, engine: &mut TestEngine) {
        let Some(conn) = self.conn else { return };
        let chunk = [0x5a; 16_384];
        while self.may_write && self.written < self.total {
            let n = chunk.len().min((self.total - self.written) as usize);
            match engine.write(Instant(now), conn, &chunk[..n]) {
                Ok(n) => self.written += n as u64,
                Err(WriteError::WouldBlock) => self.may_write = false,
                Err(error) => panic!("write: {error}"),
            }
            self.more = true;
        }
        if self.may_write && self.written == self.total && !self.shut {
            self.shut = true;
            engine.shutdown_write(Instant(now), conn);
            self.more = true;
        }
        while self.may_read && !self.eof && self.reads_at <= now {
            let most = self.slow.map_or(self.buf.len(), |(bytes, _)| bytes);
            match engine.read(conn, &mut self.buf[..most]) {
                Ok(0) => self.eof = true,
                Ok(n) => {
                    self.read += n as u64;
                    self.reads_at = self.slow.map_or(0, |(_, pause_us)| now + pause_us);
                }
                Err(ReadError::WouldBlock) => self.may_read = false,
                Err(error) => panic!("read: {error}"),
            }
            self.more = true;
        }
    }
}

/// Runs a conversation; gives its longest standstill in microseconds.
fn conversation(seed: u64) -> u64 {
    let mut r = Rng::new(seed ^ 0x57a1);
    let link = LinkConfig {
        delay_us: [20, 200, 5_000, 40_000][r.below(4) as usize],
        jitter_us: [0, 0, 300][r.below(3) as usize],
        loss_ppm: 20_000,
        rate_bps: [0, 0, 100_000_000][r.below(3) as usize],
        ..Default::default()
    };
    let mut config = || EngineConfig {
        sack: r.below(5) != 0,
        timestamps: r.below(5) != 0,
        congestion: if r.below(4) == 0 { Algorithm::NewReno } else { Algorithm::Cubic },
        tso_max_bytes: [0, 60_000][r.below(2) as usize],
        pacing: r.below(4) == 0,
        msl_us: 1_000_000,
        ..Default::default()
    };
    let (ca, cb) = (config(), config());
    let slow = match r.below(3) {
        0 => Some((1_000 + r.below(40_000) as usize, 1_000 + r.below(20_000))),
        _ => None,
    };
    let (down, up) = match r.below(3) {
        0 => (500_000 + r.below(1_500_000), 100),
        1 => (100, 500_000 + r.below(1_000_000)),
        _ => (300_000 + r.below(500_000), 300_000 + r.below(500_000)),
    };
    // One in so many passes is followed by a pause.
    let pauses = [0, 40, 200, 2_000][r.below(4) as usize];
    let mut p = Pair::with(link, seed, ca, cb);
    p.link.log = std::env::var("FF_SEED").is_ok();
    let mut client = Process::new(End::A, up, slow);
    let mut server = Process::new(End::B, down, None);
    client.conn = Some(p.connect());
    client.more = true;
    let (mut moved_at, mut moved, mut longest) = (p.now, 0, 0);
    let begun = p.now;
    while !(client.eof && server.eof) {
        let next = |process: &Process, engine: &TestEngine| {
            process.wants(engine, p.now).map(|at| at.max(process.runs_at).max(p.now))
        };
        let at = [next(&client, &p.a), next(&server, &p.b), p.link.next_at()].into_iter().flatten().min();
        let Some(at) = at else {
            panic!(
                "nothing will ever happen: {} of {down} bytes down, {} of {up} up",
                client.read, server.read
            )
        };
        p.now = p.now.max(at);
        while let Some((to, packet)) = p.link.receive(p.now) {
            let process = if to == End::A { &mut client } else { &mut server };
            if process.received.len() < QUEUE {
                process.received.push_back(packet);
            }
        }
        for process in [&mut client, &mut server] {
            let engine = if process.end == End::A { &mut p.a } else { &mut p.b };
            if process.runs_at > p.now || process.wants(engine, p.now).is_none_or(|at| at > p.now) {
                continue;
            }
            let listener = (process.end == End::B).then_some(p.listener);
            process.pass(p.now, engine, &mut p.link, listener);
            let pause_us = if pauses > 0 && r.below(pauses) == 0 { 50_000 + r.below(450_000) } else { 0 };
            process.runs_at = p.now + 5 + pause_us;
        }
        if client.read + server.read != moved {
            moved = client.read + server.read;
            longest = longest.max(p.now - moved_at);
            moved_at = p.now;
        }
        assert!(
            p.now - moved_at < STALL_US_MAX,
            "nothing was read for {} ms: {} of {down} bytes down, {} of {up} up, server {:?}, client {:?}",
            (p.now - moved_at) / 1_000,
            client.read,
            server.read,
            server.conn.and_then(|conn| p.b.info(conn)),
            client.conn.and_then(|conn| p.a.info(conn)),
        );
        assert!(p.now - begun < 3_600_000_000, "an hour for {down} and {up} bytes");
    }
    assert_eq!((client.read, server.read), (down, up));
    longest
}

#[test]
fn transfers_do_not_stand_still() {
    let range = seeds();
    let mut worst = Vec::new();
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..2u64)
            .map(|t| {
                let range = range.clone();
                s.spawn(move || {
                    let mut longest = Vec::new();
                    for seed in range.filter(|seed| seed % 2 == t) {
                        match std::panic::catch_unwind(|| conversation(seed)) {
                            Ok(us) => longest.push((us, seed)),
                            Err(error) => {
                                eprintln!("FF_SEED={seed} fails");
                                std::panic::resume_unwind(error);
                            }
                        }
                    }
                    longest
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| worst.extend(thread.join().unwrap()));
    });
    worst.sort_unstable();
    println!("the longest standstills (us, seed): {:?}", &worst[worst.len().saturating_sub(5)..]);
}
