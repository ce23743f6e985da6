//! A small HTTP/1.1 client over a plain socket: every wait has a limit, every byte of a body can be checked.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::{Context, Failure, ensure, pattern};

/// Longest wait for one read or write.
pub const WAIT: Duration = Duration::from_secs(20);

/// A head that was received.
#[derive(Debug, Clone)]
pub struct Head {
    /// Status code.
    pub status: u16,
    /// Header fields, names in lower case.
    pub fields: Vec<(String, String)>,
}

impl Head {
    /// The first field of that name (lower case).
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// `Content-Length`.
    pub fn content_length(&self) -> Option<u64> {
        self.field("content-length")?.parse().ok()
    }
}

/// A connection with what was read ahead.
#[derive(Debug)]
pub struct Connection {
    /// The socket.
    pub stream: TcpStream,
    ahead: Vec<u8>,
}

impl Connection {
    /// Connects from the calling thread's namespace.
    ///
    /// # Errors
    /// The connect's.
    pub fn open(addr: SocketAddr) -> Result<Self, Failure> {
        let stream = TcpStream::connect_timeout(&addr, Duration::from_secs(5))
            .doing(format!("connecting to {addr}"))?;
        stream.set_read_timeout(Some(WAIT))?;
        stream.set_write_timeout(Some(WAIT))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, ahead: Vec::new() })
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// The socket's.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
        self.stream.write_all(bytes.as_ref()).doing("sending")
    }

    /// Sends `GET path`, keeping the connection.
    ///
    /// # Errors
    /// The socket's.
    pub fn get(&mut self, path: &str) -> Result<(), Failure> {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"))
    }

    /// Reads some bytes; 0 is the peer's FIN.
    ///
    /// # Errors
    /// The socket's, a timeout included.
    pub fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.ahead.is_empty() {
            return self.stream.read(buf);
        }
        let take = buf.len().min(self.ahead.len());
        buf[..take].copy_from_slice(&self.ahead[..take]);
        self.ahead.drain(..take);
        Ok(take)
    }

    /// Reads a response's head, skipping nothing (a `100 Continue` is a head of its own).
    ///
    /// # Errors
    /// The socket's, the peer's FIN, more than 64 KiB, or text that is no head.
    pub fn head(&mut self) -> Result<Head, Failure> {
        let mut buf = [0_u8; 4096];
        loop {
            if let Some(end) = self.ahead.windows(4).position(|four| four == b"\r\n\r\n") {
                let head: Vec<u8> = self.ahead.drain(..end + 4).collect();
                return parse_head(&String::from_utf8_lossy(&head));
            }
            ensure!(self.ahead.len() < 64 << 10, "a response's head is longer than 64 KiB");
            let got = self.stream.read(&mut buf).doing("waiting for a response's head")?;
            ensure!(got > 0, "the connection ended before a response's head");
            self.ahead.extend_from_slice(&buf[..got]);
        }
    }

    /// Reads exactly `len` bytes.
    ///
    /// # Errors
    /// The socket's, or the peer's FIN.
    pub fn exactly(&mut self, len: usize) -> Result<Vec<u8>, Failure> {
        let mut bytes = vec![0; len];
        let mut at = 0;
        while at < len {
            let got = self.read(&mut bytes[at..]).doing(format!("reading byte {at} of {len}"))?;
            ensure!(got > 0, "the connection ended after {at} of {len} bytes");
            at += got;
        }
        Ok(bytes)
    }

    /// Reads a body of `len` bytes and checks it against the pattern of `seed` from `offset` on.
    ///
    /// # Errors
    /// The socket's, the peer's FIN, a wrong byte.
    pub fn pattern(&mut self, seed: u64, offset: u64, len: u64) -> Result<(), Failure> {
        let mut buf = vec![0_u8; 256 << 10];
        let mut at = 0_u64;
        while at < len {
            let want = (len - at).min(buf.len() as u64) as usize;
            let got = self.read(&mut buf[..want]).doing(format!("reading byte {at} of {len}"))?;
            ensure!(got > 0, "the connection ended after {at} of {len} bytes");
            pattern::check(seed, offset + at, &buf[..got])
                .map_err(|wrong| format!("the byte at offset {wrong} is wrong"))?;
            at += got as u64;
        }
        Ok(())
    }

    /// Reads a response whose body has a `Content-Length`.
    ///
    /// # Errors
    /// As [`Connection::head`] and [`Connection::exactly`].
    pub fn response(&mut self) -> Result<(Head, Vec<u8>), Failure> {
        let head = self.head()?;
        // RFC 9110 section 8.6: a 204 has no body and no Content-Length.
        let none = (head.status == 204).then_some(0);
        let len = head.content_length().or(none).doing("the response has no Content-Length")?;
        let body = self.exactly(len as usize)?;
        Ok((head, body))
    }

    /// Gets a file of the site (its length is its pattern's seed) and checks every byte.
    ///
    /// # Errors
    /// A wrong status, length or byte, or what the socket says.
    pub fn get_file(&mut self, path: &str, len: u64) -> Result<(), Failure> {
        self.get(path)?;
        let head = self.head()?;
        ensure!(head.status == 200, "GET {path}: status {}", head.status);
        ensure!(head.content_length() == Some(len), "GET {path}: Content-Length {:?}", head.content_length());
        self.pattern(len, 0, len).doing(format!("GET {path}"))
    }

    /// Waits for the peer's FIN; data before it is a failure.
    ///
    /// # Errors
    /// Data, a reset, or nothing within [`WAIT`].
    pub fn fin(&mut self) -> Result<(), Failure> {
        let mut byte = [0_u8];
        let got = self.read(&mut byte).doing("waiting for the peer's FIN")?;
        ensure!(got == 0, "data came where the peer's FIN was expected");
        Ok(())
    }
}

fn parse_head(text: &str) -> Result<Head, Failure> {
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status = first
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3)?.parse().ok())
        .doing(format!("no HTTP/1.1 response: {first:?}"))?;
    let fields = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    Ok(Head { status, fields })
}
