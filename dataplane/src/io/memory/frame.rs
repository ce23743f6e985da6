//! Frames on the heap, from a pool that knows how many are out.

use std::sync::{Arc, Mutex, PoisonError};

use crate::io::{Frame, RxChecksum, TxOffload};

/// Buffers kept for reuse; more than these are given back to the allocator.
const FREE_MAX: usize = 4096;

/// A pool of equally large buffers with an upper bound, like a device's mempool.
#[derive(Clone)]
pub struct FramePool(Arc<Mutex<Pool>>);

struct Pool {
    free: Vec<Box<[u8]>>,
    buffer_bytes: usize,
    in_use: usize,
    max: usize,
}

impl FramePool {
    /// A pool of at most `max` frames of up to `buffer_bytes` each.
    pub fn new(buffer_bytes: usize, max: usize) -> Self {
        Self(Arc::new(Mutex::new(Pool { free: Vec::new(), buffer_bytes, in_use: 0, max })))
    }

    /// An empty frame; `None` when all are out.
    pub fn alloc(&self) -> Option<HeapFrame> {
        let mut pool = self.lock();
        if pool.in_use >= pool.max {
            return None;
        }
        pool.in_use += 1;
        let data = pool.free.pop().unwrap_or_else(|| vec![0; pool.buffer_bytes].into_boxed_slice());
        drop(pool);
        Some(HeapFrame { data, len: 0, rx: RxChecksum::UNKNOWN, offload: None, pool: self.clone() })
    }

    /// Frames now out of the pool.
    pub fn in_use(&self) -> usize {
        self.lock().in_use
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Pool> {
        // A panic while the lock is held leaves nothing half done: the counts are single stores.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A frame on the heap.
pub struct HeapFrame {
    data: Box<[u8]>,
    len: usize,
    rx: RxChecksum,
    offload: Option<TxOffload>,
    pool: FramePool,
}

impl HeapFrame {
    /// Fills the frame with `bytes`, cut to the frame's capacity.
    pub fn fill(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(self.data.len());
        self.data[..len].copy_from_slice(&bytes[..len]);
        self.len = len;
    }

    /// Takes the offload that was asked for.
    pub fn take_offload(&mut self) -> Option<TxOffload> {
        self.offload.take()
    }

    /// Says what a device would say about the checksums.
    pub fn set_rx_checksum(&mut self, rx: RxChecksum) {
        self.rx = rx;
    }
}

impl Frame for HeapFrame {
    fn bytes(&self) -> &[u8] {
        &self.data[..self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.data[..self.len]
    }

    fn set_len(&mut self, len: usize) {
        assert!(len <= self.data.len(), "{len} bytes do not fit into a frame of {}", self.data.len());
        self.len = len;
    }

    fn capacity(&self) -> usize {
        self.data.len()
    }

    fn rx_checksum(&self) -> RxChecksum {
        self.rx
    }

    fn request_tx_offload(&mut self, offload: TxOffload) {
        self.offload = Some(offload);
    }
}

impl Drop for HeapFrame {
    fn drop(&mut self) {
        let data = std::mem::take(&mut self.data);
        let mut pool = self.pool.lock();
        pool.in_use -= 1;
        if pool.free.len() < FREE_MAX {
            pool.free.push(data);
        }
    }
}
