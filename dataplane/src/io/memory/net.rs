//! The network: ports, the wires between them, and the virtual clock.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::MemoryIo;
use super::faults::{Faults, Rng};
use super::frame::{FramePool, HeapFrame};
use crate::io::offload;
use crate::io::pcap::PcapWriter;
use crate::io::{Capabilities, ChecksumState, Frame, RxChecksum, WorkerRef};

/// Names a port of a [`MemoryNet`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct PortId(usize);

/// How a port is made.
#[derive(Clone, Copy, Debug)]
pub struct PortSettings {
    /// What the port says of itself: MAC, MTU, offloads.
    pub capabilities: Capabilities,
    /// Receive queues, at least 1.
    pub queues: u16,
    /// Frames that a queue or an inbox holds; more are dropped.
    pub queue_frames: usize,
    /// Frames that each worker's pool has.
    pub pool_frames: usize,
    /// Frames arrive with checksums marked as verified (they never crossed a wire).
    pub trust_checksums: bool,
}

impl Default for PortSettings {
    fn default() -> Self {
        Self {
            capabilities: Capabilities { mtu: 1500, mac: [2, 0, 0, 0, 0, 1], ..Capabilities::default() },
            queues: 1,
            queue_frames: 4096,
            pool_frames: 65_536,
            trust_checksums: false,
        }
    }
}

/// A network in memory. Clones are the same network.
#[derive(Clone)]
pub struct MemoryNet(Arc<Mutex<Net>>);

struct Net {
    now_us: u64,
    ports: Vec<Port>,
    rng: Rng,
    order: u64,
}

struct Port {
    settings: PortSettings,
    peer: Option<PortId>,
    /// Faults of what leaves this port.
    faults: Faults,
    queues: Vec<VecDeque<HeapFrame>>,
    inboxes: BTreeMap<(u16, u16), VecDeque<HeapFrame>>,
    /// What is on the wire toward this port.
    in_flight: BinaryHeap<Reverse<InFlight>>,
    last_arrival_us: u64,
    pool: FramePool,
    capture: Option<PcapWriter<Box<dyn Write + Send>>>,
    dropped: u64,
}

struct InFlight {
    arrival_us: u64,
    order: u64,
    frame: HeapFrame,
}

impl PartialEq for InFlight {
    fn eq(&self, other: &Self) -> bool {
        (self.arrival_us, self.order) == (other.arrival_us, other.order)
    }
}
impl Eq for InFlight {}
impl PartialOrd for InFlight {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for InFlight {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.arrival_us, self.order).cmp(&(other.arrival_us, other.order))
    }
}

impl MemoryNet {
    /// A network without ports, at time 0; `seed` decides all faults.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Net { now_us: 0, ports: Vec::new(), rng: Rng::new(seed), order: 0 })))
    }

    /// Adds a port.
    pub fn add_port(&self, settings: PortSettings) -> PortId {
        let mut net = self.lock();
        let queues = usize::from(settings.queues.max(1));
        net.ports.push(Port {
            settings,
            peer: None,
            faults: Faults::NONE,
            queues: (0..queues).map(|_| VecDeque::new()).collect(),
            inboxes: BTreeMap::new(),
            in_flight: BinaryHeap::new(),
            last_arrival_us: 0,
            pool: FramePool::new(buffer_bytes(&settings.capabilities), usize::MAX),
            capture: None,
            dropped: 0,
        });
        PortId(net.ports.len() - 1)
    }

    /// Joins two ports by a wire.
    pub fn join(&self, a: PortId, b: PortId) {
        let mut net = self.lock();
        net.ports[a.0].peer = Some(b);
        net.ports[b.0].peer = Some(a);
    }

    /// Two joined ports.
    pub fn pair(&self, a: PortSettings, b: PortSettings) -> (PortId, PortId) {
        let (a, b) = (self.add_port(a), self.add_port(b));
        self.join(a, b);
        (a, b)
    }

    /// Faults of what leaves `port`, from now on.
    pub fn set_faults(&self, port: PortId, faults: Faults) {
        self.lock().ports[port.0].faults = faults;
    }

    /// A worker's view of `port`, receiving from `queues`.
    pub fn attach(&self, port: PortId, worker: WorkerRef, queues: &[u16]) -> MemoryIo {
        let mut net = self.lock();
        let port_ref = &mut net.ports[port.0];
        port_ref.inboxes.entry((worker.slot, worker.index)).or_default();
        let settings = port_ref.settings;
        drop(net);
        let pool = FramePool::new(buffer_bytes(&settings.capabilities), settings.pool_frames);
        MemoryIo::new(self.clone(), port, worker, settings.capabilities, pool, queues)
    }

    /// The worker is gone: what its inbox held is freed, and forwards to it fail.
    pub fn detach(&self, port: PortId, worker: WorkerRef) {
        self.lock().ports[port.0].inboxes.remove(&(worker.slot, worker.index));
    }

    /// Moves the clock to `now_us`; never back.
    pub fn set_now(&self, now_us: u64) {
        let mut net = self.lock();
        net.now_us = net.now_us.max(now_us);
    }

    /// The clock, microseconds.
    pub fn now_us(&self) -> u64 {
        self.lock().now_us
    }

    /// When the next frame on any wire arrives; the clock's time if one waits already.
    pub fn next_arrival_us(&self) -> Option<u64> {
        let net = self.lock();
        let waiting = net
            .ports
            .iter()
            .any(|p| p.queues.iter().any(|q| !q.is_empty()) || p.inboxes.values().any(|q| !q.is_empty()));
        if waiting {
            return Some(net.now_us);
        }
        net.ports.iter().filter_map(|p| p.in_flight.peek().map(|f| f.0.arrival_us)).min()
    }

    /// Lets `bytes` arrive at `port` at once, as if its wire had brought them. False when the queue is full.
    pub fn inject(&self, port: PortId, bytes: &[u8]) -> bool {
        let mut net = self.lock();
        let port = &mut net.ports[port.0];
        let Some(mut frame) = port.pool.alloc() else { return false };
        frame.fill(bytes);
        port.enqueue(frame)
    }

    /// Takes the next frame that waits at `port` in any queue.
    pub fn eject(&self, port: PortId) -> Option<Vec<u8>> {
        let mut net = self.lock();
        let now_us = net.now_us;
        let port = &mut net.ports[port.0];
        port.arrive(now_us);
        port.queues.iter_mut().find_map(VecDeque::pop_front).map(|frame| frame.bytes().to_vec())
    }

    /// Writes every frame that enters or leaves `port` to `out` in pcap format.
    ///
    /// # Errors
    /// What `out` says when the file header is written.
    pub fn capture(&self, port: PortId, out: Box<dyn Write + Send>) -> std::io::Result<()> {
        let writer = PcapWriter::new(out)?;
        self.lock().ports[port.0].capture = Some(writer);
        Ok(())
    }

    /// Frames dropped because a queue of `port` was full.
    pub fn dropped(&self, port: PortId) -> u64 {
        self.lock().ports[port.0].dropped
    }

    pub(super) fn take(
        &self,
        port: PortId,
        queues: &[u16],
        start: usize,
        max: usize,
        burst: &mut Vec<HeapFrame>,
    ) {
        let mut net = self.lock();
        let now_us = net.now_us;
        let port = &mut net.ports[port.0];
        port.arrive(now_us);
        let mut left = max;
        for step in 0..queues.len() {
            let queue = usize::from(queues[(start + step) % queues.len()]);
            let Some(queue) = port.queues.get_mut(queue) else { continue };
            let count = queue.len().min(left);
            burst.extend(queue.drain(..count));
            left -= count;
        }
    }

    pub(super) fn take_forwarded(
        &self,
        port: PortId,
        worker: WorkerRef,
        max: usize,
        burst: &mut Vec<HeapFrame>,
    ) -> usize {
        let mut net = self.lock();
        let Some(inbox) = net.ports[port.0].inboxes.get_mut(&(worker.slot, worker.index)) else { return 0 };
        let count = inbox.len().min(max);
        burst.extend(inbox.drain(..count));
        count
    }

    pub(super) fn forward(&self, port: PortId, to: WorkerRef, frame: HeapFrame) -> Result<(), HeapFrame> {
        let mut net = self.lock();
        let port = &mut net.ports[port.0];
        let bound = port.settings.queue_frames;
        match port.inboxes.get_mut(&(to.slot, to.index)) {
            Some(inbox) if inbox.len() < bound => {
                inbox.push_back(frame);
                Ok(())
            }
            _ => Err(frame),
        }
    }

    pub(super) fn send(&self, port: PortId, frames: &mut Vec<HeapFrame>) {
        let mut net = self.lock();
        for mut frame in frames.drain(..) {
            match frame.take_offload() {
                None => net.put_on_wire(port, frame),
                // The device's part of the work is done here, as a device would: in place for checksums, in
                // new frames for segments.
                Some(offload) => {
                    let pool = net.ports[port.0].pool.clone();
                    offload::finish(frame, offload, || pool.alloc(), |f| net.put_on_wire(port, f));
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Net> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Net {
    fn put_on_wire(&mut self, port: PortId, frame: HeapFrame) {
        let now_us = self.now_us;
        let from = &mut self.ports[port.0];
        from.record(now_us, frame.bytes());
        let (faults, Some(peer)) = (from.faults, from.peer) else { return };
        if faults == Faults::NONE {
            let to = &mut self.ports[peer.0];
            if to.in_flight.is_empty() {
                to.record(now_us, frame.bytes());
                to.enqueue(frame);
                return;
            }
        }
        let fate = faults.fate(&mut self.rng, frame.bytes());
        for delay_us in fate.delays_us.into_iter().flatten() {
            let to = &mut self.ports[peer.0];
            let Some(mut copy) = to.pool.alloc() else { return };
            copy.fill(frame.bytes());
            if let Some(bit) = fate.flip
                && let Some(byte) = copy.bytes_mut().get_mut(bit / 8)
            {
                *byte ^= 1 << (bit % 8);
            }
            let mut arrival_us = now_us + delay_us;
            if !fate.out_of_order {
                arrival_us = arrival_us.max(to.last_arrival_us);
                to.last_arrival_us = arrival_us;
            }
            self.order += 1;
            to.in_flight.push(Reverse(InFlight { arrival_us, order: self.order, frame: copy }));
        }
    }
}

impl Port {
    /// Moves what has arrived by now from the wire into the queues.
    fn arrive(&mut self, now_us: u64) {
        while self.in_flight.peek().is_some_and(|f| f.0.arrival_us <= now_us) {
            let Some(Reverse(flight)) = self.in_flight.pop() else { return };
            self.record(flight.arrival_us, flight.frame.bytes());
            self.enqueue(flight.frame);
        }
    }

    fn enqueue(&mut self, mut frame: HeapFrame) -> bool {
        let queue = steer(frame.bytes(), self.queues.len());
        let queue = &mut self.queues[queue];
        if queue.len() >= self.settings.queue_frames {
            self.dropped += 1;
            return false;
        }
        if self.settings.trust_checksums {
            frame.set_rx_checksum(RxChecksum { l3: ChecksumState::Good, l4: ChecksumState::Good });
        }
        queue.push_back(frame);
        true
    }

    fn record(&mut self, now_us: u64, bytes: &[u8]) {
        if let Some(capture) = &mut self.capture
            && capture.write(now_us, bytes).is_err()
        {
            // A full disk must not change what the network does; the capture ends here.
            self.capture = None;
        }
    }
}

fn buffer_bytes(capabilities: &Capabilities) -> usize {
    let frame = usize::from(capabilities.mtu) + 18;
    if capabilities.tso { frame.max(capabilities.tso_max_bytes as usize) } else { frame }
}

/// Which queue a frame goes to: a hash of addresses and ports of IPv4 and IPv6 without options or extension
/// headers, as RSS does; the rest goes to queue 0. Symmetric is not needed: only one direction is steered.
fn steer(frame: &[u8], queues: usize) -> usize {
    if queues <= 1 {
        return 0;
    }
    let fields = match frame.get(12..14) {
        Some([0x08, 0x00])
            if frame.get(14) == Some(&0x45)
                && frame.get(20..22).is_some_and(|f| f[0] & 0x3f == 0 && f[1] == 0) =>
        {
            frame.get(26..38)
        }
        Some([0x86, 0xdd]) if matches!(frame.get(20), Some(6 | 17)) => frame.get(22..58),
        _ => None,
    };
    let hash = fields.unwrap_or_default().iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    if fields.is_none() { 0 } else { ((hash >> 32) as usize) % queues }
}
