//! The typed configuration: what `f-stack.conf` means once it has been read.
//!
//! Every field names the key it comes from. Defaults are those of the key table (`keys`), which a test
//! compares with the `Default` implementations here.

use std::path::PathBuf;

use ipnet::IpNet;

use crate::device::PciAddress;
use crate::port::Port;
use crate::tcp_settings::Tcp;

/// One instance's whole configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `[instance]`: its name and where it lives.
    pub instance: Instance,
    /// `[dpdk]`: the environment layer and how workers poll.
    pub dpdk: Dpdk,
    /// `[portN]` in ascending order of N; only those that `[dpdk] port_list` names, when it is given.
    pub ports: Vec<Port>,
    /// `[nginx]`: the server program.
    pub nginx: Nginx,
    /// `[kernel]`: which binds stay with the kernel's stack.
    pub kernel: Kernel,
    /// `[limits]`: how large tables and buffers may become.
    pub limits: Limits,
    /// `[reload]`, and the reload keys of `[dpdk]`.
    pub reload: Reload,
    /// `[freebsd.sysctl] net.inet.tcp.*` and `kern.ipc.*`.
    pub tcp: Tcp,
    /// `[dpdk] reload_udp_idle_ms` and `[freebsd.sysctl] net.inet.udp.*`.
    pub udp: Udp,
}

/// `[instance]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// `name`: 1 to 32 of `A-Z a-z 0-9 _ -`. Default `default`.
    pub name: String,
    /// `runtime_dir`: control socket, logs and state. Default `/run/ffstack/<name>`.
    pub runtime_dir: PathBuf,
    /// `hugepage_dir`: where hugetlbfs is mounted. Default `/dev/hugepages`.
    pub hugepage_dir: PathBuf,
}

/// `[dpdk]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dpdk {
    /// `lcore_mask` as CPU numbers in ascending order; worker i runs on `cpus[i % cpus.len()]`. Empty: every
    /// CPU that the process may use.
    pub cpus: Vec<u32>,
    /// `channel`: memory channels (EAL `-n`, 1 to 32). None: EAL's own choice.
    pub channel: Option<u32>,
    /// `memory`: MiB of hugepages taken at the start (EAL `-m`). None: as needed.
    pub memory_mb: Option<u32>,
    /// `base_virtaddr`: where hugepages are mapped (EAL `--base-virtaddr`). None: EAL's own choice.
    pub base_virtaddr: Option<u64>,
    /// `file_prefix` (EAL `--file-prefix`). Default `ff_<instance name>`.
    pub file_prefix: String,
    /// `log_level` (EAL `--log-level`): `0` to `8`, or `pattern:level`. None: EAL's own choice.
    pub log_level: Option<String>,
    /// `allow`: PCI devices that EAL may probe, besides those of `[portN] device=pci:`.
    pub allow: Vec<PciAddress>,
    /// `port_list`: the `[portN]` sections in use. Empty: all that the file has.
    pub port_list: Vec<u16>,
    /// `promiscuous`: ports receive frames to any MAC address. Default true.
    pub promiscuous: bool,
    /// `tso`: TCP segmentation by devices that can. Default true.
    pub tso: bool,
    /// `tx_csum_offoad_skip` (F-Stack's spelling): no checksum is left to the device on transmit.
    pub tx_csum_offload_skip: bool,
    /// `tx_csum_ip_skip`: the IPv4 header checksum is never left to the device.
    pub tx_csum_ip_skip: bool,
    /// `tx_csum_l4_skip`: TCP and UDP checksums are never left to the device.
    pub tx_csum_l4_skip: bool,
    /// `idle_sleep`, µs (0 to 100 000): the longest single sleep of an idle worker on a device that cannot wake
    /// it. 0: never sleep, poll. Default 250.
    pub idle_sleep_us: u32,
    /// `pkt_tx_delay`, µs (0 to 100): how long packets may wait for more to fill a burst. Default 0.
    pub pkt_tx_delay_us: u32,
    /// `extra_eal_args`: handed to EAL as they are, after our own.
    pub extra_eal_args: Vec<String>,
}

/// `[nginx]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nginx {
    /// `binary`. Default `/usr/sbin/nginx`.
    pub binary: PathBuf,
    /// `conf` (nginx `-c`). Default `/etc/nginx/nginx.conf`.
    pub conf: PathBuf,
    /// `prefix` (nginx `-p`). None: as compiled in.
    pub prefix: Option<PathBuf>,
    /// `options`: further command-line arguments, split as a shell would.
    pub options: Vec<String>,
}

/// `[kernel]`: binds that stay with the kernel's stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// `addresses`. Default 127.0.0.0/8 and ::1/128.
    pub addresses: Vec<IpNet>,
    /// `tcp_ports`: inclusive ranges.
    pub tcp_ports: Vec<(u16, u16)>,
    /// `udp_ports`: inclusive ranges.
    pub udp_ports: Vec<(u16, u16)>,
}

/// `[limits]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `tcp_flows`: TCP flows of one worker of one generation, TIME-WAIT included. Default 131 072.
    pub tcp_flows: u32,
    /// `udp_flows`: published UDP flows of one worker of one generation. Default 16 384.
    pub udp_flows: u32,
    /// `neighbours`: entries of the host's neighbour table. Default 1 024.
    pub neighbours: u32,
    /// `mbufs`: packet buffers of one worker of one generation. Default 8 192.
    pub mbufs: u32,
    /// `rcv_buf_max`, bytes: no receive buffer grows beyond it. Default 6 MiB.
    pub rcv_buf_max_bytes: u64,
    /// `snd_buf_max`, bytes: no send buffer grows beyond it. Default 4 MiB.
    pub snd_buf_max_bytes: u64,
    /// `memory`, bytes: what the connections of one worker may hold together. Default 1 GiB.
    pub memory_bytes: u64,
    /// `syn_backlog`: half-open handshakes of one worker before SYN cookies. Default 4 096.
    pub syn_backlog: u32,
}

/// What a reload does that finds no free generation slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoFreeSlot {
    /// `wait`: it starts as soon as a draining generation has ended.
    Wait,
    /// `refuse`: it fails at once with that reason.
    Refuse,
    /// `end_oldest`: the oldest draining generation is ended to make room.
    EndOldest,
}

/// `[reload]`, and `[dpdk] reload_heartbeat_timeout_ms, drain_ring_size`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reload {
    /// `reload_generations`: slots (2 to 8). Default 4.
    pub generations: u32,
    /// `no_free_slot`. Default wait.
    pub no_free_slot: NoFreeSlot,
    /// `ready_timeout_ms`: how long new workers may take to be READY (T1). Default 60 000.
    pub ready_timeout_ms: u32,
    /// `handover_timeout_ms`: how long the old workers may take to hand over their queues (T2). Default 1 000.
    pub handover_timeout_ms: u32,
    /// `drain_timeout_ms`: how long the old generation may drain (T3). None: nginx's
    /// `worker_shutdown_timeout`, or 90 000 when that is unset.
    pub drain_timeout_ms: Option<u32>,
    /// `[dpdk] reload_heartbeat_timeout_ms`: a worker silent for longer counts as stalled. Default 1 000.
    pub heartbeat_timeout_ms: u32,
    /// `[dpdk] drain_ring_size`: packets in one ring between two workers; a power of two. Default 2 048.
    pub drain_ring_size: u32,
}

/// UDP settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Udp {
    /// `[dpdk] reload_udp_idle_ms` (100 to 3 600 000): a UDP flow idle for longer belongs to whoever receives
    /// its next datagram. Default 10 000.
    pub idle_ms: u32,
    /// `[freebsd.sysctl] net.inet.udp.blackhole`: no ICMP "port unreachable" is sent. Default false.
    pub blackhole: bool,
}

impl Default for Config {
    /// Every key at its default, and no port.
    fn default() -> Self {
        Config {
            instance: Instance::default(),
            dpdk: Dpdk::default(),
            ports: Vec::new(),
            nginx: Nginx::default(),
            kernel: Kernel::default(),
            limits: Limits::default(),
            reload: Reload::default(),
            tcp: Tcp::default(),
            udp: Udp::default(),
        }
    }
}

impl Default for Instance {
    fn default() -> Self {
        Instance {
            name: "default".into(),
            runtime_dir: "/run/ffstack/default".into(),
            hugepage_dir: "/dev/hugepages".into(),
        }
    }
}

impl Default for Dpdk {
    fn default() -> Self {
        Dpdk {
            cpus: Vec::new(),
            channel: None,
            memory_mb: None,
            base_virtaddr: None,
            file_prefix: "ff_default".into(),
            log_level: None,
            allow: Vec::new(),
            port_list: Vec::new(),
            promiscuous: true,
            tso: true,
            tx_csum_offload_skip: false,
            tx_csum_ip_skip: false,
            tx_csum_l4_skip: false,
            idle_sleep_us: 250,
            pkt_tx_delay_us: 0,
            extra_eal_args: Vec::new(),
        }
    }
}

impl Default for Nginx {
    fn default() -> Self {
        Nginx {
            binary: "/usr/sbin/nginx".into(),
            conf: "/etc/nginx/nginx.conf".into(),
            prefix: None,
            options: Vec::new(),
        }
    }
}

impl Default for Kernel {
    fn default() -> Self {
        use std::net::{Ipv4Addr, Ipv6Addr};
        Kernel {
            addresses: vec![
                IpNet::new_assert(Ipv4Addr::new(127, 0, 0, 0).into(), 8),
                IpNet::new_assert(Ipv6Addr::LOCALHOST.into(), 128),
            ],
            tcp_ports: Vec::new(),
            udp_ports: Vec::new(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            tcp_flows: 131_072,
            udp_flows: 16_384,
            neighbours: 1_024,
            mbufs: 8_192,
            rcv_buf_max_bytes: 6 << 20,
            snd_buf_max_bytes: 4 << 20,
            memory_bytes: 1 << 30,
            syn_backlog: 4_096,
        }
    }
}

impl Default for Reload {
    fn default() -> Self {
        Reload {
            generations: 4,
            no_free_slot: NoFreeSlot::Wait,
            ready_timeout_ms: 60_000,
            handover_timeout_ms: 1_000,
            drain_timeout_ms: None,
            heartbeat_timeout_ms: 1_000,
            drain_ring_size: 2_048,
        }
    }
}

impl Default for Udp {
    fn default() -> Self {
        Udp { idle_ms: 10_000, blackhole: false }
    }
}

impl Kernel {
    /// Whether a TCP bind to `address` stays with the kernel's stack.
    pub fn keeps_tcp(&self, address: std::net::SocketAddr) -> bool {
        self.keeps(address, &self.tcp_ports)
    }

    /// Whether a UDP bind to `address` stays with the kernel's stack.
    pub fn keeps_udp(&self, address: std::net::SocketAddr) -> bool {
        self.keeps(address, &self.udp_ports)
    }

    fn keeps(&self, address: std::net::SocketAddr, ports: &[(u16, u16)]) -> bool {
        // A v4-mapped IPv6 address is judged as the IPv4 address it stands for.
        let ip = address.ip().to_canonical();
        self.addresses.iter().any(|net| net.contains(&ip))
            || ports.iter().any(|&(first, last)| (first..=last).contains(&address.port()))
    }
}
