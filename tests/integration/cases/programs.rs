//! Clients that people use: curl, wget, python requests, openssl, h2load.

use std::process::{Command, Stdio};
use std::time::Duration;

use ff_harness::{Context, Failure, Instance, MIB, Output, ensure, run};

use crate::case::{Case, Outcome, Size};

const LIMIT: Duration = Duration::from_secs(30);

pub fn cases() -> Vec<Case> {
    vec![
        Case::client("cl01", "curl over IPv4", curl4).main(),
        Case::client("cl02", "curl over IPv6", curl6).main(),
        Case::client("cl03", "wget", wget).main(),
        Case::client("cl04", "python requests, 200 requests in one session", requests).main(),
        Case::client("cl05", "openssl s_client, TLS 1.2 and 1.3, certificate verified", openssl).main(),
        Case::client("cl06", "curl over HTTP/2 and TLS, 1 MiB", curl_h2).main(),
        Case::client("cl07", "h2load, HTTP/2 over TLS, no request failed", h2load).main(),
        Case::client("cl08", "ping over IPv4 and IPv6", ping).main(),
    ]
}

fn client(program: &str, args: &[&str]) -> Result<Output, Failure> {
    let mut command = Command::new(program);
    command.args(args);
    let out = run(command, LIMIT)?;
    ensure!(out.success(), "{program} {}: exit code {}: {}", args.join(" "), out.code(), out.all());
    Ok(out)
}

fn curl(instance: &Instance, v6: bool) -> Outcome {
    let url = format!("http://{}/", instance.addr(v6, 80));
    let out = client("curl", &["-sSg", "--max-time", "10", &url])?;
    ensure!(out.stdout == "<p>served by nginx\n", "the page is {:?}", out.stdout);
    let head = client("curl", &["-sSgI", "--max-time", "10", &url])?;
    ensure!(head.stdout.contains("Server: nginx/"), "no nginx in {:?}", head.stdout);
    Ok(String::new())
}

fn curl4(instance: &Instance, _: Size) -> Outcome {
    curl(instance, false)
}

fn curl6(instance: &Instance, _: Size) -> Outcome {
    curl(instance, true)
}

fn wget(instance: &Instance, _: Size) -> Outcome {
    let file = instance.site.dir.join("wget.out");
    for v6 in [false, true] {
        let url = format!("http://{}/m1.bin", instance.addr(v6, 80));
        let path = file.to_string_lossy();
        client("wget", &["-q", "-T", "10", "-t", "1", "-O", &path, &url])?;
        ff_harness::pattern::check_file(&file, MIB, MIB)?;
    }
    Ok(String::new())
}

fn requests(instance: &Instance, _: Size) -> Outcome {
    let program = r#"
import sys, requests
base = sys.argv[1]
session = requests.Session()
for _ in range(200):
    answer = session.get(base + "/hello", timeout=10)
    assert answer.status_code == 200 and answer.text == "hello\n", answer
body = session.get(base + "/m1.bin", timeout=10).content
assert len(body) == 1 << 20
put = session.put(base + "/dav/requests", data=body, timeout=10)
assert put.status_code in (201, 204), put
assert session.get(base + "/missing", timeout=10).status_code == 404
"#;
    let base = format!("http://{}", instance.addr(false, 80));
    client("/usr/bin/python3", &["-c", program, &base])?;
    ff_harness::pattern::check_file(&instance.site.dav("requests"), MIB, MIB)?;
    Ok(String::new())
}

fn openssl(instance: &Instance, _: Size) -> Outcome {
    let address = instance.addr(false, 443).to_string();
    let certificate = instance.site.certificate();
    for version in ["-tls1_2", "-tls1_3"] {
        let script = format!(
            "printf 'GET /hello HTTP/1.1\\r\\nHost: test\\r\\nConnection: close\\r\\n\\r\\n' | timeout 20 openssl \
             s_client {version} -connect {address} -CAfile {} -verify_return_error -ign_eof -quiet",
            certificate.display()
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stdin(Stdio::null());
        let out = run(command, LIMIT)?;
        ensure!(out.success() && out.stdout.ends_with("hello\n"), "{version}: {}", out.all());
    }
    Ok(String::new())
}

fn curl_h2(instance: &Instance, _: Size) -> Outcome {
    let file = instance.site.dir.join("h2.out");
    let (path, certificate) = (file.to_string_lossy(), instance.site.certificate());
    let certificate = certificate.to_string_lossy();
    for v6 in [false, true] {
        let url = format!("https://{}/m1.bin", instance.addr(v6, 443));
        let args = ["-sSg", "--http2", "--max-time", "20", "--cacert", &certificate, "-o", &path, "-w"];
        let out = client("curl", &[&args[..], &["%{http_version}", &url]].concat())?;
        ensure!(out.stdout == "2", "HTTP version {:?}", out.stdout);
        ff_harness::pattern::check_file(&file, MIB, MIB)?;
    }
    Ok(String::new())
}

fn h2load(instance: &Instance, size: Size) -> Outcome {
    let url = format!("https://{}/small.bin", instance.addr(false, 443));
    let requests = size.pick("10000", "200000");
    let out =
        client("h2load", &["-n", requests, "-c", "20", "-m", "10", "-t", "1", "-T", "10", "-N", "10", &url])?;
    let line = |start: &str| {
        out.stdout
            .lines()
            .find(|line| line.starts_with(start))
            .map(str::to_owned)
            .doing("h2load printed no result")
    };
    let result = line("requests:")?;
    ensure!(
        result.contains(&format!("{requests} succeeded, 0 failed, 0 errored, 0 timeout")),
        "h2load: {result}\n{}",
        out.stdout
    );
    line("finished in")
}

fn ping(instance: &Instance, _: Size) -> Outcome {
    let mut note = Vec::new();
    for v6 in [false, true] {
        let address = instance.addr(v6, 0).ip().to_string();
        let out = client("ping", &["-c", "20", "-i", "0.05", "-W", "2", "-q", &address])?;
        ensure!(out.stdout.contains(" 0% packet loss"), "{}", out.stdout);
        // Larger than one frame: reassembled and answered in fragments.
        let large = client("ping", &["-c", "3", "-i", "0.05", "-W", "2", "-q", "-s", "4000", &address])?;
        ensure!(large.stdout.contains(" 0% packet loss"), "4000 bytes: {}", large.stdout);
        note.extend(out.stdout.lines().filter_map(|line| line.strip_prefix("rtt ")).map(str::to_owned));
    }
    Ok(note.join("; "))
}
