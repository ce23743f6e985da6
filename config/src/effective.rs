//! The effective configuration as text, and the device-side part of it as a digest.

use std::fmt::{self, Write};
use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::keys::{Key, SECTIONS, Section, Status};
use crate::settings::Config;

/// A digest of the device-side keys. Two configurations with the same digest differ in nothing that a running
/// primary cannot change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Digest(pub u64);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A device-side key whose value differs between two configurations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceChange {
    /// Section and key, such as `[port0] mtu`.
    pub key: String,
    /// What it is in the running primary; None when it has no such key, or the key is not set.
    pub running: Option<String>,
    /// What it is in the new configuration; None likewise.
    pub new: Option<String>,
}

impl fmt::Display for DeviceChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "(not set)".into());
        write!(f, "{}: {} is now {}", self.key, text(&self.running), text(&self.new))
    }
}

impl Config {
    /// The effective configuration as an INI file: every key that works, derived defaults filled in. Parsing it
    /// gives the same configuration again.
    pub fn effective(&self) -> String {
        let mut text = String::new();
        for (name, at, section) in self.sections() {
            if !section.keys.iter().any(|key| key.get.is_some()) {
                continue;
            }
            let separator = if text.is_empty() { "" } else { "\n" };
            let _ = writeln!(text, "{separator}[{name}]");
            for key in section.keys {
                let Some(get) = key.get else { continue };
                let _ = match get(self, at, &key.kind) {
                    Some(value) => writeln!(text, "{}={value}", key.name),
                    None if key.default.is_empty() => writeln!(text, "# {}= is not set", key.name),
                    None => writeln!(text, "# {}= is not set {}", key.name, key.default),
                };
            }
        }
        text
    }

    /// The device-side keys as canonical lines `[section] key=value`, in the order of the key table; the digest
    /// is over these. A key that is not set is left out.
    pub fn device_text(&self) -> String {
        let mut text = String::new();
        for (name, at, section) in self.sections() {
            for key in section.keys.iter().filter(|key| key.device) {
                if let Some(value) = key.get.and_then(|get| get(self, at, &key.kind)) {
                    let _ = writeln!(text, "[{name}] {}={value}", key.name);
                }
            }
        }
        text
    }

    /// The digest of the device-side keys (SipHash-2-4 of [`Config::device_text`] under a fixed key, so that it is
    /// the same in every process and release).
    pub fn device_digest(&self) -> Digest {
        let mut hasher = SipHasher24::new_with_key(b"ffstack device 1");
        hasher.write(self.device_text().as_bytes());
        Digest(hasher.finish())
    }

    /// How far a TCP receive buffer grows, bytes: the least of what `[limits] rcv_buf_max`,
    /// `net.inet.tcp.recvbuf_max` and `kern.ipc.maxsockbuf` allow.
    pub fn rcv_buf_max_bytes(&self) -> u64 {
        least(self.limits.rcv_buf_max_bytes, self.tcp.recvbuf_max_bytes, self.tcp.maxsockbuf_bytes)
    }

    /// How far a TCP send buffer grows, bytes; as [`Config::rcv_buf_max_bytes`].
    pub fn snd_buf_max_bytes(&self) -> u64 {
        least(self.limits.snd_buf_max_bytes, self.tcp.sendbuf_max_bytes, self.tcp.maxsockbuf_bytes)
    }

    /// Every section that works, with its name, and its place in `ports` if it is one.
    fn sections(&self) -> impl Iterator<Item = (String, usize, &'static Section)> {
        SECTIONS.iter().filter(|section| section.status == Status::Works).flat_map(|section| {
            let places: Vec<(String, usize)> = match section.numbered {
                true => self
                    .ports
                    .iter()
                    .enumerate()
                    .map(|(at, port)| (format!("port{}", port.number), at))
                    .collect(),
                false => vec![(section.name.to_owned(), 0)],
            };
            places.into_iter().map(move |(name, at)| (name, at, *section))
        })
    }
}

fn least(limit: u64, auto_max: Option<u64>, ceiling: u64) -> u64 {
    limit.min(auto_max.unwrap_or(u64::MAX)).min(ceiling)
}

/// The keys in which two results of [`Config::device_text`] differ, those of `running` first.
pub fn device_changes(running: &str, new: &str) -> Vec<DeviceChange> {
    let lines = |text: &str| -> Vec<(String, String)> {
        text.lines()
            .filter_map(|line| line.split_once('='))
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect()
    };
    let (running, new) = (lines(running), lines(new));
    let value = |lines: &[(String, String)], key: &str| {
        lines.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone())
    };
    let added = new.iter().filter(|(key, _)| value(&running, key).is_none());
    running
        .iter()
        .chain(added)
        .map(|(key, _)| DeviceChange {
            key: key.clone(),
            running: value(&running, key),
            new: value(&new, key),
        })
        .filter(|change| change.running != change.new)
        .collect()
}

/// The device-side keys, as `[section] key`, in the order of the digest.
pub fn device_keys() -> impl Iterator<Item = String> {
    fn names(section: &&'static Section) -> impl Iterator<Item = String> {
        let pattern = section.pattern();
        section
            .keys
            .iter()
            .filter(|key: &&Key| key.device)
            .map(move |key| format!("[{pattern}] {}", key.name))
    }
    SECTIONS.iter().flat_map(names)
}
