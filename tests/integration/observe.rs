//! What can be seen of an instance from outside: its flows, its processes, what it holds.

use std::fs;
use std::time::Duration;

use ff_harness::{Failure, Instance, ensure, proc, run_in};
use serde_json::Value;

/// The workers of the newest generation in the status document.
///
/// # Errors
/// The document has no generation.
pub fn workers(status: &Value) -> Result<Vec<Value>, Failure> {
    let workers = status["generations"][0]["workers"].as_array().cloned().unwrap_or_default();
    ensure!(!workers.is_empty(), "the status has no worker: {status}");
    Ok(workers)
}

/// A whole number of a worker.
pub fn number(worker: &Value, field: &str) -> u64 {
    worker[field].as_u64().unwrap_or_default()
}

/// TCP flows that the server holds and that are not in TIME-WAIT by itself: from the status, or from `ss`.
///
/// # Errors
/// `ffctl status` or `ss` failed.
pub fn flows(instance: &Instance) -> Result<u64, Failure> {
    if instance.spec.device.ours() {
        let status = instance.status()?;
        return Ok(workers(&status)?.iter().map(|worker| number(worker, "tcp_flows")).sum());
    }
    let args = ["-Htan", "state", "all", "exclude", "listening"];
    let out = run_in(&instance.server, "ss", &args, Duration::from_secs(10))?;
    // Connections over loopback are nginx's own to its upstream.
    let lines = out.stdout.lines().filter(|line| !line.contains("127.0.0.1"));
    Ok(lines.count() as u64)
}

/// Waits until at least `least` flows are shown: a worker reports once a second.
///
/// # Errors
/// Fewer are shown after 3 s.
pub fn flows_rise_to(instance: &Instance, least: u64) -> Result<(), Failure> {
    let mut last = 0;
    let rose = proc::until(Duration::from_secs(3), || {
        last = flows(instance).unwrap_or_default();
        last >= least
    });
    ensure!(rose, "{last} flows are shown instead of {least} at least");
    Ok(())
}

/// Waits until no more than `most` flows are left.
///
/// # Errors
/// More are left after `limit`.
pub fn flows_fall_to(instance: &Instance, most: u64, limit: Duration) -> Result<(), Failure> {
    let mut last = 0;
    let mut failure = None;
    let fell = proc::until(limit, || match flows(instance) {
        Ok(count) => {
            last = count;
            count <= most
        }
        Err(why) => {
            failure = Some(why);
            true
        }
    });
    if let Some(failure) = failure {
        return Err(failure);
    }
    ensure!(fell, "{last} flows are left after {limit:?} instead of {most} at most");
    Ok(())
}

/// Waits until the status shows `count` workers that are READY; returns them.
///
/// # Errors
/// They are not after `limit`.
pub fn ready_workers(instance: &Instance, count: usize, limit: Duration) -> Result<Vec<Value>, Failure> {
    let mut last = Value::Null;
    let ready = proc::until(limit, || {
        let Ok(status) = instance.status() else { return false };
        let all = workers(&status).unwrap_or_default();
        last = status;
        all.len() == count
            && all.iter().all(|worker| worker["ready"] == true && proc::alive(number(worker, "pid") as u32))
    });
    ensure!(ready, "no {count} workers are ready after {limit:?}: {last}");
    workers(&last)
}

/// Names in a directory that belong to the instance.
pub fn files_of(instance: &Instance, dir: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.contains(&instance.names.instance))
        .map(|name| format!("{dir}/{name}"))
        .collect()
}

/// Hugepages in MiB held by the instance's files.
pub fn hugepage_mib(instance: &Instance) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    files_of(instance, "/dev/hugepages")
        .iter()
        .filter_map(|path| fs::metadata(path).ok())
        .map(|meta| meta.blocks() * 512 / ff_harness::MIB)
        .sum()
}

/// Fails unless nothing of the instance runs or lies about.
///
/// # Errors
/// What is still there.
pub fn nothing_left(instance: &Instance) -> Result<(), Failure> {
    let mut left = Vec::new();
    for dir in ["/run/ffstack", "/run/dpdk", "/dev/hugepages"] {
        left.extend(files_of(instance, dir));
    }
    let links = run_in(&instance.server, "ip", &["-o", "link"], Duration::from_secs(10))?;
    if instance.spec.device == ff_harness::Device::Tap && links.stdout.contains(&instance.names.instance) {
        left.push(format!("the TAP device {}", instance.names.instance));
    }
    let pids =
        run_in(&instance.server, "ip", &["netns", "pids", instance.server.name()], Duration::from_secs(10))?;
    for pid in pids.stdout.split_whitespace().filter_map(|word| word.parse().ok()) {
        match proc::program(pid) {
            Some(program)
                if program == "ffctl" || program.starts_with("ff-pri") || program.starts_with("nginx") =>
            {
                left.push(format!("process {pid} ({program})"));
            }
            _ => {}
        }
    }
    ensure!(left.is_empty(), "left behind: {}", left.join(", "));
    Ok(())
}
