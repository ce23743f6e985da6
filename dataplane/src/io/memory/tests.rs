//! The network of tests does what its settings say, and the same for the same seed.

use super::*;
use crate::io::{ChecksumState, Frame};

fn net(seed: u64, faults: Faults) -> (MemoryNet, MemoryIo, MemoryIo) {
    let net = MemoryNet::new(seed);
    let (a, b) = net.pair(PortSettings::default(), PortSettings::default());
    net.set_faults(a, faults);
    let worker = WorkerRef { slot: 0, index: 0 };
    let (a, b) = (net.attach(a, worker, &[0]), net.attach(b, worker, &[0]));
    (net, a, b)
}

fn frame(io: &mut MemoryIo, number: u32) -> HeapFrame {
    let mut frame = io.alloc().expect("a frame");
    let mut bytes = vec![0; 60];
    bytes[12..14].copy_from_slice(&[8, 0]);
    bytes[20..24].copy_from_slice(&number.to_be_bytes());
    frame.fill(&bytes);
    frame
}

/// Sends `count` frames 100 µs apart, and gives what arrives with its time.
fn run(seed: u64, faults: Faults, count: u32) -> Vec<(u64, Vec<u8>)> {
    let (net, mut a, mut b) = net(seed, faults);
    let mut arrived = Vec::new();
    let mut burst = Vec::new();
    for n in 0..count + 2_000 {
        net.set_now(u64::from(n) * 100);
        if n < count {
            let frame = frame(&mut a, n);
            a.transmit(frame);
            a.flush();
        }
        while b.receive(&mut burst) > 0 {}
        arrived.extend(burst.drain(..).map(|frame| (net.now_us(), frame.bytes().to_vec())));
    }
    assert_eq!(net.next_arrival_us(), None);
    arrived
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[20], bytes[21], bytes[22], bytes[23]])
}

#[test]
fn a_good_wire_brings_everything_in_order_and_in_time() {
    let arrived = run(1, Faults { delay_us: 700, ..Faults::NONE }, 500);
    assert_eq!(arrived.len(), 500);
    for (n, (at_us, bytes)) in arrived.iter().enumerate() {
        assert_eq!((number(bytes), *at_us), (n as u32, n as u64 * 100 + 700));
    }
}

#[test]
fn faults_come_as_often_as_they_should() {
    let faults = Faults {
        loss_ppm: 100_000,
        duplicate_ppm: 50_000,
        corrupt_ppm: 20_000,
        reorder_ppm: 50_000,
        reorder_us: 5_000,
        delay_us: 100,
        jitter_us: 50,
    };
    let arrived = run(2, faults, 20_000);
    assert!((18_000..20_000).contains(&arrived.len()), "{} of 20 000", arrived.len());
    let late = arrived.windows(2).filter(|pair| number(&pair[1].1) < number(&pair[0].1)).count();
    assert!((300..3_000).contains(&late), "{late} out of order");
    let clean = |bytes: &[u8]| bytes[14..20].iter().chain(&bytes[24..]).all(|byte| *byte == 0);
    let spoilt = arrived.iter().filter(|(_, bytes)| !clean(bytes) || number(bytes) >= 20_000).count();
    assert!((200..600).contains(&spoilt), "{spoilt} spoilt");
    assert_eq!(arrived, run(2, faults, 20_000), "the same seed");
    assert_ne!(arrived, run(3, faults, 20_000), "another seed");
}

#[test]
fn queues_are_steered_by_flow_and_bounded() {
    let net = MemoryNet::new(1);
    let settings = PortSettings { queues: 4, queue_frames: 100, ..PortSettings::default() };
    let port = net.add_port(settings);
    let worker = |index| WorkerRef { slot: 0, index };
    let mut workers: Vec<_> = (0..4).map(|index| net.attach(port, worker(index), &[index])).collect();
    let mut bytes = vec![0; 60];
    bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
    bytes[23] = 6;
    let mut sent = 0;
    for flow in 0..64u8 {
        bytes[34] = flow;
        for _ in 0..4 {
            sent += u32::from(net.inject(port, &bytes));
        }
    }
    let mut burst = Vec::new();
    let mut seen = std::collections::BTreeMap::new();
    let mut received = 0;
    for (index, io) in workers.iter_mut().enumerate() {
        while io.receive(&mut burst) > 0 {
            for frame in burst.drain(..) {
                received += 1;
                assert_eq!(*seen.entry(frame.bytes()[34]).or_insert(index), index, "a flow has one queue");
            }
        }
    }
    assert_eq!((received, sent), (256, 256));
    assert!((0..4).all(|index| seen.values().any(|queue| *queue == index)), "every queue has flows");
    for _ in 0..200 {
        net.inject(port, &bytes);
    }
    assert_eq!(net.dropped(port), 100);
}

#[test]
fn forwarding_goes_to_the_inbox_and_a_dead_worker_has_none() {
    let (net, mut a, _b) = net(1, Faults::NONE);
    let port = PortIds::first();
    let other = WorkerRef { slot: 1, index: 0 };
    let mut io = net.attach(port, other, &[]);
    let forwarded = frame(&mut a, 5);
    assert!(a.forward(other, forwarded).is_ok());
    let mut burst = Vec::new();
    assert_eq!(io.receive(&mut burst), 0);
    assert_eq!(io.receive_forwarded(&mut burst), 1);
    assert_eq!(number(burst[0].bytes()), 5);
    net.detach(port, other);
    let forwarded = frame(&mut a, 6);
    let back = a.forward(other, forwarded).expect_err("given back");
    assert_eq!(number(back.bytes()), 6);
    assert_eq!((a.counters().forwarded, a.counters().forward_full), (1, 1));
}

/// The first port that a network makes.
struct PortIds;
impl PortIds {
    fn first() -> PortId {
        MemoryNet::new(0).add_port(PortSettings::default())
    }
}

#[test]
fn frames_go_back_to_their_pool() {
    let net = MemoryNet::new(1);
    let settings = PortSettings { pool_frames: 3, trust_checksums: true, ..PortSettings::default() };
    let (a, b) = net.pair(settings, settings);
    let worker = WorkerRef { slot: 0, index: 0 };
    let (mut a, mut b) = (net.attach(a, worker, &[0]), net.attach(b, worker, &[0]));
    let frames: Vec<_> = (0..3).map(|n| frame(&mut a, n)).collect();
    assert!(a.alloc().is_none());
    assert_eq!((a.pool().in_use(), a.counters().no_memory), (3, 1));
    for frame in frames {
        a.transmit(frame);
    }
    assert_eq!(a.flush().sent, 3);
    let mut burst = Vec::new();
    b.receive(&mut burst);
    assert_eq!(a.pool().in_use(), 3, "the receiver has them");
    assert_eq!(burst[0].rx_checksum().l4, ChecksumState::Good);
    burst.clear();
    assert_eq!(a.pool().in_use(), 0);
}

#[test]
fn a_capture_is_a_pcap_file() {
    #[derive(Clone, Default)]
    struct Shared(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);
    impl std::io::Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("not poisoned").extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let out = Shared::default();
    let (net, mut a, _b) = net(1, Faults::NONE);
    net.capture(PortIds::first(), Box::new(out.clone())).expect("written");
    net.set_now(3_000_007);
    let sent = frame(&mut a, 9);
    a.transmit(sent);
    a.flush();
    let bytes = out.0.lock().expect("not poisoned").clone();
    assert_eq!(bytes[..4], [0xd4, 0xc3, 0xb2, 0xa1]);
    assert_eq!(bytes[24..40], [3, 0, 0, 0, 7, 0, 0, 0, 60, 0, 0, 0, 60, 0, 0, 0]);
    assert_eq!(bytes.len(), 24 + 16 + 60);
}
