//! The sockets of a worker, as a POSIX program knows them.
//!
//! The calls are methods of [`Stack`](crate::Stack); this module has their vocabulary. All calls are
//! non-blocking: the shim turns a blocking descriptor into passes of the stack. Errors are what Linux would
//! say, see [`SockError::errno`].

mod calls;
mod error;
mod options;

use std::net::{IpAddr, SocketAddr};

pub use error::SockError;
pub use ff_tcp::Readiness;
pub use options::{SockOpt, SockOptName, SockOptValue};

/// Address family of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Domain {
    /// AF_INET.
    Ipv4,
    /// AF_INET6; dual-stack unless IPV6_V6ONLY is set.
    Ipv6,
}

/// Kind of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// SOCK_STREAM: TCP.
    Stream,
    /// SOCK_DGRAM: UDP.
    Datagram,
}

/// Which direction `shutdown` ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Shutdown {
    /// SHUT_RD.
    Read,
    /// SHUT_WR.
    Write,
    /// SHUT_RDWR.
    Both,
}

/// Names a socket of one stack. An id is never used again for another socket: a call with the id of a
/// closed socket fails with [`SockError::BadSocket`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct SocketId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl SocketId {
    /// The id as one word, for tables that keep words.
    pub fn to_u64(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The inverse of [`to_u64`](Self::to_u64).
    pub fn from_u64(word: u64) -> Self {
        Self { index: word as u32, generation: (word >> 32) as u32 }
    }
}

/// Something became possible on a socket that was not before: what edge-triggered epoll reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketEvent {
    /// The socket.
    pub socket: SocketId,
    /// What newly happened: data arrived (also when there was data already), room was freed, FIN, error.
    pub edges: Readiness,
    /// What `set_user` stored, 0 if it was not called.
    pub user: u64,
}

/// A received datagram's circumstances.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Bytes written to the caller's buffer.
    pub len: usize,
    /// Bytes the datagram had; more than `len` when the buffer was too small (MSG_TRUNC).
    pub full_len: usize,
    /// Who sent it. On a dual-stack IPv6 socket an IPv4 sender is v4-mapped.
    pub from: SocketAddr,
    /// To which of our addresses it was sent (IP_PKTINFO, IPV6_PKTINFO). v4-mapped like `from`.
    pub to: IpAddr,
}
