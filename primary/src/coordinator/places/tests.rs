use super::*;

const FIRST: EpochSlot = EpochSlot { epoch: 1, slot: 0 };
const SECOND: EpochSlot = EpochSlot { epoch: 2, slot: 1 };
const MASTER: u32 = 100;

fn placed(generation: EpochSlot, index: u16, recovers: Option<u32>, answer_at_us: u64) -> Decision {
    Decision::Place { generation, index, recovers, answer_at_us }
}

/// Two workers of one master that serve its first configuration.
fn serving() -> Places {
    let mut places = Places::new(2, 4);
    assert_eq!(places.decide(101, MASTER, 0, 5), Decision::Opens);
    places.opened(FIRST, MASTER, 0, 5);
    for (index, pid) in [(0, 101), (1, 102)] {
        assert_eq!(places.decide(pid, MASTER, 0, 5), placed(FIRST, index, None, 5));
        places.attached(FIRST, index, pid, 0);
    }
    assert_eq!(places.ready(FIRST, 0), Ready::Some);
    assert_eq!(places.ready(FIRST, 1), Ready::All);
    places
}

#[test]
fn places_are_known_by_pid() {
    let mut places = serving();
    assert_eq!(places.place_of(102), Some((FIRST, 1)));
    assert_eq!(places.place_of(103), None);
    assert!(places.is_alive(1, 101) && !places.is_alive(2, 101));
    assert_eq!(places.origin(0), Some((MASTER, 0)));
    // Said again, and by a worker of a generation that was never there.
    assert_eq!(places.ready(FIRST, 0), Ready::Known);
    assert_eq!(places.ready(SECOND, 0), Ready::Known);
    let refused = Refused::Twice { pid: 101 };
    assert_eq!(places.decide(101, MASTER, 0, 0), Decision::Refused { refused, answer_at_us: 0 });
}

#[test]
fn a_dead_worker_is_followed_in_its_place() {
    let mut places = serving();
    let ended = EndedWorker { generation: FIRST, index: 0, was_ready: true };
    assert_eq!(places.worker_ended(101, 9_000_000), Some(ended));
    assert_eq!(places.worker_ended(101, 9_000_000), None);
    assert_eq!(places.decide(103, MASTER, 0, 9_000_010), placed(FIRST, 0, Some(101), 9_000_010));
    places.attached(FIRST, 0, 103, 9_000_010);
    assert_eq!(places.ready(FIRST, 0), Ready::AllAgain);
    assert_eq!(places.living_workers().map(|(_, _, pid)| pid).collect::<Vec<_>>(), [103, 102]);
}

#[test]
fn a_crash_loop_is_answered_later_and_later() {
    let mut places = serving();
    let mut now_us = 50_000_000;
    let mut waits = Vec::new();
    let mut last = 101;
    for pid in 200..210 {
        places.worker_ended(last, now_us);
        let Decision::Place { answer_at_us, index: 0, .. } = places.decide(pid, MASTER, 0, now_us) else {
            panic!("no place for {pid}")
        };
        waits.push(answer_at_us - now_us);
        now_us = answer_at_us;
        places.attached(FIRST, 0, pid, now_us);
        last = pid;
    }
    // The first had lived long.
    assert_eq!(waits[..5], [0, 10_000, 20_000, 40_000, 80_000]);
    assert_eq!(waits.last(), Some(&1_000_000));
    assert_eq!(places.failures(FIRST, 0), 9);
    // The sibling is not paced.
    places.worker_ended(102, now_us);
    assert_eq!(places.decide(300, MASTER, 0, now_us), placed(FIRST, 1, Some(102), now_us));
}

#[test]
fn more_workers_than_queues() {
    let mut places = serving();
    let refused = Refused::TooMany { generation: FIRST, queues: 2 };
    assert_eq!(places.decide(103, MASTER, 0, 0), Decision::Refused { refused, answer_at_us: 0 });
    assert_eq!(places.refused(0), 1);
    // Its successors are refused too, and paced.
    assert_eq!(places.decide(104, MASTER, 0, 5), Decision::Refused { refused, answer_at_us: 10_000 });
    assert!(refused.to_string().contains("worker_processes") && refused.to_string().contains("queue"));
}

#[test]
fn each_configuration_and_each_master_is_a_generation_of_its_own() {
    let mut places = serving();
    assert_eq!(places.decide(501, MASTER, 1, 0), Decision::Opens);
    assert_eq!(places.decide(501, 500, 0, 0), Decision::Opens);
    places.opened(SECOND, MASTER, 1, 7);
    places.attached(SECOND, 0, 501, 8);
    assert_eq!(places.taken(1), Some((1, 8)));
    assert_eq!(places.decide(502, MASTER, 1, 9), placed(SECOND, 1, None, 9));
    // One that nginx starts in the place of an old worker still belongs to the old ones.
    places.worker_ended(102, 10_000_000);
    assert_eq!(places.decide(503, MASTER, 0, 10_000_000), placed(FIRST, 1, Some(102), 10_000_000));
    assert_eq!((places.second_master(MASTER), places.second_master(500)), (None, Some(MASTER)));
    places.freed(0);
    assert_eq!(places.living_workers().map(|(_, _, pid)| pid).collect::<Vec<_>>(), [501]);
}

#[test]
fn a_generation_lives_until_its_last_process_has_ended() {
    let mut places = serving();
    assert_eq!(places.master_ended(MASTER), [(FIRST, 2)]);
    assert_eq!(places.master_ended(MASTER), []);
    places.worker_ended(101, 2);
    assert_eq!(places.deserted(), []);
    places.worker_ended(102, 4);
    assert_eq!(places.deserted(), [FIRST]);
    places.freed(0);
    assert_eq!(places.deserted(), []);
}

#[test]
fn one_master_may_have_several_generations() {
    let mut places = serving();
    places.opened(SECOND, MASTER, 1, 7);
    places.attached(SECOND, 0, 501, 8);
    assert_eq!(places.master_ended(MASTER), [(FIRST, 2), (SECOND, 1)]);
}

#[test]
fn a_program_of_one_process_is_its_own_master() {
    let mut places = Places::new(1, 4);
    places.opened(FIRST, 101, 0, 5);
    places.attached(FIRST, 0, 101, 5);
    assert!(places.worker_ended(101, 9_000_000).is_some());
    assert_eq!(places.master_ended(101), [(FIRST, 0)]);
    assert_eq!(places.deserted(), [FIRST]);
}
