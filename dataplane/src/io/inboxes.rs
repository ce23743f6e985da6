//! Rings between workers, and what every device of a DPDK instance has in common.
//!
//! A frame that belongs to another worker travels over a single-producer, single-consumer ring that the
//! primary created: one for each ordered pair of workers (see `ff_dpdk::names::inbox_pairs`).

use ff_dpdk::mbuf::{Checksum, TxRequest};
use ff_dpdk::mempool::MempoolError;
use ff_dpdk::names::{self, LayoutError, WorkerId};
use ff_dpdk::port::PortError;
use ff_dpdk::ring::RingError;
use ff_dpdk::tap::TapError;
use ff_dpdk::{Eal, Mbuf, Mempool, Ring, RingConsumer, RingProducer};

use super::af_packet::PacketSocketError;
use super::{BURST, ChecksumState, Frame, IoCounters, RxChecksum, TxOffload, WorkerRef};

/// Where a worker sits in its instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seat {
    /// The worker.
    pub worker: WorkerRef,
    /// Workers of a generation.
    pub workers: u16,
    /// Slots.
    pub slots: u16,
}

/// Why a worker cannot attach to its device.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The layout is impossible.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A pool.
    #[error(transparent)]
    Mempool(#[from] MempoolError),
    /// A ring.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// A port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A TAP device.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// A packet socket.
    #[error(transparent)]
    PacketSocket(#[from] PacketSocketError),
    /// The port has another number of queues than the generation has workers.
    #[error("the port has {queues} receive queues for {workers} workers: start the instance anew")]
    Queues {
        /// Queues of the port.
        queues: u16,
        /// Workers of the generation.
        workers: u16,
    },
}

impl From<WorkerRef> for WorkerId {
    fn from(worker: WorkerRef) -> Self {
        Self { slot: worker.slot, index: worker.index }
    }
}

/// A frame in an mbuf.
#[derive(Debug)]
pub struct MbufFrame(pub(super) Mbuf);

impl Frame for MbufFrame {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.0.data()
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.data_mut()
    }

    #[inline]
    fn set_len(&mut self, len: usize) {
        self.0.set_len(len);
    }

    #[inline]
    fn capacity(&self) -> usize {
        self.0.capacity()
    }

    fn rx_checksum(&self) -> RxChecksum {
        let state = |checksum| match checksum {
            Checksum::Unknown => ChecksumState::Unknown,
            Checksum::Good => ChecksumState::Good,
            Checksum::Bad => ChecksumState::Bad,
        };
        RxChecksum { l3: state(self.0.ip_checksum()), l4: state(self.0.l4_checksum()) }
    }

    fn request_tx_offload(&mut self, offload: TxOffload) {
        self.0.request(TxRequest {
            l2_len: offload.l2_len,
            l3_len: offload.l3_len,
            l4_len: offload.l4_len,
            ip_checksum: offload.ip_csum,
            tcp_checksum: offload.tcp_csum,
            tso_bytes: offload.tso_mss,
            ipv6: offload.ipv6,
        });
    }
}

/// A worker's inboxes and its ends of the others'.
pub(super) struct Inboxes {
    incoming: Vec<RingConsumer>,
    outgoing: Vec<(WorkerId, RingProducer)>,
    /// Where the next receive begins, so that no source starves another.
    next: usize,
    burst: Vec<Mbuf>,
}

impl Inboxes {
    /// Finds the rings of `seat`'s worker.
    ///
    /// # Safety
    /// This process is that worker, and the only one; if its predecessor was killed, the rings were
    /// repaired since.
    pub(super) unsafe fn attach(eal: Eal, seat: &Seat) -> Result<Self, AttachError> {
        let me = WorkerId::from(seat.worker);
        let (mut incoming, mut outgoing) = (Vec::new(), Vec::new());
        for (destination, source) in names::inbox_pairs(seat.workers, seat.slots)? {
            if destination != me && source != me {
                continue;
            }
            let ring = Ring::lookup(eal, &names::inbox(destination, source))?;
            if destination == me {
                // SAFETY: only `destination` consumes from its inbox, which this process is.
                incoming.push(unsafe { ring.consumer() });
            } else {
                // SAFETY: only `source` produces onto this ring, which this process is.
                outgoing.push((destination, unsafe { ring.producer() }));
            }
        }
        Ok(Self { incoming, outgoing, next: 0, burst: Vec::with_capacity(BURST) })
    }

    /// Appends up to [`BURST`] forwarded frames.
    pub(super) fn receive<F>(
        &mut self,
        frames: &mut Vec<F>,
        wrap: impl Fn(Mbuf) -> F,
        counters: &mut IoCounters,
    ) -> usize {
        let inboxes = self.incoming.len();
        for at in 0..inboxes {
            let room = BURST - self.burst.len();
            if room == 0 {
                break;
            }
            self.incoming[(self.next + at) % inboxes].dequeue_burst(&mut self.burst, room);
        }
        self.next = self.next.wrapping_add(1);
        let received = self.burst.len();
        frames.extend(self.burst.drain(..).map(wrap));
        counters.rx_forwarded += received as u64;
        received
    }

    /// Puts a frame into another worker's inbox, or gives it back.
    pub(super) fn forward(
        &mut self,
        to: WorkerRef,
        frame: Mbuf,
        counters: &mut IoCounters,
    ) -> Result<(), Mbuf> {
        let to = WorkerId::from(to);
        debug_assert!(self.burst.is_empty());
        self.burst.push(frame);
        if let Some((_, ring)) = self.outgoing.iter_mut().find(|(worker, _)| *worker == to) {
            ring.enqueue_burst(&mut self.burst);
        }
        match self.burst.pop() {
            None => {
                counters.forwarded += 1;
                Ok(())
            }
            Some(frame) => {
                counters.forward_full += 1;
                Err(frame)
            }
        }
    }
}

/// Sends what an idle worker keeps of free mbufs back to their pools: a peer may be waiting for its own, and
/// a pool can be wholly recovered only when nobody else holds some of it.
#[derive(Default)]
pub(super) struct Idle {
    passes: u32,
}

impl Idle {
    /// Passes without a frame before the mbufs go: under load there is the odd empty pass.
    const PASSES: u32 = 64;

    /// Notes a pass without a frame. Packets between two idle times do not start the count anew; all that
    /// matters is that an idle worker comes to it soon.
    pub(super) fn pass(&mut self) {
        self.passes += 1;
        if self.passes >= Self::PASSES {
            self.passes = 0;
            ff_dpdk::mbuf::flush_private_cache();
        }
    }
}

/// Pool that `worker` allocates from.
pub(super) fn own_pool(eal: Eal, worker: WorkerRef) -> Result<Mempool, MempoolError> {
    Mempool::lookup(eal, &names::worker_pool(worker.into()))
}

/// Turns received mbufs into frames; one that does not lie in one piece is made to, or dropped and counted.
pub(super) fn take_received(
    received: &mut Vec<Mbuf>,
    frames: &mut Vec<MbufFrame>,
    counters: &mut IoCounters,
) -> usize {
    let before = frames.len();
    for mbuf in received.iter() {
        mbuf.prefetch_data();
    }
    for mut mbuf in received.drain(..) {
        if !mbuf.linearize() {
            counters.rx_truncated += 1;
            continue;
        }
        counters.rx_frames += 1;
        counters.rx_bytes += mbuf.packet_len() as u64;
        frames.push(MbufFrame(mbuf));
    }
    frames.len() - before
}
