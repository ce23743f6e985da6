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
        self.generations.get(slot).map(GenerationWords::over)
    }

    /// All slots in order.
    pub fn generations(&self) -> impl Iterator<Item = GenerationWords<'m>> + use<'m> {
        self.generations.iter().map(GenerationWords::over)
    }

    /// Worker `index` of the generation in `slot`; `None` if there is no such.
    pub fn worker(&self, slot: usize, index: usize) -> Option<WorkerWords<'m>> {
        if index >= self.workers_per_generation {
            return None;
        }
        let first = (slot.checked_mul(self.workers_per_generation)? + index).checked_mul(WORKER_LINES)?;
        self.workers.get(first..first + WORKER_LINES).map(WorkerWords::over)
    }

    /// Whom worker `index`, which is `me`, must now give its queue to, if
    /// anybody. To be asked at the top of each pass; costs one load while there
    /// is no order. The worker finishes its burst, then calls
    /// [`QueueWords::hand_to`] and [`WorkerWords::answer_park`] with the order.
    ///
    /// `None` also if the one to receive it is not READY: then the order cannot
    /// be followed, and the coordinator will see that.
    pub fn order_for(&self, me: Owner, index: usize) -> Option<(ParkWord, Owner)> {
        let order = self.header.park_order()?;
        let successor = match order.order {
            // Everybody but the target itself is told to let go.
            ParkOrder::HandOver if me.epoch != order.epoch => self.header.target()?,
            ParkOrder::GiveBack if me.epoch == order.epoch => self.header.active()?,
            ParkOrder::HandOver | ParkOrder::GiveBack => return None,
        };
        let ready = self.ready_worker(successor, index)?;
        (ready != me).then_some((order, ready))
    }

    /// The process of worker `index` of `generation`, if it is READY.
    pub fn ready_worker(&self, generation: EpochSlot, index: usize) -> Option<Owner> {
        self.worker(generation.slot as usize, index)?.ready().filter(|ready| ready.epoch == generation.epoch)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
