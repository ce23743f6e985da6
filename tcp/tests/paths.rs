//! Path MTU, window scaling, buffers and memory.
#![allow(clippy::unwrap_used)]

mod support;
use support::script::*;
use support::*;

#[test]
fn icmp_too_big_shrinks_segments_and_resends_only_what_was_too_big() {
    let mut s = Script::server(EngineConfig::default());
    let id = s.open();
    s.write(id, 4_380);
    assert_eq!(s.all().len(), 3);
    let cwnd = s.e.info(id).unwrap().snd_cwnd_bytes;
    let key = FlowKey::new(6, s.local, s.remote);
    // RFC 5927: not about anything in flight.
    let seq = s.iss.wrapping_add(9_000);
    s.e.on_icmp_error(s.time(), &key, IcmpError::TooBig { mtu: 1_000 }, Some(seq));
    assert_eq!((s.e.info(id).unwrap().pmtu, s.c().icmp_ignored), (1_500, 1));
    s.e.on_icmp_error(s.time(), &key, IcmpError::TooBig { mtu: 1_000 }, None);
    assert_eq!(s.e.info(id).unwrap().pmtu, 1_500);
    let seq = s.iss.wrapping_add(1);
    s.e.on_icmp_error(s.time(), &key, IcmpError::TooBig { mtu: 1_000 }, Some(seq));
    let info = s.e.info(id).unwrap();
    assert_eq!((info.pmtu, info.snd_mss, s.c().pmtu_reductions), (1_000, 960, 1));
    let mut acked = 1i64;
    for _ in 0..20 {
        for o in s.all() {
            assert!(o.len <= 960);
            if i64::from(o.seq) == acked {
                acked += o.len as i64;
            }
        }
        s.inject(seg(".", 1, acked));
    }
    assert_eq!(acked, 4_381);
    assert_eq!((s.c().rto_timeouts, s.e.info(id).unwrap().snd_cwnd_bytes >= cwnd), (0, true));
    // A report below the minimum does not make segments tiny.
    s.write(id, 100);
    s.all();
    let seq = s.iss.wrapping_add(4_381);
    s.e.on_icmp_error(s.time(), &key, IcmpError::TooBig { mtu: 68 }, Some(seq));
    assert!(s.e.info(id).unwrap().pmtu >= 552);
}

fn through_a_hole(probing: MtuProbing, icmp: bool) -> (Pair, ConnId) {
    let cfg = EngineConfig { mtu_probing: probing, ..Default::default() };
    let link = LinkConfig { mtu: 1_300, icmp, ..Default::default() };
    let mut p = Pair::with(link, 1, cfg.clone(), cfg);
    let (a, b) = p.open();
    let (mut f, mut g) = (Flow::new(a, 1, 2_000_000, 2), Flow::new(b, 2, 0, 1));
    while !g.eof {
        f.pump(&mut p.a, p.now, 65_536).unwrap();
        g.pump(&mut p.b, p.now, 65_536).unwrap();
        assert!(p.step());
    }
    (p, a)
}

#[test]
fn a_black_hole_is_found_without_icmp_and_the_search_goes_up_again() {
    let (p, a) = through_a_hole(MtuProbing::BlackHole, false);
    assert!(p.a.counters().pmtu_blackholes > 0);
    assert!(p.a.counters().mtu_probe_success > 0);
    let pmtu = p.a.info(a).unwrap().pmtu;
    assert!((1_200..=1_300).contains(&pmtu), "{pmtu}");
}

#[test]
fn a_lost_probe_is_no_congestion() {
    let cfg = EngineConfig { mtu_probing: MtuProbing::Always, hystart: false, ..Default::default() };
    let link = LinkConfig { mtu: 1_300, icmp: false, delay_us: 5_000, ..Default::default() };
    let mut p = Pair::with(link, 1, cfg.clone(), cfg);
    let (a, b) = p.open();
    let (mut f, mut g) = (Flow::new(a, 1, 3_000_000, 2), Flow::new(b, 2, 0, 1));
    while !g.eof {
        f.pump(&mut p.a, p.now, 65_536).unwrap();
        g.pump(&mut p.b, p.now, 65_536).unwrap();
        assert!(p.step());
    }
    let c = p.a.counters();
    assert!(c.mtu_probes > c.mtu_probe_success, "some probes are lost");
    assert_eq!(c.sack_recoveries, 0);
}

#[test]
fn with_icmp_nothing_times_out() {
    let (p, a) = through_a_hole(MtuProbing::Off, true);
    assert_eq!((p.a.counters().rto_timeouts, p.a.info(a).unwrap().pmtu), (0, 1_300));
}

#[test]
fn the_receive_window_grows_with_the_path() {
    let link = LinkConfig { delay_us: 50_000, rate_bps: 200_000_000, ..Default::default() };
    let mut p = Pair::new(link, 1);
    let (a, b) = p.open();
    let (mut f, mut g) = (Flow::new(a, 1, 15_000_000, 2), Flow::new(b, 2, 0, 1));
    assert_eq!(p.b.info(b).unwrap().rcv_space_bytes, 65_536);
    let start = p.now;
    while !g.eof {
        f.pump(&mut p.a, p.now, 65_536).unwrap();
        g.pump(&mut p.b, p.now, 65_536).unwrap();
        p.step();
    }
    assert!(p.b.info(b).unwrap().rcv_space_bytes > 1_000_000);
    let mbit_s = 15_000_000 * 8 / (p.now - start);
    assert!(mbit_s > 60, "{mbit_s} Mbit/s of 200");
    // SO_RCVBUF fixes it.
    let o = p.b.options(b).unwrap();
    p.b.set_options(b, SocketOptions { rcvbuf_bytes: Some(100_000), ..o });
    assert_eq!(p.b.info(b).unwrap().rcv_space_bytes, 100_000);
}

#[test]
fn an_idle_connection_holds_no_buffers() {
    let mut p = Pair::new(LinkConfig::default(), 1);
    let (a, b) = p.open();
    let mut buf = [0; 65_536];
    for _ in 0..10 {
        p.a.write(Instant(p.now), a, &[1; 30_000]).unwrap();
        p.run_us(1_000_000);
        while p.b.read(b, &mut buf).is_ok_and(|n| n > 0) {}
        p.run_us(1_000_000);
        assert_eq!((p.a.memory_bytes(), p.b.memory_bytes()), (0, 0));
    }
}

#[test]
fn at_the_memory_limit_writers_wait_and_wake() {
    let cfg = EngineConfig {
        memory_limit_bytes: 256 * 1024,
        snd_buf_initial_bytes: 64 * 1024,
        snd_buf_max_bytes: 64 * 1024,
        ..Default::default()
    };
    let mut s = Script::server(cfg);
    let mut ids = Vec::new();
    for port in 1..=10 {
        s.remote.set_port(port);
        let id = s.open();
        let n = s.e.write(s.time(), id, &[0; 60_000]).unwrap_or(0);
        ids.push((port, id, n));
    }
    assert!(s.e.memory_bytes() <= 256 * 1024);
    let busy: Vec<Event> = std::iter::from_fn(|| s.e.poll_event()).collect();
    assert!(busy.is_empty(), "nobody is woken for nothing: {busy:?}");
    let (_, waiting, _) = *ids.iter().find(|x| x.2 == 0).expect("somebody waits");
    while s.e.poll_event().is_some() {}
    s.all();
    for &(port, id, n) in ids.iter().filter(|x| x.2 > 0) {
        s.remote.set_port(port);
        let _ = n;
        s.e.abort(s.time(), id);
    }
    let woken: Vec<Event> = std::iter::from_fn(|| s.e.poll_event()).collect();
    assert!(
        woken.iter().any(|e| e.socket == SocketRef::Conn(waiting) && e.edges == Readiness::WRITABLE),
        "{woken:?}"
    );
    assert_eq!(s.e.write(s.time(), waiting, &[0; 60_000]), Ok(60_000));
}

#[test]
fn a_trace_sees_both_directions_of_the_flow_it_is_for() {
    use std::sync::{Arc, Mutex};
    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<(Direction, usize)>>>);
    impl TraceSink for Sink {
        fn segment(&mut self, _: Instant, _: &FlowKey, d: Direction, tcp: &[u8]) {
            self.0.lock().unwrap().push((d, tcp.len()));
        }
    }
    let mut s = Script::server(EngineConfig::default());
    let id = s.open();
    s.remote.set_port(9);
    let other = s.open();
    let sink = Sink::default();
    s.e.set_trace(Some(Box::new(sink.clone())), false);
    s.e.trace_conn(other, true);
    s.inject(seg("P.", 1, 1).data(10));
    s.write(other, 5);
    s.write(id, 6);
    s.all();
    let seen = sink.0.lock().unwrap().clone();
    assert_eq!(seen, [(Direction::In, 30), (Direction::Out, 25)]);
}

#[test]
fn pacing_spreads_a_flight_over_the_round_trip() {
    let cfg = EngineConfig { pacing: true, ..Default::default() };
    let mut s = Script::server(cfg);
    let id = s.open();
    s.write(id, 14_600);
    // The tail loss probe comes two round trips after the last of them.
    let sent = s.pass(20_000);
    let data: Vec<u64> = sent.iter().filter(|(_, o)| o.len > 0).map(|(t, _)| *t).collect();
    assert_eq!(data.len(), 10);
    // 10 ms round trip, twice the rate in slow start: half a millisecond apart.
    assert!(data[9] >= 4_000 && data[9] <= 6_000, "{data:?}");
}
