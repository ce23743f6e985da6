//! From a descriptor number to what it is for us: one word each, read without a lock.
//!
//! Every call that the application makes on any descriptor passes here first, and so do those of DPDK and of
//! this library's own Rust code. A zero word means "not ours", and the call goes straight to the C library.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// Descriptor numbers that can be ours: the kernel's default for `fs.nr_open`.
pub const DESCRIPTORS_MAX: usize = 1 << 20;

const EPOLL: u32 = 1 << 31;
const POOLED: u32 = 1 << 30;
const INDEX: u32 = POOLED - 1;
/// A word of its own: an epoll set with the largest index, which no set has.
const KEPT: u32 = EPOLL | INDEX;

/// Lies in `.bss`: pages that no descriptor reaches cost nothing.
static ENTRIES: [AtomicU32; DESCRIPTORS_MAX] = [const { AtomicU32::new(0) }; DESCRIPTORS_MAX];

/// What a descriptor of ours is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// A socket: the index of its description.
    Socket {
        /// Index of the description.
        description: u32,
        /// The kernel descriptor beneath is one of the kept placeholders.
        pooled: bool,
    },
    /// An epoll descriptor whose set has held sockets of ours: the index of the set.
    Epoll(u32),
    /// A placeholder that is kept for a later socket: to the application the number is not open.
    Kept,
}

fn encode(entry: Entry) -> u32 {
    match entry {
        Entry::Socket { description, pooled } => (description + 1) & INDEX | if pooled { POOLED } else { 0 },
        Entry::Epoll(set) => (set + 1) & INDEX | EPOLL,
        Entry::Kept => KEPT,
    }
}

/// What `fd` is, if it is ours.
#[inline]
pub fn get(fd: RawFd) -> Option<Entry> {
    let word = ENTRIES.get(fd as usize)?.load(Ordering::Acquire);
    if word == 0 {
        return None;
    }
    if word == KEPT {
        return Some(Entry::Kept);
    }
    let index = (word & INDEX) - 1;
    Some(if word & EPOLL != 0 {
        Entry::Epoll(index)
    } else {
        Entry::Socket { description: index, pooled: word & POOLED != 0 }
    })
}

/// The description of the socket `fd`, if it is one of ours. A kept placeholder has one that does not exist, so
/// that every call on it ends in EBADF.
#[inline]
pub fn socket(fd: RawFd) -> Option<u32> {
    match get(fd)? {
        Entry::Socket { description, .. } => Some(description),
        Entry::Kept => Some(u32::MAX),
        Entry::Epoll(_) => None,
    }
}

/// Whether `fd` can have an entry.
pub fn fits(fd: RawFd) -> bool {
    (fd as usize) < DESCRIPTORS_MAX
}

/// Stores or clears the entry of `fd`. Only under the process's lock; `fd` must [`fits`].
pub fn set(fd: RawFd, entry: Option<Entry>) {
    if let Some(word) = ENTRIES.get(fd as usize) {
        word.store(entry.map_or(0, encode), Ordering::Release);
    }
}

/// The descriptors of ours in `first..=last`, lowest first.
pub fn range(first: RawFd, last: RawFd) -> impl Iterator<Item = (RawFd, Entry)> {
    let last = (last as usize).min(DESCRIPTORS_MAX - 1);
    (first.max(0) as usize..=last).filter_map(|fd| get(fd as RawFd).map(|entry| (fd as RawFd, entry)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_as_they_were_stored() {
        let fd = 900_000;
        for entry in [
            Entry::Socket { description: 0, pooled: false },
            Entry::Socket { description: 77, pooled: true },
            Entry::Epoll(0),
            Entry::Epoll(12),
            Entry::Kept,
        ] {
            set(fd, Some(entry));
            assert_eq!(get(fd), Some(entry));
            assert!(range(fd - 1, fd + 1).eq([(fd, entry)]));
        }
        set(fd, None);
        assert_eq!(get(fd), None);
    }

    #[test]
    fn numbers_out_of_range_are_never_ours() {
        for fd in [-1, RawFd::MIN, DESCRIPTORS_MAX as RawFd, RawFd::MAX] {
            set(fd, Some(Entry::Epoll(1)));
            assert_eq!(get(fd), None);
            assert!(!fits(fd));
        }
    }
}
