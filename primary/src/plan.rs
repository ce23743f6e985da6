//! From the configuration to what workers are told. Pure.

use std::hash::Hasher as _;
use std::path::PathBuf;

use ff_config::{Config, Congestion, Device as DeviceKey, Ecn, Port};
use ff_control::{AddressPlan, DevicePlan, KernelPlan, LimitsPlan, TcpPlan, WorkerPlan};
use ff_dpdk::eal::args::{EalArgsError, EalConfig, Role, arguments};
use ff_dpdk::instance::Layout;
use ff_dpdk::names::{self, LayoutError, WorkerId};
use siphasher::sip::SipHasher13;

/// DPDK's log level unless the configuration has another: errors.
const LOG_LEVEL: u8 = 4;
/// Descriptors of a queue of an Ethernet port.
const DESCRIPTORS: u16 = 512;

/// Why a process cannot get DPDK arguments.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// Too many workers.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// What cannot be said to DPDK.
    #[error(transparent)]
    Arguments(#[from] EalArgsError),
}

/// What does not change while the instance lives.
#[derive(Debug)]
pub struct Settings {
    /// The configuration.
    pub config: Config,
    /// Where it was read.
    pub config_path: PathBuf,
    /// Workers of a generation.
    pub workers: u16,
    /// CPUs for workers: worker i runs on `cpus[i % cpus.len()]`.
    pub cpus: Vec<u16>,
    /// CPUs that this process may use.
    pub allowed_cpus: Vec<u16>,
}

impl Settings {
    /// The port; `startup` has made sure that there is exactly one.
    pub fn port(&self) -> &Port {
        &self.config.ports[0]
    }

    /// Whether the port is a NIC of its own, whose driver keeps buffers.
    pub fn has_nic(&self) -> bool {
        matches!(self.port().device, DeviceKey::Pci(_))
    }

    /// Slots of the instance.
    pub fn slots(&self) -> u16 {
        self.config.reload.generations as u16
    }

    /// What is created of packet memory.
    pub fn layout(&self) -> Layout {
        let limits = &self.config.limits;
        Layout {
            workers: self.workers,
            slots: self.slots(),
            worker_mbufs: limits.mbufs,
            queue_mbufs: limits.mbufs,
            inbox_slots: self.config.reload.drain_ring_size,
            descriptors: DESCRIPTORS,
        }
    }

    /// The CPU of a worker.
    pub fn cpu(&self, index: u16) -> u16 {
        self.cpus[usize::from(index) % self.cpus.len()]
    }

    /// DPDK's arguments for the primary, which takes at least `need_bytes` at once.
    pub fn primary_arguments(&self, need_bytes: u64) -> EalConfig {
        let need_mib = u32::try_from(need_bytes.div_ceil(1 << 20)).unwrap_or(u32::MAX);
        let memory_mib = self.config.dpdk.memory_mb.unwrap_or(0).max(need_mib);
        let role = Role::Primary { memory_mib, vdevs: Vec::new() };
        let mut config = self.eal(role, 0, self.allowed_cpus.clone());
        let dpdk = &self.config.dpdk;
        let mut own = vec![format!("--huge-dir={}", self.config.instance.hugepage_dir.display())];
        own.extend(dpdk.channel.map(|channels| format!("-n{channels}")));
        own.extend(dpdk.base_virtaddr.map(|address| format!("--base-virtaddr={address:#x}")));
        if config.pci.is_empty() {
            // No device needs physical addresses.
            own.push("--iova-mode=va".to_owned());
        }
        config.extra.splice(0..0, own);
        config
    }

    /// DPDK's arguments for a worker, program name first.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn worker_arguments(&self, slot: u16, index: u16) -> Result<Vec<String>, PlanError> {
        let lcore = names::lcore_id(self.workers, self.slots(), WorkerId { slot, index })?;
        Ok(arguments(&self.eal(Role::Secondary, lcore, vec![self.cpu(index)]))?)
    }

    /// DPDK's arguments for a client at the far end of the in-memory wire.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn client_arguments(&self, client: u16) -> Result<Vec<String>, PlanError> {
        let lcore = names::client_lcore_id(self.workers, self.slots(), client)?;
        Ok(arguments(&self.eal(Role::Secondary, lcore, self.allowed_cpus.clone()))?)
    }

    fn eal(&self, role: Role, lcore: u16, cpus: Vec<u16>) -> EalConfig {
        let dpdk = &self.config.dpdk;
        let mut pci: Vec<String> = dpdk.allow.iter().map(ToString::to_string).collect();
        if let DeviceKey::Pci(address) = &self.port().device {
            pci.push(address.to_string());
        }
        pci.sort();
        pci.dedup();
        let level = dpdk.log_level.as_deref();
        let number = level.and_then(|level| level.parse::<u8>().ok());
        // A level for one component comes beside the general one.
        let pattern = level.filter(|_| number.is_none()).map(|pattern| format!("--log-level={pattern}"));
        EalConfig {
            file_prefix: dpdk.file_prefix.clone(),
            role,
            lcore,
            cpus,
            pci,
            // EAL knows 1 to 8; 0 in the file means as little as there is.
            log_level: number.unwrap_or(LOG_LEVEL).clamp(1, 8),
            extra: pattern.into_iter().chain(dpdk.extra_eal_args.iter().cloned()).collect(),
        }
    }

    /// A MAC address for a device that has none of its own: locally administered, and the same at each start, so that
    /// neighbours need not learn anew.
    pub fn own_mac(&self) -> [u8; 6] {
        let mut hasher = SipHasher13::new_with_keys(0, 0);
        hasher.write(self.config.instance.name.as_bytes());
        hasher.write(self.port().device.to_string().as_bytes());
        let [a, b, c, d, e, ..] = hasher.finish().to_be_bytes();
        // The kernel's end of a TAP differs in the last bit.
        [0x02, a, b, c, d, e & !1]
    }

    /// What stays with the kernel.
    pub fn kernel(&self) -> KernelPlan {
        let kernel = &self.config.kernel;
        KernelPlan {
            addresses: kernel.addresses.iter().map(address).collect(),
            tcp_ports: kernel.tcp_ports.clone(),
            udp_ports: kernel.udp_ports.clone(),
        }
    }

    /// A plan with all that is the same for every worker; place and region are the caller's to fill in.
    pub fn plan(&self, eal_args: Vec<String>, device: DevicePlan, mac: [u8; 6]) -> WorkerPlan {
        let (config, port) = (&self.config, self.port());
        WorkerPlan {
            instance: config.instance.name.clone(),
            epoch: 0,
            slot: 0,
            index: 0,
            workers: self.workers,
            slots: self.slots(),
            queues: Vec::new(),
            eal_args,
            file_prefix: config.dpdk.file_prefix.clone(),
            region_path: String::new(),
            region_bytes: 0,
            device,
            mac,
            mtu: port.mtu,
            addresses: port.addresses().iter().map(address).collect(),
            gateway4: port.gateway.map(Into::into),
            gateway6: port.gateway6.map(Into::into),
            kernel: self.kernel(),
            idle_sleep_us: config.dpdk.idle_sleep_us,
            tx_delay_us: config.dpdk.pkt_tx_delay_us,
            udp_idle_ms: config.udp.idle_ms,
            udp_blackhole: config.udp.blackhole,
            limits: self.limits(),
            tcp: self.tcp(),
        }
    }

    fn limits(&self) -> LimitsPlan {
        let limits = &self.config.limits;
        LimitsPlan {
            tcp_flows: limits.tcp_flows,
            udp_flows: limits.udp_flows,
            neighbours: limits.neighbours,
            mbufs: limits.mbufs,
            memory_bytes: limits.memory_bytes,
        }
    }

    fn tcp(&self) -> TcpPlan {
        let (config, tcp) = (&self.config, &self.config.tcp);
        TcpPlan {
            rcv_buf_initial_bytes: narrow(tcp.recvspace_bytes),
            rcv_buf_max_bytes: narrow(config.rcv_buf_max_bytes()),
            snd_buf_initial_bytes: narrow(tcp.sendspace_bytes),
            snd_buf_max_bytes: narrow(config.snd_buf_max_bytes()),
            sock_buf_max_bytes: narrow(tcp.maxsockbuf_bytes),
            msl_ms: tcp.msl_ms,
            delayed_ack: tcp.delayed_ack,
            delayed_ack_ms: tcp.delayed_ack_ms,
            sack: tcp.sack,
            rfc1323: tcp.rfc1323,
            congestion: match tcp.congestion {
                Congestion::Cubic => "cubic",
                Congestion::NewReno => "newreno",
            }
            .to_owned(),
            initcwnd_segments: tcp.initcwnd_segments,
            rto_initial_ms: tcp.rexmit_initial_ms,
            rto_min_ms: tcp.rexmit_min_ms,
            ecn: match tcp.ecn {
                Ecn::Off => "off",
                Ecn::On => "on",
                Ecn::Passive => "passive",
            }
            .to_owned(),
            syn_cookies: tcp.syncookies,
            synack_retries: tcp.synack_retries,
            mtu_probing: tcp.pmtud_blackhole_detection,
            syn_backlog: config.limits.syn_backlog,
            somaxconn: tcp.somaxconn,
            always_keepalive: tcp.always_keepalive,
            keep_idle_ms: tcp.keepidle_ms,
            keep_interval_ms: tcp.keepintvl_ms,
            keep_count: tcp.keepcnt,
            finwait2_timeout_ms: tcp.finwait2_timeout_ms,
            time_wait_max: tcp.time_wait_max.unwrap_or(config.limits.tcp_flows),
            blackhole: tcp.blackhole,
        }
    }
}

fn address(net: &ff_config::IpNet) -> AddressPlan {
    AddressPlan { addr: net.addr(), prefix_len: net.prefix_len() }
}

fn narrow(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
