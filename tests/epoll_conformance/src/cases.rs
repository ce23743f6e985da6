//! The cases, and what they have in common.

mod children;
mod descriptors;
mod epoll;
mod options;
mod stream;
mod udp;

use std::net::SocketAddr;

use libc::c_int;

use crate::pump::Pump;
use crate::sys;

/// A case and its name.
pub type Case = (&'static str, fn(&mut World));

/// Where the cases run.
pub struct World {
    /// The server's address; the port is that of the shared listener.
    pub address: SocketAddr,
    /// The peer.
    pub pump: Pump,
    listener: c_int,
    connections: u32,
    ports: u16,
}

/// Shows an outcome.
pub fn show<T: std::fmt::Display>(outcome: Result<T, String>) -> String {
    match outcome {
        Ok(value) => value.to_string(),
        Err(error) => error,
    }
}

/// Whether an outcome is a success.
pub fn done<T>(outcome: Result<T, String>) -> String {
    match outcome {
        Ok(_) => "ok".to_owned(),
        Err(error) => error,
    }
}

/// What is ready in an epoll set after at most `timeout_ms`, ordered by data.
pub fn ready_within(epfd: c_int, max: usize, timeout_ms: c_int) -> String {
    match sys::wait(epfd, max, timeout_ms) {
        Ok(mut events) => {
            events.sort_unstable();
            let events: Vec<String> =
                events.iter().map(|(data, bits)| format!("{data}:{}", sys::bits(*bits))).collect();
            if events.is_empty() { "none".to_owned() } else { events.join(" ") }
        }
        Err(error) => error,
    }
}

/// What is ready in an epoll set now.
pub fn ready(epfd: c_int) -> String {
    ready_within(epfd, 16, 0)
}

impl World {
    /// A listening socket, non-blocking, at the next free port.
    pub fn listener(&mut self) -> (c_int, SocketAddr) {
        self.ports += 1;
        let mut address = self.address;
        address.set_port(self.address.port() + self.ports);
        let fd = self.fresh(libc::SOCK_STREAM);
        sys::set_int(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1).unwrap_or_else(|error| panic!("{error}"));
        sys::bind(fd, address).unwrap_or_else(|error| panic!("bind {address}: {error}"));
        sys::listen(fd, 64).unwrap_or_else(|error| panic!("listen {address}: {error}"));
        (fd, address)
    }

    /// A non-blocking socket of the server's family.
    pub fn fresh(&self, kind: c_int) -> c_int {
        sys::socket(self.family(), kind | libc::SOCK_NONBLOCK)
            .unwrap_or_else(|error| panic!("socket: {error}"))
    }

    /// AF_INET or AF_INET6.
    pub fn family(&self) -> c_int {
        if self.address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }
    }

    /// A number for a connection of the peer.
    pub fn number(&mut self) -> u32 {
        self.connections += 1;
        self.connections
    }

    /// A fresh connection: our non-blocking descriptor and the peer's number.
    pub fn pair(&mut self) -> (c_int, u32) {
        let id = self.number();
        self.pump.connect(id, self.address);
        let (fd, _) = sys::accept4(self.listener, libc::SOCK_NONBLOCK)
            .unwrap_or_else(|error| panic!("accept: {error}"));
        (fd, id)
    }
}

/// Runs everything.
pub fn run(address: SocketAddr, socket: &str) {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let open = |port| {
        let fd = sys::socket(family, libc::SOCK_STREAM | libc::SOCK_NONBLOCK)?;
        sys::set_int(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        sys::bind(fd, SocketAddr::new(address.ip(), port))?;
        sys::listen(fd, 128)?;
        Ok::<c_int, String>(fd)
    };
    let listener = open(address.port()).unwrap_or_else(|error| panic!("{address}: {error}"));
    let idle = open(address.port() + 999).unwrap_or_else(|error| panic!("{address}: {error}"));
    let mut world = World { address, pump: Pump::new(socket, idle), listener, connections: 0, ports: 0 };
    let cases: &[(&str, &[Case])] = &[
        ("epoll", epoll::CASES),
        ("stream", stream::CASES),
        ("descriptors", descriptors::CASES),
        ("children", children::CASES),
        ("options", options::CASES),
        ("udp", udp::CASES),
    ];
    for (family, cases) in cases {
        for (name, case) in *cases {
            println!("== {family}: {name}");
            case(&mut world);
        }
    }
    println!("== end");
}
