use super::*;
use crate::conversation::{Answer, Job};
use crate::response::Response;
use crate::statistics::Window;

fn head() -> Head {
    Head { url: "http://198.18.0.2/".into(), connections: 2, requests_per_connection: 1, rate_per_s: None }
}

fn run(change: impl FnOnce(&mut Statistics)) -> Report {
    let window = Window { start_us: 0, from_us: 0, to_us: 2_000_000 };
    let mut statistics = Statistics::new(window, 1_000_000);
    statistics.begun = 1;
    let response = Response { status: 200, close: true, body_bytes: 600, wrong_bytes: false };
    let answer = Answer { job: Job { target: 0, intended_us: 900 }, response };
    statistics.answered(1_000, 500, &answer, Some("7"));
    change(&mut statistics);
    statistics.end_interval();
    Report::new(head(), &statistics, ClientCost::default(), IoCounters::default())
}

#[test]
fn a_clean_run() {
    let report = run(|_| ());
    assert!(report.is_clean());
    let json: serde_json::Value = serde_json::from_str(&report.json().unwrap()).unwrap();
    assert_eq!(json["requests_per_s"], 0.5);
    assert_eq!(json["latency_us"]["p50"], 100);
    assert_eq!(json["errors"]["refused"], 0);
    assert_eq!(json["versions"]["7"]["opened_us"], serde_json::Value::Null);
    assert_eq!(json["versions"]["7"]["last_opened_us"], 500);
    assert_eq!(json["timeline"][0], serde_json::json!([1, 0, 0, 100, 100]));
    assert!(report.text().contains("errors: none"));
}

#[test]
fn what_makes_a_run_unclean() {
    assert!(!run(|statistics| statistics.failed(0, 0, Failure::Refused, false)).is_clean());
    assert!(!run(|statistics| statistics.not_begun = 1).is_clean());
    assert!(!run(|statistics| statistics.begun = 2).is_clean());
    let failed = run(|statistics| statistics.failed(10, 5, Failure::Refused, false));
    assert!(failed.text().contains("errors: refused 1"));
    assert!(failed.text().contains("refused at 10 us on a connection opened at 5 us, not established"));
}

#[test]
fn nothing_at_all_is_not_clean() {
    let window = Window { start_us: 0, from_us: 0, to_us: 0 };
    let report =
        Report::new(head(), &Statistics::new(window, 0), ClientCost::default(), IoCounters::default());
    assert!(!report.is_clean());
    assert!(report.requests_per_s.abs() < f64::EPSILON);
}
