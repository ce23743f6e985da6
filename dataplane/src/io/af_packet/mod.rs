//! An ordinary network interface, through packet sockets with mapped rings.
//!
//! The primary opens one receiving socket per queue (the kernel spreads flows over them) and passes the
//! descriptors to the workers, which map the rings and poll them: no packet passes through the primary, and
//! a queue that changes hands goes on where it was. Each worker in each slot sends through a socket of its
//! own.
//!
//! The kernel puts a header with offload state before each frame, so a neighbour on the same host may
//! leave out checksums and send frames of up to 64 KiB, and so may the stack. Such a frame is received as
//! one: a TCP segment much longer than the MTU.
//!
//! A received frame lies in the ring until it is dropped: a stack that keeps it long makes the ring shorter.
//! A frame that is forwarded to another worker is copied into mbufs, and cut into segments if it is a merged
//! one.

mod frame;
mod mapped;
mod socket;
mod vnet;

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use ff_dpdk::{Eal, Mempool};

use super::inboxes::{self, AttachError, Idle, Inboxes, MbufFrame, Seat};
use super::{
    BURST, Capabilities, FRAME_ROOM_BYTES, FlushReport, Frame, IoCounters, PacketIo, WorkerRef, offload,
};
use frame::{Buffer, Kind, Slot};
use mapped::{Direction, Mapped};

pub use frame::AfPacketFrame;
pub use mapped::{FRAME_BYTES_MAX, Geometry, RingSizes};
pub use socket::{Interface, PacketSocketError, interface, open_queue, open_queues, open_sender};

/// Buffers for frames to send that are kept for reuse.
const BUFFERS_KEPT: usize = 2 * BURST;

/// A receiving socket with its ring.
struct Queue {
    number: u16,
    ring: Arc<Mapped>,
    socket: OwnedFd,
}

/// The sending socket with its ring.
struct Sender {
    ring: Mapped,
    socket: OwnedFd,
    /// Slot that the next frame goes into.
    next: u32,
    /// Frames filled in since the last kick, or that the kernel did not take at it.
    waiting: bool,
}

impl Sender {
    /// Has the kernel send what is filled in. One system call for all of it.
    fn kick(&mut self) {
        if !self.waiting {
            return;
        }
        // SAFETY: sends the mapped ring; no pointer is passed.
        let result = unsafe {
            libc::send(self.socket.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
        };
        // What it did not take (no memory, device down) stays in the ring for the next kick.
        self.waiting = result < 0;
    }
}

/// One worker's view of an interface.
pub struct AfPacketIo {
    queues: Vec<Queue>,
    /// Indices into `queues` of those that this worker owns.
    owned: Vec<usize>,
    /// Where the next receive begins, so that no queue starves another.
    next_queue: usize,
    sender: Sender,
    unsent: usize,
    buffers: Vec<Buffer>,
    pool: Mempool,
    inboxes: Inboxes,
    idle: Idle,
    capabilities: Capabilities,
    report: FlushReport,
    wait_fds: Vec<RawFd>,
    counters: IoCounters,
}

/// The descriptors and numbers that the primary hands to a worker.
#[derive(Debug)]
pub struct PacketSeat {
    /// Name of the interface.
    pub interface: String,
    /// The sizes that the sockets were opened with.
    pub sizes: RingSizes,
    /// Receiving sockets, by queue.
    pub queues: Vec<OwnedFd>,
    /// This worker's sending socket.
    pub sender: OwnedFd,
}

impl AfPacketIo {
    /// Maps the rings. The worker owns no queue yet.
    ///
    /// # Errors
    /// When the rings have other sizes, the interface is gone, or the primary has no pool or inboxes for
    /// this worker.
    ///
    /// # Safety
    /// The conditions of [`super::dpdk::DpdkIo::attach`]; and nobody else sends through `packet.sender`.
    pub unsafe fn attach(eal: Eal, seat: &Seat, packet: PacketSeat) -> Result<Self, AttachError> {
        let PacketSeat { interface, sizes, queues, sender } = packet;
        if queues.len() != usize::from(seat.workers) {
            return Err(AttachError::Queues { queues: queues.len() as u16, workers: seat.workers });
        }
        let map = |socket: &OwnedFd, geometry| {
            Mapped::new(socket.as_fd(), geometry).map_err(PacketSocketError::Map)
        };
        let device = socket::interface(sender.as_fd(), &interface)?;
        let rx = Geometry::new(Direction::Rx, sizes.rx_frames, sizes.rx_frame_bytes);
        let tx = Geometry::new(Direction::Tx, sizes.tx_frames, sizes.tx_frame_bytes);
        let queues = (0..)
            .zip(queues)
            .map(|(number, socket)| Ok(Queue { number, ring: Arc::new(map(&socket, rx)?), socket }))
            .collect::<Result<Vec<_>, PacketSocketError>>()?;
        let ring = map(&sender, tx)?;
        let frame_max = ring.tx_frame_bytes_max().min(FRAME_BYTES_MAX as usize);
        let tso = device.tso && frame_max > 2 * (usize::from(device.mtu) + 14);
        let pool = inboxes::own_pool(eal, seat.worker)?;
        // What peers send has to fit into an mbuf, too: it may have to be forwarded.
        let packet_max = frame_max.min(pool.frame_bytes_max()).saturating_sub(14) as u16;
        let capabilities = Capabilities {
            mtu: device.mtu.min(packet_max),
            mac: device.mac,
            tx_ip_checksum: false,
            tx_l4_checksum: true,
            tso,
            tso_max_bytes: if tso { frame_max as u32 } else { 0 },
            rx_l4_checksum: true,
        };
        Ok(Self {
            queues,
            owned: Vec::new(),
            next_queue: 0,
            // A predecessor in this seat may have filled in frames that it did not send: they go first.
            sender: Sender { next: ring.tx_resume(), ring, socket: sender, waiting: true },
            unsent: 0,
            buffers: Vec::with_capacity(BUFFERS_KEPT),
            pool,
            // SAFETY: the caller vouches for the same.
            inboxes: unsafe { Inboxes::attach(eal, seat)? },
            idle: Idle::default(),
            capabilities,
            report: FlushReport::default(),
            wait_fds: Vec::new(),
            counters: IoCounters::default(),
        })
    }

    /// Frees the slots that a killed owner of the owned queues held, and says how many. To be called once
    /// after [`PacketIo::set_owned_queues`] when the owner before was killed, and only then: a living one
    /// may still be reading its last frames.
    pub fn release_stale(&mut self) -> u32 {
        self.owned.iter().map(|&at| self.queues[at].ring.release_stale()).sum()
    }

    fn receive_from(queue: &Queue, frames: &mut Vec<AfPacketFrame>, max: usize, counters: &mut IoCounters) {
        let ring = &queue.ring;
        let (begin, first) = (ring.position(), frames.len());
        let mut slot = begin;
        // Each pass of the loop takes one slot, so a flood of bad frames does not hold it for ever.
        for _ in 0..2 * BURST {
            if frames.len() - first == max {
                break;
            }
            let Some(arrived) = ring.look(slot) else { break };
            if arrived.is_whole && !arrived.is_tagged {
                counters.rx_frames += 1;
                counters.rx_bytes += arrived.len as u64;
                frames.push(AfPacketFrame(Kind::Slot(Slot::new(Arc::clone(ring), slot, &arrived))));
            } else {
                counters.rx_vlan += u64::from(arrived.is_tagged);
                counters.rx_truncated += u64::from(!arrived.is_tagged);
                ring.release(slot);
            }
            slot = ring.next(slot);
        }
        if slot != begin {
            ring.set_position(slot);
        }
    }

    fn buffer(&mut self) -> Buffer {
        let one = u32::from(self.capabilities.mtu) + u32::from(FRAME_ROOM_BYTES);
        let bytes = self.capabilities.tso_max_bytes.max(one) as usize;
        self.buffers.pop().unwrap_or_else(|| Buffer::new(bytes))
    }

    /// Keeps a buffer for the next frame.
    fn keep(&mut self, buffer: Buffer) {
        if self.buffers.len() < BUFFERS_KEPT {
            self.buffers.push(buffer);
        }
    }

    /// Forwards a frame that lies on the heap, which no other process can see: as a copy in an mbuf.
    fn forward_buffer(&mut self, to: WorkerRef, buffer: Buffer) -> Result<(), AfPacketFrame> {
        let sent = match copy(self.pool, buffer.bytes()) {
            Some(mbuf) => self.inboxes.forward(to, mbuf.0, &mut self.counters).is_ok(),
            None => {
                self.counters.no_memory += 1;
                false
            }
        };
        if !sent {
            return Err(AfPacketFrame(Kind::Buffer(buffer)));
        }
        self.keep(buffer);
        Ok(())
    }

    /// Copies a received frame into mbufs of the own pool: one, or one for each merged segment.
    fn copies(&mut self, frame: &Slot) -> Option<Vec<MbufFrame>> {
        let pool = self.pool;
        let mut copies = Vec::new();
        match frame.merged() {
            None => copies.push(copy(pool, frame.bytes())?),
            Some(merged) => {
                let mut whole = self.buffer();
                whole.set_len(frame.bytes().len());
                whole.bytes_mut().copy_from_slice(frame.bytes());
                let mut complete = true;
                let segments = whole.bytes().len().div_ceil(usize::from(merged.tso_mss.unwrap_or(1)).max(1));
                let mut source = AfPacketFrame(Kind::Buffer(whole));
                source.request_tx_offload(merged);
                let mut pieces = Vec::with_capacity(segments);
                offload::finish(
                    source,
                    merged,
                    || Some(AfPacketFrame(Kind::Mbuf(MbufFrame(pool.alloc()?)))),
                    |piece| pieces.push(piece),
                );
                for piece in pieces {
                    match piece.0 {
                        Kind::Mbuf(mbuf) => copies.push(mbuf),
                        // It was not one of several after all.
                        Kind::Buffer(buffer) => match copy(pool, buffer.bytes()) {
                            Some(mbuf) => copies.push(mbuf),
                            None => complete = false,
                        },
                        Kind::Slot(_) => complete = false,
                    }
                }
                let headers = usize::from(merged.l2_len + merged.l3_len + merged.l4_len);
                let payload: usize = copies.iter().map(|mbuf| mbuf.bytes().len() - headers).sum();
                if !complete || payload != frame.bytes().len() - headers {
                    return None;
                }
            }
        }
        if frame.l4_is_good() {
            copies.iter_mut().for_each(|copy| copy.0.set_checksums_good());
        }
        Some(copies)
    }
}

/// `bytes` in an mbuf; `None` when the pool is empty or they do not fit.
fn copy(pool: Mempool, bytes: &[u8]) -> Option<MbufFrame> {
    let mut mbuf = MbufFrame(pool.alloc()?);
    if bytes.len() > mbuf.capacity() {
        return None;
    }
    mbuf.set_len(bytes.len());
    mbuf.bytes_mut().copy_from_slice(bytes);
    Some(mbuf)
}

impl PacketIo for AfPacketIo {
    type Frame = AfPacketFrame;

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive(&mut self, burst: &mut Vec<AfPacketFrame>) -> usize {
        let (queues, before) = (self.owned.len(), burst.len());
        for at in 0..queues {
            let room = BURST - (burst.len() - before);
            if room == 0 {
                break;
            }
            let queue = &self.queues[self.owned[(self.next_queue + at) % queues]];
            Self::receive_from(queue, burst, room, &mut self.counters);
        }
        self.next_queue = self.next_queue.wrapping_add(1);
        let received = burst.len() - before;
        if received == 0 {
            self.idle.pass();
        }
        received
    }

    fn receive_forwarded(&mut self, burst: &mut Vec<AfPacketFrame>) -> usize {
        let wrap = |mbuf| AfPacketFrame(Kind::Mbuf(MbufFrame(mbuf)));
        self.inboxes.receive(burst, wrap, &mut self.counters)
    }

    fn alloc(&mut self) -> Option<AfPacketFrame> {
        let mut buffer = self.buffer();
        buffer.clear();
        Some(AfPacketFrame(Kind::Buffer(buffer)))
    }

    fn transmit(&mut self, frame: AfPacketFrame) {
        let sender = &mut self.sender;
        if !sender.ring.is_free(sender.next) {
            sender.kick();
        }
        let bytes = frame.bytes();
        if !sender.ring.is_free(sender.next) || bytes.len() > sender.ring.tx_frame_bytes_max() {
            self.report.dropped += 1;
            self.counters.tx_dropped += 1;
        } else {
            let vnet_header = vnet::encode(bytes.len(), frame.tx_offload());
            // SAFETY: the slot is free and the frame fits (both just checked); this is the ring's only
            // sender (see `attach`).
            unsafe { sender.ring.fill(sender.next, vnet_header, bytes) };
            sender.next = sender.ring.next(sender.next);
            sender.waiting = true;
            self.unsent += 1;
            self.report.sent += 1;
            self.counters.tx_frames += 1;
            self.counters.tx_bytes += bytes.len() as u64;
        }
        if let Kind::Buffer(buffer) = frame.0 {
            self.keep(buffer);
        }
        if self.unsent >= BURST {
            self.sender.kick();
            self.unsent = 0;
        }
    }

    fn flush(&mut self) -> FlushReport {
        self.sender.kick();
        self.unsent = 0;
        std::mem::take(&mut self.report)
    }

    fn forward(&mut self, to: WorkerRef, frame: AfPacketFrame) -> Result<(), AfPacketFrame> {
        let slot = match frame.0 {
            Kind::Slot(slot) => slot,
            // It came out of an inbox, and goes on as it is.
            Kind::Mbuf(mbuf) => {
                let result = self.inboxes.forward(to, mbuf.0, &mut self.counters);
                return result.map_err(|mbuf| AfPacketFrame(Kind::Mbuf(MbufFrame(mbuf))));
            }
            // The stack's own: a record, or a part of a packet that was put together.
            Kind::Buffer(buffer) => return self.forward_buffer(to, buffer),
        };
        let Some(copies) = self.copies(&slot) else {
            self.counters.no_memory += 1;
            return Err(AfPacketFrame(Kind::Slot(slot)));
        };
        for (sent, copy) in copies.into_iter().enumerate() {
            // A sender repeats what is lost of a merged frame once its beginning has gone.
            if self.inboxes.forward(to, copy.0, &mut self.counters).is_err() {
                return if sent == 0 { Err(AfPacketFrame(Kind::Slot(slot))) } else { Ok(()) };
            }
        }
        Ok(())
    }

    fn set_owned_queues(&mut self, queues: &[u16]) {
        let is_owned = |&at: &usize| queues.contains(&self.queues[at].number);
        self.owned = (0..self.queues.len()).filter(is_owned).collect();
        self.wait_fds = self.owned.iter().map(|&at| self.queues[at].socket.as_raw_fd()).collect();
    }

    fn wait_fds(&self) -> &[RawFd] {
        &self.wait_fds
    }

    fn counters(&self) -> IoCounters {
        self.counters
    }
}
