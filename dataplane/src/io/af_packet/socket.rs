//! Packet sockets: what the primary opens for each queue and each worker.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::mapped::{Direction, Geometry, RESERVE_BYTES, RingSizes};

/// Why a packet socket is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum PacketSocketError {
    /// No such interface.
    #[error("cannot use the interface {interface}: {error}")]
    Interface {
        /// The interface.
        interface: String,
        /// The kernel's reason.
        error: io::Error,
    },
    /// Not an Ethernet.
    #[error("the interface {0} is not an Ethernet")]
    NotEthernet(String),
    /// Not root.
    #[error("packet sockets need root (CAP_NET_RAW): {0}")]
    Socket(io::Error),
    /// A step failed.
    #[error("the packet socket of {interface} cannot {step}: {error}")]
    Step {
        /// The interface.
        interface: String,
        /// What was tried.
        step: &'static str,
        /// The kernel's reason.
        error: io::Error,
    },
    /// Mapping failed.
    #[error("cannot map a packet socket's ring: {0}; was it opened with other sizes?")]
    Map(io::Error),
}

/// Sets a socket option of a plain type.
fn set<T>(socket: &OwnedFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    // SAFETY: a live socket, and a value of the size that is said.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

struct Opening<'a> {
    interface: &'a str,
    /// The queue, for messages; none for a sender.
    queue: Option<u16>,
    socket: OwnedFd,
}

impl Opening<'_> {
    fn step(&self, step: &'static str, result: io::Result<()>) -> Result<(), PacketSocketError> {
        result.map_err(|error| {
            let interface = match self.queue {
                Some(queue) => format!("{} (queue {queue})", self.interface),
                None => self.interface.to_owned(),
            };
            PacketSocketError::Step { interface, step, error }
        })
    }

    fn packet<T>(&self, step: &'static str, option: i32, value: T) -> Result<(), PacketSocketError> {
        self.step(step, set(&self.socket, libc::SOL_PACKET, option, &value))
    }
}

fn open(interface: &str, queue: Option<u16>) -> Result<Opening<'_>, PacketSocketError> {
    // Protocol 0: it receives nothing before it is bound.
    // SAFETY: no pointers.
    let fd = unsafe {
        libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0)
    };
    if fd < 0 {
        return Err(PacketSocketError::Socket(io::Error::last_os_error()));
    }
    // SAFETY: a descriptor that was just made and that nobody else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let opening = Opening { interface, queue, socket };
    opening.packet("use TPACKET_V2", libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2)?;
    opening.packet("carry offload headers", libc::PACKET_VNET_HDR, 1)?;
    Ok(opening)
}

fn bind(opening: &Opening<'_>, protocol: i32) -> Result<(), PacketSocketError> {
    // SAFETY: an all-zero sockaddr_ll is valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (protocol as u16).to_be();
    address.sll_ifindex = index(opening.interface)?;
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: a live socket and an address of the length that is said.
    let result = unsafe { libc::bind(opening.socket.as_raw_fd(), (&raw const address).cast(), length) };
    opening.step("bind", if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) })
}

fn index(interface: &str) -> Result<i32, PacketSocketError> {
    let failed = |error| PacketSocketError::Interface { interface: interface.to_owned(), error };
    let name = CString::new(interface).map_err(|error| failed(error.into()))?;
    // SAFETY: a NUL-terminated name.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(failed(io::Error::last_os_error())),
        index => Ok(index as i32),
    }
}

/// Opens the receiving socket of queue `queue`, with its ring, in the fanout group `group`.
///
/// The group spreads flows over its sockets in the order in which they joined: queues are opened in
/// ascending order, from 0, and stay open together. Frames that came before the socket was in its group are
/// not seen.
///
/// # Errors
/// When there is no such interface, the process is not root, memory is short, or another program uses the
/// group's number.
pub fn open_queue(
    interface: &str,
    queue: u16,
    group: u16,
    sizes: &RingSizes,
) -> Result<OwnedFd, PacketSocketError> {
    let opening = open(interface, Some(queue))?;
    let geometry = Geometry::new(Direction::Rx, sizes.rx_frames, sizes.rx_frame_bytes);
    opening.packet("reserve space in its frames", libc::PACKET_RESERVE, RESERVE_BYTES)?;
    opening.packet("ignore what this host sends", libc::PACKET_IGNORE_OUTGOING, 1)?;
    opening.packet("make its receive ring", libc::PACKET_RX_RING, geometry.request())?;
    // A filter that lets nothing through, until the socket is in its group: outside of it it would get
    // the frames of all queues.
    let mut drop_all = libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
    let program = libc::sock_fprog { len: 1, filter: &raw mut drop_all };
    let filtered = set(&opening.socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program);
    opening.step("filter", filtered)?;
    bind(&opening, libc::ETH_P_ALL)?;
    let fanout = u32::from(group) | (libc::PACKET_FANOUT_HASH << 16);
    opening.packet("join its fanout group (is its number taken?)", libc::PACKET_FANOUT, fanout)?;
    let unfiltered = set(&opening.socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0);
    opening.step("remove its filter", unfiltered)?;
    Ok(opening.socket)
}

/// Opens all receiving sockets of an interface.
///
/// # Errors
/// As [`open_queue`].
pub fn open_queues(
    interface: &str,
    queues: u16,
    group: u16,
    sizes: &RingSizes,
) -> Result<Vec<OwnedFd>, PacketSocketError> {
    (0..queues).map(|queue| open_queue(interface, queue, group, sizes)).collect()
}

/// Opens a sending socket with its ring, for one worker in one slot. It receives nothing.
///
/// # Errors
/// As [`open_queue`].
pub fn open_sender(interface: &str, sizes: &RingSizes) -> Result<OwnedFd, PacketSocketError> {
    let opening = open(interface, None)?;
    let geometry = Geometry::new(Direction::Tx, sizes.tx_frames, sizes.tx_frame_bytes);
    opening.packet("skip malformed frames", libc::PACKET_LOSS, 1)?;
    opening.packet("bypass the queueing discipline", libc::PACKET_QDISC_BYPASS, 1)?;
    opening.packet("make its transmit ring", libc::PACKET_TX_RING, geometry.request())?;
    // All of its ring may be on its way at once.
    let in_flight = geometry.bytes().min(1 << 29) as i32;
    let sized = set(&opening.socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &in_flight);
    opening.step("enlarge its send buffer", sized)?;
    bind(&opening, 0)?;
    Ok(opening.socket)
}

/// What the kernel says of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interface {
    /// MAC address.
    pub mac: [u8; 6],
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// Large TCP segments may be sent. Where the device cannot cut them, a socket that bypasses the queueing
    /// discipline would lose them.
    pub tso: bool,
}

/// Asks about an interface, in the network namespace of `socket`.
///
/// # Errors
/// When there is none of this name, or it is not an Ethernet.
pub fn interface(socket: BorrowedFd<'_>, name: &str) -> Result<Interface, PacketSocketError> {
    const ETHTOOL_GTSO: u32 = 0x1e;
    /// `struct ethtool_value` of linux/ethtool.h.
    #[repr(C)]
    struct EthtoolValue {
        command: u32,
        data: u32,
    }
    // SAFETY: an all-zero ifreq is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().take(15).zip(name.as_bytes()) {
        *to = *from as _;
    }
    let ask = |request: &mut libc::ifreq, what: libc::Ioctl| {
        // SAFETY: these calls read and write one ifreq, which outlives them; SIOCETHTOOL also the value
        // that it points to.
        match unsafe { libc::ioctl(socket.as_raw_fd(), what, std::ptr::from_mut(request)) } {
            0 => Ok(()),
            _ => {
                let error = io::Error::last_os_error();
                Err(PacketSocketError::Interface { interface: name.to_owned(), error })
            }
        }
    };
    ask(&mut request, libc::SIOCGIFHWADDR)?;
    // SAFETY: the call filled in this member of the union.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    if address.sa_family != libc::ARPHRD_ETHER {
        return Err(PacketSocketError::NotEthernet(name.to_owned()));
    }
    let mac = std::array::from_fn(|i| address.sa_data[i] as u8);
    ask(&mut request, libc::SIOCGIFMTU)?;
    // SAFETY: the call filled in this member of the union.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    let mut value = EthtoolValue { command: ETHTOOL_GTSO, data: 0 };
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // A device without such a setting cannot do it.
    let tso = ask(&mut request, libc::SIOCETHTOOL).is_ok() && value.data != 0;
    Ok(Interface { mac, mtu: mtu.clamp(0, i32::from(u16::MAX)) as u16, tso })
}
