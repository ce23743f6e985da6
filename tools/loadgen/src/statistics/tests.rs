use super::*;
use crate::conversation::Job;
use crate::response::Response;

const WINDOW: Window = Window { start_us: 1_000_000, from_us: 2_000_000, to_us: 4_000_000 };

fn answer(intended_us: u64) -> Answer {
    Answer {
        job: Job { target: 0, intended_us },
        response: Response { status: 200, close: false, body_bytes: 600, wrong_bytes: false },
    }
}

#[test]
fn only_the_window_is_measured() {
    let mut statistics = Statistics::new(WINDOW, 0);
    for now_us in [1_999_999, 2_000_000, 3_000_000, 4_000_000, 4_000_001] {
        statistics.answered(now_us, 1_500_000, &answer(now_us - 100), None);
    }
    assert_eq!((statistics.good, statistics.measured), (5, 3));
    assert_eq!(statistics.measured_body_bytes, 1_800);
    assert_eq!(statistics.latency_us.len(), 3);
    assert_eq!(statistics.latency_us.value_at_quantile(0.5), 100);
    assert_eq!(statistics.gap_us_max, 1_000_000);
    assert!((statistics.measured_s() - 2.0).abs() < 1e-9);
    assert!(statistics.timeline.is_empty());
}

#[test]
fn latency_counts_from_the_intended_start() {
    let mut statistics = Statistics::new(WINDOW, 0);
    statistics.answered(3_000_000, 2_999_990, &answer(2_500_000), None);
    assert!(statistics.latency_us.max() >= 500_000);
    statistics.answered(3_000_000, 0, &answer(0), None);
    assert_eq!(statistics.latency_us.len(), 2);
}

#[test]
fn what_is_wrong_is_a_failure_and_not_good() {
    let mut statistics = Statistics::new(WINDOW, 0);
    let mut not_found = answer(2_000_000);
    not_found.response.status = 404;
    let mut wrong = answer(2_000_000);
    wrong.response.wrong_bytes = true;
    statistics.answered(2_000_010, 2_000_000, &not_found, None);
    statistics.answered(2_000_010, 2_000_000, &wrong, None);
    statistics.failed(3_000_000, 2_000_000, Failure::Refused, false);
    assert_eq!(statistics.good, 0);
    assert_eq!(statistics.failures(Failure::Status), 1);
    assert_eq!(statistics.failures(Failure::WrongBytes), 1);
    assert_eq!(statistics.failures(Failure::Refused), 1);
    assert_eq!(statistics.failures_total(), 3);
    assert_eq!(statistics.statuses[&404], 1);
    assert_eq!(statistics.examples[2].at_us, 2_000_000);
}

#[test]
fn each_kind_of_failure_is_counted_by_itself() {
    let mut statistics = Statistics::new(WINDOW, 0);
    for (nth, failure) in Failure::ALL.into_iter().enumerate() {
        for _ in 0..=nth {
            statistics.failed(0, 0, failure, true);
        }
    }
    for (nth, failure) in Failure::ALL.into_iter().enumerate() {
        assert_eq!(statistics.failures(failure), nth as u64 + 1, "{failure}");
    }
}

#[test]
fn versions_by_time_and_by_connection() {
    let mut statistics = Statistics::new(WINDOW, 0);
    let second = 1_000_000;
    statistics.answered(2 * second, second + 5, &answer(0), Some("old"));
    statistics.answered(3 * second, 2 * second, &answer(0), Some("new"));
    statistics.answered(4 * second, second + 5, &answer(0), Some("old"));
    assert_eq!(
        statistics.versions["old"],
        Version {
            responses: 2,
            first_us: second,
            last_us: 3 * second,
            first_opened_us: 5,
            last_opened_us: 5
        }
    );
    assert_eq!(statistics.versions["new"].first_opened_us, second);
}

#[test]
fn versions_have_a_bound() {
    let mut statistics = Statistics::new(WINDOW, 0);
    for nth in 0..1_000 {
        statistics.answered(2_000_000, 0, &answer(0), Some(&nth.to_string()));
    }
    assert_eq!(statistics.versions.len(), VERSIONS_MAX + 1);
    assert_eq!(statistics.versions["(others)"].responses, 1_000 - VERSIONS_MAX as u64);
}

#[test]
fn the_timeline() {
    let mut statistics = Statistics::new(WINDOW, 100_000);
    statistics.connected(1_050_000, 1_000_000);
    statistics.answered(1_250_000, 1_000_000, &answer(1_200_000), None);
    statistics.failed(1_299_999, 1_000_000, Failure::Reset, true);
    statistics.end_interval();
    assert_eq!(statistics.timeline.len(), 3);
    assert_eq!(statistics.timeline[0], Interval { connected: 1, ..Interval::default() });
    assert_eq!(
        statistics.timeline[2],
        Interval { responses: 1, failures: 1, connected: 0, latency_us_max: 50_000, latency_us_p99: 50_015 }
    );
}

#[test]
fn a_run_that_ends_sooner_is_measured_as_long_as_it_was() {
    let mut statistics = Statistics::new(WINDOW, 0);
    statistics.end_window(3_000_000);
    assert!((statistics.measured_s() - 1.0).abs() < 1e-9);
    statistics.end_window(5_000_000);
    assert!((statistics.measured_s() - 1.0).abs() < 1e-9);
}
