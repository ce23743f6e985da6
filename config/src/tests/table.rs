//! The key table agrees with itself, with the defaults in code, and with F-Stack's list of keys.

use crate::keys::{Key, SECTIONS, Section, Status, section};
use crate::value::Kind;
use crate::{Config, Port};

fn all() -> impl Iterator<Item = (&'static Section, &'static Key)> {
    SECTIONS.iter().flat_map(|section| section.keys.iter().map(move |key| (*section, key)))
}

/// A configuration at its defaults, with a port 0.
fn defaults() -> Config {
    Config { ports: vec![Port::new(0)], ..Config::default() }
}

#[test]
fn every_key_that_works_has_its_default_in_code_and_is_read_back() {
    for (section, key) in all().filter(|(_, key)| key.status == Status::Works) {
        let name = format!("[{}] {}", section.pattern(), key.name);
        let set = key.set.unwrap_or_else(|| panic!("{name} cannot be set"));
        assert!(!key.meaning.is_empty() && key.kind != Kind::Ignored, "{name}");
        let Some(get) = key.get else { continue };
        let in_code = get(&defaults(), 0, &key.kind);
        // A default in parentheses comes from elsewhere: it is not set, or derived after reading.
        if !key.default.starts_with('(') {
            assert_eq!(in_code.clone().unwrap_or_default(), key.default, "{name}");
        }
        if let Some(text) = in_code {
            let mut config = defaults();
            set(&mut config, 0, &key.kind, &text).unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
            assert_eq!(config, defaults(), "{name}");
        }
    }
}

#[test]
fn a_range_of_numbers_fits_into_its_field() {
    for (section, key) in all() {
        let (min, max) = match key.kind {
            Kind::Number { min, max, .. } | Kind::Size { min, max } | Kind::PowerOfTwo { min, max } => {
                (min, max)
            }
            _ => continue,
        };
        let (Some(set), name) = (key.set, format!("[{}] {}", section.pattern(), key.name)) else { continue };
        for good in [min, max] {
            set(&mut defaults(), 0, &key.kind, &good.to_string())
                .unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
        }
        set(&mut defaults(), 0, &key.kind, &(max + 1).to_string()).expect_err(&name);
        if min > 0 {
            set(&mut defaults(), 0, &key.kind, &(min - 1).to_string()).expect_err(&name);
        }
    }
}

#[test]
fn every_choice_is_read_and_printed_as_itself() {
    for (section, key) in all() {
        let Kind::Choice(words) = key.kind else { continue };
        for word in words {
            let mut config = defaults();
            let set = key.set.expect("a choice works");
            set(&mut config, 0, &key.kind, word)
                .unwrap_or_else(|wrong| panic!("{}: {wrong}", section.pattern()));
            if let Some(get) = key.get {
                assert_eq!(get(&config, 0, &key.kind).as_deref(), Some(*word), "{}", key.name);
            }
        }
    }
}

#[test]
fn a_key_that_does_not_work_has_a_reason_and_no_field() {
    for (section, key) in all() {
        if let Status::NoEffect(reason) | Status::NotApplicable(reason) = key.status {
            assert!(reason.len() > 10 && !reason.ends_with('.'), "[{}] {}", section.pattern(), key.name);
            assert!(
                key.set.is_none() && key.get.is_none() && !key.device,
                "[{}] {}",
                section.pattern(),
                key.name
            );
        }
    }
}

#[test]
fn names_are_unique() {
    for (at, section) in SECTIONS.iter().enumerate() {
        assert!(SECTIONS[..at].iter().all(|earlier| earlier.name != section.name));
        for (at, key) in section.keys.iter().enumerate() {
            assert!(section.keys[..at].iter().all(|earlier| earlier.name != key.name), "{}", key.name);
        }
    }
}

/// F-Stack's sections and keys, 1.25 and later trees together.
const F_STACK: &[(&str, &str)] = &[
    (
        "dpdk",
        "lcore_mask channel memory no_huge base_virtaddr file_prefix log_level allow port_list nb_vdev nb_bond \
         promiscuous numa_on tso tx_csum_offoad_skip symmetric_rss vlan_strip vlan_filter idle_sleep pkt_tx_delay \
         fstack_log_level fstack_log_file_prefix thread_mode primary_slim graceful_reload \
         reload_heartbeat_timeout_ms drain_ring_size primary_slim_idle_sleep extra_eal_args lro tx_csum_ip_skip \
         tx_csum_l4_skip mtu_enable max_mtu mbuf_mode mbuf_low_watermark reload_udp_idle_ms",
    ),
    ("pcap", "enable snaplen savelen savepath timestamp_precision"),
    (
        "port0",
        "addr netmask broadcast gateway if_name addr6 prefix_len gateway6 vip_ifname vip_addr vip_addr6 \
         vip_prefix_len ipfw_pr lcore_list slave_port_list mtu",
    ),
    (
        "vlan100",
        "portid addr netmask broadcast gateway if_name addr6 prefix_len gateway6 vip_ifname vip_addr vip_addr6 \
         vip_prefix_len ipfw_pr",
    ),
    ("vdev0", "iface path queues queue_size mac cq"),
    ("bond0", "mode slave primary socket_id mac xmit_policy lsc_poll_period_ms up_delay down_delay"),
    ("rss_check", "enable rss_tbl recheck thash_adjust"),
    (
        "kni",
        "enable method tcp_port udp_port kni_action console_packets_ratelimit general_packets_ratelimit \
         kernel_packets_ratelimit owner_proc_id",
    ),
    ("stack", "kernel_coexist"),
    (
        "freebsd.boot",
        "hz fd_reserve physmem memsz_MB tcp_ecn kern.ipc.maxsockets net.inet.tcp.syncache.hashsize \
         net.inet.tcp.syncache.bucketlimit net.inet.tcp.tcbhashsize kern.ncallout kern.features.inet6",
    ),
    (
        "freebsd.sysctl",
        "kern.ipc.somaxconn kern.ipc.maxsockbuf net.inet.tcp.sendspace net.inet.tcp.recvspace \
         net.inet.tcp.cc.algorithm net.inet.tcp.sack.enable net.inet.tcp.msl net.inet.tcp.delayed_ack \
         net.inet.tcp.rfc1323 net.inet.tcp.blackhole net.inet.tcp.maxtcptw net.inet.tcp.fast_finwait2_recycle \
         net.inet.tcp.finwait2_timeout net.inet.ip.forwarding net.inet.tcp.functions_default",
    ),
];

#[test]
fn every_key_of_f_stack_is_known() {
    for (name, keys) in F_STACK {
        let (section, _) = section(name).unwrap_or_else(|| panic!("[{name}] is not known"));
        for key in keys.split_whitespace() {
            assert!(section.key(key).is_some(), "[{name}] {key} is not known");
        }
    }
}

#[test]
fn every_key_that_does_not_work_gives_one_warning() {
    for (section, key) in all().filter(|(section, key)| section.status == Status::Works && key.set.is_none())
    {
        let name = section.pattern().replace('N', "0");
        let text = match section.numbered {
            true => format!("{}{}=1\n", super::PORT0, key.name),
            false => format!("{}[{name}]\n{}=1\n", super::PORT0, key.name),
        };
        let checked = Config::parse("f", &text);
        assert_eq!(checked.findings.len(), 1, "{:?}", super::lines(&checked));
        assert!(checked.findings[0].message.starts_with(&format!("[{name}] {} is ", key.name)));
        assert!(!checked.has_errors());
    }
}
