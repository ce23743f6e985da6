//! Ctrl-C, TERM and HUP as a flag that every wait of `start` looks at, so that what was begun is undone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::exit::{Failure, INTERRUPTED};

/// Set once one of the signals has come.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From here on the signals only set the flag.
    pub fn install() -> Result<Self, Failure> {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&interrupt.0))
                .map_err(|error| Failure::failed(format!("cannot catch signal {signal}: {error}")))?;
        }
        Ok(interrupt)
    }

    /// Fails when a signal has come.
    pub fn check(&self) -> Result<(), Failure> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Failure { code: INTERRUPTED, sentence: "interrupted".into() });
        }
        Ok(())
    }
}
