//! Values: how each kind of value is written, what is allowed, and how it is read and printed.
//!
//! [`Kind`] is data (it stands in the key table and in the documentation), [`Setting`] ties it to the type of the
//! field that it fills. What `write` prints, `read` reads back as the same value.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::str::FromStr;

use ipnet::IpNet;

use crate::device::{Device, MacAddr, PciAddress};
use crate::finding::quoted;

/// How a key's value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `0` or `1`.
    Flag,
    /// A decimal number from `min` to `max`, of `unit` (may be empty).
    Number { min: u64, max: u64, unit: &'static str },
    /// A power of two from `min` to `max`.
    PowerOfTwo { min: u64, max: u64 },
    /// Bytes from `min` to `max`, with an optional suffix K, M or G (powers of 1024).
    Size { min: u64, max: u64 },
    /// A hexadecimal number.
    Hex,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A hexadecimal mask of CPUs.
    CpuMask,
    /// An IPv4 address.
    Ipv4,
    /// An IPv4 netmask in dotted form.
    Netmask,
    /// An IPv6 address.
    Ipv6,
    /// `;`-separated IPv4 addresses, at most 64.
    Ipv4List,
    /// `;`-separated IPv6 addresses, at most 64.
    Ipv6List,
    /// `;`-separated IP addresses or prefixes.
    Prefixes,
    /// `;`-separated transport ports and ranges `first-last`.
    PortRanges,
    /// `,`-separated numbers N of `[portN]` and ranges `first-last`.
    PortNumbers,
    /// A MAC address.
    Mac,
    /// What `[portN] device=` takes.
    Device,
    /// `,`- or `;`-separated PCI addresses.
    PciList,
    /// An absolute path.
    Path,
    /// Letters, digits, `_`, `-`, `.`: at most `chars_max`.
    Name { chars_max: usize },
    /// `0` to `8`, or `pattern:level`.
    LogLevel,
    /// Arguments as in a shell.
    Arguments,
    /// Anything: a key whose value is not used.
    Ignored,
}

/// The most addresses that a list takes, as in F-Stack.
pub(crate) const LIST_MAX: usize = 64;
/// The highest N of `[portN]`: DPDK's `RTE_MAX_ETHPORTS` less one.
pub(crate) const PORT_NUMBER_MAX: u16 = 31;
/// CPU numbers below this fit into a mask.
const CPUS_MAX: usize = 1024;

impl Kind {
    /// What is allowed, in words that follow "allowed: ".
    pub fn allowed(&self) -> String {
        match self {
            Kind::Flag => "0 or 1".into(),
            Kind::Number { min, max, unit: "" } => format!("{min} to {max}"),
            Kind::Number { min, max, unit } => format!("{min} to {max} {unit}"),
            Kind::PowerOfTwo { min, max } => format!("a power of two from {min} to {max}"),
            Kind::Size { min, max } => {
                format!(
                    "{} to {} bytes, with or without a suffix K, M or G",
                    size_text(*min),
                    size_text(*max)
                )
            }
            Kind::Hex => "a hexadecimal number such as 0x100000000".into(),
            Kind::Choice(words) => format!("one of {}", words.join(", ")),
            Kind::CpuMask => "a hexadecimal mask of CPUs 0 to 1023 with a bit set, such as f".into(),
            Kind::Ipv4 => "an IPv4 address such as 198.18.0.2".into(),
            Kind::Netmask => "255.255.255.0 and the like: ones, then zeros, not all zeros".into(),
            Kind::Ipv6 => "an IPv6 address such as 2001:2::2".into(),
            Kind::Ipv4List => format!("up to {LIST_MAX} IPv4 addresses with ';' between them"),
            Kind::Ipv6List => format!("up to {LIST_MAX} IPv6 addresses with ';' between them"),
            Kind::Prefixes => format!("up to {LIST_MAX} IP addresses or prefixes with ';' between them"),
            Kind::PortRanges => {
                format!("up to {LIST_MAX} ports (1 to 65535) or ranges a-b with ';' between them")
            }
            Kind::PortNumbers => {
                format!("numbers 0 to {PORT_NUMBER_MAX} or ranges a-b with ',' between them")
            }
            Kind::Mac => "a unicast MAC address such as 02:00:00:00:00:01".into(),
            Kind::Device => "tap:<interface>, af_packet:<interface>, pci:<address> or wire".into(),
            Kind::PciList => "PCI addresses such as 02:00.0 or 0000:02:00.0 with ',' between them".into(),
            Kind::Path => "an absolute path of at most 255 bytes without quotes, '\\', '#' and ';'".into(),
            Kind::Name { chars_max } => format!("1 to {chars_max} of the characters A-Z a-z 0-9 _ - ."),
            Kind::LogLevel => "0 to 8, or pattern:level such as lib.eal:debug".into(),
            Kind::Arguments => "arguments separated by blanks, quoted as in a shell".into(),
            Kind::Ignored => "anything".into(),
        }
    }
}

/// A field that a key of some [`Kind`] fills.
pub(crate) trait Setting: Sized {
    /// Reads `text`; the error says what is wrong with it, without what is allowed.
    fn read(kind: &Kind, text: &str) -> Result<Self, String>;
    /// The text that `read` makes this value of; None for a value that is not set.
    fn write(&self, kind: &Kind) -> Option<String>;
}

impl Setting for bool {
    fn read(_: &Kind, text: &str) -> Result<Self, String> {
        match text {
            "0" => Ok(false),
            "1" => Ok(true),
            _ => Err(format!("{} is neither 0 nor 1", quoted(text))),
        }
    }

    fn write(&self, _: &Kind) -> Option<String> {
        Some(if *self { "1" } else { "0" }.into())
    }
}

impl Setting for u64 {
    fn read(kind: &Kind, text: &str) -> Result<Self, String> {
        match *kind {
            Kind::Hex => read_hex(text),
            Kind::Size { min, max } => within(read_size(text)?, text, min, max),
            Kind::PowerOfTwo { min, max } => {
                let number = within(read_number(text)?, text, min, max)?;
                if number.is_power_of_two() {
                    Ok(number)
                } else {
                    Err(format!("{number} is no power of two"))
                }
            }
            Kind::Number { min, max, .. } => within(read_number(text)?, text, min, max),
            _ => read_number(text),
        }
    }

    fn write(&self, kind: &Kind) -> Option<String> {
        Some(match kind {
            Kind::Hex => format!("{self:#x}"),
            Kind::Size { .. } => size_text(*self),
            _ => self.to_string(),
        })
    }
}

/// The narrower integers: the kind's range is what keeps the number inside the type, and a test of the whole
/// table checks that it does; a number beyond the type is refused all the same.
macro_rules! narrow_integer {
    ($($type:ty),*) => {$(
        impl Setting for $type {
            fn read(kind: &Kind, text: &str) -> Result<Self, String> {
                let number = u64::read(kind, text)?;
                <$type>::try_from(number).map_err(|_| format!("{number} is too large"))
            }

            fn write(&self, kind: &Kind) -> Option<String> {
                u64::from(*self).write(kind)
            }
        }
    )*};
}
narrow_integer!(u8, u16, u32);

fn read_number(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("{} is no number", quoted(text)));
    }
    if digits.len() < text.len() {
        return Err(format!("{} is negative", quoted(text)));
    }
    digits.parse().map_err(|_| format!("{} is too large", quoted(text)))
}

fn within(number: u64, text: &str, min: u64, max: u64) -> Result<u64, String> {
    if number < min {
        Err(format!("{} is too small", quoted(text)))
    } else if number > max {
        Err(format!("{} is too large", quoted(text)))
    } else {
        Ok(number)
    }
}

fn read_hex(text: &str) -> Result<u64, String> {
    let digits = hex_digits(text).ok_or_else(|| format!("{} is no hexadecimal number", quoted(text)))?;
    u64::from_str_radix(digits, 16).map_err(|_| format!("{} is too large", quoted(text)))
}

fn hex_digits(text: &str) -> Option<&str> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit())).then_some(digits)
}

fn read_size(text: &str) -> Result<u64, String> {
    let shift = match text.as_bytes().last() {
        Some(b'k' | b'K') => 10,
        Some(b'm' | b'M') => 20,
        Some(b'g' | b'G') => 30,
        _ => 0,
    };
    let digits = if shift > 0 { &text[..text.len() - 1] } else { text };
    let number = read_number(digits).map_err(|_| format!("{} is no number of bytes", quoted(text)))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{} is too large", quoted(text)))
}

/// The shortest text of a number of bytes that loses nothing.
fn size_text(bytes: u64) -> String {
    for (shift, suffix) in [(30, "G"), (20, "M"), (10, "K")] {
        if bytes > 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{suffix}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// Types whose FromStr and Display are the format, with what to say when FromStr has no reason of its own.
macro_rules! from_str {
    ($type:ty, $wrong:expr) => {
        impl Setting for $type {
            fn read(_: &Kind, text: &str) -> Result<Self, String> {
                <$type>::from_str(text).map_err(|error| $wrong(text, error))
            }

            fn write(&self, _: &Kind) -> Option<String> {
                Some(self.to_string())
            }
        }
    };
}
from_str!(Ipv4Addr, |text, _| format!("{} is no IPv4 address", quoted(text)));
from_str!(Ipv6Addr, |text, _| format!("{} is no IPv6 address", quoted(text)));
from_str!(MacAddr, |_, error: crate::DeviceError| error.to_string());
from_str!(Device, |_, error: crate::DeviceError| error.to_string());
from_str!(PciAddress, |_, error: crate::DeviceError| error.to_string());

impl Setting for IpNet {
    fn read(_: &Kind, text: &str) -> Result<Self, String> {
        let net = IpNet::from_str(text)
            .or_else(|_| std::net::IpAddr::from_str(text).map(IpNet::from))
            .map_err(|_| format!("{} is neither an IP address nor a prefix", quoted(text)))?;
        if net.trunc() != net {
            return Err(format!("{net} has bits set beyond its prefix length: {} is meant", net.trunc()));
        }
        Ok(net)
    }

    fn write(&self, _: &Kind) -> Option<String> {
        Some(self.to_string())
    }
}

/// A port or an inclusive range of ports.
impl Setting for (u16, u16) {
    fn read(kind: &Kind, text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            u16::from_str(text.trim()).map_err(|_| format!("{} is no number of a port", quoted(text.trim())))
        };
        let (first, last) = match text.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(text)?, number(text)?),
        };
        if first > last {
            return Err(format!("the range {first}-{last} ends before it begins"));
        }
        match kind {
            Kind::PortRanges if first == 0 => Err("port 0 cannot be bound".into()),
            Kind::PortNumbers if last > PORT_NUMBER_MAX => Err(format!("{last} is too large")),
            _ => Ok((first, last)),
        }
    }

    fn write(&self, _: &Kind) -> Option<String> {
        let (first, last) = self;
        Some(if first == last { first.to_string() } else { format!("{first}-{last}") })
    }
}

impl Setting for String {
    fn read(kind: &Kind, text: &str) -> Result<Self, String> {
        let allowed: fn(char) -> bool = match kind {
            Kind::LogLevel => |c| c.is_ascii_alphanumeric() || "_-.*:,+?[]^".contains(c),
            _ => |c| c.is_ascii_alphanumeric() || "_-.".contains(c),
        };
        if let Some(bad) = text.chars().find(|&c| !allowed(c)) {
            return Err(format!("{bad:?} cannot be in {}", quoted(text)));
        }
        match kind {
            _ if text.is_empty() => Err("it has no value".into()),
            Kind::Name { chars_max } if text.len() > *chars_max => {
                Err(format!("{} is longer than {chars_max} characters", quoted(text)))
            }
            Kind::Name { .. } if text.starts_with(['.', '-']) => {
                Err(format!("{} begins with {:?}", quoted(text), &text[..1]))
            }
            Kind::LogLevel => match text.rsplit_once(':') {
                Some((pattern, level)) if !pattern.is_empty() && !level.is_empty() => Ok(text.into()),
                None if matches!(text.parse(), Ok(0..=8u8)) && text.len() == 1 => Ok(text.into()),
                _ => Err(format!("{} is no log level", quoted(text))),
            },
            _ => Ok(text.into()),
        }
    }

    fn write(&self, _: &Kind) -> Option<String> {
        Some(self.clone())
    }
}

impl Setting for PathBuf {
    fn read(_: &Kind, text: &str) -> Result<Self, String> {
        if let Some(bad) = text.chars().find(|&c| c.is_control() || "\"'\\#;".contains(c)) {
            return Err(format!("{bad:?} cannot be in the path {}", quoted(text)));
        }
        if !text.starts_with('/') {
            return Err(format!("the path {} does not begin with '/'", quoted(text)));
        }
        if text.len() > 255 {
            return Err(format!("the path {} is longer than 255 bytes", quoted(text)));
        }
        Ok(text.into())
    }

    fn write(&self, _: &Kind) -> Option<String> {
        Some(self.to_string_lossy().into_owned())
    }
}

/// A key that may be left without a value.
impl<T: Setting> Setting for Option<T> {
    fn read(kind: &Kind, text: &str) -> Result<Self, String> {
        if text.is_empty() { Ok(None) } else { T::read(kind, text).map(Some) }
    }

    fn write(&self, kind: &Kind) -> Option<String> {
        self.as_ref().and_then(|value| value.write(kind))
    }
}

/// A list; empty when nothing is written. `;` separates, and `,` where F-Stack's key has it.
impl<T: Setting + PartialEq> Setting for Vec<T> {
    fn read(kind: &Kind, text: &str) -> Result<Self, String> {
        let separators: &[char] = match kind {
            Kind::PciList | Kind::PortNumbers => &[',', ';'],
            _ => &[';'],
        };
        let mut list = Vec::new();
        for part in text.split(separators).map(str::trim).filter(|part| !part.is_empty()) {
            let value = T::read(kind, part)?;
            if list.contains(&value) {
                return Err(format!("{} is in the list twice", quoted(part)));
            }
            if list.len() == LIST_MAX {
                return Err(format!("there are more than {LIST_MAX} entries"));
            }
            list.push(value);
        }
        Ok(list)
    }

    fn write(&self, kind: &Kind) -> Option<String> {
        let separator = if matches!(kind, Kind::PciList | Kind::PortNumbers) { "," } else { ";" };
        let parts: Vec<String> = self.iter().filter_map(|value| value.write(kind)).collect();
        Some(parts.join(separator))
    }
}

/// A netmask in dotted form as a prefix length.
pub(crate) fn read_netmask(text: &str) -> Result<Option<u8>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let mask = Ipv4Addr::read(&Kind::Ipv4, text).map_err(|_| format!("{} is no netmask", quoted(text)))?;
    let bits = mask.to_bits();
    if bits == 0 || bits.leading_ones() + bits.trailing_zeros() != 32 {
        return Err(format!("{mask} is no netmask"));
    }
    Ok(Some(bits.leading_ones() as u8))
}

/// The dotted form of a prefix length of 1 to 32.
pub(crate) fn netmask_text(prefix_len: u8) -> String {
    Ipv4Addr::from_bits(u32::MAX.checked_shl(32 - u32::from(prefix_len)).unwrap_or(0)).to_string()
}

/// A mask of CPUs as their numbers in ascending order; none when nothing is written.
pub(crate) fn read_cpu_mask(text: &str) -> Result<Vec<u32>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let digits = hex_digits(text).ok_or_else(|| format!("{} is no hexadecimal mask", quoted(text)))?;
    let mut cpus = Vec::new();
    for (place, digit) in digits.chars().rev().enumerate() {
        let nibble = digit.to_digit(16).unwrap_or(0);
        if nibble != 0 && place >= CPUS_MAX / 4 {
            return Err(format!("{} names CPUs beyond {}", quoted(text), CPUS_MAX - 1));
        }
        cpus.extend((0..4).filter(|bit| nibble & (1 << bit) != 0).map(|bit| place as u32 * 4 + bit));
    }
    if cpus.is_empty() {
        return Err(format!("{} has no bit set", quoted(text)));
    }
    Ok(cpus)
}

/// The mask of some CPUs; None for none.
pub(crate) fn cpu_mask_text(cpus: &[u32]) -> Option<String> {
    let highest = *cpus.iter().max()? as usize;
    let mut nibbles = vec![0u8; highest / 4 + 1];
    for &cpu in cpus {
        nibbles[cpu as usize / 4] |= 1 << (cpu % 4);
    }
    Some(nibbles.iter().rev().map(|nibble| format!("{nibble:x}")).collect())
}

/// Arguments, split as a shell would.
pub(crate) fn read_arguments(text: &str) -> Result<Vec<String>, String> {
    shell_words::split(text).map_err(|_| format!("a quote in {} is not closed", quoted(text)))
}

/// Arguments, quoted so that they are split again into the same.
pub(crate) fn arguments_text(arguments: &[String]) -> String {
    shell_words::join(arguments)
}
