//! What the coordinator does next, as a pure function of the words in shared
//! memory, of who is alive, and of the time.
//!
//! It keeps no state of its own: [`Coordinator::decide`] looks at everything
//! anew and names *one* thing to do, a store of one word or one act outside.
//! The caller does it and asks again until there is nothing to do. So a
//! coordinator that is killed between any two of them is replaced by one that
//! simply goes on, and recovery is not a special case.
//!
//! The caller answers a worker that wants to attach only while there is nothing
//! to do: between two stores that belong together nobody may turn up to whom
//! the first of them alone means something else.
//!
//! The state of an attempt ([`ReloadState`]) is in the line of the new
//! generation until the old one's QUITs are released, and from then on in the
//! line of the old one. In each generation's line it therefore reads as that
//! generation's own life: spawning, handing over, settling, idle (it serves),
//! draining, quitting, reclaiming; or giving back, ending, reclaiming.

mod accept;
mod snapshot;
mod words;

pub use accept::{Accepted, NoFreeSlot, Refusal, ReloadRequest, accept};
pub use words::{SlotWords, Words, WorkerState};

use ff_flowmap::Owner;

use crate::machine::{self, Outcome, ReloadAction, ReloadEvent, ReloadState};
use crate::words::{EpochSlot, ParkOrder, ParkWord};

/// Time limits, all in microseconds, from the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// T1: until every worker is READY.
    pub ready_timeout_us: u64,
    /// T2: until every living old worker has handed over.
    pub handover_timeout_us: u64,
    /// In a window: a worker without a pass for so long is stalled, and killed
    /// before anything that it owns is given to another.
    pub heartbeat_timeout_us: u64,
    /// T3: until the QUITs are released although handshakes are half done.
    pub settle_timeout_us: u64,
    /// T3: until the old generation has to end although it holds connections.
    pub drain_timeout_us: u64,
    /// T4, and when new processes are ended: from QUIT to TERM to KILL.
    pub quit_step_us: u64,
}

/// What is known of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fate {
    /// Its pidfd says that it lives.
    Alive,
    /// KILL was sent, its end is not seen yet.
    Killed,
    /// Its pidfd says that it has ended.
    Dead,
}

/// One thing to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Command {
    /// Store the state of a generation's line; to be logged with its event.
    SetAttempt {
        /// The generation's slot.
        slot: usize,
        /// Its new state.
        state: ReloadState,
        /// Why.
        event: ReloadEvent,
        /// What this means for people: reports, log lines, answers.
        actions: &'static [ReloadAction],
    },
    /// Store the active word.
    SetActive(Option<EpochSlot>),
    /// Store the target word.
    SetTarget(Option<EpochSlot>),
    /// Store the park order.
    SetOrder(Option<ParkWord>),
    /// Give a queue to `to`: from nobody, or from a dead owner.
    Assign {
        /// The queue.
        queue: usize,
        /// Its dead owner.
        from: Option<Owner>,
        /// Its new owner.
        to: Owner,
    },
    /// Kill a stalled process, so that what it owns can be taken.
    Kill(Owner),
    /// Do something outside, then store that this step is done.
    Do {
        /// The generation whose line counts the steps.
        slot: usize,
        /// What.
        action: ReloadAction,
        /// How often it was done; a signal gets firmer with each time: see
        /// [`Firmness`].
        step: u32,
    },
    /// Reset the tables of a dead worker, recover its packets, clear its lines.
    ReclaimWorker {
        /// Its slot.
        slot: usize,
        /// Its index.
        worker: usize,
        /// The process that is dead.
        dead: Owner,
    },
    /// The same for all workers of a slot; then free it.
    Free {
        /// The slot.
        slot: usize,
        /// What this means for people.
        actions: &'static [ReloadAction],
    },
}

/// How firmly processes are told to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Firmness {
    /// Finish what you have.
    Quit,
    /// Finish at once.
    Term,
    /// No question.
    Kill,
}

impl Firmness {
    /// For step `step` of [`ReloadAction::QuitOld`].
    pub const fn of_quit_old(step: u32) -> Self {
        match step {
            0 | 1 => Self::Quit,
            2 => Self::Term,
            3.. => Self::Kill,
        }
    }

    /// For step `step` of [`ReloadAction::EndNew`], which comes after the QUITs
    /// were swallowed.
    pub const fn of_end_new(step: u32) -> Self {
        match step {
            0 | 1 => Self::Term,
            2.. => Self::Kill,
        }
    }
}

/// The coordinator: the limits and the table, nothing that changes.
#[derive(Clone, Copy, Debug)]
pub struct Coordinator {
    /// Time limits.
    pub limits: Limits,
    /// The machine: [`machine::step`], except in tests that put a fault in it.
    pub table: fn(ReloadState, ReloadEvent) -> Outcome,
}

impl Coordinator {
    /// A coordinator with the machine's own table.
    pub fn new(limits: Limits) -> Self {
        Self { limits, table: machine::step }
    }

    /// The next thing to do, if there is any. `fate` says what is known of a
    /// process that is attached.
    pub fn decide(&self, words: &Words, now_us: u64, fate: &dyn Fn(Owner) -> Fate) -> Option<Command> {
        let view = View { words, now_us, fate, limits: &self.limits };
        // The words first: an event must not be read off words that still say
        // what the last state was.
        view.goals()
            .or_else(|| self.transition(&view))
            .or_else(|| view.orphan())
            .or_else(|| view.stalled())
            .or_else(|| view.step_due())
            .or_else(|| view.dead_worker())
    }

    fn transition(&self, view: &View<'_>) -> Option<Command> {
        view.slots_by_epoch().find_map(|slot| {
            let line = &view.words.slots[slot];
            if let Some((state, event)) = view.leftover(slot) {
                return Some(Command::SetAttempt { slot, state, event, actions: &[] });
            }
            let event = view.event(slot)?;
            match (self.table)(line.attempt, event) {
                Outcome::Next(ReloadState::Idle, actions) => Some(Command::Free { slot, actions }),
                Outcome::Next(state @ (ReloadState::Draining | ReloadState::Reclaiming), actions)
                    if line.attempt == ReloadState::Settling =>
                {
                    let slot = view.words.predecessor_of(slot)?;
                    Some(Command::SetAttempt { slot, state, event, actions })
                }
                Outcome::Next(state, actions) => Some(Command::SetAttempt { slot, state, event, actions }),
                Outcome::NoOp | Outcome::Illegal => None,
            }
        })
    }
}

/// Everything that a decision goes by.
struct View<'a> {
    words: &'a Words,
    now_us: u64,
    fate: &'a dyn Fn(Owner) -> Fate,
    limits: &'a Limits,
}

impl View<'_> {
    /// What is known of `owner`. Lines are cleared for the dead only, so one whom
    /// no line names is dead, whatever process has its number now.
    fn fate_of(&self, owner: Owner) -> Fate {
        let named = self
            .words
            .slots
            .iter()
            .flat_map(|line| &line.workers)
            .any(|worker| worker.attached == Some(owner));
        if named { (self.fate)(owner) } else { Fate::Dead }
    }

    /// Makes active, target and park order agree with the attempts.
    ///
    /// The order of the stores: when queues go to the target, it is named before
    /// the order is given. When it has them, it becomes active before the order
    /// is taken back, and is the target until after that. So at no moment do the
    /// words say that they belong to anybody else.
    fn goals(&self) -> Option<Command> {
        let words = self.words;
        let handover = self.slots_by_epoch().find(|slot| words.slots[*slot].attempt.is_handover());
        let new = handover.map(|slot| words.generation(slot));
        let state = handover.map(|slot| words.slots[slot].attempt);
        let (target, order) = match state {
            Some(ReloadState::Spawning) => (new, None),
            Some(ReloadState::HandingOver) => (new, Some(ParkOrder::HandOver)),
            Some(ReloadState::GivingBack) => (new, Some(ParkOrder::GiveBack)),
            Some(
                ReloadState::Idle
                | ReloadState::Settling
                | ReloadState::Draining
                | ReloadState::Quitting
                | ReloadState::Reclaiming
                | ReloadState::EndingNew
                | ReloadState::ReclaimingNew,
            )
            | None => (None, None),
        };
        let order = new.zip(order).map(|(new, order)| ParkWord { epoch: new.epoch, order });
        let active = words.current();
        if words.active != active {
            Some(Command::SetActive(active))
        } else if target.is_some() && words.target != target {
            Some(Command::SetTarget(target))
        } else if words.order != order {
            Some(Command::SetOrder(order))
        } else if words.target != target {
            Some(Command::SetTarget(target))
        } else {
            None
        }
    }

    /// What a generation in `slot` that is left behind has to do: the second half
    /// of the store that relieved its predecessor; and, should the words ever
    /// hold two generations that serve or two handovers, which no sequence of
    /// stores leads to, the end of the older one.
    fn leftover(&self, slot: usize) -> Option<(ReloadState, ReloadEvent)> {
        let words = self.words;
        let line = &words.slots[slot];
        let current = words.current();
        let outdated = current.is_some_and(|current| current.epoch > line.epoch);
        match line.attempt {
            ReloadState::Settling => {
                let alone = words.predecessor_of(slot).is_none_or(|old| old == slot || self.is_relieved(old));
                (alone || outdated).then_some((ReloadState::Idle, ReloadEvent::Reclaimed))
            }
            ReloadState::Idle => {
                let followed = current.is_some_and(|current| {
                    let by = current.slot as usize;
                    words.slots[by].attempt == ReloadState::Settling && words.predecessor_of(by) == Some(slot)
                });
                (outdated && !followed).then_some((ReloadState::Draining, ReloadEvent::Settled))
            }
            ReloadState::Spawning | ReloadState::HandingOver | ReloadState::GivingBack => {
                let newer = words
                    .slots
                    .iter()
                    .any(|other| other.epoch > line.epoch && (other.attempt.is_handover() || outdated));
                newer.then_some((ReloadState::EndingNew, ReloadEvent::AllBack))
            }
            ReloadState::Draining
            | ReloadState::Quitting
            | ReloadState::Reclaiming
            | ReloadState::EndingNew
            | ReloadState::ReclaimingNew => None,
        }
    }

    /// What has happened to the generation in `slot`.
    fn event(&self, slot: usize) -> Option<ReloadEvent> {
        use ReloadEvent as E;
        let line = &self.words.slots[slot];
        let limits = self.limits;
        let elapsed = |limit_us: u64| self.now_us.saturating_sub(line.since_us) > limit_us;
        let old = self.words.predecessor_of(slot);
        let either = |yes: bool, event: E| yes.then_some(event);
        match line.attempt {
            ReloadState::Idle => None,
            ReloadState::Spawning => either(self.any_dead(slot), E::NewLost)
                .or_else(|| either(self.all_ready(slot), E::AllReady))
                .or_else(|| either(elapsed(limits.ready_timeout_us), E::ReadyTimeout)),
            ReloadState::HandingOver => {
                let lost = !self.all_ready(slot) && old.is_some_and(|old| self.serving(old) > 0);
                either(lost, E::NewLost).or_else(|| either(self.owns_all_queues(slot), E::AllHanded)).or_else(
                    || {
                        // A queue whose owner is dead is no reason: a whole new
                        // generation takes it at once.
                        let late = elapsed(limits.handover_timeout_us)
                            && (self.is_owned_by_other(slot) || !self.all_ready(slot));
                        either(late, E::HandoverTimeout)
                    },
                )
            }
            ReloadState::Settling => {
                let old = old?;
                either(!self.all_ready(slot) && self.all_ready(old), E::NewLost)
                    .or_else(|| either(self.is_gone(old), E::OldGone))
                    .or_else(|| {
                        either(self.no_half_open(old) || elapsed(limits.settle_timeout_us), E::Settled)
                    })
            }
            ReloadState::Draining => either(self.is_gone(slot), E::OldGone)
                // Not before the QUITs are out: nginx, too, has to see its end.
                .or_else(|| either(line.steps > 0 && self.holds_nothing(slot), E::NothingLeft))
                .or_else(|| either(elapsed(limits.drain_timeout_us), E::DrainDeadline)),
            ReloadState::Quitting => either(self.is_gone(slot), E::OldGone),
            ReloadState::GivingBack => {
                let old_gone = old.is_none_or(|old| self.is_gone(old));
                either(old_gone && self.serving(slot) > 0, E::OldGone)
                    .or_else(|| either(self.is_all_back(slot), E::AllBack))
            }
            ReloadState::EndingNew => either(self.is_gone(slot), E::NewGone),
            // What is to be reclaimed is reclaimed by the command that follows.
            ReloadState::Reclaiming | ReloadState::ReclaimingNew => Some(E::Reclaimed),
        }
    }

    /// A queue that nobody owns, or somebody dead, and who is to have it.
    fn orphan(&self) -> Option<Command> {
        self.words.queues.iter().enumerate().find_map(|(queue, owner)| {
            let from = *owner;
            if from.is_some_and(|owner| self.fate_of(owner) != Fate::Dead) {
                return None;
            }
            let to = self.heir(queue)?;
            Some(Command::Assign { queue, from, to })
        })
    }

    /// The worker whose queue it is; or, for the time being, another worker of
    /// the same generation; or anybody who can serve. Never one that was told to
    /// quit, and none of a generation that is still being started.
    fn heir(&self, queue: usize) -> Option<Owner> {
        let receiver = self.words.receiver();
        let in_order = receiver.into_iter().map(|receiver| receiver.slot as usize).chain(
            self.slots_by_epoch().filter(|slot| {
                matches!(
                    self.words.slots[*slot].attempt,
                    ReloadState::Idle
                        | ReloadState::Settling
                        | ReloadState::HandingOver
                        | ReloadState::GivingBack
                )
            }),
        );
        in_order.flat_map(|slot| self.ready_from(slot, queue)).next()
    }

    /// Somebody who has not begun a pass for too long and owns what others wait
    /// for.
    fn stalled(&self) -> Option<Command> {
        let window = self.words.slots.iter().any(|line| line.epoch != 0 && line.attempt != ReloadState::Idle);
        let handing_over =
            self.words.slots.iter().any(|line| line.epoch != 0 && line.attempt == ReloadState::HandingOver);
        // Those whose answer the way back waits for.
        let giving_back =
            self.slots_by_epoch().find(|slot| self.words.slots[*slot].attempt == ReloadState::GivingBack);
        let asked =
            |slot| giving_back.is_some_and(|new| slot == new || self.words.predecessor_of(new) == Some(slot));
        self.slots_by_epoch().find_map(|slot| {
            let line = &self.words.slots[slot];
            line.workers.iter().find_map(|worker| {
                let owner = worker.attached?;
                let idle_us = self.now_us.saturating_sub(worker.heartbeat_us);
                let owns = self.words.queues.contains(&Some(owner));
                if owns && worker.ready != Some(owner) {
                    // It cannot be: nobody gets a queue before it is READY. Who
                    // owns one and makes no pass would keep it for ever.
                    return (self.fate_of(owner) == Fate::Alive).then_some(Command::Kill(owner));
                }
                let stalled = window && idle_us > self.limits.heartbeat_timeout_us;
                // An old worker that stalls in T2 makes the handover go back first.
                let awaited = if handing_over {
                    owns && line.attempt == ReloadState::HandingOver
                } else {
                    owns || (asked(slot) && worker.parked != self.words.order)
                };
                (stalled && worker.ready.is_some() && awaited && self.fate_of(owner) == Fate::Alive)
                    .then_some(Command::Kill(owner))
            })
        })
    }

    /// The next outside act of a state that has some.
    fn step_due(&self) -> Option<Command> {
        self.slots_by_epoch().find_map(|slot| {
            let line = &self.words.slots[slot];
            let step = line.steps;
            let waited = self.now_us.saturating_sub(line.since_us) > self.limits.quit_step_us;
            let action = match line.attempt {
                ReloadState::Draining if step == 0 => ReloadAction::ReleaseQuits,
                ReloadState::Quitting if step == 0 || waited => ReloadAction::QuitOld,
                ReloadState::EndingNew if step == 0 => ReloadAction::SwallowQuits,
                ReloadState::EndingNew if step == 1 || waited => ReloadAction::EndNew,
                ReloadState::Idle
                | ReloadState::Spawning
                | ReloadState::HandingOver
                | ReloadState::Settling
                | ReloadState::Draining
                | ReloadState::Quitting
                | ReloadState::Reclaiming
                | ReloadState::GivingBack
                | ReloadState::EndingNew
                | ReloadState::ReclaimingNew => return None,
            };
            let step = if action == ReloadAction::EndNew { step - 1 } else { step };
            Some(Command::Do { slot, action, step })
        })
    }

    /// A dead worker of a generation that goes on: nothing is to be forwarded to
    /// it any more, and its place is for the one that nginx starts next.
    fn dead_worker(&self) -> Option<Command> {
        self.slots_by_epoch()
            .filter(|slot| {
                matches!(
                    self.words.slots[*slot].attempt,
                    ReloadState::Idle | ReloadState::Settling | ReloadState::Draining | ReloadState::Quitting
                )
            })
            .find_map(|slot| {
                self.words.slots[slot].workers.iter().enumerate().find_map(|(worker, state)| {
                    let dead = state.attached.filter(|owner| self.fate_of(*owner) == Fate::Dead)?;
                    Some(Command::ReclaimWorker { slot, worker, dead })
                })
            })
    }

    fn slots_by_epoch(&self) -> impl Iterator<Item = usize> {
        let mut slots: Vec<_> =
            (0..self.words.slots.len()).filter(|slot| self.words.slots[*slot].epoch != 0).collect();
        slots.sort_by_key(|slot| std::cmp::Reverse(self.words.slots[*slot].epoch));
        slots.into_iter()
    }

    /// Living READY workers of `slot`, the one with index `first` first.
    fn ready_from(&self, slot: usize, first: usize) -> impl Iterator<Item = Owner> {
        let line = &self.words.slots[slot];
        let count = line.workers.len();
        (0..count)
            .map(move |step| &line.workers[(first + step) % count])
            .filter_map(|worker| {
                worker.ready.filter(|ready| worker.attached == Some(*ready) && ready.epoch == line.epoch)
            })
            .filter(|ready| self.fate_of(*ready) == Fate::Alive)
    }

    fn serving(&self, slot: usize) -> usize {
        self.ready_from(slot, 0).count()
    }

    fn all_ready(&self, slot: usize) -> bool {
        self.serving(slot) == self.words.slots[slot].workers.len()
    }

    fn living(&self, slot: usize) -> impl Iterator<Item = &WorkerState> {
        self.words.slots[slot]
            .workers
            .iter()
            .filter(|worker| worker.attached.is_some_and(|owner| self.fate_of(owner) != Fate::Dead))
    }

    fn any_dead(&self, slot: usize) -> bool {
        let attached =
            self.words.slots[slot].workers.iter().filter(|worker| worker.attached.is_some()).count();
        self.living(slot).count() < attached
    }

    fn is_gone(&self, slot: usize) -> bool {
        self.living(slot).next().is_none()
    }

    fn owns_all_queues(&self, slot: usize) -> bool {
        let epoch = self.words.slots[slot].epoch;
        self.words
            .queues
            .iter()
            .all(|owner| owner.is_some_and(|owner| owner.epoch == epoch && self.fate_of(owner) != Fate::Dead))
    }

    /// Somebody alive who is not of the generation in `slot` owns a queue.
    fn is_owned_by_other(&self, slot: usize) -> bool {
        let epoch = self.words.slots[slot].epoch;
        self.words
            .queues
            .iter()
            .flatten()
            .any(|owner| owner.epoch != epoch && self.fate_of(*owner) != Fate::Dead)
    }

    /// Nobody alive of the generation in `slot` owns a queue, and whoever lives
    /// of it and of its predecessor has answered: so none of them is about to
    /// follow an order that it read before.
    fn is_all_back(&self, slot: usize) -> bool {
        let epoch = self.words.slots[slot].epoch;
        let order = ParkWord { epoch, order: ParkOrder::GiveBack };
        let owns = self
            .words
            .queues
            .iter()
            .flatten()
            .any(|owner| owner.epoch == epoch && self.fate_of(*owner) != Fate::Dead);
        let concerned = self.words.predecessor_of(slot).into_iter().chain([slot]);
        !owns
            && concerned
                .flat_map(|slot| self.living(slot))
                .all(|worker| worker.ready.is_none() || worker.parked == Some(order))
    }

    fn no_half_open(&self, slot: usize) -> bool {
        self.living(slot).all(|worker| worker.drain.is_some_and(|report| report.half_open == 0))
    }

    fn holds_nothing(&self, slot: usize) -> bool {
        self.living(slot).all(|worker| worker.drain.is_some_and(|report| report.is_drained()))
    }

    fn is_relieved(&self, slot: usize) -> bool {
        matches!(
            self.words.slots[slot].attempt,
            ReloadState::Draining | ReloadState::Quitting | ReloadState::Reclaiming
        )
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
