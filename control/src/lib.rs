//! The control protocol between `ffctl`, the primary and the workers, and the status document.
//!
//! One UNIX `SOCK_SEQPACKET` socket per instance (`control.sock` in the runtime directory, mode 0600).
//! A packet holds one JSON value: a [`Request`] from the client, then one [`Reply`] from the primary.
//! Descriptors travel beside a reply with `SCM_RIGHTS`.

#![deny(unsafe_code)]

mod lock;
mod message;
mod plan;
mod record;
mod status;
mod wire;

pub use lock::{InstanceLock, LockError};
pub use message::{Refusal, Reply, Request};
pub use plan::{AddressPlan, DevicePlan, KernelPlan, LimitsPlan, OffloadPlan, TcpPlan, WorkerPlan};
pub use record::{
    InstancePaths, InstanceRecord, ProcessId, ProcessStat, RUNTIME_ROOT, RecordError, region_path,
};
pub use status::{
    ActiveStatus, GenerationStatus, HandoverStatus, LastReload, PrimaryStatus, ReloadResult, ReloadStatus,
    Status, WorkerStatus, generations_of,
};
pub use wire::{Connection, ControlError, DESCRIPTORS_MAX, Listener, MESSAGE_BYTES_MAX};

/// Version of the protocol and of the plan; both ends must agree exactly.
pub const PROTOCOL_VERSION: u32 = 2;
