//! The machine, the coordinator and the words, explored exhaustively: every
//! interleaving of a small world, with processes killed and stopped, messages in
//! flight, and the coordinator itself crashing.
#![cfg(not(loom))]

#[path = "exploration/model.rs"]
mod model;
#[path = "exploration/search.rs"]
mod search;

use ff_handover::{Outcome, ReloadEvent, ReloadState, machine};
use model::{Size, Table};
use search::{Violation, explore};

fn must_hold(name: &str, size: Size) {
    match explore(size, machine::step) {
        Ok(explored) => {
            println!(
                "{name}: {} nodes, {} edges, {} ends, states {:?}",
                explored.nodes, explored.edges, explored.ends, explored.states
            );
            assert!(explored.ends > 0);
            assert_eq!(explored.states.len(), ReloadState::ALL.len(), "some state was never seen");
        }
        Err(Violation { what, trace }) => panic!("{name}: {what}\nafter {trace:#?}"),
    }
}

#[test]
fn one_worker_two_crashes() {
    must_hold("one worker, two crashes", Size { workers: 1, slots: 2, reloads: 1, crashes: 2, fine: true });
}

#[test]
fn two_workers_one_crash() {
    must_hold("two workers, one crash", Size { workers: 2, slots: 2, reloads: 1, crashes: 1, fine: false });
}

#[test]
fn a_second_reload_while_the_first_generation_drains() {
    must_hold("two reloads, one crash", Size { workers: 1, slots: 3, reloads: 2, crashes: 1, fine: false });
}

#[test]
#[ignore = "millions of nodes, minutes: scripts/soak"]
fn two_workers_two_crashes() {
    must_hold("two workers, two crashes", Size { workers: 2, slots: 2, reloads: 1, crashes: 2, fine: false });
}

#[test]
#[ignore = "millions of nodes, minutes: scripts/soak"]
fn two_workers_one_crash_fine() {
    must_hold(
        "two workers, one crash, fine",
        Size { workers: 2, slots: 2, reloads: 1, crashes: 1, fine: true },
    );
}

#[test]
#[ignore = "millions of nodes, minutes: scripts/soak"]
fn two_reloads_two_crashes() {
    must_hold("two reloads, two crashes", Size { workers: 1, slots: 3, reloads: 2, crashes: 2, fine: false });
}

/// Faults put into the table one at a time: the exploration finds each.
#[test]
fn a_fault_in_the_table_is_found() {
    use ReloadEvent as E;
    use ReloadState as S;
    fn quit_too_early(state: S, event: E) -> Outcome {
        match (state, event) {
            (S::HandingOver, E::AllHanded) => Outcome::Next(S::Draining, &[]),
            _ => machine::step(state, event),
        }
    }
    fn ended_while_it_owns(state: S, event: E) -> Outcome {
        match (state, event) {
            (S::HandingOver, E::HandoverTimeout) => Outcome::Next(S::EndingNew, &[]),
            _ => machine::step(state, event),
        }
    }
    fn no_way_back(state: S, event: E) -> Outcome {
        match (state, event) {
            (S::HandingOver, E::NewLost | E::HandoverTimeout) => Outcome::NoOp,
            _ => machine::step(state, event),
        }
    }
    fn handing_over_before_ready(state: S, event: E) -> Outcome {
        match (state, event) {
            (S::Spawning, E::ReadyTimeout) => Outcome::Next(S::Settling, &[]),
            _ => machine::step(state, event),
        }
    }
    fn never_reclaimed(state: S, event: E) -> Outcome {
        match (state, event) {
            (S::Quitting, E::OldGone) => Outcome::NoOp,
            _ => machine::step(state, event),
        }
    }
    let faults: [(&str, Table); 5] = [
        ("quit too early", quit_too_early),
        ("ended while it owns a queue", ended_while_it_owns),
        ("no way back", no_way_back),
        ("active before READY", handing_over_before_ready),
        ("never reclaimed", never_reclaimed),
    ];
    for (name, table) in faults {
        let found = explore(Size { workers: 1, slots: 2, reloads: 1, crashes: 1, fine: true }, table);
        let violation = found.map(|explored| explored.nodes).expect_err(name);
        println!(
            "{name}: {} (after {} steps)",
            violation.what.lines().next().unwrap(),
            violation.trace.len()
        );
    }
}
