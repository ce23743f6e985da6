//! Why a case failed: a sentence, built up from the inside out.

use std::fmt::{self, Display};

/// A failure's sentence.
#[derive(Debug, Clone)]
pub struct Failure(pub String);

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<nix::Error> for Failure {
    fn from(error: nix::Error) -> Self {
        Self(error.to_string())
    }
}

/// Says what was being done when something failed.
pub trait Context<T> {
    /// Puts `doing` in front of the failure.
    ///
    /// # Errors
    /// The same failure, with the words in front.
    fn doing(self, doing: impl Display) -> Result<T, Failure>;
}

impl<T, E: Into<Failure>> Context<T> for Result<T, E> {
    fn doing(self, doing: impl Display) -> Result<T, Failure> {
        self.map_err(|error| Failure(format!("{doing}: {}", error.into())))
    }
}

impl<T> Context<T> for Option<T> {
    fn doing(self, doing: impl Display) -> Result<T, Failure> {
        self.ok_or_else(|| Failure(doing.to_string()))
    }
}

/// Fails with the formatted sentence unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($why:tt)+) => {
        if !$condition {
            return Err($crate::Failure(format!($($why)+)));
        }
    };
}
