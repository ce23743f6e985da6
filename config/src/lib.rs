//! f-stack.conf: text to findings, typed configuration and device digest.
#![forbid(unsafe_code)]

mod device;
mod finding;
mod port;
mod settings;
mod tcp_settings;

pub use device::{Device, DeviceError, IFNAME_BYTES_MAX, MacAddr, PciAddress};
pub use finding::{Finding, Severity};
pub use ipnet::IpNet;
pub use port::Port;
pub use settings::{Config, Dpdk, Instance, Kernel, Limits, Nginx, NoFreeSlot, Reload, Udp};
pub use tcp_settings::{Congestion, Ecn, Tcp};
