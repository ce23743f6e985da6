//! Workers of one instance: they share its region, as the processes of a real one do.

use ff_dataplane::io::WorkerRef;
use ff_dataplane::io::memory::{MemoryNet, PortId};
use ff_dataplane::sockets::{Domain, Kind, SocketId};
use ff_dataplane::{Shared, Stack, StackConfig};
use ff_flowmap::{HeapMemory, Owner, TcpTableWriter};
use ff_handover::{Instance, InstanceLayout, InstanceParams, InstanceSeed, Secrets};

use super::{addr, ip};

pub type WorkerStack = Stack<ff_dataplane::io::memory::MemoryIo, TcpTableWriter<'static>>;

pub fn instance(workers: u32) -> Instance<'static> {
    let params =
        InstanceParams { workers, slots: 2, tcp_capacity: 256, udp_capacity: 256, neighbour_capacity: 64 };
    let bytes = InstanceLayout::new(params).expect("a layout").total_bytes();
    let memory: &'static HeapMemory = Box::leak(Box::new(HeapMemory::new(bytes)));
    let secrets = Secrets { isn: [1; 16], timestamp: [2; 16], cookie: [3; 16], hash: [4; 16] };
    let seed = InstanceSeed { primary_pid: 1, started_us: 0, name: "test", device_digest: 0, secrets };
    Instance::create(memory.region(), params, &seed).expect("created")
}

pub fn config(worker: WorkerRef, workers: u16) -> StackConfig {
    StackConfig { worker, worker_count: workers, slot_count: 2, ..super::stack_config() }
}

pub fn worker(
    net: &MemoryNet,
    port: PortId,
    instance: &Instance<'static>,
    at: WorkerRef,
    queues: &[u16],
) -> WorkerStack {
    let owner = Owner { epoch: 1 + u32::from(at.slot), pid: 100 + u32::from(at.index) };
    let shared = Shared::of_instance(instance, at, owner, 10_000_000).expect("opened");
    let (slot, index) = (usize::from(at.slot), usize::from(at.index));
    let flows = instance.tcp_writer(slot, index, owner).expect("opened");
    let io = net.attach(port, at, queues);
    let workers = instance.directory().worker_count() as u16;
    Stack::new(config(at, workers), io, flows, shared)
}

pub fn at(slot: u16, index: u16) -> WorkerRef {
    WorkerRef { slot, index }
}

/// A client stack on the other end of the wire.
pub fn client(net: &MemoryNet, port: PortId) -> super::TestStack {
    let mut config = super::stack_config();
    config.addresses = vec![(ip("198.18.0.1"), 24), (ip("2001:2::1"), 64)];
    config.gateway4 = None;
    config.gateway6 = None;
    super::stack_on(net, port, config)
}

pub fn listen(stack: &mut WorkerStack, port: u16) -> SocketId {
    let socket = stack.socket(Domain::Ipv4, Kind::Stream).expect("a socket");
    stack.bind(socket, addr(&format!("0.0.0.0:{port}"))).expect("bound");
    stack.listen(socket, 128).expect("listening");
    socket
}
