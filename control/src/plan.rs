//! Everything that a worker needs to know to attach: sent by the primary, so that a worker reads no configuration.

use std::net::IpAddr;

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
    /// Prefixes that stay in the kernel, for example 127.0.0.0/8.
    pub kernel_addresses: Vec<AddressPlan>,
    /// TCP ports that stay in the kernel.
    pub kernel_tcp_ports: Vec<u16>,
    /// UDP ports that stay in the kernel.
    pub kernel_udp_ports: Vec<u16>,
    /// Sleep of an idle pass that has nothing to wait on, in microseconds; 0 chooses by device.
    pub idle_sleep_us: u32,
    /// Longest time a frame to send may wait for a fuller burst, in microseconds (0..=100).
    pub tx_delay_us: u32,
    /// TCP segmentation may be left to the device (where it can).
    pub tso: bool,
    /// Idle time after which a UDP flow is aged, in milliseconds (100..=3 600 000).
    pub udp_idle_ms: u32,
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

/// The device beneath port 0.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum DevicePlan {
    /// A DPDK port (`net_tap` or a NIC); the number is DPDK's port id.
    Dpdk {
        /// DPDK port id.
        port_id: u16,
        /// Whether it is a TAP, whose queue descriptors can be slept on.
        tap: bool,
    },
    /// The in-memory wire.
    Wire,
    /// One packet socket per queue.
    AfPacket {
        /// Kernel interface name.
        ifname: String,
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
    /// Upper bound of a receive buffer in bytes.
    pub rcv_buf_max_bytes: u32,
    /// Upper bound of a send buffer in bytes.
    pub snd_buf_max_bytes: u32,
    /// Maximum segment lifetime in milliseconds (TIME-WAIT lasts twice that).
    pub msl_ms: u32,
    /// Delayed acknowledgements.
    pub delayed_ack: bool,
    /// Selective acknowledgements.
    pub sack: bool,
    /// Window scale and timestamps (RFC 7323).
    pub rfc1323: bool,
    /// `cubic` or `newreno`.
    pub congestion: String,
    /// RFC 3168.
    pub ecn: bool,
    /// SYN cookies on overflow.
    pub syn_cookies: bool,
    /// Longest accept backlog (`kern.ipc.somaxconn`).
    pub somaxconn: u32,
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
}
