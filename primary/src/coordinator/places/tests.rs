use super::*;

const FIRST: EpochSlot = EpochSlot { epoch: 1, slot: 0 };
const SECOND: EpochSlot = EpochSlot { epoch: 2, slot: 1 };
const MASTER: u32 = 100;

/// Carries a decision out, as the server does.
fn attach(places: &mut Places, pid: u32, master: u32, now_us: u64) -> Decision {
    let decision = places.decide(pid, master, now_us);
    match &decision {
        Decision::Place { generation, index, .. } => {
            places.attached(*generation, *index, pid, master, now_us)
        }
        Decision::Refused { .. } => drop(places.refused(now_us)),
    }
    decision
}

fn placed(
    generation: EpochSlot,
    index: u16,
    opens: bool,
    recovers: Option<u32>,
    answer_at_us: u64,
) -> Decision {
    Decision::Place { generation, index, opens, recovers, answer_at_us }
}

/// Two workers of one master that serve.
fn serving() -> Places {
    let mut places = Places::new(2, 4);
    attach(&mut places, 101, MASTER, 0);
    attach(&mut places, 102, MASTER, 0);
    assert_eq!(places.ready(FIRST, 0), Ready::Some);
    assert_eq!(places.ready(FIRST, 1), Ready::All);
    places
}

#[test]
fn the_first_master_opens_epoch_1_in_slot_0() {
    let mut places = Places::new(2, 4);
    assert_eq!(attach(&mut places, 101, MASTER, 5), placed(FIRST, 0, true, None, 5));
    assert_eq!(attach(&mut places, 102, MASTER, 6), placed(FIRST, 1, false, None, 6));
    assert_eq!(places.place_of(102), Some((FIRST, 1)));
    assert_eq!(places.place_of(103), None);
    assert_eq!(places.ready(FIRST, 1), Ready::Some);
    assert_eq!(places.ready(FIRST, 0), Ready::All);
    // Said again, and by a worker of a generation that was never there.
    assert_eq!(places.ready(FIRST, 0), Ready::Known);
    assert_eq!(places.ready(SECOND, 0), Ready::Known);
}

#[test]
fn a_dead_worker_is_followed_in_its_place() {
    let mut places = serving();
    let ended = places.ended(101, 9_000_000);
    assert_eq!(ended, Ended::Worker { generation: FIRST, index: 0, was_ready: true, retires: false });
    assert_eq!(places.ended(101, 9_000_000), Ended::Unknown);
    assert_eq!(attach(&mut places, 103, MASTER, 9_000_010), placed(FIRST, 0, false, Some(101), 9_000_010));
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
        places.ended(last, now_us);
        let Decision::Place { answer_at_us, index: 0, .. } = places.decide(pid, MASTER, now_us) else {
            panic!("no place for {pid}")
        };
        waits.push(answer_at_us - now_us);
        now_us = answer_at_us;
        places.attached(FIRST, 0, pid, MASTER, now_us);
        last = pid;
    }
    // The first had lived long.
    assert_eq!(waits[..5], [0, 10_000, 20_000, 40_000, 80_000]);
    assert_eq!(waits.last(), Some(&1_000_000));
    assert_eq!(places.failures(FIRST, 0), 9);
    // The sibling is not paced.
    places.ended(102, now_us);
    assert_eq!(places.decide(300, MASTER, now_us), placed(FIRST, 1, false, Some(102), now_us));
}

#[test]
fn more_workers_than_queues() {
    let mut places = Places::new(1, 4);
    attach(&mut places, 101, MASTER, 0);
    let refused = Refused::TooMany { queues: 1 };
    assert_eq!(attach(&mut places, 102, MASTER, 0), Decision::Refused { refused, answer_at_us: 0 });
    // Its successors are refused too, and paced.
    assert_eq!(places.decide(103, MASTER, 5), Decision::Refused { refused, answer_at_us: 10_000 });
    assert!(refused.to_string().contains("worker_processes") && refused.to_string().contains("queue"));
}

#[test]
fn a_second_set_of_workers_is_a_reload() {
    let places = serving();
    let refused = Refused::Reload { epoch: 1, master: MASTER, queues: 2 };
    // Of the same master (HUP), and of another one (USR2).
    for master in [MASTER, 500] {
        assert_eq!(places.decide(501, master, 0), Decision::Refused { refused, answer_at_us: 0 });
    }
    assert_eq!(refused.code(), "reload_not_supported");
    assert_eq!(
        places.decide(101, MASTER, 0),
        Decision::Refused { refused: Refused::Twice { pid: 101 }, answer_at_us: 0 }
    );
}

#[test]
fn a_generation_lives_until_its_last_process_has_ended() {
    let mut places = serving();
    let ended = places.ended(MASTER, 1);
    assert_eq!(ended, Ended::Master { generation: FIRST, orphans: 2, retires: false });
    assert!(matches!(places.ended(101, 2), Ended::Worker { retires: false, .. }));
    // An orphan still serves: another master has to wait.
    assert!(matches!(places.decide(601, 600, 3), Decision::Refused { .. }));
    assert!(matches!(places.ended(102, 4), Ended::Worker { retires: true, .. }));
    // Then it begins anew: next epoch, next slot.
    assert_eq!(attach(&mut places, 601, 600, 5), placed(SECOND, 0, true, None, 5));
    assert!(matches!(places.ended(601, 6), Ended::Worker { retires: false, .. }));
    assert_eq!(places.ended(600, 7), Ended::Master { generation: SECOND, orphans: 0, retires: true });
}

#[test]
fn slots_are_used_in_turn_and_epochs_never_again() {
    let mut places = Places::new(1, 2);
    for round in 0..5 {
        let master = 1_000 + round;
        let expected = EpochSlot { epoch: round + 1, slot: round % 2 };
        assert_eq!(attach(&mut places, round + 1, master, 0), placed(expected, 0, true, None, 0));
        places.ended(round + 1, 0);
        places.ended(master, 0);
    }
}

#[test]
fn a_program_of_one_process_is_its_own_master() {
    let mut places = Places::new(1, 4);
    assert_eq!(attach(&mut places, 101, 101, 5), placed(FIRST, 0, true, None, 5));
    let ended = places.ended(101, 9_000_000);
    assert_eq!(ended, Ended::Worker { generation: FIRST, index: 0, was_ready: false, retires: true });
    assert_eq!(attach(&mut places, 102, 102, 9_000_000), placed(SECOND, 0, true, None, 9_000_000));
}
