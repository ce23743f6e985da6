//! Other programs: exec in all its forms, posix_spawn, system, popen.
//!
//! The C library's own forms call each other inside, past any interposed function, so each has its own here: all of
//! them start the program with the environment of [`master::with_environment`].

use libc::{FILE, c_char, c_int, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};

use crate::{children, master, real};

unsafe extern "C" {
    static environ: *const *const c_char;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execve(
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: the application's arguments; the environment is null or ends in null.
    unsafe { master::with_environment(envp, |envp| real::execve(path, argv, envp)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvpe(
    file: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: the application's arguments; the environment is null or ends in null.
    unsafe { master::with_environment(envp, |envp| real::execvpe(file, argv, envp)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execv(path: *const c_char, argv: *const *const c_char) -> c_int {
    // SAFETY: `environ` is the process's environment.
    unsafe { execve(path, argv, environ) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvp(file: *const c_char, argv: *const *const c_char) -> c_int {
    // SAFETY: `environ` is the process's environment.
    unsafe { execvpe(file, argv, environ) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execveat(
    dir: c_int,
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the application's arguments; the environment is null or ends in null.
    unsafe { master::with_environment(envp, |envp| real::execveat(dir, path, argv, envp, flags)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fexecve(fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
    // SAFETY: the application's arguments; the environment is null or ends in null.
    unsafe { master::with_environment(envp, |envp| real::fexecve(fd, argv, envp)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn(
    pid: *mut pid_t,
    path: *const c_char,
    actions: *const posix_spawn_file_actions_t,
    attributes: *const posix_spawnattr_t,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: the application's arguments; the environment is null or ends in null.
    unsafe {
        master::with_environment(envp, |envp| real::posix_spawn(pid, path, actions, attributes, argv, envp))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawnp(
    pid: *mut pid_t,
    file: *const c_char,
    actions: *const posix_spawn_file_actions_t,
    attributes: *const posix_spawnattr_t,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: the application's arguments; the environment is null or ends in null.
    unsafe {
        master::with_environment(envp, |envp| real::posix_spawnp(pid, file, actions, attributes, argv, envp))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn system(command: *const c_char) -> c_int {
    // SAFETY: the application's argument: null, or a C string.
    unsafe { children::system(command) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the application's arguments, C strings.
    unsafe { children::popen(command, mode) }
}

/// Makes an array of the arguments of a variadic call and gives its address to `$target`, as the second argument.
///
/// By the calling convention (System V ABI for x86-64, section 3.2.3) the first six arguments are in registers and the
/// rest on the stack, in order, above the return address. With that address taken off and the registers pushed, last
/// first, they lie one behind the other; the end is marked by the caller's null.
#[cfg(target_arch = "x86_64")]
macro_rules! gathered {
    ($name:ident, $target:ident) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name(path: *const c_char, first: *const c_char) -> c_int {
            core::arch::naked_asm!(
                "pop r10",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                // Kept for the way back, which there is only if the program cannot be started. The stack is aligned to
                // 16 bytes here, as a call wants it.
                "push r10",
                "call {target}",
                "pop r10",
                "add rsp, 40",
                "push r10",
                "ret",
                target = sym $target,
            )
        }
    };
}

#[cfg(target_arch = "x86_64")]
gathered!(execl, gathered_execl);
#[cfg(target_arch = "x86_64")]
gathered!(execlp, gathered_execlp);
#[cfg(target_arch = "x86_64")]
gathered!(execle, gathered_execle);

/// # Safety
/// `argv` is an array of C strings that ends in null.
unsafe extern "C" fn gathered_execl(path: *const c_char, argv: *const *const c_char) -> c_int {
    // SAFETY: by the caller's word.
    unsafe { execv(path, argv) }
}

/// # Safety
/// As [`gathered_execl`].
unsafe extern "C" fn gathered_execlp(file: *const c_char, argv: *const *const c_char) -> c_int {
    // SAFETY: by the caller's word.
    unsafe { execvp(file, argv) }
}

/// # Safety
/// As [`gathered_execl`]; behind the null is the environment.
unsafe extern "C" fn gathered_execle(path: *const c_char, argv: *const *const c_char) -> c_int {
    let mut end = argv;
    // SAFETY: the array ends in null, and the environment follows it, by the caller's word.
    unsafe {
        while !(*end).is_null() {
            end = end.add(1);
        }
        execve(path, argv, end.add(1).read().cast())
    }
}
