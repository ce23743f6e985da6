//! Scripts against one engine: segments made by hand go in, segments that
//! come out are read, in virtual time. Sequence numbers are relative: the
//! peer's SYN has 0, and so has ours.

use super::*;

/// The engine under test and the peer that the script plays.
pub struct Script {
    pub e: TestEngine,
    pub now: u64,
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// The peer's first sequence number.
    pub irs: u32,
    /// Ours, once seen.
    pub iss: u32,
    pub listener: Option<ListenerId>,
    /// Timestamps that the peer sends and has seen last.
    pub ts: bool,
    pub ts_seen: u32,
    pub ecn_in: Ecn,
    buf: Vec<u8>,
}

/// A segment that the peer sends.
#[derive(Clone, Debug, Default)]
pub struct In {
    pub flags: &'static str,
    pub seq: i64,
    pub ack: i64,
    pub win: u16,
    pub len: usize,
    pub mss: Option<u16>,
    pub wscale: Option<u8>,
    pub sack_ok: bool,
    pub sacks: Vec<(i64, i64)>,
    pub ts: Option<(u32, u32)>,
}

/// A segment that the engine sent.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Out {
    pub flags: String,
    pub seq: u32,
    pub ack: u32,
    pub len: usize,
    pub win: u16,
    pub mss: Option<u16>,
    pub wscale: Option<u8>,
    pub sack_ok: bool,
    pub sacks: Vec<(u32, u32)>,
    pub ts: Option<(u32, u32)>,
    pub ecn: u8,
    pub remote_port: u16,
    /// Absolute, for a number of ours that the script does not know yet.
    pub raw_seq: u32,
}

const FLAGS: [(char, u8); 8] =
    [('F', 1), ('S', 2), ('R', 4), ('P', 8), ('.', 16), ('U', 32), ('E', 64), ('W', 128)];

/// A segment with these flags and numbers, window 60 000.
pub fn seg(flags: &'static str, seq: i64, ack: i64) -> In {
    In { flags, seq, ack, win: 60_000, ..In::default() }
}

impl In {
    pub fn data(mut self, len: usize) -> In {
        self.len = len;
        self
    }
    pub fn win(mut self, win: u16) -> In {
        self.win = win;
        self
    }
    pub fn sack(mut self, blocks: &[(i64, i64)]) -> In {
        self.sacks = blocks.to_vec();
        self
    }
    pub fn ts(mut self, val: u32, ecr: u32) -> In {
        self.ts = Some((val, ecr));
        self
    }
    pub fn mss(mut self, mss: u16) -> In {
        self.mss = Some(mss);
        self
    }
    pub fn sack_ok(mut self) -> In {
        self.sack_ok = true;
        self
    }
    pub fn wscale(mut self, shift: u8) -> In {
        self.wscale = Some(shift);
        self
    }
}

impl Script {
    /// A listener on B, and a peer at A.
    pub fn server(config: EngineConfig) -> Self {
        Self::server_with(config, ListenOptions::default())
    }

    pub fn server_with(config: EngineConfig, options: ListenOptions) -> Self {
        let mut s = Self::bare(config);
        s.listener = Some(s.e.listen(ListenAddr::any(80), options).unwrap());
        s
    }

    pub fn bare(config: EngineConfig) -> Self {
        Self {
            e: Engine::new(config, secrets(), index()),
            now: 10_000_000,
            local: addr(B),
            remote: addr(A),
            irs: 5_000,
            iss: 0,
            listener: None,
            ts: false,
            ts_seen: 0,
            ecn_in: Ecn::NotEct,
            buf: vec![0; 70_000],
        }
    }

    pub fn time(&self) -> Instant {
        Instant(self.now)
    }

    pub fn bytes(&self, s: &In) -> Vec<u8> {
        let mut opts = Vec::new();
        if let Some(mss) = s.mss {
            opts.extend([2, 4]);
            opts.extend(mss.to_be_bytes());
        }
        if s.sack_ok {
            opts.extend([4, 2, 1, 1]);
        }
        if let Some(w) = s.wscale {
            opts.extend([1, 3, 3, w]);
        }
        let ts = s.ts.or(self.ts.then_some(((self.now / 1_000) as u32, self.ts_seen)));
        if let Some((v, e)) = ts {
            opts.extend([1, 1, 8, 10]);
            opts.extend(v.to_be_bytes());
            opts.extend(e.to_be_bytes());
        }
        if !s.sacks.is_empty() {
            opts.extend([1, 1, 5, 2 + 8 * s.sacks.len() as u8]);
            for &(a, b) in &s.sacks {
                opts.extend(self.iss.wrapping_add(a as u32).to_be_bytes());
                opts.extend(self.iss.wrapping_add(b as u32).to_be_bytes());
            }
        }
        let flags = s.flags.chars().map(|c| FLAGS.iter().find(|f| f.0 == c).unwrap().1).sum::<u8>();
        let mut b = Vec::new();
        b.extend(self.remote.port().to_be_bytes());
        b.extend(self.local.port().to_be_bytes());
        b.extend(self.irs.wrapping_add(s.seq as u32).to_be_bytes());
        let ack = if flags & 16 != 0 { self.iss.wrapping_add(s.ack as u32) } else { 0 };
        b.extend(ack.to_be_bytes());
        b.push((((20 + opts.len()) / 4) << 4) as u8);
        b.push(flags);
        b.extend(s.win.to_be_bytes());
        b.extend([0; 4]);
        b.extend(opts);
        b.extend((0..s.len).map(|i| pattern(9, ((s.seq - 1) as u64).wrapping_add(i as u64))));
        b
    }

    /// The peer's segment arrives.
    pub fn inject(&mut self, s: In) {
        let bytes = self.bytes(&s);
        let meta = SegmentMeta { src: self.remote.ip(), dst: self.local.ip(), ecn: self.ecn_in };
        self.e.on_segment(Instant(self.now), meta, &bytes, None);
    }

    /// The next segment that the engine sends, if any.
    pub fn next(&mut self) -> Option<Out> {
        let t = self.e.poll_transmit(Instant(self.now), &mut self.buf)?;
        let b = &self.buf[..t.len];
        let be32 = |at: usize| u32::from_be_bytes(b[at..at + 4].try_into().unwrap());
        let header = usize::from(b[12] >> 4) * 4;
        let mut o = Out {
            flags: FLAGS.iter().filter(|f| b[13] & f.1 != 0).map(|f| f.0).collect(),
            raw_seq: be32(4),
            ack: be32(8).wrapping_sub(self.irs),
            len: b.len() - header,
            win: u16::from_be_bytes([b[14], b[15]]),
            ecn: t.ecn.bits(),
            remote_port: t.remote().port(),
            ..Out::default()
        };
        if b[13] & 2 != 0 {
            self.iss = be32(4);
        }
        if b[13] & 16 == 0 {
            o.ack = 0;
        }
        o.seq = be32(4).wrapping_sub(self.iss);
        let mut at = 20;
        while at < header {
            match b[at] {
                0 => break,
                1 => {
                    at += 1;
                    continue;
                }
                2 => o.mss = Some(u16::from_be_bytes([b[at + 2], b[at + 3]])),
                3 => o.wscale = Some(b[at + 2]),
                4 => o.sack_ok = true,
                5 => {
                    for k in 0..usize::from(b[at + 1] - 2) / 8 {
                        let rel = |x: u32| x.wrapping_sub(self.irs);
                        o.sacks.push((rel(be32(at + 2 + 8 * k)), rel(be32(at + 6 + 8 * k))));
                    }
                }
                8 => {
                    o.ts = Some((be32(at + 2), be32(at + 6)));
                    self.ts_seen = be32(at + 2);
                }
                _ => {}
            }
            at += usize::from(b[at + 1]);
        }
        Some(o)
    }

    /// The next segment, which must exist and have these flags.
    #[track_caller]
    pub fn expect(&mut self, flags: &str) -> Out {
        let o = self.next().unwrap_or_else(|| panic!("expected {flags}, nothing is sent"));
        assert_eq!(o.flags, flags, "{o:?}");
        o
    }

    /// Nothing is sent now.
    #[track_caller]
    pub fn silent(&mut self) {
        if let Some(o) = self.next() {
            panic!("nothing was expected, {o:?} is sent");
        }
    }

    /// All that is sent now.
    pub fn all(&mut self) -> Vec<Out> {
        std::iter::from_fn(|| self.next()).collect()
    }

    /// `us` pass, timers run at their times; what is sent is returned with its time.
    pub fn pass(&mut self, us: u64) -> Vec<(u64, Out)> {
        let start = self.now;
        let end = start + us;
        let mut sent: Vec<(u64, Out)> = self.all().into_iter().map(|o| (0, o)).collect();
        while let Some(at) = self.e.next_deadline().filter(|t| t.0 <= end) {
            self.now = self.now.max(at.0);
            self.e.on_deadline(Instant(self.now));
            let t = self.now - start;
            sent.extend(self.all().into_iter().map(|o| (t, o)));
        }
        self.now = end;
        sent
    }

    /// Handshake of a peer with SACK, and without timestamps or scaling; the
    /// connection is accepted.
    pub fn open(&mut self) -> ConnId {
        self.open_with(seg("S", 0, 0).mss(1_460).sack_ok())
    }

    pub fn open_with(&mut self, syn: In) -> ConnId {
        let win = syn.win;
        self.inject(syn);
        self.expect("S.");
        self.now += 10_000;
        self.inject(seg(".", 1, 1).win(win));
        let l = self.listener.unwrap();
        let id = self.e.accept(l).unwrap();
        self.e.set_token(id, 77);
        while self.e.poll_event().is_some() {}
        id
    }

    pub fn write(&mut self, id: ConnId, n: usize) {
        assert_eq!(self.e.write(Instant(self.now), id, &vec![7; n]), Ok(n));
    }

    pub fn read_all(&mut self, id: ConnId) -> Vec<u8> {
        let mut out = Vec::new();
        let mut buf = [0; 4_096];
        while let Ok(n) = self.e.read(id, &mut buf) {
            if n == 0 {
                break;
            }
            out.extend_from_slice(&buf[..n]);
        }
        out
    }

    pub fn c(&self) -> &Counters {
        self.e.counters()
    }
}
