//! smoltcp's TCP socket as an independent peer of one engine.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant as SmolInstant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr, IpProtocol, Ipv4Packet, Ipv4Repr, TcpPacket};

use super::*;

/// A device of two queues.
pub struct Queues {
    pub rx: VecDeque<Vec<u8>>,
    pub tx: VecDeque<Vec<u8>>,
    pub mtu: usize,
}

pub struct Rx(Vec<u8>);
impl RxToken for Rx {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

pub struct Tx<'a>(&'a mut VecDeque<Vec<u8>>);
impl TxToken for Tx<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut buf = vec![0; len];
        let r = f(&mut buf);
        self.0.push_back(buf);
        r
    }
}

impl Device for Queues {
    type RxToken<'a> = Rx;
    type TxToken<'a> = Tx<'a>;
    fn receive(&mut self, _: SmolInstant) -> Option<(Rx, Tx<'_>)> {
        let packet = self.rx.pop_front()?;
        Some((Rx(packet), Tx(&mut self.tx)))
    }
    fn transmit(&mut self, _: SmolInstant) -> Option<Tx<'_>> {
        Some(Tx(&mut self.tx))
    }
    fn capabilities(&self) -> DeviceCapabilities {
        let mut c = DeviceCapabilities::default();
        c.medium = Medium::Ip;
        c.max_transmission_unit = self.mtu;
        c.checksum = ChecksumCapabilities::default();
        c
    }
}

/// One smoltcp socket with its interface.
pub struct Smol {
    pub device: Queues,
    pub iface: Interface,
    pub sockets: SocketSet<'static>,
    pub handle: SocketHandle,
}

impl Smol {
    pub fn new(ip: IpAddr, rx_bytes: usize, tx_bytes: usize, mtu: usize, now: u64) -> Self {
        let mut device = Queues { rx: VecDeque::new(), tx: VecDeque::new(), mtu };
        let config = Config::new(HardwareAddress::Ip);
        let mut iface = Interface::new(config, &mut device, SmolInstant::from_micros(now as i64));
        iface.update_ip_addrs(|a| a.push(IpCidr::new(ip.into(), 24)).unwrap());
        let mut sockets = SocketSet::new(Vec::new());
        let socket = tcp::Socket::new(
            tcp::SocketBuffer::new(vec![0; rx_bytes]),
            tcp::SocketBuffer::new(vec![0; tx_bytes]),
        );
        let handle = sockets.add(socket);
        Self { device, iface, sockets, handle }
    }

    pub fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut::<tcp::Socket>(self.handle)
    }

    pub fn connect(&mut self, local_port: u16, remote: SocketAddr) {
        let remote = (IpAddress::from(remote.ip()), remote.port());
        let cx = self.iface.context();
        self.sockets.get_mut::<tcp::Socket>(self.handle).connect(cx, remote, local_port).unwrap();
    }

    pub fn poll(&mut self, now: u64) {
        self.iface.poll(SmolInstant::from_micros(now as i64), &mut self.device, &mut self.sockets);
    }

    pub fn next_at(&mut self, now: u64) -> Option<u64> {
        let t = self.iface.poll_at(SmolInstant::from_micros(now as i64), &self.sockets)?;
        Some((t.total_micros().max(0) as u64).max(now))
    }

    pub fn push(&mut self, packet: &Packet) {
        self.device.rx.push_back(ip_packet(packet));
    }

    pub fn pop(&mut self) -> Option<Packet> {
        let bytes = self.device.tx.pop_front()?;
        let ip = Ipv4Packet::new_checked(&bytes[..]).unwrap();
        assert_eq!(ip.next_header(), IpProtocol::Tcp);
        let (src, dst) = (ip.src_addr(), ip.dst_addr());
        let tcp = ip.payload().to_vec();
        let t = TcpPacket::new_checked(&tcp[..]).unwrap();
        assert!(t.verify_checksum(&src.into(), &dst.into()));
        Some(Packet {
            src: SocketAddr::new(src.into(), t.src_port()),
            dst: SocketAddr::new(dst.into(), t.dst_port()),
            ecn: 0,
            tcp: tcp.clone(),
        })
    }
}

/// A whole IPv4 packet with good checksums.
pub fn ip_packet(p: &Packet) -> Vec<u8> {
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (p.src.ip(), p.dst.ip()) else { panic!("IPv4 only") };
    let repr = Ipv4Repr {
        src_addr: src,
        dst_addr: dst,
        next_header: IpProtocol::Tcp,
        payload_len: p.tcp.len(),
        hop_limit: 64,
    };
    let mut bytes = vec![0; repr.buffer_len() + p.tcp.len()];
    let mut ip = Ipv4Packet::new_unchecked(&mut bytes[..]);
    repr.emit(&mut ip, &ChecksumCapabilities::default());
    ip.payload_mut().copy_from_slice(&p.tcp);
    TcpPacket::new_unchecked(ip.payload_mut()).fill_checksum(&src.into(), &dst.into());
    bytes
}

/// An engine at B, smoltcp at A, and the link between them.
pub struct Mixed {
    pub now: u64,
    pub engine: TestEngine,
    pub smol: Smol,
    pub link: Link,
    buf: Vec<u8>,
}

impl Mixed {
    pub fn new(link: LinkConfig, seed: u64, cfg: EngineConfig, rx: usize, tx: usize) -> Self {
        let now = 1_000_000;
        Self {
            now,
            engine: Engine::new(cfg, secrets(), index()),
            smol: Smol::new(addr(A).ip(), rx, tx, 1_500, now),
            link: Link::new(link, seed),
            buf: vec![0; 70_000],
        }
    }

    pub fn flush(&mut self) {
        self.smol.poll(self.now);
        while let Some(packet) = self.smol.pop() {
            self.link.send(self.now, End::B, packet);
        }
        while let Some(t) = self.engine.poll_transmit(Instant(self.now), &mut self.buf) {
            for tcp in segments(&self.buf[..t.len], t.gso_size) {
                self.link.send(
                    self.now,
                    End::A,
                    Packet { src: t.local(), dst: t.remote(), ecn: t.ecn.bits(), tcp },
                );
            }
        }
    }

    pub fn step(&mut self) -> bool {
        self.flush();
        let smol_at = self.smol.next_at(self.now);
        let next = [self.link.next_at(), self.engine.next_deadline().map(|t| t.0), smol_at];
        let Some(at) = next.into_iter().flatten().min() else { return false };
        self.now = self.now.max(at);
        while let Some((to, packet)) = self.link.receive(self.now) {
            match to {
                End::A => self.smol.push(&packet),
                End::B => {
                    let meta = SegmentMeta {
                        src: packet.src.ip(),
                        dst: packet.dst.ip(),
                        ecn: Ecn::from_bits(packet.ecn),
                    };
                    self.engine.on_segment(Instant(self.now), meta, &packet.tcp, None);
                }
            }
        }
        if self.engine.next_deadline().is_some_and(|t| t.0 <= self.now) {
            self.engine.on_deadline(Instant(self.now));
        }
        self.flush();
        true
    }
}
