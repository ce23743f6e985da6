//! The command line, and what it means.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::Parser;

use crate::addresses::SOURCES_MAX;
use crate::driver::Load;
use crate::expectation::{ALTERNATIVES_MAX, Expectation};
use crate::request::{RequestError, RequestSpec, Target};
use crate::url::Url;

/// Sends HTTP/1.1 requests to an instance on the in-memory wire (`[port0] device=wire`), through our own stack as the
/// client, and checks every byte of the answers.
#[derive(Debug, Parser)]
#[command(
    name = "ff-loadgen",
    version,
    after_help = "Exit codes:
  0    every request was answered rightly
  1    something went wrong: see `errors`
  2    the command line is wrong
  3    the instance is not there, or its wire cannot be attached to"
)]
pub struct Arguments {
    /// What to ask for: http://ADDRESS[:PORT]/PATH.
    pub url: Url,
    /// The instance whose wire is used.
    #[arg(short, long, default_value = "default")]
    pub instance: String,
    /// Further addresses and ports to connect to, in turns with the URL's.
    #[arg(long, value_name = "ADDRESS:PORT", value_delimiter = ',')]
    pub remote: Vec<SocketAddr>,
    /// Connections at once.
    #[arg(short, long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    pub connections: u32,
    /// Seconds in which requests begin and are measured.
    #[arg(short, long, default_value_t = 10.0, value_parser = positive)]
    pub duration: f64,
    /// Seconds before that in which nothing is measured.
    #[arg(long, default_value_t = 0.0, value_parser = not_negative)]
    pub warmup: f64,
    /// End after this many requests.
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
    /// One request per connection: each asks for `Connection: close`.
    #[arg(long, conflicts_with = "requests_per_connection")]
    pub close: bool,
    /// Requests on a connection; the last asks for `Connection: close`.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub requests_per_connection: Option<u32>,
    /// Requests a second, open loop: latency counts from when a request was due. Without it every connection asks
    /// again as soon as it has its answer.
    #[arg(long, value_name = "PER_SECOND", value_parser = positive)]
    pub rate: Option<f64>,
    /// Seconds to wait for an answer.
    #[arg(long, default_value_t = 10.0, value_parser = positive)]
    pub timeout: f64,
    /// Handshakes at once.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub handshakes: u32,
    /// The method.
    #[arg(short = 'X', long, default_value = "GET")]
    pub method: String,
    /// The `Host` header, if it is not the URL's address.
    #[arg(long)]
    pub host: Option<String>,
    /// A further header.
    #[arg(short = 'H', long, value_name = "NAME: VALUE")]
    pub header: Vec<String>,
    /// A file that is sent as the body of each request.
    #[arg(long, value_name = "FILE")]
    pub body_file: Option<PathBuf>,
    /// A file with one path a line, asked for in turns instead of the URL's. After a path, separated by blanks, may
    /// stand files, one of which each body has to equal.
    #[arg(long, value_name = "FILE", conflicts_with = "expect_file")]
    pub paths: Option<PathBuf>,
    /// A file that each body has to equal; of several, one. Without it every body has to equal the first.
    #[arg(long, value_name = "FILE")]
    pub expect_file: Vec<PathBuf>,
    /// Do not compare bodies; their length is still checked.
    #[arg(long, conflicts_with_all = ["expect_file", "paths"])]
    pub any_body: bool,
    /// Remember when responses carried which value of this header.
    #[arg(long, value_name = "NAME")]
    pub record_header: Option<String>,
    /// Count responses, failures and latency for each interval of this many milliseconds.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub timeline_ms: Option<u32>,
    /// Source addresses, instead of addresses chosen from the server's prefix.
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub source: Vec<IpAddr>,
    /// How many source addresses to choose from the server's prefix; each has some 28 000 ports.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=SOURCES_MAX as i64))]
    pub sources: u16,
    /// The CPU to run on.
    #[arg(long)]
    pub cpu: Option<u16>,
    /// Microseconds to sleep when there is nothing to do; 0 polls without a pause.
    #[arg(long, value_name = "US", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub idle_sleep_us: u32,
    /// Print one JSON document.
    #[arg(long)]
    pub json: bool,
}

/// Why the command line cannot be obeyed.
#[derive(Debug, thiserror::Error)]
pub enum ArgumentsError {
    /// A request that cannot be.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A file.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
    /// Nothing to ask for.
    #[error("{} has no path in it", .0.display())]
    NoPaths(PathBuf),
    /// More files than a response can be compared with.
    #[error("a body can be compared with at most {ALTERNATIVES_MAX} files")]
    Alternatives,
}

impl Arguments {
    /// The load that is asked for.
    pub fn load(&self) -> Load {
        let us = |seconds: f64| (seconds * 1e6) as u64;
        Load {
            remotes: [self.url.remote].into_iter().chain(self.remote.iter().copied()).collect(),
            sources: Vec::new(),
            connections: self.connections as usize,
            requests_per_connection: if self.close {
                1
            } else {
                self.requests_per_connection.unwrap_or(u32::MAX)
            },
            rate_per_s: self.rate,
            warmup_us: us(self.warmup),
            duration_us: us(self.duration),
            requests_max: self.requests.unwrap_or(u64::MAX),
            timeout_us: us(self.timeout),
            handshakes_max: self.handshakes as usize,
            record_header: self.record_header.clone(),
            interval_us: u64::from(self.timeline_ms.unwrap_or(0)) * 1_000,
        }
    }

    /// What is asked for in turns.
    ///
    /// # Errors
    /// A file that cannot be read, a request that cannot be.
    pub fn targets(&self) -> Result<Vec<Target>, ArgumentsError> {
        let body = self.body_file.as_deref().map(read).transpose()?;
        let spec = RequestSpec {
            method: self.method.clone(),
            host: self.host.clone().unwrap_or_else(|| self.url.authority.clone()),
            headers: self.header.clone(),
            body,
        };
        let Some(file) = &self.paths else {
            let expectation =
                if self.any_body { Expectation::any() } else { expectation(&self.expect_file)? };
            return Ok(vec![Target::new(&spec, &self.url.path, expectation)?]);
        };
        let text = String::from_utf8_lossy(&read(file)?).into_owned();
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let targets = lines.map(|line| {
            let mut words = line.split_whitespace();
            let path = words.next().unwrap_or_default();
            let files: Vec<PathBuf> = words.map(PathBuf::from).collect();
            Ok(Target::new(&spec, path, expectation(&files)?)?)
        });
        let targets = targets.collect::<Result<Vec<_>, ArgumentsError>>()?;
        if targets.is_empty() { Err(ArgumentsError::NoPaths(file.clone())) } else { Ok(targets) }
    }
}

fn expectation(files: &[PathBuf]) -> Result<Expectation, ArgumentsError> {
    if files.is_empty() {
        return Ok(Expectation::first());
    }
    let bodies = files.iter().map(|file| read(file)).collect::<Result<Vec<_>, _>>()?;
    Expectation::one_of(bodies).map_err(|_| ArgumentsError::Alternatives)
}

fn read(path: &Path) -> Result<Vec<u8>, ArgumentsError> {
    fs::read(path).map_err(|error| ArgumentsError::Read { path: path.to_owned(), error })
}

fn positive(text: &str) -> Result<f64, String> {
    not_negative(text)
        .and_then(|number| if number > 0.0 { Ok(number) } else { Err("it must be more than 0".into()) })
}

/// Up to a year of seconds, or a billion a second: beyond that it is a mistake.
fn not_negative(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "it is no number".to_owned())?;
    if (0.0..=1e9).contains(&number) {
        Ok(number)
    } else {
        Err("it must be within 0 and 1 000 000 000".into())
    }
}

#[cfg(test)]
mod tests;
