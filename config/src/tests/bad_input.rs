//! Each kind of bad input: where the finding is, how bad, and what it says.

use crate::{Config, Severity};

/// A whole file, and what must be found in it: (line, severity, piece of the sentence), nothing more.
struct Case {
    name: &'static str,
    text: &'static str,
    found: &'static [(usize, Severity, &'static str)],
}

const E: Severity = Severity::Error;
const W: Severity = Severity::Warning;

macro_rules! cases {
    ($($name:literal: $text:expr => [$(($line:literal, $severity:ident, $piece:literal)),* $(,)?];)*) => {
        &[$(Case { name: $name, text: $text, found: &[$(($line, $severity, $piece)),*] }),*]
    };
}

/// `[port0]` on lines 1 to 3, the text from line 4 on.
macro_rules! after_port0 {
    ($text:literal) => {
        concat!("[port0]\naddr=198.18.0.2\nnetmask=255.255.255.0\n", $text)
    };
}

const CASES: &[Case] = cases! {
    // The format.
    "no equals sign": after_port0!("gateway 198.18.0.1") => [(4, E, "\"gateway 198.18.0.1\" has no '='; write key=value")];
    "no key": after_port0!("=5") => [(4, E, "there is no key before '='")];
    "section without end": after_port0!("[dpdk\nmemory=1") => [(4, E, "the section \"dpdk\" has no closing ']'")];
    "section without name": after_port0!("[ ]\nmemory=1") => [(4, E, "the section has no name")];
    "text after section": after_port0!("[dpdk] memory=1") => [(4, E, "there is \"memory=1\" after the section's ']'")];
    "key before any section": concat!("mtu=1500\n", after_port0!("")) => [(1, E, "\"mtu\" stands before the first section")];
    "key twice": after_port0!("mtu=1500\nmtu=1400") => [(5, E, "\"mtu\" is set already in line 4, to \"1500\" and not to \"1400\"")];
    "key twice, same value": after_port0!("mtu=1500\nmtu=1500") => [(5, W, "set already in line 4, to the same value")];
    "section twice": after_port0!("[dpdk]\n[port0]\nmtu=1400") => [(5, W, "the section [port0] is there already in line 1")];
    "key twice in a section that is there twice": after_port0!("[dpdk]\n[port0]\naddr=198.18.0.3") =>
        [(5, W, "is there already"), (6, E, "set already in line 2")];

    // Names.
    "unknown section": after_port0!("[kernal]\naddresses=") => [(4, W, "no section \"kernal\"; did you mean [kernel]?")];
    "unknown section, numbered": after_port0!("[prot1]") => [(4, W, "did you mean [portN]?")];
    "unknown section, far from all": after_port0!("[weather]") => [(4, W, "no section \"weather\"; it is left out")];
    "unknown key": after_port0!("adr6=::") => [(4, W, "[port0] has no key \"adr6\"; did you mean addr6? It is left out")];
    "upper case": after_port0!("MTU=1500") => [(4, W, "did you mean mtu?")];
    "swapped letters": after_port0!("[dpdk]\nidel_sleep=1") => [(5, W, "did you mean idle_sleep?")];
    "unknown key, far from all": after_port0!("xyzzy=1") => [(4, W, "[port0] has no key \"xyzzy\"; it is left out")];
    "key of another section": after_port0!("[dpdk]\nreload_generations=3") => [(5, W, "it belongs to [reload]")];
    "unknown sysctl": after_port0!("[freebsd.sysctl]\nkern.nothing.at_all=1") => [(5, W, "no counterpart in this stack")];
    "misspelt sysctl": after_port0!("[freebsd.sysctl]\nnet.inet.tcp.mls=1000") => [(5, W, "did you mean net.inet.tcp.msl?")];
    "port number too large": after_port0!("[port32]\naddr=1") => [(4, E, "[port32] is no port; ports are [port0] to [port31]")];
    "port number beyond all": after_port0!("[port99999999999999]") => [(4, E, "is no port")];
    "port number with a zero": after_port0!("[port01]") => [(4, E, "[port01] is no port")];

    // Keys that do not work.
    "no effect": after_port0!("[dpdk]\nnuma_on=1") => [(5, W, "[dpdk] numa_on is accepted without effect: DPDK finds")];
    "no effect, whatever the value": after_port0!("[dpdk]\nnuma_on=maybe") => [(5, W, "accepted without effect")];
    "not applicable": after_port0!("[dpdk]\nno_huge=1") => [(5, W, "[dpdk] no_huge is not applicable: the workers share")];
    "section not applicable": after_port0!("[vdev0]\npath=/x\niface=/y") => [(4, W, "[vdev0] is not applicable: virtio_user")];
    "section without effect": after_port0!("[stack]\nkernel_coexist=1") => [(4, W, "[stack] is accepted without effect")];
    "unknown key in a section left out": after_port0!("[kni]\nenabel=1") =>
        [(4, W, "[kni] is not applicable"), (5, W, "did you mean enable?")];

    // Values.
    "flag": after_port0!("[dpdk]\ntso=yes") => [(5, E, "[dpdk] tso: \"yes\" is neither 0 nor 1; allowed: 0 or 1, or remove the line for the default 1")];
    "number too large": after_port0!("[dpdk]\npkt_tx_delay=500") => [(5, E, "\"500\" is too large; allowed: 0 to 100 µs")];
    "number too small": after_port0!("mtu=68") => [(4, E, "\"68\" is too small; allowed: 576 to 9000 bytes")];
    "number negative": after_port0!("mtu=-1") => [(4, E, "\"-1\" is negative; allowed: 576 to 9000")];
    "no number": after_port0!("mtu=large") => [(4, E, "\"large\" is no number")];
    "number with a sign": after_port0!("mtu=+1500") => [(4, E, "\"+1500\" is no number")];
    "number beyond 64 bits": after_port0!("mtu=99999999999999999999") => [(4, E, "is too large")];
    "no value": after_port0!("mtu=") => [(4, E, "\"\" is no number")];
    "no name": after_port0!("[instance]\nname=") => [(5, E, "[instance] name: it has no value")];
    "power of two": after_port0!("[dpdk]\ndrain_ring_size=3000") => [(5, E, "3000 is no power of two; allowed: a power of two from 64 to 65536")];
    "size": after_port0!("[limits]\nmemory=1T") => [(5, E, "\"1T\" is no number of bytes")];
    "size too small": after_port0!("[limits]\nmemory=1M") => [(5, E, "\"1M\" is too small; allowed: 16M to 1024G bytes")];
    "size beyond 64 bits": after_port0!("[limits]\nmemory=18446744073709551615G") => [(5, E, "too large")];
    "hexadecimal": after_port0!("[dpdk]\nbase_virtaddr=0xyz") => [(5, E, "\"0xyz\" is no hexadecimal number")];
    "mask": after_port0!("[dpdk]\nlcore_mask=8g") => [(5, E, "\"8g\" is no hexadecimal mask")];
    "empty mask": after_port0!("[dpdk]\nlcore_mask=0x0") => [(5, E, "has no bit set")];
    "choice": after_port0!("[reload]\nno_free_slot=stop") => [(5, E, "\"stop\" is none of the choices; allowed: one of wait, refuse, end_oldest")];
    "congestion control": after_port0!("[freebsd.sysctl]\nnet.inet.tcp.cc.algorithm=vegas") => [(5, E, "one of cubic, newreno")];
    "IPv4 address": "[port0]\naddr=198.18.0.256\nnetmask=255.255.255.0" => [(2, E, "\"198.18.0.256\" is no IPv4 address")];
    "netmask with a hole": "[port0]\naddr=198.18.0.2\nnetmask=255.0.255.0" => [(3, E, "255.0.255.0 is no netmask")];
    "netmask of zeros": "[port0]\naddr=198.18.0.2\nnetmask=0.0.0.0" => [(3, E, "0.0.0.0 is no netmask")];
    "netmask as a length": "[port0]\naddr=198.18.0.2\nnetmask=24" => [(3, E, "\"24\" is no netmask; allowed: 255.255.255.0 and the like")];
    "IPv6 address": "[port0]\naddr6=2001:2:::2" => [(2, E, "\"2001:2:::2\" is no IPv6 address")];
    "prefix length": after_port0!("addr6=2001:2::2\nprefix_len=129") => [(5, E, "too large; allowed: 1 to 128")];
    "list with a wrong entry": after_port0!("vip_addr=198.18.0.3;x") => [(4, E, "\"x\" is no IPv4 address")];
    "list with an entry twice": after_port0!("vip_addr=198.18.0.3;198.18.0.3") => [(4, E, "\"198.18.0.3\" is in the list twice")];
    "prefix with host bits": after_port0!("[kernel]\naddresses=10.0.0.1/8") => [(5, E, "10.0.0.0/8 is meant")];
    "prefix": after_port0!("[kernel]\naddresses=localhost") => [(5, E, "\"localhost\" is neither an IP address nor a prefix")];
    "port 0": after_port0!("[kernel]\ntcp_ports=0") => [(5, E, "port 0 cannot be bound")];
    "port range backwards": after_port0!("[kernel]\nudp_ports=90-80") => [(5, E, "the range 90-80 ends before it begins")];
    "port too large": after_port0!("[kernel]\ntcp_ports=65536") => [(5, E, "\"65536\" is no number of a port")];
    "port_list twice": after_port0!("[dpdk]\nport_list=0,0-1") => [(5, E, "port 0 is in the list twice")];
    "port_list too large": after_port0!("[dpdk]\nport_list=0-99") => [(5, E, "99 is too large")];
    "device": after_port0!("device=dpdk0") => [(4, E, "\"dpdk0\" names no kind of device; allowed: tap:<interface>")];
    "interface name too long": after_port0!("device=tap:0123456789abcdef") => [(4, E, "has 1 to 15 characters, \"0123456789abcdef\" has 16")];
    "interface name": after_port0!("device=tap:a/b") => [(4, E, "'/' cannot be in the interface name \"a/b\"")];
    "interface name empty": after_port0!("device=af_packet:") => [(4, E, "an interface name has 1 to 15 characters")];
    "PCI address": after_port0!("device=pci:02:00") => [(4, E, "\"02:00\" is no PCI address such as 0000:02:00.0")];
    "PCI function": after_port0!("[dpdk]\nallow=02:00.8") => [(5, E, "is no PCI address")];
    "MAC address": after_port0!("mac=02:00:00:00:00") => [(4, E, "is no MAC address")];
    "MAC address of a group": after_port0!("mac=01:00:5e:00:00:01") => [(4, E, "is no unicast address")];
    "path": after_port0!("[nginx]\nconf=nginx.conf") => [(5, E, "the path \"nginx.conf\" does not begin with '/'")];
    "path with a quote": after_port0!("[nginx]\nconf=\"/etc/nginx.conf\"") => [(5, E, "'\"' cannot be in the path")];
    "name": after_port0!("[instance]\nname=a/b") => [(5, E, "'/' cannot be in \"a/b\"; allowed: 1 to 32 of the characters")];
    "name that is a path": after_port0!("[instance]\nname=..") => [(5, E, "begins with \".\"")];
    "log level": after_port0!("[dpdk]\nlog_level=9") => [(5, E, "\"9\" is no log level")];
    "arguments": after_port0!("[nginx]\noptions=-g 'daemon off;") => [(5, E, "is not closed")];

    // Keys that contradict each other.
    "no port": "[dpdk]\n" => [(0, E, "there is no section [port0]")];
    "empty file": "" => [(0, E, "there is no section [port0]")];
    "port without address": "\n[port0]\nmtu=1500" => [(2, E, "[port0] has neither addr nor addr6; give it")];
    "addr without netmask": "[port0]\naddr=198.18.0.2" => [(2, E, "[port0] has addr but no netmask")];
    "netmask without addr": "[port0]\naddr6=2001:2::2\nnetmask=255.0.0.0" => [(3, E, "netmask: there is no addr that it belongs to")];
    "gateway without addr": "[port0]\naddr6=2001:2::2\ngateway=198.18.0.1" => [(3, E, "gateway: there is no addr that it belongs to")];
    "gateway outside": after_port0!("gateway=198.18.1.1") => [(4, E, "[port0] gateway: 198.18.1.1 is outside the subnet 198.18.0.0/24")];
    "gateway is addr": after_port0!("gateway=198.18.0.2") => [(4, E, "198.18.0.2 is an address of this port itself")];
    "gateway is broadcast": after_port0!("gateway=198.18.0.255") => [(4, E, "is the network or the broadcast address of 198.18.0.0/24")];
    "broadcast": after_port0!("broadcast=198.18.1.255") => [(4, E, "198.18.1.255 is not the broadcast address of 198.18.0.0/24; write 198.18.0.255")];
    "broadcast of a /31": "[port0]\naddr=198.18.0.2\nnetmask=255.255.255.254\nbroadcast=198.18.0.3" => [(4, E, "a subnet of this size has none")];
    "addr is network": "[port0]\naddr=198.18.0.0\nnetmask=255.255.255.0" => [(2, E, "198.18.0.0 is the network or the broadcast address")];
    "addr is multicast": "[port0]\naddr=224.0.0.1\nnetmask=255.255.255.0" => [(2, E, "224.0.0.1 is no address of a single host")];
    "addr twice": after_port0!("vip_addr=198.18.0.2") => [(4, E, "198.18.0.2 is the port's addr already")];
    "addr6 twice": "[port0]\naddr6=2001:2::2\nvip_addr6=2001:2::3;2001:2::2" => [(3, E, "2001:2::2 is the port's addr6 already")];
    "addr6 is multicast": "[port0]\naddr6=ff02::1" => [(2, E, "ff02::1 is no address of a single host")];
    "addr6 is mapped": "[port0]\naddr6=::ffff:198.18.0.2" => [(2, E, "is no address of a single host")];
    "gateway6 outside": "[port0]\naddr6=2001:2::2\ngateway6=2001:3::1" => [(3, E, "2001:3::1 is outside the prefix 2001:2::/64")];
    "gateway6 without addr6": after_port0!("gateway6=fe80::1") => [(4, E, "gateway6: there is no addr6 that it belongs to")];
    "gateway6 is addr6": "[port0]\naddr6=2001:2::2\ngateway6=2001:2::2" => [(3, E, "is an address of this port itself")];
    "MTU with IPv6": "[port0]\naddr6=2001:2::2\nmtu=1000" => [(3, E, "mtu: 1000 is too small for IPv6")];
    "queues of a TAP": after_port0!("queues=17") => [(4, E, "a TAP device has at most 16 queues, not 17")];
    "address kept by the kernel": after_port0!("[kernel]\naddresses=198.18.0.0/15") => [(2, E, "198.18.0.2 is left to the kernel")];
    "port_list without section": after_port0!("[dpdk]\nport_list=0,1") => [(5, E, "port 1 has no section [port1]")];
    "section not in port_list": after_port0!("[port1]\naddr6=2001:2::2\n[dpdk]\nport_list=0") => [(4, W, "[port1] is not in [dpdk] port_list; it is left out")];
    "same address on two ports": after_port0!("[port1]\naddr=198.18.0.2\nnetmask=255.255.255.255") => [(5, E, "198.18.0.2 is an address of [port0] already")];
    "further address on two ports": after_port0!("[port1]\naddr6=2001:2::2\nvip_addr=198.18.0.2") => [(6, E, "vip_addr: 198.18.0.2 is an address of [port0] already")];
    "overlapping subnets": after_port0!("[port1]\naddr=198.18.1.2\nnetmask=255.255.0.0") => [(5, W, "198.18.0.0/16 and 198.18.0.0/24 of [port0] overlap")];
    "further address in the subnet of another port": after_port0!("[port1]\naddr6=2001:2::2\nvip_addr=198.18.0.9") => [(6, W, "198.18.0.9/32 and 198.18.0.0/24 of [port0] overlap")];
    "subnet around the further address of another port": after_port0!("vip_addr=198.19.0.9\n[port1]\naddr=198.19.0.2\nnetmask=255.255.255.0") => [(6, W, "198.19.0.0/24 and 198.19.0.9/32 of [port0] overlap")];
    "link-local addresses on two ports": after_port0!("addr6=fe80::1\n[port1]\naddr6=fe80::2") => [];
    "same device": after_port0!("[port1]\naddr6=2001:2::2\ndevice=tap:ff0") => [(6, E, "tap:ff0 is the device of [port0] already")];
    "same interface": after_port0!("[port1]\naddr6=2001:2::2\ndevice=af_packet:ff0") => [(6, E, "af_packet:ff0 has the interface of [port0]")];
    "same MAC": after_port0!("mac=02:00:00:00:00:01\n[port1]\naddr6=2001:2::2\nmac=02:00:00:00:00:01") => [(7, W, "[port0] has the same MAC address")];
    "EAL argument of ours": after_port0!("[dpdk]\nextra_eal_args=--no-telemetry --proc-type=auto") => [(5, E, "\"--proc-type=auto\" is not free to choose")];
    "EAL argument of ours, short": after_port0!("[dpdk]\nextra_eal_args=-l0-3") => [(5, E, "\"-l0-3\" is not free to choose")];
    "nginx -c": after_port0!("[nginx]\noptions=-c /x") => [(5, E, "\"-c\" cannot stand here; use conf= of [nginx]"), (5, E, "\"/x\" cannot stand here")];
    "nginx -s": after_port0!("[nginx]\noptions=-g 'a -c b;' -s reload") => [(5, E, "\"-s\" cannot stand here; remove it"), (5, E, "\"reload\"")];
    "runtime_dir too long": after_port0!("[instance]\nruntime_dir=/run/0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789") =>
        [(5, E, "the path has 105 bytes; at most 80 fit")];
    "memory below one connection": after_port0!("[limits]\nmemory=16M\nrcv_buf_max=16M") => [(5, W, "one connection with full buffers")];
    "initial buffer beyond its limit": after_port0!("[freebsd.sysctl]\nnet.inet.tcp.recvspace=8M") => [(5, W, "net.inet.tcp.recvspace is 8388608 bytes, but no such buffer grows beyond 6291456")];
    "limit below the initial buffer": after_port0!("[limits]\nsnd_buf_max=4096") => [(5, W, "net.inet.tcp.sendspace is 65536 bytes")];
};

#[test]
fn each_kind_of_bad_input_is_one_sentence_at_its_place() {
    for Case { name, text, found } in CASES {
        let checked = Config::parse("f-stack.conf", text);
        let sentences: Vec<String> = checked.findings.iter().map(ToString::to_string).collect();
        assert_eq!(checked.findings.len(), found.len(), "{name}: {sentences:#?}");
        for (finding, (line, severity, piece)) in checked.findings.iter().zip(*found) {
            let sentence = finding.to_string();
            assert_eq!((finding.line, finding.severity), (*line, *severity), "{name}: {sentence}");
            assert!(sentence.contains(piece), "{name}: {sentence}\n  has no {piece:?}");
            let place = if *line == 0 { "f-stack.conf: ".into() } else { format!("f-stack.conf:{line}: ") };
            assert!(sentence.starts_with(&format!("{place}{severity}: ")), "{name}: {sentence}");
            assert!(!sentence.contains('\n') && !sentence.ends_with(['.', ';', ' ']), "{name}: {sentence:?}");
        }
    }
}

#[test]
fn a_wrong_value_leaves_the_default_and_the_rest_is_read() {
    let checked = Config::parse("f", "[dpdk]\nidle_sleep=x\npkt_tx_delay=7\n[port0]\naddr6=2001:2::2\n");
    assert!(checked.has_errors());
    assert_eq!(checked.errors().count(), 1);
    assert_eq!(checked.config.dpdk.idle_sleep_us, 250);
    assert_eq!(checked.config.dpdk.pkt_tx_delay_us, 7);
}

#[test]
fn warnings_alone_are_no_errors() {
    let checked = super::parse("[dpdk]\nnuma_on=1\nnonsense_key=1");
    assert_eq!(checked.findings.len(), 2);
    assert!(!checked.has_errors());
}

#[test]
fn all_is_found_at_once_in_the_order_of_the_file() {
    let text = "x=1\n[dpdk]\ntso=2\nnonsense_key=1\n[port0]\nmtu=1\n[a\n";
    let checked = Config::parse("f", text);
    let lines: Vec<usize> = checked.findings.iter().map(|finding| finding.line).collect();
    assert_eq!(lines, [1, 3, 4, 5, 6, 7]);
}

#[test]
fn what_the_file_shows_in_a_message_is_escaped_and_bounded() {
    let long = "z".repeat(10_000);
    let number = "0".repeat(10_000);
    let checked = super::parse(&format!(
        "[{long}]\n[vdev{number}]\n{long}=1\n[port{number}]\n[dpdk]\n{long}=1\nallow={long}\nbell\u{7}\u{1b}[2J=1"
    ));
    for line in super::lines(&checked) {
        assert!(line.len() < 400, "{line}");
        assert!(!line.chars().any(char::is_control), "{line:?}");
    }
}
