//! f-stack.conf: text to findings, typed configuration and device digest.
//!
//! [`Config::parse`] is pure and never fails: it returns what it could read beside every [`Finding`], each a
//! sentence with file and line. One table (`keys`) knows every section and key; reading, checking,
//! [`Config::effective`], [`Config::device_digest`] and `docs/configuration.md` all go by it.
#![forbid(unsafe_code)]

mod check;
mod device;
mod document;
mod effective;
mod finding;
mod ini;
mod keys;
mod nearest;
mod port;
mod read;
mod settings;
mod tcp_settings;
#[cfg(test)]
mod tests;
mod value;

pub use device::{Device, DeviceError, IFNAME_BYTES_MAX, MacAddr, PciAddress};
pub use document::key_tables;
pub use effective::{DeviceChange, Digest, device_changes, device_keys};
pub use finding::{Finding, Severity};
pub use ipnet::IpNet;
pub use port::Port;
pub use read::{Checked, FILE_BYTES_MAX, LoadError};
pub use settings::{Config, Dpdk, Instance, Kernel, Limits, Nginx, NoFreeSlot, Reload, Udp};
pub use tcp_settings::{Congestion, Ecn, Tcp};
