use std::collections::HashSet;

use super::*;

#[test]
fn numbers_are_positions_and_names_are_unique() {
    for (number, reason) in DropReason::ALL.iter().enumerate() {
        assert_eq!(*reason as usize, number);
    }
    let names: HashSet<_> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
    assert_eq!(names.len(), DropReason::ALL.len());
}
