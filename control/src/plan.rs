//! Everything that a worker needs to know to attach: sent by the primary, so that a worker reads no configuration.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// A worker's place and its configuration.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct WorkerPlan {
    /// Instance name.
    pub instance: String,
    /// Generation this worker belongs to.
    pub epoch: u32,
    /// The generation's slot, `0..slots`.
    pub slot: u16,
    /// The worker's index, `0..workers`.
    pub index: u16,
    /// Workers of a generation (also the number of queues).
    pub workers: u16,
    /// Generation slots of the instance.
    pub slots: u16,
    /// Queues that this worker polls from its READY on.
    pub queues: Vec<u16>,
    /// Arguments for `rte_eal_init`, program name first.
    pub eal_args: Vec<String>,
    /// DPDK file prefix.
    pub file_prefix: String,
    /// The protocol region's file (on hugetlbfs).
    pub region_path: String,
    /// The region's length in bytes.
    pub region_bytes: u64,
    /// The device.
    pub device: DevicePlan,
    /// Ethernet address of the port.
    pub mac: [u8; 6],
    /// IP MTU in bytes.
    pub mtu: u16,
    /// Addresses of the port.
    pub addresses: Vec<AddressPlan>,
    /// IPv4 default gateway.
    pub gateway4: Option<IpAddr>,
    /// IPv6 default gateway.
    pub gateway6: Option<IpAddr>,
    /// What stays with the kernel's stack.
    pub kernel: KernelPlan,
    /// Longest sleep of an idle worker whose device gives nothing to wait on, in microseconds; 0: it never sleeps.
    pub idle_sleep_us: u32,
    /// Longest time a frame to send may wait for a fuller burst, in microseconds (0..=100).
    pub tx_delay_us: u32,
    /// Idle time after which a UDP flow is aged, in milliseconds (100..=3 600 000).
    pub udp_idle_ms: u32,
    /// No "port unreachable" is sent for a datagram that nobody wants.
    pub udp_blackhole: bool,
    /// Table sizes and memory bounds.
    pub limits: LimitsPlan,
    /// TCP settings.
    pub tcp: TcpPlan,
}

/// An address with its prefix length.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, PartialEq, Eq)]
pub struct AddressPlan {
    /// The address.
    pub addr: IpAddr,
    /// Prefix length, 0..=32 or 0..=128.
    pub prefix_len: u8,
}

impl AddressPlan {
    /// Whether the prefix covers `addr`; the families differ: no.
    #[must_use]
    pub fn contains(&self, addr: IpAddr) -> bool {
        match (self.addr, addr) {
            (IpAddr::V4(net), IpAddr::V4(addr)) => {
                let shift = 32 - u32::from(self.prefix_len.min(32));
                (u64::from(net.to_bits() ^ addr.to_bits()) >> shift) == 0
            }
            (IpAddr::V6(net), IpAddr::V6(addr)) => {
                let shift = 128 - u32::from(self.prefix_len.min(128));
                (net.to_bits() ^ addr.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// What stays with the kernel's stack: of a worker's plan, and in the master's environment (`FF_KERNEL`, as JSON).
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct KernelPlan {
    /// Prefixes, for example 127.0.0.0/8.
    pub addresses: Vec<AddressPlan>,
    /// TCP ports, as ranges with both ends inside.
    pub tcp_ports: Vec<(u16, u16)>,
    /// UDP ports, as ranges with both ends inside.
    pub udp_ports: Vec<(u16, u16)>,
}

impl KernelPlan {
    /// Whether TCP at `address` (a local one to bind, or a remote one to connect to) stays with the kernel. A
    /// v4-mapped IPv6 address is judged as the IPv4 address it stands for.
    #[must_use]
    pub fn keeps_tcp(&self, address: SocketAddr) -> bool {
        self.keeps_address(address.ip()) || in_ranges(&self.tcp_ports, address.port())
    }

    /// Whether UDP at `address` stays with the kernel; otherwise as [`Self::keeps_tcp`].
    #[must_use]
    pub fn keeps_udp(&self, address: SocketAddr) -> bool {
        self.keeps_address(address.ip()) || in_ranges(&self.udp_ports, address.port())
    }

    /// Whether everything at `ip` stays with the kernel.
    #[must_use]
    pub fn keeps_address(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.addresses.iter().any(|prefix| prefix.contains(ip))
    }
}

fn in_ranges(ranges: &[(u16, u16)], port: u16) -> bool {
    ranges.iter().any(|&(first, last)| (first..=last).contains(&port))
}

/// What is left to the device: what it can do and the configuration allows.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct OffloadPlan {
    /// It verifies checksums of received packets.
    pub rx_checksum: bool,
    /// It computes IPv4 header checksums.
    pub tx_ip_checksum: bool,
    /// It computes TCP checksums.
    pub tx_tcp_checksum: bool,
    /// It cuts large TCP segments.
    pub tso: bool,
}

/// The device beneath port 0.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum DevicePlan {
    /// A DPDK port (`net_tap` or a NIC); the number is DPDK's port id.
    Dpdk {
        /// DPDK port id.
        port_id: u16,
        /// The kernel's interface, if it is a TAP, whose queue descriptors can be slept on.
        tap_interface: Option<String>,
        /// What is left to it.
        offloads: OffloadPlan,
    },
    /// The in-memory wire.
    Wire {
        /// Its number.
        port: u16,
    },
    /// Packet sockets with mapped rings. The descriptors beside the plan are the receiving sockets of *all* queues, in
    /// order, and then this worker's own sending socket.
    AfPacket {
        /// Kernel interface name.
        ifname: String,
        /// Frames of a receive ring.
        rx_frames: u32,
        /// Longest frame that can be received, in bytes.
        rx_frame_bytes: u32,
        /// Frames of a transmit ring.
        tx_frames: u32,
        /// Longest frame that can be sent, in bytes.
        tx_frame_bytes: u32,
    },
}

/// Table sizes and memory bounds, each per worker.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct LimitsPlan {
    /// TCP flow table entries.
    pub tcp_flows: u32,
    /// UDP publish table entries.
    pub udp_flows: u32,
    /// Neighbours of the host.
    pub neighbours: u32,
    /// Packet buffers per (worker, slot).
    pub mbufs: u32,
    /// Bytes that TCP buffers of one worker may hold.
    pub memory_bytes: u64,
}

/// TCP settings, from `[freebsd.sysctl]` and `[limits]`.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct TcpPlan {
    /// Receive buffer that a connection starts with, in bytes.
    pub rcv_buf_initial_bytes: u32,
    /// Upper bound of a receive buffer in bytes.
    pub rcv_buf_max_bytes: u32,
    /// Send buffer that a connection starts with, in bytes.
    pub snd_buf_initial_bytes: u32,
    /// Upper bound of a send buffer in bytes.
    pub snd_buf_max_bytes: u32,
    /// The most that SO_RCVBUF and SO_SNDBUF can ask for, in bytes.
    pub sock_buf_max_bytes: u32,
    /// Maximum segment lifetime in milliseconds (TIME-WAIT lasts twice that).
    pub msl_ms: u32,
    /// Delayed acknowledgements.
    pub delayed_ack: bool,
    /// Their longest delay in milliseconds.
    pub delayed_ack_ms: u32,
    /// Selective acknowledgements.
    pub sack: bool,
    /// Window scale and timestamps (RFC 7323).
    pub rfc1323: bool,
    /// `cubic` or `newreno`.
    pub congestion: String,
    /// Initial window in segments (RFC 6928).
    pub initcwnd_segments: u32,
    /// Retransmission timeout before there is a sample, in milliseconds (RFC 6298).
    pub rto_initial_ms: u32,
    /// Shortest retransmission timeout in milliseconds.
    pub rto_min_ms: u32,
    /// RFC 3168: `off`, `on` or `passive` (granted to a peer that asks).
    pub ecn: String,
    /// SYN cookies when the backlog overflows.
    pub syn_cookies: bool,
    /// Retransmissions of a SYN-ACK.
    pub synack_retries: u8,
    /// The path MTU is probed when ICMP does not tell (RFC 4821).
    pub mtu_probing: bool,
    /// Half-open handshakes before cookies are sent.
    pub syn_backlog: u32,
    /// Longest accept backlog (`kern.ipc.somaxconn`).
    pub somaxconn: u32,
    /// Keep-alive also without SO_KEEPALIVE.
    pub always_keepalive: bool,
    /// Keep-alive idle time in milliseconds.
    pub keep_idle_ms: u32,
    /// Keep-alive interval in milliseconds.
    pub keep_interval_ms: u32,
    /// Keep-alive probes.
    pub keep_count: u32,
    /// FIN-WAIT-2 limit in milliseconds.
    pub finwait2_timeout_ms: u32,
    /// TIME-WAIT entries at most.
    pub time_wait_max: u32,
    /// A segment for no socket meets silence instead of a RST.
    pub blackhole: bool,
}

#[cfg(test)]
mod tests;
