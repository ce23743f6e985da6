//! system and popen: the C library's own would start the shell with an environment that we cannot change for it.

use std::sync::{Mutex, PoisonError};

use libc::{FILE, c_char, c_int, c_short, pid_t};

use crate::{failure, master, real};

unsafe extern "C" {
    static mut environ: *const *const c_char;
}

/// What a shell that cannot be started ends with (POSIX, `system`).
const NO_SHELL: c_int = 127 << 8;

/// Signals that the program ignores while commands run, as they were before; and how many run.
struct Ignored {
    commands: u32,
    before: Option<[libc::sigaction; 2]>,
}

const IGNORED: [c_int; 2] = [libc::SIGINT, libc::SIGQUIT];

static STATE: Mutex<Ignored> = Mutex::new(Ignored { commands: 0, before: None });

/// Begins to ignore the keyboard's signals; gives how they were.
fn ignore() -> [libc::sigaction; 2] {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    state.commands += 1;
    *state.before.get_or_insert_with(|| {
        IGNORED.map(|signal| {
            // SAFETY: an all-zero sigaction is a valid one; both live through the call.
            unsafe {
                let mut before: libc::sigaction = std::mem::zeroed();
                let mut ignore: libc::sigaction = std::mem::zeroed();
                ignore.sa_sigaction = libc::SIG_IGN;
                real::sigaction(signal, &ignore, &mut before);
                before
            }
        })
    })
}

/// The last command that ends restores them.
fn restore() {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    state.commands -= 1;
    if state.commands == 0
        && let Some(before) = state.before.take()
    {
        for (signal, before) in IGNORED.iter().zip(before) {
            // SAFETY: an action that the system gave us.
            unsafe { real::sigaction(*signal, &before, std::ptr::null_mut()) };
        }
    }
}

/// `system`, as POSIX has it.
///
/// # Safety
/// `command` is null or a C string.
pub unsafe fn system(command: *const c_char) -> c_int {
    if command.is_null() {
        // There is a shell.
        return 1;
    }
    let before = ignore();
    // SAFETY: sets of signals that live through the calls.
    let mask = unsafe {
        let mut blocked: libc::sigset_t = std::mem::zeroed();
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut blocked);
        libc::sigaddset(&mut blocked, libc::SIGCHLD);
        libc::pthread_sigmask(libc::SIG_BLOCK, &blocked, &mut mask);
        mask
    };
    // SAFETY: by the caller's word.
    let (status, errno) = unsafe { run(command, &before, &mask) };
    restore();
    // SAFETY: the mask that this thread had.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut()) };
    if let Some(errno) = errno {
        failure::set_errno(errno);
    }
    status
}

/// Starts the shell and waits for its end; gives its status, and an error.
///
/// # Safety
/// `command` is a C string.
unsafe fn run(
    command: *const c_char,
    before: &[libc::sigaction; 2],
    mask: &libc::sigset_t,
) -> (c_int, Option<c_int>) {
    let argv = [c"sh".as_ptr(), c"-c".as_ptr(), command, std::ptr::null()];
    let mut pid: pid_t = 0;
    // SAFETY: attributes that are made before and destroyed after their use; sets, arguments and environment live
    // through the calls; `environ` is the process's environment.
    let error = unsafe {
        let mut attributes: libc::posix_spawnattr_t = std::mem::zeroed();
        libc::posix_spawnattr_init(&mut attributes);
        let mut defaults: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut defaults);
        for (signal, before) in IGNORED.iter().zip(before) {
            if before.sa_sigaction != libc::SIG_IGN {
                libc::sigaddset(&mut defaults, *signal);
            }
        }
        libc::posix_spawnattr_setsigdefault(&mut attributes, &defaults);
        libc::posix_spawnattr_setsigmask(&mut attributes, mask);
        let flags = libc::POSIX_SPAWN_SETSIGDEF | libc::POSIX_SPAWN_SETSIGMASK;
        libc::posix_spawnattr_setflags(&mut attributes, flags as c_short);
        let error = master::with_environment(environ, |envp| {
            real::posix_spawn(
                &mut pid,
                c"/bin/sh".as_ptr(),
                std::ptr::null(),
                &attributes,
                argv.as_ptr(),
                envp,
            )
        });
        libc::posix_spawnattr_destroy(&mut attributes);
        error
    };
    if error != 0 {
        return (NO_SHELL, Some(error));
    }
    let mut status = 0;
    loop {
        // SAFETY: `status` lives through the call.
        match unsafe { libc::waitpid(pid, &mut status, 0) } {
            -1 if failure::errno() == libc::EINTR => {}
            -1 => return (-1, Some(failure::errno())),
            _ => return (status, None),
        }
    }
}

/// `popen`: the C library keeps a list of what it started so, so its own has to be called. It takes the environment
/// from `environ`, which points to another one meanwhile.
///
/// # Safety
/// Both are C strings.
pub unsafe fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut stream = std::ptr::null_mut();
    // SAFETY: by the caller's word. The other environment lives until `popen` has started the shell. A thread that reads
    // a variable meanwhile finds it all the same: only ours are missing, or added. A program that sets variables while
    // another of its threads starts programs has to order the two itself (environ(7)).
    unsafe {
        master::with_environment(environ, |envp| {
            let own = environ;
            environ = envp;
            stream = real::popen(command, mode);
            environ = own;
            0
        });
    }
    stream
}
