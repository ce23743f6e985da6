//! The TCP settings: F-Stack's `[freebsd.sysctl]` keys that have a counterpart in the TCP engine.

/// `net.inet.tcp.cc.algorithm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// `cubic` (RFC 9438).
    Cubic,
    /// `newreno` (RFC 5681, RFC 6582).
    NewReno,
}

/// `net.inet.tcp.ecn.enable` (RFC 3168).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// `0`: neither asked for nor granted.
    Off,
    /// `1`: asked for on active opens, granted on passive ones.
    On,
    /// `2`: granted to a peer that asks, never asked for.
    Passive,
}

/// TCP, from `[freebsd.sysctl]`. Times in ms, buffers in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// `net.inet.tcp.ecn.enable`. Default off.
    pub ecn: Ecn,
    /// `net.inet.tcp.msl`, ms: TIME-WAIT lasts twice as long. Default 30 000.
    pub msl_ms: u32,
    /// `net.inet.tcp.delayed_ack`. Default true.
    pub delayed_ack: bool,
    /// `net.inet.tcp.delacktime`, ms: the longest that an ACK is delayed. Default 40.
    pub delayed_ack_ms: u32,
    /// `net.inet.tcp.sack.enable` (RFC 2018). Default true.
    pub sack: bool,
    /// `net.inet.tcp.rfc1323`: window scale and timestamps (RFC 7323). Default true.
    pub rfc1323: bool,
    /// `net.inet.tcp.cc.algorithm`. Default CUBIC.
    pub congestion: Congestion,
    /// `net.inet.tcp.initcwnd_segments` (RFC 6928). Default 10.
    pub initcwnd_segments: u32,
    /// `net.inet.tcp.rexmit_initial`, ms: the retransmission timeout before there is a sample (RFC 6298). Default
    /// 1 000.
    pub rexmit_initial_ms: u32,
    /// `net.inet.tcp.rexmit_min`, ms: the shortest retransmission timeout. Default 200.
    pub rexmit_min_ms: u32,
    /// `net.inet.tcp.sendspace`, bytes: a send buffer's size at first. Default 64 KiB.
    pub sendspace_bytes: u64,
    /// `net.inet.tcp.recvspace`, bytes: a receive buffer's size at first. Default 64 KiB.
    pub recvspace_bytes: u64,
    /// `net.inet.tcp.sendbuf_max`, bytes: auto-tuning stops there. None: `[limits] snd_buf_max`.
    pub sendbuf_max_bytes: Option<u64>,
    /// `net.inet.tcp.recvbuf_max`, bytes: auto-tuning stops there. None: `[limits] rcv_buf_max`.
    pub recvbuf_max_bytes: Option<u64>,
    /// `kern.ipc.maxsockbuf`, bytes: no socket buffer grows beyond it, by auto-tuning or by SO_RCVBUF and
    /// SO_SNDBUF. Default 16 MiB.
    pub maxsockbuf_bytes: u64,
    /// `kern.ipc.somaxconn`: the longest backlog that `listen()` can ask for. Default 4 096.
    pub somaxconn: u32,
    /// `net.inet.tcp.always_keepalive`: keep-alive also without SO_KEEPALIVE. Default false.
    pub always_keepalive: bool,
    /// `net.inet.tcp.keepidle`, ms: idle time before the first probe. Default 7 200 000.
    pub keepidle_ms: u32,
    /// `net.inet.tcp.keepintvl`, ms: time between probes. Default 75 000.
    pub keepintvl_ms: u32,
    /// `net.inet.tcp.keepcnt`: probes without an answer before the connection ends. Default 9.
    pub keepcnt: u32,
    /// `net.inet.tcp.finwait2_timeout`, ms: how long a closed connection waits for the peer's FIN. Default
    /// 60 000.
    pub finwait2_timeout_ms: u32,
    /// `net.inet.tcp.maxtcptw`: TIME-WAIT entries of one worker. None: as many as `[limits] tcp_flows` has room
    /// for.
    pub time_wait_max: Option<u32>,
    /// `net.inet.tcp.syncookies` (RFC 4987): cookies when the backlog overflows. Default true.
    pub syncookies: bool,
    /// `net.inet.tcp.syncache.rexmtlimit`: retransmissions of a SYN-ACK. Default 5.
    pub synack_retries: u8,
    /// `net.inet.tcp.pmtud_blackhole_detection`: the path MTU is probed when ICMP does not tell (RFC 4821).
    /// Default true.
    pub pmtud_blackhole_detection: bool,
    /// `net.inet.tcp.blackhole`: whether a segment for no socket meets silence instead of a RST. Default false.
    pub blackhole: bool,
}

impl Default for Tcp {
    fn default() -> Self {
        Tcp {
            ecn: Ecn::Off,
            msl_ms: 30_000,
            delayed_ack: true,
            delayed_ack_ms: 40,
            sack: true,
            rfc1323: true,
            congestion: Congestion::Cubic,
            initcwnd_segments: 10,
            rexmit_initial_ms: 1_000,
            rexmit_min_ms: 200,
            sendspace_bytes: 64 << 10,
            recvspace_bytes: 64 << 10,
            sendbuf_max_bytes: None,
            recvbuf_max_bytes: None,
            maxsockbuf_bytes: 16 << 20,
            somaxconn: 4_096,
            always_keepalive: false,
            keepidle_ms: 7_200_000,
            keepintvl_ms: 75_000,
            keepcnt: 9,
            finwait2_timeout_ms: 60_000,
            time_wait_max: None,
            syncookies: true,
            synack_retries: 5,
            pmtud_blackhole_detection: true,
            blackhole: false,
        }
    }
}
