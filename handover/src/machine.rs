//! The T0–T5 machine: one table, states × events, without wildcard arms.
//!
//! One machine runs for each *attempt*, that is for each generation that is
//! started to follow another. Several attempts may be in T3 to T5 side by side;
//! at most one is in T1, T2 or on its way back ([`ReloadState::is_handover`]).
//! The state is durable: it is a word in the line of the new generation.
//!
//! The table says what follows what. What must be true of the other words in a
//! state, and which event the world gives, is the coordinator's
//! ([`crate::coordinator`]).

use std::fmt::Write;

/// Where an attempt stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ReloadState {
    /// T0: no attempt, or it is complete.
    Idle,
    /// T1: the new workers are forked and attach.
    Spawning,
    /// T2: queues go from the old workers to the new ones.
    HandingOver,
    /// T3, first part: the new generation owns the receive side and proves
    /// itself; the old one finishes handshakes, still has its listeners, and can
    /// take the receive side back.
    Settling,
    /// T3, second part: the old generation was given its QUIT and serves what it
    /// still holds.
    Draining,
    /// T4: the old generation has nothing left, or no more time.
    Quitting,
    /// T5: all old processes are gone; what they owned is reclaimed.
    Reclaiming,
    /// The way back from T2 and T3: queues go back to the old workers.
    GivingBack,
    /// The new processes are being ended; the old generation serves.
    EndingNew,
    /// All new processes are gone; what they owned is reclaimed.
    ReclaimingNew,
}

/// What happens to an attempt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ReloadEvent {
    /// A reload was asked for, and nothing speaks against it.
    Accepted,
    /// Every new worker is alive and has written READY.
    AllReady,
    /// Not all of them in time.
    ReadyTimeout,
    /// A new worker died, and the old generation can serve in its place.
    NewLost,
    /// The new generation owns every queue.
    AllHanded,
    /// An old worker that is alive has not handed over its queue in time.
    HandoverTimeout,
    /// No handshake of the old generation is half done, or the time for that is up.
    Settled,
    /// The old generation holds no connection, unsent byte or live UDP flow.
    NothingLeft,
    /// It does, and its time is up.
    DrainDeadline,
    /// Processes that were told to end are still there.
    QuitTimeout,
    /// All old processes are dead.
    OldGone,
    /// The new generation owns no queue, and everybody alive has seen the order.
    AllBack,
    /// All new processes are dead.
    NewGone,
    /// Tables are reset and memory is reclaimed.
    Reclaimed,
}

/// What is done on a transition, besides making the words agree with the new
/// state. Each may be done again after a crash and then changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ReloadAction {
    /// Note the time, log, answer `ffctl`.
    OpenWindow,
    /// Order the old workers to hand over.
    OrderHandOver,
    /// Order the new workers to give back.
    OrderGiveBack,
    /// The new generation is the active one; no order any more.
    ActivateNew,
    /// The master may deliver the QUITs that it holds.
    ReleaseQuits,
    /// The master forgets the QUITs that it holds.
    SwallowQuits,
    /// Tell the old processes to quit, more firmly each time.
    QuitOld,
    /// Tell the new processes to end, more firmly each time.
    EndNew,
    /// Reset the tables of the old generation and reclaim its memory.
    ReclaimOld,
    /// The same for the new one.
    ReclaimNew,
    /// Report completion and close the window.
    ReportComplete,
    /// Report the abort with its reason and close the window.
    ReportAborted,
}

/// What the table says about an event in a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The next state, and what is done on the way.
    Next(ReloadState, &'static [ReloadAction]),
    /// It may happen, and changes nothing.
    NoOp,
    /// It cannot happen; if it does, that is a fault to be logged.
    Illegal,
}

/// The table.
pub fn step(state: ReloadState, event: ReloadEvent) -> Outcome {
    use Outcome::{Illegal, Next, NoOp};
    use ReloadAction as A;
    use ReloadEvent as E;
    use ReloadState as S;
    match state {
        S::Idle => match event {
            E::Accepted => Next(S::Spawning, &[A::OpenWindow]),
            E::NewLost | E::OldGone | E::NewGone => NoOp,
            E::AllReady | E::ReadyTimeout | E::AllHanded | E::HandoverTimeout | E::Settled => Illegal,
            E::NothingLeft | E::DrainDeadline | E::QuitTimeout | E::AllBack | E::Reclaimed => Illegal,
        },
        S::Spawning => match event {
            E::AllReady => Next(S::HandingOver, &[A::OrderHandOver]),
            E::ReadyTimeout | E::NewLost | E::NewGone => Next(S::EndingNew, &[A::SwallowQuits, A::EndNew]),
            E::OldGone => NoOp,
            E::Accepted | E::AllHanded | E::HandoverTimeout | E::Settled | E::NothingLeft => Illegal,
            E::DrainDeadline | E::QuitTimeout | E::AllBack | E::Reclaimed => Illegal,
        },
        S::HandingOver => match event {
            E::AllHanded => Next(S::Settling, &[A::ActivateNew]),
            E::HandoverTimeout | E::NewLost => Next(S::GivingBack, &[A::OrderGiveBack]),
            E::NewGone => Next(S::GivingBack, &[A::OrderGiveBack]),
            E::OldGone => NoOp,
            E::Accepted | E::AllReady | E::ReadyTimeout | E::Settled | E::NothingLeft => Illegal,
            E::DrainDeadline | E::QuitTimeout | E::AllBack | E::Reclaimed => Illegal,
        },
        S::Settling => match event {
            E::Settled => Next(S::Draining, &[A::ReleaseQuits]),
            E::NewLost => Next(S::GivingBack, &[A::OrderGiveBack]),
            E::OldGone => Next(S::Reclaiming, &[A::ReclaimOld]),
            E::NewGone => NoOp,
            E::Accepted | E::AllReady | E::ReadyTimeout | E::AllHanded | E::HandoverTimeout => Illegal,
            E::NothingLeft | E::DrainDeadline | E::QuitTimeout | E::AllBack | E::Reclaimed => Illegal,
        },
        S::Draining => match event {
            E::NothingLeft | E::DrainDeadline => Next(S::Quitting, &[A::QuitOld]),
            E::OldGone => Next(S::Reclaiming, &[A::ReclaimOld]),
            E::NewLost | E::NewGone => NoOp,
            E::Accepted | E::AllReady | E::ReadyTimeout | E::AllHanded | E::HandoverTimeout => Illegal,
            E::Settled | E::QuitTimeout | E::AllBack | E::Reclaimed => Illegal,
        },
        S::Quitting => match event {
            E::QuitTimeout => Next(S::Quitting, &[A::QuitOld]),
            E::OldGone => Next(S::Reclaiming, &[A::ReclaimOld]),
            E::NewLost | E::NewGone | E::NothingLeft | E::DrainDeadline => NoOp,
            E::Accepted | E::AllReady | E::ReadyTimeout | E::AllHanded | E::HandoverTimeout => Illegal,
            E::Settled | E::AllBack | E::Reclaimed => Illegal,
        },
        S::Reclaiming => match event {
            E::Reclaimed => Next(S::Idle, &[A::ReportComplete]),
            E::OldGone | E::NewLost | E::NewGone => NoOp,
            E::Accepted | E::AllReady | E::ReadyTimeout | E::AllHanded | E::HandoverTimeout => Illegal,
            E::Settled | E::NothingLeft | E::DrainDeadline | E::QuitTimeout | E::AllBack => Illegal,
        },
        S::GivingBack => match event {
            E::AllBack => Next(S::EndingNew, &[A::SwallowQuits, A::EndNew]),
            // Nobody is left to give back to: forwards, if the new ones live.
            E::OldGone => Next(S::HandingOver, &[A::OrderHandOver]),
            E::NewLost | E::NewGone | E::HandoverTimeout => NoOp,
            E::Accepted | E::AllReady | E::ReadyTimeout | E::AllHanded | E::Settled => Illegal,
            E::NothingLeft | E::DrainDeadline | E::QuitTimeout | E::Reclaimed => Illegal,
        },
        S::EndingNew => match event {
            E::QuitTimeout => Next(S::EndingNew, &[A::EndNew]),
            E::NewGone => Next(S::ReclaimingNew, &[A::ReclaimNew]),
            E::NewLost | E::OldGone => NoOp,
            E::Accepted | E::AllReady | E::ReadyTimeout | E::AllHanded | E::HandoverTimeout => Illegal,
            E::Settled | E::NothingLeft | E::DrainDeadline | E::AllBack | E::Reclaimed => Illegal,
        },
        S::ReclaimingNew => match event {
            E::Reclaimed => Next(S::Idle, &[A::ReportAborted]),
            E::NewLost | E::NewGone | E::OldGone => NoOp,
            E::Accepted | E::AllReady | E::ReadyTimeout | E::AllHanded | E::HandoverTimeout => Illegal,
            E::Settled | E::NothingLeft | E::DrainDeadline | E::QuitTimeout | E::AllBack => Illegal,
        },
    }
}

impl ReloadState {
    /// All states.
    pub const ALL: [Self; 10] = [
        Self::Idle,
        Self::Spawning,
        Self::HandingOver,
        Self::Settling,
        Self::Draining,
        Self::Quitting,
        Self::Reclaiming,
        Self::GivingBack,
        Self::EndingNew,
        Self::ReclaimingNew,
    ];

    /// As it is stored. Never reused for another state.
    pub const fn number(self) -> u32 {
        match self {
            Self::Idle => 0,
            Self::Spawning => 1,
            Self::HandingOver => 2,
            Self::Settling => 3,
            Self::Draining => 4,
            Self::Quitting => 5,
            Self::Reclaiming => 6,
            Self::GivingBack => 7,
            Self::EndingNew => 8,
            Self::ReclaimingNew => 9,
        }
    }

    /// From the stored number; `None` for one that this version does not know.
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Idle),
            1 => Some(Self::Spawning),
            2 => Some(Self::HandingOver),
            3 => Some(Self::Settling),
            4 => Some(Self::Draining),
            5 => Some(Self::Quitting),
            6 => Some(Self::Reclaiming),
            7 => Some(Self::GivingBack),
            8 => Some(Self::EndingNew),
            9 => Some(Self::ReclaimingNew),
            _ => None,
        }
    }

    /// Its name in the log, in `ffctl status` and in the matrix.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "T0 idle",
            Self::Spawning => "T1 spawning",
            Self::HandingOver => "T2 handing over",
            Self::Settling => "T3 settling",
            Self::Draining => "T3 draining",
            Self::Quitting => "T4 quitting",
            Self::Reclaiming => "T5 reclaiming",
            Self::GivingBack => "giving back",
            Self::EndingNew => "ending new",
            Self::ReclaimingNew => "reclaiming new",
        }
    }

    /// T1, T2 and the way back: of all attempts one at most.
    pub const fn is_handover(self) -> bool {
        match self {
            Self::Spawning | Self::HandingOver | Self::GivingBack | Self::EndingNew | Self::ReclaimingNew => {
                true
            }
            Self::Idle | Self::Settling | Self::Draining | Self::Quitting | Self::Reclaiming => false,
        }
    }

    /// The new generation has the receive side, or had it until a newer one came.
    pub const fn has_won(self) -> bool {
        match self {
            Self::Idle | Self::Settling | Self::Draining | Self::Quitting | Self::Reclaiming => true,
            Self::Spawning | Self::HandingOver | Self::GivingBack | Self::EndingNew | Self::ReclaimingNew => {
                false
            }
        }
    }
}

impl ReloadEvent {
    /// All events.
    pub const ALL: [Self; 14] = [
        Self::Accepted,
        Self::AllReady,
        Self::ReadyTimeout,
        Self::NewLost,
        Self::AllHanded,
        Self::HandoverTimeout,
        Self::Settled,
        Self::NothingLeft,
        Self::DrainDeadline,
        Self::QuitTimeout,
        Self::OldGone,
        Self::AllBack,
        Self::NewGone,
        Self::Reclaimed,
    ];

    /// Its name in the log and in the matrix.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::AllReady => "all ready",
            Self::ReadyTimeout => "ready timeout",
            Self::NewLost => "new lost",
            Self::AllHanded => "all handed",
            Self::HandoverTimeout => "handover timeout",
            Self::Settled => "settled",
            Self::NothingLeft => "nothing left",
            Self::DrainDeadline => "drain deadline",
            Self::QuitTimeout => "quit timeout",
            Self::OldGone => "old gone",
            Self::AllBack => "all back",
            Self::NewGone => "new gone",
            Self::Reclaimed => "reclaimed",
        }
    }
}

impl ReloadAction {
    /// Its name in the graph.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenWindow => "open window",
            Self::OrderHandOver => "order hand over",
            Self::OrderGiveBack => "order give back",
            Self::ActivateNew => "activate new",
            Self::ReleaseQuits => "release QUITs",
            Self::SwallowQuits => "swallow QUITs",
            Self::QuitOld => "quit old",
            Self::EndNew => "end new",
            Self::ReclaimOld => "reclaim old",
            Self::ReclaimNew => "reclaim new",
            Self::ReportComplete => "report complete",
            Self::ReportAborted => "report aborted",
        }
    }
}

/// The table as a Markdown table: states down, events across.
pub fn matrix() -> String {
    let mut text = String::from("| |");
    for event in ReloadEvent::ALL {
        let _ = write!(text, " {} |", event.name());
    }
    text.push_str("\n|---|");
    text.push_str(&"---|".repeat(ReloadEvent::ALL.len()));
    for state in ReloadState::ALL {
        let _ = write!(text, "\n| **{}** |", state.name());
        for event in ReloadEvent::ALL {
            let _ = match step(state, event) {
                Outcome::Next(next, _) => write!(text, " → {} |", next.name()),
                Outcome::NoOp => write!(text, " · |"),
                Outcome::Illegal => write!(text, " ✗ |"),
            };
        }
    }
    text.push('\n');
    text
}

/// The transitions as a Mermaid state diagram.
pub fn graph() -> String {
    let mut text = String::from("stateDiagram-v2\n");
    for state in ReloadState::ALL {
        let _ = writeln!(text, "    state \"{}\" as {state:?}", state.name());
    }
    text.push_str("    [*] --> Idle\n");
    for state in ReloadState::ALL {
        for event in ReloadEvent::ALL {
            if let Outcome::Next(next, actions) = step(state, event) {
                let actions: Vec<_> = actions.iter().map(|action| action.name()).collect();
                let _ =
                    writeln!(text, "    {state:?} --> {next:?}: {} / {}", event.name(), actions.join(", "));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests;
