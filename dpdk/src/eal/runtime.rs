//! The files that DPDK keeps of an instance, and their removal.
//!
//! DPDK never removes the files of a process that was killed: each start of a worker would leave some
//! behind in `/run/dpdk/<prefix>`, and the hugepages of a dead instance stay allocated as long as their
//! files exist.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use super::args::is_file_prefix;

/// Why files could not be removed.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// Not a prefix of ours.
    #[error("{0:?} is no name of an instance")]
    Prefix(String),
    /// Somebody still uses them.
    #[error("the DPDK primary of {0} is running: stop it first")]
    Alive(String),
    /// The kernel refused.
    #[error("cannot remove {}: {error}", path.display())]
    Remove {
        /// What should have gone.
        path: PathBuf,
        /// The kernel's reason.
        error: io::Error,
    },
}

/// Directory with DPDK's files of an instance.
pub fn directory(prefix: &str) -> PathBuf {
    let base = std::env::var_os("RUNTIME_DIRECTORY").map_or_else(|| PathBuf::from("/var/run"), PathBuf::from);
    base.join("dpdk").join(prefix)
}

/// Whether a primary of this instance is running: it holds a lock on its configuration file.
///
/// Not to be asked by the primary itself: a process does not see its own lock, and closing the file would
/// drop it.
pub fn is_primary_alive(prefix: &str) -> bool {
    let Ok(file) = File::options().read(true).write(true).open(directory(prefix).join("config")) else {
        return false;
    };
    // SAFETY: an all-zero flock is valid; l_whence 0 is SEEK_SET.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as _;
    // SAFETY: F_GETLK reads and writes a flock that outlives the call.
    let answered = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock) } == 0;
    answered && lock.l_type != libc::F_UNLCK as libc::c_short
}

/// Removes what the dead secondary `pid` left in the instance's directory; returns how many files.
///
/// # Errors
/// When a file cannot be removed.
pub fn sweep_dead(prefix: &str, pid: u32) -> Result<usize, RuntimeError> {
    if !is_file_prefix(prefix) {
        return Err(RuntimeError::Prefix(prefix.to_owned()));
    }
    remove_where(&directory(prefix), |name| belongs_to(name, pid))
}

/// Whether DPDK made the file for the secondary `pid`: `mp_socket_<pid>_<number>` and
/// `fbarray_<name>_<pid>_<number>`.
fn belongs_to(name: &str, pid: u32) -> bool {
    let Some((rest, _number)) = name.rsplit_once('_') else { return false };
    let Some((kind, owner)) = rest.rsplit_once('_') else { return false };
    (kind == "mp_socket" || kind.starts_with("fbarray_")) && owner == pid.to_string()
}

/// Removes every file of an instance whose processes have all ended, its hugepages included.
///
/// # Errors
/// When its primary is alive, or a file cannot be removed.
pub fn remove_runtime(prefix: &str) -> Result<(), RuntimeError> {
    if !is_file_prefix(prefix) {
        return Err(RuntimeError::Prefix(prefix.to_owned()));
    }
    if is_primary_alive(prefix) {
        return Err(RuntimeError::Alive(prefix.to_owned()));
    }
    let map = format!("{prefix}map_");
    for mount in hugetlbfs_mounts() {
        remove_where(&mount, |name| {
            name.strip_prefix(&map).is_some_and(|rest| {
                rest.bytes().all(|b| b.is_ascii_digit() || b == b'-' || b == b'_' || b == b'k')
            })
        })?;
    }
    let path = directory(prefix);
    match fs::remove_dir_all(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(RuntimeError::Remove { path, error }),
        _ => Ok(()),
    }
}

fn remove_where(directory: &Path, is_ours: impl Fn(&str) -> bool) -> Result<usize, RuntimeError> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(RuntimeError::Remove { path: directory.to_owned(), error }),
    };
    let mut removed = 0;
    for entry in entries.flatten() {
        if !entry.file_name().to_str().is_some_and(&is_ours) {
            continue;
        }
        match fs::remove_file(entry.path()) {
            Ok(()) => removed += 1,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(RuntimeError::Remove { path: entry.path(), error }),
        }
    }
    Ok(removed)
}

/// Where hugetlbfs is mounted.
pub fn hugetlbfs_mounts() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    parse_mounts(&mounts)
}

fn parse_mounts(mounts: &str) -> Vec<PathBuf> {
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            let (_, path, kind) = (fields.next()?, fields.next()?, fields.next()?);
            (kind == "hugetlbfs").then(|| PathBuf::from(path))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_secondary() {
        assert!(belongs_to("mp_socket_4711_1f2e3d", 4711));
        assert!(belongs_to("fbarray_memseg-2048k-0-0_4711_4711", 4711));
        assert!(!belongs_to("mp_socket", 4711));
        assert!(!belongs_to("mp_socket_47110_1f2e3d", 4711));
        assert!(!belongs_to("fbarray_memzone", 4711));
        assert!(!belongs_to("config", 4711));
        assert!(!belongs_to("hugepage_info", 4711));
    }

    #[test]
    fn mounts() {
        let text = "proc /proc proc rw 0 0\nnodev /dev/hugepages hugetlbfs rw,pagesize=2M 0 0\n";
        assert_eq!(parse_mounts(text), [PathBuf::from("/dev/hugepages")]);
    }

    #[test]
    fn a_prefix_that_leaves_the_directory_is_refused() {
        assert!(matches!(remove_runtime("../etc"), Err(RuntimeError::Prefix(_))));
        assert!(matches!(sweep_dead("", 1), Err(RuntimeError::Prefix(_))));
    }
}
