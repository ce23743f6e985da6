//! What the engine's user holds: socket names, readiness, events, options.

use std::net::{IpAddr, SocketAddr};
use std::ops::{BitAnd, BitOr, BitOrAssign};

use ff_flowmap::FlowKey;

use crate::congestion::Algorithm;

/// Names a connection. Stays unique when the engine's slot is used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ConnId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl ConnId {
    /// The id as one word, for a table of the caller's.
    pub const fn to_bits(self) -> u64 {
        ((self.generation as u64) << 32) | self.index as u64
    }
}

/// Names a listener. Stays unique when the engine's slot is used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ListenerId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// The socket that an [`Event`] is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SocketRef {
    /// A connection that the user holds.
    Conn(ConnId),
    /// A listener.
    Listener(ListenerId),
}

/// A set of readiness conditions, with the meaning that `poll(2)` gives them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Readiness(pub u8);

impl Readiness {
    /// Nothing.
    pub const NONE: Readiness = Readiness(0);
    /// A read returns at once: data, end of stream, an error, or a connection to accept.
    pub const READABLE: Readiness = Readiness(1);
    /// A write takes at least some bytes, or fails at once.
    pub const WRITABLE: Readiness = Readiness(2);
    /// The peer has ended its direction (FIN), or reading was shut down.
    pub const RDHUP: Readiness = Readiness(4);
    /// Both directions have ended.
    pub const HUP: Readiness = Readiness(8);
    /// An error waits to be taken.
    pub const ERR: Readiness = Readiness(16);

    /// Whether all of `other` is in `self`.
    #[inline]
    pub const fn contains(self, other: Readiness) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of `other` is in `self`.
    #[inline]
    pub const fn intersects(self, other: Readiness) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether nothing is in `self`.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Readiness {
    type Output = Readiness;
    fn bitor(self, other: Readiness) -> Readiness {
        Readiness(self.0 | other.0)
    }
}

impl BitOrAssign for Readiness {
    fn bitor_assign(&mut self, other: Readiness) {
        self.0 |= other.0;
    }
}

impl BitAnd for Readiness {
    type Output = Readiness;
    fn bitand(self, other: Readiness) -> Readiness {
        Readiness(self.0 & other.0)
    }
}

/// Something happened on a socket. Serves edge-triggered epoll: `edges` says
/// what is *new* (data arrived, space became free, FIN, error), not what is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// The socket.
    pub socket: SocketRef,
    /// The user's word for it: `set_token`, `set_listener_token`.
    pub token: u64,
    /// What newly happened.
    pub edges: Readiness,
}

/// Where a listener listens.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ListenAddr {
    /// The local address, or `None` for any.
    pub ip: Option<IpAddr>,
    /// The local port, not 0.
    pub port: u16,
    /// With `ip: None`: IPv6 only. `false` means both families, as a Linux
    /// `::` listener with `IPV6_V6ONLY` off.
    pub v6_only: bool,
    /// With `ip: None`: IPv4 only, as a Linux `0.0.0.0` listener.
    pub v4_only: bool,
}

impl ListenAddr {
    /// As `bind(2)` reads an address: `0.0.0.0` is any IPv4 address, `::` any
    /// IPv6 address and, unless `v6_only`, any IPv4 address too.
    pub fn from_socket_addr(addr: SocketAddr, v6_only: bool) -> Self {
        let ip = addr.ip();
        if ip.is_unspecified() {
            Self { ip: None, port: addr.port(), v6_only: ip.is_ipv6() && v6_only, v4_only: ip.is_ipv4() }
        } else {
            Self { ip: Some(ip), port: addr.port(), v6_only: false, v4_only: false }
        }
    }

    /// Any address of both families.
    pub const fn any(port: u16) -> Self {
        Self { ip: None, port, v6_only: false, v4_only: false }
    }

    /// Whether a segment to `ip` (of this port) is for this listener.
    pub fn accepts(&self, ip: IpAddr) -> bool {
        match self.ip {
            Some(own) => own == ip,
            None => !(self.v6_only && ip.is_ipv4() || self.v4_only && ip.is_ipv6()),
        }
    }
}

/// Options of a listener.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Connections that may wait for `accept`, and handshakes that may be half
    /// done, as `listen(2)` takes it; 0 counts as 1.
    pub backlog: u32,
    /// TCP_DEFER_ACCEPT in microseconds; 0 is off. A connection is not offered
    /// before its first data, or before this time has passed.
    pub defer_accept_us: u64,
    /// Options that accepted connections start with.
    pub socket: SocketOptions,
    /// The word that events carry.
    pub token: u64,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self { backlog: 511, defer_accept_us: 0, socket: SocketOptions::default(), token: 0 }
    }
}

/// SO_KEEPALIVE with TCP_KEEPIDLE, TCP_KEEPINTVL and TCP_KEEPCNT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keepalive {
    /// Whether probes are sent.
    pub enabled: bool,
    /// Silence before the first probe, microseconds (default 2 h).
    pub idle_us: u64,
    /// Between probes, microseconds (default 75 s).
    pub interval_us: u64,
    /// Unanswered probes that end the connection (default 9).
    pub count: u8,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self { enabled: false, idle_us: 7_200_000_000, interval_us: 75_000_000, count: 9 }
    }
}

/// Options of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SocketOptions {
    /// TCP_NODELAY: small segments go out at once.
    pub nodelay: bool,
    /// TCP_CORK: only full segments go out, for at most 200 ms.
    pub cork: bool,
    /// TCP_QUICKACK: acknowledge at once.
    pub quickack: bool,
    /// SO_KEEPALIVE and its times.
    pub keepalive: Keepalive,
    /// TCP_USER_TIMEOUT, microseconds; 0 is the retransmission limit.
    pub user_timeout_us: u64,
    /// SO_RCVBUF in bytes; `None` is auto-tuning up to the configured maximum.
    pub rcvbuf_bytes: Option<u32>,
    /// SO_SNDBUF in bytes; `None` is auto-tuning up to the configured maximum.
    pub sndbuf_bytes: Option<u32>,
    /// SO_LINGER: `Some(0)` makes close send RST. Other values are kept, and
    /// close lingers in the background whatever they are.
    pub linger_s: Option<u32>,
    /// TCP_LINGER2, microseconds in FIN-WAIT-2 after close; 0 is the default.
    pub fin_wait2_us: u64,
    /// TCP_MAXSEG: upper bound of both directions' segments; 0 is none. Takes
    /// effect on connections that are opened or accepted later.
    pub mss_max_bytes: u16,
    /// TCP_CONGESTION; `None` is the engine's default.
    pub congestion: Option<Algorithm>,
}

/// Explicit congestion notification bits of an IP header (RFC 3168).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ecn {
    /// Not capable.
    #[default]
    NotEct,
    /// Capable, codepoint 01.
    Ect1,
    /// Capable, codepoint 10.
    Ect0,
    /// Congestion experienced.
    Ce,
}

impl Ecn {
    /// From the two low bits of the traffic class.
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Ecn::NotEct,
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }

    /// The two low bits of the traffic class.
    pub const fn bits(self) -> u8 {
        match self {
            Ecn::NotEct => 0,
            Ecn::Ect1 => 1,
            Ecn::Ect0 => 2,
            Ecn::Ce => 3,
        }
    }
}

/// What the IP header says about a segment that came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentMeta {
    /// The sender.
    pub src: IpAddr,
    /// The destination: an address of ours.
    pub dst: IpAddr,
    /// Congestion bits.
    pub ecn: Ecn,
}

/// A segment that `poll_transmit` has written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Our end and the peer's.
    pub key: FlowKey,
    /// Bytes written: TCP header, options, payload.
    pub len: usize,
    /// Congestion bits for the IP header.
    pub ecn: Ecn,
    /// `Some(mss)`: the payload is longer than `mss` and is to be cut into
    /// segments of `mss` bytes, by the device or in software.
    pub gso_size: Option<u16>,
}

impl Transmit {
    /// Our end: source address and port.
    pub fn local(&self) -> SocketAddr {
        self.key.local_addr()
    }

    /// The peer's end.
    pub fn remote(&self) -> SocketAddr {
        self.key.remote_addr()
    }
}

/// An ICMP or ICMPv6 error about a flow of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IcmpError {
    /// Destination unreachable, with the code of the flow's family.
    Unreachable {
        /// ICMP code (RFC 792) or ICMPv6 code (RFC 4443).
        code: u8,
    },
    /// Fragmentation needed (RFC 1191) or packet too big (RFC 8201).
    TooBig {
        /// The next hop's MTU in bytes, IP header included.
        mtu: u16,
    },
    /// Time exceeded, parameter problem and the like: soft errors.
    TimeExceeded,
}
