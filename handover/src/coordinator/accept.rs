//! Whether a reload may begin, and where.

use super::Words;
use crate::machine::ReloadState;
use crate::words::EpochSlot;

/// What to do with a reload while no slot is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoFreeSlot {
    /// Keep it until one is.
    Wait,
    /// Refuse it.
    Refuse,
    /// End the oldest generation at once, then go on.
    EndOldest,
}

/// What is known about a reload when it is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReloadRequest<'a> {
    /// Workers in the new configuration.
    pub workers: u32,
    /// The first device-side key that differs from what the primary runs with.
    pub changed_device_key: Option<&'a str>,
    /// What nginx says about the new configuration, if it does not load.
    pub configuration_error: Option<&'a str>,
    /// The pid of a second nginx master, while both have living workers.
    pub second_master: Option<u32>,
    /// What to do while no slot is free.
    pub no_free_slot: NoFreeSlot,
}

/// A reload that may go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accepted {
    /// In this slot, following that generation.
    Begin {
        /// The free slot.
        slot: usize,
        /// The generation that is active now.
        predecessor: Option<EpochSlot>,
    },
    /// Later: no slot is free.
    Wait,
    /// Once the generation in `slot` is gone: tell it to quit now.
    EndOldest {
        /// The slot of the oldest draining generation.
        slot: usize,
    },
}

/// Why a reload is refused. Each is the sentence for nginx's error log, for
/// `ffctl reload` and for `ffctl status`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// One handover at a time.
    #[error("reload refused: the reload to generation {epoch} is still in progress ({state}); try again when it is done", state = .state.name())]
    AnotherReload {
        /// The epoch of the one that runs.
        epoch: u32,
        /// Where it stands.
        state: ReloadState,
    },
    /// All slots hold generations that drain.
    #[error(
        "reload refused: all {slots} generation slots are in use (the oldest is generation {oldest}); wait until one has drained, raise reload_generations, or set no_free_slot"
    )]
    NoFreeSlot {
        /// Slots there are.
        slots: usize,
        /// The oldest generation.
        oldest: u32,
    },
    /// A binary upgrade is half done.
    #[error(
        "reload refused: a second nginx master (pid {pid}) is alive, an upgrade is not finished; send QUIT to one of the two first"
    )]
    SecondMaster {
        /// Its pid.
        pid: u32,
    },
    /// The device cannot be changed under living queues.
    #[error(
        "reload refused: {key} in f-stack.conf has changed since the primary started, and it concerns the device; stop and start the instance to apply it"
    )]
    DeviceKey {
        /// The first key that differs.
        key: String,
    },
    /// The queues were made for another number of workers.
    #[error(
        "reload refused: worker_processes is {workers}, and the instance has {queues} queues; set worker_processes {queues}, or stop and start the instance"
    )]
    WorkerCount {
        /// Workers in the new configuration.
        workers: u32,
        /// Queues of the instance.
        queues: usize,
    },
    /// nginx would not take it.
    #[error("reload refused: the new configuration does not load: {error}")]
    Configuration {
        /// What nginx said.
        error: String,
    },
}

/// Decides about a reload. Nothing has been changed yet.
pub fn accept(words: &Words, request: &ReloadRequest<'_>) -> Result<Accepted, Refusal> {
    let in_progress = (0..words.slots.len()).find(|slot| {
        let line = &words.slots[*slot];
        line.epoch != 0 && (line.attempt.is_handover() || line.attempt == ReloadState::Settling)
    });
    if let Some(slot) = in_progress {
        let line = &words.slots[slot];
        return Err(Refusal::AnotherReload { epoch: line.epoch, state: line.attempt });
    }
    if let Some(pid) = request.second_master {
        return Err(Refusal::SecondMaster { pid });
    }
    if let Some(key) = request.changed_device_key {
        return Err(Refusal::DeviceKey { key: key.to_owned() });
    }
    let queues = words.queues.len();
    if request.workers as usize != queues {
        return Err(Refusal::WorkerCount { workers: request.workers, queues });
    }
    if let Some(error) = request.configuration_error {
        return Err(Refusal::Configuration { error: error.to_owned() });
    }
    let used = || (0..words.slots.len()).filter(|slot| words.slots[*slot].epoch != 0);
    if let Some(slot) = (0..words.slots.len()).find(|slot| words.slots[*slot].epoch == 0) {
        return Ok(Accepted::Begin { slot, predecessor: words.current() });
    }
    let oldest = used().min_by_key(|slot| words.slots[*slot].epoch);
    match (request.no_free_slot, oldest) {
        (NoFreeSlot::Wait, _) => Ok(Accepted::Wait),
        (NoFreeSlot::EndOldest, Some(slot)) if words.slots[slot].attempt == ReloadState::Draining => {
            Ok(Accepted::EndOldest { slot })
        }
        // It is already on its way out.
        (NoFreeSlot::EndOldest, _) => Ok(Accepted::Wait),
        (NoFreeSlot::Refuse, oldest) => Err(Refusal::NoFreeSlot {
            slots: words.slots.len(),
            oldest: oldest.map_or(0, |slot| words.slots[slot].epoch),
        }),
    }
}
