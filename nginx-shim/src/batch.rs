//! What nginx's master does on a HUP, seen from below: which workers belong to one configuration, and the QUITs for
//! those of the one before.
//!
//! The master gives new workers 100 ms and then tells the old ones to quit, over the socket pair that it has with
//! each. Those QUITs are held back here, whatever time the new workers need: the primary tells an old worker itself,
//! with SIGQUIT, once its queues have been handed over, and never when the reload was aborted. So the master goes on
//! with its own work meanwhile, and an old generation serves on when there is no primary any more. A QUIT that comes
//! from somebody's `nginx -s quit` (SIGQUIT) or WINCH is delivered at once, and then so are those that are held.
//!
//! All of this is called by the master's only thread or by a signal handler on it: plain atomics, no lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, Ordering};

use ff_control::{Connection, Reply, Request};
use libc::{c_int, msghdr, pid_t, ssize_t};

use crate::environment;
use crate::log::{self, Level};
use crate::process::{self, Role};

/// Processes that a master has at once: nginx's own limit.
const PROCESSES_MAX: usize = 1024;
/// A message of nginx's master to one of its processes: command, pid, slot, descriptor.
const MESSAGE_BYTES: usize = 32;
/// The command to quit.
const COMMAND_QUIT: u64 = 3;
/// Nobody waits longer for the primary to take note of a failed load.
const NOTE_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(200);

/// Why the master sends QUITs now.
const FOR_NOTHING: u8 = 0;
const FOR_RELOAD: u8 = 1;
const FOR_END: u8 = 2;

static REASON: AtomicU8 = AtomicU8::new(FOR_NOTHING);
/// A HUP came, and nothing was done about it yet.
static HUP: AtomicBool = AtomicBool::new(false);
/// The master reads its configuration anew.
static LOADING: AtomicBool = AtomicBool::new(false);
/// Configurations loaded since the start. A forked worker keeps the number that it was forked with.
static CONFIGURATION: AtomicU32 = AtomicU32::new(0);
/// The master's end of the socket pair that was made last.
static LAST_PAIR: AtomicI32 = AtomicI32::new(-1);

struct Child {
    channel: AtomicI32,
    pid: AtomicI32,
    /// A QUIT for it is held.
    held: AtomicBool,
}

static CHILDREN: [Child; PROCESSES_MAX] =
    [const { Child { channel: AtomicI32::new(-1), pid: AtomicI32::new(0), held: AtomicBool::new(false) } };
        PROCESSES_MAX];

/// Pids of the children that attached, in memory that master and children share: its cache manager's QUIT is none of
/// our business, and without a primary there is nobody else to ask.
static ATTACHED: OnceLock<Option<&'static [AtomicI32; PROCESSES_MAX]>> = OnceLock::new();

/// At load: makes the memory that children will share with this process.
pub fn prepare() {
    ATTACHED.get_or_init(|| {
        // SAFETY: a fresh anonymous mapping, zeroed by the kernel, that is never undone; all-zero atomics are valid.
        unsafe {
            let bytes = size_of::<[AtomicI32; PROCESSES_MAX]>();
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
            let map = libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0);
            (map != libc::MAP_FAILED).then(|| &*map.cast::<[AtomicI32; PROCESSES_MAX]>())
        }
    });
}

fn attached() -> Option<&'static [AtomicI32; PROCESSES_MAX]> {
    ATTACHED.get().copied().flatten()
}

/// In a worker: it has a place.
pub fn note_attached() {
    let own = std::process::id() as i32;
    let is_gone = |pid: i32| {
        // SAFETY: signal 0 only asks.
        pid == 0 || (unsafe { libc::kill(pid, 0) } != 0 && crate::failure::errno() == libc::ESRCH)
    };
    for place in attached().into_iter().flatten() {
        let before = place.load(Ordering::Relaxed);
        if is_gone(before)
            && place.compare_exchange(before, own, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            return;
        }
    }
}

/// The number of the configuration that this process runs, as its master counts them.
pub fn configuration() -> u32 {
    CONFIGURATION.load(Ordering::Relaxed)
}

fn is_master() -> bool {
    matches!(process::role(), Role::Recording | Role::Child)
}

/// A signal handler of the application is about to run. Async-signal-safe.
pub fn signalled(signal: c_int) {
    if !is_master() {
        return;
    }
    match signal {
        libc::SIGHUP => {
            HUP.store(true, Ordering::Relaxed);
            REASON.store(FOR_RELOAD, Ordering::Relaxed);
        }
        libc::SIGQUIT | libc::SIGWINCH => {
            REASON.store(FOR_END, Ordering::Relaxed);
            release();
        }
        libc::SIGTERM | libc::SIGINT => REASON.store(FOR_END, Ordering::Relaxed),
        _ => {}
    }
}

/// Delivers what is held: the master believes that it has delivered it, and does not do so again.
fn release() {
    for child in &CHILDREN {
        if child.held.swap(false, Ordering::Relaxed) {
            // SAFETY: the channel is open, so the master has not reaped the child and the pid is its own.
            unsafe { libc::kill(child.pid.load(Ordering::Relaxed), libc::SIGQUIT) };
        }
    }
}

/// The application opens a file: after a HUP, nginx's master reads its configuration.
pub fn opens() {
    if HUP.load(Ordering::Relaxed) && is_master() && HUP.swap(false, Ordering::Relaxed) {
        LOADING.store(true, Ordering::Relaxed);
    }
}

/// The application is about to fork: the first fork after a load is of the new configuration, and so are all that
/// follow it.
pub fn forks() {
    if is_master() && LOADING.swap(false, Ordering::Relaxed) {
        CONFIGURATION.fetch_add(1, Ordering::Relaxed);
    }
}

/// It has forked.
pub fn forked(pid: pid_t) {
    let channel = LAST_PAIR.swap(-1, Ordering::Relaxed);
    if pid <= 0 || channel < 0 || !is_master() {
        return;
    }
    closes(channel);
    if let Some(child) = CHILDREN.iter().find(|child| child.channel.load(Ordering::Relaxed) < 0) {
        child.pid.store(pid, Ordering::Relaxed);
        child.held.store(false, Ordering::Relaxed);
        child.channel.store(channel, Ordering::Relaxed);
    }
}

/// A socket pair was made; `channel` is its first end.
pub fn paired(channel: c_int) {
    if is_master() {
        LAST_PAIR.store(channel, Ordering::Relaxed);
    }
}

/// A descriptor is closed: of a child that was reaped, if it is a channel.
pub fn closes(fd: c_int) {
    if !is_master() {
        return;
    }
    if let Some(child) = CHILDREN.iter().find(|child| child.channel.load(Ordering::Relaxed) == fd) {
        child.held.store(false, Ordering::Relaxed);
        child.channel.store(-1, Ordering::Relaxed);
    }
}

/// The master has done all that it had to do. A load without a fork after it has failed.
pub fn rests() {
    if !LOADING.swap(false, Ordering::Relaxed) || !is_master() {
        return;
    }
    let Some(environment) = environment::get() else { return };
    let failed = Request::ReloadFailed { master_pid: std::process::id() };
    let told = Connection::connect(&environment.instance_dir.join("control.sock"), NOTE_TIMEOUT)
        .and_then(|mut primary| primary.call::<_, Reply>(&failed, NOTE_TIMEOUT));
    let aside = if told.is_err() { " (and there is no primary to take note of it)" } else { "" };
    log::line(
        Level::Alert,
        format_args!("reload refused: the new configuration does not load, the old one stays{aside}"),
    );
}

/// Whether the message is a QUIT that is to be held back: then the call's result.
///
/// # Safety
/// `message` is null or valid.
pub unsafe fn holds_back(fd: c_int, message: *const msghdr) -> Option<ssize_t> {
    if REASON.load(Ordering::Relaxed) != FOR_RELOAD || !is_master() {
        return None;
    }
    let child = CHILDREN.iter().find(|child| child.channel.load(Ordering::Relaxed) == fd)?;
    // SAFETY: by the caller's word; the vector's one buffer is readable for its length, of which 8 bytes are read,
    // wherever they lie.
    let command = unsafe {
        let message = message.as_ref()?;
        if message.msg_iovlen != 1 {
            return None;
        }
        let buffer = message.msg_iov.as_ref()?;
        if buffer.iov_len != MESSAGE_BYTES {
            return None;
        }
        buffer.iov_base.cast::<u64>().read_unaligned()
    };
    let pid = child.pid.load(Ordering::Relaxed);
    let is_ours = attached()?.iter().any(|attached| attached.load(Ordering::Relaxed) == pid);
    if command != COMMAND_QUIT || !is_ours {
        return None;
    }
    child.held.store(true, Ordering::Relaxed);
    Some(MESSAGE_BYTES as ssize_t)
}
