//! Clients that behave oddly, slowly or badly, and the network between.

use std::io::Write as _;
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use ff_harness::http::Connection;
use ff_harness::{Context, Failure, Instance, MIB, ensure, pattern};
use nix::sys::socket::{setsockopt, sockopt};

use crate::case::{Case, Outcome, Size};
use crate::observe;

pub fn cases() -> Vec<Case> {
    vec![
        Case::client(
            "tcp01",
            "a client half-closes after its request and still reads, 16 MiB through the stream module",
            half_close,
        )
        .main(),
        Case::client("tcp02", "a client reads 1 byte per 10 ms, then the rest", slow_reader).main(),
        Case::client("tcp03", "a client sends 1 byte per segment", byte_sender).main(),
        Case::client("tcp04", "a client vanishes in a download; others go on, its flow ends", vanish),
        Case::client("tcp05", "RST at any point of handshake, request, response and upload", reset).main(),
        Case::client("tcp06", "a closed port refuses, IPv4 and IPv6", refused).main(),
        Case::client("tcp07", "500 connections opened at once, each answered", burst).main(),
        Case::client("tcp08", "64 MiB to a client behind the gateway, IPv4 and IPv6", gateway),
        Case::client("tcp09", "connections without a request close, their flows end", silent),
        Case::client("tcp10", "an idle connection is used again", idle),
        Case::client("tcp11", "a narrower link on the way: path MTU is found, IPv4 and IPv6", path_mtu),
    ]
}

fn half_close(instance: &Instance, _: Size) -> Outcome {
    for v6 in [false, true] {
        // nginx ends a static response early when it sees the FIN while it still has something to write, so
        // this one is small; the stream module with `proxy_half_close` keeps the other direction open.
        let mut connection = Connection::open(instance.addr(v6, 80))?;
        connection.get("/small.bin")?;
        connection.stream.shutdown(Shutdown::Write)?;
        let (head, body) = connection.response()?;
        ensure!(head.status == 200 && body.len() == 600, "status {}", head.status);
        connection.fin()?;

        let mut connection = Connection::open(instance.addr(v6, 7000))?;
        let len = 16 * MIB;
        connection.send(format!("AFTER EOF {len}\n"))?;
        connection.stream.shutdown(Shutdown::Write)?;
        let mut at = 0;
        while at < len {
            let piece = connection.exactly(64 << 10)?;
            let right = piece.iter().zip(at..).all(|(byte, at)| u64::from(*byte) == at % 251);
            ensure!(right, "a wrong byte after offset {at}");
            at += piece.len() as u64;
        }
        connection.fin()?;
    }
    Ok(String::new())
}

fn slow_reader(instance: &Instance, _: Size) -> Outcome {
    instance.site.file("m16.bin", 16 * MIB)?;
    let mut connection = Connection::open(instance.addr(false, 80))?;
    // A small buffer, so that the window is closed most of the time.
    setsockopt(&connection.stream, sockopt::RcvBuf, &4096)?;
    connection.get("/m16.bin")?;
    connection.head()?;
    for at in 0..300 {
        connection.pattern(16 * MIB, at, 1)?;
        thread::sleep(Duration::from_millis(10));
    }
    setsockopt(&connection.stream, sockopt::RcvBuf, &(4 << 20))?;
    connection.pattern(16 * MIB, 300, 16 * MIB - 300)?;
    connection.get_file("/small.bin", 600)?;
    Ok(String::new())
}

fn byte_sender(instance: &Instance, _: Size) -> Outcome {
    let mut connection = Connection::open(instance.addr(false, 80))?;
    let len = 2000_u64;
    let mut request =
        format!("PUT /dav/bytes HTTP/1.1\r\nHost: test\r\nContent-Length: {len}\r\n\r\n").into_bytes();
    let mut body = vec![0; len as usize];
    pattern::fill(len, 0, &mut body);
    request.extend(body);
    for byte in request {
        connection.send([byte])?;
        thread::sleep(Duration::from_micros(150));
    }
    let (head, _) = connection.response()?;
    ensure!(head.status == 201 || head.status == 204, "status {}", head.status);
    pattern::check_file(&instance.site.dav("bytes"), len, len)?;
    Ok(String::new())
}

fn vanish(instance: &Instance, _: Size) -> Outcome {
    instance.site.file("m64.bin", 64 * MIB)?;
    observe::flows_fall_to(instance, 10, Duration::from_secs(20))?;
    let before = observe::flows(instance)?;
    let held = instance.far.within(|| {
        let mut held = Vec::new();
        for v6 in [false, true] {
            for _ in 0..10 {
                let mut connection = Connection::open(instance.addr(v6, 80))?;
                connection.get("/slow/m64.bin")?;
                connection.head()?;
                connection.pattern(64 * MIB, 0, 100_000)?;
                held.push(connection);
            }
        }
        Ok(held)
    })?;
    observe::flows_rise_to(instance, 20).doing("20 downloads are held")?;
    instance.client.nft("table inet gone { chain way { type filter hook forward priority 0; drop; }; }")?;
    let result = (|| {
        Connection::open(instance.addr(false, 80))?.get_file("/m64.bin", 64 * MIB)?;
        // nginx gives up after send_timeout (2 s) and resets.
        observe::flows_fall_to(instance, before + 2, Duration::from_secs(20))
    })();
    drop(held);
    instance.client.nft("")?;
    result?;
    instance.far.within(|| Connection::open(instance.addr(false, 80))?.get_file("/small.bin", 600))?;
    Ok(String::new())
}

/// Closes with a RST instead of a FIN.
fn abort(stream: TcpStream) -> Result<(), Failure> {
    setsockopt(&stream, sockopt::Linger, &nix::libc::linger { l_onoff: 1, l_linger: 0 })?;
    Ok(())
}

fn reset(instance: &Instance, size: Size) -> Outcome {
    observe::flows_fall_to(instance, 10, Duration::from_secs(20))?;
    let before = observe::flows(instance)?;
    let request = b"GET /m1.bin HTTP/1.1\r\nHost: test\r\n\r\n";
    let upload = b"PUT /dav/reset HTTP/1.1\r\nHost: test\r\nContent-Length: 100000\r\n\r\n";
    let rounds = size.pick(200, 5_000);
    for round in 0..rounds {
        let addr = instance.addr(round % 2 == 1, 80);
        match round % 4 {
            // At once after the handshake, or before the server has seen its end.
            0 => abort(Connection::open(addr)?.stream)?,
            1 => {
                let mut connection = Connection::open(addr)?;
                connection.send(&request[..round * 7 % request.len()])?;
                abort(connection.stream)?;
            }
            2 => {
                let mut connection = Connection::open(addr)?;
                connection.send(request)?;
                connection.head()?;
                connection.pattern(MIB, 0, (round as u64 * 5_003) % MIB)?;
                abort(connection.stream)?;
            }
            _ => {
                let mut connection = Connection::open(addr)?;
                connection.send(upload)?;
                connection.send(vec![0; round * 997 % 100_000])?;
                abort(connection.stream)?;
            }
        }
    }
    Connection::open(instance.addr(false, 80))?.get_file("/m1.bin", MIB)?;
    observe::flows_fall_to(instance, before + 2, Duration::from_secs(20))?;
    Ok(format!("{rounds} resets"))
}

fn refused(instance: &Instance, _: Size) -> Outcome {
    let mut slowest = Duration::ZERO;
    for v6 in [false, true] {
        let start = Instant::now();
        match TcpStream::connect_timeout(&instance.addr(v6, 81), Duration::from_secs(3)) {
            Ok(_) => return Err("port 81 accepted a connection".into()),
            Err(error) => {
                ensure!(error.kind() == std::io::ErrorKind::ConnectionRefused, "{error} instead of refused");
            }
        }
        slowest = slowest.max(start.elapsed());
    }
    ensure!(slowest < Duration::from_secs(1), "the refusal took {slowest:?}");
    Ok(format!("{slowest:?}"))
}

fn burst(instance: &Instance, _: Size) -> Outcome {
    // Threads, so that SYNs come as fast as the client can send them.
    thread::scope(|scope| {
        let threads: Vec<_> = (0..20)
            .map(|index| {
                scope.spawn(move || {
                    instance.client.enter()?;
                    let mut all = Vec::new();
                    for _ in 0..25 {
                        all.push(Connection::open(instance.addr(index % 2 == 1, 80))?);
                    }
                    for connection in &mut all {
                        connection.get("/small.bin")?;
                    }
                    for connection in &mut all {
                        let (head, body) = connection.response()?;
                        ensure!(
                            head.status == 200 && pattern::check(600, 0, &body).is_ok(),
                            "a wrong response"
                        );
                    }
                    Ok(())
                })
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into())))
    })?;
    Ok(String::new())
}

fn gateway(instance: &Instance, _: Size) -> Outcome {
    instance.site.file("m64.bin", 64 * MIB)?;
    instance.far.within(|| {
        for v6 in [false, true] {
            Connection::open(instance.addr(v6, 80))?.get_file("/m64.bin", 64 * MIB)?;
        }
        Ok(String::new())
    })
}

fn silent(instance: &Instance, _: Size) -> Outcome {
    observe::flows_fall_to(instance, 10, Duration::from_secs(20))?;
    let before = observe::flows(instance)?;
    let mut all = Vec::new();
    for index in 0..200 {
        all.push(Connection::open(instance.addr(index % 2 == 1, 80))?);
    }
    observe::flows_rise_to(instance, 200).doing("200 connections are held")?;
    drop(all);
    // The client closed first, so no TIME-WAIT stays with the server.
    observe::flows_fall_to(instance, before + 2, Duration::from_secs(20))?;
    Ok(String::new())
}

fn idle(instance: &Instance, size: Size) -> Outcome {
    let mut connection = Connection::open(instance.addr(false, 80))?;
    for pause_s in size.pick(vec![1, 2], vec![1, 5, 30]) {
        connection.get_file("/small.bin", 600)?;
        thread::sleep(Duration::from_secs(pause_s));
    }
    connection.get_file("/small.bin", 600)?;
    Ok(String::new())
}

fn path_mtu(instance: &Instance, _: Size) -> Outcome {
    let (near, far) = (format!("{}g", instance.names.instance), format!("{}h", instance.names.instance));
    // IPv6 asks for 1280 at least. The far end still offers full segments in its SYN, so the server learns of
    // the narrow link from the router's ICMP alone.
    instance.client.ip(&["link", "set", &near, "mtu", "1300"])?;
    instance.far.ip(&["link", "set", &far, "mtu", "1300"])?;
    instance.far.ip(&["route", "replace", "default", "via", "198.18.8.1", "advmss", "1460"])?;
    instance.far.ip(&["-6", "route", "replace", "default", "via", "2001:2:0:8::1", "advmss", "1440"])?;
    let result = instance.far.within(|| {
        for v6 in [false, true] {
            let mut connection = Connection::open(instance.addr(v6, 80))?;
            connection.get_file("/m1.bin", MIB).doing(if v6 { "IPv6" } else { "IPv4" })?;
            let mut body = vec![0; 300_000];
            pattern::fill(300_000, 0, &mut body);
            connection
                .stream
                .write_all(b"PUT /dav/mtu HTTP/1.1\r\nHost: test\r\nContent-Length: 300000\r\n\r\n")?;
            connection.send(&body)?;
            let (head, _) = connection.response()?;
            ensure!(head.status == 201 || head.status == 204, "status {}", head.status);
        }
        Ok(String::new())
    });
    instance.client.ip(&["link", "set", &near, "mtu", "1500"])?;
    instance.far.ip(&["link", "set", &far, "mtu", "1500"])?;
    instance.far.ip(&["route", "replace", "default", "via", "198.18.8.1"])?;
    instance.far.ip(&["-6", "route", "replace", "default", "via", "2001:2:0:8::1"])?;
    result
}
