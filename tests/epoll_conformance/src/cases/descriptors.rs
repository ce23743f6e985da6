//! What a descriptor is: duplicates, flags, numbers.

use libc::c_int;

use super::{Case, World, done, show};
use crate::sys;

pub const CASES: &[Case] = &[
    ("flags", flags),
    ("duplicates", duplicates),
    ("dup2", dup2),
    ("dup2 onto a closed number", dup2_closed),
    ("close_range", close_range),
    ("numbers do not collide", numbers),
    ("it is a socket to fstat", stat),
    ("the limit of descriptors", limit),
    ("a forked child", forked),
];

fn flags(world: &mut World) {
    let (fd, _) = world.pair();
    let status = |fd| show(sys::fcntl(fd, libc::F_GETFL, 0).map(|flags| flags & libc::O_NONBLOCK != 0));
    println!("non-blocking: {}", status(fd));
    println!("F_SETFL: {}", done(sys::fcntl(fd, libc::F_SETFL, 0)));
    println!("non-blocking: {}", status(fd));
    println!("FIONBIO: {}", done(sys::ioctl(fd, libc::FIONBIO, 1)));
    println!("non-blocking: {}", status(fd));
    println!("FD_CLOEXEC: {}", show(sys::fcntl(fd, libc::F_GETFD, 0)));
    println!("F_SETFD: {}", done(sys::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC)));
    println!("FD_CLOEXEC: {}", show(sys::fcntl(fd, libc::F_GETFD, 0)));
    let _ = sys::close(fd);
    let (fd, _) = world.pair();
    println!("FD_CLOEXEC of the next: {}", show(sys::fcntl(fd, libc::F_GETFD, 0)));
    let _ = sys::close(fd);
    println!("closed: {}", done(sys::fcntl(fd, libc::F_GETFD, 0)));
    println!("closed: {}", show(sys::read(fd, 1)));
}

fn duplicates(world: &mut World) {
    let (fd, id) = world.pair();
    let copy = sys::fcntl(fd, libc::F_DUPFD_CLOEXEC, 100);
    println!("from 100 on: {}", show(copy.clone().map(|copy| copy >= 100)));
    let copy = copy.unwrap_or(-1);
    println!("FD_CLOEXEC of the copy: {}", show(sys::fcntl(copy, libc::F_GETFD, 0)));
    world.pump.ask(&format!("send {id} 6"));
    println!("read the copy: {}", show(sys::read(copy, 3)));
    println!("read: {}", show(sys::read(fd, 10)));
    let _ = sys::close(fd);
    world.pump.settle();
    println!("not closed yet: {}", world.pump.ask(&format!("quiet {id} 50")));
    println!("write the copy: {}", show(sys::write(copy, b"abc")));
    println!("receive: {}", world.pump.ask(&format!("receive {id} 3")));
    let _ = sys::close(copy);
    println!("closed: {}", world.pump.ask(&format!("receive {id} 1")));
}

fn dup2(world: &mut World) {
    let (a, a_id) = world.pair();
    let (b, b_id) = world.pair();
    // SAFETY: no preconditions.
    println!("over another: {}", unsafe { libc::dup2(a, b) } == b);
    println!("that one is closed: {}", world.pump.ask(&format!("receive {b_id} 1")));
    println!("write: {}", show(sys::write(b, b"abc")));
    println!("receive: {}", world.pump.ask(&format!("receive {a_id} 3")));
    // SAFETY: no preconditions.
    println!("over itself: {}", unsafe { libc::dup2(a, a) } == a);
    // SAFETY: no preconditions.
    println!("dup3 over itself: {}", unsafe { libc::dup3(a, a, 0) });
    // SAFETY: the name is a C string.
    let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
    // SAFETY: no preconditions.
    println!("a file over it: {}", unsafe { libc::dup2(null, a) } == a);
    println!("write: {}", show(sys::write(a, b"abc")));
    let _ = sys::close(b);
    println!("closed: {}", world.pump.ask(&format!("receive {a_id} 1")));
    let _ = sys::close(a);
    let _ = sys::close(null);
}

/// The number of a closed connection is free, whatever the library keeps beneath it.
fn dup2_closed(world: &mut World) {
    let (fd, _) = world.pair();
    let _ = sys::close(fd);
    // SAFETY: no preconditions.
    println!("of nothing: {} {}", unsafe { libc::dup2(-1, fd) }, sys::name_of(sys::errno()));
    println!("still closed: {}", done(sys::fcntl(fd, libc::F_GETFD, 0)));
    // SAFETY: the name is a C string; dup2 has no preconditions.
    let file = unsafe { libc::dup2(libc::open(c"/dev/zero".as_ptr(), libc::O_RDONLY), fd) };
    println!("of a file: {}", file == fd);
    let (other, id) = world.pair();
    println!("the next connection has another: {}", other != fd);
    println!("the file: {}", show(sys::read(fd, 3)));
    println!("the connection: {}", show(sys::write(other, b"abc")));
    println!("receive: {}", world.pump.ask(&format!("receive {id} 3")));
    let _ = sys::close(fd);
    let _ = sys::close(other);
}

fn close_range(world: &mut World) {
    let (fd, id) = world.pair();
    let range = |flags: libc::c_uint| {
        // SAFETY: the descriptor is ours to close.
        let result = unsafe { libc::close_range(fd as libc::c_uint, fd as libc::c_uint, flags as c_int) };
        format!("{result}, FD_CLOEXEC {}", show(sys::fcntl(fd, libc::F_GETFD, 0)))
    };
    println!("marked: {}", range(libc::CLOSE_RANGE_CLOEXEC));
    println!("still open: {}", show(sys::write(fd, b"abc")));
    println!("receive: {}", world.pump.ask(&format!("receive {id} 3")));
    println!("closed: {}", range(0));
    println!("receive: {}", world.pump.ask(&format!("receive {id} 1")));
    println!("unknown flag: {}", range(1 << 30));
}

fn numbers(world: &mut World) {
    let mut fds = Vec::new();
    for _ in 0..5 {
        let (fd, _) = world.pair();
        // SAFETY: the name is a C string.
        let file = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
        fds.extend([fd, file]);
        if fds.len() == 6 {
            let _ = sys::close(fds.remove(0));
            let _ = sys::close(fds.remove(1));
        }
    }
    let mut sorted = fds.clone();
    sorted.sort_unstable();
    sorted.dedup();
    println!("distinct: {}", sorted.len() == fds.len());
    for fd in fds {
        let _ = sys::close(fd);
    }
}

fn stat(world: &mut World) {
    let (fd, _) = world.pair();
    // SAFETY: the status is plain data and lives through the call.
    let is_socket = unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        libc::fstat(fd, &mut status) == 0 && status.st_mode & libc::S_IFMT == libc::S_IFSOCK
    };
    println!("a socket: {is_socket}");
    // SAFETY: no preconditions.
    println!("lseek: {} {}", unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) }, sys::errno() == libc::ESPIPE);
    let _ = sys::close(fd);
}

fn limit(world: &mut World) {
    let (listener, address) = world.listener();
    let id = world.number();
    world.pump.connect(id, address);
    let mut old = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limits are plain data and live through the calls.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut old);
        // The lowest number that is free now is the limit.
        let free = libc::dup(0);
        libc::close(free);
        let low = libc::rlimit { rlim_cur: free as libc::rlim_t, rlim_max: old.rlim_max };
        libc::setrlimit(libc::RLIMIT_NOFILE, &low);
    }
    // A stack in the process may have descriptors in store: they count, and are used up first.
    let mut fds = Vec::new();
    let mut spare = 0;
    let failed = loop {
        match sys::socket(world.family(), libc::SOCK_STREAM) {
            Ok(fd) => fds.push(fd),
            Err(error) => break error,
        }
        spare += 1;
        assert!(spare < 100_000, "there is no limit");
    };
    println!("socket: {failed}");
    let mut accepted = Vec::new();
    let failed = loop {
        match sys::accept4(listener, 0) {
            Ok((fd, _)) => accepted.push(fd),
            Err(error) => break error,
        }
    };
    println!("accept: {}", if failed == "EMFILE" { "EMFILE" } else { "another error, or none" });
    // SAFETY: the limits live through the call.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &old) };
    let later = sys::accept4(listener, 0);
    println!("the connection was kept: {}", later.is_ok());
    fds.extend(later.map(|(fd, _)| fd).ok());
    fds.extend(accepted);
    fds.push(listener);
    for fd in fds {
        let _ = sys::close(fd);
    }
}

fn forked(world: &mut World) {
    let (fd, id) = world.pair();
    // SAFETY: the child only makes calls that are allowed after fork and ends with `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let _ = sys::close(fd);
        // SAFETY: ends the child.
        unsafe { libc::_exit(3) };
    }
    let mut status = 0;
    // SAFETY: `status` lives through the call.
    unsafe { libc::waitpid(child, &mut status, 0) };
    println!("the child ended with {}", libc::WEXITSTATUS(status));
    println!("it closed only its own: {}", world.pump.ask(&format!("quiet {id} 50")));
    println!("write: {}", show(sys::write(fd, b"abc")));
    println!("receive: {}", world.pump.ask(&format!("receive {id} 3")));
    let _ = sys::close(fd);
}
