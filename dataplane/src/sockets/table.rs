//! The sockets that exist, by id.

use std::net::SocketAddr;

use ff_tcp::{ConnId, SocketOptions};

use super::{Domain, Kind, Readiness, SockError, SocketId};
use crate::moving::FirstBytes;
use crate::udp::UdpState;

/// A socket.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) domain: Domain,
    /// The word that its events carry.
    pub(crate) user: u64,
    /// What happened and was not yet reported. Not empty exactly while the socket is in the event queue.
    pub(crate) edges: Readiness,
    pub(crate) flags: Flags,
    /// As `bind` was given it, canonical (never v4-mapped). The port is 0 only with IP_BIND_ADDRESS_NO_PORT.
    pub(crate) bound: Option<SocketAddr>,
    pub(crate) body: Body,
}

/// What a socket is beneath.
#[derive(Debug)]
pub(crate) enum Body {
    /// TCP, neither listening nor connecting.
    TcpIdle(Box<TcpSettings>),
    /// TCP, listening; the place of its listener.
    TcpListening { listener: u32, settings: Box<TcpSettings> },
    /// TCP with a connection, whatever has become of it.
    TcpConn { conn: ConnId },
    /// UDP.
    Udp(Box<UdpSocket>),
}

/// TCP options of a socket without a connection: the connection will have them.
#[derive(Clone, Debug, Default)]
pub(crate) struct TcpSettings {
    pub(crate) options: SocketOptions,
    /// TCP_DEFER_ACCEPT, seconds.
    pub(crate) defer_accept_s: u32,
    /// As `listen` was given it.
    pub(crate) backlog: i32,
    /// A failed `connect` that SO_ERROR has not told yet.
    pub(crate) error: Option<SockError>,
}

/// UDP with its options.
#[derive(Debug)]
pub(crate) struct UdpSocket {
    pub(crate) state: UdpState,
    /// SO_RCVBUF as kept, which is twice what was asked for.
    pub(crate) rcvbuf_bytes: u32,
    /// SO_SNDBUF as kept.
    pub(crate) sndbuf_bytes: u32,
    pub(crate) pktinfo: bool,
    pub(crate) recv_pktinfo6: bool,
}

/// Options that are one bit or byte, of both kinds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags {
    pub(crate) reuse_addr: bool,
    pub(crate) reuse_port: bool,
    pub(crate) v6_only: bool,
    pub(crate) broadcast: bool,
    pub(crate) bind_address_no_port: bool,
    /// TCP_QUICKACK was set to 0; Linux shows 1 until then.
    pub(crate) quickack_off: bool,
    pub(crate) tos: u8,
    /// 0 is the default.
    pub(crate) ttl: u8,
    /// The connection came by `accept`.
    pub(crate) accepted: bool,
    /// Bytes that had been sent on it before: in another process, if it came from there.
    pub(crate) sent_before: u64,
    /// What was read of it first.
    pub(crate) first_bytes: FirstBytes,
}

impl Socket {
    pub(crate) fn kind(&self) -> Kind {
        match self.body {
            Body::Udp(_) => Kind::Datagram,
            Body::TcpIdle(_) | Body::TcpListening { .. } | Body::TcpConn { .. } => Kind::Stream,
        }
    }
}

/// The sockets of a worker.
#[derive(Debug, Default)]
pub(crate) struct SocketTable {
    slots: Vec<Slot>,
    free: Vec<u32>,
    max: usize,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    socket: Option<Socket>,
}

impl SocketTable {
    /// A table of at most `max` sockets.
    pub(crate) fn new(max: usize) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), max: max.min(u32::MAX as usize) }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.slots.len() - self.free.len() < self.max
    }

    pub(crate) fn insert(&mut self, socket: Socket) -> Result<SocketId, SockError> {
        if !self.has_room() {
            return Err(SockError::TooManySockets);
        }
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.socket = Some(socket);
            return Ok(SocketId { index, generation: slot.generation });
        }
        let index = self.slots.len() as u32;
        self.slots.push(Slot { generation: 0, socket: Some(socket) });
        Ok(SocketId { index, generation: 0 })
    }

    pub(crate) fn remove(&mut self, id: SocketId) -> Result<Socket, SockError> {
        let slot = self.slots.get_mut(id.index as usize).ok_or(SockError::BadSocket)?;
        if slot.generation != id.generation {
            return Err(SockError::BadSocket);
        }
        let socket = slot.socket.take().ok_or(SockError::BadSocket)?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index);
        Ok(socket)
    }

    pub(crate) fn get(&self, id: SocketId) -> Result<&Socket, SockError> {
        let slot = self.slots.get(id.index as usize).ok_or(SockError::BadSocket)?;
        slot.socket.as_ref().filter(|_| slot.generation == id.generation).ok_or(SockError::BadSocket)
    }

    pub(crate) fn get_mut(&mut self, id: SocketId) -> Result<&mut Socket, SockError> {
        let slot = self.slots.get_mut(id.index as usize).ok_or(SockError::BadSocket)?;
        let fits = slot.generation == id.generation;
        slot.socket.as_mut().filter(|_| fits).ok_or(SockError::BadSocket)
    }

    /// Sockets that exist.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
