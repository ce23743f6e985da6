//! Ending an instance, whatever of it is still alive: used by `stop`, and by `start` when it has to undo.

use std::time::{Duration, Instant};

use ff_control::{
    Connection, InstanceLock, InstancePaths, InstanceRecord, LockError, ProcessId, Reply, Request,
};
use rustix::process::Signal;

use crate::exit::Failure;
use crate::processes::{self, Process};
use crate::remains::{self, Remains};

/// Beyond `worker_shutdown_timeout`: nginx's workers close what is left and exit.
const QUIT_MARGIN: Duration = Duration::from_secs(5);
/// After TERM.
const TERM_LIMIT: Duration = Duration::from_secs(3);
/// After KILL; longer only when the kernel itself hangs.
const KILL_LIMIT: Duration = Duration::from_secs(5);
/// For the primary to answer, and then to take away what it has made.
const PRIMARY_LIMIT: Duration = Duration::from_secs(5);
/// The same when nothing is to be waited for.
const PRIMARY_LIMIT_NOW: Duration = Duration::from_millis(500);
/// Between two lines about what is waited for.
const PROGRESS: Duration = Duration::from_secs(5);
/// For a lock that its last holder is about to leave.
const LOCK_LIMIT: Duration = Duration::from_secs(2);

/// How nginx is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// QUIT: connections are finished, within `worker_shutdown_timeout`.
    Graceful,
    /// TERM, then KILL.
    Now,
}

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ended {
    /// nginx processes that lived.
    pub nginx: usize,
    /// Those that had to be killed.
    pub nginx_killed: usize,
    /// Whether the primary lived.
    pub primary: bool,
    /// Whether it had to be killed.
    pub primary_killed: bool,
    /// Files and directories taken away by us, not by the primary itself.
    pub removed: usize,
}

/// Living processes of nginx: those that hold the members' file, those that have the protocol region mapped, and the
/// master.
pub fn nginx_processes(record: &InstanceRecord) -> Vec<ProcessId> {
    let paths = InstancePaths::new(&record.runtime_dir);
    let mut found = processes::holders(&paths.nginx_members());
    found.extend(processes::mappers(&record.region_path));
    found.extend(record.nginx_master.filter(ProcessId::is_alive));
    found.sort_by_key(|id| id.pid);
    found.dedup();
    found.retain(|id| Some(*id) != record.primary);
    found
}

/// Ends all of it and takes everything away. Given the lock when the caller holds it.
pub fn run(
    record: &InstanceRecord,
    manner: Manner,
    lock: Option<InstanceLock>,
    progress: &mut dyn FnMut(&str),
) -> Result<Ended, Failure> {
    let mut ended = Ended::default();
    end_nginx(record, manner, &mut ended, progress)?;
    end_primary(record, manner, &mut ended)?;
    // With the lock in hand, so that no start comes in between.
    let paths = InstancePaths::new(&record.runtime_dir);
    let _lock = match lock {
        Some(lock) => Some(lock),
        None => lock_soon(&paths)?,
    };
    let remains = Remains::of(record);
    ended.removed = remains.count();
    remains.remove()?;
    remains::unlink(&record.instance);
    Ok(ended)
}

/// `None` when the directory is gone: the primary, or another stop, has taken it away.
fn lock_soon(paths: &InstancePaths) -> Result<Option<InstanceLock>, Failure> {
    let deadline = Instant::now() + LOCK_LIMIT;
    loop {
        match InstanceLock::acquire(paths) {
            Ok(lock) => return Ok(Some(lock)),
            Err(LockError::Io { .. }) if !paths.dir.exists() => return Ok(None),
            Err(LockError::Held { .. }) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => {
                return Err(Failure::failed(format!("cannot take the instance's files away: {error}")));
            }
        }
    }
}

fn end_nginx(
    record: &InstanceRecord,
    manner: Manner,
    ended: &mut Ended,
    progress: &mut dyn FnMut(&str),
) -> Result<(), Failure> {
    let mut living = open(&nginx_processes(record));
    ended.nginx = living.len();
    if manner == Manner::Graceful && !living.is_empty() {
        signal_master_or_all(record, &living, Signal::QUIT);
        let limit = Duration::from_millis(record.worker_shutdown_timeout_ms) + QUIT_MARGIN;
        living = wait_for_connections(living, limit, progress);
        if !living.is_empty() {
            progress(&format!(
                "{} did not end within {} s of QUIT, sending TERM",
                counted(living.len(), "nginx process", "nginx processes"),
                limit.as_secs()
            ));
        }
    }
    if !living.is_empty() {
        signal_master_or_all(record, &living, Signal::TERM);
        processes::wait_all(living, TERM_LIMIT);
    }
    // Looked for anew each time: a master that was alive until now may have forked.
    let deadline = Instant::now() + KILL_LIMIT;
    loop {
        let left = open(&nginx_processes(record));
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(Failure::failed(format!(
                "{} cannot be ended (pid {}): the kernel holds it, see /proc/{}/stack",
                counted(left.len(), "nginx process", "nginx processes"),
                left[0].id,
                left[0].id
            )));
        }
        ended.nginx = ended.nginx.max(left.len());
        ended.nginx_killed += left.len();
        // The master first: it respawns what dies.
        for process in left.iter().filter(|process| Some(process.id) == record.nginx_master) {
            process.signal(Signal::KILL);
        }
        for process in &left {
            process.signal(Signal::KILL);
        }
        processes::wait_all(left, Duration::from_secs(1));
    }
}

/// nginx's master passes a signal on, and so does one that a binary upgrade (USR2) has put beside it; without the
/// master of the record each process is told.
fn signal_master_or_all(record: &InstanceRecord, living: &[Process], signal: Signal) {
    match living.iter().find(|process| Some(process.id) == record.nginx_master) {
        Some(master) => {
            master.signal(signal);
            living
                .iter()
                .filter(|other| other.id != master.id && processes::is_nginx_master(other.id.pid))
                .for_each(|other| other.signal(signal));
        }
        None => living.iter().for_each(|process| process.signal(signal)),
    }
}

fn wait_for_connections(
    mut living: Vec<Process>,
    limit: Duration,
    progress: &mut dyn FnMut(&str),
) -> Vec<Process> {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        living = processes::wait_all(living, left.min(PROGRESS));
        if living.is_empty() || left <= PROGRESS {
            return living;
        }
        progress(&format!(
            "waiting for {} to finish connections, {} s at most (--now does not wait)",
            counted(living.len(), "nginx process", "nginx processes"),
            deadline.saturating_duration_since(Instant::now()).as_secs()
        ));
    }
}

fn end_primary(record: &InstanceRecord, manner: Manner, ended: &mut Ended) -> Result<(), Failure> {
    let Some(primary) = record.primary.and_then(Process::open) else { return Ok(()) };
    ended.primary = true;
    let limit = if manner == Manner::Now { PRIMARY_LIMIT_NOW } else { PRIMARY_LIMIT };
    let socket = InstancePaths::new(&record.runtime_dir).control_socket();
    let asked = Connection::connect(&socket, limit)
        .and_then(|mut connection| connection.call(&Request::Shutdown { force: true }, limit));
    if !matches!(asked, Ok(Reply::Ok)) {
        primary.signal(Signal::TERM);
    }
    if primary.ended_within(limit) {
        return Ok(());
    }
    ended.primary_killed = true;
    primary.signal(Signal::KILL);
    if primary.ended_within(KILL_LIMIT) {
        return Ok(());
    }
    Err(Failure::failed(format!("the primary cannot be ended (pid {0}), see /proc/{0}/stack", primary.id)))
}

fn open(ids: &[ProcessId]) -> Vec<Process> {
    ids.iter().filter_map(|id| Process::open(*id)).collect()
}

/// `1 worker`, `2 workers`.
pub fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
