//! The network layer of one worker: Ethernet, ARP, IPv4, IPv6, NDP, ICMP, routes and neighbours.

pub mod addresses;
pub mod checksum;
mod extension;
mod hop_cache;
pub mod icmp;
pub(crate) mod layer;
pub mod link_address;
pub mod output;
pub mod parse;
mod pmtu;
pub mod reassembly;
mod waiting;
