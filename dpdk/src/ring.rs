//! Rings of mbufs between two processes: one producer, one consumer, no lock.

use std::ffi::c_void;
use std::ptr::NonNull;

use ff_dpdk_sys as sys;

use crate::errno::{Errno, c_name};
use crate::{Eal, Mbuf, owner};

/// Why a ring is not there.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// Creating failed.
    #[error("cannot create the ring {name} of {slots} slots: {errno}; raise vm.nr_hugepages")]
    Create {
        /// Name of the ring.
        name: String,
        /// Its slots.
        slots: u32,
        /// DPDK's reason.
        errno: Errno,
    },
    /// Nobody created it.
    #[error("the primary has no ring named {0}: is it of another version or still starting?")]
    Absent(String),
    /// Somebody else's ring.
    #[error("the ring {0} is not a single-producer, single-consumer ring")]
    NotSpsc(String),
}

/// A ring in shared memory that carries mbufs from one process to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    ring: NonNull<sys::rte_ring>,
}

// SAFETY: the handle itself only counts and looks; producing and consuming take the two end types.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    /// Creates a ring of `slots` slots (a power of two); it holds one mbuf fewer.
    ///
    /// # Errors
    /// When the name is taken or too long, the size is no power of two, or hugepages are short.
    pub fn create(_eal: Eal, name: &str, slots: u32) -> Result<Self, RingError> {
        let flags = sys::FF_RING_F_SP_ENQ | sys::FF_RING_F_SC_DEQ;
        // SAFETY: EAL is initialised (`_eal`); the name is NUL-terminated.
        let ring = unsafe { sys::rte_ring_create(c_name(name).as_ptr(), slots, -1, flags) };
        let ring = NonNull::new(ring).ok_or_else(|| RingError::Create {
            name: name.to_owned(),
            slots,
            errno: Errno::last(),
        })?;
        Ok(Self { ring })
    }

    /// Finds a ring that the primary created.
    ///
    /// # Errors
    /// When there is none of this name, or it is of another kind.
    pub fn lookup(_eal: Eal, name: &str) -> Result<Self, RingError> {
        // SAFETY: EAL is initialised (`_eal`); the name is NUL-terminated.
        let ring = unsafe { sys::rte_ring_lookup(c_name(name).as_ptr()) };
        let ring = NonNull::new(ring).ok_or_else(|| RingError::Absent(name.to_owned()))?;
        // SAFETY: a live ring.
        if unsafe { sys::ff_ring_is_spsc(ring.as_ptr()) } == 0 {
            return Err(RingError::NotSpsc(name.to_owned()));
        }
        Ok(Self { ring })
    }

    /// Mbufs on the ring now.
    pub fn len(&self) -> usize {
        // SAFETY: a live ring; reads two words.
        unsafe { sys::ff_ring_count(self.ring.as_ptr()) as usize }
    }

    /// Whether nothing is on it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Mbufs that it can hold.
    pub fn capacity(&self) -> usize {
        // SAFETY: a live ring.
        unsafe { sys::ff_ring_capacity(self.ring.as_ptr()) as usize }
    }

    /// The mbufs that are on the ring, without taking them; a superset if somebody consumes meanwhile.
    pub(crate) fn peek(&self) -> Vec<NonNull<sys::rte_mbuf>> {
        let room = self.capacity();
        let mut objects: Vec<*mut c_void> = vec![std::ptr::null_mut(); room];
        // SAFETY: a live ring; the table has `room` places.
        let count = unsafe { sys::ff_ring_peek(self.ring.as_ptr(), objects.as_mut_ptr(), room as u32) };
        objects[..count as usize].iter().filter_map(|object| NonNull::new(object.cast())).collect()
    }

    /// The producing end.
    ///
    /// # Safety
    /// As long as the result lives, no other producer of this ring does, in any process. If the last one
    /// was killed, [`Ring::repair_producer`] was called since.
    pub unsafe fn producer(self) -> RingProducer {
        RingProducer { ring: self }
    }

    /// The consuming end.
    ///
    /// # Safety
    /// As long as the result lives, no other consumer of this ring does, in any process. If the last one
    /// was killed, [`Ring::repair_consumer`] was called since.
    pub unsafe fn consumer(self) -> RingConsumer {
        RingConsumer { ring: self }
    }

    /// Undoes a half-done enqueue of a producer that was killed: what it had not published, never was.
    ///
    /// # Safety
    /// The ring has no living producer.
    pub unsafe fn repair_producer(&self) {
        // SAFETY: a live ring, whose producer's words nobody else writes.
        unsafe { sys::ff_ring_repair_producer(self.ring.as_ptr()) };
    }

    /// Undoes a half-done dequeue of a consumer that was killed: what it had not taken is on the ring.
    ///
    /// # Safety
    /// The ring has no living consumer.
    pub unsafe fn repair_consumer(&self) {
        // SAFETY: a live ring, whose consumer's words nobody else writes.
        unsafe { sys::ff_ring_repair_consumer(self.ring.as_ptr()) };
    }

    /// Frees the ring; mbufs on it are lost.
    ///
    /// # Safety
    /// No process uses the ring from now on.
    pub unsafe fn free(self) {
        // SAFETY: a live ring; the caller vouches for the rest.
        unsafe { sys::rte_ring_free(self.ring.as_ptr()) };
    }
}

/// The producing end of a [`Ring`].
#[derive(Debug)]
pub struct RingProducer {
    ring: Ring,
}

impl RingProducer {
    /// Puts the first of `packets` on the ring, as many as fit, and says how many; the others stay.
    pub fn enqueue_burst(&mut self, packets: &mut Vec<Mbuf>) -> usize {
        // An mbuf on the ring may be taken and freed before this returns, so its tag changes first.
        Mbuf::tag_all(packets, owner::ON_RING | owner::this_process());
        // SAFETY: this is the only producer (see `Ring::producer`); the table holds `len` mbufs, which
        // this process holds.
        let taken = unsafe {
            sys::ff_ring_sp_enqueue_burst(
                self.ring.ring.as_ptr(),
                packets.as_ptr().cast(),
                packets.len() as u32,
            )
        } as usize;
        Mbuf::tag_all(&packets[taken..], owner::this_process());
        Mbuf::forget_first(packets, taken);
        taken
    }

    /// The ring.
    pub fn ring(&self) -> Ring {
        self.ring
    }
}

/// The consuming end of a [`Ring`].
#[derive(Debug)]
pub struct RingConsumer {
    ring: Ring,
}

impl RingConsumer {
    /// Appends up to `max` packets to `packets` and says how many.
    pub fn dequeue_burst(&mut self, packets: &mut Vec<Mbuf>, max: usize) -> usize {
        let room = Mbuf::spare(packets, max);
        let ring = self.ring.ring.as_ptr();
        // SAFETY: this is the only consumer (see `Ring::consumer`); the table has room for `max`.
        let count = unsafe { sys::ff_ring_sc_dequeue_start(ring, room.cast(), max as u32) } as usize;
        if count == 0 {
            return 0;
        }
        // SAFETY: `count` mbufs were written, which nobody else holds: only `RingProducer` puts something
        // on a ring of ours, and it gives up what it puts there; the ring itself lets go just below. Were
        // this process killed in between, the ring's repair would leave them to the next consumer.
        unsafe {
            Mbuf::adopt_spare(packets, count);
            sys::ff_ring_sc_dequeue_finish(ring, count as u32);
        }
        count
    }

    /// The ring.
    pub fn ring(&self) -> Ring {
        self.ring
    }
}
