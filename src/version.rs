//! `ffctl version`.

use crate::exit::Failure;

/// Prints the version, the source revision, and the version of the control protocol.
pub fn run() -> Result<(), Failure> {
    println!(
        "ffctl {} (revision {}, control protocol {})",
        env!("CARGO_PKG_VERSION"),
        env!("FF_REVISION"),
        ff_control::PROTOCOL_VERSION
    );
    Ok(())
}
