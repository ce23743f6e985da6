//! Good values: what the typed configuration holds.

use std::net::{Ipv4Addr, SocketAddr};

use super::clean;
use crate::{Config, Congestion, Device, Ecn, MacAddr, NoFreeSlot, PciAddress};

#[test]
fn cpu_masks() {
    let cpus = |mask: &str| clean(&format!("[dpdk]\nlcore_mask={mask}")).dpdk.cpus;
    assert_eq!(cpus("f"), [0, 1, 2, 3]);
    assert_eq!(cpus("0x5"), [0, 2]);
    assert_eq!(cpus("0X100000000000000000000000000000001"), [0, 128]);
    assert_eq!(cpus(&format!("0008{}", "0".repeat(255))), [1023]);
    assert!(super::parse(&format!("[dpdk]\nlcore_mask=1{}", "0".repeat(256))).has_errors());
    assert_eq!(cpus(""), [0u32; 0]);
}

#[test]
fn a_port_with_everything() {
    let text = "[port3]\ndevice=pci:af:00.1\nmac=02:0A:00:00:00:01\nqueues=64\nmtu=9000\naddr=198.18.4.2\n\
        netmask=255.255.252.0\nbroadcast=198.18.7.255\ngateway=198.18.4.1\nvip_addr=198.18.4.3;198.19.0.9\n\
        addr6=2001:2:4::2\nprefix_len=48\ngateway6=fe80::1\nvip_addr6=2001:2:5::1\nvip_prefix_len=128\n";
    let checked = Config::parse("f", text);
    assert_eq!(checked.findings, []);
    let port = &checked.config.ports[0];
    assert_eq!(port.number, 3);
    assert_eq!(port.device, Device::Pci(PciAddress { domain: 0, bus: 0xaf, device: 0, function: 1 }));
    assert_eq!(port.device.to_string(), "pci:0000:af:00.1");
    assert_eq!(port.mac, Some(MacAddr([2, 10, 0, 0, 0, 1])));
    assert_eq!((port.queues, port.mtu, port.netmask_len), (Some(64), 9000, Some(22)));
    assert_eq!(port.gateway, Some(Ipv4Addr::new(198, 18, 4, 1)));
    let addresses: Vec<String> = port.addresses().iter().map(ToString::to_string).collect();
    assert_eq!(
        addresses,
        ["198.18.4.2/22", "198.18.4.3/32", "198.19.0.9/32", "2001:2:4::2/48", "2001:2:5::1/128"]
    );
}

#[test]
fn devices() {
    let device =
        |value: &str| clean(&format!("[port1]\naddr6=2001:2::2\ndevice={value}")).ports[1].device.clone();
    assert_eq!(device("tap:ff-a.1_b"), Device::Tap("ff-a.1_b".into()));
    assert_eq!(device("af_packet:veth0"), Device::AfPacket("veth0".into()));
    assert_eq!(device("pci:0001:02:1f.7"), Device::Pci("0001:02:1f.7".parse().unwrap()));
    assert_eq!(device("wire"), Device::Wire);
}

#[test]
fn a_port_without_device_takes_its_entry_of_the_allow_list_or_a_tap() {
    let text = "[dpdk]\nallow=02:00.0,0000:02:00.1\n[port1]\naddr6=2001:2::1\n[port2]\naddr6=2001:2:2::2";
    let devices: Vec<String> = clean(text).ports.iter().map(|port| port.device.to_string()).collect();
    assert_eq!(devices, ["pci:0000:02:00.0", "pci:0000:02:00.1", "tap:ff2"]);
}

#[test]
fn ports_are_in_ascending_order_whatever_the_file_has() {
    let config = clean("[port10]\naddr6=2001:2:a::2\n[port2]\naddr6=2001:2:2::2");
    let numbers: Vec<u16> = config.ports.iter().map(|port| port.number).collect();
    assert_eq!(numbers, [0, 2, 10]);
    let checked =
        super::parse("[dpdk]\nport_list=2,0\n[port10]\naddr6=2001:2:a::2\n[port2]\naddr6=2001:2:2::2");
    let numbers: Vec<u16> = checked.config.ports.iter().map(|port| port.number).collect();
    assert_eq!(numbers, [0, 2]);
}

#[test]
fn the_instance_name_gives_directory_and_prefix() {
    let config = clean("[instance]\nname=blue");
    assert_eq!(config.instance.runtime_dir.to_str(), Some("/run/ffstack/blue"));
    assert_eq!(config.dpdk.file_prefix, "ff_blue");
    let config = clean("[instance]\nname=blue\nruntime_dir=/srv/run\n[dpdk]\nfile_prefix=x");
    assert_eq!(config.instance.runtime_dir.to_str(), Some("/srv/run"));
    assert_eq!(config.dpdk.file_prefix, "x");
}

#[test]
fn sizes() {
    let memory = |value: &str| clean(&format!("[limits]\nmemory={value}")).limits.memory_bytes;
    assert_eq!(memory("2G"), 2 << 30);
    assert_eq!(memory("512m"), 512 << 20);
    assert_eq!(memory("20000K"), 20_000 << 10);
    assert_eq!(memory("16777217"), 16_777_217);
}

#[test]
fn limits_are_inclusive_on_both_sides() {
    let mtu = |mtu: u32| super::parse(&format!("[port1]\naddr=198.19.0.2\nnetmask=255.255.255.0\nmtu={mtu}"));
    for (good, bad) in [(576, 575), (9000, 9001)] {
        assert_eq!((super::errors(&mtu(good)), super::errors(&mtu(bad))), (0, 1));
    }
    let list = |n: usize| {
        let ips: Vec<String> = (0..n).map(|i| format!("198.19.0.{}", i + 1)).collect();
        super::parse(&format!("[port1]\naddr6=2001:2::1\nvip_addr={}", ips.join(";")))
    };
    assert_eq!(super::errors(&list(64)), 0);
    assert_eq!(super::errors(&list(65)), 1);
}

#[test]
fn sysctls_reach_the_engine_settings() {
    let tcp = clean(
        "[freebsd.sysctl]\nnet.inet.tcp.cc.algorithm=newreno\nnet.inet.tcp.ecn.enable=2\nnet.inet.tcp.msl=2000\n\
         net.inet.tcp.delayed_ack=0\nnet.inet.tcp.maxtcptw=128\nnet.inet.tcp.blackhole=2\nkern.ipc.somaxconn=32768\n\
         net.inet.tcp.sendspace=16384\nnet.inet.tcp.recvspace=8192\nkern.ipc.maxsockbuf=16777216\n",
    )
    .tcp;
    assert_eq!(
        (tcp.congestion, tcp.ecn, tcp.msl_ms, tcp.delayed_ack),
        (Congestion::NewReno, Ecn::Passive, 2000, false)
    );
    assert_eq!((tcp.time_wait_max, tcp.blackhole, tcp.somaxconn), (Some(128), true, 32_768));
    assert_eq!((tcp.sendspace_bytes, tcp.recvspace_bytes, tcp.maxsockbuf_bytes), (16_384, 8_192, 16 << 20));
}

#[test]
fn the_sysctl_counts_before_the_boot_tunable_wherever_it_stands() {
    let boot = "[freebsd.boot]\ntcp_ecn=1\n";
    let sysctl = "[freebsd.sysctl]\nnet.inet.tcp.ecn.enable=2\n";
    assert_eq!(clean(boot).tcp.ecn, Ecn::On);
    assert_eq!(clean(&format!("{boot}{sysctl}")).tcp.ecn, Ecn::Passive);
    assert_eq!(clean(&format!("{sysctl}{boot}")).tcp.ecn, Ecn::Passive);
}

#[test]
fn the_least_of_three_limits_bounds_a_buffer() {
    let config = |sysctls: &str| {
        super::parse(&format!("[limits]\nrcv_buf_max=3M\n[freebsd.sysctl]\n{sysctls}")).config
    };
    assert_eq!(config("").rcv_buf_max_bytes(), 3 << 20);
    assert_eq!(config("net.inet.tcp.recvbuf_max=2M").rcv_buf_max_bytes(), 2 << 20);
    assert_eq!(config("net.inet.tcp.recvbuf_max=8M\nkern.ipc.maxsockbuf=1M").rcv_buf_max_bytes(), 1 << 20);
    assert_eq!(config("kern.ipc.maxsockbuf=1M").snd_buf_max_bytes(), 1 << 20);
}

#[test]
fn reload_settings() {
    let config = clean(
        "[reload]\nreload_generations=2\nno_free_slot=end_oldest\ndrain_timeout_ms=5000\n\
         [dpdk]\nreload_heartbeat_timeout_ms=10\ndrain_ring_size=64\nreload_udp_idle_ms=100\n",
    );
    assert_eq!((config.reload.generations, config.reload.no_free_slot), (2, NoFreeSlot::EndOldest));
    assert_eq!(config.reload.drain_timeout_ms, Some(5000));
    assert_eq!(
        (config.reload.heartbeat_timeout_ms, config.reload.drain_ring_size, config.udp.idle_ms),
        (10, 64, 100)
    );
}

#[test]
fn what_the_kernel_keeps() {
    let kernel =
        clean("[kernel]\naddresses=127.0.0.0/8;192.0.2.7\ntcp_ports=22;9000-9010\nudp_ports=53").kernel;
    let at = |text: &str| text.parse::<SocketAddr>().unwrap();
    assert!(kernel.keeps_tcp(at("127.0.0.1:80")) && kernel.keeps_udp(at("127.9.9.9:80")));
    assert!(kernel.keeps_tcp(at("[::ffff:127.0.0.1]:80")));
    assert!(kernel.keeps_tcp(at("192.0.2.7:80")) && !kernel.keeps_tcp(at("192.0.2.8:80")));
    assert!(!kernel.keeps_tcp(at("[::1]:80")));
    assert!(kernel.keeps_tcp(at("0.0.0.0:22")) && !kernel.keeps_udp(at("0.0.0.0:22")));
    assert!(
        kernel.keeps_tcp(at("[::]:9000"))
            && kernel.keeps_tcp(at("[::]:9010"))
            && !kernel.keeps_tcp(at("[::]:9011"))
    );
    assert!(kernel.keeps_udp(at("198.18.0.2:53")) && !kernel.keeps_tcp(at("198.18.0.2:53")));
    assert_eq!(clean("[kernel]\naddresses=").kernel.addresses, []);
    assert_eq!(clean("").kernel, crate::Kernel::default());
}

#[test]
fn nothing_written_is_the_default() {
    let mut config = clean("");
    config.ports.clear();
    assert_eq!(config, Config::default());
}

#[test]
fn a_configuration_written_for_f_stack_starts() {
    let text = "[dpdk]\nlcore_mask=1\nchannel=4\npromiscuous=1\nnuma_on=1\ntx_csum_offoad_skip=0\ntso=0\nvlan_strip=1\n\
        idle_sleep=0\npkt_tx_delay=100\nsymmetric_rss=0\nport_list=0\nnb_vdev=0\nnb_bond=0\nallow=02:00.0\n\
        [pcap]\nenable=0\nsnaplen=96\nsavelen=16777216\nsavepath=.\n\
        [port0]\naddr=192.0.2.2\nnetmask=255.255.255.0\nbroadcast=192.0.2.255\ngateway=192.0.2.1\nlcore_list=0\n\
        [kni]\nenable=1\nmethod=reject\ntcp_port=80,443\nudp_port=53\n\
        [freebsd.boot]\nhz=100\nfd_reserve=1024\nkern.ipc.maxsockets=262144\nkern.ncallout=262144\n\
        [freebsd.sysctl]\nkern.ipc.somaxconn=32768\nkern.ipc.maxsockbuf=16777216\nnet.inet.tcp.sendspace=16384\n\
        net.inet.tcp.recvspace=8192\nnet.inet.tcp.cc.algorithm=cubic\nnet.inet.tcp.sack.enable=1\n\
        net.inet.tcp.msl=2000\nnet.inet.tcp.delayed_ack=1\nnet.inet.tcp.rfc1323=1\nnet.inet.tcp.blackhole=1\n\
        net.inet.tcp.maxtcptw=128\nnet.inet.tcp.fast_finwait2_recycle=1\nnet.inet.tcp.finwait2_timeout=5000\n\
        net.inet.ip.forwarding=0\nnet.inet.tcp.functions_default=freebsd\n";
    let checked = Config::parse("config.ini", text);
    assert_eq!(super::errors(&checked), 0, "{:#?}", super::lines(&checked));
    // numa_on vlan_strip symmetric_rss nb_vdev nb_bond, [pcap], lcore_list, [kni], four boot tunables,
    // fast_finwait2_recycle forwarding functions_default.
    assert_eq!(checked.findings.len(), 5 + 1 + 1 + 1 + 4 + 3, "{:#?}", super::lines(&checked));
    assert_eq!(checked.config.ports[0].device.to_string(), "pci:0000:02:00.0");
    assert_eq!((checked.config.dpdk.idle_sleep_us, checked.config.dpdk.pkt_tx_delay_us), (0, 100));
}
