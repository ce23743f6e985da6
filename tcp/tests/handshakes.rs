//! Handshakes and connections that nobody has accepted: handed to another engine as a whole, SYN cookies of another
//! engine, repetitions.
#![allow(clippy::unwrap_used)]

mod support;
use support::script::*;
use support::*;

fn full_syn() -> In {
    seg("S", 0, 0).mss(1_460).sack_ok().wscale(7)
}

/// An engine with a listener in place of the script's; the records of what waited at the old one's.
fn replace(s: &mut Script) -> Vec<Vec<u8>> {
    let (now, listener) = (s.time(), s.listener.unwrap());
    let mut records = Vec::new();
    assert!(s.e.give_unaccepted(now, listener, |record| {
        records.push(record.to_vec());
        true
    }));
    s.e.close_listener(listener);
    s.silent();
    assert_eq!((s.e.request_count(), s.e.conn_count(), s.e.index().len(), s.e.memory_bytes()), (0, 0, 0, 0));
    let mut other = Engine::new(s.e.config().clone(), secrets(), index());
    s.listener = Some(other.listen(ListenAddr::any(80), ListenOptions::default()).unwrap());
    s.e = other;
    records
}

/// The peer's port of the next connection to be accepted.
fn accepted_port(s: &mut Script) -> u16 {
    let id = s.e.accept(s.listener.unwrap()).unwrap();
    s.e.remote_addr(id).unwrap().port()
}

fn import(s: &mut Script, record: &[u8]) {
    let now = s.time();
    match s.e.import_request(now, record) {
        Err(ImportError::Magic) => s.e.import_unaccepted(now, record).unwrap(),
        result => result.unwrap(),
    }
}

#[test]
fn a_handshake_half_done_ends_at_the_other_engine() {
    for ts in [false, true] {
        let mut s = Script::server(EngineConfig::default());
        s.ts = ts;
        s.inject(full_syn().mss(1_300));
        let first = s.expect("S.");
        let records = replace(&mut s);
        assert_eq!(records.len(), 1);
        import(&mut s, &records[0]);
        assert_eq!((s.e.request_count(), s.e.index().len()), (1, 1));
        // The same twice is refused, and nothing happens.
        assert_eq!(s.e.import_request(s.time(), &records[0]), Err(ImportError::InUse));
        // Its SYN-ACK is repeated as the first one was, ...
        let again = s.pass(1_100_000);
        assert_eq!(again.len(), 1);
        assert_eq!((again[0].1.raw_seq, again[0].1.ack), (first.raw_seq, first.ack));
        // ... the ACK of either opens the connection, and data flows.
        s.inject(seg("P.", 1, 1).data(5));
        let id = s.e.accept(s.listener.unwrap()).unwrap();
        assert_eq!(s.read_all(id).len(), 5);
        let info = s.e.info(id).unwrap();
        assert_eq!((info.snd_wscale, info.sack, info.timestamps), (7, true, ts));
        assert_eq!(info.snd_mss, if ts { 1_288 } else { 1_300 });
    }
}

#[test]
fn connections_that_nobody_accepted_keep_their_order_and_their_bytes() {
    let mut s = Script::server(EngineConfig::default());
    for port in [1, 2, 3] {
        s.remote.set_port(port);
        s.inject(full_syn());
        s.expect("S.");
        s.inject(seg("P.", 1, 1).data(usize::from(port) * 400));
    }
    // And one that is half open.
    s.remote.set_port(4);
    s.inject(full_syn());
    s.all();
    let records = replace(&mut s);
    assert_eq!(records.len(), 4);
    records.iter().for_each(|record| import(&mut s, record));
    let l = s.listener.unwrap();
    assert_eq!((s.e.accept_queue_len(l), s.e.listener_request_count(l)), (3, 1));
    assert!(matches!(s.e.poll_event(), Some(Event { socket: SocketRef::Listener(x), .. }) if x == l));
    for port in [1, 2, 3] {
        let id = s.e.accept(l).unwrap();
        assert_eq!(s.e.remote_addr(id).unwrap().port(), port);
        assert_eq!(s.read_all(id).len(), usize::from(port) * 400);
    }
    s.inject(seg(".", 1, 1));
    assert_eq!(accepted_port(&mut s), 4);
}

#[test]
fn what_is_not_taken_stays() {
    let mut s = Script::server(EngineConfig::default());
    for port in [1, 2, 3] {
        s.remote.set_port(port);
        s.inject(full_syn());
        s.expect("S.");
        if port == 1 {
            s.inject(seg(".", 1, 1));
        }
    }
    let l = s.listener.unwrap();
    let mut room = 2;
    let mut give = |record: &[u8]| {
        assert!(!record.is_empty());
        room -= 1;
        room >= 0
    };
    assert!(!s.e.give_unaccepted(Instant(s.now), l, &mut give));
    assert_eq!((s.e.accept_queue_len(l), s.e.listener_request_count(l), s.e.index().len()), (0, 1, 1));
    // Its handshake goes on here.
    s.inject(seg(".", 1, 1));
    assert_eq!(s.e.accept_queue_len(l), 1);
    assert!(s.e.give_unaccepted(Instant(s.now), l, |_| true));
    assert_eq!((s.e.conn_count(), s.e.index().len()), (0, 0));
}

#[test]
fn a_handshake_without_a_listener_is_reset() {
    let mut s = Script::server(EngineConfig::default());
    s.inject(full_syn());
    s.expect("S.");
    let records = replace(&mut s);
    s.e.close_listener(s.listener.unwrap());
    import(&mut s, &records[0]);
    let o = s.expect("R.");
    assert_eq!((o.seq, o.ack), (1, 1));
    assert_eq!((s.e.request_count(), s.e.index().len()), (0, 0));
}

#[test]
fn damaged_records_of_handshakes_are_refused() {
    let mut s = Script::server(EngineConfig::default());
    s.inject(full_syn());
    s.expect("S.");
    let record = replace(&mut s).remove(0);
    let now = s.time();
    for at in 0..record.len() {
        // The flags of the header mean nothing yet.
        if at == 6 || at == 7 {
            continue;
        }
        let mut bad = record.clone();
        bad[at] ^= 0x10;
        assert!(s.e.import_request(now, &bad).is_err(), "byte {at}");
        assert!(s.e.import_request(now, &record[..at]).is_err());
    }
    assert_eq!((s.e.request_count(), s.e.index().len()), (0, 0));
    s.e.import_request(now, &record).unwrap();
}

#[test]
fn a_cookie_of_another_engine_is_believed_when_one_is_expected() {
    let options = || ListenOptions { backlog: 1, ..Default::default() };
    for expected in [false, true] {
        let mut s = Script::server_with(EngineConfig::default(), options());
        s.remote.set_port(1);
        s.inject(full_syn());
        s.expect("S.");
        s.remote.set_port(2);
        s.inject(full_syn());
        s.expect("S.");
        assert_eq!(s.c().cookies_sent, 1);
        // The next generation has the receive side from here on.
        s.e = Engine::new(EngineConfig::default(), secrets(), index());
        let l = s.e.listen(ListenAddr::any(80), options()).unwrap();
        if expected {
            s.e.expect_cookies(Instant(s.now));
        }
        s.now += 50_000;
        s.inject(seg(".", 1, 1));
        if expected {
            s.listener = Some(l);
            assert_eq!(accepted_port(&mut s), 2);
            s.silent();
            // A guess still is none, and the expectation ends.
            s.remote.set_port(3);
            s.inject(seg(".", 1, 77));
            s.expect("R");
            assert_eq!(s.c().cookies_bad, 1);
            s.pass(130_000_000);
            s.inject(seg(".", 1, 78));
            s.expect("R");
            assert_eq!(s.c().cookies_bad, 1, "not even looked at");
        } else {
            s.expect("R");
            assert_eq!(s.e.conn_count(), 0);
        }
    }
}

#[test]
fn a_repeated_syn_ack_gives_no_round_trip_without_a_timestamp() {
    for ts in [false, true] {
        let mut s = Script::server(EngineConfig::default());
        s.ts = ts;
        s.inject(full_syn());
        s.expect("S.");
        let first_ts = s.ts_seen;
        // The SYN comes once more a while later; the ACK that follows at once is the first answer's.
        s.now += 300_000;
        s.inject(full_syn());
        s.expect("S.");
        s.now += 1_000;
        s.ts_seen = first_ts;
        s.inject(seg(".", 1, 1));
        let id = s.e.accept(s.listener.unwrap()).unwrap();
        let info = s.e.info(id).unwrap();
        if ts {
            assert!((300_000..=302_000).contains(&info.rtt_us), "{}", info.rtt_us);
        } else {
            assert_eq!(info.rtt_us, 0, "whose ACK it is nobody can say");
        }
    }
}

#[test]
fn repeated_syns_are_answered_twice_a_second() {
    let mut s = Script::server(EngineConfig::default());
    s.inject(full_syn());
    s.expect("S.");
    let mut answers = 0;
    // Up to the first repetition by the timer.
    for _ in 0..95 {
        s.now += 10_000;
        s.inject(full_syn());
        answers += s.all().len();
    }
    assert_eq!((answers, s.c().synack_retrans, s.c().synack_limited), (2, 2, 93));
    // Many in one burst, before any answer goes out.
    let mut s = Script::server(EngineConfig::default());
    (0..50).for_each(|_| s.inject(full_syn()));
    assert_eq!(s.all().len(), 2);
}

#[test]
fn the_timestamp_of_the_last_syn_is_echoed() {
    let mut s = Script::server(EngineConfig::default());
    s.inject(full_syn().ts(100, 0));
    assert_eq!(s.expect("S.").ts.unwrap().1, 100);
    s.now += 600_000;
    s.inject(full_syn().ts(700, 0));
    assert_eq!(s.expect("S.").ts.unwrap().1, 700, "or the peer takes its time-out for a round trip");
    // Not one from the past.
    s.now += 600_000;
    s.inject(full_syn().ts(50, 0));
    assert_eq!(s.expect("S.").ts.unwrap().1, 700);
}

/// Three connections that this end has closed first, and their peers after it.
fn three_in_time_wait() -> Script {
    let mut s = Script::server(EngineConfig::default());
    s.ts = true;
    for port in [1, 2, 3] {
        s.remote.set_port(port);
        s.inject(full_syn());
        s.expect("S.");
        s.inject(seg(".", 1, 1));
        let id = s.e.accept(s.listener.unwrap()).unwrap();
        s.e.close(Instant(s.now), id);
        s.expect("F.");
        s.inject(seg("F.", 1, 2));
        s.expect(".");
        s.now += 1_000_000;
    }
    assert_eq!((s.e.time_wait_count(), s.e.conn_count()), (3, 0));
    s
}

/// The records of all of its TIME-WAIT entries, and another engine with a listener in its place.
fn replace_time_waits(s: &mut Script) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    assert!(s.e.give_time_waits(s.time(), |record| {
        records.push(record.to_vec());
        true
    }));
    assert_eq!((s.e.time_wait_count(), s.e.index().len()), (0, 0));
    s.e = Engine::new(s.e.config().clone(), secrets(), index());
    s.listener = Some(s.e.listen(ListenAddr::any(80), ListenOptions::default()).unwrap());
    records
}

#[test]
fn time_wait_goes_on_and_ends_at_the_other_engine() {
    let mut s = three_in_time_wait();
    let ends = 60_000_000 - 1_000_000;
    let records = replace_time_waits(&mut s);
    assert_eq!(records.len(), 1);
    s.e.import_time_waits(s.time(), &records[0]).unwrap();
    assert_eq!((s.e.time_wait_count(), s.e.index().len()), (3, 3));
    // The same once more changes nothing.
    s.e.import_time_waits(s.time(), &records[0]).unwrap();
    assert_eq!(s.e.time_wait_count(), 3);
    // The FIN again is acknowledged, by the numbers of the connection.
    s.remote.set_port(2);
    s.inject(seg("F.", 1, 2));
    let o = s.expect(".");
    assert_eq!(o.ack, 2);
    // A new connection from the same port is one.
    s.remote.set_port(3);
    s.now += 10_000;
    s.irs = s.irs.wrapping_add(100_000);
    s.inject(full_syn());
    s.expect("S.");
    s.inject(seg(".", 1, 1));
    assert!(s.e.accept(s.listener.unwrap()).is_some());
    assert_eq!((s.c().time_wait_reused, s.e.time_wait_count()), (1, 2));
    // The first ends 60 s after it began, wherever it has been since; the second began anew with its FIN.
    s.pass(ends - 3 * 1_000_000);
    assert_eq!(s.e.time_wait_count(), 2);
    s.pass(1_100_000);
    assert_eq!(s.e.time_wait_count(), 1);
    s.pass(3_000_000);
    assert_eq!(s.e.time_wait_count(), 0);
}

#[test]
fn entries_of_two_engines_end_in_their_order() {
    let mut s = three_in_time_wait();
    let records = replace_time_waits(&mut s);
    // The other engine has some of its own by now, younger ones.
    for port in [11, 12] {
        s.remote.set_port(port);
        s.inject(full_syn());
        s.expect("S.");
        s.inject(seg(".", 1, 1));
        let id = s.e.accept(s.listener.unwrap()).unwrap();
        s.e.close(Instant(s.now), id);
        s.expect("F.");
        s.inject(seg("F.", 1, 2));
        s.expect(".");
        s.now += 1_000_000;
    }
    s.e.import_time_waits(s.time(), &records[0]).unwrap();
    let left: Vec<usize> = (0..6)
        .map(|second| {
            s.pass(if second == 0 { 55_500_000 } else { 1_000_000 });
            s.e.time_wait_count()
        })
        .collect();
    assert_eq!(left, [4, 3, 2, 1, 0, 0]);
    assert_eq!(s.e.index().len(), 0);
}

#[test]
fn many_entries_take_several_records_and_what_is_not_taken_stays() {
    let mut s = Script::server(EngineConfig { time_wait_max: 1_000, ..Default::default() });
    for port in 1..=60 {
        s.remote.set_port(port);
        s.inject(full_syn());
        s.expect("S.");
        s.inject(seg(".", 1, 1));
        let id = s.e.accept(s.listener.unwrap()).unwrap();
        s.e.close(Instant(s.now), id);
        s.expect("F.");
        s.inject(seg("F.", 1, 2));
        s.expect(".");
    }
    let mut room = 2;
    assert!(!s.e.give_time_waits(Instant(s.now), |record| {
        assert!(record.len() < 1_400, "{} bytes", record.len());
        room -= 1;
        room >= 0
    }));
    assert_eq!((s.e.time_wait_count(), s.e.index().len()), (12, 12));
    assert!(s.e.give_time_waits(Instant(s.now), |_| true));
    // Damaged ones are refused whole.
    let mut s = three_in_time_wait();
    let record = replace_time_waits(&mut s).remove(0);
    for at in (0..record.len()).filter(|at| !(6..8).contains(at)) {
        let mut bad = record.clone();
        bad[at] ^= 4;
        assert!(s.e.import_time_waits(s.time(), &bad).is_err(), "byte {at}");
    }
    assert_eq!((s.e.time_wait_count(), s.e.index().len()), (0, 0));
}
