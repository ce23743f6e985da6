//! F-Stack's sections that are left out as a whole.

use super::{Key, Section, Status, unused};

macro_rules! left_out {
    ($constant:ident, $name:literal, $numbered:literal, $status:ident, $reason:literal, [$($key:literal: $default:literal),* $(,)?]) => {
        pub(super) static $constant: Section = Section {
            name: $name,
            numbered: $numbered,
            status: Status::$status($reason),
            meaning: "",
            keys: {
                const KEYS: &[Key] = &[$(unused($key, $default, Status::$status($reason))),*];
                KEYS
            },
            open: false,
        };
    };
}

left_out!(
    PCAP, "pcap", false, NotApplicable,
    "workers write no capture files; run tcpdump on the interface of a TAP or af_packet device",
    ["enable": "0", "snaplen": "96", "savelen": "16777216", "savepath": ".", "timestamp_precision": ""]
);
left_out!(
    VLAN, "vlan", true, NotApplicable,
    "the stack speaks untagged Ethernet; give each VLAN its own [portN], with device=af_packet: and the VLAN interface, for instance",
    [
        "portid": "", "if_name": "", "addr": "", "netmask": "", "broadcast": "", "gateway": "", "addr6": "",
        "prefix_len": "64", "gateway6": "", "vip_ifname": "", "vip_addr": "", "vip_addr6": "",
        "vip_prefix_len": "64", "ipfw_pr": "",
    ]
);
left_out!(
    VDEV, "vdev", true, NotApplicable,
    "virtio_user ports are not offered; use device= in [portN]",
    ["iface": "", "path": "", "queues": "1", "queue_size": "256", "mac": "", "cq": ""]
);
left_out!(
    BOND, "bond", true, NotApplicable,
    "DPDK bonding is not offered; bond in the kernel and use device=af_packet: with the bond interface",
    [
        "mode": "", "slave": "", "primary": "", "socket_id": "", "mac": "", "xmit_policy": "",
        "lsc_poll_period_ms": "", "up_delay": "", "down_delay": "",
    ]
);
left_out!(
    RSS_CHECK, "rss_check", false, NoEffect,
    "local ports need not fit the device's hash: a reply that arrives at another worker's queue is forwarded to the flow's owner",
    ["enable": "0", "rss_tbl": "", "recheck": "", "thash_adjust": "1"]
);
left_out!(
    KNI, "kni", false, NotApplicable,
    "no packet of a port goes to the kernel; [kernel] says which sockets the kernel serves, on its own interfaces",
    [
        "enable": "0", "method": "", "tcp_port": "", "udp_port": "", "kni_action": "default",
        "console_packets_ratelimit": "0", "general_packets_ratelimit": "0", "kernel_packets_ratelimit": "0",
        "owner_proc_id": "",
    ]
);
left_out!(
    STACK, "stack", false, NoEffect,
    "[kernel] says which sockets the kernel serves beside the stack",
    ["kernel_coexist": "0"]
);
