//! `[dpdk]`: F-Stack's keys.

use super::{Key, Section, Status, no_effect, not_applicable, works, works_by};
use crate::value::{self, Kind, Setting};

pub(super) static DPDK: Section = Section {
    name: "dpdk",
    numbered: false,
    status: Status::Works,
    meaning: "The DPDK environment and how workers poll.",
    keys: KEYS,
    open: false,
};

const FLAG: Kind = Kind::Flag;

const KEYS: &[Key] = &[
    works_by!(
        "lcore_mask",
        Kind::CpuMask,
        "(every CPU that the process may use)",
        "CPUs of the workers: worker i runs on the (i modulo n)th of the n CPUs in the mask. F-Stack demands it; here it may be left out, and its number of bits need not be the number of workers.",
        |config, _, _, text| {
            config.dpdk.cpus = value::read_cpu_mask(text)?;
            Ok(())
        },
        Some(|config, _, _| value::cpu_mask_text(&config.dpdk.cpus))
    )
    .device(),
    works!(
        "channel",
        Kind::Number { min: 1, max: 32, unit: "" },
        "(EAL's choice)",
        dpdk.channel,
        "Memory channels (EAL `-n`)."
    )
    .device(),
    works!(
        "memory",
        Kind::Number { min: 1, max: 4_194_304, unit: "MiB" },
        "(as needed)",
        dpdk.memory_mb,
        "Hugepage memory taken at the start (EAL `-m`)."
    )
    .device(),
    not_applicable!(
        "no_huge",
        "0",
        "the workers share the primary's packet memory, which DPDK can do with hugepages only"
    ),
    works!(
        "base_virtaddr",
        Kind::Hex,
        "(EAL's choice)",
        dpdk.base_virtaddr,
        "Where hugepages are mapped in every process (EAL `--base-virtaddr`)."
    )
    .device(),
    works!(
        "file_prefix",
        Kind::Name { chars_max: 64 },
        "(ff_ and the instance's name)",
        dpdk.file_prefix,
        "Prefix of DPDK's runtime files (EAL `--file-prefix`, as it stands)."
    )
    .device(),
    works!(
        "log_level",
        Kind::LogLevel,
        "(EAL's choice)",
        dpdk.log_level,
        "Log level of DPDK itself (EAL `--log-level`)."
    ),
    works!(
        "allow",
        Kind::PciList,
        "",
        dpdk.allow,
        "PCI devices that DPDK may probe, besides those of `device=pci:`. Entry N, counted from 0, is the device of a [portN] that has no `device=`."
    )
    .device(),
    works_by!(
        "port_list",
        Kind::PortNumbers,
        "(every [portN] of the file)",
        "The ports in use; each needs its [portN] section.",
        |config, _, kind, text| {
            let ranges: Vec<(u16, u16)> = Setting::read(kind, text)?;
            let mut numbers: Vec<u16> = ranges.iter().flat_map(|&(first, last)| first..=last).collect();
            numbers.sort_unstable();
            if let Some(twice) = numbers.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(format!("port {} is in the list twice", twice[0]));
            }
            config.dpdk.port_list = numbers;
            Ok(())
        },
        Some(|config, _, _| {
            let numbers: Vec<String> = config.dpdk.port_list.iter().map(u16::to_string).collect();
            (!numbers.is_empty()).then(|| numbers.join(","))
        })
    )
    .device(),
    not_applicable!("nb_vdev", "0", "[vdevN] is not offered; a port's device= names what carries its packets"),
    not_applicable!("nb_bond", "0", "[bondN] is not offered"),
    works!(
        "promiscuous",
        FLAG,
        "1",
        dpdk.promiscuous,
        "Ports receive frames to any MAC address; 0: to their own, broadcast and multicast."
    )
    .device(),
    no_effect!("numa_on", "1", "DPDK finds the NUMA nodes by itself"),
    works!("tso", FLAG, "1", dpdk.tso, "TCP segmentation is left to a device that can do it. F-Stack's default is 0.")
        .device(),
    works!(
        "tx_csum_offoad_skip",
        FLAG,
        "0",
        dpdk.tx_csum_offload_skip,
        "No checksum at all is left to the device on transmit (the spelling is F-Stack's); excludes TSO."
    )
    .device(),
    works!(
        "tx_csum_ip_skip",
        FLAG,
        "0",
        dpdk.tx_csum_ip_skip,
        "The IPv4 header checksum is not left to the device."
    )
    .device(),
    works!(
        "tx_csum_l4_skip",
        FLAG,
        "0",
        dpdk.tx_csum_l4_skip,
        "TCP and UDP checksums are not left to the device; excludes TSO."
    )
    .device(),
    no_effect!(
        "symmetric_rss",
        "0",
        "a packet that the device delivers to another worker's queue is forwarded to the worker that owns its flow"
    ),
    no_effect!("lro", "0", "the device is never asked to merge segments"),
    not_applicable!("vlan_strip", "0", "the stack speaks untagged Ethernet; let the switch or the interface untag"),
    not_applicable!("vlan_filter", "", "the stack speaks untagged Ethernet; let the switch or the interface untag"),
    works!(
        "idle_sleep",
        Kind::Number { min: 0, max: 100_000, unit: "µs" },
        "250",
        dpdk.idle_sleep_us,
        "Longest single sleep of an idle worker on a device that cannot wake it; 0: it never sleeps and uses its CPU whole, as F-Stack does by default. A worker sleeps for an eighth of the time since the last packet, 20 µs at least: a conversation with short pauses hardly notices. 250 costs about 3 % of a CPU, 20 about 13 %."
    ),
    works!(
        "pkt_tx_delay",
        Kind::Number { min: 0, max: 100, unit: "µs" },
        "0",
        dpdk.pkt_tx_delay_us,
        "How long packets to be sent may wait for more to fill a burst; 0: sent at the end of each pass. F-Stack's default is 100, which costs a single connection as much in latency."
    ),
    no_effect!("fstack_log_level", "0", "messages go to nginx's error log and the instance's own logs"),
    no_effect!("fstack_log_file_prefix", "./f-stack-", "messages go to nginx's error log and the instance's own logs"),
    not_applicable!("thread_mode", "0", "workers are nginx's own processes"),
    no_effect!("primary_slim", "0", "the primary is always resident and carries no packet"),
    no_effect!("graceful_reload", "0", "every reload is graceful"),
    no_effect!("primary_slim_idle_sleep", "1000", "the primary waits for events and does not poll"),
    works!(
        "reload_heartbeat_timeout_ms",
        Kind::Number { min: 10, max: 600_000, unit: "ms" },
        "1000",
        reload.heartbeat_timeout_ms,
        "A worker whose heartbeat is older counts as stalled during a handover."
    ),
    works!(
        "drain_ring_size",
        Kind::PowerOfTwo { min: 64, max: 65_536 },
        "2048",
        reload.drain_ring_size,
        "Packets that fit into one ring between two workers."
    )
    .device(),
    works!(
        "reload_udp_idle_ms",
        Kind::Number { min: 100, max: 3_600_000, unit: "ms" },
        "10000",
        udp.idle_ms,
        "A UDP flow of the old generation that was idle for longer is taken over by the new one at its next datagram."
    ),
    works_by!(
        "extra_eal_args",
        Kind::Arguments,
        "",
        "Further arguments to EAL, after our own, in every process.",
        |config, _, _, text| {
            config.dpdk.extra_eal_args = value::read_arguments(text)?;
            Ok(())
        },
        Some(|config, _, _| Some(value::arguments_text(&config.dpdk.extra_eal_args)))
    )
    .device(),
    no_effect!("mtu_enable", "0", "mtu= in [portN] needs no switch"),
    no_effect!("max_mtu", "", "mtu= in [portN] says it"),
    no_effect!("mbuf_mode", "large", "packet buffers are made to fit the ports' MTU"),
    no_effect!(
        "mbuf_low_watermark",
        "0",
        "each worker has packet buffers of its own, and [limits] bounds what connections may hold"
    ),
];
