//! The in-memory wire: two ends joined by rings of mbufs in shared memory, with no kernel between.
//!
//! The server's end is a device of the instance like any other: a queue for each worker, whose owner may
//! change. The client's end belongs to a load generator, another secondary of the same instance, which takes
//! one or several queues for itself. A queue has one ring towards the server, and towards the client one for
//! each slot.
//!
//! The wire loses nothing and alters nothing, so checksums are left out where the sender leaves them to the
//! device: such frames arrive as verified. Frames with a checksum made in software arrive as unverified.

use std::os::fd::RawFd;

use ff_dpdk::names;
use ff_dpdk::{Eal, Mbuf, Mempool, Ring, RingConsumer, RingProducer};

use super::inboxes::{self, AttachError, Idle, Inboxes, MbufFrame, Seat};
use super::{BURST, Capabilities, FlushReport, IoCounters, PacketIo, WorkerRef};

/// What both ends of a wire agree on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WireSeat {
    /// Number of the wire.
    pub port: u16,
    /// Largest IP packet in bytes; with the Ethernet header it must fit into an mbuf.
    pub mtu: u16,
    /// MAC address of this end.
    pub mac: [u8; 6],
}

impl WireSeat {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            mtu: self.mtu,
            mac: self.mac,
            tx_ip_checksum: true,
            tx_l4_checksum: true,
            tso: false,
            tso_max_bytes: 0,
            rx_l4_checksum: true,
        }
    }
}

/// The rings and the counters that an end has, whichever it is.
struct End {
    pool: Mempool,
    incoming: Vec<RingConsumer>,
    /// Where the next receive begins, so that no ring starves another.
    next: usize,
    outgoing: RingProducer,
    pending: Vec<Mbuf>,
    received: Vec<Mbuf>,
    idle: Idle,
    report: FlushReport,
    counters: IoCounters,
}

impl End {
    fn new(pool: Mempool, outgoing: RingProducer) -> Self {
        Self {
            pool,
            incoming: Vec::new(),
            next: 0,
            outgoing,
            pending: Vec::with_capacity(BURST),
            received: Vec::with_capacity(BURST),
            idle: Idle::default(),
            report: FlushReport::default(),
            counters: IoCounters::default(),
        }
    }

    fn receive(&mut self, burst: &mut Vec<MbufFrame>) -> usize {
        let rings = self.incoming.len();
        for at in 0..rings {
            let room = BURST - self.received.len();
            if room == 0 {
                break;
            }
            self.incoming[(self.next + at) % rings].dequeue_burst(&mut self.received, room);
        }
        self.next = self.next.wrapping_add(1);
        if self.received.is_empty() {
            self.idle.pass();
            return 0;
        }
        inboxes::take_received(&mut self.received, burst, &mut self.counters)
    }

    fn alloc(&mut self) -> Option<MbufFrame> {
        let mbuf = self.pool.alloc();
        self.counters.no_memory += u64::from(mbuf.is_none());
        mbuf.map(MbufFrame)
    }

    fn transmit(&mut self, frame: MbufFrame) {
        let mut mbuf = frame.0;
        let left_to_device = mbuf.has_tx_request();
        mbuf.clear_flags();
        if left_to_device {
            mbuf.set_checksums_good();
        }
        self.pending.push(mbuf);
        if self.pending.len() == BURST {
            self.send();
        }
    }

    fn send(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let before: u64 = self.pending.iter().map(|mbuf| mbuf.packet_len() as u64).sum();
        let sent = self.outgoing.enqueue_burst(&mut self.pending);
        let left: u64 = self.pending.iter().map(|mbuf| mbuf.packet_len() as u64).sum();
        let dropped = self.pending.len();
        self.pending.clear();
        self.report.sent += sent;
        self.report.dropped += dropped;
        self.counters.tx_frames += sent as u64;
        self.counters.tx_bytes += before - left;
        self.counters.tx_dropped += dropped as u64;
    }

    fn flush(&mut self) -> FlushReport {
        self.send();
        std::mem::take(&mut self.report)
    }
}

/// The server's end: one worker's view.
pub struct RingIo {
    end: End,
    inboxes: Inboxes,
    capabilities: Capabilities,
    /// Rings towards the server, by queue.
    queues: Vec<Ring>,
}

impl RingIo {
    /// Attaches to a wire that the primary created. The worker owns no queue yet.
    ///
    /// # Errors
    /// When the primary has no such rings or pool.
    ///
    /// # Safety
    /// The conditions of [`super::dpdk::DpdkIo::attach`].
    pub unsafe fn attach(eal: Eal, seat: &Seat, wire: &WireSeat) -> Result<Self, AttachError> {
        let queues = (0..seat.workers)
            .map(|queue| Ring::lookup(eal, &names::wire_to_server(wire.port, queue)))
            .collect::<Result<_, _>>()?;
        let WorkerRef { slot, index } = seat.worker;
        let to_client = Ring::lookup(eal, &names::wire_to_client(wire.port, index, slot))?;
        let pool = inboxes::own_pool(eal, seat.worker)?;
        Ok(Self {
            // SAFETY: this ring is this worker's alone.
            end: End::new(pool, unsafe { to_client.producer() }),
            // SAFETY: the caller vouches for the same.
            inboxes: unsafe { Inboxes::attach(eal, seat)? },
            capabilities: wire.capabilities(),
            queues,
        })
    }
}

impl PacketIo for RingIo {
    type Frame = MbufFrame;

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive(&mut self, burst: &mut Vec<MbufFrame>) -> usize {
        self.end.receive(burst)
    }

    fn receive_forwarded(&mut self, burst: &mut Vec<MbufFrame>) -> usize {
        self.inboxes.receive(burst, MbufFrame, &mut self.end.counters)
    }

    fn alloc(&mut self) -> Option<MbufFrame> {
        self.end.alloc()
    }

    fn transmit(&mut self, frame: MbufFrame) {
        self.end.transmit(frame);
    }

    fn flush(&mut self) -> FlushReport {
        self.end.flush()
    }

    fn forward(&mut self, to: WorkerRef, frame: MbufFrame) -> Result<(), MbufFrame> {
        self.inboxes.forward(to, frame.0, &mut self.end.counters).map_err(MbufFrame)
    }

    fn set_owned_queues(&mut self, queues: &[u16]) {
        let mut queues = queues.to_vec();
        queues.sort_unstable();
        queues.dedup();
        let rings = queues.iter().filter_map(|&queue| self.queues.get(usize::from(queue)));
        // SAFETY: this worker owns these queues (see `attach`), so nobody else consumes from their rings.
        self.end.incoming = rings.map(|ring| unsafe { ring.consumer() }).collect();
    }

    fn wait_fds(&self) -> &[RawFd] {
        &[]
    }

    fn counters(&self) -> IoCounters {
        self.end.counters
    }
}

/// The client's end of one queue of a wire.
pub struct WireClientIo {
    end: End,
    capabilities: Capabilities,
}

impl WireClientIo {
    /// Attaches client number `client` to queue `queue`: what it sends goes to the worker that owns the
    /// queue, and it receives what the workers with that index send, in whichever slot.
    ///
    /// # Errors
    /// When the primary has no such rings or pool.
    ///
    /// # Safety
    /// No other process is this client, or is attached to this queue. If a predecessor was killed, the
    /// client's ends of the rings were repaired since.
    pub unsafe fn attach(
        eal: Eal,
        wire: &WireSeat,
        slots: u16,
        client: u16,
        queue: u16,
    ) -> Result<Self, AttachError> {
        let to_server = Ring::lookup(eal, &names::wire_to_server(wire.port, queue))?;
        let pool = Mempool::lookup(eal, &names::wire_client_pool(wire.port, client))?;
        // SAFETY: the caller says that this is the queue's only client.
        let mut end = End::new(pool, unsafe { to_server.producer() });
        for slot in 0..slots {
            let from_server = Ring::lookup(eal, &names::wire_to_client(wire.port, queue, slot))?;
            // SAFETY: as above.
            end.incoming.push(unsafe { from_server.consumer() });
        }
        Ok(Self { end, capabilities: wire.capabilities() })
    }
}

impl PacketIo for WireClientIo {
    type Frame = MbufFrame;

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive(&mut self, burst: &mut Vec<MbufFrame>) -> usize {
        self.end.receive(burst)
    }

    /// A client has no siblings: nothing.
    fn receive_forwarded(&mut self, _burst: &mut Vec<MbufFrame>) -> usize {
        0
    }

    fn alloc(&mut self) -> Option<MbufFrame> {
        self.end.alloc()
    }

    fn transmit(&mut self, frame: MbufFrame) {
        self.end.transmit(frame);
    }

    fn flush(&mut self) -> FlushReport {
        self.end.flush()
    }

    /// A client has no siblings: gives the frame back.
    fn forward(&mut self, _to: WorkerRef, frame: MbufFrame) -> Result<(), MbufFrame> {
        self.end.counters.forward_full += 1;
        Err(frame)
    }

    /// A client owns the queue that it attached to, always.
    fn set_owned_queues(&mut self, _queues: &[u16]) {}

    fn wait_fds(&self) -> &[RawFd] {
        &[]
    }

    fn counters(&self) -> IoCounters {
        self.end.counters
    }
}
