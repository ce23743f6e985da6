use ff_flowmap::HeapMemory;

use super::*;
use crate::drops::DropReason;
use crate::machine::ReloadState;
use crate::words::{FsmWord, GenerationState};

const OLD: EpochSlot = EpochSlot { epoch: 1, slot: 0 };
const NEW: EpochSlot = EpochSlot { epoch: 2, slot: 1 };

fn memory() -> HeapMemory {
    HeapMemory::new(Directory::lines(2, 2) * ff_flowmap::LINE_BYTES)
}

fn directory(memory: &HeapMemory) -> Directory<'_> {
    Directory::over(memory.region(), 2, 2).unwrap()
}

fn owner(generation: EpochSlot, index: usize) -> Owner {
    Owner { epoch: generation.epoch, pid: 100 * generation.epoch + index as u32 }
}

#[test]
fn a_queue_goes_from_hand_to_hand() {
    let memory = memory();
    let queue = directory(&memory).queue(0).unwrap();
    let (old, new) = (owner(OLD, 0), owner(NEW, 0));
    assert_eq!(queue.owner(), None);
    assert!(queue.assign(old));
    assert!(!queue.assign(new), "it has an owner");
    assert!(!queue.hand_to(new, new, 1), "not his");
    assert!(queue.hand_to(old, new, 10));
    assert!(!queue.hand_to(old, new, 11), "given away already");
    assert_eq!(queue.pause_us(), None, "nobody polls it yet");
    queue.first_poll(new, 25);
    assert_eq!(queue.pause_us(), Some(15));
    assert!(!queue.take_from_dead(old, old));
    assert!(queue.take_from_dead(new, old));
    assert!(queue.is_mine(old));
    assert_eq!(queue.handovers(), 3);
}

#[test]
fn orders_say_whose_a_queue_is() {
    let memory = memory();
    let directory = directory(&memory);
    let words = directory.instance();
    words.set_active(Some(OLD));
    words.set_target(Some(NEW));
    let (old, new) = (owner(OLD, 0), owner(NEW, 0));
    let old_worker = directory.worker(0, 0).unwrap();
    old_worker.set_ready(old, 1);
    assert_eq!(directory.successor_of(old, 0), None, "no order");
    assert_eq!(directory.unanswered_order(old_worker), None);

    let order = ParkWord { epoch: NEW.epoch, order: ParkOrder::HandOver };
    words.set_park_order(Some(order));
    assert_eq!(directory.successor_of(old, 0), None, "the successor is not ready");
    directory.worker(1, 0).unwrap().set_ready(new, 2);
    assert_eq!(directory.successor_of(old, 0), Some(new));
    assert_eq!(directory.successor_of(owner(OLD, 1), 1), Some(new), "stands in");
    assert_eq!(directory.successor_of(new, 1), None, "goes on standing in");
    assert_eq!(directory.unanswered_order(old_worker), Some(order));
    old_worker.answer_park(order);
    assert_eq!(directory.unanswered_order(old_worker), None);

    words.set_target(None);
    assert_eq!(directory.successor_of(new, 0), Some(old), "an order without a target");
    words.set_target(Some(NEW));
    let back = ParkWord { epoch: NEW.epoch, order: ParkOrder::GiveBack };
    words.set_park_order(Some(back));
    assert_eq!(directory.successor_of(new, 0), Some(old));
    assert_eq!(directory.successor_of(old, 0), None);
    assert_eq!(directory.unanswered_order(old_worker), Some(back));
}

#[test]
fn a_ready_word_of_an_earlier_epoch_does_not_count() {
    let memory = memory();
    let directory = directory(&memory);
    let worker = directory.worker(1, 0).unwrap();
    worker.set_ready(Owner { epoch: 1, pid: 7 }, 1);
    assert_eq!(directory.ready_worker(NEW, 0), None);
    worker.set_ready(owner(NEW, 0), 1);
    assert_eq!(directory.ready_worker(NEW, 0), Some(owner(NEW, 0)));
}

#[test]
fn attaching_clears_what_the_last_process_left() {
    let memory = memory();
    let worker = directory(&memory).worker(1, 1).unwrap();
    worker.attach(owner(OLD, 1), 3, 10);
    worker.set_ready(owner(OLD, 1), 11);
    worker.answer_park(ParkWord { epoch: 2, order: ParkOrder::HandOver });
    worker.add(WorkerCounter::RxPackets, 5);
    worker.add(WorkerCounter::ForwardedIn, 6);
    worker.set_gauge(WorkerGauge::BufferBytes, 7);
    worker.add_drops(DropReason::KernelPathFull, 8);
    worker.report_drain(1, DrainReport { conns: 1, ..Default::default() }, 12);
    assert_eq!(worker.counter(WorkerCounter::ForwardedIn), 6);
    assert_eq!(worker.gauge(WorkerGauge::BufferBytes), 7);
    assert_eq!(worker.drops(DropReason::KernelPathFull), 8);
    assert_eq!(worker.cpu(), 3);

    worker.attach(owner(NEW, 1), 4, 20);
    assert_eq!(worker.attached(), Some(owner(NEW, 1)));
    assert_eq!((worker.ready(), worker.parked()), (None, None));
    assert_eq!(worker.drain_report(1), None);
    assert_eq!(worker.counter(WorkerCounter::RxPackets), 0);
    assert_eq!(worker.drops(DropReason::KernelPathFull), 0);
}

#[test]
fn drain_reports_are_of_one_epoch() {
    let memory = memory();
    let worker = directory(&memory).worker(0, 0).unwrap();
    assert_eq!(worker.drain_report(1), None);
    let report = DrainReport { conns: 1, unsent_bytes: 2, half_open: 3, udp_flows: 4 };
    worker.report_drain(1, report, 5);
    assert_eq!(worker.drain_report(1), Some(report));
    assert_eq!(worker.drain_report(2), None);
    worker.report_drain(1, DrainReport::default(), 6);
    assert!(worker.drain_report(1).unwrap().is_drained());
}

#[test]
fn counters_gauges_and_drops_have_words_of_their_own() {
    let memory = memory();
    let worker = directory(&memory).worker(0, 1).unwrap();
    for counter in WorkerCounter::ALL {
        worker.add(counter, 1 + counter as u64);
    }
    for gauge in WorkerGauge::ALL {
        worker.set_gauge(gauge, 100 + gauge as u64);
    }
    for reason in DropReason::ALL {
        worker.add_drops(*reason, 200 + *reason as u64);
    }
    for counter in WorkerCounter::ALL {
        assert_eq!(worker.counter(counter), 1 + counter as u64);
    }
    for gauge in WorkerGauge::ALL {
        assert_eq!(worker.gauge(gauge), 100 + gauge as u64);
    }
    for reason in DropReason::ALL {
        assert_eq!(worker.drops(*reason), 200 + *reason as u64);
    }
}

#[test]
fn the_coordinators_words() {
    let memory = memory();
    let directory = directory(&memory);
    let words = directory.instance();
    words.set_fsm(FsmWord { epoch: 3, state: ReloadState::HandingOver }, 77);
    assert_eq!(words.fsm(), FsmWord { epoch: 3, state: ReloadState::HandingOver });
    assert_eq!(words.fsm_entered_us(), 77);
    let generation = directory.generation(1).unwrap();
    generation.begin(3, Some(OLD), 4242, 70);
    assert_eq!((generation.predecessor(), generation.attempt()), (Some(OLD), ReloadState::Spawning));
    assert_eq!((generation.epoch(), generation.master_pid()), (3, 4242));
    assert_eq!(generation.state(), GenerationState::Spawning);
    generation.set_state(GenerationState::Draining, 90);
    assert_eq!(generation.state_since_us(), 90);
    generation.set_steps(2, 95);
    assert_eq!((generation.steps(), generation.attempt_since_us()), (2, 95));
    generation.set_attempt(ReloadState::Settling, 99);
    assert_eq!((generation.steps(), generation.attempt()), (0, ReloadState::Settling));
    assert_eq!(directory.generation(0).unwrap().epoch(), 0, "the other slot is untouched");
    generation.free(100);
    assert_eq!((generation.epoch(), generation.state()), (0, GenerationState::Free));
    assert!(directory.generation(2).is_none());
}
