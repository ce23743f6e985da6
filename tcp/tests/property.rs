//! Random conversations over random links: every byte arrives once and in
//! order, both ends come to an end, and no memory stays behind.
//!
//! `FF_SEEDS=10000 cargo test --release -p ff-tcp --test property` runs that
//! many seeds; `FF_SEED=n` replays one with a log of its segments.
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

/// Runs `case` for all seeds on two threads; a panic names its seed.
fn for_all_seeds(case: fn(u64)) {
    let range = seeds();
    std::thread::scope(|s| {
        for t in 0..2u64 {
            let range = range.clone();
            s.spawn(move || {
                for seed in range.filter(|s| s % 2 == t) {
                    if let Err(e) = std::panic::catch_unwind(|| case(seed)) {
                        eprintln!("FF_SEED={seed} fails");
                        std::panic::resume_unwind(e);
                    }
                }
            });
        }
    });
}

fn random_link(r: &mut Rng) -> LinkConfig {
    let bad = r.below(4);
    LinkConfig {
        delay_us: [20, 500, 5_000, 40_000][r.below(4) as usize],
        jitter_us: if r.below(2) == 0 { 0 } else { r.below(20_000) },
        loss_ppm: [0, 5_000, 30_000, 100_000][bad as usize],
        duplicate_ppm: if r.below(3) == 0 { r.below(100_000) as u32 } else { 0 },
        corrupt_ppm: if r.below(3) == 0 { r.below(30_000) as u32 } else { 0 },
        rate_bps: if r.below(3) == 0 { 2_000_000 + r.below(50_000_000) } else { 0 },
        mtu: 65_535,
        icmp: r.below(2) == 0,
    }
}

fn random_config(r: &mut Rng) -> EngineConfig {
    let mut c = EngineConfig {
        mtu: [1_500, 1_500, 576, 9_000, 1_280][r.below(5) as usize],
        sack: r.below(4) != 0,
        timestamps: r.below(4) != 0,
        window_scaling: r.below(4) != 0,
        congestion: if r.below(3) == 0 { Algorithm::NewReno } else { Algorithm::Cubic },
        tso_max_bytes: if r.below(3) == 0 { 60_000 } else { 0 },
        delayed_ack: r.below(4) != 0,
        tlp: r.below(4) != 0,
        pacing: r.below(5) == 0,
        ecn: if r.below(4) == 0 { EcnMode::On } else { EcnMode::Off },
        mtu_probing: [MtuProbing::BlackHole, MtuProbing::Always][r.below(2) as usize],
        msl_us: 1_000_000,
        ..Default::default()
    };
    if r.below(3) == 0 {
        c.rcv_buf_initial_bytes = 2_048 + r.below(20_000) as u32;
        c.rcv_buf_max_bytes = c.rcv_buf_initial_bytes * 2;
        c.snd_buf_initial_bytes = 4_096 + r.below(20_000) as u32;
    }
    c.socket.nodelay = r.below(2) == 0;
    c.socket.cork = r.below(8) == 0;
    c
}

fn conversation(seed: u64) {
    let mut r = Rng::new(seed);
    let link = random_link(&mut r);
    let (ca, cb) = (random_config(&mut r), random_config(&mut r));
    let bytes = |r: &mut Rng| match r.below(4) {
        0 => r.below(3),
        1 => r.below(3_000),
        2 => r.below(60_000),
        _ => r.below(200_000),
    };
    let (na, nb) = (bytes(&mut r), bytes(&mut r));
    let mut p = Pair::with(link, seed, ca, cb);
    p.link.log = std::env::var("FF_SEED").is_ok();
    let (a, b) = p.open();
    let mut fa = Flow::new(a, 1, na, 2);
    let mut fb = Flow::new(b, 2, nb, 1);
    let start = p.now;
    let (chunk_a, chunk_b) = (1 + r.below(20_000) as usize, 1 + r.below(20_000) as usize);
    let lazy = r.below(3) == 0;
    let mtu_change_at = if r.below(4) == 0 { p.now + r.below(200_000) } else { u64::MAX };
    let mut steps = 0u64;
    while !(fa.done() && fb.done()) {
        steps += 1;
        assert!(steps < 2_000_000, "too many steps");
        if p.now >= mtu_change_at {
            p.link.config.mtu = p.link.config.mtu.min(1_000);
        }
        if !lazy || r.below(4) == 0 {
            fa.pump(&mut p.a, p.now, chunk_a).unwrap();
        }
        if !lazy || r.below(4) == 0 {
            fb.pump(&mut p.b, p.now, chunk_b).unwrap();
        }
        if !p.step() {
            assert!(lazy, "nothing is left to happen; read {} of {nb}, {} of {na}", fa.read, fb.read);
            p.now += 1_000;
        }
        assert!(p.now - start < 7_200_000_000, "two hours; read {} of {nb}, {} of {na}", fa.read, fb.read);
    }
    assert_eq!((fa.read, fb.read), (nb, na));
    p.a.close(Instant(p.now), a);
    p.b.close(Instant(p.now), b);
    p.run_us(600_000_000);
    for e in [&p.a, &p.b] {
        assert_eq!(e.conn_count() + e.time_wait_count() + e.request_count() + e.index().len(), 0);
        assert_eq!(e.memory_bytes(), 0);
    }
}

#[test]
fn two_engines_carry_every_byte_once() {
    for_all_seeds(conversation);
}
