//! Pools of mbufs, and how the memory of a killed process comes back.

use std::collections::HashSet;
use std::ffi::{CStr, c_void};
use std::hash::Hash;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use ff_dpdk_sys as sys;

use crate::errno::{Errno, c_name};
use crate::mbuf::{self, Mbuf};
use crate::{Eal, Ring, owner};

/// Bytes of an mbuf's buffer before a received frame.
pub const HEADROOM_BYTES: u16 = sys::RTE_PKTMBUF_HEADROOM as u16;

/// Buffer that holds a standard Ethernet frame with the headroom before it.
pub const DATA_ROOM_BYTES: u16 = 2048 + HEADROOM_BYTES;

/// The only pool driver in which a killed process blocks nobody.
const OPS: &CStr = c"lf_stack";

/// Why a pool is not there.
#[derive(Debug, thiserror::Error)]
pub enum MempoolError {
    /// Creating failed.
    #[error(
        "cannot create the mempool {name} of {mbufs} buffers: {errno}; it needs about {mib} MiB of \
         hugepages, raise vm.nr_hugepages"
    )]
    Create {
        /// Name of the pool.
        name: String,
        /// Its mbufs.
        mbufs: u32,
        /// About what they take.
        mib: u64,
        /// DPDK's reason.
        errno: Errno,
    },
    /// Nobody created it.
    #[error("the primary has no mempool named {0}: is it of another version or still starting?")]
    Absent(String),
    /// Somebody else's pool.
    #[error("the mempool {name} is of kind {ops}, not lf_stack: a killed process could block it")]
    NotKillSafe {
        /// Name of the pool.
        name: String,
        /// Its driver.
        ops: String,
    },
}

/// A pool of mbufs in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mempool {
    pool: NonNull<sys::rte_mempool>,
}

// SAFETY: a lock-free stack takes pushes and pops from any thread of any process at once.
unsafe impl Send for Mempool {}
// SAFETY: as above.
unsafe impl Sync for Mempool {}

/// What a device driver keeps of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DriverHolds {
    /// Nothing: no device fills buffers of this pool, and what is sent is freed before the send returns.
    Nothing,
    /// A chain of at least two linked mbufs, as net_tap keeps one for each receive queue.
    Chain,
    /// Some mbufs, in memory that only the driver understands (a NIC's descriptors).
    Unknown,
}

/// What [`Mempool::recover`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recovery {
    /// Mbufs that are back in the pool and had been lost to it.
    pub returned: u32,
    /// Mbufs that living processes hold, or that are on a ring.
    pub in_other_hands: u32,
    /// Whether mbufs that were between two hands were looked for too. If not, call again later.
    pub complete: bool,
}

impl Mempool {
    /// Creates a pool of `mbufs` buffers with `data_room_bytes` each, headroom included.
    ///
    /// # Errors
    /// When the name is taken or too long, or hugepages are short.
    pub fn create(_eal: Eal, name: &str, mbufs: u32, data_room_bytes: u16) -> Result<Self, MempoolError> {
        // SAFETY: EAL is initialised (`_eal`); both names are NUL-terminated. DPDK's per-lcore cache is
        // off (0): what it holds would be lost with its process.
        let pool = unsafe {
            sys::rte_pktmbuf_pool_create_by_ops(
                c_name(name).as_ptr(),
                mbufs,
                0,
                0,
                data_room_bytes,
                -1,
                OPS.as_ptr(),
            )
        };
        let pool = NonNull::new(pool).ok_or_else(|| MempoolError::Create {
            name: name.to_owned(),
            mbufs,
            mib: (u64::from(mbufs) * (u64::from(data_room_bytes) + 256)).div_ceil(1 << 20),
            errno: Errno::last(),
        })?;
        Ok(Self { pool })
    }

    /// Finds a pool that the primary created.
    ///
    /// # Errors
    /// When there is none of this name, or it is not a lock-free stack.
    pub fn lookup(_eal: Eal, name: &str) -> Result<Self, MempoolError> {
        // SAFETY: EAL is initialised (`_eal`); the name is NUL-terminated.
        let pool = unsafe { sys::rte_mempool_lookup(c_name(name).as_ptr()) };
        let pool = NonNull::new(pool).ok_or_else(|| MempoolError::Absent(name.to_owned()))?;
        // SAFETY: a live pool; the driver's name is a static string.
        let ops = unsafe { CStr::from_ptr(sys::ff_mempool_ops_name(pool.as_ptr())) };
        if ops != OPS {
            let ops = ops.to_string_lossy().into_owned();
            return Err(MempoolError::NotKillSafe { name: name.to_owned(), ops });
        }
        Ok(Self { pool })
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::rte_mempool {
        self.pool.as_ptr()
    }

    /// Its name.
    pub fn name(&self) -> String {
        // SAFETY: a live pool; its name is NUL-terminated.
        unsafe { CStr::from_ptr(sys::ff_mempool_name(self.as_ptr())) }.to_string_lossy().into_owned()
    }

    /// Mbufs that it was created with.
    pub fn size(&self) -> u32 {
        // SAFETY: a live pool.
        unsafe { sys::ff_mempool_size(self.as_ptr()) }
    }

    /// Mbufs that are in it now; what a thread keeps in its private cache is not.
    pub fn available(&self) -> u32 {
        // SAFETY: a live pool.
        unsafe { sys::rte_mempool_avail_count(self.as_ptr()) }
    }

    /// Largest frame that fits into one mbuf, in bytes.
    pub fn frame_bytes_max(&self) -> usize {
        // SAFETY: a live pool of mbufs.
        usize::from(unsafe { sys::ff_mempool_data_room(self.as_ptr()) }) - usize::from(HEADROOM_BYTES)
    }

    /// An empty packet, or `None` when the pool has none left.
    #[inline]
    pub fn alloc(&self) -> Option<Mbuf> {
        mbuf::alloc(self.pool)
    }

    /// All mbufs of the pool, wherever they are.
    fn objects(&self) -> Vec<NonNull<sys::rte_mbuf>> {
        unsafe extern "C" fn collect(
            _pool: *mut sys::rte_mempool,
            list: *mut c_void,
            object: *mut c_void,
            _index: u32,
        ) {
            // SAFETY: `list` is the Vec below, borrowed by nobody else during the iteration.
            let list = unsafe { &mut *list.cast::<Vec<NonNull<sys::rte_mbuf>>>() };
            list.extend(NonNull::new(object.cast()));
        }
        let mut list = Vec::with_capacity(self.size() as usize);
        // SAFETY: a live pool, whose list of objects is constant once it is created; `collect` does not
        // unwind: the Vec has the capacity for all.
        unsafe { sys::rte_mempool_obj_iter(self.as_ptr(), Some(collect), (&raw mut list).cast()) };
        list
    }

    /// How many mbufs of this pool carry the tag `owner` (a process id, with or without
    /// [`owner::ON_RING`]).
    pub fn held_by(&self, owner: u32) -> u32 {
        let is_held = |&&object: &&NonNull<sys::rte_mbuf>| {
            // SAFETY: an mbuf of this pool.
            unsafe { owner::tag(object) }.load(Ordering::Relaxed) == owner
        };
        self.objects().iter().filter(is_held).count() as u32
    }

    /// Takes back every mbuf that the dead process `dead` held; returns how many.
    ///
    /// `rings` are all rings that `dead` produced onto or consumed from and that can hold mbufs of this
    /// pool: what it had published there, or not yet taken from there, stays on them. The pool and the
    /// living ends of the rings may be in use.
    ///
    /// # Safety
    /// - The process `dead` has ended and is not this one, and no new process with its id uses DPDK.
    /// - The ends of `rings` that `dead` had were repaired ([`Ring::repair_producer`],
    ///   [`Ring::repair_consumer`]), and have no successor yet.
    pub unsafe fn reclaim(&self, dead: u32, rings: &[Ring]) -> u32 {
        assert!(dead != owner::NOBODY && dead & owner::ON_RING == 0 && dead != owner::this_process());
        // Rings first: what leaves one after this look is left alone; what has left it before carries its
        // consumer's tag already.
        let on_rings: HashSet<_> = rings.iter().flat_map(Ring::peek).collect();
        std::sync::atomic::fence(Ordering::Acquire);
        let mut lost = self.objects();
        lost.retain(|object| {
            // SAFETY: an mbuf of this pool.
            let tag = unsafe { owner::tag(*object) };
            let claim =
                |from| tag.compare_exchange(from, owner::NOBODY, Ordering::AcqRel, Ordering::Relaxed).is_ok();
            !on_rings.contains(object) && (claim(dead) || claim(dead | owner::ON_RING))
        });
        self.put_pristine(&lost);
        lost.len() as u32
    }

    /// Puts mbufs that nobody holds into the pool as if they were new.
    fn put_pristine(&self, objects: &[NonNull<sys::rte_mbuf>]) {
        for bulk in objects.chunks(32) {
            for &object in bulk {
                // SAFETY: an mbuf of this pool that nobody holds (the caller has just claimed it).
                unsafe {
                    sys::ff_mbuf_reset(self.as_ptr(), object.as_ptr());
                    owner::tag(object).store(owner::NOBODY, Ordering::Relaxed);
                }
            }
            // SAFETY: objects of this pool that nobody holds, each once.
            unsafe { sys::ff_mempool_put_bulk(self.as_ptr(), bulk.as_ptr().cast(), bulk.len() as u32) };
        }
    }

    /// Brings the pool back to its full size after its user `dead` was killed.
    ///
    /// Beyond what [`Mempool::reclaim`] finds by tags, this also finds mbufs that were between two hands:
    /// taken from the pool but not yet tagged, received but still inside the driver's receive call. It does
    /// so by forgetting what the free list holds and putting every mbuf back, once, except those that are in
    /// other hands. That needs a pool which nobody touches: if a tag shows that another process still holds
    /// some of it (and so may free it at any moment), if another process is giving something back at this
    /// moment, or if the driver's own mbufs cannot be told apart, only the tagged ones come back, and
    /// `complete` is false.
    ///
    /// May be repeated at any time, also after a primary that died in the middle of it.
    ///
    /// # Safety
    /// - Those of [`Mempool::reclaim`].
    /// - No living process allocates from this pool or receives into it, from before the call until it
    ///   returns: `dead` was its only user, and no successor has started. Others may hold mbufs of it and
    ///   free them.
    pub unsafe fn recover(&self, eal: Eal, dead: u32, rings: &[Ring], driver: DriverHolds) -> Recovery {
        let before = self.available();
        // SAFETY: the caller vouches for the same conditions.
        unsafe { self.reclaim(dead, rings) };
        let objects = self.objects();
        let tagged = |&&object: &&NonNull<sys::rte_mbuf>| {
            // SAFETY: an mbuf of this pool.
            unsafe { owner::tag(object) }.load(Ordering::Acquire) != owner::NOBODY
        };
        let in_other_hands = objects.iter().filter(tagged).count() as u32;
        // In this order: a process that has cleared a tag before it was read above, and has not yet put the
        // mbuf back, said before that it is giving.
        let complete =
            in_other_hands == 0 && driver != DriverHolds::Unknown && !owner::anyone_giving(eal, dead);
        if complete {
            let kept = if driver == DriverHolds::Chain { chained(&objects) } else { HashSet::new() };
            let free: Vec<_> = objects.into_iter().filter(|object| !kept.contains(object)).collect();
            // SAFETY: nobody else touches the pool: none takes (the caller), and none gives, since none
            // holds any of it (no tag) or has just let go of it (nobody is giving). It is an lf_stack, since
            // `create` and `lookup` make no other.
            let error = unsafe { sys::ff_mempool_clear(self.as_ptr()) };
            assert_eq!(error, 0, "the mempool {} is not an lf_stack", self.name());
            self.put_pristine(&free);
        }
        let returned = self.available().saturating_sub(before);
        Recovery { returned, in_other_hands, complete }
    }

    /// Frees the pool.
    ///
    /// # Safety
    /// No process uses the pool or an mbuf of it, from now on.
    pub unsafe fn free(self) {
        mbuf::flush_private_cache();
        // SAFETY: a live pool; the caller vouches for the rest.
        unsafe { sys::rte_mempool_free(self.as_ptr()) };
    }
}

/// A buffer as it was found: what it is linked to, and the length of the packet that it begins.
struct Found<T> {
    object: T,
    next: Option<T>,
    packet_len: u32,
}

/// Mbufs that a driver keeps as a chain, of a pool that nobody is using now.
fn chained(objects: &[NonNull<sys::rte_mbuf>]) -> HashSet<NonNull<sys::rte_mbuf>> {
    let found = objects.iter().map(|&object| {
        // SAFETY: an mbuf of a pool that nobody is using now.
        let (next, packet_len) = unsafe { (mbuf::next_segment(object), mbuf::packet_len_of(object)) };
        Found { object, next, packet_len }
    });
    in_chain(&found.collect::<Vec<_>>())
}

/// The members of the chain. A free mbuf is not linked with another one.
///
/// net_tap replaces the first of its chain, which holds the packet that has just come, by an empty one, links that to
/// the second, and only then cuts the packet off. A process that is killed between these two leaves two that are linked
/// to the second, and the one with a packet is not the driver's any more.
fn in_chain<T: Copy + Eq + Hash>(found: &[Found<T>]) -> HashSet<T> {
    let mut pristine_before = HashSet::new();
    for link in found.iter().filter(|link| link.packet_len == 0) {
        pristine_before.extend(link.next);
    }
    let mut chain = HashSet::new();
    for link in found {
        let Some(next) = link.next else { continue };
        if link.packet_len == 0 || !pristine_before.contains(&next) {
            chain.insert(link.object);
            chain.insert(next);
        }
    }
    chain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(object: u8, next: u8, packet_len: u32) -> Found<u8> {
        Found { object, next: Some(next).filter(|next| *next != 0), packet_len }
    }

    fn members(found: &[Found<u8>]) -> Vec<u8> {
        let mut members: Vec<u8> = in_chain(found).into_iter().collect();
        members.sort_unstable();
        members
    }

    #[test]
    fn a_driver_keeps_its_chain_and_nothing_else() {
        let rest = || [found(2, 3, 0), found(3, 4, 0), found(4, 0, 0), found(7, 0, 0), found(8, 0, 300)];
        // At rest, and with a packet read into the first one that is still the driver's.
        for packet_len in [0, 60] {
            let all: Vec<_> = rest().into_iter().chain([found(1, 2, packet_len), found(9, 0, 0)]).collect();
            assert_eq!(members(&all), [1, 2, 3, 4]);
        }
        // Killed with the replacement in its place, and the packet not yet cut off.
        let all: Vec<_> = rest().into_iter().chain([found(1, 2, 60), found(9, 2, 0)]).collect();
        assert_eq!(members(&all), [2, 3, 4, 9]);
        assert!(members(&[found(1, 0, 0), found(2, 0, 60)]).is_empty());
    }
}
