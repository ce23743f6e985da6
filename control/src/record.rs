//! The instance's record on disk, and which process is which: what `stop` and `status` go by when the primary, the
//! nginx master or any worker is dead.

use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The directory that holds one runtime directory per instance.
pub const RUNTIME_ROOT: &str = "/run/ffstack";

/// Where an instance keeps its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstancePaths {
    /// The runtime directory.
    pub dir: PathBuf,
}

impl InstancePaths {
    /// Paths below `dir`.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Paths of the instance `name`: `/run/ffstack/<name>`, which is a symbolic link when the configuration has put
    /// the runtime directory elsewhere.
    #[must_use]
    pub fn of_instance(name: &str) -> Self {
        Self::new(Path::new(RUNTIME_ROOT).join(name))
    }

    /// The control socket.
    #[must_use]
    pub fn control_socket(&self) -> PathBuf {
        self.dir.join("control.sock")
    }

    /// Locked (`flock`) from before the primary starts until it has ended; holds the pid of its holder.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.dir.join("lock")
    }

    /// The record.
    #[must_use]
    pub fn record(&self) -> PathBuf {
        self.dir.join("instance.json")
    }

    /// The record while it is being written.
    #[must_use]
    pub fn record_half_written(&self) -> PathBuf {
        self.dir.join("instance.json.new")
    }

    /// The primary's log.
    #[must_use]
    pub fn primary_log(&self) -> PathBuf {
        self.dir.join("primary.log")
    }

    /// What nginx says before it has opened its own error log.
    #[must_use]
    pub fn nginx_log(&self) -> PathBuf {
        self.dir.join("nginx.log")
    }

    /// A file that nginx's master and all that it forks hold open: so its processes can be told from all others,
    /// whatever their pids and whoever of them is still alive.
    #[must_use]
    pub fn nginx_members(&self) -> PathBuf {
        self.dir.join("nginx.members")
    }
}

/// The protocol region's file of instance `name`.
#[must_use]
pub fn region_path(hugepage_dir: &Path, name: &str) -> PathBuf {
    hugepage_dir.join(format!("ffstack_{name}"))
}

/// One process, told apart from a later one with the same pid by its start time.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, PartialEq, Eq, Hash)]
pub struct ProcessId {
    /// Pid.
    pub pid: u32,
    /// Start time in clock ticks since boot (`/proc/PID/stat`, field 22).
    pub start_ticks: u64,
}

impl ProcessId {
    /// The process that has `pid` now; `None` when there is none, or only a zombie.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let stat = ProcessStat::parse(&String::from_utf8_lossy(&stat))?;
        (!stat.is_dead()).then_some(Self { pid, start_ticks: stat.start_ticks })
    }

    /// Whether this very process lives; a zombie does not.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        Self::of(self.pid) == Some(*self)
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.pid)
    }
}

/// What is needed of `/proc/PID/stat`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessStat {
    /// Name of the program, cut to 15 bytes.
    pub name: String,
    /// State letter: `R`, `S`, `D`, `T`, `Z`, `X` ...
    pub state: char,
    /// Pid of the parent.
    pub parent: u32,
    /// Start time in clock ticks since boot.
    pub start_ticks: u64,
}

impl ProcessStat {
    /// Reads the line; `None` when it is not one.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        // The name may hold blanks and parentheses: it ends at the last one.
        let open = line.find('(')?;
        let close = line.rfind(')')?;
        let name = line.get(open + 1..close)?.to_owned();
        let mut fields = line.get(close + 1..)?.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        // State is field 3 and parent field 4; the start time is field 22.
        let start_ticks = fields.nth(17)?.parse().ok()?;
        Some(Self { name, state, parent, start_ticks })
    }

    /// Whether it has ended and only waits to be reaped.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// What an instance has made and started; written before the thing is made, so that whatever dies, the rest can be
/// found and taken away.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct InstanceRecord {
    /// Instance name.
    pub instance: String,
    /// The configuration it was started with, as an absolute path.
    pub config: PathBuf,
    /// The runtime directory.
    pub runtime_dir: PathBuf,
    /// DPDK file prefix: `/run/dpdk/<prefix>` and `<hugepage_dir>/<prefix>map_*`.
    pub file_prefix: String,
    /// Where hugetlbfs is mounted.
    pub hugepage_dir: PathBuf,
    /// The protocol region's file.
    pub region_path: PathBuf,
    /// `tap:ff0` and the like.
    pub device: String,
    /// The primary, once it was started.
    pub primary: Option<ProcessId>,
    /// The nginx master, once it was started.
    pub nginx_master: Option<ProcessId>,
    /// nginx's own pid file; a master that was killed leaves it.
    #[serde(default)]
    pub nginx_pid_file: Option<PathBuf>,
    /// Workers of a generation.
    pub workers: u16,
    /// How long nginx's workers may take to end their connections, in milliseconds (`worker_shutdown_timeout`).
    pub worker_shutdown_timeout_ms: u64,
    /// Seconds since 1970 at the start.
    pub started_unix_s: u64,
}

/// Why a record cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file says something else.
    #[error("{} is no record of an instance: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: serde_json::Error,
    },
    /// Input or output.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
}

impl InstanceRecord {
    /// Reads the record below `paths`; `None` when there is none.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn load(paths: &InstancePaths) -> Result<Option<Self>, RecordError> {
        let path = paths.record();
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|reason| RecordError::Malformed { path, reason }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(RecordError::Io { path, error }),
        }
    }

    /// Writes the record, whole or not at all.
    ///
    /// # Errors
    /// [`RecordError::Io`].
    pub fn store(&self, paths: &InstancePaths) -> Result<(), RecordError> {
        let path = paths.record();
        let fresh = paths.record_half_written();
        let write = || -> io::Result<()> {
            let mut file = fs::File::create(&fresh)?;
            serde_json::to_writer_pretty(&mut file, self)?;
            file.write_all(b"\n")?;
            fs::rename(&fresh, &path)
        };
        write().map_err(|error| RecordError::Io { path, error })
    }
}

#[cfg(test)]
mod tests;
