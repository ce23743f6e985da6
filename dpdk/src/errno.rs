//! Error numbers of DPDK, as sentences.

use std::ffi::{CStr, CString};
use std::fmt;

use ff_dpdk_sys as sys;

/// An error number of DPDK (`errno` values and DPDK's own from 1001 on), printed as its text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// The calling thread's `rte_errno`.
    pub(crate) fn last() -> Self {
        // SAFETY: reads a thread-local integer; needs nothing.
        Self(unsafe { sys::ff_errno() })
    }

    /// From a return value of `-errno`.
    pub(crate) fn negated(value: i32) -> Self {
        Self(-value)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: rte_strerror accepts any number and returns a NUL-terminated string, static or in a
        // thread-local buffer that lives until this thread's next call; it is copied out before that.
        let text = unsafe { CStr::from_ptr(sys::rte_strerror(self.0)) };
        write!(f, "{} (errno {})", text.to_string_lossy(), self.0)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A name for DPDK; names come from [`crate::names`] or a caller, and a NUL in one ends it there.
pub(crate) fn c_name(name: &str) -> CString {
    let end = name.bytes().position(|byte| byte == 0).unwrap_or(name.len());
    CString::new(&name.as_bytes()[..end]).unwrap_or_default()
}
