//! Data behind a hole: which ranges are there, and which SACK blocks tell so
//! (RFC 2018, section 4; RFC 2883).

use std::collections::VecDeque;

use crate::seq::Seq;

/// Holes that are kept apart; data that would make more is not kept.
pub(crate) const RANGES_MAX: usize = 512;

/// A range of sequence numbers, the end exclusive.
pub(crate) type Range = (Seq, Seq);

/// What became of a range that was offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Inserted {
    /// At least a part of it is new.
    New,
    /// All of it was there.
    Duplicate,
    /// Too many ranges.
    Refused,
}

/// The ranges received beyond the next expected byte.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    ranges: VecDeque<Range>,
    /// Newest first: the blocks that the next ACKs carry.
    sacks: [Range; 4],
    sacks_len: u8,
}

impl Reassembly {
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(crate) fn ranges(&self) -> impl ExactSizeIterator<Item = Range> + '_ {
        self.ranges.iter().copied()
    }

    /// The end of the last range.
    pub(crate) fn end(&self) -> Option<Seq> {
        self.ranges.back().map(|r| r.1)
    }

    /// The blocks to tell, newest first.
    pub(crate) fn sacks(&self) -> &[Range] {
        &self.sacks[..self.sacks_len as usize]
    }

    /// The range that `seq` lies in.
    pub(crate) fn containing(&self, seq: Seq) -> Option<Range> {
        let i = self.ranges.partition_point(|r| r.1.le(seq));
        self.ranges.get(i).copied().filter(|r| r.0.le(seq))
    }

    /// Whether `[start, end)` could be inserted.
    pub(crate) fn fits(&self, start: Seq, end: Seq) -> bool {
        self.ranges.len() < RANGES_MAX || {
            let i = self.ranges.partition_point(|r| r.1.lt(start));
            self.ranges.get(i).is_some_and(|r| r.0.le(end))
        }
    }

    /// Adds `[start, end)`.
    pub(crate) fn insert(&mut self, start: Seq, end: Seq) -> Inserted {
        debug_assert!(start.lt(end));
        let first = self.ranges.partition_point(|r| r.1.lt(start));
        let (mut lo, mut hi) = (start, end);
        let mut last = first;
        let mut covered = false;
        while let Some(&(s, e)) = self.ranges.get(last) {
            if s.gt(end) {
                break;
            }
            covered |= s.le(start) && e.ge(end);
            lo = lo.min(s);
            hi = hi.max(e);
            last += 1;
        }
        if last == first {
            if self.ranges.len() >= RANGES_MAX {
                return Inserted::Refused;
            }
            self.ranges.insert(first, (lo, hi));
        } else {
            self.ranges[first] = (lo, hi);
            if last - first > 1 {
                self.ranges.drain(first + 1..last);
            }
        }
        self.tell(lo, hi);
        if covered { Inserted::Duplicate } else { Inserted::New }
    }

    /// Puts the block at the head of those to tell.
    fn tell(&mut self, lo: Seq, hi: Seq) {
        let mut kept = [(lo, hi); 4];
        let mut n = 1;
        for &(s, e) in &self.sacks[..self.sacks_len as usize] {
            if n < 4 && !(s.ge(lo) && e.le(hi)) {
                kept[n] = (s, e);
                n += 1;
            }
        }
        self.sacks = kept;
        self.sacks_len = n as u8;
    }

    /// The next expected byte is `rcv_nxt`: forgets what lies below, and returns
    /// where data in order now ends.
    pub(crate) fn advance(&mut self, rcv_nxt: Seq) -> Seq {
        let mut edge = rcv_nxt;
        while let Some(&(s, e)) = self.ranges.front() {
            if s.gt(edge) {
                break;
            }
            edge = edge.max(e);
            self.ranges.pop_front();
        }
        let mut n = 0;
        for i in 0..self.sacks_len as usize {
            let block = self.sacks[i];
            if block.1.gt(edge) {
                self.sacks[n] = block;
                n += 1;
            }
        }
        self.sacks_len = n as u8;
        edge
    }

    /// Sets the blocks to tell, newest first; those that are not held are left out.
    pub(crate) fn set_sacks(&mut self, blocks: &[Range]) {
        self.sacks_len = 0;
        for &(s, e) in blocks.iter().take(4) {
            if s.lt(e) && self.containing(s).is_some_and(|r| e.le(r.1)) {
                self.sacks[self.sacks_len as usize] = (s, e);
                self.sacks_len += 1;
            }
        }
    }

    /// Forgets everything and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.ranges.clear();
        self.sacks_len = 0;
    }
}
