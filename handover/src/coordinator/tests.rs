//! The coordinator on real words in memory, on words that nobody would have
//! stored, and its refusals.

use std::collections::HashSet;

use ff_flowmap::HeapMemory;
use proptest::prelude::*;

use super::*;
use crate::directory::{Directory, DrainReport};
use crate::words::{GenerationState, ParkOrder};

const LIMITS: Limits = Limits {
    ready_timeout_us: 60_000_000,
    handover_timeout_us: 100_000,
    heartbeat_timeout_us: 1_000_000,
    settle_timeout_us: 3_000_000,
    drain_timeout_us: 90_000_000,
    quit_step_us: 10_000_000,
};

/// Workers that do what real ones do with the words, in memory as it is laid
/// out in an instance.
struct Stage {
    memory: HeapMemory,
    now_us: u64,
    dead: HashSet<Owner>,
    done: Vec<Command>,
}

impl Stage {
    const WORKERS: usize = 2;

    fn new() -> Self {
        let lines = Directory::lines(Self::WORKERS, 3);
        let memory = HeapMemory::new(lines * ff_flowmap::LINE_BYTES);
        Self { memory, now_us: 1_000_000_000, dead: HashSet::new(), done: Vec::new() }
    }

    fn directory(&self) -> Directory<'_> {
        Directory::over(self.memory.region(), Self::WORKERS, 3).unwrap()
    }

    fn begin(&self, slot: usize, epoch: u32) {
        let predecessor = self.directory().words().current();
        self.directory().generation(slot).unwrap().begin(epoch, predecessor, 42, self.now_us);
    }

    fn owner(epoch: u32, index: usize) -> Owner {
        Owner { epoch, pid: epoch * 10 + index as u32 }
    }

    fn start_workers(&self, slot: usize, epoch: u32) {
        for index in 0..Self::WORKERS {
            let worker = self.directory().worker(slot, index).unwrap();
            worker.attach(Self::owner(epoch, index), 0, self.now_us);
            worker.set_ready(Self::owner(epoch, index), self.now_us);
        }
    }

    /// The coordinator does all there is to do; gives how much it was.
    fn settle(&mut self) -> usize {
        for count in 0..200 {
            let directory = Directory::over(self.memory.region(), Self::WORKERS, 3).unwrap();
            let fate = |owner| if self.dead.contains(&owner) { Fate::Dead } else { Fate::Alive };
            let Some(command) = Coordinator::new(LIMITS).decide(&directory.words(), self.now_us, &fate)
            else {
                return count;
            };
            directory.store(&command, self.now_us);
            if let Command::Kill(owner) = command {
                self.dead.insert(owner);
            }
            self.done.push(command);
        }
        panic!("the coordinator does not come to rest: {:?}", &self.done[self.done.len() - 6..]);
    }

    /// One pass of each living worker.
    fn pass(&mut self) {
        self.now_us += 10;
        let directory = self.directory();
        for slot in 0..3 {
            for index in 0..Self::WORKERS {
                let worker = directory.worker(slot, index).unwrap();
                let Some(me) = worker.attached().filter(|me| !self.dead.contains(me)) else { continue };
                worker.beat(self.now_us);
                for (number, queue) in directory.queues().enumerate().filter(|(_, queue)| queue.is_mine(me)) {
                    if let Some(to) = directory.successor_of(me, number) {
                        assert!(queue.hand_to(me, to, self.now_us));
                    }
                }
                if let Some(order) = directory.unanswered_order(worker) {
                    worker.answer_park(order);
                }
            }
        }
    }

    fn run(&mut self) {
        for _ in 0..10 {
            self.settle();
            self.pass();
        }
    }

    fn report(&self, slot: usize, epoch: u32, conns: u64) {
        for index in 0..Self::WORKERS {
            let report = DrainReport { conns, ..DrainReport::default() };
            self.directory().worker(slot, index).unwrap().report_drain(epoch, report, self.now_us);
        }
    }

    fn attempt(&self, slot: usize) -> ReloadState {
        self.directory().generation(slot).unwrap().attempt()
    }

    fn owners(&self) -> Vec<u32> {
        self.directory().queues().map(|queue| queue.owner().map_or(0, |owner| owner.pid)).collect()
    }

    /// Generation 1 serves in slot 0.
    fn serving() -> Self {
        let mut stage = Self::new();
        stage.begin(0, 1);
        stage.start_workers(0, 1);
        stage.run();
        stage.done.clear();
        stage
    }

    fn did(&self, action: ReloadAction) -> bool {
        self.done.iter().any(|command| match command {
            Command::Do { action: done, .. } => *done == action,
            Command::SetAttempt { actions, .. } | Command::Free { actions, .. } => actions.contains(&action),
            _ => false,
        })
    }
}

#[test]
fn the_first_generation_comes_up() {
    let stage = Stage::serving();
    assert_eq!(stage.owners(), [10, 11]);
    assert_eq!(stage.directory().instance().active(), Some(EpochSlot { epoch: 1, slot: 0 }));
    assert_eq!(stage.directory().generation(0).unwrap().state(), GenerationState::Active);
    assert_eq!(stage.attempt(0), ReloadState::Idle);
}

#[test]
fn a_reload_from_end_to_end() {
    let mut stage = Stage::serving();
    stage.begin(1, 2);
    stage.run();
    assert_eq!(stage.attempt(1), ReloadState::Spawning);
    assert_eq!(stage.owners(), [10, 11], "nothing happens before all are READY");
    assert_eq!(stage.directory().generation(0).unwrap().state(), GenerationState::Active);

    stage.start_workers(1, 2);
    stage.run();
    assert_eq!(stage.owners(), [20, 21]);
    assert_eq!(stage.attempt(1), ReloadState::Settling);
    assert!(!stage.did(ReloadAction::ReleaseQuits), "nobody said that its handshakes are done");

    stage.report(0, 1, 5);
    stage.run();
    assert!(stage.did(ReloadAction::ReleaseQuits));
    assert_eq!((stage.attempt(0), stage.attempt(1)), (ReloadState::Draining, ReloadState::Idle));
    assert_eq!(stage.directory().generation(0).unwrap().state(), GenerationState::Draining);

    stage.report(0, 1, 0);
    stage.run();
    assert_eq!(stage.attempt(0), ReloadState::Quitting);
    stage.dead.extend([Stage::owner(1, 0), Stage::owner(1, 1)]);
    stage.run();
    assert!(stage.did(ReloadAction::ReportComplete));
    let directory = stage.directory();
    assert_eq!(directory.generation(0).unwrap().epoch(), 0, "the slot is free");
    assert_eq!(directory.instance().active(), Some(EpochSlot { epoch: 2, slot: 1 }));
    assert_eq!((directory.instance().target(), directory.instance().park_order()), (None, None));
}

#[test]
fn not_ready_in_time_is_ended() {
    let mut stage = Stage::serving();
    stage.begin(1, 2);
    let worker = Stage::owner(2, 0);
    stage.directory().worker(1, 0).unwrap().attach(worker, 0, stage.now_us);
    stage.now_us += LIMITS.ready_timeout_us + 1;
    stage.pass();
    stage.run();
    assert_eq!(stage.attempt(1), ReloadState::EndingNew);
    assert!(stage.did(ReloadAction::SwallowQuits) && stage.did(ReloadAction::EndNew));
    assert_eq!(stage.owners(), [10, 11]);
    stage.dead.insert(worker);
    stage.run();
    assert!(stage.did(ReloadAction::ReportAborted));
    assert_eq!(stage.directory().generation(1).unwrap().epoch(), 0);
    assert_eq!(stage.directory().instance().active(), Some(EpochSlot { epoch: 1, slot: 0 }));
}

#[test]
fn a_new_worker_that_dies_while_settling_brings_the_old_back() {
    let mut stage = Stage::serving();
    stage.begin(1, 2);
    stage.start_workers(1, 2);
    stage.run();
    assert_eq!(stage.attempt(1), ReloadState::Settling);
    stage.dead.insert(Stage::owner(2, 0));
    stage.run();
    assert_eq!(stage.owners(), [10, 11]);
    assert_eq!(stage.attempt(1), ReloadState::EndingNew);
    assert_eq!(stage.directory().instance().active(), Some(EpochSlot { epoch: 1, slot: 0 }));
}

#[test]
fn a_stalled_new_worker_is_killed_before_its_queue_is_taken() {
    let mut stage = Stage::serving();
    stage.begin(1, 2);
    stage.start_workers(1, 2);
    stage.run();
    let stalled = Stage::owner(2, 1);
    let last_us = stage.directory().worker(1, 1).unwrap().heartbeat_us();
    stage.now_us = last_us + LIMITS.heartbeat_timeout_us + 1;
    for (slot, index) in [(0, 0), (0, 1), (1, 0)] {
        stage.directory().worker(slot, index).unwrap().beat(stage.now_us);
    }
    stage.done.clear();
    stage.settle();
    assert_eq!(stage.done.first(), Some(&Command::Kill(stalled)));
    stage.run();
    assert_eq!(stage.owners(), [10, 11]);
}

#[test]
fn a_dead_worker_is_stood_in_for_and_comes_back() {
    let mut stage = Stage::serving();
    stage.dead.insert(Stage::owner(1, 0));
    stage.run();
    assert_eq!(stage.owners(), [11, 11], "its sibling stands in");
    let again = Owner { epoch: 1, pid: 99 };
    let worker = stage.directory().worker(0, 0).unwrap();
    assert_eq!(worker.attached(), None, "its lines were cleared");
    worker.attach(again, 0, stage.now_us);
    worker.set_ready(again, stage.now_us);
    stage.run();
    assert_eq!(stage.owners(), [99, 11]);
}

#[test]
fn three_generations_side_by_side() {
    let mut stage = Stage::serving();
    for (slot, epoch) in [(1, 2), (2, 3)] {
        stage.begin(slot, epoch);
        stage.start_workers(slot, epoch);
        stage.report(slot - 1, epoch - 1, 7);
        stage.run();
    }
    assert_eq!(stage.owners(), [30, 31]);
    let states = [0, 1, 2].map(|slot| stage.attempt(slot));
    assert_eq!(states, [ReloadState::Draining, ReloadState::Draining, ReloadState::Idle]);
    // The second ends first, and its slot is free at once.
    stage.report(1, 2, 0);
    stage.dead.extend([Stage::owner(2, 0), Stage::owner(2, 1)]);
    stage.run();
    assert_eq!(stage.directory().generation(1).unwrap().epoch(), 0);
    assert_eq!(stage.attempt(0), ReloadState::Draining);
}

#[test]
fn quitting_gets_firmer() {
    let mut stage = Stage::serving();
    stage.begin(1, 2);
    stage.start_workers(1, 2);
    stage.report(0, 1, 1);
    stage.run();
    stage.now_us += LIMITS.drain_timeout_us + 1;
    stage.pass();
    let mut firmness = Vec::new();
    for _ in 0..5 {
        stage.done.clear();
        stage.settle();
        firmness.extend(stage.done.iter().filter_map(|command| match command {
            Command::Do { action: ReloadAction::QuitOld, step, .. } => Some(Firmness::of_quit_old(*step)),
            _ => None,
        }));
        stage.now_us += LIMITS.quit_step_us + 1;
        stage.pass();
    }
    assert_eq!(
        firmness,
        [Firmness::Quit, Firmness::Quit, Firmness::Term, Firmness::Kill, Firmness::Kill],
        "{:?}",
        stage.done
    );
}

fn request() -> ReloadRequest<'static> {
    ReloadRequest {
        workers: 2,
        changed_device_key: None,
        configuration_error: None,
        second_master: None,
        no_free_slot: NoFreeSlot::Refuse,
    }
}

#[test]
fn each_refusal_has_its_sentence() {
    let stage = Stage::serving();
    let words = stage.directory().words();
    assert_eq!(
        accept(&words, &request()),
        Ok(Accepted::Begin { slot: 1, predecessor: Some(EpochSlot { epoch: 1, slot: 0 }) })
    );
    let sentence = |request: &ReloadRequest<'_>| accept(&words, request).unwrap_err().to_string();
    assert!(sentence(&ReloadRequest { workers: 4, ..request() }).contains("worker_processes is 4"));
    let key = ReloadRequest { changed_device_key: Some("[port0] mtu"), ..request() };
    assert!(sentence(&key).contains("[port0] mtu in f-stack.conf has changed"));
    let broken = ReloadRequest { configuration_error: Some("unknown directive"), ..request() };
    assert!(sentence(&broken).ends_with("does not load: unknown directive"));
    assert!(sentence(&ReloadRequest { second_master: Some(77), ..request() }).contains("(pid 77) is alive"));

    stage.begin(1, 2);
    let refusal = accept(&stage.directory().words(), &request()).unwrap_err();
    assert_eq!(refusal, Refusal::AnotherReload { epoch: 2, state: ReloadState::Spawning });
    assert!(refusal.to_string().contains("generation 2 is still in progress (T1 spawning)"));
}

#[test]
fn the_three_policies_without_a_free_slot() {
    let mut stage = Stage::serving();
    for (slot, epoch) in [(1, 2), (2, 3)] {
        stage.begin(slot, epoch);
        stage.start_workers(slot, epoch);
        stage.report(slot - 1, epoch - 1, 7);
        stage.run();
    }
    let words = stage.directory().words();
    let with = |no_free_slot| accept(&words, &ReloadRequest { no_free_slot, ..request() });
    assert_eq!(with(NoFreeSlot::Wait), Ok(Accepted::Wait));
    assert_eq!(with(NoFreeSlot::EndOldest), Ok(Accepted::EndOldest { slot: 0 }));
    assert_eq!(with(NoFreeSlot::Refuse), Err(Refusal::NoFreeSlot { slots: 3, oldest: 1 }));
}

fn any_words() -> impl Strategy<Value = Words> {
    let owner = |epochs: std::ops::Range<u32>| {
        prop::option::of((epochs, 1u32..6).prop_map(|(epoch, pid)| Owner { epoch, pid: epoch * 10 + pid }))
    };
    let generation =
        || prop::option::of((1u32..6, 0u32..4).prop_map(|(epoch, slot)| EpochSlot { epoch, slot }));
    let order = || {
        prop::option::of((1u32..6, any::<bool>()).prop_map(|(epoch, forth)| ParkWord {
            epoch,
            order: if forth { ParkOrder::HandOver } else { ParkOrder::GiveBack },
        }))
    };
    let worker = move || {
        (owner(1..6), any::<bool>(), order(), 0u64..2, prop::option::of(0u64..2)).prop_map(
            |(attached, ready, parked, fresh, conns)| WorkerState {
                attached,
                ready: attached.filter(|_| ready),
                parked,
                heartbeat_us: fresh << 40,
                drain: conns.map(|conns| DrainReport { conns, ..DrainReport::default() }),
            },
        )
    };
    let slot = (
        0u32..6,
        prop::sample::select(ReloadState::ALL.to_vec()),
        generation(),
        0u64..2,
        0u32..4,
        prop::collection::vec(worker(), 2),
    )
        .prop_map(|(epoch, attempt, predecessor, fresh, steps, workers)| SlotWords {
            epoch,
            attempt,
            predecessor,
            since_us: fresh << 40,
            steps,
            workers,
        });
    (
        generation(),
        generation(),
        order(),
        prop::collection::vec(owner(1..6), 2),
        prop::collection::vec(slot, 3),
    )
        .prop_map(|(active, target, order, queues, slots)| Words {
            active,
            target,
            order,
            queues,
            slots,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// From any words whatever, sensible or not, with time passing and everybody
    /// doing as they are told, the coordinator comes to rest with one
    /// generation at most, nothing in progress, and every queue with a living
    /// worker of it if there is one.
    #[test]
    fn recovery_from_any_words(mut words in any_words(), fates in prop::collection::vec(any::<bool>(), 60)) {
        // An epoch is one generation's: the directory gives each only once.
        let mut epochs = HashSet::new();
        for slot in &mut words.slots {
            if !epochs.insert(slot.epoch) {
                slot.epoch = 0;
            }
            for worker in &mut slot.workers {
                worker.attached = worker.attached.map(|owner| Owner { epoch: slot.epoch, ..owner });
                worker.ready = worker.ready.and(worker.attached);
            }
        }
        let mut dead: HashSet<Owner> = (0..60)
            .filter(|n| fates[*n as usize])
            .map(|n| Owner { epoch: n / 10, pid: n })
            .collect();
        let mut now_us = 1 << 41;
        let mut quiet = 0;
        for _ in 0..600 {
            let fate = |owner| if dead.contains(&owner) { Fate::Dead } else { Fate::Alive };
            match Coordinator::new(LIMITS).decide(&words, now_us, &fate) {
                Some(command) => {
                    quiet = 0;
                    obey(&mut words, command, now_us, &mut dead);
                }
                None => {
                    quiet += 1;
                    now_us += LIMITS.drain_timeout_us + 1;
                    everybody_passes(&mut words, now_us, &dead);
                }
            }
            if quiet > 3 {
                break;
            }
        }
        prop_assert!(quiet > 3, "it does not come to rest: {words:#?}");
        let living = |owner: &Owner| !dead.contains(owner);
        let generations: Vec<_> = words.slots.iter().filter(|slot| slot.epoch != 0).collect();
        for slot in &generations {
            prop_assert_eq!(slot.attempt, ReloadState::Idle);
        }
        prop_assert_eq!((words.target, words.order), (None, None));
        prop_assert_eq!(words.active, words.current());
        if let Some(active) = words.active {
            let workers = &words.slots[active.slot as usize].workers;
            let able: Vec<_> = workers.iter().filter_map(|worker| worker.ready).filter(living).collect();
            for owner in &words.queues {
                prop_assert!(able.is_empty() || owner.is_some_and(|owner| able.contains(&owner)), "{words:#?}");
            }
        }
    }
}

/// What the command does, with processes that end when they are told to.
fn obey(words: &mut Words, command: Command, now_us: u64, dead: &mut HashSet<Owner>) {
    match command {
        Command::SetAttempt { slot, state, .. } => {
            let slot = &mut words.slots[slot];
            (slot.attempt, slot.since_us, slot.steps) = (state, now_us, 0);
        }
        Command::SetActive(active) => words.active = active,
        Command::SetTarget(target) => words.target = target,
        Command::SetOrder(order) => words.order = order,
        Command::Assign { queue, to, .. } => words.queues[queue] = Some(to),
        Command::Kill(owner) => {
            dead.insert(owner);
        }
        Command::Do { slot, action, .. } => {
            let slot = &mut words.slots[slot];
            (slot.steps, slot.since_us) = (slot.steps + 1, now_us);
            if matches!(action, ReloadAction::QuitOld | ReloadAction::EndNew) {
                dead.extend(slot.workers.iter().filter_map(|worker| worker.attached));
            }
        }
        Command::ReclaimWorker { slot, worker, .. } => {
            words.slots[slot].workers[worker] = WorkerState::default();
        }
        Command::Free { slot, .. } => {
            let slot = &mut words.slots[slot];
            slot.workers.fill(WorkerState::default());
            *slot = SlotWords {
                epoch: 0,
                attempt: ReloadState::Idle,
                predecessor: None,
                since_us: now_us,
                steps: 0,
                workers: std::mem::take(&mut slot.workers),
            };
        }
    }
}

fn everybody_passes(words: &mut Words, now_us: u64, dead: &HashSet<Owner>) {
    let order = words.order;
    let receiver = words.receiver();
    let ready: Vec<_> = receiver.map_or(Vec::new(), |receiver| {
        let workers = &words.slots[receiver.slot as usize].workers;
        workers.iter().map(|worker| worker.ready.filter(|ready| ready.epoch == receiver.epoch)).collect()
    });
    for slot in &mut words.slots {
        for worker in &mut slot.workers {
            let Some(me) = worker.ready.filter(|me| !dead.contains(me)) else { continue };
            worker.heartbeat_us = now_us;
            worker.parked = order.or(worker.parked);
            for (owner, rightful) in words.queues.iter_mut().zip(&ready) {
                if *owner == Some(me) {
                    let stands_in = || {
                        let other = receiver.is_some_and(|receiver| receiver.epoch != me.epoch);
                        ready.iter().flatten().next().copied().filter(|_| other)
                    };
                    *owner = rightful.or_else(stands_in).or(*owner);
                }
            }
        }
    }
}
