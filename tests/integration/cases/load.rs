//! Load: wrk with and without keep-alive, and ten thousand connections at once.

use std::process::Command;
use std::thread;
use std::time::Duration;

use ff_harness::http::Connection;
use ff_harness::{Context, Failure, Instance, ensure, pattern, run};

use crate::case::{Case, Outcome, Size};
use crate::observe;

pub fn cases() -> Vec<Case> {
    vec![
        Case::client("ld01", "wrk, 64 connections, keep-alive: 0 errors", wrk_keepalive).main(),
        Case::client("ld02", "wrk, 64 connections, Connection: close: 0 errors", wrk_close).main(),
        Case::client("ld03", "wrk over IPv6, keep-alive: 0 errors", wrk_v6),
        Case::client("ld04", "10 000 connections held at once, each answers twice", held)
            .main()
            .within_s(120),
        Case::client("ld05", "the counters in the status follow the traffic", counters).ours_only(),
    ]
}

fn wrk(instance: &Instance, v6: bool, extra: &[&str], seconds: u32) -> Outcome {
    let mut command = Command::new("wrk");
    command
        .args(["-t", "1", "-c", "64", "--timeout", "5s", "-d", &format!("{seconds}s")])
        .args(extra)
        .arg(format!("http://{}/small.bin", instance.addr(v6, 80)));
    let out = run(command, Duration::from_secs(u64::from(seconds) + 20))?;
    ensure!(out.success(), "wrk: {}", out.all());
    ensure!(!out.stdout.contains("Socket errors"), "wrk: {}", out.stdout);
    ensure!(!out.stdout.contains("Non-2xx"), "wrk: {}", out.stdout);
    let rate = out
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("Requests/sec:"))
        .doing("wrk printed no rate")?;
    let rate: f64 = rate.trim().parse().map_err(|_| format!("no rate: {rate}"))?;
    ensure!(rate >= 100.0, "only {rate} requests a second");
    Ok(format!("{rate:.0} requests/s"))
}

fn wrk_keepalive(instance: &Instance, size: Size) -> Outcome {
    wrk(instance, false, &[], size.pick(5, 30))
}

fn wrk_close(instance: &Instance, size: Size) -> Outcome {
    wrk(instance, false, &["-H", "Connection: close"], size.pick(5, 30))
}

fn wrk_v6(instance: &Instance, size: Size) -> Outcome {
    wrk(instance, true, &[], size.pick(3, 30))
}

fn held(instance: &Instance, _: Size) -> Outcome {
    const COUNT: usize = 10_000;
    let mut all = Vec::with_capacity(COUNT);
    for index in 0..COUNT {
        let connection =
            Connection::open(instance.addr(index % 2 == 1, 80)).doing(format!("connection {index}"))?;
        all.push(connection);
    }
    // First while all are open, then again: none was cut for another.
    for round in 0..2 {
        for batch in all.chunks_mut(500) {
            for connection in batch.iter_mut() {
                connection.get("/small.bin")?;
            }
            for (index, connection) in batch.iter_mut().enumerate() {
                let (head, body) =
                    connection.response().doing(format!("round {round}, {index} of its batch"))?;
                ensure!(head.status == 200, "status {}", head.status);
                ensure!(body.len() == 600 && pattern::check(600, 0, &body).is_ok(), "a wrong body");
            }
        }
    }
    Ok(String::new())
}

fn counters(instance: &Instance, _: Size) -> Outcome {
    let totals = || -> Result<[u64; 2], Failure> {
        let workers = observe::workers(&instance.status()?)?;
        let sum = |field| workers.iter().map(|worker| observe::number(worker, field)).sum();
        Ok([sum("rx_packets"), sum("tx_packets")])
    };
    // A report is written once a second: what came before is in it.
    thread::sleep(Duration::from_millis(1500));
    let before = totals()?;
    let mut connection = Connection::open(instance.addr(false, 80))?;
    for _ in 0..1000 {
        connection.get_file("/small.bin", 600)?;
    }
    thread::sleep(Duration::from_millis(1500));
    let after = totals()?;
    let [received, sent] = [after[0] - before[0], after[1] - before[1]];
    // A request and a response each, and at most an acknowledgement for each of them.
    ensure!((1000..4000).contains(&received), "{received} packets received for 1000 requests");
    ensure!((1000..4000).contains(&sent), "{sent} packets sent for 1000 responses");
    Ok(format!("{received} in, {sent} out"))
}
