//! Loss and its repair, in virtual time.
#![allow(clippy::unwrap_used)]

mod support;
use support::*;

const MSS: usize = 1_448;

fn payload_len(p: &Packet) -> usize {
    p.tcp.len() - usize::from(p.tcp[12] >> 4) * 4
}

/// A pair with an open connection and `n` data segments of A dropped: those
/// whose ordinal (first is 1) `lost` names.
fn pair_losing(lost: &'static [u32], cfg: EngineConfig) -> (Pair, ConnId, ConnId) {
    let mut p = Pair::with(LinkConfig { delay_us: 10_000, ..Default::default() }, 1, cfg.clone(), cfg);
    let (a, b) = p.open();
    p.run_us(100_000);
    let mut n = 0;
    p.link.filter = Some(Box::new(move |_, to, packet| {
        if to == End::B && payload_len(packet) > 0 {
            n += 1;
            return !lost.contains(&n);
        }
        true
    }));
    (p, a, b)
}

/// Sends `segments` full segments and says how long the last byte took.
fn time_for(p: &mut Pair, a: ConnId, b: ConnId, segments: usize) -> u64 {
    let start = p.now;
    let total = segments * MSS;
    assert_eq!(p.a.write(Instant(p.now), a, &vec![7u8; total]), Ok(total));
    let mut got = 0;
    let mut buf = vec![0u8; 65_536];
    while got < total {
        assert!(p.step(), "nothing left to happen after {got} of {total}");
        while let Ok(n) = p.b.read(b, &mut buf) {
            got += n;
        }
    }
    p.now - start
}

#[test]
fn tail_loss_probe_repairs_the_last_segment() {
    let (mut p, a, b) = pair_losing(&[4, 5], Default::default());
    let t = time_for(&mut p, a, b, 5);
    p.run_us(1_000_000);
    let c = p.a.counters();
    assert_eq!((c.tlp_probes, c.rto_timeouts), (1, 0));
    assert!(t < 150_000, "{t} µs");
}

#[test]
fn sack_repairs_one_loss_in_one_round_trip() {
    let (mut p, a, b) = pair_losing(&[3], Default::default());
    let t = time_for(&mut p, a, b, 10);
    let c = p.a.counters();
    assert_eq!((c.retrans_segs, c.rto_timeouts, c.sack_recoveries), (1, 0, 1));
    assert!(t < 41_000, "{t} µs");
}

#[test]
fn sack_repairs_many_losses_without_time_out() {
    let (mut p, a, b) = pair_losing(&[2, 4, 6, 8], Default::default());
    let t = time_for(&mut p, a, b, 10);
    let c = p.a.counters();
    assert_eq!((c.retrans_segs, c.rto_timeouts, c.sack_recoveries), (4, 0, 1));
    assert!(t < 90_000, "{t} µs");
}

#[test]
fn new_reno_repairs_many_losses_without_time_out() {
    let cfg = EngineConfig { sack: false, ..Default::default() };
    let (mut p, a, b) = pair_losing(&[2, 4], cfg);
    time_for(&mut p, a, b, 10);
    let c = p.a.counters();
    assert_eq!((c.retrans_segs, c.rto_timeouts, c.reno_recoveries), (2, 0, 1));
}
