//! The running instance: lets workers in, follows what becomes of them, and takes everything away at the end.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;

use ff_control::{InstanceLock, InstancePaths, PrimaryStatus, Refusal, Status, WorkerPlan, generations_of};
use ff_dpdk::names::WorkerId;
use ff_dpdk::{Eal, eal};
use ff_flowmap::Owner;
use ff_handover::coordinator::{Command, Coordinator};
use ff_handover::{EpochSlot, ReloadState};

use crate::clock::now_us;
use crate::coordinator::{Attempts, Decision, EndedWorker, Places, Ready, Refused};
use crate::device::{Device, WIRE_CLIENTS};
use crate::plan::Settings;
use crate::recovery::Ground;
use crate::region::RegionFile;
use crate::reload::limits;
use crate::server::Server;
use crate::watch::Watched;

/// What the instance is made of, in the order in which it was made.
pub struct Parts {
    /// Configuration.
    pub settings: Settings,
    /// Where its files are.
    pub paths: InstancePaths,
    /// Held until the end.
    pub lock: InstanceLock,
    /// DPDK.
    pub eal: Eal,
    /// The device.
    pub device: Device,
    /// The shared words.
    pub region: RegionFile,
    /// Events.
    pub server: Server,
}

/// The running instance.
pub struct RunningInstance {
    pub(crate) parts: Parts,
    pub(crate) places: Places,
    /// What is to be done about generations.
    pub(crate) coordinator: Coordinator,
    /// What is told about it.
    pub(crate) attempts: Attempts,
    /// Stalled processes that KILL was sent to.
    pub(crate) killed: HashSet<u32>,
    /// When the words are to be looked at again.
    pub(crate) look_us: u64,
    /// Masters and workers.
    pub(crate) watched: HashMap<u32, Watched>,
    /// The client at the far end of an in-memory wire.
    client: Option<Watched>,
    /// Workers that have said why they could not attach; their deaths are no news.
    explained: Vec<u32>,
    /// Since all workers were READY.
    attach_failures: u32,
    pub(crate) last_attach_failure: Option<String>,
    started_us: u64,
}

/// What is answered to a worker that wants to attach.
pub enum Answer {
    /// Its place, and its own sending socket where the device has such.
    Plan(Box<WorkerPlan>, Option<OwnedFd>),
    /// No place.
    Refused(Refusal),
    /// Ask again at this time.
    Later {
        /// CLOCK_MONOTONIC in microseconds.
        at_us: u64,
    },
}

impl RunningInstance {
    /// An instance without workers.
    pub fn new(parts: Parts) -> Self {
        let places = Places::new(parts.settings.workers, parts.settings.slots());
        let coordinator = Coordinator::new(limits(&parts));
        Self {
            parts,
            places,
            coordinator,
            attempts: Attempts::default(),
            killed: HashSet::new(),
            look_us: u64::MAX,
            watched: HashMap::new(),
            client: None,
            explained: Vec::new(),
            attach_failures: 0,
            last_attach_failure: None,
            started_us: now_us(),
        }
    }

    /// Serves until it is told to end.
    ///
    /// # Errors
    /// When the kernel refuses to say what happens.
    pub fn serve(&mut self) -> Result<(), nix::errno::Errno> {
        crate::server::serve(self)
    }

    /// The events.
    pub fn server(&mut self) -> &mut Server {
        &mut self.parts.server
    }

    /// A worker wants a place. It was forked with its master's configuration number `configuration`.
    pub fn attach(&mut self, pid: u32, master_pid: u32, configuration: u32) -> Answer {
        // Who has died makes room, also if that event has not been taken yet. And nobody may turn up between two
        // stores of the coordinator that belong together.
        self.take_deaths();
        self.coordinate();
        let now_us = now_us();
        if let Some(reason) = self.attempts.dismissed(master_pid, configuration) {
            // Its generation may still have places: they are being cleared.
            return Answer::Refused(Refusal { code: "reload".to_owned(), reason: reason.to_owned() });
        }
        match self.places.decide(pid, master_pid, configuration, now_us) {
            Decision::Place { answer_at_us, .. } | Decision::Refused { answer_at_us, .. }
                if answer_at_us > now_us =>
            {
                Answer::Later { at_us: answer_at_us }
            }
            Decision::Refused { refused, .. } => {
                // nginx tries again for ever: said once, and then ever less often.
                if is_news(self.places.refused(now_us)) {
                    tracing::warn!("worker {pid} of nginx master {master_pid} gets no place: {refused}");
                }
                if let Refused::TooMany { generation, .. } = refused
                    && let Some(refusal) = self.too_many(generation)
                {
                    return Answer::Refused(refusal);
                }
                Answer::Refused(Refusal { code: refused.code().to_owned(), reason: refused.to_string() })
            }
            Decision::Place { generation, index, .. } => {
                self.let_in(pid, master_pid, generation, index, now_us)
            }
            Decision::Opens => self.open(pid, master_pid, configuration),
        }
    }

    pub(crate) fn let_in(
        &mut self,
        pid: u32,
        master_pid: u32,
        generation: EpochSlot,
        index: u16,
        now_us: u64,
    ) -> Answer {
        let refuse = |code: &str, reason: String| {
            tracing::error!("worker {pid}: {reason}");
            Answer::Refused(Refusal { code: code.to_owned(), reason })
        };
        if !self.watch(pid) || !self.watch(master_pid) {
            return refuse("gone", format!("process {pid} or its master {master_pid} has ended already"));
        }
        let slot = generation.slot as u16;
        let eal_args = match self.parts.settings.worker_arguments(slot, index) {
            Ok(arguments) => arguments,
            Err(error) => return refuse("dpdk", error.to_string()),
        };
        let sender = match self.parts.device.open_sender() {
            Ok(sender) => sender,
            Err(error) => return refuse("device", error.to_string()),
        };
        let directory = self.parts.region.instance.directory();
        let Some(words) = directory.worker(usize::from(slot), usize::from(index)) else {
            return refuse("no_place", format!("the region has no worker {index} in slot {slot}"));
        };
        let me = Owner { epoch: generation.epoch, pid };
        words.attach(me, self.parts.settings.cpu(index).into(), now_us);
        self.places.attached(generation, index, pid, now_us);
        if is_news(self.places.failures(generation, index)) {
            tracing::info!("worker {pid} attaches as worker {index} of generation {}", generation.epoch);
        }
        let mut plan = self.plan(eal_args);
        plan.epoch = generation.epoch;
        plan.slot = slot;
        plan.index = index;
        // The queues' words say whose they are: from READY on, and as long as they do.
        plan.queues = Vec::new();
        Answer::Plan(Box::new(plan), sender)
    }

    /// The client of the in-memory wire wants its end.
    pub fn attach_client(&mut self, pid: u32) -> Answer {
        self.take_deaths();
        let refuse = |code: &str, reason: String| Answer::Refused(Refusal { code: code.to_owned(), reason });
        if self.parts.device.parts.wires.is_empty() {
            let device = &self.parts.settings.port().device;
            return refuse(
                "no_wire",
                format!("this instance runs on {device}: a client needs `device = wire`"),
            );
        }
        if let Some(client) = &self.client {
            return refuse(
                "client_taken",
                format!("process {} has the client's end of the wire", client.pid),
            );
        }
        debug_assert_eq!(WIRE_CLIENTS, 1);
        let eal_args = match self.parts.settings.client_arguments(0) {
            Ok(arguments) => arguments,
            Err(error) => return refuse("dpdk", error.to_string()),
        };
        let Some(watched) = Watched::open(pid) else {
            return refuse("gone", format!("process {pid} has ended already"));
        };
        if let Err(errno) = self.parts.server.watch(&watched) {
            return refuse("watch", format!("process {pid} cannot be watched: {errno}"));
        }
        self.client = Some(watched);
        tracing::info!("client {pid} attaches to the far end of the wire");
        let mut plan = self.plan(eal_args);
        plan.queues = (0..plan.workers).collect();
        Answer::Plan(Box::new(plan), None)
    }

    /// A plan without a place in it.
    fn plan(&self, eal_args: Vec<String>) -> WorkerPlan {
        let parts = &self.parts;
        let mut plan = parts.settings.plan(eal_args, parts.device.plan.clone(), parts.device.mac);
        plan.region_path = parts.region.path().display().to_string();
        plan.region_bytes = parts.region.len_bytes();
        plan
    }

    /// Descriptors that go beside every plan: the receiving packet sockets of all queues.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.parts.device.sockets.iter().map(AsFd::as_fd)
    }

    /// A worker says why it could not attach.
    pub fn attach_failed(&mut self, pid: u32, reason: &str) {
        self.attach_failures = self.attach_failures.saturating_add(1);
        if is_news(self.attach_failures) {
            tracing::error!("worker {pid} could not attach: {reason}");
        }
        self.last_attach_failure = Some(format!("worker {pid}: {reason}"));
        // Of a worker that has no place, no death will be followed up on.
        if self.places.place_of(pid).is_some() {
            self.explained.push(pid);
        }
    }

    /// Looks at the READY words.
    pub fn look_for_ready(&mut self) {
        let now_us = now_us();
        let directory = self.parts.region.instance.directory();
        let living: Vec<_> = self.places.living_workers().collect();
        for (generation, index, pid) in living {
            let me = Owner { epoch: generation.epoch, pid };
            let words = directory.worker(generation.slot as usize, usize::from(index));
            let Some(words) = words.filter(|words| words.ready() == Some(me)) else { continue };
            match self.places.ready(generation, index) {
                Ready::Known | Ready::Some => continue,
                Ready::AllAgain => {
                    tracing::info!("worker {pid} is READY: generation {} is whole again", generation.epoch);
                }
                Ready::All => {
                    let Some(line) = directory.generation(generation.slot as usize) else { continue };
                    line.set_ready_us(now_us);
                    tracing::info!(
                        "generation {}: {} workers READY after {} ms, the last attached in {} ms",
                        generation.epoch,
                        self.parts.settings.workers,
                        now_us.saturating_sub(line.started_us()) / 1_000,
                        words.ready_us().saturating_sub(words.attached_us()) / 1_000
                    );
                }
            }
            self.last_attach_failure = None;
            self.attach_failures = 0;
        }
        self.coordinate();
    }

    /// Once a second: the primary's heartbeat, and READY words whose wake-up got lost.
    pub fn tick(&mut self) {
        self.parts.region.instance.directory().instance().set_primary_heartbeat_us(now_us());
        self.look_for_ready();
    }

    pub(crate) fn watch(&mut self, pid: u32) -> bool {
        if self.watched.contains_key(&pid) {
            return true;
        }
        let Some(watched) = Watched::open(pid) else { return false };
        if let Err(errno) = self.parts.server.watch(&watched) {
            tracing::error!("process {pid} cannot be watched: {errno}");
            return false;
        }
        self.watched.insert(pid, watched);
        true
    }

    /// Follows up on every watched process that has ended.
    pub fn take_deaths(&mut self) {
        let ended: Vec<u32> = self
            .watched
            .values()
            .chain(&self.client)
            .filter(|watched| watched.has_ended())
            .map(|w| w.pid)
            .collect();
        for pid in ended {
            self.ended(pid);
        }
    }

    /// The process `pid` has ended: its pidfd says so.
    pub fn ended(&mut self, pid: u32) {
        if self.client.as_ref().is_some_and(|client| client.pid == pid) {
            self.client_ended(pid);
            return;
        }
        // Dropping it also takes it out of the server's events.
        let Some(_watched) = self.watched.remove(&pid) else { return };
        self.killed.remove(&pid);
        if let Some(EndedWorker { generation, index, was_ready }) = self.places.worker_ended(pid, now_us()) {
            self.worker_ended(pid, generation, index, was_ready);
        }
        for (generation, orphans) in self.places.master_ended(pid) {
            match orphans {
                0 => tracing::info!("nginx master {pid} of generation {} ended", generation.epoch),
                _ => tracing::warn!(
                    "nginx master {pid} of generation {} ended, {orphans} of its workers go on serving without it: \
                     ffctl stop ends them",
                    generation.epoch
                ),
            }
        }
        self.coordinate();
        for generation in self.places.deserted() {
            self.retire(generation);
        }
    }

    fn worker_ended(&mut self, pid: u32, generation: EpochSlot, index: u16, was_ready: bool) {
        let explained = self.explained.iter().position(|other| *other == pid);
        if let Some(position) = explained {
            self.explained.swap_remove(position);
        }
        if !was_ready && explained.is_none() {
            let reason =
                format!("worker {pid} (index {index}) ended before it was ready: see nginx's error log");
            self.attach_failures = self.attach_failures.saturating_add(1);
            if is_news(self.attach_failures) {
                tracing::error!("{reason}");
            }
            self.last_attach_failure = Some(reason);
        }
        let dead = Owner { epoch: generation.epoch, pid };
        let instance = self.parts.region.instance;
        let queues: Vec<u16> = instance
            .directory()
            .queues()
            .enumerate()
            .filter(|(_, queue)| queue.owner() == Some(dead))
            .map(|(queue, _)| queue as u16)
            .collect();
        let worker = WorkerId { slot: generation.slot as u16, index };
        let failures = self.places.failures(generation, index);
        // SAFETY: its pidfd says that it has ended, it had this place, and no successor is let in before this returns:
        // that happens in this thread.
        let restored = unsafe { self.ground().restore_worker(worker, pid, &queues) };
        match restored {
            Ok(restored) if is_news(failures) => tracing::info!(
                "worker {pid} (index {index}, generation {}) ended; {} packet buffers and {} files of it taken back{}",
                generation.epoch,
                restored.mbufs,
                restored.files,
                if restored.pools_incomplete > 0 { ", a later look may find a burst more" } else { "" }
            ),
            Ok(_) => {}
            Err(error) => tracing::error!(
                "what worker {pid} held cannot be taken back: {error}: ffctl stop, then start"
            ),
        }
        if let Err(error) = instance.reclaim_tables(usize::from(worker.slot), usize::from(index), dead) {
            tracing::error!(
                "the tables of worker {pid} cannot be taken back: {error}: ffctl stop, then start"
            );
        }
        if failures > 1 && is_news(failures) {
            tracing::warn!(
                "worker {index} died {failures} times in a row right after its start: its respawns are slowed down, \
                 see nginx's error log"
            );
        }
    }

    /// A generation that no reload has relieved has ended, its master too.
    fn retire(&mut self, generation: EpochSlot) {
        let directory = self.parts.region.instance.directory();
        let slot = generation.slot as usize;
        let serves = directory.generation(slot).is_some_and(|line| line.attempt() == ReloadState::Idle);
        if !serves {
            // The coordinator comes to it.
            return;
        }
        directory.store(&Command::Free { slot, actions: &[] }, now_us());
        self.places.freed(slot);
        self.coordinate();
        tracing::info!("generation {} has ended: slot {slot} is free", generation.epoch);
    }

    fn client_ended(&mut self, pid: u32) {
        self.client = None;
        // SAFETY: its pidfd says that it has ended, and no successor is let in before this returns.
        match unsafe { self.ground().restore_client(pid) } {
            Ok(restored) => {
                tracing::info!("client {pid} ended; {} packet buffers taken back", restored.mbufs)
            }
            Err(error) => tracing::error!(
                "what client {pid} held cannot be taken back: {error}: ffctl stop, then start"
            ),
        }
    }

    fn ground(&self) -> Ground<'_> {
        Ground { eal: self.parts.eal, settings: &self.parts.settings, parts: &self.parts.device.parts }
    }

    /// The status document.
    pub fn status(&self) -> Status {
        let now_us = now_us();
        let directory = self.parts.region.instance.directory();
        let (active, generations) =
            generations_of(&directory, now_us, |pid| self.places.place_of(pid).is_some());
        Status {
            instance: self.parts.settings.config.instance.name.clone(),
            primary: PrimaryStatus {
                pid: std::process::id(),
                alive: true,
                uptime_s: now_us.saturating_sub(self.started_us) / 1_000_000,
                device: self.parts.settings.port().device.to_string(),
                device_digest: self.parts.settings.config.device_digest().to_string(),
                queues: self.parts.settings.workers,
            },
            active,
            generations,
            reload: self.reload_status(now_us),
            last_reload: self.attempts.last.clone(),
            reloads: self.attempts.ended,
            attach_failures: self.attach_failures,
            last_attach_failure: self.last_attach_failure.clone(),
        }
    }

    /// Pids of the living workers.
    pub fn living_pids(&self) -> Vec<u32> {
        self.places.living_workers().map(|(_, _, pid)| pid).collect()
    }

    /// Takes away what this process has made.
    pub fn end(self) -> ExitCode {
        let living = self.living_pids();
        if !living.is_empty() {
            tracing::warn!("the primary ends while workers {living:?} live: they lose their device");
        }
        tracing::info!("the primary ends");
        let Parts { settings, paths, lock, eal, device, region, server } = self.parts;
        drop(server);
        device.stop();
        region.unlink();
        drop(device);
        // SAFETY: the device is stopped and dropped, and nothing here refers to DPDK any more; this process has no
        // other thread of its own.
        unsafe { eal.cleanup() };
        remove_dpdk_files(&settings);
        remove_runtime_dir(&paths);
        drop(lock);
        ExitCode::SUCCESS
    }
}

/// Whether the `count`th time of something that may go on for ever belongs into the log: the first ones, and then each
/// time that it has doubled.
fn is_news(count: u32) -> bool {
    count <= 4 || count.is_power_of_two()
}

/// Files of DPDK, once it was cleaned up.
pub fn remove_dpdk_files(settings: &Settings) {
    if let Err(error) = eal::remove_runtime(&settings.config.dpdk.file_prefix) {
        tracing::warn!("{error}");
    }
}

/// The runtime directory, unless a record says that ffctl will do it.
pub fn remove_runtime_dir(paths: &InstancePaths) {
    if paths.record().exists() {
        return;
    }
    for file in [paths.primary_log(), paths.lock()] {
        let _ = std::fs::remove_file(file);
    }
    // Fails when something else is in there, or another instance beside it, and so it should.
    if std::fs::remove_dir(&paths.dir).is_ok()
        && let Some(root) = paths.dir.parent()
        && root == std::path::Path::new(ff_control::RUNTIME_ROOT)
    {
        let _ = std::fs::remove_dir(root);
    }
}

/// A lock that was handed over, or a new one.
pub fn lock(inherited: Option<File>, paths: &InstancePaths) -> Result<InstanceLock, ff_control::LockError> {
    let Some(file) = inherited else { return InstanceLock::acquire(paths) };
    let lock = InstanceLock::inherited(file);
    lock.write_holder(std::process::id())
        .map_err(|error| ff_control::LockError::Io { path: paths.lock(), error })?;
    Ok(lock)
}
