//! The publish protocol under loom: every interleaving (up to the preemption
//! bound) and every value that a relaxed load may see.

use loom::sync::Arc;
use loom::thread;

use super::*;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn shared() -> Arc<HeapMemory> {
    Arc::new(table(1))
}

/// The only entry is given from one flow to another under a reader's eyes: the
/// reader sees the first flow with its value, or nothing, never the second's.
#[test]
fn a_reused_entry_is_never_taken_for_the_flow_before() {
    check(|| {
        let memory = shared();
        let of_reader = memory.clone();
        let mut writer = TcpTableWriter::open(memory.region(), OWNER).unwrap();
        writer.insert(&key(1), FlowRef(11)).unwrap();
        let reader = thread::spawn(move || {
            let found = TcpTableReader::open(of_reader.region()).unwrap().lookup(&key(1));
            assert!(found.is_none_or(|flow| flow == FlowRef(11)), "{found:?}");
        });
        writer.remove(&key(1));
        writer.insert(&key(2), FlowRef(22)).unwrap();
        reader.join().unwrap();
    });
}

/// A flow that is there before and after is found, whatever comes and goes
/// beside it.
#[test]
fn what_stays_is_found() {
    check(|| {
        let memory = Arc::new(table(2));
        let of_reader = memory.clone();
        let mut writer = TcpTableWriter::open(memory.region(), OWNER).unwrap();
        writer.insert(&key(1), FlowRef(11)).unwrap();
        writer.insert(&key(2), FlowRef(22)).unwrap();
        let reader = thread::spawn(move || {
            let found = TcpTableReader::open(of_reader.region()).unwrap().lookup(&key(2));
            assert_eq!(found, Some(FlowRef(22)));
        });
        writer.remove(&key(1));
        writer.insert(&key(3), FlowRef(33)).unwrap();
        reader.join().unwrap();
    });
}

/// Publishing a flow publishes its whole key: a walk never shows half of one.
#[test]
fn a_walk_shows_whole_flows_only() {
    check(|| {
        let memory = shared();
        let of_reader = memory.clone();
        let mut writer = TcpTableWriter::open(memory.region(), OWNER).unwrap();
        let reader = thread::spawn(move || {
            for (seen, flow) in TcpTableReader::open(of_reader.region()).unwrap().iter() {
                assert!((seen == key(1) && flow.0 == 11) || (seen == key(2) && flow.0 == 22), "{seen:?}");
            }
        });
        writer.insert(&key(1), FlowRef(11)).unwrap();
        writer.remove(&key(1));
        writer.insert(&key(2), FlowRef(22)).unwrap();
        reader.join().unwrap();
    });
}

/// A new value for a known flow: the old one or the new one.
#[test]
fn replacing_is_one_step() {
    check(|| {
        let memory = shared();
        let of_reader = memory.clone();
        let mut writer = TcpTableWriter::open(memory.region(), OWNER).unwrap();
        writer.insert(&key(1), FlowRef(11)).unwrap();
        let reader = thread::spawn(move || {
            let found = TcpTableReader::open(of_reader.region()).unwrap().lookup(&key(1));
            assert!(matches!(found, Some(FlowRef(11 | 12))), "{found:?}");
        });
        writer.insert(&key(1), FlowRef(12)).unwrap();
        reader.join().unwrap();
    });
}
