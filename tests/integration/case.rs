//! What a case is.

use std::time::Duration;

use ff_harness::{Failure, Instance};

use crate::lab::Lab;

/// `Ok` holds what was measured, for the case's line.
pub type Outcome = Result<String, Failure>;

/// How much a case does.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Full sizes and durations.
    pub soak: bool,
}

impl Size {
    /// `short` in `scripts/test`, `long` in `scripts/soak`.
    pub fn pick<T>(self, short: T, long: T) -> T {
        if self.soak { long } else { short }
    }
}

/// Who runs it.
#[derive(Clone, Copy)]
pub enum Run {
    /// A client's case against the shared instance; the calling thread is in the client namespace.
    Client(fn(&Instance, Size) -> Outcome),
    /// Makes its own instances.
    Own(fn(&mut Lab, Size) -> Outcome),
}

/// One named case.
pub struct Case {
    /// Short, never reused: `tcp06`.
    pub name: &'static str,
    /// What holds when it passes.
    pub what: &'static str,
    /// Run on af_packet too.
    pub main: bool,
    /// It is about our stack or our tools, and means nothing on the kernel.
    pub ours_only: bool,
    /// Longest time it may take.
    pub limit: Duration,
    /// The case.
    pub run: Run,
}

impl Case {
    /// A client's case that runs on TAP.
    pub const fn client(name: &'static str, what: &'static str, run: fn(&Instance, Size) -> Outcome) -> Self {
        let limit = Duration::from_secs(60);
        Self { name, what, main: false, ours_only: false, limit, run: Run::Client(run) }
    }

    /// A case with instances of its own.
    pub const fn own(name: &'static str, what: &'static str, run: fn(&mut Lab, Size) -> Outcome) -> Self {
        let limit = Duration::from_secs(90);
        Self { name, what, main: false, ours_only: true, limit, run: Run::Own(run) }
    }

    /// Also on af_packet.
    pub const fn main(mut self) -> Self {
        self.main = true;
        self
    }

    /// Not on the kernel.
    pub const fn ours_only(mut self) -> Self {
        self.ours_only = true;
        self
    }

    /// With another time limit.
    pub const fn within_s(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }
}
