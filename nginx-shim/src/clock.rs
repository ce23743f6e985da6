//! CLOCK_MONOTONIC in microseconds: the stack's time.

use ff_tcp::Instant;

/// Now.
#[inline]
pub fn now() -> Instant {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing; CLOCK_MONOTONIC always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    Instant(time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000)
}

/// A span in microseconds as `timespec`.
pub fn timespec_of(span_us: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (span_us / 1_000_000) as libc::time_t,
        tv_nsec: (span_us % 1_000_000 * 1_000) as libc::c_long,
    }
}

/// A `timespec` as microseconds, rounded up so that a wait never ends early; `None` if it is not valid.
pub fn us_of_timespec(time: &libc::timespec) -> Option<u64> {
    if time.tv_sec < 0 || !(0..1_000_000_000).contains(&time.tv_nsec) {
        return None;
    }
    Some((time.tv_sec as u64).saturating_mul(1_000_000).saturating_add((time.tv_nsec as u64).div_ceil(1_000)))
}

/// A `timeval` as microseconds; `None` if it is not valid.
pub fn us_of_timeval(time: &libc::timeval) -> Option<u64> {
    if time.tv_sec < 0 || !(0..1_000_000).contains(&time.tv_usec) {
        return None;
    }
    Some((time.tv_sec as u64).saturating_mul(1_000_000).saturating_add(time.tv_usec as u64))
}
