//! What carries a port's packets, as `[portN] device=` and `mac=` name it.

use std::fmt;
use std::str::FromStr;

use crate::finding::quoted;

/// `[portN] device=`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Device {
    /// `tap:<ifname>`: DPDK's TAP driver; the interface is made at start.
    Tap(String),
    /// `af_packet:<ifname>`: mapped packet sockets on an interface that is there already.
    AfPacket(String),
    /// `pci:<address>`: a NIC bound to a DPDK driver.
    Pci(PciAddress),
    /// `wire`: the in-memory wire, two ports joined by rings, for benchmarks and tests.
    Wire,
}

/// A PCI address, `domain:bus:device.function`, all hexadecimal; the domain may be left out when written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PciAddress {
    /// 0 to 0xffff.
    pub domain: u16,
    /// 0 to 0xff.
    pub bus: u8,
    /// 0 to 0x1f.
    pub device: u8,
    /// 0 to 7.
    pub function: u8,
}

/// A unicast Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddr(pub [u8; 6]);

/// Why a device, PCI address or MAC address cannot be used; the sentence says what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DeviceError(String);

/// An interface name has at most this many bytes (Linux `IFNAMSIZ` less its terminating zero).
pub const IFNAME_BYTES_MAX: usize = 15;

impl Device {
    /// `tap:ff<port>`, what a port is when nothing is said.
    pub fn default_for(port: u16) -> Self {
        Device::Tap(format!("ff{port}"))
    }

    /// The kernel's interface name, of a device that has one.
    pub fn ifname(&self) -> Option<&str> {
        match self {
            Device::Tap(name) | Device::AfPacket(name) => Some(name),
            Device::Pci(_) | Device::Wire => None,
        }
    }
}

impl FromStr for Device {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        match text.split_once(':') {
            None if text == "wire" => Ok(Device::Wire),
            Some(("tap", name)) => Ok(Device::Tap(ifname(name)?)),
            Some(("af_packet", name)) => Ok(Device::AfPacket(ifname(name)?)),
            Some(("pci", address)) => Ok(Device::Pci(address.parse()?)),
            _ => Err(DeviceError(format!("{} names no kind of device", quoted(text)))),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Tap(name) => write!(f, "tap:{name}"),
            Device::AfPacket(name) => write!(f, "af_packet:{name}"),
            Device::Pci(address) => write!(f, "pci:{address}"),
            Device::Wire => write!(f, "wire"),
        }
    }
}

/// Accepts what Linux accepts as a name, less the characters that mean something to DPDK's device arguments or
/// to this file format.
fn ifname(name: &str) -> Result<String, DeviceError> {
    if name.is_empty() || name.len() > IFNAME_BYTES_MAX {
        return Err(DeviceError(format!(
            "an interface name has 1 to {IFNAME_BYTES_MAX} characters, {} has {}",
            quoted(name),
            name.len()
        )));
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if let Some(bad) = name.chars().find(|&c| !allowed(c)) {
        return Err(DeviceError(format!(
            "{bad:?} cannot be in the interface name {name:?}: it has letters, digits, '_', '-' and '.'"
        )));
    }
    if name == "." || name == ".." {
        return Err(DeviceError(format!("{name:?} is no interface name")));
    }
    Ok(name.to_owned())
}

impl FromStr for PciAddress {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        let wrong = || DeviceError(format!("{} is no PCI address such as 0000:02:00.0", quoted(text)));
        let hex = |digits: &str, len: usize, max: u16| {
            let fits = digits.len() == len && digits.bytes().all(|b| b.is_ascii_hexdigit());
            u16::from_str_radix(digits, 16).ok().filter(|&n| fits && n <= max)
        };
        let (rest, function) = text.rsplit_once('.').ok_or_else(wrong)?;
        let (rest, device) = rest.rsplit_once(':').ok_or_else(wrong)?;
        let (domain, bus) = rest.rsplit_once(':').unwrap_or(("0000", rest));
        Ok(PciAddress {
            domain: hex(domain, 4, 0xffff).ok_or_else(wrong)?,
            bus: hex(bus, 2, 0xff).ok_or_else(wrong)? as u8,
            device: hex(device, 2, 0x1f).ok_or_else(wrong)? as u8,
            function: hex(function, 1, 7).ok_or_else(wrong)? as u8,
        })
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

impl FromStr for MacAddr {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        let wrong = || DeviceError(format!("{} is no MAC address such as 02:00:00:00:00:01", quoted(text)));
        let mut octets = [0u8; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts.next().ok_or_else(wrong)?;
            if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(wrong());
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() {
            return Err(wrong());
        }
        if octets == [0; 6] || octets[0] & 1 == 1 {
            return Err(DeviceError(format!("{text} is no unicast address of one device")));
        }
        Ok(MacAddr(octets))
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}
