//! socket, bind, listen, accept, connect, shutdown, and the two addresses.
//!
//! A socket begins as the kernel's own, and its fate is decided when an address comes into play: one that the
//! configuration leaves to the kernel makes it the kernel's for good, any other makes it ours. In a process
//! without a stack "ours" is only recorded, and opened when the process attaches.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;

use ff_dataplane::sockets::{
    Domain, Kind, Readiness, Shutdown, SockError, SockOptName, SockOptValue, SocketId,
};

use super::{Direction, attempt};
use crate::address::Given;
use crate::attach;
use crate::description::{Description, State};
use crate::environment::{self, AttachWhen};
use crate::failure::{Failure, Outcome, fail};
use crate::log::{self, Level};
use crate::options::{self, Setting};
use crate::process::{self, Process, Role};
use crate::stack::WorkerStack;
use crate::table::{self, Entry};
use crate::{real, waiting};

/// Notes a socket that the application made: `fd` is the kernel's socket beneath.
pub fn socket(fd: RawFd, domain: Domain, kind: Kind, nonblocking: bool) {
    if table::fits(fd) {
        process::lock().insert(fd, Description::new(domain, kind, nonblocking), false);
    }
}

/// Whether an address of this kind stays with the kernel.
fn keeps(process: &Process, kind: Kind, address: SocketAddr) -> bool {
    match kind {
        Kind::Stream => process.kernel.keeps_tcp(address),
        Kind::Datagram => process.kernel.keeps_udp(address),
    }
}

/// Whether the family of an address goes with a socket: AF_INET6 sockets take v4-mapped addresses, no AF_INET.
fn fits_domain(domain: Domain, address: SocketAddr) -> bool {
    match domain {
        Domain::Ipv4 => address.is_ipv4(),
        Domain::Ipv6 => address.is_ipv6(),
    }
}

fn unspecified(domain: Domain) -> SocketAddr {
    match domain {
        Domain::Ipv4 => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        Domain::Ipv6 => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    }
}

/// Leaves an undecided socket to the kernel: its watches move into the kernel's epoll sets.
fn leave_to_kernel(process: &mut Process, index: u32, fd: RawFd) {
    let Some(description) = process.descriptions.try_remove(index as usize) else { return };
    for watch in &description.watches {
        let (Some(mut event), Some(epfd)) =
            (process.sets.event_of(watch), process.sets.get(watch.set).map(|set| set.epfd))
        else {
            continue;
        };
        // SAFETY: `event` lives through the call.
        unsafe { real::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, watch.fd, &mut event) };
    }
    process.sets.forget(&description.watches);
    table::set(fd, None);
    if description.descriptors > 1 {
        let others: Vec<RawFd> = table::range(0, table::DESCRIPTORS_MAX as RawFd)
            .filter(|(_, entry)| matches!(entry, Entry::Socket { description, .. } if *description == index))
            .map(|(fd, _)| fd)
            .collect();
        for fd in others {
            table::set(fd, None);
        }
    }
}

/// Makes the stack's socket for a description, with the options that were recorded; binds and listens as it was
/// recorded.
///
/// # Errors
/// What the stack says to bind or listen. An option that the stack refuses is logged: the kernel accepted it
/// when it was recorded, so the application cannot be told any more.
pub fn open(process: &mut Process, index: u32) -> Result<SocketId, SockError> {
    let (Some(stack), Some(description)) = (&mut process.stack, process.descriptions.get_mut(index as usize))
    else {
        return Err(SockError::BadSocket);
    };
    let stack = &mut *stack.0;
    let socket = stack.socket(description.domain, description.kind)?;
    stack.set_user(socket, u64::from(index) + 1);
    for (level, name, value) in &description.options {
        let result = match options::parse(*level, *name, value) {
            Ok(Setting::Stack(option)) => stack.set_option(socket, option).map_err(Failure::from),
            Ok(_) => Ok(()),
            Err(failure) => Err(failure),
        };
        if let Err(failure) = result {
            option_refused(*level, *name, failure);
        }
    }
    let result = match description.state {
        State::Bound(address) => stack.bind(socket, address),
        State::Listening { address, backlog } => {
            stack.bind(socket, address).and_then(|()| stack.listen(socket, backlog))
        }
        State::Undecided | State::Open(_) | State::Lost | State::Moved => Ok(()),
    };
    match result {
        Ok(()) => {
            description.listens = matches!(description.state, State::Listening { .. });
            description.state = State::Open(socket);
            description.options = Vec::new();
            Ok(socket)
        }
        Err(error) => {
            let _ = stack.close(socket);
            Err(error)
        }
    }
}

/// Logs, once, that an option has no effect.
pub fn option_refused(level: i32, name: i32, failure: Failure) {
    let errno = match failure {
        Failure::Errno(errno) => errno,
        Failure::Kernel => 0,
    };
    log::once(
        log::key(1, (level as u32) << 16 ^ name as u32),
        Level::Warn,
        format_args!(
            "socket option {name} of level {level} is not supported (errno {errno}): it has no effect"
        ),
    );
}

/// `bind`.
///
/// # Errors
/// As `bind(2)`; `Kernel` when the real call is to be made.
pub fn bind(fd: RawFd, given: Given) -> Outcome<()> {
    let mut process = process::lock();
    let (index, description) = process.description(fd)?;
    let (domain, kind, state) = (description.domain, description.kind, description.state);
    let address = match given {
        Given::Inet(address) if fits_domain(domain, address) => address,
        // The kernel's bind has the exact errno for these.
        _ => return Err(Failure::Kernel),
    };
    match state {
        State::Lost | State::Moved => fail(libc::EBADF),
        State::Bound(_) | State::Listening { .. } => fail(libc::EINVAL),
        State::Open(socket) => match &mut process.stack {
            Some(stack) => Ok(stack.0.bind(socket, address)?),
            None => fail(libc::EBADF),
        },
        // Any address and any port says nothing yet: the socket may go on to connect anywhere.
        State::Undecided if address.ip().is_unspecified() && address.port() == 0 => Err(Failure::Kernel),
        State::Undecided if keeps(&process, kind, address) => {
            leave_to_kernel(&mut process, index, fd);
            Err(Failure::Kernel)
        }
        State::Undecided if process.stack.is_some() => {
            let socket = open(&mut process, index)?;
            let bound = match &mut process.stack {
                Some(stack) => stack.0.bind(socket, address),
                None => Err(SockError::BadSocket),
            };
            // A failed bind leaves a fresh socket of the stack, which the application may bind elsewhere.
            Ok(bound?)
        }
        State::Undecided => {
            let this = &process.descriptions[index as usize];
            if process.descriptions.iter().any(|(_, other)| this.conflicts_with(address, other)) {
                return fail(libc::EADDRINUSE);
            }
            process.descriptions[index as usize].state = State::Bound(address);
            Ok(())
        }
    }
}

/// `listen`.
///
/// # Errors
/// As `listen(2)`; `Kernel` when the real call is to be made.
pub fn listen(fd: RawFd, backlog: i32) -> Outcome<()> {
    if process::role() != Role::Worker
        && environment::get().is_some_and(|environment| environment.attach == AttachWhen::Listen)
    {
        attach::attach_here();
    }
    let mut process = process::lock();
    let (index, description) = process.description(fd)?;
    let (domain, kind, state) = (description.domain, description.kind, description.state);
    if kind != Kind::Stream {
        return fail(libc::EOPNOTSUPP);
    }
    match state {
        State::Lost | State::Moved => fail(libc::EBADF),
        State::Listening { address, .. } => {
            process.descriptions[index as usize].state = State::Listening { address, backlog };
            Ok(())
        }
        State::Undecided | State::Bound(_) if process.stack.is_none() => {
            let address = match state {
                State::Bound(address) => address,
                _ => unspecified(domain),
            };
            let this = &process.descriptions[index as usize];
            let taken = process.descriptions.iter().any(|(i, other)| {
                i != index as usize
                    && matches!(other.state, State::Listening { .. })
                    && this.conflicts_with(address, other)
            });
            if taken {
                return fail(libc::EADDRINUSE);
            }
            process.descriptions[index as usize].state = State::Listening { address, backlog };
            drop(process);
            attach::prepare();
            Ok(())
        }
        State::Open(_) | State::Undecided | State::Bound(_) => {
            let socket = match state {
                State::Open(socket) => socket,
                _ => open(&mut process, index)?,
            };
            match &mut process.stack {
                Some(stack) => stack.0.listen(socket, backlog)?,
                None => return fail(libc::EBADF),
            }
            process.description(fd)?.1.listens = true;
            Ok(())
        }
    }
}

/// An accepted connection.
#[derive(Clone, Copy, Debug)]
pub struct Accepted {
    /// Its descriptor.
    pub fd: RawFd,
    /// The peer.
    pub peer: SocketAddr,
    /// The listener's family, which is how the peer's address is told.
    pub domain: Domain,
}

/// `accept4`.
///
/// # Errors
/// As `accept4(2)`; `Kernel` when the real call is to be made.
pub fn accept(fd: RawFd, flags: i32) -> Outcome<Accepted> {
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return fail(libc::EINVAL);
    }
    let once = |process: &mut Process| -> Outcome<Accepted> {
        let description = process.description(fd)?.1;
        let (domain, kind) = (description.domain, description.kind);
        match description.state {
            State::Open(_) => {}
            State::Lost | State::Moved => return fail(libc::EBADF),
            State::Listening { .. } if description.nonblocking => return fail(libc::EAGAIN),
            State::Listening { .. } => return fail(libc::EINVAL),
            State::Undecided | State::Bound(_) => return Err(Failure::Kernel),
        }
        // The number first: a connection that cannot get one stays in the queue, as with the kernel.
        let number = process.placeholders.take()?;
        let (stack, listener) = process.open_socket(fd)?;
        let (connection, peer) = match stack.accept(listener) {
            Ok(accepted) => accepted,
            Err(error) => {
                process.placeholders.give(number);
                return Err(error.into());
            }
        };
        let mut description = Description::new(domain, kind, flags & libc::SOCK_NONBLOCK != 0);
        description.state = State::Open(connection);
        description.cloexec = flags & libc::SOCK_CLOEXEC != 0;
        let index = process.insert(number, description, true);
        if let Some(stack) = &mut process.stack {
            stack.0.set_user(connection, u64::from(index) + 1);
        }
        Ok(Accepted { fd: number, peer, domain })
    };
    let mut process = process::lock();
    match once(&mut process) {
        Err(Failure::Errno(libc::EAGAIN)) => {}
        result => return result,
    }
    let description = process.description(fd)?.1;
    if description.nonblocking {
        return fail(libc::EAGAIN);
    }
    let timeout_us = description.receive_timeout_us;
    drop(process);
    waiting::block_on(timeout_us, |process| once(process))
}

/// `connect`.
///
/// # Errors
/// As `connect(2)`; `Kernel` when the real call is to be made.
pub fn connect(fd: RawFd, given: Given) -> Outcome<()> {
    let mut process = process::lock();
    let (index, description) = process.description(fd)?;
    let (domain, kind, nonblocking) = (description.domain, description.kind, description.nonblocking);
    let state = description.state;
    let timeout_us = description.send_timeout_us;
    let peer = match given {
        Given::Inet(peer) if fits_domain(domain, peer) => peer,
        _ if state == State::Undecided => return Err(Failure::Kernel),
        Given::Inet(_) => return fail(libc::EAFNOSUPPORT),
        Given::Unspecified => return fail(libc::EOPNOTSUPP),
    };
    let socket = match state {
        State::Lost | State::Moved => return fail(libc::EBADF),
        State::Listening { .. } => return fail(libc::EISCONN),
        State::Open(socket) => socket,
        // "Any" as a destination is this host, by way of loopback.
        State::Undecided if peer.ip().is_unspecified() || keeps(&process, kind, peer) => {
            leave_to_kernel(&mut process, index, fd);
            return Err(Failure::Kernel);
        }
        State::Undecided | State::Bound(_) if process.stack.is_none() => return no_stack(peer),
        State::Undecided | State::Bound(_) => open(&mut process, index)?,
    };
    let (stack, _) = process.open_socket(fd)?;
    let result = stack.connect(socket, peer);
    if !process.sleepers.is_empty() {
        process.wake_sleepers();
    }
    match result {
        Err(SockError::InProgress) if !nonblocking => {
            drop(process);
            finish_connect(fd, timeout_us)
        }
        result => Ok(result?),
    }
}

fn no_stack<T>(peer: SocketAddr) -> Outcome<T> {
    log::once(
        log::key(2, 0),
        Level::Warn,
        format_args!(
            "connect to {peer} refused: this process has no stack; what it may reach through the kernel is in the \
             [kernel] section of f-stack.conf"
        ),
    );
    fail(libc::ENETUNREACH)
}

/// Waits until a handshake is over.
fn finish_connect(fd: RawFd, timeout_us: u64) -> Outcome<()> {
    let result = waiting::block_on(timeout_us, |process| {
        let (stack, socket) = process.open_socket(fd)?;
        let over = Readiness::WRITABLE | Readiness::ERR | Readiness::HUP;
        if !stack.readiness(socket).intersects(over) {
            return fail(libc::EAGAIN);
        }
        match stack.option(socket, SockOptName::Error)? {
            SockOptValue::Int(0) => Ok(()),
            SockOptValue::Int(errno) => fail(errno),
            _ => Ok(()),
        }
    });
    match result {
        // A send time-out in connect is reported so by Linux.
        Err(Failure::Errno(libc::EAGAIN)) => fail(libc::EINPROGRESS),
        result => result,
    }
}

/// A datagram socket is about to send to `peer`: decides its fate.
///
/// # Errors
/// `Kernel` when it is the kernel's from now on.
pub fn decide_for_peer(fd: RawFd, peer: Option<SocketAddr>) -> Outcome<()> {
    let mut process = process::lock();
    let (index, description) = process.description(fd)?;
    let (domain, kind, state) = (description.domain, description.kind, description.state);
    match (state, peer) {
        (State::Open(_), _) => Ok(()),
        (State::Lost | State::Moved, _) => fail(libc::EBADF),
        (State::Undecided, None) => Err(Failure::Kernel),
        (State::Undecided, Some(peer))
            if kind == Kind::Stream
                || !fits_domain(domain, peer)
                || peer.ip().is_unspecified()
                || keeps(&process, kind, peer) =>
        {
            if kind == Kind::Datagram && fits_domain(domain, peer) {
                leave_to_kernel(&mut process, index, fd);
            }
            Err(Failure::Kernel)
        }
        _ if process.stack.is_none() => match peer {
            Some(peer) => no_stack(peer),
            None => fail(libc::ENOTCONN),
        },
        _ => {
            open(&mut process, index)?;
            Ok(())
        }
    }
}

/// `shutdown`.
///
/// # Errors
/// As `shutdown(2)`; `Kernel` when the real call is to be made.
pub fn shutdown(fd: RawFd, how: i32) -> Outcome<()> {
    let how = match how {
        libc::SHUT_RD => Shutdown::Read,
        libc::SHUT_WR => Shutdown::Write,
        libc::SHUT_RDWR => Shutdown::Both,
        _ => return fail(libc::EINVAL),
    };
    attempt(fd, true, Direction::Send, |stack, socket| stack.shutdown(socket, how))
}

/// Which end of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// `getsockname`.
    Local,
    /// `getpeername`.
    Peer,
}

/// `getsockname` and `getpeername`: the address and the family in which it is told.
///
/// # Errors
/// ENOTCONN, EBADF; `Kernel` when the real call is to be made.
pub fn address(fd: RawFd, end: End) -> Outcome<(SocketAddr, Domain)> {
    let mut process = process::lock();
    let description = process.description(fd)?.1;
    let domain = description.domain;
    if let Some(address) = description.recorded_address() {
        return match end {
            End::Local => Ok((address, domain)),
            End::Peer => fail(libc::ENOTCONN),
        };
    }
    let (stack, socket): (&mut dyn WorkerStack, _) = process.open_socket(fd)?;
    let address = match end {
        End::Local => stack.local_addr(socket)?,
        End::Peer => stack.peer_addr(socket)?,
    };
    Ok((address, domain))
}
