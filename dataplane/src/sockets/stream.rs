//! TCP sockets: the engine's connections and listeners behind ids.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;

use ff_flowmap::{FlowIndex, FlowKey};
use ff_tcp::{
    ConnId, ConnSummary, ConnectError, Event, ListenAddr, ListenError, ListenOptions, ListenerId, Readiness,
    SocketRef, State,
};

use super::calls::Result;
use super::table::{Body, Flags, Socket, TcpSettings};
use super::{Shutdown, SockError, SocketId, present};
use crate::io::PacketIo;
use crate::ip::parse::TCP;
use crate::moving::FirstBytes;
use crate::stack::Stack;

/// A listener of the engine, and the sockets that share it (SO_REUSEPORT).
#[derive(Debug)]
pub(crate) struct SharedListener {
    id: ListenerId,
    addr: ListenAddr,
    members: Vec<SocketId>,
}

impl<P: PacketIo, I: FlowIndex> Stack<P, I> {
    /// Listens, or changes the backlog of a listening socket. An unbound socket is bound to a free port.
    ///
    /// # Errors
    /// [`SockError::NotSupported`] for a datagram socket, [`SockError::Invalid`] for a connected one,
    /// [`SockError::AddressInUse`].
    pub fn listen(&mut self, s: SocketId, backlog: i32) -> Result<()> {
        let socket = self.sockets.get(s)?;
        match &socket.body {
            Body::Udp(_) => return Err(SockError::NotSupported),
            Body::TcpConn { .. } => return Err(SockError::Invalid),
            Body::TcpListening { .. } => {
                if let Body::TcpListening { settings, .. } = &mut self.sockets.get_mut(s)?.body {
                    settings.backlog = backlog;
                }
                self.refresh_listener(s);
                return Ok(());
            }
            Body::TcpIdle(_) => {}
        }
        let addr = match socket.bound.filter(|addr| addr.port() != 0) {
            Some(addr) => addr,
            None => {
                let any = socket.bound.unwrap_or_else(|| socket.domain.unspecified());
                self.hold_port(s, any)?;
                self.sockets.get(s)?.bound.ok_or(SockError::Invalid)?
            }
        };
        if !self.may_listen(s, addr)? {
            return Err(SockError::AddressInUse);
        }
        let socket = self.sockets.get_mut(s)?;
        let Body::TcpIdle(settings) = &mut socket.body else { return Err(SockError::Invalid) };
        let mut settings = std::mem::take(settings);
        settings.backlog = backlog;
        let listen_addr = ListenAddr::from_socket_addr(addr, socket.flags.v6_only);
        match self.join_listener(s, listen_addr, &settings) {
            Ok(listener) => {
                self.sockets.get_mut(s)?.body = Body::TcpListening { listener, settings };
                self.refresh_hold(s)
            }
            Err(error) => {
                self.sockets.get_mut(s)?.body = Body::TcpIdle(settings);
                Err(error)
            }
        }
    }

    /// Joins the listener at `addr`, or opens it.
    fn join_listener(&mut self, s: SocketId, addr: ListenAddr, settings: &TcpSettings) -> Result<u32> {
        let same =
            |shared: &Option<SharedListener>| shared.as_ref().is_some_and(|shared| shared.addr == addr);
        if let Some(place) = self.listeners.iter().position(same) {
            if let Some(shared) = &mut self.listeners[place] {
                shared.members.push(s);
            }
            return Ok(place as u32);
        }
        let place = match self.listeners.iter().position(Option::is_none) {
            Some(place) => place,
            None => {
                self.listeners.push(None);
                self.listeners.len() - 1
            }
        };
        let id = self.engine.listen(addr, listen_options(settings, place)).map_err(|error| match error {
            ListenError::InUse => SockError::AddressInUse,
            _ => SockError::Invalid,
        })?;
        self.listeners[place] = Some(SharedListener { id, addr, members: vec![s] });
        Ok(place as u32)
    }

    /// The socket no longer listens; the last one closes the listener.
    pub(super) fn leave_listener(&mut self, s: SocketId, listener: u32) {
        let Some(entry) = self.listeners.get_mut(listener as usize) else { return };
        let Some(shared) = entry else { return };
        shared.members.retain(|member| *member != s);
        if shared.members.is_empty() {
            let id = shared.id;
            *entry = None;
            self.end_listener(id);
        }
    }

    fn listener(&self, listener: u32) -> Option<&SharedListener> {
        self.listeners.get(listener as usize)?.as_ref()
    }

    pub(super) fn listener_readiness(&self, listener: u32) -> Readiness {
        self.listener(listener).map_or(Readiness::NONE, |shared| self.engine.listener_readiness(shared.id))
    }

    /// Gives the listener what was set on the socket after `listen`; with several sockets on it the last word
    /// counts.
    pub(super) fn refresh_listener(&mut self, s: SocketId) {
        let Ok(Socket { body: Body::TcpListening { listener, settings }, .. }) = self.sockets.get(s) else {
            return;
        };
        let place = *listener as usize;
        let fresh = listen_options(settings, place);
        let shared = self.listeners.get(place).and_then(Option::as_ref);
        if let Some(options) = shared.and_then(|shared| self.engine.listen_options_mut(shared.id)) {
            *options = fresh;
        }
    }

    /// Listeners of the engine.
    pub(crate) fn listener_count(&self) -> usize {
        self.listeners.iter().flatten().count()
    }

    /// Connections that wait for accept, over all listeners.
    pub(crate) fn accept_queue_len(&self) -> usize {
        let listeners = self.listeners.iter().flatten().map(|shared| shared.id);
        listeners.chain(self.leaving.iter().copied()).map(|id| self.engine.accept_queue_len(id)).sum()
    }

    /// The next connection and its peer.
    ///
    /// # Errors
    /// [`SockError::WouldBlock`]; [`SockError::Invalid`] for a socket that does not listen;
    /// [`SockError::TooManySockets`], and the connection stays in the queue.
    pub fn accept(&mut self, s: SocketId) -> Result<(SocketId, SocketAddr)> {
        let socket = self.sockets.get(s)?;
        let listener = match &socket.body {
            Body::TcpListening { listener, .. } => *listener,
            Body::Udp(_) => return Err(SockError::NotSupported),
            Body::TcpIdle(_) | Body::TcpConn { .. } => return Err(SockError::Invalid),
        };
        let (domain, flags) = (socket.domain, socket.flags);
        if !self.sockets.has_room() {
            return Err(SockError::TooManySockets);
        }
        let engine_listener = self.listener(listener).ok_or(SockError::Invalid)?.id;
        let conn = self.engine.accept(engine_listener).ok_or(SockError::WouldBlock)?;
        let peer = self.engine.remote_addr(conn).unwrap_or_else(|| domain.unspecified());
        let sent_before = self.engine.info(conn).map_or(0, |info| info.bytes_sent);
        let id = self.sockets.insert(Socket {
            domain,
            user: 0,
            edges: Readiness::NONE,
            flags: Flags { accepted: true, sent_before, first_bytes: FirstBytes::None, ..flags },
            bound: None,
            body: Body::TcpConn { conn },
        })?;
        self.engine.set_token(conn, id.to_u64());
        Ok((id, present(domain, peer)))
    }

    pub(super) fn tcp_connect(&mut self, s: SocketId, peer: SocketAddr) -> Result<()> {
        let socket = self.sockets.get(s)?;
        match &socket.body {
            Body::TcpConn { conn } => return self.connect_again(*conn),
            Body::TcpListening { .. } => return Err(SockError::IsConnected),
            Body::TcpIdle(_) | Body::Udp(_) => {}
        }
        if peer.port() == 0 || self.ip.addresses.route(peer.ip()).is_none() {
            return Err(SockError::NetUnreachable);
        }
        let bound = socket.bound;
        let local_ip = match bound.map(|addr| addr.ip()).filter(|ip| !ip.is_unspecified()) {
            Some(ip) if ip.is_ipv4() != peer.is_ipv4() => return Err(SockError::NetUnreachable),
            Some(ip) => ip,
            None => self.ip.addresses.source_for(peer.ip()).ok_or(SockError::NetUnreachable)?,
        };
        let port = match bound.map(|addr| addr.port()).filter(|port| *port != 0) {
            Some(port) => port,
            None => {
                let (engine, holds) = (&self.engine, &self.tcp_holds);
                let in_use = |port| {
                    let key = FlowKey::new(TCP, SocketAddr::new(local_ip, port), peer);
                    holds.is_held(port) || engine.index().lookup(&key).is_some()
                };
                self.tcp_ephemeral.choose(local_ip, peer, in_use).ok_or(SockError::NoPorts)?
            }
        };
        let local = SocketAddr::new(local_ip, port);
        let options = match &self.sockets.get(s)?.body {
            Body::TcpIdle(settings) => Some(settings.options),
            _ => None,
        };
        let conn = self.engine.connect_with(self.now, local, peer, options).map_err(|error| match error {
            ConnectError::Invalid => SockError::AddressNotAvailable,
            ConnectError::InUse => SockError::AddressNotAvailable,
            ConnectError::NoRoom => SockError::NoBuffers,
        })?;
        self.engine.set_token(conn, s.to_u64());
        self.sockets.get_mut(s)?.body = Body::TcpConn { conn };
        Err(SockError::InProgress)
    }

    /// `connect` on a socket that has a connection: how does it stand?
    fn connect_again(&mut self, conn: ConnId) -> Result<()> {
        if let Some(error) = self.engine.take_error(conn) {
            return Err(error.into());
        }
        match self.engine.state(conn) {
            Some(State::SynSent | State::SynReceived) => Err(SockError::Already),
            Some(State::Closed) | None => Err(SockError::Aborted),
            Some(_) => Err(SockError::IsConnected),
        }
    }

    /// The peer of a connection that is, or was, established.
    pub(super) fn tcp_peer(&self, conn: ConnId) -> Option<SocketAddr> {
        let state = self.engine.state(conn)?;
        let connected = !matches!(state, State::SynSent | State::Closed);
        self.engine.remote_addr(conn).filter(|_| connected)
    }

    fn conn(&self, s: SocketId) -> Result<ConnId> {
        match &self.sockets.get(s)?.body {
            Body::TcpConn { conn } => Ok(*conn),
            Body::TcpIdle(_) | Body::TcpListening { .. } => Err(SockError::NotConnected),
            Body::Udp(_) => Err(SockError::NotSupported),
        }
    }

    pub(super) fn tcp_recv(&mut self, s: SocketId, buf: &mut [u8], peek: bool) -> Result<usize> {
        let conn = self.conn(s)?;
        let read = if peek { self.engine.peek(conn, buf) } else { self.engine.read(conn, buf) };
        if let Ok(len) = read
            && len > 0
            && !peek
            && let Ok(socket) = self.sockets.get_mut(s)
            && socket.flags.first_bytes == FirstBytes::None
        {
            socket.flags.first_bytes = FirstBytes::of(&buf[..len]);
        }
        read.map_err(SockError::from)
    }

    pub(super) fn tcp_recv_vectored(
        &mut self,
        s: SocketId,
        bufs: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Result<usize> {
        let mut total = 0;
        // A second look would see the first buffer's bytes again.
        let bufs = if peek { bufs.get_mut(..1).unwrap_or_default() } else { bufs };
        for buf in bufs.iter_mut().filter(|buf| !buf.is_empty()) {
            match self.tcp_recv(s, buf, peek) {
                Ok(n) if n == buf.len() => total += n,
                Ok(n) => return Ok(total + n),
                Err(_) if total > 0 => return Ok(total),
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }

    pub(super) fn tcp_send(&mut self, s: SocketId, buf: &[u8]) -> Result<usize> {
        let conn = self.conn(s).map_err(|error| match error {
            // Linux: EPIPE, since writing is not possible in that state.
            SockError::NotConnected => SockError::BrokenPipe,
            other => other,
        })?;
        self.engine.write(self.now, conn, buf).map_err(SockError::from)
    }

    pub(super) fn tcp_send_vectored(&mut self, s: SocketId, bufs: &[IoSlice<'_>]) -> Result<usize> {
        let mut total = 0;
        for buf in bufs.iter().filter(|buf| !buf.is_empty()) {
            match self.tcp_send(s, buf) {
                Ok(n) if n == buf.len() => total += n,
                Ok(n) => return Ok(total + n),
                Err(_) if total > 0 => return Ok(total),
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }

    pub(super) fn tcp_shutdown(&mut self, s: SocketId, how: Shutdown) -> Result<()> {
        let socket = self.sockets.get_mut(s)?;
        if let Body::TcpListening { listener, settings } = &mut socket.body {
            if how == Shutdown::Write {
                return Ok(());
            }
            let (listener, settings) = (*listener, std::mem::take(settings));
            socket.body = Body::TcpIdle(settings);
            self.leave_listener(s, listener);
            return self.refresh_hold(s);
        }
        let conn = self.conn(s)?;
        if self.engine.state(conn).is_none_or(|state| state == State::Closed) {
            return Err(SockError::NotConnected);
        }
        if how != Shutdown::Write {
            self.engine.shutdown_read(conn);
        }
        if how != Shutdown::Read {
            self.engine.shutdown_write(self.now, conn);
        }
        Ok(())
    }

    /// Brings the engine's events to the sockets.
    pub(crate) fn collect_tcp_events(&mut self) {
        while let Some(Event { socket, token, edges }) = self.engine.poll_event() {
            match socket {
                SocketRef::Conn(_) => self.post(SocketId::from_u64(token), edges),
                SocketRef::Listener(id) => {
                    let place = token as usize;
                    let shared = self.listeners.get(place).and_then(Option::as_ref);
                    let members =
                        shared.filter(|shared| shared.id == id).map(|shared| shared.members.clone());
                    for member in members.unwrap_or_default() {
                        self.post(member, edges);
                    }
                }
            }
        }
    }

    /// Connections that the application has closed and that still have bytes to deliver, or a FIN. Costs a
    /// look at every connection: for a worker that wants to exit.
    ///
    /// One whose FIN is acknowledged owes its peer nothing, whatever the peer does.
    pub fn lingering(&self) -> usize {
        self.owing().count()
    }

    /// What the connections of [`lingering`](Self::lingering) owe: their bytes, and one more for each; and what waits
    /// to be handed to the next generation. 0 when there is nothing; it only falls, and as long as it falls, peers are
    /// taking what is theirs.
    pub fn owed(&self) -> u64 {
        let owed: u64 = self.owing().map(|conn| u64::from(conn.unsent_bytes) + 1).sum();
        owed + self.leaving_len() as u64
    }

    fn owing(&self) -> impl Iterator<Item = ConnSummary> + '_ {
        let owes = |state| !matches!(state, State::FinWait2 | State::TimeWait | State::Closed);
        self.engine.connections().filter(move |conn| conn.orphan && owes(conn.state))
    }
}

fn listen_options(settings: &TcpSettings, place: usize) -> ListenOptions {
    ListenOptions {
        backlog: backlog_of(settings.backlog),
        defer_accept_us: u64::from(settings.defer_accept_s) * 1_000_000,
        socket: settings.options,
        token: place as u64,
    }
}

/// `listen` takes a negative backlog as the largest (the engine bounds it by somaxconn).
fn backlog_of(backlog: i32) -> u32 {
    u32::try_from(backlog).unwrap_or(u32::MAX)
}
