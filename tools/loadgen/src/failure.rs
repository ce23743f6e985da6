//! The ways in which a request can fail, as they are counted.

use std::fmt;

use serde::Serialize;

/// Why a request, or the connection for it, failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// A RST answered the SYN: nobody listens there.
    Refused,
    /// A RST on an established connection, before the response was complete.
    Reset,
    /// No complete response within the time allowed, or TCP gave up.
    Timeout,
    /// The server closed before the response was complete.
    ClosedEarly,
    /// What came is not HTTP/1.x, or not framed as it says.
    Malformed,
    /// The body is not the expected one, or bytes came after it.
    WrongBytes,
    /// A status that is not 2xx.
    Status,
    /// No route or no neighbour.
    Unreachable,
    /// No free local port, no memory, or no socket: the client's own end is too small.
    Exhausted,
}

impl Failure {
    /// All kinds, in the order of the report.
    pub const ALL: [Self; 9] = [
        Self::Refused,
        Self::Reset,
        Self::Timeout,
        Self::ClosedEarly,
        Self::Malformed,
        Self::WrongBytes,
        Self::Status,
        Self::Unreachable,
        Self::Exhausted,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Reset => "reset",
            Self::Timeout => "timeout",
            Self::ClosedEarly => "closed_early",
            Self::Malformed => "malformed",
            Self::WrongBytes => "wrong_bytes",
            Self::Status => "non_2xx",
            Self::Unreachable => "unreachable",
            Self::Exhausted => "exhausted",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
