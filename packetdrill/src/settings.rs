//! What a script has set up for the kernel, read from its network namespace and given to the engine: sysctls,
//! the device's MTU and offloads, the route's metrics.
//!
//! A script sets these with a shell command before its first socket, so they are read when that is made.

use std::net::IpAddr;
use std::process::Command;

use ff_tcp::{Algorithm, EcnMode, EngineConfig, MtuProbing};

/// The interface that packetdrill's scripts name.
const DEVICE: &str = "tun0";

/// What the runner says in `--so_flags`, comma-separated `key=value`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    /// Source address of connections that the script opens.
    pub(crate) local: Option<IpAddr>,
    /// Where the script's packets come from: the route there has the metrics.
    pub(crate) remote: Option<IpAddr>,
}

impl Flags {
    pub(crate) fn parse(text: &str) -> Self {
        let mut flags = Self::default();
        for (key, value) in text.split(',').filter_map(|f| f.split_once('=')) {
            match key {
                "local" => flags.local = value.parse().ok(),
                "remote" => flags.remote = value.parse().ok(),
                _ => {}
            }
        }
        flags
    }
}

/// What the sockets need beside the engine's own settings.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) engine: EngineConfig,
}

fn sysctl(name: &str) -> Option<String> {
    std::fs::read_to_string(format!("/proc/sys/net/{name}")).ok().map(|s| s.trim().to_owned())
}

fn number(name: &str) -> Option<u64> {
    sysctl(name)?.parse().ok()
}

fn seconds_us(name: &str) -> Option<u64> {
    Some(number(name)? * 1_000_000)
}

/// The third and second number of `tcp_rmem` and `tcp_wmem`.
fn buffer(name: &str) -> Option<(u32, u32)> {
    let text = sysctl(name)?;
    let mut words = text.split_whitespace().skip(1).map(|w| w.parse::<u32>());
    Some((words.next()?.ok()?, words.next()?.ok()?))
}

fn output(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).env_remove("LD_PRELOAD").output();
    out.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default()
}

/// The word after `key` in the output of `ip route get`; `lock` between them is skipped.
pub(crate) fn metric(route: &str, key: &str) -> Option<u32> {
    let mut words = route.split_whitespace().skip_while(|w| *w != key).skip(1);
    let word = words.next()?;
    if word == "lock" { words.next()?.parse().ok() } else { word.parse().ok() }
}

impl Settings {
    /// Reads the namespace that this process runs in.
    pub(crate) fn of_namespace(flags: &Flags) -> Self {
        let mut engine = EngineConfig::default();
        of_sysctls(&mut engine);
        let mtu = std::fs::read_to_string(format!("/sys/class/net/{DEVICE}/mtu"));
        if let Some(mtu) = mtu.ok().and_then(|m| m.trim().parse().ok()) {
            engine.mtu = mtu;
        }
        let offloads = output("ethtool", &["-k", DEVICE]);
        let on = |name: &str| offloads.lines().any(|l| l.trim_start().starts_with(&format!("{name}: on")));
        if on("tcp-segmentation-offload") || on("generic-segmentation-offload") {
            // Linux makes bursts of a millisecond at the pacing rate, and of this many segments at least. Over the long
            // round trips of the scripts that is the number.
            let segments = number("ipv4/tcp_min_tso_segs").unwrap_or(2).clamp(1, 40) as u32;
            engine.tso_max_bytes = segments * 1_460;
        }
        // Linux paces through the fq queueing discipline alone in these scripts.
        engine.pacing = output("tc", &["qdisc", "show", "dev", DEVICE]).starts_with("qdisc fq ");
        if let Some(remote) = flags.remote {
            let route = output("ip", &["route", "get", &remote.to_string()]);
            if let Some(segments) = metric(&route, "initcwnd") {
                engine.initial_window_segments = segments;
            }
            if let Some(mtu) = metric(&route, "mtu").and_then(|m| u16::try_from(m).ok()) {
                engine.mtu = mtu;
            }
        }
        Self { engine }
    }
}

fn of_sysctls(c: &mut EngineConfig) {
    let flag = |name: &str, field: &mut bool| {
        if let Some(v) = number(name) {
            *field = v != 0;
        }
    };
    flag("ipv4/tcp_timestamps", &mut c.timestamps);
    flag("ipv4/tcp_sack", &mut c.sack);
    flag("ipv4/tcp_window_scaling", &mut c.window_scaling);
    flag("ipv4/tcp_syncookies", &mut c.syn_cookies);
    flag("ipv4/tcp_abort_on_overflow", &mut c.abort_on_overflow);
    flag("ipv4/tcp_slow_start_after_idle", &mut c.idle_restart);
    flag("ipv4/tcp_early_retrans", &mut c.tlp);
    if let Some((start, max)) = buffer("ipv4/tcp_rmem") {
        // Linux takes half of the memory for overhead at first (tcp_adv_win_scale).
        (c.rcv_buf_initial_bytes, c.rcv_buf_max_bytes) = (start / 2, max);
    }
    if let Some((start, max)) = buffer("ipv4/tcp_wmem") {
        (c.snd_buf_initial_bytes, c.snd_buf_max_bytes) = (start, max);
    }
    let count = |name: &str, field: &mut u8| {
        if let Some(v) = number(name) {
            *field = v.min(255) as u8;
        }
    };
    count("ipv4/tcp_syn_retries", &mut c.syn_retries);
    count("ipv4/tcp_synack_retries", &mut c.synack_retries);
    count("ipv4/tcp_retries2", &mut c.data_retries);
    if let Some(n) = number("ipv4/tcp_orphan_retries").filter(|&n| n > 0) {
        c.orphan_retries = n.min(255) as u8;
    }
    if let Some(us) = seconds_us("ipv4/tcp_fin_timeout") {
        c.fin_wait2_us = us;
    }
    if let Some(us) = seconds_us("ipv4/tcp_keepalive_time") {
        c.socket.keepalive.idle_us = us;
    }
    if let Some(us) = seconds_us("ipv4/tcp_keepalive_intvl") {
        c.socket.keepalive.interval_us = us;
    }
    count("ipv4/tcp_keepalive_probes", &mut c.socket.keepalive.count);
    if let Some(name) = sysctl("ipv4/tcp_congestion_control")
        && let Some(algorithm) = Algorithm::from_name(&name)
    {
        c.congestion = algorithm;
    }
    match number("ipv4/tcp_ecn") {
        Some(0) => c.ecn = EcnMode::Off,
        Some(1) => c.ecn = EcnMode::On,
        Some(2) => c.ecn = EcnMode::Passive,
        _ => {}
    }
    match number("ipv4/tcp_mtu_probing") {
        Some(0) => c.mtu_probing = MtuProbing::Off,
        Some(1) => c.mtu_probing = MtuProbing::BlackHole,
        Some(2) => c.mtu_probing = MtuProbing::Always,
        _ => {}
    }
    if let Some(mss) = number("ipv4/tcp_base_mss") {
        c.mss_base = mss.min(65_535) as u16;
    }
    if let Some(n) = number("core/somaxconn") {
        c.somaxconn = n.min(u64::from(u32::MAX)) as u32;
    }
    // 2MSL is fixed on Linux: 60 s.
    c.msl_us = 30_000_000;
}
