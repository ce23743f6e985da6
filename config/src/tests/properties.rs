//! Properties over arbitrary text and arbitrary configurations.

use proptest::prelude::*;

use crate::keys::{SECTIONS, Status};
use crate::value::Kind;
use crate::{Checked, Config};

/// A value for a key: mostly one that is good for it, sometimes anything.
fn value(kind: Kind) -> BoxedStrategy<String> {
    let good: BoxedStrategy<String> = match kind {
        Kind::Flag => "[01]".boxed(),
        Kind::Number { min, max, .. } => (min..=max).prop_map(|n| n.to_string()).boxed(),
        Kind::PowerOfTwo { min, max } => (min.trailing_zeros()..=max.trailing_zeros())
            .prop_map(|shift| (1u64 << shift).to_string())
            .boxed(),
        Kind::Size { min, max } => prop_oneof![
            (min..=max).prop_map(|n| n.to_string()),
            (min >> 10..=max >> 10).prop_map(|n| format!("{}k", n.max(1))),
        ]
        .boxed(),
        Kind::Hex => any::<u64>().prop_map(|n| format!("{n:#x}")).boxed(),
        Kind::Choice(words) => proptest::sample::select(words).prop_map(str::to_owned).boxed(),
        Kind::CpuMask => "(0x)?[0-9a-fA-F]{1,40}".boxed(),
        Kind::Ipv4 => "198\\.1[89]\\.[0-9]\\.[1-9]".boxed(),
        Kind::Netmask => (1u32..=32).prop_map(|len| crate::value::netmask_text(len as u8)).boxed(),
        Kind::Ipv6 => "2001:2:[0-9a-f]{1,4}::[1-9]".boxed(),
        Kind::Ipv4List => {
            proptest::collection::vec("198\\.19\\.[0-9]\\.[1-9]", 0..4).prop_map(|l| l.join(";")).boxed()
        }
        Kind::Ipv6List => {
            proptest::collection::vec("2001:2:[0-9]::[a-f]", 0..4).prop_map(|l| l.join(";")).boxed()
        }
        Kind::Prefixes => {
            proptest::collection::vec("10\\.[0-9]\\.0\\.0/16|fd[0-9]{2}::/16|127\\.0\\.0\\.1", 0..4)
                .prop_map(|l| l.join("; "))
                .boxed()
        }
        Kind::PortRanges => {
            proptest::collection::vec("[1-9][0-9]{0,3}|1-[1-9]", 0..4).prop_map(|l| l.join(";")).boxed()
        }
        Kind::PortNumbers => "(0|0,1|1|0-2|2,1)?".boxed(),
        Kind::Mac => "0[26](:[0-9a-f]{2}){5}".boxed(),
        Kind::Device => "tap:[a-z]{1,15}|af_packet:[a-z0-9._-]{1,15}|pci:0[0-9]:0[0-9]\\.[0-7]|wire".boxed(),
        Kind::PciList => "(0000:)?0[0-9]:1[0-9]\\.[0-7](,0[0-9]:00\\.0)?".boxed(),
        Kind::Path => "/[a-zA-Z0-9_./é -]{0,40}[a-z]".boxed(),
        Kind::Name { .. } => "[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}".boxed(),
        Kind::LogLevel => "[0-8]|lib\\.[a-z]{1,5}:(debug|[1-8])".boxed(),
        Kind::Arguments => {
            proptest::collection::vec("[ -~]{1,8}|.{1,4}", 0..4).prop_map(|l| shell_words::join(&l)).boxed()
        }
        Kind::Ignored => ".{0,10}".boxed(),
    };
    prop_oneof![20 => good, 1 => "[ -~]{0,12}"].boxed()
}

/// A file of known keys in known sections, with values that are mostly good.
fn file() -> impl Strategy<Value = String> {
    let mut sections: Vec<BoxedStrategy<String>> = Vec::new();
    for section in SECTIONS {
        let numbers = if section.numbered { 0..3 } else { 0..1 };
        for number in numbers {
            let name =
                if section.numbered { format!("{}{number}", section.name) } else { section.name.into() };
            let keys: Vec<BoxedStrategy<String>> = section
                .keys
                .iter()
                .map(|key| {
                    let often = if matches!(key.name, "addr" | "netmask" | "addr6") { 0.9 } else { 0.3 };
                    let line = value(key.kind).prop_map(move |value| format!("{}={value}\n", key.name));
                    proptest::option::weighted(often, line).prop_map(Option::unwrap_or_default).boxed()
                })
                .collect();
            let often = if section.status == Status::Works { 0.7 } else { 0.1 };
            let text = keys.prop_map(move |lines| format!("[{name}]\n{}", lines.concat()));
            sections
                .push(proptest::option::weighted(often, text).prop_map(Option::unwrap_or_default).boxed());
        }
    }
    sections.prop_map(|texts| texts.concat())
}

/// What holds for every text.
fn holds_for_any(text: &str) -> Result<Checked, TestCaseError> {
    let checked = Config::parse("f", text);
    let lines = text.lines().count();
    for finding in &checked.findings {
        prop_assert!(finding.line <= lines);
        prop_assert!(!finding.message.is_empty());
        prop_assert!(!finding.to_string().contains('\n'));
    }
    prop_assert!(checked.findings.is_sorted_by_key(|finding| (finding.line == 0, finding.line)));
    prop_assert_eq!(&checked, &Config::parse("f", text));
    Ok(checked)
}

/// What is printed is read as the same configuration, whatever was wrong with the text it came from.
fn round_trip(checked: &Checked) -> Result<(), TestCaseError> {
    let text = checked.config.effective();
    let again = Config::parse("f", &text);
    prop_assert_eq!(&again.config, &checked.config, "{}", text);
    prop_assert_eq!(&again.config.effective(), &text);
    prop_assert_eq!(again.config.device_digest(), checked.config.device_digest());
    if !checked.has_errors() {
        prop_assert!(!again.has_errors(), "{:?}\n{}", again.findings, text);
    }
    Ok(())
}

proptest! {
    // PROPTEST_CASES may ask for more.
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(512), ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_judged(text in any::<String>()) {
        round_trip(&holds_for_any(&text)?)?;
    }

    #[test]
    fn any_lines_are_judged(text in "([\\[\\]=;#\"'\\\\ \\t\\r\\n]|port[0-9]{1,3}|dpdk|addr|[0-9a-f.:/]{1,5}|é|\u{0}){0,60}") {
        round_trip(&holds_for_any(&text)?)?;
    }

    #[test]
    fn what_is_printed_is_read_as_the_same(text in file()) {
        round_trip(&holds_for_any(&text)?)?;
    }

    #[test]
    fn a_cut_file_is_judged(text in file(), at in any::<proptest::sample::Index>()) {
        let cut: String = text.chars().take(at.index(text.chars().count() + 1)).collect();
        holds_for_any(&cut)?;
    }
}

#[test]
fn a_large_hostile_file_takes_no_quadratic_time() {
    let start = std::time::Instant::now();
    let keys: String = (0..60_000).map(|n| format!("k{n}=1\n")).collect();
    let sections: String = (0..60_000).map(|n| format!("[s{n}]\n")).collect();
    let same: String = "mtu=1\nmtu=2\n".repeat(40_000);
    for text in [
        format!("[dpdk]\n{keys}"),
        sections,
        format!("[port0]\n{same}"),
        "[".repeat(1 << 20),
        "=".repeat(1 << 20),
    ] {
        assert!(!Config::parse("f", &text).findings.is_empty());
    }
    assert!(start.elapsed().as_secs() < 30, "{:?}", start.elapsed());
}
