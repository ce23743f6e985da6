//! Socket options between `setsockopt`'s bytes and the stack's vocabulary.

use ff_dataplane::sockets::{Domain, Kind, SockOpt, SockOptName, SockOptValue};
use ff_tcp::TcpInfo;
use libc::c_int;

use crate::clock;
use crate::failure::{Outcome, fail};

/// What an option means to us.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Setting {
    /// The stack's business.
    Stack(SockOpt),
    /// SO_RCVTIMEO in microseconds, 0 for none: ours, since the stack never blocks.
    ReceiveTimeout(u64),
    /// SO_SNDTIMEO in microseconds.
    SendTimeout(u64),
    /// Has no counterpart in the stack and does no harm when it is taken without effect.
    WithoutEffect,
}

/// What an option that is asked for means to us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Question {
    /// The stack's business.
    Stack(SockOptName),
    /// SO_RCVTIMEO.
    ReceiveTimeout,
    /// SO_SNDTIMEO.
    SendTimeout,
    /// Always this number.
    Constant(c_int),
}

/// Reads an option that is being set.
///
/// # Errors
/// ENOPROTOOPT for an option that we do not know, EINVAL for a value of the wrong length, EDOM for a time that
/// is none.
pub fn parse(level: c_int, name: c_int, value: &[u8]) -> Outcome<Setting> {
    use SockOpt as O;
    let int = || int_of(value);
    let flag = || int_of(value).map(|value| value != 0);
    let option = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_REUSEADDR) => O::ReuseAddr(flag()?),
        (libc::SOL_SOCKET, libc::SO_REUSEPORT) => O::ReusePort(flag()?),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => O::KeepAlive(flag()?),
        (libc::SOL_SOCKET, libc::SO_BROADCAST) => O::Broadcast(flag()?),
        // The FORCE variants differ in the kernel's limits only, which are not ours.
        (libc::SOL_SOCKET, libc::SO_RCVBUF | libc::SO_RCVBUFFORCE) => O::RcvBuf(int()?),
        (libc::SOL_SOCKET, libc::SO_SNDBUF | libc::SO_SNDBUFFORCE) => O::SndBuf(int()?),
        (libc::SOL_SOCKET, libc::SO_LINGER) => O::Linger(linger_of(value)?),
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => return Ok(Setting::ReceiveTimeout(timeout_of(value)?)),
        (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => return Ok(Setting::SendTimeout(timeout_of(value)?)),
        // Scheduling hints of the kernel's queues.
        (libc::SOL_SOCKET, libc::SO_PRIORITY | libc::SO_BUSY_POLL | libc::SO_INCOMING_CPU) => {
            int()?;
            return Ok(Setting::WithoutEffect);
        }
        // One byte is what a stream is woken for anyway.
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT) if int()? <= 1 => return Ok(Setting::WithoutEffect),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => O::NoDelay(flag()?),
        (libc::IPPROTO_TCP, libc::TCP_CORK) => O::Cork(flag()?),
        (libc::IPPROTO_TCP, libc::TCP_QUICKACK) => O::QuickAck(flag()?),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => O::KeepIdle(int()?),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => O::KeepIntvl(int()?),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => O::KeepCnt(int()?),
        (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT) => O::DeferAccept(int()?),
        (libc::IPPROTO_TCP, libc::TCP_FASTOPEN) => O::FastOpen(int()?),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => O::UserTimeout(int()?),
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => O::MaxSeg(int()?),
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => O::Congestion(name_of(value)?),
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => O::PktInfo(flag()?),
        (libc::IPPROTO_IP, libc::IP_TOS) => O::Tos(int_or_byte(value)?),
        (libc::IPPROTO_IP, libc::IP_TTL) => O::Ttl(int_or_byte(value)?),
        (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT) => O::BindAddressNoPort(flag()?),
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => O::V6Only(flag()?),
        (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO) => O::RecvPktInfo6(flag()?),
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => O::Tos(int()?),
        (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => O::Ttl(int()?),
        // The stack always discovers the path's MTU, and keeps no error queue.
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER | libc::IP_RECVERR)
        | (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER | libc::IPV6_RECVERR) => {
            int_or_byte(value)?;
            return Ok(Setting::WithoutEffect);
        }
        _ => return fail(libc::ENOPROTOOPT),
    };
    Ok(Setting::Stack(option))
}

/// Reads the name of an option that is asked for.
///
/// # Errors
/// ENOPROTOOPT for an option that we do not know.
pub fn question(level: c_int, name: c_int) -> Outcome<Question> {
    use SockOptName as N;
    let name = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_REUSEADDR) => N::ReuseAddr,
        (libc::SOL_SOCKET, libc::SO_REUSEPORT) => N::ReusePort,
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => N::KeepAlive,
        (libc::SOL_SOCKET, libc::SO_BROADCAST) => N::Broadcast,
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => N::RcvBuf,
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => N::SndBuf,
        (libc::SOL_SOCKET, libc::SO_LINGER) => N::Linger,
        (libc::SOL_SOCKET, libc::SO_ERROR) => N::Error,
        (libc::SOL_SOCKET, libc::SO_TYPE) => N::Type,
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => N::Domain,
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) => N::Protocol,
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => N::AcceptConn,
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => return Ok(Question::ReceiveTimeout),
        (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => return Ok(Question::SendTimeout),
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT | libc::SO_SNDLOWAT) => return Ok(Question::Constant(1)),
        (libc::SOL_SOCKET, libc::SO_PRIORITY | libc::SO_BUSY_POLL) => return Ok(Question::Constant(0)),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => N::NoDelay,
        (libc::IPPROTO_TCP, libc::TCP_CORK) => N::Cork,
        (libc::IPPROTO_TCP, libc::TCP_QUICKACK) => N::QuickAck,
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => N::KeepIdle,
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => N::KeepIntvl,
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => N::KeepCnt,
        (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT) => N::DeferAccept,
        (libc::IPPROTO_TCP, libc::TCP_FASTOPEN) => N::FastOpen,
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => N::UserTimeout,
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => N::MaxSeg,
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => N::Congestion,
        (libc::IPPROTO_TCP, libc::TCP_INFO) => N::TcpInfo,
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => N::PktInfo,
        (libc::IPPROTO_IP, libc::IP_TOS) => N::Tos,
        (libc::IPPROTO_IP, libc::IP_TTL) => N::Ttl,
        (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT) => N::BindAddressNoPort,
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => N::V6Only,
        (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO) => N::RecvPktInfo6,
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => N::Tos,
        (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => N::Ttl,
        _ => return fail(libc::ENOPROTOOPT),
    };
    Ok(Question::Stack(name))
}

/// The bytes of an answer, as `getsockopt` gives them.
pub fn encode(value: &SockOptValue) -> Vec<u8> {
    match value {
        SockOptValue::Int(value) => value.to_ne_bytes().to_vec(),
        SockOptValue::Linger(seconds) => {
            let on = c_int::from(seconds.is_some());
            let seconds = seconds.unwrap_or(0) as c_int;
            [on.to_ne_bytes(), seconds.to_ne_bytes()].concat()
        }
        SockOptValue::Name(name) => {
            // TCP_CA_NAME_MAX of linux/tcp.h: the kernel gives the name in a field of 16 bytes.
            let mut field = vec![0; 16];
            field[..name.len().min(15)].copy_from_slice(&name.as_bytes()[..name.len().min(15)]);
            field
        }
        SockOptValue::TcpInfo(info) => encode_tcp_info(info),
    }
}

/// The bytes of a timeout.
pub fn encode_timeout(timeout_us: u64) -> Vec<u8> {
    let seconds = (timeout_us / 1_000_000) as i64;
    let us = (timeout_us % 1_000_000) as i64;
    [seconds.to_ne_bytes(), us.to_ne_bytes()].concat()
}

/// Up to `tcpi_min_rtt`.
const TCP_INFO_BYTES: usize = 152;

/// `struct tcp_info` of linux/tcp.h up to `tcpi_min_rtt`; the first 104 bytes are what glibc's header knows.
fn encode_tcp_info(info: &TcpInfo) -> Vec<u8> {
    let ms = |us: u64| (us / 1_000).min(u64::from(u32::MAX)) as u32;
    let u32_of = |value: u64| value.min(u64::from(u32::MAX)) as u32;
    // TCPI_OPT_TIMESTAMPS, _SACK, _WSCALE and _ECN are the bits 0 to 3.
    let options = u8::from(info.timestamps)
        | u8::from(info.sack) << 1
        | u8::from(info.wscale) << 2
        | u8::from(info.ecn) << 3;
    let mut bytes = vec![
        info.state as u8,
        info.ca_state as u8,
        info.retransmits,
        info.probes,
        info.backoff,
        options,
        info.snd_wscale & 15 | (info.rcv_wscale & 15) << 4,
        0,
    ];
    let words = [
        u32_of(info.rto_us),
        u32_of(info.ato_us),
        info.snd_mss,
        info.rcv_mss,
        info.unacked_segments,
        info.sacked_segments,
        info.lost_segments,
        info.retrans_segments,
        0, // tcpi_fackets, always 0 since Linux 4.15
        ms(info.last_data_sent_us),
        0, // tcpi_last_ack_sent, never filled by Linux
        ms(info.last_data_recv_us),
        ms(info.last_ack_recv_us),
        info.pmtu,
        info.rcv_wnd_bytes, // tcpi_rcv_ssthresh
        info.rtt_us,
        info.rttvar_us,
        info.snd_ssthresh_bytes.checked_div(info.snd_mss).unwrap_or(info.snd_ssthresh_bytes),
        info.snd_cwnd_segments,
        info.snd_mss, // tcpi_advmss
        info.reordering_segments,
        0, // tcpi_rcv_rtt
        info.rcv_space_bytes,
        info.total_retrans_segments,
    ];
    bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    debug_assert_eq!(bytes.len(), 104);
    let long_words = [info.pacing_rate_bytes_per_s, u64::MAX, info.bytes_acked, info.bytes_received];
    bytes.extend(long_words.iter().flat_map(|word| word.to_ne_bytes()));
    let words = [u32_of(info.segs_out), u32_of(info.segs_in), info.notsent_bytes, info.min_rtt_us];
    bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    debug_assert_eq!(bytes.len(), TCP_INFO_BYTES);
    bytes
}

/// TCP_INFO of a socket that is no connection: its state, and nothing else.
pub fn tcp_info_without_connection(listens: bool) -> Vec<u8> {
    // TCP_CLOSE and TCP_LISTEN of linux/tcp_states.h.
    let mut bytes = vec![0; TCP_INFO_BYTES];
    bytes[0] = if listens { 10 } else { 7 };
    bytes
}

/// The protocol that `socket` must have been asked for, if it is one of ours.
pub fn kind_of(kind: c_int, protocol: c_int) -> Option<Kind> {
    match (kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC), protocol) {
        (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => Some(Kind::Stream),
        (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => Some(Kind::Datagram),
        _ => None,
    }
}

/// The domain, if it is one of ours.
pub fn domain_of(domain: c_int) -> Option<Domain> {
    match domain {
        libc::AF_INET => Some(Domain::Ipv4),
        libc::AF_INET6 => Some(Domain::Ipv6),
        _ => None,
    }
}

fn int_of(value: &[u8]) -> Outcome<c_int> {
    match value.first_chunk::<4>() {
        Some(bytes) => Ok(c_int::from_ne_bytes(*bytes)),
        None => fail(libc::EINVAL),
    }
}

/// Some options of level IPPROTO_IP may come as one byte.
fn int_or_byte(value: &[u8]) -> Outcome<c_int> {
    match value {
        [byte] | [byte, _] | [byte, _, _] => Ok(c_int::from(*byte)),
        _ => int_of(value),
    }
}

fn linger_of(value: &[u8]) -> Outcome<Option<u32>> {
    let on = int_of(value)?;
    let seconds = int_of(value.get(4..).unwrap_or(&[]))?;
    Ok((on != 0).then_some(seconds.max(0) as u32))
}

fn timeout_of(value: &[u8]) -> Outcome<u64> {
    let (Some(seconds), Some(us)) =
        (value.first_chunk::<8>(), value.get(8..).and_then(<[u8]>::first_chunk::<8>))
    else {
        return fail(libc::EINVAL);
    };
    let time = libc::timeval { tv_sec: i64::from_ne_bytes(*seconds), tv_usec: i64::from_ne_bytes(*us) };
    // A negative time of valid microseconds means "at once" to Linux; there is nothing shorter than 1 µs here.
    match clock::us_of_timeval(&time) {
        Some(timeout_us) => Ok(timeout_us),
        None if time.tv_sec < 0 && (0..1_000_000).contains(&time.tv_usec) => Ok(1),
        None => fail(libc::EDOM),
    }
}

fn name_of(value: &[u8]) -> Outcome<String> {
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
    match std::str::from_utf8(&value[..end]) {
        Ok(name) if !name.is_empty() => Ok(name.to_owned()),
        Ok(_) => fail(libc::EINVAL),
        Err(_) => fail(libc::ENOENT),
    }
}

#[cfg(test)]
mod tests;
