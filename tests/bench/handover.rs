//! `scripts/bench handover`: reloads of stock nginx on the in-memory wire under full load. How long each queue was
//! without a consumer, and what the client noticed: responses in the second around a reload against the second before,
//! and the same of the 99th percentile of its latency.

use std::fmt::Write as _;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use ff_harness::{Binaries, Context, Device, Failure, Instance, Spec, ensure, proc};
use serde::Serialize;
use serde_json::Value;

use crate::measure::median;
use crate::report::Bar;

/// Interval of the client's timeline in milliseconds; four of them are "the second".
const INTERVAL_MS: u64 = 250;
/// Between two reloads: a second before, one around, and the old generation's end.
const SPACING: Duration = Duration::from_millis(2_500);
/// Connections, all of them kept.
const CONNECTIONS: &str = "64";

/// The 99.9th percentile of the pause may be so long, in microseconds.
const PAUSE_BAR_US: f64 = 100.0;
/// At least so much of the throughput stays.
const THROUGHPUT_BAR: f64 = 0.90;
/// The client's 99th percentile grows at most by so much.
const P99_BAR: f64 = 2.0;

/// Quantiles of the pauses in microseconds.
#[derive(Debug, Clone, Serialize)]
pub struct Pause {
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

/// All figures.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    benchmark: &'static str,
    workers: usize,
    reloads: usize,
    requests: u64,
    /// For each reload, the longest time that a queue had no consumer.
    pause_us: Pause,
    /// Median over the reloads: responses in the second around one, in parts of the second before.
    throughput_ratio: f64,
    /// The reload that cost the most.
    throughput_ratio_min: f64,
    /// Median over the reloads: the client's p99 around one, in parts of that before.
    p99_ratio: f64,
    bars: Vec<Bar>,
}

/// Reloads `reloads` times under load.
///
/// # Errors
/// A reload that is not complete, a request that failed.
pub fn measure(binaries: &Binaries, workers: usize, reloads: usize) -> Result<Figures, Failure> {
    let instance = Instance::started(0, Spec { workers, ..Spec::new(Device::Wire) }, binaries)?;
    let seconds = (SPACING * (reloads as u32 + 1) + Duration::from_secs(1)).as_secs_f64();
    let duration = format!("{seconds:.1}");
    let interval = INTERVAL_MS.to_string();
    let url = format!("http://{}/b600", instance.addr(false, 80));
    let client = instance
        .loadgen(&["--cpu", "1", "-c", CONNECTIONS, "-d", &duration, "--timeline-ms", &interval])
        .args(["--idle-sleep-us", "20", "--json", &url])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .doing("starting ff-loadgen")?;
    let (mut pauses, mut moments_us) = (Vec::new(), Vec::new());
    let reloaded = (1..=reloads).try_for_each(|nth| -> Result<(), Failure> {
        thread::sleep(SPACING.saturating_sub(Duration::from_millis(200)));
        let out = instance.ffctl(&["reload", "-i", &instance.names.instance])?;
        moments_us.push(monotonic_us()?);
        ensure!(
            out.success(),
            "reload {nth}: exit code {}: {}\n{}",
            out.code(),
            out.all(),
            instance.log_tails()
        );
        let last = ended(&instance, nth)?;
        pauses.push(last["handover_us"]["max"].as_f64().doing("the status has no handover_us")?);
        eprintln!(
            "reload {nth} of {reloads}: {} us, {} packets forwarded",
            last["handover_us"]["max"], last["forwarded"]
        );
        Ok(())
    });
    if reloaded.is_err() {
        proc::signal(client.id(), nix::sys::signal::Signal::SIGTERM);
    }
    let out = client.wait_with_output()?;
    reloaded?;
    let (text, errors) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    ensure!(out.status.success(), "ff-loadgen: {}: {text} {errors}", out.status);
    let report: Value =
        serde_json::from_str(&text).map_err(|error| format!("ff-loadgen printed no JSON: {error}"))?;
    figures(workers, &report, pauses, &moments_us)
}

/// Waits for the end of reload number `nth`, and gives its record.
fn ended(instance: &Instance, nth: usize) -> Result<Value, Failure> {
    let start = Instant::now();
    loop {
        let status = instance.status()?;
        let done = status["reload"].is_null() && status["active"]["epoch"].as_u64() == Some(nth as u64 + 1);
        if done && status["generations"].as_array().is_some_and(|all| all.len() == 1) {
            let last = status["last_reload"].clone();
            ensure!(last["result"] == "complete", "reload {nth}: {last}");
            return Ok(last);
        }
        ensure!(start.elapsed() < Duration::from_secs(20), "reload {nth} has not ended after 20 s: {status}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn monotonic_us() -> Result<u64, Failure> {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)?;
    Ok(now.tv_sec().cast_unsigned() * 1_000_000 + now.tv_nsec().cast_unsigned() / 1_000)
}

fn figures(workers: usize, report: &Value, pauses: Vec<f64>, moments_us: &[u64]) -> Result<Figures, Failure> {
    let start_us = report["client"]["start_monotonic_us"].as_u64().doing("the report has no start")?;
    let timeline = report["timeline"].as_array().doing("the report has no timeline")?;
    let figure =
        |at: usize, which: usize| timeline.get(at).and_then(|row| row[which].as_f64()).unwrap_or(0.0);
    let (mut throughput, mut p99) = (Vec::new(), Vec::new());
    for moment in moments_us {
        let at = (moment.saturating_sub(start_us) / (INTERVAL_MS * 1_000)) as usize;
        ensure!(
            at >= 6 && at + 2 < timeline.len(),
            "the reload at {moment} us is outside of the client's run"
        );
        let (before, around) = (at - 6..at - 2, at - 2..at + 2);
        let responses = |of: &std::ops::Range<usize>| of.clone().map(|at| figure(at, 0)).sum::<f64>();
        let slowest = |of: &std::ops::Range<usize>| of.clone().map(|at| figure(at, 4)).fold(0.0, f64::max);
        throughput.push(responses(&around) / responses(&before));
        p99.push(slowest(&around) / slowest(&before));
    }
    let mut sorted = pauses;
    sorted.sort_by(f64::total_cmp);
    let quantile = |q: f64| sorted[((sorted.len() as f64 * q).ceil() as usize).clamp(1, sorted.len()) - 1];
    let pause_us =
        Pause { p50: quantile(0.5), p99: quantile(0.99), p999: quantile(0.999), max: quantile(1.0) };
    let throughput_ratio_min = throughput.iter().copied().fold(f64::INFINITY, f64::min);
    let (throughput_ratio, p99_ratio) = (median(throughput), median(p99));
    let bar = |name: &str, value: f64, bar: f64, met: bool| Bar { name: name.into(), value, bar, met };
    let bars = vec![
        bar("pause, 99.9th percentile, us", pause_us.p999, PAUSE_BAR_US, pause_us.p999 < PAUSE_BAR_US),
        bar(
            "throughput around a reload",
            throughput_ratio,
            THROUGHPUT_BAR,
            throughput_ratio >= THROUGHPUT_BAR,
        ),
        bar("client p99 around a reload", p99_ratio, P99_BAR, p99_ratio <= P99_BAR),
    ];
    let requests = report["responses"].as_u64().doing("the report has no responses")?;
    let reloads = sorted.len();
    Ok(Figures {
        benchmark: "handover",
        workers,
        reloads,
        requests,
        pause_us,
        throughput_ratio,
        throughput_ratio_min,
        p99_ratio,
        bars,
    })
}

impl Figures {
    /// For programs.
    pub fn json(&self) -> String {
        serde_json::json!(self).to_string()
    }

    /// For people.
    pub fn table(&self) -> String {
        let Pause { p50, p99, p999, max } = self.pause_us;
        let mut text = format!(
            "{} reloads of {} workers under {} requests, none failed\npause: p50 {p50:.0} us, p99 {p99:.0}, p99.9 {p999:.0}, \
             longest {max:.0}\nthroughput in the second around a reload, in parts of the second before: median {:.2}, \
             lowest {:.2}\nclient p99 around a reload, in parts of the second before: median {:.2}\n\n",
            self.reloads,
            self.workers,
            self.requests,
            self.throughput_ratio,
            self.throughput_ratio_min,
            self.p99_ratio
        );
        for bar in &self.bars {
            let _ = writeln!(text, "{bar}");
        }
        text
    }
}
