use super::*;

#[test]
fn evenly_and_without_drift() {
    let mut schedule = Schedule::new(1_000, 3.0);
    let mut due = Vec::new();
    for now_us in (0..3_000_000).step_by(1_000) {
        due.extend(schedule.take(now_us));
    }
    assert_eq!(
        due,
        [1_000, 334_333, 667_666, 1_001_000, 1_334_333, 1_667_666, 2_001_000, 2_334_333, 2_667_666]
    );
}

#[test]
fn what_was_late_keeps_its_time() {
    let mut schedule = Schedule::new(0, 1_000.0);
    assert_eq!(schedule.take(0), Some(0));
    assert_eq!(schedule.take(999), None);
    assert_eq!(schedule.overdue(5_500), 5);
    let late: Vec<u64> = std::iter::from_fn(|| schedule.take(5_500)).collect();
    assert_eq!(late, [1_000, 2_000, 3_000, 4_000, 5_000]);
    assert_eq!(schedule.next_us(), 6_000);
}
