//! Opens and closes in every order, half-close, linger, errors, TIME-WAIT.
#![allow(clippy::unwrap_used)]

mod support;
use support::script::*;
use support::*;

#[test]
fn after_the_peers_fin_our_direction_still_carries_data() {
    let mut s = Script::server(EngineConfig::default());
    let id = s.open();
    s.inject(seg("FP.", 1, 1).data(4));
    assert_eq!(s.expect(".").ack, 6);
    let e = s.e.poll_event().unwrap();
    assert_eq!(e.token, 77);
    assert!(e.edges.contains(Readiness::READABLE | Readiness::RDHUP));
    assert_eq!(s.read_all(id).len(), 4);
    assert_eq!(s.e.read(id, &mut [0; 1]), Ok(0));
    let r = s.e.readiness(id);
    assert!(r.contains(Readiness::RDHUP | Readiness::WRITABLE) && !r.intersects(Readiness::HUP));
    s.write(id, 1_000);
    assert_eq!(s.expect("P.").len, 1_000);
    s.e.close(s.time(), id);
    s.expect("F.");
    s.inject(seg(".", 6, 1_002));
    assert_eq!((s.e.conn_count(), s.e.time_wait_count(), s.e.index().len()), (0, 0, 0));
}

#[test]
fn an_active_close_ends_in_a_small_time_wait() {
    let mut s = Script::server(EngineConfig { msl_us: 1_000_000, ..Default::default() });
    let id = s.open();
    s.write(id, 10);
    s.e.close(s.time(), id);
    let out = s.all();
    assert_eq!(out.last().unwrap().flags, "FP.");
    s.inject(seg("F.", 1, 12));
    assert_eq!(s.expect(".").ack, 2);
    assert_eq!((s.e.conn_count(), s.e.time_wait_count(), s.e.memory_bytes()), (0, 1, 0));
    // The peer did not get our ACK.
    s.inject(seg("F.", 1, 12));
    assert_eq!(s.expect(".").ack, 2);
    // RFC 1337: a RST does not end it.
    s.inject(seg("R", 2, 0));
    assert_eq!(s.e.time_wait_count(), 1);
    s.pass(2_100_000);
    assert_eq!((s.e.time_wait_count(), s.e.index().len()), (0, 0));
}

#[test]
fn simultaneous_close() {
    let mut s = Script::server(EngineConfig { msl_us: 1_000_000, ..Default::default() });
    let id = s.open();
    s.e.close(s.time(), id);
    s.expect("F.");
    s.inject(seg("F.", 1, 1));
    assert_eq!(s.expect(".").ack, 2);
    assert_eq!(s.e.conn_count(), 1);
    s.inject(seg(".", 2, 2));
    assert_eq!((s.e.conn_count(), s.e.time_wait_count()), (0, 1));
}

#[test]
fn simultaneous_open() {
    let mut s = Script::bare(EngineConfig::default());
    let (l, r) = (s.local, s.remote);
    let id = s.e.connect(s.time(), l, r).unwrap();
    s.expect("S");
    s.inject(seg("S", 0, 0).mss(1_460));
    let o = s.expect("S.");
    assert_eq!((o.seq, o.ack), (0, 1));
    s.inject(seg("S.", 0, 1));
    s.inject(seg(".", 1, 1));
    assert_eq!(s.e.state(id), Some(State::Established));
}

#[test]
fn refused_timed_out_and_unreachable_are_told_apart() {
    let open = || {
        let mut s = Script::bare(EngineConfig { syn_retries: 2, ..Default::default() });
        let (l, r) = (s.local, s.remote);
        let id = s.e.connect(s.time(), l, r).unwrap();
        s.expect("S");
        (s, id)
    };
    let (mut s, id) = open();
    s.inject(seg("R.", 0, 1));
    assert!(s.e.poll_event().unwrap().edges.contains(Readiness::ERR | Readiness::HUP));
    assert_eq!(s.e.take_error(id), Some(ConnError::Refused));
    let (mut s, id) = open();
    s.inject(seg("R.", 0, 9));
    assert_eq!(s.e.state(id), Some(State::SynSent), "a RST for another SYN");
    let sent = s.pass(30_000_000);
    assert_eq!(sent.iter().map(|(t, _)| t / 1_000_000).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(s.e.take_error(id), Some(ConnError::TimedOut));
    let (mut s, id) = open();
    let key = FlowKey::new(6, s.local, s.remote);
    s.e.on_icmp_error(s.time(), &key, IcmpError::Unreachable { code: 3 }, Some(s.iss));
    assert_eq!(s.e.take_error(id), Some(ConnError::Refused));
    let (mut s, id) = open();
    s.e.on_icmp_error(s.time(), &key, IcmpError::Unreachable { code: 0 }, Some(s.iss));
    s.pass(30_000_000);
    assert_eq!(s.e.take_error(id), Some(ConnError::NetUnreachable));
}

#[test]
fn close_with_unread_data_or_linger_0_resets() {
    let mut s = Script::server(EngineConfig::default());
    let id = s.open();
    s.inject(seg("P.", 1, 1).data(4));
    s.e.close(s.time(), id);
    let o = s.expect("R.");
    assert_eq!((o.seq, s.e.conn_count(), s.e.memory_bytes()), (1, 0, 0));
    s.remote.set_port(9);
    let id = s.open();
    let o = s.e.options(id).unwrap();
    s.e.set_options(id, SocketOptions { linger_s: Some(0), ..o });
    s.write(id, 100);
    s.e.close(s.time(), id);
    s.expect("R.");
    assert_eq!((s.e.conn_count(), s.e.memory_bytes()), (0, 0));
}

#[test]
fn close_lingers_until_everything_is_delivered() {
    let mut s = Script::server(EngineConfig::default());
    let id = s.open();
    s.write(id, 50_000);
    s.e.close(s.time(), id);
    assert_eq!(s.e.read(id, &mut [0; 1]), Err(ReadError::NotConnected));
    let mut acked = 1i64;
    for _ in 0..100 {
        for o in s.all() {
            acked = acked.max(i64::from(o.seq) + o.len as i64 + i64::from(o.flags.contains('F')));
        }
        s.inject(seg(".", 1, acked));
    }
    assert_eq!(acked, 50_002);
    s.inject(seg("F.", 1, acked));
    assert_eq!(s.e.conn_count(), 0);
}

#[test]
fn data_after_close_is_answered_with_rst() {
    let mut s = Script::server(EngineConfig::default());
    let id = s.open();
    s.e.close(s.time(), id);
    s.expect("F.");
    s.inject(seg("P.", 1, 2).data(10));
    assert!(s.all().iter().any(|o| o.flags == "R."));
    assert_eq!(s.e.conn_count(), 0);
}

#[test]
fn time_wait_is_reused_by_a_newer_syn_and_not_by_an_older() {
    let mut s = Script::server(EngineConfig::default());
    s.ts = true;
    let id = s.open_with(seg("S", 0, 0).mss(1_460).sack_ok());
    s.e.close(s.time(), id);
    s.expect("F.");
    s.inject(seg("F.", 1, 2));
    let last = s.expect(".").raw_seq;
    assert_eq!(s.e.time_wait_count(), 1);
    // RFC 6191: an older timestamp is no new connection.
    let ms = (s.now / 1_000) as u32;
    s.inject(seg("S", 100_000, 0).ts(ms - 50, 0));
    assert_eq!(s.expect(".").ack, 2);
    assert_eq!(s.e.time_wait_count(), 1);
    // A newer one is, even with a lower sequence number.
    s.inject(seg("S", -100_000, 0).ts(ms + 50, 0));
    let o = s.expect("S.");
    assert!((o.raw_seq.wrapping_sub(last) as i32) > 0, "our number goes on from the old one");
    assert_eq!((s.e.time_wait_count(), s.c().time_wait_reused), (0, 1));
}

#[test]
fn time_wait_is_reused_by_our_own_open_with_timestamps() {
    let mut s = Script::server(EngineConfig::default());
    s.ts = true;
    let id = s.open();
    s.e.close(s.time(), id);
    s.expect("F.");
    s.inject(seg("F.", 1, 2));
    s.expect(".");
    let (l, r) = (s.local, s.remote);
    assert!(s.e.connect(s.time(), l, r).is_ok());
    assert_eq!(s.e.connect(s.time(), l, r), Err(ConnectError::InUse));
}

#[test]
fn time_wait_entries_have_a_limit() {
    let mut s = Script::server(EngineConfig { time_wait_max: 3, ..Default::default() });
    for port in 1..=5 {
        s.remote.set_port(port);
        let id = s.open();
        s.e.close(s.time(), id);
        s.expect("F.");
        s.inject(seg("F.", 1, 2));
        s.all();
    }
    assert_eq!((s.e.time_wait_count(), s.e.index().len(), s.c().time_wait_overflow), (3, 3, 2));
}

#[test]
fn events_are_edges_and_writers_wake_at_a_third() {
    let cfg = EngineConfig { snd_buf_initial_bytes: 9_000, snd_buf_max_bytes: 9_000, ..Default::default() };
    let mut s = Script::server(cfg);
    let id = s.open();
    assert_eq!(s.e.write(s.time(), id, &[0; 20_000]), Ok(9_000));
    assert_eq!(s.e.write(s.time(), id, &[0; 1]), Err(WriteError::WouldBlock));
    s.all();
    assert_eq!(s.e.poll_event(), None);
    s.inject(seg(".", 1, 1 + 1_460));
    assert_eq!(s.e.poll_event(), None, "too little is free");
    s.inject(seg(".", 1, 1 + 4_380));
    assert_eq!(s.e.poll_event().unwrap().edges, Readiness::WRITABLE);
    assert_eq!(s.e.poll_event(), None);
    // New data is a new edge, also when the old is unread.
    for i in 0..2 {
        s.inject(seg("P.", 1 + i, 4_381).data(1));
        assert_eq!(s.e.poll_event().unwrap().edges, Readiness::READABLE);
    }
}
