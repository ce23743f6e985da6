//! Level, edge, one-shot, exclusive, and the errors of `epoll_ctl`.

use libc::{
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLET, EPOLLEXCLUSIVE, EPOLLIN, EPOLLONESHOT, EPOLLOUT,
    EPOLLRDHUP,
};

use super::{Case, World, done, ready, ready_within, show};
use crate::sys;

pub const CASES: &[Case] = &[
    ("a level-triggered listener", level_listener),
    ("an edge-triggered listener", edge_listener),
    ("level-triggered reading", level_read),
    ("edge-triggered reading and writing", edge),
    ("edge-triggered, the buffer full", edge_full),
    ("level-triggered, the buffer full", level_full),
    ("one-shot", one_shot),
    ("exclusive, nobody sleeping", exclusive),
    ("exclusive, threads sleeping", exclusive_threads),
    ("modify", modify),
    ("delete and add again", delete),
    ("the peer finishes", peer_finishes),
    ("both finish", both_finish),
    ("the peer resets", peer_resets),
    ("errors need no asking", errors_unasked),
    ("a small room", small_room),
    ("kernel descriptors in the same set", mixed),
    ("errors of epoll_ctl", control_errors),
    ("a closed descriptor leaves the set", closed),
    ("a duplicate stays in the set", duplicate),
    ("a fresh socket", fresh),
    ("time-outs", timeouts),
    ("a signal interrupts", signal),
];

const FOR_ALL: i32 = EPOLLIN | EPOLLOUT | EPOLLRDHUP;

fn add(epfd: i32, fd: i32, events: i32, data: u64) {
    sys::ctl(epfd, EPOLL_CTL_ADD, fd, events, data).unwrap_or_else(|error| panic!("EPOLL_CTL_ADD: {error}"));
}

fn close_all(fds: &[i32]) {
    for fd in fds {
        let _ = sys::close(*fd);
    }
}

fn level_listener(world: &mut World) {
    let (listener, address) = world.listener();
    let epfd = sys::epoll();
    add(epfd, listener, EPOLLIN, 1);
    println!("before: {}", ready(epfd));
    let first = world.number();
    world.pump.connect(first, address);
    println!("one: {}", ready(epfd));
    println!("again: {}", ready(epfd));
    let second = world.number();
    world.pump.connect(second, address);
    let accepted = sys::accept4(listener, 0).map(|(fd, _)| fd);
    println!("accept: {}", done(accepted.clone()));
    println!("one left: {}", ready(epfd));
    let other = sys::accept4(listener, 0).map(|(fd, _)| fd);
    println!("accept: {}", done(other.clone()));
    println!("after: {}", ready(epfd));
    println!("accept: {}", done(sys::accept4(listener, 0)));
    close_all(&[accepted.unwrap_or(-1), other.unwrap_or(-1), listener, epfd]);
}

fn edge_listener(world: &mut World) {
    let (listener, address) = world.listener();
    let epfd = sys::epoll();
    add(epfd, listener, EPOLLIN | EPOLLET, 1);
    let first = world.number();
    world.pump.connect(first, address);
    println!("one: {}", ready(epfd));
    println!("again: {}", ready(epfd));
    let second = world.number();
    world.pump.connect(second, address);
    println!("another: {}", ready(epfd));
    let a = sys::accept4(listener, 0).map(|(fd, _)| fd);
    println!("accepted one: {}", ready(epfd));
    let b = sys::accept4(listener, 0).map(|(fd, _)| fd);
    println!("accepted both: {}", ready(epfd));
    close_all(&[a.unwrap_or(-1), b.unwrap_or(-1), listener, epfd]);
}

fn level_read(world: &mut World) {
    let (fd, id) = world.pair();
    let epfd = sys::epoll();
    add(epfd, fd, EPOLLIN, 1);
    println!("before: {}", ready(epfd));
    world.pump.ask(&format!("send {id} 10"));
    println!("ten: {}", ready(epfd));
    println!("read 4: {}", show(sys::read(fd, 4)));
    println!("six left: {}", ready(epfd));
    println!("read 100: {}", show(sys::read(fd, 100)));
    println!("after: {}", ready(epfd));
    println!("read: {}", show(sys::read(fd, 100)));
    close_all(&[fd, epfd]);
}

fn edge(world: &mut World) {
    let (fd, id) = world.pair();
    let epfd = sys::epoll();
    add(epfd, fd, FOR_ALL | EPOLLET, 1);
    println!("added: {}", ready(epfd));
    println!("again: {}", ready(epfd));
    world.pump.ask(&format!("send {id} 10"));
    println!("ten: {}", ready(epfd));
    println!("again: {}", ready(epfd));
    world.pump.ask(&format!("send {id} 10"));
    println!("ten more: {}", ready(epfd));
    println!("read 5: {}", show(sys::read(fd, 5)));
    println!("partly read: {}", ready(epfd));
    println!("read: {}", show(sys::read(fd, 100)));
    println!("read: {}", show(sys::read(fd, 100)));
    println!("write: {}", show(sys::write(fd, b"hello")));
    println!("receive: {}", world.pump.ask(&format!("receive {id} 5")));
    println!("written and acknowledged: {}", ready(epfd));
    close_all(&[fd, epfd]);
}

/// Writes until nothing more fits; says how much that was.
fn fill(fd: i32) -> usize {
    let chunk = [b'y'; 16_384];
    let mut total = 0;
    while let Ok(len) = sys::write(fd, &chunk) {
        total += len;
    }
    total
}

/// Fills until the peer's window and our buffer are both full.
fn fill_up(world: &mut World, fd: i32) -> usize {
    let mut total = 0;
    loop {
        let more = fill(fd);
        total += more;
        if more == 0 {
            return total;
        }
        world.pump.settle();
    }
}

fn edge_full(world: &mut World) {
    let (fd, id) = world.pair();
    let _ = sys::set_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, 65_536);
    let epfd = sys::epoll();
    add(epfd, fd, EPOLLOUT | EPOLLET, 1);
    println!("empty: {}", ready(epfd));
    let total = fill_up(world, fd);
    println!("full: {}", ready(epfd));
    let answer = world.pump.ask(&format!("receive {id} {total}"));
    println!("everything received: {}", answer == format!("{total} bytes"));
    println!("room again: {}", ready(epfd));
    println!("again: {}", ready(epfd));
    close_all(&[fd, epfd]);
}

fn level_full(world: &mut World) {
    let (fd, id) = world.pair();
    let _ = sys::set_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, 65_536);
    let epfd = sys::epoll();
    add(epfd, fd, EPOLLOUT, 1);
    println!("empty: {}", ready(epfd));
    let total = fill_up(world, fd);
    println!("full: {}", ready(epfd));
    let answer = world.pump.ask(&format!("receive {id} {total}"));
    println!("everything received: {}", answer == format!("{total} bytes"));
    println!("room again: {}", ready(epfd));
    println!("again: {}", ready(epfd));
    close_all(&[fd, epfd]);
}

fn one_shot(world: &mut World) {
    let (fd, id) = world.pair();
    let epfd = sys::epoll();
    add(epfd, fd, EPOLLIN | EPOLLONESHOT, 1);
    world.pump.ask(&format!("send {id} 10"));
    println!("ten: {}", ready(epfd));
    world.pump.ask(&format!("send {id} 10"));
    println!("not re-armed: {}", ready(epfd));
    println!("modify: {}", done(sys::ctl(epfd, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLONESHOT, 2)));
    println!("re-armed: {}", ready(epfd));
    println!("again: {}", ready(epfd));
    world.pump.ask(&format!("reset {id}"));
    println!("reset, not re-armed: {}", ready(epfd));
    println!("modify: {}", done(sys::ctl(epfd, EPOLL_CTL_MOD, fd, FOR_ALL | EPOLLONESHOT | EPOLLET, 3)));
    println!("re-armed: {}", ready(epfd));
    close_all(&[fd, epfd]);
}

fn exclusive(world: &mut World) {
    let (listener, address) = world.listener();
    let (a, b) = (sys::epoll(), sys::epoll());
    add(a, listener, EPOLLIN | EPOLLEXCLUSIVE, 1);
    add(b, listener, EPOLLIN | EPOLLEXCLUSIVE, 2);
    println!("before: {} / {}", ready(a), ready(b));
    let id = world.number();
    world.pump.connect(id, address);
    println!("one: {} / {}", ready(a), ready(b));
    let fd = sys::accept4(listener, 0).map(|(fd, _)| fd);
    println!("accepted: {} / {}", ready(a), ready(b));
    close_all(&[fd.unwrap_or(-1), a, b, listener]);
}

fn exclusive_threads(world: &mut World) {
    let (listener, address) = world.listener();
    let sets = [sys::epoll(), sys::epoll(), sys::epoll()];
    for (data, set) in sets.iter().enumerate() {
        add(*set, listener, EPOLLIN | EPOLLEXCLUSIVE | EPOLLET, data as u64);
    }
    let threads: Vec<_> = sets
        .iter()
        .map(|&set| {
            std::thread::spawn(move || usize::from(sys::wait(set, 4, 600).is_ok_and(|e| !e.is_empty())))
        })
        .collect();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let id = world.number();
    world.pump.connect(id, address);
    let woken: usize = threads.into_iter().map(|thread| thread.join().unwrap_or(0)).sum();
    println!("woken of three: {woken}");
    let fd = sys::accept4(listener, 0).map(|(fd, _)| fd);
    close_all(&[fd.unwrap_or(-1), listener]);
    close_all(&sets);
}

fn modify(world: &mut World) {
    let (fd, id) = world.pair();
    let epfd = sys::epoll();
    add(epfd, fd, EPOLLIN | EPOLLET, 1);
    world.pump.ask(&format!("send {id} 3"));
    println!("three: {}", ready(epfd));
    println!("modify: {}", done(sys::ctl(epfd, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLET, 7)));
    println!("an edge again: {}", ready(epfd));
    println!("modify: {}", done(sys::ctl(epfd, EPOLL_CTL_MOD, fd, EPOLLOUT, 8)));
    println!("for writing: {}", ready(epfd));
    println!("modify: {}", done(sys::ctl(epfd, EPOLL_CTL_MOD, fd, 0, 9)));
    println!("for nothing: {}", ready(epfd));
    close_all(&[fd, epfd]);
}

fn delete(world: &mut World) {
    let (fd, id) = world.pair();
    let epfd = sys::epoll();
    add(epfd, fd, EPOLLIN, 1);
    world.pump.ask(&format!("send {id} 3"));
    println!("delete: {}", done(sys::ctl(epfd, EPOLL_CTL_DEL, fd, 0, 0)));
    println!("deleted: {}", ready(epfd));
    println!("add: {}", done(sys::ctl(epfd, EPOLL_CTL_ADD, fd, EPOLLIN, 2)));
    println!("added: {}", ready(epfd));
    close_all(&[fd, epfd]);
}

fn peer_finishes(world: &mut World) {
    let (fd, id) = world.pair();
    let epfd = sys::epoll();
    add(epfd, fd, FOR_ALL | EPOLLET, 1);
    println!("added: {}", ready(epfd));
    world.pump.ask(&format!("send {id} 3"));
    println!("three: {}", ready(epfd));
    world.pump.ask(&format!("finish {id}"));
    println!("finished: {}", ready(epfd));
    println!("again: {}", ready(epfd));
    println!("read: {}", show(sys::read(fd, 100)));
    println!("read: {}", show(sys::read(fd, 100)));
    println!("read: {}", show(sys::read(fd, 100)));
    println!("write: {}", show(sys::write(fd, b"hello")));
    println!("receive: {}", world.pump.ask(&format!("receive {id} 5")));
    println!("modify: {}", done(sys::ctl(epfd, EPOLL_CTL_MOD, fd, EPOLLIN, 2)));
    println!("level: {}", ready(epfd));
    close_all(&[fd, epfd]);
}

fn both_finish(world: &mut World) {
    let (fd, id) = world.pair();
    let epfd = sys::epoll();
    add(epfd, fd, FOR_ALL, 1);
    println!("shutdown: {}", done(sys::shutdown(fd, libc::SHUT_WR)));
    world.pump.settle();
    println!("we: {}", ready(epfd));
    println!("write: {}", show(sys::send(fd, b"x", libc::MSG_NOSIGNAL)));
    println!("receive: {}", world.pump.ask(&format!("receive {id} 1")));
    world.pump.ask(&format!("send {id} 3"));
    println!("three: {}", ready(epfd));
    world.pump.ask(&format!("finish {id}"));
    println!("both: {}", ready(epfd));
    println!("read: {}", show(sys::read(fd, 100)));
    println!("read: {}", show(sys::read(fd, 100)));
    println!("both: {}", ready(epfd));
    close_all(&[fd, epfd]);
}

fn peer_resets(world: &mut World) {
    let (fd, id) = world.pair();
    let epfd = sys::epoll();
    add(epfd, fd, FOR_ALL | EPOLLET, 1);
    println!("added: {}", ready(epfd));
    world.pump.ask(&format!("reset {id}"));
    println!("reset: {}", ready(epfd));
    println!("read: {}", show(sys::read(fd, 100)));
    println!("read: {}", show(sys::read(fd, 100)));
    println!("write: {}", show(sys::send(fd, b"x", libc::MSG_NOSIGNAL)));
    println!("shutdown: {}", done(sys::shutdown(fd, libc::SHUT_WR)));
    println!("peer's name: {}", done(sys::name(fd, true)));
    close_all(&[fd, epfd]);
    let (fd, id) = world.pair();
    world.pump.ask(&format!("send {id} 3"));
    world.pump.ask(&format!("reset {id}"));
    println!(
        "with data, SO_ERROR: {}",
        show(sys::get_int(fd, libc::SOL_SOCKET, libc::SO_ERROR).map(sys::name_of))
    );
    println!(
        "SO_ERROR again: {}",
        show(sys::get_int(fd, libc::SOL_SOCKET, libc::SO_ERROR).map(sys::name_of))
    );
    println!("read: {}", show(sys::read(fd, 100)));
    println!("write: {}", show(sys::send(fd, b"x", libc::MSG_NOSIGNAL)));
    close_all(&[fd]);
}

fn errors_unasked(world: &mut World) {
    let (fd, id) = world.pair();
    let epfd = sys::epoll();
    add(epfd, fd, 0, 1);
    world.pump.ask(&format!("send {id} 3"));
    println!("data: {}", ready(epfd));
    world.pump.ask(&format!("reset {id}"));
    println!("reset: {}", ready(epfd));
    close_all(&[fd, epfd]);
}

fn small_room(world: &mut World) {
    let epfd = sys::epoll();
    let mut fds = Vec::new();
    for data in 0..4 {
        let (fd, id) = world.pair();
        add(epfd, fd, EPOLLIN, data);
        world.pump.ask(&format!("send {id} 1"));
        fds.push(fd);
    }
    let mut seen = [0; 4];
    for _ in 0..8 {
        for (data, _) in sys::wait(epfd, 2, 0).unwrap_or_default() {
            seen[data as usize] += 1;
        }
    }
    println!("each of four, two at a time, eight times: {seen:?}");
    println!("all: {}", ready(epfd));
    println!("no room: {}", ready_within(epfd, 0, 0));
    close_all(&fds);
    close_all(&[epfd]);
}

fn mixed(world: &mut World) {
    let (fd, id) = world.pair();
    let mut pipe = [0; 2];
    // SAFETY: `pipe` has room for two descriptors.
    unsafe { libc::pipe(pipe.as_mut_ptr()) };
    let epfd = sys::epoll();
    add(epfd, fd, EPOLLIN, 1);
    add(epfd, pipe[0], EPOLLIN, 2);
    println!("before: {}", ready(epfd));
    println!("write: {}", show(sys::write(pipe[1], b"x")));
    println!("the pipe: {}", ready(epfd));
    world.pump.ask(&format!("send {id} 1"));
    world.pump.settle();
    println!("both: {}", ready(epfd));
    let mut seen = [0; 3];
    for _ in 0..200 {
        for (data, _) in sys::wait(epfd, 1, 1000).unwrap_or_default() {
            seen[data as usize] += 1;
        }
    }
    println!("one at a time, both were seen: {}", seen[1] > 0 && seen[2] > 0);
    println!("read: {}", show(sys::read(pipe[0], 10)));
    println!("the socket: {}", ready(epfd));
    close_all(&[fd, epfd, pipe[0], pipe[1]]);
}

fn control_errors(world: &mut World) {
    let (fd, _) = world.pair();
    let epfd = sys::epoll();
    println!("modify what is not there: {}", done(sys::ctl(epfd, EPOLL_CTL_MOD, fd, EPOLLIN, 1)));
    println!("delete what is not there: {}", done(sys::ctl(epfd, EPOLL_CTL_DEL, fd, 0, 1)));
    println!("add: {}", done(sys::ctl(epfd, EPOLL_CTL_ADD, fd, EPOLLIN, 1)));
    println!("add again: {}", done(sys::ctl(epfd, EPOLL_CTL_ADD, fd, EPOLLIN, 1)));
    println!("unknown operation: {}", done(sys::ctl(epfd, 99, fd, EPOLLIN, 1)));
    println!("modify to exclusive: {}", done(sys::ctl(epfd, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLEXCLUSIVE, 1)));
    println!("delete: {}", done(sys::ctl(epfd, EPOLL_CTL_DEL, fd, 0, 1)));
    let odd = EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT;
    println!("exclusive one-shot: {}", done(sys::ctl(epfd, EPOLL_CTL_ADD, fd, odd, 1)));
    let odd = EPOLLIN | EPOLLEXCLUSIVE | EPOLLRDHUP;
    println!("exclusive RDHUP: {}", done(sys::ctl(epfd, EPOLL_CTL_ADD, fd, odd, 1)));
    println!("exclusive: {}", done(sys::ctl(epfd, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLEXCLUSIVE, 1)));
    println!("modify the exclusive: {}", done(sys::ctl(epfd, EPOLL_CTL_MOD, fd, EPOLLIN, 1)));
    println!("no epoll descriptor: {}", done(sys::ctl(1, EPOLL_CTL_ADD, fd, EPOLLIN, 1)));
    println!("the socket as epoll descriptor: {}", done(sys::ctl(fd, EPOLL_CTL_ADD, fd, EPOLLIN, 1)));
    println!("a bad epoll descriptor: {}", done(sys::ctl(9999, EPOLL_CTL_ADD, fd, EPOLLIN, 1)));
    println!("a bad descriptor: {}", done(sys::ctl(epfd, EPOLL_CTL_ADD, 9999, EPOLLIN, 1)));
    close_all(&[fd]);
    println!("a closed descriptor: {}", done(sys::ctl(epfd, EPOLL_CTL_ADD, fd, EPOLLIN, 1)));
    close_all(&[epfd]);
}

fn closed(world: &mut World) {
    let (fd, id) = world.pair();
    let epfd = sys::epoll();
    add(epfd, fd, EPOLLIN, 1);
    world.pump.ask(&format!("send {id} 1"));
    println!("open: {}", ready(epfd));
    close_all(&[fd]);
    println!("closed: {}", ready(epfd));
    close_all(&[epfd]);
}

fn duplicate(world: &mut World) {
    let (fd, id) = world.pair();
    // SAFETY: no preconditions.
    let copy = unsafe { libc::dup(fd) };
    let epfd = sys::epoll();
    add(epfd, fd, EPOLLIN, 1);
    println!("add the copy: {}", done(sys::ctl(epfd, EPOLL_CTL_ADD, copy, EPOLLIN, 2)));
    world.pump.ask(&format!("send {id} 1"));
    println!("both: {}", ready(epfd));
    close_all(&[copy]);
    println!("read: {}", show(sys::read(fd, 10)));
    println!("read out: {}", ready(epfd));
    close_all(&[fd, epfd]);
}

fn fresh(world: &mut World) {
    let fd = world.fresh(libc::SOCK_STREAM);
    let epfd = sys::epoll();
    add(epfd, fd, FOR_ALL, 1);
    println!("fresh: {}", ready(epfd));
    println!("read: {}", show(sys::read(fd, 1)));
    println!("send: {}", show(sys::send(fd, b"x", libc::MSG_NOSIGNAL)));
    println!("shutdown: {}", done(sys::shutdown(fd, libc::SHUT_RDWR)));
    println!("peer's name: {}", done(sys::name(fd, true)));
    println!("accept: {}", done(sys::accept4(fd, 0)));
    close_all(&[fd, epfd]);
}

fn timeouts(world: &mut World) {
    let (fd, _) = world.pair();
    let epfd = sys::epoll();
    add(epfd, fd, EPOLLIN, 1);
    let begun = std::time::Instant::now();
    println!("50 ms: {}", ready_within(epfd, 4, 50));
    let took = begun.elapsed().as_millis();
    println!("it lasted that long, and not much longer: {}", (50..150).contains(&took));
    let begun = std::time::Instant::now();
    println!("0 ms: {}", ready_within(epfd, 4, 0));
    println!("it did not wait: {}", begun.elapsed().as_millis() < 20);
    close_all(&[fd, epfd]);
}

extern "C" fn ignore(_signal: i32) {}

fn signal(world: &mut World) {
    let (fd, id) = world.pair();
    let epfd = sys::epoll();
    add(epfd, fd, EPOLLIN, 1);
    // SAFETY: the action is plain data; the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut());
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGALRM, std::ptr::null(), &mut old);
        println!("the handler is told: {}", old.sa_sigaction == ignore as *const () as usize);
        println!("its flags are told: {}", old.sa_flags & libc::SA_SIGINFO == 0);
    }
    let alarm = |ms: i64| {
        let time = libc::timeval { tv_sec: 0, tv_usec: ms * 1000 };
        let timer = libc::itimerval { it_interval: libc::timeval { tv_sec: 0, tv_usec: 0 }, it_value: time };
        // SAFETY: the timer lives through the call.
        unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) };
    };
    alarm(50);
    println!("epoll_wait: {}", ready_within(epfd, 4, 5_000));
    alarm(50);
    let mut fds = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
    println!("poll: {}", show(sys::poll(&mut fds, 5_000)));
    println!("blocking: {}", done(sys::ioctl(fd, libc::FIONBIO, 0)));
    let time = [1_i64.to_ne_bytes(), 0_i64.to_ne_bytes()].concat();
    println!("a time-out: {}", done(sys::set(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &time)));
    alarm(50);
    println!("read with a time-out: {}", show(sys::read(fd, 10)));
    let _ = id;
    close_all(&[fd, epfd]);
}
