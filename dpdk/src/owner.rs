//! Who holds an mbuf: a tag in every mbuf, so that the memory of a killed process is found again.
//!
//! The tag is a field of the mbuf that DPDK assigns at run time (a "dynamic field"), 32 bits:
//!
//! | tag | the mbuf is |
//! |---|---|
//! | 0 | free in its pool, or in the hands of a driver |
//! | a process id | held by that process |
//! | a process id with [`ON_RING`] | on a ring, or about to be put there by that process |
//!
//! A process tags what it takes from a pool or a driver right after it has taken it, and clears the tag
//! right before it gives it back. In the few nanoseconds between, and for a burst inside a driver's receive
//! call, an mbuf is in nobody's hands: only [`crate::Mempool::recover`] finds those. On a ring there is no
//! such gap: the producer tags before it publishes, and the consumer tags before it releases the slot.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use ff_dpdk_sys as sys;

use crate::errno::{Errno, c_name};

/// Bit of the tag of an mbuf that is on a ring, beside the producer's process id (which Linux keeps below
/// 2^22).
pub const ON_RING: u32 = 1 << 31;

/// Tag of an mbuf in nobody's hands.
pub(crate) const NOBODY: u32 = 0;

const FIELD: &str = "ff_owner";

/// Byte offset of the tag in an mbuf; set once at EAL's initialisation, before any mbuf is touched.
static OFFSET: AtomicUsize = AtomicUsize::new(0);
/// This process's tag.
static SELF: AtomicU32 = AtomicU32::new(NOBODY);

/// The tag of this process: its process id. 0 before EAL is initialised.
pub fn this_process() -> u32 {
    SELF.load(Ordering::Relaxed)
}

/// Finds (or, in the primary, defines) the field. Part of [`crate::Eal::init`].
pub(crate) fn register() -> Result<(), Errno> {
    // SAFETY: an all-zero rte_mbuf_dynfield is a valid value (integers and an empty name).
    let mut field: sys::rte_mbuf_dynfield = unsafe { std::mem::zeroed() };
    for (to, from) in field.name.iter_mut().zip(c_name(FIELD).as_bytes()) {
        *to = *from as _;
    }
    field.size = size_of::<u32>();
    field.align = align_of::<u32>();
    // SAFETY: EAL is initialised (the caller is Eal::init, after success); `field` is a complete,
    // NUL-terminated description that outlives the call. Registering an existing field with the same
    // description returns its offset.
    let offset = unsafe { sys::rte_mbuf_dynfield_register(&raw const field) };
    if offset < 0 {
        return Err(Errno::last());
    }
    OFFSET.store(offset as usize, Ordering::Relaxed);
    SELF.store(std::process::id(), Ordering::Relaxed);
    Ok(())
}

/// The tag of an mbuf.
///
/// # Safety
/// `mbuf` points to an mbuf of a DPDK pool.
#[inline]
pub(crate) unsafe fn tag<'a>(mbuf: NonNull<sys::rte_mbuf>) -> &'a AtomicU32 {
    let offset = OFFSET.load(Ordering::Relaxed);
    // SAFETY: `offset` is where DPDK reserved four aligned bytes inside every mbuf (register() ran before
    // the first mbuf could be made, since that takes an Eal); mbufs live in hugepages that stay mapped.
    // Only this crate accesses the field, always as an atomic.
    unsafe { &*mbuf.as_ptr().cast::<u8>().add(offset).cast::<AtomicU32>() }
}

/// Marks an mbuf and all its further segments.
///
/// # Safety
/// `mbuf` points to an mbuf (a packet's first segment) that the calling process holds.
#[inline]
pub(crate) unsafe fn set(mbuf: NonNull<sys::rte_mbuf>, owner: u32) {
    let mut segment = Some(mbuf);
    while let Some(current) = segment {
        // SAFETY: per the caller, and then each `next` of a segment of a packet is an mbuf or null.
        unsafe {
            tag(current).store(owner, Ordering::Relaxed);
            segment = crate::mbuf::next_segment(current);
        }
    }
}
