//! One generation follows another: what the pure coordinator of ff-handover names is done here, and told.

use ff_config::{Config, NoFreeSlot as Policy, device_changes};
use ff_control::{HandoverStatus, InstanceRecord, Refusal, ReloadResult, ReloadStatus};
use ff_flowmap::Owner;
use ff_handover::coordinator::{
    Accepted, Command, Fate, Firmness, Limits, NoFreeSlot, ReloadRequest, Words, accept,
};
use ff_handover::{
    EpochSlot, QueueWords, ReloadAction, ReloadEvent, ReloadState, WorkerCounter, WorkerGauge,
};
use rustix::process::Signal;

use crate::clock::now_us;
use crate::instance::{Answer, Parts, RunningInstance};

/// An old generation's half-done handshakes are not waited for longer.
const SETTLE_LIMIT_US: u64 = 3_000_000;
/// From QUIT to QUIT to TERM to KILL.
const QUIT_STEP_US: u64 = 10_000_000;
/// New workers come at once, one fork after the other. When no further one has come for so long, no further one will.
const FORKS_LIMIT_US: u64 = 3_000_000;
/// The step at which an old generation is told to end at once.
const TERM_STEP: u32 = 2;
/// Drain limit when neither the configuration nor nginx's has one.
const DRAIN_LIMIT_MS: u64 = 90_000;
/// Things done at one go: many more than any sequence of them takes.
const COMMANDS_MAX: usize = 10_000;
/// A reload that waits for a slot looks again so often.
const SLOT_RETRY_US: u64 = 20_000;

/// The limits of the configuration.
pub fn limits(parts: &Parts) -> Limits {
    let reload = &parts.settings.config.reload;
    let us = |ms: u32| u64::from(ms) * 1_000;
    Limits {
        ready_timeout_us: us(reload.ready_timeout_ms),
        handover_timeout_us: us(reload.handover_timeout_ms),
        heartbeat_timeout_us: us(reload.heartbeat_timeout_ms),
        settle_timeout_us: SETTLE_LIMIT_US,
        drain_timeout_us: reload.drain_timeout_ms.map_or(DRAIN_LIMIT_MS, u64::from) * 1_000,
        quit_step_us: QUIT_STEP_US,
    }
}

/// How long the words may be left alone in a state, microseconds: a word that a worker has stored wakes nobody.
fn interval_us(state: ReloadState) -> Option<u64> {
    match state {
        ReloadState::Idle => None,
        ReloadState::HandingOver | ReloadState::GivingBack => Some(1_000),
        ReloadState::Settling | ReloadState::EndingNew => Some(5_000),
        ReloadState::Spawning => Some(20_000),
        ReloadState::Draining
        | ReloadState::Quitting
        | ReloadState::Reclaiming
        | ReloadState::ReclaimingNew => Some(50_000),
    }
}

impl RunningInstance {
    /// Does what is to be done, until there is nothing.
    pub fn coordinate(&mut self) {
        // Before anything ends below: an old generation may be gone by the first call after its queues were taken up.
        self.note_traffic();
        let directory = self.parts.region.instance.directory();
        for _ in 0..COMMANDS_MAX {
            let words = directory.words();
            let fate = |owner: Owner| match self.places.is_alive(owner.epoch, owner.pid) {
                false => Fate::Dead,
                true if self.killed.contains(&owner.pid) => Fate::Killed,
                true => Fate::Alive,
            };
            let now_us = now_us();
            let Some(command) = self.coordinator.decide(&words, now_us, &fate) else {
                self.watch_spawning(&words, now_us);
                self.look_us = words
                    .slots
                    .iter()
                    .filter(|line| line.epoch != 0)
                    .filter_map(|line| interval_us(line.attempt))
                    .min()
                    .map_or(u64::MAX, |interval_us| now_us + interval_us);
                self.note_traffic();
                return;
            };
            self.carry_out(&words, &command, now_us);
        }
        tracing::error!("the words of the handover do not come to rest: {:?}", directory.words());
        self.look_us = now_us() + QUIT_STEP_US;
    }

    /// When [`coordinate`](Self::coordinate) is to be called again although nothing is heard.
    pub fn look_us(&self) -> u64 {
        self.look_us
    }

    fn carry_out(&mut self, words: &Words, command: &Command, now_us: u64) {
        let directory = self.parts.region.instance.directory();
        match *command {
            Command::SetAttempt { slot, state, event, actions: _ } => {
                self.tell(words, slot, state, event, now_us);
            }
            Command::Kill(owner) => {
                tracing::warn!(
                    "worker {} of generation {} has not run for {} ms: it is killed",
                    owner.pid,
                    owner.epoch,
                    self.coordinator.limits.heartbeat_timeout_us / 1_000
                );
                if let Some(watched) = self.watched.get(&owner.pid) {
                    watched.signal(Signal::KILL);
                }
                self.killed.insert(owner.pid);
            }
            Command::Do { slot, action, step } => self.act(slot, action, step),
            Command::Free { slot, actions } => {
                let generation = words.generation(slot);
                // Whatever nginx still starts for it comes too late.
                directory.store(command, now_us);
                self.places.freed(slot);
                let ended = if actions.contains(&ReloadAction::ReportAborted) {
                    self.attempts.end(generation.epoch, ReloadResult::Aborted, now_us)
                } else {
                    let new = self.attempts.of_old(generation.epoch).map(|begun| begun.new.epoch);
                    new.and_then(|new| self.attempts.end(new, ReloadResult::Complete, now_us))
                };
                match ended {
                    Some(last) if last.result == ReloadResult::Complete => tracing::info!(
                        "reload complete: generation {} serves, generation {} is gone and slot {slot} is free (took \
                         {} ms; handover {} us per queue, {} us at most; drain {} ms; {} packets forwarded, at most \
                         {} in a ring)",
                        last.epoch,
                        generation.epoch,
                        last.total_ms,
                        last.handover_us.p50,
                        last.handover_us.max,
                        last.drain_ms,
                        last.forwarded,
                        last.ring_peak
                    ),
                    Some(last) => tracing::error!(
                        "reload aborted after {} ms, the old generation serves on: {}",
                        last.total_ms,
                        last.reason
                    ),
                    None => {
                        tracing::info!("generation {} has ended: slot {slot} is free", generation.epoch)
                    }
                }
                return;
            }
            Command::SetActive(active) => match active {
                Some(active) => tracing::info!("generation {} has the receive side", active.epoch),
                None => tracing::info!("no generation has the receive side"),
            },
            Command::Assign { queue, from, to } => {
                if let Some(from) = from {
                    tracing::warn!(
                        "queue {queue} of dead worker {} goes to worker {} of generation {}",
                        from.pid,
                        to.pid,
                        to.epoch
                    );
                }
            }
            Command::SetTarget(_) | Command::SetOrder(_) | Command::ReclaimWorker { .. } => {}
        }
        directory.store(command, now_us);
    }

    /// A transition is about to be stored: the log, and what is known of the attempt.
    fn tell(&mut self, words: &Words, slot: usize, state: ReloadState, event: ReloadEvent, now_us: u64) {
        let line = &words.slots[slot];
        let generation = words.generation(slot);
        tracing::info!(
            "generation {}: {} -> {} ({}, {} ms in the state)",
            generation.epoch,
            line.attempt.name(),
            state.name(),
            event.name(),
            now_us.saturating_sub(line.since_us) / 1_000
        );
        match state {
            ReloadState::Settling => {
                if let Some(begun) = self.attempts.of_new(generation.epoch) {
                    begun.handed_us = Some(now_us);
                    begun.reason.clear();
                }
                // On the way back it found nobody to give the queues to, and went forwards after all.
                if let Some((master, configuration)) = self.places.origin(slot) {
                    self.attempts.allow(master, configuration);
                }
            }
            // Of the old generation: it was relieved.
            ReloadState::Draining | ReloadState::Reclaiming if line.attempt == ReloadState::Idle => {
                if let Some(begun) = self.attempts.of_old(generation.epoch) {
                    begun.settled_us.get_or_insert(now_us);
                }
            }
            ReloadState::GivingBack | ReloadState::EndingNew => {
                let reason = self.reason_of(event);
                self.give_up(generation, &reason);
            }
            ReloadState::Quitting if event == ReloadEvent::DrainDeadline => self.tell_stalled(words, slot),
            ReloadState::Idle
            | ReloadState::Spawning
            | ReloadState::HandingOver
            | ReloadState::Draining
            | ReloadState::Quitting
            | ReloadState::Reclaiming
            | ReloadState::ReclaimingNew => {}
        }
    }

    fn reason_of(&self, event: ReloadEvent) -> String {
        let limits = &self.coordinator.limits;
        let because = |what: &str| match &self.last_attach_failure {
            Some(failure) => format!("{what} ({failure})"),
            None => format!("{what}: see nginx's error log"),
        };
        match event {
            ReloadEvent::ReadyTimeout => format!(
                "the new workers were not ready within {} ms (ready_timeout_ms)",
                limits.ready_timeout_us / 1_000
            ),
            ReloadEvent::HandoverTimeout => format!(
                "an old worker has not handed over its queue within {} ms (handover_timeout_ms)",
                limits.handover_timeout_us / 1_000
            ),
            _ => because("a new worker died"),
        }
    }

    /// A reload is given up: its first reason stays, and whoever nginx still starts for it is told.
    fn give_up(&mut self, new: EpochSlot, reason: &str) {
        let Some(begun) = self.attempts.of_new(new.epoch) else { return };
        if begun.reason.is_empty() {
            reason.clone_into(&mut begun.reason);
        }
        let sentence = format!("the reload to generation {} was aborted: {}", new.epoch, begun.reason);
        if let Some((master, configuration)) = self.places.origin(new.slot as usize) {
            self.attempts.dismiss(master, configuration, &sentence);
        }
    }

    /// What keeps an old generation from ending, when its time is up.
    fn tell_stalled(&self, words: &Words, slot: usize) {
        for worker in &words.slots[slot].workers {
            if let (Some(owner), Some(report)) = (worker.attached, worker.drain) {
                tracing::warn!(
                    "the drain of generation {} is over its limit: worker {} holds {} connections, {} bytes to \
                     deliver, {} half-open handshakes",
                    owner.epoch,
                    owner.pid,
                    report.conns,
                    report.unsent_bytes,
                    report.half_open
                );
            }
        }
    }

    /// Tells processes to end, as firmly as the step says.
    fn act(&self, slot: usize, action: ReloadAction, step: u32) {
        let signal = match action {
            ReloadAction::ReleaseQuits => Signal::QUIT,
            ReloadAction::QuitOld => signal_of(Firmness::of_quit_old(step)),
            ReloadAction::EndNew => signal_of(Firmness::of_end_new(step)),
            // nginx's master has held its QUITs back; none of them is delivered unless it is by this process.
            _ => return,
        };
        for (generation, _, pid) in self.places.living_workers() {
            if generation.slot as usize == slot
                && let Some(watched) = self.watched.get(&pid)
            {
                if step > 0 || action != ReloadAction::ReleaseQuits {
                    let firmly = match signal {
                        Signal::QUIT => "to finish what it has",
                        Signal::TERM => "to end at once",
                        _ => "nothing any more: it is killed",
                    };
                    tracing::info!("worker {pid} of generation {} is told {firmly}", generation.epoch);
                }
                watched.signal(signal);
            }
        }
    }

    /// How long the queues were without a consumer at their handover to generation `epoch`; `None` until all of its
    /// workers have polled theirs.
    fn pauses(&self, epoch: u32) -> Option<HandoverStatus> {
        let directory = self.parts.region.instance.directory();
        let of_epoch =
            |queue: QueueWords<'_>| queue.owner().filter(|owner| owner.epoch == epoch).and(queue.pause_us());
        let mut pauses: Vec<u64> = directory.queues().map(of_epoch).collect::<Option<_>>()?;
        pauses.sort_unstable();
        let max = *pauses.last()?;
        Some(HandoverStatus { p50: pauses[(pauses.len() - 1) / 2], max })
    }

    /// What the generations of reloads under way have exchanged; it is gone with their workers.
    fn note_traffic(&mut self) {
        if let Some(newest) = self.attempts.newest().map(|begun| begun.new.epoch)
            && let Some(handover_us) = self.pauses(newest)
            && let Some(begun) = self.attempts.of_new(newest)
        {
            begun.handover_us = handover_us;
        }
        let directory = self.parts.region.instance.directory();
        let of_slot = |generation: EpochSlot| {
            (0..directory.worker_count())
                .filter_map(move |index| directory.worker(generation.slot as usize, index))
                .filter(move |words| words.attached().is_some_and(|owner| owner.epoch == generation.epoch))
        };
        for begun in self.attempts.under_way() {
            let peak = of_slot(begun.old).map(|words| words.gauge(WorkerGauge::InboxPeak)).max();
            begun.ring_peak = begun.ring_peak.max(peak.unwrap_or(0));
            let forwarded = of_slot(begun.new).map(|words| words.counter(WorkerCounter::Forwarded)).sum();
            begun.forwarded = begun.forwarded.max(forwarded);
        }
    }

    /// New workers of a number that does not fit: those that are missing will not come.
    fn watch_spawning(&mut self, words: &Words, now_us: u64) {
        let workers = usize::from(self.parts.settings.workers);
        let short = (0..words.slots.len()).find_map(|slot| {
            let line = &words.slots[slot];
            if line.epoch == 0 || line.attempt != ReloadState::Spawning {
                return None;
            }
            let (taken, last_us) = self.places.taken(slot)?;
            (taken < workers && now_us.saturating_sub(last_us) > FORKS_LIMIT_US).then_some((slot, taken))
        });
        if let Some((slot, taken)) = short {
            let reason = format!(
                "only {taken} new workers came for {workers} queues: set worker_processes to {workers}, or stop and \
                 start the instance"
            );
            self.abort(words.generation(slot), &reason);
        }
    }

    /// More workers came than there are queues. If that is in a reload, it is given up.
    pub fn too_many(&mut self, generation: EpochSlot) -> Option<Refusal> {
        let directory = self.parts.region.instance.directory();
        let attempt = directory.generation(generation.slot as usize)?.attempt();
        let workers = self.parts.settings.workers;
        let reason = format!(
            "worker_processes is more than {workers} in the new configuration, and the instance has {workers} queues: \
             set worker_processes to {workers}, or stop and start the instance"
        );
        if attempt == ReloadState::Spawning {
            self.abort(generation, &reason);
        }
        let (master, configuration) = self.places.origin(generation.slot as usize)?;
        let refusal = self.attempts.dismissed(master, configuration)?;
        Some(Refusal { code: "reload".to_owned(), reason: refusal.to_owned() })
    }

    /// Gives a reload up whose new workers are being started.
    fn abort(&mut self, new: EpochSlot, reason: &str) {
        self.give_up(new, reason);
        let (slot, state, event) = (new.slot as usize, ReloadState::EndingNew, ReloadEvent::ReadyTimeout);
        let directory = self.parts.region.instance.directory();
        tracing::error!("the reload to generation {} is given up: {reason}", new.epoch);
        directory.store(&Command::SetAttempt { slot, state, event, actions: &[] }, now_us());
        self.look_us = 0;
    }

    /// The first worker of a configuration: is it a reload, and may it begin?
    pub fn open(&mut self, pid: u32, master_pid: u32, configuration: u32) -> Answer {
        let now_us = now_us();
        let refused =
            |reason: &str| Answer::Refused(Refusal { code: "reload".to_owned(), reason: reason.to_owned() });
        let directory = self.parts.region.instance.directory();
        let words = directory.words();
        let accepted = self.ask(&words, self.parts.settings.workers, Some(master_pid));
        let (slot, predecessor) = match accepted {
            Ok(Accepted::Begin { slot, predecessor }) => (slot, predecessor),
            Ok(Accepted::Wait) => return Answer::Later { at_us: now_us + SLOT_RETRY_US },
            Ok(Accepted::EndOldest { slot }) => {
                let oldest = words.generation(slot);
                tracing::warn!("no slot is free: generation {} is ended to make room", oldest.epoch);
                let (state, event) = (ReloadState::Quitting, ReloadEvent::DrainDeadline);
                directory.store(&Command::SetAttempt { slot, state, event, actions: &[] }, now_us);
                // It was asked to finish long ago.
                self.act(slot, ReloadAction::QuitOld, TERM_STEP);
                if let Some(line) = directory.generation(slot) {
                    line.set_steps(TERM_STEP + 1, now_us);
                }
                self.coordinate();
                return Answer::Later { at_us: now_us + SLOT_RETRY_US };
            }
            Err(reason) => {
                tracing::error!("{reason}");
                self.attempts.dismiss(master_pid, configuration, &reason);
                self.attempts.refuse(&reason);
                return refused(&reason);
            }
        };
        if !self.watch(pid) || !self.watch(master_pid) {
            let reason = format!("process {pid} or its master {master_pid} has ended already");
            return Answer::Refused(Refusal { code: "gone".to_owned(), reason });
        }
        let Some(epoch) = directory.instance().take_epoch() else {
            return refused("all epochs are used up: ffctl stop and ffctl start begin anew");
        };
        let generation = EpochSlot { epoch, slot: slot as u32 };
        let Some(line) = directory.generation(slot) else { return refused("the region has no such slot") };
        line.begin(epoch, predecessor, master_pid, now_us);
        match predecessor {
            // Nobody serves whom it would have to relieve: each of its workers serves from its READY on.
            None => line.set_attempt(ReloadState::Idle, now_us),
            Some(old) => {
                directory.instance().set_window_opened_us(now_us);
                self.coordinator.limits.drain_timeout_us = self.drain_limit_us();
                self.attempts.begin(generation, old, now_us);
                // What it says is of another configuration.
                self.last_attach_failure = None;
            }
        }
        self.places.opened(generation, master_pid, configuration, now_us);
        tracing::info!(
            "generation {epoch} opened in slot {slot} by nginx master {master_pid}{}",
            predecessor.map_or(String::new(), |old| format!(", to follow generation {}", old.epoch))
        );
        let answer = self.let_in(pid, master_pid, generation, 0, now_us);
        self.coordinate();
        answer
    }

    /// Whether a reload may begin; the sentence if not.
    fn ask(&self, words: &Words, workers: u16, master: Option<u32>) -> Result<Accepted, String> {
        let settings = &self.parts.settings;
        let changed = match self.changed_device_key(words) {
            Ok(changed) => changed,
            Err(error) => return Err(format!("reload refused: {error}")),
        };
        let request = ReloadRequest {
            workers: u32::from(workers),
            changed_device_key: changed.as_deref(),
            configuration_error: None,
            second_master: master.and_then(|master| self.places.second_master(master)),
            no_free_slot: match settings.config.reload.no_free_slot {
                Policy::Wait => NoFreeSlot::Wait,
                Policy::Refuse => NoFreeSlot::Refuse,
                Policy::EndOldest => NoFreeSlot::EndOldest,
            },
        };
        accept(words, &request).map_err(|refusal| refusal.to_string())
    }

    /// The first key of f-stack.conf that concerns the device and is another than when the primary started. For the
    /// first generation nobody looks: the configuration is the one that was just read.
    fn changed_device_key(&self, words: &Words) -> Result<Option<String>, String> {
        if words.current().is_none() {
            return Ok(None);
        }
        let running = &self.parts.settings.config;
        let path = &self.parts.settings.config_path;
        let checked = Config::load(path).map_err(|error| error.to_string())?;
        if let Some(error) = checked.errors().next() {
            return Err(error.to_string());
        }
        let changes = device_changes(&running.device_text(), &checked.config.device_text());
        Ok(changes.first().map(|change| change.key.clone()))
    }

    fn drain_limit_us(&self) -> u64 {
        let configured = self.parts.settings.config.reload.drain_timeout_ms.map(u64::from);
        let of_nginx = || {
            let record = InstanceRecord::load(&self.parts.paths).ok().flatten()?;
            Some(record.worker_shutdown_timeout_ms)
        };
        configured.or_else(of_nginx).unwrap_or(DRAIN_LIMIT_MS) * 1_000
    }

    /// Whether a reload to a configuration with `workers` workers would be let in now.
    ///
    /// # Errors
    /// The refusal that it would meet.
    pub fn may_reload(&mut self, workers: u16) -> Result<(), Refusal> {
        self.take_deaths();
        self.coordinate();
        let words = self.parts.region.instance.directory().words();
        match self.ask(&words, workers, None) {
            Ok(_) => Ok(()),
            Err(reason) => {
                tracing::error!("{reason}");
                self.attempts.refuse(&reason);
                Err(Refusal { code: "reload".to_owned(), reason })
            }
        }
    }

    /// nginx's master says that the new configuration does not load.
    pub fn reload_failed(&mut self, master_pid: u32) {
        let reason =
            "reload refused: nginx's new configuration does not load, its error log says why".to_owned();
        tracing::error!("{reason} (nginx master {master_pid})");
        self.attempts.refuse(&reason);
    }

    /// The newest reload under way.
    pub fn reload_status(&self, now_us: u64) -> Option<ReloadStatus> {
        let begun = self.attempts.newest()?;
        let words = self.parts.region.instance.directory().words();
        // Until the QUITs are released the state is in the line of the new generation, then in that of the old one.
        let of = if begun.settled_us.is_some() { begun.old } else { begun.new };
        let state = words.slots.get(of.slot as usize).filter(|line| line.epoch == of.epoch)?.attempt;
        let old = words.slots.get(begun.old.slot as usize).filter(|line| line.epoch == begun.old.epoch);
        let reports = || old.into_iter().flat_map(|line| &line.workers).filter_map(|worker| worker.drain);
        Some(ReloadStatus {
            epoch: begun.new.epoch,
            state: state.name().to_owned(),
            handed_over: begun.settled_us.is_some(),
            elapsed_ms: now_us.saturating_sub(begun.begun_us) / 1_000,
            connections: reports().map(|report| report.conns + report.half_open).sum(),
            unsent_bytes: reports().map(|report| report.unsent_bytes).sum(),
        })
    }
}

fn signal_of(firmness: Firmness) -> Signal {
    match firmness {
        Firmness::Quit => Signal::QUIT,
        Firmness::Term => Signal::TERM,
        Firmness::Kill => Signal::KILL,
    }
}
