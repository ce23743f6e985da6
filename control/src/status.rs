//! The status document: what `ffctl status --json` prints.

use std::collections::BTreeMap;

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
    /// The last attach failure, as one sentence.
    pub last_attach_failure: Option<String>,
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
    /// `starting`, `active`, `draining`, `dead`.
    pub state: String,
    /// The nginx master.
    pub master_pid: u32,
    /// Its workers.
    pub workers: Vec<WorkerStatus>,
}

/// One worker.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct WorkerStatus {
    /// Index, `0..workers`.
    pub index: u16,
    /// Pid; 0 when the place is empty.
    pub pid: u32,
    /// READY word stored and process alive.
    pub ready: bool,
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
