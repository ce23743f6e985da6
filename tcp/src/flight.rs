//! The segments in flight, in order. The first lives in the connection itself:
//! a response that fits one segment costs no memory beside it.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use crate::host::Host;
use crate::recovery::Record;
use crate::seq::Seq;

/// A queue of records that follow each other without a gap.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    first: Record,
    len: u32,
    rest: VecDeque<Record>,
}

impl Flight {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&Record> {
        (self.len > 0).then_some(&self.first)
    }

    #[inline]
    pub(crate) fn front_mut(&mut self) -> Option<&mut Record> {
        (self.len > 0).then_some(&mut self.first)
    }

    pub(crate) fn back_mut(&mut self) -> Option<&mut Record> {
        match self.len {
            0 => None,
            1 => Some(&mut self.first),
            _ => self.rest.back_mut(),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Record> {
        self.front().into_iter().chain(&self.rest)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Record> {
        (self.len > 0).then_some(&mut self.first).into_iter().chain(&mut self.rest)
    }

    /// The index of the first record that ends beyond `seq`.
    pub(crate) fn ending_beyond(&self, seq: Seq) -> usize {
        match self.front() {
            Some(r) if r.end().le(seq) => 1 + self.rest.partition_point(|r| r.end().le(seq)),
            _ => 0,
        }
    }

    #[inline]
    pub(crate) fn push_back(&mut self, host: &mut Host, record: Record) {
        if self.len == 0 {
            self.first = record;
        } else {
            if self.rest.capacity() == 0 {
                self.rest = host.take_records();
            }
            self.rest.push_back(record);
        }
        self.len += 1;
    }

    #[inline]
    pub(crate) fn pop_front(&mut self) {
        if self.len > 1
            && let Some(next) = self.rest.pop_front()
        {
            self.first = next;
        }
        self.len = self.len.saturating_sub(1);
    }

    /// Puts a record in behind record `i`, which exists.
    pub(crate) fn insert_after(&mut self, i: usize, record: Record) {
        self.rest.insert(i, record);
        self.len += 1;
    }

    /// Forgets everything and gives the memory back.
    #[inline]
    pub(crate) fn release(&mut self, host: &mut Host) {
        self.len = 0;
        if self.rest.capacity() > 0 {
            host.put_records(std::mem::take(&mut self.rest));
        }
    }
}

impl Index<usize> for Flight {
    type Output = Record;
    fn index(&self, i: usize) -> &Record {
        debug_assert!(i < self.len());
        if i == 0 { &self.first } else { &self.rest[i - 1] }
    }
}

impl IndexMut<usize> for Flight {
    fn index_mut(&mut self, i: usize) -> &mut Record {
        debug_assert!(i < self.len());
        if i == 0 { &mut self.first } else { &mut self.rest[i - 1] }
    }
}
