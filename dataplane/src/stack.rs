//! One worker's stack: what it is made of, and its pass.

use std::net::IpAddr;
use std::os::fd::RawFd;

use ff_flowmap::FlowIndex;
use ff_tcp::{EngineConfig, Instant, Secrets};

use crate::io::{PacketIo, WorkerRef};

/// How a worker's stack is set up. Constant for its life.
#[derive(Clone, Debug)]
pub struct StackConfig {
    /// MAC address of the port.
    pub mac: [u8; 6],
    /// Largest IP packet in bytes, 576 to 9 216; the smaller of this and the device's counts.
    pub mtu: u16,
    /// Addresses of the port with their prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Next hop of IPv4 destinations that are not on the link.
    pub gateway4: Option<std::net::Ipv4Addr>,
    /// Next hop of IPv6 destinations that are not on the link.
    pub gateway6: Option<std::net::Ipv6Addr>,
    /// Which worker of which slot this is.
    pub worker: WorkerRef,
    /// Generation slots of the instance, 1 to 8: ephemeral ports are divided among them.
    pub slot_count: u16,
    /// TCP.
    pub engine: EngineConfig,
    /// Keys of TCP's keyed numbers, the same in all generations.
    pub secrets: Secrets,
    /// Sockets that the worker may have, listeners and datagram sockets included.
    pub sockets_max: usize,
}

/// What a pass did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PassReport {
    /// Frames received.
    pub rx: usize,
    /// Frames sent.
    pub tx: usize,
    /// [`Stack::next_event`] has something.
    pub events: bool,
    /// There is more to do at once: do not sleep.
    pub more: bool,
}

/// The TCP/IP stack of one worker over one packet I/O.
///
/// Order of calls: [`pass`](Self::pass), then [`next_event`](Self::next_event) until it gives none, then any
/// socket calls, and again. Time never goes back.
pub struct Stack<P: PacketIo, I: FlowIndex> {
    pub(crate) config: StackConfig,
    pub(crate) io: P,
    index: std::marker::PhantomData<I>,
}

impl<P: PacketIo, I: FlowIndex> Stack<P, I> {
    /// A stack over `io`. `index` is the worker's flow table, `shared` what it shares with other processes.
    pub fn new(config: StackConfig, io: P, index: I, shared: Shared) -> Self {
        let _ = (index, shared);
        Self { config, io, index: std::marker::PhantomData }
    }

    /// One pass: takes what the device has (at most a burst from queues and one from inboxes), serves the
    /// timers that are due, sends what is ready (bounded), and writes the worker's words.
    pub fn pass(&mut self, now: Instant) -> PassReport {
        let _ = now;
        unimplemented!()
    }

    /// When the next pass is due although nothing arrives.
    pub fn next_deadline(&self) -> Option<Instant> {
        unimplemented!()
    }

    /// Poll these for readability before sleeping. Empty: poll by time.
    pub fn wait_fds(&self) -> &[RawFd] {
        self.io.wait_fds()
    }

    /// The packet I/O beneath.
    pub fn io(&self) -> &P {
        &self.io
    }

    /// The packet I/O beneath, to be configured.
    pub fn io_mut(&mut self) -> &mut P {
        &mut self.io
    }
}

/// What a stack shares with other processes of its instance. `Shared::default()` is a stack on its own.
#[derive(Default)]
pub struct Shared {}
