//! Reading a response as its bytes arrive: head, framing, body. Nothing is kept that need not be.

use crate::expectation::{BodyCheck, Expectation};
use crate::failure::Failure;

/// Longest response head in bytes.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Most headers of a response.
const HEADERS_MAX: usize = 96;
/// Longest line that begins a chunk, its extensions included, in bytes.
const CHUNK_LINE_BYTES_MAX: usize = 1024;

/// What is said of a complete response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Response {
    /// Its status code, 200 to 599.
    pub status: u16,
    /// The server closes the connection after it.
    pub close: bool,
    /// Bytes of its body.
    pub body_bytes: u64,
    /// Its body was none of those expected.
    pub wrong_bytes: bool,
}

/// What a response reader needs to know beside the bytes.
pub struct Asked<'a> {
    /// What the body has to be.
    pub expectation: &'a mut Expectation,
    /// The request was a HEAD: no body follows.
    pub is_head: bool,
    /// Name of a header whose value is to be remembered.
    pub record_header: Option<&'a str>,
}

/// Reads one response after the other.
#[derive(Debug, Default)]
pub struct ResponseReader {
    state: State,
    /// Beginning of a head, or of a chunk's line, that has not arrived in whole.
    partial: Vec<u8>,
    check: BodyCheck,
    response: Option<Response>,
    recorded: String,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    /// Bytes of the body that are still to come.
    Length(u64),
    ChunkLine,
    /// Bytes of the chunk that are still to come, its line end included.
    Chunk(u64),
    /// Lines after the last chunk.
    Trailers,
    /// The body ends with the connection.
    UntilClose,
}

/// What a piece of input led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fed {
    /// All of it was taken and the response goes on.
    More,
    /// The response ended after `taken` bytes of the input.
    Complete {
        /// Bytes that belong to it.
        taken: usize,
        /// What it was.
        response: Response,
    },
}

impl ResponseReader {
    /// Whether some of a response has arrived, and not all.
    pub fn is_within(&self) -> bool {
        self.state != State::Head || !self.partial.is_empty()
    }

    /// Value of the recorded header in the response that completed last; empty if it had none.
    pub fn recorded(&self) -> &str {
        &self.recorded
    }

    /// Takes the next bytes of the connection.
    ///
    /// # Errors
    /// [`Failure::Malformed`]: the connection is of no use any more.
    pub fn feed(&mut self, input: &[u8], asked: &mut Asked<'_>) -> Result<Fed, Failure> {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            match self.state {
                State::Head => match self.head(rest, asked)? {
                    None => return Ok(Fed::More),
                    Some(taken) => at += taken,
                },
                State::Length(0) => return Ok(self.complete(at, asked)),
                State::Length(left) | State::Chunk(left) if rest.is_empty() => {
                    debug_assert!(left > 0);
                    return Ok(Fed::More);
                }
                State::Length(left) => {
                    let len = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    self.body(&rest[..len], asked);
                    self.state = State::Length(left - len as u64);
                    at += len;
                }
                State::ChunkLine => match self.line(rest)? {
                    None => return Ok(Fed::More),
                    Some((taken, line)) => {
                        at += taken;
                        self.state = match chunk_size(&line)? {
                            0 => State::Trailers,
                            size => State::Chunk(size + 2),
                        };
                    }
                },
                State::Chunk(left) => {
                    let len = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    let data = len.min(usize::try_from(left.saturating_sub(2)).unwrap_or(usize::MAX));
                    self.body(&rest[..data], asked);
                    // What follows the data is a line end, whose bytes are the last two of the chunk.
                    for (nth, &byte) in rest[data..len].iter().enumerate() {
                        let to_end = left as usize - data - nth;
                        if byte != if to_end == 2 { b'\r' } else { b'\n' } {
                            return Err(Failure::Malformed);
                        }
                    }
                    at += len;
                    let left = left - len as u64;
                    self.state = if left == 0 { State::ChunkLine } else { State::Chunk(left) };
                }
                State::Trailers => match self.line(rest)? {
                    None => return Ok(Fed::More),
                    Some((taken, line)) => {
                        at += taken;
                        if line.is_empty() {
                            return Ok(self.complete(at, asked));
                        }
                    }
                },
                State::UntilClose => {
                    self.body(rest, asked);
                    return Ok(Fed::More);
                }
            }
        }
    }

    /// The server has closed its direction. A response that ends that way is complete.
    ///
    /// # Errors
    /// [`Failure::ClosedEarly`] within a response that should have gone on.
    pub fn end(&mut self, asked: &mut Asked<'_>) -> Result<Option<Response>, Failure> {
        if self.state == State::UntilClose {
            let Fed::Complete { response, .. } = self.complete(0, asked) else { return Ok(None) };
            return Ok(Some(response));
        }
        if self.is_within() { Err(Failure::ClosedEarly) } else { Ok(None) }
    }

    /// Takes a head, or keeps what there is of it. Gives the bytes that it took of `input`.
    fn head(&mut self, input: &[u8], asked: &mut Asked<'_>) -> Result<Option<usize>, Failure> {
        if self.partial.is_empty() {
            return match self.parse_head(input, asked)? {
                Some(len) => Ok(Some(len)),
                None => self.keep(input).map(|()| None),
            };
        }
        let before = self.partial.len();
        self.keep(input)?;
        let partial = std::mem::take(&mut self.partial);
        let parsed = self.parse_head(&partial, asked)?;
        self.partial = partial;
        Ok(parsed.map(|len| {
            self.partial.clear();
            len.saturating_sub(before)
        }))
    }

    fn keep(&mut self, input: &[u8]) -> Result<(), Failure> {
        if self.partial.len() + input.len() > HEAD_BYTES_MAX {
            return Err(Failure::Malformed);
        }
        self.partial.extend_from_slice(input);
        Ok(())
    }

    /// Length of the head if it is whole; the state is then that of what follows.
    fn parse_head(&mut self, input: &[u8], asked: &mut Asked<'_>) -> Result<Option<usize>, Failure> {
        if input.is_empty() {
            return Ok(None);
        }
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut head = httparse::Response::new(&mut headers);
        let len = match head.parse(input) {
            Ok(httparse::Status::Complete(len)) => len,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(Failure::Malformed),
        };
        let status = head.code.unwrap_or_default();
        if status == 101 || !(100..600).contains(&status) {
            return Err(Failure::Malformed);
        }
        if status < 200 {
            // An interim response (RFC 9110, 15.2): the real one follows.
            return Ok(Some(len));
        }
        let framing = Framing::of(&head, asked.record_header, &mut self.recorded)?;
        let no_body = asked.is_head || status == 204 || status == 304;
        self.check.start();
        self.state = match (no_body, framing.chunked, framing.length) {
            (true, ..) => State::Length(0),
            (_, true, _) => State::ChunkLine,
            (_, false, Some(length)) => State::Length(length),
            (_, false, None) => State::UntilClose,
        };
        let close = framing.close || self.state == State::UntilClose;
        self.response = Some(Response { status, close, body_bytes: 0, wrong_bytes: false });
        Ok(Some(len))
    }

    /// A line without its end, and the bytes that it took of `input`.
    fn line(&mut self, input: &[u8]) -> Result<Option<(usize, Vec<u8>)>, Failure> {
        let Some(end) = input.iter().position(|&byte| byte == b'\n') else {
            if self.partial.len() + input.len() > CHUNK_LINE_BYTES_MAX {
                return Err(Failure::Malformed);
            }
            return self.keep(input).map(|()| None);
        };
        let mut line = std::mem::take(&mut self.partial);
        line.extend_from_slice(&input[..end]);
        if line.pop() != Some(b'\r') || line.len() > CHUNK_LINE_BYTES_MAX {
            return Err(Failure::Malformed);
        }
        Ok(Some((end + 1, line)))
    }

    fn body(&mut self, bytes: &[u8], asked: &mut Asked<'_>) {
        let Some(response) = &mut self.response else { return };
        response.body_bytes += bytes.len() as u64;
        // An error page is not what was asked for; its status says so already.
        if !response.wrong_bytes && is_success(response.status) {
            response.wrong_bytes = self.check.take(bytes, asked.expectation).is_err();
        }
    }

    fn complete(&mut self, taken: usize, asked: &mut Asked<'_>) -> Fed {
        self.state = State::Head;
        let Some(mut response) = self.response.take() else { return Fed::More };
        if !response.wrong_bytes && is_success(response.status) && !asked.is_head {
            response.wrong_bytes = self.check.finish(asked.expectation).is_err();
        }
        Fed::Complete { taken, response }
    }
}

/// Whether the status is 2xx.
pub fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}

/// How a response says where it ends (RFC 9112, 6.3).
#[derive(Debug, Default)]
struct Framing {
    length: Option<u64>,
    chunked: bool,
    close: bool,
}

impl Framing {
    fn of(
        head: &httparse::Response<'_, '_>,
        record_header: Option<&str>,
        recorded: &mut String,
    ) -> Result<Self, Failure> {
        let mut framing = Self { close: head.version == Some(0), ..Self::default() };
        recorded.clear();
        for header in head.headers.iter() {
            // Cheap before exact: most headers are none of these.
            match header.name.len() {
                14 if header.name.eq_ignore_ascii_case("content-length") => {
                    let length = decimal(header.value).ok_or(Failure::Malformed)?;
                    if framing.length.is_some_and(|other| other != length) {
                        return Err(Failure::Malformed);
                    }
                    framing.length = Some(length);
                }
                17 if header.name.eq_ignore_ascii_case("transfer-encoding") => {
                    if !header.value.eq_ignore_ascii_case(b"chunked") {
                        return Err(Failure::Malformed);
                    }
                    framing.chunked = true;
                }
                10 if header.name.eq_ignore_ascii_case("connection") => {
                    framing.close = match header.value {
                        value if value.eq_ignore_ascii_case(b"close") => true,
                        value if value.eq_ignore_ascii_case(b"keep-alive") => false,
                        _ => framing.close,
                    };
                }
                _ => {}
            }
            if record_header.is_some_and(|name| header.name.eq_ignore_ascii_case(name)) {
                recorded.push_str(&String::from_utf8_lossy(header.value));
            }
        }
        // Both at once is how requests are smuggled (RFC 9112, 6.1).
        if framing.chunked && framing.length.is_some() { Err(Failure::Malformed) } else { Ok(framing) }
    }
}

fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// RFC 9112, 7.1; extensions are skipped.
fn chunk_size(line: &[u8]) -> Result<u64, Failure> {
    let digits = line.split(|&byte| matches!(byte, b';' | b' ' | b'\t')).next().unwrap_or_default();
    // Fewer digits than 64 bits have: two more bytes are added to the size.
    if digits.is_empty() || digits.len() > 15 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(Failure::Malformed);
    }
    let text = std::str::from_utf8(digits).map_err(|_| Failure::Malformed)?;
    u64::from_str_radix(text, 16).map_err(|_| Failure::Malformed)
}

#[cfg(test)]
mod tests;
