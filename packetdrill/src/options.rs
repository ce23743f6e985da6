//! `getsockopt` and `setsockopt`.

use ff_tcp::{Algorithm, SocketOptions};

use crate::tcp_info;
use crate::world::{Errno, Kind, State, World};

const TCP_INQ: i32 = 36;
const SO_MEMINFO: i32 = 55;
const TCP_CC_INFO: i32 = 26;
/// Smallest segment that TCP_MAXSEG takes (Linux `TCP_MIN_MSS`).
const MSS_MIN: i32 = 88;

fn bytes_of(v: i32) -> Vec<u8> {
    v.to_ne_bytes().to_vec()
}

fn seconds(us: u64) -> i32 {
    (us / 1_000_000).min(i32::MAX as u64) as i32
}

impl World {
    /// The option's value; the caller cuts it to the size that was asked for.
    pub(crate) fn getsockopt(&self, fd: i32, level: i32, name: i32) -> Result<Vec<u8>, Errno> {
        self.call(|state| state.option(fd, level, name))
    }

    pub(crate) fn setsockopt(&self, fd: i32, level: i32, name: i32, value: &[u8]) -> Result<i32, Errno> {
        self.call(|state| state.set_option(fd, level, name, value).map(|()| 0))
    }

    /// MSG_MORE holds the tail of what is written until a send without it.
    pub(crate) fn hold_tail(&self, fd: i32, more: bool) -> Result<(), Errno> {
        let mut state = self.lock();
        let socket = state.socket_mut(fd)?;
        if socket.more != more {
            socket.more = more;
            state.push_options(fd);
        }
        Ok(())
    }
}

impl State {
    /// Gives the socket's options to its connection or listener.
    fn push_options(&mut self, fd: i32) {
        let Some(socket) = self.sockets.get(&fd) else { return };
        let mut options = socket.options;
        options.cork |= socket.more;
        let defer_us = u64::from(socket.defer_accept_s) * 1_000_000;
        match socket.kind {
            Kind::Fresh => {}
            Kind::Conn(id) => self.engine().set_options(id, options),
            Kind::Listening(id, _) => {
                if let Some(l) = self.engine().listen_options_mut(id) {
                    l.socket = options;
                    l.defer_accept_us = defer_us;
                }
            }
        }
    }

    fn option(&mut self, fd: i32, level: i32, name: i32) -> Result<Vec<u8>, Errno> {
        let s = self.socket(fd)?;
        let (o, kind) = (s.options, s.kind);
        let kept = s.kept.get(&(level, name)).copied();
        let (v6, v6_only, tos, inq) = (s.v6, s.v6_only, s.tos, s.inq);
        let defer_s = s.defer_accept_s;
        let value = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => match kind {
                Kind::Conn(id) => self.engine().take_error(id).map_or(0, |e| e.errno()),
                _ => 0,
            },
            (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
            (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_TCP,
            (libc::SOL_SOCKET, libc::SO_DOMAIN) => {
                if v6 {
                    libc::AF_INET6
                } else {
                    libc::AF_INET
                }
            }
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => i32::from(matches!(kind, Kind::Listening(..))),
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => i32::from(o.keepalive.enabled),
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let mut out = bytes_of(i32::from(o.linger_s.is_some()));
                out.extend(bytes_of(o.linger_s.unwrap_or(0) as i32));
                return Ok(out);
            }
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => {
                let start = self.engine().config().snd_buf_initial_bytes;
                o.sndbuf_bytes.unwrap_or(start) as i32
            }
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => {
                // Linux counts its overhead too, which doubles what the application asks for.
                let start = self.engine().config().rcv_buf_initial_bytes;
                o.rcvbuf_bytes.unwrap_or(start).saturating_mul(2) as i32
            }
            (libc::SOL_SOCKET, SO_MEMINFO) => return Ok(vec![0; 36]),
            (libc::IPPROTO_TCP, libc::TCP_INFO) => return Ok(self.info(fd, kind)),
            (libc::IPPROTO_TCP, TCP_CC_INFO) => return Ok(Vec::new()),
            (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {
                let default = self.engine().config().congestion;
                let mut out = vec![0; 16];
                let algorithm = o.congestion.unwrap_or(default).name();
                out[..algorithm.len()].copy_from_slice(algorithm.as_bytes());
                return Ok(out);
            }
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => i32::from(o.nodelay),
            (libc::IPPROTO_TCP, libc::TCP_CORK) => i32::from(o.cork),
            (libc::IPPROTO_TCP, libc::TCP_QUICKACK) => i32::from(o.quickack),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => seconds(o.keepalive.idle_us),
            (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => seconds(o.keepalive.interval_us),
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => i32::from(o.keepalive.count),
            (libc::IPPROTO_TCP, libc::TCP_LINGER2) => {
                let default = self.engine().config().fin_wait2_us;
                seconds(if o.fin_wait2_us > 0 { o.fin_wait2_us } else { default })
            }
            (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT) => defer_s as i32,
            (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => (o.user_timeout_us / 1_000) as i32,
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => {
                // Before the handshake it is the user's bound, afterwards what is used.
                let mss = match kind {
                    Kind::Conn(id) => self.engine().info(id).map_or(0, |i| i.snd_mss as i32),
                    _ => i32::from(o.mss_max_bytes),
                };
                if mss > 0 { mss } else { 536 }
            }
            (libc::IPPROTO_TCP, TCP_INQ) => i32::from(inq),
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => i32::from(tos),
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => i32::from(v6_only),
            (libc::SOL_SOCKET, _) => kept.unwrap_or(0),
            _ => kept.ok_or(libc::ENOPROTOOPT)?,
        };
        Ok(bytes_of(value))
    }

    fn info(&mut self, fd: i32, kind: Kind) -> Vec<u8> {
        let mss_max = self.sockets.get(&fd).map_or(0, |s| s.options.mss_max_bytes);
        match kind {
            Kind::Fresh => tcp_info::of_closed(),
            Kind::Listening(id, backlog) => {
                tcp_info::of_listener(self.engine().accept_queue_len(id) as u32, backlog)
            }
            Kind::Conn(id) => {
                let header = match self.engine().remote_addr(id) {
                    Some(a) if a.is_ipv6() => 60,
                    _ => 40,
                };
                let mtu = u32::from(self.engine().config().mtu);
                let advmss = match mss_max {
                    0 => mtu.saturating_sub(header),
                    mss => mtu.saturating_sub(header).min(u32::from(mss)),
                };
                match self.engine().info(id) {
                    Some(info) => tcp_info::of_connection(&info, advmss),
                    None => tcp_info::of_closed(),
                }
            }
        }
    }

    fn set_option(&mut self, fd: i32, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
        let bounds = {
            let c = self.engine().config();
            (c.rcv_buf_max_bytes, c.snd_buf_max_bytes)
        };
        let socket = self.socket_mut(fd)?;
        let word = |at: usize| -> Result<i32, Errno> {
            // Options of IP may have one byte.
            if let (libc::IPPROTO_IP, 0, &[byte]) = (level, at, value) {
                return Ok(i32::from(byte));
            }
            let bytes: [u8; 4] =
                value.get(at..at + 4).ok_or(libc::EINVAL)?.try_into().map_err(|_| libc::EINVAL)?;
            Ok(i32::from_ne_bytes(bytes))
        };
        let us = |s: i32| u64::try_from(s).map(|s| s * 1_000_000).map_err(|_| libc::EINVAL);
        let o: &mut SocketOptions = &mut socket.options;
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => o.keepalive.enabled = word(0)? != 0,
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let (on, s) = (word(0)?, word(4)?);
                o.linger_s = (on != 0).then_some(s.max(0) as u32);
            }
            (libc::SOL_SOCKET, libc::SO_SNDBUF | libc::SO_SNDBUFFORCE) => {
                // Linux doubles it.
                o.sndbuf_bytes = Some((word(0)?.max(0) as u32).saturating_mul(2).clamp(4_608, bounds.1));
            }
            (libc::SOL_SOCKET, libc::SO_RCVBUF | libc::SO_RCVBUFFORCE) => {
                o.rcvbuf_bytes = Some((word(0)?.max(0) as u32).clamp(1_152, bounds.0));
            }
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => socket.rcv_timeout_us = timeval_us(value)?,
            (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => socket.snd_timeout_us = timeval_us(value)?,
            (libc::SOL_SOCKET, libc::SO_ERROR | libc::SO_TYPE | libc::SO_ACCEPTCONN) => {
                return Err(libc::ENOPROTOOPT);
            }
            (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {
                let name = value.split(|b| *b == 0).next().unwrap_or(&[]);
                let name = std::str::from_utf8(name).map_err(|_| libc::ENOENT)?;
                o.congestion = Some(Algorithm::from_name(name).ok_or(libc::ENOENT)?);
            }
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => {
                o.nodelay = word(0)? != 0;
                // As Linux has it, this pushes what MSG_MORE held back.
                if o.nodelay {
                    socket.more = false;
                }
                if socket.options.nodelay
                    && let Kind::Conn(id) = socket.kind
                {
                    let mut flush = socket.options;
                    flush.cork = false;
                    self.engine().set_options(id, flush);
                    self.pump();
                }
            }
            (libc::IPPROTO_TCP, libc::TCP_CORK) => o.cork = word(0)? != 0,
            (libc::IPPROTO_TCP, libc::TCP_QUICKACK) => o.quickack = word(0)? != 0,
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => o.keepalive.idle_us = us(word(0)?)?,
            (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => o.keepalive.interval_us = us(word(0)?)?,
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => o.keepalive.count = word(0)?.clamp(1, 127) as u8,
            (libc::IPPROTO_TCP, libc::TCP_LINGER2) => o.fin_wait2_us = us(word(0)?)?,
            (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT) => socket.defer_accept_s = word(0)?.max(0) as u32,
            (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => {
                o.user_timeout_us = u64::try_from(word(0)?).map_err(|_| libc::EINVAL)? * 1_000;
            }
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => {
                let mss = word(0)?;
                if mss != 0 && !(MSS_MIN..=32_767).contains(&mss) {
                    return Err(libc::EINVAL);
                }
                o.mss_max_bytes = mss as u16;
            }
            (libc::IPPROTO_TCP, TCP_INQ) => socket.inq = word(0)? != 0,
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                socket.tos = word(0)? as u8;
            }
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => socket.v6_only = word(0)? != 0,
            // Asked for at times, and of no effect on a script's packets.
            (
                libc::SOL_SOCKET,
                libc::SO_REUSEADDR | libc::SO_REUSEPORT | libc::SO_PRIORITY | libc::SO_MARK,
            )
            | (libc::IPPROTO_IP, libc::IP_FREEBIND | libc::IP_MTU_DISCOVER)
            | (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER) => {
                socket.kept.insert((level, name), word(0)?);
            }
            // Fast Open, zero copy, time stamps of packets, MD5 and the like.
            _ => return Err(libc::ENOPROTOOPT),
        }
        self.push_options(fd);
        Ok(())
    }
}

fn timeval_us(value: &[u8]) -> Result<u64, Errno> {
    let word =
        |at: usize| -> Option<i64> { Some(i64::from_ne_bytes(value.get(at..at + 8)?.try_into().ok()?)) };
    let (s, us) = (word(0).ok_or(libc::EINVAL)?, word(8).ok_or(libc::EINVAL)?);
    if s < 0 || !(0..1_000_000).contains(&us) {
        return Err(libc::EDOM);
    }
    Ok(s as u64 * 1_000_000 + us as u64)
}
