//! Datagram sockets.

use std::net::SocketAddr;

use super::{Case, World, done, ready, show};
use crate::sys;

pub const CASES: &[Case] = &[
    ("receiving and answering", exchange),
    ("truncation", truncation),
    ("the destination address", packet_info),
    ("connected", connected),
    ("errors", errors),
];

fn bound(world: &World, port: u16, any: bool) -> (i32, SocketAddr) {
    let fd = world.fresh(libc::SOCK_DGRAM);
    let mut address = world.address;
    address.set_port(world.address.port() + port);
    let at = match (any, address) {
        (false, address) => address,
        (true, SocketAddr::V4(_)) => SocketAddr::from(([0, 0, 0, 0], address.port())),
        (true, SocketAddr::V6(_)) => SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, address.port())),
    };
    sys::bind(fd, at).unwrap_or_else(|error| panic!("bind {at}: {error}"));
    (fd, address)
}

fn exchange(world: &mut World) {
    let (fd, address) = bound(world, 500, false);
    let epfd = sys::epoll();
    let _ = sys::ctl(epfd, libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN | libc::EPOLLET, 1);
    println!("before: {}", ready(epfd));
    let id = world.number();
    world.pump.ask(&format!("datagram {id} {address} 100"));
    println!("one: {}", ready(epfd));
    world.pump.ask(&format!("datagram {id} {address} 0"));
    println!("an empty one: {}", ready(epfd));
    println!("FIONREAD: {}", show(sys::ioctl(fd, libc::FIONREAD, -1)));
    println!("peek: {}", show(sys::recv(fd, 1000, libc::MSG_PEEK)));
    match sys::recvfrom(fd, 1000, 0) {
        Ok((len, from)) => {
            println!("receive: {len}");
            println!("answer: {}", show(sys::sendto(fd, &[b'a'; 50], from)));
            println!("it came: {}", world.pump.ask(&format!("answer {id} {address}")));
        }
        Err(error) => println!("receive: {error}"),
    }
    println!("receive: {}", show(sys::recvfrom(fd, 1000, 0).map(|(len, _)| len)));
    println!("receive: {}", show(sys::recvfrom(fd, 1000, 0).map(|(len, _)| len)));
    let _ = sys::close(epfd);
    let _ = sys::close(fd);
}

fn truncation(world: &mut World) {
    let (fd, address) = bound(world, 501, false);
    let id = world.number();
    world.pump.ask(&format!("datagram {id} {address} 100"));
    println!(
        "recvmsg of 10: {:?}",
        sys::recvmsg(fd, 10).map(|(len, flags, _)| (len, flags == libc::MSG_TRUNC))
    );
    world.pump.ask(&format!("datagram {id} {address} 100"));
    println!("MSG_TRUNC: {}", show(sys::recv(fd, 10, libc::MSG_TRUNC)));
    println!("nothing left: {}", show(sys::recv(fd, 10, 0)));
    let large = world.pump.ask(&format!("datagram {id} {address} 5000"));
    println!("in fragments: {large} {}", show(sys::recv(fd, 10_000, 0)));
    let _ = sys::close(fd);
}

fn packet_info(world: &mut World) {
    let (fd, address) = bound(world, 502, true);
    let (level, name) = if address.is_ipv4() {
        (libc::IPPROTO_IP, libc::IP_PKTINFO)
    } else {
        (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)
    };
    let id = world.number();
    world.pump.ask(&format!("datagram {id} {address} 7"));
    println!("not asked for: {}", sys::recvmsg(fd, 10).is_ok_and(|(_, _, to)| to.is_none()));
    println!("on: {}", done(sys::set_int(fd, level, name, 1)));
    println!("told: {}", show(sys::get_int(fd, level, name)));
    world.pump.ask(&format!("datagram {id} {address} 7"));
    println!("our address: {}", sys::recvmsg(fd, 10).is_ok_and(|(_, _, to)| to == Some(address.ip())));
    let _ = sys::close(fd);
}

fn connected(world: &mut World) {
    let (fd, address) = bound(world, 503, false);
    let id = world.number();
    world.pump.ask(&format!("datagram {id} {address} 7"));
    let Ok((_, from)) = sys::recvfrom(fd, 10, 0) else { return println!("nothing came") };
    println!("connect: {}", done(sys::connect(fd, from)));
    println!("peer's name: {}", sys::name(fd, true).is_ok_and(|peer| peer == from));
    println!("send: {}", show(sys::send(fd, b"abc", 0)));
    println!("it came: {}", world.pump.ask(&format!("answer {id} {address}")));
    let other = world.number();
    world.pump.ask(&format!("datagram {other} {address} 9"));
    println!("from somebody else: {}", show(sys::recv(fd, 10, 0)));
    world.pump.ask(&format!("datagram {id} {address} 8"));
    println!("from the peer: {}", show(sys::recv(fd, 10, 0)));
    let _ = sys::close(fd);
}

fn errors(world: &mut World) {
    let fd = world.fresh(libc::SOCK_DGRAM);
    println!("send without a peer: {}", show(sys::send(fd, b"x", 0)));
    println!("accept: {}", done(sys::accept4(fd, 0)));
    println!("peer's name: {}", done(sys::name(fd, true)));
    let _ = sys::close(fd);
    let (fd, address) = bound(world, 504, false);
    let other = world.fresh(libc::SOCK_DGRAM);
    println!("bind again: {}", done(sys::bind(other, address)));
    println!("receive: {}", show(sys::recv(fd, 10, 0)));
    println!("too long: {}", show(sys::sendto(fd, &[0; 70_000], address)));
    let _ = sys::close(other);
    let _ = sys::close(fd);
}
