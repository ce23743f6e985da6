//! `scripts/bench nginx`: the same stock nginx over the kernel's stack and over ours, side by side in one run.
//!
//! One worker on CPU 0, wrk with 64 connections on CPU 1, 600-byte responses, keep-alive and one request per
//! connection. All servers are up at once and take turns, so that what disturbs the machine disturbs them all;
//! the figures are medians over the rounds.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

mod measure;
mod report;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ff_harness::{Binaries, Device, Failure, Instance, RUN_PREFIX, Spec, leftovers};

use crate::measure::{Mode, Sample, median, sample};
use crate::report::Row;

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "ff-bench")]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Stock nginx over kernel veth, af_packet over veth, and TAP.
    Nginx {
        /// As JSON, for programs.
        #[arg(long)]
        json: bool,
        /// Rounds; the figures are medians over them.
        #[arg(long, default_value_t = 5)]
        rounds: u32,
        /// Seconds that wrk runs in each round.
        #[arg(long, default_value_t = 3)]
        seconds: u32,
        /// Only these servers: kernel, af_packet, tap.
        #[arg(long, value_delimiter = ',', default_value = "kernel,af_packet,tap")]
        servers: Vec<String>,
    },
}

fn main() -> ExitCode {
    let Args { what: What::Nginx { json, rounds, seconds, servers } } = Args::parse();
    let binaries = match Binaries::beside_harness() {
        Ok(binaries) => binaries,
        Err(failure) => return failed(&failure),
    };
    leftovers::remove_all(&binaries.ffctl());
    let outcome = nginx(&binaries, rounds, seconds, &servers);
    leftovers::remove_run(&binaries.ffctl(), &format!("{RUN_PREFIX}{}", std::process::id()));
    match outcome {
        Ok(rows) if json => println!("{}", report::json(&rows)),
        Ok(rows) => print!("{}", report::table(&rows)),
        Err(failure) => return failed(&failure),
    }
    ExitCode::SUCCESS
}

fn failed(failure: &Failure) -> ExitCode {
    eprintln!("ff-bench: {failure}");
    ExitCode::FAILURE
}

/// Runs all servers in turns; one row per server and mode.
fn nginx(binaries: &Binaries, rounds: u32, seconds: u32, servers: &[String]) -> Result<Vec<Row>, Failure> {
    let mut instances = Vec::new();
    for (index, device) in [Device::Kernel, Device::AfPacket, Device::Tap].into_iter().enumerate() {
        if servers.iter().any(|name| name == device.name()) {
            let spec = Spec {
                workers: 1,
                main: "worker_cpu_affinity 01;".into(),
                stack: "[dpdk]\nlcore_mask=1\n".into(),
                ..Spec::new(device)
            };
            instances.push(Instance::started(index as u8, spec, binaries)?);
        }
    }
    let mut taken: Vec<(usize, Mode, Sample)> = Vec::new();
    for round in 0..rounds {
        for (index, instance) in instances.iter().enumerate() {
            for mode in [Mode::KeepAlive, Mode::Close] {
                let sample = instance.client.within(|| sample(instance, mode, seconds))?;
                eprintln!(
                    "round {} of {rounds}: {} {}: {:.0} requests/s",
                    round + 1,
                    instance.spec.device.name(),
                    mode.name(),
                    sample.requests_per_s
                );
                taken.push((index, mode, sample));
            }
        }
    }
    let mut rows = Vec::new();
    for (index, instance) in instances.iter().enumerate() {
        for mode in [Mode::KeepAlive, Mode::Close] {
            let of_row: Vec<Sample> =
                taken.iter().filter(|(at, of, _)| *at == index && *of == mode).map(|taken| taken.2).collect();
            let figure = |pick: fn(&Sample) -> f64| median(of_row.iter().map(pick).collect());
            rows.push(Row {
                server: if instance.spec.device.ours() { "ffstack" } else { "kernel" },
                io: if instance.spec.device == Device::Kernel { "veth" } else { instance.spec.device.name() },
                mode: mode.name(),
                requests_per_s: figure(|sample| sample.requests_per_s),
                server_us: figure(|sample| sample.server_us),
                client_us: figure(|sample| sample.client_us),
                sum_us: figure(|sample| sample.server_us + sample.client_us),
                rounds,
            });
        }
    }
    Ok(rows)
}
