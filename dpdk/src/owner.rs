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
//!
//! While a process gives mbufs back, it says so in a word of its own in shared memory ([`giving`]): whoever
//! sees neither a tag nor such a word knows that the process touches no pool.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use ff_dpdk_sys as sys;

use crate::errno::{Errno, c_name};
use crate::names::LCORES_MAX;
use crate::{Eal, Memzone, ProcessType};

/// Bit of the tag of an mbuf that is on a ring, beside the producer's process id (which Linux keeps below
/// 2^22).
pub const ON_RING: u32 = 1 << 31;

/// Tag of an mbuf in nobody's hands.
pub(crate) const NOBODY: u32 = 0;

const FIELD: &str = "ff_owner";

/// Memzone with a [`Giver`] for each lcore id.
const GIVERS: &str = "ff_givers";

/// A process's word, in shared memory. All zero: nobody.
#[repr(C, align(64))]
struct Giver {
    /// Its process id.
    pid: AtomicU32,
    /// Calls that give mbufs back and have not returned.
    calls: AtomicU32,
}

const _: () = assert!(size_of::<Giver>() == 64);

/// This process's word; set once at EAL's initialisation.
static GIVER: AtomicPtr<Giver> = AtomicPtr::new(std::ptr::null_mut());

/// Byte offset of the tag in an mbuf; set once at EAL's initialisation, before any mbuf is touched.
static OFFSET: AtomicUsize = AtomicUsize::new(0);
/// This process's tag.
static SELF: AtomicU32 = AtomicU32::new(NOBODY);

/// The tag of this process: its process id. 0 before EAL is initialised.
pub fn this_process() -> u32 {
    SELF.load(Ordering::Relaxed)
}

/// Finds (or, in the primary, defines) the field. Part of [`crate::Eal::init`].
pub(crate) fn register(eal: Eal) -> Result<(), Errno> {
    let this = std::process::id();
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
    SELF.store(this, Ordering::Relaxed);
    let zone = match eal.process_type() {
        ProcessType::Primary => Memzone::create(eal, GIVERS, LCORES_MAX as usize * size_of::<Giver>()),
        ProcessType::Secondary => Memzone::lookup(eal, GIVERS),
    };
    let zone = zone.map_err(|_| Errno(libc::ENOENT))?;
    let giver = &givers(zone)[usize::from(eal.lcore().ok_or(Errno(libc::EINVAL))?)];
    giver.calls.store(0, Ordering::Relaxed);
    giver.pid.store(this, Ordering::Release);
    GIVER.store(std::ptr::from_ref(giver).cast_mut(), Ordering::Relaxed);
    Ok(())
}

fn givers<'a>(zone: Memzone) -> &'a [Giver] {
    debug_assert!(zone.len() >= LCORES_MAX as usize * size_of::<Giver>());
    // SAFETY: the zone has this size, is aligned to 64 bytes, was zeroed when it was made, stays mapped for
    // the life of the process and holds atomics only.
    unsafe { std::slice::from_raw_parts(zone.as_ptr().cast(), LCORES_MAX as usize) }
}

/// Runs `give`, which clears the tags of mbufs and puts them back where they came from, and says so
/// meanwhile.
#[inline]
pub(crate) fn giving<T>(give: impl FnOnce() -> T) -> T {
    // SAFETY: null, or this process's word in a zone that stays mapped.
    let Some(giver) = (unsafe { GIVER.load(Ordering::Relaxed).as_ref() }) else { return give() };
    // Counted, because another thread of this process may be giving, too. Acquire keeps the clearing of the
    // tags behind it.
    giver.calls.fetch_add(1, Ordering::AcqRel);
    let result = give();
    giver.calls.fetch_sub(1, Ordering::Release);
    result
}

/// Whether a living process other than this one is giving mbufs back at this moment.
pub(crate) fn anyone_giving(eal: Eal, dead: u32) -> bool {
    let Ok(zone) = Memzone::lookup(eal, GIVERS) else { return true };
    givers(zone).iter().any(|giver| {
        let pid = giver.pid.load(Ordering::Acquire);
        let is_giving = pid != NOBODY && pid != this_process() && giver.calls.load(Ordering::Acquire) != 0;
        // A process that was killed in the middle of it gives nothing any more.
        is_giving && pid != dead && is_alive(pid)
    })
}

fn is_alive(pid: u32) -> bool {
    // SAFETY: signal 0 only asks.
    let answer = unsafe { libc::kill(pid as libc::pid_t, 0) };
    answer == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
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
