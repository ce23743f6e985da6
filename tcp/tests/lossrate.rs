//! How fast bytes get through where segments are lost.
#![allow(clippy::unwrap_used)]
mod support;
use support::*;

fn rate(loss_ppm: u32, delay_us: u64, rate_bps: u64, bytes: u64, seed: u64, cfg: EngineConfig) -> (f64, Counters) {
    let link = LinkConfig { loss_ppm, delay_us, rate_bps, ..Default::default() };
    let mut p = Pair::with(link, seed, cfg.clone(), cfg);
    let (a, b) = p.open();
    let mut fa = Flow::new(a, 1, bytes, 2);
    let mut fb = Flow::new(b, 2, 0, 1);
    let start = p.now;
    while !fb.eof {
        fa.pump(&mut p.a, p.now, 65_536).unwrap();
        fb.pump(&mut p.b, p.now, 65_536).unwrap();
        assert!(p.step());
    }
    (bytes as f64 * 8.0 / (p.now - start) as f64, *p.a.counters())
}

#[test]
fn print_rates() {
    for (loss, delay, bps, bytes) in [
        (0, 25_000, 100_000_000, 30_000_000u64),
        (0, 25_000, 1_000_000_000, 300_000_000),
        (10_000, 25_000, 0, 10_000_000),
        (50_000, 25_000, 0, 3_000_000),
        (10_000, 100, 1_000_000_000, 10_000_000),
    ] {
        let mut rates: Vec<f64> = Vec::new();
        let mut last = Counters::default();
        for seed in 0..3 {
            let (r, c) = rate(loss, delay, bps, bytes, seed, EngineConfig::default());
            rates.push(r);
            last = c;
        }
        println!(
            "loss {loss} ppm delay {delay} rate {bps}: {:?} Mbit/s; rto {} spurious {} tlp {} sackrec {} undo {} retrans {} racklost {} segs {}",
            rates, last.rto_timeouts, last.rto_spurious, last.tlp_probes, last.sack_recoveries, last.undo_recoveries, last.retrans_segs, last.rack_lost, last.segs_out
        );
    }
}
