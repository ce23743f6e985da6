//! An atomic word at whose stores a test can kill the writer.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::Ordering;

thread_local! {
    static STORES_LEFT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// As the real one, except that a store may be where the "process" dies.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct AtomicU64(std::sync::atomic::AtomicU64);

impl AtomicU64 {
    /// As the real one.
    pub fn load(&self, ordering: Ordering) -> u64 {
        self.0.load(ordering)
    }

    /// As the real one.
    pub fn store(&self, value: u64, ordering: Ordering) {
        die_here_perhaps();
        self.0.store(value, ordering);
    }

    /// As the real one.
    pub fn fetch_add(&self, n: u64, ordering: Ordering) -> u64 {
        die_here_perhaps();
        self.0.fetch_add(n, ordering)
    }

    /// As the real one.
    pub fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        die_here_perhaps();
        self.0.compare_exchange(current, new, success, failure)
    }
}

struct Killed;

fn die_here_perhaps() {
    STORES_LEFT.with(|left| match left.get() {
        None => {}
        Some(0) => {
            left.set(None);
            resume_unwind(Box::new(Killed));
        }
        Some(n) => left.set(Some(n - 1)),
    });
}

/// Runs `writer` and kills it before its store number `stores`, counted from 0.
/// True if it was killed, false if it came to its end.
pub(crate) fn killed_before_store(stores: usize, writer: impl FnOnce()) -> bool {
    STORES_LEFT.with(|left| left.set(Some(stores)));
    let end = catch_unwind(AssertUnwindSafe(writer));
    STORES_LEFT.with(|left| left.set(None));
    match end {
        Ok(()) => false,
        Err(cause) if cause.is::<Killed>() => true,
        Err(cause) => resume_unwind(cause),
    }
}
