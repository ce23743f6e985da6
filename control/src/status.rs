//! The status document: what `ffctl status --json` prints.

use std::collections::BTreeMap;

use ff_handover::{Directory, DropReason, GenerationState, WorkerCounter, WorkerGauge, WorkerWords};
use serde::{Deserialize, Serialize};

/// The whole document.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct Status {
    /// Instance name.
    pub instance: String,
    /// The primary.
    pub primary: PrimaryStatus,
    /// The generation that owns the receive side; `None` before the first worker is READY.
    pub active: Option<ActiveStatus>,
    /// All generations that live, newest first.
    pub generations: Vec<GenerationStatus>,
    /// The newest reload that is under way, its draining included.
    #[serde(default)]
    pub reload: Option<ReloadStatus>,
    /// The last reload that came to its end, well or not.
    #[serde(default)]
    pub last_reload: Option<LastReload>,
    /// Reloads that came to their end since the primary started.
    #[serde(default)]
    pub reloads: u64,
    /// Attaches that failed since all workers of a generation were READY.
    pub attach_failures: u32,
    /// The last of them, as one sentence.
    pub last_attach_failure: Option<String>,
}

/// A reload that is under way.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct ReloadStatus {
    /// Epoch of the new generation.
    pub epoch: u32,
    /// The machine's state, for example `T1 spawning` or `T3 draining`.
    pub state: String,
    /// Whether the new generation has the receive side for good: what is left is the draining of the old one.
    pub handed_over: bool,
    /// Milliseconds since it began.
    pub elapsed_ms: u64,
    /// Connections that the old generation still holds.
    pub connections: u64,
    /// Bytes that it still has to deliver.
    pub unsent_bytes: u64,
}

/// How a reload ended.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ReloadResult {
    /// The new generation serves and the old one is gone.
    Complete,
    /// It was begun, and the old generation serves on.
    Aborted,
    /// It was not begun.
    Refused,
}

/// Times that queues were without a consumer at the handover, in microseconds.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, PartialEq)]
pub struct HandoverStatus {
    /// Median over the queues.
    pub p50: u64,
    /// The longest.
    pub max: u64,
}

/// A reload that has ended.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct LastReload {
    /// Epoch of the new generation; 0 when it never got one.
    pub epoch: u32,
    /// How it ended.
    pub result: ReloadResult,
    /// Why, in a sentence; empty when it is complete.
    pub reason: String,
    /// From its beginning to its end, in milliseconds.
    pub total_ms: u64,
    /// How long queues were without a consumer.
    pub handover_us: HandoverStatus,
    /// From the handover to the end of the old generation, in milliseconds.
    pub drain_ms: u64,
    /// Packets that were forwarded to the old generation.
    pub forwarded: u64,
    /// Packets that were sent for it.
    pub relayed: u64,
    /// The most packets that were found in one of its inboxes.
    pub ring_peak: u64,
}

/// The primary process.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct PrimaryStatus {
    /// Its pid.
    pub pid: u32,
    /// Whether it lives (a status read from shared memory may find it dead).
    pub alive: bool,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// `tap:ff0`, `af_packet:veth0`, `pci:…` or `wire`.
    pub device: String,
    /// Device digest of its configuration.
    pub device_digest: String,
    /// Queues of the port.
    pub queues: u16,
}

/// Which generation is active.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct ActiveStatus {
    /// Its epoch.
    pub epoch: u32,
    /// Its slot.
    pub slot: u16,
}

/// One generation.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct GenerationStatus {
    /// Epoch.
    pub epoch: u32,
    /// Slot.
    pub slot: u16,
    /// `spawning`, `ready`, `active`, `draining`, `quitting` or `aborted`.
    pub state: String,
    /// The nginx master.
    pub master_pid: u32,
    /// Its workers.
    pub workers: Vec<WorkerStatus>,
}

/// A worker gives a heartbeat with each pass, every 100 ms when it is idle. Without one for so long, in microseconds, it
/// is stopped, or its nginx is busy with something else (a slow disk, a long computation), and serves nobody.
pub const STALLED_AFTER_US: u64 = 3_000_000;

/// One worker.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct WorkerStatus {
    /// Index, `0..workers`.
    pub index: u16,
    /// Pid; 0 when the place is empty.
    pub pid: u32,
    /// READY word stored and process alive.
    pub ready: bool,
    /// `empty`, `down` (not READY), `ready`, or `stalled`: READY, but without a heartbeat for [`STALLED_AFTER_US`].
    pub state: String,
    /// Queues it polls.
    pub queues: Vec<u16>,
    /// TCP flows in its table, TIME-WAIT included.
    pub tcp_flows: u64,
    /// TCP listeners.
    pub tcp_listeners: u64,
    /// Frames received.
    pub rx_packets: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Dropped frames by reason; only reasons that occurred.
    pub drops: BTreeMap<String, u64>,
    /// Share of the last second that the worker was busy, `0.0..=1.0`.
    pub cpu_busy_ratio: f64,
    /// Microseconds since its last heartbeat.
    pub heartbeat_age_us: u64,
    /// Time its attach took, in microseconds.
    pub attach_us: u64,
    /// Packet buffers in use.
    pub mbufs_in_use: u64,
}

/// The active generation, and all generations that live, newest first, as the words say. `now_us` is CLOCK_MONOTONIC;
/// `is_alive` tells whether a worker of that pid lives (the words of one that was killed stay as they were).
pub fn generations_of(
    directory: &Directory<'_>,
    now_us: u64,
    is_alive: impl Fn(u32) -> bool,
) -> (Option<ActiveStatus>, Vec<GenerationStatus>) {
    let active = directory
        .instance()
        .active()
        .map(|active| ActiveStatus { epoch: active.epoch, slot: narrow(active.slot as usize) });
    let mut generations: Vec<GenerationStatus> = directory
        .generations()
        .enumerate()
        .filter(|(_, generation)| generation.state() != GenerationState::Free)
        .map(|(slot, generation)| {
            let workers = (0..directory.worker_count()).filter_map(|index| {
                let words = directory.worker(slot, index)?;
                Some(worker_of(directory, &words, generation.epoch(), index, now_us, &is_alive))
            });
            GenerationStatus {
                epoch: generation.epoch(),
                slot: narrow(slot),
                state: generation.state().name().to_owned(),
                master_pid: generation.master_pid(),
                workers: workers.collect(),
            }
        })
        .collect();
    generations.sort_by_key(|generation| std::cmp::Reverse(generation.epoch));
    (active, generations)
}

fn worker_of(
    directory: &Directory<'_>,
    words: &WorkerWords<'_>,
    epoch: u32,
    index: usize,
    now_us: u64,
    is_alive: &impl Fn(u32) -> bool,
) -> WorkerStatus {
    // A place that was not taken in this epoch shows nothing of the one before.
    let owner = words.attached().filter(|owner| owner.epoch == epoch);
    let queues = directory
        .queues()
        .enumerate()
        .filter(|(_, queue)| owner.is_some() && queue.owner() == owner)
        .map(|(queue, _)| narrow(queue));
    let counter = |counter| owner.map_or(0, |_| words.counter(counter));
    let gauge = |gauge| owner.map_or(0, |_| words.gauge(gauge));
    let drops = DropReason::ALL
        .iter()
        .map(|reason| (reason.name().to_owned(), words.drops(*reason)))
        .filter(|(_, count)| owner.is_some() && *count > 0);
    let heartbeat_us = owner.map_or(0, |_| words.heartbeat_us());
    let heartbeat_age_us = if heartbeat_us == 0 { 0 } else { now_us.saturating_sub(heartbeat_us) };
    let ready = owner.is_some_and(|owner| words.ready() == Some(owner) && is_alive(owner.pid));
    let state = match owner {
        None => "empty",
        Some(_) if !ready => "down",
        Some(_) if heartbeat_age_us > STALLED_AFTER_US => "stalled",
        Some(_) => "ready",
    };
    WorkerStatus {
        index: narrow(index),
        pid: owner.map_or(0, |owner| owner.pid),
        ready,
        state: state.to_owned(),
        queues: queues.collect(),
        tcp_flows: gauge(WorkerGauge::TcpFlows),
        tcp_listeners: gauge(WorkerGauge::TcpListeners),
        rx_packets: counter(WorkerCounter::RxPackets),
        tx_packets: counter(WorkerCounter::TxPackets),
        drops: drops.collect(),
        cpu_busy_ratio: gauge(WorkerGauge::CpuBusyPpm) as f64 / 1e6,
        heartbeat_age_us,
        attach_us: owner.map_or(0, |_| words.ready_us().saturating_sub(words.attached_us())),
        mbufs_in_use: gauge(WorkerGauge::MbufInUse),
    }
}

/// A slot, index or queue: at most 64 of each.
fn narrow(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests;
