//! Processes that die: each alone, then stop and start, and a hundred workers in a row.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use ff_harness::http::Connection;
use ff_harness::{Context, Failure, Instance, ensure, proc};

use crate::case::{Case, Outcome, Size};
use crate::lab::Lab;
use crate::observe;

pub fn cases() -> Vec<Case> {
    vec![
        Case::own("kl01", "a killed worker is respawned and serves again", worker).main(),
        Case::own("kl02", "the primary killed: traffic goes on; status, stop and start work", primary),
        Case::own("kl03", "the nginx master killed: status, stop and start work", master),
        Case::own("kl04", "everything killed: the next start cleans up", everything),
        Case::own("kl05", "100 workers killed: nothing grows", hundred).within_s(240),
    ]
}

/// Each of `count` fresh connections is answered.
fn served(instance: &Instance, count: usize) -> Result<(), Failure> {
    instance.client.within(|| {
        for index in 0..count {
            Connection::open(instance.addr(index % 2 == 1, 80))?
                .get_file("/small.bin", 600)
                .doing(format!("connection {index}"))?;
        }
        Ok(())
    })
}

fn primary_pid(instance: &Instance) -> Result<u32, Failure> {
    let status = instance.status()?;
    Ok(status["primary"]["pid"].as_u64().doing("the status has no primary.pid")? as u32)
}

/// Kills one worker by index and waits until all are READY again; returns how long that took.
fn kill_worker(instance: &Instance, index: usize, count: usize) -> Result<Duration, Failure> {
    let before = observe::ready_workers(instance, count, Duration::from_secs(10))?;
    let pid = observe::number(&before[index], "pid") as u32;
    let start = Instant::now();
    proc::kill_and_wait(pid, Duration::from_secs(5));
    let mut after = Vec::new();
    let replaced = proc::until(Duration::from_secs(10), || {
        after = observe::ready_workers(instance, count, Duration::from_secs(5)).unwrap_or_default();
        after.iter().all(|worker| observe::number(worker, "pid") as u32 != pid) && !after.is_empty()
    });
    ensure!(replaced, "worker {index} (pid {pid}) was not replaced: {after:?}");
    Ok(start.elapsed())
}

fn worker(lab: &mut Lab, _: Size) -> Outcome {
    let instance = lab.start(lab.spec())?;
    let mut times = Vec::new();
    for index in [0, 1] {
        times.push(kill_worker(&instance, index, 2)?.as_millis());
        served(&instance, 64)?;
    }
    Ok(format!("ready again after {times:?} ms"))
}

fn primary(lab: &mut Lab, _: Size) -> Outcome {
    let mut instance = lab.start(lab.spec())?;
    let pid = primary_pid(&instance)?;
    ensure!(proc::kill_and_wait(pid, Duration::from_secs(5)), "the primary did not die");
    served(&instance, 64).doing("with the primary dead")?;
    let status = instance.status().doing("with the primary dead")?;
    ensure!(status["primary"]["alive"] == false, "the status says that the primary lives: {status}");
    ensure!(observe::workers(&status)?.len() == 2, "the status lost its workers: {status}");
    let start = instance.ffctl_start()?;
    ensure!(!start.success(), "a start over living workers succeeded");
    served(&instance, 16).doing("after the refused start")?;
    instance.stop()?;
    observe::nothing_left(&instance)?;
    instance.start()?;
    Ok(String::new())
}

fn master(lab: &mut Lab, _: Size) -> Outcome {
    let mut instance = lab.start(lab.spec())?;
    let pid = instance.master_pid().doing("nginx has no pid file")?;
    let workers = instance.worker_pids();
    ensure!(proc::kill_and_wait(pid, Duration::from_secs(5)), "the master did not die");
    instance.status().doing("with the master dead")?;
    instance.stop()?;
    for worker in workers {
        ensure!(!proc::alive(worker), "worker {worker} is left");
    }
    observe::nothing_left(&instance)?;
    instance.start()?;
    Ok(String::new())
}

fn everything(lab: &mut Lab, _: Size) -> Outcome {
    let mut instance = lab.start(lab.spec())?;
    let mut pids = vec![instance.master_pid().doing("nginx has no pid file")?, primary_pid(&instance)?];
    pids.extend(instance.worker_pids());
    for pid in pids {
        proc::kill_and_wait(pid, Duration::from_secs(5));
    }
    let status = instance.ffctl(&["status", "-i", &instance.names.instance])?;
    ensure!(!status.stderr.contains("panicked"), "status: {}", status.all());
    // No stop in between: start itself finds the remains.
    instance.start()?;
    served(&instance, 16)?;
    instance.stop()?;
    observe::nothing_left(&instance)?;
    Ok(String::new())
}

/// What must not grow.
#[derive(Debug, Clone, PartialEq)]
struct Held {
    hugepage_mib: u64,
    runtime_files: usize,
    mbufs: u64,
    descriptors: usize,
    rss_kib: u64,
}

fn held(instance: &Instance) -> Result<Held, Failure> {
    let status = instance.status()?;
    let primary = primary_pid(instance)?;
    let master = instance.master_pid().doing("nginx has no pid file")?;
    let runtime_files = observe::files_of(instance, "/run/dpdk")
        .iter()
        .map(|dir| fs::read_dir(dir).map_or(0, Iterator::count))
        .sum::<usize>()
        + fs::read_dir(instance.runtime())?.count();
    Ok(Held {
        hugepage_mib: observe::hugepage_mib(instance),
        runtime_files,
        mbufs: observe::workers(&status)?.iter().map(|worker| observe::number(worker, "mbufs_in_use")).sum(),
        descriptors: [primary, master].iter().filter_map(|pid| proc::descriptors(*pid)).sum(),
        rss_kib: [primary, master].iter().filter_map(|pid| proc::rss_kib(*pid)).sum(),
    })
}

fn hundred(lab: &mut Lab, size: Size) -> Outcome {
    let count = 4;
    let kills = size.pick(100, 1000);
    let mut spec = lab.spec();
    spec.workers = count;
    let instance = lab.start(spec)?;
    let mut early = None;
    for kill in 0..kills {
        kill_worker(&instance, kill % count, count).doing(format!("kill {kill}"))?;
        served(&instance, 16).doing(format!("after kill {kill}"))?;
        if kill == 9 {
            thread::sleep(Duration::from_secs(1));
            early = Some(held(&instance)?);
        }
    }
    thread::sleep(Duration::from_secs(1));
    let (early, late) = (early.doing("fewer than ten kills")?, held(&instance)?);
    let grown = late.hugepage_mib > early.hugepage_mib
        || late.runtime_files > early.runtime_files
        || late.descriptors > early.descriptors
        || late.mbufs > early.mbufs + 256
        || late.rss_kib > early.rss_kib + 1024;
    ensure!(!grown, "after 10 kills {early:?}, after {kills} {late:?}");
    served(&instance, 256)?;
    Ok(format!("{late:?}"))
}
