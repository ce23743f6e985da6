//! Between the directory and the coordinator's plain values.

use super::{Command, SlotWords, Words, WorkerState};
use crate::directory::Directory;
use crate::machine::ReloadState;
use crate::words::{EpochSlot, FsmWord};

impl Directory<'_> {
    /// All words that a decision goes by. They are read one after the other; the
    /// coordinator writes most of them itself, and a queue owner, a READY or an
    /// answer that changes meanwhile is as if it had changed a moment later.
    pub fn words(&self) -> Words {
        let header = self.instance();
        let slots = (0..self.slot_count())
            .filter_map(|slot| {
                let generation = self.generation(slot)?;
                let epoch = generation.epoch();
                let workers = (0..self.worker_count())
                    .filter_map(|index| self.worker(slot, index))
                    .map(|worker| WorkerState {
                        attached: worker.attached(),
                        ready: worker.ready(),
                        parked: worker.parked(),
                        heartbeat_us: worker.heartbeat_us(),
                        drain: worker.drain_report(epoch),
                    })
                    .collect();
                Some(SlotWords {
                    epoch,
                    attempt: if epoch == 0 { ReloadState::Idle } else { generation.attempt() },
                    predecessor: generation.predecessor(),
                    since_us: generation.attempt_since_us(),
                    steps: generation.steps(),
                    workers,
                })
            })
            .collect();
        Words {
            active: header.active(),
            target: header.target(),
            order: header.park_order(),
            queues: self.queues().map(|queue| queue.owner()).collect(),
            slots,
        }
    }

    /// Stores the words of `command`. What it does outside, if anything, the
    /// caller has done before: a crash in between does it twice, never not at all.
    pub fn store(&self, command: &Command, now_us: u64) {
        let header = self.instance();
        match *command {
            Command::SetAttempt { slot, state, event: _, actions: _ } => {
                if let Some(generation) = self.generation(slot) {
                    generation.set_attempt(state, now_us);
                }
            }
            Command::SetActive(active) => header.set_active(active),
            Command::SetTarget(target) => header.set_target(target),
            Command::SetOrder(order) => header.set_park_order(order),
            Command::Assign { queue, from, to } => {
                // If it fails the queue has just been given away, which is as good.
                let _ = self.queue(queue).map(|queue| match from {
                    Some(dead) => queue.take_from_dead(dead, to),
                    None => queue.assign(to),
                });
            }
            Command::Kill(_) => {}
            Command::Do { slot, action: _, step: _ } => {
                if let Some(generation) = self.generation(slot) {
                    generation.set_steps(generation.steps().saturating_add(1), now_us);
                }
            }
            Command::ReclaimWorker { slot, worker, dead } => {
                if let Some(worker) =
                    self.worker(slot, worker).filter(|worker| worker.attached() == Some(dead))
                {
                    worker.detach();
                }
            }
            Command::Free { slot, actions: _ } => {
                for worker in (0..self.worker_count()).filter_map(|index| self.worker(slot, index)) {
                    worker.detach();
                }
                if let Some(generation) = self.generation(slot) {
                    generation.free(now_us);
                }
            }
        }
        self.publish_roles(now_us);
    }

    /// Brings the words that only people read up to date: each generation's
    /// state, and the machine's word.
    fn publish_roles(&self, now_us: u64) {
        let words = self.words();
        for slot in 0..self.slot_count() {
            let role = words.role(slot);
            if let Some(generation) = self.generation(slot).filter(|generation| generation.state() != role) {
                generation.set_state(role, now_us);
            }
        }
        // The handover if there is one; else the newest generation that ends or
        // lets another end.
        let attempt = (0..words.slots.len())
            .filter(|slot| words.slots[*slot].epoch != 0)
            .map(|slot| (words.slots[slot].attempt, words.generation(slot)))
            .max_by_key(|(state, generation)| {
                (state.is_handover(), *state != ReloadState::Idle, generation.epoch)
            });
        let fsm = attempt.map_or(FsmWord { epoch: 0, state: ReloadState::Idle }, |(state, generation)| {
            let EpochSlot { epoch, slot: _ } = generation;
            FsmWord { epoch, state }
        });
        let header = self.instance();
        if header.fsm() != fsm {
            header.set_fsm(fsm, now_us);
        }
    }
}
