//! The one table of sections and keys. Reading, checking, printing, the device digest and the documentation all
//! go by it; nothing else in this crate names a key to be read.

mod dpdk;
mod freebsd;
mod others;
mod ours;
mod port;

use crate::settings::Config;
use crate::value::Kind;

/// What becomes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// It takes effect.
    Works,
    /// It is harmless and changes nothing, for this reason.
    NoEffect(&'static str),
    /// It asks for something that is not offered, for this reason.
    NotApplicable(&'static str),
}

/// Fills the field of the key: of the whole configuration, or of `ports[usize]`.
pub(crate) type Set = fn(&mut Config, usize, &Kind, &str) -> Result<(), String>;
/// Prints the field of the key; None when it is not set.
pub(crate) type Get = fn(&Config, usize, &Kind) -> Option<String>;

/// One key.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    pub name: &'static str,
    pub status: Status,
    pub kind: Kind,
    /// The default as it would be written, or in parentheses how it comes about.
    pub default: &'static str,
    /// A fixed property of the running primary: part of the device digest.
    pub device: bool,
    pub meaning: &'static str,
    /// There for every key that works.
    pub set: Option<Set>,
    /// There for every key that works, but for a second name of another key.
    pub get: Option<Get>,
}

/// One section.
pub(crate) struct Section {
    /// Its name; of a numbered one, the part before the number.
    pub name: &'static str,
    /// Whether a number follows the name.
    pub numbered: bool,
    /// `Works` unless the section is left out as a whole, whose keys then have the same status.
    pub status: Status,
    pub meaning: &'static str,
    pub keys: &'static [Key],
    /// Whether it is open for names that the table does not know: FreeBSD's tunables.
    pub open: bool,
}

/// Every section, in the order in which they are printed, documented and applied.
pub(crate) static SECTIONS: &[&Section] = &[
    &ours::INSTANCE,
    &dpdk::DPDK,
    &port::PORT,
    &ours::NGINX,
    &ours::KERNEL,
    &ours::LIMITS,
    &ours::RELOAD,
    &freebsd::BOOT,
    &freebsd::SYSCTL,
    &others::PCAP,
    &others::VLAN,
    &others::VDEV,
    &others::BOND,
    &others::RSS_CHECK,
    &others::KNI,
    &others::STACK,
];

impl Key {
    /// Marks a device-side key.
    const fn device(mut self) -> Self {
        self.device = true;
        self
    }
}

impl Section {
    /// The key of this name.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// How the name stands in documentation: `portN` for a numbered one.
    pub fn pattern(&self) -> String {
        format!("{}{}", self.name, if self.numbered { "N" } else { "" })
    }

    /// Whether `name` is this section's, and its number (0 for a section without).
    pub fn matches(&self, name: &str) -> Option<u32> {
        let rest = name.strip_prefix(self.name)?;
        match self.numbered {
            false => rest.is_empty().then_some(0),
            true if rest.bytes().all(|b| b.is_ascii_digit()) && !rest.is_empty() => {
                // A number beyond u32 is refused as too large, like every number that is.
                Some(rest.parse().unwrap_or(u32::MAX))
            }
            true => None,
        }
    }
}

/// The section that `name` belongs to, and its number.
pub(crate) fn section(name: &str) -> Option<(&'static Section, u32)> {
    SECTIONS.iter().find_map(|section| Some((*section, section.matches(name)?)))
}

/// A key that works: name, kind, default, field of `Config`, meaning.
macro_rules! works {
    ($name:literal, $kind:expr, $default:literal, $($field:ident).+, $meaning:expr) => {
        $crate::keys::Key {
            name: $name,
            status: $crate::keys::Status::Works,
            kind: $kind,
            default: $default,
            device: false,
            meaning: $meaning,
            set: Some(|config, _, kind, text| {
                config.$($field).+ = $crate::value::Setting::read(kind, text)?;
                Ok(())
            }),
            get: Some(|config, _, kind| $crate::value::Setting::write(&config.$($field).+, kind)),
        }
    };
}

/// A key that works and is read and printed in its own way: name, kind, default, meaning, set, get.
macro_rules! works_by {
    ($name:literal, $kind:expr, $default:literal, $meaning:expr, $set:expr, $get:expr) => {
        $crate::keys::Key {
            name: $name,
            status: $crate::keys::Status::Works,
            kind: $kind,
            default: $default,
            device: false,
            meaning: $meaning,
            set: Some($set),
            get: $get,
        }
    };
}

/// A key that changes nothing: name, F-Stack's default, reason.
macro_rules! no_effect {
    ($name:literal, $default:literal, $reason:expr) => {
        $crate::keys::unused($name, $default, $crate::keys::Status::NoEffect($reason))
    };
}

/// A key whose purpose is not offered: name, F-Stack's default, reason.
macro_rules! not_applicable {
    ($name:literal, $default:literal, $reason:expr) => {
        $crate::keys::unused($name, $default, $crate::keys::Status::NotApplicable($reason))
    };
}

/// Implements a setting whose values are words.
macro_rules! words {
    ($type:ident { $($variant:ident = $word:literal),* $(,)? }) => {
        impl $crate::value::Setting for $type {
            fn read(_: &$crate::value::Kind, text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok($type::$variant),)*
                    _ => Err(format!("{} is none of the choices", $crate::finding::quoted(text))),
                }
            }

            fn write(&self, _: &$crate::value::Kind) -> Option<String> {
                match self {
                    $($type::$variant => Some($word.into()),)*
                }
            }
        }
    };
}
use {no_effect, not_applicable, words, works, works_by};

const fn unused(name: &'static str, default: &'static str, status: Status) -> Key {
    Key { name, status, kind: Kind::Ignored, default, device: false, meaning: "", set: None, get: None }
}
