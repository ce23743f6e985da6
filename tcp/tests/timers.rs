//! Time-outs, probes, keep-alive and the ends of silent connections.
#![allow(clippy::unwrap_used)]

mod support;
use support::script::*;
use support::*;

fn times(sent: &[(u64, Out)]) -> Vec<u64> {
    sent.iter().map(|(t, _)| t / 1_000).collect()
}

/// The first ACK was 10 ms after the SYN-ACK: the time-out is 210 ms.
#[test]
fn rto_is_at_least_200_ms_and_doubles() {
    let cfg = EngineConfig { tlp: false, ..Default::default() };
    let mut s = Script::server(cfg);
    let id = s.open();
    s.write(id, 100);
    let sent = s.pass(4_000_000);
    assert_eq!(times(&sent), [0, 210, 630, 1_470, 3_150]);
    assert!(sent.iter().all(|(_, o)| o.seq == 1 && o.len == 100));
    assert_eq!(s.e.info(id).unwrap().backoff, 4);
}

#[test]
fn a_dead_peer_is_given_up_after_the_retries() {
    let cfg = EngineConfig { data_retries: 3, ..Default::default() };
    let mut s = Script::server(cfg);
    let id = s.open();
    s.write(id, 100);
    s.pass(60_000_000);
    assert_eq!(s.e.take_error(id), Some(ConnError::TimedOut));
    assert_eq!(s.e.state(id), Some(State::Closed));
    assert_eq!((s.e.memory_bytes(), s.e.index().len()), (0, 0));
}

#[test]
fn user_timeout_counts_from_the_first_transmission() {
    let mut s = Script::server(EngineConfig::default());
    let id = s.open();
    let o = s.e.options(id).unwrap();
    s.e.set_options(id, SocketOptions { user_timeout_us: 2_000_000, ..o });
    s.write(id, 100);
    s.pass(1_900_000);
    assert_eq!(s.e.take_error(id), None);
    s.pass(200_000);
    assert_eq!(s.e.take_error(id), Some(ConnError::TimedOut));
}

#[test]
fn an_icmp_error_names_the_time_out() {
    let cfg = EngineConfig { data_retries: 2, ..Default::default() };
    let mut s = Script::server(cfg);
    let id = s.open();
    s.write(id, 100);
    s.all();
    let key = FlowKey::new(6, s.local, s.remote);
    let in_flight = s.iss.wrapping_add(1);
    s.e.on_icmp_error(
        s.time(),
        &key,
        IcmpError::Unreachable { code: 1 },
        Some(in_flight.wrapping_add(5_000)),
    );
    assert_eq!(s.c().icmp_ignored, 1, "not about anything in flight");
    s.e.on_icmp_error(s.time(), &key, IcmpError::Unreachable { code: 1 }, Some(in_flight));
    assert_eq!(s.e.state(id), Some(State::Established), "a soft error");
    s.pass(60_000_000);
    assert_eq!(s.e.take_error(id), Some(ConnError::HostUnreachable));
}

#[test]
fn keepalive_idle_interval_count() {
    let mut s = Script::server(EngineConfig::default());
    let id = s.open();
    let o = s.e.options(id).unwrap();
    let keepalive = Keepalive { enabled: true, idle_us: 10_000_000, interval_us: 2_000_000, count: 3 };
    s.e.set_options(id, SocketOptions { keepalive, ..o });
    let sent = s.pass(11_000_000);
    assert_eq!(times(&sent), [10_000]);
    assert_eq!((sent[0].1.seq, sent[0].1.len), (0, 0), "one below what the peer has acknowledged");
    s.inject(seg(".", 1, 1));
    let sent = s.pass(30_000_000);
    // The answer came at 11 s: probes 10 s after it, every 2 s, then RST.
    assert_eq!(times(&sent), [10_000, 12_000, 14_000, 16_000]);
    assert_eq!(sent[3].1.flags, "R.");
    assert_eq!(s.e.take_error(id), Some(ConnError::TimedOut));
}

#[test]
fn a_closed_window_is_probed_and_opens() {
    let mut s = Script::server(EngineConfig::default());
    let id = s.open();
    s.inject(seg(".", 1, 1).win(0));
    s.write(id, 3_000);
    let sent = s.pass(3_000_000);
    assert!(sent.len() >= 3, "{sent:?}");
    assert!(sent.iter().all(|(_, o)| o.len == 0 && o.seq == 0), "{sent:?}");
    assert_eq!(s.c().window_probes, sent.len() as u64);
    s.inject(seg(".", 1, 1).win(60_000));
    let out: usize = s.all().iter().map(|o| o.len).sum();
    assert_eq!(out, 3_000);
}

#[test]
fn a_probed_peer_that_answers_is_never_given_up_and_a_dead_one_is() {
    let cfg = EngineConfig { data_retries: 5, rto_max_us: 2_000_000, ..Default::default() };
    let mut s = Script::server(cfg);
    let id = s.open();
    s.inject(seg(".", 1, 1).win(0));
    s.write(id, 10);
    for _ in 0..40 {
        s.pass(2_000_000);
        s.inject(seg(".", 1, 1).win(0));
    }
    assert_eq!(s.e.state(id), Some(State::Established));
    s.pass(60_000_000);
    assert_eq!(s.e.take_error(id), Some(ConnError::TimedOut));
}

#[test]
fn acknowledgements_are_delayed_and_every_second_full_segment_at_once() {
    let mut s = Script::server(EngineConfig::default());
    let id = s.open();
    s.inject(seg("P.", 1, 1).data(100));
    let sent = s.pass(100_000);
    assert_eq!(times(&sent), [40]);
    s.inject(seg(".", 101, 1).data(1_460));
    s.silent();
    s.inject(seg(".", 1_561, 1).data(1_460));
    assert_eq!(s.expect(".").ack, 3_021);
    // A response takes the ACK along.
    s.inject(seg("P.", 3_021, 1).data(10));
    s.write(id, 10);
    assert_eq!(s.expect("P.").ack, 3_031);
    s.inject(seg(".", 3_031, 11));
    assert!(s.pass(1_000_000).is_empty());
}

#[test]
fn a_closed_socket_leaves_fin_wait_2_in_time() {
    let cfg = EngineConfig { fin_wait2_us: 5_000_000, ..Default::default() };
    let mut s = Script::server(cfg);
    let id = s.open();
    s.e.close(s.time(), id);
    assert_eq!(s.expect("F.").seq, 1);
    s.inject(seg(".", 1, 2));
    assert_eq!(s.e.conn_count(), 1);
    s.pass(4_900_000);
    assert_eq!(s.e.conn_count(), 1);
    s.pass(200_000);
    assert_eq!((s.e.conn_count(), s.e.index().len()), (0, 0));
}

#[test]
fn a_half_closed_socket_stays_in_fin_wait_2_as_long_as_it_is_held() {
    let mut s = Script::server(EngineConfig::default());
    let id = s.open();
    s.e.shutdown_write(s.time(), id);
    s.expect("F.");
    s.inject(seg(".", 1, 2));
    s.pass(600_000_000);
    s.inject(seg("P.", 1, 2).data(4));
    assert_eq!(s.read_all(id).len(), 4);
    assert_eq!(s.e.state(id), Some(State::FinWait2));
}

#[test]
fn orphans_have_fewer_retries_and_a_limit() {
    let cfg = EngineConfig { orphan_retries: 2, orphans_max: 3, ..Default::default() };
    let mut s = Script::server(cfg);
    for port in 1..=5 {
        s.remote.set_port(port);
        let id = s.open();
        s.write(id, 10);
        s.e.close(s.time(), id);
        s.all();
    }
    assert_eq!((s.e.conn_count(), s.c().orphans_aborted), (3, 2));
    s.pass(20_000_000);
    assert_eq!((s.e.conn_count(), s.e.memory_bytes()), (0, 0));
}

#[test]
fn cork_holds_a_small_segment_for_200_ms() {
    let mut s = Script::server(EngineConfig::default());
    let id = s.open();
    let o = s.e.options(id).unwrap();
    s.e.set_options(id, SocketOptions { cork: true, ..o });
    s.write(id, 100);
    s.write(id, 1_500);
    let sent = s.pass(1_000_000);
    assert_eq!((sent[0].0, sent[0].1.len), (0, 1_460));
    assert_eq!((sent[1].0 / 1_000, sent[1].1.len), (200, 140));
    s.inject(seg(".", 1, 1_601));
    s.write(id, 5);
    s.silent();
    s.e.set_options(id, SocketOptions { cork: false, ..o });
    assert_eq!(s.expect("P.").len, 5);
}

#[test]
fn nagle_holds_a_second_small_segment_and_nodelay_does_not() {
    let mut s = Script::server(EngineConfig::default());
    let id = s.open();
    s.write(id, 10);
    assert_eq!(s.expect("P.").len, 10);
    s.write(id, 10);
    s.silent();
    s.inject(seg(".", 1, 11));
    assert_eq!(s.expect("P.").len, 10);
    s.write(id, 10);
    s.silent();
    let o = s.e.options(id).unwrap();
    s.e.set_options(id, SocketOptions { nodelay: true, ..o });
    assert_eq!(s.expect("P.").len, 10);
}

#[test]
fn silly_windows_are_avoided_by_both_sides() {
    let mut s = Script::server(EngineConfig { rcv_buf_initial_bytes: 10_000, ..Default::default() });
    let id = s.open();
    // Sender: a window of 100 is not worth a segment until the wait is over.
    s.inject(seg(".", 1, 1).data(1));
    s.inject(seg(".", 2, 1).win(100));
    s.pass(100_000);
    s.write(id, 5_000);
    s.silent();
    let sent = s.pass(300_000);
    assert_eq!(sent[0].1.len, 100);
    // Receiver: reading a little does not move the edge.
    for i in 0..7 {
        s.inject(seg(".", 2 + 1_400 * i, 101).data(1_400));
    }
    let edge = |o: &Out| o.ack + u32::from(o.win);
    let last = s.all().pop().unwrap();
    s.e.read(id, &mut [0; 100]).unwrap();
    s.inject(seg(".", 9_802, 101).data(10));
    let o = s.pass(50_000).pop().unwrap().1;
    assert_eq!(edge(&o), edge(&last));
    s.e.read(id, &mut [0; 9_000]).unwrap();
    assert!(edge(&s.expect(".")) > edge(&o) + 5_000);
}
