//! The device digest and what tells two configurations apart.

use super::{PORT0, clean};
use crate::keys::{SECTIONS, Status};
use crate::{Config, device_changes, device_keys};

#[test]
fn the_digest_of_the_defaults_never_changes() {
    // A new device-side key, another default or another order changes this: a running primary of the release
    // before will then refuse a reload with the new one, which must be on purpose.
    assert_eq!(clean("").device_digest().to_string(), "3cfb934bfb2f3d70");
}

#[test]
fn order_comments_and_spelling_do_not_matter() {
    let one = clean(
        "[dpdk]\nlcore_mask=3\nmemory=256\nallow=02:00.0\n[limits]\nmbufs=1024\n[port1]\naddr6=2001:2::2\ndevice=wire",
    );
    let two = clean(
        "# x\n[port1]\ndevice = wire\naddr6=2001:2::2\n[limits]\nmbufs=01024\n[dpdk]\nallow=0000:02:00.0\nmemory=256 # MiB\nlcore_mask=0x03\npromiscuous=1",
    );
    assert_eq!(one.device_text(), two.device_text());
    assert_eq!(one.device_digest(), two.device_digest());
}

#[test]
fn a_key_written_with_its_default_is_as_one_left_out() {
    let left_out = Config::parse("f", PORT0).config;
    let written = Config::parse("f", &left_out.effective());
    assert_eq!(written.findings, []);
    assert_eq!(written.config.device_digest(), left_out.device_digest());
}

/// A text for `key` that differs from the default, of each device-side key.
const OTHER: &[(&str, &str)] = &[
    ("[dpdk] lcore_mask", "3"),
    ("[dpdk] channel", "4"),
    ("[dpdk] memory", "256"),
    ("[dpdk] base_virtaddr", "0x100000000"),
    ("[dpdk] file_prefix", "other"),
    ("[dpdk] allow", "0000:02:00.0"),
    ("[dpdk] port_list", "0"),
    ("[dpdk] promiscuous", "0"),
    ("[dpdk] tso", "0"),
    ("[dpdk] tx_csum_offoad_skip", "1"),
    ("[dpdk] tx_csum_ip_skip", "1"),
    ("[dpdk] tx_csum_l4_skip", "1"),
    ("[dpdk] drain_ring_size", "4096"),
    ("[dpdk] extra_eal_args", "--no-telemetry"),
    ("[port0] device", "wire"),
    ("[port0] mac", "02:00:00:00:00:01"),
    ("[port0] queues", "2"),
    ("[port0] mtu", "1400"),
    ("[instance] name", "other"),
    ("[instance] runtime_dir", "/run/other"),
    ("[instance] hugepage_dir", "/mnt/huge"),
    ("[limits] tcp_flows", "2048"),
    ("[limits] udp_flows", "2048"),
    ("[limits] neighbours", "128"),
    ("[limits] mbufs", "1024"),
    ("[reload] reload_generations", "2"),
];

#[test]
fn each_device_key_changes_the_digest_and_is_named() {
    let keys: Vec<String> = device_keys().map(|key| key.replace("[portN]", "[port0]")).collect();
    assert_eq!(keys.len(), OTHER.len());
    let plain = Config::parse("f", PORT0).config;
    for (key, value) in OTHER {
        assert!(keys.iter().any(|known| known == key), "{key} is no device key");
        let (section, name) = key.split_once(' ').unwrap();
        let text = match section {
            "[port0]" => format!("{PORT0}{name}={value}\n"),
            _ => format!("{PORT0}{section}\n{name}={value}\n"),
        };
        let checked = Config::parse("f", &text);
        assert_eq!(checked.findings, [], "{key}");
        assert_ne!(checked.config.device_digest(), plain.device_digest(), "{key}");
        let changes = device_changes(&plain.device_text(), &checked.config.device_text());
        let change =
            changes.iter().find(|change| change.key == *key).unwrap_or_else(|| panic!("{key}: {changes:?}"));
        assert_eq!(change.new.as_deref(), Some(*value), "{key}");
        assert_ne!(change.running, change.new, "{key}");
    }
}

#[test]
fn no_other_key_changes_the_digest() {
    let base = Config::parse("f", PORT0).config;
    let others = "[nginx]\nbinary=/bin/x\nconf=/x\nprefix=/y\noptions=-q\n[kernel]\naddresses=\ntcp_ports=1\nudp_ports=2\n\
        [limits]\nrcv_buf_max=1M\nsnd_buf_max=1M\nmemory=2G\nsyn_backlog=99\n\
        [reload]\nno_free_slot=refuse\nready_timeout_ms=999\nhandover_timeout_ms=999\ndrain_timeout_ms=999\n\
        [dpdk]\nlog_level=8\nidle_sleep=1\npkt_tx_delay=1\nreload_heartbeat_timeout_ms=99\nreload_udp_idle_ms=999\n\
        [freebsd.sysctl]\nnet.inet.tcp.msl=999\nnet.inet.tcp.ecn.enable=1\nkern.ipc.somaxconn=9\n";
    let port = "[port0]\naddr=198.19.0.2\nnetmask=255.255.0.0\ngateway=198.19.0.1\naddr6=2001:2::2\nvip_addr=198.19.0.3\n";
    let checked = Config::parse("f", &format!("{others}{port}"));
    assert_eq!(checked.findings, []);
    assert_ne!(checked.config, base);
    assert_eq!(checked.config.device_text(), base.device_text());
    assert_eq!(checked.config.device_digest(), base.device_digest());
}

#[test]
fn a_change_is_one_sentence() {
    let running = clean("");
    let new = clean("[limits]\nmbufs=1024\n[dpdk]\nmemory=64\n[port1]\naddr6=2001:2::2\nmtu=1400");
    let changes: Vec<String> =
        device_changes(&running.device_text(), &new.device_text()).iter().map(ToString::to_string).collect();
    assert_eq!(changes[0], "[limits] mbufs: 8192 is now 1024");
    assert!(changes.contains(&"[dpdk] memory: (not set) is now 64".to_owned()), "{changes:?}");
    assert!(changes.contains(&"[port1] mtu: (not set) is now 1400".to_owned()), "{changes:?}");
    let back: Vec<String> =
        device_changes(&new.device_text(), &running.device_text()).iter().map(ToString::to_string).collect();
    assert!(back.contains(&"[port1] mtu: 1400 is now (not set)".to_owned()), "{back:?}");
    assert_eq!(device_changes(&running.device_text(), &running.device_text()), []);
}

#[test]
fn device_keys_all_work() {
    for section in SECTIONS {
        for key in section.keys.iter().filter(|key| key.device) {
            assert_eq!(key.status, Status::Works);
            assert!(key.get.is_some());
        }
    }
}
