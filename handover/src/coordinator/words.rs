//! The words that a decision goes by, as plain values.

use ff_flowmap::Owner;

use crate::directory::{DrainReport, receiver};
use crate::machine::ReloadState;
use crate::words::{EpochSlot, GenerationState, ParkWord};

/// All words of the directory that matter for the handover, read once.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Words {
    /// The active generation.
    pub active: Option<EpochSlot>,
    /// The target of the handover.
    pub target: Option<EpochSlot>,
    /// The park order.
    pub order: Option<ParkWord>,
    /// The owner of each queue.
    pub queues: Vec<Option<Owner>>,
    /// Each slot.
    pub slots: Vec<SlotWords>,
}

/// The words of one generation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SlotWords {
    /// Its epoch; 0 in a free slot.
    pub epoch: u32,
    /// Where its attempt, and later its end, stands.
    pub attempt: ReloadState,
    /// The generation that it follows.
    pub predecessor: Option<EpochSlot>,
    /// Since when it is in its state, or did its last step.
    pub since_us: u64,
    /// Steps done in its state.
    pub steps: u32,
    /// Its workers.
    pub workers: Vec<WorkerState>,
}

/// The words of one worker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct WorkerState {
    /// The process that attached.
    pub attached: Option<Owner>,
    /// The process that is READY.
    pub ready: Option<Owner>,
    /// The order that it has answered last.
    pub parked: Option<ParkWord>,
    /// Its last pass.
    pub heartbeat_us: u64,
    /// Its last drain report.
    pub drain: Option<DrainReport>,
}

impl Words {
    /// The generation in `slot`.
    pub fn generation(&self, slot: usize) -> EpochSlot {
        EpochSlot { epoch: self.slots[slot].epoch, slot: slot as u32 }
    }

    /// The generation that has the receive side by the attempts: the newest that
    /// won and was not relieved. The active word follows it.
    pub fn current(&self) -> Option<EpochSlot> {
        (0..self.slots.len())
            .filter(|slot| {
                matches!(self.slots[*slot].attempt, ReloadState::Idle | ReloadState::Settling)
                    && self.slots[*slot].epoch != 0
            })
            .map(|slot| self.generation(slot))
            .max()
    }

    /// The generation that queues belong to by order, target and active.
    pub fn named_receiver(&self) -> Option<EpochSlot> {
        receiver(self.order, || self.target, || self.active)
    }

    /// The same, if it is (still) in its slot.
    pub fn receiver(&self) -> Option<EpochSlot> {
        self.named_receiver().filter(|receiver| {
            self.slots.get(receiver.slot as usize).is_some_and(|line| line.epoch == receiver.epoch)
        })
    }

    /// The slot of the generation that the one in `slot` follows, if that is
    /// still there. Without one, whoever is serving is followed.
    pub fn predecessor_of(&self, slot: usize) -> Option<usize> {
        let epoch = self.slots[slot].epoch;
        let named = self.slots[slot].predecessor.filter(|old| {
            old.epoch < epoch && self.slots.get(old.slot as usize).is_some_and(|line| line.epoch == old.epoch)
        });
        let serving = || self.current().filter(|current| current.slot as usize != slot);
        named.or_else(serving).map(|old| old.slot as usize)
    }

    /// What the generation in `slot` is doing, in one word for people.
    pub fn role(&self, slot: usize) -> GenerationState {
        let line = &self.slots[slot];
        if line.epoch == 0 {
            return GenerationState::Free;
        }
        match line.attempt {
            ReloadState::Idle | ReloadState::Settling if self.current() == Some(self.generation(slot)) => {
                GenerationState::Active
            }
            ReloadState::Idle | ReloadState::Settling | ReloadState::Draining => GenerationState::Draining,
            ReloadState::Spawning => GenerationState::Spawning,
            ReloadState::HandingOver => GenerationState::Ready,
            ReloadState::Quitting | ReloadState::Reclaiming => GenerationState::Quitting,
            ReloadState::GivingBack | ReloadState::EndingNew | ReloadState::ReclaimingNew => {
                GenerationState::Aborted
            }
        }
    }
}
