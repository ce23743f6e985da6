//! Socket options: what can be set, what can be asked.

use ff_tcp::TcpInfo;

/// An option with the value to set. The name of the Linux constant is that of
/// the variant; a numeric value is passed on as the application gave it and
/// checked here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SockOpt {
    /// SO_REUSEADDR.
    ReuseAddr(bool),
    /// SO_REUSEPORT.
    ReusePort(bool),
    /// SO_LINGER: `Some(seconds)` when on. `Some(0)` makes `close` a reset.
    Linger(Option<u32>),
    /// SO_KEEPALIVE.
    KeepAlive(bool),
    /// TCP_KEEPIDLE, seconds, 1 to 32 767.
    KeepIdle(i32),
    /// TCP_KEEPINTVL, seconds, 1 to 32 767.
    KeepIntvl(i32),
    /// TCP_KEEPCNT, 1 to 127.
    KeepCnt(i32),
    /// TCP_NODELAY.
    NoDelay(bool),
    /// TCP_CORK.
    Cork(bool),
    /// TCP_DEFER_ACCEPT, seconds.
    DeferAccept(i32),
    /// TCP_FASTOPEN: refused with EOPNOTSUPP unless it is 0.
    FastOpen(i32),
    /// TCP_USER_TIMEOUT, milliseconds, 0 for the default.
    UserTimeout(i32),
    /// SO_RCVBUF, bytes; kept doubled, as Linux does.
    RcvBuf(i32),
    /// SO_SNDBUF, bytes; kept doubled, as Linux does.
    SndBuf(i32),
    /// IP_PKTINFO: the destination address travels with each datagram.
    PktInfo(bool),
    /// IPV6_RECVPKTINFO.
    RecvPktInfo6(bool),
    /// IPV6_V6ONLY. Only before `bind`.
    V6Only(bool),
    /// TCP_MAXSEG, bytes, 88 to 32 767, or 0 for none.
    MaxSeg(i32),
    /// TCP_QUICKACK.
    QuickAck(bool),
    /// TCP_CONGESTION.
    Congestion(String),
    /// SO_BROADCAST. Kept; sending to a broadcast address is refused.
    Broadcast(bool),
    /// IP_BIND_ADDRESS_NO_PORT: `bind` to port 0 chooses the port at `connect`.
    BindAddressNoPort(bool),
    /// IP_TOS or IPV6_TCLASS, 0 to 255. The two ECN bits are TCP's own.
    Tos(i32),
    /// IP_TTL or IPV6_UNICAST_HOPS, 1 to 255, or -1 for the default of 64.
    Ttl(i32),
}

/// An option to ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SockOptName {
    /// SO_REUSEADDR.
    ReuseAddr,
    /// SO_REUSEPORT.
    ReusePort,
    /// SO_LINGER.
    Linger,
    /// SO_KEEPALIVE.
    KeepAlive,
    /// TCP_KEEPIDLE.
    KeepIdle,
    /// TCP_KEEPINTVL.
    KeepIntvl,
    /// TCP_KEEPCNT.
    KeepCnt,
    /// TCP_NODELAY.
    NoDelay,
    /// TCP_CORK.
    Cork,
    /// TCP_DEFER_ACCEPT.
    DeferAccept,
    /// TCP_FASTOPEN.
    FastOpen,
    /// TCP_USER_TIMEOUT.
    UserTimeout,
    /// SO_RCVBUF.
    RcvBuf,
    /// SO_SNDBUF.
    SndBuf,
    /// IP_PKTINFO.
    PktInfo,
    /// IPV6_RECVPKTINFO.
    RecvPktInfo6,
    /// IPV6_V6ONLY.
    V6Only,
    /// TCP_MAXSEG.
    MaxSeg,
    /// TCP_QUICKACK.
    QuickAck,
    /// TCP_CONGESTION.
    Congestion,
    /// SO_BROADCAST.
    Broadcast,
    /// IP_BIND_ADDRESS_NO_PORT.
    BindAddressNoPort,
    /// IP_TOS or IPV6_TCLASS.
    Tos,
    /// IP_TTL or IPV6_UNICAST_HOPS.
    Ttl,
    /// SO_ERROR: the pending error's errno, and forgets it.
    Error,
    /// SO_TYPE.
    Type,
    /// SO_DOMAIN.
    Domain,
    /// SO_PROTOCOL.
    Protocol,
    /// SO_ACCEPTCONN.
    AcceptConn,
    /// TCP_INFO.
    TcpInfo,
}

/// The answer to [`SockOptName`].
#[derive(Clone, Debug)]
pub enum SockOptValue {
    /// What `getsockopt` gives as an `int`.
    Int(i32),
    /// SO_LINGER: `Some(seconds)` when on.
    Linger(Option<u32>),
    /// TCP_CONGESTION.
    Name(&'static str),
    /// TCP_INFO.
    TcpInfo(Box<TcpInfo>),
}
