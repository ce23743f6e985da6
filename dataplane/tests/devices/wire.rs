//! The kernel's end of a device, and the frames that go over it.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::Command;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Runs `ip`.
pub fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().expect("iproute2 is installed");
    assert!(status.success(), "ip {arguments}");
}

/// A packet socket on an interface: what the neighbour on the wire sees and sends.
pub struct KernelEnd {
    socket: OwnedFd,
    vnet: bool,
}

impl KernelEnd {
    pub fn open(interface: &str, vnet: bool) -> Self {
        // SAFETY: no pointers; the descriptor is new.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            assert!(fd >= 0, "{}", io::Error::last_os_error());
            OwnedFd::from_raw_fd(fd)
        };
        let name = CString::new(interface).unwrap();
        // SAFETY: options and an address of the sizes that are said; the name is NUL-terminated.
        unsafe {
            let one = 1i32;
            let set = |option| {
                libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, (&raw const one).cast(), 4)
            };
            assert_eq!(set(libc::PACKET_IGNORE_OUTGOING), 0);
            if vnet {
                assert_eq!(set(libc::PACKET_VNET_HDR), 0);
            }
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
            address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
            assert!(address.sll_ifindex > 0, "{interface}");
            let length = size_of_val(&address) as u32;
            assert_eq!(libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length), 0);
        }
        Self { socket, vnet }
    }

    /// Sends a frame; false if the device has no room.
    pub fn send(&self, frame: &[u8]) -> bool {
        assert!(!self.vnet);
        self.send_raw(frame)
    }

    /// Sends a frame behind an offload header.
    pub fn send_with_header(&self, header: [u8; 10], frame: &[u8]) -> bool {
        assert!(self.vnet);
        self.send_raw(&[&header, frame].concat())
    }

    fn send_raw(&self, bytes: &[u8]) -> bool {
        // SAFETY: a slice and its length.
        let sent = unsafe {
            libc::send(self.socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT)
        };
        sent == bytes.len() as isize
    }

    /// The next IPv4 frame from the stack's end, or nothing within the time. What the kernel sends by itself
    /// (IPv6 router solicitations) is passed over.
    pub fn receive(&self, timeout: Duration) -> Option<Vec<u8>> {
        let mut bytes = vec![0; 1 << 17];
        loop {
            if !readable(&[self.socket.as_raw_fd()], timeout)[0] {
                return None;
            }
            // SAFETY: a slice and its length.
            let length = unsafe {
                libc::recv(self.socket.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_TRUNC)
            };
            let frame = &bytes[..usize::try_from(length).unwrap()];
            let at = if self.vnet { 10 } else { 0 };
            if frame[at + 12..at + 14] == [8, 0] {
                return Some(frame.to_vec());
            }
        }
    }
}

/// Which of the descriptors are readable, after waiting until one is or the time is up.
pub fn readable(fds: &[RawFd], timeout: Duration) -> Vec<bool> {
    let mut polled: Vec<PollFd> = fds
        .iter()
        // SAFETY: the descriptors stay open during the call.
        .map(|&fd| PollFd::new(unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) }, PollFlags::POLLIN))
        .collect();
    poll(&mut polled, PollTimeout::try_from(timeout).unwrap()).unwrap();
    polled.iter().map(|fd| fd.any().unwrap_or(false)).collect()
}

/// The stack's address in these tests.
pub const STACK: ([u8; 4], u16) = ([198, 18, 0, 2], 80);
/// The neighbour's address.
pub const PEER: [u8; 4] = [198, 18, 0, 1];

/// A UDP datagram in an Ethernet frame, from (address, port) to (address, port), with a number in it.
pub fn udp(from: ([u8; 4], u16), to: ([u8; 4], u16), number: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![0; len.max(14 + 20 + 8 + 4)];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    frame[12..14].copy_from_slice(&[8, 0]);
    ipv4_header(&mut frame, 17, from.0, to.0);
    frame[34..36].copy_from_slice(&from.1.to_be_bytes());
    frame[36..38].copy_from_slice(&to.1.to_be_bytes());
    let udp_len = (frame.len() - 34) as u16;
    frame[38..40].copy_from_slice(&udp_len.to_be_bytes());
    frame[42..46].copy_from_slice(&number.to_be_bytes());
    frame
}

/// A TCP segment whose checksum field holds the pseudo header's sum, with a payload that counts.
pub fn tcp(from: ([u8; 4], u16), to: ([u8; 4], u16), seq: u32, payload: usize) -> Vec<u8> {
    let mut frame = vec![0; 54 + payload];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    frame[12..14].copy_from_slice(&[8, 0]);
    ipv4_header(&mut frame, 6, from.0, to.0);
    frame[34..36].copy_from_slice(&from.1.to_be_bytes());
    frame[36..38].copy_from_slice(&to.1.to_be_bytes());
    frame[38..42].copy_from_slice(&seq.to_be_bytes());
    frame[46] = 5 << 4;
    frame[47] = 0x18;
    let pseudo = [&frame[26..34], &[0, 6], &((20 + payload) as u16).to_be_bytes()].concat();
    let sum = !sum(&pseudo);
    frame[50..52].copy_from_slice(&sum.to_be_bytes());
    for (at, byte) in frame[54..].iter_mut().enumerate() {
        *byte = (at % 251) as u8;
    }
    frame
}

fn ipv4_header(frame: &mut [u8], protocol: u8, from: [u8; 4], to: [u8; 4]) {
    let total = (frame.len() - 14) as u16;
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    frame[20] = 0x40;
    frame[22] = 64;
    frame[23] = protocol;
    frame[26..30].copy_from_slice(&from);
    frame[30..34].copy_from_slice(&to);
    let sum = sum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

/// The Internet checksum (RFC 1071), naively.
pub fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&b| b.into()));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The sender's port and the number of a frame of [`udp`].
pub fn port_and_number(frame: &[u8]) -> (u16, u32) {
    let port = u16::from_be_bytes([frame[34], frame[35]]);
    (port, u32::from_be_bytes([frame[42], frame[43], frame[44], frame[45]]))
}
