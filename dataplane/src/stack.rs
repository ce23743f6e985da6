//! One worker's stack: what it is made of.
//!
//! The pass is in `pass.rs`, receiving in `input.rs`, sending in `egress.rs`, what other processes see of the
//! worker in `report.rs`, the socket calls in `sockets/`.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::RawFd;

use ff_flowmap::{
    EPHEMERAL_PORTS, EphemeralPorts, FlowIndex, HashKey, PortShare, Publication, UdpTableWriter,
};
use ff_tcp::{Engine, EngineConfig, Instant, ListenerId, Secrets};

use crate::dispatch::View;
use crate::input::Item;
use crate::io::{PacketIo, WorkerRef};
use crate::ip::addresses::Addresses;
use crate::ip::layer::IpLayer;
use crate::moving::Unfinished;
use crate::orders::Orders;
use crate::report::Report;
use crate::shared::Shared;
use crate::sockets::bind::PortMap;
use crate::sockets::table::SocketTable;
use crate::sockets::{SharedListener, SocketId};
use crate::udp::UdpPorts;

/// How a worker's stack is set up. Constant for its life.
#[derive(Clone, Debug)]
pub struct StackConfig {
    /// Largest IP packet in bytes, 576 to 9 216 (1 280 at least with IPv6); the smaller of this and the
    /// device's counts.
    pub mtu: u16,
    /// Addresses of the port with their prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Next hop of IPv4 destinations that are not on the link.
    pub gateway4: Option<Ipv4Addr>,
    /// Next hop of IPv6 destinations that are not on the link.
    pub gateway6: Option<Ipv6Addr>,
    /// Which worker of which slot this is.
    pub worker: WorkerRef,
    /// Workers of a generation: ephemeral ports are divided among them.
    pub worker_count: u16,
    /// Generation slots of the instance, 1 to 8: ephemeral ports are divided among them.
    pub slot_count: u16,
    /// TCP. The MTU and the segmentation limit are set from the device.
    pub engine: EngineConfig,
    /// Keys of TCP's keyed numbers, the same in all generations.
    pub secrets: Secrets,
    /// Key of the keyed hashes (ports, fragments), random, the same in all generations.
    pub hash_key: HashKey,
    /// Sockets that the worker may have, listeners and datagram sockets included.
    pub sockets_max: usize,
    /// Leave checksums and segmentation to the device where it can do them.
    pub offload: bool,
    /// Send no "port unreachable" for a datagram that nobody wants.
    pub udp_blackhole: bool,
    /// Tell the link our addresses at the start, and ask whether anybody else has them. For one worker of an
    /// instance at a time.
    pub announce: bool,
}

impl Default for StackConfig {
    fn default() -> Self {
        Self {
            mtu: 1_500,
            addresses: Vec::new(),
            gateway4: None,
            gateway6: None,
            worker: WorkerRef { slot: 0, index: 0 },
            worker_count: 1,
            slot_count: 1,
            engine: EngineConfig::default(),
            secrets: Secrets { isn: [0; 16], timestamp: [0; 16], cookie: [0; 16] },
            hash_key: [0; 16],
            sockets_max: 1_048_576,
            offload: true,
            udp_blackhole: false,
            announce: false,
        }
    }
}

/// What a pass did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PassReport {
    /// Frames received.
    pub rx: usize,
    /// Frames sent.
    pub tx: usize,
    /// [`Stack::next_event`] has something.
    pub events: bool,
    /// There is more to do at once: do not sleep.
    pub more: bool,
}

/// The TCP/IP stack of one worker over one packet I/O.
///
/// Order of calls: [`pass`](Self::pass), then [`next_event`](Self::next_event) until it gives none, then any
/// socket calls, and again. What a call has written leaves with the next pass. The calls take their time from
/// the last pass, so there must be one before the first call. Time never goes back.
pub struct Stack<P: PacketIo, I: FlowIndex> {
    pub(crate) config: StackConfig,
    pub(crate) now: Instant,
    pub(crate) io: P,
    pub(crate) engine: Engine<I>,
    pub(crate) ip: IpLayer<P::Frame>,
    pub(crate) view: View,
    pub(crate) hash_key: HashKey,

    pub(crate) sockets: SocketTable,
    /// Sockets with edges to report, each once.
    pub(crate) events: VecDeque<SocketId>,
    pub(crate) listeners: Vec<Option<SharedListener>>,
    pub(crate) tcp_holds: PortMap,
    pub(crate) tcp_ephemeral: EphemeralPorts,
    pub(crate) udp_holds: PortMap,
    pub(crate) udp_ephemeral: EphemeralPorts,
    pub(crate) udp_ports: UdpPorts,
    pub(crate) udp_table: Option<UdpTableWriter<'static>>,

    /// What the worker is told by the directory of its instance, if there is one.
    pub(crate) orders: Option<Orders>,
    /// Whom connections were handed on to.
    pub(crate) moved_to: Option<WorkerRef>,
    /// Listeners that nobody holds any more, and at which somebody waits.
    pub(crate) leaving: Vec<ListenerId>,
    /// Records of connections that are on their way to this worker.
    pub(crate) unfinished: Unfinished,
    pub(crate) report: Report,
    /// The burst of the pass, kept for its memory.
    pub(crate) burst: Vec<P::Frame>,
    pub(crate) items: Vec<Item>,
    /// A frame for the next segment: nearly every pass asks the engine once in vain.
    pub(crate) spare: Option<P::Frame>,
    /// Length of the IP header that the next segment is expected to need.
    pub(crate) expected_ip_bytes: usize,
    pub(crate) scratch: Vec<u8>,
}

impl<P: PacketIo, I: FlowIndex> Stack<P, I> {
    /// A stack over `io`. `index` is the worker's flow table, `shared` what it shares with other processes.
    /// The MAC address is the device's.
    pub fn new(mut config: StackConfig, mut io: P, index: I, shared: Shared) -> Self {
        let mut capabilities = io.capabilities();
        if !config.offload {
            capabilities.tx_ip_checksum = false;
            capabilities.tx_l4_checksum = false;
            capabilities.tso = false;
        }
        config.mtu = config.mtu.min(capabilities.mtu);
        config.engine.mtu = config.mtu;
        config.engine.tso_max_bytes = crate::egress::tso_payload_max(&capabilities);
        let addresses = Addresses::new(capabilities.mac, &config.addresses, config.gateway4, config.gateway6);
        let mut ip = IpLayer::new(addresses, capabilities, config.mtu, shared.neighbours, config.hash_key);
        let share = PortShare {
            slots: config.slot_count,
            slot: config.worker.slot,
            workers: config.worker_count,
            worker: config.worker.index,
        };
        let ephemeral = EphemeralPorts::new(config.hash_key, share, EPHEMERAL_PORTS);
        if config.announce {
            ip.announce(&mut io);
        }
        Self {
            now: Instant(0),
            engine: Engine::new(config.engine.clone(), config.secrets.clone(), index),
            ip,
            view: shared.view,
            hash_key: config.hash_key,
            sockets: SocketTable::new(config.sockets_max),
            events: VecDeque::new(),
            listeners: Vec::new(),
            tcp_holds: PortMap::default(),
            tcp_ephemeral: ephemeral.clone(),
            udp_holds: PortMap::default(),
            udp_ephemeral: ephemeral,
            udp_ports: UdpPorts::default(),
            udp_table: shared.udp_table,
            orders: shared.orders,
            moved_to: None,
            leaving: Vec::new(),
            unfinished: Unfinished::default(),
            report: Report::new(shared.words),
            burst: Vec::new(),
            items: Vec::new(),
            spare: None,
            expected_ip_bytes: crate::ip::parse::IPV4_BYTES,
            scratch: Vec::new(),
            config,
            io,
        }
    }

    /// Poll these for readability before sleeping. Empty: poll by time.
    pub fn wait_fds(&self) -> &[RawFd] {
        self.io.wait_fds()
    }

    /// The packet I/O beneath.
    pub fn io(&self) -> &P {
        &self.io
    }

    /// The packet I/O beneath, to be configured.
    pub fn io_mut(&mut self) -> &mut P {
        &mut self.io
    }

    /// The TCP engine, to be looked at.
    pub fn engine(&self) -> &Engine<I> {
        &self.engine
    }

    /// What the worker sees of the others, to be changed when generations come and go.
    pub fn view_mut(&mut self) -> &mut View {
        &mut self.view
    }

    /// Says whose this worker's UDP flows are, for other generations: to be called when the owner of the queue
    /// has changed.
    pub fn publish_udp(&mut self, publication: Publication) {
        if let Some(table) = &mut self.udp_table {
            table.publish(publication);
        }
    }

    /// Addresses of the port, the link-local one included.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.ip.addresses.iter()
    }

    /// Packets dropped for this reason since the start.
    pub fn drops(&self, reason: ff_handover::DropReason) -> u64 {
        self.report.drops_before(reason) + self.ip.drops.get(reason)
    }

    /// Times that another host was seen with one of our addresses.
    pub fn address_conflicts(&self) -> u64 {
        self.ip.conflicts()
    }

    /// Packets that wait for the address of their next hop.
    pub fn waiting_packets(&self) -> usize {
        self.ip.waiting()
    }

    /// Packets that are not yet put together, and the bytes that they hold.
    pub fn unfinished_fragments(&self) -> (usize, usize) {
        (self.ip.reassembler.len(), self.ip.reassembler.bytes())
    }

    /// Sockets that exist.
    pub fn socket_count(&self) -> usize {
        self.sockets.len()
    }

    /// The time of the last pass.
    pub fn now(&self) -> Instant {
        self.now
    }
}
