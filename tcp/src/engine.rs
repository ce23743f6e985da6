//! The engine: all connections of one worker.

use std::net::SocketAddr;

use ff_flowmap::{FlowIndex, FlowKey, FlowRef};

use crate::config::{EngineConfig, Secrets};
use crate::error::*;
use crate::info::{ConnSummary, Counters, TcpInfo};
use crate::socket::*;
use crate::time::Instant;

/// All TCP connections and listeners of one worker.
pub struct Engine<I: FlowIndex> {
    index: I,
    counters: Counters,
}

macro_rules! engine_api { ($($(#[$doc:meta])* fn $name:ident $args:tt $(-> $ret:ty)?;)*) => { $($(#[$doc])* #[allow(unused_variables)] pub fn $name $args $(-> $ret)? { unimplemented!("the engine is being written") })* } }

impl<I: FlowIndex> Engine<I> {
    engine_api! {
        /// An empty engine over `index`.
        fn new(config: EngineConfig, secrets: Secrets, index: I) -> Self;
        /// Takes a segment: `tcp` is header and payload, checksum verified.
        fn on_segment(&mut self, now: Instant, meta: SegmentMeta, tcp: &[u8], flow: Option<FlowRef>);
        /// Takes an ICMP error about the flow `key`; `seq` is the sequence number in the quoted header.
        fn on_icmp_error(&mut self, now: Instant, key: &FlowKey, error: IcmpError, seq: Option<u32>);
        /// Writes the next segment into `buf`, or says that there is none.
        fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit>;
        /// When `on_deadline` must be called next.
        fn next_deadline(&self) -> Option<Instant>;
        /// Runs the timers that are due.
        fn on_deadline(&mut self, now: Instant);
        /// The next event.
        fn poll_event(&mut self) -> Option<Event>;
        /// Opens a listener.
        fn listen(&mut self, addr: ListenAddr, opts: ListenOptions) -> Result<ListenerId, ListenError>;
        /// Closes a listener; half-open and unaccepted connections are reset.
        fn close_listener(&mut self, id: ListenerId);
        /// Changes the backlog.
        fn set_backlog(&mut self, id: ListenerId, backlog: u32);
        /// Takes the oldest established connection.
        fn accept(&mut self, id: ListenerId) -> Option<ConnId>;
        /// Connections that wait for accept.
        fn accept_queue_len(&self, id: ListenerId) -> usize;
        /// Whether accept would give a connection.
        fn listener_readiness(&self, id: ListenerId) -> Readiness;
        /// Sets the word that the listener's events carry.
        fn set_listener_token(&mut self, id: ListenerId, token: u64);
        /// Begins an active open.
        fn connect(&mut self, now: Instant, local: SocketAddr, remote: SocketAddr) -> Result<ConnId, ConnectError>;
        /// Reads; 0 is the end of the stream.
        fn read(&mut self, id: ConnId, buf: &mut [u8]) -> Result<usize, ReadError>;
        /// Reads without taking.
        fn peek(&mut self, id: ConnId, buf: &mut [u8]) -> Result<usize, ReadError>;
        /// Copies what fits into the send buffer.
        fn write(&mut self, now: Instant, id: ConnId, data: &[u8]) -> Result<usize, WriteError>;
        /// Bytes that can be read.
        fn readable_bytes(&self, id: ConnId) -> usize;
        /// Bytes that a write would take.
        fn writable_bytes(&self, id: ConnId) -> usize;
        /// Bytes written and not yet acknowledged (SIOCOUTQ).
        fn unsent_bytes(&self, id: ConnId) -> usize;
        /// Ends our direction with FIN after what is written.
        fn shutdown_write(&mut self, now: Instant, id: ConnId);
        /// Ends reading.
        fn shutdown_read(&mut self, id: ConnId);
        /// Closes; lingers in the background.
        fn close(&mut self, now: Instant, id: ConnId);
        /// Closes with RST.
        fn abort(&mut self, now: Instant, id: ConnId);
        /// What is ready now.
        fn readiness(&self, id: ConnId) -> Readiness;
        /// Sets the word that the connection's events carry.
        fn set_token(&mut self, id: ConnId, token: u64);
        /// Takes the pending error (SO_ERROR).
        fn take_error(&mut self, id: ConnId) -> Option<ConnError>;
        /// The connection's options.
        fn options(&self, id: ConnId) -> Option<SocketOptions>;
        /// Changes the connection's options.
        fn set_options(&mut self, id: ConnId, options: SocketOptions);
        /// Our end.
        fn local_addr(&self, id: ConnId) -> Option<SocketAddr>;
        /// The peer's end.
        fn remote_addr(&self, id: ConnId) -> Option<SocketAddr>;
        /// TCP_INFO.
        fn info(&self, id: ConnId) -> Option<TcpInfo>;
        /// A line about each connection.
        fn connections(&self) -> Vec<ConnSummary>;
        /// Connections of the engine, orphans included, without TIME-WAIT and half-open ones.
        fn conn_count(&self) -> usize;
        /// Half-open handshakes.
        fn request_count(&self) -> usize;
        /// TIME-WAIT entries.
        fn time_wait_count(&self) -> usize;
        /// Bytes that buffers hold now.
        fn memory_bytes(&self) -> u64;
    }

    /// The demultiplexing table.
    pub fn index(&self) -> &I {
        &self.index
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}
