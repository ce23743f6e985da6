//! UDP sockets.

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};

use ff_flowmap::{FlowIndex, FlowKey};
use ff_tcp::{IcmpError, Readiness};

use super::bind::Scope;
use super::calls::Result;
use super::table::{Body, UdpSocket};
use super::{Received, Shutdown, SockError, SocketId, present};
use crate::io::PacketIo;
use crate::ip::layer::SendError;
use crate::ip::output::{HOP_LIMIT, IpHeader};
use crate::ip::parse::UDP;
use crate::stack::Stack;
use crate::udp::{self, Datagram, PAYLOAD_MAX_V4, PAYLOAD_MAX_V6, UdpEntry};

impl UdpSocket {
    pub(super) fn readiness(&self) -> Readiness {
        let state = &self.state;
        let mut ready = Readiness::WRITABLE;
        if state.front().is_some() || state.error.is_some() || state.read_shut {
            ready |= Readiness::READABLE;
        }
        if state.error.is_some() {
            ready |= Readiness::ERR;
        }
        if state.read_shut {
            ready |= Readiness::RDHUP;
        }
        if state.read_shut && state.write_shut {
            ready |= Readiness::HUP;
        }
        ready
    }
}

impl<P: PacketIo, I: FlowIndex> Stack<P, I> {
    fn udp(&mut self, s: SocketId) -> Result<&mut UdpSocket> {
        match &mut self.sockets.get_mut(s)?.body {
            Body::Udp(udp) => Ok(udp),
            _ => Err(SockError::NotSupported),
        }
    }

    /// Brings the demultiplexer's entry of the socket up to date.
    pub(super) fn index_udp(&mut self, s: SocketId) -> Result<()> {
        let socket = self.sockets.get(s)?;
        let (Body::Udp(udp), Some(addr)) = (&socket.body, socket.bound) else { return Ok(()) };
        let scope = Scope::new(addr, socket.flags.v6_only);
        let entry = UdpEntry { id: s, ip: scope.ip, v4: scope.v4, v6: scope.v6, peer: udp.state.peer };
        self.udp_ports.set(addr.port(), entry);
        Ok(())
    }

    pub(super) fn udp_connect(&mut self, s: SocketId, peer: SocketAddr) -> Result<()> {
        if self.ip.addresses.route(peer.ip()).is_none() {
            return Err(SockError::NetUnreachable);
        }
        let socket = self.sockets.get(s)?;
        let any = SocketAddr::new(if peer.is_ipv4() { [0u8; 4].into() } else { [0u16; 8].into() }, 0);
        if socket.bound.is_none() {
            self.hold_port(s, any)?;
        }
        // The source that packets will have is the socket's address from now on.
        let bound = self.sockets.get(s)?.bound.unwrap_or(any);
        if bound.ip().is_unspecified() {
            let source = self.ip.addresses.source_for(peer.ip()).ok_or(SockError::NetUnreachable)?;
            self.sockets.get_mut(s)?.bound = Some(SocketAddr::new(source, bound.port()));
            self.refresh_hold(s)?;
        }
        self.udp(s)?.state.peer = Some(peer);
        self.index_udp(s)
    }

    pub(super) fn udp_send(
        &mut self,
        s: SocketId,
        bufs: &[IoSlice<'_>],
        to: Option<SocketAddr>,
        source: Option<IpAddr>,
    ) -> Result<usize> {
        let udp = self.udp(s)?;
        if udp.state.write_shut {
            return Err(SockError::BrokenPipe);
        }
        if let Some(error) = udp.state.error.take() {
            return Err(error);
        }
        let peer = to.or(udp.state.peer).ok_or(SockError::DestinationRequired)?;
        let socket = self.sockets.get(s)?;
        if peer.is_ipv6() && socket.domain == super::Domain::Ipv4 {
            return Err(SockError::FamilyNotSupported);
        }
        if peer.port() == 0 {
            return Err(SockError::Invalid);
        }
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        if len > if peer.is_ipv4() { PAYLOAD_MAX_V4 } else { PAYLOAD_MAX_V6 } {
            return Err(SockError::MessageTooLong);
        }
        if socket.bound.is_none() {
            let any = socket.domain.unspecified();
            self.hold_port(s, any)?;
        }
        let socket = self.sockets.get(s)?;
        let bound = socket.bound.ok_or(SockError::Invalid)?;
        let fits = |ip: &IpAddr| !ip.is_unspecified();
        let source = match source.filter(fits).or_else(|| Some(bound.ip()).filter(fits)) {
            Some(ip) if !self.ip.addresses.is_own(ip) => return Err(SockError::AddressNotAvailable),
            Some(ip) if ip.is_ipv4() != peer.is_ipv4() => return Err(SockError::NetUnreachable),
            Some(ip) => ip,
            None => self.ip.addresses.source_for(peer.ip()).ok_or(SockError::NetUnreachable)?,
        };
        let flags = socket.flags;
        let local = SocketAddr::new(source, bound.port());
        let mut scratch = std::mem::take(&mut self.scratch);
        udp::write_datagram(&mut scratch, (local, peer), bufs.iter().map(|buf| &**buf));
        let header = IpHeader {
            src: source,
            dst: peer.ip(),
            protocol: UDP,
            traffic_class: flags.tos,
            hop_limit: if flags.ttl == 0 { HOP_LIMIT } else { flags.ttl },
            dont_fragment: false,
        };
        let sent = self.ip.send(&mut self.io, self.now, &header, &scratch);
        self.scratch = scratch;
        match sent {
            Ok(()) => {
                self.record_udp(&FlowKey::new(UDP, local, peer));
                Ok(len)
            }
            Err(SendError::NoRoute) => Err(SockError::NetUnreachable),
            // A datagram that finds no memory is as good as lost on the way; the caller may try again.
            Err(SendError::NoMemory) => Err(SockError::WouldBlock),
            Err(SendError::TooLong { .. }) => Err(SockError::MessageTooLong),
        }
    }

    pub(super) fn udp_recv(
        &mut self,
        s: SocketId,
        bufs: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Result<Received> {
        let domain = self.sockets.get(s)?.domain;
        let udp = self.udp(s)?;
        if let Some(error) = udp.state.error.take() {
            return Err(error);
        }
        let Some(datagram) = udp.state.front() else {
            if !udp.state.read_shut {
                return Err(SockError::WouldBlock);
            }
            let nobody = domain.unspecified();
            return Ok(Received { len: 0, full_len: 0, from: nobody, to: nobody.ip() });
        };
        let mut rest: &[u8] = &datagram.payload;
        for buf in bufs {
            let n = rest.len().min(buf.len());
            buf[..n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
        }
        let full_len = datagram.payload.len();
        let to = present(domain, SocketAddr::new(datagram.to, 0)).ip();
        let received =
            Received { len: full_len - rest.len(), full_len, from: present(domain, datagram.from), to };
        if !peek {
            udp.state.pop();
        }
        Ok(received)
    }

    pub(super) fn udp_shutdown(&mut self, s: SocketId, how: Shutdown) -> Result<()> {
        let state = &mut self.udp(s)?.state;
        if state.peer.is_none() {
            return Err(SockError::NotConnected);
        }
        state.read_shut |= how != Shutdown::Write;
        state.write_shut |= how != Shutdown::Read;
        self.post(s, Readiness::READABLE | Readiness::WRITABLE);
        Ok(())
    }

    /// Gives a datagram to its socket: `None` if there is none, else whether there was room.
    pub(crate) fn deliver_udp(&mut self, key: &FlowKey, payload: &[u8]) -> Option<bool> {
        let hash_key = &self.hash_key;
        let s = self.udp_ports.lookup(key, || key.hash_with(hash_key))?;
        let Ok(Body::Udp(udp)) = self.sockets.get_mut(s).map(|socket| &mut socket.body) else { return None };
        if udp.state.read_shut {
            return Some(false);
        }
        let datagram =
            Datagram { from: key.remote_addr(), to: key.local_addr().ip(), payload: payload.into() };
        let rcvbuf_bytes = udp.rcvbuf_bytes as usize;
        let queued = udp.state.push(datagram, rcvbuf_bytes);
        if queued {
            self.post(s, Readiness::READABLE);
            self.record_udp(key);
        }
        Some(queued)
    }

    /// Tells the socket of a flow that an ICMP error came for it.
    pub(crate) fn on_udp_error(&mut self, key: &FlowKey, error: IcmpError) {
        let hash_key = &self.hash_key;
        let Some(s) = self.udp_ports.lookup(key, || key.hash_with(hash_key)) else { return };
        let remote = key.remote_addr();
        if let IcmpError::TooBig { mtu } = error {
            let link_mtu = self.ip.mtu();
            self.ip.pmtus.reduce(self.now, remote.ip(), mtu, link_mtu);
            return;
        }
        let Ok(Body::Udp(udp)) = self.sockets.get_mut(s).map(|socket| &mut socket.body) else { return };
        // An error concerns a connected socket; the other has many peers (Linux without IP_RECVERR).
        if udp.state.peer != Some(remote) {
            return;
        }
        let error = match (error, key.family) {
            (IcmpError::Unreachable { code: 3 }, 4) | (IcmpError::Unreachable { code: 4 }, 6) => {
                SockError::Refused
            }
            (IcmpError::Unreachable { code: 0 }, _) => SockError::NetUnreachable,
            (IcmpError::Unreachable { .. }, _) => SockError::HostUnreachable,
            (IcmpError::TimeExceeded | IcmpError::TooBig { .. }, _) => return,
        };
        udp.state.error = Some(error);
        self.post(s, Readiness::ERR | Readiness::READABLE | Readiness::WRITABLE);
    }

    /// Publishes that a datagram of the flow came or went. A full table is counted there.
    pub(crate) fn record_udp(&mut self, key: &FlowKey) {
        if let Some(table) = &mut self.udp_table {
            let _ = table.record(key, self.now.0);
        }
    }
}
