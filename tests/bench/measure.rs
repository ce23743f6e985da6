//! One run of wrk against one server, and what both cost.

use std::process::Command;
use std::time::Duration;

use ff_harness::{Context, Failure, Instance, ensure, proc, run};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

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

/// Figures of one run.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Responses per second.
    pub requests_per_s: f64,
    /// CPU time of nginx's worker per request, in microseconds.
    pub server_us: f64,
    /// CPU time of wrk per request, in microseconds; what the kernel does for the server's receive side over
    /// veth is charged here.
    pub client_us: f64,
}

/// Runs wrk for `seconds` in the calling thread's namespace.
///
/// # Errors
/// An error of wrk's, of a socket, or a response that is not 2xx: a figure with errors is worth nothing.
pub fn sample(instance: &Instance, mode: Mode, seconds: u32) -> Result<Sample, Failure> {
    let mut wrk = Command::new("taskset");
    wrk.args(["-c", "1", "wrk", "-t", "1", "-c", "64", "-d", &format!("{seconds}s")]);
    if mode == Mode::Close {
        wrk.args(["-H", "Connection: close"]);
    }
    wrk.arg(format!("http://{}/small.bin", instance.addr(false, 80)));
    let before = (server_cpu(instance)?, children_cpu()?);
    let out = run(wrk, Duration::from_secs(u64::from(seconds) + 20))?;
    let after = (server_cpu(instance)?, children_cpu()?);
    ensure!(out.success() && !out.stdout.contains("Socket errors"), "wrk: {}", out.all());
    ensure!(!out.stdout.contains("Non-2xx"), "wrk: {}", out.all());
    // "  240153 requests in 3.00s, 195.00MB read"
    let line =
        out.stdout.lines().find(|line| line.contains(" requests in ")).doing("wrk printed no count")?;
    let count: f64 =
        line.split_whitespace().next().and_then(|word| word.parse().ok()).doing("wrk printed no count")?;
    let rate = out
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("Requests/sec:"))
        .doing("wrk printed no rate")?;
    let per_request = |cpu: Duration| cpu.as_secs_f64() * 1e6 / count;
    Ok(Sample {
        requests_per_s: rate.trim().parse().map_err(|_| format!("no rate: {rate}"))?,
        server_us: per_request(after.0 - before.0),
        client_us: per_request(after.1 - before.1),
    })
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
