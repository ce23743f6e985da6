//! A small world around the real coordinator: the words, the processes, and
//! everything that can happen next.
//!
//! Nothing here repeats the coordinator: it is asked through
//! [`Coordinator::decide`], its answer is in flight for a while (other things
//! happen in between), and then takes effect. A worker's pass has two halves for
//! the same reason: what it has read may be old when it acts. The news of a
//! death, and a signal, are in flight too.

use ff_handover::coordinator::{
    Accepted, Command, Coordinator, Fate, Firmness, NoFreeSlot, ReloadRequest, SlotWords, Words, WorkerState,
    accept,
};
use ff_handover::{DrainReport, EpochSlot, Owner, ParkWord, ReloadAction, ReloadEvent, ReloadState};

/// Now, in a world where a limit has either passed or not.
const NOW_US: u64 = 1 << 40;

/// Workers and slots at most.
const WORKERS: usize = 2;
const SLOTS: usize = 3;

/// How big the world is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Size {
    pub workers: usize,
    pub slots: usize,
    pub reloads: u8,
    pub crashes: u8,
    /// The coordinator's answer is in flight for a while, and handshakes settle
    /// before connections end. Otherwise both are one step, and the coordinator
    /// is still killed between any two of its stores.
    pub fine: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Life {
    Running,
    /// By SIGSTOP, since less than the heartbeat limit.
    Stopped,
    /// By SIGSTOP, since longer.
    Stalled,
    Dead,
    /// And the pidfd has said so.
    KnownDead,
}

/// A worker process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Process {
    pub owner: Owner,
    pub life: Life,
    pub ready: bool,
    /// The signal that is in flight or was received: 0 none, 1 QUIT, 2 TERM, 3 KILL.
    pub told: u8,
    /// Killed because it stalled.
    pub killed: bool,
    /// Queues that it believes are its own, as bits.
    pub polling: u8,
    /// What the first half of its pass has read: whom to give a queue.
    pub giving: Option<(u8, Owner)>,
    pub parked: Option<ParkWord>,
    /// 0: handshakes half done; 1: connections only; 2: nothing left.
    pub drained: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Slot {
    pub epoch: u32,
    pub attempt: ReloadState,
    pub predecessor: Option<EpochSlot>,
    pub expired: bool,
    pub steps: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct World {
    pub active: Option<EpochSlot>,
    pub target: Option<EpochSlot>,
    pub order: Option<ParkWord>,
    pub size: Size,
    queue_owners: [Option<Owner>; WORKERS],
    lines: [Slot; SLOTS],
    /// One for each (slot, worker); `None` while nobody is attached there.
    places: [Option<Process>; WORKERS * SLOTS],
    pub coordinator_alive: bool,
    pub in_flight: Option<Command>,
    pub master_alive: bool,
    pub next_epoch: u32,
    /// Processes that were started in the place of another.
    pub respawned: u8,
    pub reloads_left: u8,
    pub crashes_left: u8,
    /// nginx starts a worker anew as often as one has died.
    pub respawns_left: u8,
}

/// What can happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    Accept,
    Attach(usize),
    Ready(usize),
    Look(usize),
    Act(usize),
    Drain(usize),
    Exit(usize),
    Die(usize),
    Notice(usize),
    Continue(usize),
    Stall(usize),
    Expire(usize),
    Decide,
    Apply,
    RestartCoordinator,
    // Crashes, from here on.
    Kill(usize),
    Stop(usize),
    KillCoordinator,
    KillMaster,
}

impl Step {
    pub fn is_crash(self) -> bool {
        matches!(self, Self::Kill(_) | Self::Stop(_) | Self::KillCoordinator | Self::KillMaster)
    }
}

impl World {
    /// One generation serves.
    pub fn new(size: Size) -> Self {
        let free = Slot { epoch: 0, attempt: ReloadState::Idle, predecessor: None, expired: false, steps: 0 };
        let mut world = Self {
            active: Some(EpochSlot { epoch: 1, slot: 0 }),
            target: None,
            order: None,
            size,
            queue_owners: [None; WORKERS],
            lines: [free; SLOTS],
            places: [None; WORKERS * SLOTS],
            coordinator_alive: true,
            in_flight: None,
            master_alive: true,
            next_epoch: 2,
            respawned: 0,
            reloads_left: size.reloads,
            crashes_left: size.crashes,
            respawns_left: 0,
        };
        world.lines[0].epoch = 1;
        for index in 0..size.workers {
            let owner = Owner { epoch: 1, pid: 1 + index as u32 };
            let mut process = Process::new(owner);
            process.ready = true;
            process.polling = 1 << index;
            world.places[index] = Some(process);
            world.queue_owners[index] = Some(owner);
        }
        world
    }

    /// Everything that can happen next, with what comes of it.
    pub fn successors(&self, coordinator: &Coordinator, next: &mut Vec<(Step, World)>) {
        next.clear();
        let mut try_step = |step| {
            let mut world = *self;
            if world.take(step, coordinator) && world != *self {
                next.push((step, world));
            }
        };
        for step in [
            Step::Accept,
            Step::Decide,
            Step::Apply,
            Step::RestartCoordinator,
            Step::KillCoordinator,
            Step::KillMaster,
        ] {
            try_step(step);
        }
        for (place, process) in self.processes().iter().enumerate() {
            if process.is_none() {
                try_step(Step::Attach(place));
                continue;
            }
            for step in [
                Step::Ready(place),
                Step::Look(place),
                Step::Act(place),
                Step::Drain(place),
                Step::Exit(place),
                Step::Die(place),
                Step::Notice(place),
                Step::Continue(place),
                Step::Stall(place),
                Step::Kill(place),
                Step::Stop(place),
            ] {
                try_step(step);
            }
        }
        for slot in 0..self.size.slots {
            try_step(Step::Expire(slot));
        }
    }

    pub fn queues(&self) -> &[Option<Owner>] {
        &self.queue_owners[..self.size.workers]
    }

    pub fn slots(&self) -> &[Slot] {
        &self.lines[..self.size.slots]
    }

    pub fn processes(&self) -> &[Option<Process>] {
        &self.places[..self.size.slots * self.size.workers]
    }

    pub fn of_slot(&self, slot: usize) -> &[Option<Process>] {
        &self.places[slot * self.size.workers..][..self.size.workers]
    }

    /// What the coordinator would do now.
    pub fn decision(&self, coordinator: &Coordinator) -> Option<Command> {
        coordinator.decide(&self.words(), NOW_US, &|owner| self.fate(owner))
    }

    pub fn workers(&self) -> usize {
        self.size.workers
    }

    pub fn living(&self) -> impl Iterator<Item = &Process> {
        self.processes().iter().flatten().filter(|process| process.is_alive())
    }

    pub fn process(&self, owner: Owner) -> Option<&Process> {
        self.processes().iter().flatten().find(|process| process.owner == owner)
    }

    pub fn fate(&self, owner: Owner) -> Fate {
        match self.process(owner) {
            // Its lines were cleared: that is done for the dead only.
            None => Fate::Dead,
            Some(process) if process.life == Life::KnownDead => Fate::Dead,
            Some(process) if process.killed => Fate::Killed,
            Some(_) => Fate::Alive,
        }
    }

    /// Does `step`, if it is possible.
    fn take(&mut self, step: Step, coordinator: &Coordinator) -> bool {
        let workers = self.workers();
        let fine = self.size.fine;
        match step {
            Step::Accept => self.accept(),
            Step::Attach(place) => {
                // Answered while there is nothing else to do.
                let at_rest = self.in_flight.is_none() && self.decision(coordinator).is_none();
                at_rest && self.attach(place)
            }
            Step::Ready(place) => {
                self.running(place).is_some_and(|process| !std::mem::replace(&mut process.ready, true))
            }
            Step::Look(place) => self.look(place),
            Step::Act(place) => self.act(place),
            Step::Drain(place) => {
                let owns = self.owned_by(place);
                let relieved =
                    self.lines[place / workers].epoch < self.active.map_or(0, |active| active.epoch);
                self.running(place).is_some_and(|process| {
                    let more = !owns && relieved && process.drained < 2;
                    process.drained = if fine { process.drained + u8::from(more) } else { 2 };
                    more
                })
            }
            // nginx ends by itself when it was told to and has nothing left, and
            // at TERM at once.
            Step::Exit(place) => self.running(place).is_some_and(|process| {
                let ends = process.told == 2 || (process.told == 1 && process.drained == 2);
                if ends {
                    process.die();
                }
                ends
            }),
            Step::Die(place) => self.places[place].as_mut().is_some_and(|process| {
                let dies = process.told == 3 && process.is_alive();
                if dies {
                    process.die();
                }
                dies
            }),
            Step::Notice(place) => self.places[place].as_mut().is_some_and(|process| {
                let news = process.life == Life::Dead;
                if news {
                    process.life = Life::KnownDead;
                }
                news
            }),
            Step::Continue(place) => self.places[place].as_mut().is_some_and(|process| {
                let stopped = matches!(process.life, Life::Stopped | Life::Stalled);
                if stopped {
                    process.life = Life::Running;
                }
                stopped
            }),
            Step::Stall(place) => self.places[place].as_mut().is_some_and(|process| {
                let stalls = process.life == Life::Stopped;
                if stalls {
                    process.life = Life::Stalled;
                }
                stalls
            }),
            Step::Expire(slot) => {
                // A moment that a decision is already due in changes nothing,
                // unless it is one that waits for events.
                let due = self.in_flight.is_none() && self.coordinator_alive;
                let due = due.then(|| self.decision(coordinator)).flatten();
                let busy = match due {
                    Some(Command::SetActive(_) | Command::SetTarget(_) | Command::SetOrder(_)) => true,
                    Some(Command::SetAttempt { .. } | Command::Free { .. }) => true,
                    Some(Command::Assign { .. } | Command::Kill(_) | Command::Do { .. }) => false,
                    Some(Command::ReclaimWorker { .. }) | None => {
                        !self.coordinator_alive || self.in_flight.is_some()
                    }
                };
                let slot = &mut self.lines[slot];
                let timed = match slot.attempt {
                    ReloadState::Spawning | ReloadState::HandingOver | ReloadState::Settling => true,
                    ReloadState::Draining | ReloadState::Quitting | ReloadState::EndingNew => true,
                    ReloadState::Idle
                    | ReloadState::GivingBack
                    | ReloadState::Reclaiming
                    | ReloadState::ReclaimingNew => false,
                };
                timed && !busy && slot.epoch != 0 && !std::mem::replace(&mut slot.expired, true)
            }
            Step::Decide => {
                if !self.coordinator_alive || self.in_flight.is_some() {
                    return false;
                }
                let decision = self.decision(coordinator);
                match decision {
                    Some(command) if !fine => self.apply(command),
                    decision => self.in_flight = decision,
                }
                decision.is_some()
            }
            Step::Apply => self.in_flight.take().is_some_and(|command| {
                self.apply(command);
                true
            }),
            Step::RestartCoordinator => !std::mem::replace(&mut self.coordinator_alive, true),
            Step::Kill(place) => {
                self.crash()
                    && self.places[place].as_mut().filter(|process| process.is_alive()).is_some_and(
                        |process| {
                            process.die();
                            true
                        },
                    )
            }
            Step::Stop(place) => {
                self.crash()
                    && self.running(place).is_some_and(|process| {
                        process.life = Life::Stopped;
                        true
                    })
            }
            Step::KillCoordinator => {
                self.in_flight = None;
                self.crash() && std::mem::replace(&mut self.coordinator_alive, false)
            }
            Step::KillMaster => self.crash() && std::mem::replace(&mut self.master_alive, false),
        }
    }

    fn crash(&mut self) -> bool {
        let left = self.crashes_left > 0;
        self.crashes_left -= u8::from(left);
        self.respawns_left += u8::from(left);
        left
    }

    /// A HUP, while the coordinator can answer.
    fn accept(&mut self) -> bool {
        if self.reloads_left == 0 || !self.coordinator_alive || !self.master_alive || self.in_flight.is_some()
        {
            return false;
        }
        let request = ReloadRequest {
            workers: self.workers() as u32,
            changed_device_key: None,
            configuration_error: None,
            second_master: None,
            no_free_slot: NoFreeSlot::Wait,
        };
        let Ok(Accepted::Begin { slot, predecessor }) = accept(&self.words(), &request) else { return false };
        self.reloads_left -= 1;
        self.lines[slot] = Slot {
            epoch: self.next_epoch,
            attempt: ReloadState::Spawning,
            predecessor,
            expired: false,
            steps: 0,
        };
        self.next_epoch += 1;
        true
    }

    /// A worker attaches through the coordinator: for the first time, or in the
    /// place of one that died and was cleared away.
    fn attach(&mut self, place: usize) -> bool {
        let slot = place / self.workers();
        let line = self.lines[slot];
        if line.epoch == 0 || self.places[place].is_some() || !self.master_alive || !self.coordinator_alive {
            return false;
        }
        let respawned = match line.attempt {
            ReloadState::Spawning => false,
            ReloadState::Idle | ReloadState::Settling => self.active.is_some_and(|it| it.epoch == line.epoch),
            ReloadState::HandingOver
            | ReloadState::Draining
            | ReloadState::Quitting
            | ReloadState::Reclaiming
            | ReloadState::GivingBack
            | ReloadState::EndingNew
            | ReloadState::ReclaimingNew => return false,
        };
        if line.attempt != ReloadState::Spawning {
            if !respawned || self.respawns_left == 0 {
                return false;
            }
            self.respawns_left -= 1;
            self.respawned += 1;
        }
        // The same whatever the order in which workers attach.
        let pid = 100 * u32::from(self.respawned) + place as u32 + 1;
        self.places[place] = Some(Process::new(Owner { epoch: line.epoch, pid }));
        true
    }

    /// The top of a pass: whose are the queues?
    fn look(&mut self, place: usize) -> bool {
        let queues = self.queue_owners;
        let Some(me) = self.places[place].map(|process| process.owner) else { return false };
        let successors: [_; WORKERS] = std::array::from_fn(|queue| self.successor_of(me, queue));
        let Some(process) = self.running(place).filter(|process| process.ready && process.giving.is_none())
        else {
            return false;
        };
        let mine = (0..queues.len()).filter(|queue| queues[*queue] == Some(process.owner));
        process.polling = mine.clone().fold(0, |bits, queue| bits | 1 << queue);
        process.giving = mine.filter_map(|queue| successors[queue].map(|to| (queue as u8, to))).next();
        if process.giving.is_none() {
            self.answer(place);
        }
        true
    }

    /// The end of a pass: the burst is done, the queue goes.
    fn act(&mut self, place: usize) -> bool {
        let Some(process) = self.running(place) else { return false };
        let Some((queue, to)) = process.giving.take() else { return false };
        process.polling &= !(1 << queue);
        let me = process.owner;
        let word = &mut self.queue_owners[queue as usize];
        if *word == Some(me) {
            *word = Some(to);
        }
        self.answer(place);
        true
    }

    fn answer(&mut self, place: usize) {
        let order = self.order;
        if let Some(process) = self.running(place).filter(|_| order.is_some()) {
            process.parked = order;
        }
    }

    fn apply(&mut self, command: Command) {
        let workers = self.workers();
        match command {
            Command::SetAttempt { slot, state, event: _, actions: _ } => {
                let slot = &mut self.lines[slot];
                (slot.attempt, slot.steps, slot.expired) = (state, 0, false);
            }
            Command::SetActive(active) => self.active = active,
            Command::SetTarget(target) => self.target = target,
            Command::SetOrder(order) => self.order = order,
            Command::Assign { queue, from, to } => {
                if self.queue_owners[queue] == from {
                    self.queue_owners[queue] = Some(to);
                }
            }
            Command::Kill(owner) => {
                if let Some(process) = self.places.iter_mut().flatten().find(|process| process.owner == owner)
                {
                    (process.told, process.killed) = (3, true);
                }
            }
            Command::Do { slot, action, step } => {
                let told = match action {
                    ReloadAction::ReleaseQuits => 1,
                    ReloadAction::QuitOld => signal(Firmness::of_quit_old(step)),
                    ReloadAction::EndNew => signal(Firmness::of_end_new(step)),
                    ReloadAction::SwallowQuits => 0,
                    other => panic!("{other:?} is not done in steps"),
                };
                for process in self.places[slot * workers..][..workers].iter_mut().flatten() {
                    process.told = process.told.max(told);
                }
                let slot = &mut self.lines[slot];
                slot.steps = (slot.steps + 1).min(4);
                slot.expired = false;
            }
            Command::ReclaimWorker { slot, worker, dead } => {
                let place = &mut self.places[slot * workers + worker];
                if place.is_some_and(|process| process.owner == dead) {
                    *place = None;
                }
            }
            Command::Free { slot, actions: _ } => {
                self.places[slot * workers..][..workers].fill(None);
                self.lines[slot] = Slot {
                    epoch: 0,
                    attempt: ReloadState::Idle,
                    predecessor: None,
                    expired: false,
                    steps: 0,
                };
            }
        }
    }

    /// The generation that queues belong to by the words.
    fn receiver(&self) -> Option<EpochSlot> {
        Words {
            slots: Vec::new(),
            queues: Vec::new(),
            active: self.active,
            target: self.target,
            order: self.order,
        }
        .named_receiver()
    }

    /// What `Directory::successor_of` says.
    fn successor_of(&self, me: Owner, queue: usize) -> Option<Owner> {
        let receiver = self.receiver()?;
        let workers = self.workers();
        let ready = |index: usize| {
            self.places[receiver.slot as usize * workers + index]
                .filter(|process| process.ready && process.owner.epoch == receiver.epoch)
                .map(|process| process.owner)
        };
        if queue >= workers {
            return None;
        }
        if let Some(rightful) = ready(queue) {
            return (rightful != me).then_some(rightful);
        }
        (me.epoch != receiver.epoch).then(|| (1..workers).find_map(|step| ready((queue + step) % workers)))?
    }

    fn owned_by(&self, place: usize) -> bool {
        self.places[place].is_some_and(|process| self.queues().contains(&Some(process.owner)))
    }

    fn running(&mut self, place: usize) -> Option<&mut Process> {
        self.places[place].as_mut().filter(|process| process.life == Life::Running)
    }

    /// The words as the coordinator reads them.
    pub fn words(&self) -> Words {
        let slots = self
            .slots()
            .iter()
            .enumerate()
            .map(|(slot, line)| SlotWords {
                epoch: line.epoch,
                attempt: line.attempt,
                predecessor: line.predecessor,
                since_us: if line.expired { 0 } else { NOW_US },
                steps: u32::from(line.steps),
                workers: self
                    .of_slot(slot)
                    .iter()
                    .map(|process| process.map_or_else(WorkerState::default, |process| process.words()))
                    .collect(),
            })
            .collect();
        Words {
            active: self.active,
            target: self.target,
            order: self.order,
            queues: self.queues().to_vec(),
            slots,
        }
    }
}

fn signal(firmness: Firmness) -> u8 {
    match firmness {
        Firmness::Quit => 1,
        Firmness::Term => 2,
        Firmness::Kill => 3,
    }
}

impl Process {
    fn new(owner: Owner) -> Self {
        Self {
            owner,
            life: Life::Running,
            ready: false,
            told: 0,
            killed: false,
            polling: 0,
            giving: None,
            parked: None,
            drained: 0,
        }
    }

    pub fn is_alive(&self) -> bool {
        match self.life {
            Life::Running | Life::Stopped | Life::Stalled => true,
            Life::Dead | Life::KnownDead => false,
        }
    }

    /// What it believed is gone with it; its words stay.
    fn die(&mut self) {
        self.life = Life::Dead;
        self.polling = 0;
        self.giving = None;
    }

    fn words(&self) -> WorkerState {
        let drain = DrainReport { conns: 1, half_open: 1, ..DrainReport::default() };
        let drain = match self.drained {
            0 => drain,
            1 => DrainReport { half_open: 0, ..drain },
            _ => DrainReport::default(),
        };
        WorkerState {
            attached: Some(self.owner),
            ready: self.ready.then_some(self.owner),
            parked: self.parked,
            heartbeat_us: if self.life == Life::Stalled { 0 } else { NOW_US },
            drain: Some(drain),
        }
    }
}

/// The table with one entry changed: what the exploration must find.
pub type Table = fn(ReloadState, ReloadEvent) -> ff_handover::Outcome;
