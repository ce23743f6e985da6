//! One worker of the data plane: the pass, the dispatcher, IP, UDP, sockets and packet I/O.
//!
//! [`Stack`] is a worker: TCP (from `ff-tcp`), UDP, ICMP, IPv4 and IPv6 with ARP and NDP over any
//! [`io::PacketIo`]. It reads no clock, opens no file and waits for nobody: time comes in with each pass.

pub mod dispatch;
mod egress;
mod input;
pub mod io;
pub mod ip;
mod moving;
mod orders;
mod pass;
mod report;
mod shared;
pub mod sockets;
mod stack;
mod udp;

pub use orders::Orders;
pub use shared::Shared;
pub use stack::{PassReport, Stack, StackConfig};
