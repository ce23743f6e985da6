//! What a primary creates for an instance, and what it restores after a worker was killed.
//!
//! Everything that workers need exists before the first of them starts; a worker only looks up.

use crate::eal::{ProcessType, RuntimeError};
use crate::mempool::{DATA_ROOM_BYTES, DriverHolds, MempoolError};
use crate::names::{self, LayoutError, WorkerId};
use crate::port::{Offloads, PortConfig, PortError};
use crate::ring::RingError;
use crate::tap::{self, TapError};
use crate::{Eal, EthDev, Mempool, Ring};

/// Numbers of an instance that decide what there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Workers of a generation: 1 to 64.
    pub workers: u16,
    /// Slots (`reload_generations`).
    pub slots: u16,
    /// Mbufs in the pool of each worker in each slot. One less than a power of two takes the least memory.
    pub worker_mbufs: u32,
    /// Mbufs in the pool of each receive queue of an Ethernet port.
    pub queue_mbufs: u32,
    /// Slots of each inbox ring, a power of two.
    pub inbox_slots: u32,
    /// Descriptors of each queue of an Ethernet port.
    pub descriptors: u16,
}

impl Layout {
    /// A layout with sizes that carry a few thousand busy connections per worker.
    pub fn new(workers: u16, slots: u16) -> Self {
        Self { workers, slots, worker_mbufs: 4095, queue_mbufs: 4095, inbox_slots: 512, descriptors: 512 }
    }

    fn worker_ids(&self) -> impl Iterator<Item = WorkerId> {
        names::workers(self.workers, self.slots)
    }
}

/// Why a primary cannot create an instance's parts.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// Only the primary creates.
    #[error("only a DPDK primary creates pools, rings and ports")]
    NotPrimary,
    /// Too much of something.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A pool.
    #[error(transparent)]
    Mempool(#[from] MempoolError),
    /// A ring.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// A port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A TAP device.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// Not enough queues for all slots.
    #[error(
        "{driver} has {tx_max} transmit queues; {workers} workers in {slots} slots need {needed}: \
         use fewer workers or fewer reload_generations"
    )]
    TxQueues {
        /// The driver.
        driver: String,
        /// Transmit queues of the device.
        tx_max: u16,
        /// Workers of a generation.
        workers: u16,
        /// Slots.
        slots: u16,
        /// What they need.
        needed: u32,
    },
}

/// Creates the pool of every worker in every slot, and the inbox rings between them.
///
/// # Errors
/// When there are too many workers and slots, or too few hugepages.
pub fn create_workers(eal: Eal, layout: &Layout) -> Result<(), CreateError> {
    if eal.process_type() != ProcessType::Primary {
        return Err(CreateError::NotPrimary);
    }
    for worker in layout.worker_ids() {
        names::lcore_id(layout.workers, layout.slots, worker)?;
        Mempool::create(eal, &names::worker_pool(worker), layout.worker_mbufs, DATA_ROOM_BYTES)?;
    }
    for (destination, source) in names::inbox_pairs(layout.workers, layout.slots)? {
        Ring::create(eal, &names::inbox(destination, source), layout.inbox_slots)?;
    }
    Ok(())
}

/// Creates an in-memory wire with one queue per worker, and the pools of `clients` clients at its far end.
///
/// # Errors
/// When there are too few hugepages.
pub fn create_wire(
    eal: Eal,
    layout: &Layout,
    port: u16,
    ring_slots: u32,
    clients: u16,
) -> Result<(), CreateError> {
    for queue in 0..layout.workers {
        Ring::create(eal, &names::wire_to_server(port, queue), ring_slots)?;
        for slot in 0..layout.slots {
            Ring::create(eal, &names::wire_to_client(port, queue, slot), ring_slots)?;
        }
    }
    for client in 0..clients {
        names::client_lcore_id(layout.workers, layout.slots, client)?;
        Mempool::create(eal, &names::wire_client_pool(port, client), layout.worker_mbufs, DATA_ROOM_BYTES)?;
    }
    Ok(())
}

/// A port that is running.
#[derive(Clone, Copy, Debug)]
pub struct RunningPort {
    /// The port.
    pub device: EthDev,
    /// What is left to it.
    pub offloads: Offloads,
    /// What its driver keeps of the receive queues' pools.
    pub driver_holds: DriverHolds,
}

/// Creates a TAP port with a queue per worker, and starts it.
///
/// `mac` is the stack's address; the kernel's end gets the same with the last bit flipped. The kernel's end
/// is up afterwards and has no IP address; it may be moved to another network namespace.
///
/// # Errors
/// When the interface's name is wrong or taken, there are too many workers, or the driver refuses.
pub fn create_tap_port(
    eal: Eal,
    layout: &Layout,
    port: u16,
    interface: &str,
    mac: [u8; 6],
    mtu: u16,
) -> Result<RunningPort, CreateError> {
    let device = tap::create(eal, port, interface, layout.workers, mac)?;
    let running = start(eal, layout, device, layout.workers, mtu)?;
    tap::stop_signals(interface)?;
    let mut kernel_mac = mac;
    kernel_mac[5] ^= 1;
    tap::set_kernel_mac(interface, kernel_mac)?;
    Ok(RunningPort { driver_holds: DriverHolds::Chain, ..running })
}

/// Configures and starts a port that EAL found on the PCI bus (`name`: its PCI address) or made from
/// `--vdev`: a receive queue per worker, a transmit queue per worker and slot.
///
/// # Errors
/// When there is no such port, or it has too few queues.
pub fn start_port(eal: Eal, layout: &Layout, name: &str, mtu: u16) -> Result<RunningPort, CreateError> {
    let device = EthDev::by_name(eal, name)?;
    let info = device.info()?;
    let needed = u32::from(layout.workers) * u32::from(layout.slots);
    if needed > u32::from(info.tx_queues_max) {
        return Err(CreateError::TxQueues {
            driver: info.driver,
            tx_max: info.tx_queues_max,
            workers: layout.workers,
            slots: layout.slots,
            needed,
        });
    }
    start(eal, layout, device, needed as u16, mtu)
}

/// Number of the transmit queue of a worker on a port with the driver `driver`.
///
/// A TAP device steers a flow to the queue that it was last sent on, so the two generations of one index
/// must share a queue; its driver keeps nothing in a transmit queue but counters, and the kernel orders the
/// writes. Every other device has a queue for each worker in each slot.
pub fn tx_queue(driver: &str, workers: u16, worker: WorkerId) -> u16 {
    if driver == tap::DRIVER { worker.index } else { worker.slot * workers + worker.index }
}

fn start(
    eal: Eal,
    layout: &Layout,
    device: EthDev,
    tx_queues: u16,
    mtu: u16,
) -> Result<RunningPort, CreateError> {
    let pools = (0..layout.workers)
        .map(|queue| {
            let name = names::queue_pool(device.number(), queue);
            // A received frame may be as long as the MTU, an Ethernet header and a VLAN tag.
            let room = DATA_ROOM_BYTES.max(mtu + 18 + crate::mempool::HEADROOM_BYTES);
            Mempool::create(eal, &name, layout.queue_mbufs, room)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let config = PortConfig {
        rx_queues: layout.workers,
        tx_queues,
        rx_descriptors: layout.descriptors,
        tx_descriptors: layout.descriptors,
        mtu,
        offloads: Offloads { rx_checksum: true, tx_ip_checksum: true, tx_tcp_checksum: true, tso: true },
    };
    let offloads = device.start(&config, &pools)?;
    device.set_all_multicast()?;
    Ok(RunningPort { device, offloads, driver_holds: DriverHolds::Unknown })
}

/// What [`restore_after_kill`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Restored {
    /// Mbufs that are back in their pools.
    pub mbufs: u32,
    /// Pools in which mbufs that were between two hands were not looked for, because other processes were
    /// using the pool. Their loss is at most one burst; a later call finds them.
    pub pools_incomplete: u32,
    /// Files removed from DPDK's runtime directory.
    pub files: usize,
}

/// Everything that the primary has created and knows of, as far as it concerns recovery.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// Running Ethernet ports.
    pub ports: Vec<RunningPort>,
    /// Port numbers of in-memory wires, with the number of clients of each.
    pub wires: Vec<(u16, u16)>,
}

/// Restores shared memory after the worker `worker`, with the process id `pid`, was killed: ends of rings
/// that it left in the middle of something, and every mbuf that it held; and removes its files.
///
/// # Errors
/// When a part that the layout names does not exist, or its files cannot be removed.
///
/// # Safety
/// - The process has ended (was waited for, or its pidfd is readable), and its successor has not started.
/// - `owned_queues` are the receive queues that it owned, and nobody has taken them since.
pub unsafe fn restore_after_kill(
    eal: Eal,
    layout: &Layout,
    parts: &Parts,
    prefix: &str,
    worker: WorkerId,
    pid: u32,
    owned_queues: &[u16],
) -> Result<Restored, RestoreError> {
    let mut rings = Vec::new();
    for (destination, source) in names::inbox_pairs(layout.workers, layout.slots)? {
        let ring = || Ring::lookup(eal, &names::inbox(destination, source));
        if source == worker {
            let ring = ring()?;
            // SAFETY: the producer of this ring is dead.
            unsafe { ring.repair_producer() };
            rings.push(ring);
        } else if destination == worker {
            let ring = ring()?;
            // SAFETY: the consumer of this ring is dead.
            unsafe { ring.repair_consumer() };
            rings.push(ring);
        }
    }
    for &(port, _) in &parts.wires {
        let to_client = Ring::lookup(eal, &names::wire_to_client(port, worker.index, worker.slot))?;
        // SAFETY: the producer of this ring is dead.
        unsafe { to_client.repair_producer() };
        rings.push(to_client);
        for &queue in owned_queues {
            let to_server = Ring::lookup(eal, &names::wire_to_server(port, queue))?;
            // SAFETY: the consumer of this ring was the queue's owner, and is dead.
            unsafe { to_server.repair_consumer() };
            rings.push(to_server);
        }
    }

    let mut restored = Restored::default();
    let mut recover = |name: &str, holds| -> Result<(), RestoreError> {
        let pool = Mempool::lookup(eal, name)?;
        // SAFETY: the worker is dead and was the only one that took mbufs out of this pool: it is its own,
        // or of a queue that it owned. The caller vouches for the rest.
        let recovery = unsafe { pool.recover(eal, pid, &rings, holds) };
        restored.mbufs += recovery.returned;
        restored.pools_incomplete += u32::from(!recovery.complete);
        Ok(())
    };
    // A NIC keeps sent mbufs until it has sent them; a TAP device and a wire do not.
    let sent_is_free = parts.ports.iter().all(|port| port.driver_holds == DriverHolds::Chain);
    let own = if sent_is_free { DriverHolds::Nothing } else { DriverHolds::Unknown };
    recover(&names::worker_pool(worker), own)?;
    for port in &parts.ports {
        for &queue in owned_queues {
            recover(&names::queue_pool(port.device.number(), queue), port.driver_holds)?;
        }
    }
    // Pools of others, of which it may have held some: frames that were forwarded to it, or came by wire.
    let others = layout.worker_ids().filter(|&other| other != worker).map(names::worker_pool);
    let queues = parts.ports.iter().flat_map(|port| {
        let number = port.device.number();
        let foreign = (0..layout.workers).filter(|queue| !owned_queues.contains(queue));
        foreign.map(move |queue| names::queue_pool(number, queue))
    });
    let clients = parts
        .wires
        .iter()
        .flat_map(|&(port, clients)| (0..clients).map(move |client| names::wire_client_pool(port, client)));
    for name in others.chain(queues).chain(clients) {
        // SAFETY: the worker is dead; its ends of `rings` were repaired above and have no successor yet.
        restored.mbufs += unsafe { Mempool::lookup(eal, &name)?.reclaim(pid, &rings) };
    }
    restored.files = crate::eal::sweep_dead(prefix, pid)?;
    Ok(restored)
}

/// Why shared memory could not be restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The layout is not the one that was created.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A pool is missing.
    #[error(transparent)]
    Mempool(#[from] MempoolError),
    /// A ring is missing.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// Files stayed.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transmit_queues() {
        let worker = WorkerId { slot: 2, index: 1 };
        assert_eq!(tx_queue("net_tap", 4, worker), 1);
        assert_eq!(tx_queue("net_ixgbe", 4, worker), 9);
    }
}
