//! Packet buffers: owned, tagged with their holder, freed on drop.
//!
//! # The private cache
//! Taking an mbuf from a lock-free stack, or giving one back, costs two 16-byte compare-and-swaps. Each
//! thread therefore keeps a few dozen free mbufs per pool and moves them in bulk, as DPDK's per-lcore cache
//! does; unlike there, the cached mbufs keep this process's tag, so they are not lost when it is killed.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::slice;

use ff_dpdk_sys as sys;

use crate::{owner, prefetch};

/// Mbufs moved between a pool and a private cache at once.
const BULK: usize = 32;
/// A private cache that reaches this many gives [`BULK`] back.
const CACHE_MAX: usize = 2 * BULK;

/// A packet, owned: its first segment, and through it the others. Dropping it frees all of them.
#[repr(transparent)]
#[derive(Debug)]
pub struct Mbuf {
    mbuf: NonNull<sys::rte_mbuf>,
}

// SAFETY: an mbuf belongs to no thread; freeing it from any thread is allowed (the pool is a lock-free
// stack, the private cache is the freeing thread's own).
unsafe impl Send for Mbuf {}
// SAFETY: shared access only reads.
unsafe impl Sync for Mbuf {}

/// Address of a field of an mbuf.
///
/// # Safety
/// `mbuf` points to an mbuf, and `T` is the type of the field at `offset`.
#[inline]
unsafe fn field<T>(mbuf: NonNull<sys::rte_mbuf>, offset: u32) -> *mut T {
    // SAFETY: the offsets come from the C compiler (offsetof), so the result stays inside the mbuf.
    unsafe { mbuf.as_ptr().cast::<u8>().add(offset as usize).cast() }
}

/// The segment after this one.
///
/// # Safety
/// `mbuf` points to an mbuf that the caller holds.
#[inline]
pub(crate) unsafe fn next_segment(mbuf: NonNull<sys::rte_mbuf>) -> Option<NonNull<sys::rte_mbuf>> {
    // SAFETY: per the caller; `next` is null or an mbuf.
    unsafe { NonNull::new(*field::<*mut sys::rte_mbuf>(mbuf, sys::FF_MBUF_NEXT)) }
}

/// Length of the packet that an mbuf begins.
///
/// # Safety
/// `mbuf` points to an mbuf that nobody writes to now.
pub(crate) unsafe fn packet_len_of(mbuf: NonNull<sys::rte_mbuf>) -> u32 {
    // SAFETY: per the caller; the field is 32 bits wide.
    unsafe { *field::<u32>(mbuf, sys::FF_MBUF_PKT_LEN) }
}

/// What a device found out about a checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checksum {
    /// Nothing.
    Unknown,
    /// It is right.
    Good,
    /// It is wrong.
    Bad,
}

/// Work on a packet that is left to the device; which of it a port can do, [`crate::port::PortInfo`] says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TxRequest {
    /// Length of the Ethernet header in bytes.
    pub l2_len: u16,
    /// Length of the IP header in bytes.
    pub l3_len: u16,
    /// Length of the TCP header in bytes.
    pub l4_len: u16,
    /// Compute the IPv4 header checksum (its field holds 0).
    pub ip_checksum: bool,
    /// Compute the TCP checksum (its field holds the pseudo header's sum).
    pub tcp_checksum: bool,
    /// Cut the payload into segments of this many bytes.
    pub tso_bytes: Option<u16>,
    /// The packet is IPv6.
    pub ipv6: bool,
}

impl Mbuf {
    /// Gives all of `packets` another tag, because they are about to change hands or came back.
    pub(crate) fn tag_all(packets: &[Mbuf], owner: u32) {
        for packet in packets {
            // SAFETY: this process holds the packet.
            unsafe { owner::set(packet.mbuf, owner) };
        }
    }

    /// Forgets `packets[..count]`, which somebody else has taken over.
    pub(crate) fn forget_first(packets: &mut Vec<Mbuf>, count: usize) {
        packets.drain(..count).for_each(|packet| {
            let _ = ManuallyDrop::new(packet);
        });
    }

    /// Room at the end of `packets` for `count` more, as DPDK wants it.
    pub(crate) fn spare(packets: &mut Vec<Mbuf>, count: usize) -> *mut *mut sys::rte_mbuf {
        packets.reserve(count);
        packets.spare_capacity_mut().as_mut_ptr().cast()
    }

    /// Appends the `count` packets that DPDK wrote behind the end of `packets`.
    ///
    /// # Safety
    /// `count` is at most what [`Mbuf::spare`] made room for, and so many first segments of packets that
    /// nobody else holds were written there.
    pub(crate) unsafe fn adopt_spare(packets: &mut Vec<Mbuf>, count: usize) {
        let from = packets.len();
        // SAFETY: the caller says that these elements are initialised; `Mbuf` is one non-null pointer.
        unsafe { packets.set_len(from + count) };
        // The sender's processor had them: asked for together, they come together.
        for packet in &packets[from..] {
            prefetch::for_write(packet.mbuf.as_ptr().cast(), 2);
        }
        Self::tag_all(&packets[from..], owner::this_process());
    }

    #[inline]
    fn get<T: Copy>(&self, offset: u32) -> T {
        // SAFETY: `self.mbuf` is live and held; callers pair offset and type as struct rte_mbuf has them.
        unsafe { *field::<T>(self.mbuf, offset) }
    }

    #[inline]
    fn put<T: Copy>(&mut self, offset: u32, value: T) {
        // SAFETY: as in `get`, and `&mut self` excludes other access.
        unsafe { *field::<T>(self.mbuf, offset) = value };
    }

    #[inline]
    fn data_off(&self) -> usize {
        usize::from(self.get::<u16>(sys::FF_MBUF_DATA_OFF))
    }

    #[inline]
    fn start(&self) -> *mut u8 {
        let buffer: *mut u8 = self.get(sys::FF_MBUF_BUF_ADDR);
        // SAFETY: data_off never leaves the buffer.
        unsafe { buffer.add(self.data_off()) }
    }

    /// Bytes in the first segment.
    #[inline]
    pub fn data_len(&self) -> usize {
        usize::from(self.get::<u16>(sys::FF_MBUF_DATA_LEN))
    }

    /// Bytes in the whole packet.
    #[inline]
    pub fn packet_len(&self) -> usize {
        self.get::<u32>(sys::FF_MBUF_PKT_LEN) as usize
    }

    /// Whether the packet is one segment.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.get::<u16>(sys::FF_MBUF_NB_SEGS) == 1
    }

    /// The first segment's bytes: the whole packet if [`Mbuf::is_contiguous`].
    #[inline]
    pub fn data(&self) -> &[u8] {
        // SAFETY: data_off and data_len describe initialised, mapped bytes of a buffer that this value owns.
        unsafe { slice::from_raw_parts(self.start(), self.data_len()) }
    }

    /// The first segment's bytes, to be written.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        // SAFETY: as `data`, and the packet has no other reference (nothing here clones or attaches one).
        unsafe { slice::from_raw_parts_mut(self.start(), self.data_len()) }
    }

    /// Asks for the first bytes of the packet (its protocols' headers), which are about to be read.
    #[inline]
    pub fn prefetch_data(&self) {
        prefetch::for_read(self.start(), 2);
    }

    /// The segments of the packet, first to last.
    pub fn segments(&self) -> Segments<'_> {
        Segments { next: Some(self.mbuf), packet: PhantomData }
    }

    /// Copies all segments into the first, where the room suffices; says whether the packet is now
    /// contiguous.
    pub fn linearize(&mut self) -> bool {
        // SAFETY: a packet that this value owns.
        self.is_contiguous() || unsafe { sys::ff_mbuf_linearize(self.mbuf.as_ptr()) } == 0
    }

    /// Free bytes before the data.
    pub fn headroom(&self) -> usize {
        self.data_off()
    }

    /// Free bytes behind the data of the first segment.
    pub fn tailroom(&self) -> usize {
        self.capacity() - self.data_len()
    }

    /// The largest length that [`Mbuf::set_len`] takes, in bytes.
    #[inline]
    pub fn capacity(&self) -> usize {
        usize::from(self.get::<u16>(sys::FF_MBUF_BUF_LEN)) - self.data_off()
    }

    fn set_data_len(&mut self, len: usize) {
        let packet_len = self.packet_len() + len - self.data_len();
        self.put(sys::FF_MBUF_DATA_LEN, len as u16);
        self.put(sys::FF_MBUF_PKT_LEN, packet_len as u32);
    }

    /// Makes a contiguous packet `len` bytes long; new bytes have unspecified contents.
    ///
    /// # Panics
    /// If `len` exceeds the capacity, or the packet has several segments.
    #[inline]
    pub fn set_len(&mut self, len: usize) {
        assert!(self.is_contiguous(), "set_len on a packet of several segments");
        assert!(len <= self.capacity(), "{len} bytes do not fit into an mbuf of {}", self.capacity());
        self.put(sys::FF_MBUF_DATA_LEN, len as u16);
        self.put(sys::FF_MBUF_PKT_LEN, len as u32);
    }

    /// Makes room for `len` bytes before the data and returns it; `None` if there is no such room.
    pub fn prepend(&mut self, len: usize) -> Option<&mut [u8]> {
        let data_off = self.data_off().checked_sub(len)?;
        self.put(sys::FF_MBUF_DATA_OFF, data_off as u16);
        self.set_data_len(self.data_len() + len);
        Some(&mut self.data_mut()[..len])
    }

    /// Makes room for `len` bytes behind the data of a contiguous packet and returns it.
    pub fn append(&mut self, len: usize) -> Option<&mut [u8]> {
        if !self.is_contiguous() || len > self.tailroom() {
            return None;
        }
        let old = self.data_len();
        self.set_data_len(old + len);
        Some(&mut self.data_mut()[old..])
    }

    /// Cuts `len` bytes off the front of the first segment; false if it has fewer.
    #[must_use]
    pub fn trim_front(&mut self, len: usize) -> bool {
        let Some(rest) = self.data_len().checked_sub(len) else { return false };
        self.put(sys::FF_MBUF_DATA_OFF, (self.data_off() + len) as u16);
        self.set_data_len(rest);
        true
    }

    /// Cuts `len` bytes off the end of a contiguous packet; false if it has fewer.
    #[must_use]
    pub fn trim_back(&mut self, len: usize) -> bool {
        match self.data_len().checked_sub(len) {
            Some(rest) if self.is_contiguous() => {
                self.set_data_len(rest);
                true
            }
            _ => false,
        }
    }

    fn checksum(&self, mask: u64, good: u64, bad: u64) -> Checksum {
        match self.get::<u64>(sys::FF_MBUF_OL_FLAGS) & mask {
            flags if flags == good => Checksum::Good,
            flags if flags == bad => Checksum::Bad,
            _ => Checksum::Unknown,
        }
    }

    /// The device's verdict on the IPv4 header checksum.
    pub fn ip_checksum(&self) -> Checksum {
        self.checksum(sys::FF_RX_IP_CKSUM_MASK, sys::FF_RX_IP_CKSUM_GOOD, sys::FF_RX_IP_CKSUM_BAD)
    }

    /// The device's verdict on the TCP or UDP checksum.
    pub fn l4_checksum(&self) -> Checksum {
        self.checksum(sys::FF_RX_L4_CKSUM_MASK, sys::FF_RX_L4_CKSUM_GOOD, sys::FF_RX_L4_CKSUM_BAD)
    }

    /// Declares the checksums right, for a packet that comes over memory and not over a wire.
    pub fn set_checksums_good(&mut self) {
        let flags = self.get::<u64>(sys::FF_MBUF_OL_FLAGS);
        self.put(sys::FF_MBUF_OL_FLAGS, flags | sys::FF_RX_IP_CKSUM_GOOD | sys::FF_RX_L4_CKSUM_GOOD);
    }

    /// Whether the sender left a checksum or segmentation to the device.
    pub fn has_tx_request(&self) -> bool {
        const ANY: u64 = sys::FF_TX_IP_CKSUM | sys::FF_TX_TCP_CKSUM | sys::FF_TX_TCP_SEG;
        self.get::<u64>(sys::FF_MBUF_OL_FLAGS) & ANY != 0
    }

    /// Takes back what [`Mbuf::request`] asked for and forgets what a device reported.
    pub fn clear_flags(&mut self) {
        let kept = self.get::<u64>(sys::FF_MBUF_OL_FLAGS) & sys::FF_MBUF_NOT_DIRECT;
        self.put(sys::FF_MBUF_OL_FLAGS, kept);
    }

    /// Leaves work on this packet to the device.
    pub fn request(&mut self, request: TxRequest) {
        let mut flags = if request.ipv6 { sys::FF_TX_IPV6 } else { sys::FF_TX_IPV4 };
        if request.ip_checksum {
            flags |= sys::FF_TX_IP_CKSUM;
        }
        if request.tcp_checksum || request.tso_bytes.is_some() {
            flags |= sys::FF_TX_TCP_CKSUM;
        }
        if request.tso_bytes.is_some() {
            flags |= sys::FF_TX_TCP_SEG;
        }
        let (l2, l3, l4) = (request.l2_len, request.l3_len, request.l4_len);
        let tso_bytes = request.tso_bytes.unwrap_or(0);
        // SAFETY: a packet that this value owns.
        unsafe { sys::ff_mbuf_set_tx_offload(self.mbuf.as_ptr(), flags, l2, l3, l4, tso_bytes) };
    }

    /// The tag of the packet's first segment, see [`crate::owner`].
    pub fn owner(&self) -> u32 {
        // SAFETY: an mbuf that this value owns.
        unsafe { owner::tag(self.mbuf) }.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl Drop for Mbuf {
    #[inline]
    fn drop(&mut self) {
        let direct = self.get::<u64>(sys::FF_MBUF_OL_FLAGS) & sys::FF_MBUF_NOT_DIRECT == 0;
        let single = self.get::<*mut sys::rte_mbuf>(sys::FF_MBUF_NEXT).is_null();
        if direct && single && self.get::<u16>(sys::FF_MBUF_REFCNT) == 1 {
            let pool = self.get(sys::FF_MBUF_POOL);
            self.put::<u16>(sys::FF_MBUF_NB_SEGS, 1);
            if CACHES.try_with(|caches| caches.borrow_mut().of(pool).push(self.mbuf)).is_ok() {
                return;
            }
        }
        // SAFETY: a packet that this value owns, given up here; the tags go first, because a free mbuf may
        // be taken by another process at once.
        owner::giving(|| unsafe {
            owner::set(self.mbuf, owner::NOBODY);
            sys::ff_mbuf_free(self.mbuf.as_ptr());
        });
    }
}

/// Iterator over the bytes of a packet's segments.
pub struct Segments<'a> {
    next: Option<NonNull<sys::rte_mbuf>>,
    packet: PhantomData<&'a Mbuf>,
}

impl<'a> Iterator for Segments<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let mbuf = self.next?;
        // SAFETY: `mbuf` is a segment of a packet that is borrowed for 'a.
        self.next = unsafe { next_segment(mbuf) };
        // A view of this one segment: it is never dropped, and its bytes live as long as the packet.
        let segment = ManuallyDrop::new(Mbuf { mbuf });
        // SAFETY: as in `Mbuf::data`.
        Some(unsafe { slice::from_raw_parts(segment.start(), segment.data_len()) })
    }
}

/// Free mbufs of one pool in a thread's private cache. They carry this process's tag.
struct PoolCache {
    pool: *mut sys::rte_mempool,
    free: Vec<NonNull<sys::rte_mbuf>>,
}

impl PoolCache {
    fn push(&mut self, mbuf: NonNull<sys::rte_mbuf>) {
        self.free.push(mbuf);
        if self.free.len() >= CACHE_MAX {
            self.give_back(BULK);
        }
    }

    fn pop(&mut self) -> Option<NonNull<sys::rte_mbuf>> {
        if self.free.is_empty() {
            self.refill();
        }
        let mbuf = self.free.pop()?;
        if let Some(&next) = self.free.last() {
            // The headers of the packet that will be built in the next one.
            // SAFETY: a free mbuf that this process holds.
            let buffer: *const u8 = unsafe { *field::<*const u8>(next, sys::FF_MBUF_BUF_ADDR) };
            prefetch::for_write(buffer.wrapping_add(usize::from(crate::mempool::HEADROOM_BYTES)), 2);
        }
        Some(mbuf)
    }

    /// Moves up to [`BULK`] mbufs out of the pool.
    fn refill(&mut self) {
        debug_assert!(self.free.is_empty());
        // The pool may have a few left when it cannot give a whole bulk.
        for count in [BULK, BULK / 8, 1] {
            // SAFETY: `pool` is a live pool; the table has room for `count` (capacity CACHE_MAX).
            let error =
                unsafe { sys::ff_mempool_get_bulk(self.pool, self.free.as_mut_ptr().cast(), count as u32) };
            if error == 0 {
                // SAFETY: the pool wrote `count` objects, all of them mbufs, all ours now.
                unsafe { self.free.set_len(count) };
                for &mbuf in &self.free {
                    prefetch::for_write(mbuf.as_ptr().cast(), 2);
                }
                for &mbuf in &self.free {
                    // SAFETY: just taken.
                    unsafe { owner::tag(mbuf) }
                        .store(owner::this_process(), std::sync::atomic::Ordering::Relaxed);
                }
                return;
            }
        }
    }

    fn give_back(&mut self, count: usize) {
        let from = self.free.len() - count;
        owner::giving(|| {
            for &mbuf in &self.free[from..] {
                // SAFETY: held by this process until the next statement; pristine, so it is one segment.
                unsafe { owner::tag(mbuf) }.store(owner::NOBODY, std::sync::atomic::Ordering::Release);
            }
            // SAFETY: `count` objects of this pool, held by this process, each once.
            unsafe {
                sys::ff_mempool_put_bulk(self.pool, self.free[from..].as_ptr().cast(), count as u32);
            }
        });
        self.free.truncate(from);
    }
}

/// A thread's private caches, most recently used pool first.
struct Caches {
    pools: Vec<PoolCache>,
}

impl Caches {
    #[inline]
    fn of(&mut self, pool: *mut sys::rte_mempool) -> &mut PoolCache {
        let at = match self.pools.iter().position(|cache| cache.pool == pool) {
            Some(at) => at,
            None => {
                self.pools.push(PoolCache { pool, free: Vec::with_capacity(CACHE_MAX) });
                self.pools.len() - 1
            }
        };
        &mut self.pools[at]
    }

    fn give_back_all(&mut self) {
        for cache in &mut self.pools {
            if !cache.free.is_empty() {
                cache.give_back(cache.free.len());
            }
        }
    }
}

impl Drop for Caches {
    fn drop(&mut self) {
        self.give_back_all();
    }
}

thread_local! {
    static CACHES: RefCell<Caches> = const { RefCell::new(Caches { pools: Vec::new() }) };
}

/// Gives back all free mbufs that this thread keeps for itself. To be called when idle, and at the end.
pub fn flush_private_cache() {
    // Fails only while the thread is ending, when the cache has been given back already.
    let _ = CACHES.try_with(|caches| caches.borrow_mut().give_back_all());
}

/// An empty packet out of `pool`.
#[inline]
pub(crate) fn alloc(pool: NonNull<sys::rte_mempool>) -> Option<Mbuf> {
    let mbuf = CACHES.try_with(|caches| caches.borrow_mut().of(pool.as_ptr()).pop()).ok()??;
    // SAFETY: a free mbuf that this process holds.
    unsafe { sys::ff_mbuf_make_empty(mbuf.as_ptr()) };
    Some(Mbuf { mbuf })
}
