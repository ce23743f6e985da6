//! What the driver asks of a network: connections with readiness. Our own stack over any packet I/O is one.

use std::net::{IpAddr, SocketAddr};

use ff_dataplane::Stack;
use ff_dataplane::io::PacketIo;
use ff_dataplane::sockets::{Domain, Kind, Readiness, SockError, SockOpt, SocketId};
use ff_flowmap::FlowIndex;
use ff_tcp::Instant;

use crate::failure::Failure;

/// What a read gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// So many bytes, at least 1.
    Bytes(usize),
    /// Nothing now.
    Nothing,
    /// The peer has closed its direction.
    End,
}

/// Something happened on a connection; the caller finds out what by trying.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// What [`Network::open`] was given.
    pub user: u64,
    /// There may be something to read: bytes, an end, an error.
    pub readable: bool,
    /// It is established, or has room again.
    pub writable: bool,
}

/// A client's network.
pub trait Network {
    /// Names a connection; never used for another one again.
    type Conn: Copy;

    /// Receives and serves timers. True if there was anything to do.
    fn take_in(&mut self, now_us: u64) -> bool;

    /// Sends what calls since [`take_in`](Self::take_in) have written, with the acknowledgements of what came in.
    /// True if there was anything to do.
    fn send_out(&mut self, now_us: u64) -> bool;

    /// Begins a connection from `source` (`None`: whichever fits) to `remote`. Its events carry `user`.
    ///
    /// # Errors
    /// Why none can be begun.
    fn open(&mut self, source: Option<IpAddr>, remote: SocketAddr, user: u64) -> Result<Self::Conn, Failure>;

    /// Sends what there is room for; 0 bytes when there is none.
    ///
    /// # Errors
    /// Why the connection is dead.
    fn send(&mut self, conn: Self::Conn, bytes: &[u8]) -> Result<usize, Failure>;

    /// Reads into `buffer`, which has room.
    ///
    /// # Errors
    /// Why the connection is dead.
    fn receive(&mut self, conn: Self::Conn, buffer: &mut [u8]) -> Result<Received, Failure>;

    /// Closes; what is sent already is still delivered.
    fn close(&mut self, conn: Self::Conn);

    /// Ends it with a RST.
    fn abort(&mut self, conn: Self::Conn);

    /// What happened since the last pass, until `None`.
    fn next_event(&mut self) -> Option<Event>;

    /// Closed connections that the peer has not acknowledged yet.
    fn lingering(&self) -> usize;
}

impl<P: PacketIo, I: FlowIndex> Network for Stack<P, I> {
    type Conn = SocketId;

    fn take_in(&mut self, now_us: u64) -> bool {
        let report = self.receive_pass(Instant(now_us));
        report.rx > 0 || report.events || report.more
    }

    fn send_out(&mut self, now_us: u64) -> bool {
        self.transmit(Instant(now_us)) > 0
    }

    fn open(&mut self, source: Option<IpAddr>, remote: SocketAddr, user: u64) -> Result<SocketId, Failure> {
        let domain = if remote.is_ipv4() { Domain::Ipv4 } else { Domain::Ipv6 };
        let socket = self.socket(domain, Kind::Stream).map_err(failure)?;
        self.set_user(socket, user);
        match begin(self, socket, source, remote) {
            Ok(()) | Err(SockError::InProgress) => Ok(socket),
            Err(error) => {
                let _ = Stack::close(self, socket);
                Err(failure(error))
            }
        }
    }

    fn send(&mut self, conn: SocketId, bytes: &[u8]) -> Result<usize, Failure> {
        match Stack::send(self, conn, bytes) {
            Ok(len) => Ok(len),
            Err(SockError::WouldBlock) => Ok(0),
            Err(error) => Err(failure(error)),
        }
    }

    fn receive(&mut self, conn: SocketId, buffer: &mut [u8]) -> Result<Received, Failure> {
        match self.recv(conn, buffer, false) {
            Ok(0) => Ok(Received::End),
            Ok(len) => Ok(Received::Bytes(len)),
            Err(SockError::WouldBlock) => Ok(Received::Nothing),
            Err(error) => Err(failure(error)),
        }
    }

    fn close(&mut self, conn: SocketId) {
        let _ = Stack::close(self, conn);
    }

    fn abort(&mut self, conn: SocketId) {
        let _ = self.set_option(conn, SockOpt::Linger(Some(0)));
        let _ = Stack::close(self, conn);
    }

    fn next_event(&mut self) -> Option<Event> {
        let event = Stack::next_event(self)?;
        let down = Readiness::RDHUP | Readiness::HUP | Readiness::ERR;
        Some(Event {
            user: event.user,
            readable: event.edges.intersects(Readiness::READABLE | down),
            writable: event.edges.intersects(Readiness::WRITABLE),
        })
    }

    fn lingering(&self) -> usize {
        Stack::lingering(self)
    }
}

fn begin<P: PacketIo, I: FlowIndex>(
    stack: &mut Stack<P, I>,
    socket: SocketId,
    source: Option<IpAddr>,
    remote: SocketAddr,
) -> Result<(), SockError> {
    stack.set_option(socket, SockOpt::NoDelay(true))?;
    if let Some(source) = source {
        // The port is chosen at the connect: only there is it known that it is free toward this peer.
        stack.set_option(socket, SockOpt::BindAddressNoPort(true))?;
        stack.bind(socket, SocketAddr::new(source, 0))?;
    }
    stack.connect(socket, remote)
}

fn failure(error: SockError) -> Failure {
    match error {
        SockError::Refused => Failure::Refused,
        SockError::TimedOut => Failure::Timeout,
        SockError::HostUnreachable | SockError::NetUnreachable | SockError::FamilyNotSupported => {
            Failure::Unreachable
        }
        SockError::NoBuffers
        | SockError::TooManySockets
        | SockError::NoPorts
        | SockError::AddressInUse
        | SockError::AddressNotAvailable => Failure::Exhausted,
        _ => Failure::Reset,
    }
}
