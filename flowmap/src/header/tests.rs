use super::*;
use crate::memory::{HeapMemory, LINE_BYTES};

const IDENTITY: Identity = Identity { magic: 77, version: 3, fingerprint: fingerprint(&[1, 2]) };
const CREATOR_TAG: Owner = Owner { epoch: 0, pid: 42 };

fn finished() -> HeapMemory {
    let memory = HeapMemory::new(2 * LINE_BYTES);
    begin(memory.region(), IDENTITY, CREATOR_TAG).unwrap().finish();
    memory
}

#[test]
fn a_finished_region_opens() {
    assert_eq!(open(finished().region(), IDENTITY), Ok(Some(CREATOR_TAG)));
}

#[test]
fn each_fault_has_its_own_error() {
    let nothing = HeapMemory::new(0);
    assert_eq!(open(nothing.region(), IDENTITY), Err(OpenError::Absent));
    assert!(begin(nothing.region(), IDENTITY, CREATOR_TAG).is_err());

    let zeroed = HeapMemory::new(LINE_BYTES);
    assert_eq!(open(zeroed.region(), IDENTITY), Err(OpenError::NotFinished { creator: None }));

    let begun = HeapMemory::new(LINE_BYTES);
    let _unfinished = begin(begun.region(), IDENTITY, CREATOR_TAG).unwrap();
    assert_eq!(open(begun.region(), IDENTITY), Err(OpenError::NotFinished { creator: Some(CREATOR_TAG) }));

    let memory = finished();
    let region = memory.region();
    assert_eq!(open(region, Identity { magic: 78, ..IDENTITY }), Err(OpenError::WrongMagic { found: 77 }));
    assert_eq!(
        open(region, Identity { version: 4, ..IDENTITY }),
        Err(OpenError::WrongVersion { found: 3, expected: 4 })
    );
    assert_eq!(
        open(region.part(0, 1).unwrap(), IDENTITY),
        Err(OpenError::WrongSize { found_bytes: 64, expected_bytes: 128 })
    );
    let other = fingerprint(&[2, 1]);
    assert_eq!(
        open(region, Identity { fingerprint: other, ..IDENTITY }),
        Err(OpenError::WrongFingerprint { found: IDENTITY.fingerprint, expected: other })
    );
}

#[test]
fn recreating_closes_it_first() {
    let memory = finished();
    let again = begin(memory.region(), IDENTITY, Owner { epoch: 0, pid: 43 }).unwrap();
    assert!(matches!(open(memory.region(), IDENTITY), Err(OpenError::NotFinished { .. })));
    again.finish();
    assert_eq!(open(memory.region(), IDENTITY).unwrap().unwrap().pid, 43);
}

#[test]
fn every_error_is_a_sentence() {
    let error = OpenError::NotFinished { creator: Some(CREATOR_TAG) };
    assert!(error.to_string().contains("created by pid 42 of epoch 0"), "{error}");
}
