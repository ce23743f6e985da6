use super::*;
use crate::expectation::Expectation;
use crate::request::RequestSpec;

const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

fn targets() -> Vec<Target> {
    let spec = RequestSpec { method: "GET".into(), host: "h".into(), headers: vec![], body: None };
    ["/0", "/1"].map(|path| Target::new(&spec, path, Expectation::first()).unwrap()).into()
}

fn job(target: usize, intended_us: u64) -> Job {
    Job { target, intended_us }
}

fn send_all(conversation: &mut Conversation, targets: &[Target]) -> String {
    let mut all = Vec::new();
    while let [first, ..] = conversation.unsent(targets) {
        all.push(*first);
        conversation.sent(1);
    }
    String::from_utf8(all).unwrap()
}

#[test]
fn a_kept_connection_asks_again() {
    let mut targets = targets();
    let mut it = Conversation::open(10, u32::MAX, job(0, 5));
    assert!(it.is_opening() && it.unsent(&targets).is_empty());
    assert!(it.set_established());
    assert!(!it.set_established());
    assert_eq!(send_all(&mut it, &targets), "GET /0 HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(it.receive(20, &HELLO[..30], &mut targets, None), Ok(None));
    assert_eq!(it.waiting_since_us(), Some(10));
    let answer = it.receive(21, &HELLO[30..], &mut targets, None).unwrap().unwrap();
    assert_eq!(answer.job, job(0, 5));
    assert!(it.is_idle() && it.waiting_since_us().is_none());
    it.begin(30, job(1, 30));
    assert!(send_all(&mut it, &targets).starts_with("GET /1 "));
    assert!(it.receive(40, HELLO, &mut targets, None).unwrap().is_some());
    // The server may close an idle connection.
    assert_eq!(it.end(&mut targets, None), Ok(None));
}

#[test]
fn the_last_request_asks_to_close() {
    let mut targets = targets();
    let mut it = Conversation::open(0, 2, job(0, 0));
    it.set_established();
    assert!(!send_all(&mut it, &targets).contains("close"));
    it.receive(1, HELLO, &mut targets, None).unwrap();
    it.begin(2, job(0, 2));
    assert!(send_all(&mut it, &targets).contains("Connection: close\r\n"));
    assert!(it.receive(3, HELLO, &mut targets, None).unwrap().is_some());
    assert!(it.is_closing());
    assert_eq!(it.end(&mut targets, None), Ok(None));
}

#[test]
fn the_server_may_want_to_close() {
    let mut targets = targets();
    let mut it = Conversation::open(0, u32::MAX, job(0, 0));
    it.set_established();
    send_all(&mut it, &targets);
    let closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    assert!(it.receive(1, closing, &mut targets, None).unwrap().is_some());
    assert!(it.is_closing() && !it.is_idle());
}

#[test]
fn a_body_that_ends_with_the_connection() {
    let mut targets = targets();
    let mut it = Conversation::open(0, u32::MAX, job(1, 0));
    it.set_established();
    assert_eq!(
        it.receive(1, b"HTTP/1.1 200 OK\r\nX-Gen: new\r\n\r\nabc", &mut targets, Some("X-Gen")),
        Ok(None)
    );
    let answer = it.end(&mut targets, Some("X-Gen")).unwrap().unwrap();
    assert_eq!(answer.response.body_bytes, 3);
    assert_eq!(it.recorded(), "new");
}

#[test]
fn too_much_too_little_and_unasked() {
    let mut targets = targets();
    let mut it = Conversation::open(0, u32::MAX, job(0, 0));
    it.set_established();
    assert_eq!(it.end(&mut targets, None), Err(Failure::ClosedEarly));
    let two = [HELLO, HELLO].concat();
    assert_eq!(it.receive(1, &two, &mut targets, None), Err(Failure::WrongBytes));
    let mut it = Conversation::open(0, u32::MAX, job(0, 0));
    it.set_established();
    it.receive(1, HELLO, &mut targets, None).unwrap();
    assert_eq!(it.receive(2, b"x", &mut targets, None), Err(Failure::WrongBytes));
}

#[test]
fn an_answer_before_the_end_of_the_request_ends_the_connection() {
    let mut targets = targets();
    let mut it = Conversation::open(0, u32::MAX, job(0, 0));
    it.set_established();
    it.sent(3);
    let answer = it.receive(1, b"HTTP/1.1 413 Large\r\nContent-Length: 0\r\n\r\n", &mut targets, None);
    assert_eq!(answer.unwrap().unwrap().response.status, 413);
    assert!(it.is_closing());
}
