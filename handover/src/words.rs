//! What the words of the directory mean. Every one is an integer of 64 bits
//! whose upper half is an epoch, so that nothing left from an earlier attempt
//! can be taken for an answer to this one.

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

/// Where the one handover of the instance stands: T0 to T2 of the design, and
/// the way back. Draining (T3 to T5) is each generation's own: see
/// [`GenerationState`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum HandoverState {
    /// T0: no handover.
    Idle,
    /// T1: the target's workers are being started.
    Spawning,
    /// T2: queues go from the active generation to the target.
    HandingOver,
    /// Queues go back to the active generation, because the target failed.
    GivingBack,
}

impl HandoverState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Idle, Self::Spawning, Self::HandingOver, Self::GivingBack];

    const fn number(self) -> u32 {
        match self {
            Self::Idle => 0,
            Self::Spawning => 1,
            Self::HandingOver => 2,
            Self::GivingBack => 3,
        }
    }
}

/// The machine's durable word: what a primary that was started again finds.
/// As a word: epoch of the target << 32 | state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FsmWord {
    /// Epoch of the target; 0 while idle before the first.
    pub epoch: u32,
    /// The state.
    pub state: HandoverState,
}

impl FsmWord {
    /// As a word.
    pub const fn word(self) -> u64 {
        join(self.epoch, self.state.number())
    }

    /// From a word. A state that this version does not know counts as giving
    /// back: the way to one serving generation that is right from everywhere.
    pub const fn from_word(word: u64) -> Self {
        let (epoch, number) = split(word);
        let state = match number {
            0 => HandoverState::Idle,
            1 => HandoverState::Spawning,
            2 => HandoverState::HandingOver,
            _ => HandoverState::GivingBack,
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
