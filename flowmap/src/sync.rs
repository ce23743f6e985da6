//! The atomics of this crate: the real ones, or loom's when a model is checked
//! (`RUSTFLAGS="--cfg loom"`), or in this crate's own tests real ones in which
//! the writer can be killed before any store. Nothing here or in `ff-handover`
//! names `std::sync::atomic` otherwise.

#[cfg(all(not(loom), not(test)))]
pub use std::sync::atomic::AtomicU64;
#[cfg(not(loom))]
pub use std::sync::atomic::{Ordering, fence};

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(all(not(loom), test))]
pub(crate) mod crash;
#[cfg(all(not(loom), test))]
pub use crash::AtomicU64;
