//! Files that an instance leaves when its processes were killed, and taking them away.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ff_control::{InstanceLock, InstancePaths, InstanceRecord, RUNTIME_ROOT};

use crate::exit::Failure;

/// Where DPDK keeps its runtime files when it runs as root.
const DPDK_RUNTIME: &str = "/var/run/dpdk";

/// What an instance may have on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remains {
    /// Files one by one.
    pub files: Vec<PathBuf>,
    /// Directories with all that is in them.
    pub directories: Vec<PathBuf>,
    /// The runtime directory. The configuration may name one that holds other files as well: of it only our own are
    /// taken, and then the directory if it is empty.
    pub runtime_dir: Option<PathBuf>,
}

impl Remains {
    /// What is there now of `record`'s instance. DPDK's hugepage files are `<prefix>map_<number>`; nothing else that
    /// begins with the prefix is touched, because another instance's prefix may begin the same way.
    pub fn of(record: &InstanceRecord) -> Self {
        let mut files = Vec::new();
        let pages = format!("{}map_", record.file_prefix);
        for entry in fs::read_dir(&record.hugepage_dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(&pages));
            if number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())) {
                files.push(entry.path());
            }
        }
        files.sort();
        let paths = InstancePaths::new(&record.runtime_dir);
        // The lock goes last, with its directory: whoever holds it may still be taking things away.
        let own = [
            paths.control_socket(),
            paths.primary_log(),
            paths.nginx_log(),
            paths.nginx_members(),
            paths.record(),
        ];
        files.extend([record.region_path.clone()].into_iter().chain(own).filter(|path| exists(path)));
        files.extend(record.nginx_pid_file.iter().filter(|path| is_stale(path, record)).cloned());
        let dpdk = Path::new(DPDK_RUNTIME).join(&record.file_prefix);
        let present = |path: &PathBuf| exists(path);
        Self {
            files,
            directories: Some(dpdk).filter(present).into_iter().collect(),
            runtime_dir: Some(record.runtime_dir.clone()).filter(present),
        }
    }

    /// Leaves the runtime directory itself, and the lock in it, where they are when it is `directory`.
    pub fn keeping(mut self, directory: &Path) -> Self {
        self.runtime_dir = self.runtime_dir.filter(|own| own != directory);
        self
    }

    /// Files and directories in all.
    pub fn count(&self) -> usize {
        self.files.len() + self.directories.len() + usize::from(self.runtime_dir.is_some())
    }

    /// Takes everything away; what cannot be is named.
    pub fn remove(&self) -> Result<(), Failure> {
        let mut first: Option<(PathBuf, io::Error)> = None;
        let mut note = |path: &Path, result: io::Result<()>| match result {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                first.get_or_insert_with(|| (path.to_owned(), error));
            }
            _ => {}
        };
        for file in &self.files {
            note(file, fs::remove_file(file));
        }
        for directory in &self.directories {
            note(directory, fs::remove_dir_all(directory));
        }
        if let Some(directory) = &self.runtime_dir {
            note(directory, remove_runtime_dir(directory));
        }
        match first {
            None => Ok(()),
            Some((path, error)) => Err(Failure::failed(format!("cannot remove {}: {error}", path.display()))),
        }
    }
}

/// Takes a runtime directory away that has no record, and so nothing that was started from it.
pub fn remove_empty(name: &str, paths: &InstancePaths) -> Result<(), Failure> {
    let failed =
        |error: io::Error| Failure::failed(format!("cannot remove {}: {error}", paths.dir.display()));
    let directory = paths.dir.canonicalize().map_err(failed)?;
    let locked = InstanceLock::acquire(paths).map_err(|error| Failure::failed(error.to_string()))?;
    remove_runtime_dir(&directory).map_err(failed)?;
    unlink(name);
    drop(locked);
    Ok(())
}

/// Takes away the lock, what a start that was killed had half written, and the directory. One that holds files of
/// somebody else stays: `runtime_dir = /etc` must not cost anybody their /etc.
pub fn remove_runtime_dir(directory: &Path) -> io::Result<()> {
    let paths = InstancePaths::new(directory);
    for file in [paths.record_half_written(), paths.lock()] {
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    match fs::remove_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            eprintln!("ffctl: {} stays: it has files in it that are not the instance's", directory.display());
            Ok(())
        }
        done => done,
    }
}

/// Whether nginx's pid file still names the master of this record, which is dead.
fn is_stale(path: &Path, record: &InstanceRecord) -> bool {
    let written = fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u32>().ok());
    written.is_some()
        && written == record.nginx_master.filter(|master| !master.is_alive()).map(|master| master.pid)
}

/// Also for a socket, and for a link to nowhere.
fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Makes `/run/ffstack/<name>` a link to the runtime directory when the configuration has put that elsewhere, so that
/// a name is enough to find an instance.
pub fn link(name: &str, runtime_dir: &Path) -> Result<(), Failure> {
    let link = InstancePaths::of_instance(name).dir;
    if link == runtime_dir {
        return Ok(());
    }
    let failed = |error: io::Error| Failure::failed(format!("cannot link {}: {error}", link.display()));
    fs::create_dir_all(RUNTIME_ROOT).map_err(failed)?;
    unlink(name);
    std::os::unix::fs::symlink(runtime_dir, &link).map_err(failed)
}

/// Takes the link away again, and the root directory when it was the last instance.
pub fn unlink(name: &str) {
    let link = InstancePaths::of_instance(name).dir;
    if link.is_symlink() {
        let _ = fs::remove_file(link);
    }
    // Fails when another instance is there, and so it should.
    let _ = fs::remove_dir(RUNTIME_ROOT);
}

#[cfg(test)]
mod tests;
