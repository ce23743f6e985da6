//! Exit codes, and the failure that every command ends in when it does not end well.

use std::process::ExitCode;

/// It was tried and did not work; what had been begun is undone.
pub const FAILED: Code = Code(1);
/// The command line or the configuration is wrong; nothing was begun.
pub const USAGE: Code = Code(2);
/// `start`: the instance, or a part of it, runs already.
pub const ALREADY_RUNNING: Code = Code(3);
/// `stop`, `status`: nothing of the instance is there.
pub const NOT_RUNNING: Code = Code(4);
/// `reload`: refused before anything was begun; the old configuration serves on.
pub const REFUSED: Code = Code(5);
/// Ended by SIGINT, SIGTERM or SIGHUP; what had been begun is undone.
pub const INTERRUPTED: Code = Code(130);

/// For `ffctl --help`.
pub const CODES: &str = "Exit codes:
  0    done
  1    failed; what had been begun is undone (status: the primary is dead; reload: aborted, the old configuration
       serves on)
  2    the command line or the configuration is wrong
  3    start: the instance runs already
  4    stop, status, reload: no such instance runs
  5    reload: refused before anything was begun, the old configuration serves on
  130  interrupted; what had been begun is undone";

/// An exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(u8);

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code.0)
    }
}

/// How a command ended that did not do what it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub struct Failure {
    /// Exit code.
    pub code: Code,
    /// For a person, without a full stop; empty when all has been printed.
    pub sentence: String,
}

impl Failure {
    /// With `FAILED`.
    pub fn failed(sentence: impl Into<String>) -> Self {
        Self { code: FAILED, sentence: sentence.into() }
    }

    /// With `USAGE`.
    pub fn usage(sentence: impl Into<String>) -> Self {
        Self { code: USAGE, sentence: sentence.into() }
    }
}
