//! What was found while reading a configuration: one sentence each, with its place and what to do.

use std::fmt;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The instance can start; what the line asks for is not what happens.
    Warning,
    /// The instance must not start with this configuration.
    Error,
}

/// One finding. Its Display is the line a person reads:
/// `f-stack.conf:12: error: <message>; <hint>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Error or warning.
    pub severity: Severity,
    /// The file as it was named to `Config::parse`.
    pub file: String,
    /// Line number from 1; 0 when the finding is about something that the file does not have.
    pub line: usize,
    /// What is wrong.
    pub message: String,
    /// What to do about it; empty when the message says it all.
    pub hint: String,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Warning => "warning",
            Severity::Error => "error",
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}: {}", self.severity, self.message)?;
        if !self.hint.is_empty() {
            write!(f, "; {}", self.hint)?;
        }
        Ok(())
    }
}

/// A piece of the file as a message shows it: in quotes, escaped, and cut when it is long.
pub(crate) fn quoted(text: &str) -> String {
    const CHARS_MAX: usize = 60;
    match text.char_indices().nth(CHARS_MAX) {
        None => format!("{text:?}"),
        Some((at, _)) => format!("{:?}", format!("{}...", &text[..at])),
    }
}

/// As [`quoted`], without the quotes.
pub(crate) fn bare(text: &str) -> String {
    let text = quoted(text);
    text[1..text.len() - 1].to_owned()
}
