//! Each socket option that servers set. Defaults that depend on the machine are not printed.
//!
//! TCP_FASTOPEN is left out: the kernel can do it, the data plane refuses it.

use libc::{IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SOL_SOCKET};

use super::{Case, World, done, ready, show};
use crate::sys;

pub const CASES: &[Case] = &[
    ("switches", switches),
    ("numbers and their ranges", numbers),
    ("buffers", buffers),
    ("linger", linger),
    ("what a socket is", what),
    ("reuse of an address", reuse),
    ("IPV6_V6ONLY", v6_only),
    ("congestion control", congestion),
    ("TCP_INFO", info),
    ("TCP_CORK", cork),
    ("TCP_DEFER_ACCEPT", defer_accept),
    ("options reach accepted connections", inherited),
    ("unknown options and bad values", bad),
];

fn switch(fd: i32, level: i32, name: i32) -> String {
    let get = || show(sys::get_int(fd, level, name).map(|value| value != 0));
    let before = get();
    let on = done(sys::set_int(fd, level, name, 1));
    let between = get();
    let off = done(sys::set_int(fd, level, name, 0));
    format!("{before}, {on}: {between}, {off}: {}", get())
}

fn switches(world: &mut World) {
    let (conn, _) = world.pair();
    let (listener, _) = world.listener();
    for (what, fd) in [("connection", conn), ("listener", listener)] {
        println!("{what} TCP_NODELAY: {}", switch(fd, IPPROTO_TCP, libc::TCP_NODELAY));
        println!("{what} TCP_CORK: {}", switch(fd, IPPROTO_TCP, libc::TCP_CORK));
        println!("{what} SO_KEEPALIVE: {}", switch(fd, SOL_SOCKET, libc::SO_KEEPALIVE));
        println!("{what} SO_REUSEPORT: {}", switch(fd, SOL_SOCKET, libc::SO_REUSEPORT));
        println!("{what} SO_BROADCAST: {}", switch(fd, SOL_SOCKET, libc::SO_BROADCAST));
        let _ = sys::close(fd);
    }
    let fd = world.fresh(libc::SOCK_STREAM);
    println!("fresh SO_REUSEADDR: {}", switch(fd, SOL_SOCKET, libc::SO_REUSEADDR));
    println!("fresh IP_BIND_ADDRESS_NO_PORT: {}", switch(fd, IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT));
    let _ = sys::close(fd);
}

fn number(fd: i32, level: i32, name: i32, values: &[i32]) -> String {
    let mut parts = Vec::new();
    for value in values {
        let result = done(sys::set_int(fd, level, name, *value));
        parts.push(format!("{value} {result} {}", show(sys::get_int(fd, level, name))));
    }
    parts.join(", ")
}

fn numbers(world: &mut World) {
    let (conn, _) = world.pair();
    let (listener, _) = world.listener();
    for (what, fd) in [("connection", conn), ("listener", listener)] {
        println!(
            "{what} TCP_KEEPIDLE: {}",
            number(fd, IPPROTO_TCP, libc::TCP_KEEPIDLE, &[60, 0, 32_767, 32_768])
        );
        println!("{what} TCP_KEEPINTVL: {}", number(fd, IPPROTO_TCP, libc::TCP_KEEPINTVL, &[5, 0, 32_768]));
        println!("{what} TCP_KEEPCNT: {}", number(fd, IPPROTO_TCP, libc::TCP_KEEPCNT, &[3, 0, 127, 128]));
        let values = [30_000, 0, -1];
        println!("{what} TCP_USER_TIMEOUT: {}", number(fd, IPPROTO_TCP, libc::TCP_USER_TIMEOUT, &values));
        let _ = sys::close(fd);
    }
    let fd = world.fresh(libc::SOCK_STREAM);
    for (name, value) in [("88", 88), ("1000", 1000), ("32767", 32_767), ("1", 1), ("40000", 40_000)] {
        println!("fresh TCP_MAXSEG {name}: {}", done(sys::set_int(fd, IPPROTO_TCP, libc::TCP_MAXSEG, value)));
    }
    if world.address.is_ipv4() {
        println!("fresh IP_TOS: {}", number(fd, IPPROTO_IP, libc::IP_TOS, &[0x10, 0]));
        println!("fresh IP_TTL: {}", number(fd, IPPROTO_IP, libc::IP_TTL, &[32, 0, 256]));
    } else {
        println!("fresh IPV6_TCLASS: {}", number(fd, IPPROTO_IPV6, libc::IPV6_TCLASS, &[0x10, 0]));
        println!(
            "fresh IPV6_UNICAST_HOPS: {}",
            number(fd, IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, &[32, 256])
        );
    }
    let _ = sys::close(fd);
}

fn buffers(world: &mut World) {
    let (conn, _) = world.pair();
    let (listener, _) = world.listener();
    for (what, fd) in [("connection", conn), ("listener", listener)] {
        println!("{what} SO_RCVBUF: {}", number(fd, SOL_SOCKET, libc::SO_RCVBUF, &[65_536, 8_192, 1]));
        println!("{what} SO_SNDBUF: {}", number(fd, SOL_SOCKET, libc::SO_SNDBUF, &[65_536, 8_192, 1]));
        let _ = sys::close(fd);
    }
}

fn linger(world: &mut World) {
    let (fd, _) = world.pair();
    let get = || {
        let words = |value: Vec<u8>| {
            let word =
                |at: usize| value.get(at..at + 4).map(|b| i32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
            // The seconds mean something only when it is on.
            match (word(0), word(4)) {
                (Some(0), Some(_)) => "off".to_owned(),
                (Some(_), Some(seconds)) => format!("on, {seconds} s"),
                _ => "too short".to_owned(),
            }
        };
        show(sys::get(fd, SOL_SOCKET, libc::SO_LINGER).map(words))
    };
    println!("before: {}", get());
    for (on, seconds) in [(1, 5), (0, 0)] {
        let value: Vec<u8> = [i32::to_ne_bytes(on), i32::to_ne_bytes(seconds)].concat();
        println!("{on} {seconds}: {} {}", done(sys::set(fd, SOL_SOCKET, libc::SO_LINGER, &value)), get());
    }
    println!("too short: {}", done(sys::set_int(fd, SOL_SOCKET, libc::SO_LINGER, 1)));
    let _ = sys::close(fd);
}

fn what(world: &mut World) {
    let (conn, _) = world.pair();
    let (listener, _) = world.listener();
    let datagram = world.fresh(libc::SOCK_DGRAM);
    for (what, fd) in [("connection", conn), ("listener", listener), ("datagram", datagram)] {
        for (name, option) in [
            ("SO_TYPE", libc::SO_TYPE),
            ("SO_DOMAIN", libc::SO_DOMAIN),
            ("SO_PROTOCOL", libc::SO_PROTOCOL),
            ("SO_ACCEPTCONN", libc::SO_ACCEPTCONN),
            ("SO_ERROR", libc::SO_ERROR),
        ] {
            println!("{what} {name}: {}", show(sys::get_int(fd, SOL_SOCKET, option)));
        }
        println!("{what} set SO_TYPE: {}", done(sys::set_int(fd, SOL_SOCKET, libc::SO_TYPE, 1)));
        let _ = sys::close(fd);
    }
}

fn reuse(world: &mut World) {
    let (listener, address) = world.listener();
    let another = |options: &[i32]| {
        let fd = world.fresh(libc::SOCK_STREAM);
        for option in options {
            let _ = sys::set_int(fd, SOL_SOCKET, *option, 1);
        }
        let bound = done(sys::bind(fd, address));
        let listens = done(sys::listen(fd, 4));
        (fd, format!("bind {bound}, listen {listens}"))
    };
    let (a, said) = another(&[]);
    println!("plain: {said}");
    let (b, said) = another(&[libc::SO_REUSEADDR]);
    println!("SO_REUSEADDR: {said}");
    let (c, said) = another(&[libc::SO_REUSEPORT]);
    println!("SO_REUSEPORT on one: {said}");
    for fd in [listener, a, b, c] {
        let _ = sys::close(fd);
    }
    let (a, said) = another(&[libc::SO_REUSEPORT]);
    println!("SO_REUSEPORT first: {said}");
    let (b, said) = another(&[libc::SO_REUSEPORT]);
    println!("SO_REUSEPORT second: {said}");
    for fd in [a, b] {
        let _ = sys::close(fd);
    }
}

fn v6_only(world: &mut World) {
    let fd = sys::socket(libc::AF_INET6, libc::SOCK_STREAM).unwrap_or_else(|error| panic!("{error}"));
    println!("{}", switch(fd, IPPROTO_IPV6, libc::IPV6_V6ONLY));
    let v4 = sys::socket(libc::AF_INET, libc::SOCK_STREAM).unwrap_or_else(|error| panic!("{error}"));
    let any6 = std::net::SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, world.address.port() + 900));
    let any4 = std::net::SocketAddr::from((std::net::Ipv4Addr::UNSPECIFIED, world.address.port() + 900));
    println!("on: {}", done(sys::set_int(fd, IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)));
    println!("bind: {}", done(sys::bind(fd, any6)));
    println!("bind v4: {}", done(sys::bind(v4, any4)));
    println!("after bind: {}", done(sys::set_int(fd, IPPROTO_IPV6, libc::IPV6_V6ONLY, 0)));
    for fd in [fd, v4] {
        let _ = sys::close(fd);
    }
    let fd = sys::socket(libc::AF_INET6, libc::SOCK_STREAM).unwrap_or_else(|error| panic!("{error}"));
    let v4 = sys::socket(libc::AF_INET, libc::SOCK_STREAM).unwrap_or_else(|error| panic!("{error}"));
    println!("off: {}", done(sys::set_int(fd, IPPROTO_IPV6, libc::IPV6_V6ONLY, 0)));
    println!("bind: {}", done(sys::bind(fd, any6)));
    println!("listen: {}", done(sys::listen(fd, 4)));
    println!("bind v4: {}", done(sys::bind(v4, any4)));
    for fd in [fd, v4] {
        let _ = sys::close(fd);
    }
}

fn congestion(world: &mut World) {
    let (fd, _) = world.pair();
    let get = || {
        let text = |value: Vec<u8>| {
            let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
            String::from_utf8_lossy(&value[..end]).into_owned()
        };
        show(sys::get(fd, IPPROTO_TCP, libc::TCP_CONGESTION).map(text))
    };
    for name in ["reno", "cubic", "nosuch"] {
        println!(
            "{name}: {} {}",
            done(sys::set(fd, IPPROTO_TCP, libc::TCP_CONGESTION, name.as_bytes())),
            get()
        );
    }
    let _ = sys::close(fd);
}

fn info(world: &mut World) {
    let (fd, id) = world.pair();
    let state =
        || show(sys::get(fd, IPPROTO_TCP, libc::TCP_INFO).map(|info| info.first().copied().unwrap_or(0)));
    println!("established: {}", state());
    world.pump.ask(&format!("finish {id}"));
    println!("the peer has finished: {}", state());
    println!("shutdown: {}", done(sys::shutdown(fd, libc::SHUT_WR)));
    world.pump.settle();
    println!("both have: {}", state());
    let _ = sys::close(fd);
    let (fd, _) = world.listener();
    let state = sys::get(fd, IPPROTO_TCP, libc::TCP_INFO).map(|info| info.first().copied().unwrap_or(0));
    println!("a listener: {}", show(state));
    let _ = sys::close(fd);
}

fn cork(world: &mut World) {
    let (fd, id) = world.pair();
    println!("cork: {}", done(sys::set_int(fd, IPPROTO_TCP, libc::TCP_CORK, 1)));
    println!("write: {}", show(sys::write(fd, b"abc")));
    println!("held: {}", world.pump.ask(&format!("quiet {id} 40")));
    println!("write: {}", show(sys::write(fd, b"def")));
    println!("uncork: {}", done(sys::set_int(fd, IPPROTO_TCP, libc::TCP_CORK, 0)));
    println!("receive: {}", world.pump.ask(&format!("receive {id} 6")));
    let _ = sys::close(fd);
}

fn defer_accept(world: &mut World) {
    let (listener, address) = world.listener();
    println!("set: {}", done(sys::set_int(listener, IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 5)));
    let told = sys::get_int(listener, IPPROTO_TCP, libc::TCP_DEFER_ACCEPT);
    println!("at least that: {}", told.is_ok_and(|seconds| seconds >= 5));
    let epfd = sys::epoll();
    let _ = sys::ctl(epfd, libc::EPOLL_CTL_ADD, listener, libc::EPOLLIN, 1);
    let id = world.number();
    world.pump.connect(id, address);
    println!("connected: {}", ready(epfd));
    println!("accept: {}", done(sys::accept4(listener, 0)));
    world.pump.ask(&format!("send {id} 4"));
    println!("with data: {}", ready(epfd));
    match sys::accept4(listener, libc::SOCK_NONBLOCK) {
        Ok((fd, _)) => {
            println!("read: {}", show(sys::read(fd, 10)));
            let _ = sys::close(fd);
        }
        Err(error) => println!("accept: {error}"),
    }
    let _ = sys::close(epfd);
    let _ = sys::close(listener);
}

fn inherited(world: &mut World) {
    let (listener, address) = world.listener();
    let _ = sys::set_int(listener, SOL_SOCKET, libc::SO_KEEPALIVE, 1);
    let _ = sys::set_int(listener, IPPROTO_TCP, libc::TCP_KEEPIDLE, 77);
    let _ = sys::set_int(listener, IPPROTO_TCP, libc::TCP_NODELAY, 1);
    let _ = sys::set_int(listener, SOL_SOCKET, libc::SO_SNDBUF, 40_000);
    let linger = [1_i32.to_ne_bytes(), 3_i32.to_ne_bytes()].concat();
    let _ = sys::set(listener, SOL_SOCKET, libc::SO_LINGER, &linger);
    let id = world.number();
    world.pump.connect(id, address);
    match sys::accept4(listener, libc::SOCK_NONBLOCK) {
        Ok((fd, _)) => {
            println!("SO_KEEPALIVE: {}", show(sys::get_int(fd, SOL_SOCKET, libc::SO_KEEPALIVE)));
            println!("TCP_KEEPIDLE: {}", show(sys::get_int(fd, IPPROTO_TCP, libc::TCP_KEEPIDLE)));
            println!(
                "TCP_NODELAY: {}",
                show(sys::get_int(fd, IPPROTO_TCP, libc::TCP_NODELAY).map(|v| v != 0))
            );
            println!("SO_SNDBUF: {}", show(sys::get_int(fd, SOL_SOCKET, libc::SO_SNDBUF)));
            println!("SO_LINGER: {}", show(sys::get_int(fd, SOL_SOCKET, libc::SO_LINGER)));
            println!(
                "SO_REUSEADDR: {}",
                show(sys::get_int(fd, SOL_SOCKET, libc::SO_REUSEADDR).map(|v| v != 0))
            );
            let _ = sys::close(fd);
        }
        Err(error) => println!("accept: {error}"),
    }
    let _ = sys::close(listener);
}

fn bad(world: &mut World) {
    let (fd, _) = world.pair();
    println!("unknown of SOL_SOCKET: {}", done(sys::set_int(fd, SOL_SOCKET, 9_999, 1)));
    println!("unknown of TCP: {}", done(sys::set_int(fd, IPPROTO_TCP, 9_999, 1)));
    println!("unknown asked for: {}", done(sys::get(fd, IPPROTO_TCP, 9_999)));
    println!("too short: {}", done(sys::set(fd, IPPROTO_TCP, libc::TCP_NODELAY, &[1])));
    println!("empty: {}", done(sys::set(fd, IPPROTO_TCP, libc::TCP_KEEPIDLE, &[])));
    let time = [0_i64.to_ne_bytes(), 1_000_000_i64.to_ne_bytes()].concat();
    println!("a time-out that is none: {}", done(sys::set(fd, SOL_SOCKET, libc::SO_RCVTIMEO, &time)));
    let _ = sys::close(fd);
    let datagram = world.fresh(libc::SOCK_DGRAM);
    println!(
        "TCP's on a datagram socket: {}",
        done(sys::set_int(datagram, IPPROTO_TCP, libc::TCP_NODELAY, 1))
    );
    let _ = sys::close(datagram);
}
