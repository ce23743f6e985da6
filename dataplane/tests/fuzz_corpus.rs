//! The fuzz targets of `fuzz/`, run over their small corpus and seeded variations of it: what libFuzzer does
//! without end, for a moment, with an ordinary compiler.

mod support;
#[path = "../../fuzz/targets.rs"]
#[allow(dead_code)]
mod targets;

use std::path::{Path, PathBuf};

use ff_dataplane::io::memory::Rng;
use support::packets::*;
use support::{PEER_MAC, STACK_MAC, addr, ip};

/// Variations of each file of the corpus.
const VARIATIONS: u32 = if cfg!(debug_assertions) { 2_000 } else { 20_000 };

fn seeds_of(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds").join(target)
}

fn replay(target: &str, run: fn(&[u8])) {
    let mut files: Vec<PathBuf> = std::fs::read_dir(seeds_of(target))
        .unwrap_or_else(|error| panic!("no corpus of {target}: {error}"))
        .map(|entry| entry.expect("a file").path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "the corpus of {target} is empty");
    let seeds: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).expect("read")).collect();
    let mut rng = Rng::new(0xc0ffee);
    run(&[]);
    for seed in &seeds {
        run(seed);
        for _ in 0..VARIATIONS {
            run(&vary(seed, &seeds, &mut rng));
        }
    }
}

fn vary(seed: &[u8], seeds: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut data = seed.to_vec();
    for _ in 0..=rng.up_to(3) {
        let at = rng.up_to(data.len() as u64) as usize;
        match rng.up_to(6) {
            0 => data.truncate(at),
            1 => data.insert(at, rng.next_u64() as u8),
            2 if at < data.len() => drop(data.remove(at)),
            3 => {
                let other = &seeds[rng.up_to(seeds.len() as u64 - 1) as usize];
                let from = rng.up_to(other.len() as u64) as usize;
                data.truncate(at);
                data.extend_from_slice(&other[from..]);
            }
            _ if at < data.len() => {
                data[at] = match rng.up_to(3) {
                    0 => [0, 1, 0x7f, 0x80, 0xff][rng.up_to(4) as usize],
                    1 => data[at] ^ 1 << rng.up_to(7),
                    _ => rng.next_u64() as u8,
                };
            }
            _ => {}
        }
    }
    data
}

/// One test for each target.
mod replayed {
    macro_rules! replay_tests {
        ($($target:ident,)*) => { $(
            #[test]
            fn $target() {
                super::replay(stringify!($target), super::targets::$target);
            }
        )* };
    }

    replay_tests! {
        ip_dispatch, link_messages, icmp, reassembly, tcp_segments, stack_frames, config_text, export_record,
    }
}

/// Writes the corpus anew: `cargo test -p ff-dataplane --test fuzz_corpus -- --ignored`.
#[test]
#[ignore = "writes the files that the other tests read"]
fn write_corpus() {
    let write = |target: &str, name: &str, bytes: &[u8]| {
        std::fs::create_dir_all(seeds_of(target)).expect("made");
        std::fs::write(seeds_of(target).join(name), bytes).expect("written");
    };
    let (c4, s4, c6, s6) = (ip("198.18.0.1"), ip("198.18.0.2"), ip("2001:2::1"), ip("2001:2::2"));
    let (client4, client6) = (addr("198.18.0.1:2048"), addr("[2001:2::1]:2048"));
    let (web4, web6) = (addr("198.18.0.2:80"), addr("[2001:2::2]:80"));
    let options = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];
    let sent4 = tcp(web4, client4, 9, 1, 0x10, &[], b"from us");
    let sent6 = udp(web6, client6, b"from us");
    let quoted = |frame: &[u8]| [&[0, 0, 5, 0][..], &frame[14..]].concat();
    let hop_by_hop = [&[17, 0, 5, 2, 0, 0, 1, 0][..], &udp_bytes(client6, web6, b"x")].concat();
    let frames: Vec<(&str, Vec<u8>)> = vec![
        ("arp", arp(1, ([198, 18, 0, 1], PEER_MAC), ([198, 18, 0, 2], [0; 6]))),
        ("echo4", icmp(c4, s4, 8, 0, &[0, 1, 0, 1, 1, 2, 3, 4])),
        ("echo6", icmp(c6, s6, 128, 0, &[0, 1, 0, 1, 1, 2, 3, 4])),
        ("unreachable4", icmp(c4, s4, 3, 3, &quoted(&sent4))),
        ("too_big6", icmp(c6, s6, 2, 0, &quoted(&sent6))),
        ("solicitation", solicitation(c6, ip("ff02::1:ff00:2"), s6, Some(PEER_MAC))),
        ("syn4", tcp(client4, web4, 7, 0, 2, &options, &[])),
        ("syn6", tcp(client6, web6, 7, 0, 2, &options, &[])),
        ("data4", tcp(client4, web4, 8, 1, 0x18, &[], b"GET / HTTP/1.1\r\n\r\n")),
        ("udp4", udp(client4, web4, b"question")),
        ("udp6", udp(client6, web6, b"question")),
        ("options4", ipv4(c4, s4, 17, (1, 0), &[7, 7, 4, 0, 0, 0, 0, 0], &udp_bytes(client4, web4, b"x"))),
        ("hop_by_hop6", ipv6(c6, s6, 0, 64, &hop_by_hop)),
        ("vlan", vlan(1, &udp(client4, web4, b"tagged"))),
        ("fragment4", fragments_v4(c4, s4, 17, 1, &udp_bytes(client4, web4, &[7; 64]), 40).remove(0)),
        ("fragment6", fragments_v6(c6, s6, 17, 1, &udp_bytes(client6, web6, &[7; 64]), 40).remove(1)),
    ];
    let piece = |bytes: &[u8]| [&(bytes.len() as u16).to_le_bytes()[..], bytes].concat();
    for (name, frame) in &frames {
        write("ip_dispatch", name, frame);
    }
    let all: Vec<u8> = frames.iter().flat_map(|(_, frame)| piece(frame)).collect();
    write("stack_frames", "all", &all);
    let handshake = [
        piece(&tcp(client4, web4, 7, 0, 2, &options, &[])),
        piece(&tcp(client4, web4, 8, 1, 0x18, &[], b"GET")),
        piece(&udp(client4, web4, b"question")),
    ];
    write("stack_frames", "handshake", &handshake.concat());
    write("link_messages", "arp", &frames[0].1[14..]);
    write("link_messages", "solicitation", &frames[5].1[54..]);
    let answer = advertisement(c6, s6, c6, 0x60, STACK_MAC);
    write("link_messages", "advertisement", &answer[54..]);
    write("icmp", "unreachable4", &frames[3].1[34..]);
    write("icmp", "too_big6", &frames[4].1[54..]);
    let part = |v6: u8, id: u8, offset: u16, more: bool, bytes: &[u8]| {
        let offset = offset.to_le_bytes();
        piece(&[&[v6 | u8::from(more) << 1 | id << 2, offset[0], offset[1], 1][..], bytes].concat())
    };
    let datagram = udp_bytes(client4, web4, &[7; 56]);
    let in_order = [part(0, 1, 0, true, &datagram[..32]), part(0, 1, 32, false, &datagram[32..])];
    write("reassembly", "in_order", &in_order.concat());
    let overlap =
        [part(1, 2, 32, false, &[5; 32]), part(1, 2, 0, true, &[5; 40]), part(1, 2, 0, true, &[5; 32])];
    write("reassembly", "overlap", &overlap.concat());
    let segment = |seq, ack, flags, options: &[u8], payload: &[u8]| {
        piece(&tcp(client4, web4, seq, ack, flags, options, payload)[34..])
    };
    let conversation = [
        segment(7, 0, 2, &options, b""),
        segment(8, 1, 0x18, &[1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0], b"GET / HTTP/1.1\r\n\r\n"),
        segment(60, 1, 0x18, &[], b"out of order"),
        segment(26, 1, 0x11, &[], b""),
    ];
    write("tcp_segments", "conversation", &conversation.concat());
    let sack = [1, 1, 5, 10, 0, 0, 0, 20, 0, 0, 0, 40];
    write(
        "tcp_segments",
        "sack_and_reset",
        &[segment(7, 0, 2, &options, b""), segment(8, 1, 0x14, &sack, b"")].concat(),
    );
    let text = "[dpdk]\nlcore_mask=3\nport_list=0\n\n[port0]\naddr=198.18.0.2\nnetmask=255.255.255.0\n\
                gateway=198.18.0.1\naddr6=2001:2::2\nprefix_len=64\n\n[freebsd.sysctl]\nnet.inet.tcp.cc.algorithm=cubic\n";
    write("config_text", "small", text.as_bytes());
    write("export_record", "established", &exported());
}

/// The body of a record of a connection with data both ways.
fn exported() -> Vec<u8> {
    use ff_tcp::{Engine, EngineConfig, Instant, SegmentMeta};
    let secrets = ff_tcp::Secrets { isn: [1; 16], timestamp: [2; 16], cookie: [3; 16] };
    let index = || ff_flowmap::HeapIndex::new([9; 16]);
    let mut server = Engine::new(EngineConfig::default(), secrets.clone(), index());
    let mut client = Engine::new(EngineConfig::default(), secrets, index());
    let (s, c) = (addr("198.18.0.2:80"), addr("198.18.0.1:2048"));
    let listener =
        server.listen(ff_tcp::ListenAddr::any(80), ff_tcp::ListenOptions::default()).expect("listening");
    let now = Instant(1_000_000);
    let conn = client.connect(now, c, s).expect("connecting");
    let mut buf = [0; 1_500];
    let mut pump = |server: &mut Engine<_>, client: &mut Engine<_>| {
        for _ in 0..20 {
            while let Some(sent) = client.poll_transmit(now, &mut buf) {
                let meta = SegmentMeta { src: c.ip(), dst: s.ip(), ecn: sent.ecn };
                server.on_segment(now, meta, &buf[..sent.len], None);
            }
            while let Some(sent) = server.poll_transmit(now, &mut buf) {
                let meta = SegmentMeta { src: s.ip(), dst: c.ip(), ecn: sent.ecn };
                client.on_segment(now, meta, &buf[..sent.len], None);
            }
        }
    };
    pump(&mut server, &mut client);
    let accepted = server.accept(listener).expect("accepted");
    client.write(now, conn, b"unread by the server").expect("written");
    pump(&mut server, &mut client);
    server.write(now, accepted, b"unsent by the server").expect("written");
    let mut record = Vec::new();
    server.export(now, accepted, &mut record).expect("exported");
    record.split_off(20)
}
