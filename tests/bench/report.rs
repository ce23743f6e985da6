//! The table for people, the JSON for programs, and the bars.

use std::fmt::Write as _;

use serde::Serialize;

/// F-Stack's nginx on af_packet against kernel nginx, both measured in one run on one machine: sum of server
/// and client CPU per request, 9.8 of 10.7 µs keep-alive and 37.9 of 45.5 µs with a connection each.
const FSTACK_OVER_KERNEL: [(&str, f64); 2] = [("keep-alive", 9.8 / 10.7), ("close", 37.9 / 45.5)];

/// One server in one mode.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// `kernel` or `ffstack`.
    pub server: &'static str,
    /// What carries the packets.
    pub io: &'static str,
    /// `keep-alive` or `close`.
    pub mode: &'static str,
    /// Responses per second.
    pub requests_per_s: f64,
    /// Server CPU per request in microseconds.
    pub server_us: f64,
    /// Client CPU per request in microseconds.
    pub client_us: f64,
    /// Both.
    pub sum_us: f64,
    /// Rounds that the medians are over.
    pub rounds: u32,
}

/// For programs.
pub fn json(rows: &[Row]) -> String {
    serde_json::json!({ "benchmark": "nginx", "rows": rows }).to_string()
}

/// For people.
pub fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<8} {:<10} {:<11} {:>11} {:>10} {:>10} {:>10} {:>11}\n",
        "server", "io", "mode", "requests/s", "server us", "client us", "sum us", "sum/kernel"
    );
    for row in rows {
        let relative = over_kernel(rows, row).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        let _ = writeln!(
            text,
            "{:<8} {:<10} {:<11} {:>11.0} {:>10.2} {:>10.2} {:>10.2} {:>11}",
            row.server,
            row.io,
            row.mode,
            row.requests_per_s,
            row.server_us,
            row.client_us,
            row.sum_us,
            relative
        );
    }
    for (mode, bar) in FSTACK_OVER_KERNEL {
        let ours = rows.iter().find(|row| row.io == "af_packet" && row.mode == mode);
        if let Some(ratio) = ours.and_then(|row| over_kernel(rows, row)) {
            let verdict = if ratio < bar { "met" } else { "not met" };
            let _ = writeln!(
                text,
                "{mode} on af_packet: {ratio:.2} of the kernel's CPU per request; F-Stack {bar:.2}: {verdict}"
            );
        }
    }
    text
}

/// A row's CPU per request in parts of the kernel's in the same mode.
fn over_kernel(rows: &[Row], row: &Row) -> Option<f64> {
    let kernel = rows.iter().find(|other| other.server == "kernel" && other.mode == row.mode)?;
    Some(row.sum_us / kernel.sum_us)
}
