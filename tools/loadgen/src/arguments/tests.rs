use super::*;

fn parse(words: &[&str]) -> Result<Arguments, clap::Error> {
    Arguments::try_parse_from(["ff-loadgen"].iter().chain(words))
}

const URL: &str = "http://198.18.0.2/small.bin";

#[test]
fn defaults() {
    let arguments = parse(&[URL]).unwrap();
    let load = arguments.load();
    assert_eq!((load.connections, load.duration_us, load.rate_per_s), (64, 10_000_000, None));
    assert_eq!(load.requests_per_connection, u32::MAX);
    assert_eq!(load.remotes, ["198.18.0.2:80".parse().unwrap()]);
    let targets = arguments.targets().unwrap();
    assert_eq!(targets[0].request(false), b"GET /small.bin HTTP/1.1\r\nHost: 198.18.0.2\r\n\r\n");
}

#[test]
fn everything_said() {
    let words =
        [URL, "--close", "--rate", "1e5", "-n", "7", "--remote", "[2001:2::2]:80", "--timeline-ms", "10"];
    let load = parse(&words).unwrap().load();
    assert_eq!((load.requests_per_connection, load.rate_per_s, load.requests_max), (1, Some(1e5), 7));
    assert_eq!((load.remotes.len(), load.interval_us), (2, 10_000));
}

#[test]
fn what_makes_no_sense_is_refused() {
    for words in [
        &[] as &[&str],
        &["ftp://x/"],
        &[URL, "-c", "0"],
        &[URL, "-d", "0"],
        &[URL, "-d", "nan"],
        &[URL, "--rate", "-1"],
        &[URL, "--close", "--requests-per-connection", "3"],
        &[URL, "--sources", "0"],
        &[URL, "--any-body", "--expect-file", "x"],
    ] {
        assert!(parse(words).is_err(), "{words:?}");
    }
}

#[test]
fn paths_with_and_without_their_files() {
    let dir = std::env::temp_dir().join(format!("ff-loadgen-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let (list, body) = (dir.join("paths"), dir.join("body"));
    fs::write(&body, "hello").unwrap();
    fs::write(&list, format!("# comment\n\n/a {}\n/b\n", body.display())).unwrap();
    let arguments = parse(&[URL, "--paths", list.to_str().unwrap()]).unwrap();
    let targets = arguments.targets().unwrap();
    assert_eq!(targets.len(), 2);
    assert!(targets[1].request(false).starts_with(b"GET /b HTTP"));
    fs::write(&list, "# nothing\n").unwrap();
    assert!(matches!(arguments.targets(), Err(ArgumentsError::NoPaths(_))));
    fs::write(&list, "/a /nowhere/at/all\n").unwrap();
    assert!(matches!(arguments.targets(), Err(ArgumentsError::Read { .. })));
    fs::remove_dir_all(&dir).unwrap();
}
