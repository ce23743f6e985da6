//! The engine against smoltcp's sockets: an independent TCP at the other end.
#![allow(clippy::unwrap_used)]

mod support;
use support::peer::*;
use support::*;

fn seeds() -> std::ops::Range<u64> {
    if let Ok(seed) = std::env::var("FF_SEED") {
        let seed = seed.parse().unwrap();
        return seed..seed + 1;
    }
    let n = std::env::var("FF_SEEDS").ok().and_then(|s| s.parse().ok());
    0..n.unwrap_or(if cfg!(debug_assertions) { 200 } else { 2_000 })
}

fn conversation(seed: u64) {
    let mut r = Rng::new(seed ^ 0x5301);
    let link = LinkConfig {
        delay_us: [20, 500, 10_000][r.below(3) as usize],
        jitter_us: if r.below(3) == 0 { r.below(3_000) } else { 0 },
        loss_ppm: [0, 0, 10_000, 30_000][r.below(4) as usize],
        duplicate_ppm: if r.below(3) == 0 { 20_000 } else { 0 },
        corrupt_ppm: if r.below(3) == 0 { 10_000 } else { 0 },
        ..Default::default()
    };
    let cfg = EngineConfig { msl_us: 1_000_000, ..Default::default() };
    let mut m = Mixed::new(link, seed, cfg.clone(), 20_000, 20_000);
    m.link.log = std::env::var("FF_SEED").is_ok();
    let (to_engine, to_smol) = (r.below(60_000), r.below(60_000));
    let moves = r.below(2) == 0;
    // Either end opens.
    let mut conn = None;
    let mut listener = None;
    if r.below(2) == 0 {
        listener = Some(m.engine.listen(ListenAddr::any(80), ListenOptions::default()).unwrap());
        m.smol.connect(40_000, addr(B));
    } else {
        m.smol.socket().listen(80).unwrap();
        let remote = SocketAddr::new(addr(A).ip(), 80);
        let local = SocketAddr::new(addr(B).ip(), 30_000);
        conn = Some(m.engine.connect(Instant(m.now), local, remote).unwrap());
    }
    let mut flow: Option<Flow> = None;
    let (mut sent, mut got, mut closed, mut smol_eof) = (0u64, 0u64, false, false);
    let start = m.now;
    loop {
        if let (None, Some(l)) = (conn, listener) {
            conn = m.engine.accept(l);
        }
        if let (None, Some(c)) = (&flow, conn) {
            flow = Some(Flow::new(c, 2, to_smol, 1));
        }
        if let Some(f) = &mut flow {
            f.pump(&mut m.engine, m.now, 4_000).unwrap_or_else(|e| panic!("{e}; read {}", f.read));
            if moves && r.below(30) == 0 {
                let mut record = Vec::new();
                if m.engine.export(Instant(m.now), f.conn, &mut record).is_ok() {
                    let mut new = Engine::new(cfg.clone(), secrets(), index());
                    f.conn = new.import(Instant(m.now), &record).unwrap();
                    m.engine = new;
                }
            }
        }
        let s = m.smol.socket();
        while sent < to_engine && s.can_send() {
            let chunk: Vec<u8> = (sent..to_engine.min(sent + 1_000)).map(|i| pattern(1, i)).collect();
            sent += s.send_slice(&chunk).unwrap() as u64;
        }
        if sent == to_engine && !closed && s.may_send() {
            s.close();
            closed = true;
        }
        while s.can_recv() {
            let mut buf = [0u8; 1_500];
            let n = s.recv_slice(&mut buf).unwrap();
            for (i, &b) in buf[..n].iter().enumerate() {
                assert_eq!(b, pattern(2, got + i as u64), "byte {}", got + i as u64);
            }
            got += n as u64;
        }
        smol_eof |= !s.may_recv() && got == to_smol;
        if smol_eof && flow.as_ref().is_some_and(|f| f.done()) {
            break;
        }
        if !m.step() {
            m.now += 1_000;
        }
        assert!(m.now - start < 3_600_000_000, "an hour; {got} of {to_smol}, {sent} of {to_engine} sent");
    }
    let f = flow.unwrap();
    assert_eq!((f.read, got), (to_engine, to_smol));
    m.engine.close(Instant(m.now), f.conn);
    let end = m.now + 100_000_000;
    while m.now < end && m.step() {}
    assert_eq!(m.engine.conn_count(), 0);
    assert_eq!(m.engine.memory_bytes(), 0);
}

#[test]
fn engine_and_smoltcp_carry_every_byte_once() {
    let range = seeds();
    std::thread::scope(|s| {
        for t in 0..2u64 {
            let range = range.clone();
            s.spawn(move || {
                for seed in range.filter(|s| s % 2 == t) {
                    if let Err(e) = std::panic::catch_unwind(|| conversation(seed)) {
                        eprintln!("FF_SEED={seed} fails");
                        std::panic::resume_unwind(e);
                    }
                }
            });
        }
    });
}
