//! What is asked: requests made once, sent many times.

use crate::expectation::Expectation;

/// What all requests have in common.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestSpec {
    /// `GET`, `POST` and so on.
    pub method: String,
    /// The `Host` header.
    pub host: String,
    /// Further headers, `Name: value`.
    pub headers: Vec<String>,
    /// The body; `None` sends none and no `Content-Length`.
    pub body: Option<Vec<u8>>,
}

/// Why no request can be made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RequestError {
    /// RFC 9110, 9.1: a token.
    #[error("{0:?} is no HTTP method")]
    Method(String),
    /// RFC 9112, 3.2.
    #[error("{0:?} is no request target: it begins with '/' and has no blanks")]
    Path(String),
    /// RFC 9112, 5.
    #[error("{0:?} is no header: it has the form `Name: value`")]
    Header(String),
    /// These say how the message ends, which the generator decides itself.
    #[error("the header {0:?} is the generator's own; see --body-file and --requests-per-connection")]
    Reserved(String),
}

/// One thing to ask for, and what is to be answered.
#[derive(Debug)]
pub struct Target {
    /// The request on a connection that goes on.
    keep: Vec<u8>,
    /// The request that ends a connection.
    last: Vec<u8>,
    /// Whether the response has no body whatever its headers say.
    is_head: bool,
    /// What the answers are compared with.
    pub expectation: Expectation,
}

impl Target {
    /// A target.
    ///
    /// # Errors
    /// When the request would not be valid.
    pub fn new(spec: &RequestSpec, path: &str, expectation: Expectation) -> Result<Self, RequestError> {
        check(spec, path)?;
        Ok(Self {
            keep: bytes(spec, path, false),
            last: bytes(spec, path, true),
            is_head: spec.method == "HEAD",
            expectation,
        })
    }

    /// The request; with `last` it asks the server to close the connection after it.
    pub fn request(&self, last: bool) -> &[u8] {
        if last { &self.last } else { &self.keep }
    }

    /// Whether the response has no body whatever its headers say (HEAD).
    pub fn is_head(&self) -> bool {
        self.is_head
    }
}

fn check(spec: &RequestSpec, path: &str) -> Result<(), RequestError> {
    if spec.method.is_empty() || !spec.method.bytes().all(is_token) {
        return Err(RequestError::Method(spec.method.clone()));
    }
    if !path.starts_with('/') || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(RequestError::Path(path.to_owned()));
    }
    for header in &spec.headers {
        let wrong = || RequestError::Header(header.clone());
        let (name, value) = header.split_once(':').ok_or_else(wrong)?;
        if name.is_empty() || !name.bytes().all(is_token) || value.bytes().any(|byte| byte.is_ascii_control())
        {
            return Err(wrong());
        }
        let ours = ["host", "connection", "content-length", "transfer-encoding"];
        if ours.iter().any(|own| name.eq_ignore_ascii_case(own)) {
            return Err(RequestError::Reserved(name.to_owned()));
        }
    }
    Ok(())
}

/// RFC 9110, 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn bytes(spec: &RequestSpec, path: &str, last: bool) -> Vec<u8> {
    let mut head = format!("{} {path} HTTP/1.1\r\nHost: {}\r\n", spec.method, spec.host);
    for header in &spec.headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    if let Some(body) = &spec.body {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    if last {
        head.push_str("Connection: close\r\n");
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(spec.body.as_deref().unwrap_or_default());
    bytes
}

#[cfg(test)]
mod tests;
