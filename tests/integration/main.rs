//! The integration harness: real nginx, real clients, one line per case.
//!
//! ```text
//! ff-integration [--server tap|af_packet|kernel] [--soak] [--list] [FILTER…]
//! ```
//!
//! Without `--server` every case runs on TAP and the main cases again on af_packet. `--server kernel` runs the
//! clients' cases against kernel nginx: what holds there and fails here is ours to mend. A filter is a piece of
//! a case's name; several are alternatives. Ends in `N passed, N failed`; exit code 0 only without failures.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

mod case;
mod cases;
mod lab;
mod observe;
mod runner;

use std::process::ExitCode;

use clap::Parser;
use ff_harness::Device;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::geteuid;

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "ff-integration", about = "Runs the integration cases: real nginx, real clients.")]
pub struct Args {
    /// Run on this server alone.
    #[arg(long, value_parser = parse_device)]
    server: Option<Device>,
    /// Full sizes and durations (minutes more).
    #[arg(long)]
    soak: bool,
    /// Names of the cases, without running them.
    #[arg(long)]
    list: bool,
    /// Only cases whose name contains one of these.
    filter: Vec<String>,
}

fn parse_device(text: &str) -> Result<Device, String> {
    [Device::Tap, Device::AfPacket, Device::Kernel]
        .into_iter()
        .find(|device| device.name() == text)
        .ok_or_else(|| "one of tap, af_packet, kernel".to_owned())
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.list {
        for case in cases::all() {
            println!("{} {}", case.name, case.what);
        }
        return ExitCode::SUCCESS;
    }
    if !geteuid().is_root() {
        eprintln!("ff-integration: this needs root: it makes network namespaces and starts instances");
        return ExitCode::FAILURE;
    }
    // 10 000 connections are held by one process. The hard limit cannot be raised everywhere, not even by root.
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard.min(65_536), hard).map(|()| hard));
    match raised {
        Ok(hard) if hard >= 12_000 => {}
        Ok(hard) => {
            eprintln!("ff-integration: RLIMIT_NOFILE is {hard}, 12000 are needed: ulimit -Hn 65536");
            return ExitCode::FAILURE;
        }
        Err(error) => {
            eprintln!("ff-integration: RLIMIT_NOFILE cannot be set: {error}");
            return ExitCode::FAILURE;
        }
    }
    runner::run(&args)
}
