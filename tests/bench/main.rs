//! `scripts/bench stack`: the stack alone, see [`stack`]. `scripts/bench wake`: sleeping and attaching, see [`wake`].
//! `scripts/bench handover`: reloads under load, see [`handover`].
//!
//! `scripts/bench nginx`: the same stock nginx over the kernel's stack and over ours, side by side in one run.
//!
//! One worker on CPU 0, a client with 64 connections on CPU 1 (wrk, or `ff-loadgen` on the in-memory wire), 600-byte
//! responses, keep-alive and one request per connection. All servers are up at once and take turns, so that what disturbs the machine disturbs them all;
//! the figures are medians over the rounds.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

mod handover;
mod measure;
mod report;
mod stack;
mod wake;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ff_harness::{Binaries, Device, Failure, Instance, RUN_PREFIX, Spec, leftovers};

use crate::measure::{Mode, Object, Sample, client_command, median, sample};
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
    /// Stock nginx over kernel veth, af_packet over veth, TAP, and the in-memory wire.
    Nginx {
        /// As JSON, for programs.
        #[arg(long)]
        json: bool,
        /// Rounds; the figures are medians over them.
        #[arg(long, default_value_t = 5)]
        rounds: u32,
        /// Seconds that a client runs in each round.
        #[arg(long, default_value_t = 2)]
        seconds: u32,
        /// Only these servers: kernel, wire, af_packet, tap.
        #[arg(long, value_delimiter = ',', default_value = "kernel,wire,af_packet,tap")]
        servers: Vec<String>,
        /// Only these objects: memory (`return` in nginx's configuration), file (static, with sendfile).
        #[arg(long, value_delimiter = ',', default_value = "memory,file")]
        objects: Vec<String>,
    },
    /// Reloads on the in-memory wire under full load.
    Handover {
        /// As JSON, for programs.
        #[arg(long)]
        json: bool,
        /// Reloads, one in two and a half seconds.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=2_000))]
        reloads: u16,
        /// `worker_processes`, each with a queue.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=4))]
        workers: u8,
    },
    /// What sleeping costs and saves, and what an attach takes.
    Wake {
        /// As JSON, for programs.
        #[arg(long)]
        json: bool,
        /// Rounds; the figures are medians over them.
        #[arg(long, default_value_t = 5)]
        rounds: u32,
    },
    /// The stack alone, in memory, beside smoltcp.
    Stack {
        /// As JSON, for programs.
        #[arg(long)]
        json: bool,
        /// Fewer requests: a look, not a measurement.
        #[arg(long)]
        quick: bool,
    },
}

fn main() -> ExitCode {
    let args = Args::parse();
    let binaries = match Binaries::beside_harness() {
        Ok(binaries) => binaries,
        Err(failure) => return failed(&failure),
    };
    let text = match args.what {
        What::Nginx { json, rounds, seconds, servers, objects } => {
            leftovers::remove_all(&binaries.ffctl());
            let rows = nginx(&binaries, &Run { rounds, seconds, servers, objects });
            rows.map(|rows| if json { report::json(&rows) + "\n" } else { report::table(&rows) })
        }
        What::Handover { json, reloads, workers } => {
            leftovers::remove_all(&binaries.ffctl());
            handover::measure(&binaries, workers.into(), reloads.into())
                .map(|figures| if json { figures.json() + "\n" } else { figures.table() })
        }
        What::Wake { json, rounds } => {
            leftovers::remove_all(&binaries.ffctl());
            wake::measure(&binaries, rounds)
                .map(|figures| if json { figures.json() + "\n" } else { figures.table() })
        }
        What::Stack { json, quick } => stack::measure(&binaries, quick)
            .map(|figures| if json { figures.json() + "\n" } else { figures.table() }),
    };
    leftovers::remove_run(&binaries.ffctl(), &format!("{RUN_PREFIX}{}", std::process::id()));
    match text {
        Ok(text) => print!("{text}"),
        Err(failure) => return failed(&failure),
    }
    ExitCode::SUCCESS
}

fn failed(failure: &Failure) -> ExitCode {
    eprintln!("ff-bench: {failure}");
    ExitCode::FAILURE
}

/// What is run.
struct Run {
    rounds: u32,
    seconds: u32,
    servers: Vec<String>,
    objects: Vec<String>,
}

/// Runs all servers in turns; one row per server, mode and object.
fn nginx(binaries: &Binaries, run: &Run) -> Result<Vec<Row>, Failure> {
    let chosen = |names: &[String], name: &str| names.iter().any(|chosen| chosen == name);
    let mut instances = Vec::new();
    let devices = [Device::Kernel, Device::Wire, Device::AfPacket, Device::Tap];
    for (index, device) in devices.into_iter().enumerate().filter(|(_, of)| chosen(&run.servers, of.name())) {
        let spec = Spec {
            workers: 1,
            main: "worker_cpu_affinity 01;".into(),
            stack: "[dpdk]\nlcore_mask=1\n".into(),
            ..Spec::new(device)
        };
        instances.push(Instance::started(index as u8, spec, binaries)?);
    }
    let objects: Vec<Object> =
        [Object::Memory, Object::File].into_iter().filter(|of| chosen(&run.objects, of.name())).collect();
    // Each case with its samples of all rounds.
    let mut cases: Vec<(&Instance, Mode, Object, Vec<Sample>)> = Vec::new();
    for instance in &instances {
        for &object in &objects {
            cases.extend([Mode::KeepAlive, Mode::Close].map(|mode| (instance, mode, object, Vec::new())));
        }
    }
    for round in 1..=run.rounds {
        for (instance, mode, object, samples) in &mut cases {
            let sample = sample(instance, *mode, *object, run.seconds)?;
            eprintln!(
                "round {round} of {}: {} {} {}: {:.0} requests/s",
                run.rounds,
                instance.spec.device.name(),
                mode.name(),
                object.name(),
                sample.requests_per_s
            );
            samples.push(sample);
        }
    }
    Ok(cases
        .iter()
        .map(|(instance, mode, object, samples)| row(run, instance, *mode, *object, samples))
        .collect())
}

fn row(run: &Run, instance: &Instance, mode: Mode, object: Object, samples: &[Sample]) -> Row {
    let figure = |of: fn(&Sample) -> f64| median(samples.iter().map(of).collect());
    let command = client_command(instance, mode, object, run.seconds);
    let device = instance.spec.device;
    Row {
        server: if device.ours() { "ffstack" } else { "kernel" },
        io: if device == Device::Kernel { "veth" } else { device.name() },
        mode: mode.name(),
        object: object.name(),
        requests_per_s: figure(|sample| sample.requests_per_s),
        server_us: figure(Sample::server_us),
        client_us: figure(Sample::client_us),
        sum_us: figure(|sample| sample.server_us() + sample.client_us()),
        requests_per_server_s: figure(|sample| sample.responses / sample.server_s),
        server_s: figure(|sample| sample.server_s),
        busy_ratio: figure(|sample| sample.busy_ratio),
        rounds: run.rounds,
        command: words(&command),
    }
}

/// A command as it is typed; programs without their directory.
fn words(command: &std::process::Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let name = program.file_name().unwrap_or(command.get_program());
    let quoted = |word: &std::ffi::OsStr| {
        let word = word.to_string_lossy();
        if word.contains(' ') { format!("'{word}'") } else { word.into_owned() }
    };
    let all = [name].into_iter().chain(command.get_args());
    all.map(quoted).collect::<Vec<_>>().join(" ")
}
