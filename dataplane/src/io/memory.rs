//! A packet I/O that lives in memory: frames on the heap, ports joined by a wire, faults by seed, virtual
//! time.
//!
//! A [`MemoryNet`] is a small network: ports with queues, joined in pairs. [`MemoryNet::attach`] gives a
//! worker its [`MemoryIo`]. Nothing happens by itself: frames arrive when [`MemoryNet::set_now`] has moved
//! the clock past their arrival, so that a run is a function of its seed. Several workers may be attached to
//! one port, each with its own queues and its own inbox, as with a real device.

mod faults;
mod frame;
mod net;

use std::os::fd::RawFd;

pub use faults::{Faults, Rng};
pub use frame::{FramePool, HeapFrame};
pub use net::{MemoryNet, PortId, PortSettings};

use super::{BURST, Capabilities, FlushReport, Frame, IoCounters, PacketIo, WorkerRef};

/// One worker's view of a port of a [`MemoryNet`].
pub struct MemoryIo {
    net: MemoryNet,
    port: PortId,
    worker: WorkerRef,
    capabilities: Capabilities,
    pool: FramePool,
    queues: Vec<u16>,
    /// Where the next receive begins, so that no queue starves another.
    next_queue: usize,
    pending: Vec<HeapFrame>,
    counters: IoCounters,
}

impl MemoryIo {
    pub(super) fn new(
        net: MemoryNet,
        port: PortId,
        worker: WorkerRef,
        capabilities: Capabilities,
        pool: FramePool,
        queues: &[u16],
    ) -> Self {
        let mut io = Self {
            net,
            port,
            worker,
            capabilities,
            pool,
            queues: Vec::new(),
            next_queue: 0,
            pending: Vec::new(),
            counters: IoCounters::default(),
        };
        io.set_owned_queues(queues);
        io
    }

    /// The pool that this worker's frames come from.
    pub fn pool(&self) -> &FramePool {
        &self.pool
    }
}

impl PacketIo for MemoryIo {
    type Frame = HeapFrame;

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive(&mut self, burst: &mut Vec<HeapFrame>) -> usize {
        let before = burst.len();
        let Some(start) = self.next_queue.checked_rem(self.queues.len()) else { return 0 };
        self.next_queue = start + 1;
        self.net.take(self.port, &self.queues, start, BURST, burst);
        for frame in &burst[before..] {
            self.counters.rx_frames += 1;
            self.counters.rx_bytes += frame.bytes().len() as u64;
        }
        burst.len() - before
    }

    fn receive_forwarded(&mut self, burst: &mut Vec<HeapFrame>) -> usize {
        let count = self.net.take_forwarded(self.port, self.worker, BURST, burst);
        self.counters.rx_forwarded += count as u64;
        count
    }

    fn alloc(&mut self) -> Option<HeapFrame> {
        let frame = self.pool.alloc();
        self.counters.no_memory += u64::from(frame.is_none());
        frame
    }

    fn transmit(&mut self, frame: HeapFrame) {
        self.pending.push(frame);
    }

    fn flush(&mut self) -> FlushReport {
        if self.pending.is_empty() {
            return FlushReport::default();
        }
        let sent = self.pending.len();
        for frame in &self.pending {
            self.counters.tx_frames += 1;
            self.counters.tx_bytes += frame.bytes().len() as u64;
        }
        self.net.send(self.port, &mut self.pending);
        FlushReport { sent, dropped: 0 }
    }

    fn forward(&mut self, to: WorkerRef, frame: HeapFrame) -> Result<(), HeapFrame> {
        let result = self.net.forward(self.port, to, frame);
        match result {
            Ok(()) => self.counters.forwarded += 1,
            Err(_) => self.counters.forward_full += 1,
        }
        result
    }

    fn set_owned_queues(&mut self, queues: &[u16]) {
        self.queues = queues.to_vec();
        self.queues.sort_unstable();
        self.queues.dedup();
    }

    fn wait_fds(&self) -> &[RawFd] {
        &[]
    }

    fn counters(&self) -> IoCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests;
