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
mod view;
mod words;

pub use accept::{Accepted, NoFreeSlot, Refusal, ReloadRequest, accept};
pub use words::{SlotWords, Words, WorkerState};

use ff_flowmap::Owner;

use crate::machine::{self, Outcome, ReloadAction, ReloadEvent, ReloadState};
use crate::words::{EpochSlot, ParkWord};
use view::View;

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

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
