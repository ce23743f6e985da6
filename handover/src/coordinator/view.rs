//! What there is to see and to do, read off the words, the living and the time.
//! Each method that gives a command or an event is one rule.

use ff_flowmap::Owner;

use super::{Command, Fate, Limits, Words, WorkerState};
use crate::machine::{ReloadAction, ReloadEvent, ReloadState};
use crate::words::{ParkOrder, ParkWord};

/// Everything that a decision goes by.
pub(super) struct View<'a> {
    pub(super) words: &'a Words,
    pub(super) now_us: u64,
    pub(super) fate: &'a dyn Fn(Owner) -> Fate,
    pub(super) limits: &'a Limits,
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
    pub(super) fn goals(&self) -> Option<Command> {
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
    pub(super) fn leftover(&self, slot: usize) -> Option<(ReloadState, ReloadEvent)> {
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
    pub(super) fn event(&self, slot: usize) -> Option<ReloadEvent> {
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
    pub(super) fn orphan(&self) -> Option<Command> {
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
    pub(super) fn stalled(&self) -> Option<Command> {
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
    pub(super) fn step_due(&self) -> Option<Command> {
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
    pub(super) fn dead_worker(&self) -> Option<Command> {
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

    pub(super) fn slots_by_epoch(&self) -> impl Iterator<Item = usize> {
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

    pub(super) fn is_relieved(&self, slot: usize) -> bool {
        matches!(
            self.words.slots[slot].attempt,
            ReloadState::Draining | ReloadState::Quitting | ReloadState::Reclaiming
        )
    }
}
