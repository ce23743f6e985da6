//! Connections that move from engine to engine in the middle of a
//! conversation: the peer notices nothing, and no memory stays behind.
#![allow(clippy::unwrap_used)]

mod support;
use support::*;

fn seeds() -> std::ops::Range<u64> {
    if let Ok(seed) = std::env::var("FF_SEED") {
        let seed = seed.parse().unwrap();
        return seed..seed + 1;
    }
    let n = std::env::var("FF_SEEDS").ok().and_then(|s| s.parse().ok());
    0..n.unwrap_or(if cfg!(debug_assertions) { 300 } else { 2_000 })
}

/// Moves the connection of one end to a new engine.
fn move_over(p: &mut Pair, end: End, id: ConnId, cfg: &EngineConfig) -> ConnId {
    let now = Instant(p.now);
    let old = p.engine(end);
    let mut record = Vec::new();
    if old.export(now, id, &mut record).is_err() {
        return id;
    }
    assert_eq!(old.conn_count(), 0);
    assert_eq!(old.memory_bytes(), 0, "the old engine keeps memory");
    assert_eq!(old.index().len(), 0);
    let mut new = Engine::new(cfg.clone(), secrets(), index());
    let id = new.import(now, &record).unwrap();
    // What is imported can be exported again, and is the same.
    let mut twice = Vec::new();
    let mut third = Engine::new(cfg.clone(), secrets(), index());
    let other = third.import(now, &record).unwrap();
    third.export(now, other, &mut twice).unwrap();
    assert_eq!(record.len(), twice.len());
    *old = new;
    id
}

fn conversation(seed: u64) {
    let mut r = Rng::new(seed ^ 0xe0e0);
    let link = LinkConfig {
        delay_us: [20, 500, 20_000][r.below(3) as usize],
        jitter_us: if r.below(2) == 0 { 0 } else { r.below(5_000) },
        loss_ppm: [0, 10_000, 50_000][r.below(3) as usize],
        duplicate_ppm: if r.below(3) == 0 { 20_000 } else { 0 },
        ..Default::default()
    };
    let cfg = EngineConfig {
        sack: r.below(4) != 0,
        timestamps: r.below(4) != 0,
        mtu: [1_500, 576][r.below(2) as usize],
        congestion: if r.below(3) == 0 { Algorithm::NewReno } else { Algorithm::Cubic },
        msl_us: 1_000_000,
        ..Default::default()
    };
    let (na, nb) = (r.below(100_000), r.below(100_000));
    let mut p = Pair::with(link, seed, cfg.clone(), cfg.clone());
    p.link.log = std::env::var("FF_SEED").is_ok();
    let (a, b) = p.open();
    let mut fa = Flow::new(a, 1, na, 2);
    let mut fb = Flow::new(b, 2, nb, 1);
    let start = p.now;
    let mut moves = 0;
    while !(fa.done() && fb.done()) {
        if r.below(3) != 0 {
            fa.pump(&mut p.a, p.now, 5_000).unwrap();
        }
        if r.below(3) != 0 {
            fb.pump(&mut p.b, p.now, 5_000).unwrap();
        }
        if r.below(20) == 0 {
            if r.below(2) == 0 {
                p.flush();
            }
            fa.conn = move_over(&mut p, End::A, fa.conn, &cfg);
            moves += 1;
        }
        if r.below(20) == 0 {
            fb.conn = move_over(&mut p, End::B, fb.conn, &cfg);
            moves += 1;
        }
        if !p.step() {
            p.now += 1_000;
        }
        assert!(p.now - start < 3_600_000_000, "an hour; read {} of {nb}, {} of {na}", fa.read, fb.read);
    }
    assert_eq!((fa.read, fb.read), (nb, na));
    assert_eq!(p.a.counters().rst_in + p.b.counters().rst_in, 0, "after {moves} moves");
    p.a.close(Instant(p.now), fa.conn);
    p.b.close(Instant(p.now), fb.conn);
    p.run_us(600_000_000);
    for e in [&p.a, &p.b] {
        assert_eq!(e.conn_count() + e.time_wait_count() + e.index().len(), 0);
        assert_eq!(e.memory_bytes(), 0);
    }
}

#[test]
fn connections_move_at_random_points() {
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

#[test]
fn a_record_without_payload_is_small() {
    let mut p = Pair::new(LinkConfig::default(), 1);
    let (a, _) = p.open();
    p.run_us(1_000_000);
    let mut record = Vec::new();
    p.a.export(Instant(p.now), a, &mut record).unwrap();
    assert!(record.len() < 800, "{} bytes", record.len());
}

#[test]
fn damaged_records_are_refused_and_leave_nothing() {
    let mut p = Pair::new(LinkConfig::default(), 1);
    let (a, _) = p.open();
    p.a.write(Instant(p.now), a, &[9; 3_000]).unwrap();
    let mut record = Vec::new();
    p.a.export(Instant(p.now), a, &mut record).unwrap();
    let fresh = || Engine::new(EngineConfig::default(), secrets(), index());
    let now = Instant(p.now);
    assert_eq!(fresh().import(now, b"nonsense"), Err(ImportError::Magic));
    let mut other = record.clone();
    other[4] = 99;
    assert_eq!(fresh().import(now, &other), Err(ImportError::Version(99)));
    for len in 0..record.len() {
        assert!(fresh().import(now, &record[..len]).is_err());
    }
    let mut r = Rng::new(5);
    for _ in 0..2_000 {
        let mut bad = record.clone();
        let bit = r.below(bad.len() as u64 * 8) as usize;
        bad[bit / 8] ^= 1 << (bit % 8);
        let mut e = fresh();
        // Two bytes are flags for later versions and not covered.
        if !(6..8).contains(&(bit / 8)) {
            assert!(e.import(now, &bad).is_err(), "bit {bit}");
            assert_eq!((e.memory_bytes(), e.conn_count()), (0, 0));
        }
    }
    let mut e = fresh();
    e.import(now, &record).unwrap();
    assert_eq!(e.import(now, &record), Err(ImportError::InUse));
}

/// Records whose checksum is right and whose contents are not: nothing panics,
/// neither at the import nor afterwards, and nothing stays.
#[test]
fn a_forged_record_does_no_harm() {
    use std::hash::Hasher;
    let mut p = Pair::new(LinkConfig { loss_ppm: 100_000, ..Default::default() }, 1);
    let (a, b) = p.open();
    for _ in 0..8 {
        p.a.write(Instant(p.now), a, &[9; 3_000]).unwrap();
        p.b.write(Instant(p.now), b, &[9; 3_000]).unwrap();
        p.step();
    }
    let mut record = Vec::new();
    p.a.export(Instant(p.now), a, &mut record).unwrap();
    let mut r = Rng::new(77);
    let mut imported = 0;
    for _ in 0..if cfg!(debug_assertions) { 3_000 } else { 30_000 } {
        let mut bad = record.clone();
        for _ in 0..1 + r.below(3) {
            let at = 20 + r.below(700.min(bad.len() as u64 - 20)) as usize;
            bad[at] = r.next() as u8;
        }
        let mut hasher = siphasher::sip::SipHasher24::new_with_key(b"ff-tcp export v1");
        hasher.write(&bad[20..]);
        bad[12..20].copy_from_slice(&hasher.finish().to_le_bytes());
        let mut e = Engine::new(EngineConfig::default(), secrets(), index());
        let Ok(id) = e.import(Instant(p.now), &bad) else {
            assert_eq!((e.memory_bytes(), e.conn_count(), e.index().len()), (0, 0, 0));
            continue;
        };
        imported += 1;
        let mut now = p.now;
        let mut buf = vec![0; 70_000];
        for _ in 0..30 {
            let _ = e.read(id, &mut buf);
            let _ = e.write(Instant(now), id, &[1; 2_000]);
            for _ in 0..200 {
                if e.poll_transmit(Instant(now), &mut buf).is_none() {
                    break;
                }
            }
            now += 300_000;
            if e.next_deadline().is_some_and(|t| t.0 <= now) {
                e.on_deadline(Instant(now));
            }
            while e.poll_event().is_some() {}
        }
        e.abort(Instant(now), id);
        assert_eq!((e.memory_bytes(), e.conn_count(), e.index().len()), (0, 0, 0));
    }
    assert!(imported > 100);
}

/// Lets arrive what is under way.
fn deliver(p: &mut Pair) {
    for _ in 0..20 {
        p.flush();
        p.step();
    }
}

/// Moves the connection of end B to a new engine that has not accepted it; with a listener there, or without.
fn move_unaccepted(listens: bool) -> (Pair, ConnId, Option<ConnId>) {
    let cfg = EngineConfig::default();
    let mut p = Pair::with(LinkConfig::default(), 7, cfg.clone(), cfg.clone());
    let (a, b) = p.open();
    let local = p.b.local_addr(b).unwrap();
    p.a.write(Instant(p.now), a, b"under way").unwrap();
    deliver(&mut p);
    let now = Instant(p.now);
    let mut record = Vec::new();
    p.b.record(now, b, &mut record).unwrap();
    assert_eq!(p.b.index().len(), 1, "the flow stays in the table until it is parted with");
    p.b.part_with(b);
    assert_eq!((p.b.index().len(), p.b.conn_count(), p.b.memory_bytes()), (0, 0, 0));
    let mut new = Engine::new(cfg, secrets(), index());
    let listener = listens.then(|| {
        let addr = ListenAddr { ip: None, port: local.port(), v6_only: false, v4_only: false };
        new.listen(addr, ListenOptions::default()).unwrap()
    });
    new.import_unaccepted(now, &record).unwrap();
    p.b = new;
    let accepted = listener.and_then(|listener| {
        assert_eq!(p.b.accept_queue_len(listener), 1);
        p.b.accept(listener)
    });
    (p, a, accepted)
}

#[test]
fn a_connection_that_moves_unaccepted_waits_with_its_bytes() {
    let (mut p, a, accepted) = move_unaccepted(true);
    let b = accepted.expect("accepted");
    let mut buf = [0; 64];
    let len = p.b.read(b, &mut buf).unwrap();
    assert_eq!(&buf[..len], b"under way");
    p.b.write(Instant(p.now), b, b"answered").unwrap();
    deliver(&mut p);
    let len = p.a.read(a, &mut buf).unwrap();
    assert_eq!(&buf[..len], b"answered");
}

#[test]
fn a_connection_that_moves_to_where_nobody_listens_is_reset() {
    let (mut p, a, accepted) = move_unaccepted(false);
    assert!(accepted.is_none());
    deliver(&mut p);
    assert_eq!(p.a.counters().rst_in, 1);
    assert!(p.a.read(a, &mut [0; 8]).is_err());
}
