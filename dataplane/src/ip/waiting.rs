//! Packets that wait for the MAC address of their next hop.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use ff_tcp::Instant;

/// Packets that wait, in bounded queues by next hop.
pub(crate) struct Waiting<F> {
    queues: HashMap<IpAddr, Queue<F>>,
    frames: usize,
}

struct Queue<F> {
    since: Instant,
    frames: VecDeque<F>,
}

/// Packets that may wait for one neighbour: about what Linux keeps (`unres_qlen_bytes` of 212 992 at 1 500
/// bytes each).
const FRAMES_PER_HOP_MAX: usize = 128;
/// Packets that may wait in all. They hold memory of the device's pool.
const FRAMES_MAX: usize = 512;
/// Neighbours that may be waited for at once.
const HOPS_MAX: usize = 128;

impl<F> Waiting<F> {
    pub(crate) fn new() -> Self {
        Self { queues: HashMap::new(), frames: 0 }
    }

    /// Keeps `frame` until the address of `hop` is known; gives it back when there is no room.
    pub(crate) fn push(&mut self, now: Instant, hop: IpAddr, frame: F) -> Result<(), F> {
        if self.frames >= FRAMES_MAX || (self.queues.len() >= HOPS_MAX && !self.queues.contains_key(&hop)) {
            return Err(frame);
        }
        let queue = self.queues.entry(hop).or_insert_with(|| Queue { since: now, frames: VecDeque::new() });
        if queue.frames.len() >= FRAMES_PER_HOP_MAX {
            return Err(frame);
        }
        queue.frames.push_back(frame);
        self.frames += 1;
        Ok(())
    }

    /// Takes everything that waits for `hop`, in order.
    pub(crate) fn take(&mut self, hop: IpAddr) -> VecDeque<F> {
        let frames = self.queues.remove(&hop).map(|queue| queue.frames).unwrap_or_default();
        self.frames -= frames.len();
        frames
    }

    /// The neighbours that are waited for, and since when.
    pub(crate) fn hops(&self) -> impl Iterator<Item = (IpAddr, Instant)> + '_ {
        self.queues.iter().map(|(hop, queue)| (*hop, queue.since))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.frames
    }
}
