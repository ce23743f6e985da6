//! After a process was killed: what it held of packet memory comes back, and what it owned of shared memory is free.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use ff_control::ProcessStat;
use ff_dpdk::instance::{Parts, RestoreError, Restored, restore_after_kill};
use ff_dpdk::names::{self, WorkerId};
use ff_dpdk::{Eal, Mempool, Ring, eal, owner};
use ff_handover::{WorkerCounter, WorkerWords};

use crate::plan::Settings;

/// The longest that the primary waits for the living to be in nothing that concerns the dead one's pools.
const QUIET_LIMIT: Duration = Duration::from_millis(50);
/// Between two looks.
const QUIET_POLL: Duration = Duration::from_micros(500);

/// A living process that may hold packets of others.
pub struct Living<'m> {
    /// Its pid.
    pub pid: u32,
    /// Its words, if it is a worker.
    pub words: Option<WorkerWords<'m>>,
}

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
        living: &[Living<'_>],
    ) -> Result<Restored, RestoreError> {
        let port_pools = self.parts.ports.iter().flat_map(|port| {
            let number = port.device.number();
            queues.iter().map(move |queue| names::queue_pool(number, *queue))
        });
        let pools: Vec<String> = [names::worker_pool(worker)].into_iter().chain(port_pools).collect();
        let quiet = self.wait_until_quiet(&pools, living)?;
        let layout = self.settings.layout();
        let prefix = &self.settings.config.dpdk.file_prefix;
        // SAFETY: the process has ended and has no successor yet (the caller). `queues` are those whose owner word names
        // it, which nobody else takes before this process says so. Nobody is inside a call that frees mbufs of its
        // pools: that was just waited for; where it could not be had, `quiet` is false and only tagged mbufs are looked
        // for, which needs no such quiet.
        unsafe { restore_after_kill(self.eal, &layout, self.parts, prefix, worker, dead, queues, quiet) }
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

    /// Waits until no living process holds an mbuf of `pools`, and then until each of them has left whatever call it
    /// was in: from then on none can be about to free one.
    fn wait_until_quiet(&self, pools: &[String], living: &[Living<'_>]) -> Result<bool, RestoreError> {
        if living.is_empty() {
            return Ok(true);
        }
        let deadline = Instant::now() + QUIET_LIMIT;
        let pools: Vec<Mempool> =
            pools.iter().map(|name| Mempool::lookup(self.eal, name)).collect::<Result<_, _>>()?;
        let holds = |process: &Living<'_>| {
            pools
                .iter()
                .any(|pool| pool.held_by(process.pid) > 0 || pool.held_by(process.pid | owner::ON_RING) > 0)
        };
        while living.iter().any(holds) {
            if Instant::now() >= deadline {
                return Ok(false);
            }
            thread::sleep(QUIET_POLL);
        }
        let passes = |process: &Living<'_>| process.words.map(|words| words.counter(WorkerCounter::Passes));
        let before: Vec<Option<u64>> = living.iter().map(passes).collect();
        let has_left = |(process, before): (&Living<'_>, &Option<u64>)| {
            // A new pass has begun, so the old one is over; or every thread sleeps in the kernel, which no call that
            // frees an mbuf ever does.
            (before.is_some() && passes(process) != *before) || is_asleep(process.pid)
        };
        while !living.iter().zip(&before).all(has_left) {
            if Instant::now() >= deadline {
                return Ok(false);
            }
            thread::sleep(QUIET_POLL);
        }
        Ok(true)
    }
}

/// Whether all threads of a process sleep in the kernel, or it has ended. A stopped one may be stopped anywhere.
fn is_asleep(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    threads.flatten().all(|thread| {
        let stat = fs::read(thread.path().join("stat")).unwrap_or_default();
        ProcessStat::parse(&String::from_utf8_lossy(&stat))
            .is_none_or(|stat| matches!(stat.state, 'S' | 'D' | 'I' | 'Z' | 'X'))
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Waits for what the kernel takes a moment to show.
    fn soon(what: impl Fn() -> bool) -> bool {
        (0..1_000).any(|_| {
            thread::sleep(Duration::from_millis(2));
            what()
        })
    }

    #[test]
    fn asleep_running_and_gone() {
        let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
        let mut spinner = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let seen = soon(|| is_asleep(sleeper.id())) && soon(|| !is_asleep(spinner.id()));
        for child in [&mut sleeper, &mut spinner] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(seen && is_asleep(sleeper.id()));
    }
}
