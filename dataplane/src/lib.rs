//! One worker of the data plane: the pass, the dispatcher, IP, UDP, sockets and packet I/O.

pub mod io;
pub mod ip;
pub mod sockets;
mod stack;

pub use stack::{PassReport, Shared, Stack, StackConfig};
