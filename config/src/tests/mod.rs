//! Tests of the whole crate, by subject.

mod bad_input;
mod digest;
mod documents;
mod format;
mod properties;
mod table;
mod values;

use crate::{Checked, Config, Severity};

/// A port that nothing is wrong with.
pub(crate) const PORT0: &str = "[port0]\naddr=198.18.0.2\nnetmask=255.255.255.0\n";

/// Parses `text` with a port that nothing is wrong with behind it.
pub(crate) fn parse(text: &str) -> Checked {
    Config::parse("f-stack.conf", &format!("{text}\n{PORT0}"))
}

/// The configuration of a text without findings.
pub(crate) fn clean(text: &str) -> Config {
    let checked = parse(text);
    assert_eq!(checked.findings, [], "findings in:\n{text}");
    checked.config
}

/// The findings as a person reads them.
pub(crate) fn lines(checked: &Checked) -> Vec<String> {
    checked.findings.iter().map(ToString::to_string).collect()
}

pub(crate) fn errors(checked: &Checked) -> usize {
    checked.findings.iter().filter(|finding| finding.severity == Severity::Error).count()
}
