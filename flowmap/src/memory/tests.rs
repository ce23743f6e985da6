use super::*;

#[test]
fn raw_memory_becomes_lines() {
    let memory = HeapMemory::new(3 * LINE_BYTES);
    let start = memory.region().lines().as_ptr().cast_mut().cast::<u8>();
    // SAFETY: the bytes belong to `memory`, which outlives the region, and are
    // only touched as atomic words.
    let region = unsafe { Region::from_raw(start, 2 * LINE_BYTES + 5) }.unwrap();
    assert_eq!(region.len_bytes(), 2 * LINE_BYTES);
    region.line(1).unwrap().word(3).store(7, Ordering::Relaxed);
    assert_eq!(memory.region().lines()[1].word(3).load(Ordering::Relaxed), 7);
}

#[test]
fn misaligned_memory_is_refused() {
    let memory = HeapMemory::new(2 * LINE_BYTES);
    let start = memory.region().lines().as_ptr().cast_mut().cast::<u8>();
    // SAFETY: nothing is made of the bytes when the address is refused.
    let refused = unsafe { Region::from_raw(start.wrapping_add(8), LINE_BYTES) };
    assert!(matches!(refused, Err(RegionError::Misaligned { .. })));
    // SAFETY: as above.
    assert!(unsafe { Region::from_raw(std::ptr::null_mut(), LINE_BYTES) }.is_err());
}

#[test]
fn parts_stay_inside() {
    let memory = HeapMemory::new(4 * LINE_BYTES);
    let region = memory.region();
    assert!(region.part(1, 3).is_ok());
    assert_eq!(region.part(1, 4).unwrap_err(), RegionError::Outside { first: 1, count: 4, lines: 4 });
    assert!(region.part(usize::MAX, 2).is_err());
    assert!(region.line(4).is_err());
}

#[test]
fn a_snapshot_is_a_copy() {
    let memory = HeapMemory::new(LINE_BYTES);
    memory.region().lines()[0].word(0).store(1, Ordering::Relaxed);
    let copy = memory.snapshot();
    memory.region().lines()[0].word(0).store(2, Ordering::Relaxed);
    assert_eq!(copy.region().lines()[0].word(0).load(Ordering::Relaxed), 1);
}
