//! The sockets of a worker, as a POSIX program knows them.
//!
//! The calls are methods of [`Stack`](crate::Stack); this module has their vocabulary. All calls are
//! non-blocking: the shim turns a blocking descriptor into passes of the stack. Errors are what Linux would
//! say, see [`SockError::errno`].

pub(crate) mod bind;
mod calls;
mod datagram;
mod error;
mod option_calls;
mod options;
mod stream;
pub(crate) mod table;

use std::net::{IpAddr, SocketAddr};

pub use error::SockError;
pub use ff_tcp::Readiness;
pub use options::{SockOpt, SockOptName, SockOptValue};
pub(crate) use stream::SharedListener;

/// Address family of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Domain {
    /// AF_INET.
    Ipv4,
    /// AF_INET6; dual-stack unless IPV6_V6ONLY is set.
    Ipv6,
}

impl Domain {
    /// Any address, port 0.
    pub(crate) fn unspecified(self) -> SocketAddr {
        match self {
            Self::Ipv4 => SocketAddr::from(([0; 4], 0)),
            Self::Ipv6 => SocketAddr::from(([0u16; 8], 0)),
        }
    }
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

/// An address without the v4-mapped form, and without scope: what the stack works with.
pub(crate) fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

/// An address as a socket of the family shows it: IPv4 is v4-mapped on an IPv6 socket.
pub(crate) fn present(domain: Domain, addr: SocketAddr) -> SocketAddr {
    match (domain, addr.ip()) {
        (Domain::Ipv6, IpAddr::V4(v4)) => SocketAddr::new(v4.to_ipv6_mapped().into(), addr.port()),
        _ => addr,
    }
}
