//! The C library's own functions, behind ours: each is looked up once with `dlsym(RTLD_NEXT)`.
//!
//! The lookup happens at load ([`resolve_all`]) or, when a constructor of another library calls us even
//! earlier, at the first use. A function that the C library does not have ends the process with its name the
//! moment somebody calls it: there is nothing sensible to go on with.

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{
    FILE, c_char, c_int, c_long, c_uint, c_ulong, c_void, epoll_event, fd_set, gid_t, iovec, mmsghdr, mode_t,
    msghdr, nfds_t, off_t, pid_t, pollfd, posix_spawn_file_actions_t, posix_spawnattr_t,
    sigaction as action_t, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec, timeval, uid_t,
};

/// Says which function is missing and ends the process.
fn missing(name: &CStr) -> ! {
    let parts: [&[u8]; 3] = [b"f-stack: the C library has no function `", name.to_bytes(), b"`\n"];
    for part in parts {
        // SAFETY: a raw system call on descriptor 2 with a buffer that lives through the call.
        unsafe { libc::syscall(libc::SYS_write, 2, part.as_ptr(), part.len()) };
    }
    // SAFETY: abort has no preconditions.
    unsafe { libc::abort() }
}

fn lookup(name: &CStr) -> *mut c_void {
    // SAFETY: `name` is NUL-terminated and RTLD_NEXT needs no handle.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

macro_rules! functions {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(; $dots:tt)?) $(-> $ret:ty)?;)*) => {
        #[allow(non_upper_case_globals, reason = "named as the functions are")]
        mod address {
            use super::{AtomicPtr, c_void};
            $( pub static $name: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut()); )*
        }

        $(
            /// The C library's function of this name.
            ///
            /// # Safety
            /// As that function says.
            #[inline]
            #[allow(clippy::too_many_arguments, reason = "the C library's signatures")]
            pub unsafe fn $name($($arg: $type),*) $(-> $ret)? {
                let mut function = address::$name.load(Ordering::Relaxed);
                if function.is_null() {
                    const NAME: &CStr = name(concat!(stringify!($name), "\0"));
                    function = lookup(NAME);
                    if function.is_null() {
                        missing(NAME);
                    }
                    address::$name.store(function, Ordering::Relaxed);
                }
                // SAFETY: `function` is the C library's function of this name, whose signature the list below
                // gives; the caller keeps the function's own preconditions.
                unsafe {
                    let function: functions!(@type ($($type),*) $(; $dots)? $(-> $ret)?) =
                        std::mem::transmute::<*mut c_void, _>(function);
                    function($($arg),*)
                }
            }
        )*

        /// Looks up everything that is there, so that no later call (from a signal handler, say) has to.
        pub fn resolve_all() {
            $( address::$name.store(lookup(name(concat!(stringify!($name), "\0"))), Ordering::Relaxed); )*
        }
    };
    (@type ($a:ty, $b:ty, $c:ty); variadic -> $ret:ty) => { unsafe extern "C" fn($a, $b, ...) -> $ret };
    (@type ($a:ty, $b:ty, $c:ty, $d:ty); variadic -> $ret:ty) => { unsafe extern "C" fn($a, $b, $c, ...) -> $ret };
    (@type ($($type:ty),*) $(-> $ret:ty)?) => { unsafe extern "C" fn($($type),*) $(-> $ret)? };
}

/// A literal as a C string.
const fn name(with_nul: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(with_nul.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("the literal ends in NUL and has no other"),
    }
}

functions! {
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int;
    fn listen(fd: c_int, backlog: c_int) -> c_int;
    fn accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
    fn accept4(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int;
    fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int;
    fn shutdown(fd: c_int, how: c_int) -> c_int;
    fn getsockname(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
    fn getpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int;
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    fn closefrom(first: c_int);
    fn dup(fd: c_int) -> c_int;
    fn dup2(fd: c_int, to: c_int) -> c_int;
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fn fcntl(fd: c_int, cmd: c_int, arg: c_long; variadic) -> c_int;
    fn fcntl64(fd: c_int, cmd: c_int, arg: c_long; variadic) -> c_int;
    fn ioctl(fd: c_int, request: c_ulong, arg: *mut c_void; variadic) -> c_int;
    fn open(path: *const c_char, flags: c_int, mode: mode_t; variadic) -> c_int;
    fn open64(path: *const c_char, flags: c_int, mode: mode_t; variadic) -> c_int;
    fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t; variadic) -> c_int;
    fn openat64(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t; variadic) -> c_int;
    fn read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t;
    fn __read_chk(fd: c_int, buf: *mut c_void, len: size_t, room: size_t) -> ssize_t;
    fn readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t;
    fn recv(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    fn __recv_chk(fd: c_int, buf: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t;
    fn recvfrom(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int, addr: *mut sockaddr,
        addr_len: *mut socklen_t) -> ssize_t;
    fn __recvfrom_chk(fd: c_int, buf: *mut c_void, len: size_t, room: size_t, flags: c_int, addr: *mut sockaddr,
        addr_len: *mut socklen_t) -> ssize_t;
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
    fn write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t;
    fn writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t;
    fn send(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    fn sendto(fd: c_int, buf: *const c_void, len: size_t, flags: c_int, addr: *const sockaddr,
        addr_len: socklen_t) -> ssize_t;
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    fn sendfile(out: c_int, input: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    fn sendfile64(out: c_int, input: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    fn splice(input: c_int, input_offset: *mut off_t, out: c_int, out_offset: *mut off_t, len: size_t,
        flags: c_uint) -> ssize_t;
    fn epoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    fn epoll_wait(epfd: c_int, events: *mut epoll_event, max: c_int, timeout: c_int) -> c_int;
    fn epoll_pwait(epfd: c_int, events: *mut epoll_event, max: c_int, timeout: c_int,
        mask: *const sigset_t) -> c_int;
    fn epoll_pwait2(epfd: c_int, events: *mut epoll_event, max: c_int, timeout: *const timespec,
        mask: *const sigset_t) -> c_int;
    fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int;
    fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    fn __ppoll_chk(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t,
        room: size_t) -> c_int;
    fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *mut timeval) -> c_int;
    fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *const timespec, mask: *const sigset_t) -> c_int;
    fn fork() -> pid_t;
    fn sigsuspend(mask: *const sigset_t) -> c_int;
    fn socketpair(domain: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int;
    fn execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn execvpe(file: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn execveat(dir: c_int, path: *const c_char, argv: *const *const c_char, envp: *const *const c_char,
        flags: c_int) -> c_int;
    fn fexecve(fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn posix_spawnp(pid: *mut pid_t, file: *const c_char, actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE;
    fn _exit(status: c_int);
    fn exit(status: c_int);
    fn __libc_start_main(main: extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) -> c_int, argc: c_int,
        argv: *mut *mut c_char, init: *const c_void, fini: *const c_void, rtld_fini: *const c_void,
        stack_end: *const c_void) -> c_int;
    fn sigaction(signal: c_int, action: *const action_t, old: *mut action_t) -> c_int;
    fn setgid(gid: gid_t) -> c_int;
    fn setuid(uid: uid_t) -> c_int;
    fn setgroups(count: size_t, groups: *const gid_t) -> c_int;
    fn initgroups(user: *const c_char, group: gid_t) -> c_int;
}
