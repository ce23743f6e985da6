//! The protocol region: a file on hugetlbfs that everybody maps.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use ff_flowmap::{Region, RegionError};
use ff_handover::{Instance, InstanceError, InstanceParams, InstanceSeed};
use memmap2::MmapOptions;

/// Why there is no region.
#[derive(Debug, thiserror::Error)]
pub enum RegionFileError {
    /// The file.
    #[error("cannot {step} the shared region {}: {error}", path.display())]
    File {
        /// What was tried.
        step: &'static str,
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
    /// Its memory.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// Its contents.
    #[error(transparent)]
    Instance(#[from] InstanceError),
}

/// The region, mapped for the rest of this process's life.
#[derive(Debug)]
pub struct RegionFile {
    path: PathBuf,
    len_bytes: u64,
    /// What is in it.
    pub instance: Instance<'static>,
}

impl RegionFile {
    /// Makes the file at `path`, long enough for `params` in whole pages, and fills it. One that is there is of a dead
    /// primary, since the caller holds the instance's lock: it is replaced.
    ///
    /// # Errors
    /// [`RegionFileError`]; the file is gone again then.
    pub fn create(
        path: &Path,
        bytes: u64,
        page_bytes: u64,
        params: InstanceParams,
        seed: &InstanceSeed<'_>,
    ) -> Result<Self, RegionFileError> {
        let len_bytes = bytes.next_multiple_of(page_bytes);
        let made = Self::map(path, len_bytes).and_then(|region| Ok(Instance::create(region, params, seed)?));
        match made {
            Ok(instance) => Ok(Self { path: path.to_owned(), len_bytes, instance }),
            Err(error) => {
                let _ = fs::remove_file(path);
                Err(error)
            }
        }
    }

    fn map(path: &Path, len_bytes: u64) -> Result<Region<'static>, RegionFileError> {
        let failed = |step| move |error| RegionFileError::File { step, path: path.to_owned(), error };
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("replace")(error)),
            _ => {}
        }
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(failed("create"))?;
        file.set_len(len_bytes).map_err(failed("size"))?;
        let map = MmapOptions::new().map_raw(&file).map_err(failed("map"))?;
        let (start, len) = (map.as_mut_ptr(), map.len());
        // Never unmapped: the end of the process does that, and until then everything here refers to it.
        std::mem::forget(map);
        // SAFETY: `len` bytes from `start` are a fresh shared mapping, readable and writable, which stays for the rest
        // of the process (`forget`). The file keeps its length: it is made here and only ever unlinked. hugetlbfs
        // reserves all pages at the mapping, so that no access can fail later. All processes access it through
        // ff-flowmap's atomic words.
        Ok(unsafe { Region::from_raw(start, len) }?)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its length.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Removes the file; whoever has it mapped keeps the memory.
    pub fn unlink(&self) {
        if let Err(error) = fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("cannot remove {}: {error}: remove it by hand", self.path.display());
        }
    }
}
