//! fork, exit, and giving up root. What starts other programs is in `program`.

use std::sync::OnceLock;

use libc::{c_char, c_int, c_void, gid_t, pid_t, size_t, uid_t};

use crate::{attach, batch, exit, real};

#[unsafe(no_mangle)]
unsafe extern "C" fn fork() -> pid_t {
    batch::forks();
    // SAFETY: passed through; the handlers of `pthread_atfork` do our part.
    let pid = unsafe { real::fork() };
    batch::forked(pid);
    pid
}

/// nginx's master waits for signals here, between two things that it does.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigsuspend(mask: *const libc::sigset_t) -> c_int {
    batch::rests();
    // SAFETY: passed through with the application's arguments.
    unsafe { real::sigsuspend(mask) }
}

/// `vfork` shares the parent's memory and stack frame; a wrapper cannot return from it twice, so it is `fork`.
#[unsafe(no_mangle)]
unsafe extern "C" fn vfork() -> pid_t {
    // SAFETY: passed through; the handlers of `pthread_atfork` do our part.
    unsafe { real::fork() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn exit(status: c_int) -> ! {
    exit::deliver();
    // SAFETY: passed through.
    unsafe { real::exit(status) };
    std::process::abort()
}

/// A program's `main`.
type Main = extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;

static MAIN: OnceLock<Main> = OnceLock::new();

extern "C" fn main_and_deliver(argc: c_int, argv: *mut *mut c_char, envp: *mut *mut c_char) -> c_int {
    let status = MAIN.get().map_or(127, |main| main(argc, argv, envp));
    exit::deliver();
    status
}

/// What a program's first instructions call. A `main` that returns goes to the C library's inner `exit`, which cannot
/// be interposed.
#[unsafe(no_mangle)]
unsafe extern "C" fn __libc_start_main(
    main: Main,
    argc: c_int,
    argv: *mut *mut c_char,
    init: *const c_void,
    fini: *const c_void,
    rtld_fini: *const c_void,
    stack_end: *const c_void,
) -> c_int {
    // The first is the program's; there is no second.
    let _ = MAIN.set(main);
    // SAFETY: passed through, with a `main` of the same type.
    unsafe { real::__libc_start_main(main_and_deliver, argc, argv, init, fini, rtld_fini, stack_end) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _exit(status: c_int) -> ! {
    exit::deliver();
    // SAFETY: passed through.
    unsafe { real::_exit(status) };
    std::process::abort()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _Exit(status: c_int) -> ! {
    // SAFETY: the same function by C's name.
    unsafe { _exit(status) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn setgid(gid: gid_t) -> c_int {
    attach::giving_up_root();
    // SAFETY: passed through.
    unsafe { real::setgid(gid) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn setuid(uid: uid_t) -> c_int {
    attach::giving_up_root();
    // SAFETY: passed through.
    unsafe { real::setuid(uid) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn setgroups(count: size_t, groups: *const gid_t) -> c_int {
    attach::giving_up_root();
    // SAFETY: passed through with the application's arguments.
    unsafe { real::setgroups(count, groups) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn initgroups(user: *const c_char, group: gid_t) -> c_int {
    attach::giving_up_root();
    // SAFETY: passed through with the application's arguments.
    unsafe { real::initgroups(user, group) }
}
