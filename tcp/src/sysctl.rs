//! F-Stack's `[freebsd.sysctl]` keys that have a counterpart in the engine.

use thiserror::Error;

use crate::config::{EcnMode, EngineConfig, MtuProbing};
use crate::congestion::Algorithm;

/// Why a key had no effect.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SysctlError {
    /// The engine has no counterpart.
    #[error("{0} has no counterpart in this TCP engine")]
    Unknown(String),
    /// The value is not a number, or out of range.
    #[error("{name}: {value} is not {wanted}")]
    Value {
        /// The key.
        name: &'static str,
        /// What was given.
        value: String,
        /// What would be right.
        wanted: &'static str,
    },
}

/// One key: its name and what it does here.
#[derive(Clone, Copy, Debug)]
pub struct Sysctl {
    /// FreeBSD's name.
    pub name: &'static str,
    /// What it sets, with its unit.
    pub effect: &'static str,
    wanted: &'static str,
    range: (u64, u64),
    apply: fn(&mut EngineConfig, u64),
}

const fn key(
    name: &'static str,
    effect: &'static str,
    wanted: &'static str,
    range: (u64, u64),
    apply: fn(&mut EngineConfig, u64),
) -> Sysctl {
    Sysctl { name, effect, wanted, range, apply }
}

const FLAG: &str = "0 or 1";
const MS: &str = "a number of milliseconds (1..=3600000)";
const MS_RANGE: (u64, u64) = (1, 3_600_000);
const BYTES: &str = "a number of bytes (2048..=33554432)";
const BYTES_RANGE: (u64, u64) = (2_048, 32 << 20);

/// Every key that takes effect.
pub const SYSCTLS: &[Sysctl] = &[
    key("kern.ipc.somaxconn", "upper bound of a listener's backlog", "1..=1048576", (1, 1 << 20), |c, v| {
        c.somaxconn = v as u32;
    }),
    key("kern.ipc.maxsockbuf", "upper bound of both socket buffers, bytes", BYTES, BYTES_RANGE, |c, v| {
        c.rcv_buf_max_bytes = v as u32;
        c.snd_buf_max_bytes = v as u32;
        c.rcv_buf_initial_bytes = c.rcv_buf_initial_bytes.min(v as u32);
        c.snd_buf_initial_bytes = c.snd_buf_initial_bytes.min(v as u32);
    }),
    key("net.inet.tcp.sendspace", "send buffer at first, bytes", BYTES, BYTES_RANGE, |c, v| {
        c.snd_buf_initial_bytes = v as u32;
        c.snd_buf_max_bytes = c.snd_buf_max_bytes.max(v as u32);
    }),
    key("net.inet.tcp.recvspace", "receive buffer at first, bytes", BYTES, BYTES_RANGE, |c, v| {
        c.rcv_buf_initial_bytes = v as u32;
        c.rcv_buf_max_bytes = c.rcv_buf_max_bytes.max(v as u32);
    }),
    key("net.inet.tcp.sendbuf_max", "send buffer at most, bytes", BYTES, BYTES_RANGE, |c, v| {
        c.snd_buf_max_bytes = v as u32;
        c.snd_buf_initial_bytes = c.snd_buf_initial_bytes.min(v as u32);
    }),
    key("net.inet.tcp.recvbuf_max", "receive buffer at most, bytes", BYTES, BYTES_RANGE, |c, v| {
        c.rcv_buf_max_bytes = v as u32;
        c.rcv_buf_initial_bytes = c.rcv_buf_initial_bytes.min(v as u32);
    }),
    key("net.inet.tcp.sendbuf_auto", "whether the send buffer grows by need", FLAG, (0, 1), |c, v| {
        if v == 0 {
            c.snd_buf_max_bytes = c.snd_buf_initial_bytes;
        }
    }),
    key("net.inet.tcp.recvbuf_auto", "whether the receive buffer grows by need", FLAG, (0, 1), |c, v| {
        if v == 0 {
            c.rcv_buf_max_bytes = c.rcv_buf_initial_bytes;
        }
    }),
    key("net.inet.tcp.sack.enable", "selective acknowledgements", FLAG, (0, 1), |c, v| c.sack = v == 1),
    key(
        "net.inet.tcp.rfc1323",
        "1: window scaling and timestamps, 2: scaling, 3: timestamps",
        "0..=3",
        (0, 3),
        |c, v| {
            c.window_scaling = v == 1 || v == 2;
            c.timestamps = v == 1 || v == 3;
        },
    ),
    key("net.inet.tcp.ecn.enable", "0: never, 1: ask and grant, 2: grant", "0, 1 or 2", (0, 2), |c, v| {
        c.ecn = match v {
            0 => EcnMode::Off,
            1 => EcnMode::On,
            _ => EcnMode::Passive,
        };
    }),
    key("net.inet.tcp.msl", "maximum segment lifetime, ms; TIME-WAIT is twice that", MS, MS_RANGE, |c, v| {
        c.msl_us = v * 1_000;
    }),
    key("net.inet.tcp.maxtcptw", "TIME-WAIT entries at most", "0..=16777216", (0, 1 << 24), |c, v| {
        c.time_wait_max = v as u32;
    }),
    key("net.inet.tcp.finwait2_timeout", "FIN-WAIT-2 of a closed socket, ms", MS, MS_RANGE, |c, v| {
        c.fin_wait2_us = v * 1_000;
    }),
    key("net.inet.tcp.delayed_ack", "delayed acknowledgements", FLAG, (0, 1), |c, v| c.delayed_ack = v == 1),
    key("net.inet.tcp.delacktime", "delay of an acknowledgement, ms", "1..=500", (1, 500), |c, v| {
        c.delayed_ack_us = v * 1_000;
    }),
    key("net.inet.tcp.rexmit_min", "smallest retransmission time-out, ms", MS, MS_RANGE, |c, v| {
        c.rto_min_us = v * 1_000;
    }),
    key("net.inet.tcp.rexmit_initial", "first retransmission time-out, ms", MS, MS_RANGE, |c, v| {
        c.rto_initial_us = v * 1_000;
    }),
    key("net.inet.tcp.initcwnd_segments", "initial window, segments", "1..=100", (1, 100), |c, v| {
        c.initial_window_segments = v as u32;
    }),
    key("net.inet.tcp.syncookies", "SYN cookies when a backlog is full", FLAG, (0, 1), |c, v| {
        c.syn_cookies = v == 1;
    }),
    key("net.inet.tcp.blackhole", "not 0: segments that nobody wants get no RST", "0..=3", (0, 3), |c, v| {
        c.rst_unknown = v == 0;
    }),
    key("net.inet.tcp.minmss", "smallest segment, bytes", "48..=1460", (48, 1_460), |c, v| {
        c.mss_min = v as u16;
    }),
    key(
        "net.inet.tcp.pmtud_blackhole_detection",
        "path MTU probing after time-outs",
        "0..=3",
        (0, 3),
        |c, v| {
            c.mtu_probing = if v == 0 { MtuProbing::Off } else { MtuProbing::BlackHole };
        },
    ),
    key(
        "net.inet.tcp.pmtud_blackhole_mss",
        "segment tried in a black hole, bytes",
        "512..=8960",
        (512, 8_960),
        |c, v| {
            c.mss_base = v as u16;
        },
    ),
    key("net.inet.tcp.always_keepalive", "keep-alive on sockets that do not ask", FLAG, (0, 1), |c, v| {
        c.socket.keepalive.enabled = v == 1;
    }),
    key(
        "net.inet.tcp.keepidle",
        "silence before keep-alive, ms",
        "1000..=864000000",
        (1_000, 864_000_000),
        |c, v| {
            c.socket.keepalive.idle_us = v * 1_000;
        },
    ),
    key(
        "net.inet.tcp.keepintvl",
        "between keep-alive probes, ms",
        "1000..=864000000",
        (1_000, 864_000_000),
        |c, v| {
            c.socket.keepalive.interval_us = v * 1_000;
        },
    ),
    key("net.inet.tcp.keepcnt", "unanswered keep-alive probes", "1..=127", (1, 127), |c, v| {
        c.socket.keepalive.count = v as u8;
    }),
];

impl EngineConfig {
    /// Applies a key of `[freebsd.sysctl]`.
    ///
    /// # Errors
    /// [`SysctlError::Unknown`] for a key without counterpart (the caller may
    /// warn and go on), [`SysctlError::Value`] for a value out of range.
    pub fn set_sysctl(&mut self, name: &str, value: &str) -> Result<(), SysctlError> {
        const CC: &str = "net.inet.tcp.cc.algorithm";
        let value = value.trim().trim_matches('"');
        if name == CC {
            let wanted = "cubic or newreno";
            let bad = || SysctlError::Value { name: CC, value: value.to_string(), wanted };
            self.congestion = Algorithm::from_name(value).ok_or_else(bad)?;
            return Ok(());
        }
        let sysctl = SYSCTLS.iter().find(|s| s.name == name);
        let sysctl = sysctl.ok_or_else(|| SysctlError::Unknown(name.to_string()))?;
        let number = value.parse::<u64>().ok().filter(|v| (sysctl.range.0..=sysctl.range.1).contains(v));
        let Some(number) = number else {
            let (name, wanted) = (sysctl.name, sysctl.wanted);
            return Err(SysctlError::Value { name, value: value.to_string(), wanted });
        };
        (sysctl.apply)(self, number);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_of_f_stack_takes_effect() {
        let mut c = EngineConfig::default();
        for (name, value) in [
            ("kern.ipc.somaxconn", "32768"),
            ("kern.ipc.maxsockbuf", "16777216"),
            ("net.inet.tcp.sendspace", "16384"),
            ("net.inet.tcp.cc.algorithm", "newreno"),
            ("net.inet.tcp.msl", "2000"),
            ("net.inet.tcp.blackhole", "1"),
            ("net.inet.tcp.finwait2_timeout", "5000"),
            ("net.inet.tcp.rfc1323", "0"),
            ("net.inet.tcp.ecn.enable", "2"),
        ] {
            c.set_sysctl(name, value).expect(name);
        }
        assert_eq!((c.somaxconn, c.rcv_buf_max_bytes, c.snd_buf_initial_bytes), (32_768, 16 << 20, 16_384));
        assert_eq!((c.congestion, c.msl_us, c.rst_unknown), (Algorithm::NewReno, 2_000_000, false));
        assert_eq!((c.fin_wait2_us, c.timestamps, c.ecn), (5_000_000, false, EcnMode::Passive));
    }

    #[test]
    fn wrong_values_and_names_say_what_is_right() {
        let mut c = EngineConfig::default();
        let e = c.set_sysctl("net.inet.tcp.msl", "soon").unwrap_err();
        assert_eq!(e.to_string(), "net.inet.tcp.msl: soon is not a number of milliseconds (1..=3600000)");
        assert!(c.set_sysctl("net.inet.tcp.delacktime", "501").is_err());
        assert!(matches!(
            c.set_sysctl("net.inet.tcp.functions_default", "rack"),
            Err(SysctlError::Unknown(_))
        ));
    }

    #[test]
    fn every_key_accepts_both_ends_of_its_range() {
        for s in SYSCTLS {
            let mut c = EngineConfig::default();
            c.set_sysctl(s.name, &s.range.0.to_string()).expect(s.name);
            c.set_sysctl(s.name, &s.range.1.to_string()).expect(s.name);
            assert!(c.set_sysctl(s.name, &(s.range.1 + 1).to_string()).is_err(), "{}", s.name);
        }
    }
}
