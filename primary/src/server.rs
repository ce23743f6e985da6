//! The event loop: control connections, ends of processes, signals, and one tick a second.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use ff_control::{Connection, ControlError, Listener, PROTOCOL_VERSION, Refusal, Reply, Request};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signalfd::SignalFd;

use crate::clock::now_us;
use crate::instance::{Answer, RunningInstance};
use crate::watch::Watched;

/// Who an event is of: the upper half of its number.
const LISTENER: u64 = 1 << 32;
const SIGNALS: u64 = 2 << 32;
const PROCESS: u64 = 3 << 32;
const CONNECTION: u64 = 4 << 32;

/// Events taken at once.
const EVENTS_MAX: usize = 32;
/// Connections at once: workers of all generations, and people.
const CONNECTIONS_MAX: usize = 512;
/// A peer that does not read its answer is not waited for longer.
const SEND_LIMIT: Duration = Duration::from_millis(50);
/// Between two ticks.
const TICK_US: u64 = 1_000_000;

/// A request that is answered later.
struct Delayed {
    at_us: u64,
    connection: u32,
    request: Request,
}

/// Sockets and descriptors of the loop.
pub struct Server {
    epoll: Epoll,
    listener: Listener,
    signals: SignalFd,
    connections: HashMap<u32, Connection>,
    next_connection: u32,
    delayed: Vec<Delayed>,
    ends: bool,
}

impl Server {
    /// A loop over `listener` and the signals of `signals`, which are blocked in all threads.
    ///
    /// # Errors
    /// What `epoll` says.
    pub fn new(listener: Listener, signals: SignalFd) -> Result<Self, Errno> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        epoll.add(&signals, EpollEvent::new(EpollFlags::EPOLLIN, SIGNALS))?;
        Ok(Self {
            epoll,
            listener,
            signals,
            connections: HashMap::new(),
            next_connection: 0,
            delayed: Vec::new(),
            ends: false,
        })
    }

    /// Tells when `process` has ended.
    ///
    /// # Errors
    /// What `epoll` says.
    pub fn watch(&self, process: &Watched) -> Result<(), Errno> {
        self.epoll.add(process, EpollEvent::new(EpollFlags::EPOLLIN, PROCESS | u64::from(process.pid)))
    }

    /// The end of a connection, and of what it waited for.
    fn close(&mut self, connection: u32) {
        self.connections.remove(&connection);
        self.delayed.retain(|delayed| delayed.connection != connection);
    }

    fn accept(&mut self) {
        loop {
            match self.listener.accept() {
                Ok(Some(connection)) if self.connections.len() < CONNECTIONS_MAX => {
                    let id = self.next_connection;
                    self.next_connection = id.wrapping_add(1);
                    let event = EpollEvent::new(EpollFlags::EPOLLIN, CONNECTION | u64::from(id));
                    match self.epoll.add(connection.as_fd(), event) {
                        Ok(()) => drop(self.connections.insert(id, connection)),
                        Err(errno) => tracing::warn!("a control connection was turned away: {errno}"),
                    }
                }
                Ok(Some(_)) => {
                    tracing::warn!("more than {CONNECTIONS_MAX} control connections: one was turned away")
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!("a control connection was turned away: {error}");
                    return;
                }
            }
        }
    }

    fn wait(&mut self, events: &mut [EpollEvent], until_us: u64) -> Result<usize, Errno> {
        let left_us = until_us.saturating_sub(now_us());
        // Rounded up: otherwise the last fraction of a millisecond would be spun.
        let millis = u16::try_from(left_us.div_ceil(1_000)).unwrap_or(u16::MAX);
        match self.epoll.wait(events, EpollTimeout::from(millis)) {
            Err(Errno::EINTR) => Ok(0),
            other => other,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Whoever comes from now on is told that nothing runs.
        let _ = std::fs::remove_file(self.listener.path());
    }
}

/// Runs until a signal or a request ends it.
///
/// # Errors
/// When `epoll` fails, which it does only for want of memory.
pub fn serve(instance: &mut RunningInstance) -> Result<(), Errno> {
    let mut events = [EpollEvent::empty(); EVENTS_MAX];
    let mut tick_us = now_us();
    while !instance.server().ends {
        let now = now_us();
        if now >= tick_us {
            instance.tick();
            tick_us = now + TICK_US;
        }
        if now >= instance.look_us() {
            instance.look_for_ready();
        }
        answer_delayed(instance);
        let next_us = instance.server().delayed.iter().map(|delayed| delayed.at_us).min();
        let until_us = next_us.unwrap_or(tick_us).min(tick_us).min(instance.look_us());
        let count = instance.server().wait(&mut events, until_us)?;
        // Deaths first: they make room for who wants to attach.
        let numbers: Vec<u64> = events[..count].iter().map(EpollEvent::data).collect();
        for number in numbers.iter().filter(|number| **number >> 32 == PROCESS >> 32) {
            instance.ended(*number as u32);
        }
        for number in numbers {
            match number & !u64::from(u32::MAX) {
                LISTENER => instance.server().accept(),
                SIGNALS => take_signals(instance.server()),
                CONNECTION => read(instance, number as u32),
                _ => {}
            }
        }
    }
    Ok(())
}

fn take_signals(server: &mut Server) {
    while let Ok(Some(signal)) = server.signals.read_signal() {
        match i32::try_from(signal.ssi_signo) {
            Ok(nix::libc::SIGHUP) => {
                tracing::info!("SIGHUP has no meaning for the primary: nginx's master is reloaded, not this");
            }
            _ => {
                tracing::info!("ended by signal {} of process {}", signal.ssi_signo, signal.ssi_pid);
                server.ends = true;
            }
        }
    }
}

fn answer_delayed(instance: &mut RunningInstance) {
    let now = now_us();
    let delayed = std::mem::take(&mut instance.server().delayed);
    let (due, later) = delayed.into_iter().partition::<Vec<_>, _>(|delayed| delayed.at_us <= now);
    instance.server().delayed = later;
    for Delayed { connection, request, .. } in due {
        answer(instance, connection, request);
    }
}

fn read(instance: &mut RunningInstance, id: u32) {
    loop {
        let Some(connection) = instance.server().connections.get_mut(&id) else { return };
        match connection.try_recv::<Request>() {
            Ok(Some(request)) => answer(instance, id, request),
            Ok(None) => return,
            Err(ControlError::Malformed(error)) => {
                let reason =
                    format!("the request was not understood ({error}): use ffctl of the same version");
                send(instance, id, &Reply::Refused(Refusal { code: "malformed".into(), reason }), None);
            }
            Err(_) => {
                instance.server().close(id);
                return;
            }
        }
    }
}

fn answer(instance: &mut RunningInstance, id: u32, request: Request) {
    // Closed here once it was sent: the worker has its own.
    let mut own = None;
    let reply = match &request {
        Request::Status => {
            instance.take_deaths();
            Reply::Status(Box::new(instance.status()))
        }
        Request::Attach { protocol, pid, .. } | Request::AttachClient { protocol, pid } => {
            let peer =
                instance.server().connections.get(&id).and_then(|connection| connection.peer_pid().ok());
            match refuse_stranger(*protocol, *pid, peer) {
                Some(refusal) => Reply::Refused(refusal),
                None => match attach(instance, &request) {
                    Answer::Refused(refusal) => Reply::Refused(refusal),
                    Answer::Plan(plan, sender) => {
                        own = sender;
                        Reply::Plan(plan)
                    }
                    Answer::Later { at_us } => {
                        instance.server().delayed.push(Delayed { at_us, connection: id, request });
                        return;
                    }
                },
            }
        }
        Request::AttachFailed { pid, reason } => {
            instance.attach_failed(*pid, reason);
            Reply::Ok
        }
        Request::Ready { .. } => {
            instance.look_for_ready();
            Reply::Ok
        }
        Request::ReloadFailed { master_pid } => {
            instance.reload_failed(*master_pid);
            Reply::Ok
        }
        Request::MayReload { workers } => match instance.may_reload(*workers) {
            Ok(()) => Reply::Ok,
            Err(refusal) => Reply::Refused(refusal),
        },
        Request::Shutdown { force } => {
            instance.take_deaths();
            let living = instance.living_pids();
            if living.is_empty() || *force {
                tracing::info!("told to end");
                instance.server().ends = true;
                Reply::Ok
            } else {
                let reason = format!("workers {living:?} live: end nginx first, or use ffctl stop");
                Reply::Refused(Refusal { code: "workers_alive".into(), reason })
            }
        }
    };
    send(instance, id, &reply, own.as_ref());
}

fn attach(instance: &mut RunningInstance, request: &Request) -> Answer {
    match *request {
        Request::Attach { pid, master_pid, configuration, .. } => {
            instance.attach(pid, master_pid, configuration)
        }
        Request::AttachClient { pid, .. } => instance.attach_client(pid),
        _ => Answer::Refused(Refusal { code: "malformed".into(), reason: "this does not attach".into() }),
    }
}

fn refuse_stranger(protocol: u32, pid: u32, peer: Option<u32>) -> Option<Refusal> {
    if protocol != PROTOCOL_VERSION {
        let reason = format!(
            "the library speaks version {protocol} of the control protocol and the primary {PROTOCOL_VERSION}: start \
             the instance anew with programs of one version"
        );
        return Some(Refusal { code: "protocol".into(), reason });
    }
    if peer != Some(pid) {
        let reason = format!("process {} cannot attach for process {pid}", peer.unwrap_or(0));
        return Some(Refusal { code: "peer".into(), reason });
    }
    None
}

fn send(instance: &mut RunningInstance, id: u32, reply: &Reply, own: Option<&OwnedFd>) {
    let Some(mut connection) = instance.server().connections.remove(&id) else { return };
    let descriptors: Vec<BorrowedFd<'_>> = match reply {
        Reply::Plan(_) => instance.descriptors().chain(own.map(AsFd::as_fd)).collect(),
        _ => Vec::new(),
    };
    match connection.send_with_fds(reply, &descriptors, SEND_LIMIT) {
        Ok(()) => drop(instance.server().connections.insert(id, connection)),
        Err(error) => {
            // It is gone, or does not read; a worker that never got its plan is followed up on by its death.
            tracing::debug!("an answer was not taken: {error}");
            instance.server().close(id);
        }
    }
}
