//! The calls of the engine's user: listeners and connections as sockets.

use std::collections::VecDeque;
use std::net::SocketAddr;

use ff_flowmap::{FlowIndex, FlowKey};

use crate::buffers::Use;
use crate::config::EcnMode;
use crate::conn::{AckDue, Agreed, Conn};
use crate::engine::{Engine, TCP, Target};
use crate::error::*;
use crate::host::Host;
use crate::info::{ConnSummary, State, TcpInfo};
use crate::listen::Listener;
use crate::numbers;
use crate::passive::window_scale;
use crate::recovery::{LOST, RETX, SACKED};
use crate::socket::*;
use crate::time::Instant;

/// Listeners at most.
const LISTENERS_MAX: usize = 65_536;

impl<I: FlowIndex> Engine<I> {
    fn conn(&self, id: ConnId) -> Option<&Conn> {
        self.conns.get_checked(id.index, id.generation).filter(|c| !c.orphan)
    }

    fn conn_mut(&mut self, id: ConnId) -> Option<(&mut Conn, &mut Host)> {
        let conn = self.conns.get_checked_mut(id.index, id.generation).filter(|c| !c.orphan)?;
        Some((conn, &mut self.host))
    }

    // Listeners.

    /// Opens a listener.
    pub fn listen(&mut self, addr: ListenAddr, opts: ListenOptions) -> Result<ListenerId, ListenError> {
        if addr.port == 0 || addr.v6_only && addr.v4_only {
            return Err(ListenError::Invalid);
        }
        if self.listeners.in_use(&addr) {
            return Err(ListenError::InUse);
        }
        if self.listeners.slab.len() >= LISTENERS_MAX {
            return Err(ListenError::TooMany);
        }
        let (index, generation) = self.listeners.insert(Listener {
            addr,
            options: opts,
            accept_queue: VecDeque::new(),
            requests: 0,
            event_queued: false,
        });
        Ok(ListenerId { index, generation })
    }

    /// Closes a listener: connections that nobody has accepted are reset, and
    /// half-open ones forgotten.
    pub fn close_listener(&mut self, id: ListenerId) {
        if self.listeners.slab.get_checked(id.index, id.generation).is_none() {
            return;
        }
        let Some(listener) = self.listeners.remove(id.index) else { return };
        for (index, generation) in listener.accept_queue {
            if let Some(conn) = self.conns.get_checked_mut(index, generation) {
                conn.orphan = true;
                self.host.orphans += 1;
                self.reset(index);
            }
        }
        if listener.requests > 0 {
            let own = (id.index, id.generation);
            let mine: Vec<u32> =
                self.requests.slab.iter().filter(|(_, _, r)| r.listener == own).map(|(i, _, _)| i).collect();
            for i in mine {
                self.drop_request(i);
            }
        }
    }

    /// Changes a listener's backlog.
    pub fn set_backlog(&mut self, id: ListenerId, backlog: u32) {
        if let Some(l) = self.listeners.slab.get_checked_mut(id.index, id.generation) {
            l.options.backlog = backlog;
        }
    }

    /// A listener's options, to be read or changed for connections to come.
    pub fn listen_options_mut(&mut self, id: ListenerId) -> Option<&mut ListenOptions> {
        Some(&mut self.listeners.slab.get_checked_mut(id.index, id.generation)?.options)
    }

    /// Where a listener listens.
    pub fn listen_addr(&self, id: ListenerId) -> Option<ListenAddr> {
        Some(self.listeners.slab.get_checked(id.index, id.generation)?.addr)
    }

    /// All listeners.
    pub fn listener_ids(&self) -> impl Iterator<Item = ListenerId> + '_ {
        self.listeners.slab.iter().map(|(index, generation, _)| ListenerId { index, generation })
    }

    /// Takes the oldest connection that waits to be accepted.
    pub fn accept(&mut self, id: ListenerId) -> Option<ConnId> {
        let listener = self.listeners.slab.get_checked_mut(id.index, id.generation)?;
        while let Some((index, generation)) = listener.accept_queue.pop_front() {
            if let Some(conn) = self.conns.get_checked_mut(index, generation) {
                conn.held = true;
                conn.listener = None;
                return Some(ConnId { index, generation });
            }
        }
        None
    }

    /// Connections that wait to be accepted.
    pub fn accept_queue_len(&self, id: ListenerId) -> usize {
        self.listeners.slab.get_checked(id.index, id.generation).map_or(0, |l| l.accept_queue.len())
    }

    /// Half-open handshakes of a listener.
    pub fn listener_request_count(&self, id: ListenerId) -> usize {
        self.listeners.slab.get_checked(id.index, id.generation).map_or(0, |l| l.requests as usize)
    }

    /// `READABLE` if accept would give a connection.
    pub fn listener_readiness(&self, id: ListenerId) -> Readiness {
        if self.accept_queue_len(id) > 0 { Readiness::READABLE } else { Readiness::NONE }
    }

    /// Sets the word that a listener's events carry.
    pub fn set_listener_token(&mut self, id: ListenerId, token: u64) {
        if let Some(l) = self.listeners.slab.get_checked_mut(id.index, id.generation) {
            l.options.token = token;
        }
    }

    // Connections.

    /// Begins an active open. The outcome is an event: `WRITABLE`, or an error.
    pub fn connect(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<ConnId, ConnectError> {
        self.connect_with(now, local, remote, None)
    }

    /// As [`connect`](Self::connect), with options that the handshake needs
    /// (receive buffer, largest segment).
    pub fn connect_with(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        options: Option<SocketOptions>,
    ) -> Result<ConnId, ConnectError> {
        self.tick(now);
        let bad = |a: &SocketAddr| a.port() == 0 || a.ip().is_unspecified() || a.ip().is_multicast();
        if local.is_ipv4() != remote.is_ipv4() || bad(&local) || bad(&remote) {
            return Err(ConnectError::Invalid);
        }
        let key = FlowKey::new(TCP, local, remote);
        let mut isn_after = None;
        if let Some(flow) = self.index.lookup(&key) {
            // RFC 6191: timestamps make a new connection safe from the old one's segments.
            let reusable = match Target::from_ref(flow) {
                Some(Target::TimeWait(i)) => {
                    self.time_waits.get(i).filter(|t| t.timestamps()).map(|t| (i, t.snd_nxt))
                }
                _ => None,
            };
            let Some((i, snd_nxt)) = reusable else { return Err(ConnectError::InUse) };
            isn_after = Some(snd_nxt.add(65_535 + 2));
            self.host.counters.time_wait_reused += 1;
            self.drop_time_wait(i);
        }
        if self.conns.len() >= self.host.config.conns_max as usize {
            return Err(ConnectError::NoRoom);
        }
        let config = &self.host.config;
        let options = options.unwrap_or(config.socket);
        let iss = numbers::initial_sequence(&self.host.secrets, &key, now);
        let iss = isn_after.map_or(iss, |a| iss.max(a));
        let rcv_max = options.rcvbuf_bytes.unwrap_or(config.rcv_buf_max_bytes).min(config.rcv_buf_max_bytes);
        let agreed = Agreed {
            peer_mss: u16::MAX,
            wscale: config.window_scaling.then(|| (0, window_scale(rcv_max))),
            sack: config.sack,
            timestamps: config.timestamps,
            ecn: config.ecn == EcnMode::On,
        };
        let mut conn = Conn::new(&mut self.host, key, State::SynSent, iss, agreed);
        conn.options = options;
        conn.inherit(&self.host);
        conn.held = true;
        let (index, generation) = self.conns.insert(conn);
        if self.index.insert(&key, Target::Conn(index).to_ref()).is_err() {
            self.conns.remove(index);
            return Err(ConnectError::NoRoom);
        }
        self.host.counters.active_opens += 1;
        if let Some(conn) = self.conns.get_mut(index) {
            conn.index = index;
            conn.generation = generation;
            conn.want_output(&mut self.host);
        }
        Ok(ConnId { index, generation })
    }

    /// Reads into `buf`; 0 is the end of the stream (or an empty `buf`).
    pub fn read(&mut self, id: ConnId, buf: &mut [u8]) -> Result<usize, ReadError> {
        let now = self.host.now;
        let Some((conn, host)) = self.conn_mut(id) else { return Err(ReadError::NotConnected) };
        let n = conn.rx.copy_out(0, buf);
        if n == 0 {
            return conn.read_nothing(buf.is_empty());
        }
        let keep = conn.ooo.is_some();
        conn.rx.consume(&mut host.pool, n as u32, !keep);
        // An ACK that this makes due is on the work list; no deadline moves.
        conn.after_read(host, now, n as u32);
        Ok(n)
    }

    /// As [`read`](Self::read), and leaves the bytes where they are.
    pub fn peek(&mut self, id: ConnId, buf: &mut [u8]) -> Result<usize, ReadError> {
        let Some((conn, _)) = self.conn_mut(id) else { return Err(ReadError::NotConnected) };
        let n = conn.rx.copy_out(0, buf);
        if n == 0 { conn.read_nothing(buf.is_empty()) } else { Ok(n) }
    }

    /// Copies what fits of `data` into the send buffer.
    pub fn write(&mut self, now: Instant, id: ConnId, data: &[u8]) -> Result<usize, WriteError> {
        self.tick(now);
        let Some((conn, host)) = self.conn_mut(id) else { return Err(WriteError::NotConnected) };
        if let Some(e) = conn.error.take() {
            return Err(WriteError::Failed(e));
        }
        match conn.state {
            State::SynSent | State::SynReceived => {
                conn.nospace.set(true);
                return Err(WriteError::WouldBlock);
            }
            _ if !conn.can_send() => return Err(WriteError::BrokenPipe),
            _ => {}
        }
        conn.memory_told = false;
        let limit = conn.snd_limit(host);
        let room = limit.saturating_sub(conn.tx.len()) as usize;
        let mut n = room.min(data.len());
        while n > 0 && !conn.tx.push(&mut host.pool, &data[..n], Use::Write) {
            // No memory to grow so far: half of it, down to what the ring has left.
            let left = (conn.tx.capacity() - conn.tx.len()) as usize;
            n = if n / 2 > left.max(512) { n / 2 } else { left.min(n - 1) };
        }
        if n == 0 && room > 0 && !data.is_empty() {
            host.memory_waiters.push_back((conn.index, conn.generation));
        }
        if n < data.len() {
            conn.nospace.set(true);
        }
        if n == 0 {
            return if data.is_empty() { Ok(0) } else { Err(WriteError::WouldBlock) };
        }
        conn.want_output(host);
        Ok(n)
    }

    /// Bytes that can be read.
    pub fn readable_bytes(&self, id: ConnId) -> usize {
        self.conn(id).map_or(0, |c| c.readable() as usize)
    }

    /// Bytes that a write would take.
    pub fn writable_bytes(&self, id: ConnId) -> usize {
        self.conn(id)
            .filter(|c| c.can_send())
            .map_or(0, |c| c.snd_limit(&self.host).saturating_sub(c.tx.len()) as usize)
    }

    /// Bytes written and not yet acknowledged (SIOCOUTQ).
    pub fn unsent_bytes(&self, id: ConnId) -> usize {
        self.conn(id).map_or(0, |c| c.tx.len() as usize)
    }

    /// Ends our direction: FIN follows what is written.
    pub fn shutdown_write(&mut self, now: Instant, id: ConnId) {
        self.tick(now);
        let Some((conn, host)) = self.conn_mut(id) else { return };
        conn.queue_fin(host);
        conn.notify(host, Readiness::WRITABLE);
        self.settle(id.index);
    }

    /// Ends reading: reads give what is there and then 0. The peer is not told.
    pub fn shutdown_read(&mut self, id: ConnId) {
        let Some((conn, host)) = self.conn_mut(id) else { return };
        conn.read_shut = true;
        conn.notify(host, Readiness::READABLE | Readiness::RDHUP);
    }

    /// Closes. What is written still goes out, with FIN behind it, in the
    /// background; with unread data, or with linger 0, RST goes out instead,
    /// as in Linux. The id is void after it.
    pub fn close(&mut self, now: Instant, id: ConnId) {
        self.tick(now);
        let Some((conn, host)) = self.conn_mut(id) else { return };
        conn.orphan = true;
        host.orphans += 1;
        if conn.detached {
            return self.settle(id.index);
        }
        if matches!(conn.state, State::SynSent) {
            conn.shut_down(host);
            return self.settle(id.index);
        }
        let unread = !conn.rx.is_empty();
        let at_once = conn.options.linger_s == Some(0);
        let too_many = host.orphans > host.config.orphans_max;
        if unread || at_once || too_many {
            if unread {
                host.counters.abort_on_data += 1;
            } else if too_many {
                host.counters.orphans_aborted += 1;
            }
            return self.reset(id.index);
        }
        conn.queue_fin(host);
        match conn.state {
            State::FinWait2 => conn.arm_fin_wait2(host, now),
            State::TimeWait | State::Closed => {}
            _ => conn.want_output(host),
        }
        self.settle(id.index);
    }

    /// Closes with RST. The id is void after it.
    pub fn abort(&mut self, now: Instant, id: ConnId) {
        self.tick(now);
        let Some((conn, host)) = self.conn_mut(id) else { return };
        conn.orphan = true;
        host.orphans += 1;
        self.reset(id.index);
    }

    /// Ends a connection with RST where the protocol has one.
    pub(crate) fn reset(&mut self, index: u32) {
        let now = self.host.now;
        let Some(conn) = self.conns.get_mut(index) else { return };
        if !conn.detached {
            if !matches!(conn.state, State::SynSent | State::TimeWait | State::Closed) {
                if matches!(conn.state, State::Established | State::CloseWait) {
                    self.host.counters.estab_resets += 1;
                }
                conn.send_rst(&mut self.host, now);
            }
            conn.shut_down(&mut self.host);
        }
        self.settle(index);
    }

    /// What is ready now.
    pub fn readiness(&self, id: ConnId) -> Readiness {
        self.conn(id).map_or(Readiness::HUP | Readiness::ERR, |c| c.readiness(&self.host))
    }

    /// Sets the word that the connection's events carry.
    pub fn set_token(&mut self, id: ConnId, token: u64) {
        if let Some((conn, _)) = self.conn_mut(id) {
            conn.token = token;
        }
    }

    /// Takes the pending error (SO_ERROR).
    pub fn take_error(&mut self, id: ConnId) -> Option<ConnError> {
        self.conn_mut(id).and_then(|(conn, _)| conn.error.take())
    }

    /// The connection's state.
    pub fn state(&self, id: ConnId) -> Option<State> {
        self.conn(id).map(|c| c.state)
    }

    /// The connection's options.
    pub fn options(&self, id: ConnId) -> Option<SocketOptions> {
        self.conn(id).map(|c| c.options)
    }

    /// Changes the connection's options; takes effect at once.
    pub fn set_options(&mut self, id: ConnId, options: SocketOptions) {
        let now = self.host.now;
        let Some((conn, host)) = self.conn_mut(id) else { return };
        let before = std::mem::replace(&mut conn.options, options);
        if options.keepalive != before.keepalive {
            conn.probes = 0;
            conn.arm_keepalive(now);
            if conn.options.keepalive.enabled {
                conn.keep_at = conn.last_recv.0.saturating_add(options.keepalive.idle_us).max(now.0 + 1);
            }
        }
        if let Some(bytes) = options.rcvbuf_bytes.filter(|_| options.rcvbuf_bytes != before.rcvbuf_bytes) {
            conn.rcv_buf_bytes = bytes.clamp(2_048, host.config.rcv_buf_max_bytes);
        }
        if options.sndbuf_bytes != before.sndbuf_bytes && conn.nospace.get() && conn.has_write_space(host) {
            conn.nospace.set(false);
            conn.notify(host, Readiness::WRITABLE);
        }
        if let Some(algorithm) = options.congestion.filter(|a| conn.controller.algorithm() != *a) {
            conn.controller = crate::congestion::Controller::new(algorithm);
        }
        let flushes = options.nodelay && !before.nodelay || !options.cork && before.cork;
        if flushes && !conn.tx.is_empty() {
            conn.want_output(host);
        }
        if options.quickack && !before.quickack && conn.ack_due == AckDue::Delayed {
            conn.ack_due = AckDue::Now;
            conn.want_output(host);
        }
        if !conn.detached {
            self.settle(id.index);
        }
    }

    /// Our end.
    pub fn local_addr(&self, id: ConnId) -> Option<SocketAddr> {
        self.conn(id).map(|c| c.key.local_addr())
    }

    /// The peer's end.
    pub fn remote_addr(&self, id: ConnId) -> Option<SocketAddr> {
        self.conn(id).map(|c| c.key.remote_addr())
    }

    // Observation.

    /// TCP_INFO.
    pub fn info(&self, id: ConnId) -> Option<TcpInfo> {
        let now = self.host.now;
        let c = self.conn(id)?;
        let count =
            |flags: u8, value: u8| c.records.iter().filter(|r| r.flags & flags == value).count() as u32;
        let since = |t: u64| if t == 0 { 0 } else { now.0.saturating_sub(t) };
        Some(TcpInfo {
            state: c.state,
            ca_state: c.ca_state,
            retransmits: c.retransmits,
            probes: c.probes,
            backoff: c.backoff,
            timestamps: c.agreed.timestamps,
            sack: c.agreed.sack,
            wscale: c.agreed.wscale.is_some(),
            ecn: c.agreed.ecn,
            snd_wscale: c.agreed.wscale.map_or(0, |w| w.0),
            rcv_wscale: c.agreed.wscale.map_or(0, |w| w.1),
            rto_us: c.rtt.rto_backed_off_us(c.backoff, self.host.config.rto_max_us),
            ato_us: self.host.config.delayed_ack_us,
            snd_mss: c.window.mss,
            rcv_mss: u32::from(c.rcv_mss),
            unacked_segments: c.records.len() as u32,
            sacked_segments: if c.agreed.sack {
                count(SACKED, SACKED)
            } else {
                c.sacked_bytes / c.window.mss.max(1)
            },
            lost_segments: count(LOST, LOST),
            retrans_segments: count(RETX, RETX),
            last_data_sent_us: since(c.stats.last_data_sent_us),
            last_data_recv_us: since(c.stats.last_data_recv_us),
            last_ack_recv_us: since(c.stats.last_ack_recv_us),
            pmtu: u32::from(c.pmtu),
            rtt_us: c.rtt.srtt_us,
            rttvar_us: c.rtt.rttvar_us,
            min_rtt_us: if c.rtt.min_us == u32::MAX { 0 } else { c.rtt.min_us },
            snd_ssthresh_bytes: c.window.ssthresh,
            snd_cwnd_bytes: c.window.cwnd,
            snd_cwnd_segments: c.window.cwnd / c.window.mss.max(1),
            snd_wnd_bytes: c.snd_wnd,
            rcv_wnd_bytes: c.rcv_adv.since(c.rcv_nxt),
            rcv_space_bytes: c.rcv_buf_bytes,
            reordering_segments: (c.rack.reordering_bytes / c.window.mss.max(1)).max(3),
            total_retrans_segments: c.stats.retrans_segs,
            bytes_acked: c.stats.bytes_acked,
            bytes_received: c.stats.bytes_received,
            bytes_sent: c.stats.bytes_sent,
            bytes_retrans: c.stats.bytes_retrans,
            segs_in: c.stats.segs_in,
            segs_out: c.stats.segs_out,
            notsent_bytes: c.data_end().since(c.snd_nxt),
            dsack_dups: c.stats.dsack_dups,
            pacing_rate_bytes_per_s: if self.host.config.pacing && c.rtt.srtt_us > 0 {
                u64::from(c.window.cwnd) * 1_200_000 / u64::from(c.rtt.srtt_us)
            } else {
                0
            },
        })
    }

    /// A line about each connection, orphans and unaccepted ones included.
    pub fn connections(&self) -> impl Iterator<Item = ConnSummary> + '_ {
        let now = self.host.now;
        self.conns.iter().map(move |(index, generation, c)| ConnSummary {
            id: ConnId { index, generation },
            local: c.key.local_addr(),
            remote: c.key.remote_addr(),
            state: c.state,
            unread_bytes: c.rx.len(),
            unsent_bytes: c.tx.len(),
            orphan: c.orphan,
            unaccepted: !c.held,
            idle_us: now.micros_since(c.last_recv.max(c.last_send)),
        })
    }
}

impl Conn {
    /// What a read says when there are no bytes.
    fn read_nothing(&mut self, empty_buf: bool) -> Result<usize, ReadError> {
        if let Some(e) = self.error.take() {
            return Err(ReadError::Failed(e));
        }
        match self.state {
            State::SynSent | State::SynReceived => Err(ReadError::WouldBlock),
            _ if empty_buf || self.fin_received || self.read_shut => Ok(0),
            State::Closed | State::TimeWait => Ok(0),
            _ => Err(ReadError::WouldBlock),
        }
    }

    /// The user took `n` bytes: the window may open, and the buffer grow.
    fn after_read(&mut self, host: &mut Host, now: Instant, n: u32) {
        if self.detached || !self.can_receive() {
            return;
        }
        self.tune_receive_buffer(host, now, n);
        let known = self.rcv_adv.since(self.rcv_nxt);
        let open = self.window_edge(host).since(self.rcv_nxt);
        let step = (self.rcv_buf_bytes / 2).min(2 * u32::from(self.rcv_mss));
        // A window that has at least doubled is worth a segment of its own.
        if open >= known + step && open / 2 >= known {
            self.ack_due = AckDue::Now;
            self.want_output(host);
        }
    }

    /// Dynamic right-sizing: the buffer holds twice what the user takes in a
    /// round trip, up to the maximum.
    fn tune_receive_buffer(&mut self, host: &Host, now: Instant, n: u32) {
        self.drs_copied = self.drs_copied.saturating_add(n);
        let rtt = u64::from(if self.rtt.min_us == u32::MAX { 100_000 } else { self.rtt.srtt_us.max(1) });
        if now.micros_since(self.drs_start) < rtt {
            return;
        }
        let copied = std::mem::take(&mut self.drs_copied);
        self.drs_start = now;
        if copied <= self.drs_space || self.options.rcvbuf_bytes.is_some() {
            return;
        }
        let growing = copied - self.drs_space;
        self.drs_space = copied;
        if host.pool.pressure() {
            return;
        }
        let wanted = 2u64 * u64::from(copied) + 16 * u64::from(self.rcv_mss) + 2 * u64::from(growing);
        let wanted = wanted.min(u64::from(host.config.rcv_buf_max_bytes)) as u32;
        self.rcv_buf_bytes = self.rcv_buf_bytes.max(wanted);
    }

    /// FIN follows what is written.
    pub(crate) fn queue_fin(&mut self, host: &mut Host) {
        if self.fin_queued {
            return;
        }
        match self.state {
            State::SynSent | State::SynReceived => self.fin_queued = true,
            State::Established => {
                self.fin_queued = true;
                self.state = State::FinWait1;
                self.want_output(host);
            }
            State::CloseWait => {
                self.fin_queued = true;
                self.state = State::LastAck;
                self.want_output(host);
            }
            _ => {}
        }
    }
}
