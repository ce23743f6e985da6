use super::*;

fn spec() -> RequestSpec {
    RequestSpec { method: "GET".into(), host: "198.18.0.2".into(), headers: vec![], body: None }
}

fn text(target: &Target, last: bool) -> String {
    String::from_utf8(target.request(last).to_vec()).unwrap()
}

#[test]
fn a_get() {
    let target = Target::new(&spec(), "/a?b=c", Expectation::any()).unwrap();
    assert_eq!(text(&target, false), "GET /a?b=c HTTP/1.1\r\nHost: 198.18.0.2\r\n\r\n");
    assert_eq!(text(&target, true), "GET /a?b=c HTTP/1.1\r\nHost: 198.18.0.2\r\nConnection: close\r\n\r\n");
    assert!(!target.is_head());
}

#[test]
fn a_put_with_a_body_and_headers() {
    let spec = RequestSpec {
        method: "PUT".into(),
        headers: vec!["X-Test: 1".into()],
        body: Some(b"abc".to_vec()),
        ..spec()
    };
    let target = Target::new(&spec, "/", Expectation::any()).unwrap();
    assert_eq!(
        text(&target, false),
        "PUT / HTTP/1.1\r\nHost: 198.18.0.2\r\nX-Test: 1\r\nContent-Length: 3\r\n\r\nabc"
    );
}

#[test]
fn an_empty_body_says_its_length() {
    let spec = RequestSpec { method: "POST".into(), body: Some(vec![]), ..spec() };
    let target = Target::new(&spec, "/", Expectation::any()).unwrap();
    assert!(text(&target, false).ends_with("Content-Length: 0\r\n\r\n"));
}

#[test]
fn what_would_break_the_message_is_refused() {
    let refused = |change: fn(&mut RequestSpec), path: &str| {
        let mut spec = spec();
        change(&mut spec);
        Target::new(&spec, path, Expectation::any()).unwrap_err()
    };
    assert!(matches!(refused(|s| s.method = "GE T".into(), "/"), RequestError::Method(_)));
    assert!(matches!(refused(|s| s.method = String::new(), "/"), RequestError::Method(_)));
    assert!(matches!(refused(|_| (), "relative"), RequestError::Path(_)));
    assert!(matches!(refused(|_| (), "/a b"), RequestError::Path(_)));
    assert!(matches!(refused(|s| s.headers = vec!["no colon".into()], "/"), RequestError::Header(_)));
    assert!(matches!(refused(|s| s.headers = vec!["A: b\r\nC: d".into()], "/"), RequestError::Header(_)));
    assert!(matches!(
        refused(|s| s.headers = vec!["connection: close".into()], "/"),
        RequestError::Reserved(_)
    ));
}
