//! The places of the instance: slots for generations, and in each of them one place per worker.

use ff_handover::EpochSlot;

use super::Pacing;

/// What is decided about a worker that wants to attach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It gets this place, once `answer_at_us` has come.
    Place {
        /// Its generation.
        generation: EpochSlot,
        /// Its index.
        index: u16,
        /// The process that had the place before and is dead.
        recovers: Option<u32>,
        /// Not before this.
        answer_at_us: u64,
    },
    /// It is the first of a configuration that no generation runs yet: one has to be opened for it.
    Opens,
    /// It gets none, and is told so once `answer_at_us` has come.
    Refused {
        /// Why.
        refused: Refused,
        /// Not before this.
        answer_at_us: u64,
    },
}

/// Why a worker gets no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It has one.
    #[error("process {pid} has attached already")]
    Twice {
        /// The process.
        pid: u32,
    },
    /// All places of its generation are taken by the living.
    #[error(
        "all {queues} queues have a worker: worker_processes in nginx's configuration must be {queues} (ffctl stop \
         and ffctl start adapt the queues to another number)"
    )]
    TooMany {
        /// Its generation.
        generation: EpochSlot,
        /// Queues of the instance.
        queues: u16,
    },
}

impl Refused {
    /// The word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Twice { .. } => "attached_twice",
            Self::TooMany { .. } => "no_free_queue",
        }
    }
}

/// What a READY means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// Nothing new.
    Known,
    /// Others of its generation are not READY yet.
    Some,
    /// All of its generation are READY, for the first time.
    All,
    /// All of its generation are READY again, after one had died.
    AllAgain,
}

/// A worker that has ended; its place waits for a successor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedWorker {
    /// Its generation.
    pub generation: EpochSlot,
    /// Its index.
    pub index: u16,
    /// Whether it had been READY.
    pub was_ready: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Place {
    /// Who has it, or had it.
    pid: Option<u32>,
    alive: bool,
    ready: bool,
    attached_us: u64,
    pacing: Pacing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Generation {
    epoch: u32,
    master: u32,
    master_alive: bool,
    /// Which of its master's configurations it runs.
    configuration: u32,
    /// All its workers have been READY at once.
    has_served: bool,
    /// When a worker attached last.
    attached_us: u64,
    places: Vec<Place>,
}

/// All places.
#[derive(Debug)]
pub struct Places {
    workers: u16,
    slots: Vec<Option<Generation>>,
    refusals: Pacing,
}

impl Places {
    /// Empty places.
    pub fn new(workers: u16, slots: u16) -> Self {
        Self { workers, slots: vec![None; usize::from(slots)], refusals: Pacing::default() }
    }

    /// A living worker `pid` of the living `master`, forked with `configuration`, wants a place. The decision is not
    /// carried out before [`Self::attached`] says so, and until then it is decided the same way again.
    pub fn decide(&self, pid: u32, master: u32, configuration: u32, now_us: u64) -> Decision {
        let refused =
            |refused| Decision::Refused { refused, answer_at_us: self.refusals.answer_at_us(now_us) };
        if self.place_of(pid).is_some() {
            return refused(Refused::Twice { pid });
        }
        let own = self
            .living()
            .find(|(_, generation)| generation.master == master && generation.configuration == configuration);
        let Some((slot, generation)) = own else { return Decision::Opens };
        let name = EpochSlot { epoch: generation.epoch, slot: slot as u32 };
        match generation.places.iter().enumerate().find(|(_, place)| !place.alive) {
            Some((index, place)) => Decision::Place {
                generation: name,
                index: index as u16,
                recovers: place.pid,
                answer_at_us: place.pacing.answer_at_us(now_us),
            },
            None => refused(Refused::TooMany { generation: name, queues: self.workers }),
        }
    }

    /// The generation was opened, in a free slot.
    pub fn opened(&mut self, generation: EpochSlot, master: u32, configuration: u32, now_us: u64) {
        self.slots[generation.slot as usize] = Some(Generation {
            epoch: generation.epoch,
            master,
            master_alive: true,
            configuration,
            has_served: false,
            attached_us: now_us,
            places: vec![Place::default(); usize::from(self.workers)],
        });
    }

    /// The decision was carried out: `pid` has the place.
    pub fn attached(&mut self, generation: EpochSlot, index: u16, pid: u32, now_us: u64) {
        let Some(held) = self.held_mut(generation) else { return };
        held.attached_us = now_us;
        let place = &mut held.places[usize::from(index)];
        *place =
            Place { pid: Some(pid), alive: true, ready: false, attached_us: now_us, pacing: place.pacing };
    }

    /// The slot is free again.
    pub fn freed(&mut self, slot: usize) {
        if let Some(held) = self.slots.get_mut(slot) {
            *held = None;
        }
    }

    /// A worker was refused: the next one is answered later. How many were so far, since all were READY.
    pub fn refused(&mut self, now_us: u64) -> u32 {
        self.refusals.ended(now_us, now_us);
        self.refusals.failures()
    }

    /// A worker says READY; said again, it changes nothing.
    pub fn ready(&mut self, generation: EpochSlot, index: u16) -> Ready {
        let Some(held) = self.held_mut(generation) else { return Ready::Known };
        if std::mem::replace(&mut held.places[usize::from(index)].ready, true) {
            return Ready::Known;
        }
        if !held.places.iter().all(|place| place.alive && place.ready) {
            return Ready::Some;
        }
        let again = std::mem::replace(&mut held.has_served, true);
        self.refusals = Pacing::default();
        if again { Ready::AllAgain } else { Ready::All }
    }

    /// The process `pid` has ended: the worker that it was, if it was one.
    pub fn worker_ended(&mut self, pid: u32, now_us: u64) -> Option<EndedWorker> {
        let (generation, index) = self.place_of(pid)?;
        let place = &mut self.held_mut(generation)?.places[usize::from(index)];
        place.alive = false;
        place.pacing.ended(place.attached_us, now_us);
        let was_ready = std::mem::take(&mut place.ready);
        Some(EndedWorker { generation, index, was_ready })
    }

    /// The process `pid` has ended: the generations whose master it was, each with the number of its workers that
    /// live on.
    pub fn master_ended(&mut self, pid: u32) -> Vec<(EpochSlot, usize)> {
        let mut generations = Vec::new();
        for (slot, held) in self.slots.iter_mut().enumerate() {
            if let Some(held) = held.as_mut().filter(|held| held.master == pid && held.master_alive) {
                held.master_alive = false;
                let orphans = held.places.iter().filter(|place| place.alive).count();
                generations.push((EpochSlot { epoch: held.epoch, slot: slot as u32 }, orphans));
            }
        }
        generations
    }

    /// Generations of which no process lives, the master included.
    pub fn deserted(&self) -> Vec<EpochSlot> {
        self.living()
            .filter(|(_, held)| !held.master_alive && held.places.iter().all(|place| !place.alive))
            .map(|(slot, held)| EpochSlot { epoch: held.epoch, slot: slot as u32 })
            .collect()
    }

    /// Whether `pid` is a living worker of the generation of `epoch`.
    pub fn is_alive(&self, epoch: u32, pid: u32) -> bool {
        self.living_workers().any(|(generation, _, worker)| worker == pid && generation.epoch == epoch)
    }

    /// Master and configuration of the generation in `slot`.
    pub fn origin(&self, slot: usize) -> Option<(u32, u32)> {
        let held = self.slots.get(slot)?.as_ref()?;
        Some((held.master, held.configuration))
    }

    /// A living master other than `master` that has living workers.
    pub fn second_master(&self, master: u32) -> Option<u32> {
        self.living()
            .find(|(_, held)| {
                held.master != master && held.master_alive && held.places.iter().any(|place| place.alive)
            })
            .map(|(_, held)| held.master)
    }

    /// Of the generation in `slot`: how many places are taken, and when the last one was.
    pub fn taken(&self, slot: usize) -> Option<(usize, u64)> {
        let held = self.slots.get(slot)?.as_ref()?;
        Some((held.places.iter().filter(|place| place.alive).count(), held.attached_us))
    }

    /// Where the living worker `pid` is.
    pub fn place_of(&self, pid: u32) -> Option<(EpochSlot, u16)> {
        self.living_workers()
            .find(|(_, _, worker)| *worker == pid)
            .map(|(generation, index, _)| (generation, index))
    }

    /// All living workers: generation, index, pid.
    pub fn living_workers(&self) -> impl Iterator<Item = (EpochSlot, u16, u32)> + '_ {
        self.living().flat_map(|(slot, generation)| {
            let name = EpochSlot { epoch: generation.epoch, slot: slot as u32 };
            generation
                .places
                .iter()
                .enumerate()
                .filter(|(_, place)| place.alive)
                .filter_map(move |(index, place)| Some((name, index as u16, place.pid?)))
        })
    }

    /// How often in a row the place's workers died right after their start.
    pub fn failures(&self, generation: EpochSlot, index: u16) -> u32 {
        self.slots
            .get(generation.slot as usize)
            .and_then(Option::as_ref)
            .and_then(|held| held.places.get(usize::from(index)))
            .map_or(0, |place| place.pacing.failures())
    }

    fn living(&self) -> impl Iterator<Item = (usize, &Generation)> {
        self.slots.iter().enumerate().filter_map(|(slot, held)| Some((slot, held.as_ref()?)))
    }

    fn held_mut(&mut self, generation: EpochSlot) -> Option<&mut Generation> {
        let held = self.slots.get_mut(generation.slot as usize)?.as_mut()?;
        (held.epoch == generation.epoch).then_some(held)
    }
}

#[cfg(test)]
mod tests;
