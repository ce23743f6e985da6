//! `ff-loadgen`: see [`ff_loadgen`].

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Parser;
use ff_dataplane::io::PacketIo as _;
use ff_loadgen::arguments::Arguments;
use ff_loadgen::attach::{self, ClientSettings};
use ff_loadgen::driver::Driver;
use ff_loadgen::network::Network;
use ff_loadgen::report::{ClientCost, Head, Report};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

const FAILED: u8 = 1;
const USAGE: u8 = 2;
const NOT_ATTACHED: u8 = 3;

/// Steps without anything to do before a pause, if there is to be one.
const SPINS_BEFORE_SLEEP: u32 = 64;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (targets, mut load) = match arguments.targets() {
        Ok(targets) => (targets, arguments.load()),
        Err(error) => return failed(USAGE, &error),
    };
    let settings = ClientSettings {
        sources: arguments.source.clone(),
        source_count: arguments.sources,
        connections: load.connections,
    };
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        if let Err(error) = signal_hook::flag::register(signal, Arc::clone(&stopped)) {
            return failed(FAILED, &error);
        }
    }
    let client = match attach::attach(&arguments.instance, &settings) {
        Ok(client) => client,
        Err(error) => return failed(NOT_ATTACHED, &error),
    };
    if let Some(cpu) = arguments.cpu
        && let Err(error) = pin(cpu)
    {
        return failed(USAGE, &format!("cannot run on CPU {cpu}: {error}"));
    }
    if arguments.idle_sleep_us > 0 {
        // The kernel's default rounds a sleep up by 50 us. A longer sleep is a worse measurement, not a wrong one.
        let _ = nix::sys::prctl::set_timerslack(1);
    }
    load.sources.clone_from(&client.sources);
    let head = Head {
        url: format!("http://{}{}", arguments.url.authority, arguments.url.path),
        connections: load.connections,
        requests_per_connection: load.requests_per_connection,
        rate_per_s: load.rate_per_s,
    };
    let mut driver = Driver::new(client.stack, load, targets, now_us());
    let mut cost = run(&mut driver, &stopped, arguments.idle_sleep_us);
    cost.queues = client.queues;
    let (stack, statistics) = driver.into_parts();
    let report = Report::new(head, &statistics, cost, stack.io().counters());
    match report.json() {
        Ok(json) if arguments.json => println!("{json}"),
        Ok(_) => print!("{}", report.text()),
        Err(error) => return failed(FAILED, &error),
    }
    if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) }
}

fn failed(code: u8, error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("ff-loadgen: {error}");
    ExitCode::from(code)
}

/// Steps until the run is over.
fn run<N: Network>(driver: &mut Driver<N>, stopped: &AtomicBool, idle_sleep_us: u32) -> ClientCost {
    let start_us = now_us();
    let cpu_before_s = cpu_s();
    let (mut steps, mut busy_us, mut idle_steps) = (0, 0, 0u32);
    let mut at_us = start_us;
    loop {
        let step = driver.step(at_us);
        steps += 1;
        let after_us = now_us();
        if step.busy {
            busy_us += after_us - at_us;
            idle_steps = 0;
        } else {
            idle_steps += 1;
        }
        at_us = after_us;
        if step.done {
            break;
        }
        if stopped.load(Ordering::Relaxed) {
            driver.stop(at_us);
        }
        if idle_sleep_us > 0 && idle_steps > SPINS_BEFORE_SLEEP {
            let due_us = driver.next_us().map_or(u64::MAX, |due_us| due_us.saturating_sub(at_us));
            std::thread::sleep(Duration::from_micros(u64::from(idle_sleep_us).min(due_us)));
            at_us = now_us();
        } else if !step.busy {
            std::hint::spin_loop();
        }
    }
    let took_us = (at_us - start_us).max(1);
    ClientCost {
        cpu_s: cpu_s() - cpu_before_s,
        busy_ratio: busy_us as f64 / took_us as f64,
        steps,
        queues: 0,
        start_monotonic_us: start_us,
    }
}

fn pin(cpu: u16) -> nix::Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(usize::from(cpu))?;
    sched_setaffinity(Pid::from_raw(0), &cpus)
}

/// CLOCK_MONOTONIC in microseconds.
fn now_us() -> u64 {
    // The clock is always there.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| time.num_microseconds().unsigned_abs())
}

/// CPU time of this process in seconds.
fn cpu_s() -> f64 {
    getrusage(UsageWho::RUSAGE_SELF).map_or(0.0, |usage| {
        (usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e6
    })
}
