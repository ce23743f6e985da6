//! One run of a client against one server, and what both cost.

use std::process::Command;
use std::time::Duration;

use ff_harness::{Context, Device, Failure, Instance, ensure, proc, run};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use serde_json::Value;

/// Connections at once.
const CONNECTIONS: &str = "64";
/// The wire's client does not poll while it waits: what it would burn is not what a request costs.
const CLIENT_SLEEP_US: &str = "20";

/// How connections are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// 64 connections for the whole run.
    KeepAlive,
    /// One request per connection.
    Close,
}

impl Mode {
    /// Its name in the output.
    pub fn name(self) -> &'static str {
        match self {
            Self::KeepAlive => "keep-alive",
            Self::Close => "close",
        }
    }
}

/// What is asked for; 600 bytes either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object {
    /// From nginx's configuration (`return`): the network alone.
    Memory,
    /// A static file with sendfile: nginx opens, reads and closes it for each request, whatever the network.
    File,
}

impl Object {
    /// Its name in the output and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::File => "file",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Memory => "/b600",
            Self::File => "/small.bin",
        }
    }
}

/// Figures of one run.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Responses per second.
    pub requests_per_s: f64,
    /// CPU time of nginx's worker, in seconds.
    pub server_s: f64,
    /// CPU time of the client, in seconds; what the kernel does for the server's receive side over veth is charged
    /// here.
    pub client_s: f64,
    /// Responses.
    pub responses: f64,
    /// Part of its time in which the worker had something to do, as it reports itself; of a kernel's worker, its CPU
    /// time in parts of the run.
    pub busy_ratio: f64,
}

impl Sample {
    /// CPU time of nginx's worker per request, in microseconds.
    pub fn server_us(&self) -> f64 {
        self.server_s * 1e6 / self.responses
    }

    /// CPU time of the client per request, in microseconds.
    pub fn client_us(&self) -> f64 {
        self.client_s * 1e6 / self.responses
    }
}

/// The client's command line for `instance`.
pub fn client_command(instance: &Instance, mode: Mode, object: Object, seconds: u32) -> Command {
    let url = format!("http://{}{}", instance.addr(false, 80), object.path());
    let seconds = seconds.to_string();
    if instance.spec.device == Device::Wire {
        let mut loadgen = instance.loadgen(&["--cpu", "1", "-c", CONNECTIONS, "-d", &seconds, "--json"]);
        loadgen.args(["--idle-sleep-us", CLIENT_SLEEP_US]);
        if mode == Mode::Close {
            loadgen.arg("--close");
        }
        loadgen.arg(url);
        return loadgen;
    }
    let mut wrk = Command::new("taskset");
    wrk.args(["-c", "1", "wrk", "-t", "1", "-c", CONNECTIONS, "-d", &format!("{seconds}s")]);
    if mode == Mode::Close {
        wrk.args(["-H", "Connection: close"]);
    }
    wrk.arg(url);
    wrk
}

/// Runs the client for `seconds`.
///
/// # Errors
/// An error of the client's, of a socket, or a response that is not 2xx: a figure with errors is worth nothing.
pub fn sample(instance: &Instance, mode: Mode, object: Object, seconds: u32) -> Result<Sample, Failure> {
    let command = client_command(instance, mode, object, seconds);
    let limit = Duration::from_secs(u64::from(seconds) + 20);
    let before = (server_cpu(instance)?, children_cpu()?);
    let out = if instance.spec.device == Device::Wire {
        run(command, limit)?
    } else {
        instance.client.within(|| run(command, limit))?
    };
    let after = (server_cpu(instance)?, children_cpu()?);
    ensure!(out.success(), "{} {}: {}", instance.spec.device.name(), mode.name(), out.all());
    let server_s = (after.0 - before.0).as_secs_f64();
    let (requests_per_s, responses, client_s) = if instance.spec.device == Device::Wire {
        of_loadgen(&out.stdout)?
    } else {
        ensure!(
            !out.stdout.contains("Socket errors") && !out.stdout.contains("Non-2xx"),
            "wrk: {}",
            out.all()
        );
        let (rate, count) = of_wrk(&out.stdout)?;
        (rate, count, (after.1 - before.1).as_secs_f64())
    };
    let busy_ratio = if instance.spec.device.ours() {
        busy_ratio(&instance.status()?).doing("the status has no cpu_busy_ratio")?
    } else {
        server_s / out.elapsed.as_secs_f64()
    };
    Ok(Sample { requests_per_s, server_s, client_s, responses, busy_ratio })
}

/// Rate and number of responses.
fn of_wrk(text: &str) -> Result<(f64, f64), Failure> {
    // "  240153 requests in 3.00s, 195.00MB read"
    let line = text.lines().find(|line| line.contains(" requests in ")).doing("wrk printed no count")?;
    let count: f64 =
        line.split_whitespace().next().and_then(|word| word.parse().ok()).doing("wrk printed no count")?;
    let rate =
        text.lines().find_map(|line| line.strip_prefix("Requests/sec:")).doing("wrk printed no rate")?;
    let rate = rate.trim().parse().map_err(|_| format!("no rate: {rate}"))?;
    Ok((rate, count))
}

/// Rate and number of responses, and the client's CPU time in seconds.
fn of_loadgen(text: &str) -> Result<(f64, f64, f64), Failure> {
    let report: Value =
        serde_json::from_str(text).map_err(|error| format!("ff-loadgen printed no JSON: {error}"))?;
    let figure = |path: &str| report.pointer(path).and_then(Value::as_f64).doing(format!("no {path}"));
    Ok((figure("/requests_per_s")?, figure("/responses")?, figure("/client/cpu_s")?))
}

/// The ratio of the only worker.
fn busy_ratio(status: &Value) -> Option<f64> {
    status.pointer("/generations/0/workers/0/cpu_busy_ratio")?.as_f64()
}

/// CPU time of all workers so far.
fn server_cpu(instance: &Instance) -> Result<Duration, Failure> {
    instance.worker_pids().into_iter().map(proc::cpu_time).sum::<Option<Duration>>().doing("a worker is gone")
}

/// CPU time of all commands that have ended.
fn children_cpu() -> Result<Duration, Failure> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let microseconds = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(microseconds.max(0).cast_unsigned()))
}

/// The middle value; of two middle values the lower.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}
