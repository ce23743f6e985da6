//! What names a flow, and the index that maps it to a connection.
//!
//! The engine is generic over [`FlowIndex`]: in a worker the index is the flow
//! table in shared memory, so that demultiplexing and publishing are one and
//! the same store; in tests and client programs it is a [`HeapIndex`].

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use siphasher::sip::SipHasher13;

/// Key of a keyed hash: 16 random bytes, the same in all processes that share
/// a table. Without it a client could choose ports that all fall into one
/// bucket.
pub type HashKey = [u8; 16];

/// Names one flow as this host sees it: `local` is our end, `remote` the peer.
///
/// IPv4 addresses are kept v4-mapped (RFC 4291, section 2.5.5.2), and `family`
/// tells them from IPv6 addresses that merely look like that.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FlowKey {
    /// Our address, network byte order.
    pub local: [u8; 16],
    /// The peer's address, network byte order.
    pub remote: [u8; 16],
    /// Our port, host byte order.
    pub local_port: u16,
    /// The peer's port, host byte order.
    pub remote_port: u16,
    /// IP protocol number: 6 TCP, 17 UDP.
    pub protocol: u8,
    /// 4 or 6.
    pub family: u8,
    /// Always zero: there are no padding bytes with arbitrary contents.
    pad: [u8; 2],
}

/// Bytes of a [`FlowKey`], also in shared memory.
pub const FLOW_KEY_BYTES: usize = 40;

const _: () = assert!(size_of::<FlowKey>() == FLOW_KEY_BYTES);
const _: () = assert!(std::mem::offset_of!(FlowKey, local_port) == 32);
const _: () = assert!(std::mem::offset_of!(FlowKey, protocol) == 36);

impl FlowKey {
    /// The key of the flow between `local` and `remote`.
    ///
    /// Both ends are meant to be of one family. If they are not (a dual-stack
    /// socket handed in `::ffff:a.b.c.d`), the key counts as IPv4 when both
    /// addresses are IPv4 or v4-mapped, else as IPv6.
    pub fn new(protocol: u8, local: SocketAddr, remote: SocketAddr) -> Self {
        let v4 = is_v4(local.ip()) && is_v4(remote.ip());
        Self {
            local: octets(local.ip()),
            remote: octets(remote.ip()),
            local_port: local.port(),
            remote_port: remote.port(),
            protocol,
            family: if v4 { 4 } else { 6 },
            pad: [0; 2],
        }
    }

    /// Our end. IPv4 flows give an IPv4 address; scope and flow label are 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr(self.local, self.local_port)
    }

    /// The peer's end.
    pub fn remote_addr(&self) -> SocketAddr {
        self.addr(self.remote, self.remote_port)
    }

    /// The same flow seen from the peer.
    pub fn reversed(&self) -> Self {
        Self {
            local: self.remote,
            remote: self.local,
            local_port: self.remote_port,
            remote_port: self.local_port,
            ..*self
        }
    }

    /// The key as five words, in the order of its bytes: what is hashed, and
    /// what is stored in shared memory.
    pub(crate) fn words(&self) -> [u64; 5] {
        let [local, remote] = [self.local, self.remote].map(halves);
        let ([a, b], [c, d]) = (self.local_port.to_ne_bytes(), self.remote_port.to_ne_bytes());
        let rest = u64::from_ne_bytes([a, b, c, d, self.protocol, self.family, 0, 0]);
        [local[0], local[1], remote[0], remote[1], rest]
    }

    /// The inverse of [`words`](Self::words).
    pub(crate) fn from_words(words: [u64; 5]) -> Self {
        let mut bytes = [0u8; FLOW_KEY_BYTES];
        for (word, chunk) in words.iter().zip(bytes.as_chunks_mut::<8>().0) {
            *chunk = word.to_ne_bytes();
        }
        let mut local = [0; 16];
        local.copy_from_slice(&bytes[..16]);
        let mut remote = [0; 16];
        remote.copy_from_slice(&bytes[16..32]);
        Self {
            local,
            remote,
            local_port: u16::from_ne_bytes([bytes[32], bytes[33]]),
            remote_port: u16::from_ne_bytes([bytes[34], bytes[35]]),
            protocol: bytes[36],
            family: bytes[37],
            pad: [0; 2],
        }
    }

    /// SipHash-1-3 of the key under `hash_key`.
    pub fn hash_with(&self, hash_key: &HashKey) -> u64 {
        let mut hasher = SipHasher13::new_with_key(hash_key);
        for word in self.words() {
            hasher.write_u64(word);
        }
        hasher.finish()
    }

    fn addr(&self, octets: [u8; 16], port: u16) -> SocketAddr {
        let v6 = Ipv6Addr::from(octets);
        let ip = match self.family {
            4 => v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4),
            _ => IpAddr::V6(v6),
        };
        SocketAddr::new(ip, port)
    }
}

fn is_v4(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(_) => true,
        IpAddr::V6(v6) => v6.to_ipv4_mapped().is_some(),
    }
}

fn halves(octets: [u8; 16]) -> [u64; 2] {
    let [a, b, c, d, e, f, g, h, rest @ ..] = octets;
    [u64::from_ne_bytes([a, b, c, d, e, f, g, h]), u64::from_ne_bytes(rest)]
}

fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        // Put together in a register: pieces of it in memory would have to be stored before they can be read as one.
        IpAddr::V4(v4) => (0xffff_0000_0000 | u128::from(u32::from(v4))).to_be_bytes(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The engine's connection index. Meaningful only in the process that stored
/// it; other processes learn from it that the flow exists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FlowRef(pub u32);

/// No free place for one more flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the flow table is full; raise `tcp_flows` in the [limits] section of f-stack.conf")]
pub struct TableFull;

/// Maps the flows of one worker to its connections.
pub trait FlowIndex {
    /// The connection of `key`, if there is one.
    fn lookup(&self, key: &FlowKey) -> Option<FlowRef>;
    /// Maps `key` to `flow`; an older mapping of the same key is replaced.
    fn insert(&mut self, key: &FlowKey, flow: FlowRef) -> Result<(), TableFull>;
    /// Forgets `key`. True if it was there.
    fn remove(&mut self, key: &FlowKey) -> bool;
    /// Flows now in the index.
    fn len(&self) -> usize;
    /// True without any flow.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Says that `key` will be looked up soon.
    fn prefetch(&self, _key: &FlowKey) {}
}

/// A [`FlowIndex`] on the heap, for tests and client programs.
#[derive(Clone, Debug)]
pub struct HeapIndex {
    flows: HashMap<FlowKey, FlowRef, SipKeyed>,
    capacity: usize,
}

impl HeapIndex {
    /// An index without a limit.
    pub fn new(hash_key: HashKey) -> Self {
        Self::with_capacity(hash_key, usize::MAX)
    }

    /// An index that refuses flows beyond `capacity`.
    pub fn with_capacity(hash_key: HashKey, capacity: usize) -> Self {
        Self { flows: HashMap::with_hasher(SipKeyed(hash_key)), capacity }
    }
}

impl FlowIndex for HeapIndex {
    fn lookup(&self, key: &FlowKey) -> Option<FlowRef> {
        self.flows.get(key).copied()
    }

    fn insert(&mut self, key: &FlowKey, flow: FlowRef) -> Result<(), TableFull> {
        if let Some(known) = self.flows.get_mut(key) {
            *known = flow;
            return Ok(());
        }
        if self.flows.len() >= self.capacity {
            return Err(TableFull);
        }
        self.flows.insert(*key, flow);
        Ok(())
    }

    fn remove(&mut self, key: &FlowKey) -> bool {
        self.flows.remove(key).is_some()
    }

    fn len(&self) -> usize {
        self.flows.len()
    }
}

#[derive(Clone, Debug)]
struct SipKeyed(HashKey);

impl BuildHasher for SipKeyed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_key(&self.0)
    }
}

#[cfg(test)]
mod tests;
