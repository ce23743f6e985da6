//! The words of a receive queue.

use ff_flowmap::sync::Ordering;
use ff_flowmap::{Line, Owner};

const OWNER: usize = 0;
const LAST_TAKEN_US: usize = 1;
const FIRST_POLL_US: usize = 2;
const HANDOVERS: usize = 3;
const POLLED_BY: usize = 4;

/// A receive queue: who may take packets from it.
///
/// At most one process ever believes that it is the owner: the word holds one
/// tag, only the process with that tag moves it on, and somebody else only when
/// that process is dead.
#[derive(Clone, Copy, Debug)]
pub struct QueueWords<'m> {
    line: &'m Line,
}

impl<'m> QueueWords<'m> {
    pub(crate) fn over(line: &'m Line) -> Self {
        Self { line }
    }

    /// Who owns the queue. Acquire: a new owner sees all that the old one did
    /// with it.
    pub fn owner(&self) -> Option<Owner> {
        Owner::from_word(self.line.word(OWNER).load(Ordering::Acquire))
    }

    /// True if `me` owns the queue: to be asked at the top of each pass, before
    /// the queue is touched.
    pub fn is_mine(&self, me: Owner) -> bool {
        self.owner() == Some(me)
    }

    /// The owner `me` hands the queue to `successor`, after it has finished its
    /// last burst, which it took at `last_taken_us`. False if `me` no longer owned it: then `me` has been fenced
    /// off as dead and must not touch the queue.
    pub fn hand_to(&self, me: Owner, successor: Owner, last_taken_us: u64) -> bool {
        if !self.is_mine(me) {
            return false;
        }
        self.line.word(LAST_TAKEN_US).store(last_taken_us, Ordering::Relaxed);
        // Still ours, so nobody else writes it; the successor sees it with the owner word.
        self.line.word(POLLED_BY).store(0, Ordering::Relaxed);
        self.exchange(me.word(), successor)
    }

    /// The coordinator gives a queue without owner to `successor`. False if it
    /// has one.
    pub fn assign(&self, successor: Owner) -> bool {
        self.exchange(0, successor)
    }

    /// The coordinator gives the queue of `dead` to `successor`. The caller
    /// knows from a pidfd that `dead` is dead: a living owner is never raced.
    /// False if the queue is not of `dead` (it was handed over just before).
    pub fn take_from_dead(&self, dead: Owner, successor: Owner) -> bool {
        let taken = self.exchange(dead.word(), successor);
        if taken {
            // Nobody knows when the dead one took its last packet.
            self.line.word(LAST_TAKEN_US).store(0, Ordering::Relaxed);
        }
        taken
    }

    /// The new owner `me` says when it first polled the queue, once for each
    /// handover.
    pub fn first_poll(&self, me: Owner, now_us: u64) {
        self.line.word(FIRST_POLL_US).store(now_us, Ordering::Relaxed);
        self.line.word(POLLED_BY).store(me.word(), Ordering::Release);
    }

    /// How long the queue was without a consumer at its last handover. `None`
    /// as long as the new owner has not polled it, and when nobody gave it away.
    pub fn pause_us(&self) -> Option<u64> {
        let polled_by = Owner::from_word(self.line.word(POLLED_BY).load(Ordering::Acquire));
        let last = self.line.word(LAST_TAKEN_US).load(Ordering::Relaxed);
        let first = self.line.word(FIRST_POLL_US).load(Ordering::Relaxed);
        // Two processes, each with the clock that it read at the top of its pass.
        (last != 0 && polled_by.is_some() && polled_by == self.owner()).then(|| first.saturating_sub(last))
    }

    /// Changes of the owner so far.
    pub fn handovers(&self) -> u64 {
        self.line.word(HANDOVERS).load(Ordering::Relaxed)
    }

    fn exchange(&self, from: u64, to: Owner) -> bool {
        // Release: the new owner sees the last burst done. Acquire: so does a
        // coordinator that failed.
        let changed = self
            .line
            .word(OWNER)
            .compare_exchange(from, to.word(), Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
        if changed {
            self.line.word(HANDOVERS).fetch_add(1, Ordering::Relaxed);
        }
        changed
    }
}

/// Positions that make up the layout of a queue's line.
pub(crate) const QUEUE_LAYOUT: [u64; 5] =
    [OWNER as u64, LAST_TAKEN_US as u64, FIRST_POLL_US as u64, HANDOVERS as u64, POLLED_BY as u64];
