//! `struct tcp_info` of Linux from the engine's [`TcpInfo`].

use ff_tcp::TcpInfo;

/// Bytes of the structure as of Linux 6.18.
pub(crate) const TCP_INFO_BYTES: usize = 280;
/// `TCP_LISTEN`, a state that connections do not have.
const LISTEN: u8 = 10;

fn put32(out: &mut [u8], at: usize, v: u32) {
    out[at..at + 4].copy_from_slice(&v.to_ne_bytes());
}

fn put64(out: &mut [u8], at: usize, v: u64) {
    out[at..at + 8].copy_from_slice(&v.to_ne_bytes());
}

/// What a listener reports.
pub(crate) fn of_listener(waiting: u32, backlog: u32) -> Vec<u8> {
    let mut out = vec![0; TCP_INFO_BYTES];
    out[0] = LISTEN;
    put32(&mut out, 24, waiting);
    put32(&mut out, 28, backlog);
    out
}

/// What a socket without a connection reports.
pub(crate) fn of_closed() -> Vec<u8> {
    let mut out = vec![0; TCP_INFO_BYTES];
    out[0] = 7;
    out
}

/// The structure of a connection. Offsets are those of `include/uapi/linux/tcp.h`.
pub(crate) fn of_connection(i: &TcpInfo, advmss: u32) -> Vec<u8> {
    let mut out = vec![0; TCP_INFO_BYTES];
    let o = &mut out[..];
    o[0] = i.state as u8;
    o[1] = i.ca_state as u8;
    o[2] = i.retransmits;
    o[3] = i.probes;
    o[4] = i.backoff;
    o[5] = u8::from(i.timestamps) | u8::from(i.sack) << 1 | u8::from(i.wscale) << 2 | u8::from(i.ecn) << 3;
    o[6] = i.snd_wscale & 15 | i.rcv_wscale << 4;
    let ms = |us: u64| (us / 1_000).min(u64::from(u32::MAX)) as u32;
    put32(o, 8, i.rto_us.min(u64::from(u32::MAX)) as u32);
    put32(o, 12, i.ato_us.min(u64::from(u32::MAX)) as u32);
    put32(o, 16, i.snd_mss);
    put32(o, 20, i.rcv_mss);
    put32(o, 24, i.unacked_segments);
    put32(o, 28, i.sacked_segments);
    put32(o, 32, i.lost_segments);
    put32(o, 36, i.retrans_segments);
    put32(o, 44, ms(i.last_data_sent_us));
    put32(o, 52, ms(i.last_data_recv_us));
    put32(o, 56, ms(i.last_ack_recv_us));
    put32(o, 60, i.pmtu);
    put32(o, 64, i.rcv_wnd_bytes);
    put32(o, 68, i.rtt_us);
    put32(o, 72, i.rttvar_us);
    // Linux counts the threshold in segments too, and its infinity is 2^31 - 1.
    let ssthresh = match i.snd_ssthresh_bytes {
        u32::MAX => 0x7fff_ffff,
        bytes => bytes / i.snd_mss.max(1),
    };
    put32(o, 76, ssthresh);
    put32(o, 80, i.snd_cwnd_segments);
    put32(o, 84, advmss);
    put32(o, 88, i.reordering_segments);
    put32(o, 96, i.rcv_space_bytes);
    put32(o, 100, i.total_retrans_segments);
    put64(o, 104, i.pacing_rate_bytes_per_s);
    put64(o, 112, u64::MAX);
    put64(o, 120, i.bytes_acked);
    put64(o, 128, i.bytes_received);
    put32(o, 136, i.segs_out as u32);
    put32(o, 140, i.segs_in as u32);
    put32(o, 144, i.notsent_bytes);
    put32(o, 148, i.min_rtt_us);
    put64(o, 200, i.bytes_sent);
    put64(o, 208, i.bytes_retrans);
    put32(o, 216, i.dsack_dups);
    put32(o, 228, i.snd_wnd_bytes);
    put32(o, 232, i.rcv_wnd_bytes);
    out
}
