//! What flows through a connection: partial reads, peeking, vectors, blocking calls, the ways to end it.

use super::{Case, World, done, show};
use crate::sys;

pub const CASES: &[Case] = &[
    ("reading in parts", parts),
    ("peeking and waiting for all", peek),
    ("vectors", vectors),
    ("names", names),
    ("blocking calls", blocking),
    ("poll and select", poll_select),
    ("sendfile", sendfile),
    ("closing with unread data resets", close_unread),
    ("closing in order", close_in_order),
    ("linger 0 resets", linger_reset),
    ("writing after the peer is gone", write_after),
    ("shutting down reading", shutdown_read),
    ("accepting what is over", accept_over),
    ("a socket that is bound and listens twice", bind_errors),
    ("connecting to nobody", connect_refused),
];

fn parts(world: &mut World) {
    let (fd, id) = world.pair();
    println!("FIONREAD: {}", show(sys::ioctl(fd, libc::FIONREAD, -1)));
    world.pump.ask(&format!("send {id} 1000"));
    println!("FIONREAD: {}", show(sys::ioctl(fd, libc::FIONREAD, -1)));
    println!("read 300: {}", show(sys::read(fd, 300)));
    println!("FIONREAD: {}", show(sys::ioctl(fd, libc::FIONREAD, -1)));
    println!("read 0: {}", show(sys::read(fd, 0)));
    println!("read 5000: {}", show(sys::read(fd, 5000)));
    println!("read: {}", show(sys::read(fd, 1)));
    let _ = sys::close(fd);
}

fn peek(world: &mut World) {
    let (fd, id) = world.pair();
    world.pump.ask(&format!("send {id} 100"));
    println!("peek 10: {}", show(sys::recv(fd, 10, libc::MSG_PEEK)));
    println!("peek 1000: {}", show(sys::recv(fd, 1000, libc::MSG_PEEK)));
    println!("peek all of 1000: {}", show(sys::recv(fd, 1000, libc::MSG_PEEK | libc::MSG_DONTWAIT)));
    println!("out of band: {}", show(sys::recv(fd, 10, libc::MSG_OOB)));
    println!("read: {}", show(sys::recv(fd, 1000, 0)));
    let (from, len) = (show(sys::recvfrom(fd, 10, 0).map(|(len, _)| len)), 5);
    println!("recvfrom: {from}");
    world.pump.ask(&format!("send {id} {len}"));
    println!("recvfrom: {}", show(sys::recvfrom(fd, 10, 0).map(|(len, _)| len)));
    let _ = sys::close(fd);
}

fn vectors(world: &mut World) {
    let (fd, id) = world.pair();
    println!("writev: {}", show(sys::writev(fd, &[b"one", b"", b"two", b"three"])));
    println!("receive: {}", world.pump.ask(&format!("receive {id} 11")));
    world.pump.ask(&format!("send {id} 100"));
    println!("readv: {}", show(sys::readv(fd, &[10, 20, 30])));
    println!("readv: {}", show(sys::readv(fd, &[10, 0, 300])));
    println!("readv: {}", show(sys::readv(fd, &[10, 20])));
    let _ = sys::close(fd);
}

fn names(world: &mut World) {
    let (fd, _) = world.pair();
    let own = sys::name(fd, false);
    println!("own: {}", own.is_ok_and(|own| own == world.address));
    println!("peer's: {}", done(sys::name(fd, true)));
    let (listener, address) = world.listener();
    println!("a listener's: {}", sys::name(listener, false).is_ok_and(|own| own == address));
    println!("a listener's peer: {}", done(sys::name(listener, true)));
    let _ = sys::close(listener);
    let _ = sys::close(fd);
}

fn blocking(world: &mut World) {
    let (fd, id) = world.pair();
    println!("blocking: {}", done(sys::ioctl(fd, libc::FIONBIO, 0)));
    let time = [0_i64.to_ne_bytes(), 200_000_i64.to_ne_bytes()].concat();
    println!("SO_RCVTIMEO: {}", done(sys::set(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &time)));
    println!(
        "it is told: {}",
        sys::get(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO).is_ok_and(|told| told == time)
    );
    let begun = std::time::Instant::now();
    println!("read: {}", show(sys::read(fd, 10)));
    println!("it waited: {}", (200..300).contains(&begun.elapsed().as_millis()));
    println!("MSG_DONTWAIT: {}", show(sys::recv(fd, 10, libc::MSG_DONTWAIT)));
    world.pump.ask(&format!("send {id} 6"));
    println!("read: {}", show(sys::read(fd, 10)));
    world.pump.ask(&format!("send {id} 6"));
    println!("all of 10, 6 there: {}", show(sys::recv(fd, 10, libc::MSG_WAITALL)));
    println!("write: {}", show(sys::write(fd, &[b'z'; 300_000])));
    println!("receive: {}", world.pump.ask(&format!("receive {id} 300000")));
    world.pump.ask(&format!("finish {id}"));
    println!("read: {}", show(sys::read(fd, 10)));
    let _ = sys::close(fd);
}

fn poll_select(world: &mut World) {
    let (fd, id) = world.pair();
    let (listener, address) = world.listener();
    let poll = |events| {
        let mut fds = [
            libc::pollfd { fd, events, revents: 0 },
            libc::pollfd { fd: listener, events, revents: 0 },
            libc::pollfd { fd: -1, events, revents: 0 },
        ];
        let result = sys::poll(&mut fds, 0);
        format!("{} {:#x} {:#x} {:#x}", show(result), fds[0].revents, fds[1].revents, fds[2].revents)
    };
    println!("poll: {}", poll(libc::POLLIN | libc::POLLOUT));
    world.pump.ask(&format!("send {id} 6"));
    let other = world.number();
    world.pump.connect(other, address);
    println!("poll: {}", poll(libc::POLLIN | libc::POLLRDNORM));
    // SAFETY: the sets are plain data, initialised by FD_ZERO's equal; descriptors are below FD_SETSIZE.
    unsafe {
        let mut read: libc::fd_set = std::mem::zeroed();
        let mut write: libc::fd_set = std::mem::zeroed();
        libc::FD_SET(fd, &mut read);
        libc::FD_SET(listener, &mut read);
        libc::FD_SET(fd, &mut write);
        let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
        let found =
            libc::select(fd.max(listener) + 1, &mut read, &mut write, std::ptr::null_mut(), &mut time);
        println!(
            "select: {found} {} {} {}",
            libc::FD_ISSET(fd, &read),
            libc::FD_ISSET(listener, &read),
            libc::FD_ISSET(fd, &write)
        );
    }
    world.pump.ask(&format!("finish {id}"));
    println!("poll: {}", poll(libc::POLLIN | libc::POLLRDHUP));
    println!("poll for nothing: {}", poll(0));
    world.pump.ask(&format!("reset {id}"));
    println!("poll for nothing: {}", poll(0));
    let _ = sys::close(listener);
    let _ = sys::close(fd);
}

fn sendfile(world: &mut World) {
    let (fd, id) = world.pair();
    let name = c"/proc/self/exe";
    // SAFETY: the name is a C string.
    let file = unsafe { libc::open(name.as_ptr(), libc::O_RDONLY) };
    let mut offset: libc::off_t = 100;
    // SAFETY: the offset lives through the call.
    let sent = unsafe { libc::sendfile(fd, file, &mut offset, 5_000) };
    println!("with an offset: {sent}, now at {offset}");
    println!("receive: {}", world.pump.ask(&format!("receive {id} 5000")));
    // SAFETY: a null offset means the file's own position.
    let sent = unsafe { libc::sendfile(fd, file, std::ptr::null_mut(), 3_000) };
    // SAFETY: no preconditions.
    let position = unsafe { libc::lseek(file, 0, libc::SEEK_CUR) };
    println!("without: {sent}, now at {position}");
    println!("receive: {}", world.pump.ask(&format!("receive {id} 3000")));
    let mut offset: libc::off_t = 1 << 40;
    // SAFETY: the offset lives through the call.
    let sent = unsafe { libc::sendfile(fd, file, &mut offset, 5_000) };
    println!("beyond the end: {sent}");
    // SAFETY: as above.
    let result = unsafe { libc::sendfile(fd, 9999, &mut offset, 5_000) };
    println!("from a bad descriptor: {result} {}", sys::name_of(sys::errno()));
    let _ = sys::close(file);
    let _ = sys::close(fd);
}

fn close_unread(world: &mut World) {
    let (fd, id) = world.pair();
    world.pump.ask(&format!("send {id} 6"));
    let _ = sys::close(fd);
    world.pump.settle();
    println!("receive: {}", world.pump.ask(&format!("receive {id} 1")));
}

fn close_in_order(world: &mut World) {
    let (fd, id) = world.pair();
    println!("write: {}", show(sys::write(fd, b"hello")));
    println!("close: {}", done(sys::close(fd)));
    println!("close again: {}", done(sys::close(fd)));
    println!("receive: {}", world.pump.ask(&format!("receive {id} 10")));
}

fn linger_reset(world: &mut World) {
    let (fd, id) = world.pair();
    let linger = [1_i32.to_ne_bytes(), 0_i32.to_ne_bytes()].concat();
    println!("SO_LINGER: {}", done(sys::set(fd, libc::SOL_SOCKET, libc::SO_LINGER, &linger)));
    let _ = sys::close(fd);
    println!("receive: {}", world.pump.ask(&format!("receive {id} 10")));
}

fn write_after(world: &mut World) {
    let (fd, id) = world.pair();
    world.pump.ask(&format!("close {id}"));
    println!("first: {}", show(sys::send(fd, b"x", libc::MSG_NOSIGNAL)));
    world.pump.settle();
    println!("second: {}", show(sys::send(fd, b"x", libc::MSG_NOSIGNAL)));
    println!("third: {}", show(sys::send(fd, b"x", libc::MSG_NOSIGNAL)));
    println!("read: {}", show(sys::read(fd, 10)));
    let _ = sys::close(fd);
}

fn shutdown_read(world: &mut World) {
    let (fd, _) = world.pair();
    println!("shutdown: {}", done(sys::shutdown(fd, libc::SHUT_RD)));
    println!("read: {}", show(sys::read(fd, 10)));
    println!("write: {}", show(sys::write(fd, b"x")));
    println!("bad way: {}", done(sys::shutdown(fd, 7)));
    let _ = sys::close(fd);
}

fn accept_over(world: &mut World) {
    let (listener, address) = world.listener();
    let id = world.number();
    world.pump.connect(id, address);
    world.pump.ask(&format!("send {id} 4"));
    world.pump.ask(&format!("close {id}"));
    match sys::accept4(listener, libc::SOCK_NONBLOCK) {
        Ok((fd, _)) => {
            println!("read: {}", show(sys::read(fd, 10)));
            println!("read: {}", show(sys::read(fd, 10)));
            let _ = sys::close(fd);
        }
        Err(error) => println!("accept: {error}"),
    }
    println!("accept: {}", done(sys::accept4(listener, 0)));
    println!("bad flags: {}", done(sys::accept4(listener, 1)));
    let _ = sys::close(listener);
}

fn bind_errors(world: &mut World) {
    let (listener, address) = world.listener();
    println!("bind again: {}", done(sys::bind(listener, address)));
    println!("listen again: {}", done(sys::listen(listener, 10)));
    let other = world.fresh(libc::SOCK_STREAM);
    println!("another there: {}", done(sys::bind(other, address)));
    let nowhere = if address.is_ipv4() { "203.0.113.9:80" } else { "[2001:db8::9]:80" };
    match nowhere.parse() {
        Ok(nowhere) => println!("not our address: {}", done(sys::bind(other, nowhere))),
        Err(error) => println!("{error}"),
    }
    println!("connect a listener: {}", done(sys::connect(listener, address)));
    let datagram = world.fresh(libc::SOCK_DGRAM);
    println!("listen on a datagram socket: {}", done(sys::listen(datagram, 1)));
    for fd in [listener, other, datagram] {
        let _ = sys::close(fd);
    }
}

fn connect_refused(world: &mut World) {
    let (fd, _) = world.pair();
    let peer = sys::name(fd, true);
    let _ = sys::close(fd);
    let Ok(mut peer) = peer else { return println!("no peer") };
    peer.set_port(1);
    let fd = world.fresh(libc::SOCK_STREAM);
    let epfd = sys::epoll();
    let _ = sys::ctl(epfd, libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET, 1);
    println!("connect: {}", done(sys::connect(fd, peer)));
    world.pump.settle();
    println!("events: {}", super::ready(epfd));
    println!("SO_ERROR: {}", show(sys::get_int(fd, libc::SOL_SOCKET, libc::SO_ERROR).map(sys::name_of)));
    println!(
        "SO_ERROR again: {}",
        show(sys::get_int(fd, libc::SOL_SOCKET, libc::SO_ERROR).map(sys::name_of))
    );
    let _ = sys::close(epfd);
    let _ = sys::close(fd);
}
