//! Tables in shared memory: region header, TCP flows, UDP publish table,
//! neighbours, and the choice of ephemeral ports. Pure code over bytes: no I/O,
//! no clock; the caller maps the memory and tells the time.
//!
//! | part | one writer | readers | after a kill |
//! |---|---|---|---|
//! | [`header`] | its creator | everybody | "not finished" |
//! | [`TcpTableWriter`], [`UdpTableWriter`] | the worker | every process, no lock | next writer resets, or the primary reclaims |
//! | [`NeighbourWriter`] | every worker, a lock word for each bucket | every process, no lock | who has seen it die takes its lock back |
//!
//! Times are microseconds of CLOCK_MONOTONIC. `unsafe` is in [`memory`] alone.

pub mod header;
pub(crate) mod key;
pub mod memory;
mod neighbours;
mod owner;
mod ports;
pub mod sync;
mod table;
mod tcp_table;
mod udp_table;

pub use key::{FLOW_KEY_BYTES, FlowIndex, FlowKey, FlowRef, HashKey, HeapIndex, TableFull};
pub use memory::{HeapMemory, LINE_BYTES, Line, Region, RegionError};
pub use neighbours::{
    Learned, NEIGHBOUR_LAYOUT, NEIGHBOURS_DEFAULT, NEIGHBOURS_MAX, Neighbour, NeighbourState,
    NeighbourWriter, Neighbours, PROBE_INTERVAL_US, PROBES_MAX, REACHABLE_US, Resolution,
    UNREACHABLE_HOLD_US, format_neighbours, neighbours_bytes,
};
pub use owner::Owner;
pub use ports::{EPHEMERAL_PORTS, EphemeralPorts, PortShare};
pub use table::{CAPACITY_MAX, TABLE_LAYOUT, TableOpenError};
pub use tcp_table::{TcpTableReader, TcpTableWriter, format_tcp_table, tcp_table_bytes};
pub use udp_table::{
    Publication, UDP_FLOWS_DEFAULT, UdpFlow, UdpTableReader, UdpTableWriter, format_udp_table,
    udp_table_bytes,
};
