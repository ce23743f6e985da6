//! Listening: requests, backlog, cookies, deferred accept, numbers.
#![allow(clippy::unwrap_used)]

mod support;
use support::script::*;
use support::*;

fn full_syn() -> In {
    seg("S", 0, 0).mss(1_460).sack_ok().wscale(7)
}

#[test]
fn handshake_offers_what_the_peer_offers() {
    let mut s = Script::server(EngineConfig::default());
    s.ts = true;
    s.inject(full_syn());
    assert_eq!(
        (s.e.request_count(), s.e.conn_count(), s.e.memory_bytes()),
        (1, 0, 0),
        "no connection before the ACK"
    );
    let o = s.expect("S.");
    assert_eq!((o.mss, o.wscale, o.sack_ok, o.ts.is_some(), o.ack), (Some(1_460), Some(7), true, true, 1));
    s.inject(seg(".", 1, 1));
    assert_eq!((s.e.request_count(), s.e.conn_count()), (0, 1));
    let l = s.listener.unwrap();
    assert_eq!(s.e.listener_readiness(l), Readiness::READABLE);
    assert!(matches!(s.e.poll_event(), Some(Event { socket: SocketRef::Listener(x), .. }) if x == l));
    let id = s.e.accept(l).unwrap();
    assert_eq!(s.e.remote_addr(id), Some(s.remote));
    // Options that were not offered are not sent.
    let mut s = Script::server(EngineConfig::default());
    s.inject(seg("S", 0, 0));
    let o = s.expect("S.");
    assert_eq!((o.wscale, o.sack_ok, o.ts), (None, false, None));
}

#[test]
fn syn_ack_is_repeated_and_given_up() {
    let mut s = Script::server(EngineConfig::default());
    s.inject(full_syn());
    let sent = s.pass(200_000_000);
    let times: Vec<u64> = sent.iter().map(|(t, _)| t / 1_000_000).collect();
    assert_eq!(times, [0, 1, 3, 7, 15, 31]);
    assert_eq!((s.e.request_count(), s.e.index().len(), s.c().request_timeouts), (0, 0, 1));
}

#[test]
fn data_with_the_third_segment_is_kept() {
    let mut s = Script::server(EngineConfig::default());
    s.inject(full_syn());
    s.expect("S.");
    s.inject(seg("P.", 1, 1).data(5));
    let l = s.listener.unwrap();
    let id = s.e.accept(l).unwrap();
    assert_eq!(s.read_all(id).len(), 5);
}

#[test]
fn nobody_listens_is_refused_with_exact_numbers() {
    let mut s = Script::bare(EngineConfig::default());
    s.inject(seg("S", 0, 0));
    let o = s.expect("R.");
    assert_eq!((o.raw_seq, o.ack), (0, 1));
    s.iss = 0;
    s.inject(seg(".", 1, 700));
    let o = s.expect("R");
    assert_eq!(o.raw_seq, 700);
    s.inject(seg("R", 1, 0));
    s.silent();
}

#[test]
fn backlog_overflows_into_cookies_that_keep_the_options() {
    let mut s =
        Script::server_with(EngineConfig::default(), ListenOptions { backlog: 2, ..Default::default() });
    // Two spoofed SYNs fill the backlog.
    for port in [1, 2] {
        s.remote.set_port(port);
        s.inject(full_syn());
        s.expect("S.");
    }
    s.remote = addr(A);
    s.ts = true;
    s.inject(full_syn().mss(1_300));
    let o = s.expect("S.");
    assert_eq!((s.e.request_count(), s.c().cookies_sent), (2, 1), "no memory for it");
    assert!(o.sack_ok && o.wscale.is_some() && o.ts.is_some());
    s.now += 30_000;
    s.inject(seg(".", 1, 1));
    let l = s.listener.unwrap();
    let id = s.e.accept(l).unwrap();
    let info = s.e.info(id).unwrap();
    assert_eq!((info.snd_mss, info.snd_wscale, info.sack, info.timestamps), (1_288, 7, true, true));
    assert_eq!(s.c().cookies_ok, 1);
    // A guess is no cookie.
    s.remote.set_port(3);
    s.inject(seg(".", 1, 12_345));
    s.expect("R");
    assert_eq!(s.c().cookies_bad, 1);
    // An old one neither.
    s.remote.set_port(4);
    s.inject(full_syn());
    s.expect("S.");
    s.pass(129_000_000);
    s.inject(seg(".", 1, 1));
    s.expect("R");
}

#[test]
fn a_flood_of_spoofed_syns_leaves_a_real_client_served() {
    let n: u32 = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
    let mut s = Script::server(EngineConfig::default());
    let mut served = 0;
    for i in 0..n {
        s.remote =
            SocketAddr::new(IpAddr::from([198, 19, (i >> 8) as u8, i as u8]), 1_024 + (i >> 16) as u16);
        s.now += 1;
        s.inject(full_syn());
        s.next();
        if i % 1_000 == 0 {
            s.remote = addr(A);
            s.remote.set_port(20_000 + (i / 1_000) as u16);
            s.inject(full_syn());
            s.expect("S.");
            s.inject(seg("P.", 1, 1).data(10));
            let l = s.listener.unwrap();
            let id = s.e.accept(l).unwrap();
            assert_eq!(s.read_all(id).len(), 10);
            s.e.abort(Instant(s.now), id);
            s.all();
            served += 1;
        }
    }
    assert_eq!(served, n.div_ceil(1_000));
    assert_eq!((s.e.conn_count(), s.e.memory_bytes()), (0, 0));
    assert!(s.e.request_count() <= 511 && s.e.index().len() <= 511);
}

#[test]
fn a_full_accept_queue_drops_in_silence() {
    let mut s =
        Script::server_with(EngineConfig::default(), ListenOptions { backlog: 1, ..Default::default() });
    for port in [1, 2] {
        s.remote.set_port(port);
        s.inject(full_syn());
        s.expect("S.");
        s.inject(seg(".", 1, 1));
    }
    s.remote.set_port(3);
    s.inject(full_syn());
    s.silent();
    assert_eq!(s.c().drop_syn_accept_queue, 1);
    let l = s.listener.unwrap();
    assert_eq!(s.e.accept_queue_len(l), 2);
    s.e.accept(l).unwrap();
    s.inject(full_syn());
    s.expect("S.");
}

#[test]
fn deferred_accept_waits_for_data() {
    let mut s = Script::server_with(
        EngineConfig::default(),
        ListenOptions { defer_accept_us: 5_000_000, ..Default::default() },
    );
    let l = s.listener.unwrap();
    s.inject(full_syn());
    s.expect("S.");
    s.inject(seg(".", 1, 1));
    s.silent();
    assert_eq!((s.e.accept_queue_len(l), s.e.conn_count()), (0, 0));
    s.inject(seg("P.", 1, 1).data(3));
    assert_eq!(s.e.accept_queue_len(l), 1);
    // Without data the connection is offered when the time is over.
    s.remote.set_port(9);
    s.inject(full_syn());
    s.expect("S.");
    s.inject(seg(".", 1, 1));
    let sent = s.pass(8_000_000);
    assert!(sent.iter().any(|(t, o)| o.flags == "S." && *t >= 5_000_000), "{sent:?}");
    s.inject(seg(".", 1, 1));
    assert_eq!(s.e.accept_queue_len(l), 2);
}

#[test]
fn only_an_exact_rst_ends_a_request() {
    let mut s = Script::server(EngineConfig::default());
    s.inject(full_syn());
    s.expect("S.");
    s.inject(seg("R", 2, 0));
    assert_eq!(s.e.request_count(), 1);
    s.inject(seg("R", 1, 0));
    assert_eq!(s.e.request_count(), 0);
}

#[test]
fn initial_numbers_are_keyed_and_move_with_the_clock() {
    let isn = |key: u8, port: u16, at: u64| {
        let mut sec = secrets();
        sec.isn = [key; 16];
        let mut s = Script::server(EngineConfig::default());
        s.e = Engine::new(EngineConfig::default(), sec, index());
        s.e.listen(ListenAddr::any(80), ListenOptions::default()).unwrap();
        s.remote.set_port(port);
        s.now = at;
        s.inject(full_syn());
        s.expect("S.").raw_seq
    };
    assert_eq!(isn(1, 5, 1_000_000), isn(1, 5, 1_000_000), "every generation gives the same");
    assert_ne!(isn(1, 5, 1_000_000), isn(2, 5, 1_000_000));
    assert_ne!(isn(1, 5, 1_000_000), isn(1, 6, 1_000_000));
    assert_eq!(isn(1, 5, 1_400_000).wrapping_sub(isn(1, 5, 1_000_000)), 100_000, "one each 4 µs");
}

#[test]
fn an_exact_address_goes_before_a_wildcard_and_families_are_kept_apart() {
    let mut e: TestEngine = Engine::new(EngineConfig::default(), secrets(), index());
    let any4 = ListenAddr::from_socket_addr(addr("0.0.0.0:80"), false);
    let any6 = ListenAddr::from_socket_addr(addr("[::]:80"), true);
    let exact = ListenAddr::from_socket_addr(addr("198.18.0.2:80"), false);
    let o = ListenOptions::default;
    e.listen(any4, o()).unwrap();
    e.listen(any6, o()).unwrap();
    let x = e.listen(exact, o()).unwrap();
    assert_eq!(e.listen(exact, o()), Err(ListenError::InUse));
    assert_eq!(e.listen(ListenAddr::any(80), o()), Err(ListenError::InUse));
    assert_eq!(e.listen(ListenAddr::any(0), o()), Err(ListenError::Invalid));
    let mut s = Script::bare(EngineConfig::default());
    s.e = e;
    s.inject(full_syn());
    s.expect("S.");
    s.inject(seg(".", 1, 1));
    assert_eq!(s.e.accept_queue_len(x), 1);
    s.e.close_listener(x);
    s.expect("R.");
    assert_eq!((s.e.conn_count(), s.e.accept_queue_len(x)), (0, 0));
}

#[test]
fn a_full_flow_table_refuses_the_syn_and_counts_it() {
    let mut e = Engine::new(EngineConfig::default(), secrets(), HeapIndex::with_capacity([1; 16], 1));
    e.listen(ListenAddr::any(80), ListenOptions::default()).unwrap();
    let mut s = Script::bare(EngineConfig::default());
    s.e = e;
    s.inject(full_syn());
    s.expect("S.");
    s.remote.set_port(7);
    s.inject(full_syn());
    s.silent();
    assert_eq!((s.c().drop_syn_table_full, s.e.request_count()), (1, 1));
}
