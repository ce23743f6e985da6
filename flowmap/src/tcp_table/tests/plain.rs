//! The table against a map, under threads, and killed at every store.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering as StdOrdering};

use proptest::prelude::*;

use super::*;
use crate::sync::crash::killed_before_store;

fn writer(memory: &HeapMemory) -> TcpTableWriter<'_> {
    TcpTableWriter::open(memory.region(), OWNER).unwrap()
}

fn reader(memory: &HeapMemory) -> TcpTableReader<'_> {
    TcpTableReader::open(memory.region()).unwrap()
}

/// No bucket remembers a flow that is gone.
fn assert_no_trace(memory: &HeapMemory) {
    let reader = reader(memory);
    for bucket in 0..reader.table.bucket_count() {
        assert_eq!(reader.table.overflow(bucket), 0, "bucket {bucket} counts flows that are gone");
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Insert(u32, u32),
    Remove(u32),
    Lookup(u32),
    Reopen,
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let n = 0..120u32;
    let operation = prop_oneof![
        8 => (n.clone(), any::<u32>()).prop_map(|(n, value)| Operation::Insert(n, value)),
        6 => n.clone().prop_map(Operation::Remove),
        4 => n.prop_map(Operation::Lookup),
        1 => Just(Operation::Reopen),
    ];
    prop::collection::vec(operation, 1..600)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn it_agrees_with_a_map(operations in operations(), capacity in 1u32..100) {
        let memory = table(capacity);
        let mut writer = writer(&memory);
        let mut map = HashMap::new();
        for operation in operations {
            match operation {
                Operation::Insert(n, value) => {
                    let room = map.contains_key(&n) || map.len() < capacity as usize;
                    prop_assert_eq!(writer.insert(&key(n), FlowRef(value)).is_ok(), room);
                    if room {
                        map.insert(n, value);
                    }
                }
                Operation::Remove(n) => {
                    prop_assert_eq!(writer.remove(&key(n)), map.remove(&n).is_some());
                }
                Operation::Lookup(n) => {
                    let expected = map.get(&n).copied().map(FlowRef);
                    prop_assert_eq!(writer.lookup(&key(n)), expected);
                }
                Operation::Reopen => {
                    writer = TcpTableWriter::open(memory.region(), OWNER).unwrap();
                    map.clear();
                }
            }
            prop_assert_eq!(writer.len(), map.len());
        }
        let reader = reader(&memory);
        let mut seen: Vec<_> = reader.iter().map(|(key, flow)| (key, flow.0)).collect();
        let mut expected: Vec<_> = map.iter().map(|(n, value)| (key(*n), *value)).collect();
        seen.sort_by_key(|(key, _)| key.words());
        expected.sort_by_key(|(key, _)| key.words());
        prop_assert_eq!(seen, expected);
        for n in map.keys() {
            writer.remove(&key(*n));
        }
        assert_no_trace(&memory);
    }
}

#[test]
fn it_holds_what_it_was_made_for_and_says_when_full() {
    for capacity in [1, 5, 6, 1_000, 20_480] {
        let memory = table(capacity);
        let mut writer = writer(&memory);
        for n in 0..capacity {
            writer.insert(&key(n), FlowRef(n)).unwrap();
        }
        assert_eq!(writer.insert(&key(capacity), FlowRef(0)), Err(TableFull));
        assert_eq!(writer.insert(&key(0), FlowRef(7)), Ok(()), "a known flow is replaced even now");
        assert_eq!(writer.reader().refused(), 1);
        assert_eq!(writer.reader().flows(), capacity as usize);
        for n in 1..capacity {
            assert_eq!(writer.lookup(&key(n)), Some(FlowRef(n)));
        }
        writer.remove(&key(0));
        writer.insert(&key(capacity), FlowRef(8)).unwrap();
    }
}

#[test]
fn churn_leaves_no_trace() {
    let memory = table(640);
    let mut writer = writer(&memory);
    for n in 0..600 {
        writer.insert(&key(n), FlowRef(n)).unwrap();
    }
    for n in 600..200_000 {
        assert!(writer.remove(&key(n - 600)));
        writer.insert(&key(n), FlowRef(n)).unwrap();
    }
    assert_eq!(writer.len(), 600);
    for n in 199_400..200_000 {
        assert!(writer.remove(&key(n)));
    }
    assert_no_trace(&memory);
}

#[test]
fn families_and_protocols_are_apart() {
    let memory = table(10);
    let mut writer = writer(&memory);
    let local = "[2001:2::2]:80".parse().unwrap();
    let remote = "[2001:2::1]:4000".parse().unwrap();
    writer.insert(&FlowKey::new(6, local, remote), FlowRef(1)).unwrap();
    writer.insert(&FlowKey::new(17, local, remote), FlowRef(2)).unwrap();
    assert_eq!(writer.lookup(&FlowKey::new(6, local, remote)), Some(FlowRef(1)));
    assert_eq!(writer.lookup(&FlowKey::new(17, local, remote)), Some(FlowRef(2)));
    assert_eq!(writer.lookup(&FlowKey::new(6, remote, local)), None);
}

#[test]
fn a_burst_is_its_lookups() {
    let memory = table(200);
    let mut writer = writer(&memory);
    for n in (0..200).step_by(2) {
        writer.insert(&key(n), FlowRef(n)).unwrap();
    }
    for length in [0, 1, 31, 32, 33, 100] {
        let keys: Vec<_> = (0..length).map(key).collect();
        let mut flows = vec![Some(FlowRef(999)); keys.len()];
        writer.reader().lookup_burst(&keys, &mut flows);
        for (key, flow) in keys.iter().zip(flows) {
            assert_eq!(flow, writer.lookup(key));
        }
    }
}

#[test]
fn what_is_no_table_is_refused() {
    let memory = HeapMemory::new(tcp_table_bytes(10));
    assert!(matches!(TcpTableReader::open(memory.region()), Err(TableOpenError::NoTable { found: 0 })));
    format_tcp_table(memory.region(), 10, KEY).unwrap();
    memory.region().lines()[0].word(1).store(1 << 40, crate::sync::Ordering::Relaxed);
    assert!(matches!(TcpTableReader::open(memory.region()), Err(TableOpenError::Damaged { .. })));
    let short = HeapMemory::new(tcp_table_bytes(10) - 64);
    assert!(matches!(format_tcp_table(short.region(), 10, KEY), Err(TableOpenError::Region(_))));
}

/// Any numbers in the table's lines: wrong answers are allowed, nothing else.
#[test]
fn a_damaged_table_does_no_harm() {
    let memory = table(20);
    let mut random = 1u64;
    for line in &memory.region().lines()[2..] {
        for position in 0..8 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            line.word(position).store(random, crate::sync::Ordering::Relaxed);
        }
    }
    let reader = reader(&memory);
    let _ = reader.iter().count();
    for n in 0..100 {
        let _ = reader.lookup(&key(n));
    }
}

#[test]
fn reclaiming_needs_the_owner() {
    let memory = table(10);
    let mut writer = writer(&memory);
    writer.insert(&key(1), FlowRef(1)).unwrap();
    let reader = reader(&memory);
    assert!(!reader.reclaim(Owner { epoch: 2, pid: OWNER.pid }));
    assert!(reader.lookup(&key(1)).is_some());
    assert!(reader.reclaim(OWNER));
    assert_eq!((reader.lookup(&key(1)), reader.owner(), reader.flows()), (None, None, 0));
}

/// Readers in other threads, while the writer turns the table over: what stays
/// is always found, and no value is ever seen under another's key.
#[test]
fn readers_beside_a_busy_writer() {
    const STAY: u32 = 40;
    let memory = table(100);
    let mut writer = writer(&memory);
    for n in 0..STAY {
        writer.insert(&key(n), FlowRef(n)).unwrap();
    }
    let stop = AtomicBool::new(false);
    let looks = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let reader = TcpTableReader::open(memory.region()).unwrap();
                    let mut looks = 0u64;
                    while !stop.load(StdOrdering::Relaxed) {
                        for n in 0..STAY {
                            assert_eq!(reader.lookup(&key(n)), Some(FlowRef(n)));
                        }
                        for (seen, flow) in reader.iter() {
                            assert_eq!(seen, key(flow.0));
                        }
                        for n in STAY..200 {
                            assert!(reader.lookup(&key(n)).is_none_or(|flow| flow.0 == n));
                        }
                        looks += 1;
                    }
                    looks
                })
            })
            .collect();
        for round in 0..1_500u32 {
            for n in STAY..200 {
                let n = STAY + (n + round * 7) % 160;
                if !writer.remove(&key(n)) {
                    let _ = writer.insert(&key(n), FlowRef(n));
                }
            }
        }
        stop.store(true, StdOrdering::Relaxed);
        readers.into_iter().map(|reader| reader.join().unwrap()).sum::<u64>()
    });
    assert!(looks > 0);
}

/// Killed before each of its stores in turn: every flow that the operation was
/// not about is found, the others wholly or not at all, and the next writer
/// starts from an empty table that works.
#[test]
fn killed_at_every_store() {
    type Change = fn(&mut TcpTableWriter<'_>);
    let changes: [(&str, Change); 4] = [
        ("insert", |writer| writer.insert(&key(50), FlowRef(50)).unwrap()),
        ("remove", |writer| assert!(writer.remove(&key(3)))),
        ("replace", |writer| writer.insert(&key(3), FlowRef(33)).unwrap()),
        ("remove and reuse", |writer| {
            writer.remove(&key(3));
            writer.insert(&key(50), FlowRef(50)).unwrap();
        }),
    ];
    for (name, change) in changes {
        let mut kills = 0;
        for stores in 0.. {
            let memory = table(20);
            let mut first = writer(&memory);
            for n in 0..15 {
                first.insert(&key(n), FlowRef(n)).unwrap();
            }
            if !killed_before_store(stores, || change(&mut first)) {
                break;
            }
            kills += 1;
            let reader = reader(&memory);
            for n in (0..15).filter(|n| *n != 3) {
                assert_eq!(reader.lookup(&key(n)), Some(FlowRef(n)), "{name}, before store {stores}");
            }
            assert!(matches!(reader.lookup(&key(3)), None | Some(FlowRef(3 | 33))));
            assert!(matches!(reader.lookup(&key(50)), None | Some(FlowRef(50))));
            for (seen, flow) in reader.iter() {
                assert_eq!(seen, key(if flow.0 == 33 { 3 } else { flow.0 }));
            }
            let mut next = TcpTableWriter::open(memory.region(), Owner { epoch: 1, pid: 101 }).unwrap();
            assert_eq!((next.len(), reader.iter().count()), (0, 0));
            for n in 100..120 {
                next.insert(&key(n), FlowRef(n)).unwrap();
            }
            for n in 100..120 {
                assert_eq!(reader.lookup(&key(n)), Some(FlowRef(n)), "{name}, before store {stores}");
            }
            for n in 100..120 {
                assert!(next.remove(&key(n)));
            }
            assert_no_trace(&memory);
        }
        assert!(kills >= 1, "{name}");
    }
}

/// A writer killed while it empties the table: so does the one after it.
#[test]
fn killed_while_resetting() {
    for stores in 0.. {
        let memory = table(20);
        let mut first = writer(&memory);
        for n in 0..20 {
            first.insert(&key(n), FlowRef(n)).unwrap();
        }
        let killed = killed_before_store(stores, || drop(writer(&memory)));
        for (seen, flow) in reader(&memory).iter() {
            assert_eq!(seen, key(flow.0));
        }
        let mut next = writer(&memory);
        next.insert(&key(1), FlowRef(5)).unwrap();
        assert_eq!(reader(&memory).iter().collect::<Vec<_>>(), [(key(1), FlowRef(5))]);
        if !killed {
            break;
        }
    }
}
