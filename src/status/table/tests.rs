use std::collections::BTreeMap;

use ff_control::{ActiveStatus, PrimaryStatus};

use super::*;

fn worker(index: u16, pid: u32, ready: bool) -> WorkerStatus {
    WorkerStatus {
        index,
        pid,
        ready,
        state: if ready {
            "ready"
        } else if pid == 0 {
            "empty"
        } else {
            "down"
        }
        .into(),
        queues: if ready { vec![index] } else { vec![] },
        tcp_flows: 12,
        tcp_listeners: 2,
        rx_packets: 123_456,
        tx_packets: 7,
        drops: BTreeMap::new(),
        cpu_busy_ratio: 0.125,
        heartbeat_age_us: 10,
        attach_us: 40_000,
        mbufs_in_use: 64,
    }
}

#[test]
fn a_person_reads_it() {
    let mut first = worker(0, 4321, true);
    first.drops = BTreeMap::from([("bad_tcp_checksum".into(), 3), ("no_route".into(), 4)]);
    let status = Status {
        instance: "default".into(),
        primary: PrimaryStatus {
            pid: 4300,
            alive: true,
            uptime_s: 3_700,
            device: "tap:ff0".into(),
            device_digest: "0".into(),
            queues: 2,
        },
        active: Some(ActiveStatus { epoch: 1, slot: 0 }),
        generations: vec![GenerationStatus {
            epoch: 1,
            slot: 0,
            state: "active".into(),
            master_pid: 4310,
            workers: vec![first, worker(1, 0, false)],
        }],
        attach_failures: 0,
        last_attach_failure: None,
        reload: None,
        last_reload: None,
        reloads: 0,
    };
    assert_eq!(
        text(&status),
        "instance  default\n\
         primary   4300 (up 1 h 1 min), tap:ff0, 2 queues\n\
         \n\
         generation 1 (active), slot 0, nginx master 4310\n\
         \u{20} worker   pid  state  queues  flows  listen      rx  tx  drops   busy  mbufs\n\
         \u{20}      0  4321  ready       0     12       2  123456   7      7  12.5%     64\n\
         \u{20}      1     0  empty       -     12       2  123456   7      0  12.5%     64\n\
         \u{20} worker 0 dropped: bad_tcp_checksum 3, no_route 4\n"
    );
}

#[test]
fn a_dead_primary_is_not_overlooked() {
    let status = Status {
        instance: "a".into(),
        primary: PrimaryStatus {
            pid: 1,
            alive: false,
            uptime_s: 59,
            device: "wire".into(),
            device_digest: String::new(),
            queues: 1,
        },
        active: None,
        generations: vec![],
        attach_failures: 1,
        last_attach_failure: Some("worker 7: no hugepages".into()),
        reload: None,
        last_reload: None,
        reloads: 0,
    };
    assert_eq!(
        text(&status),
        "instance  a\nprimary   1 (DEAD, started 59 s ago), wire, 1 queue\nattach    worker 7: no hugepages\n\
         nginx     no worker is attached\n"
    );
}

#[test]
fn durations() {
    let shown: Vec<String> = [0, 59, 60, 3_599, 3_600, 86_399, 86_400].map(duration).into();
    assert_eq!(shown, ["0 s", "59 s", "1 min 0 s", "59 min 59 s", "1 h 0 min", "23 h 59 min", "1 d 0 h"]);
}
