//! What a stack shares with other processes of its instance.

use ff_flowmap::{
    HashKey, HeapMemory, NeighbourWriter, Owner, TableOpenError, UdpTableWriter, format_neighbours,
    neighbours_bytes,
};
use ff_handover::{Instance, InstanceError, WorkerWords};

use crate::dispatch::{Peer, View};
use crate::io::WorkerRef;
use crate::orders::Orders;

/// Neighbours of a stack on its own.
const NEIGHBOURS_ALONE: u32 = 64;

/// Tables and words in shared memory.
pub struct Shared {
    /// The host's neighbours.
    pub neighbours: NeighbourWriter<'static>,
    /// The UDP flows of this worker, for other generations to read.
    pub udp_table: Option<UdpTableWriter<'static>>,
    /// The words of this worker.
    pub words: Option<WorkerWords<'static>>,
    /// What this worker sees of the others.
    pub view: View,
    /// Its queues and orders, where a coordinator gives such.
    pub orders: Option<Orders>,
}

impl Shared {
    /// The share of worker `worker` of an instance, whose process is `owner`. UDP flows age after
    /// `udp_idle_us`.
    ///
    /// The view holds the other workers of the same generation; the coordinator's words add other
    /// generations during a reload.
    ///
    /// # Errors
    /// A table of the region cannot be opened.
    pub fn of_instance(
        instance: &Instance<'static>,
        worker: WorkerRef,
        owner: Owner,
        udp_idle_us: u64,
    ) -> Result<Self, InstanceError> {
        let (slot, index) = (usize::from(worker.slot), usize::from(worker.index));
        let mut view = View::alone(worker);
        view.udp_idle_us = udp_idle_us;
        let directory = instance.directory();
        for sibling in (0..directory.worker_count()).filter(|sibling| *sibling != index) {
            view.siblings.push(Peer {
                worker: WorkerRef { slot: worker.slot, index: sibling as u16 },
                tcp: instance.tcp_reader(slot, sibling)?,
                udp: instance.udp_reader(slot, sibling)?,
            });
        }
        Ok(Self {
            neighbours: instance.neighbour_writer(owner)?,
            udp_table: Some(instance.udp_writer(slot, index, owner, udp_idle_us)?),
            words: directory.worker(slot, index),
            view,
            orders: Some(Orders::new(instance, owner, worker)?),
        })
    }

    /// For a stack that is alone: a client program, a test. Its neighbour table (some KiB) is never freed.
    ///
    /// # Errors
    /// None that could be met: the memory is made here.
    pub fn alone(hash_key: HashKey) -> Result<Self, TableOpenError> {
        Self::alone_in(Box::leak(Box::new(Self::memory())), hash_key)
    }

    /// Memory for [`alone_in`](Self::alone_in).
    pub fn memory() -> HeapMemory {
        HeapMemory::new(neighbours_bytes(NEIGHBOURS_ALONE))
    }

    /// As [`alone`](Self::alone), in memory that the caller keeps, for one stack after another.
    ///
    /// # Errors
    /// The memory is smaller than [`memory`](Self::memory) makes it.
    pub fn alone_in(memory: &'static HeapMemory, hash_key: HashKey) -> Result<Self, TableOpenError> {
        format_neighbours(memory.region(), NEIGHBOURS_ALONE, hash_key)?;
        let owner = Owner { epoch: 1, pid: std::process::id() };
        Ok(Self {
            neighbours: NeighbourWriter::open(memory.region(), owner)?,
            udp_table: None,
            words: None,
            view: View::alone(WorkerRef { slot: 0, index: 0 }),
            orders: None,
        })
    }
}
