//! Large transfers, whole and over a lossy way.

use std::fs;
use std::net::SocketAddr;
use std::time::Instant;

use ff_harness::http::Connection;
use ff_harness::{Failure, GIB, Instance, MIB, ensure, pattern};

use crate::case::{Case, Outcome, Size};

pub fn cases() -> Vec<Case> {
    vec![
        Case::client("tr01", "1 GiB down over IPv4, every byte checked", down4).main().within_s(120),
        Case::client("tr02", "1 GiB down over IPv6, every byte checked", down6).within_s(120),
        Case::client("tr03", "1 GiB up over IPv4, every byte checked", up4).main().within_s(120),
        Case::client("tr04", "1 GiB up over IPv6, every byte checked", up6).within_s(120),
        Case::client("tr05", "64 MiB down with 2 % loss each way", lossy_down).within_s(90),
        Case::client("tr06", "64 MiB up with 2 % loss each way", lossy_up).within_s(90),
    ]
}

fn rate(len: u64, start: Instant) -> String {
    format!("{:.0} MB/s", len as f64 / 1e6 / start.elapsed().as_secs_f64())
}

fn down(instance: &Instance, v6: bool, len: u64, file: &str) -> Outcome {
    instance.site.file(file, len)?;
    let start = Instant::now();
    Connection::open(instance.addr(v6, 80))?.get_file(&format!("/{file}"), len)?;
    Ok(rate(len, start))
}

fn down4(instance: &Instance, _: Size) -> Outcome {
    down(instance, false, GIB, "g1.bin")
}

fn down6(instance: &Instance, _: Size) -> Outcome {
    let outcome = down(instance, true, GIB, "g1.bin");
    // A gigabyte of page cache is not needed any longer.
    let _ = fs::remove_file(instance.site.dir.join("html/g1.bin"));
    outcome
}

/// Puts `len` bytes of the pattern.
fn put(addr: SocketAddr, name: &str, len: u64) -> Result<(), Failure> {
    let mut connection = Connection::open(addr)?;
    connection.send(format!("PUT /dav/{name} HTTP/1.1\r\nHost: test\r\nContent-Length: {len}\r\n\r\n"))?;
    let mut data = vec![0; 1 << 18];
    let mut at = 0;
    while at < len {
        let take = (len - at).min(data.len() as u64) as usize;
        pattern::fill(len, at, &mut data[..take]);
        connection.send(&data[..take])?;
        at += take as u64;
    }
    let (head, _) = connection.response()?;
    ensure!(head.status == 201 || head.status == 204, "status {}", head.status);
    Ok(())
}

fn up(instance: &Instance, v6: bool, len: u64) -> Outcome {
    let start = Instant::now();
    put(instance.addr(v6, 80), "large", len)?;
    let note = rate(len, start);
    pattern::check_file(&instance.site.dav("large"), len, len)?;
    fs::remove_file(instance.site.dav("large"))?;
    Ok(note)
}

fn up4(instance: &Instance, _: Size) -> Outcome {
    up(instance, false, GIB)
}

fn up6(instance: &Instance, _: Size) -> Outcome {
    up(instance, true, GIB)
}

/// Runs `work` in the namespace behind the gateway while the router drops 2 % of all packets each way.
fn lossy(instance: &Instance, work: impl FnOnce() -> Outcome + Send) -> Outcome {
    instance.client.nft(
        "table inet lossy { chain way { type filter hook forward priority 0; numgen random mod 100 < 2 drop; }; }",
    )?;
    let outcome = instance.far.within(work);
    instance.client.nft("")?;
    outcome
}

fn lossy_down(instance: &Instance, _: Size) -> Outcome {
    lossy(instance, || down(instance, false, 64 * MIB, "m64.bin"))
}

fn lossy_up(instance: &Instance, _: Size) -> Outcome {
    lossy(instance, || up(instance, false, 64 * MIB))
}
