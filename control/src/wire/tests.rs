use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::{Refusal, Reply, Request};

const SHORT: Duration = Duration::from_millis(50);

fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("ff-control-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn a_request_and_its_reply() {
    let dir = directory("call");
    let path = dir.join("control.sock");
    let listener = Listener::bind(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(listener.accept().unwrap().is_none());

    let mut client = Connection::connect(&path, SHORT).unwrap();
    let mut server = listener.accept().unwrap().unwrap();
    assert!(server.try_recv::<Request>().unwrap().is_none());
    client.send(&Request::Shutdown { force: true }, SHORT).unwrap();
    assert_eq!(server.recv::<Request>(SHORT).unwrap(), Request::Shutdown { force: true });
    let refusal = Refusal { code: "workers_alive".into(), reason: "two workers live".into() };
    server.send(&Reply::Refused(refusal.clone()), SHORT).unwrap();
    assert_eq!(client.recv::<Reply>(SHORT).unwrap(), Reply::Refused(refusal));
    assert_eq!(server.peer_pid().unwrap(), std::process::id());
    assert_eq!(client.peer_pid().unwrap(), std::process::id());
    drop(client);
    assert!(matches!(server.try_recv::<Request>(), Err(ControlError::Closed)));
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn nobody_there_names_the_instance() {
    let dir = directory("blue");
    let path = dir.join("control.sock");
    let absent = Connection::connect(&path, SHORT).unwrap_err().to_string();
    assert!(absent.starts_with("no instance `ff-control-"), "{absent}");
    drop(Listener::bind(&path).unwrap());
    // The file is still there, but nobody listens: the same sentence; and a new primary replaces it.
    assert!(path.exists());
    assert!(matches!(Connection::connect(&path, SHORT), Err(ControlError::NotRunning { .. })));
    let _again = Listener::bind(&path).unwrap();
    Connection::connect(&path, SHORT).unwrap();
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn descriptors_travel_beside_the_message() {
    let dir = directory("fds");
    let (mut a, mut b) = Connection::pair().unwrap();
    let mut files: Vec<File> = (0..16)
        .map(|i| {
            File::options().read(true).write(true).create_new(true).open(dir.join(i.to_string())).unwrap()
        })
        .collect();
    for (i, file) in files.iter_mut().enumerate() {
        write!(file, "queue {i}").unwrap();
    }
    let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    a.send_with_fds(&Reply::Ok, &borrowed, SHORT).unwrap();
    let (reply, fds) = b.recv_with_fds::<Reply>(SHORT).unwrap();
    assert_eq!(reply, Reply::Ok);
    assert_eq!(fds.len(), 16);
    for (i, fd) in fds.into_iter().enumerate() {
        let mut file = File::from(fd);
        std::io::Seek::rewind(&mut file).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, format!("queue {i}"));
    }
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn every_wait_has_a_bound() {
    let (mut a, mut b) = Connection::pair().unwrap();
    let started = Instant::now();
    assert!(matches!(a.recv::<Reply>(SHORT), Err(ControlError::Timeout { .. })));
    assert!(started.elapsed() >= SHORT);
    // A reader that does not read: the socket fills, then the sender gives up in time.
    let started = Instant::now();
    let filled = (0..100_000).find_map(|_| a.send(&Reply::Ok, SHORT).err());
    assert!(matches!(filled, Some(ControlError::Timeout { .. })));
    assert!(started.elapsed() < Duration::from_secs(20));
    assert_eq!(b.recv::<Reply>(SHORT).unwrap(), Reply::Ok);
}

#[test]
fn limits_hold_from_both_sides() {
    let (mut a, mut b) = Connection::pair().unwrap();
    // Two quotes belong to the JSON text.
    let longest = "x".repeat(MESSAGE_BYTES_MAX - 2);
    a.send(&longest, SHORT).unwrap();
    assert_eq!(b.recv::<String>(SHORT).unwrap(), longest);
    let longer = "x".repeat(MESSAGE_BYTES_MAX - 1);
    assert!(matches!(a.send(&longer, SHORT), Err(ControlError::TooLong { .. })));
    assert!(matches!(
        a.send_with_fds(&Reply::Ok, &vec![b.as_fd(); DESCRIPTORS_MAX + 1], SHORT),
        Err(ControlError::TooManyDescriptors { count: 65 })
    ));
    a.send(&"no reply", SHORT).unwrap();
    assert!(matches!(b.recv::<Reply>(SHORT), Err(ControlError::Malformed(_))));
}
