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
        /// Whether the generation is new with it.
        opens: bool,
        /// The process that had the place before and is dead.
        recovers: Option<u32>,
        /// Not before this.
        answer_at_us: u64,
    },
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
    /// All places of its generation are taken by the living, and not all of them are READY yet.
    #[error(
        "all {queues} queues have a worker: worker_processes in nginx's configuration must be {queues} (ffctl stop \
         and ffctl start adapt the queues to another number)"
    )]
    TooMany {
        /// Queues of the instance.
        queues: u16,
    },
    /// A generation serves, and these workers would be a second one.
    #[error(
        "a reload is not supported yet: generation {epoch} (nginx master {master}) holds all {queues} queues, and \
         its workers go on serving; ffctl stop and ffctl start apply a new configuration, and worker_processes must \
         be {queues}"
    )]
    Reload {
        /// Epoch of the generation that serves.
        epoch: u32,
        /// Its master.
        master: u32,
        /// Queues of the instance.
        queues: u16,
    },
    /// No epoch is left.
    #[error("all epochs are used up: ffctl stop and ffctl start begin anew")]
    NoEpoch,
}

impl Refused {
    /// The word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Twice { .. } => "attached_twice",
            Self::TooMany { .. } => "no_free_queue",
            Self::Reload { .. } => "reload_not_supported",
            Self::NoEpoch => "no_epoch",
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

/// What the end of a process means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Not one of ours.
    Unknown,
    /// A worker; its place waits for a successor.
    Worker {
        /// Its generation.
        generation: EpochSlot,
        /// Its index.
        index: u16,
        /// Whether it had been READY.
        was_ready: bool,
        /// Whether that was the last process of its generation, whose slot is free now.
        retires: bool,
    },
    /// A master.
    Master {
        /// Its generation.
        generation: EpochSlot,
        /// Its workers that live on.
        orphans: u16,
        /// As above.
        retires: bool,
    },
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
    /// All its workers have been READY at once.
    has_served: bool,
    places: Vec<Place>,
}

impl Generation {
    fn is_alive(&self) -> bool {
        self.master_alive || self.places.iter().any(|place| place.alive)
    }
}

/// All places.
#[derive(Debug)]
pub struct Places {
    workers: u16,
    slots: Vec<Option<Generation>>,
    /// Epoch of the next generation.
    next_epoch: u32,
    /// The slot where the search for a free one begins: they are used in turn.
    next_slot: usize,
    refusals: Pacing,
}

impl Places {
    /// Empty places; the first generation gets epoch 1 and slot 0.
    pub fn new(workers: u16, slots: u16) -> Self {
        Self {
            workers,
            slots: vec![None; usize::from(slots)],
            next_epoch: 1,
            next_slot: 0,
            refusals: Pacing::default(),
        }
    }

    /// A living worker `pid` of the living `master` wants a place. The decision is not carried out before
    /// [`Self::attached`] says so, and until then it is decided the same way again.
    pub fn decide(&self, pid: u32, master: u32, now_us: u64) -> Decision {
        let refused =
            |refused| Decision::Refused { refused, answer_at_us: self.refusals.answer_at_us(now_us) };
        if self
            .living()
            .any(|(_, generation)| generation.places.iter().any(|p| p.alive && p.pid == Some(pid)))
        {
            return refused(Refused::Twice { pid });
        }
        if let Some((slot, generation)) = self.living().find(|(_, generation)| generation.master == master) {
            let free = generation.places.iter().enumerate().find(|(_, place)| !place.alive);
            return match free {
                Some((index, place)) => Decision::Place {
                    generation: EpochSlot { epoch: generation.epoch, slot: slot as u32 },
                    index: index as u16,
                    opens: false,
                    recovers: place.pid,
                    answer_at_us: place.pacing.answer_at_us(now_us),
                },
                None if generation.has_served => refused(self.reload(generation)),
                None => refused(Refused::TooMany { queues: self.workers }),
            };
        }
        if let Some((_, serving)) = self.living().next() {
            return refused(self.reload(serving));
        }
        if self.next_epoch == u32::MAX {
            return refused(Refused::NoEpoch);
        }
        // Every generation is dead here, so every slot is free.
        Decision::Place {
            generation: EpochSlot { epoch: self.next_epoch, slot: self.next_slot as u32 },
            index: 0,
            opens: true,
            recovers: None,
            answer_at_us: now_us,
        }
    }

    /// The decision was carried out: `pid` has the place.
    pub fn attached(&mut self, generation: EpochSlot, index: u16, pid: u32, master: u32, now_us: u64) {
        let slot = generation.slot as usize;
        let workers = usize::from(self.workers);
        let held = self.slots[slot].as_ref().is_some_and(|held| held.epoch == generation.epoch);
        if !held {
            self.slots[slot] = Some(Generation {
                epoch: generation.epoch,
                master,
                master_alive: true,
                has_served: false,
                places: vec![Place::default(); workers],
            });
            self.next_epoch = self.next_epoch.max(generation.epoch + 1);
            self.next_slot = (slot + 1) % self.slots.len();
        }
        if let Some(held) = &mut self.slots[slot] {
            let place = &mut held.places[usize::from(index)];
            *place = Place {
                pid: Some(pid),
                alive: true,
                ready: false,
                attached_us: now_us,
                pacing: place.pacing,
            };
        }
    }

    /// A worker was refused: the next one is answered later. How many were so far, since all were READY.
    pub fn refused(&mut self, now_us: u64) -> u32 {
        self.refusals.ended(now_us, now_us);
        self.refusals.failures()
    }

    /// A worker says READY; said again, it changes nothing.
    pub fn ready(&mut self, generation: EpochSlot, index: u16) -> Ready {
        let held = self.slots.get_mut(generation.slot as usize).and_then(Option::as_mut);
        let Some(held) = held.filter(|held| held.epoch == generation.epoch) else { return Ready::Known };
        if std::mem::replace(&mut held.places[usize::from(index)].ready, true) {
            return Ready::Known;
        }
        if !held.places.iter().all(|place| place.alive && place.ready) {
            return Ready::Some;
        }
        self.refusals = Pacing::default();
        if std::mem::replace(&mut held.has_served, true) { Ready::AllAgain } else { Ready::All }
    }

    /// The process `pid` has ended.
    pub fn ended(&mut self, pid: u32, now_us: u64) -> Ended {
        for (slot, held) in self.slots.iter_mut().enumerate() {
            let Some(generation) = held else { continue };
            let name = EpochSlot { epoch: generation.epoch, slot: slot as u32 };
            let place = generation
                .places
                .iter_mut()
                .enumerate()
                .find(|(_, place)| place.alive && place.pid == Some(pid));
            if let Some((index, place)) = place {
                place.alive = false;
                place.pacing.ended(place.attached_us, now_us);
                let was_ready = std::mem::take(&mut place.ready);
                // A program of one process is its own master.
                if generation.master == pid {
                    generation.master_alive = false;
                }
                let retires = !generation.is_alive();
                if retires {
                    *held = None;
                }
                return Ended::Worker { generation: name, index: index as u16, was_ready, retires };
            }
            if generation.master == pid && generation.master_alive {
                generation.master_alive = false;
                let orphans = generation.places.iter().filter(|place| place.alive).count() as u16;
                let retires = !generation.is_alive();
                if retires {
                    *held = None;
                }
                return Ended::Master { generation: name, orphans, retires };
            }
        }
        Ended::Unknown
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

    fn reload(&self, serving: &Generation) -> Refused {
        Refused::Reload { epoch: serving.epoch, master: serving.master, queues: self.workers }
    }
}

#[cfg(test)]
mod tests;
