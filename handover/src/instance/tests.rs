use ff_flowmap::{FlowIndex, FlowKey, FlowRef, HeapMemory};

use super::*;

pub(crate) const SECRETS: Secrets =
    Secrets { isn: [1; 16], timestamp: [2; 16], cookie: [3; 16], hash: [4; 16] };

const PARAMS: InstanceParams =
    InstanceParams { workers: 2, slots: 4, tcp_capacity: 100, udp_capacity: 50, neighbour_capacity: 32 };

const SEED: InstanceSeed<'_> = InstanceSeed {
    primary_pid: 1234,
    started_us: 55,
    name: "default",
    device_digest: 0xdead_beef,
    secrets: SECRETS,
};

fn memory() -> HeapMemory {
    HeapMemory::new(InstanceLayout::new(PARAMS).unwrap().total_bytes() + 4096)
}

#[test]
fn what_was_created_is_found() {
    let memory = memory();
    Instance::create(memory.region(), PARAMS, &SEED).unwrap();
    let instance = Instance::open(memory.region()).unwrap();
    assert_eq!(instance.params(), PARAMS);
    assert_eq!(instance.secrets(), SECRETS);
    let words = instance.directory().instance();
    assert_eq!(words.name(), "default");
    assert_eq!((words.primary_pid(), words.started_us()), (1234, 55));
    assert_eq!(words.device_digest(), 0xdead_beef);
    assert_eq!(words.next_epoch(), 1);
    assert_eq!(words.active(), None);
    assert_eq!(instance.directory().slot_count(), 4);
    assert!(instance.directory().worker(3, 1).is_some());
    assert!(instance.directory().worker(3, 2).is_none());
    assert!(instance.directory().worker(4, 0).is_none());
}

#[test]
fn every_table_is_its_own() {
    let memory = memory();
    let instance = Instance::create(memory.region(), PARAMS, &SEED).unwrap();
    let key = FlowKey::new(6, "198.18.0.2:80".parse().unwrap(), "198.18.0.1:4000".parse().unwrap());
    let owner = Owner { epoch: 1, pid: 9 };
    let mut writers = Vec::new();
    for slot in 0..4 {
        for worker in 0..2 {
            let mut writer = instance.tcp_writer(slot, worker, owner).unwrap();
            writer.insert(&key, FlowRef((slot * 2 + worker) as u32)).unwrap();
            writers.push(writer);
            let mut udp = instance.udp_writer(slot, worker, owner, 1_000).unwrap();
            udp.record(&key, 5).unwrap();
        }
    }
    let learner = instance.neighbour_writer(owner).unwrap();
    learner.learn("198.18.0.1".parse().unwrap(), [1; 6], true, 0);
    for slot in 0..4 {
        for worker in 0..2 {
            let reader = instance.tcp_reader(slot, worker).unwrap();
            assert_eq!(reader.lookup(&key), Some(FlowRef((slot * 2 + worker) as u32)));
            assert_eq!(instance.udp_reader(slot, worker).unwrap().flows(), 1);
        }
    }
    assert!(instance.neighbours().unwrap().lookup("198.18.0.1".parse().unwrap(), 0).is_some());
    assert!(matches!(instance.tcp_reader(4, 0), Err(InstanceError::NoWorker { .. })));
    assert!(instance.reclaim_tables(0, 0, owner).unwrap());
    assert!(!instance.reclaim_tables(0, 0, owner).unwrap());
    assert_eq!(instance.tcp_reader(0, 0).unwrap().lookup(&key), None);
    assert!(instance.tcp_reader(0, 1).unwrap().lookup(&key).is_some());
}

#[test]
fn out_of_range_and_too_small() {
    for params in [
        InstanceParams { workers: 0, ..PARAMS },
        InstanceParams { workers: 65, ..PARAMS },
        InstanceParams { slots: 1, ..PARAMS },
        InstanceParams { slots: 9, ..PARAMS },
        InstanceParams { tcp_capacity: 0, ..PARAMS },
        InstanceParams { neighbour_capacity: NEIGHBOURS_MAX + 1, ..PARAMS },
    ] {
        assert!(matches!(InstanceLayout::new(params), Err(InstanceError::OutOfRange { .. })), "{params:?}");
    }
    let memory = HeapMemory::new(InstanceLayout::new(PARAMS).unwrap().total_bytes() - 64);
    assert!(matches!(Instance::create(memory.region(), PARAMS, &SEED), Err(InstanceError::TooSmall { .. })));
}

#[test]
fn a_region_without_an_instance_is_refused() {
    let memory = memory();
    assert!(matches!(
        Instance::open(memory.region()),
        Err(InstanceError::Open(OpenError::NotFinished { .. }))
    ));
}

/// A changed layout needs a new [`LAYOUT_VERSION`], and then this line.
#[test]
fn the_golden_layout() {
    let layout = InstanceLayout::new(PARAMS).unwrap();
    let golden = format!(
        "version {} fingerprint {:#018x} total {}",
        LAYOUT_VERSION,
        identity().fingerprint,
        layout.total_bytes()
    );
    assert_eq!(golden, "version 2 fingerprint 0xf6a3421fc9e5dfcb total 125952");
}
