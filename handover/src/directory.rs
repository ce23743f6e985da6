//! The generation directory: the words that primary, workers, nginx master and
//! `ffctl` share, with names, types and orderings.
//!
//! **One writer for each word.** The table says who; everybody may read.
//!
//! | words | writer | ordering |
//! |---|---|---|
//! | identity, name, secrets | the primary, before the region is finished | relaxed, behind the "finished" word |
//! | next epoch, active, target, machine, park order | the coordinator | release / acquire |
//! | queue owner | its owner, by compare-and-swap from its own tag; the coordinator only from nobody or from a *dead* owner | acquire-release |
//! | generation lines | the coordinator | release / acquire |
//! | a worker's attach line | the primary | release / acquire |
//! | a worker's own lines | that worker | READY, park answer, drain report: release / acquire; heartbeat, counters: relaxed |
//!
//! A word that other words belong to is stored after them with release and
//! loaded before them with acquire: READY after the listeners are open, the
//! park order after the target, an owner word after the last packet of the
//! queue was taken.

mod generation;
mod header;
mod queue;
mod worker;

pub use generation::GenerationWords;
pub(crate) use header::Identity;
pub use header::{InstanceWords, NAME_BYTES_MAX, Secrets};
pub use queue::QueueWords;
pub use worker::{DrainReport, WorkerCounter, WorkerGauge, WorkerWords};

use ff_flowmap::{Line, Owner, Region, RegionError};

use crate::words::{EpochSlot, ParkOrder, ParkWord};

pub(crate) use generation::{GENERATION_LAYOUT, GENERATION_LINES};
pub(crate) use header::{INSTANCE_LAYOUT, INSTANCE_LINES};
pub(crate) use queue::QUEUE_LAYOUT;
pub(crate) use worker::{WORKER_LAYOUT, WORKER_LINES};

/// Lines of a queue.
pub(crate) const QUEUE_LINES: usize = 1;

/// All words of an instance. Copies name the same words.
#[derive(Clone, Copy, Debug)]
pub struct Directory<'m> {
    header: InstanceWords<'m>,
    queues: &'m [Line],
    generations: &'m [Line],
    workers: &'m [Line],
    workers_per_generation: usize,
}

impl<'m> Directory<'m> {
    /// Lines of a directory for `workers` and `slots`.
    pub(crate) const fn lines(workers: usize, slots: usize) -> usize {
        INSTANCE_LINES + workers * QUEUE_LINES + slots * GENERATION_LINES + slots * workers * WORKER_LINES
    }

    /// The directory that begins at the first line of `region`.
    pub(crate) fn over(region: Region<'m>, workers: usize, slots: usize) -> Result<Self, RegionError> {
        let queues = INSTANCE_LINES;
        let generations = queues + workers * QUEUE_LINES;
        let lines = generations + slots * GENERATION_LINES;
        Ok(Self {
            header: InstanceWords::over(region.part(0, INSTANCE_LINES)?.lines()),
            queues: region.part(queues, workers * QUEUE_LINES)?.lines(),
            generations: region.part(generations, slots * GENERATION_LINES)?.lines(),
            workers: region.part(lines, slots * workers * WORKER_LINES)?.lines(),
            workers_per_generation: workers,
        })
    }

    /// Words of the instance as a whole.
    pub fn instance(&self) -> InstanceWords<'m> {
        self.header
    }

    /// Workers of a generation, and receive queues.
    pub fn worker_count(&self) -> usize {
        self.workers_per_generation
    }

    /// Slots for generations.
    pub fn slot_count(&self) -> usize {
        self.generations.len() / GENERATION_LINES
    }

    /// Receive queue `index`; `None` if there is no such queue.
    pub fn queue(&self, index: usize) -> Option<QueueWords<'m>> {
        self.queues.get(index).map(QueueWords::over)
    }

    /// All receive queues in order.
    pub fn queues(&self) -> impl Iterator<Item = QueueWords<'m>> + use<'m> {
        self.queues.iter().map(QueueWords::over)
    }

    /// The generation in `slot`; `None` if there is no such slot.
    pub fn generation(&self, slot: usize) -> Option<GenerationWords<'m>> {
        let first = slot.checked_mul(GENERATION_LINES)?;
        self.generations.get(first..first + GENERATION_LINES).map(GenerationWords::over)
    }

    /// All slots in order.
    pub fn generations(&self) -> impl Iterator<Item = GenerationWords<'m>> + use<'m> {
        self.generations.chunks_exact(GENERATION_LINES).map(GenerationWords::over)
    }

    /// Worker `index` of the generation in `slot`; `None` if there is no such.
    pub fn worker(&self, slot: usize, index: usize) -> Option<WorkerWords<'m>> {
        if index >= self.workers_per_generation {
            return None;
        }
        let first = (slot.checked_mul(self.workers_per_generation)? + index).checked_mul(WORKER_LINES)?;
        self.workers.get(first..first + WORKER_LINES).map(WorkerWords::over)
    }

    /// Whom `me`, the owner of `queue`, has to give it to, if anybody.
    ///
    /// It belongs to worker `queue` of the generation that has, or is being
    /// given, the receive side. While that worker is not READY, another worker
    /// of the same generation stands in.
    ///
    /// The owner of a queue asks this at the top of each pass, for each queue
    /// that it owns. If there is an answer, it finishes its burst and calls
    /// [`QueueWords::hand_to`]. That one rule hands over, gives back, and returns
    /// a queue to the worker for whom a sibling stood in.
    pub fn successor_of(&self, me: Owner, queue: usize) -> Option<Owner> {
        let receiver = self.receiver()?;
        if let Some(rightful) = self.ready_worker(receiver, queue) {
            return (rightful != me).then_some(rightful);
        }
        let workers = self.workers_per_generation;
        (me.epoch != receiver.epoch)
            .then(|| (1..workers).find_map(|step| self.ready_worker(receiver, (queue + step) % workers)))?
    }

    /// The generation that has, or is being given, the receive side.
    pub fn receiver(&self) -> Option<EpochSlot> {
        receiver(self.header.park_order(), || self.header.target(), || self.header.active())
    }

    /// The order that worker `me` has to answer with
    /// [`WorkerWords::answer_park`], once it has looked at all its queues and
    /// given away what is another's: it says that nothing it read before the
    /// order is still on its way to a queue word.
    pub fn unanswered_order(&self, worker: WorkerWords<'_>) -> Option<ParkWord> {
        let order = self.header.park_order()?;
        (worker.parked() != Some(order)).then_some(order)
    }

    /// The process of worker `index` of `generation`, if it is READY.
    pub fn ready_worker(&self, generation: EpochSlot, index: usize) -> Option<Owner> {
        self.worker(generation.slot as usize, index)?.ready().filter(|ready| ready.epoch == generation.epoch)
    }
}

/// The one rule for who receives: the target of a hand-over order, else the
/// active generation. An order whose target is not (any more) the target is
/// not followed.
pub(crate) fn receiver(
    order: Option<ParkWord>,
    target: impl FnOnce() -> Option<EpochSlot>,
    active: impl FnOnce() -> Option<EpochSlot>,
) -> Option<EpochSlot> {
    match order {
        Some(ParkWord { epoch, order: ParkOrder::HandOver }) => {
            target().filter(|target| target.epoch == epoch).or_else(active)
        }
        Some(ParkWord { order: ParkOrder::GiveBack, .. }) | None => active(),
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;

#[cfg(test)]
#[cfg(loom)]
mod model;
