//! The socket calls, with Linux's results.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::IntoRawFd;

use ff_tcp::{
    ConnId, ConnectError, ListenAddr, ListenError, ListenOptions, ReadError, SocketOptions,
    State as TcpState, WriteError,
};

use crate::address::Address;
use crate::world::{Errno, Kind, Socket, State, World};

/// What `recv` and its relatives give.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) bytes: Vec<u8>,
    /// TCP_INQ was asked for: bytes that are left.
    pub(crate) left: Option<i32>,
}

/// A descriptor that the process owns, for a socket to be named by: packetdrill closes what is left over with
/// the system's `close`.
fn descriptor() -> Result<i32, Errno> {
    let file = std::fs::File::open("/dev/null").map_err(|e| e.raw_os_error().unwrap_or(libc::EMFILE))?;
    Ok(file.into_raw_fd())
}

impl State {
    pub(crate) fn socket(&self, fd: i32) -> Result<&Socket, Errno> {
        self.sockets.get(&fd).ok_or(libc::EBADF)
    }

    pub(crate) fn socket_mut(&mut self, fd: i32) -> Result<&mut Socket, Errno> {
        self.sockets.get_mut(&fd).ok_or(libc::EBADF)
    }

    pub(crate) fn conn(&self, fd: i32) -> Result<ConnId, Errno> {
        match self.socket(fd)?.kind {
            Kind::Conn(id) => Ok(id),
            _ => Err(libc::ENOTCONN),
        }
    }

    fn add_socket(&mut self, v6: bool, kind: Kind, options: SocketOptions) -> Result<i32, Errno> {
        let fd = descriptor()?;
        let socket = Socket {
            v6,
            v6_only: false,
            nonblock: false,
            kind,
            local: None,
            connect_told: false,
            options,
            defer_accept_s: 0,
            tos: 0,
            inq: false,
            more: false,
            rcv_timeout_us: 0,
            snd_timeout_us: 0,
            kept: BTreeMap::new(),
        };
        self.sockets.insert(fd, socket);
        Ok(fd)
    }

    fn read(&mut self, fd: i32, buf: &mut [u8], peek: bool) -> Option<Result<usize, Errno>> {
        let id = match self.conn(fd) {
            Ok(id) => id,
            Err(e) => return Some(Err(e)),
        };
        let result = if peek { self.engine().peek(id, buf) } else { self.engine().read(id, buf) };
        match result {
            Ok(n) => Some(Ok(n)),
            Err(ReadError::WouldBlock) => None,
            Err(ReadError::Failed(e)) => Some(Err(e.errno())),
            Err(e) => Some(Err(e.errno())),
        }
    }

    fn write(&mut self, fd: i32, data: &[u8]) -> Result<usize, Errno> {
        let now = self.now();
        let id = match self.conn(fd) {
            Ok(id) => id,
            // As Linux has it: the socket is not connected, so its sending side is closed.
            Err(libc::ENOTCONN) => return Err(libc::EPIPE),
            Err(e) => return Err(e),
        };
        match self.engine().write(now, id, data) {
            Ok(n) => Ok(n),
            Err(WriteError::NotConnected) => Err(libc::EPIPE),
            Err(e) => Err(e.errno()),
        }
    }
}

impl World {
    pub(crate) fn socket(&self, domain: i32, kind: i32, protocol: i32) -> Result<i32, Errno> {
        let v6 = match domain {
            libc::AF_INET => false,
            libc::AF_INET6 => true,
            _ => return Err(libc::EAFNOSUPPORT),
        };
        if kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != libc::SOCK_STREAM
            || !matches!(protocol, 0 | libc::IPPROTO_TCP)
        {
            return Err(libc::EPROTONOSUPPORT);
        }
        self.call(|state| {
            let options = state.engine().config().socket;
            let fd = state.add_socket(v6, Kind::Fresh, options)?;
            state.socket_mut(fd)?.nonblock = kind & libc::SOCK_NONBLOCK != 0;
            Ok(fd)
        })
    }

    pub(crate) fn bind(&self, fd: i32, address: Option<Address>) -> Result<i32, Errno> {
        self.call(|state| {
            let socket = state.socket_mut(fd)?;
            let Some(Address::Inet(addr)) = address else { return Err(libc::EAFNOSUPPORT) };
            if socket.local.is_some() || socket.kind != Kind::Fresh {
                return Err(libc::EINVAL);
            }
            socket.local = Some(addr);
            Ok(0)
        })
    }

    pub(crate) fn listen(&self, fd: i32, backlog: i32) -> Result<i32, Errno> {
        self.call(|state| {
            let socket = state.socket_mut(fd)?;
            let backlog = backlog.max(0) as u32;
            match socket.kind {
                Kind::Fresh => {}
                Kind::Listening(id, _) => {
                    socket.kind = Kind::Listening(id, backlog);
                    state.engine().set_backlog(id, backlog);
                    return Ok(0);
                }
                Kind::Conn(_) => return Err(libc::EINVAL),
            }
            let local = socket.local.ok_or(libc::EINVAL)?;
            let addr = ListenAddr::from_socket_addr(local, socket.v6_only);
            let options = ListenOptions {
                backlog,
                defer_accept_us: u64::from(socket.defer_accept_s) * 1_000_000,
                socket: socket.options,
                token: 0,
            };
            let id = state.engine().listen(addr, options).map_err(|e| match e {
                ListenError::InUse => libc::EADDRINUSE,
                ListenError::Invalid => libc::EINVAL,
                ListenError::TooMany => libc::ENOBUFS,
            })?;
            state.socket_mut(fd)?.kind = Kind::Listening(id, backlog);
            Ok(0)
        })
    }

    pub(crate) fn accept(&self, fd: i32) -> Result<(i32, SocketAddr, bool), Errno> {
        let (nonblock, timeout) = self.waiting(fd, false)?;
        self.blocking(nonblock, timeout, |state| {
            let (v6, id, tos) = match state.socket(fd) {
                Ok(Socket { kind: Kind::Listening(id, _), v6, tos, .. }) => (*v6, *id, *tos),
                Ok(_) => return Some(Err(libc::EINVAL)),
                Err(e) => return Some(Err(e)),
            };
            let conn = state.engine().accept(id)?;
            let options = state.engine().options(conn).unwrap_or_default();
            let remote = state.engine().remote_addr(conn)?;
            let accepted = state.add_socket(v6, Kind::Conn(conn), options).map(|new| {
                if let Ok(socket) = state.socket_mut(new) {
                    socket.tos = tos;
                    socket.connect_told = true;
                }
                (new, remote, v6)
            });
            Some(accepted)
        })
    }

    /// Whether calls on `fd` return at once, and after what time they give up.
    fn waiting(&self, fd: i32, writes: bool) -> Result<(bool, Option<u64>), Errno> {
        let state = self.lock();
        let socket = state.socket(fd)?;
        let us = if writes { socket.snd_timeout_us } else { socket.rcv_timeout_us };
        Ok((socket.nonblock, (us > 0).then_some(us)))
    }

    pub(crate) fn connect(&self, fd: i32, address: Option<Address>) -> Result<i32, Errno> {
        let (nonblock, timeout) = self.waiting(fd, true)?;
        let began = self.call(|state| -> Result<bool, Errno> {
            let now = state.now();
            let address = address.ok_or(libc::EAFNOSUPPORT)?;
            let (kind, local, options) = {
                let s = state.socket(fd)?;
                (s.kind, s.local, s.options)
            };
            let Address::Inet(remote) = address else {
                // Disconnect: the socket is as new.
                if let Kind::Conn(id) = kind {
                    state.engine().abort(now, id);
                    let socket = state.socket_mut(fd)?;
                    (socket.kind, socket.connect_told) = (Kind::Fresh, false);
                }
                return Ok(true);
            };
            match kind {
                Kind::Listening(..) => return Err(libc::EISCONN),
                Kind::Conn(_) => return Ok(false),
                Kind::Fresh => {}
            }
            let local = match local {
                Some(local) if !local.ip().is_unspecified() && local.port() != 0 => local,
                _ => state.source(remote).ok_or(libc::ENETUNREACH)?,
            };
            let id = state.engine().connect_with(now, local, remote, Some(options)).map_err(|e| match e {
                ConnectError::Invalid => libc::EINVAL,
                ConnectError::InUse => libc::EADDRNOTAVAIL,
                ConnectError::NoRoom => libc::EAGAIN,
            })?;
            state.socket_mut(fd)?.kind = Kind::Conn(id);
            if nonblock { Err(libc::EINPROGRESS) } else { Ok(false) }
        })?;
        if began {
            return Ok(0);
        }
        let result = self.blocking(nonblock, timeout, |state| {
            let id = match state.conn(fd) {
                Ok(id) => id,
                Err(e) => return Some(Err(e)),
            };
            match state.engine().state(id) {
                Some(TcpState::SynSent | TcpState::SynReceived) => None,
                Some(TcpState::Closed) | None => {
                    let error = state.engine().take_error(id).map_or(libc::ECONNABORTED, |e| e.errno());
                    // A failed attempt leaves a socket that may try again.
                    let now = state.now();
                    state.engine().close(now, id);
                    if let Ok(socket) = state.socket_mut(fd) {
                        socket.kind = Kind::Fresh;
                    }
                    Some(Err(error))
                }
                Some(_) => match state.socket_mut(fd) {
                    Ok(socket) if socket.connect_told => Some(Err(libc::EISCONN)),
                    Ok(socket) => {
                        socket.connect_told = true;
                        Some(Ok(0))
                    }
                    Err(e) => Some(Err(e)),
                },
            }
        });
        match result {
            Err(libc::EAGAIN) if nonblock => Err(libc::EALREADY),
            Err(libc::EAGAIN) => Err(libc::EINPROGRESS),
            other => other,
        }
    }

    /// `read` and its relatives; `known` is whether the caller's buffer is one.
    pub(crate) fn receive(&self, fd: i32, count: usize, flags: i32, known: bool) -> Result<Received, Errno> {
        if flags & libc::MSG_ERRQUEUE != 0 {
            // Nothing is ever put on the error queue.
            self.lock().socket(fd)?;
            return Err(libc::EAGAIN);
        }
        if flags & libc::MSG_OOB != 0 {
            return Err(libc::EINVAL);
        }
        let (nonblock, timeout) = self.waiting(fd, false)?;
        let nonblock = nonblock || flags & libc::MSG_DONTWAIT != 0;
        let peek = flags & libc::MSG_PEEK != 0;
        let mut buf = vec![0; count.min(64 << 20)];
        let mut have = 0;
        let result = self.blocking(nonblock, timeout, |state| {
            if !known {
                return Some(match state.conn(fd) {
                    Ok(id) if state.engine().readable_bytes(id) > 0 => Err(libc::EFAULT),
                    Ok(_) => return state.read(fd, &mut [0], true).map(|r| r.and(Ok(0))),
                    Err(e) => Err(e),
                });
            }
            let n = match state.read(fd, &mut buf[have..], peek) {
                Some(Ok(n)) => n,
                Some(Err(_)) if have > 0 => return Some(Ok(have)),
                other => return other,
            };
            have += n;
            let all = flags & libc::MSG_WAITALL != 0 && !peek && n > 0 && have < buf.len();
            (!all).then_some(Ok(have))
        });
        let have = match result {
            Ok(n) => n,
            Err(libc::EAGAIN) if have > 0 => have,
            Err(e) => return Err(e),
        };
        if flags & libc::MSG_TRUNC == 0 || known {
            buf.truncate(have);
        }
        let mut state = self.lock();
        let left = if state.socket(fd).is_ok_and(|s| s.inq) {
            let id = state.conn(fd)?;
            let left = state.engine().readable_bytes(id);
            let ended = left == 0 && state.engine().readiness(id).contains(ff_tcp::Readiness::RDHUP);
            Some(if ended { 1 } else { left.min(i32::MAX as usize) as i32 })
        } else {
            None
        };
        Ok(Received { bytes: buf, left })
    }

    /// `write` and its relatives; `data` is `None` for a buffer that the caller does not have.
    pub(crate) fn send(&self, fd: i32, data: Option<&[u8]>, flags: i32) -> Result<usize, Errno> {
        if flags & libc::MSG_FASTOPEN != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let (nonblock, timeout) = self.waiting(fd, true)?;
        let nonblock = nonblock || flags & libc::MSG_DONTWAIT != 0;
        let more = flags & libc::MSG_MORE != 0;
        self.hold_tail(fd, more)?;
        let mut done = 0;
        let result = self.blocking(nonblock, timeout, |state| {
            let Some(data) = data else {
                return Some(match state.write(fd, &[]) {
                    Ok(_) => Err(libc::EFAULT),
                    Err(e) => Err(e),
                });
            };
            match state.write(fd, &data[done..]) {
                Ok(n) => {
                    done += n;
                    (done == data.len()).then_some(Ok(done))
                }
                Err(libc::EAGAIN) => None,
                Err(_) if done > 0 => Some(Ok(done)),
                Err(e) => Some(Err(e)),
            }
        });
        match result {
            Err(libc::EAGAIN) if done > 0 => Ok(done),
            other => other,
        }
    }

    pub(crate) fn shutdown(&self, fd: i32, how: i32) -> Result<i32, Errno> {
        self.call(|state| {
            let now = state.now();
            let id = match state.socket(fd)?.kind {
                Kind::Conn(id) => id,
                Kind::Listening(id, _) => {
                    // Linux stops listening when the receiving side is shut down.
                    if how != libc::SHUT_WR {
                        state.engine().close_listener(id);
                        state.socket_mut(fd)?.kind = Kind::Fresh;
                    }
                    return Ok(0);
                }
                Kind::Fresh => return Err(libc::ENOTCONN),
            };
            if !matches!(how, libc::SHUT_RD | libc::SHUT_WR | libc::SHUT_RDWR) {
                return Err(libc::EINVAL);
            }
            if matches!(state.engine().state(id), None | Some(TcpState::Closed)) {
                return Err(libc::ENOTCONN);
            }
            if how != libc::SHUT_WR {
                state.engine().shutdown_read(id);
            }
            if how != libc::SHUT_RD {
                state.engine().shutdown_write(now, id);
            }
            Ok(0)
        })
    }

    /// Forgets a descriptor. The caller closes the number itself.
    pub(crate) fn close(&self, fd: i32) -> Result<i32, Errno> {
        self.call(|state| {
            let now = state.now();
            if state.epolls.remove(&fd).is_some() {
                return Ok(0);
            }
            let socket = state.sockets.remove(&fd).ok_or(libc::EBADF)?;
            for epoll in state.epolls.values_mut() {
                epoll.forget(fd);
            }
            match socket.kind {
                Kind::Fresh => {}
                Kind::Listening(id, _) => state.engine().close_listener(id),
                Kind::Conn(id) => state.engine().close(now, id),
            }
            Ok(0)
        })
    }

    pub(crate) fn fcntl(&self, fd: i32, command: i32, argument: i64) -> Result<i32, Errno> {
        let mut state = self.lock();
        let socket = state.socket_mut(fd)?;
        match command {
            libc::F_GETFL => Ok(libc::O_RDWR | if socket.nonblock { libc::O_NONBLOCK } else { 0 }),
            libc::F_SETFL => {
                socket.nonblock = argument as i32 & libc::O_NONBLOCK != 0;
                Ok(0)
            }
            libc::F_GETFD | libc::F_SETFD => Ok(0),
            _ => Err(libc::EINVAL),
        }
    }

    /// `ioctl` with the value that it stores.
    pub(crate) fn ioctl(&self, fd: i32, request: u64) -> Result<i32, Errno> {
        const SIOCINQ: u64 = libc::FIONREAD;
        const SIOCOUTQ: u64 = libc::TIOCOUTQ;
        const SIOCOUTQNSD: u64 = 0x894b;
        let mut state = self.lock();
        let id = state.conn(fd);
        if matches!(state.socket(fd)?.kind, Kind::Listening(..)) {
            return Err(libc::EINVAL);
        }
        let engine = state.engine();
        let value = match (request, id) {
            (SIOCINQ | SIOCOUTQ | SIOCOUTQNSD, Err(_)) => 0,
            (SIOCINQ, Ok(id)) => engine.readable_bytes(id),
            (SIOCOUTQ, Ok(id)) => engine.unsent_bytes(id),
            (SIOCOUTQNSD, Ok(id)) => engine.info(id).map_or(0, |i| i.notsent_bytes as usize),
            _ => return Err(libc::ENOTTY),
        };
        Ok(value.min(i32::MAX as usize) as i32)
    }

    pub(crate) fn epoll_create(&self, size: i32) -> Result<i32, Errno> {
        if size <= 0 {
            return Err(libc::EINVAL);
        }
        self.call(|state| {
            let fd = descriptor()?;
            state.epolls.insert(fd, Default::default());
            Ok(fd)
        })
    }

    /// Whether a descriptor is one of ours.
    pub(crate) fn has(&self, fd: i32) -> bool {
        let state = self.lock();
        state.sockets.contains_key(&fd) || state.epolls.contains_key(&fd)
    }
}
