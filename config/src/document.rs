//! The key table as Markdown, for `docs/configuration.md`.

use std::fmt::Write;

use crate::keys::{Key, SECTIONS, Section, Status};

/// Every section and key with status, values, default and meaning.
pub fn key_tables() -> String {
    let mut text = String::new();
    for section in SECTIONS {
        let _ = writeln!(text, "### `[{}]`\n", section.pattern());
        match section.status {
            Status::Works => write_works(&mut text, section),
            Status::NoEffect(reason) => write_left_out(&mut text, section, "Accepted without effect", reason),
            Status::NotApplicable(reason) => write_left_out(&mut text, section, "Not applicable", reason),
        }
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn write_works(text: &mut String, section: &Section) {
    let _ = writeln!(text, "{}\n", section.meaning);
    text.push_str("| key | status | values | default | meaning |\n|---|---|---|---|---|\n");
    for key in section.keys {
        let (status, values, meaning) = match key.status {
            Status::Works if key.device => ("works, device", key.kind.allowed(), key.meaning),
            Status::Works => ("works", key.kind.allowed(), key.meaning),
            Status::NoEffect(reason) => ("no effect", String::new(), reason),
            Status::NotApplicable(reason) => ("not applicable", String::new(), reason),
        };
        let _ = writeln!(
            text,
            "| `{}` | {status} | {} | {} | {} |",
            key.name,
            cell(&values),
            cell(&default(key)),
            cell(meaning)
        );
    }
    text.push('\n');
}

fn write_left_out(text: &mut String, section: &Section, status: &str, reason: &str) {
    let _ = writeln!(text, "{status} as a whole, with one warning: {reason}.\n");
    let keys: Vec<String> = section
        .keys
        .iter()
        .map(|key| match key.default {
            "" => format!("`{}`", key.name),
            default => format!("`{}` (`{default}`)", key.name),
        })
        .collect();
    let _ = writeln!(text, "Keys: {}.\n", keys.join(", "));
}

fn default(key: &Key) -> String {
    match key.default {
        "" => "none".into(),
        derived if derived.starts_with('(') => derived.trim_matches(['(', ')']).into(),
        written => format!("`{written}`"),
    }
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}
