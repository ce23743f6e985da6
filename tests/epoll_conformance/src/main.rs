//! How epoll, sockets and socket options behave, as a transcript.
//!
//! `epoll-conformance server ADDR PEER_SOCKET` runs the cases, as a server at `ADDR` (`IP:PORT`; the next ports are
//! used too), and prints one line for each thing it saw. `epoll-conformance peer PEER_SOCKET` is the other end: it
//! does what the server asks it over a UNIX socket, usually in another network namespace. The server is run once on
//! the kernel's stack and once under `libff_nginx.so`; both transcripts have to be the same. Nothing that may
//! differ between two networks (ports, times, buffer sizes) is printed.

mod cases;
mod peer;
mod pump;
mod sys;

use std::net::SocketAddr;

fn main() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["server", address, socket] => match address.parse::<SocketAddr>() {
            Ok(address) => cases::run(address, socket),
            Err(error) => {
                eprintln!("{address} is not an address with a port: {error}");
                return std::process::ExitCode::from(2);
            }
        },
        ["peer", socket] => peer::run(socket),
        _ => {
            eprintln!("usage: epoll-conformance server IP:PORT SOCKET | epoll-conformance peer SOCKET");
            return std::process::ExitCode::from(2);
        }
    }
    std::process::ExitCode::SUCCESS
}
