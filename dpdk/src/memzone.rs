//! Named pieces of DPDK memory.

use std::ptr::NonNull;

use ff_dpdk_sys as sys;

use crate::Eal;
use crate::errno::{Errno, c_name};

/// Why a memzone is not there.
#[derive(Debug, thiserror::Error)]
pub enum MemzoneError {
    /// Reserving failed.
    #[error("cannot reserve {bytes} bytes of hugepages for {name}: {errno}; raise vm.nr_hugepages")]
    Reserve {
        /// Name of the zone.
        name: String,
        /// Its size.
        bytes: usize,
        /// DPDK's reason.
        errno: Errno,
    },
    /// Nobody reserved it.
    #[error("the primary has no memory named {0}: is it of another version or still starting?")]
    Absent(String),
}

/// A named, zeroed piece of hugepage memory, mapped at the same address in every process.
#[derive(Clone, Copy, Debug)]
pub struct Memzone {
    zone: NonNull<sys::rte_memzone>,
}

// SAFETY: the descriptor is immutable shared memory until `free`; access to the bytes is raw and the user's.
unsafe impl Send for Memzone {}
// SAFETY: as above.
unsafe impl Sync for Memzone {}

impl Memzone {
    /// Reserves `bytes` bytes aligned to a cache line.
    ///
    /// # Errors
    /// When the name is taken or too long, or hugepages are short.
    pub fn create(_eal: Eal, name: &str, bytes: usize) -> Result<Self, MemzoneError> {
        // SAFETY: EAL is initialised (`_eal`); the name is NUL-terminated; any size and flags are allowed.
        let zone = unsafe { sys::rte_memzone_reserve_aligned(c_name(name).as_ptr(), bytes, -1, 0, 64) };
        let zone = NonNull::new(zone.cast_mut()).ok_or_else(|| MemzoneError::Reserve {
            name: name.to_owned(),
            bytes,
            errno: Errno::last(),
        })?;
        let zone = Self { zone };
        // SAFETY: the zone is `len` bytes, mapped writable, and nobody else knows it yet.
        unsafe { zone.as_ptr().write_bytes(0, zone.len()) };
        Ok(zone)
    }

    /// Finds a zone that the primary reserved.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn lookup(_eal: Eal, name: &str) -> Result<Self, MemzoneError> {
        // SAFETY: EAL is initialised (`_eal`); the name is NUL-terminated.
        let zone = unsafe { sys::rte_memzone_lookup(c_name(name).as_ptr()) };
        let zone = NonNull::new(zone.cast_mut()).ok_or_else(|| MemzoneError::Absent(name.to_owned()))?;
        Ok(Self { zone })
    }

    /// First byte.
    pub fn as_ptr(&self) -> *mut u8 {
        // SAFETY: `zone` is a live memzone descriptor; its address field is a union whose pointer member is
        // always the valid one in user space.
        unsafe { (*self.zone.as_ptr()).__bindgen_anon_1.addr.cast() }
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        // SAFETY: `zone` is a live memzone descriptor.
        unsafe { (*self.zone.as_ptr()).len }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives the memory back.
    ///
    /// # Safety
    /// No process uses the zone, through any handle, from now on.
    pub unsafe fn free(self) {
        // SAFETY: a live memzone descriptor; the caller vouches for the rest. A failure would only mean
        // that it was freed before, which the caller excludes.
        unsafe { sys::rte_memzone_free(self.zone.as_ptr()) };
    }
}
