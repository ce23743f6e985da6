//! Options set and asked for, with Linux's ranges, roundings and defaults.

use ff_flowmap::FlowIndex;
use ff_tcp::{Algorithm, SocketOptions, State};

use super::calls::Result;
use super::table::{Body, Socket};
use super::{Domain, Kind, SockError, SockOpt, SockOptName, SockOptValue, SocketId};
use crate::io::PacketIo;
use crate::ip::output::HOP_LIMIT;
use crate::stack::Stack;

/// What Linux shows as SO_RCVBUF and SO_SNDBUF of a fresh stream socket (`tcp_rmem[1]`, `tcp_wmem[1]`).
const TCP_RCVBUF_DEFAULT: i32 = 131_072;
const TCP_SNDBUF_DEFAULT: i32 = 16_384;
/// The least that the buffers become (Linux: SOCK_MIN_RCVBUF, SOCK_MIN_SNDBUF).
const RCVBUF_MIN: u32 = 2_304;
const SNDBUF_MIN: u32 = 4_608;
/// TCP_MAXSEG (Linux: TCP_MIN_MSS, MAX_TCP_WINDOW) and what it shows without a connection.
const MSS_MIN: i32 = 88;
const MSS_MAX: i32 = 32_767;
const MSS_DEFAULT: i32 = 536;
/// TCP_KEEPIDLE and TCP_KEEPINTVL in seconds, TCP_KEEPCNT.
const KEEP_SECONDS_MAX: i32 = 32_767;
const KEEP_COUNT_MAX: i32 = 127;

impl<P: PacketIo, I: FlowIndex> Stack<P, I> {
    /// Sets an option.
    ///
    /// # Errors
    /// [`SockError::Invalid`] for a value out of range, [`SockError::NoSuchOption`] for one of another kind of
    /// socket, [`SockError::NotSupported`] for TCP_FASTOPEN.
    pub fn set_option(&mut self, s: SocketId, option: SockOpt) -> Result<()> {
        let socket = self.sockets.get_mut(s)?;
        let flags = &mut socket.flags;
        match option {
            SockOpt::ReuseAddr(on) => {
                flags.reuse_addr = on;
                self.refresh_hold(s)
            }
            SockOpt::ReusePort(on) => {
                flags.reuse_port = on;
                self.refresh_hold(s)
            }
            SockOpt::V6Only(_) if socket.domain == Domain::Ipv4 => Err(SockError::NoSuchOption),
            SockOpt::V6Only(_) if socket.bound.is_some() => Err(SockError::Invalid),
            SockOpt::V6Only(on) => {
                flags.v6_only = on;
                Ok(())
            }
            SockOpt::Broadcast(on) => {
                flags.broadcast = on;
                Ok(())
            }
            SockOpt::BindAddressNoPort(on) => {
                flags.bind_address_no_port = on;
                Ok(())
            }
            SockOpt::Tos(value) => {
                flags.tos = byte_or_default(value, 0)?;
                Ok(())
            }
            SockOpt::Ttl(0) => Err(SockError::Invalid),
            SockOpt::Ttl(value) => {
                flags.ttl = byte_or_default(value, 0)?;
                Ok(())
            }
            SockOpt::QuickAck(on) => {
                flags.quickack_off = !on;
                self.set_tcp_option(s, SockOpt::QuickAck(on))
            }
            other if socket.kind() == Kind::Datagram => set_udp_option(socket, &other, &self.config.engine),
            other => self.set_tcp_option(s, other),
        }
    }

    fn set_tcp_option(&mut self, s: SocketId, option: SockOpt) -> Result<()> {
        let engine_config = &self.config.engine;
        let (rcv_max, snd_max) = (engine_config.rcv_buf_max_bytes, engine_config.snd_buf_max_bytes);
        let socket = self.sockets.get_mut(s)?;
        match &mut socket.body {
            Body::Udp(_) => Err(SockError::NoSuchOption),
            Body::TcpIdle(settings) | Body::TcpListening { settings, .. } => {
                match option {
                    SockOpt::DeferAccept(seconds) => settings.defer_accept_s = rounded_defer_accept(seconds),
                    option => apply(&mut settings.options, &option, rcv_max, snd_max)?,
                }
                self.refresh_listener(s);
                Ok(())
            }
            Body::TcpConn { conn } => {
                // Nothing to defer on a connection; Linux takes the value and does nothing with it.
                if let SockOpt::DeferAccept(_) = option {
                    return Ok(());
                }
                let mut options = self.engine.options(*conn).ok_or(SockError::NotConnected)?;
                apply(&mut options, &option, rcv_max, snd_max)?;
                self.engine.set_options(*conn, options);
                Ok(())
            }
        }
    }

    /// Asks for an option.
    ///
    /// # Errors
    /// [`SockError::NoSuchOption`] for one of another kind of socket.
    pub fn option(&mut self, s: SocketId, name: SockOptName) -> Result<SockOptValue> {
        let error = if name == SockOptName::Error { self.take_error(s) } else { None };
        let socket = self.sockets.get(s)?;
        let flags = socket.flags;
        let int = |value: i32| Ok(SockOptValue::Int(value));
        match name {
            SockOptName::Error => int(error.map_or(0, |error| error.errno())),
            SockOptName::ReuseAddr => int(flags.reuse_addr.into()),
            SockOptName::ReusePort => int(flags.reuse_port.into()),
            SockOptName::Broadcast => int(flags.broadcast.into()),
            SockOptName::BindAddressNoPort => int(flags.bind_address_no_port.into()),
            SockOptName::V6Only if socket.domain == Domain::Ipv4 => Err(SockError::NoSuchOption),
            SockOptName::V6Only => int(flags.v6_only.into()),
            SockOptName::Tos => int(flags.tos.into()),
            SockOptName::Ttl => int(if flags.ttl == 0 { HOP_LIMIT } else { flags.ttl }.into()),
            SockOptName::Domain => int(match socket.domain {
                Domain::Ipv4 => libc::AF_INET,
                Domain::Ipv6 => libc::AF_INET6,
            }),
            SockOptName::Type => int(match socket.kind() {
                Kind::Stream => libc::SOCK_STREAM,
                Kind::Datagram => libc::SOCK_DGRAM,
            }),
            SockOptName::Protocol => int(match socket.kind() {
                Kind::Stream => libc::IPPROTO_TCP,
                Kind::Datagram => libc::IPPROTO_UDP,
            }),
            SockOptName::AcceptConn => int(matches!(socket.body, Body::TcpListening { .. }).into()),
            _ if socket.kind() == Kind::Datagram => udp_option(socket, name),
            _ => self.tcp_option(s, name),
        }
    }

    fn tcp_option(&self, s: SocketId, name: SockOptName) -> Result<SockOptValue> {
        let socket = self.sockets.get(s)?;
        let (options, defer_accept_s, conn) = match &socket.body {
            Body::Udp(_) => return Err(SockError::NoSuchOption),
            Body::TcpIdle(settings) | Body::TcpListening { settings, .. } => {
                (settings.options, settings.defer_accept_s, None)
            }
            Body::TcpConn { conn } => (self.engine.options(*conn).unwrap_or_default(), 0, Some(*conn)),
        };
        let seconds = |us: u64| i32::try_from(us / 1_000_000).unwrap_or(i32::MAX);
        let value = match name {
            SockOptName::Linger => return Ok(SockOptValue::Linger(options.linger_s)),
            SockOptName::Congestion => {
                let algorithm = options.congestion.unwrap_or(self.config.engine.congestion);
                return Ok(SockOptValue::Name(algorithm.name()));
            }
            SockOptName::TcpInfo => {
                let info = conn.and_then(|conn| self.engine.info(conn)).ok_or(SockError::NotConnected)?;
                return Ok(SockOptValue::TcpInfo(Box::new(info)));
            }
            SockOptName::KeepAlive => options.keepalive.enabled.into(),
            SockOptName::KeepIdle => seconds(options.keepalive.idle_us),
            SockOptName::KeepIntvl => seconds(options.keepalive.interval_us),
            SockOptName::KeepCnt => options.keepalive.count.into(),
            SockOptName::NoDelay => options.nodelay.into(),
            SockOptName::Cork => options.cork.into(),
            SockOptName::QuickAck => (!socket.flags.quickack_off).into(),
            SockOptName::DeferAccept => i32::try_from(defer_accept_s).unwrap_or(i32::MAX),
            SockOptName::FastOpen => 0,
            SockOptName::UserTimeout => i32::try_from(options.user_timeout_us / 1_000).unwrap_or(i32::MAX),
            SockOptName::RcvBuf => options.rcvbuf_bytes.map_or(TCP_RCVBUF_DEFAULT, doubled),
            SockOptName::SndBuf => options.sndbuf_bytes.map_or(TCP_SNDBUF_DEFAULT, doubled),
            SockOptName::MaxSeg => {
                let live = conn.and_then(|conn| self.engine.info(conn));
                match live.filter(|info| !matches!(info.state, State::Closed | State::SynSent)) {
                    Some(info) => i32::try_from(info.snd_mss).unwrap_or(MSS_MAX),
                    None if options.mss_max_bytes > 0 => options.mss_max_bytes.into(),
                    None => MSS_DEFAULT,
                }
            }
            _ => return Err(SockError::NoSuchOption),
        };
        Ok(SockOptValue::Int(value))
    }
}

/// Changes a connection's options.
fn apply(options: &mut SocketOptions, option: &SockOpt, rcv_max: u32, snd_max: u32) -> Result<()> {
    match *option {
        SockOpt::Linger(linger) => options.linger_s = linger,
        SockOpt::KeepAlive(on) => options.keepalive.enabled = on,
        SockOpt::KeepIdle(value) => {
            options.keepalive.idle_us = in_range(value, 1, KEEP_SECONDS_MAX)? * 1_000_000
        }
        SockOpt::KeepIntvl(value) => {
            options.keepalive.interval_us = in_range(value, 1, KEEP_SECONDS_MAX)? * 1_000_000;
        }
        SockOpt::KeepCnt(value) => options.keepalive.count = in_range(value, 1, KEEP_COUNT_MAX)? as u8,
        SockOpt::NoDelay(on) => options.nodelay = on,
        SockOpt::Cork(on) => options.cork = on,
        SockOpt::QuickAck(on) => options.quickack = on,
        SockOpt::FastOpen(0) => {}
        SockOpt::FastOpen(_) => return Err(SockError::NotSupported),
        SockOpt::UserTimeout(value) => options.user_timeout_us = in_range(value, 0, i32::MAX)? * 1_000,
        SockOpt::RcvBuf(value) => options.rcvbuf_bytes = Some(buffer_bytes(value, rcv_max, RCVBUF_MIN)),
        SockOpt::SndBuf(value) => options.sndbuf_bytes = Some(buffer_bytes(value, snd_max, SNDBUF_MIN)),
        SockOpt::MaxSeg(0) => options.mss_max_bytes = 0,
        SockOpt::MaxSeg(value) => options.mss_max_bytes = in_range(value, MSS_MIN, MSS_MAX)? as u16,
        SockOpt::Congestion(ref name) => {
            let algorithm = Algorithm::from_name(name).ok_or(SockError::NoSuchCongestionControl)?;
            options.congestion = Some(algorithm);
        }
        _ => return Err(SockError::NoSuchOption),
    }
    Ok(())
}

fn set_udp_option(socket: &mut Socket, option: &SockOpt, engine: &ff_tcp::EngineConfig) -> Result<()> {
    let domain = socket.domain;
    let Body::Udp(udp) = &mut socket.body else { return Err(SockError::NoSuchOption) };
    match *option {
        SockOpt::RcvBuf(value) => {
            udp.rcvbuf_bytes = 2 * buffer_bytes(value, engine.rcv_buf_max_bytes, RCVBUF_MIN)
        }
        SockOpt::SndBuf(value) => {
            udp.sndbuf_bytes = 2 * buffer_bytes(value, engine.snd_buf_max_bytes, SNDBUF_MIN)
        }
        SockOpt::PktInfo(on) => udp.pktinfo = on,
        SockOpt::RecvPktInfo6(_) if domain == Domain::Ipv4 => return Err(SockError::NoSuchOption),
        SockOpt::RecvPktInfo6(on) => udp.recv_pktinfo6 = on,
        // Means nothing to UDP; Linux keeps it all the same.
        SockOpt::Linger(_) | SockOpt::KeepAlive(_) => {}
        _ => return Err(SockError::NoSuchOption),
    }
    Ok(())
}

fn udp_option(socket: &Socket, name: SockOptName) -> Result<SockOptValue> {
    let Body::Udp(udp) = &socket.body else { return Err(SockError::NoSuchOption) };
    let value = match name {
        SockOptName::RcvBuf => i32::try_from(udp.rcvbuf_bytes).unwrap_or(i32::MAX),
        SockOptName::SndBuf => i32::try_from(udp.sndbuf_bytes).unwrap_or(i32::MAX),
        SockOptName::PktInfo => udp.pktinfo.into(),
        SockOptName::RecvPktInfo6 if socket.domain == Domain::Ipv4 => return Err(SockError::NoSuchOption),
        SockOptName::RecvPktInfo6 => udp.recv_pktinfo6.into(),
        SockOptName::KeepAlive => 0,
        SockOptName::Linger => return Ok(SockOptValue::Linger(None)),
        _ => return Err(SockError::NoSuchOption),
    };
    Ok(SockOptValue::Int(value))
}

fn in_range(value: i32, min: i32, max: i32) -> Result<u64> {
    if (min..=max).contains(&value) { Ok(value as u64) } else { Err(SockError::Invalid) }
}

/// A byte, or -1 for the default.
fn byte_or_default(value: i32, default: u8) -> Result<u8> {
    if value == -1 { Ok(default) } else { u8::try_from(value).map_err(|_| SockError::Invalid) }
}

/// What is asked for is bounded, not refused. Linux stores twice the value, since it counts its own overhead
/// in it, and not less than the smallest; what is kept here is half of what it would show.
fn buffer_bytes(value: i32, max: u32, min_shown: u32) -> u32 {
    // A negative size is a huge one to Linux, and so becomes the largest.
    u32::try_from(value).unwrap_or(u32::MAX).min(max).max(min_shown / 2)
}

fn doubled(bytes: u32) -> i32 {
    i32::try_from(u64::from(bytes) * 2).unwrap_or(i32::MAX)
}

/// TCP_DEFER_ACCEPT is kept as a number of SYN-ACK retransmissions, so what is shown is the time until the
/// first of them that is not earlier than what was asked for: 1, 3, 7, 15 ... seconds, then steps of 120.
fn rounded_defer_accept(seconds: i32) -> u32 {
    let Ok(wanted) = u32::try_from(seconds) else { return 0 };
    if wanted == 0 {
        return 0;
    }
    let (mut period, mut timeout) = (1u32, 1u32);
    for _ in 0..254 {
        if period >= wanted {
            break;
        }
        timeout = (timeout * 2).min(120);
        period += timeout;
    }
    period
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defer_accept_rounds_as_linux_does() {
        for (asked, kept) in
            [(0, 0), (-1, 0), (1, 1), (2, 3), (5, 7), (7, 7), (30, 31), (100, 127), (128, 247)]
        {
            assert_eq!(rounded_defer_accept(asked), kept, "{asked}");
        }
    }

    #[test]
    fn buffers_are_bounded_and_doubled() {
        let mut options = SocketOptions::default();
        for (asked, shown) in
            [(65_536, 131_072), (1, 2_304), (0, 2_304), (-1, 2_000_000), (5_000_000, 2_000_000)]
        {
            apply(&mut options, &SockOpt::RcvBuf(asked), 1_000_000, 1_000_000).expect("any size is taken");
            assert_eq!(options.rcvbuf_bytes.map(doubled), Some(shown), "{asked}");
        }
    }

    #[test]
    fn ranges() {
        let mut options = SocketOptions::default();
        let mut set = |option| apply(&mut options, &option, 1 << 20, 1 << 20);
        assert_eq!(set(SockOpt::KeepIdle(0)), Err(SockError::Invalid));
        assert_eq!(set(SockOpt::KeepIdle(32_767)), Ok(()));
        assert_eq!(set(SockOpt::KeepIdle(32_768)), Err(SockError::Invalid));
        assert_eq!(set(SockOpt::KeepCnt(128)), Err(SockError::Invalid));
        assert_eq!(set(SockOpt::MaxSeg(87)), Err(SockError::Invalid));
        assert_eq!(set(SockOpt::MaxSeg(0)), Ok(()));
        assert_eq!(set(SockOpt::UserTimeout(-1)), Err(SockError::Invalid));
        assert_eq!(set(SockOpt::FastOpen(5)), Err(SockError::NotSupported));
        assert_eq!(set(SockOpt::Congestion("bbr".into())), Err(SockError::NoSuchCongestionControl));
    }
}
