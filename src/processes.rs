//! Processes of an instance: finding them by what they hold, signalling them without the risk of a reused pid, and
//! waiting for their end.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use ff_control::{ProcessId, ProcessStat};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A living process, held by its pidfd.
#[derive(Debug)]
pub struct Process {
    /// Which.
    pub id: ProcessId,
    fd: OwnedFd,
}

impl Process {
    /// Takes hold of `id`; `None` when that very process lives no more.
    pub fn open(id: ProcessId) -> Option<Self> {
        let pid = Pid::from_raw(i32::try_from(id.pid).ok()?)?;
        let fd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // Only now: if the process with this pid is the expected one after the descriptor was opened, then the
        // descriptor is of it, because it was there before.
        id.is_alive().then_some(Self { id, fd })
    }

    /// Sends a signal; a process that has ended meanwhile is not an error.
    pub fn signal(&self, signal: Signal) {
        // ESRCH: it has ended. EPERM cannot be: root signals.
        let _ = pidfd_send_signal(&self.fd, signal);
    }

    /// Waits for its end, at most `limit`; tells whether it has ended.
    pub fn ended_within(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&timeout)) {
                Ok(0) => return false,
                Ok(_) => return true,
                Err(Errno::INTR) if !left.is_zero() => {}
                Err(_) => return !self.id.is_alive(),
            }
        }
    }
}

/// Waits for the end of all, at most `limit`; those that live on are given back.
pub fn wait_all(processes: Vec<Process>, limit: Duration) -> Vec<Process> {
    let deadline = Instant::now() + limit;
    processes
        .into_iter()
        .filter(|process| !process.ended_within(deadline.saturating_duration_since(Instant::now())))
        .collect()
}

/// Parent and name of a living process.
pub fn stat(pid: u32) -> Option<ProcessStat> {
    let line = fs::read(format!("/proc/{pid}/stat")).ok()?;
    ProcessStat::parse(&String::from_utf8_lossy(&line)).filter(|stat| !stat.is_dead())
}

/// Whether the process calls itself a master of nginx. A worker does so, too, for an instant after its fork.
pub fn is_nginx_master(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|title| title.starts_with(b"nginx: master process"))
}

/// Living processes that hold the file at `path` open, this one left out.
pub fn holders(path: &Path) -> Vec<ProcessId> {
    let Ok(wanted) = fs::metadata(path) else { return Vec::new() };
    others()
        .filter(|pid| {
            let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
            descriptors.flatten().any(|descriptor| {
                // The link's text first: following it costs more.
                fs::read_link(descriptor.path()).is_ok_and(|target| target.file_name() == path.file_name())
                    && fs::metadata(descriptor.path())
                        .is_ok_and(|file| (file.dev(), file.ino()) == (wanted.dev(), wanted.ino()))
            })
        })
        .filter_map(ProcessId::of)
        .collect()
}

/// Living processes that have the file at `path` mapped, this one left out; also when it was unlinked since.
pub fn mappers(path: &Path) -> Vec<ProcessId> {
    let wanted = path.as_os_str().as_encoded_bytes();
    others()
        .filter(|pid| {
            fs::read(format!("/proc/{pid}/maps")).is_ok_and(|maps| {
                // The path is the last field of its line.
                maps.split(|&byte| byte == b'\n').any(|line| {
                    let line = line.strip_suffix(b" (deleted)").unwrap_or(line);
                    line.strip_suffix(wanted)
                        .is_some_and(|rest| rest.last().is_some_and(u8::is_ascii_whitespace))
                })
            })
        })
        .filter_map(ProcessId::of)
        .collect()
}

fn others() -> impl Iterator<Item = u32> {
    let own = std::process::id();
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(move |&pid| pid != own)
}

#[cfg(test)]
mod tests;
