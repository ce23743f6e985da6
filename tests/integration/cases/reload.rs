//! Reloads: one generation of workers follows another, and no client notices. Named beside F-Stack's rt cases.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ff_harness::http::Connection;
use ff_harness::{Context, Failure, Instance, MIB, Output, ensure, proc, run};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::case::{Case, Outcome, Size};
use crate::lab::Lab;
use crate::observe;

pub fn cases() -> Vec<Case> {
    vec![
        Case::own(
            "rt01",
            "a reload by ffctl, by nginx -s and by HUP: the new configuration serves",
            three_ways,
        )
        .main(),
        Case::own("rt02", "downloads and uploads across a HUP: every byte right", transfers)
            .main()
            .within_s(180),
        Case::own(
            "rt03",
            "reloads under wrk keep-alive and new connections: 0 errors, old or new, never late",
            load,
        )
        .main()
        .within_s(600),
        Case::own(
            "rt04",
            "a WebSocket lives on in the old generation, a new connection gets the new one",
            websocket,
        )
        .main(),
        Case::own("rt05", "an idle connection lives on, its next request gets the new configuration", idle)
            .main(),
        Case::own(
            "rt06",
            "reloads that are refused: a sentence and an exit code each, traffic goes on",
            refusals,
        ),
        Case::own(
            "rt07",
            "a new worker killed while it starts: aborted, the old generation serves",
            new_killed,
        )
        .main(),
        Case::own("rt08", "every process killed or stopped at each state: clients are served", matrix)
            .within_s(900),
        Case::own("rt09", "no free slot: wait, refuse, end the oldest", no_free_slot).within_s(180),
        Case::own("rt10", "many reloads in a row: nothing grows", growth).within_s(900),
    ]
}

/// The instance with configuration number `number`, which its answers show.
fn configure(instance: &mut Instance, number: usize) -> Result<(), Failure> {
    instance.site.http = format!("add_header X-Conf {number} always;");
    instance.site.write_conf()
}

/// An instance that serves configuration 0.
fn started(lab: &mut Lab, stack: &str) -> Result<Instance, Failure> {
    let mut spec = lab.spec();
    spec.http = "add_header X-Conf 0 always;".to_owned();
    spec.stack = stack.to_owned();
    lab.start(spec)
}

fn reload(instance: &Instance) -> Result<Output, Failure> {
    instance.ffctl(&["reload", "-i", &instance.names.instance])
}

fn reloaded(instance: &Instance) -> Result<(), Failure> {
    let out = reload(instance)?;
    ensure!(out.success(), "ffctl reload: exit code {}: {}\n{}", out.code(), out.all(), instance.log_tails());
    Ok(())
}

/// The configuration that a new connection is answered by.
fn answered_by(instance: &Instance) -> Result<usize, Failure> {
    instance.client.within(|| {
        let mut connection = Connection::open(instance.addr(false, 80))?;
        configuration_of(&mut connection)
    })
}

fn configuration_of(connection: &mut Connection) -> Result<usize, Failure> {
    connection.get("/small.bin")?;
    let (head, body) = connection.response()?;
    ensure!(head.status == 200 && body.len() == 600, "status {}, {} bytes", head.status, body.len());
    head.field("x-conf").and_then(|number| number.parse().ok()).doing("the answer shows no configuration")
}

/// Waits until no reload is under way; the document then.
fn at_rest(instance: &Instance, limit: Duration) -> Result<Value, Failure> {
    let mut last = Value::Null;
    let rested = proc::until(limit, || {
        last = instance.status().unwrap_or_default();
        last["reload"].is_null() && last["generations"].as_array().is_some_and(|all| all.len() == 1)
    });
    ensure!(rested, "a reload is still under way after {limit:?}: {last}\n{}", instance.log_tails());
    Ok(last)
}

fn last_result(status: &Value) -> String {
    status["last_reload"]["result"].as_str().unwrap_or("none").to_owned()
}

fn three_ways(lab: &mut Lab, _: Size) -> Outcome {
    let mut instance = started(lab, "")?;
    let master = instance.master_pid().doing("nginx has no pid file")?;
    let mut handovers = Vec::new();
    for number in 1..=3 {
        configure(&mut instance, number)?;
        match number {
            1 => reloaded(&instance)?,
            2 => proc::signal(master, Signal::SIGHUP),
            _ => {
                let conf = instance.site.conf();
                let mut command = instance.server.command("/usr/sbin/nginx");
                command.args(["-s", "reload", "-c"]).arg(conf);
                let out = run(command, Duration::from_secs(10))?;
                ensure!(out.success(), "nginx -s reload: {}", out.all());
            }
        }
        let served = proc::until(Duration::from_secs(10), || answered_by(&instance).ok() == Some(number));
        ensure!(served, "configuration {number} does not serve:\n{}", instance.log_tails());
        let status = at_rest(&instance, Duration::from_secs(20))?;
        ensure!(last_result(&status) == "complete", "{}", status["last_reload"]);
        ensure!(status["active"]["epoch"] == number as u64 + 1, "active: {}", status["active"]);
        handovers.push(status["last_reload"]["handover_us"]["max"].as_u64().unwrap_or_default());
    }
    Ok(format!("handover {handovers:?} us"))
}

fn transfers(lab: &mut Lab, size: Size) -> Outcome {
    let mut instance = started(lab, "")?;
    let (downloads, len) = (size.pick(12, 36), size.pick(16, 64) * MIB);
    instance.site.file("across.bin", len)?;
    configure(&mut instance, 1)?;
    let master = instance.master_pid().doing("nginx has no pid file")?;
    let (shared, begun) = (&instance, &AtomicU64::new(0));
    thread::scope(|scope| -> Result<(), Failure> {
        let mut clients = Vec::new();
        for index in 0..downloads {
            clients.push(scope.spawn(move || {
                shared.client.within(|| {
                    let mut connection = Connection::open(shared.addr(index % 2 == 1, 80))?;
                    connection.get("/across.bin")?;
                    let head = connection.head()?;
                    ensure!(head.field("x-conf") == Some("0"), "not the old configuration");
                    begun.fetch_add(1, Ordering::Relaxed);
                    connection.pattern(len, 0, len)
                })
            }));
        }
        for index in 0..downloads / 3 {
            clients.push(scope.spawn(move || {
                shared.client.within(|| {
                    let mut connection = Connection::open(shared.addr(index % 2 == 1, 80))?;
                    let mut data = vec![0_u8; len as usize];
                    ff_harness::pattern::fill(len, 0, &mut data);
                    connection.send(format!(
                        "PUT /dav/across{index} HTTP/1.1\r\nHost: test\r\nContent-Length: {len}\r\n\r\n"
                    ))?;
                    begun.fetch_add(1, Ordering::Relaxed);
                    connection.send(&data)?;
                    let (head, _) = connection.response()?;
                    ensure!(matches!(head.status, 201 | 204), "PUT: status {}", head.status);
                    let stored = std::fs::read(shared.site.dav(&format!("across{index}")))?;
                    ensure!(stored == data, "upload {index} was stored wrong");
                    Ok(())
                })
            }));
        }
        let all = downloads + downloads / 3;
        proc::until(Duration::from_secs(10), || begun.load(Ordering::Relaxed) == all);
        proc::signal(master, Signal::SIGHUP);
        for client in clients {
            client.join().unwrap_or_else(|_| Err("a client panicked".into()))?;
        }
        Ok(())
    })
    .map_err(|failure| Failure(format!("{failure}\n{}", instance.log_tails())))?;
    let status = at_rest(&instance, Duration::from_secs(30))?;
    ensure!(last_result(&status) == "complete", "{}", status["last_reload"]);
    ensure!(answered_by(&instance)? == 1, "the new configuration does not serve");
    let last = &status["last_reload"];
    Ok(format!("handover {} us, {} packets forwarded", last["handover_us"]["max"], last["forwarded"]))
}

fn load(lab: &mut Lab, size: Size) -> Outcome {
    let instance = started(lab, "")?;
    let reloads = size.pick(20, 100);
    let url = format!("http://{}/small.bin", instance.addr(false, 80));
    let mut command = instance.client.command("wrk");
    let seconds = size.pick(120, 600);
    command.args(["-t", "1", "-c", "32", "--timeout", "5s", "-d", &format!("{seconds}s"), &url]);
    command.stdout(std::process::Stdio::piped());
    let mut wrk = command.spawn().doing("starting wrk")?;
    let wrk_pid = wrk.id();
    let (stop, opened, due) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let (stop, opened, due) = (&stop, &opened, &due);
    let mut verdict = Ok(());
    let mut connections = Ok(());
    thread::scope(|scope| {
        let (client, addr4, addr6) = (&instance.client, instance.addr(false, 80), instance.addr(true, 80));
        let generator = scope.spawn(move || {
            client.within(|| {
                while !stop.load(Ordering::Relaxed) {
                    let at_least = due.load(Ordering::SeqCst);
                    let index = opened.fetch_add(1, Ordering::Relaxed);
                    let addr = if index % 2 == 1 { addr6 } else { addr4 };
                    let seen = Connection::open(addr)
                        .and_then(|mut connection| configuration_of(&mut connection))
                        .doing(format!("new connection {index}"))?;
                    ensure!(
                        seen as u64 >= at_least,
                        "connection {index}, opened after the reload to {at_least} was done, is answered by {seen}"
                    );
                }
                Ok(())
            })
        });
        let site = instance.site.clone();
        for number in 1..=reloads {
            let mut site = site.clone();
            site.http = format!("add_header X-Conf {number} always;");
            verdict = site.write_conf().and_then(|()| reloaded(&instance)).doing(format!("reload {number}"));
            if verdict.is_err() || generator.is_finished() {
                break;
            }
            due.store(number as u64, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(200));
        }
        stop.store(true, Ordering::Relaxed);
        connections = generator.join().unwrap_or_else(|_| Err("the generator panicked".into()));
    });
    proc::signal(wrk_pid, Signal::SIGINT);
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline && matches!(wrk.try_wait(), Ok(None)) {
        thread::sleep(Duration::from_millis(50));
    }
    let _ = wrk.kill();
    let out = wrk.wait_with_output().doing("wrk")?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    verdict.and(connections).map_err(|failure| Failure(format!("{failure}\n{}", instance.log_tails())))?;
    ensure!(text.contains("requests in"), "wrk printed no result: {text}");
    ensure!(!text.contains("Socket errors") && !text.contains("Non-2xx"), "wrk: {text}");
    let requests =
        text.lines().find(|line| line.contains("requests in")).unwrap_or_default().trim().to_owned();
    Ok(format!("{reloads} reloads, {} new connections, wrk: {requests}", opened.load(Ordering::Relaxed)))
}

fn open_websocket(instance: &Instance) -> Result<Connection, Failure> {
    let mut connection = Connection::open(instance.addr(false, 80))?;
    connection.send(
        "GET /ws HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
    )?;
    let head = connection.head()?;
    ensure!(head.status == 101, "WebSocket: status {}", head.status);
    Ok(connection)
}

fn echo(connection: &mut Connection, data: [u8; 4]) -> Result<(), Failure> {
    // A masked text frame (RFC 6455 section 5.2) with a mask of zeros.
    connection.send([&[0x81, 0x84, 0, 0, 0, 0][..], &data].concat())?;
    let back = connection.exactly(6)?;
    ensure!(back == [&[0x81, 0x04][..], &data].concat(), "the echo is wrong: {back:?}");
    Ok(())
}

fn websocket(lab: &mut Lab, _: Size) -> Outcome {
    let mut instance = started(lab, "")?;
    let mut socket = instance.client.within(|| open_websocket(&instance))?;
    echo(&mut socket, *b"old1")?;
    configure(&mut instance, 1)?;
    reloaded(&instance)?;
    for _ in 0..20 {
        echo(&mut socket, *b"old2")?;
        thread::sleep(Duration::from_millis(100));
    }
    ensure!(answered_by(&instance)? == 1, "a new connection gets the old configuration");
    let status = instance.status()?;
    ensure!(status["reload"]["state"] == "T3 draining", "{}", status["reload"]);
    ensure!(status["reload"]["connections"].as_u64() >= Some(1), "{}", status["reload"]);
    drop(socket);
    let status = at_rest(&instance, Duration::from_secs(20))?;
    ensure!(last_result(&status) == "complete", "{}", status["last_reload"]);
    Ok(format!("drained after {} ms", status["last_reload"]["drain_ms"]))
}

fn idle(lab: &mut Lab, _: Size) -> Outcome {
    let mut instance = started(lab, "")?;
    let mut connections = instance.client.within(|| {
        let mut all = Vec::new();
        for index in 0..64 {
            let mut connection = Connection::open(instance.addr(index % 2 == 1, 80))?;
            // Every fourth has not asked yet.
            if index % 4 != 0 {
                ensure!(configuration_of(&mut connection)? == 0, "not the first configuration");
            }
            all.push(connection);
        }
        Ok(all)
    })?;
    for number in 1..=3 {
        configure(&mut instance, number)?;
        reloaded(&instance)?;
        at_rest(&instance, Duration::from_secs(20))?;
        for (index, connection) in connections.iter_mut().enumerate() {
            // In the last round all of them ask; before, some are moved twice without a word.
            if number == 3 || index % 3 == 0 {
                let seen = configuration_of(connection)
                    .doing(format!("connection {index} after reload {number}"))?;
                ensure!(
                    seen == number,
                    "connection {index} is answered by configuration {seen} after {number}"
                );
            }
        }
    }
    Ok(String::new())
}

fn refusals(lab: &mut Lab, _: Size) -> Outcome {
    let mut instance = started(lab, "")?;
    let good = instance.site.clone();
    let refused = |instance: &Instance, words: &str| -> Result<(), Failure> {
        let out = reload(instance)?;
        ensure!(out.code() == 5, "exit code {} for `{words}`: {}", out.code(), out.all());
        ensure!(out.stderr.contains(words), "no `{words}` in: {}", out.all());
        ensure!(answered_by(instance)? == 0, "the old configuration does not serve after `{words}`");
        Ok(())
    };
    instance.site.main = "no_such_directive on;".to_owned();
    instance.site.write_conf()?;
    refused(&instance, "no_such_directive")?;
    // The same by a bare HUP: nginx's log and the status have it.
    let master = instance.master_pid().doing("nginx has no pid file")?;
    proc::signal(master, Signal::SIGHUP);
    let noted = proc::until(Duration::from_secs(5), || {
        let status = instance.status().unwrap_or_default();
        status["last_reload"]["reason"].as_str().is_some_and(|reason| reason.contains("does not load"))
    });
    ensure!(noted, "the status does not know of the configuration that does not load");
    instance.site = good.clone();
    for workers in [3, 1] {
        instance.site.workers = workers;
        instance.site.write_conf()?;
        refused(&instance, "worker_processes")?;
        proc::signal(master, Signal::SIGHUP);
        let aborted = proc::until(Duration::from_secs(20), || {
            let status = instance.status().unwrap_or_default();
            status["reload"].is_null()
                && last_result(&status) == "aborted"
                && status["last_reload"]["reason"].as_str().is_some_and(|it| it.contains("worker_processes"))
        });
        ensure!(aborted, "a HUP to {workers} workers is not aborted:\n{}", instance.log_tails());
        ensure!(answered_by(&instance)? == 0, "the old configuration does not serve");
        let log = std::fs::read_to_string(instance.site.error_log())?;
        ensure!(log.contains("worker_processes"), "nginx's error log has no sentence about worker_processes");
    }
    instance.site = good;
    instance.site.write_conf()?;
    // A key of the device.
    let conf = std::fs::read_to_string(instance.stack_conf())?;
    std::fs::write(instance.stack_conf(), conf.replacen("[port0]\n", "[port0]\nmtu=1400\n", 1))?;
    refused(&instance, "mtu")?;
    std::fs::write(instance.stack_conf(), conf)?;
    // All of that has broken nothing.
    configure(&mut instance, 1)?;
    reloaded(&instance)?;
    ensure!(answered_by(&instance)? == 1, "the next reload does not work");
    at_rest(&instance, Duration::from_secs(20))?;
    // No primary.
    let primary = instance.status()?["primary"]["pid"].as_u64().unwrap_or_default() as u32;
    ensure!(proc::kill_and_wait(primary, Duration::from_secs(5)), "the primary did not die");
    let out = reload(&instance)?;
    ensure!(out.code() == 5 && out.stderr.contains("primary is dead"), "{}: {}", out.code(), out.all());
    proc::signal(master, Signal::SIGHUP);
    for _ in 0..30 {
        ensure!(answered_by(&instance)? == 1, "the old generation does not serve without a primary");
        thread::sleep(Duration::from_millis(100));
    }
    Ok(String::new())
}

/// A new worker of the reload under way, once there is one.
fn new_worker(instance: &Instance, old: &[u32]) -> Option<u32> {
    let mut found = None;
    proc::until(Duration::from_secs(10), || {
        found = instance.worker_pids().into_iter().find(|pid| !old.contains(pid));
        found.is_some()
    });
    found
}

fn new_killed(lab: &mut Lab, _: Size) -> Outcome {
    let mut instance = started(lab, "")?;
    let old = instance.worker_pids();
    configure(&mut instance, 1)?;
    let master = instance.master_pid().doing("nginx has no pid file")?;
    proc::signal(master, Signal::SIGHUP);
    let new = new_worker(&instance, &old).doing("no new worker came")?;
    proc::signal(new, Signal::SIGKILL);
    for _ in 0..20 {
        answered_by(&instance)?;
        thread::sleep(Duration::from_millis(50));
    }
    at_rest(&instance, Duration::from_secs(30))?;
    // Whatever became of that one, the next one works.
    configure(&mut instance, 2)?;
    reloaded(&instance)?;
    ensure!(answered_by(&instance)? == 2, "the next reload does not work");
    Ok(String::new())
}

/// Whom the matrix hits.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Old,
    New,
    Master,
    Primary,
    Ffctl,
}

/// Kills or stops `victim` `delay` after the reload began, with a stream held open by the other old worker's kind.
fn hit(lab: &mut Lab, victim: Victim, signal: Signal, delay_ms: u64) -> Result<(), Failure> {
    let mut instance = started(lab, "[dpdk]\nreload_heartbeat_timeout_ms=1000\n")?;
    let old = instance.worker_pids();
    configure(&mut instance, 1)?;
    let mut sockets = instance
        .client
        .within(|| (0..4).map(|_| open_websocket(&instance)).collect::<Result<Vec<_>, _>>())?;
    let primary = instance.status()?["primary"]["pid"].as_u64().unwrap_or_default() as u32;
    let master = instance.master_pid().doing("nginx has no pid file")?;
    let mut command = instance.ffctl_command();
    command.args(["reload", "-i", &instance.names.instance]);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut ffctl = command.spawn().doing("starting ffctl")?;
    let new = new_worker(&instance, &old);
    thread::sleep(Duration::from_millis(delay_ms));
    let pid = match victim {
        Victim::Old => old[0],
        Victim::New => new.doing("no new worker came")?,
        Victim::Master => master,
        Victim::Primary => primary,
        Victim::Ffctl => ffctl.id(),
    };
    proc::signal(pid, signal);
    // New connections are served within a second of the death, or of the stall limit.
    let limit = Duration::from_secs(if signal == Signal::SIGSTOP { 3 } else { 1 });
    let begun = Instant::now();
    let mut refused = None;
    while begun.elapsed() < Duration::from_secs(4) {
        match answered_by(&instance) {
            Ok(_) => {}
            Err(failure) if begun.elapsed() > limit => refused = Some(failure),
            Err(_) => {}
        }
        thread::sleep(Duration::from_millis(100));
    }
    if signal == Signal::SIGSTOP {
        thread::sleep(Duration::from_secs(5).saturating_sub(begun.elapsed()));
        proc::signal(pid, Signal::SIGCONT);
    }
    let _ = ffctl.kill();
    let _ = ffctl.wait();
    if let Some(failure) = refused {
        return Err(Failure(format!(
            "a new connection after the limit: {failure}\n{}",
            instance.log_tails()
        )));
    }
    // Of the streams, those of a killed or fenced worker may be gone; with any other victim none is.
    let alive = sockets.iter_mut().filter_map(|socket| echo(socket, *b"live").ok()).count();
    let may_lose = matches!(victim, Victim::Old);
    ensure!(alive == sockets.len() || may_lose, "{alive} of {} streams live", sockets.len());
    drop(sockets);
    if matches!(victim, Victim::Primary) && signal == Signal::SIGKILL {
        let out = reload(&instance)?;
        ensure!(out.code() == 5, "reload without a primary: exit code {}: {}", out.code(), out.all());
        return Ok(());
    }
    if matches!(victim, Victim::Master) && signal == Signal::SIGKILL {
        let out = reload(&instance)?;
        ensure!(out.code() == 5, "reload without a master: exit code {}: {}", out.code(), out.all());
        return Ok(());
    }
    let rested = proc::until(Duration::from_secs(40), || {
        instance.status().is_ok_and(|status| status["reload"].is_null())
    });
    ensure!(rested, "the reload does not end:\n{}", instance.log_tails());
    configure(&mut instance, 2)?;
    reloaded(&instance)?;
    ensure!(answered_by(&instance)? == 2, "the next reload does not work");
    Ok(())
}

fn matrix(lab: &mut Lab, size: Size) -> Outcome {
    // From the fork of the first new worker on: starting (T1), handing over and settling (T2, T3), draining (T3 to T5).
    let delays: &[u64] =
        size.pick(&[30, 200, 1_000], &[0, 30, 60, 90, 120, 150, 200, 250, 300, 500, 1_000, 2_000]);
    let mut failures = Vec::new();
    let mut count = 0;
    for victim in [Victim::Old, Victim::New, Victim::Master, Victim::Primary, Victim::Ffctl] {
        for signal in [Signal::SIGKILL, Signal::SIGSTOP] {
            for delay_ms in delays.iter().copied() {
                count += 1;
                if let Err(failure) = hit(lab, victim, signal, delay_ms) {
                    failures.push(format!("{victim:?} {signal} after {delay_ms} ms: {failure}"));
                }
            }
        }
    }
    ensure!(failures.is_empty(), "{} of {count}:\n{}", failures.len(), failures.join("\n"));
    Ok(format!("{count} hits"))
}

fn no_free_slot(lab: &mut Lab, _: Size) -> Outcome {
    for policy in ["wait", "refuse", "end_oldest"] {
        let stack = format!("[reload]\nreload_generations=2\nno_free_slot={policy}\n");
        let mut instance = started(lab, &stack)?;
        let mut socket = instance.client.within(|| open_websocket(&instance))?;
        configure(&mut instance, 1)?;
        reloaded(&instance)?;
        configure(&mut instance, 2)?;
        match policy {
            "wait" => {
                let master = instance.master_pid().doing("nginx has no pid file")?;
                proc::signal(master, Signal::SIGHUP);
                thread::sleep(Duration::from_secs(2));
                ensure!(answered_by(&instance)? == 1, "the reload did not wait");
                echo(&mut socket, *b"wait")?;
                drop(socket);
                let served = proc::until(Duration::from_secs(20), || answered_by(&instance).ok() == Some(2));
                ensure!(served, "the reload waits for ever:\n{}", instance.log_tails());
            }
            "refuse" => {
                let out = reload(&instance)?;
                ensure!(out.code() == 5 && out.stderr.contains("slot"), "{}: {}", out.code(), out.all());
                echo(&mut socket, *b"keep")?;
                ensure!(answered_by(&instance)? == 1, "the reload was not refused");
            }
            _ => {
                reloaded(&instance)?;
                ensure!(answered_by(&instance)? == 2, "the reload did not make room");
            }
        }
    }
    Ok(String::new())
}

fn growth(lab: &mut Lab, size: Size) -> Outcome {
    let instance = started(lab, "")?;
    let reloads = size.pick(40, 1_000);
    let held = || -> Result<[u64; 4], Failure> {
        let status = at_rest(&instance, Duration::from_secs(30))?;
        let primary = status["primary"]["pid"].as_u64().unwrap_or_default() as u32;
        let pids = [primary, instance.master_pid().doing("nginx has no pid file")?];
        Ok([
            observe::hugepage_mib(&instance),
            pids.iter().filter_map(|pid| proc::descriptors(*pid)).sum::<usize>() as u64,
            pids.iter().filter_map(|pid| proc::rss_kib(*pid)).sum(),
            observe::files_of(&instance, "/run/dpdk")
                .iter()
                .map(|dir| std::fs::read_dir(dir).map_or(0, Iterator::count))
                .sum::<usize>() as u64,
        ])
    };
    let mut early = None;
    for number in 1..=reloads {
        reloaded(&instance).doing(format!("reload {number}"))?;
        ensure!(answered_by(&instance)? == 0, "no answer after reload {number}");
        at_rest(&instance, Duration::from_secs(30))?;
        if number == 10 {
            thread::sleep(Duration::from_secs(1));
            early = Some(held()?);
        }
    }
    thread::sleep(Duration::from_secs(1));
    let (early, late) = (early.doing("fewer than ten reloads")?, held()?);
    let grown = late[0] > early[0] || late[1] > early[1] || late[2] > early[2] + 2_048 || late[3] > early[3];
    ensure!(
        !grown,
        "MiB of hugepages, descriptors, KiB, files: {early:?} after 10, {late:?} after {reloads}"
    );
    Ok(format!("{late:?}"))
}
