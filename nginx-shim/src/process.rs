//! What this process is in the instance, and everything of ours in it, behind one lock.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ff_control::KernelPlan;
use ff_dataplane::PassReport;
use ff_dataplane::sockets::{Kind, Readiness, SocketId};
use ff_tcp::Instant;
use libc::{EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLRDNORM, EPOLLWRNORM};
use slab::Slab;

use crate::description::{Description, State};
use crate::epoll::Sets;
use crate::failure::{Outcome, fail};
use crate::placeholders::Placeholders;
use crate::signals;
use crate::stack::WorkerStack;
use crate::table::{self, Entry};

/// What this process is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Role {
    /// No instance: every call goes straight through.
    Inert = 0,
    /// Records what is bound: nginx's first process and its master.
    Recording = 1,
    /// A forked child that has not attached: a worker to be, or one of nginx's helpers.
    Child = 2,
    /// Starts DPDK at this moment: every call goes straight through.
    Attaching = 3,
    /// Has a stack.
    Worker = 4,
    /// The child of a process with a stack, which stayed there.
    Orphan = 5,
}

static ROLE: AtomicU8 = AtomicU8::new(Role::Inert as u8);

/// What this process is now.
#[inline]
pub fn role() -> Role {
    match ROLE.load(Ordering::Relaxed) {
        1 => Role::Recording,
        2 => Role::Child,
        3 => Role::Attaching,
        4 => Role::Worker,
        5 => Role::Orphan,
        _ => Role::Inert,
    }
}

/// Changes what this process is.
pub fn set_role(role: Role) {
    ROLE.store(role as u8, Ordering::Relaxed);
}

thread_local! {
    /// This thread holds the lock: a call that comes now is made by the stack or by DPDK beneath it.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread holds the lock, so that it must not take it again.
pub fn inside() -> bool {
    INSIDE.get()
}

/// Whether sockets made by this thread now can be the application's.
pub fn takes_sockets() -> bool {
    matches!(role(), Role::Recording | Role::Child | Role::Worker | Role::Orphan) && !inside()
}

/// The worker's stack, held for the threads of the process that take turns with it.
pub struct Held(pub Box<dyn WorkerStack>);

// SAFETY: the stack is reached only through the process's lock, so by one thread at a time, and nothing in it is
// bound to the thread that made it: DPDK's per-lcore caches are looked up by each calling thread's own lcore id,
// and a thread without one goes past them.
unsafe impl Send for Held {}

/// Everything of ours in this process.
pub struct Process {
    /// Open socket descriptions.
    pub descriptions: Slab<Description>,
    /// Emulated epoll sets.
    pub sets: Sets,
    /// Descriptor numbers.
    pub placeholders: Placeholders,
    /// The stack of a worker.
    pub stack: Option<Held>,
    /// What stays with the kernel.
    pub kernel: KernelPlan,
    /// Wakers of threads that sleep in a wait.
    pub sleepers: Vec<RawFd>,
    /// Longest sleep in microseconds when the device gives no descriptor to wait for; 0 for none.
    pub idle_step_us: u64,
    /// When the last packet came, in microseconds.
    pub received_us: u64,
    /// The application has closed a listener since its last wait: nginx's worker does so when it is told to quit, and
    /// then closes the connections that are idle, for no other reason.
    pub ends_connections: bool,
    /// The process is about to exit: whatever it closes now may be in the middle of something.
    pub leaves: bool,
    /// How long a wait spins before it sleeps, in microseconds; adapts itself.
    pub spin_us: u64,
}

static PROCESS: Mutex<Process> = Mutex::new(Process {
    descriptions: Slab::new(),
    sets: Sets::new(),
    placeholders: Placeholders::new(),
    stack: None,
    kernel: KernelPlan { addresses: Vec::new(), tcp_ports: Vec::new(), udp_ports: Vec::new() },
    sleepers: Vec::new(),
    idle_step_us: 100,
    received_us: 0,
    ends_connections: false,
    leaves: false,
    spin_us: 0,
});

/// The lock, held.
pub struct Guard(MutexGuard<'static, Process>);

impl Deref for Guard {
    type Target = Process;
    fn deref(&self) -> &Process {
        &self.0
    }
}

impl DerefMut for Guard {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.0
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

/// Takes the lock. It is never held across a call that blocks or that enters this library again.
#[inline]
pub fn lock() -> Guard {
    let guard = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    INSIDE.set(true);
    Guard(guard)
}

/// epoll's bits for a readiness.
pub fn bits_of(readiness: Readiness) -> u32 {
    let mut bits = 0;
    if readiness.intersects(Readiness::READABLE) {
        bits |= EPOLLIN | EPOLLRDNORM;
    }
    if readiness.intersects(Readiness::WRITABLE) {
        bits |= EPOLLOUT | EPOLLWRNORM;
    }
    if readiness.intersects(Readiness::RDHUP) {
        bits |= EPOLLRDHUP | EPOLLIN | EPOLLRDNORM;
    }
    if readiness.intersects(Readiness::HUP) {
        bits |= EPOLLHUP;
    }
    if readiness.intersects(Readiness::ERR) {
        bits |= EPOLLERR;
    }
    bits as u32
}

/// epoll's bits for a connection that the peer has ended.
const ENDED: u32 = (EPOLLIN | EPOLLRDNORM | EPOLLRDHUP | EPOLLOUT | EPOLLWRNORM) as u32;

/// What is possible on a description now, as epoll bits.
pub fn possible(stack: Option<&Held>, descriptions: &Slab<Description>, description: u32) -> u32 {
    let Some(description) = descriptions.get(description as usize) else { return 0 };
    match (description.state, stack) {
        (State::Open(socket), Some(stack)) => bits_of(stack.0.readiness(socket)),
        // A fresh stream socket is "hung up" and writable to Linux; a datagram socket can be written to.
        (State::Undecided, _) if description.kind == Kind::Stream => {
            (EPOLLOUT | EPOLLWRNORM | EPOLLHUP) as u32
        }
        (State::Undecided, _) => (EPOLLOUT | EPOLLWRNORM) as u32,
        (State::Lost, _) => (EPOLLERR | EPOLLHUP) as u32,
        (State::Moved, _) => ENDED,
        _ => 0,
    }
}

impl Process {
    /// One pass of the stack; what newly happened goes to the epoll sets.
    pub fn pass(&mut self, now: Instant) -> PassReport {
        self.ends_connections = false;
        let Some(stack) = &mut self.stack else { return PassReport::default() };
        let report = stack.0.pass(now);
        if report.rx > 0 {
            self.received_us = now.0;
        }
        let mut wakes = false;
        while let Some(event) = stack.0.next_event() {
            // `user` is 0 for a connection that nobody has accepted yet.
            let Some(index) = event.user.checked_sub(1) else { continue };
            if let Some(description) = self.descriptions.get(index as usize) {
                let mut edges = bits_of(event.edges);
                // Linux wakes everybody for a change of state, whatever they ask for.
                if event.edges.intersects(Readiness::RDHUP | Readiness::HUP | Readiness::ERR) {
                    edges |= bits_of(stack.0.readiness(event.socket));
                }
                wakes |= self.sets.notify(&description.watches, edges);
            }
        }
        if wakes {
            self.wake_sleepers();
        }
        report
    }

    /// Wakes the threads that sleep in a wait: there is something for one of them, or work for the stack.
    pub fn wake_sleepers(&self) {
        for &waker in &self.sleepers {
            signals::wake(waker);
        }
    }

    /// What is possible on a description now, as epoll bits.
    pub fn possible(&self, description: u32) -> u32 {
        possible(self.stack.as_ref(), &self.descriptions, description)
    }

    /// The description of `fd`, under the lock.
    ///
    /// # Errors
    /// EBADF when another thread has closed it meanwhile.
    pub fn description(&mut self, fd: RawFd) -> Outcome<(u32, &mut Description)> {
        let Some(index) = table::socket(fd) else { return fail(libc::EBADF) };
        match self.descriptions.get_mut(index as usize) {
            Some(description) => Ok((index, description)),
            None => fail(libc::EBADF),
        }
    }

    /// The stack and the socket in it that `fd` stands for.
    ///
    /// # Errors
    /// `Kernel` when the socket is not open in the stack: its placeholder answers as a fresh socket does. EBADF
    /// when it was lost in a fork.
    pub fn open_socket(&mut self, fd: RawFd) -> Outcome<(&mut dyn WorkerStack, SocketId)> {
        let state = self.description(fd)?.1.state;
        match (state, &mut self.stack) {
            (State::Open(socket), Some(stack)) => Ok((&mut *stack.0, socket)),
            (State::Lost, _) => fail(libc::EBADF),
            (State::Moved, _) => fail(libc::ECONNRESET),
            _ => Err(crate::failure::Failure::Kernel),
        }
    }

    /// Adds a description that `fd` stands for.
    pub fn insert(&mut self, fd: RawFd, description: Description, pooled: bool) -> u32 {
        let index = self.descriptions.insert(description) as u32;
        table::set(fd, Some(Entry::Socket { description: index, pooled }));
        index
    }

    /// A descriptor of a description is gone. With the last one the socket is closed.
    pub fn release(&mut self, description: u32) {
        let Some(entry) = self.descriptions.get_mut(description as usize) else { return };
        entry.descriptors -= 1;
        if entry.descriptors > 0 {
            return;
        }
        let entry = self.descriptions.remove(description as usize);
        self.sets.forget(&entry.watches);
        if let (State::Open(socket), Some(stack)) = (entry.state, &mut self.stack) {
            if entry.listens {
                if !self.leaves && !std::mem::replace(&mut self.ends_connections, true) {
                    self.hand_on_unread();
                }
                // Fetched anew: the stack was lent out.
                let Some(stack) = &mut self.stack else { return };
                let _ = stack.0.close(socket);
                return;
            }
            if self.ends_connections && entry.kind == Kind::Stream && stack.0.hand_on(socket, false) {
                return;
            }
            // The only error is that the stack does not know it, and then there is nothing to close.
            let _ = stack.0.close(socket);
        }
    }

    /// The application ends. What it has accepted and read nothing of yet goes on in the next generation: nginx would
    /// wait for a request, and answer it by the old configuration, for as long as its time-out allows. To it such a
    /// connection looks as if the peer had ended it.
    fn hand_on_unread(&mut self) {
        let Some(stack) = &mut self.stack else { return };
        let mut wakes = false;
        for (_, description) in &mut self.descriptions {
            if let State::Open(socket) = description.state
                && description.kind == Kind::Stream
                && !description.listens
                && stack.0.hand_on(socket, true)
            {
                description.state = State::Moved;
                wakes |= self.sets.notify(&description.watches, ENDED);
            }
        }
        if wakes {
            self.wake_sleepers();
        }
    }

    /// A descriptor of an epoll set is gone.
    pub fn release_set(&mut self, set: u32) {
        let Some(entry) = self.sets.get_mut(set) else { return };
        entry.descriptors -= 1;
        if entry.descriptors > 0 {
            return;
        }
        self.sets.destroy(set);
        for (_, description) in &mut self.descriptions {
            description.watches.retain(|watch| watch.set != set);
        }
    }
}
