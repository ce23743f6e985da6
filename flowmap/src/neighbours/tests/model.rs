//! Two writers and a reader of one bucket under loom.

use loom::sync::Arc;
use loom::thread;

use super::*;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

fn assert_whole(found: Option<Neighbour>) {
    if let Some(found) = found {
        assert!(found.mac == MAC || found.mac == OTHER_MAC, "{found:?}");
        assert_eq!(found.ip, ip(1));
    }
}

#[test]
fn a_reader_sees_one_address_or_the_other() {
    check(|| {
        let memory = Arc::new(table(1));
        let of_reader = memory.clone();
        writer(&memory, 1).learn(ip(1), MAC, true, 5);
        let reader = thread::spawn(move || {
            assert_whole(Neighbours::open(of_reader.region()).unwrap().lookup(ip(1), 5));
        });
        writer(&memory, 1).learn(ip(1), OTHER_MAC, true, 6);
        reader.join().unwrap();
    });
}

#[test]
fn two_writers_exclude_each_other() {
    check(|| {
        let memory = Arc::new(table(1));
        let of_other = memory.clone();
        let other = thread::spawn(move || {
            writer(&of_other, 2).learn(ip(1), OTHER_MAC, true, 6);
        });
        writer(&memory, 1).learn(ip(1), MAC, true, 5);
        other.join().unwrap();
        let found = writer(&memory, 1).table().lookup(ip(1), 6);
        assert!(found.is_some());
        assert_whole(found);
        assert_eq!(writer(&memory, 1).table().iter(6).count(), 1, "learned once");
    });
}

/// Two find one dead owner's lock: one of them gets it.
#[test]
fn a_dead_owners_lock_is_taken_once() {
    check(|| {
        let memory = Arc::new(table(1));
        // As a killed process leaves it: the bucket's lock is held.
        let dead = Owner { epoch: 1, pid: 9 };
        memory.region().lines()[1].word(LOCK).store(dead.word(), Ordering::Relaxed);
        let learn = move |memory: Arc<HeapMemory>, pid, mac| {
            let is_dead = move |owner| owner == dead;
            let owner = Owner { epoch: 1, pid };
            NeighbourWriter::open(memory.region(), owner, is_dead).unwrap().learn(ip(1), mac, true, 5)
        };
        let of_other = memory.clone();
        let other = thread::spawn(move || learn(of_other, 2, OTHER_MAC));
        let mine = learn(memory.clone(), 1, MAC);
        let others = other.join().unwrap();
        assert!(mine != Learned::Busy || others != Learned::Busy, "neither got the lock");
        assert_whole(writer(&memory, 3).table().lookup(ip(1), 5));
        assert_eq!(memory.region().lines()[1].word(LOCK).load(Ordering::Relaxed), 0);
        assert_eq!(writer(&memory, 3).table().iter(5).count(), 1);
    });
}
