use super::*;

#[test]
fn what_is_ours_is_found_and_nothing_else() {
    let root = std::env::temp_dir().join(format!("ffctl-remains-{}", std::process::id()));
    let (huge, runtime) = (root.join("huge"), root.join("run"));
    fs::create_dir_all(&huge).unwrap();
    fs::create_dir_all(&runtime).unwrap();
    let record = InstanceRecord {
        instance: "a".into(),
        config: "/etc/f-stack.conf".into(),
        runtime_dir: runtime.clone(),
        file_prefix: format!("ff_test_{}", std::process::id()),
        hugepage_dir: huge.clone(),
        region_path: ff_control::region_path(&huge, "a"),
        device: "wire".into(),
        primary: None,
        nginx_master: None,
        nginx_pid_file: None,
        workers: 1,
        worker_shutdown_timeout_ms: 0,
        started_unix_s: 0,
    };
    let prefix = &record.file_prefix;
    let ours = [format!("{prefix}map_0"), format!("{prefix}map_117"), "ffstack_a".into()];
    let others =
        [format!("{prefix}map_"), format!("{prefix}2map_0"), format!("{prefix}map_0x"), "ffstack_ab".into()];
    for name in ours.iter().chain(&others) {
        fs::write(huge.join(name), "").unwrap();
    }
    for name in ["instance.json", "primary.log", "lock"] {
        fs::write(runtime.join(name), "").unwrap();
    }
    std::os::unix::net::UnixListener::bind(runtime.join("control.sock")).unwrap();

    let remains = Remains::of(&record);
    let expected: Vec<PathBuf> = ours
        .iter()
        .map(|name| huge.join(name))
        .chain(["control.sock", "primary.log", "instance.json"].map(|name| runtime.join(name)))
        .collect();
    assert_eq!(
        remains,
        Remains { files: expected, directories: Vec::new(), runtime_dir: Some(runtime.clone()) }
    );
    remains.remove().unwrap();
    // Again: that nothing is there any more is no error.
    remains.remove().unwrap();
    assert!(!runtime.exists());
    let mut left: Vec<String> =
        fs::read_dir(&huge).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let mut others = others.to_vec();
    left.sort();
    others.sort();
    assert_eq!(left, others);
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn a_pid_file_is_removed_only_when_it_names_our_dead_master() {
    let root = std::env::temp_dir().join(format!("ffctl-pidfile-{}", std::process::id()));
    fs::create_dir_all(&root).unwrap();
    let path = root.join("nginx.pid");
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let master = ff_control::ProcessId::of(child.id()).unwrap();
    let record = InstanceRecord {
        instance: "a".into(),
        config: "/etc/f-stack.conf".into(),
        runtime_dir: root.join("run"),
        file_prefix: format!("ff_pidfile_{}", std::process::id()),
        hugepage_dir: root.join("huge"),
        region_path: root.join("huge/ffstack_a"),
        device: "wire".into(),
        primary: None,
        nginx_master: Some(master),
        nginx_pid_file: Some(path.clone()),
        workers: 1,
        worker_shutdown_timeout_ms: 0,
        started_unix_s: 0,
    };
    fs::write(&path, format!("{}\n", master.pid)).unwrap();
    let while_alive = Remains::of(&record);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(while_alive.files, Vec::<PathBuf>::new());
    assert_eq!(Remains::of(&record).files, std::slice::from_ref(&path));
    // Another nginx has written its own since.
    fs::write(&path, "1\n").unwrap();
    assert_eq!(Remains::of(&record).files, Vec::<PathBuf>::new());
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn a_runtime_directory_with_files_of_others_in_it_stays_with_them() {
    let root = std::env::temp_dir().join(format!("ffctl-others-{}", std::process::id()));
    fs::create_dir_all(root.join("sub")).unwrap();
    for name in ["lock", "instance.json.new", "passwd", "sub/file"] {
        fs::write(root.join(name), "x").unwrap();
    }
    remove_runtime_dir(&root).unwrap();
    assert!(!root.join("lock").exists() && !root.join("instance.json.new").exists());
    assert!(root.join("passwd").exists() && root.join("sub/file").exists());
    fs::remove_file(root.join("passwd")).unwrap();
    fs::remove_dir_all(root.join("sub")).unwrap();
    remove_runtime_dir(&root).unwrap();
    assert!(!root.exists());
    // Again: that it is gone is no error.
    remove_runtime_dir(&root).unwrap();
}
