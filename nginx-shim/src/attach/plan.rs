//! From the primary's plan to the stack's settings. Pure.

use std::net::IpAddr;

use ff_control::{TcpPlan, WorkerPlan};
use ff_dataplane::StackConfig;
use ff_dataplane::io::WorkerRef;
use ff_handover::Secrets;
use ff_tcp::{Algorithm, EcnMode, EngineConfig, MtuProbing};

/// The stack of the worker that `plan` describes.
pub fn stack_config(plan: &WorkerPlan, secrets: &Secrets) -> StackConfig {
    let gateway4 = match plan.gateway4 {
        Some(IpAddr::V4(gateway)) => Some(gateway),
        _ => None,
    };
    let gateway6 = match plan.gateway6 {
        Some(IpAddr::V6(gateway)) => Some(gateway),
        _ => None,
    };
    StackConfig {
        mtu: plan.mtu,
        addresses: plan.addresses.iter().map(|address| (address.addr, address.prefix_len)).collect(),
        gateway4,
        gateway6,
        worker: WorkerRef { slot: plan.slot, index: plan.index },
        worker_count: plan.workers,
        slot_count: plan.slots,
        engine: engine_config(plan),
        secrets: ff_tcp::Secrets { isn: secrets.isn, timestamp: secrets.timestamp, cookie: secrets.cookie },
        hash_key: secrets.hash,
        offload: true,
        udp_blackhole: plan.udp_blackhole,
        // One worker of a generation is enough.
        announce: plan.index == 0,
        ..StackConfig::default()
    }
}

fn engine_config(plan: &WorkerPlan) -> EngineConfig {
    let tcp: &TcpPlan = &plan.tcp;
    let ms = |ms: u32| u64::from(ms) * 1_000;
    let mut config = EngineConfig {
        rcv_buf_initial_bytes: tcp.rcv_buf_initial_bytes,
        rcv_buf_max_bytes: tcp.rcv_buf_max_bytes,
        snd_buf_initial_bytes: tcp.snd_buf_initial_bytes,
        snd_buf_max_bytes: tcp.snd_buf_max_bytes,
        memory_limit_bytes: plan.limits.memory_bytes,
        conns_max: plan.limits.tcp_flows,
        requests_max: tcp.syn_backlog,
        time_wait_max: tcp.time_wait_max,
        somaxconn: tcp.somaxconn,
        syn_cookies: tcp.syn_cookies,
        rst_unknown: !tcp.blackhole,
        synack_retries: tcp.synack_retries,
        mtu_probing: if tcp.mtu_probing { MtuProbing::BlackHole } else { MtuProbing::Off },
        rto_initial_us: ms(tcp.rto_initial_ms),
        window_scaling: tcp.rfc1323,
        timestamps: tcp.rfc1323,
        sack: tcp.sack,
        ecn: match tcp.ecn.as_str() {
            "on" => EcnMode::On,
            "passive" => EcnMode::Passive,
            _ => EcnMode::Off,
        },
        congestion: match tcp.congestion.as_str() {
            "newreno" => Algorithm::NewReno,
            _ => Algorithm::Cubic,
        },
        initial_window_segments: tcp.initcwnd_segments,
        delayed_ack: tcp.delayed_ack,
        delayed_ack_us: ms(tcp.delayed_ack_ms),
        rto_min_us: ms(tcp.rto_min_ms),
        msl_us: ms(tcp.msl_ms),
        fin_wait2_us: ms(tcp.finwait2_timeout_ms),
        ..EngineConfig::default()
    };
    let keepalive = &mut config.socket.keepalive;
    keepalive.enabled = tcp.always_keepalive;
    keepalive.idle_us = ms(tcp.keep_idle_ms);
    keepalive.interval_us = ms(tcp.keep_interval_ms);
    keepalive.count = tcp.keep_count.clamp(1, 127) as u8;
    config
}
