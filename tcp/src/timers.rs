//! A hierarchical timer wheel: one node a connection, every operation O(1).
//!
//! A connection's node stands at or before its earliest deadline. Deadlines
//! that move later, as an ACK moves the retransmission time-out, do not touch
//! the wheel: the node fires, finds nothing due, and is set anew.

use crate::time::Instant;

/// Microseconds per tick, as a shift: 64 µs.
const TICK_SHIFT: u32 = 6;
const LEVELS: usize = 6;
const SLOTS: usize = 64;
const NONE: u32 = u32::MAX;
/// Longest span that the wheel holds; later nodes fire early and are set anew.
const SPAN_TICKS: u64 = 1 << (6 * LEVELS as u64 - 1);

#[derive(Clone, Copy, Debug)]
struct Node {
    tick: u64,
    prev: u32,
    next: u32,
    /// `level * 64 + slot`, or `u16::MAX`: not in the wheel.
    slot: u16,
}

const UNSET: Node = Node { tick: u64::MAX, prev: NONE, next: NONE, slot: u16::MAX };

/// The wheel. Nodes are named by the connection's slab index.
#[derive(Debug)]
pub(crate) struct Wheel {
    now_tick: u64,
    heads: Box<[u32; LEVELS * SLOTS]>,
    occupied: [u64; LEVELS],
    nodes: Vec<Node>,
}

impl Wheel {
    pub(crate) fn new() -> Self {
        Self {
            now_tick: 0,
            heads: Box::new([NONE; LEVELS * SLOTS]),
            occupied: [0; LEVELS],
            nodes: Vec::new(),
        }
    }

    /// Reads a node, for the cache.
    #[inline]
    pub(crate) fn touch(&self, node: u32) -> u64 {
        self.nodes.get(node as usize).map_or(0, |n| n.tick)
    }

    /// Makes sure that `node` fires at or before `deadline`.
    #[inline]
    pub(crate) fn at_latest(&mut self, node: u32, deadline: Instant) {
        let tick = deadline.0.saturating_add((1 << TICK_SHIFT) - 1) >> TICK_SHIFT;
        if (node as usize) < self.nodes.len() && self.nodes[node as usize].tick <= tick {
            return;
        }
        self.set(node, tick);
    }

    fn set(&mut self, node: u32, tick: u64) {
        if node as usize >= self.nodes.len() {
            self.nodes.resize(node as usize + 1, UNSET);
        }
        self.cancel(node);
        self.link(node, tick.clamp(self.now_tick, self.now_tick + SPAN_TICKS));
    }

    fn link(&mut self, node: u32, tick: u64) {
        let differing = (tick ^ self.now_tick) | (SLOTS as u64 - 1);
        let level = ((63 - differing.leading_zeros()) / 6) as usize;
        let level = level.min(LEVELS - 1);
        let slot = ((tick >> (6 * level)) & (SLOTS as u64 - 1)) as usize;
        let head = level * SLOTS + slot;
        let next = self.heads[head];
        self.nodes[node as usize] = Node { tick, prev: NONE, next, slot: head as u16 };
        if next != NONE {
            self.nodes[next as usize].prev = node;
        }
        self.heads[head] = node;
        self.occupied[level] |= 1 << slot;
    }

    /// Takes `node` out.
    pub(crate) fn cancel(&mut self, node: u32) {
        let Some(&Node { prev, next, slot, .. }) = self.nodes.get(node as usize) else { return };
        if slot == u16::MAX {
            return;
        }
        if prev == NONE {
            self.heads[slot as usize] = next;
            if next == NONE {
                self.occupied[slot as usize / SLOTS] &= !(1 << (slot as usize % SLOTS));
            }
        } else {
            self.nodes[prev as usize].next = next;
        }
        if next != NONE {
            self.nodes[next as usize].prev = prev;
        }
        self.nodes[node as usize] = UNSET;
    }

    /// The next slot that is not empty: its level, slot and first tick. Of two
    /// that begin together the higher level comes first, to be spread out.
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        let mut best: Option<(usize, usize, u64)> = None;
        for level in 0..LEVELS {
            let occupied = self.occupied[level];
            if occupied == 0 {
                continue;
            }
            let shift = 6 * level as u32;
            let here = ((self.now_tick >> shift) & (SLOTS as u64 - 1)) as u32;
            let ahead = occupied.rotate_right(here).trailing_zeros();
            let slot = (here + ahead) as usize % SLOTS;
            let tick = (((self.now_tick >> shift) + u64::from(ahead)) << shift).max(self.now_tick);
            if best.is_none_or(|b| tick <= b.2) {
                best = Some((level, slot, tick));
            }
        }
        best
    }

    /// When `pop_due` may have something next.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.next_slot().map(|(_, _, tick)| Instant(tick << TICK_SHIFT))
    }

    /// Takes out a node that is due at `now`. The caller sets it anew if it has
    /// deadlines left.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<u32> {
        let now_tick = now.0 >> TICK_SHIFT;
        while let Some((level, slot, tick)) = self.next_slot() {
            if tick > now_tick {
                break;
            }
            self.now_tick = tick;
            let head = self.heads[level * SLOTS + slot];
            let due = self.nodes[head as usize].tick;
            self.cancel(head);
            if level == 0 || due <= now_tick {
                return Some(head);
            }
            self.link(head, due.max(self.now_tick));
        }
        self.now_tick = self.now_tick.max(now_tick);
        None
    }
}
