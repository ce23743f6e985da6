//! `scripts/bench wake`: what sleeping costs and saves. Stock nginx on a TAP device with a worker that sleeps, with one
//! that never does (`idle_sleep=0`), and on the kernel's stack, side by side in one run: the median time of the first
//! request after a pause, on a kept connection and on a new one, and the CPU that an idle worker uses. And what a
//! worker's attach takes, as the worker itself logs it.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use ff_harness::http::Connection;
use ff_harness::{Binaries, Context, Device, Failure, Instance, Spec, ensure, proc};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde::Serialize;

use crate::measure::median;
use crate::report::Bar;

/// How long nothing happens before a request.
const PAUSE: Duration = Duration::from_millis(20);
/// Requests of each kind in a round.
const REQUESTS: usize = 50;
/// How long idle workers are watched, once.
const IDLE: Duration = Duration::from_secs(5);
/// Workers killed for the attach times of those that take their place.
const ATTACHES: usize = 10;
/// How long each of them lives: one that dies younger counts as part of a crash loop, whose attaches are delayed.
const LIFE: Duration = Duration::from_millis(1_200);

/// Sleeping may add so much to the median first request, in microseconds.
const SLEEP_BAR_US: f64 = 50.0;
/// An idle worker may use so much of a CPU.
const IDLE_BAR: f64 = 0.03;
/// A worker's attach may take so long, in milliseconds.
const ATTACH_BAR_MS: f64 = 60.0;

/// One server's figures.
#[derive(Debug, Clone, Serialize)]
pub struct Server {
    name: &'static str,
    /// Median time of a request on a connection that was silent for 20 ms.
    kept_us: f64,
    /// Median time of connect, request and response after 20 ms of silence.
    new_us: f64,
    /// Part of a CPU that the idle worker uses.
    idle_cpu: f64,
}

/// All figures.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    benchmark: &'static str,
    servers: Vec<Server>,
    /// Median time in which the machine wakes a thread that slept for 20 ms on the workers' CPU, and that thread the
    /// one on the client's: what any server that sleeps pays here, whatever it does then.
    machine_us: f64,
    attach_ms_median: f64,
    attach_ms_max: f64,
    bars: Vec<Bar>,
}

/// Runs the servers in turns.
///
/// # Errors
/// A server that does not start, a request without its response.
pub fn measure(binaries: &Binaries, rounds: u32) -> Result<Figures, Failure> {
    let spec = |device, stack: &str| Spec {
        workers: 1,
        main: "worker_cpu_affinity 01;".into(),
        stack: format!("[dpdk]\nlcore_mask=1\n{stack}"),
        ..Spec::new(device)
    };
    let servers = [
        ("ffstack tap, sleeping", Instance::started(0, spec(Device::Tap, ""), binaries)?),
        ("ffstack tap, never sleeping", Instance::started(1, spec(Device::Tap, "idle_sleep=0\n"), binaries)?),
        ("kernel veth", Instance::started(2, spec(Device::Kernel, ""), binaries)?),
    ];
    stay_on(1)?;
    // The one that never sleeps would take the CPU from the others: it runs only in its turn.
    let halt = |halted: bool| {
        let signal = if halted { Signal::SIGSTOP } else { Signal::SIGCONT };
        servers[1].1.worker_pids().into_iter().for_each(|pid| proc::signal(pid, signal));
    };
    let mut times: Vec<[Vec<f64>; 2]> = servers.iter().map(|_| [Vec::new(), Vec::new()]).collect();
    let mut idle = Vec::new();
    let mut machine = Vec::new();
    halt(true);
    for round in 1..=rounds {
        machine.push(machine_wake()?);
        for (at, (name, instance)) in servers.iter().enumerate() {
            if at == 1 {
                halt(false);
                thread::sleep(Duration::from_millis(200));
            }
            let [kept, new] =
                instance.client.within(|| -> Result<_, Failure> { Ok([kept(instance)?, new(instance)?]) })?;
            eprintln!("round {round} of {rounds}: {name}: kept {kept:.1} us, new {new:.1} us");
            times[at][0].push(kept);
            times[at][1].push(new);
            if round == 1 {
                idle.push(idle_cpu(instance)?);
            }
            if at == 1 {
                halt(true);
            }
        }
    }
    halt(false);
    let attaches = attach_times(&servers[0].1)?;
    let servers: Vec<Server> = servers
        .iter()
        .zip(times)
        .zip(idle)
        .map(|(((name, _), [kept, new]), idle_cpu)| Server {
            name,
            kept_us: median(kept),
            new_us: median(new),
            idle_cpu,
        })
        .collect();
    let attach_ms_median = median(attaches.clone());
    let added = |of: fn(&Server) -> f64| of(&servers[0]) - of(&servers[1]);
    let bar = |name: &str, value: f64, bar: f64| Bar { name: name.into(), value, bar, met: value <= bar };
    let bars = vec![
        bar(
            "sleeping adds to the median request on a kept connection, us",
            added(|of| of.kept_us),
            SLEEP_BAR_US,
        ),
        bar(
            "sleeping adds to the median request on a new connection, us",
            added(|of| of.new_us),
            SLEEP_BAR_US,
        ),
        bar("an idle worker's part of a CPU", servers[0].idle_cpu, IDLE_BAR),
        bar("median attach, ms", attach_ms_median, ATTACH_BAR_MS),
    ];
    let attach_ms_max = attaches.into_iter().fold(0.0, f64::max);
    Ok(Figures {
        benchmark: "wake",
        servers,
        machine_us: median(machine),
        attach_ms_median,
        attach_ms_max,
        bars,
    })
}

/// Median time in microseconds of requests on one connection, with a pause before each.
fn kept(instance: &Instance) -> Result<f64, Failure> {
    let mut connection = Connection::open(instance.addr(false, 80))?;
    let mut times = Vec::new();
    for _ in 0..REQUESTS {
        thread::sleep(PAUSE);
        let start = Instant::now();
        connection.get("/b600")?;
        connection.response()?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(times))
}

/// The same with a connection for each.
fn new(instance: &Instance) -> Result<f64, Failure> {
    let mut times = Vec::new();
    for _ in 0..REQUESTS {
        thread::sleep(PAUSE);
        let start = Instant::now();
        let mut connection = Connection::open(instance.addr(false, 80))?;
        connection.get("/b600")?;
        connection.response()?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(times))
}

fn stay_on(cpu: usize) -> Result<(), Failure> {
    let mut only = CpuSet::new();
    only.set(cpu)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &only)?)
}

/// Median round trip in microseconds between this thread and one on CPU 0, over pipes, after a pause of both.
fn machine_wake() -> Result<f64, Failure> {
    let (mut there, mut to) = std::io::pipe()?;
    let (mut from, mut back) = std::io::pipe()?;
    let echo = thread::spawn(move || -> Result<(), Failure> {
        stay_on(0)?;
        let mut byte = [0];
        while there.read(&mut byte)? == 1 {
            back.write_all(&byte)?;
        }
        Ok(())
    });
    let mut times = Vec::new();
    for _ in 0..REQUESTS {
        thread::sleep(PAUSE);
        let start = Instant::now();
        to.write_all(&[1])?;
        from.read_exact(&mut [0])?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    drop(to);
    echo.join().map_err(|_| "the echoing thread panicked".to_owned())??;
    Ok(median(times))
}

fn idle_cpu(instance: &Instance) -> Result<f64, Failure> {
    let worker = instance.worker_pids().first().copied().doing("there is no worker")?;
    // What the requests before it left (a connection's end, say) is not idle.
    thread::sleep(Duration::from_secs(1));
    let before = proc::cpu_time(worker).doing("the worker is gone")?;
    thread::sleep(IDLE);
    let after = proc::cpu_time(worker).doing("the worker is gone")?;
    Ok((after - before).as_secs_f64() / IDLE.as_secs_f64())
}

/// Kills the worker again and again, and reads in nginx's log how long its successors took to attach, in milliseconds.
fn attach_times(instance: &Instance) -> Result<Vec<f64>, Failure> {
    for killed in 0..ATTACHES {
        thread::sleep(LIFE);
        let worker = instance.worker_pids().first().copied().doing("there is no worker")?;
        proc::signal(worker, Signal::SIGKILL);
        let replaced = proc::until(Duration::from_secs(10), || {
            attached(instance).len() >= killed + 2 && instance.worker_pids().iter().any(|pid| *pid != worker)
        });
        ensure!(
            replaced,
            "no worker took the place of killed worker {killed} within 10 s\n{}",
            instance.log_tails()
        );
    }
    // The first is of the start, when everything else starts too.
    Ok(attached(instance).into_iter().skip(1).collect())
}

/// The attach times in nginx's log, in milliseconds.
fn attached(instance: &Instance) -> Vec<f64> {
    let text = fs::read_to_string(instance.site.error_log()).unwrap_or_default();
    let number = |line: &str| line.split_once("` in ")?.1.split_once(" us")?.0.parse::<f64>().ok();
    let lines = text.lines().filter(|line| line.contains(" attached to `"));
    lines.filter_map(number).map(|us| us / 1e3).collect()
}

impl Figures {
    /// For programs.
    pub fn json(&self) -> String {
        serde_json::json!(self).to_string()
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut text = format!("{:<28} {:>10} {:>10} {:>9}\n", "server", "kept us", "new us", "idle CPU");
        for server in &self.servers {
            let Server { name, kept_us, new_us, idle_cpu } = server;
            let _ = writeln!(text, "{name:<28} {kept_us:>10.1} {new_us:>10.1} {:>8.2}%", idle_cpu * 100.0);
        }
        let _ = writeln!(
            text,
            "\nthe machine alone (two threads that sleep, pipes between them): {:.1} us\nattach: median {:.1} ms, \
             longest {:.1} ms\n",
            self.machine_us, self.attach_ms_median, self.attach_ms_max
        );
        for bar in &self.bars {
            let _ = writeln!(text, "{bar}");
        }
        text
    }
}
