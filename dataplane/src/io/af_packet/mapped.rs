//! A mapped ring of a packet socket: frames in memory that the kernel and one process share.
//!
//! Each frame has a status word that says whose it is. The layout is the kernel's TPACKET_V2
//! (linux/if_packet.h). A receive ring also keeps, in space that the kernel leaves alone, the number of the
//! next frame to look at: a queue may go from one process to another, and the next one begins where the last
//! one ended.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use super::vnet;
use crate::ip::parse::VLAN_ID;

/// Frames and frame sizes of the rings of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingSizes {
    /// Frames of a receive ring.
    pub rx_frames: u32,
    /// Longest frame that can be received, in bytes. Shorter than 65 549, frames that the kernel has merged
    /// (GRO), or never cut (from a neighbour on the same host), are lost.
    pub rx_frame_bytes: u32,
    /// Frames of a transmit ring.
    pub tx_frames: u32,
    /// Longest frame that can be sent, in bytes.
    pub tx_frame_bytes: u32,
}

/// The largest IP packet with an Ethernet header.
pub const FRAME_BYTES_MAX: u32 = 65_535 + 14;

impl Default for RingSizes {
    /// Whole merged frames both ways: 33 MiB and 17 MiB of kernel memory for a queue.
    fn default() -> Self {
        Self {
            rx_frames: 512,
            rx_frame_bytes: FRAME_BYTES_MAX,
            tx_frames: 256,
            tx_frame_bytes: FRAME_BYTES_MAX,
        }
    }
}

/// Which of the two rings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Receive.
    Rx,
    /// Transmit.
    Tx,
}

/// Bytes that the kernel leaves free before each received frame, for the shared position. With the header,
/// the address and the vnet header it puts the IP header at a multiple of four.
pub(super) const RESERVE_BYTES: u32 = 66;

const HEADER_BYTES: usize = libc::TPACKET2_HDRLEN;
/// Where the kernel expects the vnet header and the frame in a transmit slot.
const TX_DATA_OFFSET: usize = HEADER_BYTES - size_of::<libc::sockaddr_ll>();
/// Where the shared position of a receive ring is, in the first slot.
const POSITION_OFFSET: usize = 64;
/// Where that of a transmit ring is, in the first slot: in the header's padding.
const TX_POSITION_OFFSET: usize = std::mem::offset_of!(libc::tpacket2_hdr, tp_padding);

const STATUS_KERNEL: u32 = 0;
const STATUS_USER: u32 = 1;
const STATUS_CSUM_NOT_READY: u32 = 1 << 3;
const STATUS_VLAN_VALID: u32 = 1 << 4;
const STATUS_CSUM_VALID: u32 = 1 << 7;
const STATUS_AVAILABLE: u32 = 0;
const STATUS_SEND_REQUEST: u32 = 1;
const STATUS_WRONG_FORMAT: u32 = 4;

/// How slots lie in memory. Pure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Slots there are; at least as many as were asked for.
    pub slots: u32,
    /// Bytes from a slot to the next in the same block.
    pub slot_bytes: u32,
    /// Bytes of a block; a slot does not cross from one to the next.
    pub block_bytes: u32,
}

impl Geometry {
    /// Places `frames` frames of up to `frame_bytes` bytes.
    pub fn new(direction: Direction, frames: u32, frame_bytes: u32) -> Self {
        let overhead = match direction {
            // Header and address, the kernel's room for a link header, reserve, vnet header.
            Direction::Rx => 80 + RESERVE_BYTES + vnet::BYTES as u32,
            Direction::Tx => (TX_DATA_OFFSET + vnet::BYTES) as u32,
        };
        let frame_bytes = frame_bytes.clamp(64, FRAME_BYTES_MAX);
        // An odd number of cache lines: with an even one the starts of all slots, which are what is mostly
        // touched, would compete for a part of the cache's sets.
        let slot_bytes = ((frame_bytes + overhead).div_ceil(64) | 1) * 64;
        let block_bytes = if slot_bytes > 8192 { 1 << 20 } else { 1 << 16 };
        let per_block = block_bytes / slot_bytes;
        let slots = frames.clamp(2, 1 << 16).div_ceil(per_block) * per_block;
        Self { slots, slot_bytes, block_bytes }
    }

    fn slots_per_block(&self) -> u32 {
        self.block_bytes / self.slot_bytes
    }

    /// Bytes of the whole ring.
    pub fn bytes(&self) -> usize {
        (self.slots / self.slots_per_block()) as usize * self.block_bytes as usize
    }

    fn offset(&self, slot: u32) -> usize {
        let per_block = self.slots_per_block();
        (slot / per_block) as usize * self.block_bytes as usize
            + (slot % per_block) as usize * self.slot_bytes as usize
    }

    /// As the kernel wants it.
    pub(super) fn request(&self) -> libc::tpacket_req {
        libc::tpacket_req {
            tp_block_size: self.block_bytes,
            tp_block_nr: self.slots / self.slots_per_block(),
            tp_frame_size: self.slot_bytes,
            tp_frame_nr: self.slots,
        }
    }
}

/// A mapped ring.
#[derive(Debug)]
pub(super) struct Mapped {
    base: NonNull<u8>,
    geometry: Geometry,
}

// SAFETY: the mapping is plain shared memory; all access goes through atomics or slots handed out once.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: this mapping, made in `new`, which nobody borrows any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.geometry.bytes()) };
    }
}

impl Mapped {
    /// Maps the only ring of a packet socket, which was made with this geometry.
    pub(super) fn new(socket: BorrowedFd<'_>, geometry: Geometry) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice; the kernel refuses it if the ring
        // has another size.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                geometry.bytes(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { base, geometry })
    }

    pub(super) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn slot(&self, slot: u32) -> NonNull<u8> {
        debug_assert!(slot < self.geometry.slots);
        // SAFETY: offset() of a slot below `slots` is inside the mapping.
        unsafe { self.base.add(self.geometry.offset(slot % self.geometry.slots)) }
    }

    fn word(&self, slot: u32, offset: usize) -> &AtomicU32 {
        // SAFETY: slots are aligned to 64 bytes and longer than any `offset` used here, all of which are
        // multiples of 4; the kernel writes these words whole.
        unsafe { self.slot(slot).add(offset).cast::<AtomicU32>().as_ref() }
    }

    fn status(&self, slot: u32) -> &AtomicU32 {
        self.word(slot, 0)
    }

    /// The shared position of a receive ring.
    pub(super) fn position(&self) -> u32 {
        self.word(0, POSITION_OFFSET).load(Ordering::Relaxed) % self.geometry.slots
    }

    /// Stores the shared position of a receive ring.
    pub(super) fn set_position(&self, position: u32) {
        self.word(0, POSITION_OFFSET).store(position, Ordering::Relaxed);
    }

    pub(super) fn next(&self, slot: u32) -> u32 {
        if slot + 1 == self.geometry.slots { 0 } else { slot + 1 }
    }

    /// Looks at a slot of a receive ring.
    pub(super) fn look(&self, slot: u32) -> Option<Arrived> {
        let status = self.status(slot).load(Ordering::Acquire);
        if status & STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the kernel gave the slot to the user with the store that `Acquire` saw, and does not
        // write it again before it is given back; the header lies at its beginning.
        let header = unsafe { self.slot(slot).cast::<libc::tpacket2_hdr>().as_ref() };
        let (start, len) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
        let fits = start >= HEADER_BYTES + vnet::BYTES && start + len <= self.geometry.slot_bytes as usize;
        let mut vnet_header = [0; vnet::BYTES];
        if fits {
            // SAFETY: inside the slot (checked above), written by the kernel.
            let bytes = unsafe {
                slice::from_raw_parts(self.slot(slot).add(start - vnet::BYTES).as_ptr(), vnet::BYTES)
            };
            vnet_header.copy_from_slice(bytes);
        }
        let vnet = vnet::decode(vnet_header);
        Some(Arrived {
            start,
            len,
            is_whole: fits && header.tp_snaplen == header.tp_len,
            // The kernel has taken the tag out of the frame. Identifier 0 is a priority and no VLAN.
            is_tagged: status & STATUS_VLAN_VALID != 0 && header.tp_vlan_tci & VLAN_ID != 0,
            l4_is_good: vnet.l4_is_good || status & (STATUS_CSUM_NOT_READY | STATUS_CSUM_VALID) != 0,
            merged_mss: vnet.merged_mss,
        })
    }

    /// Gives a slot of a receive ring back to the kernel.
    pub(super) fn release(&self, slot: u32) {
        self.status(slot).store(STATUS_KERNEL, Ordering::Release);
    }

    /// Gives back every slot that lies outside the run of filled ones from the shared position on: slots
    /// that a killed process held. Without this the kernel would stop at the first of them.
    pub(super) fn release_stale(&self) -> u32 {
        let is_filled = |slot: u32| self.status(slot).load(Ordering::Acquire) & STATUS_USER != 0;
        let from = self.position();
        let slots = self.geometry.slots;
        let at = |distance: u32| (from + distance) % slots;
        let run = (0..slots).take_while(|&distance| is_filled(at(distance))).count() as u32;
        let stale: Vec<u32> = (run..slots).map(at).filter(|&slot| is_filled(slot)).collect();
        // The run may have grown meanwhile; what the kernel has just filled begins right behind it.
        let grown = (run..slots).take_while(|&distance| is_filled(at(distance))).count() as u32;
        let mut released = 0;
        for slot in stale {
            let distance = (slot + slots - from) % slots;
            if distance >= run + grown {
                self.release(slot);
                released += 1;
            }
        }
        released
    }

    /// The bytes of a frame in a slot that was looked at.
    ///
    /// # Safety
    /// `start + len` is inside the slot. To use the result as a reference, [`Mapped::look`] must have found
    /// a whole frame at `start`, the slot must stay unreleased, and its holder must see to aliasing.
    pub(super) unsafe fn frame(&self, slot: u32, start: usize, len: usize) -> NonNull<[u8]> {
        debug_assert!(start + len <= self.geometry.slot_bytes as usize);
        // SAFETY: inside the slot, by the caller.
        NonNull::slice_from_raw_parts(unsafe { self.slot(slot).add(start) }, len)
    }

    /// Whether a slot of a transmit ring can be filled.
    pub(super) fn is_free(&self, slot: u32) -> bool {
        let status = self.status(slot).load(Ordering::Acquire);
        // The upper bits tell of timestamps; a frame that the kernel found malformed is done with, too.
        matches!(status & 0xff, STATUS_AVAILABLE | STATUS_WRONG_FORMAT)
    }

    /// Longest frame for a slot of a transmit ring.
    pub(super) fn tx_frame_bytes_max(&self) -> usize {
        self.geometry.slot_bytes as usize - TX_DATA_OFFSET - vnet::BYTES
    }

    /// Fills a free slot of a transmit ring; the kernel sends it at the next kick.
    ///
    /// # Safety
    /// [`Mapped::is_free`] said so, nobody else fills this ring, and the frame is not longer than
    /// [`Mapped::tx_frame_bytes_max`].
    pub(super) unsafe fn fill(&self, slot: u32, vnet_header: [u8; vnet::BYTES], frame: &[u8]) {
        debug_assert!(frame.len() <= self.tx_frame_bytes_max());
        let slot_start = self.slot(slot);
        // SAFETY: a free slot is this process's; all of it lies inside the slot (the caller checked the
        // length), and `frame` lies elsewhere.
        unsafe {
            let data = slot_start.add(TX_DATA_OFFSET).as_ptr();
            data.copy_from_nonoverlapping(vnet_header.as_ptr(), vnet::BYTES);
            data.add(vnet::BYTES).copy_from_nonoverlapping(frame.as_ptr(), frame.len());
            let header = slot_start.cast::<libc::tpacket2_hdr>().as_ptr();
            (&raw mut (*header).tp_len).write((vnet::BYTES + frame.len()) as u32);
        }
        self.status(slot).store(STATUS_SEND_REQUEST, Ordering::Release);
        self.word(0, TX_POSITION_OFFSET).store(self.next(slot), Ordering::Release);
    }

    /// The slot of a transmit ring to fill next, after whoever filled it last: the kernel looks for the next
    /// frame there.
    pub(super) fn tx_resume(&self) -> u32 {
        let position = self.word(0, TX_POSITION_OFFSET).load(Ordering::Acquire) % self.geometry.slots;
        let is_full = (0..self.geometry.slots).all(|slot| !self.is_free(slot));
        // Filled, but not counted: the sender was killed between the two stores.
        if !is_full && !self.is_free(position) { self.next(position) } else { position }
    }
}

/// A frame in a receive ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    /// Where it begins in its slot.
    pub start: usize,
    /// Its length in bytes.
    pub len: usize,
    /// It was not cut off.
    pub is_whole: bool,
    /// It carried the tag of a VLAN.
    pub is_tagged: bool,
    /// Its TCP or UDP checksum needs no verification.
    pub l4_is_good: bool,
    /// Payload of each of the segments that were merged into it.
    pub merged_mss: Option<u16>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geometry_is_what_the_kernel_takes() {
        for direction in [Direction::Rx, Direction::Tx] {
            for (frames, bytes) in [(1, 1), (512, 1514), (512, FRAME_BYTES_MAX), (70_000, 1 << 20)] {
                let geometry = Geometry::new(direction, frames, bytes);
                let request = geometry.request();
                assert_eq!(request.tp_frame_size % 16, 0);
                assert_eq!(request.tp_block_size % 4096, 0);
                assert_eq!(
                    request.tp_block_size / request.tp_frame_size * request.tp_block_nr,
                    request.tp_frame_nr
                );
                assert_eq!(geometry.slot_bytes / 64 % 2, 1, "an odd number of cache lines");
                assert!(geometry.slots >= frames.min(1 << 16));
                let last = geometry.offset(geometry.slots - 1) + geometry.slot_bytes as usize;
                assert!(last <= geometry.bytes());
            }
        }
    }

    #[test]
    fn received_ip_headers_are_aligned() {
        // As the kernel computes it: header, address and a link header of 14 bytes, rounded up, then the
        // reserve and the vnet header.
        let network = (HEADER_BYTES + 16).next_multiple_of(16) + RESERVE_BYTES as usize + vnet::BYTES;
        assert_eq!(network % 4, 0);
        assert!(network - 14 - vnet::BYTES >= POSITION_OFFSET + 4, "the position is out of the way");
    }
}
