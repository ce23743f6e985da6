//! Talking with the peer while the server's own sockets go on working.
//!
//! A stack that lives in the process works during the process's waits on its sockets. So the server never blocks on
//! the peer alone: it waits in an epoll set that also has one of its sockets in it.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use libc::{EPOLL_CTL_ADD, EPOLLIN, c_int};

use crate::sys;

/// How long what is under way may take to arrive.
const SETTLE: Duration = Duration::from_millis(40);

/// The connection to the peer, and the set to wait in.
pub struct Pump {
    stream: UnixStream,
    epfd: c_int,
}

impl Pump {
    /// Connects to the peer. `idle` is a socket of the server at which nothing ever happens.
    pub fn new(socket: &str, idle: c_int) -> Self {
        let stream = UnixStream::connect(socket).unwrap_or_else(|error| panic!("{socket}: {error}"));
        let epfd = sys::epoll();
        for (fd, data) in [(idle, 0), (stream.as_raw_fd(), 1)] {
            sys::ctl(epfd, EPOLL_CTL_ADD, fd, EPOLLIN, data)
                .unwrap_or_else(|error| panic!("epoll_ctl: {error}"));
        }
        Self { stream, epfd }
    }

    /// Lets what is under way arrive.
    pub fn settle(&self) {
        let end = Instant::now() + SETTLE;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            let _ = sys::wait(self.epfd, 8, left.as_millis() as c_int + 1);
        }
    }

    /// Has the peer do something; when it has answered, what that led to has arrived.
    pub fn ask(&mut self, command: &str) -> String {
        writeln!(self.stream, "{command}").unwrap_or_else(|error| panic!("peer: {error}"));
        let mut answer = Vec::new();
        while answer.last() != Some(&b'\n') {
            let events = sys::wait(self.epfd, 8, 10_000).unwrap_or_default();
            assert!(!events.is_empty(), "the peer does not answer `{command}`");
            let mut buf = [0; 256];
            let len = self.stream.read(&mut buf).unwrap_or_else(|error| panic!("peer: {error}"));
            assert!(len > 0, "the peer has gone away at `{command}`");
            answer.extend_from_slice(&buf[..len]);
        }
        self.settle();
        String::from_utf8_lossy(&answer).trim_end().to_owned()
    }

    /// Has the peer connect to `address` as its connection `id`.
    pub fn connect(&mut self, id: u32, address: SocketAddr) {
        let answer = self.ask(&format!("connect {id} {address}"));
        assert_eq!(answer, "connected", "connect to {address}");
    }
}
