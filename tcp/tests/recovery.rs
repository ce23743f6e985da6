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

/// The first segment of a flight is alone in it, and the peer may delay its ACK: the next ones set that right.
#[test]
fn tail_loss_probe_repairs_a_whole_flight() {
    let (mut p, a, b) = pair_losing(&[1, 2, 3], Default::default());
    let t = time_for(&mut p, a, b, 3);
    p.run_us(1_000_000);
    let c = p.a.counters();
    assert_eq!((c.tlp_probes, c.rto_timeouts), (1, 0));
    assert!(t < 150_000, "{t} µs");
    // The same when all arrives and the only ACK is lost.
    let (mut p, a, b) = pair_losing(&[], Default::default());
    let lost_until = p.now + 35_000;
    p.link.filter = Some(Box::new(move |now, to, _| to == End::B || now > lost_until));
    time_for(&mut p, a, b, 2);
    p.run_us(100_000);
    assert_eq!(p.a.unsent_bytes(a), 0, "acknowledged long before the time-out");
    assert_eq!((p.a.counters().tlp_probes, p.a.counters().rto_timeouts), (1, 0));
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

use support::script::*;

#[test]
fn the_initial_window_is_ten_segments() {
    let mut s = Script::server(EngineConfig::default());
    let id = s.open();
    s.write(id, 50_000);
    assert_eq!(s.all().iter().map(|o| o.len).sum::<usize>(), 14_600);
}

#[test]
fn limited_transmit_sends_new_data_on_the_first_two_duplicates() {
    let mut s = Script::server(EngineConfig::default());
    let id = s.open();
    s.write(id, 60_000);
    s.all();
    s.now += 10_000;
    for k in 1..=2 {
        s.inject(seg(".", 1, 1).sack(&[(1_461, 1_461 + 1_460 * k)]));
        let o = s.expect(".");
        assert!(o.seq > 14_600, "new data");
        s.silent();
    }
    // RFC 6675: the third means a loss.
    s.inject(seg(".", 1, 1).sack(&[(1_461, 1_461 + 1_460 * 3)]));
    assert_eq!(s.expect(".").seq, 1);
    assert_eq!(s.e.info(id).unwrap().ca_state, CaState::Recovery);
}

#[test]
fn the_window_falls_to_seven_tenths_with_cubic_and_half_with_new_reno() {
    for (algorithm, want) in [(Algorithm::Cubic, 10_220), (Algorithm::NewReno, 7_300)] {
        let mut s = Script::server(EngineConfig { congestion: algorithm, ..Default::default() });
        let id = s.open();
        s.write(id, 14_600);
        s.all();
        s.inject(seg(".", 1, 1).sack(&[(1_461, 14_601)]));
        s.all();
        s.inject(seg(".", 1, 14_601));
        let info = s.e.info(id).unwrap();
        assert_eq!(
            (info.snd_cwnd_bytes, info.snd_ssthresh_bytes, info.ca_state),
            (want, want, CaState::Open)
        );
    }
}

#[test]
fn proportional_rate_reduction_spreads_the_reduction() {
    let mut s = Script::server(EngineConfig { congestion: Algorithm::NewReno, ..Default::default() });
    let id = s.open();
    s.write(id, 14_600);
    s.all();
    s.write(id, 40_000);
    s.now += 10_000;
    let mut sent = 0;
    for k in 1..=9 {
        s.inject(seg(".", 1, 1).sack(&[(1_461, 1_461 + 1_460 * k)]));
        sent += s.all().len();
    }
    // Nine delivered, half of that goes out, and limited transmit's two.
    assert!((5..=7).contains(&sent), "{sent}");
}

#[test]
fn reordering_up_to_64_segments_costs_no_time_out() {
    for depth in [1usize, 3, 10, 64] {
        let mut p = Pair::new(LinkConfig { delay_us: 5_000, ..Default::default() }, 3);
        let (a, b) = p.open();
        let mut f = Flow::new(a, 1, 2_000_000, 2);
        let mut g = Flow::new(b, 2, 0, 1);
        // Every hundredth data segment is overtaken by `depth` others.
        let mut n = 0u32;
        let mut held: Vec<(u32, Packet)> = Vec::new();
        while !(f.done() && g.done()) {
            f.pump(&mut p.a, p.now, 20_000).unwrap();
            g.pump(&mut p.b, p.now, 20_000).unwrap();
            let mut buf = vec![0; 2_000];
            let now = Instant(p.now);
            while let Some(t) = p.a.poll_transmit(now, &mut buf) {
                let packet = Packet { src: t.local(), dst: t.remote(), ecn: 0, tcp: buf[..t.len].to_vec() };
                n += 1;
                if n.is_multiple_of(100) && payload_len(&packet) > 0 {
                    held.push((n + depth as u32, packet));
                } else {
                    p.link.send(p.now, End::B, packet);
                }
                for (_, packet) in held.extract_if(.., |h| h.0 <= n) {
                    p.link.send(p.now, End::B, packet);
                }
            }
            if !p.step() || p.link.is_empty() {
                for (_, packet) in held.drain(..) {
                    p.link.send(p.now, End::B, packet);
                }
            }
        }
        assert_eq!(p.a.counters().rto_timeouts, 0, "depth {depth}");
    }
}

#[test]
fn reordering_of_data_and_acks_both_ways_costs_no_time_out() {
    let link = LinkConfig { delay_us: 5_000, jitter_us: 4_000, ..Default::default() };
    let mut p = Pair::new(link, 4);
    let (a, b) = p.open();
    let (mut f, mut g) = (Flow::new(a, 1, 1_000_000, 2), Flow::new(b, 2, 1_000_000, 1));
    while !(f.done() && g.done()) {
        f.pump(&mut p.a, p.now, 20_000).unwrap();
        g.pump(&mut p.b, p.now, 20_000).unwrap();
        p.step();
    }
    assert_eq!((p.a.counters().rto_timeouts, p.b.counters().rto_timeouts), (0, 0));
}

#[test]
fn eifel_takes_back_a_spurious_time_out() {
    let mut s = Script::server(EngineConfig { tlp: false, ..Default::default() });
    s.ts = true;
    let id = s.open();
    s.write(id, 10_000);
    s.all();
    let stamp = s.ts_seen;
    let before = s.e.info(id).unwrap();
    let again = s.pass(230_000);
    assert_eq!((again.len(), again[0].1.seq), (1, 1));
    assert_eq!(s.e.info(id).unwrap().ca_state, CaState::Loss);
    // The peer answers the original: its echo is older than the retransmission.
    s.inject(seg(".", 1, 1 + 2_896).ts((s.now / 1_000) as u32, stamp));
    let after = s.e.info(id).unwrap();
    assert_eq!((after.ca_state, s.c().rto_spurious), (CaState::Open, 1));
    assert!(after.snd_cwnd_bytes >= before.snd_cwnd_bytes);
    assert!(s.all().iter().all(|o| o.seq > 10_000), "nothing else is sent again");
}

#[test]
fn f_rto_takes_back_a_spurious_time_out_without_timestamps() {
    let mut s = Script::server(EngineConfig { tlp: false, sack: false, ..Default::default() });
    let id = s.open_with(seg("S", 0, 0).mss(1_460));
    s.write(id, 8_760);
    s.all();
    s.write(id, 8_760);
    assert_eq!(s.pass(230_000).last().unwrap().1.seq, 1);
    // The first ACK may be for either copy: two new segments ask.
    s.inject(seg(".", 1, 1_461));
    let out = s.all();
    assert_eq!(out.iter().map(|o| o.seq).collect::<Vec<_>>(), [14_601, 16_061]);
    // The second is for a segment that was sent once.
    s.inject(seg(".", 1, 2_921));
    assert_eq!((s.c().rto_spurious, s.e.info(id).unwrap().ca_state), (1, CaState::Open));
}

#[test]
fn a_dsack_takes_back_a_needless_recovery() {
    let mut s = Script::server(EngineConfig::default());
    let id = s.open();
    s.write(id, 14_600);
    s.all();
    let before = s.e.info(id).unwrap().snd_cwnd_bytes;
    s.inject(seg(".", 1, 1).sack(&[(1_461, 14_601)]));
    assert_eq!(s.expect(".").seq, 1);
    // The first segment was only late, and then came again.
    s.inject(seg(".", 1, 10_221));
    s.inject(seg(".", 1, 10_221).sack(&[(1, 1_461)]));
    let info = s.e.info(id).unwrap();
    assert_eq!((s.c().undo_recoveries, s.c().dsack_in), (1, 1));
    assert_ne!(info.ca_state, CaState::Recovery);
    assert!(info.snd_cwnd_bytes >= before);
}

#[test]
fn the_receiver_tells_blocks_newest_first_and_duplicates_as_dsack() {
    let mut s = Script::server(EngineConfig::default());
    let id = s.open();
    let mut last = Vec::new();
    for i in 0..6 {
        s.inject(seg(".", 1_001 + 2_000 * i, 1).data(1_000));
        last = s.expect(".").sacks;
    }
    assert_eq!(last, [(11_001, 12_001), (9_001, 10_001), (7_001, 8_001), (5_001, 6_001)]);
    // RFC 2883: a repeated segment is the first block.
    s.inject(seg(".", 3_001, 1).data(1_000));
    let o = s.expect(".");
    assert_eq!((o.ack, o.sacks[0], o.sacks[1]), (1, (3_001, 4_001), (3_001, 4_001)));
    s.inject(seg(".", 1, 1).data(1_000));
    assert_eq!(s.expect(".").ack, 2_001);
    s.inject(seg(".", 1, 1).data(1_000));
    assert_eq!(s.expect(".").sacks[0], (1, 1_001), "below the acknowledgement");
    assert_eq!(s.read_all(id).len(), 2_000);
    // With timestamps there is room for three.
    let mut s = Script::server(EngineConfig::default());
    s.ts = true;
    s.open();
    for i in 0..5 {
        s.inject(seg(".", 1_001 + 2_000 * i, 1).data(1_000));
        last = s.expect(".").sacks;
    }
    assert_eq!(last.len(), 3);
}

#[test]
fn sacked_data_that_the_peer_dropped_again_is_sent_again() {
    let mut s = Script::server(EngineConfig { tlp: false, ..Default::default() });
    let id = s.open();
    s.write(id, 5_840);
    s.all();
    s.inject(seg(".", 1, 1).sack(&[(1_461, 5_841)]));
    s.all();
    // The hole is filled and everything else forgotten.
    s.inject(seg(".", 1, 1_461));
    let mut acked = 1_461;
    for _ in 0..20 {
        for (_, o) in s.pass(500_000) {
            if i64::from(o.seq) == acked {
                acked += o.len as i64;
            }
        }
        s.inject(seg(".", 1, acked));
    }
    assert_eq!(acked, 5_841);
    assert!(s.c().sack_reneges > 0);
}

#[test]
fn after_an_idle_time_the_window_is_the_initial_one() {
    let mut s = Script::server(EngineConfig::default());
    let id = s.open();
    let mut acked = 1;
    for _ in 0..6 {
        s.write(id, 58_400);
        for _ in 0..60 {
            for o in s.all() {
                acked = acked.max(i64::from(o.seq) + o.len as i64);
            }
            s.inject(seg(".", 1, acked));
        }
    }
    assert!(s.e.info(id).unwrap().snd_cwnd_bytes > 30_000);
    s.pass(60_000_000);
    s.write(id, 58_400);
    assert_eq!(s.all().iter().map(|o| o.len).sum::<usize>(), 14_600);
}

#[test]
fn hystart_leaves_slow_start_when_the_round_trip_grows() {
    let run = |hystart| {
        let cfg = EngineConfig { hystart, ..Default::default() };
        let link = LinkConfig { delay_us: 20_000, rate_bps: 20_000_000, ..Default::default() };
        let mut p = Pair::with(link, 1, cfg.clone(), cfg);
        let (a, b) = p.open();
        let (mut f, mut g) = (Flow::new(a, 1, 3_000_000, 2), Flow::new(b, 2, 0, 1));
        while !g.eof {
            f.pump(&mut p.a, p.now, 65_536).unwrap();
            g.pump(&mut p.b, p.now, 65_536).unwrap();
            p.step();
        }
        p.a.info(a).unwrap()
    };
    assert!(run(true).snd_ssthresh_bytes < u32::MAX, "no loss was needed");
    assert_eq!(run(false).snd_ssthresh_bytes, u32::MAX);
    assert!(run(true).snd_cwnd_bytes < run(false).snd_cwnd_bytes);
}

#[test]
fn an_ecn_echo_reduces_the_window_once_and_is_answered_with_cwr() {
    let cfg = EngineConfig { ecn: EcnMode::On, ..Default::default() };
    let mut p = Pair::with(LinkConfig::default(), 1, cfg.clone(), cfg);
    let (a, b) = p.open();
    assert!(p.a.info(a).unwrap().ecn && p.b.info(b).unwrap().ecn);
    p.run_us(100_000);
    let mut marked = 0;
    let (mut f, mut g) = (Flow::new(a, 1, 100_000, 2), Flow::new(b, 2, 0, 1));
    let mut steps = 0;
    while !g.eof {
        f.pump(&mut p.a, p.now, 65_536).unwrap();
        g.pump(&mut p.b, p.now, 65_536).unwrap();
        // A router marks one segment of the first flight.
        let mut buf = vec![0; 2_000];
        while let Some(t) = p.a.poll_transmit(Instant(p.now), &mut buf) {
            let mut packet =
                Packet { src: t.local(), dst: t.remote(), ecn: t.ecn.bits(), tcp: buf[..t.len].to_vec() };
            if marked == 0 && payload_len(&packet) > 0 {
                assert_eq!(packet.ecn, 2, "data is sent as ECT(0)");
                packet.ecn = 3;
                marked += 1;
            }
            p.link.send(p.now, End::B, packet);
        }
        p.step();
        steps += 1;
        assert!(steps < 10_000);
    }
    assert_eq!((p.b.counters().ecn_ce_in, p.a.counters().ecn_cwr, p.a.counters().retrans_segs), (1, 1, 0));
    assert!(p.a.info(a).unwrap().snd_ssthresh_bytes < u32::MAX);
    // Off by default, and not forced on a peer that has it off.
    let mut p = Pair::with(
        LinkConfig::default(),
        1,
        EngineConfig { ecn: EcnMode::On, ..Default::default() },
        EngineConfig::default(),
    );
    let (a, _) = p.open();
    assert!(!p.a.info(a).unwrap().ecn);
}
