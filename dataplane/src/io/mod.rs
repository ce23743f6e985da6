//! Packet I/O of one worker: the trait that the stack talks to, and the devices behind it.
//!
//! The stack above knows no DPDK and no socket: it takes frames from a [`PacketIo`], and gives frames to
//! it. A device that lives in memory implements the same trait, so the whole worker runs in tests.
//!
//! Order of calls in one pass of a worker: [`PacketIo::set_owned_queues`] when the ownership changed,
//! [`PacketIo::receive`] and [`PacketIo::receive_forwarded`], any number of
//! [`PacketIo::alloc`], [`PacketIo::transmit`] and [`PacketIo::forward`], then [`PacketIo::flush`].

#[cfg(feature = "dpdk")]
pub mod af_packet;
#[cfg(feature = "dpdk")]
pub mod dpdk;
#[cfg(feature = "dpdk")]
pub mod inboxes;
pub mod memory;
pub mod offload;
pub mod pcap;
#[cfg(feature = "dpdk")]
pub mod ring;

use std::os::fd::RawFd;

/// Largest number of frames that one call of [`PacketIo::receive`] appends.
pub const BURST: usize = 32;

/// Bytes that a frame to be sent should have beyond the MTU: an Ethernet header, and 20 for a segment that was written
/// with room for an IPv6 header and turns out to be IPv4. With less the segments of one family are copied once more.
pub const FRAME_ROOM_BYTES: u16 = 14 + 20;

/// What the device (or the kernel) found out about one checksum of a received frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ChecksumState {
    /// Nobody looked: verify it in software.
    #[default]
    Unknown,
    /// Verified, or the frame never crossed a wire and so needs none.
    Good,
    /// Verified and wrong.
    Bad,
}

/// Checksums of a received frame, as the device reports them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RxChecksum {
    /// IPv4 header checksum.
    pub l3: ChecksumState,
    /// TCP or UDP checksum, pseudo header included.
    pub l4: ChecksumState,
}

impl RxChecksum {
    /// Both checksums still have to be verified in software.
    pub const UNKNOWN: Self = Self { l3: ChecksumState::Unknown, l4: ChecksumState::Unknown };
}

/// Work on a transmitted frame that is left to the device.
///
/// Only what [`Capabilities`] announces may be asked for. With `l4_csum` the checksum field of the TCP or
/// UDP header must hold the sum of the pseudo header, not complemented (for `tso_mss` likewise, over a
/// pseudo header whose length field is the whole L4 length); with `ip_csum` the IPv4 checksum is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TxOffload {
    /// Length of the Ethernet header in bytes.
    pub l2_len: u16,
    /// Length of the IP header in bytes, extension headers included.
    pub l3_len: u16,
    /// Length of the TCP or UDP header in bytes.
    pub l4_len: u16,
    /// Have the IPv4 header checksum computed.
    pub ip_csum: bool,
    /// Have the TCP checksum computed.
    pub tcp_csum: bool,
    /// Cut the payload into segments of this many bytes.
    pub tso_mss: Option<u16>,
    /// The frame is IPv6 (else IPv4).
    pub ipv6: bool,
}

/// One packet, owned. Dropping it returns its memory to where it came from.
pub trait Frame {
    /// The frame from its Ethernet header on, without FCS.
    fn bytes(&self) -> &[u8];
    /// The same, to be written; exactly as long as [`Frame::bytes`].
    fn bytes_mut(&mut self) -> &mut [u8];
    /// Makes the frame `len` bytes long; bytes beyond the old length have unspecified contents.
    ///
    /// # Panics
    /// If `len` is larger than [`Frame::capacity`].
    fn set_len(&mut self, len: usize);
    /// The largest length that [`Frame::set_len`] takes, in bytes.
    fn capacity(&self) -> usize;
    /// What the device says about the checksums of this received frame.
    fn rx_checksum(&self) -> RxChecksum;
    /// Leaves checksums or segmentation to the device; see [`TxOffload`].
    fn request_tx_offload(&mut self, offload: TxOffload);
}

/// What the device does, so that the stack need not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Capabilities {
    /// Largest IP packet that can be sent as one frame, in bytes (1500 on plain Ethernet).
    pub mtu: u16,
    /// MAC address of the stack's end.
    pub mac: [u8; 6],
    /// Computes IPv4 header checksums.
    pub tx_ip_checksum: bool,
    /// Computes TCP checksums.
    pub tx_l4_checksum: bool,
    /// Cuts large TCP segments; frames of up to `tso_max_bytes` may then be allocated and sent.
    pub tso: bool,
    /// Largest frame for segmentation in bytes, Ethernet header included; 0 without `tso`.
    pub tso_max_bytes: u32,
    /// Reports [`RxChecksum::l4`] for at least some frames.
    pub rx_l4_checksum: bool,
}

/// A worker of this instance: which slot (generation) and which index in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WorkerRef {
    /// Slot of its generation, from 0.
    pub slot: u16,
    /// Its index in the generation, from 0.
    pub index: u16,
}

/// What [`PacketIo::flush`] did since the flush before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlushReport {
    /// Frames that the device took.
    pub sent: usize,
    /// Frames that it did not take: no room, or refused. They are gone.
    pub dropped: usize,
}

/// Counters of a device as one worker sees it; they only grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IoCounters {
    /// Frames received from owned queues.
    pub rx_frames: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Frames received from other workers' forwarding.
    pub rx_forwarded: u64,
    /// Frames the device took.
    pub tx_frames: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Frames the device did not take.
    pub tx_dropped: u64,
    /// Frames handed to another worker.
    pub forwarded: u64,
    /// Forwards refused because the ring was full.
    pub forward_full: u64,
    /// Received frames longer than a buffer of the device; dropped.
    pub rx_truncated: u64,
    /// Received frames of a VLAN, which the stack is not part of; dropped.
    pub rx_vlan: u64,
    /// Times that no memory for a frame was left.
    pub no_memory: u64,
}

/// The packet I/O of one worker.
pub trait PacketIo {
    /// The device's frames.
    type Frame: Frame;

    /// What the device does and its addresses; constant.
    fn capabilities(&self) -> Capabilities;

    /// Appends up to [`BURST`] frames from the owned queues, and says how many.
    ///
    /// Never a frame from an inbox: those may not be forwarded again and so come by a call of their own.
    fn receive(&mut self, burst: &mut Vec<Self::Frame>) -> usize;

    /// Appends up to [`BURST`] frames that other workers forwarded to this one, and says how many.
    fn receive_forwarded(&mut self, burst: &mut Vec<Self::Frame>) -> usize;

    /// An empty frame to be filled and transmitted, of at least the MTU and an Ethernet header; `None` when no memory is left (counted).
    fn alloc(&mut self) -> Option<Self::Frame>;

    /// Queues a frame; it leaves at the next [`PacketIo::flush`], or earlier when a burst is full.
    fn transmit(&mut self, frame: Self::Frame);

    /// Sends what is queued.
    fn flush(&mut self) -> FlushReport;

    /// Hands a received frame to another worker of this instance.
    ///
    /// # Errors
    /// Gives the frame back when that worker's inbox is full or does not exist.
    fn forward(&mut self, to: WorkerRef, frame: Self::Frame) -> Result<(), Self::Frame>;

    /// From now on receive from exactly these queues. Order and duplicates do not matter.
    fn set_owned_queues(&mut self, queues: &[u16]);

    /// Poll these for readability before sleeping. Empty: the device must be polled by time.
    fn wait_fds(&self) -> &[RawFd];

    /// What passed so far.
    fn counters(&self) -> IoCounters;
}
