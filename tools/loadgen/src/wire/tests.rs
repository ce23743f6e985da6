use std::collections::HashMap;

use ff_dataplane::io::memory::{MemoryIo, MemoryNet, PortId, PortSettings};

use super::*;

fn ipv4_tcp(source_port: u16, flags_and_offset: u16) -> Vec<u8> {
    let mut frame = vec![0; 54];
    frame[12..14].copy_from_slice(&ETHERTYPE_IPV4);
    frame[14] = 0x45;
    frame[20..22].copy_from_slice(&flags_and_offset.to_be_bytes());
    frame[23] = TCP;
    frame[26..30].copy_from_slice(&[198, 18, 0, 1]);
    frame[30..34].copy_from_slice(&[198, 18, 0, 2]);
    frame[34..36].copy_from_slice(&source_port.to_be_bytes());
    frame[36..38].copy_from_slice(&80u16.to_be_bytes());
    frame
}

fn ipv6(protocol: u8, first_bytes: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![0; 74];
    frame[12..14].copy_from_slice(&ETHERTYPE_IPV6);
    frame[14] = 0x60;
    frame[20] = protocol;
    frame[54..58].copy_from_slice(&first_bytes);
    frame
}

#[test]
fn a_flow_stays_and_flows_spread() {
    const DF: u16 = 0x4000;
    let mut counts: HashMap<u32, u32> = HashMap::new();
    for port in 32_768..36_768 {
        let frame = ipv4_tcp(port, DF);
        let Route::Flow(hash) = route(&frame) else { panic!("no flow") };
        let mut longer = frame.clone();
        longer.extend_from_slice(b"payload");
        assert_eq!(route(&longer), Route::Flow(hash));
        *counts.entry(hash % 4).or_default() += 1;
    }
    assert!(counts.values().all(|&count| (900..1_100).contains(&count)), "{counts:?}");
}

#[test]
fn ipv6_flows_spread_too() {
    let queue = |port: u16| {
        let [high, low] = port.to_be_bytes();
        match route(&ipv6(TCP, [high, low, 0, 80])) {
            Route::Flow(hash) => hash % 2,
            Route::All => panic!("no flow"),
        }
    };
    let first = (0..1_000).filter(|&port| queue(port) == 0).count();
    assert!((400..600).contains(&first), "{first}");
}

#[test]
fn fragments_stay_together_and_neighbour_discovery_goes_everywhere() {
    assert_eq!(route(&ipv4_tcp(1, 0x2000)), route(&ipv4_tcp(2, 0x0010)));
    let mut arp = vec![0; 42];
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    assert_eq!(route(&arp), Route::All);
    for kind in 133..=137 {
        assert_eq!(route(&ipv6(ICMPV6, [kind, 0, 0, 0])), Route::All);
    }
    assert_ne!(route(&ipv6(ICMPV6, [128, 0, 0, 0])), Route::All);
}

#[test]
fn no_length_is_too_short() {
    let frames = [ipv4_tcp(1, 0), ipv6(TCP, [1, 2, 3, 4])];
    for frame in frames {
        for len in 0..frame.len() {
            route(&frame[..len]);
        }
    }
}

/// Two queues, each a port of its own; and the far ends.
fn joined(net: &MemoryNet) -> (Queues<MemoryIo>, Vec<MemoryIo>) {
    let me = WorkerRef { slot: 0, index: 0 };
    let attach = |port: PortId| net.attach(port, me, &[0]);
    let pairs = [0, 1].map(|_| net.pair(PortSettings::default(), PortSettings::default()));
    let queues = Queues::new(pairs.map(|(near, _)| attach(near)).into()).unwrap();
    (queues, pairs.map(|(_, far)| attach(far)).into())
}

fn send(io: &mut impl PacketIo, bytes: &[u8]) {
    let mut frame = io.alloc().unwrap();
    frame.set_len(bytes.len());
    frame.bytes_mut().copy_from_slice(bytes);
    io.transmit(frame);
    io.flush();
}

fn received(io: &mut impl PacketIo) -> Vec<Vec<u8>> {
    let mut burst = Vec::new();
    while io.receive(&mut burst) > 0 {}
    burst.iter().map(|frame| frame.bytes().to_vec()).collect()
}

#[test]
fn frames_go_to_their_queue_and_come_from_all() {
    let net = MemoryNet::new(1);
    let (mut queues, mut far) = joined(&net);
    let arp = [&[0; 12][..], &[0x08, 0x06], &[0; 28]].concat();
    send(&mut queues, &arp);
    let mut flows = 0;
    for port in 0..64 {
        send(&mut queues, &ipv4_tcp(port, 0));
    }
    net.set_now(1_000);
    for io in &mut far {
        let frames = received(io);
        assert_eq!(frames[0], arp);
        assert!(frames.len() > 10);
        flows += frames.len() - 1;
    }
    assert_eq!(flows, 64);
    for io in &mut far {
        for _ in 0..40 {
            send(io, &arp);
        }
    }
    net.set_now(2_000);
    assert_eq!(received(&mut queues).len(), 80);
    assert_eq!(queues.counters().tx_frames, 66);
    assert_eq!(queues.counters().rx_frames, 80);
}
