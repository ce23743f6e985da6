//! The frames of a packet socket: a slot of the receive ring, a buffer to be sent, or an mbuf that another
//! worker forwarded.

use std::fmt;
use std::sync::Arc;

use super::mapped::{Arrived, Mapped};
use super::vnet;
use crate::io::inboxes::MbufFrame;
use crate::io::{Frame, RxChecksum, TxOffload};

/// A received frame, in its ring.
pub(super) struct Slot {
    ring: Arc<Mapped>,
    slot: u32,
    start: usize,
    len: usize,
    l4_is_good: bool,
    merged_mss: Option<u16>,
}

impl Slot {
    /// Takes over a slot that [`Mapped::look`] found a whole frame in. Each slot is taken once: the position
    /// moves on, and the kernel gives it anew only after it was released.
    pub(super) fn new(ring: Arc<Mapped>, slot: u32, arrived: &Arrived) -> Self {
        debug_assert!(arrived.is_whole);
        let Arrived { start, len, l4_is_good, merged_mss, .. } = *arrived;
        Self { ring, slot, start, len, l4_is_good, merged_mss }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: this value holds the slot until it is dropped, and `&self` allows reading only.
        unsafe { self.ring.frame(self.slot, self.start, self.len).as_ref() }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: this value holds the slot until it is dropped, and `&mut self` excludes other access.
        unsafe { self.ring.frame(self.slot, self.start, self.len).as_mut() }
    }

    fn capacity(&self) -> usize {
        self.ring.geometry().slot_bytes as usize - self.start
    }

    pub(super) fn l4_is_good(&self) -> bool {
        self.l4_is_good
    }

    /// For a frame that the kernel merged out of several TCP segments: how to cut it again.
    pub(super) fn merged(&self) -> Option<TxOffload> {
        let mss = self.merged_mss?;
        let bytes = self.bytes();
        let (l2_len, ipv6, l3_len) = match bytes.get(12..14)? {
            [0x08, 0x00] => (14, false, u16::from(bytes.get(14)? & 0x0f) * 4),
            // The kernel merges only TCP right behind the IPv6 header.
            [0x86, 0xdd] => (14, true, 40),
            _ => return None,
        };
        let l4 = usize::from(l2_len + l3_len);
        let l4_len = u16::from(bytes.get(l4 + 12)? >> 4) * 4;
        let complete = bytes.len() >= l4 + usize::from(l4_len) && l3_len >= 20 && l4_len >= 20;
        complete.then_some(TxOffload {
            l2_len,
            l3_len,
            l4_len,
            ip_csum: !ipv6,
            tcp_csum: true,
            tso_mss: Some(mss),
            ipv6,
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.ring.release(self.slot);
    }
}

/// A frame to be sent, on the heap.
pub(super) struct Buffer {
    bytes: Box<[u8]>,
    len: usize,
    offload: Option<TxOffload>,
}

impl Buffer {
    pub(super) fn new(capacity: usize) -> Self {
        Self { bytes: vec![0; capacity].into_boxed_slice(), len: 0, offload: None }
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
        self.offload = None;
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }

    pub(super) fn set_len(&mut self, len: usize) {
        assert!(len <= self.bytes.len(), "{len} bytes do not fit into a buffer of {}", self.bytes.len());
        self.len = len;
    }
}

pub(super) enum Kind {
    Slot(Slot),
    Buffer(Buffer),
    Mbuf(MbufFrame),
}

/// A frame of an [`super::AfPacketIo`].
pub struct AfPacketFrame(pub(super) Kind);

impl AfPacketFrame {
    pub(super) fn tx_offload(&self) -> Option<&TxOffload> {
        match &self.0 {
            Kind::Buffer(buffer) => buffer.offload.as_ref(),
            Kind::Slot(_) | Kind::Mbuf(_) => None,
        }
    }
}

impl fmt::Debug for AfPacketFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.0 {
            Kind::Slot(_) => "Slot",
            Kind::Buffer(_) => "Buffer",
            Kind::Mbuf(_) => "Mbuf",
        };
        write!(f, "AfPacketFrame({kind}, {} bytes)", self.bytes().len())
    }
}

impl Frame for AfPacketFrame {
    fn bytes(&self) -> &[u8] {
        match &self.0 {
            Kind::Slot(slot) => slot.bytes(),
            Kind::Buffer(buffer) => buffer.bytes(),
            Kind::Mbuf(mbuf) => mbuf.bytes(),
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Kind::Slot(slot) => slot.bytes_mut(),
            Kind::Buffer(buffer) => buffer.bytes_mut(),
            Kind::Mbuf(mbuf) => mbuf.bytes_mut(),
        }
    }

    fn set_len(&mut self, len: usize) {
        match &mut self.0 {
            Kind::Slot(slot) => {
                assert!(len <= slot.capacity(), "{len} bytes do not fit into a slot");
                slot.len = len;
            }
            Kind::Buffer(buffer) => buffer.set_len(len),
            Kind::Mbuf(mbuf) => mbuf.set_len(len),
        }
    }

    fn capacity(&self) -> usize {
        match &self.0 {
            Kind::Slot(slot) => slot.capacity(),
            Kind::Buffer(buffer) => buffer.bytes.len(),
            Kind::Mbuf(mbuf) => mbuf.capacity(),
        }
    }

    fn rx_checksum(&self) -> RxChecksum {
        match &self.0 {
            Kind::Slot(slot) => vnet::rx_checksum(slot.l4_is_good),
            Kind::Buffer(_) => RxChecksum::UNKNOWN,
            Kind::Mbuf(mbuf) => mbuf.rx_checksum(),
        }
    }

    /// Only a frame from [`crate::io::PacketIo::alloc`] takes it: a received frame that is sent again is
    /// sent as it is.
    fn request_tx_offload(&mut self, offload: TxOffload) {
        if let Kind::Buffer(buffer) = &mut self.0 {
            buffer.offload = Some(offload);
        }
    }
}
