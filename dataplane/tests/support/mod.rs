//! A stack and an independent TCP/IP on one wire in virtual time.
//!
//! The stack under test is at 198.18.0.2 and 2001:2::2, its peer (smoltcp's own sockets) at 198.18.0.1 and
//! 2001:2::1.

#![allow(dead_code)]

pub mod instance;
pub mod packets;

use std::net::{IpAddr, SocketAddr};

use ff_dataplane::io::memory::{Faults, HeapFrame, MemoryIo, MemoryNet, PortId, PortSettings};
use ff_dataplane::io::{Capabilities, Frame, PacketIo, WorkerRef};
use ff_dataplane::{PassReport, Shared, Stack, StackConfig};
use ff_flowmap::HeapIndex;
use ff_tcp::Instant;
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::wire::{EthernetAddress, IpCidr};

pub type TestStack = Stack<MemoryIo, HeapIndex>;

pub const STACK_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

pub fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

pub fn addr(text: &str) -> SocketAddr {
    text.parse().expect("an address with a port")
}

pub fn port(mac: [u8; 6]) -> PortSettings {
    PortSettings {
        capabilities: Capabilities { mtu: 1500, mac, ..Capabilities::default() },
        ..PortSettings::default()
    }
}

pub fn worker(slot: u16, index: u16) -> WorkerRef {
    WorkerRef { slot, index }
}

pub fn stack_config() -> StackConfig {
    StackConfig {
        addresses: vec![(ip("198.18.0.2"), 24), (ip("2001:2::2"), 64)],
        gateway4: Some("198.18.0.1".parse().expect("an address")),
        gateway6: Some("2001:2::1".parse().expect("an address")),
        hash_key: [7; 16],
        ..StackConfig::default()
    }
}

pub fn stack_on(net: &MemoryNet, port: PortId, config: StackConfig) -> TestStack {
    let io = net.attach(port, config.worker, &[0]);
    let shared = Shared::alone(config.hash_key).expect("memory of our own");
    Stack::new(config, io, HeapIndex::new([9; 16]), shared)
}

/// smoltcp's view of a port.
pub struct Wire {
    pub io: MemoryIo,
    burst: Vec<HeapFrame>,
    mtu: usize,
}

impl Wire {
    pub fn new(io: MemoryIo) -> Self {
        let mtu = usize::from(io.capabilities().mtu);
        Self { io, burst: Vec::new(), mtu }
    }

    /// The next frame.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        if self.burst.is_empty() {
            self.io.receive(&mut self.burst);
            self.burst.reverse();
        }
        self.burst.pop().map(|frame| frame.bytes().to_vec())
    }

    pub fn put(&mut self, bytes: &[u8]) {
        let mut frame = self.io.alloc().expect("a frame");
        frame.fill(bytes);
        self.io.transmit(frame);
        self.io.flush();
    }
}

pub struct Rx(Vec<u8>);
pub struct Tx<'a>(&'a mut Wire);

impl RxToken for Rx {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Tx<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut bytes = vec![0; len];
        let result = f(&mut bytes);
        self.0.put(&bytes);
        result
    }
}

impl Device for Wire {
    type RxToken<'a> = Rx;
    type TxToken<'a> = Tx<'a>;

    fn receive(&mut self, _now: smoltcp::time::Instant) -> Option<(Rx, Tx<'_>)> {
        let frame = self.take()?;
        Some((Rx(frame), Tx(self)))
    }

    fn transmit(&mut self, _now: smoltcp::time::Instant) -> Option<Tx<'_>> {
        Some(Tx(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.mtu + 14;
        capabilities.checksum = ChecksumCapabilities::default();
        capabilities
    }
}

/// The peer: smoltcp with its own sockets.
pub struct Peer {
    pub wire: Wire,
    pub iface: Interface,
    pub sockets: SocketSet<'static>,
}

impl Peer {
    pub fn new(io: MemoryIo, now_us: u64) -> Self {
        let mut wire = Wire::new(io);
        let mut config = Config::new(EthernetAddress(PEER_MAC).into());
        config.random_seed = 0x5eed;
        let mut iface = Interface::new(config, &mut wire, smol(now_us));
        iface.update_ip_addrs(|addrs| {
            for cidr in ["198.18.0.1/24", "2001:2::1/64"] {
                addrs.push(cidr.parse::<IpCidr>().expect("a prefix")).expect("room for an address");
            }
        });
        Self { wire, iface, sockets: SocketSet::new(Vec::new()) }
    }

    pub fn poll(&mut self, now_us: u64) {
        self.iface.poll(smol(now_us), &mut self.wire, &mut self.sockets);
    }

    pub fn next_us(&mut self, now_us: u64) -> Option<u64> {
        let at = self.iface.poll_at(smol(now_us), &self.sockets)?;
        Some((at.total_micros() as u64).max(now_us))
    }
}

pub fn smol(us: u64) -> smoltcp::time::Instant {
    smoltcp::time::Instant::from_micros(us as i64)
}

/// A stack and its peer.
pub struct Pair {
    pub net: MemoryNet,
    pub stack: TestStack,
    pub peer: Peer,
    pub stack_port: PortId,
    pub peer_port: PortId,
    pub now_us: u64,
}

impl Pair {
    pub fn new(seed: u64) -> Self {
        Self::with(seed, stack_config(), port(STACK_MAC))
    }

    pub fn with(seed: u64, config: StackConfig, settings: PortSettings) -> Self {
        let net = MemoryNet::new(seed);
        let (stack_port, peer_port) = net.pair(settings, port(PEER_MAC));
        let now_us = 1_000_000;
        net.set_now(now_us);
        let mut stack = stack_on(&net, stack_port, config);
        stack.pass(Instant(now_us));
        let peer = Peer::new(net.attach(peer_port, worker(0, 0), &[0]), now_us);
        Self { net, stack, peer, stack_port, peer_port, now_us }
    }

    pub fn set_faults(&self, faults: Faults) {
        self.net.set_faults(self.stack_port, faults);
        self.net.set_faults(self.peer_port, faults);
    }

    /// Both sides once, at the present time.
    pub fn poll(&mut self) -> PassReport {
        self.peer.poll(self.now_us);
        let report = self.stack.pass(Instant(self.now_us));
        self.peer.poll(self.now_us);
        report
    }

    /// Moves on to when something happens next; at most `limit_us`. False when nothing ever will.
    pub fn advance(&mut self, limit_us: u64) -> bool {
        let next = [
            self.net.next_arrival_us(),
            self.stack.next_deadline().map(|deadline| deadline.0),
            self.peer.next_us(self.now_us),
        ];
        let Some(next) = next.into_iter().flatten().min() else { return false };
        // Without progress of the clock two sides could answer each other for ever at one instant.
        self.now_us = next.clamp(self.now_us + 1, self.now_us + limit_us.max(1));
        self.net.set_now(self.now_us);
        true
    }

    /// Runs until `done` says so. Panics when `limit_us` of virtual time, or the bound on steps, is over.
    pub fn run_until(&mut self, limit_us: u64, mut done: impl FnMut(&mut Self) -> bool) {
        let end = self.now_us + limit_us;
        for _ in 0..5_000_000u32 {
            self.poll();
            if done(self) {
                return;
            }
            assert!(self.now_us < end, "not done after {limit_us} us of virtual time");
            if !self.advance(10_000) {
                self.now_us += 10_000;
                self.net.set_now(self.now_us);
            }
        }
        panic!("not done after the bound of steps");
    }

    /// Lets everything settle for `us` of virtual time.
    pub fn run_for(&mut self, us: u64) {
        let end = self.now_us + us;
        while self.now_us < end {
            self.poll();
            let left = end - self.now_us;
            if !self.advance(left) {
                self.now_us = end;
                self.net.set_now(end);
            }
        }
        self.poll();
    }
}

/// Bytes that tell their place.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    ff_dataplane::io::memory::Rng::new(seed).fill(&mut bytes);
    bytes
}
