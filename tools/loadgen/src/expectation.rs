//! What a body has to be, and the comparison of a body as it arrives.

use std::sync::Arc;

/// Longest body that may serve as the reference without being given as a file, in bytes.
pub const LEARNED_BYTES_MAX: usize = 64 << 20;

/// Most files that one target may have.
pub const ALTERNATIVES_MAX: usize = 64;

/// What the bodies of a target's responses have to be.
#[derive(Debug, Default)]
pub struct Expectation {
    rule: Rule,
    /// Bodies that a response may have, each wholly.
    bodies: Vec<Arc<[u8]>>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Bodies are counted, not compared.
    Any,
    /// The first body becomes the one that all others have to equal.
    #[default]
    First,
    /// One of the bodies given.
    OneOf,
}

impl Expectation {
    /// Whatever comes.
    pub fn any() -> Self {
        Self { rule: Rule::Any, bodies: Vec::new() }
    }

    /// Every body equals the first one.
    pub fn first() -> Self {
        Self::default()
    }

    /// Every body equals one of these, for instance that of the old configuration or that of the new one.
    ///
    /// # Errors
    /// Gives them back when they are none or more than [`ALTERNATIVES_MAX`].
    pub fn one_of(bodies: Vec<Vec<u8>>) -> Result<Self, Vec<Vec<u8>>> {
        if bodies.is_empty() || bodies.len() > ALTERNATIVES_MAX {
            return Err(bodies);
        }
        Ok(Self { rule: Rule::OneOf, bodies: bodies.into_iter().map(Arc::from).collect() })
    }
}

/// One body being compared. Starts anew with each response.
#[derive(Debug, Default)]
pub struct BodyCheck {
    /// Bytes so far.
    len: u64,
    /// Bit i: body i of the expectation agrees with everything so far.
    agreeing: u64,
    /// The body itself while there is nothing to compare it with.
    learning: Vec<u8>,
}

/// The body is none of the expected ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the body differs from the expected one at byte {at}")]
pub struct WrongBody {
    /// Where no expected body agreed any more; the body's length when it is only too short.
    pub at: u64,
}

impl BodyCheck {
    /// Begins a body.
    pub fn start(&mut self) {
        self.len = 0;
        self.agreeing = u64::MAX;
        self.learning.clear();
    }

    /// Bytes of the body so far.
    pub fn len_bytes(&self) -> u64 {
        self.len
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// As soon as no expected body agrees.
    pub fn take(&mut self, bytes: &[u8], expectation: &Expectation) -> Result<(), WrongBody> {
        let from = self.len as usize;
        self.len += bytes.len() as u64;
        if expectation.rule == Rule::Any {
            return Ok(());
        }
        if expectation.bodies.is_empty() || !self.learning.is_empty() {
            // Nothing to compare with yet, or there was nothing when this body began.
            if self.learning.len() + bytes.len() > LEARNED_BYTES_MAX {
                return Err(WrongBody { at: LEARNED_BYTES_MAX as u64 });
            }
            self.learning.extend_from_slice(bytes);
            return Ok(());
        }
        for (bit, body) in expectation.bodies.iter().enumerate() {
            let agrees = body.get(from..from + bytes.len()).is_some_and(|expected| expected == bytes);
            if !agrees {
                self.agreeing &= !(1 << bit);
            }
        }
        if self.agreeing_bodies(expectation) == 0 { Err(WrongBody { at: from as u64 }) } else { Ok(()) }
    }

    /// The body is complete.
    ///
    /// # Errors
    /// When it is none of the expected bodies in whole.
    pub fn finish(&mut self, expectation: &mut Expectation) -> Result<(), WrongBody> {
        let wrong = WrongBody { at: self.len };
        match expectation.rule {
            Rule::Any => Ok(()),
            Rule::First if expectation.bodies.is_empty() => {
                expectation.bodies.push(Arc::from(std::mem::take(&mut self.learning)));
                Ok(())
            }
            _ if !self.learning.is_empty() => {
                let equal = expectation.bodies.iter().any(|body| **body == *self.learning);
                // Others were learning at the same time; from now on bodies are compared as they arrive.
                self.learning = Vec::new();
                if equal { Ok(()) } else { Err(wrong) }
            }
            _ => {
                let len = self.len as usize;
                let whole =
                    |(bit, body): (usize, &Arc<[u8]>)| self.agreeing >> bit & 1 == 1 && body.len() == len;
                if expectation.bodies.iter().enumerate().any(whole) { Ok(()) } else { Err(wrong) }
            }
        }
    }

    fn agreeing_bodies(&self, expectation: &Expectation) -> u64 {
        let all = u64::MAX >> (64 - expectation.bodies.len());
        self.agreeing & all
    }
}

#[cfg(test)]
mod tests;
