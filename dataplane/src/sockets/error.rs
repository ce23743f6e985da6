//! What can go wrong in a socket call, with the errno that Linux gives.

use ff_tcp::{ConnError, ReadError, WriteError};

/// Why a socket call did not do what was asked.
///
/// One enum serves all calls, as errno does: the shim hands [`errno`](Self::errno)
/// to the application, and logs the sentence where a person needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SockError {
    /// Nothing to read, no room to write, nobody to accept: wait for readiness.
    #[error("the call would block")]
    WouldBlock,
    /// The handshake has begun; writable when it is done.
    #[error("the connection is being made")]
    InProgress,
    /// A second `connect` while the first is under way.
    #[error("a connection is already being made")]
    Already,
    /// The socket is connected already.
    #[error("the socket is connected already")]
    IsConnected,
    /// The call needs a connected socket.
    #[error("the socket is not connected")]
    NotConnected,
    /// A datagram needs an address: the socket has no peer.
    #[error("no destination address given, and the socket is not connected")]
    DestinationRequired,
    /// The peer reset the connection.
    #[error("the peer reset the connection")]
    Reset,
    /// The peer refused the connection, or no one listens on the UDP port.
    #[error("the peer refused the connection")]
    Refused,
    /// The peer did not answer in time.
    #[error("the peer did not answer in time")]
    TimedOut,
    /// A router or the neighbour search says that the host cannot be reached.
    #[error("the host cannot be reached")]
    HostUnreachable,
    /// There is no route to the destination.
    #[error("there is no route to the destination; set `gateway=` or `gateway6=` of the port")]
    NetUnreachable,
    /// The connection was given up here.
    #[error("the connection was aborted")]
    Aborted,
    /// Writing after a shutdown or a reset.
    #[error("the connection takes no more data")]
    BrokenPipe,
    /// Another socket holds this address and port.
    #[error("the address and port are in use")]
    AddressInUse,
    /// Not one of the addresses of the port.
    #[error("the address is not one of the addresses of the port in f-stack.conf")]
    AddressNotAvailable,
    /// An address of the other family.
    #[error("the address is of another family than the socket")]
    FamilyNotSupported,
    /// A value out of range, or a call in the wrong state.
    #[error("invalid argument")]
    Invalid,
    /// The call does not exist for this kind of socket.
    #[error("this kind of socket does not support the call")]
    NotSupported,
    /// Not an option that we know at that level.
    #[error("no such option")]
    NoSuchOption,
    /// A congestion control that is not built in.
    #[error("no congestion control of that name; there are cubic and reno")]
    NoSuchCongestionControl,
    /// The datagram is larger than a UDP datagram can be.
    #[error("the datagram is too long")]
    MessageTooLong,
    /// A table or a memory limit is full.
    #[error("out of buffers or table entries; see the [limits] section of f-stack.conf")]
    NoBuffers,
    /// More sockets than the worker may have.
    #[error("too many sockets in this worker; see the [limits] section of f-stack.conf")]
    TooManySockets,
    /// All ephemeral ports toward that destination are taken.
    #[error("no free ephemeral port toward the destination")]
    NoPorts,
    /// The socket id is not known, or its socket has been closed.
    #[error("no such socket")]
    BadSocket,
}

impl SockError {
    /// The errno that Linux gives in this case.
    pub fn errno(&self) -> i32 {
        match self {
            Self::WouldBlock => libc::EAGAIN,
            Self::InProgress => libc::EINPROGRESS,
            Self::Already => libc::EALREADY,
            Self::IsConnected => libc::EISCONN,
            Self::NotConnected => libc::ENOTCONN,
            Self::DestinationRequired => libc::EDESTADDRREQ,
            Self::Reset => libc::ECONNRESET,
            Self::Refused => libc::ECONNREFUSED,
            Self::TimedOut => libc::ETIMEDOUT,
            Self::HostUnreachable => libc::EHOSTUNREACH,
            Self::NetUnreachable => libc::ENETUNREACH,
            Self::Aborted => libc::ECONNABORTED,
            Self::BrokenPipe => libc::EPIPE,
            Self::AddressInUse => libc::EADDRINUSE,
            Self::AddressNotAvailable | Self::NoPorts => libc::EADDRNOTAVAIL,
            Self::FamilyNotSupported => libc::EAFNOSUPPORT,
            Self::Invalid => libc::EINVAL,
            Self::NotSupported => libc::EOPNOTSUPP,
            Self::NoSuchOption => libc::ENOPROTOOPT,
            Self::NoSuchCongestionControl => libc::ENOENT,
            Self::MessageTooLong => libc::EMSGSIZE,
            Self::NoBuffers => libc::ENOBUFS,
            Self::TooManySockets => libc::ENFILE,
            Self::BadSocket => libc::EBADF,
        }
    }
}

impl From<ConnError> for SockError {
    fn from(error: ConnError) -> Self {
        match error {
            ConnError::Refused => Self::Refused,
            ConnError::Reset => Self::Reset,
            ConnError::TimedOut => Self::TimedOut,
            ConnError::NetUnreachable => Self::NetUnreachable,
            ConnError::HostUnreachable => Self::HostUnreachable,
            ConnError::BrokenPipe => Self::BrokenPipe,
            ConnError::Aborted => Self::Aborted,
        }
    }
}

impl From<ReadError> for SockError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::WouldBlock => Self::WouldBlock,
            ReadError::NotConnected => Self::NotConnected,
            ReadError::Failed(error) => error.into(),
        }
    }
}

impl From<WriteError> for SockError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::WouldBlock => Self::WouldBlock,
            WriteError::NotConnected | WriteError::BrokenPipe => Self::BrokenPipe,
            WriteError::Failed(error) => error.into(),
        }
    }
}
