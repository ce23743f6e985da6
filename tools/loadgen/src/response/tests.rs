use super::*;

/// Feeds `input` in pieces of `piece` bytes; all completed responses with their recorded headers.
fn read_in(
    input: &[u8],
    piece: usize,
    expectation: &mut Expectation,
) -> Result<Vec<(Response, String)>, Failure> {
    let mut reader = ResponseReader::default();
    let mut asked = Asked { expectation, is_head: false, record_header: Some("x-gen") };
    let mut responses = Vec::new();
    for mut bytes in input.chunks(piece) {
        while let Fed::Complete { taken, response } = reader.feed(bytes, &mut asked)? {
            responses.push((response, reader.recorded().to_owned()));
            bytes = &bytes[taken..];
        }
    }
    if let Some(response) = reader.end(&mut asked)? {
        responses.push((response, reader.recorded().to_owned()));
    }
    Ok(responses)
}

fn body(text: &str) -> Expectation {
    Expectation::one_of(vec![text.as_bytes().to_vec()]).unwrap()
}

/// The same in every cut: what arrives together must not matter.
fn read(input: &str, expected: &str) -> Result<Vec<(Response, String)>, Failure> {
    let whole = read_in(input.as_bytes(), usize::MAX, &mut body(expected));
    for piece in 1..input.len() {
        assert_eq!(read_in(input.as_bytes(), piece, &mut body(expected)), whole, "in pieces of {piece}");
    }
    whole
}

fn ok(body_bytes: u64) -> Response {
    Response { status: 200, close: false, body_bytes, wrong_bytes: false }
}

#[test]
fn one_with_a_length() {
    let read = read("HTTP/1.1 200 OK\r\nX-Gen: 7\r\nContent-Length: 5\r\n\r\nhello", "hello").unwrap();
    assert_eq!(read, [(ok(5), "7".to_owned())]);
}

#[test]
fn two_in_a_row() {
    let one = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";
    let read = read(&format!("{one}{one}"), "hi").unwrap();
    assert_eq!(read, [(ok(2), String::new()), (ok(2), String::new())]);
}

#[test]
fn chunked_with_extensions_and_trailers() {
    let input = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0A\r\n0123456789\r\n0\r\nT: 1\r\n\r\n";
    let read = read(input, "abc0123456789").unwrap();
    assert_eq!(read, [(ok(13), String::new())]);
}

#[test]
fn until_close() {
    let read = read("HTTP/1.1 200 OK\r\n\r\nall of it", "all of it").unwrap();
    assert_eq!(read, [(Response { close: true, ..ok(9) }, String::new())]);
}

#[test]
fn closing_is_announced() {
    let read = |head: &str| read(&format!("{head}Content-Length: 0\r\n\r\n"), "").unwrap()[0].0.close;
    assert!(read("HTTP/1.1 200 OK\r\nConnection: close\r\n"));
    assert!(!read("HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n"));
    assert!(read("HTTP/1.0 200 OK\r\n"));
    assert!(!read("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n"));
}

#[test]
fn interim_responses_are_skipped() {
    let read = read("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", "").unwrap();
    assert_eq!(read[0].0.status, 204);
}

#[test]
fn a_head_request_has_no_body() {
    let mut reader = ResponseReader::default();
    let mut expectation = body("hello");
    let mut asked = Asked { expectation: &mut expectation, is_head: true, record_header: None };
    let input = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    assert_eq!(reader.feed(input, &mut asked), Ok(Fed::Complete { taken: input.len(), response: ok(0) }));
}

#[test]
fn wrong_bytes_are_seen_wherever_they_are() {
    for text in ["xello", "hexlo", "hellx"] {
        let read = read(&format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{text}"), "hello").unwrap();
        assert!(read[0].0.wrong_bytes);
    }
    let read = read("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhell", "hello").unwrap();
    assert!(read[0].0.wrong_bytes);
}

#[test]
fn an_error_page_is_not_compared() {
    let read = read("HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\n404", "hello").unwrap();
    assert_eq!(read[0].0, Response { status: 404, ..ok(3) });
}

#[test]
fn what_is_not_http_is_malformed() {
    for input in [
        "SSH-2.0-OpenSSH_9.2\r\n\r\n",
        "HTTP/1.1 99 x\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\n",
    ] {
        assert_eq!(read(input, ""), Err(Failure::Malformed), "{input:?}");
    }
}

#[test]
fn an_end_within_a_response_is_early() {
    let whole = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    for len in 1..whole.len() {
        assert_eq!(read(&whole[..len], "hello"), Err(Failure::ClosedEarly), "after {len} bytes");
    }
    assert_eq!(read("", "hello"), Ok(vec![]));
}

#[test]
fn a_head_has_a_bound() {
    let mut reader = ResponseReader::default();
    let mut expectation = Expectation::any();
    let mut asked = Asked { expectation: &mut expectation, is_head: false, record_header: None };
    assert_eq!(reader.feed(b"HTTP/1.1 200 OK\r\nX: ", &mut asked), Ok(Fed::More));
    let mut fed = 20;
    let failed = loop {
        match reader.feed(&[b'x'; 1000], &mut asked) {
            Ok(_) => fed += 1000,
            Err(failure) => break failure,
        }
        assert!(fed <= HEAD_BYTES_MAX);
    };
    assert_eq!(failed, Failure::Malformed);
}
