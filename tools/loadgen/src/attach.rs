//! Attaching to the client's end of an instance's wire: asked from the primary, then DPDK as a secondary.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ff_control::{
    Connection, ControlError, DevicePlan, InstancePaths, PROTOCOL_VERSION, Refusal, Reply, Request,
    WorkerPlan,
};
use ff_dataplane::io::inboxes::AttachError;
use ff_dataplane::io::ring::{WireClientIo, WireSeat};
use ff_dataplane::{Shared, Stack, StackConfig};
use ff_dpdk::Eal;
use ff_dpdk::eal::EalError;
use ff_flowmap::{HeapIndex, TableOpenError};
use ff_tcp::{EngineConfig, Secrets};

use crate::addresses;
use crate::wire::Queues;

/// The primary recovers what a killed predecessor left before it answers.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Our stack at the client's end of a wire.
pub type WireStack = Stack<Queues<WireClientIo>, HeapIndex>;

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The primary cannot be asked.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// It said no.
    #[error("the primary refuses: {0}")]
    Refused(#[from] Refusal),
    /// It said something else.
    #[error("the primary's answer is not a plan: both must be of the same version")]
    NoPlan,
    /// DPDK does not start.
    #[error(transparent)]
    Eal(#[from] EalError),
    /// The rings are not there.
    #[error(transparent)]
    Io(#[from] AttachError),
    /// The neighbour table.
    #[error(transparent)]
    Table(#[from] TableOpenError),
    /// The wire has no queue.
    #[error("the wire has no queue")]
    NoQueues,
    /// The prefix of the server has no address left.
    #[error("the server's prefixes have no address for a client: name some with --source")]
    NoSource,
    /// A source address is in no prefix of the server.
    #[error("{0} is in none of the server's prefixes")]
    ForeignSource(IpAddr),
}

/// What the client needs beside its plan.
#[derive(Debug, Clone)]
pub struct ClientSettings {
    /// Source addresses; none: some are chosen.
    pub sources: Vec<IpAddr>,
    /// How many to choose of each family.
    pub source_count: u16,
    /// Connections at once.
    pub connections: usize,
}

/// Attached.
pub struct Client {
    /// The stack.
    pub stack: WireStack,
    /// Its addresses.
    pub sources: Vec<IpAddr>,
    /// Queues of the wire.
    pub queues: usize,
    /// The connection to the primary: kept, so that both know that this client lives.
    _control: Connection,
}

/// Attaches this process to the wire of `instance`. Once per process.
///
/// # Errors
/// [`ClientError`].
pub fn attach(instance: &str, settings: &ClientSettings) -> Result<Client, ClientError> {
    let mut control =
        Connection::connect(&InstancePaths::of_instance(instance).control_socket(), ANSWER_LIMIT)?;
    let request = Request::AttachClient { protocol: PROTOCOL_VERSION, pid: std::process::id() };
    let plan: WorkerPlan = match control.call(&request, ANSWER_LIMIT)? {
        Reply::Plan(plan) => *plan,
        Reply::Refused(refusal) => return Err(refusal.into()),
        _ => return Err(ClientError::NoPlan),
    };
    let DevicePlan::Wire { port } = plan.device else { return Err(ClientError::NoPlan) };
    let addresses = client_addresses(&plan, settings)?;
    let eal = Eal::init(&plan.eal_args)?;
    let seat = WireSeat { port, mtu: plan.mtu, mac: addresses::client_mac(plan.mac) };
    let queues = plan.queues.iter().map(|&queue| {
        // SAFETY: the primary gives the client's end to one living process at a time, and repairs the rings when
        // it has ended; this process attaches to each queue once.
        unsafe { WireClientIo::attach(eal, &seat, plan.slots, 0, queue) }
    });
    let queues = queues.collect::<Result<Vec<_>, _>>()?;
    let count = queues.len();
    let io = Queues::new(queues).ok_or(ClientError::NoQueues)?;
    let config = stack_config(&plan, addresses, settings);
    let sources = config.addresses.iter().map(|(ip, _)| *ip).collect();
    let shared = Shared::alone(config.hash_key)?;
    let index = HeapIndex::new(config.hash_key);
    Ok(Client { stack: Stack::new(config, io, index, shared), sources, queues: count, _control: control })
}

fn client_addresses(plan: &WorkerPlan, settings: &ClientSettings) -> Result<Vec<(IpAddr, u8)>, ClientError> {
    let gateways: Vec<IpAddr> = [plan.gateway4, plan.gateway6].into_iter().flatten().collect();
    let chosen = if settings.sources.is_empty() {
        addresses::choose(&plan.addresses, &gateways, settings.source_count)
    } else {
        let with_prefix = |&source: &IpAddr| {
            let prefix = plan.addresses.iter().find(|address| address.contains(source));
            prefix.map(|prefix| (source, prefix.prefix_len)).ok_or(ClientError::ForeignSource(source))
        };
        settings.sources.iter().map(with_prefix).collect::<Result<_, _>>()?
    };
    if chosen.is_empty() { Err(ClientError::NoSource) } else { Ok(chosen) }
}

fn stack_config(plan: &WorkerPlan, addresses: Vec<(IpAddr, u8)>, settings: &ClientSettings) -> StackConfig {
    // Room for connections that are closed and not done yet.
    let conns_max = u32::try_from(settings.connections * 2 + 65_536).unwrap_or(u32::MAX);
    StackConfig {
        mtu: plan.mtu,
        addresses,
        gateway4: None::<Ipv4Addr>,
        gateway6: None::<Ipv6Addr>,
        engine: EngineConfig { conns_max, orphans_max: conns_max, ..EngineConfig::default() },
        secrets: SECRETS,
        hash_key: HASH_KEY,
        sockets_max: conns_max as usize,
        ..StackConfig::default()
    }
}

/// Keys of the client's host. They are constants because a client takes the place of the one before it, with the same
/// addresses: the server holds that one's connections in TIME-WAIT, and takes a new SYN only when its sequence number
/// or timestamp is newer (RFC 6191), so both clients' numbers must come from one clock and one key. Nobody but the
/// server is on a wire in memory, so there is nobody to keep them from.
const SECRETS: Secrets =
    Secrets { isn: *b"loadgen: numbers", timestamp: *b"loadgen: stamps.", cookie: *b"loadgen: cookies" };
const HASH_KEY: [u8; 16] = *b"loadgen: hashing";
