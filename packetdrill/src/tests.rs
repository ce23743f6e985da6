//! The crate's own parts; the stack itself is tested by the scripts.

use std::net::SocketAddr;

use crate::address::{self, Address};
use crate::settings::{Flags, metric};
use crate::world::World;

fn sockaddr(text: &str, v6: bool) -> Vec<u8> {
    address::write(text.parse().unwrap(), v6)
}

fn world() -> World {
    World::new("local=192.168.0.1,remote=192.0.2.1")
}

/// A TCP packet to the socket under test.
fn packet(flags: u8, seq: u32, ack: u32, payload: &[u8]) -> Vec<u8> {
    let (src, dst): (SocketAddr, SocketAddr) =
        ("192.0.2.1:50000".parse().unwrap(), "192.168.0.1:8080".parse().unwrap());
    let mut p = vec![0; 40];
    p[20..22].copy_from_slice(&src.port().to_be_bytes());
    p[22..24].copy_from_slice(&dst.port().to_be_bytes());
    p[24..28].copy_from_slice(&seq.to_be_bytes());
    p[28..32].copy_from_slice(&ack.to_be_bytes());
    p[32] = 5 << 4;
    p[33] = flags;
    p[34..36].copy_from_slice(&60_000u16.to_be_bytes());
    p.extend_from_slice(payload);
    let key = ff_flowmap::FlowKey::new(6, src, dst);
    let t = ff_tcp::Transmit { key, len: 0, ecn: ff_tcp::Ecn::NotEct, gso_size: None };
    crate::frames::finish(&mut p, &t, 0);
    p
}

fn number(p: &[u8]) -> u32 {
    u32::from_be_bytes(p[24..28].try_into().unwrap())
}

#[test]
fn addresses_of_both_families_and_mapped_ones() {
    for (text, v6, inside) in [
        ("192.0.2.1:8080", false, "192.0.2.1:8080"),
        ("192.0.2.1:8080", true, "192.0.2.1:8080"),
        ("[2001:2::1]:80", true, "[2001:2::1]:80"),
    ] {
        assert_eq!(address::read(&sockaddr(text, v6)), Some(Address::Inet(inside.parse().unwrap())));
    }
    assert_eq!(address::read(&[0, 0]), Some(Address::Unspecified));
    assert_eq!(address::read(&[1, 0, 0]), None);
    assert_eq!(address::read(&sockaddr("192.0.2.1:1", false)[..7]), None);
}

#[test]
fn flags_and_route_metrics() {
    let flags = Flags::parse("local=192.168.0.1,remote=192.0.2.1,else=1");
    assert_eq!(flags.local, Some("192.168.0.1".parse().unwrap()));
    assert_eq!(flags.remote, Some("192.0.2.1".parse().unwrap()));
    let route = "192.0.2.1 via 192.168.0.2 dev tun0 src 192.168.0.1 uid 0\n cache mtu lock 640 advmss 600 initcwnd 11";
    assert_eq!(metric(route, "mtu"), Some(640));
    assert_eq!(metric(route, "initcwnd"), Some(11));
    assert_eq!(metric(route, "rto_min"), None);
}

#[test]
fn the_clock_moves_only_when_it_is_asked_to() {
    let w = world();
    let start = w.time_us();
    assert_eq!(w.time_us(), start + 1);
    w.sleep(1_000);
    assert_eq!(w.time_us(), start + 1_002);
}

/// A listener, a handshake, data both ways, with the packets that a script would have.
#[test]
fn a_conversation_through_the_calls() {
    let w = world();
    let fd = w.socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_TCP).unwrap();
    assert_eq!(w.bind(fd, address::read(&sockaddr("192.168.0.1:8080", false))), Ok(0));
    assert_eq!(w.listen(fd, 1), Ok(0));
    w.packet_in(&packet(0x02, 100, 0, &[]));
    let (_, syn_ack) = w.packet_out().unwrap();
    assert_eq!(syn_ack[33], 0x12);
    let isn = number(&syn_ack);
    w.packet_in(&packet(0x10, 101, isn + 1, &[]));
    let (conn, remote, _) = w.accept(fd).unwrap();
    assert_eq!(remote, "192.0.2.1:50000".parse().unwrap());
    assert_eq!(w.send(conn, Some(b"hello"), 0), Ok(5));
    let (_, data) = w.packet_out().unwrap();
    assert_eq!((&data[40..], number(&data)), (&b"hello"[..], isn + 1));
    w.packet_in(&packet(0x18, 101, isn + 6, b"world"));
    assert_eq!(w.receive(conn, 100, 0, true).unwrap().bytes, b"world");
    // Nothing is left, and nothing will come: the call gives up instead of waiting for ever.
    assert_eq!(w.fcntl(conn, libc::F_SETFL, i64::from(libc::O_NONBLOCK)), Ok(0));
    assert_eq!(w.receive(conn, 100, 0, true).unwrap_err(), libc::EAGAIN);
    assert_eq!(w.close(conn), Ok(0));
    assert_eq!(w.close(conn), Err(libc::EBADF));
}

/// A retransmission leaves at exactly its time, and no time passes in reality.
#[test]
fn timers_fire_in_virtual_time() {
    let w = world();
    let fd = w.socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap();
    w.bind(fd, address::read(&sockaddr("192.168.0.1:8080", false))).unwrap();
    w.listen(fd, 1).unwrap();
    w.packet_in(&packet(0x02, 100, 0, &[]));
    let (first, _) = w.packet_out().unwrap();
    let (second, _) = w.packet_out().unwrap();
    assert_eq!(second - first, 1_000_000);
}

/// A call that blocks on a second thread returns in the same microsecond as the packet that it waited for.
#[test]
fn a_blocked_call_returns_when_its_packet_arrives() {
    let w = world();
    let fd = w.socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap();
    w.bind(fd, address::read(&sockaddr("192.168.0.1:8080", false))).unwrap();
    w.listen(fd, 1).unwrap();
    std::thread::scope(|s| {
        let blocked = s.spawn(|| {
            let result = w.accept(fd);
            (w.time_us(), result.map(|r| r.1))
        });
        // packetdrill, too, goes on only when the other thread sleeps.
        std::thread::sleep(std::time::Duration::from_millis(50));
        w.sleep(250_000);
        w.packet_in(&packet(0x02, 100, 0, &[]));
        let (_, syn_ack) = w.packet_out().unwrap();
        w.sleep(100_000);
        let at = w.lock().now_us;
        w.packet_in(&packet(0x10, 101, number(&syn_ack) + 1, &[]));
        w.sleep(1_000_000);
        let (returned, remote) = blocked.join().unwrap();
        assert_eq!(returned, at);
        assert_eq!(remote, Ok("192.0.2.1:50000".parse().unwrap()));
    });
}
