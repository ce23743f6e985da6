//! One connection as HTTP sees it: request, response, request. Sans-IO: bytes and times go in, bytes and answers come
//! out.

use crate::failure::Failure;
use crate::request::Target;
use crate::response::{Asked, Fed, Response, ResponseReader};

/// A request that is to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// Index of its target.
    pub target: usize,
    /// When it should start, in microseconds: its latency counts from here.
    pub intended_us: u64,
}

/// A request that was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// What was asked.
    pub job: Job,
    /// What was answered.
    pub response: Response,
}

/// One connection.
#[derive(Debug)]
pub struct Conversation {
    opened_us: u64,
    /// Requests that may still begin on this connection.
    left: u32,
    phase: Phase,
    reader: ResponseReader,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Established, nothing asked.
    Idle,
    /// A request is on its way, or its response.
    Asking {
        job: Job,
        /// Bytes of the request that are sent.
        sent: usize,
        /// The request asks the server to close.
        last: bool,
        /// Since when an answer is waited for.
        since_us: u64,
        /// The connection is established.
        established: bool,
    },
    /// The last response is complete; the server closes.
    Closing { since_us: u64 },
}

impl Conversation {
    /// A connection that is being opened at `now_us`, for at most `requests_max` requests (at least 1), the first of
    /// which is `job`.
    pub fn open(now_us: u64, requests_max: u32, job: Job) -> Self {
        let last = requests_max <= 1;
        Self {
            opened_us: now_us,
            left: requests_max.saturating_sub(1),
            phase: Phase::Asking { job, sent: 0, last, since_us: now_us, established: false },
            reader: ResponseReader::default(),
        }
    }

    /// When it was opened.
    pub fn opened_us(&self) -> u64 {
        self.opened_us
    }

    /// The handshake is done. True the first time.
    pub fn set_established(&mut self) -> bool {
        match &mut self.phase {
            Phase::Asking { established, .. } => !std::mem::replace(established, true),
            _ => false,
        }
    }

    /// Whether the handshake is still going on.
    pub fn is_opening(&self) -> bool {
        matches!(self.phase, Phase::Asking { established: false, .. })
    }

    /// Whether a request may begin.
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// Whether the last response is complete and only the server's close is missing.
    pub fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing { .. })
    }

    /// The request that waits for an answer.
    pub fn job(&self) -> Option<Job> {
        match self.phase {
            Phase::Asking { job, .. } => Some(job),
            _ => None,
        }
    }

    /// Since when something is waited for from the server; `None` on an idle connection.
    pub fn waiting_since_us(&self) -> Option<u64> {
        match self.phase {
            Phase::Asking { since_us, .. } | Phase::Closing { since_us } => Some(since_us),
            Phase::Idle => None,
        }
    }

    /// Begins a request on an idle connection.
    pub fn begin(&mut self, now_us: u64, job: Job) {
        debug_assert!(self.is_idle() && self.left > 0);
        self.left = self.left.saturating_sub(1);
        self.phase =
            Phase::Asking { job, sent: 0, last: self.left == 0, since_us: now_us, established: true };
    }

    /// Bytes of the request that are to be sent.
    pub fn unsent<'t>(&self, targets: &'t [Target]) -> &'t [u8] {
        match self.phase {
            Phase::Asking { job, sent, last, established: true, .. } => {
                targets.get(job.target).map_or(&[], |target| &target.request(last)[sent..])
            }
            _ => &[],
        }
    }

    /// `len` bytes of [`unsent`](Self::unsent) are sent.
    pub fn sent(&mut self, len: usize) {
        if let Phase::Asking { sent, .. } = &mut self.phase {
            *sent += len;
        }
    }

    /// Takes what arrived.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub fn receive(
        &mut self,
        now_us: u64,
        bytes: &[u8],
        targets: &mut [Target],
        record_header: Option<&str>,
    ) -> Result<Option<Answer>, Failure> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let unsent = self.unsent(targets).len();
        let Phase::Asking { job, last, .. } = self.phase else { return Err(Failure::WrongBytes) };
        let Some(target) = targets.get_mut(job.target) else { return Err(Failure::WrongBytes) };
        let is_head = target.is_head();
        let mut asked = Asked { expectation: &mut target.expectation, is_head, record_header };
        let Fed::Complete { taken, response } = self.reader.feed(bytes, &mut asked)? else { return Ok(None) };
        if taken < bytes.len() {
            // Nothing more was asked.
            return Err(Failure::WrongBytes);
        }
        // An answer before the end of the request (an error, as a rule) leaves the server within our body.
        self.phase = if response.close || last || unsent > 0 {
            Phase::Closing { since_us: now_us }
        } else {
            Phase::Idle
        };
        Ok(Some(Answer { job, response }))
    }

    /// The server has closed its direction. An answer if that is what ended the response.
    ///
    /// # Errors
    /// [`Failure::ClosedEarly`] when a response was due.
    pub fn end(
        &mut self,
        targets: &mut [Target],
        record_header: Option<&str>,
    ) -> Result<Option<Answer>, Failure> {
        let Phase::Asking { job, since_us, .. } = self.phase else { return Ok(None) };
        let target = targets.get_mut(job.target).ok_or(Failure::ClosedEarly)?;
        let is_head = target.is_head();
        let mut asked = Asked { expectation: &mut target.expectation, is_head, record_header };
        let response = self.reader.end(&mut asked)?.ok_or(Failure::ClosedEarly)?;
        self.phase = Phase::Closing { since_us };
        Ok(Some(Answer { job, response }))
    }

    /// Value of the recorded header in the last response.
    pub fn recorded(&self) -> &str {
        self.reader.recorded()
    }
}

#[cfg(test)]
mod tests;
