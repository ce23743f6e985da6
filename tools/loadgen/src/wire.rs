//! The client's end of the in-memory wire: all queues of it as one packet I/O.
//!
//! A queue of the wire leads to one worker of the server. As a NIC with RSS would, the client's end spreads flows over
//! the queues by a hash of their addresses and ports, so that a flow stays with its worker; what belongs to no flow and
//! every worker may wait for (ARP, NDP) goes to all of them.

use std::os::fd::RawFd;

use ff_dataplane::io::ring::WireClientIo;
use ff_dataplane::io::{Capabilities, FlushReport, Frame, IoCounters, PacketIo, WorkerRef};

/// Where a frame goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// To the queue with this number modulo their count.
    Flow(u32),
    /// To every queue.
    All,
}

const ETHERNET_BYTES: usize = 14;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

/// Where a frame of ours goes. Frames of our own stack have no VLAN tag and no IPv6 extension headers; anything that
/// is not understood goes to all.
pub fn route(frame: &[u8]) -> Route {
    let Some((ethernet, packet)) = frame.split_at_checked(ETHERNET_BYTES) else { return Route::All };
    let flow = match [ethernet[12], ethernet[13]] {
        ETHERTYPE_IPV4 => ipv4(packet),
        ETHERTYPE_IPV6 => ipv6(packet),
        _ => None,
    };
    flow.map_or(Route::All, Route::Flow)
}

fn ipv4(packet: &[u8]) -> Option<u32> {
    let protocol = *packet.get(9)?;
    let addresses = packet.get(12..20)?;
    let header_bytes = usize::from(packet[0] & 0x0f) * 4;
    // A fragment does not say its ports, so all of them go by their addresses.
    let is_fragment = packet[6] & 0x3f != 0 || packet[7] != 0;
    let ports = if is_fragment { None } else { ports(protocol, packet.get(header_bytes..)?) };
    Some(hash(addresses, ports.unwrap_or_default()))
}

fn ipv6(packet: &[u8]) -> Option<u32> {
    let protocol = *packet.get(6)?;
    let addresses = packet.get(8..40)?;
    let payload = packet.get(40..)?;
    // RFC 4861: 133 to 137.
    if protocol == ICMPV6 && payload.first().is_some_and(|kind| (133..=137).contains(kind)) {
        return None;
    }
    Some(hash(addresses, ports(protocol, payload).unwrap_or_default()))
}

fn ports(protocol: u8, payload: &[u8]) -> Option<[u8; 4]> {
    if protocol != TCP && protocol != UDP { None } else { payload.first_chunk::<4>().copied() }
}

/// Multiplications that mix well enough for few queues. No key: the client chooses its ports itself.
fn hash(addresses: &[u8], ports: [u8; 4]) -> u32 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut state = u64::from(u32::from_ne_bytes(ports));
    for word in addresses.as_chunks::<8>().0 {
        state = (state ^ u64::from_ne_bytes(*word)).wrapping_mul(ODD);
        state ^= state >> 32;
    }
    (state.wrapping_mul(ODD) >> 32) as u32
}

/// All queues of a wire's client end as one device. One of a single queue is the same and costs nothing more.
pub struct Queues<P: PacketIo = WireClientIo> {
    queues: Vec<P>,
    /// The queue that is asked first at the next receive, so that none starves another.
    next: usize,
}

impl<P: PacketIo> Queues<P> {
    /// Joins these queues; `None` if there are none.
    pub fn new(queues: Vec<P>) -> Option<Self> {
        if queues.is_empty() { None } else { Some(Self { queues, next: 0 }) }
    }

    fn transmit_to_all(&mut self, frame: P::Frame) {
        let len = frame.bytes().len();
        for queue in &mut self.queues[1..] {
            // No memory is counted by the queue; the frame is repeated by its protocol.
            let Some(mut copy) = queue.alloc() else { continue };
            copy.set_len(len);
            copy.bytes_mut().copy_from_slice(frame.bytes());
            queue.transmit(copy);
        }
        self.queues[0].transmit(frame);
    }
}

impl<P: PacketIo> PacketIo for Queues<P> {
    type Frame = P::Frame;

    fn capabilities(&self) -> Capabilities {
        self.queues[0].capabilities()
    }

    fn receive(&mut self, burst: &mut Vec<P::Frame>) -> usize {
        // One queue's burst a call: the sum of all could be more than a burst.
        let count = self.queues.len();
        for nth in 0..count {
            let at = (self.next + nth) % count;
            let received = self.queues[at].receive(burst);
            if received > 0 {
                self.next = (at + 1) % count;
                return received;
            }
        }
        0
    }

    fn receive_forwarded(&mut self, _burst: &mut Vec<P::Frame>) -> usize {
        0
    }

    fn alloc(&mut self) -> Option<P::Frame> {
        self.queues[0].alloc()
    }

    fn transmit(&mut self, frame: P::Frame) {
        if self.queues.len() == 1 {
            return self.queues[0].transmit(frame);
        }
        match route(frame.bytes()) {
            Route::Flow(hash) => {
                let at = hash as usize % self.queues.len();
                self.queues[at].transmit(frame);
            }
            Route::All => self.transmit_to_all(frame),
        }
    }

    fn flush(&mut self) -> FlushReport {
        let mut total = FlushReport::default();
        for queue in &mut self.queues {
            let report = queue.flush();
            total.sent += report.sent;
            total.dropped += report.dropped;
        }
        total
    }

    /// A client has no siblings: gives the frame back.
    fn forward(&mut self, to: WorkerRef, frame: P::Frame) -> Result<(), P::Frame> {
        self.queues[0].forward(to, frame)
    }

    /// A client has all queues, always.
    fn set_owned_queues(&mut self, _queues: &[u16]) {}

    fn wait_fds(&self) -> &[RawFd] {
        &[]
    }

    fn counters(&self) -> IoCounters {
        let mut total = IoCounters::default();
        for counters in self.queues.iter().map(PacketIo::counters) {
            total.rx_frames += counters.rx_frames;
            total.rx_bytes += counters.rx_bytes;
            total.tx_frames += counters.tx_frames;
            total.tx_bytes += counters.tx_bytes;
            total.tx_dropped += counters.tx_dropped;
            total.rx_truncated += counters.rx_truncated;
            total.no_memory += counters.no_memory;
        }
        total
    }
}

#[cfg(test)]
mod tests;
