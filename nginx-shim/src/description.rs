//! Open socket descriptions: what one or more descriptors of ours stand for.

use std::net::SocketAddr;

use ff_dataplane::sockets::{Domain, Kind, SocketId};

use crate::epoll::Watch;

/// How far a socket's fate is decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Made; neither bound nor connected. The kernel's socket beneath may still become the real one.
    Undecided,
    /// Bound to an address of ours in a process without a stack.
    Bound(SocketAddr),
    /// The same, and it listens.
    Listening {
        /// Where.
        address: SocketAddr,
        /// As `listen` took it.
        backlog: i32,
    },
    /// Lives in this process's stack.
    Open(SocketId),
    /// Lived in the stack of the process that forked this one.
    Lost,
    /// Went on to the next generation before anything was read of it: to the application it looks as if the peer had
    /// ended it.
    Moved,
}

/// One open socket description. Duplicated descriptors share it.
#[derive(Clone, Debug)]
pub struct Description {
    /// Family.
    pub domain: Domain,
    /// Stream or datagram.
    pub kind: Kind,
    /// Its fate.
    pub state: State,
    /// O_NONBLOCK.
    pub nonblocking: bool,
    /// FD_CLOEXEC as the application sees it, where the descriptor is a kept placeholder.
    pub cloexec: bool,
    /// Descriptors that refer to it.
    pub descriptors: u32,
    /// Options in the order in which they were set, until it is open: level, name, value.
    pub options: Vec<(i32, i32, Vec<u8>)>,
    /// SO_RCVTIMEO in microseconds, 0 for none.
    pub receive_timeout_us: u64,
    /// SO_SNDTIMEO in microseconds, 0 for none.
    pub send_timeout_us: u64,
    /// It is a listener in the stack.
    pub listens: bool,
    /// Its places in epoll sets.
    pub watches: Vec<Watch>,
}

impl Description {
    /// A fresh socket.
    pub fn new(domain: Domain, kind: Kind, nonblocking: bool) -> Self {
        Self {
            domain,
            kind,
            state: State::Undecided,
            nonblocking,
            cloexec: false,
            descriptors: 1,
            options: Vec::new(),
            receive_timeout_us: 0,
            send_timeout_us: 0,
            listens: false,
            watches: Vec::new(),
        }
    }

    /// Where it is bound, as far as that was recorded.
    pub fn recorded_address(&self) -> Option<SocketAddr> {
        match self.state {
            State::Bound(address) | State::Listening { address, .. } => Some(address),
            State::Undecided | State::Open(_) | State::Lost | State::Moved => None,
        }
    }

    /// Whether the recorded options set a flag.
    pub fn recorded_flag(&self, level: i32, name: i32) -> bool {
        self.options
            .iter()
            .rev()
            .find(|option| (option.0, option.1) == (level, name))
            .is_some_and(|option| option.2.iter().any(|&byte| byte != 0))
    }

    /// Whether binding or listening at the same place as `other` fails, by what both recorded.
    pub fn conflicts_with(&self, address: SocketAddr, other: &Self) -> bool {
        let Some(theirs) = other.recorded_address() else { return false };
        if self.kind != other.kind || address.port() != theirs.port() || address.port() == 0 {
            return false;
        }
        let v6_only = |description: &Self| description.recorded_flag(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY);
        let any = |ip: std::net::IpAddr, v6_only: bool, of: std::net::IpAddr| {
            ip.is_unspecified() && (ip.is_ipv4() == of.is_ipv4() || ip.is_ipv6() && !v6_only)
        };
        let overlap = address.ip() == theirs.ip()
            || any(address.ip(), v6_only(self), theirs.ip())
            || any(theirs.ip(), v6_only(other), address.ip());
        if !overlap {
            return false;
        }
        let both =
            |name| self.recorded_flag(libc::SOL_SOCKET, name) && other.recorded_flag(libc::SOL_SOCKET, name);
        let listens = matches!(other.state, State::Listening { .. });
        // As the kernel: SO_REUSEPORT on both always shares; SO_REUSEADDR on both as long as nobody listens.
        !(both(libc::SO_REUSEPORT) || both(libc::SO_REUSEADDR) && !(self.kind == Kind::Stream && listens))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listening(address: &str, options: &[(i32, i32)]) -> Description {
        let address: SocketAddr = address.parse().unwrap();
        let domain = if address.is_ipv4() { Domain::Ipv4 } else { Domain::Ipv6 };
        let mut description = Description::new(domain, Kind::Stream, true);
        description.state = State::Listening { address, backlog: 1 };
        description.options =
            options.iter().map(|&(level, name)| (level, name, 1_i32.to_ne_bytes().to_vec())).collect();
        description
    }

    const REUSEADDR: (i32, i32) = (libc::SOL_SOCKET, libc::SO_REUSEADDR);
    const REUSEPORT: (i32, i32) = (libc::SOL_SOCKET, libc::SO_REUSEPORT);
    const V6ONLY: (i32, i32) = (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY);

    fn conflict(a: &str, a_options: &[(i32, i32)], b: &str, b_options: &[(i32, i32)]) -> bool {
        listening(a, a_options).conflicts_with(a.parse().unwrap(), &listening(b, b_options))
    }

    #[test]
    fn two_listeners_at_one_place_conflict() {
        assert!(conflict("0.0.0.0:80", &[REUSEADDR], "0.0.0.0:80", &[REUSEADDR]));
        assert!(conflict("0.0.0.0:80", &[REUSEADDR], "198.18.0.2:80", &[REUSEADDR]));
        assert!(conflict("198.18.0.2:80", &[], "[::]:80", &[]));
    }

    #[test]
    fn different_places_do_not() {
        assert!(!conflict("0.0.0.0:80", &[], "0.0.0.0:81", &[]));
        assert!(!conflict("198.18.0.2:80", &[], "198.18.0.3:80", &[]));
        assert!(!conflict("0.0.0.0:80", &[], "[::]:80", &[V6ONLY]));
    }

    #[test]
    fn reuseport_shares() {
        assert!(!conflict("0.0.0.0:80", &[REUSEPORT], "0.0.0.0:80", &[REUSEPORT]));
        assert!(conflict("0.0.0.0:80", &[REUSEPORT], "0.0.0.0:80", &[]));
    }
}
