//! The devices of `io`, each with real processes: one primary and workers as DPDK secondaries. Needs root
//! and hugepages; says so and fails without. Everything happens in a network namespace of its own.

#![allow(clippy::unwrap_used)]

mod af_packet;
#[path = "../../../dpdk/tests/support/mod.rs"]
mod support;
mod tap;
mod wire;
mod wire_rings;

use std::time::{Duration, Instant};

use ff_dataplane::io::WorkerRef;
use ff_dataplane::io::inboxes::Seat;
use ff_dpdk::instance::{self, Layout, Parts};
use ff_dpdk::{Eal, Mempool, mbuf, names};
use support::{Channel, Instance, Process, run};

/// How long a frame may take before a test fails.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() {
    if let Some(missing) = support::missing() {
        eprintln!("FAILED: {missing}");
        std::process::exit(1);
    }
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("a network namespace");
    // The kernel would say things of its own on every new link.
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").expect("no IPv6 in the namespace");
    wire::ip("link set lo up");
    run(&[
        ("tap_ping_pong", tap::ping_pong),
        ("tap_wakes_the_owner_only", tap::wakes_the_owner_only),
        ("tap_hundred_kills", tap::hundred_kills),
        ("wire_ping_pong", wire_rings::ping_pong),
        ("wire_kills", wire_rings::kills),
        ("af_packet_queues", af_packet::queues_share_the_flows),
        ("af_packet_offload", af_packet::offload),
        ("af_packet_vlans", af_packet::vlans),
        ("af_packet_forwards", af_packet::forwards_frames_of_every_kind),
        ("af_packet_handover_and_kill", af_packet::handover_and_kill),
    ]);
}

/// Two workers, two slots.
fn layout() -> Layout {
    Layout { worker_mbufs: 1023, queue_mbufs: 2047, inbox_slots: 256, ..Layout::new(2, 2) }
}

fn seat(index: u16) -> Seat {
    let layout = layout();
    Seat { worker: WorkerRef { slot: 0, index }, workers: layout.workers, slots: layout.slots }
}

fn lcore(index: u16) -> u16 {
    let layout = layout();
    names::lcore_id(layout.workers, layout.slots, seat(index).worker.into()).unwrap()
}

/// Words to a primary: the low half is a process id.
const RESTORE: u64 = 1 << 32;
const AVAILABLE: u64 = 2 << 32;

/// A primary with pools and inboxes and what `create` makes, which then restores memory after kills and
/// tells what is available.
fn primary(instance: &Instance, create: impl FnOnce(Eal) -> Parts) -> Process {
    let prefix = &instance.prefix;
    let mut process = Process::start(|channel| {
        let eal = instance.primary();
        instance::create_workers(eal, &layout()).unwrap();
        let parts = create(eal);
        channel.send(0);
        while let Some(word) = channel.try_receive() {
            answer(eal, channel, prefix, &parts, word);
        }
    });
    process.channel.receive();
    process
}

fn answer(eal: Eal, channel: &mut Channel, prefix: &str, parts: &Parts, word: u64) {
    let layout = layout();
    let (command, index, pid) = (word >> 32 << 32, (word >> 24 & 0xff) as u16, word as u32 & 0xff_ffff);
    match command {
        RESTORE => {
            let worker = seat(index).worker.into();
            // SAFETY: the test has killed and waited for the worker `pid`, which owned the queue of its
            // index, and starts no other before the answer.
            let restored = unsafe {
                instance::restore_after_kill(eal, &layout, parts, prefix, worker, pid, &[index]).unwrap()
            };
            channel.send(u64::from(restored.mbufs));
            channel.send(u64::from(restored.pools_incomplete));
        }
        AVAILABLE => {
            mbuf::flush_private_cache();
            let available = |name: String| u64::from(Mempool::lookup(eal, &name).unwrap().available());
            let workers = names::workers(layout.workers, layout.slots).map(names::worker_pool);
            let clients = parts.wires.iter().flat_map(|&(port, clients)| {
                (0..clients).map(move |client| names::wire_client_pool(port, client))
            });
            let short: u64 = workers.chain(clients).map(available).map(|n| 1023 - n).sum();
            channel.send(short);
            for port in &parts.ports {
                for queue in 0..layout.workers {
                    channel.send(available(names::queue_pool(port.device.number(), queue)));
                }
            }
        }
        _ => panic!("{word:x}"),
    }
}

/// Has the primary restore what a killed worker left; returns (mbufs returned, pools incomplete).
fn restore(primary: &mut Process, index: u16, worker: &Process) -> (u64, u64) {
    let pid = worker.pid.as_raw() as u64;
    assert!(pid < 1 << 24);
    primary.channel.send(RESTORE | u64::from(index) << 24 | pid);
    (primary.channel.receive(), primary.channel.receive())
}

/// Mbufs missing in the pools of workers and clients; then what each queue's pool has.
fn available(primary: &mut Process, queues: usize) -> (u64, Vec<u64>) {
    primary.channel.send(AVAILABLE);
    (primary.channel.receive(), (0..queues).map(|_| primary.channel.receive()).collect())
}

/// Polls until `done` says so; panics when it takes too long.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
    }
}
