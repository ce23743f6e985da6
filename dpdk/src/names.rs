//! Names and numbers that the primary and the workers must agree on.
//!
//! The primary creates objects under these names, a worker looks them up under the same ones. Everything
//! here is pure.

/// Longest name that a mempool on a lock-free stack or a ring may have, in bytes.
pub const NAME_BYTES_MAX: usize = 25;

/// Number of lcore ids that DPDK has (RTE_MAX_LCORE as Debian builds it).
pub const LCORES_MAX: u32 = ff_dpdk_sys::RTE_MAX_LCORE;

/// Memzones that DPDK has (RTE_MAX_MEMZONE, 2560), less what EAL and drivers need themselves.
pub const MEMZONES_USABLE: u32 = 2400;

/// A worker of the instance.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct WorkerId {
    /// Slot of its generation, from 0.
    pub slot: u16,
    /// Index in its generation, from 0.
    pub index: u16,
}

/// Mempool that a worker allocates frames for transmit from.
pub fn worker_pool(worker: WorkerId) -> String {
    format!("mp_w{}_s{}", worker.index, worker.slot)
}

/// Mempool that a port's receive queue fills. It belongs to the queue and outlives every owner of it.
pub fn queue_pool(port: u16, queue: u16) -> String {
    format!("mp_p{port}_q{queue}")
}

/// SPSC ring that carries forwarded frames from `source` to `destination`.
pub fn inbox(destination: WorkerId, source: WorkerId) -> String {
    format!("ib_{}_{}_{}_{}", destination.slot, destination.index, source.slot, source.index)
}

/// SPSC ring of a wire's queue that carries frames to the worker that owns the queue.
pub fn wire_to_server(port: u16, queue: u16) -> String {
    format!("wr_{port}_{queue}_srv")
}

/// SPSC ring of a wire's queue that carries frames from the worker with the queue's index in `slot` to the
/// client. Every slot has its own, since a ring has one producer and two generations may both send.
pub fn wire_to_client(port: u16, queue: u16, slot: u16) -> String {
    format!("wr_{port}_{queue}_cli{slot}")
}

/// Mempool of client `client` at the far end of a wire.
pub fn wire_client_pool(port: u16, client: u16) -> String {
    format!("mp_x{port}_c{client}")
}

/// Why a number of workers and slots cannot be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LayoutError {
    /// Each needs an lcore id of its own.
    #[error(
        "{workers} workers in {slots} slots and {clients} clients need {needed} lcore ids, DPDK has {}: \
         use fewer workers or fewer reload_generations", LCORES_MAX - 1
    )]
    Lcores {
        /// Workers of a generation.
        workers: u16,
        /// Slots.
        slots: u16,
        /// Clients on in-memory wires.
        clients: u16,
        /// What they sum up to.
        needed: u32,
    },
    /// Not even the reduced set of inbox rings fits.
    #[error(
        "{workers} workers in {slots} slots need {needed} DPDK memzones, DPDK has {MEMZONES_USABLE} to give: \
         use fewer workers or fewer reload_generations"
    )]
    Memzones {
        /// Workers of a generation.
        workers: u16,
        /// Slots.
        slots: u16,
        /// What they need.
        needed: u32,
    },
}

/// The lcore id of a worker: 0 is the primary's, then slot by slot. Two processes with one id would corrupt
/// each other's per-lcore state in DPDK.
///
/// # Errors
/// When the whole layout has more workers than DPDK has lcore ids.
pub fn lcore_id(workers: u16, slots: u16, worker: WorkerId) -> Result<u16, LayoutError> {
    let needed = u32::from(workers) * u32::from(slots);
    if needed >= LCORES_MAX {
        return Err(LayoutError::Lcores { workers, slots, clients: 0, needed });
    }
    debug_assert!(worker.index < workers && worker.slot < slots);
    Ok(1 + worker.slot * workers + worker.index)
}

/// The lcore id of a client at the far end of an in-memory wire: after all workers'.
///
/// # Errors
/// As [`lcore_id`].
pub fn client_lcore_id(workers: u16, slots: u16, client: u16) -> Result<u16, LayoutError> {
    let needed = u32::from(workers) * u32::from(slots) + u32::from(client) + 1;
    if needed >= LCORES_MAX {
        return Err(LayoutError::Lcores { workers, slots, clients: client + 1, needed });
    }
    Ok(needed as u16)
}

/// All workers of all slots.
pub fn workers(workers: u16, slots: u16) -> impl Iterator<Item = WorkerId> {
    (0..slots).flat_map(move |slot| (0..workers).map(move |index| WorkerId { slot, index }))
}

/// The inbox rings of an instance, as (destination, source).
///
/// Every worker to every other while that fits into DPDK's memzones (up to 11 workers in 4 slots); beyond,
/// only between workers of the same index in different slots, which a reload needs; then a frame for a
/// sibling finds no ring and is given back.
///
/// # Errors
/// When not even the reduced set fits.
pub fn inbox_pairs(workers: u16, slots: u16) -> Result<Vec<(WorkerId, WorkerId)>, LayoutError> {
    let total = u32::from(workers) * u32::from(slots);
    // A pool takes three memzones (header, one chunk, stack); a worker has one, and each queue one.
    let pools = 3 * (total + u32::from(workers));
    let full = total * total.saturating_sub(1);
    let reduced = total * u32::from(slots.saturating_sub(1));
    let all_to_all = pools + full <= MEMZONES_USABLE;
    if !all_to_all && pools + reduced > MEMZONES_USABLE {
        return Err(LayoutError::Memzones { workers, slots, needed: pools + reduced });
    }
    let everyone = || self::workers(workers, slots);
    Ok(everyone()
        .flat_map(|destination| everyone().map(move |source| (destination, source)))
        .filter(|(destination, source)| destination != source)
        .filter(|(destination, source)| all_to_all || destination.index == source.index)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_fit_at_the_largest_numbers() {
        let worker = WorkerId { slot: 7, index: 63 };
        for name in [
            worker_pool(worker),
            queue_pool(31, 255),
            inbox(worker, worker),
            wire_to_server(31, 255),
            wire_to_client(31, 255, 7),
            wire_client_pool(31, 255),
        ] {
            assert!(name.len() <= NAME_BYTES_MAX, "{name}");
        }
    }

    #[test]
    fn lcore_ids_are_distinct_and_never_the_primary() {
        let mut seen = HashSet::from([0]);
        for worker in workers(8, 8) {
            assert!(seen.insert(lcore_id(8, 8, worker).unwrap()));
        }
        for client in 0..8 {
            assert!(seen.insert(client_lcore_id(8, 8, client).unwrap()));
        }
        assert!(seen.iter().all(|&id| u32::from(id) < LCORES_MAX));
    }

    #[test]
    fn lcore_limit_from_both_sides() {
        let first = WorkerId { slot: 0, index: 0 };
        assert!(lcore_id(127, 1, first).is_ok());
        assert!(lcore_id(64, 2, first).is_err());
        assert_eq!(client_lcore_id(126, 1, 0), Ok(127));
        assert!(client_lcore_id(127, 1, 0).is_err());
    }

    #[test]
    fn inboxes_are_reduced_before_they_are_refused() {
        assert_eq!(inbox_pairs(2, 4).unwrap().len(), 8 * 7);
        assert_eq!(inbox_pairs(11, 4).unwrap().len(), 44 * 43);
        let reduced = inbox_pairs(31, 4).unwrap();
        assert_eq!(reduced.len(), 31 * 4 * 3);
        assert!(reduced.iter().all(|(a, b)| a.index == b.index && a.slot != b.slot));
        assert!(inbox_pairs(64, 8).is_err());
    }
}
