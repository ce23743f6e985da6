//! The stack as packetdrill sees it: sockets, the wire, and the clock.
//!
//! packetdrill runs a script's calls on its main thread, and those that the script says will block on a second
//! one. Virtual time stands still while either of them runs: before the clock moves, the main thread waits until
//! a blocked call has looked at the newest state, and until one that returns has read the clock.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use ff_flowmap::HeapIndex;
use ff_tcp::{ConnId, Engine, Instant, ListenerId, Secrets, SocketOptions, SocketRef};

use crate::frames::{self, Incoming};
use crate::poll::Epoll;
use crate::settings::{Flags, Settings};

/// Where the clock begins: some engine fields take 0 for "never".
const START_US: u64 = 1_000_000_000;
/// Virtual time after which a packet or an event that does not come is given up.
const PATIENCE_US: u64 = 300_000_000;
/// Real time that one thread waits for the other; only a defect makes it pass.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// The largest IP packet, and room for the header before the engine's segment.
const FRAME_BYTES_MAX: usize = 65_535;

/// How often the second thread asks for the time before it moves the clock itself.
const QUESTIONS_MAX: u32 = 200;

/// What a call fails with.
pub(crate) type Errno = i32;

/// A socket of the script.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) v6: bool,
    pub(crate) v6_only: bool,
    pub(crate) nonblock: bool,
    pub(crate) kind: Kind,
    pub(crate) local: Option<SocketAddr>,
    /// The first `connect` that finds the connection open says so; later ones fail.
    pub(crate) connect_told: bool,
    pub(crate) options: SocketOptions,
    pub(crate) defer_accept_s: u32,
    pub(crate) tos: u8,
    /// TCP_INQ: `recvmsg` says what is left.
    pub(crate) inq: bool,
    /// MSG_MORE of the last send holds the tail back.
    pub(crate) more: bool,
    pub(crate) rcv_timeout_us: u64,
    pub(crate) snd_timeout_us: u64,
    /// Options that are kept for `getsockopt` and mean nothing here.
    pub(crate) kept: BTreeMap<(i32, i32), i32>,
}

/// What a socket is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Neither listening nor connected.
    Fresh,
    /// `listen` was called; the backlog is as it was given.
    Listening(ListenerId, u32),
    /// `connect` was called, or `accept` made it.
    Conn(ConnId),
}

/// All that both threads share.
pub(crate) struct State {
    pub(crate) now_us: u64,
    flags: Flags,
    settings: Option<Settings>,
    engine: Option<Engine<HeapIndex>>,
    /// Packets that have left and that the script has not looked at, with their time.
    frames: VecDeque<(u64, Vec<u8>)>,
    pub(crate) sockets: BTreeMap<i32, Socket>,
    pub(crate) epolls: BTreeMap<i32, Epoll>,
    next_port: u16,
    buf: Vec<u8>,
    /// Grows with each change that a blocked call might wait for.
    version: u64,
    /// The second thread's call that waits: the version it has seen, and its deadline.
    blocked: Option<(u64, Option<u64>)>,
    /// The time that the second thread was told last, and how often in a row.
    asked: (u64, u32),
    /// The second thread is on its way out of a call and has not read the clock yet.
    returning: Option<ThreadId>,
}

/// The stack.
pub(crate) struct World {
    state: Mutex<State>,
    changed: Condvar,
    main: ThreadId,
}

impl State {
    pub(crate) fn now(&self) -> Instant {
        Instant(self.now_us)
    }

    /// The settings, read from the namespace when they are first asked for.
    pub(crate) fn settings(&mut self) -> &Settings {
        self.settings.get_or_insert_with(|| Settings::of_namespace(&self.flags))
    }

    pub(crate) fn engine(&mut self) -> &mut Engine<HeapIndex> {
        if self.engine.is_none() {
            let config = self.settings().engine.clone();
            let secrets = Secrets { isn: [1; 16], timestamp: [2; 16], cookie: [3; 16] };
            self.engine = Some(Engine::new(config, secrets, HeapIndex::new([7; 16])));
        }
        match &mut self.engine {
            Some(engine) => engine,
            None => unreachable!("made above"),
        }
    }

    /// The source of a connection to `remote` that was not bound.
    pub(crate) fn source(&mut self, remote: SocketAddr) -> Option<SocketAddr> {
        let ip = self.flags.local.filter(|ip| ip.is_ipv4() == remote.is_ipv4())?;
        self.next_port = self.next_port.wrapping_add(1).max(32_768);
        Some(SocketAddr::new(ip, self.next_port))
    }

    /// Takes what the engine has to send and to say.
    pub(crate) fn pump(&mut self) {
        self.version += 1;
        let now = self.now();
        let Some(engine) = &mut self.engine else { return };
        let mut buf = std::mem::take(&mut self.buf);
        buf.resize(FRAME_BYTES_MAX, 0);
        // The segment's place depends on its family, which is known afterwards.
        while let Some(t) = engine.poll_transmit(now, &mut buf[..FRAME_BYTES_MAX - 40]) {
            let header = frames::header_bytes(&t.remote());
            let mut packet = vec![0; header + t.len];
            packet[header..].copy_from_slice(&buf[..t.len]);
            let tos = self.sockets.values().find(|s| match s.kind {
                Kind::Conn(id) => engine.remote_addr(id) == Some(t.remote()),
                _ => false,
            });
            frames::finish(&mut packet, &t, tos.map_or(0, |s| s.tos));
            self.frames.push_back((now.0, packet));
        }
        self.buf = buf;
        while let Some(event) = engine.poll_event() {
            let fd = self.sockets.iter().find(|(_, s)| match (event.socket, s.kind) {
                (SocketRef::Conn(a), Kind::Conn(b)) => a == b,
                (SocketRef::Listener(a), Kind::Listening(b, _)) => a == b,
                _ => false,
            });
            if let Some((&fd, _)) = fd {
                for epoll in self.epolls.values_mut() {
                    epoll.on_edge(fd, event.edges);
                }
            }
        }
    }

    /// When something happens by itself next.
    fn next_us(&self) -> Option<u64> {
        let engine = self.engine.as_ref().and_then(|e| e.next_deadline()).map(|t| t.0);
        let blocked = self.blocked.and_then(|b| b.1);
        [engine, blocked].into_iter().flatten().min()
    }

    fn run_timers(&mut self) {
        let now = self.now();
        if let Some(engine) = &mut self.engine
            && engine.next_deadline().is_some_and(|at| at <= now)
        {
            engine.on_deadline(now);
        }
        self.pump();
    }
}

impl World {
    pub(crate) fn new(flags: &str) -> Self {
        let state = State {
            now_us: START_US,
            flags: Flags::parse(flags),
            settings: None,
            engine: None,
            frames: VecDeque::new(),
            sockets: BTreeMap::new(),
            epolls: BTreeMap::new(),
            next_port: 40_000,
            buf: Vec::new(),
            version: 0,
            blocked: None,
            asked: (0, 0),
            returning: None,
        };
        Self { state: Mutex::new(state), changed: Condvar::new(), main: std::thread::current().id() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call that does not block: runs it, and lets happen what follows at once.
    pub(crate) fn call<T>(&self, run: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = run(&mut state);
        state.pump();
        drop(self.settle(state));
        result
    }

    /// A call that may block. `attempt` says `None` when it has to wait; `timeout_us` is from now.
    pub(crate) fn blocking<T>(
        &self,
        nonblock: bool,
        timeout_us: Option<u64>,
        mut attempt: impl FnMut(&mut State) -> Option<Result<T, Errno>>,
    ) -> Result<T, Errno> {
        let mut state = self.lock();
        let start = state.now_us;
        let deadline = timeout_us.map(|us| start.saturating_add(us));
        let main = std::thread::current().id() == self.main;
        loop {
            let result = attempt(&mut state);
            state.pump();
            let result = match result {
                Some(result) => Some(result),
                None if nonblock || deadline.is_some_and(|d| d <= state.now_us) => Some(Err(libc::EAGAIN)),
                None => None,
            };
            if let Some(result) = result {
                if main {
                    drop(self.settle(state));
                } else {
                    if state.blocked.take().is_some() {
                        state.returning = Some(std::thread::current().id());
                    }
                    self.changed.notify_all();
                }
                return result;
            }
            if main {
                state = self.settle(state);
                let limit = deadline.unwrap_or(u64::MAX).min(start + PATIENCE_US);
                let at = state.next_us().map_or(limit, |at| at.min(limit));
                if at >= start + PATIENCE_US {
                    return Err(libc::EAGAIN);
                }
                state.now_us = state.now_us.max(at);
                state.run_timers();
            } else {
                let seen = state.version;
                state.blocked = Some((seen, deadline));
                self.changed.notify_all();
                while state.version == seen && deadline.is_none_or(|d| d > state.now_us) {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Waits until the second thread has seen the newest state: blocked on it, or out of its call with the time
    /// read.
    fn settle<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if std::thread::current().id() != self.main {
            return state;
        }
        self.changed.notify_all();
        let busy = |s: &mut State| {
            s.returning.is_some()
                || s.blocked
                    .is_some_and(|(seen, at)| seen != s.version || at.is_some_and(|at| at <= s.now_us))
        };
        while busy(&mut state) {
            let (guard, waited) =
                self.changed.wait_timeout(state, HANDSHAKE).unwrap_or_else(PoisonError::into_inner);
            state = guard;
            if waited.timed_out() {
                eprintln!("ff-packetdrill: the second thread did not answer");
                break;
            }
        }
        state
    }

    /// Goes to `to`, by way of everything that happens before it.
    fn advance<'a>(&'a self, mut state: MutexGuard<'a, State>, to: u64) -> MutexGuard<'a, State> {
        loop {
            state = self.settle(state);
            match state.next_us() {
                Some(at) if at <= to => {
                    state.now_us = state.now_us.max(at);
                    state.run_timers();
                }
                _ => break,
            }
        }
        state.now_us = state.now_us.max(to);
        state
    }

    /// `usleep`.
    pub(crate) fn sleep(&self, us: u64) {
        let state = self.lock();
        let to = state.now_us + us;
        drop(self.advance(state, to));
    }

    /// `gettimeofday`, microseconds. packetdrill waits for the last microseconds before an event by asking again
    /// and again, so each question takes one.
    pub(crate) fn time_us(&self) -> u64 {
        let mut state = self.lock();
        let me = std::thread::current().id();
        if me != self.main {
            if state.returning == Some(me) {
                state.returning = None;
                self.changed.notify_all();
            }
            let now = state.now_us;
            // Before its call it waits for the call's time. The main thread usually brings it about; when it waits for
            // this one instead, nobody would.
            state.asked = if state.asked.0 == now { (now, state.asked.1 + 1) } else { (now, 0) };
            if state.asked.1 > QUESTIONS_MAX {
                drop(self.advance(state, now + 1));
            }
            return now;
        }
        let now = state.now_us;
        drop(self.advance(state, now + 1));
        now
    }

    /// A packet of the script arrives.
    pub(crate) fn packet_in(&self, packet: &[u8]) {
        self.call(|state| {
            let now = state.now();
            match frames::parse(packet) {
                Some(Incoming::Segment(meta, tcp)) => state.engine().on_segment(now, meta, tcp, None),
                Some(Incoming::Icmp(key, error, seq)) => state.engine().on_icmp_error(now, &key, error, seq),
                None => {}
            }
        });
    }

    /// The next packet that leaves, with its time; waits for it in virtual time. `None`: none will come.
    pub(crate) fn packet_out(&self) -> Option<(u64, Vec<u8>)> {
        let mut state = self.lock();
        let patience = state.now_us + PATIENCE_US;
        loop {
            if let Some(frame) = state.frames.pop_front() {
                return Some(frame);
            }
            state = self.settle(state);
            if !state.frames.is_empty() {
                continue;
            }
            let at = state.next_us().filter(|&at| at <= patience)?;
            state.now_us = state.now_us.max(at);
            state.run_timers();
        }
    }
}
