//! The main things against an independent peer: neighbours, ping, TCP both ways.

mod support;

use ff_dataplane::sockets::{Domain, Kind, SockError, SockOpt};
use smoltcp::socket::{icmp, tcp};
use smoltcp::wire::{IpAddress, IpEndpoint};
use support::{Pair, addr, ip, pattern};

fn smol_addr(text: &str) -> IpAddress {
    ip(text).into()
}

#[test]
fn pings_are_answered_v4_and_v6() {
    for (target, v4) in [("198.18.0.2", true), ("2001:2::2", false)] {
        let mut pair = Pair::new(1);
        let buffer = || icmp::PacketBuffer::new(vec![icmp::PacketMetadata::EMPTY; 8], vec![0; 4096]);
        let mut socket = icmp::Socket::new(buffer(), buffer());
        socket.bind(icmp::Endpoint::Ident(0x22b)).expect("bound");
        let handle = pair.peer.sockets.add(socket);
        let mut bytes = vec![0; 48];
        let checksums = smoltcp::phy::ChecksumCapabilities::default();
        if v4 {
            let mut packet = smoltcp::wire::Icmpv4Packet::new_unchecked(&mut bytes);
            smoltcp::wire::Icmpv4Repr::EchoRequest { ident: 0x22b, seq_no: 1, data: &[0x5a; 40] }
                .emit(&mut packet, &checksums);
        } else {
            let mut packet = smoltcp::wire::Icmpv6Packet::new_unchecked(&mut bytes);
            smoltcp::wire::Icmpv6Repr::EchoRequest { ident: 0x22b, seq_no: 1, data: &[0x5a; 40] }.emit(
                &"2001:2::1".parse().expect("an address"),
                &"2001:2::2".parse().expect("an address"),
                &mut packet,
                &checksums,
            );
        }
        pair.peer
            .sockets
            .get_mut::<icmp::Socket>(handle)
            .send_slice(&bytes, smol_addr(target))
            .expect("sent");
        pair.run_until(3_000_000, |pair| pair.peer.sockets.get_mut::<icmp::Socket>(handle).can_recv());
        let (reply, from) = pair.peer.sockets.get_mut::<icmp::Socket>(handle).recv().expect("a reply");
        assert_eq!(from, smol_addr(target));
        assert_eq!(reply[0], if v4 { 0 } else { 129 });
        assert_eq!(&reply[8..], &[0x5a; 40]);
    }
}

/// A client of smoltcp's sends `up` and gets `down` back, then both ends close.
fn transfer(pair: &mut Pair, target: &str, up: &[u8], down: &[u8], limit_us: u64) {
    let domain = if target.contains('[') { Domain::Ipv6 } else { Domain::Ipv4 };
    let listener = pair.stack.socket(domain, Kind::Stream).expect("a socket");
    pair.stack.set_option(listener, SockOpt::ReuseAddr(true)).expect("set");
    pair.stack.bind(listener, addr(target)).expect("bound");
    pair.stack.listen(listener, 16).expect("listening");

    let buffer = || tcp::SocketBuffer::new(vec![0; 65_536]);
    let handle = pair.peer.sockets.add(tcp::Socket::new(buffer(), buffer()));
    let target: IpEndpoint = addr(target).into();
    {
        let Pair { peer, .. } = pair;
        let socket = peer.sockets.get_mut::<tcp::Socket>(handle);
        socket.connect(peer.iface.context(), target, 40_001).expect("connecting");
    }
    let mut server = None;
    let (mut sent, mut received) = (0, Vec::new());
    let (mut replied, mut reply) = (0, Vec::new());
    let mut server_eof = false;
    pair.run_until(limit_us, |pair| {
        while pair.stack.next_event().is_some() {}
        if server.is_none() {
            match pair.stack.accept(listener) {
                Ok((socket, _)) => server = Some(socket),
                Err(error) => assert_eq!(error, SockError::WouldBlock),
            }
        }
        let client = pair.peer.sockets.get_mut::<tcp::Socket>(handle);
        if client.can_send() && sent < up.len() {
            sent += client.send_slice(&up[sent..]).expect("sent");
            if sent == up.len() {
                client.close();
            }
        }
        while client.can_recv() {
            client
                .recv(|bytes| {
                    reply.extend_from_slice(bytes);
                    (bytes.len(), ())
                })
                .expect("received");
        }
        if let Some(socket) = server {
            let mut bytes = [0; 16_384];
            while !server_eof {
                match pair.stack.recv(socket, &mut bytes, false) {
                    Ok(0) => server_eof = true,
                    Ok(n) => received.extend_from_slice(&bytes[..n]),
                    Err(error) => {
                        assert_eq!(error, SockError::WouldBlock);
                        break;
                    }
                }
            }
            while server_eof && replied < down.len() {
                match pair.stack.send(socket, &down[replied..]) {
                    Ok(n) => replied += n,
                    Err(error) => {
                        assert_eq!(error, SockError::WouldBlock);
                        break;
                    }
                }
                if replied == down.len() {
                    pair.stack.close(socket).expect("closed");
                    server = None;
                    return false;
                }
            }
        }
        let client = pair.peer.sockets.get_mut::<tcp::Socket>(handle);
        reply.len() == down.len() && !client.may_recv()
    });
    assert!(received == up, "what the server got is not what the client sent");
    assert!(reply == down, "what the client got is not what the server sent");
    pair.stack.close(listener).expect("closed");
    pair.peer.sockets.remove(handle);
}

#[test]
fn tcp_both_ways_v4_and_v6() {
    for target in ["198.18.0.2:80", "[2001:2::2]:80"] {
        let mut pair = Pair::new(2);
        transfer(&mut pair, target, &pattern(300_000, 1), &pattern(1_000_000, 2), 60_000_000);
        pair.run_for(1_000_000);
        assert_eq!(pair.stack.lingering(), 0, "{target}");
        assert_eq!(pair.stack.engine().conn_count(), 0, "{target}");
    }
}

#[test]
fn tcp_through_a_bad_wire() {
    use ff_dataplane::io::memory::Faults;
    for seed in 0..20 {
        let target = if seed % 2 == 0 { "198.18.0.2:80" } else { "[2001:2::2]:80" };
        let mut pair = Pair::new(seed);
        pair.set_faults(Faults {
            loss_ppm: 20_000,
            duplicate_ppm: 10_000,
            corrupt_ppm: 10_000,
            reorder_ppm: 50_000,
            reorder_us: 5_000,
            delay_us: 10_000,
            jitter_us: 1_000,
        });
        transfer(&mut pair, target, &pattern(100_000, seed), &pattern(200_000, seed + 100), 600_000_000);
    }
}
