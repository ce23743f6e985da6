//! The one clock that all processes of an instance read.

use nix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC in microseconds.
pub fn now_us() -> u64 {
    // The clock is always there; a failure could only come from a wrong identifier.
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |now| now.tv_sec().unsigned_abs() * 1_000_000 + now.tv_nsec().unsigned_abs() / 1_000)
}
