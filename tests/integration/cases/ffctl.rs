//! `ffctl`: start is all or nothing, stop cleans up after everything, every failure is one clear sentence.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use ff_harness::{Context, Device, Failure, Instance, Output, ensure, proc, run, run_in};
use nix::sys::signal::Signal;

use crate::case::{Case, Outcome, Size};
use crate::lab::Lab;
use crate::observe;

pub fn cases() -> Vec<Case> {
    vec![
        Case::own("fc01", "a second start is refused, the first goes on", second_start),
        Case::own("fc02", "start with the TAP's name taken: refused, nothing left", device_taken),
        Case::own("fc03", "start with a kernel port taken: nginx's own words, nothing left", port_taken),
        Case::own(
            "fc04",
            "start without mounted hugepages: refused with the command, nothing left",
            no_hugepages,
        ),
        Case::own("fc05", "start with too few hugepages: refused, nothing left", few_hugepages),
        Case::own("fc06", "start without root: refused, nothing left", not_root),
        Case::own("fc07", "start without DPDK's drivers: refused, nothing left", no_driver),
        Case::own(
            "fc08",
            "start with a wrong nginx configuration: nginx's own words, nothing left",
            wrong_nginx,
        ),
        Case::own("fc09", "start with workers that cannot attach: refused, nothing left", no_attach)
            .within_s(120),
        Case::own("fc10", "start without the nginx binary: refused, nothing left", no_nginx),
        Case::own("fc11", "Ctrl-C at any point of start: nothing left", interrupted).within_s(180),
        Case::own("fc12", "status --json has every field", status_fields).main(),
        Case::own("fc13", "check prints the effective configuration and all findings at once", check),
        Case::own("fc14", "unknown keys and sections warn with line and nearest name", unknown_keys),
        Case::own("fc15", "stop, stop again, status: a sentence and an exit code each", stop_twice),
        Case::own("fc16", "version and usage", version),
    ]
}

/// The failed start said something useful and left nothing.
fn refused(instance: &Instance, out: &Output, words: &[&str]) -> Outcome {
    ensure!(!out.success(), "start succeeded: {}", out.all());
    let text = out.stderr.trim();
    ensure!(!text.is_empty(), "nothing was said on standard error: {}", out.stdout);
    ensure!(!text.contains("panicked"), "a panic: {text}");
    for word in words {
        ensure!(text.to_lowercase().contains(&word.to_lowercase()), "{word:?} is not in: {text}");
    }
    observe::nothing_left(instance)?;
    let last = text.lines().last().unwrap_or_default();
    Ok(format!("exit {}: {}", out.code(), last.trim()))
}

/// As [`refused`], and afterwards an ordinary start works.
fn refused_then_fine(mut instance: Instance, out: &Output, words: &[&str]) -> Outcome {
    let note = refused(&instance, out, words)?;
    instance.start().doing("the next start")?;
    Ok(note)
}

fn second_start(lab: &mut Lab, _: Size) -> Outcome {
    let instance = lab.start(lab.spec())?;
    let out = instance.ffctl_start()?;
    ensure!(!out.success(), "a second start succeeded");
    ensure!(out.stderr.contains("running"), "it says: {}", out.stderr);
    instance.wait_answer().doing("the first instance")?;
    Ok(format!("exit {}: {}", out.code(), out.stderr.trim()))
}

fn device_taken(lab: &mut Lab, _: Size) -> Outcome {
    let instance = lab.prepare(lab.spec())?;
    let link = instance.names.instance.clone();
    // An ordinary interface of that name.
    instance.server.ip(&["link", "add", &link, "type", "veth", "peer", "name", "fftpeer"])?;
    let out = instance.ffctl_start()?;
    instance.server.ip(&["link", "del", &link])?;
    refused_then_fine(instance, &out, &[&link])
}

fn port_taken(lab: &mut Lab, _: Size) -> Outcome {
    let mut spec = lab.spec();
    spec.http = "server { listen 127.0.0.1:8082; }".into();
    let instance = lab.prepare(spec)?;
    let holder =
        "import socket,time; s=socket.socket(); s.bind(('127.0.0.1',8082)); s.listen(); time.sleep(60)";
    let mut child = instance
        .server
        .command("/usr/bin/python3")
        .args(["-c", holder])
        .stdin(Stdio::null())
        .spawn()
        .doing("starting the port's holder")?;
    let listening = || {
        run_in(&instance.server, "ss", &["-Htln"], Duration::from_secs(5))
            .is_ok_and(|out| out.stdout.contains("127.0.0.1:8082"))
    };
    let held = proc::until(Duration::from_secs(5), listening);
    let out = instance.ffctl_start();
    child.kill()?;
    child.wait()?;
    ensure!(held, "the port's holder did not listen");
    refused_then_fine(instance, &out?, &["8082", "in use"])
}

/// Runs `ffctl start` in a mount namespace of its own after `prepare` (a shell line).
fn start_after(instance: &Instance, prepare: &str) -> Result<Output, Failure> {
    let mut command = instance.server.command("unshare");
    command.args(["--mount", "sh", "-c"]).arg(format!("{prepare} && exec \"$@\"")).arg("sh");
    let ffctl = instance.ffctl_command();
    // The last argument of the namespaced command is ffctl itself.
    command.arg(ffctl.get_args().last().doing("no ffctl")?).args(["start", "-c"]).arg(instance.stack_conf());
    run(command, Duration::from_secs(60))
}

fn no_hugepages(lab: &mut Lab, _: Size) -> Outcome {
    let instance = lab.prepare(lab.spec())?;
    let out = start_after(&instance, "umount /dev/hugepages")?;
    refused_then_fine(instance, &out, &["hugepage", "mount"])
}

fn few_hugepages(lab: &mut Lab, _: Size) -> Outcome {
    let mut spec = lab.spec();
    // 2 workers × 4 slots × 1 000 000 buffers of 2 KiB and more: no test machine has 16 GiB of hugepages.
    spec.stack = "[limits]\nmbufs=1000000\n".into();
    let mut instance = lab.prepare(spec)?;
    let out = instance.ffctl_start()?;
    let note = refused(&instance, &out, &["hugepage"])?;
    instance.spec.stack.clear();
    instance.write_conf()?;
    instance.start().doing("the next start")?;
    Ok(note)
}

fn not_root(lab: &mut Lab, _: Size) -> Outcome {
    let instance = lab.prepare(lab.spec())?;
    // The binaries may lie where another user may not look; a copy in the run's directory is for everybody.
    let copy = instance.site.dir.join("bin");
    fs::create_dir_all(&copy)?;
    for name in ["ffctl", "ff-primary", "libff_nginx.so"] {
        fs::copy(lab.binaries.dir.join(name), copy.join(name)).doing(name)?;
    }
    let mut command = instance.server.command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(copy.join("ffctl"));
    command.args(["start", "-c"]).arg(instance.stack_conf());
    let out = run(command, Duration::from_secs(30))?;
    refused_then_fine(instance, &out, &["root"])
}

fn no_driver(lab: &mut Lab, _: Size) -> Outcome {
    let instance = lab.prepare(lab.spec())?;
    let empty = instance.site.dir.join("empty");
    fs::create_dir_all(&empty)?;
    let out = start_after(
        &instance,
        &format!("for d in /usr/lib/*/dpdk/pmds-*; do mount --bind {} $d || exit 99; done", empty.display()),
    )?;
    ensure!(out.code() != 99, "the drivers' directory could not be hidden: {}", out.all());
    refused_then_fine(instance, &out, &["driver"])
}

fn wrong_nginx(lab: &mut Lab, _: Size) -> Outcome {
    let mut instance = lab.prepare(lab.spec())?;
    instance.site.http = "no_such_directive on;".into();
    instance.site.write_conf()?;
    let out = instance.ffctl_start()?;
    let note = refused(&instance, &out, &["no_such_directive"])?;
    instance.site.http.clear();
    instance.site.write_conf()?;
    instance.start().doing("the next start")?;
    Ok(note)
}

fn no_attach(lab: &mut Lab, _: Size) -> Outcome {
    let mut instance = lab.prepare(lab.spec())?;
    // Applied in the worker before it attaches: no descriptor is left to open anything with.
    let conf = fs::read_to_string(instance.site.conf())?;
    let few: Vec<&str> = conf
        .lines()
        .map(|line| if line.starts_with("worker_rlimit_nofile") { "worker_rlimit_nofile 4;" } else { line })
        .collect();
    fs::write(instance.site.conf(), few.join("\n"))?;
    let out = instance.ffctl_start()?;
    let note = refused(&instance, &out, &["worker"])?;
    ensure!(out.elapsed < Duration::from_secs(40), "it took {:?}", out.elapsed);
    fs::write(instance.site.conf(), conf)?;
    instance.start().doing("the next start")?;
    Ok(note)
}

fn no_nginx(lab: &mut Lab, _: Size) -> Outcome {
    let instance = lab.prepare(lab.spec())?;
    let conf = fs::read_to_string(instance.stack_conf())?;
    fs::write(instance.stack_conf(), conf.replace("/usr/sbin/nginx", "/usr/sbin/no-such-nginx"))?;
    let out = instance.ffctl_start()?;
    fs::write(instance.stack_conf(), conf)?;
    refused_then_fine(instance, &out, &["no-such-nginx"])
}

fn interrupted(lab: &mut Lab, _: Size) -> Outcome {
    let mut instance = lab.prepare(lab.spec())?;
    let mut undone = 0;
    for (round, delay_ms) in [5, 30, 60, 100, 150, 200, 300, 400, 600, 900].into_iter().enumerate() {
        let mut command = instance.ffctl_command();
        command.args(["start", "-c"]).arg(instance.stack_conf());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        thread::sleep(Duration::from_millis(delay_ms));
        let signal = if round % 2 == 0 { Signal::SIGINT } else { Signal::SIGTERM };
        proc::signal(child.id(), signal);
        let ended =
            proc::until(Duration::from_secs(30), || child.try_wait().is_ok_and(|status| status.is_some()));
        ensure!(ended, "start did not end within 30 s after {signal} at {delay_ms} ms");
        if child.wait()?.success() {
            // It was faster than the signal.
            instance.stop()?;
        } else {
            undone += 1;
        }
        observe::nothing_left(&instance).doing(format!("after {signal} at {delay_ms} ms"))?;
    }
    // Even when ffctl itself is killed, a later start cleans up.
    for delay_ms in [50, 200, 500] {
        let mut command = instance.ffctl_command();
        command.args(["start", "-c"]).arg(instance.stack_conf());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        thread::sleep(Duration::from_millis(delay_ms));
        child.kill()?;
        child.wait()?;
        let out = instance.ffctl(&["stop", "--now", "-i", &instance.names.instance])?;
        observe::nothing_left(&instance)
            .doing(format!("stop after a kill at {delay_ms} ms ({})", out.all()))?;
    }
    instance.start().doing("the next start")?;
    Ok(format!("{undone} of 10 starts undone"))
}

fn status_fields(lab: &mut Lab, _: Size) -> Outcome {
    let instance = lab.start(lab.spec())?;
    let status = instance.status()?;
    let primary = status["primary"]["pid"].as_u64().doing("primary.pid is missing")?;
    ensure!(
        proc::program(primary as u32).is_some_and(|name| name.starts_with("ff-primary")),
        "primary.pid {primary}"
    );
    for field in ["epoch", "slot"] {
        ensure!(status["active"][field].is_u64(), "active.{field} is missing: {status}");
    }
    let generation = &status["generations"][0];
    for field in ["epoch", "slot", "master_pid"] {
        ensure!(generation[field].is_u64(), "generations[0].{field} is missing: {status}");
    }
    ensure!(generation["state"] == "active", "state {}", generation["state"]);
    ensure!(generation["epoch"] == status["active"]["epoch"], "the active generation is not the newest");
    ensure!(generation["master_pid"].as_u64() == instance.master_pid().map(u64::from), "master_pid is wrong");
    let workers = observe::workers(&status)?;
    let mut pids: Vec<u32> = workers.iter().map(|worker| observe::number(worker, "pid") as u32).collect();
    let mut running = instance.worker_pids();
    pids.sort_unstable();
    running.sort_unstable();
    ensure!(pids == running, "status shows workers {pids:?}, nginx runs {running:?}");
    for (index, worker) in workers.iter().enumerate() {
        ensure!(worker["index"].as_u64() == Some(index as u64), "workers are not in order: {status}");
        ensure!(worker["ready"] == true && worker["drops"].is_object(), "worker {worker}");
        ensure!(worker["queues"].as_array().is_some_and(|queues| queues.len() == 1), "worker {worker}");
        for field in ["tcp_flows", "tcp_listeners", "rx_packets", "tx_packets"] {
            ensure!(worker[field].is_u64(), "{field} is missing: {worker}");
        }
        ensure!(observe::number(worker, "tcp_listeners") > 0, "no listener: {worker}");
        let busy = worker["cpu_busy_ratio"].as_f64().doing("cpu_busy_ratio is missing")?;
        ensure!((0.0..=1.0).contains(&busy), "cpu_busy_ratio {busy}");
    }
    let text = instance.ffctl(&["status", "-i", &instance.names.instance])?;
    ensure!(text.success() && text.stdout.contains(&pids[0].to_string()), "status: {}", text.all());
    Ok(String::new())
}

fn check(lab: &mut Lab, _: Size) -> Outcome {
    let instance = lab.prepare(lab.spec())?;
    let conf = instance.stack_conf();
    let conf = conf.to_string_lossy();
    let good = instance.ffctl(&["check", "-c", &conf])?;
    ensure!(good.success(), "a good file: exit code {}: {}", good.code(), good.all());
    ensure!(good.stdout.contains("198.18.7.2"), "the effective configuration is missing: {}", good.stdout);
    ensure!(good.stdout.to_lowercase().contains("digest"), "the device digest is missing: {}", good.stdout);
    let text = fs::read_to_string(instance.stack_conf())?;
    let wrong = text
        .replace("netmask=255.255.255.0", "netmask=255.0.255.0")
        .replace("prefix_len=64", "prefix_len=640");
    fs::write(instance.stack_conf(), wrong)?;
    let bad = instance.ffctl(&["check", "-c", &conf])?;
    ensure!(!bad.success(), "a wrong file: exit code 0");
    let all = bad.all();
    ensure!(all.contains("netmask") && all.contains("prefix_len"), "not all findings at once: {all}");
    ensure!(all.contains("f-stack.conf:4") || all.contains("f-stack.conf:5"), "no line numbers: {all}");
    let start = instance.ffctl_start()?;
    refused(&instance, &start, &["netmask"])?;
    Ok(format!("exit {}", bad.code()))
}

fn unknown_keys(lab: &mut Lab, _: Size) -> Outcome {
    let mut spec = lab.spec();
    spec.stack = "[limits]\ntcp_flow=1000\n\n[freebsd.systl]\nkern.ipc.somaxconn=100\n".into();
    let instance = lab.start(spec)?;
    let conf = instance.stack_conf();
    let out = instance.ffctl(&["check", "-c", &conf.to_string_lossy()])?;
    ensure!(out.success(), "unknown names are warnings: exit code {}", out.code());
    let all = out.all();
    ensure!(all.contains("tcp_flow") && all.contains("tcp_flows"), "no nearest key: {all}");
    ensure!(all.contains("freebsd.systl") && all.contains("freebsd.sysctl"), "no nearest section: {all}");
    Ok(String::new())
}

fn stop_twice(lab: &mut Lab, _: Size) -> Outcome {
    let mut instance = lab.start(lab.spec())?;
    instance.stop()?;
    observe::nothing_left(&instance)?;
    let stop = instance.ffctl(&["stop", "-i", &instance.names.instance])?;
    let status = instance.ffctl(&["status", "--json", "-i", &instance.names.instance])?;
    for (name, out) in [("stop", &stop), ("status", &status)] {
        ensure!(!out.success() && !out.all().is_empty(), "{name}: exit code {}: {}", out.code(), out.all());
    }
    Ok(format!("stop {}, status {}", stop.code(), status.code()))
}

fn version(lab: &mut Lab, _: Size) -> Outcome {
    let ffctl = lab.binaries.ffctl();
    let command = |args: &[&str]| {
        let mut command = Command::new(&ffctl);
        command.args(args);
        run(command, Duration::from_secs(5))
    };
    let version = command(&["version"])?;
    ensure!(version.success() && version.stdout.contains(env!("CARGO_PKG_VERSION")), "{}", version.all());
    let wrong = command(&["begin"])?;
    ensure!(
        wrong.code() == 2 && wrong.stderr.contains("Usage"),
        "exit code {}: {}",
        wrong.code(),
        wrong.all()
    );
    let missing = command(&["start", "-c", "/nonexistent/f-stack.conf"])?;
    ensure!(!missing.success() && missing.stderr.contains("/nonexistent/f-stack.conf"), "{}", missing.all());
    ensure!(lab.device != Device::Kernel, "this case is about ffctl");
    Ok(version.stdout.trim().to_owned())
}
