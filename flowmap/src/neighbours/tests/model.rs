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

/// A dead owner's lock is taken back while another process wants the bucket.
#[test]
fn a_dead_owners_lock_is_taken_back() {
    check(|| {
        let memory = Arc::new(table(1));
        // As a killed process leaves it: the bucket's lock is held.
        let dead = Owner { epoch: 1, pid: 9 };
        memory.region().lines()[1].word(LOCK).store(dead.word(), Ordering::Relaxed);
        let of_other = memory.clone();
        let other = thread::spawn(move || writer(&of_other, 2).learn(ip(1), OTHER_MAC, true, 5));
        assert_eq!(Neighbours::open(memory.region()).unwrap().reclaim(dead), 1);
        let others = other.join().unwrap();
        assert_whole(writer(&memory, 3).table().lookup(ip(1), 5));
        assert_eq!(memory.region().lines()[1].word(LOCK).load(Ordering::Relaxed), 0);
        let learned = usize::from(others != Learned::Busy);
        assert_eq!(writer(&memory, 3).table().iter(5).count(), learned);
        assert_ne!(writer(&memory, 3).learn(ip(2), MAC, true, 5), Learned::Busy);
    });
}
