//! Generations and the handover: the words of the generation directory and the
//! T0–T5 machine. No I/O, no clock.
//!
//! [`Instance`] lays out and opens the one shared region of an instance: the
//! directory, the flow tables of every (slot, worker) and the neighbour table.
//! [`directory`] gives its words names, types and orderings.

#![forbid(unsafe_code)]

pub mod coordinator;
pub mod directory;
mod drops;
mod instance;
pub mod machine;
mod words;

pub use directory::{
    Directory, DrainReport, GenerationWords, InstanceWords, QueueWords, Secrets, WorkerCounter, WorkerGauge,
    WorkerWords,
};
pub use drops::{DROP_REASONS, DropReason};
pub use ff_flowmap::Owner;
pub use instance::{
    Instance, InstanceError, InstanceLayout, InstanceParams, InstanceSeed, LAYOUT_VERSION, SLOTS_MAX,
    SLOTS_MIN, WORKERS_MAX,
};
pub use machine::{Outcome, ReloadAction, ReloadEvent, ReloadState};
pub use words::{EpochSlot, FsmWord, GenerationState, ParkOrder, ParkWord};
