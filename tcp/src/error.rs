//! What can go wrong, one enum per operation, and the errno Linux gives for it.

use thiserror::Error;

/// Why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ConnError {
    /// The peer answered the SYN with RST.
    #[error("the peer refused the connection")]
    Refused,
    /// The peer sent RST.
    #[error("the peer reset the connection")]
    Reset,
    /// No answer to retransmissions, keep-alive or window probes.
    #[error("the peer did not answer in time")]
    TimedOut,
    /// ICMP: no route to the network.
    #[error("the network is unreachable")]
    NetUnreachable,
    /// ICMP: no route to the host, or the host does not answer.
    #[error("the host is unreachable")]
    HostUnreachable,
    /// RST that came after the peer's FIN, while we still wrote.
    #[error("the peer had closed the connection when data was sent to it")]
    BrokenPipe,
    /// Ended on our side: no memory, or the socket was aborted.
    #[error("the connection was aborted on this side")]
    Aborted,
}

impl ConnError {
    /// The errno that Linux reports for it.
    pub const fn errno(self) -> i32 {
        match self {
            ConnError::Refused => 111,
            ConnError::Reset => 104,
            ConnError::TimedOut => 110,
            ConnError::NetUnreachable => 101,
            ConnError::HostUnreachable => 113,
            ConnError::BrokenPipe => 32,
            ConnError::Aborted => 103,
        }
    }

    pub(crate) const fn to_u8(self) -> u8 {
        match self {
            ConnError::Refused => 1,
            ConnError::Reset => 2,
            ConnError::TimedOut => 3,
            ConnError::NetUnreachable => 4,
            ConnError::HostUnreachable => 5,
            ConnError::BrokenPipe => 6,
            ConnError::Aborted => 7,
        }
    }

    pub(crate) const fn from_u8(code: u8) -> Option<Self> {
        Some(match code {
            1 => ConnError::Refused,
            2 => ConnError::Reset,
            3 => ConnError::TimedOut,
            4 => ConnError::NetUnreachable,
            5 => ConnError::HostUnreachable,
            6 => ConnError::BrokenPipe,
            7 => ConnError::Aborted,
            _ => return None,
        })
    }
}

/// Why a read gave no bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ReadError {
    /// Nothing to read yet.
    #[error("no data to read yet")]
    WouldBlock,
    /// Not connected, or not a socket any more.
    #[error("the socket is not connected")]
    NotConnected,
    /// The connection failed; reported once, then reads give 0.
    #[error(transparent)]
    Failed(#[from] ConnError),
}

impl ReadError {
    /// The errno that Linux reports for it.
    pub const fn errno(self) -> i32 {
        match self {
            ReadError::WouldBlock => 11,
            ReadError::NotConnected => 107,
            ReadError::Failed(e) => e.errno(),
        }
    }
}

/// Why a write took no bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum WriteError {
    /// No room: the send buffer is full, the handshake is not done, or the
    /// engine's memory limit is reached.
    #[error("no room in the send buffer yet")]
    WouldBlock,
    /// Not connected, or not a socket any more.
    #[error("the socket is not connected")]
    NotConnected,
    /// Our direction has ended.
    #[error("the sending direction is closed")]
    BrokenPipe,
    /// The connection failed; reported once, then writes give `BrokenPipe`.
    #[error(transparent)]
    Failed(#[from] ConnError),
}

impl WriteError {
    /// The errno that Linux reports for it.
    pub const fn errno(self) -> i32 {
        match self {
            WriteError::WouldBlock => 11,
            WriteError::NotConnected => 107,
            WriteError::BrokenPipe => 32,
            WriteError::Failed(e) => e.errno(),
        }
    }
}

/// Why a listener could not be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ListenError {
    /// Port 0, or an IPv4-only listener of IPv6 only.
    #[error("the address cannot be listened on")]
    Invalid,
    /// Another listener has the same address and port.
    #[error("the address is in use by another listener")]
    InUse,
    /// Too many listeners (65 536).
    #[error("there are too many listeners")]
    TooMany,
}

/// Why a connection could not be begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ConnectError {
    /// Families differ, or an address or port is unspecified.
    #[error("local and remote address do not make a flow")]
    Invalid,
    /// The flow exists.
    #[error("a connection between these two ends exists already")]
    InUse,
    /// The flow table or the engine has no room.
    #[error("there is no room for another connection")]
    NoRoom,
}
