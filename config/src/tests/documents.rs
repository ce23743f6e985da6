//! The documentation and the sample say what the code does.

use crate::Config;
use crate::keys::{SECTIONS, Status};

const CONFIGURATION: &str = include_str!("../../../docs/configuration.md");
const SAMPLE: &str = include_str!("../../../docs/f-stack.conf");

#[test]
fn the_key_tables_are_those_of_the_code() {
    assert!(
        CONFIGURATION.contains(&crate::key_tables()),
        "renew them: cargo run -p ff-config --example key_tables -- docs/configuration.md"
    );
}

#[test]
fn every_key_is_documented_with_its_status_and_default() {
    for section in SECTIONS {
        let heading = format!("### `[{}]`\n", section.pattern());
        let (_, rest) = CONFIGURATION.split_once(&heading).unwrap_or_else(|| panic!("no {heading}"));
        let part = rest.split("\n### ").next().unwrap_or(rest);
        for key in section.keys {
            let name = format!("`{}`", key.name);
            if section.status != Status::Works {
                let default =
                    if key.default.is_empty() { String::new() } else { format!(" (`{}`)", key.default) };
                let entry = format!("{name}{default}");
                let keys = part.lines().find_map(|line| line.strip_prefix("Keys: ")?.strip_suffix('.'));
                let listed = keys.is_some_and(|keys| keys.split(", ").any(|item| item == entry));
                assert!(listed, "{heading} {entry}");
                continue;
            }
            let row = part
                .lines()
                .find(|line| line.starts_with(&format!("| {name} |")))
                .unwrap_or_else(|| panic!("{heading} {name}"));
            let cells: Vec<&str> = row.split(" | ").collect();
            assert_eq!(cells.len(), 5, "{row}");
            let status = match (key.status, key.device) {
                (Status::Works, true) => "works, device",
                (Status::Works, false) => "works",
                (Status::NoEffect(_), _) => "no effect",
                (Status::NotApplicable(_), _) => "not applicable",
            };
            assert_eq!(cells[1], status, "{row}");
            assert_eq!(cells[3].trim_matches('`'), default_cell(key.default), "{row}");
        }
    }
}

fn default_cell(default: &str) -> &str {
    match default {
        "" => "none",
        other => other.trim_matches(['(', ')']),
    }
}

#[test]
fn the_sample_has_no_findings_and_says_what_it_is_for() {
    let checked = Config::parse("docs/f-stack.conf", SAMPLE);
    assert_eq!(super::lines(&checked), [""; 0]);
    let port = &checked.config.ports[0];
    let addresses: Vec<String> = port.addresses().iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["198.18.0.2/24", "2001:2::2/64"]);
    assert_eq!(port.device.to_string(), "tap:ff0");
}

#[test]
fn what_the_sample_has_commented_out_is_right_too() {
    let opened: String = SAMPLE
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(rest) if !rest.starts_with(' ') && rest.contains('=') => format!("{rest}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    assert_ne!(opened, SAMPLE);
    assert_eq!(super::lines(&Config::parse("docs/f-stack.conf", &opened)), [""; 0]);
}

#[test]
fn the_sample_shows_values_in_effect_by_default() {
    // Whoever deletes a line of the sample other than an address changes nothing.
    let mut config = Config::parse("docs/f-stack.conf", SAMPLE).config;
    config.ports.clear();
    assert_eq!(config, Config::default());
}

#[test]
fn the_examples_of_findings_are_real() {
    for (line, text) in [(12, "[dpdk]\npkt_tx_delay=500"), (14, "[dpdk]\nidel_sleep=1")] {
        let padding = "\n".repeat(line - 2);
        let checked = super::parse(&format!("{padding}{text}"));
        let sentence = &super::lines(&checked)[0];
        assert!(CONFIGURATION.contains(sentence.as_str()), "{sentence}");
    }
}
