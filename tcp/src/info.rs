//! What can be observed: TCP_INFO, counters by cause, summaries.

use std::net::SocketAddr;

use crate::socket::ConnId;

/// A connection's state (RFC 9293, section 3.3.2). The numbers are Linux's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum State {
    /// Data flows both ways.
    Established = 1,
    /// SYN sent.
    SynSent = 2,
    /// SYN received (simultaneous open; passive handshakes are requests).
    SynReceived = 3,
    /// Our FIN is sent, not yet acknowledged.
    FinWait1 = 4,
    /// Our FIN is acknowledged; the peer may still send.
    FinWait2 = 5,
    /// Both ends, 2MSL.
    TimeWait = 6,
    /// Gone.
    Closed = 7,
    /// The peer has ended; we may still send.
    CloseWait = 8,
    /// The peer has ended, our FIN is sent.
    LastAck = 9,
    /// Both FINs crossed; ours is not yet acknowledged.
    Closing = 11,
}

impl State {
    pub(crate) fn from_u8(v: u8) -> Option<State> {
        Some(match v {
            1 => State::Established,
            2 => State::SynSent,
            3 => State::SynReceived,
            4 => State::FinWait1,
            5 => State::FinWait2,
            6 => State::TimeWait,
            7 => State::Closed,
            8 => State::CloseWait,
            9 => State::LastAck,
            11 => State::Closing,
            _ => return None,
        })
    }
}

/// Congestion phase, numbered as Linux's `tcpi_ca_state`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
#[repr(u8)]
pub enum CaState {
    /// Nothing unusual.
    #[default]
    Open = 0,
    /// SACKs or duplicate ACKs seen.
    Disorder = 1,
    /// Window reduced after an ECN echo.
    Cwr = 2,
    /// Fast recovery.
    Recovery = 3,
    /// After a retransmission time-out.
    Loss = 4,
}

/// TCP_INFO. Times in microseconds, sizes in bytes unless a name says so.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TcpInfo {
    /// State.
    pub state: State,
    /// Congestion phase.
    pub ca_state: CaState,
    /// Retransmissions of the first unacknowledged segment in a row.
    pub retransmits: u8,
    /// Unanswered keep-alive or window probes.
    pub probes: u8,
    /// Exponent of the retransmission timer's back-off.
    pub backoff: u8,
    /// Timestamps are in use.
    pub timestamps: bool,
    /// SACK is in use.
    pub sack: bool,
    /// Window scaling is in use.
    pub wscale: bool,
    /// ECN is in use.
    pub ecn: bool,
    /// Shift of the windows that the peer sends.
    pub snd_wscale: u8,
    /// Shift of the windows that we send.
    pub rcv_wscale: u8,
    /// Retransmission time-out.
    pub rto_us: u64,
    /// Delayed acknowledgement time.
    pub ato_us: u64,
    /// Segment size we send.
    pub snd_mss: u32,
    /// Segment size the peer is seen to send.
    pub rcv_mss: u32,
    /// Segments in flight that are neither acknowledged nor lost.
    pub unacked_segments: u32,
    /// Segments held by SACK.
    pub sacked_segments: u32,
    /// Segments taken as lost.
    pub lost_segments: u32,
    /// Retransmitted segments in flight.
    pub retrans_segments: u32,
    /// Since the last data was sent.
    pub last_data_sent_us: u64,
    /// Since the last data arrived.
    pub last_data_recv_us: u64,
    /// Since the last acknowledgement arrived.
    pub last_ack_recv_us: u64,
    /// Path MTU.
    pub pmtu: u32,
    /// Smoothed round trip.
    pub rtt_us: u32,
    /// Its variation.
    pub rttvar_us: u32,
    /// Smallest round trip seen.
    pub min_rtt_us: u32,
    /// Slow start threshold, bytes; `u32::MAX` before the first loss.
    pub snd_ssthresh_bytes: u32,
    /// Congestion window, bytes.
    pub snd_cwnd_bytes: u32,
    /// Congestion window, segments.
    pub snd_cwnd_segments: u32,
    /// Peer's window.
    pub snd_wnd_bytes: u32,
    /// Our window as last told.
    pub rcv_wnd_bytes: u32,
    /// Receive buffer that auto-tuning has reached.
    pub rcv_space_bytes: u32,
    /// Reordering seen, in segments.
    pub reordering_segments: u32,
    /// Segments retransmitted in all.
    pub total_retrans_segments: u32,
    /// Bytes acknowledged.
    pub bytes_acked: u64,
    /// Bytes received in order.
    pub bytes_received: u64,
    /// Bytes sent, retransmissions included.
    pub bytes_sent: u64,
    /// Bytes retransmitted.
    pub bytes_retrans: u64,
    /// Segments received.
    pub segs_in: u64,
    /// Segments sent.
    pub segs_out: u64,
    /// Bytes written that were never sent.
    pub notsent_bytes: u32,
    /// DSACKs received.
    pub dsack_dups: u32,
    /// Pacing rate in bytes per second; 0 without pacing.
    pub pacing_rate_bytes_per_s: u64,
}

/// One line about a connection, for a list of them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ConnSummary {
    /// The connection.
    pub id: ConnId,
    /// Our end.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
    /// State.
    pub state: State,
    /// Bytes the user has not read.
    pub unread_bytes: u32,
    /// Bytes written and not acknowledged, sent or not.
    pub unsent_bytes: u32,
    /// The user has closed it; it lingers.
    pub orphan: bool,
    /// It waits in an accept queue.
    pub unaccepted: bool,
    /// Microseconds since the last segment either way.
    pub idle_us: u64,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What happened, by cause. Each counter only grows.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Counters { $($(#[$doc])* pub $name: u64,)* }
        impl Counters {
            /// Every counter with its name.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Segments in.
    segs_in,
    /// Segments out.
    segs_out,
    /// Segments dropped: shorter than their header says.
    drop_malformed,
    /// Segments dropped: flags that make no sense.
    drop_bad_flags,
    /// Segments dropped: no connection and no listener.
    drop_no_socket,
    /// Segments dropped: outside the window.
    drop_out_of_window,
    /// Segments dropped: acknowledgement of something never sent.
    drop_bad_ack,
    /// Segments dropped: timestamp too old (PAWS).
    drop_paws,
    /// Data dropped: no memory.
    drop_no_memory,
    /// Data dropped: too many holes.
    drop_ooo_limit,
    /// Data dropped: arrived after the user closed.
    drop_after_close,
    /// SYNs dropped: the accept queue is full.
    drop_syn_accept_queue,
    /// SYNs dropped: the backlog is full and cookies are off.
    drop_syn_backlog,
    /// SYNs dropped: the flow table is full.
    drop_syn_table_full,
    /// Handshakes not finished: the accept queue is full.
    drop_ack_accept_queue,
    /// Connections refused: engine limits.
    drop_conns_max,
    /// Control segments not sent: too many waiting.
    drop_reply_queue,
    /// RSTs sent.
    rst_out,
    /// RSTs that ended something.
    rst_in,
    /// RSTs ignored: not exactly at the left edge of the window (RFC 5961).
    rst_ignored,
    /// SYNs inside a connection (RFC 5961).
    syn_in_conn,
    /// Challenge ACKs sent.
    challenge_acks,
    /// Challenge ACKs suppressed by the limit.
    challenge_acks_limited,
    /// Active opens.
    active_opens,
    /// Passive opens completed.
    passive_opens,
    /// Opens that failed.
    attempt_fails,
    /// Established connections reset by either side.
    estab_resets,
    /// SYN cookies sent.
    cookies_sent,
    /// SYN cookies that came back good.
    cookies_ok,
    /// ACKs to a listener that were no good cookie.
    cookies_bad,
    /// SYN-ACKs retransmitted.
    synack_retrans,
    /// Repeated SYNs left without an answer, because one went out a moment ago.
    synack_limited,
    /// Half-open handshakes given up.
    request_timeouts,
    /// Segments retransmitted.
    retrans_segs,
    /// Retransmission time-outs.
    rto_timeouts,
    /// Time-outs found to be spurious.
    rto_spurious,
    /// Tail loss probes sent.
    tlp_probes,
    /// Losses that a tail loss probe repaired.
    tlp_recoveries,
    /// Fast recoveries begun with SACK.
    sack_recoveries,
    /// Fast recoveries begun without SACK.
    reno_recoveries,
    /// Recoveries undone as spurious (DSACK or timestamps).
    undo_recoveries,
    /// Segments found lost by RACK.
    rack_lost,
    /// SACKed data that the peer dropped again.
    sack_reneges,
    /// DSACKs received.
    dsack_in,
    /// DSACKs sent.
    dsack_out,
    /// Segments that arrived out of order.
    ooo_in,
    /// Segments that were complete duplicates.
    dup_in,
    /// Window probes sent.
    window_probes,
    /// Keep-alive probes sent.
    keepalive_probes,
    /// Connections ended by keep-alive, probes, user time-out or retransmission limit.
    timeouts,
    /// Delayed acknowledgements sent by the timer.
    delayed_acks,
    /// Connections ended because there were too many orphans.
    orphans_aborted,
    /// Connections closed with unread data: RST.
    abort_on_data,
    /// TIME-WAIT entries made.
    time_waits,
    /// TIME-WAIT entries reused by a new SYN.
    time_wait_reused,
    /// TIME-WAIT entries that the limit threw out.
    time_wait_overflow,
    /// ICMP errors used.
    icmp_used,
    /// ICMP errors ignored: no flow, or a sequence number outside the window.
    icmp_ignored,
    /// Path MTU reductions by ICMP.
    pmtu_reductions,
    /// Black holes detected by time-outs.
    pmtu_blackholes,
    /// Path MTU probes sent.
    mtu_probes,
    /// Path MTU probes that came through.
    mtu_probe_success,
    /// Congestion-experienced marks received.
    ecn_ce_in,
    /// Window reductions because of an ECN echo.
    ecn_cwr,
    /// Segments with urgent data, taken as ordinary data.
    urgent_in,
    /// Connections exported.
    exports,
    /// Connections imported.
    imports,
}
