//! The instance's lock: held from before the primary starts until it has ended, whoever holds it meanwhile.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use crate::InstancePaths;

/// Why the lock cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody has it.
    #[error("the instance is in use by process {pid}")]
    Held {
        /// The holder, as it has written itself; 0 when it has not yet.
        pid: u32,
    },
    /// Input or output.
    #[error("{}: {error}", path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
}

/// The lock (`flock` on an open file description): a child that inherits the descriptor holds it too, and it is free
/// when the last of them has closed it, however it ended.
#[derive(Debug)]
pub struct InstanceLock {
    file: File,
}

impl InstanceLock {
    /// Takes the lock below `paths`, whose directory is there, and writes this process's pid into it.
    ///
    /// # Errors
    /// [`LockError`].
    pub fn acquire(paths: &InstancePaths) -> Result<Self, LockError> {
        let path = paths.lock();
        let failed = |error| LockError::Io { path: path.clone(), error };
        loop {
            let mut file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)
                .map_err(failed)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let mut text = String::new();
                    let _ = file.read_to_string(&mut text);
                    return Err(LockError::Held { pid: text.trim().parse().unwrap_or(0) });
                }
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            // The holder before has removed the file between the opening and the locking: that lock is worth nothing.
            let held = file.metadata().map_err(failed)?;
            if fs::metadata(&path).is_ok_and(|now| (now.dev(), now.ino()) == (held.dev(), held.ino())) {
                let lock = Self { file };
                lock.write_holder(std::process::id()).map_err(failed)?;
                return Ok(lock);
            }
        }
    }

    /// Takes over a descriptor of a lock that is held, from the process that started this one.
    #[must_use]
    pub fn inherited(file: File) -> Self {
        Self { file }
    }

    /// Says who holds it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn write_holder(&self, pid: u32) -> io::Result<()> {
        let mut file = &self.file;
        file.rewind()?;
        file.set_len(0)?;
        writeln!(file, "{pid}")
    }
}

impl AsFd for InstanceLock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_whose_name_is_known() {
        let dir = std::env::temp_dir().join(format!("ff-lock-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let paths = InstancePaths::new(&dir);
        let lock = InstanceLock::acquire(&paths).unwrap();
        let own = std::process::id();
        assert!(matches!(InstanceLock::acquire(&paths), Err(LockError::Held { pid }) if pid == own));
        lock.write_holder(77).unwrap();
        assert!(matches!(InstanceLock::acquire(&paths), Err(LockError::Held { pid: 77 })));
        // A duplicate, as a child has it, keeps it held.
        let child = InstanceLock::inherited(lock.file.try_clone().unwrap());
        drop(lock);
        assert!(matches!(InstanceLock::acquire(&paths), Err(LockError::Held { .. })));
        drop(child);
        let lock = InstanceLock::acquire(&paths).unwrap();
        // The file is gone: whoever comes next gets a new one, not this one's ghost.
        fs::remove_file(paths.lock()).unwrap();
        let next = InstanceLock::acquire(&paths).unwrap();
        drop((lock, next));
        fs::remove_dir_all(dir).unwrap();
    }
}
