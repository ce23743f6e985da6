use super::*;
use crate::memory::HeapMemory;
use crate::sync::crash::killed_before_store;

const KEY: HashKey = [5; 16];
const OWNER: Owner = Owner { epoch: 1, pid: 100 };
const IDLE_US: u64 = 10_000_000;
const START_US: u64 = 1_000_000_000;

fn table(capacity: u32) -> HeapMemory {
    let memory = HeapMemory::new(udp_table_bytes(capacity));
    format_udp_table(memory.region(), capacity, KEY).unwrap();
    memory
}

fn writer(memory: &HeapMemory) -> UdpTableWriter<'_> {
    UdpTableWriter::open(memory.region(), OWNER, IDLE_US).unwrap()
}

fn key(n: u32) -> FlowKey {
    let remote = std::net::Ipv4Addr::from(0xc612_0000 + n);
    FlowKey::new(17, "198.19.0.2:53".parse().unwrap(), (remote, 5_353).into())
}

#[test]
fn only_a_publishing_owner_is_forwarded_to() {
    let memory = table(10);
    let mut writer = writer(&memory);
    let reader = writer.reader();
    writer.record(&key(1), START_US).unwrap();
    let judge = || reader.judge(&key(1), START_US + 1, IDLE_US);
    assert_eq!((reader.publication(), judge()), (Publication::None, UdpFlow::Unknown));
    writer.publish(Publication::Publishing { window: 2 });
    assert_eq!((reader.publication(), judge()), (Publication::Publishing { window: 2 }, UdpFlow::Live));
    assert_eq!(reader.judge(&key(2), START_US, IDLE_US), UdpFlow::Unknown);
    writer.publish(Publication::Handed { window: 2 });
    assert_eq!(judge(), UdpFlow::Unknown);
}

#[test]
fn a_flow_ages_just_after_its_idle_time() {
    let memory = table(10);
    let mut writer = writer(&memory);
    writer.publish(Publication::Publishing { window: 2 });
    writer.record(&key(1), START_US).unwrap();
    let judge = |now_us| writer.reader().judge(&key(1), now_us, IDLE_US);
    assert_eq!(judge(START_US + IDLE_US), UdpFlow::Live);
    assert_eq!(judge(START_US + IDLE_US + 1), UdpFlow::Aged);
    assert_eq!(judge(START_US - 500), UdpFlow::Live, "a reader whose clock sample is older");
    assert!(writer.is_live(&key(1), START_US));
}

#[test]
fn every_datagram_keeps_it_alive() {
    let memory = table(10);
    let mut writer = writer(&memory);
    writer.publish(Publication::Publishing { window: 2 });
    for step in 0..10 {
        writer.record(&key(1), START_US + step * IDLE_US).unwrap();
    }
    let now_us = START_US + 10 * IDLE_US;
    assert_eq!(writer.reader().judge(&key(1), now_us, IDLE_US), UdpFlow::Live);
    assert_eq!((writer.flows(), writer.reader().live_flows(now_us, IDLE_US)), (1, 1));
}

#[test]
fn aged_flows_make_room_and_live_ones_do_not() {
    let memory = table(100);
    let mut writer = writer(&memory);
    for n in 0..100 {
        writer.record(&key(n), START_US).unwrap();
    }
    assert_eq!(writer.record(&key(200), START_US + 1), Err(TableFull));
    assert_eq!(writer.reader().unrecorded(), 1);
    let later_us = START_US + IDLE_US + 1;
    writer.record(&key(7), later_us).unwrap();
    for n in 200..299 {
        writer.record(&key(n), later_us).unwrap();
    }
    assert!(writer.is_live(&key(7), later_us) && writer.is_live(&key(298), later_us));
    assert_eq!(writer.record(&key(300), later_us), Err(TableFull));
}

#[test]
fn closing_a_socket_forgets_its_flows() {
    let memory = table(10);
    let mut writer = writer(&memory);
    writer.record(&key(1), START_US).unwrap();
    assert!(writer.forget(&key(1)));
    assert!(!writer.forget(&key(1)));
    assert_eq!(writer.flows(), 0);
}

#[test]
fn reclaiming_stops_the_publication() {
    let memory = table(10);
    let mut writer = writer(&memory);
    writer.publish(Publication::Publishing { window: 2 });
    writer.record(&key(1), START_US).unwrap();
    let reader = writer.reader();
    assert!(!reader.reclaim(Owner { epoch: 9, pid: 9 }));
    assert_eq!(reader.judge(&key(1), START_US, IDLE_US), UdpFlow::Live);
    assert!(reader.reclaim(OWNER));
    assert_eq!((reader.publication(), reader.flows()), (Publication::None, 0));
}

#[test]
fn killed_at_every_store_of_a_record() {
    for stores in 0.. {
        let memory = table(10);
        let mut first = writer(&memory);
        first.publish(Publication::Publishing { window: 2 });
        for n in 0..9 {
            first.record(&key(n), START_US + u64::from(n) * IDLE_US).unwrap();
        }
        let now_us = START_US + 9 * IDLE_US;
        // Sweeps aged flows away, then adds one.
        let killed = killed_before_store(stores, || first.record(&key(50), now_us).unwrap());
        let reader = UdpTableReader::open(memory.region()).unwrap();
        assert_eq!(reader.judge(&key(8), now_us, IDLE_US), UdpFlow::Live, "before store {stores}");
        for (seen, stamp) in reader.iter() {
            let n = (0..9).find(|n| key(*n) == seen).map_or(9, u64::from);
            assert_eq!(stamp, START_US + n * IDLE_US);
        }
        let next = UdpTableWriter::open(memory.region(), OWNER, IDLE_US).unwrap();
        assert_eq!((next.flows(), reader.publication()), (0, Publication::None));
        if !killed {
            assert!(stores > 5);
            break;
        }
    }
}
