//! Programs that a server starts: they have nothing to do with the library, whichever way they are started.

use std::ffi::{CStr, CString};
use std::ptr;

use libc::{c_char, c_int};

use super::{Case, World};

pub const CASES: &[Case] = &[
    ("exec", exec),
    ("posix_spawn", spawn),
    ("system and popen", shell),
    ("what cannot be started", absent),
];

const ENV: &CStr = c"/usr/bin/env";

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// What a program printed of its environment: whether it got ours, and what it must not have.
fn shown(printed: &[u8]) -> String {
    let printed = String::from_utf8_lossy(printed);
    let lines = |prefix: &str| printed.lines().filter(|line| line.starts_with(prefix)).count();
    format!("own {}, library {}", lines("CONFORMANCE="), lines("LD_PRELOAD=") + lines("FF_"))
}

/// All that comes out of a pipe.
fn drain(fd: c_int) -> Vec<u8> {
    let mut all = Vec::new();
    let mut bytes = [0; 4096];
    loop {
        // SAFETY: the buffer is valid for its length.
        match unsafe { libc::read(fd, bytes.as_mut_ptr().cast(), bytes.len()) } {
            n @ 1.. => all.extend_from_slice(&bytes[..n as usize]),
            _ => break all,
        }
    }
}

fn pipe() -> [c_int; 2] {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    ends
}

fn close(fd: c_int) {
    // SAFETY: the caller's own.
    unsafe { libc::close(fd) };
}

/// Runs `exec` in a forked child whose output is read.
fn forked(exec: impl FnOnce() -> c_int) -> String {
    let ends = pipe();
    // SAFETY: the child calls nothing but what is allowed between fork and exec of a program of one thread.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above.
        unsafe { libc::dup2(ends[1], 1) };
        exec();
        // SAFETY: as above.
        unsafe { libc::_exit(9) };
    }
    close(ends[1]);
    let printed = drain(ends[0]);
    close(ends[0]);
    let mut status = 0;
    // SAFETY: the status lives through the call.
    unsafe { libc::waitpid(child, &mut status, 0) };
    format!("{}, status {}", shown(&printed), libc::WEXITSTATUS(status))
}

/// The process's environment with a line more.
fn environment() -> (Vec<CString>, Vec<*const c_char>) {
    let mut lines: Vec<CString> = std::env::vars()
        .map(|(name, value)| CString::new(format!("{name}={value}")).unwrap_or_default())
        .collect();
    lines.push(c"CONFORMANCE=1".to_owned());
    let mut pointers: Vec<*const c_char> = lines.iter().map(|line| line.as_ptr()).collect();
    pointers.push(ptr::null());
    (lines, pointers)
}

fn exec(_: &mut World) {
    let (_lines, envp) = environment();
    let (file, envp) = (ENV.as_ptr(), envp.as_ptr());
    let argv = [c"env".as_ptr(), ptr::null()];
    let argv = argv.as_ptr();
    let null = ptr::null::<c_char>();
    // SAFETY: of all of them: C strings, and arrays of them that end in null.
    unsafe {
        println!("execve: {}", forked(|| libc::execve(file, argv, envp)));
        println!("execv: {}", forked(|| libc::execv(file, argv)));
        println!("execvp: {}", forked(|| libc::execvp(c"env".as_ptr(), argv)));
        println!("execvpe: {}", forked(|| libc::execvpe(c"env".as_ptr(), argv, envp)));
        println!("execl: {}", forked(|| libc::execl(file, c"env".as_ptr(), null)));
        // More arguments than there are registers for them.
        let set = c"CONFORMANCE=1".as_ptr();
        println!(
            "execl: {}",
            forked(|| libc::execl(
                file,
                c"env".as_ptr(),
                c"A=1".as_ptr(),
                c"B=2".as_ptr(),
                c"C=3".as_ptr(),
                c"D=4".as_ptr(),
                c"E=5".as_ptr(),
                set,
                c"env".as_ptr(),
                null
            ))
        );
        println!("execlp: {}", forked(|| libc::execlp(c"env".as_ptr(), c"env".as_ptr(), set, null)));
        println!("execle: {}", forked(|| libc::execle(file, c"env".as_ptr(), null, envp)));
        println!(
            "execle: {}",
            forked(|| libc::execle(
                file,
                c"env".as_ptr(),
                c"A=1".as_ptr(),
                c"B=2".as_ptr(),
                c"C=3".as_ptr(),
                c"D=4".as_ptr(),
                c"env".as_ptr(),
                null,
                envp
            ))
        );
        println!(
            "fexecve: {}",
            forked(|| libc::fexecve(libc::open(file, libc::O_RDONLY | libc::O_CLOEXEC), argv, envp))
        );
        unsafe extern "C" {
            fn execveat(
                dir: c_int,
                path: *const c_char,
                argv: *const *const c_char,
                envp: *const *const c_char,
                flags: c_int,
            ) -> c_int;
        }
        println!("execveat: {}", forked(|| execveat(libc::AT_FDCWD, file, argv, envp, 0)));
    }
}

/// `posix_spawn` and `posix_spawnp`, whose signatures differ in nothing.
type Spawn = unsafe extern "C" fn(
    *mut libc::pid_t,
    *const c_char,
    *const libc::posix_spawn_file_actions_t,
    *const libc::posix_spawnattr_t,
    *const *mut c_char,
    *const *mut c_char,
) -> c_int;

fn spawned(spawn: Spawn, file: &CStr, envp: *const *const c_char) -> String {
    let ends = pipe();
    let argv = [c"env".as_ptr(), ptr::null()];
    // SAFETY: actions that are made before their use; strings and arrays that end in null.
    let (result, pid) = unsafe {
        let mut actions: libc::posix_spawn_file_actions_t = std::mem::zeroed();
        libc::posix_spawn_file_actions_init(&mut actions);
        libc::posix_spawn_file_actions_adddup2(&mut actions, ends[1], 1);
        let mut pid = 0;
        let result = spawn(&mut pid, file.as_ptr(), &actions, ptr::null(), argv.as_ptr().cast(), envp.cast());
        libc::posix_spawn_file_actions_destroy(&mut actions);
        (result, pid)
    };
    close(ends[1]);
    let printed = drain(ends[0]);
    close(ends[0]);
    let mut status = 0;
    if result == 0 {
        // SAFETY: the status lives through the call.
        unsafe { libc::waitpid(pid, &mut status, 0) };
    }
    format!("{result}, {}, status {}", shown(&printed), libc::WEXITSTATUS(status))
}

fn spawn(_: &mut World) {
    let (_lines, envp) = environment();
    println!("posix_spawn: {}", spawned(libc::posix_spawn, ENV, envp.as_ptr()));
    // SAFETY: the process's environment.
    println!("of the process: {}", spawned(libc::posix_spawn, ENV, unsafe { environ }));
    println!("posix_spawnp: {}", spawned(libc::posix_spawnp, c"env", envp.as_ptr()));
}

fn piped(command: &CStr) -> String {
    // SAFETY: C strings, a buffer of the length that is said, and a stream that is open until it is closed.
    unsafe {
        let stream = libc::popen(command.as_ptr(), c"r".as_ptr());
        if stream.is_null() {
            return "no stream".to_owned();
        }
        let mut printed = Vec::new();
        let mut bytes = [0u8; 4096];
        loop {
            match libc::fread(bytes.as_mut_ptr().cast(), 1, bytes.len(), stream) {
                0 => break,
                n => printed.extend_from_slice(&bytes[..n]),
            }
        }
        format!("{}, status {}", shown(&printed), libc::WEXITSTATUS(libc::pclose(stream)))
    }
}

fn shell(_: &mut World) {
    println!("popen: {}", piped(c"CONFORMANCE=1 env"));
    println!("popen: {}", piped(c"exit 3"));
    let file = std::env::temp_dir().join(format!("ff-conformance-{}", std::process::id()));
    let command = CString::new(format!("CONFORMANCE=1 env >{}; exit 5", file.display())).unwrap_or_default();
    // SAFETY: a C string, and null.
    let (status, has_shell) = unsafe { (libc::system(command.as_ptr()), libc::system(ptr::null())) };
    let printed = std::fs::read(&file).unwrap_or_default();
    let _ = std::fs::remove_file(&file);
    println!(
        "system: {}, status {}, a shell: {}",
        shown(&printed),
        libc::WEXITSTATUS(status),
        has_shell != 0
    );
    // SAFETY: a C string.
    let status = unsafe { libc::system(c"kill -9 $$".as_ptr()) };
    println!("killed: {} by {}", libc::WIFSIGNALED(status), libc::WTERMSIG(status));
    // SAFETY: an all-zero sigaction is a valid one.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: the action lives through the call.
    unsafe { libc::sigaction(libc::SIGINT, ptr::null(), &mut action) };
    println!("SIGINT is as it was: {}", action.sa_sigaction == libc::SIG_DFL);
}

fn absent(_: &mut World) {
    let null = ptr::null::<c_char>();
    let absent = c"/nonexistent/program";
    // SAFETY: C strings, and null at the end.
    unsafe {
        let result = libc::execl(absent.as_ptr(), c"a".as_ptr(), c"b".as_ptr(), null);
        println!("execl: {result} {}", crate::sys::name_of(crate::sys::errno()));
        let result = libc::execle(absent.as_ptr(), c"a".as_ptr(), null, environ);
        println!("execle: {result} {}", crate::sys::name_of(crate::sys::errno()));
    }
    println!("posix_spawn: {}", spawned(libc::posix_spawn, absent, ptr::null()));
}
