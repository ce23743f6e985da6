//! `ffctl`: the commands a person types. It holds no state of its own: it asks the primary, or reads what the
//! instance has left on disk and in shared memory.

mod check;
mod configuration;
mod exit;
mod interrupt;
mod nginx;
mod processes;
mod reload;
mod remains;
mod start;
mod status;
mod stop;
mod teardown;
mod version;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::exit::Failure;

/// Starts, watches and stops stock nginx on the user-space data plane.
#[derive(Debug, Parser)]
#[command(name = "ffctl", disable_version_flag = true, after_help = exit::CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start an instance: the primary, then nginx. All or nothing.
    Start(ConfigArgument),
    /// End an instance: nginx first, when its connections are done, then the primary.
    Stop {
        #[command(flatten)]
        instance: InstanceArgument,
        /// Do not wait for connections.
        #[arg(long)]
        now: bool,
    },
    /// Have nginx load its configuration anew without a client noticing. Ends once the new workers serve.
    Reload {
        #[command(flatten)]
        instance: InstanceArgument,
        /// The result as JSON, for programs.
        #[arg(long)]
        json: bool,
        /// Wait until the old workers are gone, too.
        #[arg(long)]
        wait: bool,
    },
    /// Show what an instance does.
    Status {
        #[command(flatten)]
        instance: InstanceArgument,
        /// As JSON, for programs.
        #[arg(long)]
        json: bool,
    },
    /// Read a configuration and print what it comes to, and everything that is wrong with it.
    Check(ConfigArgument),
    /// Print the version.
    Version,
}

#[derive(Debug, Args)]
struct ConfigArgument {
    /// The configuration, for example /etc/f-stack.conf.
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    config: PathBuf,
}

#[derive(Debug, Args)]
struct InstanceArgument {
    /// The instance's name.
    #[arg(short = 'i', long = "instance", value_name = "NAME", default_value = "default", value_parser = instance_name)]
    instance: String,
}

/// As `[instance] name` has it. A name becomes a path: `..` or an empty one would be the directory of something else.
fn instance_name(text: &str) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if !(1..=32).contains(&text.len()) || text.starts_with(['.', '-']) || !text.chars().all(allowed) {
        return Err(
            "a name has 1 to 32 of the characters A-Z a-z 0-9 _ - . and begins with a letter, a digit or _"
                .into(),
        );
    }
    Ok(text.into())
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { exit::USAGE.into() } else { ExitCode::SUCCESS };
        }
    };
    let done: Result<(), Failure> = match cli.command {
        Command::Start(ConfigArgument { config }) => start::run(&config),
        Command::Stop { instance, now } => stop::run(&instance.instance, now),
        Command::Reload { instance, json, wait } => reload::run(&instance.instance, json, wait),
        Command::Status { instance, json } => status::run(&instance.instance, json),
        Command::Check(ConfigArgument { config }) => check::run(&config),
        Command::Version => version::run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.sentence.is_empty() {
                eprintln!("ffctl: {}", failure.sentence);
            }
            failure.code.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::instance_name;

    #[test]
    fn a_name_that_is_a_path_is_refused() {
        for name in ["", ".", "..", "../etc", "a/b", "/run", ".a", "-a", "a b", &"a".repeat(33)] {
            assert!(instance_name(name).is_err(), "{name:?}");
        }
        for name in ["default", "a", "a-b_c.d", &"a".repeat(32)] {
            assert_eq!(instance_name(name).as_deref(), Ok(name));
        }
    }
}
