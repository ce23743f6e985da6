//! A TCP engine for servers, sans-IO and deterministic.
//!
//! Segments, calls and the time go in; segments, readiness and the next
//! deadline come out. The engine does no I/O, reads no clock and knows no
//! device. One engine serves one thread.
//!
//! Order of use in a loop: `on_segment` for all that came, `on_deadline` when
//! `next_deadline` has come, `poll_event` until `None`, the user's calls, then
//! `poll_transmit` until `None`. Time must not run backwards.
#![forbid(unsafe_code)]

mod buffers;
mod config;
mod congestion;
mod conn;
mod deadlines;
mod engine;
mod error;
mod export;
mod flight;
mod handshakes;
mod header;
mod host;
mod info;
mod input;
mod listen;
mod numbers;
mod output;
mod passive;
mod pmtu;
mod reassembly;
mod recovery;
mod rtt;
mod seq;
mod slab;
mod socket;
mod sockets;
mod sysctl;
#[cfg(test)]
mod tests;
mod time;
mod timers;
mod timewait;
mod trace;

pub use config::{EcnMode, EngineConfig, MtuProbing, Secrets};
pub use congestion::Algorithm;
pub use engine::Engine;
pub use error::{ConnError, ConnectError, ListenError, ReadError, WriteError};
pub use export::{EXPORT_VERSION, ExportError, ImportError};
pub use ff_flowmap::{FlowIndex, FlowKey, FlowRef, HeapIndex, TableFull};
pub use info::{CaState, ConnSummary, Counters, State, TcpInfo};
pub use socket::{
    ConnId, Ecn, Event, IcmpError, Keepalive, ListenAddr, ListenOptions, ListenerId, Readiness, SegmentMeta,
    SocketOptions, SocketRef, Transmit,
};
pub use sysctl::{SYSCTLS, Sysctl, SysctlError};
pub use time::Instant;
pub use trace::{Direction, TraceSink};
