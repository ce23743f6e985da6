//! UDP (RFC 768): which socket a datagram is for, and the queue it waits in.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use ff_flowmap::FlowKey;

use crate::ip::checksum::Checksum;
use crate::ip::parse::UDP;
use crate::sockets::{SockError, SocketId};

/// UDP header, bytes.
pub(crate) const HEADER_BYTES: usize = 8;
/// Longest payload: the length field of UDP over IPv6, and of IPv4 with its header.
pub(crate) const PAYLOAD_MAX_V4: usize = 65_507;
pub(crate) const PAYLOAD_MAX_V6: usize = 65_527;
/// What a queued datagram counts besides its bytes, so that empty ones are bounded too.
const DATAGRAM_OVERHEAD_BYTES: usize = 256;

/// A datagram that waits for its reader.
#[derive(Debug)]
pub(crate) struct Datagram {
    pub(crate) from: SocketAddr,
    pub(crate) to: IpAddr,
    pub(crate) payload: Box<[u8]>,
}

/// The UDP part of a socket.
#[derive(Debug, Default)]
pub(crate) struct UdpState {
    /// The peer of a connected socket.
    pub(crate) peer: Option<SocketAddr>,
    queue: VecDeque<Datagram>,
    queued_bytes: usize,
    /// An ICMP error that nobody has been told of yet.
    pub(crate) error: Option<SockError>,
    pub(crate) read_shut: bool,
    pub(crate) write_shut: bool,
}

impl UdpState {
    /// Queues a datagram; false when `rcvbuf_bytes` are full.
    pub(crate) fn push(&mut self, datagram: Datagram, rcvbuf_bytes: usize) -> bool {
        let cost = cost(&datagram);
        // One datagram always fits, as in Linux, however small the buffer.
        if !self.queue.is_empty() && self.queued_bytes + cost > rcvbuf_bytes {
            return false;
        }
        self.queued_bytes += cost;
        self.queue.push_back(datagram);
        true
    }

    pub(crate) fn front(&self) -> Option<&Datagram> {
        self.queue.front()
    }

    pub(crate) fn pop(&mut self) -> Option<Datagram> {
        let datagram = self.queue.pop_front()?;
        self.queued_bytes -= cost(&datagram);
        Some(datagram)
    }
}

fn cost(datagram: &Datagram) -> usize {
    datagram.payload.len() + DATAGRAM_OVERHEAD_BYTES
}

/// Where a UDP socket is bound, for the demultiplexer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UdpEntry {
    pub(crate) id: SocketId,
    /// `None`: any address.
    pub(crate) ip: Option<IpAddr>,
    pub(crate) v4: bool,
    pub(crate) v6: bool,
    pub(crate) peer: Option<SocketAddr>,
}

/// UDP sockets by local port.
#[derive(Debug, Default)]
pub(crate) struct UdpPorts(HashMap<u16, Vec<UdpEntry>>);

impl UdpPorts {
    /// Adds or changes a socket's entry.
    pub(crate) fn set(&mut self, port: u16, entry: UdpEntry) {
        let entries = self.0.entry(port).or_default();
        match entries.iter_mut().find(|known| known.id == entry.id) {
            Some(known) => *known = entry,
            None => entries.push(entry),
        }
    }

    pub(crate) fn remove(&mut self, port: u16, id: SocketId) {
        if let Some(entries) = self.0.get_mut(&port) {
            entries.retain(|entry| entry.id != id);
            if entries.is_empty() {
                self.0.remove(&port);
            }
        }
    }

    /// The socket that a datagram of the flow is for: the connected one before the one with the address
    /// before the one with any; among equals (SO_REUSEPORT) the flow's hash decides, so that a flow stays
    /// with its socket.
    pub(crate) fn lookup(&self, key: &FlowKey, hash: impl FnOnce() -> u64) -> Option<SocketId> {
        let entries = self.0.get(&key.local_port)?;
        let (local, remote) = (key.local_addr().ip(), key.remote_addr());
        let best = entries.iter().filter_map(|entry| score(entry, local, remote)).max()?;
        let mut equals = entries.iter().filter(|entry| score(entry, local, remote) == Some(best));
        let count = equals.clone().count();
        let chosen = if count > 1 { (hash() % count as u64) as usize } else { 0 };
        equals.nth(chosen).map(|entry| entry.id)
    }
}

fn score(entry: &UdpEntry, local: IpAddr, remote: SocketAddr) -> Option<u8> {
    if !(if local.is_ipv4() { entry.v4 } else { entry.v6 }) {
        return None;
    }
    let by_address = match entry.ip {
        Some(ip) if ip == local => 1,
        Some(_) => return None,
        None => 0,
    };
    match entry.peer {
        Some(peer) if peer == remote => Some(by_address + 2),
        Some(_) => None,
        None => Some(by_address),
    }
}

/// Writes header and payload of a datagram into `out`, with its checksum.
pub(crate) fn write_datagram<'a>(
    out: &mut Vec<u8>,
    (local, remote): (SocketAddr, SocketAddr),
    payload: impl Iterator<Item = &'a [u8]>,
) {
    out.clear();
    out.extend_from_slice(&local.port().to_be_bytes());
    out.extend_from_slice(&remote.port().to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    for part in payload {
        out.extend_from_slice(part);
    }
    let len = (out.len() as u16).to_be_bytes();
    out[4..6].copy_from_slice(&len);
    let mut sum = Checksum::new().pseudo(local.ip(), remote.ip(), UDP, out.len()).bytes(out).finish();
    // Zero would mean "no checksum" (RFC 768).
    if sum == [0, 0] {
        sum = [0xff, 0xff];
    }
    out[6..8].copy_from_slice(&sum);
}
