//! `[portN]`: F-Stack's keys, and `device`, `mac`, `queues` of our own.

use super::{Key, Section, Status, no_effect, not_applicable, works_by};
use crate::value::{self, Kind};

pub(super) static PORT: Section = Section {
    name: "port",
    numbered: true,
    status: Status::Works,
    meaning: "A device and the addresses that the stack has on it. N is 0 to 31. `addr` or `addr6` is required.",
    keys: KEYS,
    open: false,
};

/// A key that fills a field of the port: name, kind, default, field, meaning.
macro_rules! port_key {
    ($name:literal, $kind:expr, $default:literal, $field:ident, $meaning:expr) => {
        works_by!(
            $name,
            $kind,
            $default,
            $meaning,
            |config, at, kind, text| {
                config.ports[at].$field = value::Setting::read(kind, text)?;
                Ok(())
            },
            Some(|config, at, kind| value::Setting::write(&config.ports[at].$field, kind))
        )
    };
}

const PREFIX_LEN: Kind = Kind::Number { min: 1, max: 128, unit: "" };

const KEYS: &[Key] = &[
    port_key!(
        "device",
        Kind::Device,
        "(pci: and entry N of [dpdk] allow, counted from 0, if there is one, else tap:ffN)",
        device,
        "What carries the packets: a TAP device made at start, an interface that is there already, a NIC bound to a DPDK driver, or the in-memory wire."
    )
    .device(),
    port_key!("mac", Kind::Mac, "(the device's own)", mac, "MAC address of the port.").device(),
    port_key!(
        "queues",
        Kind::Number { min: 1, max: 64, unit: "" },
        "(one for each nginx worker)",
        queues,
        "Receive and transmit queues. A TAP device has at most 16."
    )
    .device(),
    port_key!(
        "mtu",
        Kind::Number { min: 576, max: 9_000, unit: "bytes" },
        "1500",
        mtu,
        "Largest IP packet; at least 1280 with IPv6."
    )
    .device(),
    port_key!("addr", Kind::Ipv4, "", addr, "IPv4 address. It may be left out when `addr6` is there."),
    works_by!(
        "netmask",
        Kind::Netmask,
        "",
        "Netmask of `addr`; required with it.",
        |config, at, _, text| {
            config.ports[at].netmask_len = value::read_netmask(text)?;
            Ok(())
        },
        Some(|config, at, _| config.ports[at].netmask_len.map(value::netmask_text))
    ),
    port_key!(
        "broadcast",
        Kind::Ipv4,
        "(the last address of the subnet)",
        broadcast,
        "Broadcast address; it must be that of the subnet."
    ),
    port_key!(
        "gateway",
        Kind::Ipv4,
        "(no IPv4 default route)",
        gateway,
        "Default gateway for IPv4, inside the subnet. F-Stack demands it."
    ),
    port_key!("vip_addr", Kind::Ipv4List, "", vip_addr, "Further IPv4 addresses; inside the subnet or not."),
    port_key!("addr6", Kind::Ipv6, "", addr6, "IPv6 address."),
    port_key!("prefix_len", PREFIX_LEN, "64", prefix_len, "Prefix length of `addr6`."),
    port_key!(
        "gateway6",
        Kind::Ipv6,
        "(no IPv6 default route)",
        gateway6,
        "Default gateway for IPv6, inside the prefix or link-local."
    ),
    port_key!("vip_addr6", Kind::Ipv6List, "", vip_addr6, "Further IPv6 addresses."),
    port_key!("vip_prefix_len", PREFIX_LEN, "64", vip_prefix_len, "Prefix length of each of `vip_addr6`."),
    no_effect!("if_name", "", "the stack's ports are named by their numbers"),
    no_effect!("vip_ifname", "", "further addresses belong to the port itself, not to a loopback interface"),
    not_applicable!("ipfw_pr", "", "there is no ipfw; a reply goes out by the port and the address that it came in by"),
    no_effect!("lcore_list", "(all)", "every worker serves one queue of every port"),
    not_applicable!("slave_port_list", "", "[bondN] is not offered"),
];
