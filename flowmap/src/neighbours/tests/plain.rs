//! States and probes, several writers, and a writer killed at every store.

use super::writer::{PROBE_INTERVAL_US, PROBES_MAX, UNREACHABLE_HOLD_US};
use super::*;
use crate::sync::crash::killed_before_store;

const NOW_US: u64 = 1_000_000_000;

#[test]
fn learned_once_known_to_all() {
    let memory = table(16);
    let (first, second) = (writer(&memory, 1), writer(&memory, 2));
    let v6: IpAddr = "2001:2::1".parse().unwrap();
    assert_eq!(first.learn(ip(1), MAC, true, NOW_US), Learned::New);
    assert_eq!(first.learn(v6, OTHER_MAC, true, NOW_US), Learned::New);
    let found = second.table().lookup(ip(1), NOW_US).unwrap();
    assert_eq!((found.ip, found.mac, found.state), (ip(1), MAC, NeighbourState::Reachable));
    assert_eq!(second.table().lookup(v6, NOW_US).unwrap().mac, OTHER_MAC);
    assert_eq!(second.learn(ip(1), MAC, true, NOW_US + 1), Learned::Confirmed);
    assert_eq!(second.learn(ip(1), OTHER_MAC, true, NOW_US + 2), Learned::Moved { from: MAC });
    assert_eq!(first.table().changes(), 3);
    assert_eq!(first.table().iter(NOW_US).count(), 2);
    assert!(first.forget(v6));
    assert_eq!(second.table().lookup(v6, NOW_US), None);
    assert!(!first.forget(v6));
}

#[test]
fn reachable_goes_stale_and_back() {
    let memory = table(16);
    let writer = writer(&memory, 1);
    writer.learn(ip(1), MAC, true, NOW_US);
    let state = |now_us| writer.table().lookup(ip(1), now_us).unwrap().state;
    assert_eq!(state(NOW_US + REACHABLE_US), NeighbourState::Reachable);
    let late_us = NOW_US + REACHABLE_US + 1;
    assert_eq!(state(late_us), NeighbourState::Stale);
    assert_eq!(writer.resolve(ip(1), late_us), Resolution::Send { mac: MAC, probe: true });
    assert_eq!(writer.resolve(ip(1), late_us + 1), Resolution::Send { mac: MAC, probe: false });
    writer.confirm(ip(1), late_us + 2);
    assert_eq!(state(late_us + 3), NeighbourState::Reachable);
    assert_eq!(writer.table().lookup(ip(1), late_us + 3).unwrap().probes, 0);
}

#[test]
fn unconfirmed_addresses_are_stale_and_do_not_refresh() {
    let memory = table(16);
    let writer = writer(&memory, 1);
    assert_eq!(writer.learn(ip(1), MAC, false, NOW_US), Learned::New);
    assert_eq!(writer.table().lookup(ip(1), NOW_US).unwrap().state, NeighbourState::Stale);
    writer.learn(ip(1), MAC, true, NOW_US + 1);
    assert_eq!(writer.learn(ip(1), MAC, false, NOW_US + 2), Learned::Confirmed);
    assert_eq!(writer.table().lookup(ip(1), NOW_US + 3).unwrap().state, NeighbourState::Reachable);
    assert_eq!(writer.learn(ip(1), OTHER_MAC, false, NOW_US + 3), Learned::Moved { from: MAC });
    assert_eq!(writer.table().lookup(ip(1), NOW_US + 3).unwrap().state, NeighbourState::Stale);
}

#[test]
fn one_of_all_workers_asks() {
    let memory = table(16);
    let workers = [writer(&memory, 1), writer(&memory, 2), writer(&memory, 3)];
    for round in 0..u64::from(PROBES_MAX) {
        let now_us = NOW_US + round * PROBE_INTERVAL_US;
        let asked = workers
            .iter()
            .filter(|worker| worker.resolve(ip(1), now_us) == Resolution::Wait { probe: true })
            .count();
        assert_eq!(asked, 1, "round {round}");
    }
    let last_us = NOW_US + u64::from(PROBES_MAX - 1) * PROBE_INTERVAL_US;
    let resolve = |now_us| workers[0].resolve(ip(1), now_us);
    assert_eq!(resolve(last_us + PROBE_INTERVAL_US - 1), Resolution::Wait { probe: false });
    assert_eq!(resolve(last_us + PROBE_INTERVAL_US), Resolution::Unreachable);
    assert_eq!(resolve(last_us + UNREACHABLE_HOLD_US - 1), Resolution::Unreachable);
    assert_eq!(resolve(last_us + UNREACHABLE_HOLD_US), Resolution::Wait { probe: true });
    assert_eq!(resolve(last_us + UNREACHABLE_HOLD_US), Resolution::Wait { probe: false });
    workers[1].learn(ip(1), MAC, true, last_us + UNREACHABLE_HOLD_US);
    assert_eq!(resolve(last_us + UNREACHABLE_HOLD_US), Resolution::Send { mac: MAC, probe: false });
}

#[test]
fn a_scan_does_not_drive_out_live_neighbours() {
    let memory = table(64);
    let writer = writer(&memory, 1);
    for n in 0..20 {
        writer.learn(ip(n), MAC, true, NOW_US);
    }
    for n in 1_000..100_000 {
        writer.resolve(ip(n), NOW_US + u64::from(n));
    }
    for n in 0..20 {
        assert!(writer.table().lookup(ip(n), NOW_US).is_some(), "{n}");
    }
    assert!(writer.table().evicted() > 0);
}

#[test]
fn a_living_owners_lock_is_never_taken() {
    let memory = table(1);
    let writer = writer(&memory, 1);
    let other = Owner { epoch: 1, pid: 2 };
    let lock = memory.region().lines()[1].word(LOCK);
    lock.store(other.word(), Ordering::Relaxed);
    assert_eq!(writer.learn(ip(1), MAC, true, NOW_US), Learned::Busy);
    assert_eq!(writer.resolve(ip(1), NOW_US), Resolution::Wait { probe: false });
    assert_eq!(lock.load(Ordering::Relaxed), other.word());
}

/// Killed before each store of learning, of moving an address, and of giving an
/// entry to another neighbour: readers see whole entries, and once the lock is
/// taken back the next writer goes on.
#[test]
fn killed_at_every_store() {
    type Change = fn(&NeighbourWriter<'_>);
    let changes: [(&str, Change); 4] = [
        ("learn", |writer| assert_eq!(writer.learn(ip(50), MAC, true, NOW_US + 1), Learned::New)),
        ("move", |writer| {
            writer.learn(ip(3), OTHER_MAC, true, NOW_US + 1);
        }),
        ("forget", |writer| assert!(writer.forget(ip(3)))),
        ("evict", |writer| {
            writer.learn(ip(51), MAC, true, NOW_US + 1);
            writer.learn(ip(52), MAC, true, NOW_US + 1);
        }),
    ];
    for (name, change) in changes {
        for stores in 0.. {
            let memory = table(1);
            let first = writer(&memory, 1);
            for n in 0..6 {
                first.learn(ip(n), MAC, true, NOW_US + u64::from(n));
            }
            let killed = killed_before_store(stores, || change(&first));
            let next = writer(&memory, 2);
            // Of somebody else who died nothing is to be taken back.
            assert_eq!(next.table().reclaim(Owner { epoch: 1, pid: 3 }), 0);
            assert!(next.table().reclaim(Owner { epoch: 1, pid: 1 }) <= 1);
            assert_eq!(next.table().reclaim(Owner { epoch: 1, pid: 1 }), 0, "once");
            for n in [1, 2, 4, 5] {
                assert!(
                    next.table().lookup(ip(n), NOW_US).is_some_and(|found| found.mac == MAC),
                    "{name}: {n} before store {stores}"
                );
            }
            for found in next.table().iter(NOW_US) {
                assert!(
                    found.mac == MAC || found.mac == OTHER_MAC,
                    "{name}: {found:?} before store {stores}"
                );
            }
            assert_ne!(next.learn(ip(60), OTHER_MAC, true, NOW_US + 9), Learned::Busy, "{name}");
            assert_eq!(next.table().lookup(ip(60), NOW_US).unwrap().mac, OTHER_MAC);
            assert_eq!(memory.region().lines()[1].word(LOCK).load(Ordering::Relaxed), 0);
            let ips: std::collections::HashSet<_> = next.table().iter(NOW_US).map(|found| found.ip).collect();
            assert_eq!(ips.len(), next.table().iter(NOW_US).count(), "{name}: nobody is there twice");
            if !killed {
                assert!(stores > 2, "{name}");
                break;
            }
        }
    }
}
