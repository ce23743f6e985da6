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

mod config;
pub mod congestion;
mod engine;
mod error;
mod info;
mod seq;
mod socket;
mod time;
mod trace;

pub use config::{EcnMode, EngineConfig, MtuProbing, Secrets};
pub use engine::Engine;
pub use error::{ConnError, ConnectError, ListenError, ReadError, WriteError};
pub use ff_flowmap::{FlowIndex, FlowKey, FlowRef, HeapIndex, TableFull};
pub use info::{CaState, ConnSummary, Counters, State, TcpInfo};
pub use socket::{
    ConnId, Ecn, Event, IcmpError, Keepalive, ListenAddr, ListenOptions, ListenerId, Readiness, SegmentMeta,
    SocketOptions, SocketRef, Transmit,
};
pub use time::Instant;
pub use trace::{Direction, TraceSink};
