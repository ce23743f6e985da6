//! The engine's clock: microseconds that the caller passes in.

use std::ops::{Add, Sub};

/// A point in time in microseconds of a monotonic clock (`CLOCK_MONOTONIC` in
/// a worker, anything that never runs backwards in a test).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Instant(pub u64);

impl Instant {
    /// The time `millis` after the clock's zero.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000)
    }

    /// Whole milliseconds since the clock's zero.
    pub const fn millis(self) -> u64 {
        self.0 / 1_000
    }

    /// Microseconds from `earlier` to `self`, 0 if `earlier` is later.
    pub const fn micros_since(self, earlier: Instant) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for Instant {
    type Output = Instant;
    fn add(self, micros: u64) -> Instant {
        Instant(self.0.saturating_add(micros))
    }
}

impl Sub<u64> for Instant {
    type Output = Instant;
    fn sub(self, micros: u64) -> Instant {
        Instant(self.0.saturating_sub(micros))
    }
}
