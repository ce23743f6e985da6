use std::process::Command;

use super::*;

#[test]
fn a_stat_line_with_a_nasty_name() {
    let line =
        "1234 (nginx: a) S 7 (b) R 99 1234 1234 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 424242 1000 200 x";
    // The name ends at the last parenthesis.
    assert!(ProcessStat::parse(line).is_some_and(|stat| stat.name == "nginx: a) S 7 (b"));
    let stat = ProcessStat::parse(line).unwrap();
    assert_eq!((stat.state, stat.parent, stat.start_ticks), ('R', 99, 424_242));
    for broken in ["", "1 (a", "1 a) S 1", "1 (a) S", "1 (a) S x 1 2 3"] {
        assert_eq!(ProcessStat::parse(broken), None, "{broken:?}");
    }
}

#[test]
fn a_pid_alone_is_no_identity() {
    let own = ProcessId::of(std::process::id()).unwrap();
    assert!(own.is_alive());
    let impostor = ProcessId { start_ticks: own.start_ticks + 1, ..own };
    assert!(!impostor.is_alive());
}

#[test]
fn a_zombie_is_dead() {
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id();
    // Until it is waited for, its entry stays.
    let mut seen_dead = false;
    for _ in 0..500 {
        if ProcessId::of(pid).is_none() {
            seen_dead = true;
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    assert!(seen_dead && Path::new(&format!("/proc/{pid}")).exists());
    child.wait().unwrap();
    assert_eq!(ProcessId::of(pid), None);
}

#[test]
fn a_record_survives_its_file() {
    let dir = std::env::temp_dir().join(format!("ff-record-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let paths = InstancePaths::new(&dir);
    assert_eq!(InstanceRecord::load(&paths).unwrap(), None);
    let record = InstanceRecord {
        instance: "default".into(),
        config: "/etc/f-stack.conf".into(),
        runtime_dir: dir.clone(),
        file_prefix: "ff_default".into(),
        hugepage_dir: "/dev/hugepages".into(),
        region_path: region_path(Path::new("/dev/hugepages"), "default"),
        device: "tap:ff0".into(),
        primary: ProcessId::of(std::process::id()),
        nginx_master: None,
        nginx_pid_file: None,
        workers: 2,
        worker_shutdown_timeout_ms: 90_000,
        started_unix_s: 1,
    };
    record.store(&paths).unwrap();
    assert_eq!(InstanceRecord::load(&paths).unwrap(), Some(record));
    fs::write(paths.record(), "{").unwrap();
    assert!(matches!(InstanceRecord::load(&paths), Err(RecordError::Malformed { .. })));
    fs::remove_dir_all(dir).unwrap();
}
