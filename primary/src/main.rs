//! `ff-primary`: the resident primary of an instance. It owns the port, its queues, the packet memory and the protocol
//! region, gives workers their places, and watches them. No packet passes through it, and it speaks no TCP.

mod clock;
mod coordinator;
mod device;
mod hugepages;
mod instance;
mod plan;
mod recovery;
mod region;
mod reload;
mod server;
mod startup;
mod watch;

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{FromRawFd as _, RawFd};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use crate::startup::StartError;

/// Command line; `ffctl start` writes it.
#[derive(Debug, Parser)]
#[command(name = "ff-primary", version, about)]
struct Arguments {
    /// The configuration.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Workers of a generation, and queues.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// A descriptor that is told `READY`, or `FAILED` and a sentence, as one line.
    #[arg(long, value_name = "FD", value_parser = clap::value_parser!(RawFd).range(3..))]
    ready_fd: Option<RawFd>,
    /// A descriptor of the instance's lock, held by the caller.
    #[arg(long, value_name = "FD", value_parser = clap::value_parser!(RawFd).range(3..))]
    lock_fd: Option<RawFd>,
    /// Stay on the terminal and log there.
    #[arg(long)]
    foreground: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut ready = arguments.ready_fd.map(inherited);
    let lock = arguments.lock_fd.map(inherited);
    let started = startup::start(&startup::Options {
        config: arguments.config,
        workers: arguments.workers,
        lock,
        foreground: arguments.foreground,
    });
    let mut instance = match started {
        Ok(instance) => instance,
        Err(error) => return failed(ready, &error),
    };
    if let Some(mut ready) = ready.take()
        && let Err(error) = writeln!(ready, "READY")
    {
        // Whoever started this one is gone, and with it the one who would have started nginx.
        tracing::error!("nobody waits for this primary any more ({error}): it ends");
        return instance.end();
    }
    match instance.serve() {
        Ok(()) => instance.end(),
        Err(error) => {
            tracing::error!("{error}");
            let _ = instance.end();
            ExitCode::FAILURE
        }
    }
}

/// Says why it did not start: to whoever waits for it, or to the terminal.
fn failed(ready: Option<File>, error: &StartError) -> ExitCode {
    // A sentence of several lines would be taken for several answers.
    let sentence = error.to_string().replace('\n', " ");
    tracing::error!("{sentence}");
    let told = ready.is_some_and(|mut ready| writeln!(ready, "FAILED {sentence}").is_ok());
    if !told {
        eprintln!("ff-primary: {sentence}");
    }
    ExitCode::FAILURE
}

/// A descriptor that this process was started with.
fn inherited(fd: RawFd) -> File {
    // SAFETY: the number comes from the command line of whoever started this process and left that descriptor open for
    // it; it is at least 3, so it is none of the standard ones, and it is taken once, before anything else is opened.
    // If nothing is open there, every use of it fails with EBADF.
    unsafe { File::from_raw_fd(fd) }
}
