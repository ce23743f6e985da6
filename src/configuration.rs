//! Loading f-stack.conf for a command: findings go to stderr, errors end it.

use std::path::Path;

use ff_config::{Config, Finding, Severity};

use crate::exit::Failure;

/// What a file says: the configuration and the findings.
pub fn read(path: &Path) -> Result<(Config, Vec<Finding>), Failure> {
    let checked = Config::load(path).map_err(|error| Failure::usage(error.to_string()))?;
    Ok((checked.config, checked.findings))
}

/// Prints the findings; fails when one is an error.
pub fn report(path: &Path, findings: &[Finding]) -> Result<(), Failure> {
    for finding in findings {
        eprintln!("{finding}");
    }
    let errors = findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    match errors {
        0 => Ok(()),
        1 => Err(Failure::usage(format!("{} has an error", path.display()))),
        _ => Err(Failure::usage(format!("{} has {errors} errors", path.display()))),
    }
}
