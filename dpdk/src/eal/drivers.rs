//! Loading DPDK's drivers before the fork.
//!
//! EAL loads every driver that is installed, some 150 shared objects: 35 ms of processor time, nearly all of
//! what a secondary's start takes. A process that forks its secondaries can load them once; EAL then finds
//! them loaded, and the children share their pages. Nothing of DPDK runs by that but the drivers'
//! constructors, which enter them into lists.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Loads all drivers in the order in which EAL would, and says how many files that were.
///
/// The order matters: processes of an instance know a pool's driver by its place in a list, and it must be
/// the same in the primary. [`crate::Mempool::lookup`] checks that.
///
/// # Errors
/// When the directory with the drivers cannot be read. A driver that cannot be loaded is left to EAL, which
/// says so.
pub fn preload() -> io::Result<usize> {
    let eal = eal_library()?;
    let directory = plugin_directory(&eal)
        .ok_or_else(|| io::Error::other(format!("{} has no drivers beside it", eal.display())))?;
    let version = abi_version(&eal).unwrap_or_default().to_owned();
    let mut count = 0;
    // As the directory has them, unsorted: so does EAL.
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if !is_plugin(&path, &version) || !path.is_file() {
            continue;
        }
        let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { continue };
        // SAFETY: a NUL-terminated path to a driver of the installed DPDK, whose constructors are made to
        // run before EAL's start. The handle is never closed.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        count += usize::from(!handle.is_null());
    }
    Ok(count)
}

/// The file that EAL was loaded from, symbolic links resolved.
fn eal_library() -> io::Result<PathBuf> {
    // SAFETY: an all-zero Dl_info is valid; the address is that of a function in the library; the name that
    // dladdr gives is NUL-terminated and lives as long as the library.
    let path = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let address = ff_dpdk_sys::rte_eal_init as *const () as *const libc::c_void;
        if libc::dladdr(address, &raw mut info) == 0 || info.dli_fname.is_null() {
            return Err(io::Error::other("librte_eal is not a shared library"));
        }
        PathBuf::from(std::ffi::OsStr::from_bytes(CStr::from_ptr(info.dli_fname).to_bytes()))
    };
    fs::canonicalize(path)
}

/// `23.0` of `librte_eal.so.23.0`.
fn abi_version(eal: &Path) -> Option<&str> {
    eal.file_name()?.to_str()?.split_once(".so.").map(|(_, version)| version)
}

/// `dpdk/pmds-23.0` beside the library.
fn plugin_directory(eal: &Path) -> Option<PathBuf> {
    let directory = eal.parent()?.join(format!("dpdk/pmds-{}", abi_version(eal)?));
    directory.is_dir().then_some(directory)
}

fn is_plugin(path: &Path, version: &str) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    name.ends_with(".so") || name.ends_with(&format!(".so.{version}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let eal = Path::new("/usr/lib/x86_64-linux-gnu/librte_eal.so.23.0");
        assert_eq!(abi_version(eal), Some("23.0"));
        let plugin = |name: &str| is_plugin(Path::new(name), "23.0");
        assert!(plugin("/p/librte_net_tap.so") && plugin("/p/librte_net_tap.so.23.0"));
        assert!(!plugin("/p/librte_net_tap.so.23") && !plugin("/p/python3.11"));
    }

    #[test]
    fn the_installed_dpdk_has_drivers() {
        let eal = eal_library().unwrap();
        assert!(plugin_directory(&eal).is_some(), "{}", eal.display());
    }
}
