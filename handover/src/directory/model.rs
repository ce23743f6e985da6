//! The words under loom: every interleaving up to the preemption bound, and
//! every value that a relaxed load may see. What a queue, or a listener, is to a
//! worker is a cell here that loom lets nobody touch beside another.

use ff_flowmap::HeapMemory;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::*;

const OLD: EpochSlot = EpochSlot { epoch: 1, slot: 0 };
const NEW: EpochSlot = EpochSlot { epoch: 2, slot: 1 };
const OLD_WORKER: Owner = Owner { epoch: 1, pid: 10 };
const NEW_WORKER: Owner = Owner { epoch: 2, pid: 20 };

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(model);
}

fn directory(memory: &HeapMemory) -> Directory<'_> {
    Directory::over(memory.region(), 1, 2).unwrap()
}

fn shared() -> Arc<HeapMemory> {
    let memory = HeapMemory::new(Directory::lines(1, 2) * ff_flowmap::LINE_BYTES);
    let words = directory(&memory);
    words.instance().set_active(Some(OLD));
    words.instance().set_target(Some(NEW));
    words.worker(0, 0).unwrap().set_ready(OLD_WORKER, 1);
    words.queue(0).unwrap().assign(OLD_WORKER);
    Arc::new(memory)
}

/// A worker's pass over its queue; true while it was the owner.
fn pass(words: Directory<'_>, me: Owner, packets: &UnsafeCell<u32>) -> bool {
    let queue = words.queue(0).unwrap();
    if !queue.is_mine(me) {
        return false;
    }
    packets.with_mut(|_| ());
    if let Some(successor) = words.successor_of(me, 0) {
        assert!(queue.hand_to(me, successor, 5));
    }
    true
}

/// An order while both poll: never two consumers, and what the old one did with
/// the queue has happened before what the new one does.
#[test]
fn a_queue_never_has_two_consumers() {
    check(3, || {
        let memory = shared();
        directory(&memory).worker(1, 0).unwrap().set_ready(NEW_WORKER, 2);
        let packets = Arc::new(UnsafeCell::new(0u32));
        let old = thread::spawn({
            let (memory, packets) = (memory.clone(), packets.clone());
            move || {
                for _ in 0..2 {
                    pass(directory(&memory), OLD_WORKER, &packets);
                }
            }
        });
        let new = thread::spawn({
            let (memory, packets) = (memory.clone(), packets.clone());
            move || {
                for _ in 0..2 {
                    pass(directory(&memory), NEW_WORKER, &packets);
                }
            }
        });
        let order = ParkWord { epoch: NEW.epoch, order: ParkOrder::HandOver };
        directory(&memory).instance().set_park_order(Some(order));
        old.join().unwrap();
        new.join().unwrap();
        let owner = directory(&memory).queue(0).unwrap().owner();
        assert!(owner == Some(OLD_WORKER) || owner == Some(NEW_WORKER));
    });
}

/// The order is taken back while the queue is on its way: it ends with one owner.
#[test]
fn an_order_that_is_taken_back() {
    check(2, || {
        let memory = shared();
        directory(&memory).worker(1, 0).unwrap().set_ready(NEW_WORKER, 2);
        let packets = Arc::new(UnsafeCell::new(0u32));
        let header = directory(&memory).instance();
        header.set_park_order(Some(ParkWord { epoch: NEW.epoch, order: ParkOrder::HandOver }));
        let workers = [OLD_WORKER, NEW_WORKER].map(|me| {
            let (memory, packets) = (memory.clone(), packets.clone());
            thread::spawn(move || pass(directory(&memory), me, &packets))
        });
        header.set_park_order(Some(ParkWord { epoch: NEW.epoch, order: ParkOrder::GiveBack }));
        for worker in workers {
            worker.join().unwrap();
        }
        for _ in 0..2 {
            for me in [OLD_WORKER, NEW_WORKER] {
                pass(directory(&memory), me, &packets);
            }
        }
        assert_eq!(directory(&memory).queue(0).unwrap().owner(), Some(OLD_WORKER));
    });
}

/// Handed over in the moment in which the old one died: the coordinator, who
/// only knows of the death, does not take the queue from the new owner.
#[test]
fn taking_from_the_dead_races_with_his_last_store() {
    check(3, || {
        let memory = shared();
        let sibling = Owner { epoch: 1, pid: 11 };
        let dying = thread::spawn({
            let memory = memory.clone();
            move || directory(&memory).queue(0).unwrap().hand_to(OLD_WORKER, NEW_WORKER, 5)
        });
        // Loom's threads do not die; that the coordinator may be wrong about it
        // makes the test harder.
        let taken = directory(&memory).queue(0).unwrap().take_from_dead(OLD_WORKER, sibling);
        let handed = dying.join().unwrap();
        assert!(taken != handed, "exactly one of the two");
        let owner = directory(&memory).queue(0).unwrap().owner();
        assert_eq!(owner, Some(if taken { sibling } else { NEW_WORKER }));
    });
}

/// Whoever sees READY sees the listeners open.
#[test]
fn ready_is_the_last_thing_of_a_start() {
    check(3, || {
        let memory = shared();
        let listeners = Arc::new(UnsafeCell::new(false));
        let new = thread::spawn({
            let (memory, listeners) = (memory.clone(), listeners.clone());
            move || {
                listeners.with_mut(|_| ());
                directory(&memory).worker(1, 0).unwrap().set_ready(NEW_WORKER, 2);
            }
        });
        if directory(&memory).ready_worker(NEW, 0) == Some(NEW_WORKER) {
            listeners.with(|_| ());
        }
        new.join().unwrap();
    });
}

/// Two drain reports are never mixed.
#[test]
fn a_drain_report_is_whole() {
    check(3, || {
        let memory = shared();
        let report = |n| DrainReport { conns: n, unsent_bytes: n, half_open: n, udp_flows: n };
        directory(&memory).worker(0, 0).unwrap().report_drain(1, report(1), 1);
        let worker = thread::spawn({
            let memory = memory.clone();
            move || directory(&memory).worker(0, 0).unwrap().report_drain(1, report(2), 2)
        });
        let seen = directory(&memory).worker(0, 0).unwrap().drain_report(1);
        assert!(seen.is_none_or(|seen| seen == report(1) || seen == report(2)), "{seen:?}");
        worker.join().unwrap();
    });
}
