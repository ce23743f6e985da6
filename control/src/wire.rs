//! The socket: one JSON value per `SOCK_SEQPACKET` packet, descriptors beside it.
//!
//! This also runs inside a preloaded library, in a process that is somebody else's: it touches the socket's own
//! descriptors only, installs nothing, keeps no global state, and every wait has a bound.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    self, AddressFamily, Backlog, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr,
};
use nix::sys::stat::Mode;
use serde::{Serialize, de::DeserializeOwned};

/// Longest message in bytes; a longer one is refused by the sender. Below the kernel's default send buffer
/// (212 992 bytes), because a packet is sent whole or not at all.
pub const MESSAGE_BYTES_MAX: usize = 160 * 1024;

/// Most descriptors beside one message (one per queue of an `af_packet` device, the kernel's own bound is 253).
pub const DESCRIPTORS_MAX: usize = 64;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 64;

/// Why a message could not be exchanged.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No socket, or nobody behind it.
    #[error("no instance `{instance}` is running: start it with ffctl start -c FILE")]
    NotRunning {
        /// Name of the instance, from the socket's directory.
        instance: String,
    },
    /// The socket is for root alone.
    #[error("the control socket {} is for root only: run this as root", path.display())]
    Permission {
        /// The socket.
        path: PathBuf,
    },
    /// The bound of the wait is over.
    #[error("the primary did not answer within {} ms", waited.as_millis())]
    Timeout {
        /// How long was waited.
        waited: Duration,
    },
    /// The other end has closed the connection.
    #[error("the other end closed the control connection")]
    Closed,
    /// The message does not fit into a packet.
    #[error("a control message of {bytes} bytes is longer than {MESSAGE_BYTES_MAX}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// More descriptors than a message may carry.
    #[error("a control message with {count} descriptors has more than {DESCRIPTORS_MAX}")]
    TooManyDescriptors {
        /// Their number.
        count: usize,
    },
    /// Not a message of this protocol.
    #[error("a control message was not understood ({0}): both ends must be of the same version")]
    Malformed(#[from] serde_json::Error),
    /// The path does not fit into a socket address (107 bytes).
    #[error("the path {} is too long for a socket: choose a shorter runtime_dir", path.display())]
    PathTooLong {
        /// The path.
        path: PathBuf,
    },
    /// Anything else the kernel said.
    #[error("control socket: {call}: {errno}")]
    Io {
        /// The call that failed.
        call: &'static str,
        /// Its error.
        errno: Errno,
    },
}

fn io(call: &'static str) -> impl Fn(Errno) -> ControlError {
    move |errno| ControlError::Io { call, errno }
}

/// The instance's name is the name of the directory that holds its socket.
fn instance_of(path: &Path) -> String {
    path.parent()
        .and_then(Path::file_name)
        .map_or_else(|| "default".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn address_of(path: &Path) -> Result<UnixAddr, ControlError> {
    UnixAddr::new(path).map_err(|_| ControlError::PathTooLong { path: path.to_owned() })
}

fn seqpacket() -> Result<OwnedFd, ControlError> {
    socket::socket(
        AddressFamily::Unix,
        SockType::SeqPacket,
        SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
        None,
    )
    .map_err(io("socket"))
}

/// One end of a connection. Its descriptor is non-blocking and closed on exec.
#[derive(Debug)]
pub struct Connection {
    fd: OwnedFd,
    /// Reused for every packet: a status of many workers is larger than a stack frame should be.
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects to the socket at `path`, waiting at most `timeout` while its backlog is full.
    ///
    /// # Errors
    /// [`ControlError::NotRunning`] when there is no socket or nobody listens behind it; [`ControlError::Timeout`].
    pub fn connect(path: &Path, timeout: Duration) -> Result<Self, ControlError> {
        let address = address_of(path)?;
        let fd = seqpacket()?;
        let deadline = Instant::now() + timeout;
        loop {
            match socket::connect(fd.as_raw_fd(), &address) {
                Ok(()) => return Ok(Self::from_fd(fd)),
                Err(Errno::EINTR) => {}
                // The backlog is full. A UNIX socket offers nothing to poll for here, so it is tried again.
                Err(Errno::EAGAIN) if Instant::now() < deadline => {
                    let _ = poll(&mut [], PollTimeout::from(2u8));
                }
                Err(Errno::EAGAIN) => return Err(ControlError::Timeout { waited: timeout }),
                Err(Errno::ENOENT | Errno::ECONNREFUSED | Errno::ENOTDIR) => {
                    return Err(ControlError::NotRunning { instance: instance_of(path) });
                }
                Err(Errno::EACCES | Errno::EPERM) => {
                    return Err(ControlError::Permission { path: path.to_owned() });
                }
                Err(errno) => return Err(ControlError::Io { call: "connect", errno }),
            }
        }
    }

    fn from_fd(fd: OwnedFd) -> Self {
        Self { fd, buffer: Vec::new() }
    }

    /// Two connected ends, for tests.
    ///
    /// # Errors
    /// What `socketpair` says.
    pub fn pair() -> Result<(Self, Self), ControlError> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (a, b) = socket::socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)
            .map_err(io("socketpair"))?;
        Ok((Self::from_fd(a), Self::from_fd(b)))
    }

    /// Sends one message, waiting at most `timeout` for room.
    ///
    /// # Errors
    /// [`ControlError::Closed`], [`ControlError::Timeout`], [`ControlError::TooLong`].
    pub fn send<T: Serialize>(&mut self, message: &T, timeout: Duration) -> Result<(), ControlError> {
        self.send_with_fds(message, &[], timeout)
    }

    /// Sends one message with descriptors beside it; the other end gets duplicates.
    ///
    /// # Errors
    /// As [`Self::send`], and [`ControlError::TooManyDescriptors`].
    pub fn send_with_fds<T: Serialize>(
        &mut self,
        message: &T,
        fds: &[BorrowedFd<'_>],
        timeout: Duration,
    ) -> Result<(), ControlError> {
        let bytes = serde_json::to_vec(message)?;
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(ControlError::TooLong { bytes: bytes.len() });
        }
        if fds.len() > DESCRIPTORS_MAX {
            return Err(ControlError::TooManyDescriptors { count: fds.len() });
        }
        let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&raw)];
        let control: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &rights };
        let deadline = Instant::now() + timeout;
        loop {
            let sent = socket::sendmsg::<()>(
                self.fd.as_raw_fd(),
                &[IoSlice::new(&bytes)],
                control,
                MsgFlags::MSG_NOSIGNAL,
                None,
            );
            match sent {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => self.wait(PollFlags::POLLOUT, deadline, timeout)?,
                Err(Errno::EPIPE | Errno::ECONNRESET | Errno::ENOTCONN) => return Err(ControlError::Closed),
                Err(errno) => return Err(ControlError::Io { call: "sendmsg", errno }),
            }
        }
    }

    /// Receives one message, waiting at most `timeout`. Descriptors beside it are closed.
    ///
    /// # Errors
    /// [`ControlError::Closed`], [`ControlError::Timeout`], [`ControlError::Malformed`].
    pub fn recv<T: DeserializeOwned>(&mut self, timeout: Duration) -> Result<T, ControlError> {
        self.recv_with_fds(timeout).map(|(message, _)| message)
    }

    /// Receives one message and the descriptors beside it (closed on exec), waiting at most `timeout`.
    ///
    /// # Errors
    /// As [`Self::recv`].
    pub fn recv_with_fds<T: DeserializeOwned>(
        &mut self,
        timeout: Duration,
    ) -> Result<(T, Vec<OwnedFd>), ControlError> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(received) = self.try_recv_with_fds()? {
                return Ok(received);
            }
            self.wait(PollFlags::POLLIN, deadline, timeout)?;
        }
    }

    /// Receives a message that is already there; `None` when there is none. For an event loop.
    ///
    /// # Errors
    /// [`ControlError::Closed`], [`ControlError::Malformed`].
    pub fn try_recv<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ControlError> {
        Ok(self.try_recv_with_fds()?.map(|(message, _)| message))
    }

    fn try_recv_with_fds<T: DeserializeOwned>(&mut self) -> Result<Option<(T, Vec<OwnedFd>)>, ControlError> {
        self.buffer.resize(MESSAGE_BYTES_MAX, 0);
        let received = receive_packet(&self.fd, &mut self.buffer);
        let result = match received {
            Ok((0, _)) => Err(ControlError::Closed),
            Ok((len, fds)) => match serde_json::from_slice(&self.buffer[..len]) {
                Ok(message) => Ok(Some((message, fds))),
                Err(error) => Err(ControlError::Malformed(error)),
            },
            Err(Errno::EAGAIN) => Ok(None),
            Err(Errno::ECONNRESET) => Err(ControlError::Closed),
            Err(errno) => Err(ControlError::Io { call: "recvmsg", errno }),
        };
        // An idle connection holds no buffer.
        self.buffer = Vec::new();
        result
    }

    /// Sends `request` and waits for its answer.
    ///
    /// # Errors
    /// As [`Self::send`] and [`Self::recv`].
    pub fn call<Q: Serialize, A: DeserializeOwned>(
        &mut self,
        request: &Q,
        timeout: Duration,
    ) -> Result<A, ControlError> {
        self.send(request, timeout)?;
        self.recv(timeout)
    }

    /// Pid of the process at the other end when it connected (`SO_PEERCRED`), as this process's pid namespace
    /// numbers it.
    ///
    /// # Errors
    /// What `getsockopt` says.
    pub fn peer_pid(&self) -> Result<u32, ControlError> {
        let credentials =
            socket::getsockopt(&self.fd, socket::sockopt::PeerCredentials).map_err(io("getsockopt"))?;
        Ok(credentials.pid().unsigned_abs())
    }

    fn wait(&self, events: PollFlags, deadline: Instant, timeout: Duration) -> Result<(), ControlError> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ControlError::Timeout { waited: timeout });
            }
            // Rounded up, so that the last millisecond is slept and not spun.
            let millis = u16::try_from(left.as_millis() + 1).unwrap_or(u16::MAX);
            match poll(&mut [PollFd::new(self.fd.as_fd(), events)], PollTimeout::from(millis)) {
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(ControlError::Io { call: "poll", errno }),
            }
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// One packet and its descriptors; `EINTR` is tried again.
fn receive_packet(fd: &OwnedFd, buffer: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut control = nix::cmsg_space!([RawFd; DESCRIPTORS_MAX]);
    loop {
        let mut slices = [IoSliceMut::new(buffer)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
        match socket::recvmsg::<()>(fd.as_raw_fd(), &mut slices, Some(&mut control), flags) {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
            Ok(message) => {
                let mut fds = Vec::new();
                for part in message.cmsgs()? {
                    if let ControlMessageOwned::ScmRights(raw) = part {
                        fds.extend(raw.into_iter().map(own));
                    }
                }
                return Ok((message.bytes, fds));
            }
        }
    }
}

/// The one place where a number becomes a descriptor.
#[allow(unsafe_code)]
fn own(raw: RawFd) -> OwnedFd {
    // SAFETY: `raw` comes out of SCM_RIGHTS of the message just received, or from the accept4 just made: the kernel has
    // installed it in this process for this caller and nobody else has seen the number, so it is open and owned here.
    unsafe { OwnedFd::from_raw_fd(raw) }
}

/// The primary's end: accepts connections. Its descriptor is non-blocking, for an event loop.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    path: PathBuf,
}

impl Listener {
    /// Makes the socket at `path` with mode 0600. A socket left there by a dead primary is replaced: the caller
    /// holds the instance's lock.
    ///
    /// # Errors
    /// What the kernel says to `bind` or `listen`, and [`ControlError::PathTooLong`].
    pub fn bind(path: &Path) -> Result<Self, ControlError> {
        let address = address_of(path)?;
        match nix::unistd::unlink(path) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(ControlError::Io { call: "unlink", errno }),
        }
        let fd = seqpacket()?;
        // Before `bind`, so that the file never has another mode (fchmod on a socket before bind sets the inode's).
        nix::sys::stat::fchmod(&fd, Mode::S_IRUSR | Mode::S_IWUSR).map_err(io("fchmod"))?;
        socket::bind(fd.as_raw_fd(), &address).map_err(io("bind"))?;
        let backlog = Backlog::new(BACKLOG).map_err(io("listen"))?;
        socket::listen(&fd, backlog).map_err(io("listen"))?;
        Ok(Self { fd, path: path.to_owned() })
    }

    /// The next connection, `None` when none waits.
    ///
    /// # Errors
    /// What the kernel says, for example that descriptors have run out.
    pub fn accept(&self) -> Result<Option<Connection>, ControlError> {
        loop {
            match socket::accept4(self.fd.as_raw_fd(), SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK) {
                Ok(raw) => return Ok(Some(Connection::from_fd(own(raw)))),
                Err(Errno::EINTR | Errno::ECONNABORTED) => {}
                Err(Errno::EAGAIN) => return Ok(None),
                Err(errno) => return Err(ControlError::Io { call: "accept", errno }),
            }
        }
    }

    /// Where the socket is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests;
