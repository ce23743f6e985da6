//! The result of a run, for programs and for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ff_dataplane::io::IoCounters;
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::failure::Failure;
use crate::statistics::Statistics;

/// What the client itself took, over the run.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct ClientCost {
    /// CPU time of the process, user and system, in seconds.
    pub cpu_s: f64,
    /// Part of the time in which there was something to do, 0 to 1.
    pub busy_ratio: f64,
    /// Steps.
    pub steps: u64,
    /// Queues of the wire.
    pub queues: usize,
    /// CLOCK_MONOTONIC at the start, microseconds: all times of the report count from here.
    pub start_monotonic_us: u64,
}

/// A whole report.
#[derive(Debug, Serialize)]
pub struct Report {
    /// What was asked for first.
    pub url: String,
    /// Connections at once.
    pub connections: usize,
    /// Requests on a connection; absent without a bound.
    pub requests_per_connection: Option<u32>,
    /// Requests a second that were intended; absent in a closed loop.
    pub rate_per_s: Option<f64>,
    /// Time measured, in seconds.
    pub measured_s: f64,
    /// Requests begun, over the whole run.
    pub requests: u64,
    /// Right responses, over the whole run.
    pub responses: u64,
    /// Responses a second, within the time measured.
    pub requests_per_s: f64,
    /// Connections established, over the whole run.
    pub connected: u64,
    /// Connections a second, within the time measured.
    pub connections_per_s: f64,
    /// Megabits of bodies a second, within the time measured.
    pub body_mbit_s: f64,
    /// From the intended start of a request to the last byte of its response, microseconds.
    pub latency_us: Quantiles,
    /// From SYN to established, microseconds.
    pub connect_us: Quantiles,
    /// Longest time without any response, microseconds.
    pub gap_us_max: u64,
    /// Failures by kind.
    pub errors: BTreeMap<&'static str, u64>,
    /// Their sum.
    pub errors_total: u64,
    /// The first failures.
    pub error_examples: Vec<ExampleLine>,
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Connections that the server closed while they were idle.
    pub idle_closed: u64,
    /// Requests that were due and had no connection to start on.
    pub not_begun: u64,
    /// Responses by value of the recorded header; times in microseconds from the start.
    pub versions: BTreeMap<String, VersionLine>,
    /// Milliseconds of an interval of the timeline.
    pub timeline_ms: u64,
    /// `[responses, failures, connected, latency_us_max, latency_us_p99]` for each interval from the start.
    pub timeline: Vec<[u64; 5]>,
    /// What the client took.
    pub client: ClientCost,
    /// Frames.
    pub frames: Frames,
}

/// Quantiles of a histogram.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Quantiles {
    /// Values.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// 50 %.
    pub p50: u64,
    /// 90 %.
    pub p90: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    pub p999: u64,
    /// The largest.
    pub max: u64,
}

impl Quantiles {
    fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| if histogram.is_empty() { 0 } else { histogram.value_at_quantile(quantile) };
        Self {
            count: histogram.len(),
            mean: (histogram.mean() * 10.0).round() / 10.0,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max(),
        }
    }
}

/// A failure of the report.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct ExampleLine {
    /// What.
    pub error: Failure,
    /// When, microseconds from the start.
    pub at_us: u64,
    /// When its connection was opened.
    pub opened_us: u64,
    /// Whether that was established.
    pub established: bool,
}

/// Responses with one value of the recorded header.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct VersionLine {
    /// How many.
    pub responses: u64,
    /// First response.
    pub first_us: u64,
    /// Last response.
    pub last_us: u64,
    /// Opening of the first connection that got one.
    pub first_opened_us: u64,
    /// Opening of the last one.
    pub last_opened_us: u64,
}

/// Frames of the client's end.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Frames {
    /// Received.
    pub rx: u64,
    /// Sent.
    pub tx: u64,
    /// Not sent: the ring was full.
    pub tx_dropped: u64,
    /// Times that the pool was empty.
    pub no_memory: u64,
}

/// What was to be done, for the report's head.
#[derive(Debug, Clone)]
pub struct Head {
    /// The URL.
    pub url: String,
    /// Connections at once.
    pub connections: usize,
    /// Requests on a connection, `u32::MAX` without a bound.
    pub requests_per_connection: u32,
    /// Intended requests a second.
    pub rate_per_s: Option<f64>,
}

impl Report {
    /// The report of a run that is over.
    pub fn new(head: Head, statistics: &Statistics, client: ClientCost, io: IoCounters) -> Self {
        let measured_s = statistics.measured_s();
        let per_s = |count: u64| if measured_s > 0.0 { count as f64 / measured_s } else { 0.0 };
        Self {
            url: head.url,
            connections: head.connections,
            requests_per_connection: Some(head.requests_per_connection).filter(|&count| count < u32::MAX),
            rate_per_s: head.rate_per_s,
            measured_s,
            requests: statistics.begun,
            responses: statistics.good,
            requests_per_s: per_s(statistics.measured),
            connected: statistics.connected,
            connections_per_s: per_s(statistics.measured_connected),
            body_mbit_s: per_s(statistics.measured_body_bytes) * 8.0 / 1e6,
            latency_us: Quantiles::of(&statistics.latency_us),
            connect_us: Quantiles::of(&statistics.connect_us),
            gap_us_max: statistics.gap_us_max,
            errors: Failure::ALL.map(|kind| (kind.name(), statistics.failures(kind))).into(),
            errors_total: statistics.failures_total(),
            error_examples: statistics
                .examples
                .iter()
                .map(|example| ExampleLine {
                    error: example.failure,
                    at_us: example.at_us,
                    opened_us: example.opened_us,
                    established: example.established,
                })
                .collect(),
            statuses: statistics.statuses.clone(),
            idle_closed: statistics.idle_closed,
            not_begun: statistics.not_begun,
            versions: statistics
                .versions
                .iter()
                .map(|(value, version)| {
                    let line = VersionLine {
                        responses: version.responses,
                        first_us: version.first_us,
                        last_us: version.last_us,
                        first_opened_us: version.first_opened_us,
                        last_opened_us: version.last_opened_us,
                    };
                    (value.clone(), line)
                })
                .collect(),
            timeline_ms: statistics.interval_us() / 1_000,
            timeline: statistics
                .timeline
                .iter()
                .map(|one| {
                    [one.responses, one.failures, one.connected, one.latency_us_max, one.latency_us_p99]
                })
                .collect(),
            client,
            frames: Frames {
                rx: io.rx_frames,
                tx: io.tx_frames,
                tx_dropped: io.tx_dropped,
                no_memory: io.no_memory,
            },
        }
    }

    /// Whether every request was answered rightly, and there was one.
    pub fn is_clean(&self) -> bool {
        self.errors_total == 0 && self.responses > 0 && self.responses == self.requests && self.not_begun == 0
    }

    /// One line of JSON.
    ///
    /// # Errors
    /// None that could be met: there are only numbers and strings in it.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let per_connection = self
            .requests_per_connection
            .map_or_else(|| "kept".to_owned(), |count| format!("{count} requests each"));
        let _ = writeln!(text, "{}: {} connections, {per_connection}", self.url, self.connections);
        let _ = writeln!(
            text,
            "{} responses in {:.2} s: {:.0} requests/s, {:.0} connections/s, {:.1} Mbit/s of bodies",
            self.latency_us.count,
            self.measured_s,
            self.requests_per_s,
            self.connections_per_s,
            self.body_mbit_s
        );
        for (name, of) in [("latency", &self.latency_us), ("connect", &self.connect_us)] {
            if of.count > 0 {
                let _ = writeln!(
                    text,
                    "{name} us: p50 {}, p90 {}, p99 {}, p99.9 {}, max {}, mean {:.1}",
                    of.p50, of.p90, of.p99, of.p999, of.max, of.mean
                );
            }
        }
        for (value, version) in &self.versions {
            let _ = writeln!(
                text,
                "answered by {value:?}: {} responses from {} to {} us; connections opened from {} to {} us",
                version.responses,
                version.first_us,
                version.last_us,
                version.first_opened_us,
                version.last_opened_us
            );
        }
        let _ = writeln!(
            text,
            "client: {:.2} s of CPU, busy {:.0} %; frames {} in, {} out, {} not sent, {} times no memory",
            self.client.cpu_s,
            self.client.busy_ratio * 100.0,
            self.frames.rx,
            self.frames.tx,
            self.frames.tx_dropped,
            self.frames.no_memory
        );
        if self.idle_closed > 0 {
            let _ = writeln!(text, "{} idle connections were closed by the server", self.idle_closed);
        }
        if self.not_begun > 0 {
            let _ = writeln!(text, "{} requests were due and had no connection to start on", self.not_begun);
        }
        let errors: Vec<String> = self
            .errors
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(kind, count)| format!("{kind} {count}"))
            .collect();
        let _ = match errors.is_empty() {
            true => writeln!(text, "errors: none"),
            false => writeln!(text, "errors: {}", errors.join(", ")),
        };
        for example in self.error_examples.iter().take(5) {
            let _ = writeln!(
                text,
                "  {} at {} us on a connection opened at {} us{}",
                example.error,
                example.at_us,
                example.opened_us,
                if example.established { "" } else { ", not established" }
            );
        }
        text
    }
}

#[cfg(test)]
mod tests;
