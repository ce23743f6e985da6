//! The status for a person.

use std::fmt::Write as _;

use ff_control::{GenerationStatus, Status, WorkerStatus};

/// The whole text.
pub fn text(status: &Status) -> String {
    let mut out = String::new();
    let primary = &status.primary;
    let state = if primary.alive { "up" } else { "DEAD, started" };
    // Writing to a String does not fail.
    let _ = writeln!(
        out,
        "instance  {}\nprimary   {} ({state} {}{}), {}, {} queue{}",
        status.instance,
        primary.pid,
        duration(primary.uptime_s),
        if primary.alive { "" } else { " ago" },
        primary.device,
        primary.queues,
        if primary.queues == 1 { "" } else { "s" },
    );
    if let Some(failure) = &status.last_attach_failure {
        let _ = writeln!(out, "attach    {failure}");
    }
    if status.generations.is_empty() {
        let _ = writeln!(out, "nginx     no worker is attached");
    }
    for generation in &status.generations {
        let _ = write!(out, "\n{}", of_generation(generation));
    }
    out
}

fn of_generation(generation: &GenerationStatus) -> String {
    let mut out = format!(
        "generation {} ({}), slot {}, nginx master {}\n",
        generation.epoch, generation.state, generation.slot, generation.master_pid
    );
    let header =
        ["worker", "pid", "state", "queues", "flows", "listen", "rx", "tx", "drops", "busy", "mbufs"];
    let rows: Vec<[String; 11]> = generation.workers.iter().map(row).collect();
    let width = |column: usize| {
        rows.iter().map(|row| row[column].len()).chain([header[column].len()]).max().unwrap_or_default()
    };
    let widths: [usize; 11] = std::array::from_fn(width);
    let mut line = |cells: [&str; 11]| {
        let cells: Vec<String> =
            cells.iter().zip(widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
        out.push_str("  ");
        out.push_str(&cells.join("  "));
        out.push('\n');
    };
    line(header);
    for row in &rows {
        line(std::array::from_fn(|column| row[column].as_str()));
    }
    for worker in generation.workers.iter().filter(|worker| !worker.drops.is_empty()) {
        let drops: Vec<String> =
            worker.drops.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
        let _ = writeln!(out, "  worker {} dropped: {}", worker.index, drops.join(", "));
    }
    out
}

fn row(worker: &WorkerStatus) -> [String; 11] {
    let queues: Vec<String> = worker.queues.iter().map(u16::to_string).collect();
    [
        worker.index.to_string(),
        worker.pid.to_string(),
        worker.state.clone(),
        if queues.is_empty() { "-".to_owned() } else { queues.join(",") },
        worker.tcp_flows.to_string(),
        worker.tcp_listeners.to_string(),
        worker.rx_packets.to_string(),
        worker.tx_packets.to_string(),
        worker.drops.values().sum::<u64>().to_string(),
        format!("{:.1}%", worker.cpu_busy_ratio * 100.0),
        worker.mbufs_in_use.to_string(),
    ]
}

/// `12 s`, `3 min 4 s`, `5 h 6 min`, `7 d 8 h`.
fn duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests;
