//! HTTP as nginx offers it: proxying, compression, ranges, uploads, pipelining.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::time::Duration;

use ff_harness::http::Connection;
use ff_harness::{Context, Instance, MIB, ensure, pattern, run};

use crate::case::{Case, Outcome, Size};

pub fn cases() -> Vec<Case> {
    vec![
        Case::client("ht01", "sendfile on, 64 MiB, every byte checked", sendfile_on).main(),
        Case::client("ht02", "sendfile off, 64 MiB, every byte checked", sendfile_off).main(),
        Case::client("ht03", "sendfile in aio threads, 64 MiB", aio_threads),
        Case::client("ht04", "gzip, unpacked and compared", gzip).main(),
        Case::client("ht05", "range requests, single and several", ranges),
        Case::client("ht06", "Expect: 100-continue", expect_continue),
        Case::client("ht07", "chunked upload to WebDAV", chunked_upload).main(),
        Case::client("ht08", "PUT of 200 MiB to WebDAV with curl", put_large).within_s(90),
        Case::client("ht09", "100 pipelined requests", pipelining).main(),
        Case::client("ht10", "chunked response of an upstream on kernel loopback", chunked_response).main(),
        Case::client("ht11", "WebSocket echo behind nginx", websocket).main(),
        Case::client("ht12", "streamed upload to an upstream, 16 MiB", streamed_upload),
        Case::client("ht13", "stream module: TCP proxied to kernel loopback, half-closed", stream_proxy),
    ]
}

fn download(instance: &Instance, path: &str) -> Outcome {
    instance.site.file("m64.bin", 64 * MIB)?;
    for v6 in [false, true] {
        Connection::open(instance.addr(v6, 80))?.get_file(path, 64 * MIB)?;
    }
    Ok(String::new())
}

fn sendfile_on(instance: &Instance, _: Size) -> Outcome {
    download(instance, "/m64.bin")
}

fn sendfile_off(instance: &Instance, _: Size) -> Outcome {
    download(instance, "/nosendfile/m64.bin")
}

fn aio_threads(instance: &Instance, _: Size) -> Outcome {
    download(instance, "/aio/m64.bin")
}

fn gzip(instance: &Instance, _: Size) -> Outcome {
    let url = format!("http://{}/gzip/text.txt", instance.addr(false, 80));
    let packed = instance.site.dir.join("packed.gz");
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--max-time", "20", "-H", "Accept-Encoding: gzip", "-D", "-", "-o"])
        .arg(&packed)
        .arg(&url);
    let out = run(curl, Duration::from_secs(30))?;
    ensure!(out.success() && out.stdout.contains("Content-Encoding: gzip"), "curl: {}", out.all());
    let mut gunzip = Command::new("gzip");
    gunzip.args(["-dc"]).arg(&packed);
    let unpacked = run(gunzip, Duration::from_secs(10))?;
    let text = fs::read_to_string(instance.site.dir.join("html/text.txt"))?;
    ensure!(unpacked.stdout == text, "the unpacked text differs from the file");
    Ok(format!("{} to {} bytes", text.len(), fs::metadata(&packed)?.len()))
}

fn ranges(instance: &Instance, _: Size) -> Outcome {
    let mut connection = Connection::open(instance.addr(false, 80))?;
    for (from, to) in [(0, 0), (1, 1), (1_000, 9_999), (MIB - 1, MIB - 1), (0, MIB - 1)] {
        connection.send(format!("GET /m1.bin HTTP/1.1\r\nHost: test\r\nRange: bytes={from}-{to}\r\n\r\n"))?;
        let head = connection.head()?;
        ensure!(head.status == 206, "bytes={from}-{to}: status {}", head.status);
        let want = format!("bytes {from}-{to}/{MIB}");
        ensure!(
            head.field("content-range") == Some(&want),
            "content-range {:?}",
            head.field("content-range")
        );
        connection.pattern(MIB, from, to - from + 1)?;
    }
    connection.send("GET /m1.bin HTTP/1.1\r\nHost: test\r\nRange: bytes=10-19,500000-500099\r\n\r\n")?;
    let (head, body) = connection.response()?;
    ensure!(head.status == 206, "two ranges: status {}", head.status);
    for (from, len) in [(10_u64, 10_usize), (500_000, 100)] {
        let mut piece = vec![0; len];
        pattern::fill(MIB, from, &mut piece);
        ensure!(body.windows(len).any(|window| window == piece), "the part from {from} is missing");
    }
    connection.send(format!("GET /m1.bin HTTP/1.1\r\nHost: test\r\nRange: bytes={MIB}-\r\n\r\n"))?;
    let (head, _) = connection.response()?;
    ensure!(head.status == 416, "beyond the end: status {}", head.status);
    Ok(String::new())
}

fn expect_continue(instance: &Instance, _: Size) -> Outcome {
    let mut connection = Connection::open(instance.addr(false, 80))?;
    let len = 100_000_u64;
    connection.send(format!(
        "PUT /dav/continue HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: {len}\r\n\r\n"
    ))?;
    let interim = connection.head()?;
    ensure!(interim.status == 100, "status {} instead of 100", interim.status);
    let mut body = vec![0; len as usize];
    pattern::fill(len, 0, &mut body);
    connection.send(&body)?;
    let (head, _) = connection.response()?;
    ensure!(head.status == 201 || head.status == 204, "status {}", head.status);
    pattern::check_file(&instance.site.dav("continue"), len, len)?;
    Ok(String::new())
}

fn chunked_upload(instance: &Instance, _: Size) -> Outcome {
    for v6 in [false, true] {
        let mut connection = Connection::open(instance.addr(v6, 80))?;
        connection.send("PUT /dav/chunked HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        // Chunks of odd sizes, from one byte up.
        let (total, mut at, mut size) = (3 * MIB, 0_u64, 1_u64);
        while at < total {
            let take = size.min(total - at);
            let mut data = vec![0; take as usize];
            pattern::fill(total, at, &mut data);
            connection.send([format!("{take:x}\r\n").as_bytes(), &data, b"\r\n"].concat())?;
            at += take;
            size = (size * 3 + 1) % 40_009 + 1;
        }
        connection.send("0\r\n\r\n")?;
        let (head, _) = connection.response()?;
        ensure!(head.status == 201 || head.status == 204, "status {}", head.status);
        pattern::check_file(&instance.site.dav("chunked"), total, total)?;
    }
    Ok(String::new())
}

fn put_large(instance: &Instance, _: Size) -> Outcome {
    let len = 200 * MIB;
    instance.site.file("m200.bin", len)?;
    let file = instance.site.dir.join("html/m200.bin");
    let url = format!("http://{}/dav/put.bin", instance.addr(false, 80));
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--max-time", "60", "-o", "/dev/null", "-w", "%{http_code} %{speed_upload}", "-T"])
        .arg(&file)
        .arg(&url);
    let out = run(curl, Duration::from_secs(70))?;
    ensure!(out.success() && out.stdout.starts_with("20"), "curl: {}", out.all());
    pattern::check_file(&instance.site.dav("put.bin"), len, len)?;
    fs::remove_file(instance.site.dav("put.bin"))?;
    let speed: f64 = out.stdout.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0.0);
    Ok(format!("{:.0} MB/s", speed / 1e6))
}

fn pipelining(instance: &Instance, _: Size) -> Outcome {
    let mut connection = Connection::open(instance.addr(false, 80))?;
    let mut burst = String::new();
    for index in 0..100 {
        let path = if index % 2 == 0 { "/hello" } else { "/small.bin" };
        let _ = write!(burst, "GET {path} HTTP/1.1\r\nHost: test\r\n\r\n");
    }
    connection.send(burst)?;
    for index in 0..100 {
        let (head, body) = connection.response().doing(format!("response {index}"))?;
        ensure!(head.status == 200, "response {index}: status {}", head.status);
        if index % 2 == 0 {
            ensure!(body == b"hello\n", "response {index} is another one's");
        } else {
            ensure!(pattern::check(600, 0, &body).is_ok() && body.len() == 600, "response {index} is wrong");
        }
    }
    Ok(String::new())
}

fn chunked_response(instance: &Instance, _: Size) -> Outcome {
    let mut connection = Connection::open(instance.addr(false, 80))?;
    let count = 1000_usize;
    // Twice on one connection: the end of the first response is found.
    for _ in 0..2 {
        connection.get(&format!("/up/chunked/{count}"))?;
        let head = connection.head()?;
        ensure!(head.status == 200, "status {}", head.status);
        ensure!(head.field("transfer-encoding") == Some("chunked"), "not chunked: {:?}", head.fields);
        let mut body = Vec::new();
        loop {
            let size = chunk_size(&mut connection)?;
            body.extend(connection.exactly(size)?);
            ensure!(connection.exactly(2)? == b"\r\n", "a chunk does not end in CRLF");
            if size == 0 {
                break;
            }
        }
        let want: Vec<u8> = (0..count).flat_map(|number| vec![(number % 251) as u8; number + 1]).collect();
        ensure!(body == want, "the body of {} bytes is wrong", body.len());
    }
    Ok(String::new())
}

fn chunk_size(connection: &mut Connection) -> Result<usize, ff_harness::Failure> {
    let mut line = String::new();
    while !line.ends_with("\r\n") {
        line.push(char::from(connection.exactly(1)?[0]));
        ensure!(line.len() < 20, "a chunk's size line is too long: {line:?}");
    }
    usize::from_str_radix(line.trim_end(), 16).map_err(|_| format!("no chunk size: {line:?}").into())
}

fn websocket(instance: &Instance, _: Size) -> Outcome {
    let mut connection = Connection::open(instance.addr(false, 80))?;
    // Key and answer are the example of RFC 6455 section 1.3.
    connection.send(
        "GET /ws HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
    )?;
    let head = connection.head()?;
    ensure!(head.status == 101, "status {}", head.status);
    let accept = head.field("sec-websocket-accept");
    ensure!(accept == Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "accept {accept:?}");
    for len in [1_usize, 125, 126, 5_000, 70_000] {
        let mut data = vec![0; len];
        pattern::fill(len as u64, 0, &mut data);
        connection.send(websocket_frame(0x82, &data))?;
        let first = connection.exactly(2)?;
        ensure!(first[0] == 0x82, "frame of type {:#x}", first[0]);
        let got = match first[1] {
            126 => big_endian(&connection.exactly(2)?),
            127 => big_endian(&connection.exactly(8)?),
            short => usize::from(short),
        };
        ensure!(got == len, "a frame of {got} bytes came back for one of {len}");
        ensure!(connection.exactly(len)? == data, "the echo of {len} bytes is wrong");
    }
    connection.send(websocket_frame(0x88, &[]))?;
    ensure!(connection.exactly(2)?[0] == 0x88, "no close frame came back");
    connection.fin()?;
    Ok(String::new())
}

fn big_endian(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |sum, byte| (sum << 8) | usize::from(*byte))
}

/// A masked frame, as a client sends it (RFC 6455 section 5.2).
fn websocket_frame(first: u8, data: &[u8]) -> Vec<u8> {
    let mask = [0x12, 0x34, 0x56, 0x78];
    let mut frame = vec![first];
    match data.len() {
        len @ 0..=125 => frame.push(0x80 | len as u8),
        len @ 126..=0xffff => {
            frame.push(0x80 | 126);
            frame.extend((len as u16).to_be_bytes());
        }
        len => {
            frame.push(0x80 | 127);
            frame.extend((len as u64).to_be_bytes());
        }
    }
    frame.extend(mask);
    frame.extend(data.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
    frame
}

fn streamed_upload(instance: &Instance, _: Size) -> Outcome {
    let mut connection = Connection::open(instance.addr(false, 80))?;
    let len = 16 * MIB;
    connection.send(format!("POST /up/ HTTP/1.1\r\nHost: test\r\nContent-Length: {len}\r\n\r\n"))?;
    let mut data = vec![0; 1 << 16];
    let mut at = 0;
    while at < len {
        pattern::fill(len, at, &mut data);
        connection.send(&data)?;
        at += data.len() as u64;
    }
    let (head, body) = connection.response()?;
    ensure!(head.status == 200, "status {}", head.status);
    let answer = String::from_utf8_lossy(&body).into_owned();
    let file = instance.site.dir.join("html/m16.bin");
    instance.site.file("m16.bin", len)?;
    let mut sum = Command::new("sha256sum");
    sum.arg(&file);
    let want = run(sum, Duration::from_secs(20))?.stdout;
    let want = want.split(' ').next().unwrap_or_default();
    ensure!(answer == format!("POST {len} {want}\n"), "the upstream saw {answer:?}, not {want}");
    Ok(String::new())
}

fn stream_proxy(instance: &Instance, _: Size) -> Outcome {
    for v6 in [false, true] {
        let mut connection = Connection::open(instance.addr(v6, 7000))?;
        let mut data = vec![0; MIB as usize];
        pattern::fill(MIB, 0, &mut data);
        let mut writer = connection.stream.try_clone()?;
        let sender = std::thread::spawn(move || {
            use std::io::Write as _;
            writer.write_all(&data)?;
            writer.shutdown(std::net::Shutdown::Write)
        });
        connection.pattern(MIB, 0, MIB)?;
        sender.join().map_err(|_| "the sender panicked")??;
        connection.fin()?;
    }
    Ok(String::new())
}
