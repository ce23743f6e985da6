//! `[freebsd.boot]` and `[freebsd.sysctl]`: the tunables that have a counterpart in the engine, and the usual ones
//! that have none.

use super::{Key, Section, Status, no_effect, not_applicable, words, works, works_by};
use crate::tcp_settings::{Congestion, Ecn};
use crate::value::{Kind, Setting};

pub(super) static BOOT: Section = Section {
    name: "freebsd.boot",
    numbered: false,
    status: Status::Works,
    meaning: "FreeBSD's boot tunables. There is no FreeBSD kernel inside, so nearly all are accepted without effect; so is every name that is not listed.",
    keys: BOOT_KEYS,
    open: true,
};

pub(super) static SYSCTL: Section = Section {
    name: "freebsd.sysctl",
    numbered: false,
    status: Status::Works,
    meaning: "FreeBSD's sysctls. Those that work set the TCP engine or UDP; every name that is not listed is accepted without effect.",
    keys: SYSCTL_KEYS,
    open: true,
};

const MEMORY: &str = "[limits] says how much memory connections may hold";
const TABLES: &str = "tables are sized by [limits] and grow by themselves";
const ROUTER: &str = "the stack is a host and forwards no packet";
const AUTOCONF: &str = "IPv6 addresses and gateways come from [portN] alone";

const BOOT_KEYS: &[Key] = &[
    works_by!(
        "tcp_ecn",
        ECN,
        "0",
        "Another name of `net.inet.tcp.ecn.enable`, which counts when both are there.",
        |config, _, kind, text| {
            config.tcp.ecn = Setting::read(kind, text)?;
            Ok(())
        },
        None
    ),
    no_effect!("hz", "100", "timers have microseconds and no tick"),
    no_effect!("fd_reserve", "0", "descriptors are the kernel's own and never collide"),
    no_effect!("physmem", "268435456", MEMORY),
    no_effect!("memsz_MB", "256", MEMORY),
    no_effect!("kern.ipc.maxsockets", "", "[limits] tcp_flows says how many connections there may be"),
    no_effect!("net.inet.tcp.syncache.hashsize", "", TABLES),
    no_effect!("net.inet.tcp.syncache.bucketlimit", "", "[limits] syn_backlog says it"),
    no_effect!("net.inet.tcp.tcbhashsize", "", TABLES),
    no_effect!("kern.ncallout", "", TABLES),
    no_effect!("kern.features.inet6", "", "IPv6 is always there"),
    no_effect!("net.inet6.ip6.auto_linklocal", "", AUTOCONF),
    no_effect!("net.inet6.ip6.accept_rtadv", "", AUTOCONF),
    no_effect!("net.inet6.icmp6.rediraccept", "", AUTOCONF),
    no_effect!(
        "net.link.ether.inet.maxhold",
        "",
        "packets that wait for a neighbour are bounded by the worker"
    ),
];

const ECN: Kind = Kind::Choice(&["0", "1", "2"]);
const HOUR_MS: Kind = Kind::Number { min: 1, max: 3_600_000, unit: "ms" };
const DAY_MS: Kind = Kind::Number { min: 1_000, max: 86_400_000, unit: "ms" };
const BUFFER: Kind = Kind::Size { min: 2_048, max: 1 << 30 };

const SYSCTL_KEYS: &[Key] = &[
    works!(
        "kern.ipc.somaxconn",
        Kind::Number { min: 1, max: 1_048_576, unit: "connections" },
        "4096",
        tcp.somaxconn,
        "Longest backlog that `listen()` can ask for."
    ),
    works!(
        "kern.ipc.maxsockbuf",
        BUFFER,
        "16M",
        tcp.maxsockbuf_bytes,
        "No TCP buffer grows beyond it, by auto-tuning or by SO_RCVBUF and SO_SNDBUF; neither beyond [limits]."
    ),
    works!("net.inet.tcp.sendspace", BUFFER, "64K", tcp.sendspace_bytes, "A send buffer's size at first."),
    works!("net.inet.tcp.recvspace", BUFFER, "64K", tcp.recvspace_bytes, "A receive buffer's size at first."),
    works!(
        "net.inet.tcp.sendbuf_max",
        BUFFER,
        "([limits] snd_buf_max)",
        tcp.sendbuf_max_bytes,
        "How far auto-tuning grows a send buffer."
    ),
    works!(
        "net.inet.tcp.recvbuf_max",
        BUFFER,
        "([limits] rcv_buf_max)",
        tcp.recvbuf_max_bytes,
        "How far auto-tuning grows a receive buffer."
    ),
    works!(
        "net.inet.tcp.cc.algorithm",
        Kind::Choice(&["cubic", "newreno"]),
        "cubic",
        tcp.congestion,
        "Congestion control."
    ),
    works!(
        "net.inet.tcp.ecn.enable",
        ECN,
        "0",
        tcp.ecn,
        "Explicit congestion notification (RFC 3168): 0 off, 1 asked for and granted, 2 granted to those who ask."
    ),
    works!("net.inet.tcp.sack.enable", Kind::Flag, "1", tcp.sack, "Selective acknowledgements (RFC 2018)."),
    works!("net.inet.tcp.rfc1323", Kind::Flag, "1", tcp.rfc1323, "Window scale and timestamps (RFC 7323)."),
    works!("net.inet.tcp.delayed_ack", Kind::Flag, "1", tcp.delayed_ack, "Acknowledgements may be delayed."),
    works!(
        "net.inet.tcp.delacktime",
        Kind::Number { min: 1, max: 500, unit: "ms" },
        "40",
        tcp.delayed_ack_ms,
        "The longest delay of an acknowledgement (at most 500 ms by RFC 1122)."
    ),
    works!(
        "net.inet.tcp.initcwnd_segments",
        Kind::Number { min: 1, max: 100, unit: "segments" },
        "10",
        tcp.initcwnd_segments,
        "Initial congestion window (RFC 6928)."
    ),
    works!(
        "net.inet.tcp.rexmit_initial",
        Kind::Number { min: 10, max: 60_000, unit: "ms" },
        "1000",
        tcp.rexmit_initial_ms,
        "Retransmission timeout before there is a sample (RFC 6298)."
    ),
    works!(
        "net.inet.tcp.rexmit_min",
        Kind::Number { min: 10, max: 60_000, unit: "ms" },
        "200",
        tcp.rexmit_min_ms,
        "The shortest retransmission timeout."
    ),
    works!(
        "net.inet.tcp.msl",
        Kind::Number { min: 10, max: 240_000, unit: "ms" },
        "30000",
        tcp.msl_ms,
        "Maximum segment lifetime: TIME-WAIT lasts twice as long."
    ),
    works!(
        "net.inet.tcp.finwait2_timeout",
        HOUR_MS,
        "60000",
        tcp.finwait2_timeout_ms,
        "How long a closed connection waits for the peer's FIN."
    ),
    works!(
        "net.inet.tcp.maxtcptw",
        Kind::Number { min: 1, max: 16_777_216, unit: "entries" },
        "([limits] tcp_flows)",
        tcp.time_wait_max,
        "TIME-WAIT entries of one worker; beyond it the oldest goes."
    ),
    works!(
        "net.inet.tcp.always_keepalive",
        Kind::Flag,
        "0",
        tcp.always_keepalive,
        "Keep-alive also for sockets that did not ask for it."
    ),
    works!(
        "net.inet.tcp.keepidle",
        DAY_MS,
        "7200000",
        tcp.keepidle_ms,
        "Idle time before the first keep-alive probe."
    ),
    works!("net.inet.tcp.keepintvl", DAY_MS, "75000", tcp.keepintvl_ms, "Time between keep-alive probes."),
    works!(
        "net.inet.tcp.keepcnt",
        Kind::Number { min: 1, max: 255, unit: "probes" },
        "9",
        tcp.keepcnt,
        "Keep-alive probes without an answer before the connection ends."
    ),
    works!(
        "net.inet.tcp.syncookies",
        Kind::Flag,
        "1",
        tcp.syncookies,
        "SYN cookies when the backlog overflows (RFC 4987)."
    ),
    works!(
        "net.inet.tcp.syncache.rexmtlimit",
        Kind::Number { min: 0, max: 15, unit: "" },
        "5",
        tcp.synack_retries,
        "Retransmissions of a SYN-ACK."
    ),
    works!(
        "net.inet.tcp.pmtud_blackhole_detection",
        Kind::Flag,
        "1",
        tcp.pmtud_blackhole_detection,
        "The path MTU is found by probing when ICMP does not tell it (RFC 4821)."
    ),
    works_by!(
        "net.inet.tcp.blackhole",
        Kind::Number { min: 0, max: 3, unit: "" },
        "0",
        "0: a segment for no socket is answered with RST; 1 to 3: with silence, which here makes no difference between a SYN and any other.",
        |config, _, kind, text| {
            config.tcp.blackhole = u8::read(kind, text)? > 0;
            Ok(())
        },
        Some(|config, _, kind| config.tcp.blackhole.write(kind))
    ),
    works!(
        "net.inet.udp.blackhole",
        Kind::Flag,
        "0",
        udp.blackhole,
        "1: a datagram for no socket is not answered with ICMP \"port unreachable\"."
    ),
    no_effect!("net.inet.tcp.sendbuf_auto", "1", "buffers always grow and shrink by need"),
    no_effect!("net.inet.tcp.recvbuf_auto", "1", "buffers always grow and shrink by need"),
    no_effect!("net.inet.tcp.sendbuf_inc", "16384", "buffers grow by need, not by steps"),
    no_effect!("net.inet.tcp.recvbuf_inc", "", "buffers grow by need, not by steps"),
    no_effect!(
        "net.inet.tcp.fast_finwait2_recycle",
        "1",
        "net.inet.tcp.finwait2_timeout bounds FIN-WAIT-2 by itself"
    ),
    no_effect!("net.inet.tcp.syncookies_only", "0", "a backlog that has room remembers its handshakes"),
    no_effect!("net.inet.tcp.tso", "", "[dpdk] tso says it"),
    not_applicable!(
        "net.inet.tcp.functions_default",
        "freebsd",
        "there is one TCP engine, with SACK and RACK-TLP of its own"
    ),
    no_effect!("net.inet.tcp.hpts.skip_swi", "", "the engine has no FreeBSD pacer"),
    no_effect!("net.inet.tcp.hpts.minsleep", "", "the engine has no FreeBSD pacer"),
    not_applicable!("net.inet.ip.forwarding", "0", ROUTER),
    not_applicable!("net.inet6.ip6.forwarding", "0", ROUTER),
    no_effect!("net.inet6.ip6.accept_rtadv", "", AUTOCONF),
    no_effect!("net.inet6.icmp6.rediraccept", "", AUTOCONF),
    no_effect!("net.inet6.ip6.auto_linklocal", "", AUTOCONF),
    no_effect!("net.add_addr_allfibs", "", "there is one routing table"),
];

words!(Congestion { Cubic = "cubic", NewReno = "newreno" });
words!(Ecn { Off = "0", On = "1", Passive = "2" });
