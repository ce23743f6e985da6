//! What no single value shows: keys that contradict each other, addresses that cannot work together.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::device::Device;
use crate::finding::quoted;
use crate::port::Port;
use crate::read::{Findings, Lines};
use crate::settings::Config;

/// The control socket's path must fit into `sun_path` (108 bytes) with a file name behind it.
const RUNTIME_DIR_BYTES_MAX: usize = 80;
/// DPDK's TAP driver has no more queues (`RTE_PMD_TAP_MAX_QUEUES`).
const TAP_QUEUES_MAX: u16 = 16;
/// IPv6 needs links of at least this MTU (RFC 8200, section 5).
const IPV6_MTU_MIN: u16 = 1280;

/// Judges the whole, and leaves out the ports that `port_list` does not name.
pub(crate) fn check(config: &mut Config, lines: &Lines, findings: &mut Findings) {
    choose_ports(config, lines, findings);
    for port in &config.ports {
        check_port(port, config, lines, findings);
    }
    check_ports_together(&config.ports, lines, findings);
    check_arguments(config, lines, findings);
    check_limits(config, lines, findings);
    let runtime_dir = config.instance.runtime_dir.as_os_str().len();
    if runtime_dir > RUNTIME_DIR_BYTES_MAX {
        findings.error(
            lines.of("instance", "runtime_dir"),
            format!("[instance] runtime_dir: the path has {runtime_dir} bytes"),
            format!("at most {RUNTIME_DIR_BYTES_MAX} fit, for the socket in it has a path of at most 107"),
        );
    }
}

fn choose_ports(config: &mut Config, lines: &Lines, findings: &mut Findings) {
    let listed = &config.dpdk.port_list;
    for number in listed {
        if !config.ports.iter().any(|port| port.number == *number) {
            findings.error(
                lines.of("dpdk", "port_list"),
                format!("[dpdk] port_list: port {number} has no section [port{number}]"),
                "add the section, or take the number out of the list",
            );
        }
    }
    if !listed.is_empty() {
        config.ports.retain(|port| {
            let used = listed.contains(&port.number);
            if !used {
                let section = section(port);
                let message = format!("[{section}] is not in [dpdk] port_list");
                findings.warning(lines.of(&section, "addr"), message, "it is left out");
            }
            used
        });
    }
    if config.ports.is_empty() && listed.is_empty() {
        findings.error(
            0,
            "there is no section [port0], so the stack has no device and no address",
            "add [port0] with addr= and netmask=, or with addr6=",
        );
    }
}

fn section(port: &Port) -> String {
    format!("port{}", port.number)
}

fn check_port(port: &Port, config: &Config, lines: &Lines, findings: &mut Findings) {
    let section = &section(port);
    let wrong = |key| lines.is_wrong(section, key);
    if port.addr.is_none() && port.addr6.is_none() && !wrong("addr") && !wrong("addr6") {
        findings.error(
            lines.of(section, "addr"),
            format!("[{section}] has neither addr nor addr6"),
            "give it an IPv4 address (addr= with netmask=), an IPv6 address (addr6=), or both",
        );
    }
    check_v4(port, lines, findings);
    check_v6(port, lines, findings);
    for net in port.addresses() {
        let ip = net.addr();
        if config.kernel.addresses.iter().any(|kept| kept.contains(&ip)) {
            findings.error(
                lines.of(section, key_of(port, ip)),
                format!("[{section}] {}: {ip} is left to the kernel by [kernel] addresses", key_of(port, ip)),
                "take it out of one of the two",
            );
        }
    }
    if let (Device::Tap(_), Some(queues)) = (&port.device, port.queues)
        && queues > TAP_QUEUES_MAX
    {
        findings.error(
            lines.of(section, "queues"),
            format!("[{section}] queues: a TAP device has at most {TAP_QUEUES_MAX} queues, not {queues}"),
            format!("write 1 to {TAP_QUEUES_MAX}, or remove the line to have one for each nginx worker"),
        );
    }
    let has_v6 = port.addr6.is_some() || !port.vip_addr6.is_empty();
    if has_v6 && port.mtu < IPV6_MTU_MIN {
        findings.error(
            lines.of(section, "mtu"),
            format!("[{section}] mtu: {} is too small for IPv6", port.mtu),
            format!("IPv6 needs {IPV6_MTU_MIN} at least: enlarge it, or remove the IPv6 addresses"),
        );
    }
}

/// The key that gave the port this address.
fn key_of(port: &Port, ip: IpAddr) -> &'static str {
    match ip {
        IpAddr::V4(ip) if port.addr == Some(ip) => "addr",
        IpAddr::V4(_) => "vip_addr",
        IpAddr::V6(ip) if port.addr6 == Some(ip) => "addr6",
        IpAddr::V6(_) => "vip_addr6",
    }
}

fn check_v4(port: &Port, lines: &Lines, findings: &mut Findings) {
    let section = &section(port);
    for (key, ip) in
        port.addr.iter().map(|ip| ("addr", ip)).chain(port.vip_addr.iter().map(|ip| ("vip_addr", ip)))
    {
        if !usable_v4(*ip) {
            findings.error(
                lines.of(section, key),
                format!("[{section}] {key}: {ip} is no address of a single host"),
                "multicast, broadcast, loopback and 0.x.x.x addresses cannot be a port's own",
            );
        }
    }
    if let Some(addr) = port.addr.filter(|addr| port.vip_addr.contains(addr)) {
        findings.error(
            lines.of(section, "vip_addr"),
            format!("[{section}] vip_addr: {addr} is the port's addr already"),
            "take it out of the list",
        );
    }
    let Some(addr) = port.addr else {
        if lines.is_wrong(section, "addr") {
            return;
        }
        let set = [
            ("netmask", port.netmask_len.is_some()),
            ("broadcast", port.broadcast.is_some()),
            ("gateway", port.gateway.is_some()),
        ];
        for (key, _) in set.into_iter().filter(|&(_, is_set)| is_set) {
            findings.error(
                lines.of(section, key),
                format!("[{section}] {key}: there is no addr that it belongs to"),
                format!("add addr=, or remove {key}="),
            );
        }
        return;
    };
    let Some(netmask_len) = port.netmask_len else {
        if !lines.is_wrong(section, "netmask") {
            findings.error(
                lines.of(section, "addr"),
                format!("[{section}] has addr but no netmask"),
                "add netmask=, such as netmask=255.255.255.0",
            );
        }
        return;
    };
    let Ok(net) = Ipv4Net::new(addr, netmask_len) else { return };
    // A /31 has no network and no broadcast address (RFC 3021), a /32 neither.
    let reserved = |ip: Ipv4Addr| netmask_len <= 30 && (ip == net.network() || ip == net.broadcast());
    if reserved(addr) {
        findings.error(
            lines.of(section, "addr"),
            format!("[{section}] addr: {addr} is the network or the broadcast address of {}", net.trunc()),
            "choose an address between the two, or another netmask",
        );
    }
    if let Some(broadcast) = port.broadcast.filter(|&ip| netmask_len > 30 || ip != net.broadcast()) {
        let hint = match netmask_len {
            31.. => "remove the line: a subnet of this size has none".into(),
            _ => format!("write {}, or remove the line", net.broadcast()),
        };
        findings.error(
            lines.of(section, "broadcast"),
            format!("[{section}] broadcast: {broadcast} is not the broadcast address of {}", net.trunc()),
            hint,
        );
    }
    if let Some(gateway) = port.gateway {
        let problem = if gateway == addr || port.vip_addr.contains(&gateway) {
            Some("is an address of this port itself".to_owned())
        } else if !net.contains(&gateway) {
            Some(format!("is outside the subnet {}", net.trunc()))
        } else if reserved(gateway) {
            Some(format!("is the network or the broadcast address of {}", net.trunc()))
        } else {
            None
        };
        if let Some(problem) = problem {
            findings.error(
                lines.of(section, "gateway"),
                format!("[{section}] gateway: {gateway} {problem}"),
                "write the address of a router in the subnet, or remove the line to have no default route",
            );
        }
    }
}

fn usable_v4(ip: Ipv4Addr) -> bool {
    !(ip.is_multicast() || ip.is_broadcast() || ip.is_loopback() || ip.octets()[0] == 0)
}

fn usable_v6(ip: Ipv6Addr) -> bool {
    !(ip.is_multicast() || ip.is_unspecified() || ip.is_loopback() || ip.to_ipv4_mapped().is_some())
}

fn check_v6(port: &Port, lines: &Lines, findings: &mut Findings) {
    let section = &section(port);
    let vips = port.vip_addr6.iter().map(|ip| ("vip_addr6", ip));
    for (key, ip) in port.addr6.iter().map(|ip| ("addr6", ip)).chain(vips) {
        if !usable_v6(*ip) {
            findings.error(
                lines.of(section, key),
                format!("[{section}] {key}: {ip} is no address of a single host"),
                "multicast, loopback, IPv4-mapped and :: addresses cannot be a port's own",
            );
        }
    }
    if let Some(addr) = port.addr6.filter(|addr| port.vip_addr6.contains(addr)) {
        findings.error(
            lines.of(section, "vip_addr6"),
            format!("[{section}] vip_addr6: {addr} is the port's addr6 already"),
            "take it out of the list",
        );
    }
    let Some(gateway) = port.gateway6 else { return };
    let problem = match port.addr6 {
        None if lines.is_wrong(section, "addr6") => None,
        None => Some("there is no addr6 that it belongs to".to_owned()),
        Some(addr) if addr == gateway || port.vip_addr6.contains(&gateway) => {
            Some(format!("{gateway} is an address of this port itself"))
        }
        Some(_) if !usable_v6(gateway) => Some(format!("{gateway} is no address of a single host")),
        Some(_) if gateway.is_unicast_link_local() => None,
        Some(addr) => match Ipv6Net::new(addr, port.prefix_len) {
            Ok(net) if !net.contains(&gateway) => {
                Some(format!("{gateway} is outside the prefix {}", net.trunc()))
            }
            _ => None,
        },
    };
    if let Some(problem) = problem {
        findings.error(
            lines.of(section, "gateway6"),
            format!("[{section}] gateway6: {problem}"),
            "write the address of a router in the prefix or its link-local address, or remove the line to have no default route",
        );
    }
}

fn check_ports_together(ports: &[Port], lines: &Lines, findings: &mut Findings) {
    for (at, port) in ports.iter().enumerate() {
        let here = &section(port);
        for earlier in &ports[..at] {
            let there = section(earlier);
            if port.device == earlier.device {
                findings.error(
                    lines.of(here, "device"),
                    format!("[{here}] device: {} is the device of [{there}] already", port.device),
                    "a device is one port's",
                );
            } else if port.device.ifname().is_some() && port.device.ifname() == earlier.device.ifname() {
                findings.error(
                    lines.of(here, "device"),
                    format!("[{here}] device: {} has the interface of [{there}]", port.device),
                    "an interface is one port's",
                );
            }
            if port.mac.is_some() && port.mac == earlier.mac {
                findings.warning(
                    lines.of(here, "mac"),
                    format!("[{here}] mac: [{there}] has the same MAC address"),
                    "give each port its own unless they are on different networks",
                );
            }
            let pairs = port
                .addresses()
                .into_iter()
                .flat_map(|a| earlier.addresses().into_iter().map(move |b| (a, b)));
            for (a, b) in pairs {
                let key = key_of(port, a.addr());
                if a.addr() == b.addr() {
                    findings.error(
                        lines.of(here, key),
                        format!("[{here}] {key}: {} is an address of [{there}] already", a.addr()),
                        "an address is one port's",
                    );
                } else if overlap(a, b) {
                    findings.warning(
                        lines.of(here, key),
                        format!("[{here}] {key}: {} and {} of [{there}] overlap", a.trunc(), b.trunc()),
                        "it is then not certain by which port an address in both is reached: make them distinct",
                    );
                }
            }
        }
    }
}

fn overlap(a: IpNet, b: IpNet) -> bool {
    // Every link has the link-local prefix.
    let link_local = |net: IpNet| matches!(net.addr(), IpAddr::V6(ip) if ip.is_unicast_link_local());
    !link_local(a) && !link_local(b) && (a.contains(&b.network()) || b.contains(&a.network()))
}

/// Arguments that would take out of our hands what the processes agree on.
fn check_arguments(config: &Config, lines: &Lines, findings: &mut Findings) {
    const EAL_LONG: &[&str] = &[
        "proc-type",
        "file-prefix",
        "lcores",
        "main-lcore",
        "in-memory",
        "no-huge",
        "no-shconf",
        "huge-dir",
        "huge-unlink",
        "base-virtaddr",
        "version",
        "help",
    ];
    const EAL_SHORT: &[&str] = &["-c", "-l", "-m", "-n", "-s", "-h", "-v"];
    for argument in &config.dpdk.extra_eal_args {
        let long = argument.strip_prefix("--").map(|rest| rest.split('=').next().unwrap_or(rest));
        let is_long = long.is_some_and(|name| EAL_LONG.contains(&name));
        let is_short =
            !argument.starts_with("--") && EAL_SHORT.iter().any(|short| argument.starts_with(short));
        if is_long || is_short {
            findings.error(
                lines.of("dpdk", "extra_eal_args"),
                format!("[dpdk] extra_eal_args: {} is not free to choose", quoted(argument)),
                "remove it: it is set by this program, where needed from a key of [dpdk] or [instance]",
            );
        }
    }
    let mut options = config.nginx.options.iter();
    while let Some(option) = options.next() {
        let hint = match option.get(..2) {
            Some("-c") => "use conf= of [nginx]",
            Some("-p") => "use prefix= of [nginx]",
            Some("-s" | "-t" | "-T" | "-v" | "-V" | "-h" | "-?") => "remove it: with it nginx does not serve",
            Some("-g" | "-e") => {
                // Their argument follows, unless it is joined on.
                if option.len() == 2 {
                    options.next();
                }
                continue;
            }
            Some("-q") => continue,
            _ => "nginx takes options such as -g 'directive;' and -e file",
        };
        findings.error(
            lines.of("nginx", "options"),
            format!("[nginx] options: {} cannot stand here", quoted(option)),
            hint,
        );
    }
}

fn check_limits(config: &Config, lines: &Lines, findings: &mut Findings) {
    let limits = &config.limits;
    let tcp = &config.tcp;
    if limits.memory_bytes < limits.rcv_buf_max_bytes.saturating_add(limits.snd_buf_max_bytes) {
        findings.warning(
            lines.of("limits", "memory"),
            "[limits] memory: one connection with full buffers (rcv_buf_max and snd_buf_max) is over it",
            "enlarge memory, or lessen the buffers",
        );
    }
    let rcv = ("rcv_buf_max", config.rcv_buf_max_bytes());
    let snd = ("snd_buf_max", config.snd_buf_max_bytes());
    let sizes = [
        ("net.inet.tcp.recvspace", Some(tcp.recvspace_bytes), rcv),
        ("net.inet.tcp.recvbuf_max", tcp.recvbuf_max_bytes, rcv),
        ("net.inet.tcp.sendspace", Some(tcp.sendspace_bytes), snd),
        ("net.inet.tcp.sendbuf_max", tcp.sendbuf_max_bytes, snd),
    ];
    for (key, size, (limit_name, limit)) in sizes {
        if let Some(size) = size.filter(|&size| size > limit) {
            let line = lines.key("freebsd.sysctl", key).unwrap_or_else(|| lines.of("limits", limit_name));
            findings.warning(
                line,
                format!("{key} is {size} bytes, but no such buffer grows beyond {limit}"),
                format!(
                    "{limit} is used; [limits] {limit_name} and [freebsd.sysctl] kern.ipc.maxsockbuf bound it"
                ),
            );
        }
    }
}
