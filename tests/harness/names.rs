//! Names of everything that a run makes.

use std::path::PathBuf;
use std::process;

/// What every name of a run starts with; the harness's pid follows.
pub const RUN_PREFIX: &str = "ffit";

/// The run's own directory for sites, logs and test files.
pub fn run_directory() -> PathBuf {
    PathBuf::from(format!("/tmp/{RUN_PREFIX}{}", process::id()))
}

/// Names of one instance: short enough for an interface name (15 bytes with any pid).
#[derive(Debug, Clone)]
pub struct Names {
    /// Name of the instance, of its TAP device and of the kernel end of its veth pair.
    pub instance: String,
    /// The namespace that the instance runs in.
    pub server: String,
    /// The namespace at the other end of the device: the clients', and a router to `far`.
    pub client: String,
    /// A namespace behind the clients' one: reached over the stack's gateway.
    pub far: String,
}

impl Names {
    /// Names of the `index`-th instance of this run.
    pub fn new(index: u8) -> Self {
        let letter = char::from(b'a' + index % 26);
        let stem = format!("{RUN_PREFIX}{}{letter}", process::id());
        Self {
            server: format!("{stem}s"),
            client: format!("{stem}c"),
            far: format!("{stem}f"),
            instance: stem,
        }
    }
}
