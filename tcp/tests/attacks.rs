//! What an outsider, a late segment or nonsense cannot do (RFC 5961, 7323,
//! 9293), and that no input makes the engine panic.
#![allow(clippy::unwrap_used)]

mod support;
use support::script::*;
use support::*;

#[test]
fn a_rst_in_the_window_is_challenged_and_an_exact_one_ends() {
    let mut s = Script::server(EngineConfig::default());
    let id = s.open();
    s.inject(seg("R", 100, 0));
    let o = s.expect(".");
    assert_eq!((o.seq, o.ack), (1, 1));
    assert_eq!(s.e.state(id), Some(State::Established));
    // Limited per connection: a second guess is not answered at once.
    s.inject(seg("R", 200, 0));
    s.silent();
    s.inject(seg("R", 1, 0));
    s.silent();
    assert_eq!(s.e.read(id, &mut [0; 10]), Err(ReadError::Failed(ConnError::Reset)));
    assert_eq!(s.e.read(id, &mut [0; 10]), Ok(0));
    assert_eq!(s.e.write(s.time(), id, b"x"), Err(WriteError::BrokenPipe));
}

#[test]
fn a_rst_outside_the_window_is_ignored() {
    let mut s = Script::server(EngineConfig::default());
    let id = s.open();
    s.inject(seg("R", 1 + 70_000, 0));
    s.inject(seg("R", -1, 0));
    s.silent();
    assert_eq!(s.e.state(id), Some(State::Established));
}

#[test]
fn a_syn_in_a_connection_is_challenged() {
    let mut s = Script::server(EngineConfig::default());
    let id = s.open();
    s.inject(seg("S", 300, 0));
    let o = s.expect(".");
    assert_eq!((o.seq, o.ack), (1, 1));
    assert_eq!(s.e.state(id), Some(State::Established));
    assert_eq!(s.c().challenge_acks, 1);
}

#[test]
fn challenge_acks_are_limited_for_the_whole_host() {
    let cfg = EngineConfig { challenge_ack_per_s: 10, ..Default::default() };
    let mut s = Script::server(cfg);
    for port in 1..100 {
        s.remote.set_port(port);
        s.open();
    }
    for port in 1..100 {
        s.remote.set_port(port);
        s.inject(seg("R", 100, 0));
    }
    let sent = s.all().len();
    assert!((5..=15).contains(&sent), "{sent}");
    assert!(s.c().challenge_acks_limited > 80);
}

#[test]
fn acknowledgements_of_the_unsent_are_challenged() {
    let mut s = Script::server(EngineConfig::default());
    let id = s.open();
    s.inject(seg("P.", 1, 50_000).data(10));
    s.expect(".");
    assert_eq!(s.e.readable_bytes(id), 0);
    assert_eq!(s.c().drop_bad_ack, 1);
}

#[test]
fn data_whose_ack_is_old_is_not_thrown_away() {
    let mut s = Script::server(EngineConfig::default());
    let id = s.open();
    s.write(id, 3_000);
    s.all();
    // An ACK overtakes the data segment that was sent before it.
    s.inject(seg(".", 11, 3_001));
    s.inject(seg("P.", 1, 1).data(10));
    assert_eq!(s.read_all(id).len(), 10);
    assert_eq!(s.e.unsent_bytes(id), 0);
}

#[test]
fn paws_drops_an_old_duplicate_and_answers() {
    let mut s = Script::server(EngineConfig::default());
    s.ts = true;
    let id = s.open();
    s.now += 1_000_000;
    s.inject(seg("P.", 1, 1).data(10));
    s.pass(100_000);
    let old = ((s.now / 1_000) as u32).wrapping_sub(500_000);
    let seen = s.ts_seen;
    s.inject(seg("P.", 11, 1).data(10).ts(old, seen));
    let o = s.expect(".");
    assert_eq!((o.ack, s.c().drop_paws), (11, 1));
    assert_eq!(s.read_all(id).len(), 10);
}

#[test]
fn urgent_data_is_ordinary_data() {
    let mut s = Script::server(EngineConfig::default());
    let id = s.open();
    s.inject(seg("PU.", 1, 1).data(7));
    assert_eq!(s.read_all(id).len(), 7);
    assert_eq!(s.c().urgent_in, 1);
}

#[test]
fn unknown_and_broken_options_are_skipped() {
    let mut s = Script::server(EngineConfig::default());
    let id = s.open();
    for options in [&[253u8, 4, 1, 2][..], &[8, 200, 0, 0], &[5, 0, 0, 0], &[2], &[30, 1, 1, 1]] {
        let mut b = s.bytes(&seg("P.", 1, 1));
        let mut o = options.to_vec();
        o.resize(o.len().next_multiple_of(4), 1);
        b[12] = (((20 + o.len()) / 4) << 4) as u8;
        b.extend(o);
        b.extend(*b"x");
        let meta = SegmentMeta { src: s.remote.ip(), dst: s.local.ip(), ecn: Ecn::NotEct };
        s.e.on_segment(s.time(), meta, &b, None);
    }
    assert_eq!(s.e.readable_bytes(id), 1, "one byte, five times");
}

#[test]
fn out_of_order_data_is_bounded() {
    let cfg = EngineConfig { rcv_buf_initial_bytes: 65_535, rcv_buf_max_bytes: 65_535, ..Default::default() };
    let mut s = Script::server(cfg);
    let id = s.open();
    for i in 0..20_000 {
        s.inject(seg(".", 3 + 3 * i, 1).data(1));
        s.all();
    }
    assert!(s.c().drop_ooo_limit > 0);
    assert!(s.e.memory_bytes() <= 128 * 1024);
    s.inject(seg("R", 1, 0));
    s.e.close(s.time(), id);
    assert_eq!((s.e.memory_bytes(), s.e.conn_count()), (0, 0));
}

/// Random and mutated segments at every state: nothing panics, loops or stays.
#[test]
fn no_input_makes_it_panic() {
    let rounds = if cfg!(debug_assertions) { 400 } else { 4_000 };
    for seed in 0..rounds {
        let mut r = Rng::new(seed ^ 0xf00d);
        let cfg = EngineConfig {
            msl_us: 100_000,
            fin_wait2_us: 1_000_000,
            mtu_probing: MtuProbing::Always,
            ecn: EcnMode::On,
            ..Default::default()
        };
        let mut s = Script::server(cfg);
        s.ts = r.below(2) == 0;
        let mut id = (r.below(4) != 0)
            .then(|| s.open_with(seg("S", 0, 0).mss(1 + r.below(1_500) as u16).sack_ok().wscale(3)));
        if id.is_none() {
            let (l, p) = (s.local, s.remote);
            id = s.e.connect(s.time(), l, p).ok();
            s.all();
        }
        for _ in 0..100 {
            let near = |r: &mut Rng| match r.below(6) {
                0 => r.next() as u32 as i64,
                1 => r.below(200_000) as i64 - 100_000,
                _ => r.below(5_000) as i64,
            };
            let flags = ["", ".", "P.", "F.", "S", "S.", "R", "R.", "PU.", "SFR.PUEW", "FP.", "E.", "W."];
            let (a, b) = (near(&mut r), near(&mut r));
            let mut x =
                seg(flags[r.below(13) as usize], a, b).data(r.below(1_460) as usize).win(r.next() as u16);
            for _ in 0..r.below(4) {
                let at = near(&mut r);
                x.sacks.push((at, at + r.below(4_000) as i64 - 500));
            }
            if r.below(3) == 0 {
                x.ts = Some((r.next() as u32, r.next() as u32));
                x.sacks.truncate(3);
            }
            let mut bytes = s.bytes(&x);
            for _ in 0..r.below(4) {
                let at = r.below(bytes.len() as u64) as usize;
                if !(0..4).contains(&at) {
                    bytes[at] = r.next() as u8;
                }
            }
            bytes.truncate(r.below(bytes.len() as u64 * 2).min(bytes.len() as u64) as usize);
            let meta =
                SegmentMeta { src: s.remote.ip(), dst: s.local.ip(), ecn: Ecn::from_bits(r.next() as u8) };
            let flow = (r.below(4) == 0).then(|| FlowRef(r.next() as u32));
            s.e.on_segment(s.time(), meta, &bytes, flow);
            if let Some(id) = id {
                match r.below(12) {
                    0..4 => drop(s.e.write(s.time(), id, &vec![1; r.below(20_000) as usize])),
                    4..7 => drop(s.e.read(id, &mut vec![0; r.below(9_000) as usize])),
                    7 if r.below(10) == 0 => s.e.close(s.time(), id),
                    8 if r.below(10) == 0 => s.e.shutdown_write(s.time(), id),
                    9 => {
                        let key = FlowKey::new(6, s.local, s.remote);
                        let mtu = r.next() as u16;
                        let at = s.iss.wrapping_add(r.below(10_000) as u32);
                        s.e.on_icmp_error(s.time(), &key, IcmpError::TooBig { mtu }, Some(at));
                    }
                    _ => {}
                }
            }
            let out = s.pass(r.below(3) * r.below(500_000));
            assert!(out.len() < 20_000);
            while s.e.poll_event().is_some() {}
        }
        if let Some(id) = id {
            s.e.abort(s.time(), id);
        }
        let l = s.listener.unwrap();
        s.e.close_listener(l);
        s.pass(4_000_000_000);
        assert_eq!(
            (
                s.e.conn_count(),
                s.e.time_wait_count(),
                s.e.request_count(),
                s.e.index().len(),
                s.e.memory_bytes()
            ),
            (0, 0, 0, 0, 0),
            "seed {seed}"
        );
    }
}
