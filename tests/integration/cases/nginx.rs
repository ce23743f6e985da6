//! nginx's own settings: worker counts, listen parameters, ports that stay in the kernel, a graceful end.

use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use ff_harness::http::Connection;
use ff_harness::{Context, Failure, Instance, MIB, Spec, ensure, proc, run_in};

use crate::case::{Case, Outcome, Size};
use crate::lab::Lab;
use crate::observe;

pub fn cases() -> Vec<Case> {
    vec![
        Case::own("nx01", "worker_processes 1", |lab, _| workers(lab, 1)).main(),
        Case::own("nx02", "worker_processes 2: both serve", |lab, _| workers(lab, 2)),
        Case::own("nx03", "worker_processes 3: all serve", |lab, _| workers(lab, 3)),
        Case::own("nx04", "worker_processes 4: all serve", |lab, _| workers(lab, 4)).main(),
        Case::own("nx05", "listen with reuseport, deferred, so_keepalive", listen_parameters),
        Case::own("nx06", "a port left to the kernel is served by the kernel", kernel_port),
        Case::own("nx07", "ffctl stop lets a download finish", graceful_stop),
        Case::own("nx08", "workers run as www-data, the master as root", users),
        Case::own("nx09", "start, stop and start again, ten times", restarts).within_s(120),
    ]
}

fn workers(lab: &mut Lab, count: usize) -> Outcome {
    let mut spec = lab.spec();
    spec.workers = count;
    let instance = lab.start(spec)?;
    // A report is written once a second: what came before is in it.
    thread::sleep(Duration::from_millis(1200));
    let before = observe::ready_workers(&instance, count, Duration::from_secs(5))?;
    instance.client.within(|| {
        // 256 flows: with any hash each of four queues gets some.
        let mut all = Vec::new();
        for index in 0..256 {
            all.push(Connection::open(instance.addr(index % 2 == 1, 80))?);
        }
        for connection in &mut all {
            connection.get_file("/small.bin", 600)?;
        }
        Ok(())
    })?;
    thread::sleep(Duration::from_millis(1200));
    let after = observe::ready_workers(&instance, count, Duration::from_secs(5))?;
    let mut queues = Vec::new();
    for (before, after) in before.iter().zip(&after) {
        ensure!(
            observe::number(after, "rx_packets") > observe::number(before, "rx_packets"),
            "worker {} received nothing: {after}",
            after["index"]
        );
        queues.extend(after["queues"].as_array().cloned().unwrap_or_default());
    }
    ensure!(queues.len() == count, "{count} workers poll queues {queues:?}");
    let attach: Vec<u64> = after.iter().map(|worker| observe::number(worker, "attach_us") / 1000).collect();
    ensure!(instance.worker_pids().len() == count, "nginx runs {} workers", instance.worker_pids().len());
    Ok(format!("attach {attach:?} ms"))
}

fn listen_parameters(lab: &mut Lab, _: Size) -> Outcome {
    for listen in
        ["reuseport backlog=1000", "deferred so_keepalive=30s:5s:3", "fastopen=16 rcvbuf=64k sndbuf=128k"]
    {
        let spec = Spec { listen: Some(listen.into()), ..lab.spec() };
        let instance = lab.start(spec).doing(format!("listen 80 {listen}"))?;
        instance.client.within(|| {
            for index in 0..64 {
                let mut connection = Connection::open(instance.addr(index % 2 == 1, 80))?;
                connection.get_file("/m1.bin", MIB).doing(format!("listen 80 {listen}"))?;
            }
            Ok(())
        })?;
    }
    Ok(String::new())
}

fn kernel_port(lab: &mut Lab, _: Size) -> Outcome {
    let http = "server { listen 8081; location / { return 200 \"kernel\\n\"; } }".to_owned();
    let stack = "[kernel]\ntcp_ports=8081\n".to_owned();
    let instance = lab.start(Spec { http, stack, ..lab.spec() })?;
    let out = run_in(
        &instance.server,
        "curl",
        &["-sS", "--max-time", "5", "http://127.0.0.1:8081/"],
        Duration::from_secs(10),
    )?;
    ensure!(out.stdout == "kernel\n", "over loopback: {}", out.all());
    instance.client.within(|| {
        let refused = TcpStream::connect_timeout(&instance.addr(false, 8081), Duration::from_secs(3));
        ensure!(refused.is_err(), "the stack serves port 8081 as well");
        Ok(())
    })?;
    Ok(String::new())
}

fn slow_download(instance: &Instance) -> Result<(), Failure> {
    instance.client.enter()?;
    let mut connection = Connection::open(instance.addr(false, 80))?;
    connection.get("/m64.bin")?;
    ensure!(connection.head()?.status == 200, "no 200");
    let piece = MIB;
    for at in 0..64 {
        connection.pattern(64 * MIB, at * piece, piece).doing(format!("MiB {at}"))?;
        thread::sleep(Duration::from_millis(40));
    }
    Ok(())
}

fn graceful_stop(lab: &mut Lab, _: Size) -> Outcome {
    let instance = lab.start(lab.spec())?;
    instance.site.file("m64.bin", 64 * MIB)?;
    thread::scope(|scope| {
        let download = scope.spawn(|| slow_download(&instance));
        thread::sleep(Duration::from_millis(500));
        let out = instance.ffctl(&["stop", "-i", &instance.names.instance])?;
        ensure!(out.success(), "ffctl stop: exit code {}: {}", out.code(), out.all());
        let ended_after = download.is_finished();
        download.join().unwrap_or_else(|_| Err("the client panicked".into()))?;
        // The last bytes may be in the client's socket when the server is done; a second is ample.
        ensure!(ended_after || out.elapsed > Duration::from_secs(1), "stop did not wait: {:?}", out.elapsed);
        Ok(format!("stop took {:.1} s", out.elapsed.as_secs_f64()))
    })
    .and_then(|note| {
        observe::nothing_left(&instance)?;
        Ok(note)
    })
}

fn users(lab: &mut Lab, _: Size) -> Outcome {
    let instance = lab.start(lab.spec())?;
    let master = instance.master_pid().doing("nginx has no pid file")?;
    let pids: Vec<String> = instance.worker_pids().iter().map(u32::to_string).collect();
    let args = ["-o", "user:20=", "-p", &[vec![master.to_string()], pids].concat().join(",")];
    let out = run_in(&instance.server, "ps", &args, Duration::from_secs(5))?;
    let mut users: Vec<&str> = out.stdout.split_whitespace().collect();
    users.sort_unstable();
    ensure!(users == ["root", "www-data", "www-data"], "they run as {users:?}");
    Ok(String::new())
}

fn restarts(lab: &mut Lab, _: Size) -> Outcome {
    let mut instance = lab.start(lab.spec())?;
    let mut slowest = Duration::ZERO;
    for _ in 0..10 {
        instance.stop()?;
        observe::nothing_left(&instance)?;
        let start = std::time::Instant::now();
        instance.start()?;
        slowest = slowest.max(start.elapsed());
    }
    let master = instance.master_pid().doing("nginx has no pid file")?;
    ensure!(proc::alive(master), "the master is gone");
    Ok(format!("slowest start to first answer {:.2} s", slowest.as_secs_f64()))
}
