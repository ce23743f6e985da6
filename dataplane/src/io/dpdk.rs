//! An Ethernet port of DPDK: a NIC, or the TAP device.

use std::os::fd::RawFd;

use ff_dpdk::instance::tx_queue;
use ff_dpdk::port::Offloads;
use ff_dpdk::{Eal, EthDev, Mbuf, Mempool, RxQueue, TxQueue, tap};

use super::inboxes::{self, AttachError, Idle, Inboxes, MbufFrame, Seat};
use super::{BURST, Capabilities, FRAME_ROOM_BYTES, FlushReport, IoCounters, PacketIo, WorkerRef};

/// Times that a flush offers the rest of a burst to a device that did not take all of it.
const SEND_TRIES: usize = 4;

/// One worker's view of an Ethernet port.
pub struct DpdkIo {
    port: EthDev,
    pool: Mempool,
    inboxes: Inboxes,
    capabilities: Capabilities,
    queues: u16,
    owned: Vec<RxQueue>,
    /// Where the next receive begins, so that no queue starves another.
    next_queue: usize,
    tx: TxQueue,
    pending: Vec<Mbuf>,
    received: Vec<Mbuf>,
    idle: Idle,
    report: FlushReport,
    /// Receive descriptors of all queues, where the driver has them (TAP).
    queue_fds: Vec<RawFd>,
    wait_fds: Vec<RawFd>,
    counters: IoCounters,
}

/// What the primary says of a port when a worker attaches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortSeat {
    /// Its number in DPDK.
    pub port: u16,
    /// The kernel's interface, if it is a TAP device.
    pub tap_interface: Option<String>,
    /// What is left to the device, as the start of the port returned it.
    pub offloads: Offloads,
}

impl DpdkIo {
    /// Attaches to a port that the primary started. The worker owns no receive queue yet.
    ///
    /// # Errors
    /// When the primary has no such port, pool or ring, or the port has other queues.
    ///
    /// # Safety
    /// - This process is the worker of `seat`, and the only one. If its predecessor was killed, shared
    ///   memory was restored since (`ff_dpdk::instance::restore_after_kill`).
    /// - [`PacketIo::set_owned_queues`] will be called only with queues whose owner word names this worker,
    ///   and called without a queue before its word is given away.
    pub unsafe fn attach(eal: Eal, seat: &Seat, port: &PortSeat) -> Result<Self, AttachError> {
        let device = EthDev::by_number(eal, port.port)?;
        let info = device.info()?;
        if info.rx_queues != seat.workers {
            return Err(AttachError::Queues { queues: info.rx_queues, workers: seat.workers });
        }
        let queue_fds = match &port.tap_interface {
            Some(interface) => tap::receive_descriptors(interface, seat.workers)?,
            None => Vec::new(),
        };
        let pool = inboxes::own_pool(eal, seat.worker)?;
        // What is sent lies in one mbuf.
        let room = pool.frame_bytes_max().saturating_sub(usize::from(FRAME_ROOM_BYTES));
        let tx = tx_queue(&info.driver, seat.workers, seat.worker.into());
        let capabilities = Capabilities {
            mtu: device.mtu()?.min(u16::try_from(room).unwrap_or(u16::MAX)),
            mac: device.mac()?,
            tx_ip_checksum: port.offloads.tx_ip_checksum,
            tx_l4_checksum: port.offloads.tx_tcp_checksum,
            // A large segment would have to be a chain of mbufs, which frames are not.
            tso: false,
            tso_max_bytes: 0,
            rx_l4_checksum: port.offloads.rx_checksum,
        };
        Ok(Self {
            port: device,
            pool,
            // SAFETY: the caller vouches for the same.
            inboxes: unsafe { Inboxes::attach(eal, seat)? },
            capabilities,
            queues: seat.workers,
            owned: Vec::new(),
            next_queue: 0,
            // SAFETY: the primary started the port with a transmit queue for each worker and slot, this one
            // is this worker's; on TAP two slots share one, see `tx_queue`.
            tx: unsafe { device.tx_queue(tx) },
            pending: Vec::with_capacity(BURST),
            received: Vec::with_capacity(BURST),
            idle: Idle::default(),
            report: FlushReport::default(),
            queue_fds,
            wait_fds: Vec::new(),
            counters: IoCounters::default(),
        })
    }

    fn send_pending(&mut self) {
        for _ in 0..SEND_TRIES {
            if self.pending.is_empty() {
                return;
            }
            let before: u64 = self.pending.iter().map(|mbuf| mbuf.packet_len() as u64).sum();
            let sent = self.tx.send(&mut self.pending);
            let left: u64 = self.pending.iter().map(|mbuf| mbuf.packet_len() as u64).sum();
            self.counters.tx_frames += sent as u64;
            self.counters.tx_bytes += before - left;
            self.report.sent += sent;
        }
        let dropped = self.pending.len();
        self.counters.tx_dropped += dropped as u64;
        self.report.dropped += dropped;
        self.pending.clear();
    }
}

impl PacketIo for DpdkIo {
    type Frame = MbufFrame;

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive(&mut self, burst: &mut Vec<MbufFrame>) -> usize {
        let queues = self.owned.len();
        for at in 0..queues {
            let room = BURST - self.received.len();
            if room == 0 {
                break;
            }
            self.owned[(self.next_queue + at) % queues].receive(&mut self.received, room as u16);
        }
        self.next_queue = self.next_queue.wrapping_add(1);
        if self.received.is_empty() {
            self.idle.pass();
            return 0;
        }
        inboxes::take_received(&mut self.received, burst, &mut self.counters)
    }

    fn receive_forwarded(&mut self, burst: &mut Vec<MbufFrame>) -> usize {
        self.inboxes.receive(burst, MbufFrame, &mut self.counters)
    }

    fn alloc(&mut self) -> Option<MbufFrame> {
        let mbuf = self.pool.alloc();
        self.counters.no_memory += u64::from(mbuf.is_none());
        mbuf.map(MbufFrame)
    }

    fn transmit(&mut self, frame: MbufFrame) {
        self.pending.push(frame.0);
        if self.pending.len() == BURST {
            self.send_pending();
        }
    }

    fn flush(&mut self) -> FlushReport {
        self.send_pending();
        std::mem::take(&mut self.report)
    }

    fn forward(&mut self, to: WorkerRef, frame: MbufFrame) -> Result<(), MbufFrame> {
        self.inboxes.forward(to, frame.0, &mut self.counters).map_err(MbufFrame)
    }

    fn set_owned_queues(&mut self, queues: &[u16]) {
        let mut queues: Vec<u16> = queues.iter().copied().filter(|&queue| queue < self.queues).collect();
        queues.sort_unstable();
        queues.dedup();
        // SAFETY: the port has these queues, and this worker owns them (see `attach`).
        self.owned = queues.iter().map(|&queue| unsafe { self.port.rx_queue(queue) }).collect();
        self.wait_fds =
            queues.iter().filter_map(|&queue| self.queue_fds.get(usize::from(queue)).copied()).collect();
    }

    fn wait_fds(&self) -> &[RawFd] {
        &self.wait_fds
    }

    fn counters(&self) -> IoCounters {
        self.counters
    }
}
