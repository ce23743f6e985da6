//! Starting the processes, and waiting until they serve or it is known that they will not.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ff_config::Port;
use ff_control::{
    Connection, ControlError, GenerationStatus, InstanceLock, InstancePaths, InstanceRecord, ProcessId,
    Reply, Request, Status,
};
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};

use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::nginx::{NginxProgram, Tested};
use crate::processes;
use crate::teardown::counted;

/// The primary maps hugepages and starts a device.
const PRIMARY_LIMIT: Duration = Duration::from_secs(20);
/// nginx reads its configuration, forks, and every worker attaches.
const WORKERS_LIMIT: Duration = Duration::from_secs(20);
/// For an answer of the primary, which is never busy for long.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// Between two looks.
const POLL: Duration = Duration::from_millis(5);
/// Between two looks at which workers there are, which cost more.
const CENSUS: Duration = Duration::from_millis(100);
/// A worker says READY before nginx has done all that may end it: it changes its user and its directory after that.
const SETTLE: Duration = Duration::from_millis(50);
/// nginx forks its workers within milliseconds of its start. Without any for so long it has given up on them: it does
/// not start another one for a worker that failed in its initialisation.
const NOBODY_LIMIT: Duration = Duration::from_secs(1);
/// nginx's cache manager and cache loader.
const HELPERS: usize = 2;
/// Lines of a log that are shown when something has failed.
const LOG_LINES: usize = 12;
/// What is read of it.
const LOG_BYTES_MAX: u64 = 1 << 20;

/// A start under way.
#[derive(Debug)]
pub struct Launch<'a> {
    /// Kept up to date on disk.
    pub record: &'a mut InstanceRecord,
    /// Where.
    pub paths: &'a InstancePaths,
    /// Looked at in every wait.
    pub interrupt: &'a Interrupt,
}

/// What runs.
#[derive(Debug)]
pub struct Started {
    workers: Vec<u32>,
}

impl Launch<'_> {
    /// Starts the primary and waits for its READY.
    pub fn primary(&mut self, program: &Path, lock: &InstanceLock) -> Result<(), Failure> {
        let (ready, ready_of_child) = nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)
            .map_err(|errno| Failure::failed(format!("no pipe for the primary: {errno}")))?;
        let log = append(&self.paths.primary_log())?;
        let mut command = Command::new(program);
        command
            .arg("--config")
            .arg(&self.record.config)
            .args(["--workers", &self.record.workers.to_string()])
            .args(["--ready-fd", &ready_of_child.as_raw_fd().to_string()])
            .args(["--lock-fd", &lock.as_fd().as_raw_fd().to_string()])
            .process_group(0);
        let mut child = spawn_with(&mut command, log, &[ready_of_child.as_fd(), lock.as_fd()])?;
        drop(ready_of_child);
        self.record.primary = ProcessId::of(child.id());
        self.store()?;
        let said = self.wait_for_line(&mut child, ready)?;
        match said.trim_end() {
            "READY" => Ok(()),
            said => Err(Failure::failed(match said.strip_prefix("FAILED ") {
                Some(reason) => reason.to_owned(),
                None => format!(
                    "the primary ended before it was ready:\n{}",
                    last_lines(&read_from(&self.paths.primary_log(), 0))
                ),
            })),
        }
    }

    /// What the primary writes, up to the end of the line or of the primary.
    fn wait_for_line(&self, child: &mut Child, ready: OwnedFd) -> Result<String, Failure> {
        let deadline = Instant::now() + PRIMARY_LIMIT;
        let mut ready = File::from(ready);
        let mut said = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            match ready.read(&mut buffer) {
                Ok(0) => break,
                Ok(len) => said.extend_from_slice(&buffer[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.interrupt.check()?;
                    // A primary that was killed may have left its end of the pipe to nobody; it is looked at anyway.
                    if let Ok(Some(_)) = child.try_wait() {
                        // What it said between the look above and its end.
                        let len = ready.read(&mut buffer).unwrap_or(0);
                        said.extend_from_slice(&buffer[..len]);
                        break;
                    }
                    if Instant::now() >= deadline {
                        return Err(Failure::failed(format!(
                            "the primary was not ready within {} s:\n{}",
                            PRIMARY_LIMIT.as_secs(),
                            last_lines(&read_from(&self.paths.primary_log(), 0))
                        )));
                    }
                    thread::sleep(POLL);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::failed(format!("the primary's pipe: {error}"))),
            }
            if said.contains(&b'\n') {
                break;
            }
        }
        Ok(String::from_utf8_lossy(&said).into_owned())
    }

    /// Starts nginx and waits until every worker is READY.
    pub fn nginx(&mut self, nginx: &NginxProgram<'_>, tested: &Tested) -> Result<Started, Failure> {
        // nginx's master makes itself a daemon: its first process ends, and the master becomes a child of this one.
        nix::sys::prctl::set_child_subreaper(true)
            .map_err(|errno| Failure::failed(format!("cannot adopt nginx's master: {errno}")))?;
        let words = Words::from_now_on(self.paths, tested.error_log.as_deref());
        let log = append(&self.paths.nginx_log())?;
        let members = append(&self.paths.nginx_members())?;
        let mut command = nginx.command();
        command.process_group(0);
        let mut child = spawn_with(&mut command, log, &[members.as_fd()])?;
        drop(members);
        if !tested.main.daemon {
            self.record.nginx_master = ProcessId::of(child.id());
            self.store()?;
        }
        let mut ended = None;
        let mut census = Census::default();
        let deadline = Instant::now() + WORKERS_LIMIT;
        let mut all_ready: Option<(Instant, Vec<u32>)> = None;
        loop {
            self.interrupt.check()?;
            if ended.is_none() {
                ended = child.try_wait().map_err(|error| Failure::failed(format!("nginx: {error}")))?;
            }
            self.look_for_master(ended, &words)?;
            let status = self.status()?;
            // nginx tries again at once. What fails for a reason that stays fails for every worker, and then again.
            if status.attach_failures > u32::from(self.record.workers) {
                let reason = status.last_attach_failure.unwrap_or_default();
                return Err(Failure::failed(format!("workers cannot attach: {reason}")));
            }
            let master = self.record.nginx_master.map(|id| id.pid);
            let generation =
                status.generations.iter().find(|generation| Some(generation.master_pid) == master);
            let ready = generation.map_or(0, ready_workers);
            if let Some(generation) = generation
                && ready == usize::from(self.record.workers)
            {
                let workers: Vec<u32> = generation.workers.iter().map(|worker| worker.pid).collect();
                match &all_ready {
                    Some((since, same)) if *same == workers => {
                        if since.elapsed() >= SETTLE {
                            return Ok(Started { workers });
                        }
                    }
                    _ => all_ready = Some((Instant::now(), workers)),
                }
            } else {
                all_ready = None;
            }
            if census.seen(self.paths, master) > 2 * usize::from(self.record.workers) + HELPERS {
                return Err(Failure::failed(format!(
                    "nginx's workers die at once and are started again for ever; nginx says:\n{}",
                    words.last()
                )));
            }
            if master.is_some() && census.nobody_for() >= NOBODY_LIMIT {
                return Err(Failure::failed(format!(
                    "nginx's workers have ended and it starts no others; it says:\n{}",
                    words.last()
                )));
            }
            if Instant::now() >= deadline {
                return Err(Failure::failed(format!(
                    "{ready} of {} were ready within {} s; nginx says:\n{}",
                    counted(self.record.workers.into(), "worker", "workers"),
                    WORKERS_LIMIT.as_secs(),
                    words.last()
                )));
            }
            thread::sleep(POLL);
        }
    }

    /// Finds the master once the first process has ended, and notices its death.
    fn look_for_master(&mut self, ended: Option<ExitStatus>, words: &Words) -> Result<(), Failure> {
        let nginx_says = || words.last();
        match (self.record.nginx_master, ended) {
            (Some(master), _) if !master.is_alive() => {
                Err(Failure::failed(format!("nginx ended at once; it says:\n{}", nginx_says())))
            }
            (Some(_), _) | (None, None) => Ok(()),
            (None, Some(status)) if !status.success() => {
                Err(Failure::failed(format!("nginx ended with {status}; it says:\n{}", nginx_says())))
            }
            (None, Some(_)) => {
                let own = std::process::id();
                let master = processes::holders(&self.paths.nginx_members())
                    .into_iter()
                    .find(|id| processes::stat(id.pid).is_some_and(|stat| stat.parent == own));
                if master.is_none() {
                    return Err(Failure::failed(format!("nginx ended at once; it says:\n{}", nginx_says())));
                }
                self.record.nginx_master = master;
                self.store()
            }
        }
    }

    fn status(&self) -> Result<Status, Failure> {
        let answer = Connection::connect(&self.paths.control_socket(), ANSWER_LIMIT)
            .and_then(|mut primary| primary.call(&Request::Status, ANSWER_LIMIT));
        match answer {
            Ok(Reply::Status(status)) => Ok(*status),
            Ok(other) => Err(Failure::failed(format!("the primary answered something else: {other:?}"))),
            Err(ControlError::NotRunning { .. } | ControlError::Closed) => Err(Failure::failed(format!(
                "the primary died while nginx was starting; it says:\n{}",
                last_lines(&read_from(&self.paths.primary_log(), 0))
            ))),
            Err(error) => Err(Failure::failed(error.to_string())),
        }
    }

    fn store(&self) -> Result<(), Failure> {
        self.record.store(self.paths).map_err(|error| Failure::failed(error.to_string()))
    }
}

/// Children that the master has had.
#[derive(Debug, Default)]
struct Census {
    seen: BTreeSet<u32>,
    last: Option<Instant>,
    /// Since when there has been none, or no master.
    nobody_since: Option<Instant>,
}

impl Census {
    /// How many different ones so far.
    fn seen(&mut self, paths: &InstancePaths, master: Option<u32>) -> usize {
        if self.last.is_none_or(|last| last.elapsed() >= CENSUS) {
            self.last = Some(Instant::now());
            let is_child = |id: &ProcessId| {
                processes::stat(id.pid).is_some_and(|stat| master.is_some() && Some(stat.parent) == master)
            };
            let before = self.seen.len();
            let living: Vec<u32> = processes::holders(&paths.nginx_members())
                .into_iter()
                .filter(is_child)
                .map(|id| id.pid)
                .collect();
            self.seen.extend(&living);
            // One that came and went between two looks is not nobody.
            if master.is_none() || !living.is_empty() || self.seen.len() > before {
                self.nobody_since = None;
            } else {
                self.nobody_since.get_or_insert_with(Instant::now);
            }
        }
        self.seen.len()
    }

    /// How long the master has been without any.
    fn nobody_for(&self) -> Duration {
        self.nobody_since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// What nginx says from the start on: on its standard error, until it has opened its error log, and in that.
#[derive(Debug)]
struct Words {
    standard_error: PathBuf,
    error_log: Option<PathBuf>,
    /// Where the error log ended before.
    offset: u64,
}

impl Words {
    fn from_now_on(paths: &InstancePaths, error_log: Option<&Path>) -> Self {
        let offset = error_log.and_then(|path| fs::metadata(path).ok()).map_or(0, |log| log.len());
        Self { standard_error: paths.nginx_log(), error_log: error_log.map(Path::to_owned), offset }
    }

    /// The last lines of both.
    fn last(&self) -> String {
        let mut text = read_from(&self.standard_error, 0);
        if let Some(path) = &self.error_log {
            text.push_str(&read_from(path, self.offset));
        }
        last_lines(&text)
    }
}

impl Started {
    /// For a person.
    pub fn text(&self, record: &InstanceRecord, port: &Port, took: Duration) -> String {
        let addresses: Vec<String> = port.addresses().iter().map(|net| net.addr().to_string()).collect();
        let pid = |id: Option<ProcessId>| id.map_or(0, |id| id.pid);
        let workers: Vec<String> = self.workers.iter().map(u32::to_string).collect();
        format!(
            "instance `{}` runs on {} at {}\n  primary  {}\n  nginx    {}, workers {}\n  started in {} ms\n",
            record.instance,
            record.device,
            addresses.join(", "),
            pid(record.primary),
            pid(record.nginx_master),
            workers.join(", "),
            took.as_millis()
        )
    }
}

fn ready_workers(generation: &GenerationStatus) -> usize {
    generation.workers.iter().filter(|worker| worker.ready).count()
}

fn append(path: &Path) -> Result<File, Failure> {
    File::options()
        .create(true)
        .append(true)
        .open(path)
        .map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.display())))
}

/// Starts `command` with `log` as its output and error; the child inherits `kept` under the same numbers.
fn spawn_with(
    command: &mut Command,
    log: File,
    kept: &[std::os::fd::BorrowedFd<'_>],
) -> Result<Child, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |error: io::Error| Failure::failed(format!("{program} cannot be run: {error}"));
    let error = log.try_clone().map_err(failed)?;
    command.stdin(Stdio::null()).stdout(log).stderr(error);
    // This process starts one child at a time and has no other threads, so no other child inherits them meanwhile.
    let close_on_exec = |flag: FdFlag| {
        kept.iter().try_for_each(|fd| fcntl(fd, FcntlArg::F_SETFD(flag)).map(drop)).map_err(io::Error::from)
    };
    let spawned = close_on_exec(FdFlag::empty()).and_then(|()| command.spawn());
    close_on_exec(FdFlag::FD_CLOEXEC).map_err(failed)?;
    spawned.map_err(failed)
}

/// A file from `offset` on; empty when it is not there.
fn read_from(path: &Path, offset: u64) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        file.seek(io::SeekFrom::Start(offset))?;
        let mut bytes = Vec::new();
        file.take(LOG_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// The last lines that differ from the one before, or a word that there are none.
fn last_lines(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.dedup();
    match lines.len() {
        0 => "(nothing)".to_owned(),
        all => lines[all.saturating_sub(LOG_LINES)..].join("\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log() {
        assert_eq!(last_lines(""), "(nothing)");
        assert_eq!(last_lines("a\na\nb\na\n"), "a\nb\na");
        let long: String = (0..100).map(|line| format!("{line}\n")).collect();
        assert!(last_lines(&long).starts_with("88\n") && last_lines(&long).ends_with("\n99"));
    }

    #[test]
    fn nginx_says_only_what_is_new() {
        let dir = std::env::temp_dir().join(format!("ffctl-words-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (paths, error_log) = (InstancePaths::new(&dir), dir.join("error.log"));
        fs::write(&error_log, "yesterday\n").unwrap();
        let words = Words::from_now_on(&paths, Some(&error_log));
        assert_eq!(words.last(), "(nothing)");
        fs::write(paths.nginx_log(), "first\n").unwrap();
        fs::write(&error_log, "yesterday\nsecond\n").unwrap();
        assert_eq!(words.last(), "first\nsecond");
        fs::remove_dir_all(dir).unwrap();
    }
}
