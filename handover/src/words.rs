//! What the words of the directory mean. Every one is an integer of 64 bits
//! whose upper half is an epoch, so that nothing left from an earlier attempt
//! can be taken for an answer to this one.

use crate::machine::ReloadState;

/// Epoch and slot of a generation. As a word: epoch << 32 | slot. Epoch 0 is no
/// generation, so the word 0 means none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EpochSlot {
    /// Grows by one with every attempt, never reused; at least 1.
    pub epoch: u32,
    /// Which of the instance's slots it lives in.
    pub slot: u32,
}

impl EpochSlot {
    /// As a word.
    pub const fn word(self) -> u64 {
        join(self.epoch, self.slot)
    }

    /// From a word; `None` for no generation.
    pub const fn from_word(word: u64) -> Option<Self> {
        let (epoch, slot) = split(word);
        if epoch == 0 { None } else { Some(Self { epoch, slot }) }
    }
}

/// What a park order asks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ParkOrder {
    /// The workers of the active generation hand their queues to the target.
    HandOver,
    /// The workers of the target hand them back to the active generation.
    GiveBack,
}

/// The park order, and a worker's answer to it. As a word: epoch of the
/// *target* << 32 | 1 (hand over) or 2 (give back); 0 is no order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ParkWord {
    /// Epoch of the target generation of this handover.
    pub epoch: u32,
    /// What is asked for, or was done.
    pub order: ParkOrder,
}

impl ParkWord {
    /// As a word.
    pub const fn word(self) -> u64 {
        let order = match self.order {
            ParkOrder::HandOver => 1,
            ParkOrder::GiveBack => 2,
        };
        join(self.epoch, order)
    }

    /// From a word; `None` for no order, and for one that this version does not
    /// know.
    pub const fn from_word(word: u64) -> Option<Self> {
        let (epoch, number) = split(word);
        let order = match number {
            1 => ParkOrder::HandOver,
            2 => ParkOrder::GiveBack,
            _ => return None,
        };
        if epoch == 0 { None } else { Some(Self { epoch, order }) }
    }
}

/// Where the newest attempt stands, for people and for workers. As a word:
/// epoch << 32 | state. It follows from the generation lines, which are what a
/// primary that was started again goes by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FsmWord {
    /// Epoch of the attempt; 0 before the first.
    pub epoch: u32,
    /// Its state.
    pub state: ReloadState,
}

impl FsmWord {
    /// As a word.
    pub const fn word(self) -> u64 {
        join(self.epoch, self.state.number())
    }

    /// From a word. A state that this version does not know counts as idle.
    pub const fn from_word(word: u64) -> Self {
        let (epoch, number) = split(word);
        let state = match ReloadState::from_number(number) {
            Some(state) => state,
            None => ReloadState::Idle,
        };
        Self { epoch, state }
    }
}

/// What a generation is doing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum GenerationState {
    /// The slot is free.
    Free,
    /// Its workers are being started (T1).
    Spawning,
    /// Its workers are ready; it takes, or took, queues (T2).
    Ready,
    /// It owns the receive side.
    Active,
    /// It keeps its connections and owns no queue (T3).
    Draining,
    /// It has nothing left, or no more time, and was told to quit (T4, T5).
    Quitting,
    /// It never became active, or lost it again; its processes are being ended.
    Aborted,
}

impl GenerationState {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Free,
        Self::Spawning,
        Self::Ready,
        Self::Active,
        Self::Draining,
        Self::Quitting,
        Self::Aborted,
    ];

    /// As it is stored.
    pub const fn number(self) -> u64 {
        match self {
            Self::Free => 0,
            Self::Spawning => 1,
            Self::Ready => 2,
            Self::Active => 3,
            Self::Draining => 4,
            Self::Quitting => 5,
            Self::Aborted => 6,
        }
    }

    /// From the stored number. One that this version does not know counts as
    /// aborted: its slot is reclaimed once its processes are dead.
    pub const fn from_number(number: u64) -> Self {
        match number {
            0 => Self::Free,
            1 => Self::Spawning,
            2 => Self::Ready,
            3 => Self::Active,
            4 => Self::Draining,
            5 => Self::Quitting,
            _ => Self::Aborted,
        }
    }

    /// The word for it in `ffctl status` and in the log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Spawning => "spawning",
            Self::Ready => "ready",
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Quitting => "quitting",
            Self::Aborted => "aborted",
        }
    }
}

const fn join(upper: u32, lower: u32) -> u64 {
    ((upper as u64) << 32) | lower as u64
}

const fn split(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

#[cfg(test)]
mod tests;
