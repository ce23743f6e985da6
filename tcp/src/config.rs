//! The engine's settings, with Linux-like defaults.

use crate::congestion::Algorithm;

/// Settings of an [`Engine`](crate::Engine). Times in microseconds.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The link's MTU in bytes, IP header included (576..=65 535).
    pub mtu: u16,
    /// Largest TCP payload that one `poll_transmit` may write, to be cut by
    /// the device or in software (TSO); 0 is one segment at a time.
    pub tso_max_bytes: u32,
    /// Receive buffer that a connection starts with.
    pub rcv_buf_initial_bytes: u32,
    /// Receive buffer that auto-tuning may reach; also the bound of SO_RCVBUF.
    pub rcv_buf_max_bytes: u32,
    /// Send buffer that a connection starts with.
    pub snd_buf_initial_bytes: u32,
    /// Send buffer that auto-tuning may reach; also the bound of SO_SNDBUF.
    pub snd_buf_max_bytes: u32,
    /// Bytes that all buffers together may hold. Above it buffers do not grow,
    /// out-of-order data is not kept and writes block.
    pub memory_limit_bytes: u64,
    /// Free buffer bytes that are kept for reuse.
    pub pool_keep_bytes: u64,
    /// Connections at once, those waiting for accept included.
    pub conns_max: u32,
    /// Half-open handshakes at once, over all listeners.
    pub requests_max: u32,
    /// Entries in TIME-WAIT at once; above it the oldest goes.
    pub time_wait_max: u32,
    /// Connections that the user has closed and that are not done yet.
    pub orphans_max: u32,
    /// Upper bound of any listener's backlog (`kern.ipc.somaxconn`).
    pub somaxconn: u32,
    /// Whether SYN cookies are sent when a backlog is full.
    pub syn_cookies: bool,
    /// Whether a refused SYN (no listener) and an unknown segment get a RST.
    pub rst_unknown: bool,
    /// Whether a full accept queue answers with RST instead of silence.
    pub abort_on_overflow: bool,
    /// Window scaling (RFC 7323).
    pub window_scaling: bool,
    /// Timestamps (RFC 7323).
    pub timestamps: bool,
    /// Selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// ECN (RFC 3168).
    pub ecn: EcnMode,
    /// Congestion control of new connections.
    pub congestion: Algorithm,
    /// Initial window in segments (RFC 6928).
    pub initial_window_segments: u32,
    /// HyStart++ (RFC 9406) with CUBIC and NewReno.
    pub hystart: bool,
    /// Whether an idle connection starts again with the initial window (RFC 5681, 4.1).
    pub idle_restart: bool,
    /// Tail loss probes (RFC 8985).
    pub tlp: bool,
    /// Delayed acknowledgements.
    pub delayed_ack: bool,
    /// Delay of an acknowledgement, at most 500 ms (RFC 1122).
    pub delayed_ack_us: u64,
    /// First retransmission time-out before a sample (RFC 6298).
    pub rto_initial_us: u64,
    /// Smallest retransmission time-out.
    pub rto_min_us: u64,
    /// Largest retransmission time-out.
    pub rto_max_us: u64,
    /// SYN retransmissions of an active open.
    pub syn_retries: u8,
    /// SYN-ACK retransmissions.
    pub synack_retries: u8,
    /// Data retransmissions (Linux `tcp_retries2`).
    pub data_retries: u8,
    /// Data retransmissions when the user has closed (Linux `tcp_orphan_retries`).
    pub orphan_retries: u8,
    /// Maximum segment lifetime; TIME-WAIT lasts twice that.
    pub msl_us: u64,
    /// FIN-WAIT-2 of a closed socket.
    pub fin_wait2_us: u64,
    /// Challenge ACKs per second, over all flows (RFC 5961).
    pub challenge_ack_per_s: u32,
    /// Packetisation-layer path MTU probing (RFC 4821).
    pub mtu_probing: MtuProbing,
    /// Smallest segment that path MTU reports may lead to.
    pub mss_min: u16,
    /// Segment size that a black hole leads to at first.
    pub mss_base: u16,
    /// Pace data by the congestion window and RTT.
    pub pacing: bool,
    /// Keep-alive, nodelay and so on of sockets that set nothing.
    pub socket: crate::socket::SocketOptions,
}

/// ECN as `net.inet.tcp.ecn.enable` has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EcnMode {
    /// Never.
    #[default]
    Off,
    /// Asked for and granted.
    On,
    /// Granted when the peer asks.
    Passive,
}

/// When the path MTU is probed by the engine itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MtuProbing {
    /// Never: only ICMP shrinks segments.
    Off,
    /// After a black hole was detected.
    #[default]
    BlackHole,
    /// Always.
    Always,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            mtu: 1_500,
            tso_max_bytes: 0,
            rcv_buf_initial_bytes: 64 * 1024,
            rcv_buf_max_bytes: 6 * 1024 * 1024,
            snd_buf_initial_bytes: 64 * 1024,
            snd_buf_max_bytes: 4 * 1024 * 1024,
            memory_limit_bytes: 1 << 30,
            pool_keep_bytes: 16 << 20,
            conns_max: 1_048_576,
            requests_max: 65_536,
            time_wait_max: 262_144,
            orphans_max: 65_536,
            somaxconn: 32_768,
            syn_cookies: true,
            rst_unknown: true,
            abort_on_overflow: false,
            window_scaling: true,
            timestamps: true,
            sack: true,
            ecn: EcnMode::Off,
            congestion: Algorithm::Cubic,
            initial_window_segments: 10,
            hystart: true,
            idle_restart: true,
            tlp: true,
            delayed_ack: true,
            delayed_ack_us: 40_000,
            rto_initial_us: 1_000_000,
            rto_min_us: 200_000,
            rto_max_us: 120_000_000,
            syn_retries: 6,
            synack_retries: 5,
            data_retries: 15,
            orphan_retries: 8,
            msl_us: 30_000_000,
            fin_wait2_us: 60_000_000,
            challenge_ack_per_s: 1_000,
            mtu_probing: MtuProbing::BlackHole,
            mss_min: 48,
            mss_base: 1_024,
            pacing: false,
            socket: crate::socket::SocketOptions::default(),
        }
    }
}

/// Keys shared by all generations of one host, so that a flow's numbers, a
/// cookie and a timestamp mean the same to each of them.
#[derive(Clone)]
pub struct Secrets {
    /// Initial sequence numbers (RFC 6528).
    pub isn: [u8; 16],
    /// Timestamp offsets (RFC 7323, 5.4).
    pub timestamp: [u8; 16],
    /// SYN cookies (RFC 4987).
    pub cookie: [u8; 16],
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets(..)")
    }
}
