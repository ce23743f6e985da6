use super::*;
use crate::memory::HeapMemory;
use crate::owner::Owner;

const KEY: HashKey = [6; 16];
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn table(capacity: u32) -> HeapMemory {
    let memory = HeapMemory::new(neighbours_bytes(capacity));
    format_neighbours(memory.region(), capacity, KEY).unwrap();
    memory
}

fn writer(memory: &HeapMemory, pid: u32) -> NeighbourWriter<'_> {
    NeighbourWriter::open(memory.region(), Owner { epoch: 1, pid }).unwrap()
}

fn ip(n: u32) -> IpAddr {
    std::net::Ipv4Addr::from(0xc612_0000 + n).into()
}

#[cfg(loom)]
mod model;
#[cfg(not(loom))]
mod plain;
