//! Ethernet ports: configuration by the primary, bursts by the workers.

use std::ffi::CStr;
use std::mem::MaybeUninit;

use ff_dpdk_sys as sys;

use crate::errno::{Errno, c_name};
use crate::{Eal, Mbuf, Mempool, owner};

/// Why a port does not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// No such port.
    #[error("DPDK has no port named {0}: is its driver installed and the device bound to it?")]
    Absent(String),
    /// The device was not accepted.
    #[error("DPDK cannot create {device}: {errno}")]
    Create {
        /// Device with its arguments.
        device: String,
        /// DPDK's reason.
        errno: Errno,
    },
    /// More queues than the device has.
    #[error(
        "{driver} has {rx_max} receive and {tx_max} transmit queues, {rx} and {tx} are needed: use fewer workers"
    )]
    Queues {
        /// The driver.
        driver: String,
        /// Receive queues wanted.
        rx: u16,
        /// Transmit queues wanted.
        tx: u16,
        /// Receive queues there are.
        rx_max: u16,
        /// Transmit queues there are.
        tx_max: u16,
    },
    /// A step of the configuration failed.
    #[error("port {port} cannot {step}: {errno}")]
    Step {
        /// Number of the port.
        port: u16,
        /// What was tried.
        step: &'static str,
        /// DPDK's reason.
        errno: Errno,
    },
}

/// What a port is and can do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortInfo {
    /// Name of the driver, for example `net_tap`.
    pub driver: String,
    /// Queues the device has.
    pub rx_queues_max: u16,
    /// Queues the device has.
    pub tx_queues_max: u16,
    /// Queues that were configured.
    pub rx_queues: u16,
    /// Queues that were configured.
    pub tx_queues: u16,
    /// Largest MTU in bytes.
    pub mtu_max: u16,
    /// What can be left to the device.
    pub offloads: Offloads,
    rss_hash_functions: u64,
    tx_segments: bool,
}

/// What is left to a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offloads {
    /// It verifies IPv4, TCP and UDP checksums of received packets.
    pub rx_checksum: bool,
    /// It computes IPv4 header checksums.
    pub tx_ip_checksum: bool,
    /// It computes TCP checksums.
    pub tx_tcp_checksum: bool,
    /// It cuts large TCP segments.
    pub tso: bool,
}

/// How to configure a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortConfig {
    /// Receive queues.
    pub rx_queues: u16,
    /// Transmit queues.
    pub tx_queues: u16,
    /// Descriptors of each receive queue. At least 2.
    pub rx_descriptors: u16,
    /// Descriptors of each transmit queue.
    pub tx_descriptors: u16,
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// What is left to the device, where it can.
    pub offloads: Offloads,
}

/// Counters of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortStats {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets lost because a queue was full.
    pub rx_missed: u64,
    /// Packets received with an error.
    pub rx_errors: u64,
    /// Packets not sent.
    pub tx_errors: u64,
    /// Times that no buffer was left for a packet.
    pub rx_no_mbuf: u64,
}

/// State of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Carrier.
    pub up: bool,
    /// Speed in Mbit/s.
    pub speed_mbps: u32,
}

/// An Ethernet port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EthDev {
    port: u16,
}

impl EthDev {
    /// Finds a port by its device name.
    ///
    /// # Errors
    /// When there is none.
    pub fn by_name(_eal: Eal, name: &str) -> Result<Self, PortError> {
        let mut port = 0;
        // SAFETY: EAL is initialised (`_eal`); the name is NUL-terminated; `port` outlives the call.
        match unsafe { sys::rte_eth_dev_get_port_by_name(c_name(name).as_ptr(), &raw mut port) } {
            0 => Ok(Self { port }),
            _ => Err(PortError::Absent(name.to_owned())),
        }
    }

    /// Finds a port by its number.
    ///
    /// # Errors
    /// When there is none.
    pub fn by_number(_eal: Eal, port: u16) -> Result<Self, PortError> {
        // SAFETY: EAL is initialised (`_eal`); any number may be asked.
        match unsafe { sys::rte_eth_dev_is_valid_port(port) } {
            0 => Err(PortError::Absent(port.to_string())),
            _ => Ok(Self { port }),
        }
    }

    /// Has a driver create a device at run time, for example on the bus `vdev`.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn create(eal: Eal, bus: &str, name: &str, arguments: &str) -> Result<Self, PortError> {
        // SAFETY: EAL is initialised (`eal`); all three strings are NUL-terminated.
        let error = unsafe {
            sys::rte_eal_hotplug_add(c_name(bus).as_ptr(), c_name(name).as_ptr(), c_name(arguments).as_ptr())
        };
        if error != 0 {
            let device = format!("{name} ({arguments})");
            return Err(PortError::Create { device, errno: Errno::negated(error) });
        }
        Self::by_name(eal, name)
    }

    /// Number of ports there are.
    pub fn count(_eal: Eal) -> u16 {
        // SAFETY: EAL is initialised (`_eal`).
        unsafe { sys::rte_eth_dev_count_avail() }
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.port
    }

    fn step(&self, step: &'static str, error: i32) -> Result<(), PortError> {
        if error < 0 {
            return Err(PortError::Step { port: self.port, step, errno: Errno::negated(error) });
        }
        Ok(())
    }

    /// What the port is and can do.
    ///
    /// # Errors
    /// When the driver does not answer.
    pub fn info(&self) -> Result<PortInfo, PortError> {
        let mut info = MaybeUninit::<sys::ff_eth_info>::zeroed();
        // SAFETY: a structure of the right type that outlives the call; the port number is checked by DPDK.
        let error = unsafe { sys::ff_eth_info(self.port, info.as_mut_ptr()) };
        self.step("say what it is", error)?;
        // SAFETY: all-zero is valid, and the call filled it in.
        let info = unsafe { info.assume_init() };
        // SAFETY: the copy of the name is at most 31 bytes of 32, the rest zero.
        let driver = unsafe { CStr::from_ptr(info.driver.as_ptr()) }.to_string_lossy().into_owned();
        let rx = |flag| info.rx_offloads & flag == flag;
        let tx = |flag| info.tx_offloads & flag == flag;
        // net_tap computes in software what it announces; the stack does that itself, without a copy.
        let in_hardware = driver != crate::tap::DRIVER;
        Ok(PortInfo {
            rx_queues_max: info.rx_queues_max,
            tx_queues_max: info.tx_queues_max,
            rx_queues: info.rx_queues,
            tx_queues: info.tx_queues,
            mtu_max: info.mtu_max,
            offloads: Offloads {
                rx_checksum: in_hardware
                    && rx(sys::FF_RX_OFFLOAD_IPV4_CKSUM
                        | sys::FF_RX_OFFLOAD_TCP_CKSUM
                        | sys::FF_RX_OFFLOAD_UDP_CKSUM),
                tx_ip_checksum: in_hardware && tx(sys::FF_TX_OFFLOAD_IPV4_CKSUM),
                tx_tcp_checksum: in_hardware && tx(sys::FF_TX_OFFLOAD_TCP_CKSUM),
                tso: in_hardware && tx(sys::FF_TX_OFFLOAD_TCP_TSO | sys::FF_TX_OFFLOAD_TCP_CKSUM),
            },
            rss_hash_functions: info.rss_hash_functions & sys::FF_RSS_TCP_UDP,
            tx_segments: tx(sys::FF_TX_OFFLOAD_MULTI_SEGS),
            driver,
        })
    }

    /// Configures queues and offloads and starts the port. Receive queue `i` fills buffers of `pools[i]`.
    ///
    /// Offloads that the device does not have are left out; see the result.
    ///
    /// # Errors
    /// When the device has too few queues, or its driver refuses a step.
    ///
    /// # Panics
    /// If there are fewer pools than receive queues.
    pub fn start(&self, config: &PortConfig, pools: &[Mempool]) -> Result<Offloads, PortError> {
        assert!(pools.len() >= usize::from(config.rx_queues), "a pool for each receive queue");
        let info = self.info()?;
        if config.rx_queues > info.rx_queues_max || config.tx_queues > info.tx_queues_max {
            return Err(PortError::Queues {
                driver: info.driver,
                rx: config.rx_queues,
                tx: config.tx_queues,
                rx_max: info.rx_queues_max,
                tx_max: info.tx_queues_max,
            });
        }
        let offloads = config.offloads.and(info.offloads);
        let request = sys::ff_eth_config {
            rx_offloads: offloads.rx_flags(),
            tx_offloads: offloads.tx_flags(info.tx_segments),
            rss_hash_functions: info.rss_hash_functions,
            mtu: u32::from(config.mtu),
            rx_queues: config.rx_queues,
            tx_queues: config.tx_queues,
        };
        // SAFETY: a complete request that outlives the call.
        let error = unsafe { sys::ff_eth_configure(self.port, &raw const request) };
        self.step("be configured with these queues and this MTU", error)?;
        for queue in 0..config.tx_queues {
            // SAFETY: the port is configured with this queue and stopped; no options.
            let error = unsafe {
                sys::rte_eth_tx_queue_setup(self.port, queue, config.tx_descriptors, 0, std::ptr::null())
            };
            self.step("set up a transmit queue", error)?;
        }
        for (queue, pool) in (0..config.rx_queues).zip(pools) {
            // SAFETY: as above; the pool is live, and stays so while the port runs (pools are freed only by
            // an unsafe function whose caller vouches for that).
            let error = unsafe {
                let descriptors = config.rx_descriptors.max(2);
                sys::rte_eth_rx_queue_setup(self.port, queue, descriptors, 0, std::ptr::null(), pool.as_ptr())
            };
            self.step("set up a receive queue", error)?;
        }
        // SAFETY: a configured port with all its queues set up.
        self.step("start", unsafe { sys::rte_eth_dev_start(self.port) })?;
        Ok(offloads)
    }

    /// Stops the port.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn stop(&self) -> Result<(), PortError> {
        // SAFETY: any port may be stopped; burst calls on a stopped port do nothing.
        self.step("stop", unsafe { sys::rte_eth_dev_stop(self.port) })
    }

    /// The port's MAC address.
    ///
    /// # Errors
    /// When the driver does not answer.
    pub fn mac(&self) -> Result<[u8; 6], PortError> {
        let mut address = sys::rte_ether_addr { addr_bytes: [0; 6] };
        // SAFETY: a structure that outlives the call.
        let error = unsafe { sys::rte_eth_macaddr_get(self.port, &raw mut address) };
        self.step("tell its MAC address", error)?;
        Ok(address.addr_bytes)
    }

    /// The port's MTU in bytes.
    ///
    /// # Errors
    /// When the driver does not answer.
    pub fn mtu(&self) -> Result<u16, PortError> {
        let mut mtu = 0;
        // SAFETY: an integer that outlives the call.
        self.step("tell its MTU", unsafe { sys::rte_eth_dev_get_mtu(self.port, &raw mut mtu) })?;
        Ok(mtu)
    }

    /// Receive frames for any address, or only for the own one.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn set_promiscuous(&self, on: bool) -> Result<(), PortError> {
        // SAFETY: any port may be asked.
        let error = unsafe {
            match on {
                true => sys::rte_eth_promiscuous_enable(self.port),
                false => sys::rte_eth_promiscuous_disable(self.port),
            }
        };
        self.step("change its promiscuous mode", error)
    }

    /// Receive all multicast frames (IPv6 neighbour discovery comes by multicast).
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn set_all_multicast(&self) -> Result<(), PortError> {
        // SAFETY: any port may be asked.
        self.step("receive all multicast", unsafe { sys::rte_eth_allmulticast_enable(self.port) })
    }

    /// Counters since the start.
    ///
    /// # Errors
    /// When the driver does not answer.
    pub fn stats(&self) -> Result<PortStats, PortError> {
        let mut stats = MaybeUninit::<sys::rte_eth_stats>::zeroed();
        // SAFETY: a structure that outlives the call.
        let error = unsafe { sys::rte_eth_stats_get(self.port, stats.as_mut_ptr()) };
        self.step("tell its counters", error)?;
        // SAFETY: only integers, zeroed and then filled in.
        let stats = unsafe { stats.assume_init() };
        Ok(PortStats {
            rx_packets: stats.ipackets,
            tx_packets: stats.opackets,
            rx_bytes: stats.ibytes,
            tx_bytes: stats.obytes,
            rx_missed: stats.imissed,
            rx_errors: stats.ierrors,
            tx_errors: stats.oerrors,
            rx_no_mbuf: stats.rx_nombuf,
        })
    }

    /// The link, without waiting for it.
    ///
    /// # Errors
    /// When the driver does not answer.
    pub fn link(&self) -> Result<Link, PortError> {
        let mut link = sys::ff_eth_link { speed_mbps: 0, up: 0, full_duplex: 0 };
        // SAFETY: a structure that outlives the call.
        self.step("tell its link", unsafe { sys::ff_eth_link(self.port, &raw mut link) })?;
        Ok(Link { up: link.up != 0, speed_mbps: link.speed_mbps })
    }

    /// The receiving end of a queue.
    ///
    /// # Safety
    /// - The port was started with this queue, by this process or the primary.
    /// - While [`RxQueue::receive`] runs, nobody else receives from this queue, in any process.
    pub unsafe fn rx_queue(&self, queue: u16) -> RxQueue {
        RxQueue { port: self.port, queue }
    }

    /// The sending end of a queue.
    ///
    /// # Safety
    /// - The port was started with this queue, by this process or the primary.
    /// - While [`TxQueue::send`] runs, nobody else sends on this queue, in any process.
    pub unsafe fn tx_queue(&self, queue: u16) -> TxQueue {
        TxQueue { port: self.port, queue }
    }
}

impl Offloads {
    /// What both have.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            rx_checksum: self.rx_checksum && other.rx_checksum,
            tx_ip_checksum: self.tx_ip_checksum && other.tx_ip_checksum,
            tx_tcp_checksum: self.tx_tcp_checksum && other.tx_tcp_checksum,
            tso: self.tso && other.tso,
        }
    }

    fn rx_flags(self) -> u64 {
        let checksums =
            sys::FF_RX_OFFLOAD_IPV4_CKSUM | sys::FF_RX_OFFLOAD_TCP_CKSUM | sys::FF_RX_OFFLOAD_UDP_CKSUM;
        if self.rx_checksum { checksums } else { 0 }
    }

    fn tx_flags(self, segments: bool) -> u64 {
        [
            (self.tx_ip_checksum, sys::FF_TX_OFFLOAD_IPV4_CKSUM),
            (self.tx_tcp_checksum, sys::FF_TX_OFFLOAD_TCP_CKSUM),
            (self.tso, sys::FF_TX_OFFLOAD_TCP_TSO),
            (self.tso && segments, sys::FF_TX_OFFLOAD_MULTI_SEGS),
        ]
        .into_iter()
        .filter(|(wanted, _)| *wanted)
        .fold(0, |flags, (_, flag)| flags | flag)
    }
}

/// The receiving end of a port's queue.
#[derive(Debug)]
pub struct RxQueue {
    port: u16,
    queue: u16,
}

impl RxQueue {
    /// Appends up to `max` received packets to `packets` and says how many.
    #[inline]
    pub fn receive(&mut self, packets: &mut Vec<Mbuf>, max: u16) -> usize {
        let room = Mbuf::spare(packets, usize::from(max));
        // SAFETY: this is the queue's only receiver (see `EthDev::rx_queue`); there is room for `max`.
        let count = unsafe { sys::ff_eth_rx_burst(self.port, self.queue, room, max) };
        // SAFETY: the driver wrote `count` packets and handed them over.
        unsafe { Mbuf::adopt_spare(packets, usize::from(count)) };
        usize::from(count)
    }

    /// Number of the queue.
    pub fn number(&self) -> u16 {
        self.queue
    }
}

/// The sending end of a port's queue.
#[derive(Debug)]
pub struct TxQueue {
    port: u16,
    queue: u16,
}

impl TxQueue {
    /// Gives the first of `packets` to the device, as many as it takes, and says how many; the others stay.
    #[inline]
    pub fn send(&mut self, packets: &mut Vec<Mbuf>) -> usize {
        let count = packets.len().min(usize::from(u16::MAX)) as u16;
        // The driver frees what it has sent, and may have done so before this returns.
        let taken = owner::giving(|| {
            Mbuf::tag_all(packets, owner::NOBODY);
            // SAFETY: this is the queue's only sender (see `EthDev::tx_queue`); the table holds `count`
            // packets that this process holds.
            unsafe { sys::ff_eth_tx_burst(self.port, self.queue, packets.as_mut_ptr().cast(), count) }
        });
        let taken = usize::from(taken);
        Mbuf::tag_all(&packets[taken..], owner::this_process());
        Mbuf::forget_first(packets, taken);
        taken
    }

    /// Number of the queue.
    pub fn number(&self) -> u16 {
        self.queue
    }
}
