//! `ffctl reload`: looks at everything that can be looked at before, tells nginx's master, and waits until the new
//! configuration serves. `nginx -s reload` and `kill -HUP` do the same without looking and waiting.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ff_control::{
    Connection, ControlError, InstancePaths, InstanceRecord, LastReload, ReloadResult, Reply, Request, Status,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::configuration;
use crate::exit::{Failure, NOT_RUNNING, REFUSED};
use crate::interrupt::Interrupt;
use crate::nginx::NginxProgram;
use crate::start::{kernel_json, preflight, programs::Programs};
use crate::stop::require_root;

/// The primary is never busy for long.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// Between two looks.
const POLL: Duration = Duration::from_millis(10);
/// nginx's master begins within this, or never will.
const BEGIN_LIMIT: Duration = Duration::from_secs(20);

/// Reloads instance `name`. `wait`: also until the old generation is gone.
pub fn run(name: &str, json: bool, wait: bool) -> Result<(), Failure> {
    require_root("reload an instance")?;
    let paths = InstancePaths::of_instance(name);
    let record = InstanceRecord::load(&paths).map_err(|error| Failure::failed(error.to_string()))?;
    let not_running = || Failure {
        code: NOT_RUNNING,
        sentence: ControlError::NotRunning { instance: name.to_owned() }.to_string(),
    };
    let record = record.ok_or_else(not_running)?;
    let before = status(&paths).map_err(|error| match error {
        ControlError::NotRunning { .. } | ControlError::Closed => refused(
            "reload refused: the primary is dead; nginx goes on with the old configuration: ffctl stop, then ffctl \
             start",
        ),
        other => Failure::failed(other.to_string()),
    })?;
    let master = record.nginx_master.filter(ff_control::ProcessId::is_alive);
    let master = master
        .ok_or_else(|| refused("reload refused: nginx's master is dead: ffctl stop, then ffctl start"))?;
    check(&record, &paths)?;
    let pid = Pid::from_raw(i32::try_from(master.pid).map_err(|_| not_running())?);
    kill(pid, Signal::SIGHUP).map_err(|errno| Failure::failed(format!("nginx's master {pid}: {errno}")))?;
    let ended = follow(&paths, &before, wait)?;
    match ended {
        Verdict::Serves { epoch, elapsed_ms, left } => {
            if json {
                println!(
                    "{}",
                    serde_json::json!({ "result": "serving", "epoch": epoch, "elapsed_ms": elapsed_ms, "connections": left })
                );
            } else {
                println!(
                    "instance `{name}` reloaded: generation {epoch} serves after {elapsed_ms} ms; the old one drains \
                     {left} connections"
                );
            }
            Ok(())
        }
        Verdict::Ended(last) => {
            if json {
                let text = serde_json::to_string(&last)
                    .map_err(|error| Failure::failed(format!("the result cannot be printed: {error}")))?;
                println!("{text}");
            }
            match last.result {
                ReloadResult::Complete => {
                    if !json {
                        println!("{}", complete(name, &last));
                    }
                    Ok(())
                }
                ReloadResult::Refused => Err(refused(&last.reason)),
                ReloadResult::Aborted => Err(Failure::failed(format!(
                    "reload aborted, the old configuration serves on: {}",
                    last.reason
                ))),
            }
        }
    }
}

fn refused(sentence: &str) -> Failure {
    Failure { code: REFUSED, sentence: sentence.to_owned() }
}

fn complete(name: &str, last: &LastReload) -> String {
    format!(
        "instance `{name}` reloaded: generation {} serves, the old one is gone ({} ms; handover {} us, drain {} ms, \
         {} packets forwarded)",
        last.epoch, last.total_ms, last.handover_us.max, last.drain_ms, last.forwarded
    )
}

fn status(paths: &InstancePaths) -> Result<Status, ControlError> {
    let mut primary = Connection::connect(&paths.control_socket(), ANSWER_LIMIT)?;
    match primary.call(&Request::Status, ANSWER_LIMIT)? {
        Reply::Status(status) => Ok(*status),
        _ => Err(ControlError::Closed),
    }
}

/// Everything that would make the reload fail: f-stack.conf, nginx's configuration, its number of workers, and what the
/// primary has against it.
fn check(record: &InstanceRecord, paths: &InstancePaths) -> Result<(), Failure> {
    let (config, findings) = configuration::read(&record.config)?;
    configuration::report(&record.config, &findings)?;
    let port = preflight::only_port(&config)?;
    let programs = Programs::locate(&config.nginx)?;
    let kernel = kernel_json(&config)?;
    let nginx = NginxProgram {
        settings: &config.nginx,
        library: &programs.library,
        runtime_dir: &paths.dir,
        kernel: &kernel,
    };
    let tested = nginx.test(&Interrupt::default()).map_err(|failure| {
        refused(&format!("reload refused: the new configuration does not load: {}", failure.sentence))
    })?;
    let conf: &Path = &config.nginx.conf;
    let workers = preflight::workers(port, tested.main.worker_processes, conf)?;
    let asked = Connection::connect(&paths.control_socket(), ANSWER_LIMIT)
        .and_then(|mut primary| primary.call(&Request::MayReload { workers }, ANSWER_LIMIT));
    match asked {
        Ok(Reply::Refused(refusal)) => Err(refused(&refusal.reason)),
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::failed(error.to_string())),
    }
}

enum Verdict {
    Serves { epoch: u32, elapsed_ms: u64, left: u64 },
    Ended(LastReload),
}

/// Follows the reload that is not of `before`.
fn follow(paths: &InstancePaths, before: &Status, wait: bool) -> Result<Verdict, Failure> {
    let begun = Instant::now();
    let newest = before.generations.iter().map(|generation| generation.epoch).max().unwrap_or(0);
    let mut seen = None;
    let mut progress = Progress::new();
    loop {
        let now = status(paths).map_err(|error| {
            Failure::failed(format!("the primary died during the reload, nginx goes on serving ({error})"))
        })?;
        if let Some(reload) = now.reload.as_ref().filter(|reload| reload.epoch > newest) {
            seen = Some(reload.epoch);
            progress.show(&format!(
                "generation {}: {}, {} ms, {} connections of the old one",
                reload.epoch, reload.state, reload.elapsed_ms, reload.connections
            ));
            if reload.handed_over && !wait {
                progress.end();
                let (epoch, elapsed_ms, left) = (reload.epoch, reload.elapsed_ms, reload.connections);
                return Ok(Verdict::Serves { epoch, elapsed_ms, left });
            }
        }
        let ended = now.last_reload.filter(|_| now.reloads > before.reloads);
        if let Some(last) = ended
            && (last.epoch == 0 || last.epoch > newest)
        {
            progress.end();
            return Ok(Verdict::Ended(last));
        }
        if seen.is_none() && begun.elapsed() > BEGIN_LIMIT {
            progress.end();
            return Err(Failure::failed(format!(
                "nginx's master has not started new workers within {} s: see its error log",
                BEGIN_LIMIT.as_secs()
            )));
        }
        thread::sleep(POLL);
    }
}

/// One line on a terminal that says where the reload stands; nothing elsewhere.
struct Progress {
    terminal: bool,
    shown: bool,
}

impl Progress {
    fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), shown: false }
    }

    fn show(&mut self, line: &str) {
        if self.terminal {
            self.shown = true;
            // Nothing is lost if the terminal is gone.
            let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
        }
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
