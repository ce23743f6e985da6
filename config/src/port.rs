//! `[portN]`: a device and the addresses that the stack has on it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::device::{Device, MacAddr};

/// One port: a device and its addresses. Either `addr` or `addr6` is always there in a configuration without
/// errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// N of `[portN]` (0 to 31).
    pub number: u16,
    /// `device`: what carries its packets.
    pub device: Device,
    /// `mac`. None: the device's own.
    pub mac: Option<MacAddr>,
    /// `queues` (1 to 64). None: one for each nginx worker.
    pub queues: Option<u16>,
    /// `mtu`, bytes of an IP packet (576 to 9 000). Default 1 500.
    pub mtu: u16,
    /// `addr`.
    pub addr: Option<Ipv4Addr>,
    /// `netmask` as a prefix length (1 to 32); always there when `addr` is.
    pub netmask_len: Option<u8>,
    /// `broadcast`, which equals the subnet's last address. None: that address.
    pub broadcast: Option<Ipv4Addr>,
    /// `gateway`, inside the subnet. None: no IPv4 default route on this port.
    pub gateway: Option<Ipv4Addr>,
    /// `vip_addr`: further IPv4 addresses, each a /32.
    pub vip_addr: Vec<Ipv4Addr>,
    /// `addr6`.
    pub addr6: Option<Ipv6Addr>,
    /// `prefix_len` of `addr6` (1 to 128). Default 64.
    pub prefix_len: u8,
    /// `gateway6`, inside the prefix or link-local. None: no IPv6 default route on this port.
    pub gateway6: Option<Ipv6Addr>,
    /// `vip_addr6`: further IPv6 addresses.
    pub vip_addr6: Vec<Ipv6Addr>,
    /// `vip_prefix_len` of each `vip_addr6` (1 to 128). Default 64.
    pub vip_prefix_len: u8,
}

impl Port {
    /// Port `number` with every key at its default and no address.
    pub fn new(number: u16) -> Self {
        Port {
            number,
            device: Device::default_for(number),
            mac: None,
            queues: None,
            mtu: 1_500,
            addr: None,
            netmask_len: None,
            broadcast: None,
            gateway: None,
            vip_addr: Vec::new(),
            addr6: None,
            prefix_len: 64,
            gateway6: None,
            vip_addr6: Vec::new(),
            vip_prefix_len: 64,
        }
    }

    /// Every address of the port with its prefix: `addr`, `vip_addr`, `addr6`, `vip_addr6`, in this order.
    pub fn addresses(&self) -> Vec<IpNet> {
        let v4 = self.addr.map(|ip| (IpAddr::V4(ip), self.netmask_len.unwrap_or(32)));
        let vip4 = self.vip_addr.iter().map(|&ip| (IpAddr::V4(ip), 32));
        let v6 = self.addr6.map(|ip| (IpAddr::V6(ip), self.prefix_len));
        let vip6 = self.vip_addr6.iter().map(|&ip| (IpAddr::V6(ip), self.vip_prefix_len));
        v4.into_iter()
            .chain(vip4)
            .chain(v6)
            .chain(vip6)
            .filter_map(|(ip, len)| IpNet::new(ip, len).ok())
            .collect()
    }
}
