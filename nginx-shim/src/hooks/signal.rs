//! sigaction and signal: see `signals`.

use libc::{c_int, sighandler_t};

use crate::process::{self, Role};
use crate::{real, signals};

#[unsafe(no_mangle)]
unsafe extern "C" fn sigaction(
    signal: c_int,
    action: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    match process::role() {
        // SAFETY: passed through with the application's arguments. DPDK's own handlers need no trampoline.
        Role::Inert | Role::Attaching => unsafe { real::sigaction(signal, action, old) },
        // SAFETY: as the application's call.
        _ => unsafe { signals::action(signal, action, old) },
    }
}

/// The C library's `signal` has its own way to the kernel, so it is made here: BSD semantics, as glibc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn signal(number: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the structures are plain data that lives through the call.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut old: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART;
        libc::sigemptyset(&mut action.sa_mask);
        libc::sigaddset(&mut action.sa_mask, number);
        if sigaction(number, &action, &mut old) != 0 {
            return libc::SIG_ERR;
        }
        old.sa_sigaction
    }
}
