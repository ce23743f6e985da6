//! `ffctl check`: the effective configuration, the device digest and everything that was found.

use std::path::Path;

use crate::configuration;
use crate::exit::Failure;

/// Prints the configuration to stdout and the findings to stderr; fails when one of them is an error.
pub fn run(path: &Path) -> Result<(), Failure> {
    let (config, findings) = configuration::read(path)?;
    println!("# {} as it takes effect", path.display());
    print!("{}", config.effective());
    println!("# device digest {}", config.device_digest());
    configuration::report(path, &findings)
}
