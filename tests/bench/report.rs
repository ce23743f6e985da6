//! The table for people, the JSON for programs, and the bars.

use std::fmt::{self, Write as _};

use serde::Serialize;

/// F-Stack's nginx on af_packet against kernel nginx, both measured in one run on one machine: sum of server
/// and client CPU per request, 9.8 of 10.7 us keep-alive and 37.9 of 45.5 us with a connection each.
const FSTACK_OVER_KERNEL: [(&str, f64); 2] = [("keep-alive", 9.8 / 10.7), ("close", 37.9 / 45.5)];

/// Requests (keep-alive) and connections (close) per CPU-second on the in-memory wire, in parts of the kernel's.
const WIRE_OVER_KERNEL: [(&str, f64); 2] = [("keep-alive", 2.0), ("close", 3.0)];

/// One server in one mode.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// `kernel` or `ffstack`.
    pub server: &'static str,
    /// What carries the packets.
    pub io: &'static str,
    /// `keep-alive` or `close`.
    pub mode: &'static str,
    /// `memory` or `file`.
    pub object: &'static str,
    /// Responses per second.
    pub requests_per_s: f64,
    /// Server CPU per request in microseconds.
    pub server_us: f64,
    /// Client CPU per request in microseconds.
    pub client_us: f64,
    /// Both.
    pub sum_us: f64,
    /// Responses per second of server CPU.
    pub requests_per_server_s: f64,
    /// Server CPU of a round in seconds.
    pub server_s: f64,
    /// Part of its time in which the worker had something to do.
    pub busy_ratio: f64,
    /// Rounds that the medians are over.
    pub rounds: u32,
    /// The client's command line.
    pub command: String,
}

/// A bar of the specification and what was reached.
#[derive(Debug, Clone, Serialize)]
pub struct Bar {
    /// What is compared.
    pub name: String,
    /// What was reached.
    pub value: f64,
    /// What was to be reached.
    pub bar: f64,
    /// Whether it was.
    pub met: bool,
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value, bar, met } = self;
        let digits = if *bar < 100.0 { 2 } else { 0 };
        write!(f, "{name}: {value:.digits$}, bar {bar:.digits$}: {}", if *met { "met" } else { "not met" })
    }
}

/// For programs.
pub fn json(rows: &[Row]) -> String {
    serde_json::json!({ "benchmark": "nginx", "rows": rows, "bars": bars(rows) }).to_string()
}

/// For people.
pub fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<8} {:<10} {:<11} {:<7} {:>10} {:>10} {:>10} {:>8} {:>13} {:>9} {:>6} {:>11} {:>11}\n",
        "server",
        "io",
        "mode",
        "object",
        "requests/s",
        "server us",
        "client us",
        "sum us",
        "req/server s",
        "server s",
        "busy",
        "sum/kernel",
        "srv/kernel"
    );
    for row in rows {
        let relative = |of: fn(&Row) -> f64| {
            kernel(rows, row).map_or_else(|| "-".to_owned(), |kernel| format!("{:.2}", of(row) / of(kernel)))
        };
        let _ = writeln!(
            text,
            "{:<8} {:<10} {:<11} {:<7} {:>10.0} {:>10.2} {:>10.2} {:>8.2} {:>13.0} {:>9.2} {:>5.0}% {:>11} {:>11}",
            row.server,
            row.io,
            row.mode,
            row.object,
            row.requests_per_s,
            row.server_us,
            row.client_us,
            row.sum_us,
            row.requests_per_server_s,
            row.server_s,
            row.busy_ratio * 100.0,
            relative(|row| row.sum_us),
            relative(|row| row.server_us),
        );
    }
    text.push('\n');
    for row in rows {
        let _ = writeln!(text, "{} {} {} {}: {}", row.server, row.io, row.mode, row.object, row.command);
    }
    text.push('\n');
    for bar in bars(rows) {
        let _ = writeln!(text, "{bar}");
    }
    text.push_str(
        "Over veth the kernel does the server's receive work on the client's CPU: compare the sums. The server column \
         alone flatters the kernel.\n",
    );
    text
}

/// The bars that the rows allow to judge.
fn bars(rows: &[Row]) -> Vec<Bar> {
    let mut bars = Vec::new();
    for row in rows.iter().filter(|row| row.server != "kernel") {
        let Some(kernel) = kernel(rows, row) else { continue };
        let of_mode = |bars: [(&'static str, f64); 2]| {
            bars.into_iter().find(|(mode, _)| *mode == row.mode).map_or(f64::NAN, |(_, bar)| bar)
        };
        let what = if row.mode == "close" { "connections" } else { "requests" };
        match row.io {
            "wire" => {
                let bar = of_mode(WIRE_OVER_KERNEL);
                for (of, value) in [
                    ("server and client CPU-second", kernel.sum_us / row.sum_us),
                    ("server CPU-second", kernel.server_us / row.server_us),
                ] {
                    let name = format!("wire, {}: {what} per {of}, times the kernel's", row.object);
                    bars.push(Bar { name, value, bar, met: value >= bar });
                }
            }
            "af_packet" => {
                let (value, bar) = (row.sum_us / kernel.sum_us, of_mode(FSTACK_OVER_KERNEL));
                let name = format!(
                    "af_packet, {}, {}: CPU of server and client in parts of the kernel's, against F-Stack's",
                    row.mode, row.object
                );
                bars.push(Bar { name, value, bar, met: value < bar });
            }
            _ => {}
        }
    }
    bars
}

/// The kernel's row for the same mode and object.
fn kernel<'a>(rows: &'a [Row], row: &Row) -> Option<&'a Row> {
    rows.iter().find(|other| other.server == "kernel" && other.mode == row.mode && other.object == row.object)
}
