//! Memory that several processes share, as atomic words.
//!
//! This is the only file of the crate with `unsafe` in it. Everything above it
//! sees a slice of [`Line`]s: cache lines of eight atomic 64-bit words. A word
//! is valid whatever it holds, there is no padding, and no reference to plain
//! data is ever made, so neither another process nor a peer of another version
//! can cause undefined behaviour, only wrong numbers, and those are checked.
//!
//! Layouts are therefore written as named word positions within lines; offsets
//! are in lines, never addresses.

use crate::sync::AtomicU64;
#[cfg(not(loom))]
use crate::sync::Ordering;

/// Bytes of a cache line, and of a [`Line`].
pub const LINE_BYTES: usize = 64;

/// Words in a [`Line`].
pub const LINE_WORDS: usize = 8;

/// One cache line of shared memory: eight words that any process may load and
/// store at any time.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Line {
    words: [AtomicU64; LINE_WORDS],
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Line>() == LINE_BYTES);
    assert!(align_of::<Line>() == LINE_BYTES);
    assert!(size_of::<AtomicU64>() == 8);
    assert!(std::mem::offset_of!(Line, words) == 0);
};

impl Line {
    /// The word at `position` (below [`LINE_WORDS`]).
    #[inline]
    pub fn word(&self, position: usize) -> &AtomicU64 {
        &self.words[position]
    }
}

/// A piece of shared memory. Copies name the same memory.
#[derive(Clone, Copy, Debug)]
pub struct Region<'m> {
    lines: &'m [Line],
}

/// Why bytes cannot be used as a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RegionError {
    /// The address is not a multiple of [`LINE_BYTES`].
    #[error("shared memory at {address:#x} does not begin at a multiple of {LINE_BYTES} bytes")]
    Misaligned {
        /// The address that was given.
        address: usize,
    },
    /// A part lies outside the region.
    #[error("lines {first}..{first}+{count} lie outside a region of {lines} lines")]
    Outside {
        /// First line asked for.
        first: usize,
        /// Lines asked for.
        count: usize,
        /// Lines there are.
        lines: usize,
    },
}

impl<'m> Region<'m> {
    /// The region that begins at `start`; bytes beyond the last whole line are
    /// not part of it.
    ///
    /// # Safety
    /// For the whole of `'m`, the `len_bytes` bytes at `start` must be mapped,
    /// readable, and writable wherever a writing view of this crate is opened on
    /// them; and no process may access them other than through atomic
    /// operations of 64 bits (as this crate does).
    #[cfg(not(loom))]
    pub unsafe fn from_raw(start: *mut u8, len_bytes: usize) -> Result<Self, RegionError> {
        let address = start.addr();
        if address == 0 || !address.is_multiple_of(LINE_BYTES) {
            return Err(RegionError::Misaligned { address });
        }
        // SAFETY: `start` is not null and is aligned for `Line` (checked above);
        // the caller promises that `len_bytes` bytes from it stay mapped for 'm,
        // and the slice covers no more than those. A `Line` is eight atomic
        // words without padding, every bit pattern is a valid value of it, and
        // the caller promises that all other access is atomic, so a shared
        // reference to it may exist while others store to it.
        let lines = unsafe { std::slice::from_raw_parts(start.cast::<Line>(), len_bytes / LINE_BYTES) };
        Ok(Self { lines })
    }

    /// The region made of `lines`.
    pub fn from_lines(lines: &'m [Line]) -> Self {
        Self { lines }
    }

    /// All of its lines.
    pub fn lines(&self) -> &'m [Line] {
        self.lines
    }

    /// Length in bytes.
    pub fn len_bytes(&self) -> usize {
        self.lines.len() * LINE_BYTES
    }

    /// `count` lines from line `first` on.
    pub fn part(&self, first: usize, count: usize) -> Result<Self, RegionError> {
        let lines = first
            .checked_add(count)
            .and_then(|end| self.lines.get(first..end))
            .ok_or(RegionError::Outside { first, count, lines: self.lines.len() })?;
        Ok(Self { lines })
    }

    /// The line at `position`.
    pub fn line(&self, position: usize) -> Result<&'m Line, RegionError> {
        self.lines.get(position).ok_or(RegionError::Outside {
            first: position,
            count: 1,
            lines: self.lines.len(),
        })
    }
}

/// Zeroed memory on the heap that can serve as a region within one process:
/// for tests, simulations and instances without other processes.
#[derive(Debug)]
pub struct HeapMemory {
    lines: Box<[Line]>,
}

impl HeapMemory {
    /// At least `len_bytes` bytes, all zero.
    pub fn new(len_bytes: usize) -> Self {
        Self { lines: (0..len_bytes.div_ceil(LINE_BYTES)).map(|_| Line::default()).collect() }
    }

    /// The whole of it.
    pub fn region(&self) -> Region<'_> {
        Region { lines: &self.lines }
    }

    /// A copy of what it holds now: what a process would find that came after
    /// everybody had been killed at this moment.
    #[cfg(not(loom))]
    pub fn snapshot(&self) -> Self {
        let copy = Self::new(self.lines.len() * LINE_BYTES);
        for (to, from) in copy.lines.iter().zip(&self.lines) {
            for position in 0..LINE_WORDS {
                to.word(position).store(from.word(position).load(Ordering::Acquire), Ordering::Release);
            }
        }
        copy
    }
}

/// Asks the CPU to bring `line` into its first-level cache.
#[inline]
pub fn prefetch(line: &Line) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint that loads nothing architecturally and
        // never faults; the pointer comes from a reference anyway. SSE, which
        // the instruction belongs to, is part of x86_64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(line).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
    let _ = line;
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
