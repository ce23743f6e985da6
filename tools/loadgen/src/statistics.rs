//! What happened, counted: responses, latencies, failures by kind, and which generation answered when.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use crate::conversation::Answer;
use crate::failure::Failure;
use crate::response::is_success;

/// Longest latency that is told apart, in microseconds; longer ones count as this.
pub const LATENCY_US_MAX: u64 = 600_000_000;
/// Failures of which the time is remembered.
const EXAMPLES_MAX: usize = 32;
/// Values of the recorded header that are told apart; further ones count as one.
const VERSIONS_MAX: usize = 256;
/// Most intervals of the timeline; later events count in the last one.
const INTERVALS_MAX: usize = 1_000_000;

/// When to count, in microseconds of the same clock as all other times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// The run's start: times in reports are relative to it.
    pub start_us: u64,
    /// Rates and latencies count from here.
    pub from_us: u64,
    /// And to here.
    pub to_us: u64,
}

/// Responses that carried one value of the recorded header. Times relative to the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version {
    /// How many.
    pub responses: u64,
    /// First response.
    pub first_us: u64,
    /// Last response.
    pub last_us: u64,
    /// Opening of the first connection that got such a response.
    pub first_opened_us: u64,
    /// Opening of the last one: it must not be later than the reload that ended this version.
    pub last_opened_us: u64,
}

/// One interval of the timeline.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Interval {
    /// Responses that completed in it.
    pub responses: u64,
    /// Failures in it.
    pub failures: u64,
    /// Connections established in it.
    pub connected: u64,
    /// Longest latency of a response that completed in it, microseconds.
    pub latency_us_max: u64,
    /// 99th percentile of those latencies, microseconds; of the running interval as it is when the next one begins.
    pub latency_us_p99: u64,
}

/// A failure, for the report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Example {
    /// What.
    pub failure: Failure,
    /// When, relative to the start.
    pub at_us: u64,
    /// When its connection was opened, relative to the start.
    pub opened_us: u64,
    /// Whether its connection had been established.
    pub established: bool,
}

/// Everything counted.
#[derive(Debug)]
pub struct Statistics {
    window: Window,
    interval_us: u64,
    /// Complete responses, 2xx and right, over the whole run.
    pub good: u64,
    /// Complete responses within the window, whatever they were.
    pub measured: u64,
    /// Connections established within the window.
    pub measured_connected: u64,
    /// Bytes of bodies within the window.
    pub measured_body_bytes: u64,
    /// Requests begun over the whole run.
    pub begun: u64,
    /// Connections opened over the whole run.
    pub opened: u64,
    /// Connections established over the whole run.
    pub connected: u64,
    /// Connections that the server closed while they were idle: its right.
    pub idle_closed: u64,
    /// Requests that were due and had no connection to start on when the run ended.
    pub not_begun: u64,
    /// Latency of responses within the window, from the intended start to the last byte, microseconds.
    pub latency_us: Histogram<u64>,
    /// Duration of handshakes within the window, microseconds.
    pub connect_us: Histogram<u64>,
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Responses by value of the recorded header.
    pub versions: BTreeMap<String, Version>,
    /// Intervals from the start on; empty without one.
    pub timeline: Vec<Interval>,
    /// Latencies of the last interval.
    interval_latency_us: Histogram<u64>,
    /// The first failures.
    pub examples: Vec<Example>,
    /// Longest time between two responses within the window, on whichever connections.
    pub gap_us_max: u64,
    /// Time of the last response.
    pub last_us: Option<u64>,
    failures: [u64; Failure::ALL.len()],
}

impl Statistics {
    /// Nothing yet. `interval_us` is the step of the timeline; 0 keeps none.
    pub fn new(window: Window, interval_us: u64) -> Self {
        Self {
            window,
            interval_us,
            good: 0,
            measured: 0,
            measured_connected: 0,
            measured_body_bytes: 0,
            begun: 0,
            opened: 0,
            connected: 0,
            idle_closed: 0,
            not_begun: 0,
            latency_us: histogram(),
            connect_us: histogram(),
            statuses: BTreeMap::new(),
            versions: BTreeMap::new(),
            timeline: Vec::new(),
            interval_latency_us: histogram(),
            examples: Vec::new(),
            gap_us_max: 0,
            last_us: None,
            failures: [0; Failure::ALL.len()],
        }
    }

    /// When is counted.
    pub fn window(&self) -> Window {
        self.window
    }

    /// The window ends here, not where it was planned.
    pub fn end_window(&mut self, to_us: u64) {
        self.window.to_us = self.window.to_us.min(to_us).max(self.window.from_us);
    }

    /// Step of the timeline in microseconds, 0 for none.
    pub fn interval_us(&self) -> u64 {
        self.interval_us
    }

    /// A response is complete. `version` is the value of the recorded header, if one is recorded.
    pub fn answered(&mut self, now_us: u64, opened_us: u64, answer: &Answer, version: Option<&str>) {
        let latency_us = now_us.saturating_sub(answer.job.intended_us);
        *self.statuses.entry(answer.response.status).or_default() += 1;
        if self.is_measured(now_us) {
            self.measured += 1;
            self.measured_body_bytes += answer.response.body_bytes;
            self.latency_us.saturating_record(latency_us);
            let since_us = self.last_us.unwrap_or(self.window.from_us).max(self.window.from_us);
            self.gap_us_max = self.gap_us_max.max(now_us.saturating_sub(since_us));
        }
        self.last_us = Some(now_us);
        if let Some(interval) = self.interval(now_us) {
            interval.responses += 1;
            interval.latency_us_max = interval.latency_us_max.max(latency_us);
            self.interval_latency_us.saturating_record(latency_us);
        }
        if let Some(version) = version {
            self.saw_version(now_us, opened_us, version);
        }
        if !is_success(answer.response.status) {
            self.failed(now_us, opened_us, Failure::Status, true);
        } else if answer.response.wrong_bytes {
            self.failed(now_us, opened_us, Failure::WrongBytes, true);
        } else {
            self.good += 1;
        }
    }

    fn saw_version(&mut self, now_us: u64, opened_us: u64, value: &str) {
        let at_us = now_us.saturating_sub(self.window.start_us);
        let opened_us = opened_us.saturating_sub(self.window.start_us);
        let many = self.versions.len() >= VERSIONS_MAX && !self.versions.contains_key(value);
        let value = if many { "(others)" } else { value };
        if let Some(version) = self.versions.get_mut(value) {
            version.responses += 1;
            version.last_us = at_us;
            version.first_opened_us = version.first_opened_us.min(opened_us);
            version.last_opened_us = version.last_opened_us.max(opened_us);
        } else {
            let version = Version {
                responses: 1,
                first_us: at_us,
                last_us: at_us,
                first_opened_us: opened_us,
                last_opened_us: opened_us,
            };
            self.versions.insert(value.to_owned(), version);
        }
    }

    /// A connection is established.
    pub fn connected(&mut self, now_us: u64, opened_us: u64) {
        self.connected += 1;
        if self.is_measured(now_us) {
            self.measured_connected += 1;
            self.connect_us.saturating_record(now_us.saturating_sub(opened_us));
        }
        if let Some(interval) = self.interval(now_us) {
            interval.connected += 1;
        }
    }

    /// A request failed.
    pub fn failed(&mut self, now_us: u64, opened_us: u64, failure: Failure, established: bool) {
        self.failures[failure as usize] += 1;
        if let Some(interval) = self.interval(now_us) {
            interval.failures += 1;
        }
        if self.examples.len() < EXAMPLES_MAX {
            let start_us = self.window.start_us;
            self.examples.push(Example {
                failure,
                at_us: now_us.saturating_sub(start_us),
                opened_us: opened_us.saturating_sub(start_us),
                established,
            });
        }
    }

    /// Failures of one kind.
    pub fn failures(&self, failure: Failure) -> u64 {
        self.failures[failure as usize]
    }

    /// Failures of all kinds.
    pub fn failures_total(&self) -> u64 {
        self.failures.iter().sum()
    }

    /// Length of the window in seconds.
    pub fn measured_s(&self) -> f64 {
        self.window.to_us.saturating_sub(self.window.from_us) as f64 / 1e6
    }

    fn is_measured(&self, now_us: u64) -> bool {
        (self.window.from_us..=self.window.to_us).contains(&now_us)
    }

    /// Settles the 99th percentile of the timeline's last interval.
    pub fn end_interval(&mut self) {
        if let Some(last) = self.timeline.last_mut() {
            last.latency_us_p99 = self.interval_latency_us.value_at_quantile(0.99);
            self.interval_latency_us.reset();
        }
    }

    fn interval(&mut self, now_us: u64) -> Option<&mut Interval> {
        let nth = now_us.saturating_sub(self.window.start_us).checked_div(self.interval_us)? as usize;
        let nth = nth.min(INTERVALS_MAX - 1);
        if self.timeline.len() <= nth {
            self.end_interval();
            self.timeline.resize(nth + 1, Interval::default());
        }
        self.timeline.get_mut(nth)
    }
}

fn histogram() -> Histogram<u64> {
    // 1 to 600 000 000 with three digits is within what it takes: low >= 1, high >= 2 * low, digits <= 5.
    Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("constant bounds are valid")
}

#[cfg(test)]
mod tests;
