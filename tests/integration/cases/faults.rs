//! Processes that are killed or stopped, and what is said and left then.

use std::fs;
use std::thread;
use std::time::Duration;

use ff_harness::http::Connection;
use ff_harness::{Context, Instance, ensure, proc};
use nix::sys::signal::Signal;

use crate::case::{Case, Outcome, Size};
use crate::lab::Lab;
use crate::observe;

pub fn cases() -> Vec<Case> {
    vec![
        Case::own("ft01", "nginx killed: its stale unix sockets do not stop the next start", stale_sockets),
        Case::own("ft02", "a stopped worker is shown as stalled", stalled_worker),
        Case::own("ft03", "stop --now ends a stopped primary within 2 s", stopped_primary),
        Case::own("ft04", "workers that fail after they were forked: refused at once", failing_workers),
        Case::own("ft05", "a worker without a primary says what is true, the others serve", orphaned_worker),
        Case::own("ft06", "check refuses what is no regular file", no_regular_file),
    ]
}

fn stale_sockets(lab: &mut Lab, _: Size) -> Outcome {
    let mut spec = lab.spec();
    let path = std::env::temp_dir().join(format!("ff-stale-{}.sock", std::process::id()));
    spec.http = format!("server {{ listen unix:{}; }}", path.display());
    let mut instance = lab.start(spec)?;
    let master = instance.master_pid().doing("nginx has no pid file")?;
    let mut all = instance.worker_pids();
    all.insert(0, master);
    all.iter().for_each(|pid| proc::signal(*pid, Signal::SIGKILL));
    ensure!(all.iter().all(|pid| proc::gone_within(*pid, Duration::from_secs(5))), "nginx outlives SIGKILL");
    let out = instance.ffctl(&["stop", "--now", "-i", &instance.names.instance])?;
    ensure!(out.success(), "stop: {}", out.all());
    ensure!(path.exists(), "nothing stale was left, so nothing is tested");
    let out = instance.ffctl_start()?;
    ensure!(out.success(), "the next start: {}", out.all());
    ensure!(out.stderr.contains(&path.display().to_string()), "nothing is said: {}", out.all());
    instance.connect_tap()?;
    instance.wait_answer()?;
    instance.stop()?;
    let _ = fs::remove_file(&path);
    Ok(out.stderr.trim().to_owned())
}

fn stalled_worker(lab: &mut Lab, _: Size) -> Outcome {
    let instance = lab.start(lab.spec())?;
    let stopped = instance.worker_pids().first().copied().doing("there is no worker")?;
    proc::signal(stopped, Signal::SIGSTOP);
    let state = |instance: &Instance| -> Option<String> {
        let workers = observe::workers(&instance.status().ok()?).ok()?;
        let worker = workers.iter().find(|worker| observe::number(worker, "pid") == u64::from(stopped))?;
        Some(worker["state"].as_str()?.to_owned())
    };
    let stalled = proc::until(Duration::from_secs(8), || state(&instance).as_deref() == Some("stalled"));
    let text = instance.ffctl(&["status", "-i", &instance.names.instance])?;
    proc::signal(stopped, Signal::SIGCONT);
    ensure!(stalled, "it is shown as {:?}", state(&instance));
    ensure!(text.stdout.contains("stalled"), "the text does not show it: {}", text.stdout);
    let back = proc::until(Duration::from_secs(5), || state(&instance).as_deref() == Some("ready"));
    ensure!(back, "after SIGCONT it is shown as {:?}", state(&instance));
    Ok(String::new())
}

fn stopped_primary(lab: &mut Lab, _: Size) -> Outcome {
    let instance = lab.start(lab.spec())?;
    let primary = instance.status()?["primary"]["pid"].as_u64().doing("no primary.pid")? as u32;
    proc::signal(primary, Signal::SIGSTOP);
    let out = instance.ffctl(&["stop", "--now", "-i", &instance.names.instance])?;
    ensure!(out.success(), "stop --now: exit code {}: {}", out.code(), out.all());
    ensure!(out.elapsed < Duration::from_secs(3), "it took {:?}", out.elapsed);
    observe::nothing_left(&instance)?;
    Ok(format!("{} ms", out.elapsed.as_millis()))
}

fn failing_workers(lab: &mut Lab, _: Size) -> Outcome {
    let mut spec = lab.spec();
    spec.main = "working_directory /nonexistent;".into();
    let instance = lab.prepare(spec)?;
    let out = instance.ffctl_start()?;
    ensure!(!out.success(), "start succeeded: {}", out.all());
    ensure!(out.elapsed < Duration::from_secs(8), "it took {:?}", out.elapsed);
    ensure!(out.stderr.contains("/nonexistent"), "the reason is not said: {}", out.stderr);
    observe::nothing_left(&instance)?;
    Ok(format!("{} ms", out.elapsed.as_millis()))
}

fn orphaned_worker(lab: &mut Lab, _: Size) -> Outcome {
    let instance = lab.start(lab.spec())?;
    let primary = instance.status()?["primary"]["pid"].as_u64().doing("no primary.pid")? as u32;
    ensure!(proc::kill_and_wait(primary, Duration::from_secs(5)), "the primary outlives SIGKILL");
    let killed = instance.worker_pids().first().copied().doing("there is no worker")?;
    proc::signal(killed, Signal::SIGKILL);
    let log = || fs::read_to_string(instance.site.error_log()).unwrap_or_default();
    let said =
        proc::until(Duration::from_secs(5), || log().contains("is gone: workers that are attached go on"));
    ensure!(said, "nginx's log does not say it:\n{}", instance.log_tails());
    // The other worker's queue serves on; a connection to the dead one's is not answered.
    let served = proc::until(Duration::from_secs(10), || {
        thread::sleep(Duration::from_millis(20));
        let answered = instance.client.within(|| {
            let mut connection = Connection::open(instance.addr(false, 80))?;
            connection.get("/hello")?;
            connection.response()
        });
        answered.is_ok()
    });
    ensure!(served, "nobody serves any more");
    Ok(String::new())
}

fn no_regular_file(lab: &mut Lab, _: Size) -> Outcome {
    let instance = lab.prepare(lab.spec())?;
    let fifo = instance.stack_conf().with_file_name("fifo.conf");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR)?;
    for path in [fifo.to_string_lossy().as_ref(), "/dev/zero", "/tmp"] {
        let out = instance.ffctl(&["check", "-c", path])?;
        ensure!(!out.success() && out.stderr.contains("no regular file"), "{path}: {}", out.all());
    }
    Ok(String::new())
}
