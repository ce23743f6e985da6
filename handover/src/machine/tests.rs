use std::collections::BTreeSet;

use super::*;

#[test]
fn numbers_come_back() {
    for state in ReloadState::ALL {
        assert_eq!(ReloadState::from_number(state.number()), Some(state));
    }
    assert_eq!(ReloadState::from_number(10), None);
}

fn reachable_from(start: ReloadState) -> BTreeSet<ReloadState> {
    let mut seen = BTreeSet::from([start]);
    let mut work = vec![start];
    while let Some(state) = work.pop() {
        for event in ReloadEvent::ALL {
            if let Outcome::Next(next, _) = step(state, event)
                && seen.insert(next)
            {
                work.push(next);
            }
        }
    }
    seen
}

#[test]
fn every_state_is_reached_and_left_for_idle() {
    assert_eq!(reachable_from(ReloadState::Idle).len(), ReloadState::ALL.len());
    for state in ReloadState::ALL {
        assert!(reachable_from(state).contains(&ReloadState::Idle), "{state:?} has no end");
    }
}

#[test]
fn an_attempt_ends_in_one_report() {
    for state in ReloadState::ALL {
        for event in ReloadEvent::ALL {
            if let Outcome::Next(next, actions) = step(state, event) {
                let reports = actions
                    .iter()
                    .filter(|action| {
                        matches!(action, ReloadAction::ReportComplete | ReloadAction::ReportAborted)
                    })
                    .count();
                assert_eq!(reports == 1, next == ReloadState::Idle, "{state:?} {event:?}");
            }
        }
    }
}

#[test]
fn the_old_generation_is_never_told_to_quit_before_it_is_relieved() {
    for state in ReloadState::ALL {
        for event in ReloadEvent::ALL {
            if let Outcome::Next(_, actions) = step(state, event) {
                let quits = actions
                    .iter()
                    .any(|action| matches!(action, ReloadAction::ReleaseQuits | ReloadAction::QuitOld));
                assert!(!quits || state.has_won(), "{state:?} {event:?}");
            }
        }
    }
}

/// docs/handover-machine.md holds the matrix and the graph of this very table.
/// `cargo run -p ff-handover --example machine` writes it anew.
#[test]
fn the_document_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/handover-machine.md");
    let document = std::fs::read_to_string(path).expect("docs/handover-machine.md is missing");
    assert!(document.contains(&matrix()), "the matrix has changed: run the example `machine`");
    assert!(document.contains(&graph()), "the graph has changed: run the example `machine`");
}
