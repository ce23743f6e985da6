//! The other end: does what the server asks for, line by line.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use crate::sys;

/// Longest time that any command takes.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Peer {
    tcp: HashMap<u32, TcpStream>,
    udp: HashMap<u32, UdpSocket>,
}

/// Serves one server.
pub fn run(socket: &str) {
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket).unwrap_or_else(|error| panic!("{socket}: {error}"));
    let (stream, _) = listener.accept().unwrap_or_else(|error| panic!("accept: {error}"));
    let mut answers = stream.try_clone().unwrap_or_else(|error| panic!("clone: {error}"));
    let mut peer = Peer::default();
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { break };
        let answer = peer.obey(&line).unwrap_or_else(|error| {
            error.raw_os_error().map_or_else(|| format!("{:?}", error.kind()), sys::name_of)
        });
        if writeln!(answers, "{answer}").is_err() {
            break;
        }
    }
    let _ = std::fs::remove_file(socket);
}

impl Peer {
    fn obey(&mut self, line: &str) -> std::io::Result<String> {
        let words: Vec<&str> = line.split(' ').collect();
        let bad = || std::io::Error::other(format!("not understood: {line}"));
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<usize>().ok()).ok_or_else(bad);
        let id = number(1)? as u32;
        if let Some(stream) = self.tcp.get_mut(&id) {
            return match words[0] {
                "send" => {
                    stream.write_all(&vec![b'x'; number(2)?])?;
                    Ok("sent".to_owned())
                }
                "receive" => receive(stream, number(2)?),
                "quiet" => {
                    stream.set_read_timeout(Some(Duration::from_millis(number(2)? as u64)))?;
                    let result = stream.peek(&mut [0; 65_536]);
                    stream.set_read_timeout(Some(PATIENCE))?;
                    match result {
                        Ok(0) => Ok("end".to_owned()),
                        Ok(len) => Ok(format!("{len} bytes")),
                        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                            Ok("nothing".to_owned())
                        }
                        Err(error) => Err(error),
                    }
                }
                "finish" => stream.shutdown(Shutdown::Write).map(|()| "finished".to_owned()),
                "close" => {
                    self.tcp.remove(&id);
                    Ok("closed".to_owned())
                }
                "reset" => {
                    let linger = [1_i32.to_ne_bytes(), 0_i32.to_ne_bytes()].concat();
                    let result = sys::set(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &linger);
                    self.tcp.remove(&id);
                    Ok(result.map_or_else(|error| error, |_| "reset".to_owned()))
                }
                _ => Err(bad()),
            };
        }
        let address = words.get(2).and_then(|word| word.parse::<SocketAddr>().ok()).ok_or_else(bad)?;
        match words[0] {
            "connect" => {
                let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_nodelay(true)?;
                self.tcp.insert(id, stream);
                Ok("connected".to_owned())
            }
            "datagram" => {
                let len = number(3)?;
                let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                let socket = match self.udp.entry(id) {
                    std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
                    std::collections::hash_map::Entry::Vacant(entry) => entry.insert(UdpSocket::bind(any)?),
                };
                socket.set_read_timeout(Some(PATIENCE))?;
                socket.send_to(&vec![b'x'; len], address)?;
                Ok("sent".to_owned())
            }
            "answer" => {
                let socket = self.udp.get(&id).ok_or_else(bad)?;
                let (len, from) = socket.recv_from(&mut [0; 65_536])?;
                Ok(format!("{len} bytes{}", if from == address { "" } else { " from somebody else" }))
            }
            _ => Err(bad()),
        }
    }
}

/// Reads exactly `len` bytes, or to the end.
fn receive(stream: &mut TcpStream, len: usize) -> std::io::Result<String> {
    let mut got = 0;
    let mut buf = vec![0; 65_536];
    while got < len {
        let want = buf.len().min(len - got);
        match stream.read(&mut buf[..want]) {
            Ok(0) => return Ok(format!("{got} bytes and the end")),
            Ok(more) => got += more,
            Err(error) if got > 0 => {
                let error = error.raw_os_error().map_or_else(|| format!("{:?}", error.kind()), sys::name_of);
                return Ok(format!("{got} bytes and {error}"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(format!("{got} bytes"))
}
