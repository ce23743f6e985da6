//! The socket calls, and which kind of socket serves them.

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};

use ff_flowmap::FlowIndex;

use super::bind::{Hold, PortMap, Scope};
use super::table::{Body, Flags, Socket, TcpSettings, UdpSocket};
use super::{
    Domain, Kind, Readiness, Received, Shutdown, SockError, SocketEvent, SocketId, canonical, present,
};
use crate::io::PacketIo;
use crate::stack::Stack;
use crate::udp::UdpState;

pub(super) type Result<T> = std::result::Result<T, SockError>;

/// SO_RCVBUF and SO_SNDBUF of a UDP socket that set nothing (Linux: `rmem_default`).
const UDP_BUFFER_BYTES: u32 = 212_992;

impl<P: PacketIo, I: FlowIndex> Stack<P, I> {
    /// A new socket.
    ///
    /// # Errors
    /// [`SockError::TooManySockets`].
    pub fn socket(&mut self, domain: Domain, kind: Kind) -> Result<SocketId> {
        let body = match kind {
            Kind::Stream => Body::TcpIdle(Box::new(TcpSettings {
                options: self.config.engine.socket,
                ..TcpSettings::default()
            })),
            Kind::Datagram => Body::Udp(Box::new(UdpSocket {
                state: UdpState::default(),
                rcvbuf_bytes: UDP_BUFFER_BYTES,
                sndbuf_bytes: UDP_BUFFER_BYTES,
                pktinfo: false,
                recv_pktinfo6: false,
            })),
        };
        self.sockets.insert(Socket {
            domain,
            user: 0,
            edges: Readiness::NONE,
            flags: Flags::default(),
            bound: None,
            body,
        })
    }

    /// Binds to a local address; port 0 chooses one.
    ///
    /// # Errors
    /// [`SockError::Invalid`] when it is bound already, [`SockError::FamilyNotSupported`],
    /// [`SockError::AddressNotAvailable`], [`SockError::AddressInUse`], [`SockError::NoPorts`].
    pub fn bind(&mut self, s: SocketId, addr: SocketAddr) -> Result<()> {
        let socket = self.sockets.get(s)?;
        if socket.bound.is_some() || matches!(socket.body, Body::TcpConn { .. }) {
            return Err(SockError::Invalid);
        }
        match (socket.domain, addr) {
            (Domain::Ipv4, SocketAddr::V6(_)) => return Err(SockError::FamilyNotSupported),
            (Domain::Ipv6, SocketAddr::V4(_)) => return Err(SockError::Invalid),
            _ => {}
        }
        let addr = canonical(addr);
        if socket.domain == Domain::Ipv6 && socket.flags.v6_only && addr.is_ipv4() {
            return Err(SockError::Invalid);
        }
        if !addr.ip().is_unspecified() && !self.ip.addresses.is_own(addr.ip()) {
            return Err(SockError::AddressNotAvailable);
        }
        if addr.port() == 0 && socket.flags.bind_address_no_port && socket.kind() == Kind::Stream {
            self.sockets.get_mut(s)?.bound = Some(addr);
            return Ok(());
        }
        self.hold_port(s, addr)
    }

    /// Takes the port of `addr` (0: any free one) for the socket.
    pub(super) fn hold_port(&mut self, s: SocketId, mut addr: SocketAddr) -> Result<()> {
        let kind = self.sockets.get(s)?.kind();
        if addr.port() == 0 {
            let port = self.free_port(s, addr)?;
            addr.set_port(port);
        } else if self.holds(kind).conflicts(addr.port(), &self.hold_of(s, addr)?) {
            return Err(SockError::AddressInUse);
        }
        let hold = self.hold_of(s, addr)?;
        self.holds_mut(kind).set(addr.port(), hold);
        self.sockets.get_mut(s)?.bound = Some(addr);
        if kind == Kind::Datagram {
            self.index_udp(s)?;
        }
        Ok(())
    }

    /// A port that nobody holds, in this worker's share.
    fn free_port(&mut self, s: SocketId, addr: SocketAddr) -> Result<u16> {
        let kind = self.sockets.get(s)?.kind();
        let nobody = SocketAddr::new(addr.ip(), 0);
        let (holds, ports) = match kind {
            Kind::Stream => (&self.tcp_holds, &mut self.tcp_ephemeral),
            Kind::Datagram => (&self.udp_holds, &mut self.udp_ephemeral),
        };
        ports.choose(addr.ip(), nobody, |port| holds.is_held(port)).ok_or(SockError::AddressInUse)
    }

    fn holds(&self, kind: Kind) -> &PortMap {
        match kind {
            Kind::Stream => &self.tcp_holds,
            Kind::Datagram => &self.udp_holds,
        }
    }

    fn holds_mut(&mut self, kind: Kind) -> &mut PortMap {
        match kind {
            Kind::Stream => &mut self.tcp_holds,
            Kind::Datagram => &mut self.udp_holds,
        }
    }

    /// What the socket holds or would hold at `addr`.
    fn hold_of(&self, s: SocketId, addr: SocketAddr) -> Result<Hold> {
        let socket = self.sockets.get(s)?;
        Ok(Hold {
            id: s,
            scope: Scope::new(addr, socket.flags.v6_only),
            reuse_addr: socket.flags.reuse_addr,
            reuse_port: socket.flags.reuse_port,
            listening: matches!(socket.body, Body::TcpListening { .. }),
        })
    }

    /// Stores what has changed of the socket's hold.
    pub(super) fn refresh_hold(&mut self, s: SocketId) -> Result<()> {
        let socket = self.sockets.get(s)?;
        let kind = socket.kind();
        if let Some(addr) = socket.bound.filter(|addr| addr.port() != 0) {
            let hold = self.hold_of(s, addr)?;
            self.holds_mut(kind).set(addr.port(), hold);
        }
        Ok(())
    }

    /// Whether the socket could listen where it is bound.
    pub(super) fn may_listen(&self, s: SocketId, addr: SocketAddr) -> Result<bool> {
        let hold = Hold { listening: true, ..self.hold_of(s, addr)? };
        Ok(!self.tcp_holds.conflicts(addr.port(), &hold))
    }

    /// TCP: begins a handshake, [`SockError::InProgress`] as a rule. UDP: sets the peer.
    ///
    /// # Errors
    /// As `connect(2)`.
    pub fn connect(&mut self, s: SocketId, peer: SocketAddr) -> Result<()> {
        let socket = self.sockets.get(s)?;
        let peer = canonical(peer);
        match (socket.domain, peer) {
            (Domain::Ipv4, SocketAddr::V6(_)) => return Err(SockError::FamilyNotSupported),
            (Domain::Ipv6, SocketAddr::V4(_)) if socket.flags.v6_only => {
                return Err(SockError::NetUnreachable);
            }
            _ => {}
        }
        match socket.kind() {
            Kind::Stream => self.tcp_connect(s, peer),
            Kind::Datagram => self.udp_connect(s, peer),
        }
    }

    /// Reads; 0 is the end of a stream. `peek` leaves the bytes where they are.
    ///
    /// # Errors
    /// As `recv(2)` with MSG_DONTWAIT.
    pub fn recv(&mut self, s: SocketId, buf: &mut [u8], peek: bool) -> Result<usize> {
        match self.sockets.get(s)?.kind() {
            Kind::Stream => self.tcp_recv(s, buf, peek),
            Kind::Datagram => {
                self.udp_recv(s, &mut [IoSliceMut::new(buf)], peek).map(|received| received.len)
            }
        }
    }

    /// Reads into several buffers.
    ///
    /// # Errors
    /// As `readv(2)`.
    pub fn recv_vectored(&mut self, s: SocketId, bufs: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize> {
        match self.sockets.get(s)?.kind() {
            Kind::Stream => self.tcp_recv_vectored(s, bufs, peek),
            Kind::Datagram => self.udp_recv(s, bufs, peek).map(|received| received.len),
        }
    }

    /// Writes; says how many bytes were taken.
    ///
    /// # Errors
    /// As `send(2)` with MSG_DONTWAIT and MSG_NOSIGNAL: [`SockError::BrokenPipe`] comes without a signal.
    pub fn send(&mut self, s: SocketId, buf: &[u8]) -> Result<usize> {
        match self.sockets.get(s)?.kind() {
            Kind::Stream => self.tcp_send(s, buf),
            Kind::Datagram => self.udp_send(s, &[IoSlice::new(buf)], None, None),
        }
    }

    /// Writes from several buffers.
    ///
    /// # Errors
    /// As `writev(2)`.
    pub fn send_vectored(&mut self, s: SocketId, bufs: &[IoSlice<'_>]) -> Result<usize> {
        match self.sockets.get(s)?.kind() {
            Kind::Stream => self.tcp_send_vectored(s, bufs),
            Kind::Datagram => self.udp_send(s, bufs, None, None),
        }
    }

    /// Receives from a socket and says from whom: one datagram, or bytes of a stream.
    ///
    /// # Errors
    /// As `recvmsg(2)`.
    pub fn recv_from(&mut self, s: SocketId, bufs: &mut [IoSliceMut<'_>], peek: bool) -> Result<Received> {
        match self.sockets.get(s)?.kind() {
            Kind::Datagram => self.udp_recv(s, bufs, peek),
            Kind::Stream => {
                let len = self.tcp_recv_vectored(s, bufs, peek)?;
                let (from, to) = (self.peer_addr(s)?, self.local_addr(s)?.ip());
                Ok(Received { len, full_len: len, from, to })
            }
        }
    }

    /// Sends one datagram. `to` as in `sendto` (`None` on a connected socket); `source` as in IP_PKTINFO. On
    /// a stream both are ignored, as Linux does on a connected one.
    ///
    /// # Errors
    /// As `sendmsg(2)`.
    pub fn send_to(
        &mut self,
        s: SocketId,
        bufs: &[IoSlice<'_>],
        to: Option<SocketAddr>,
        source: Option<IpAddr>,
    ) -> Result<usize> {
        match self.sockets.get(s)?.kind() {
            Kind::Datagram => self.udp_send(s, bufs, to.map(canonical), source.map(|ip| ip.to_canonical())),
            Kind::Stream => self.tcp_send_vectored(s, bufs),
        }
    }

    /// Ends one or both directions.
    ///
    /// # Errors
    /// [`SockError::NotConnected`].
    pub fn shutdown(&mut self, s: SocketId, how: Shutdown) -> Result<()> {
        match self.sockets.get(s)?.kind() {
            Kind::Stream => self.tcp_shutdown(s, how),
            Kind::Datagram => self.udp_shutdown(s, how),
        }
    }

    /// Closes. What a TCP connection still has to send is sent in the background.
    ///
    /// # Errors
    /// [`SockError::BadSocket`].
    pub fn close(&mut self, s: SocketId) -> Result<()> {
        let socket = self.sockets.remove(s)?;
        if let Some(addr) = socket.bound {
            self.holds_mut(socket.kind()).remove(addr.port(), s);
        }
        match socket.body {
            Body::TcpIdle(_) => {}
            Body::TcpListening { listener, .. } => self.leave_listener(s, listener),
            Body::TcpConn { conn } => self.engine.close(self.now, conn),
            Body::Udp(_) => {
                if let Some(addr) = socket.bound {
                    self.udp_ports.remove(addr.port(), s);
                }
            }
        }
        Ok(())
    }

    /// Our end, as `getsockname` gives it: all zero before it is known.
    ///
    /// # Errors
    /// [`SockError::BadSocket`].
    pub fn local_addr(&self, s: SocketId) -> Result<SocketAddr> {
        let socket = self.sockets.get(s)?;
        let of_conn = match socket.body {
            Body::TcpConn { conn } => self.engine.local_addr(conn),
            _ => None,
        };
        let addr = of_conn.or(socket.bound).map(|addr| match (socket.domain, addr.ip()) {
            // A dual-stack socket bound to any address shows `::`, not `::ffff:0.0.0.0`.
            (Domain::Ipv6, ip) if ip.is_unspecified() => {
                SocketAddr::new(IpAddr::from([0u16; 8]), addr.port())
            }
            _ => present(socket.domain, addr),
        });
        Ok(addr.unwrap_or_else(|| socket.domain.unspecified()))
    }

    /// The peer's end, as `getpeername` gives it.
    ///
    /// # Errors
    /// [`SockError::NotConnected`].
    pub fn peer_addr(&self, s: SocketId) -> Result<SocketAddr> {
        let socket = self.sockets.get(s)?;
        let peer = match &socket.body {
            Body::TcpConn { conn } => self.tcp_peer(*conn),
            Body::Udp(udp) => udp.state.peer,
            Body::TcpIdle(_) | Body::TcpListening { .. } => None,
        };
        peer.map(|peer| present(socket.domain, peer)).ok_or(SockError::NotConnected)
    }

    /// What is possible now (level-triggered view). Nothing for a socket that does not exist.
    pub fn readiness(&self, s: SocketId) -> Readiness {
        let Ok(socket) = self.sockets.get(s) else { return Readiness::NONE };
        match &socket.body {
            Body::TcpIdle(settings) => {
                let error = if settings.error.is_some() { Readiness::ERR } else { Readiness::NONE };
                // What Linux says of a stream socket that is not connected.
                Readiness::WRITABLE | Readiness::HUP | error
            }
            Body::TcpListening { listener, .. } => self.listener_readiness(*listener),
            Body::TcpConn { conn } => self.engine.readiness(*conn),
            Body::Udp(udp) => udp.readiness(),
        }
    }

    /// Bytes that a read would give (FIONREAD): of a datagram socket, the next datagram's.
    ///
    /// # Errors
    /// [`SockError::Invalid`] for a listener.
    pub fn queued_bytes(&self, s: SocketId) -> Result<usize> {
        match &self.sockets.get(s)?.body {
            Body::TcpIdle(_) => Ok(0),
            Body::TcpListening { .. } => Err(SockError::Invalid),
            Body::TcpConn { conn } => Ok(self.engine.readable_bytes(*conn)),
            Body::Udp(udp) => Ok(udp.state.front().map_or(0, |datagram| datagram.payload.len())),
        }
    }

    /// Bytes written and not yet acknowledged (SIOCOUTQ).
    ///
    /// # Errors
    /// [`SockError::BadSocket`].
    pub fn unsent_bytes(&self, s: SocketId) -> Result<usize> {
        match &self.sockets.get(s)?.body {
            Body::TcpConn { conn } => Ok(self.engine.unsent_bytes(*conn)),
            _ => Ok(0),
        }
    }

    /// Bytes that a write would take now.
    ///
    /// # Errors
    /// [`SockError::BadSocket`].
    pub fn writable_bytes(&self, s: SocketId) -> Result<usize> {
        match &self.sockets.get(s)?.body {
            Body::TcpConn { conn } => Ok(self.engine.writable_bytes(*conn)),
            Body::Udp(udp) => Ok(udp.sndbuf_bytes as usize),
            _ => Ok(0),
        }
    }

    /// The pending error (SO_ERROR), which it forgets.
    pub fn take_error(&mut self, s: SocketId) -> Option<SockError> {
        match &mut self.sockets.get_mut(s).ok()?.body {
            Body::TcpIdle(settings) => settings.error.take(),
            Body::TcpListening { .. } => None,
            Body::TcpConn { conn } => self.engine.take_error(*conn).map(SockError::from),
            Body::Udp(udp) => udp.state.error.take(),
        }
    }

    /// What newly happened on a socket; call until `None`.
    pub fn next_event(&mut self) -> Option<SocketEvent> {
        while let Some(id) = self.events.pop_front() {
            let Ok(socket) = self.sockets.get_mut(id) else { continue };
            let edges = std::mem::take(&mut socket.edges);
            if !edges.is_empty() {
                return Some(SocketEvent { socket: id, edges, user: socket.user });
            }
        }
        None
    }

    /// The word that events of this socket carry.
    pub fn set_user(&mut self, s: SocketId, user: u64) {
        if let Ok(socket) = self.sockets.get_mut(s) {
            socket.user = user;
        }
    }

    /// Adds to what is to be reported of a socket.
    pub(crate) fn post(&mut self, s: SocketId, edges: Readiness) {
        let Ok(socket) = self.sockets.get_mut(s) else { return };
        if socket.edges.is_empty() && !edges.is_empty() {
            self.events.push_back(s);
        }
        socket.edges |= edges;
    }
}
