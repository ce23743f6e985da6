//! Cache lines asked for before they are needed. Packet memory comes from other cores as a rule, so its first touch
//! waits for tens of nanoseconds; asked for a packet ahead, it is there in time.

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Asks for `lines` cache lines from `start` on, to be read.
#[inline]
pub(crate) fn for_read(start: *const u8, lines: usize) {
    for line in 0..lines {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch is a hint: it loads nothing architecturally and faults on no address, so the address
            // (computed without leaving it to the rules of `add`) need not even be mapped.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(line * LINE_BYTES).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (start, line);
    }
}

/// Asks for `lines` cache lines from `start` on, to be written.
#[inline]
pub(crate) fn for_write(start: *const u8, lines: usize) {
    for line in 0..lines {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            // SAFETY: as in `for_read`.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(start.wrapping_add(line * LINE_BYTES).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (start, line);
    }
}
