//! After a process was killed: what it held of packet memory comes back.

use std::thread;
use std::time::Duration;

use ff_dpdk::instance::{Parts, RestoreError, Restored, restore_after_kill};
use ff_dpdk::names::{self, WorkerId};
use ff_dpdk::{Eal, Mempool, Ring, eal};

use crate::plan::Settings;

/// How often a pool is looked at again in which others were just giving something back.
const TRIES_MAX: usize = 10;
/// Between two looks: such a call takes microseconds.
const TRY_PAUSE: Duration = Duration::from_millis(1);

/// What recovery needs to know of the instance.
pub struct Ground<'a> {
    /// DPDK.
    pub eal: Eal,
    /// Sizes and names.
    pub settings: &'a Settings,
    /// Ports and wires.
    pub parts: &'a Parts,
}

impl Ground<'_> {
    /// Restores what the dead worker `worker` of pid `dead`, who owned `queues`, has left.
    ///
    /// # Errors
    /// When something that was created is not there any more, or files cannot be removed.
    ///
    /// # Safety
    /// The process `dead` has ended (its pidfd says so), it was that worker, and no successor has been let in.
    pub unsafe fn restore_worker(
        &self,
        worker: WorkerId,
        dead: u32,
        queues: &[u16],
    ) -> Result<Restored, RestoreError> {
        let layout = self.settings.layout();
        let prefix = &self.settings.config.dpdk.file_prefix;
        let mut total = Restored::default();
        for _ in 0..TRIES_MAX {
            // SAFETY: the process has ended and has no successor yet (the caller); `queues` are those whose owner word
            // names it, which nobody else takes before this process says so.
            let restored =
                unsafe { restore_after_kill(self.eal, &layout, self.parts, prefix, worker, dead, queues) }?;
            total.mbufs += restored.mbufs;
            total.files += restored.files;
            total.pools_incomplete = restored.pools_incomplete;
            // A NIC's buffers cannot be told apart however often one looks.
            if restored.pools_incomplete == 0 || self.settings.has_nic() {
                break;
            }
            thread::sleep(TRY_PAUSE);
        }
        Ok(total)
    }

    /// Restores what the dead client at the far end of the wire has left.
    ///
    /// # Errors
    /// As [`Self::restore_worker`].
    ///
    /// # Safety
    /// As [`Self::restore_worker`].
    pub unsafe fn restore_client(&self, dead: u32) -> Result<Restored, RestoreError> {
        let layout = self.settings.layout();
        let mut rings = Vec::new();
        let mut pools: Vec<String> =
            names::workers(layout.workers, layout.slots).map(names::worker_pool).collect();
        for &(port, clients) in &self.parts.wires {
            pools.extend((0..clients).map(|client| names::wire_client_pool(port, client)));
            for queue in 0..layout.workers {
                let to_server = Ring::lookup(self.eal, &names::wire_to_server(port, queue))?;
                // SAFETY: its producer was the client, which is dead.
                unsafe { to_server.repair_producer() };
                rings.push(to_server);
                for slot in 0..layout.slots {
                    let to_client = Ring::lookup(self.eal, &names::wire_to_client(port, queue, slot))?;
                    // SAFETY: its consumer was the client, which is dead.
                    unsafe { to_client.repair_consumer() };
                    rings.push(to_client);
                }
            }
        }
        let mut restored = Restored::default();
        for name in pools {
            // SAFETY: the client is dead; its ends of `rings` were repaired above and have no successor yet.
            restored.mbufs += unsafe { Mempool::lookup(self.eal, &name)?.reclaim(dead, &rings) };
        }
        restored.files = eal::sweep_dead(&self.settings.config.dpdk.file_prefix, dead)?;
        Ok(restored)
    }
}
