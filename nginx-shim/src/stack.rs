//! The stack as this library sees it: one object-safe trait over every device and flow table.
//!
//! A worker has exactly one stack, whose types depend on its device. The rest of the library is not generic.

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;

use ff_dataplane::io::PacketIo;
use ff_dataplane::sockets::{
    Domain, Kind, Readiness, Received, Shutdown, SockError, SockOpt, SockOptName, SockOptValue, SocketEvent,
    SocketId,
};
use ff_dataplane::{PassReport, Stack};
use ff_flowmap::FlowIndex;
use ff_tcp::Instant;

type Result<T> = std::result::Result<T, SockError>;

/// What the library asks of a worker's stack. Each method is [`Stack`]'s of the same name.
pub trait WorkerStack {
    fn pass(&mut self, now: Instant) -> PassReport;
    fn hand_on(&mut self, s: SocketId, unread: bool) -> bool;
    fn next_deadline(&self) -> Option<Instant>;
    fn wait_fds(&self) -> &[RawFd];
    fn socket(&mut self, domain: Domain, kind: Kind) -> Result<SocketId>;
    fn bind(&mut self, s: SocketId, addr: SocketAddr) -> Result<()>;
    fn listen(&mut self, s: SocketId, backlog: i32) -> Result<()>;
    fn accept(&mut self, s: SocketId) -> Result<(SocketId, SocketAddr)>;
    fn connect(&mut self, s: SocketId, peer: SocketAddr) -> Result<()>;
    fn recv_vectored(&mut self, s: SocketId, bufs: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize>;
    fn send_vectored(&mut self, s: SocketId, bufs: &[IoSlice<'_>]) -> Result<usize>;
    fn recv(&mut self, s: SocketId, buf: &mut [u8], peek: bool) -> Result<usize>;
    fn send(&mut self, s: SocketId, buf: &[u8]) -> Result<usize>;
    fn recv_from(&mut self, s: SocketId, bufs: &mut [IoSliceMut<'_>], peek: bool) -> Result<Received>;
    fn send_to(
        &mut self,
        s: SocketId,
        bufs: &[IoSlice<'_>],
        to: Option<SocketAddr>,
        source: Option<IpAddr>,
    ) -> Result<usize>;
    fn shutdown(&mut self, s: SocketId, how: Shutdown) -> Result<()>;
    fn close(&mut self, s: SocketId) -> Result<()>;
    fn local_addr(&self, s: SocketId) -> Result<SocketAddr>;
    fn peer_addr(&self, s: SocketId) -> Result<SocketAddr>;
    fn set_option(&mut self, s: SocketId, option: SockOpt) -> Result<()>;
    fn option(&mut self, s: SocketId, name: SockOptName) -> Result<SockOptValue>;
    fn readiness(&self, s: SocketId) -> Readiness;
    fn queued_bytes(&self, s: SocketId) -> Result<usize>;
    fn writable_bytes(&self, s: SocketId) -> Result<usize>;
    fn next_event(&mut self) -> Option<SocketEvent>;
    fn set_user(&mut self, s: SocketId, user: u64);
    fn owed(&self) -> u64;
    fn note_sleep(&mut self);
    fn report_counters(&mut self);
    fn transmit(&mut self, now: Instant) -> usize;
}

impl<P: PacketIo, I: FlowIndex> WorkerStack for Stack<P, I> {
    fn pass(&mut self, now: Instant) -> PassReport {
        Stack::pass(self, now)
    }
    fn hand_on(&mut self, s: SocketId, unread: bool) -> bool {
        Stack::hand_on(self, s, unread)
    }
    fn next_deadline(&self) -> Option<Instant> {
        Stack::next_deadline(self)
    }
    fn wait_fds(&self) -> &[RawFd] {
        Stack::wait_fds(self)
    }
    fn socket(&mut self, domain: Domain, kind: Kind) -> Result<SocketId> {
        Stack::socket(self, domain, kind)
    }
    fn bind(&mut self, s: SocketId, addr: SocketAddr) -> Result<()> {
        Stack::bind(self, s, addr)
    }
    fn listen(&mut self, s: SocketId, backlog: i32) -> Result<()> {
        Stack::listen(self, s, backlog)
    }
    fn accept(&mut self, s: SocketId) -> Result<(SocketId, SocketAddr)> {
        Stack::accept(self, s)
    }
    fn connect(&mut self, s: SocketId, peer: SocketAddr) -> Result<()> {
        Stack::connect(self, s, peer)
    }
    fn recv_vectored(&mut self, s: SocketId, bufs: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize> {
        Stack::recv_vectored(self, s, bufs, peek)
    }
    fn send_vectored(&mut self, s: SocketId, bufs: &[IoSlice<'_>]) -> Result<usize> {
        Stack::send_vectored(self, s, bufs)
    }
    fn recv(&mut self, s: SocketId, buf: &mut [u8], peek: bool) -> Result<usize> {
        Stack::recv(self, s, buf, peek)
    }
    fn send(&mut self, s: SocketId, buf: &[u8]) -> Result<usize> {
        Stack::send(self, s, buf)
    }
    fn recv_from(&mut self, s: SocketId, bufs: &mut [IoSliceMut<'_>], peek: bool) -> Result<Received> {
        Stack::recv_from(self, s, bufs, peek)
    }
    fn send_to(
        &mut self,
        s: SocketId,
        bufs: &[IoSlice<'_>],
        to: Option<SocketAddr>,
        source: Option<IpAddr>,
    ) -> Result<usize> {
        Stack::send_to(self, s, bufs, to, source)
    }
    fn shutdown(&mut self, s: SocketId, how: Shutdown) -> Result<()> {
        Stack::shutdown(self, s, how)
    }
    fn close(&mut self, s: SocketId) -> Result<()> {
        Stack::close(self, s)
    }
    fn local_addr(&self, s: SocketId) -> Result<SocketAddr> {
        Stack::local_addr(self, s)
    }
    fn peer_addr(&self, s: SocketId) -> Result<SocketAddr> {
        Stack::peer_addr(self, s)
    }
    fn set_option(&mut self, s: SocketId, option: SockOpt) -> Result<()> {
        Stack::set_option(self, s, option)
    }
    fn option(&mut self, s: SocketId, name: SockOptName) -> Result<SockOptValue> {
        Stack::option(self, s, name)
    }
    fn readiness(&self, s: SocketId) -> Readiness {
        Stack::readiness(self, s)
    }
    fn queued_bytes(&self, s: SocketId) -> Result<usize> {
        Stack::queued_bytes(self, s)
    }
    fn writable_bytes(&self, s: SocketId) -> Result<usize> {
        Stack::writable_bytes(self, s)
    }
    fn next_event(&mut self) -> Option<SocketEvent> {
        Stack::next_event(self)
    }
    fn set_user(&mut self, s: SocketId, user: u64) {
        Stack::set_user(self, s, user)
    }
    fn owed(&self) -> u64 {
        Stack::owed(self)
    }
    fn note_sleep(&mut self) {
        Stack::note_sleep(self);
    }
    fn report_counters(&mut self) {
        Stack::report_counters(self);
    }
    fn transmit(&mut self, now: Instant) -> usize {
        Stack::transmit(self, now)
    }
}
