//! read, recv, write, send and their vectored forms, on streams and connected datagram sockets.

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;

use ff_dataplane::sockets::{Domain, Kind, Received, SockError, SocketId};

use super::establish::decide_for_peer;
use super::{Direction, attempt};
use crate::description::State;
use crate::failure::{Failure, Outcome, fail};
use crate::process::{self, Process};
use crate::stack::WorkerStack;
use crate::table;

/// Flags of recv that change nothing here.
const RECV_IGNORED: i32 = libc::MSG_NOSIGNAL | libc::MSG_CMSG_CLOEXEC | libc::MSG_WAITFORONE;
/// Flags of send that change nothing here; MSG_MORE is a hint, and Nagle's rule sees the next write in time.
const SEND_IGNORED: i32 =
    libc::MSG_NOSIGNAL | libc::MSG_MORE | libc::MSG_CONFIRM | libc::MSG_EOR | libc::MSG_DONTROUTE;

/// The kind and family of a socket of ours.
fn kind_of(fd: RawFd) -> Outcome<(Kind, Domain, State)> {
    let mut process = process::lock();
    let description = process.description(fd)?.1;
    Ok((description.kind, description.domain, description.state))
}

/// Makes a call on an open stream at once, with the lock taken a single time: what nearly all calls are. `None` when
/// the socket is something else, or a blocking descriptor has to wait, or, with `whole`, is one at all: then the long
/// way is gone.
fn at_once<T>(
    fd: RawFd,
    dont_wait: bool,
    whole: bool,
    call: impl FnOnce(&mut dyn WorkerStack, SocketId) -> Result<T, SockError>,
) -> Option<Outcome<T>> {
    let mut process = process::lock();
    let index = table::socket(fd)?;
    let Process { descriptions, stack, .. } = &mut *process;
    let description = descriptions.get(index as usize)?;
    let (State::Open(socket), Kind::Stream, Some(stack)) = (description.state, description.kind, stack)
    else {
        return None;
    };
    let waits = !dont_wait && !description.nonblocking;
    if whole && waits {
        return None;
    }
    match call(&mut *stack.0, socket) {
        Err(SockError::WouldBlock) if waits => None,
        result => {
            if !process.sleepers.is_empty() {
                process.wake_sleepers();
            }
            Some(result.map_err(Failure::from))
        }
    }
}

/// What a receive gave.
#[derive(Clone, Copy, Debug)]
pub struct Got {
    /// What the call returns.
    pub len: usize,
    /// Of a datagram: who sent it, to which address, and its whole length.
    pub datagram: Option<Received>,
    /// The socket's family, in which addresses are told.
    pub domain: Domain,
}

/// Receives into `bufs`.
///
/// # Errors
/// As `recv(2)`; `Kernel` when the real call is to be made.
pub fn receive(fd: RawFd, bufs: &mut [IoSliceMut<'_>], flags: i32) -> Outcome<Got> {
    let dont_wait = flags & libc::MSG_DONTWAIT != 0;
    let peek = flags & libc::MSG_PEEK != 0;
    let known = RECV_IGNORED | libc::MSG_DONTWAIT | libc::MSG_PEEK | libc::MSG_WAITALL | libc::MSG_TRUNC;
    if flags & libc::MSG_ERRQUEUE != 0 {
        return fail(libc::EAGAIN);
    }
    if flags & libc::MSG_OOB != 0 {
        return fail(libc::EINVAL);
    }
    if flags & !known != 0 {
        return fail(libc::EOPNOTSUPP);
    }
    if let ([buf], 0) = (&mut *bufs, flags & (libc::MSG_WAITALL | libc::MSG_TRUNC))
        && let Some(result) = at_once(fd, dont_wait, false, |stack, socket| stack.recv(socket, buf, peek))
    {
        // The family matters for datagrams' addresses only.
        return Ok(Got { len: result?, datagram: None, domain: Domain::Ipv4 });
    }
    let (kind, domain, state) = kind_of(fd)?;
    match (state, kind) {
        (State::Bound(_) | State::Listening { .. }, Kind::Stream) => return fail(libc::ENOTCONN),
        (State::Bound(_), Kind::Datagram) => decide_for_peer(fd, None)?,
        _ => {}
    }
    if kind == Kind::Datagram {
        let received =
            attempt(fd, dont_wait, Direction::Receive, |stack, socket| stack.recv_from(socket, bufs, peek))?;
        let len = if flags & libc::MSG_TRUNC != 0 { received.full_len } else { received.len };
        return Ok(Got { len, datagram: Some(received), domain });
    }
    if flags & libc::MSG_WAITALL != 0 && !peek && !dont_wait {
        let len = receive_all(fd, bufs)?;
        return Ok(Got { len, datagram: None, domain });
    }
    let len = match bufs {
        [buf] => attempt(fd, dont_wait, Direction::Receive, |stack, socket| stack.recv(socket, buf, peek)),
        bufs => attempt(fd, dont_wait, Direction::Receive, |stack, socket| {
            stack.recv_vectored(socket, bufs, peek)
        }),
    }?;
    Ok(Got { len, datagram: None, domain })
}

/// MSG_WAITALL on a stream: until everything is there, the end, or an error after the first byte.
fn receive_all(fd: RawFd, bufs: &mut [IoSliceMut<'_>]) -> Outcome<usize> {
    let mut total = 0;
    for buf in bufs {
        let mut filled = 0;
        while filled < buf.len() {
            let rest = &mut buf[filled..];
            match attempt(fd, false, Direction::Receive, |stack, socket| stack.recv(socket, rest, false)) {
                Ok(0) => return Ok(total),
                Ok(len) => {
                    filled += len;
                    total += len;
                }
                Err(failure) if total == 0 => return Err(failure),
                Err(_) => return Ok(total),
            }
        }
    }
    Ok(total)
}

/// Sends `bufs`; `to` and `source` are for datagrams.
///
/// # Errors
/// As `send(2)`; `Kernel` when the real call is to be made.
pub fn transmit(
    fd: RawFd,
    bufs: &[IoSlice<'_>],
    flags: i32,
    to: Option<SocketAddr>,
    source: Option<IpAddr>,
) -> Outcome<usize> {
    let dont_wait = flags & libc::MSG_DONTWAIT != 0;
    if flags & !(SEND_IGNORED | libc::MSG_DONTWAIT) != 0 {
        // MSG_OOB, MSG_FASTOPEN, MSG_ZEROCOPY.
        return fail(libc::EOPNOTSUPP);
    }
    let sent = at_once(fd, dont_wait, true, |stack, socket| match bufs {
        [buf] => stack.send(socket, buf),
        bufs => stack.send_vectored(socket, bufs),
    });
    if let Some(sent) = sent {
        return broken(sent, flags);
    }
    let (kind, _, state) = kind_of(fd)?;
    if kind == Kind::Datagram {
        if !matches!(state, State::Open(_)) {
            decide_for_peer(fd, to)?;
        }
        return attempt(fd, dont_wait, Direction::Send, |stack, socket| {
            stack.send_to(socket, bufs, to, source)
        });
    }
    if matches!(state, State::Bound(_) | State::Listening { .. }) {
        return broken(fail(libc::EPIPE), flags);
    }
    let sent = send_stream(fd, bufs, dont_wait);
    broken(sent, flags)
}

/// A blocking stream takes everything before it returns; a non-blocking one what there is room for.
fn send_stream(fd: RawFd, bufs: &[IoSlice<'_>], dont_wait: bool) -> Outcome<usize> {
    let whole: usize = bufs.iter().map(|buf| buf.len()).sum();
    let mut sent = match bufs {
        [buf] => attempt(fd, dont_wait, Direction::Send, |stack, socket| stack.send(socket, buf)),
        bufs => attempt(fd, dont_wait, Direction::Send, |stack, socket| stack.send_vectored(socket, bufs)),
    }?;
    if sent == whole || dont_wait || process::lock().description(fd)?.1.nonblocking {
        return Ok(sent);
    }
    let mut skip = sent;
    for buf in bufs {
        if skip >= buf.len() {
            skip -= buf.len();
            continue;
        }
        let mut rest = &buf[skip..];
        skip = 0;
        while !rest.is_empty() {
            match attempt(fd, false, Direction::Send, |stack, socket| stack.send(socket, rest)) {
                Ok(len) => {
                    sent += len;
                    rest = &rest[len..];
                }
                // What was taken is told; the error comes with the next call.
                Err(_) => return Ok(sent),
            }
        }
    }
    Ok(sent)
}

/// EPIPE comes with SIGPIPE, unless the caller does not want it.
fn broken<T>(result: Outcome<T>, flags: i32) -> Outcome<T> {
    if matches!(result, Err(Failure::Errno(libc::EPIPE))) && flags & libc::MSG_NOSIGNAL == 0 {
        // SAFETY: raising a signal on this thread has no preconditions.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGPIPE) };
    }
    result
}
