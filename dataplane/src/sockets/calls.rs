//! The socket calls.

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};

use ff_flowmap::FlowIndex;

use super::{
    Domain, Kind, Readiness, Received, Shutdown, SockError, SockOpt, SockOptName, SockOptValue, SocketEvent,
    SocketId,
};
use crate::io::PacketIo;
use crate::stack::Stack;

type Result<T> = std::result::Result<T, SockError>;

#[allow(unused_variables)]
impl<P: PacketIo, I: FlowIndex> Stack<P, I> {
    /// A new socket.
    pub fn socket(&mut self, domain: Domain, kind: Kind) -> Result<SocketId> {
        unimplemented!()
    }
    /// Binds to a local address; port 0 chooses one.
    pub fn bind(&mut self, s: SocketId, addr: SocketAddr) -> Result<()> {
        unimplemented!()
    }
    /// Listens, or changes the backlog of a listening socket.
    pub fn listen(&mut self, s: SocketId, backlog: i32) -> Result<()> {
        unimplemented!()
    }
    /// The next connection and its peer.
    pub fn accept(&mut self, s: SocketId) -> Result<(SocketId, SocketAddr)> {
        unimplemented!()
    }
    /// TCP: begins a handshake, `InProgress` as a rule. UDP: sets the peer.
    pub fn connect(&mut self, s: SocketId, peer: SocketAddr) -> Result<()> {
        unimplemented!()
    }
    /// Reads; 0 is the end of a stream. `peek` leaves the bytes where they are.
    pub fn recv(&mut self, s: SocketId, buf: &mut [u8], peek: bool) -> Result<usize> {
        unimplemented!()
    }
    /// Reads into several buffers.
    pub fn recv_vectored(&mut self, s: SocketId, bufs: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize> {
        unimplemented!()
    }
    /// Writes; says how many bytes were taken.
    pub fn send(&mut self, s: SocketId, buf: &[u8]) -> Result<usize> {
        unimplemented!()
    }
    /// Writes from several buffers.
    pub fn send_vectored(&mut self, s: SocketId, bufs: &[IoSlice<'_>]) -> Result<usize> {
        unimplemented!()
    }
    /// Receives one datagram.
    pub fn recv_from(&mut self, s: SocketId, bufs: &mut [IoSliceMut<'_>], peek: bool) -> Result<Received> {
        unimplemented!()
    }
    /// Sends one datagram. `to` as in `sendto` (`None` on a connected socket); `source` as in IP_PKTINFO.
    pub fn send_to(
        &mut self,
        s: SocketId,
        bufs: &[IoSlice<'_>],
        to: Option<SocketAddr>,
        source: Option<IpAddr>,
    ) -> Result<usize> {
        unimplemented!()
    }
    /// Ends one or both directions.
    pub fn shutdown(&mut self, s: SocketId, how: Shutdown) -> Result<()> {
        unimplemented!()
    }
    /// Closes. What a TCP connection still has to send is sent in the background.
    pub fn close(&mut self, s: SocketId) -> Result<()> {
        unimplemented!()
    }
    /// Our end, as `getsockname` gives it.
    pub fn local_addr(&self, s: SocketId) -> Result<SocketAddr> {
        unimplemented!()
    }
    /// The peer's end, as `getpeername` gives it.
    pub fn peer_addr(&self, s: SocketId) -> Result<SocketAddr> {
        unimplemented!()
    }
    /// Sets an option.
    pub fn set_option(&mut self, s: SocketId, option: SockOpt) -> Result<()> {
        unimplemented!()
    }
    /// Asks for an option.
    pub fn option(&mut self, s: SocketId, name: SockOptName) -> Result<SockOptValue> {
        unimplemented!()
    }
    /// What is possible now (level-triggered view).
    pub fn readiness(&self, s: SocketId) -> Readiness {
        unimplemented!()
    }
    /// Bytes that a read would give (FIONREAD).
    pub fn queued_bytes(&self, s: SocketId) -> Result<usize> {
        unimplemented!()
    }
    /// The pending error (SO_ERROR), which it forgets.
    pub fn take_error(&mut self, s: SocketId) -> Option<SockError> {
        unimplemented!()
    }
    /// What newly happened on a socket; call until `None`.
    pub fn next_event(&mut self) -> Option<SocketEvent> {
        unimplemented!()
    }
    /// The word that events of this socket carry.
    pub fn set_user(&mut self, s: SocketId, user: u64) {
        unimplemented!()
    }
    /// Connections that the application has closed and that still have bytes to deliver, or a FIN.
    pub fn lingering(&self) -> usize {
        unimplemented!()
    }
}
