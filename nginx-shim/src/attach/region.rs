//! The shared region of the instance, mapped for the life of the process.

use std::fs::OpenOptions;

use ff_control::WorkerPlan;
use ff_flowmap::{Region, RegionError};
use ff_handover::Instance;
use memmap2::{MmapMut, MmapOptions};

/// Why the region cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// No file, or no right to it.
    #[error("cannot open the shared region {path}: {error}")]
    Open {
        /// Its path.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// It cannot be mapped.
    #[error("cannot map {bytes} bytes of the shared region {path}: {error}")]
    Map {
        /// Its path.
        path: String,
        /// The length that the primary told.
        bytes: u64,
        /// Why.
        error: std::io::Error,
    },
    /// It is not memory for a region.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// Not a region of ours.
    #[error(transparent)]
    Instance(#[from] ff_handover::InstanceError),
}

/// Maps and opens the region that the plan names.
pub fn open(plan: &WorkerPlan) -> Result<Instance<'static>, MapError> {
    let path = || plan.region_path.clone();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&plan.region_path)
        .map_err(|error| MapError::Open { path: path(), error })?;
    // SAFETY: the file is the instance's own, made by the primary for all its processes, which reach it through
    // atomic words only; nobody truncates it while one of them lives.
    let map = unsafe { MmapOptions::new().len(plan.region_bytes as usize).map_mut(&file) }
        .map_err(|error| MapError::Map { path: path(), bytes: plan.region_bytes, error })?;
    // Mapped until the process ends, whatever happens to the stack.
    let map: &'static mut MmapMut = Box::leak(Box::new(map));
    // SAFETY: the mapping is never undone, is readable and writable, and no plain reference to it exists beside
    // the leaked owner, which nobody uses.
    let region = unsafe { Region::from_raw(map.as_mut_ptr(), map.len()) }?;
    Ok(Instance::open(region)?)
}
