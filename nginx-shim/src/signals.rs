//! Signals during an emulated wait.
//!
//! A real `epoll_wait` is interrupted by a handler. An emulated one spins in user space for a while, where a
//! handler could run unseen, and sleep after it. So every handler that the application installs is called
//! through [`trampoline`], which counts it for the thread it runs on and, when that thread is in a wait, writes
//! to the thread's waker, so that a sleep about to begin ends at once.

use std::cell::Cell;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use libc::{c_int, c_void, siginfo_t};

use crate::failure::{self, Outcome};
use crate::{batch, real};

/// Signal numbers, 1 to 64.
const SIGNALS: usize = 65;

static HANDLERS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];
static FLAGS: [AtomicI32; SIGNALS] = [const { AtomicI32::new(0) }; SIGNALS];

thread_local! {
    static SEEN: Cell<u32> = const { Cell::new(0) };
    static RESTART: Cell<bool> = const { Cell::new(false) };
    /// The waker's descriptor while this thread is in a wait, else -1.
    static WAITING: Cell<RawFd> = const { Cell::new(-1) };
    /// The waker's descriptor once it is made, else -1.
    static WAKER: Cell<RawFd> = const { Cell::new(-1) };
    static WAKER_CLOSER: Closer = const { Closer };
}

/// Handlers that have run on this thread so far.
pub fn seen() -> u32 {
    SEEN.get()
}

/// Whether the last handler on this thread was installed with SA_RESTART.
pub fn last_restarts() -> bool {
    RESTART.get()
}

/// This thread's waker: an eventfd, made when it is first needed.
///
/// # Errors
/// EMFILE, ENFILE.
pub fn waker() -> Outcome<RawFd> {
    let waker = WAKER.get();
    if waker >= 0 {
        return Ok(waker);
    }
    // SAFETY: eventfd has no preconditions.
    let waker = failure::real(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
    WAKER.set(waker);
    // Fails only in a thread that is ending, and then the process is, too: nobody misses the descriptor.
    let _ = WAKER_CLOSER.try_with(|_| ());
    Ok(waker)
}

/// Closes a thread's waker when the thread ends.
struct Closer;

impl Drop for Closer {
    fn drop(&mut self) {
        close_waker();
    }
}

fn close_waker() {
    let waker = WAKER.replace(-1);
    if waker >= 0 {
        // SAFETY: the descriptor is this thread's own.
        unsafe { real::close(waker) };
    }
}

/// Makes a waker readable. Async-signal-safe.
pub fn wake(waker: RawFd) {
    let one = 1_u64.to_ne_bytes();
    // SAFETY: the buffer has the 8 bytes that an eventfd takes; a failure (the counter is full) leaves it readable.
    unsafe { real::write(waker, one.as_ptr().cast(), one.len()) };
}

/// Takes what was written to a waker.
pub fn drain(waker: RawFd) {
    let mut count = [0_u8; 8];
    // SAFETY: the buffer has the 8 bytes that an eventfd gives; it is non-blocking.
    unsafe { real::read(waker, count.as_mut_ptr().cast(), count.len()) };
}

/// Marks this thread as waiting for as long as it lives.
pub struct Waiting {
    before: RawFd,
}

impl Waiting {
    /// From now on a handler writes to `waker`.
    pub fn begin(waker: RawFd) -> Self {
        Self { before: WAITING.replace(waker) }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITING.set(self.before);
    }
}

/// A child after `fork` has its parent's waker, and must not wake its parent with it.
pub fn renew_after_fork() {
    close_waker();
    WAITING.set(-1);
}

extern "C" fn trampoline(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    SEEN.set(SEEN.get().wrapping_add(1));
    batch::signalled(signal);
    let Some(handler) = HANDLERS.get(signal as usize) else { return };
    RESTART.set(FLAGS[signal as usize].load(Ordering::Relaxed) & libc::SA_RESTART != 0);
    let waker = WAITING.get();
    if waker >= 0 {
        let errno = failure::errno();
        wake(waker);
        failure::set_errno(errno);
    }
    let handler = handler.load(Ordering::Relaxed);
    if handler == 0 {
        return;
    }
    // SAFETY: the address is the handler that the application gave for this signal. A handler that takes only
    // the number ignores the other two arguments, as C's calling conventions on Linux allow.
    unsafe {
        let handler =
            std::mem::transmute::<usize, extern "C" fn(c_int, *mut siginfo_t, *mut c_void)>(handler);
        handler(signal, info, context);
    }
}

/// `sigaction`, with the application's handlers behind [`trampoline`].
///
/// # Safety
/// As `sigaction(2)`.
pub unsafe fn action(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    let index = signal as usize;
    if signal <= 0 || index >= SIGNALS {
        // SAFETY: passed through.
        return unsafe { real::sigaction(signal, new, old) };
    }
    let ours = trampoline as *const () as usize;
    let handler_before = HANDLERS[index].load(Ordering::Relaxed);
    let flags_before = FLAGS[index].load(Ordering::Relaxed);
    // SAFETY: `new` and `old` are null or valid, as the caller says; the structures are plain data.
    unsafe {
        let mut wrapped;
        let mut given = new;
        if let Some(action) = new.as_ref() {
            let handler = action.sa_sigaction;
            if handler != libc::SIG_DFL && handler != libc::SIG_IGN && handler != ours {
                // Stored before it is installed: the signal may come at once.
                HANDLERS[index].store(handler, Ordering::Relaxed);
                FLAGS[index].store(action.sa_flags, Ordering::Relaxed);
                wrapped = *action;
                wrapped.sa_sigaction = ours;
                wrapped.sa_flags |= libc::SA_SIGINFO;
                given = &raw const wrapped;
            }
        }
        let result = real::sigaction(signal, given, old);
        if result != 0 {
            HANDLERS[index].store(handler_before, Ordering::Relaxed);
            FLAGS[index].store(flags_before, Ordering::Relaxed);
        } else if let Some(old) = old.as_mut()
            && old.sa_sigaction == ours
        {
            old.sa_sigaction = handler_before;
            old.sa_flags = flags_before;
        }
        result
    }
}
