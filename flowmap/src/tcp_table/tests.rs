use super::*;
use crate::memory::HeapMemory;

const KEY: HashKey = *b"fedcba9876543210";
const OWNER: Owner = Owner { epoch: 1, pid: 100 };

fn table(capacity: u32) -> HeapMemory {
    let memory = HeapMemory::new(tcp_table_bytes(capacity));
    format_tcp_table(memory.region(), capacity, KEY).unwrap();
    memory
}

fn key(n: u32) -> FlowKey {
    let remote = std::net::Ipv4Addr::from(0xc612_0000 + n / 1_000);
    let port = 10_000 + (n % 1_000) as u16;
    FlowKey::new(6, "198.19.0.2:80".parse().unwrap(), (remote, port).into())
}

#[cfg(loom)]
mod model;
#[cfg(not(loom))]
mod plain;
