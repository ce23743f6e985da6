//! Reading the protocol region without a primary. The only unsafe code of ffctl is here.

use std::fs::File;
use std::path::Path;

use ff_flowmap::Region;
use ff_handover::Instance;
use memmap2::MmapOptions;
use nix::time::{ClockId, clock_gettime};

use crate::exit::Failure;

/// Calls `look` with the instance in the region at `path` and the time of CLOCK_MONOTONIC in microseconds; does
/// nothing when the file is not there.
pub fn read(path: &Path, look: impl FnOnce(Instance<'_>, u64)) -> Result<(), Failure> {
    let failed = |error: String| Failure::failed(format!("the shared region {}: {error}", path.display()));
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error.to_string())),
    };
    let map = MmapOptions::new().map_raw_read_only(&file).map_err(|error| failed(error.to_string()))?;
    // SAFETY: the `map.len()` bytes at `map.as_mut_ptr()` are mapped readable until `map` is dropped at the end of
    // this function, after `instance`. Only readers are opened on them here (`Instance::open`, `directory`), so
    // nothing is written. The file has its length from its creation on and is never truncated, only unlinked. All
    // other processes go through ff-flowmap's atomic words.
    let region = unsafe { Region::from_raw(map.as_mut_ptr(), map.len()) }
        .map_err(|error| failed(error.to_string()))?;
    let instance = Instance::open(region).map_err(|error| failed(error.to_string()))?;
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_err(|errno| failed(errno.to_string()))?;
    let now_us = now.tv_sec().unsigned_abs() * 1_000_000 + now.tv_nsec().unsigned_abs() / 1_000;
    look(instance, now_us);
    Ok(())
}
