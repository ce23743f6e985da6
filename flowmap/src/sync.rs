//! The atomics of this crate: the real ones, or loom's when a model is checked
//! (`RUSTFLAGS="--cfg loom"`). Nothing here or in `ff-handover` names
//! `std::sync::atomic` otherwise.

#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64, Ordering, fence};
