use ff_flowmap::{HeapMemory, Owner};
use ff_handover::{EpochSlot, Instance, InstanceLayout, InstanceParams, InstanceSeed, Secrets};

use super::*;

const PARAMS: InstanceParams =
    InstanceParams { workers: 2, slots: 4, tcp_capacity: 64, udp_capacity: 64, neighbour_capacity: 16 };

fn memory() -> HeapMemory {
    HeapMemory::new(InstanceLayout::new(PARAMS).unwrap().total_bytes())
}

fn create(memory: &HeapMemory) -> Instance<'_> {
    let secrets = Secrets { isn: [1; 16], timestamp: [2; 16], cookie: [3; 16], hash: [4; 16] };
    let seed = InstanceSeed { primary_pid: 10, started_us: 0, name: "a", device_digest: 0, secrets };
    Instance::create(memory.region(), PARAMS, &seed).unwrap()
}

#[test]
fn nothing_has_attached_yet() {
    let memory = memory();
    let directory = create(&memory).directory();
    assert_eq!(generations_of(&directory, 1, |_| true), (None, vec![]));
}

#[test]
fn the_words_become_the_document() {
    let memory = memory();
    let directory = create(&memory).directory();
    let generation = directory.generation(1).unwrap();
    generation.begin(7, None, 99, 1_000);
    let (first, second) = (Owner { epoch: 7, pid: 100 }, Owner { epoch: 7, pid: 101 });
    let words = directory.worker(1, 0).unwrap();
    words.attach(first, 0, 2_000);
    assert!(directory.queue(0).unwrap().assign(first));
    words.set_ready(first, 39_000);
    words.beat(49_000);
    words.add(WorkerCounter::RxPackets, 5);
    words.add_drops(DropReason::BadTcpChecksum, 3);
    words.set_gauge(WorkerGauge::CpuBusyPpm, 250_000);
    // The second place still has the words of an earlier generation's worker.
    directory.worker(1, 1).unwrap().attach(Owner { epoch: 3, ..second }, 1, 0);
    directory.instance().set_active(Some(EpochSlot { epoch: 7, slot: 1 }));

    let (active, generations) = generations_of(&directory, 50_000, |_| true);
    assert_eq!(active, Some(ActiveStatus { epoch: 7, slot: 1 }));
    assert_eq!(generations.len(), 1);
    assert_eq!((generations[0].epoch, generations[0].slot, generations[0].master_pid), (7, 1, 99));
    assert_eq!(generations[0].state, "spawning");
    let worker = &generations[0].workers[0];
    assert_eq!((worker.pid, worker.ready, worker.queues.as_slice()), (100, true, [0].as_slice()));
    assert_eq!((worker.rx_packets, worker.attach_us, worker.heartbeat_age_us), (5, 37_000, 1_000));
    assert_eq!(worker.drops, BTreeMap::from([("bad_tcp_checksum".to_owned(), 3)]));
    assert!((worker.cpu_busy_ratio - 0.25).abs() < 1e-9);
    let empty = &generations[0].workers[1];
    assert_eq!((empty.pid, empty.ready, empty.queues.len()), (0, false, 0));

    // It has not been heard of for a while.
    let (_, generations) = generations_of(&directory, 49_001 + STALLED_AFTER_US, |_| true);
    assert_eq!((worker.state.as_str(), generations[0].workers[0].state.as_str()), ("ready", "stalled"));
    assert_eq!(empty.state, "empty");

    // Killed: its numbers stay, READY does not.
    let (_, generations) = generations_of(&directory, 50_000, |pid| pid != 100);
    let worker = &generations[0].workers[0];
    assert_eq!((worker.pid, worker.ready, worker.rx_packets), (100, false, 5));
}

#[test]
fn the_newest_generation_comes_first() {
    let memory = memory();
    let directory = create(&memory).directory();
    directory.generation(0).unwrap().begin(9, None, 1, 0);
    directory.generation(3).unwrap().begin(8, None, 1, 0);
    directory.generation(2).unwrap().begin(7, None, 1, 0);
    directory.generation(2).unwrap().set_state(GenerationState::Free, 1);
    let (_, generations) = generations_of(&directory, 0, |_| true);
    assert_eq!(generations.iter().map(|g| (g.epoch, g.slot)).collect::<Vec<_>>(), [(9, 0), (8, 3)]);
}
