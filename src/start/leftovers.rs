//! What an instance of the same name has left: alive, it is a reason to refuse; dead, it is taken away.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use ff_control::{InstanceLock, InstancePaths, InstanceRecord, LockError, ProcessId};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

use crate::exit::{ALREADY_RUNNING, Failure};
use crate::remains::Remains;
use crate::teardown;

/// Refuses when the name belongs to an instance whose runtime directory is another one.
pub fn refuse_elsewhere(record: &InstanceRecord) -> Result<(), Failure> {
    let named = InstancePaths::of_instance(&record.instance);
    if named.dir == record.runtime_dir || !named.dir.exists() {
        return Ok(());
    }
    let same = named.dir.canonicalize().ok() == record.runtime_dir.canonicalize().ok();
    match (same, InstanceLock::acquire(&named)) {
        (false, Err(LockError::Held { pid })) => Err(super::already_running(&record.instance, pid)),
        _ => Ok(()),
    }
}

/// A nginx that was killed leaves the sockets in the file system that it listened on, and the next one cannot bind them.
/// One that refuses a connection has nobody behind it.
pub fn remove_stale_sockets(paths: &[PathBuf]) -> Result<(), Failure> {
    for path in paths {
        let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
        if !is_socket
            || !UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        {
            continue;
        }
        fs::remove_file(path).map_err(|error| {
            Failure::failed(format!(
                "cannot remove {}, on which nobody listens any more: {error}",
                path.display()
            ))
        })?;
        eprintln!("ffctl: removed {}, on which nobody listened any more", path.display());
    }
    Ok(())
}

/// Takes away what a crashed instance has left, and says so in one line. The caller holds the lock.
pub fn clear(record: &InstanceRecord) -> Result<(), Failure> {
    let paths = InstancePaths::new(&record.runtime_dir);
    let before = match InstanceRecord::load(&paths) {
        Ok(before) => before,
        Err(error) => {
            eprintln!("ffctl: {error}; it is replaced");
            None
        }
    };
    refuse_prefix_in_use(record)?;
    for known in before.iter().chain([record]) {
        if let Some(id) = living(known).first() {
            return Err(Failure {
                code: ALREADY_RUNNING,
                sentence: format!(
                    "instance `{0}` still has living processes (pid {id}) though its primary is dead: \
                     ffctl stop -i {0}, then start it again",
                    record.instance
                ),
            });
        }
    }
    let mut removed = 0;
    for known in before.iter().chain([record]) {
        let remains = Remains::of(known).keeping(&record.runtime_dir);
        remains.remove()?;
        removed += remains.count();
    }
    if removed > 0 {
        eprintln!(
            "ffctl: instance `{}` had crashed: {} it had left removed",
            record.instance,
            teardown::counted(removed, "file", "files")
        );
    }
    Ok(())
}

fn living(record: &InstanceRecord) -> Vec<ProcessId> {
    let mut living = teardown::nginx_processes(record);
    living.extend(record.primary.filter(ProcessId::is_alive));
    living
}

/// Two instances with one DPDK file prefix would take each other's memory.
fn refuse_prefix_in_use(record: &InstanceRecord) -> Result<(), Failure> {
    let config = Path::new("/var/run/dpdk").join(&record.file_prefix).join("config");
    match lock_holder(&config) {
        Some(pid) => Err(Failure {
            code: ALREADY_RUNNING,
            sentence: format!(
                "the DPDK file prefix `{}` is in use by process {pid}: choose another with file_prefix in [dpdk]",
                record.file_prefix
            ),
        }),
        None => Ok(()),
    }
}

/// Who has a write lock (`fcntl`) on the file, as a DPDK primary has on its configuration.
fn lock_holder(path: &Path) -> Option<i32> {
    let file = File::options().read(true).write(true).open(path).ok()?;
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(&file, FcntlArg::F_GETLK(&mut lock)).ok()?;
    (i32::from(lock.l_type) != libc::F_UNLCK).then_some(lock.l_pid)
}

#[cfg(test)]
mod tests;
