//! Bytes from one engine to the other over links good and bad.
#![allow(clippy::unwrap_used)]

mod support;
use support::*;

fn transfer(
    link: LinkConfig,
    seed: u64,
    bytes_a: u64,
    bytes_b: u64,
    ca: EngineConfig,
    cb: EngineConfig,
) -> Pair {
    let mut p = Pair::with(link, seed, ca, cb);
    let (a, b) = p.open();
    let mut fa = Flow::new(a, 1, bytes_a, 2);
    let mut fb = Flow::new(b, 2, bytes_b, 1);
    let start = p.now;
    while !(fa.done() && fb.done()) {
        fa.pump(&mut p.a, p.now, 16_384).unwrap();
        fb.pump(&mut p.b, p.now, 16_384).unwrap();
        assert!(p.step(), "seed {seed}: nothing left to happen at {}", p.now);
        assert!(
            p.now - start < 3_600_000_000,
            "seed {seed}: an hour has passed; read {} and {}",
            fa.read,
            fb.read
        );
    }
    assert_eq!((fa.read, fb.read), (bytes_b, bytes_a), "seed {seed}");
    p.a.close(Instant(p.now), a);
    p.b.close(Instant(p.now), b);
    p
}

fn ends_clean(mut p: Pair) {
    p.run_us(400_000_000);
    for (name, e) in [("a", &p.a), ("b", &p.b)] {
        assert_eq!(e.conn_count(), 0, "{name}");
        assert_eq!(e.time_wait_count(), 0, "{name}");
        assert_eq!(e.memory_bytes(), 0, "{name}");
        assert_eq!(e.index().len(), 0, "{name}");
    }
}

#[test]
fn clean_link_carries_both_directions() {
    let p = transfer(LinkConfig::default(), 1, 1_000_000, 3_000_000, Default::default(), Default::default());
    assert_eq!(p.a.counters().retrans_segs + p.b.counters().retrans_segs, 0);
    ends_clean(p);
}

#[test]
fn one_percent_loss() {
    let link = LinkConfig { loss_ppm: 10_000, delay_us: 25_000, ..Default::default() };
    let p = transfer(link, 2, 3_000_000, 10, Default::default(), Default::default());
    ends_clean(p);
}

#[test]
fn ten_percent_loss_both_ways_with_reordering() {
    let link = LinkConfig {
        loss_ppm: 100_000,
        duplicate_ppm: 50_000,
        corrupt_ppm: 20_000,
        delay_us: 5_000,
        jitter_us: 8_000,
        ..Default::default()
    };
    let p = transfer(link, 3, 300_000, 300_000, Default::default(), Default::default());
    ends_clean(p);
}

#[test]
fn without_any_option() {
    let c = EngineConfig { sack: false, timestamps: false, window_scaling: false, ..Default::default() };
    let link = LinkConfig { loss_ppm: 20_000, delay_us: 5_000, ..Default::default() };
    let p = transfer(link, 4, 500_000, 500_000, c.clone(), c);
    ends_clean(p);
}

#[test]
fn segmentation_offload() {
    let c = EngineConfig { tso_max_bytes: 64_000, ..Default::default() };
    let link = LinkConfig { loss_ppm: 2_000, delay_us: 500, ..Default::default() };
    let p = transfer(link, 5, 5_000_000, 5_000_000, c.clone(), c);
    ends_clean(p);
}
