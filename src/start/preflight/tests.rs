use super::*;

const MOUNTS: &str = "proc /proc proc rw,relatime 0 0\n\
    nodev /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0\n\
    nodev /mnt/huge1g hugetlbfs rw,relatime,pagesize=1024M 0 0\n\
    tmpfs /mnt/tmp tmpfs rw 0 0\n";

#[test]
fn hugepages_are_known_by_their_mount() {
    assert_eq!(mounted_page_kib(MOUNTS, Path::new("/dev/hugepages")), Some(2_048));
    assert_eq!(mounted_page_kib(MOUNTS, Path::new("/mnt/huge1g")), Some(1 << 20));
    assert_eq!(mounted_page_kib(MOUNTS, Path::new("/mnt/tmp")), None);
    assert_eq!(mounted_page_kib(MOUNTS, Path::new("/dev/hugepages/below")), None);
    assert_eq!(mounted_page_kib("", Path::new("/dev/hugepages")), None);
}

#[test]
fn as_many_workers_as_there_are_queues() {
    let mut port = Port::new(0);
    let conf = Path::new("/etc/nginx/nginx.conf");
    let count = |port: &Port, count| workers(port, WorkerProcesses::Count(count), conf);
    assert_eq!(count(&port, 1), Ok(1));
    assert_eq!(count(&port, 16), Ok(16));
    let refused = count(&port, 17).unwrap_err();
    assert_eq!(
        refused.sentence,
        "/etc/nginx/nginx.conf asks for worker_processes 17: tap:ff0 serves 1 to 16 workers, each with a queue of \
         its own"
    );
    assert!(count(&port, 0).is_err());
    port.queues = Some(2);
    assert_eq!(count(&port, 2), Ok(2));
    assert!(count(&port, 3).is_err());
    port.queues = None;
    port.device = Device::Wire;
    assert_eq!(count(&port, 64), Ok(64));
    assert!(count(&port, 65).is_err());
    assert_eq!(
        u32::from(workers(&port, WorkerProcesses::Auto, conf).unwrap()),
        online_cpus(),
        "auto is what nginx makes of it"
    );
}

#[test]
fn a_pid_file_of_a_living_nginx_is_respected() {
    let path = std::env::temp_dir().join(format!("ffctl-pid-{}", std::process::id()));
    let conf = Path::new("/etc/nginx/nginx.conf");
    assert!(pid_file(&path, conf).is_ok());
    // A pid that now belongs to something that is not nginx is a stale file.
    fs::write(&path, format!("{}\n", std::process::id())).unwrap();
    assert!(pid_file(&path, conf).is_ok());
    fs::write(&path, "").unwrap();
    assert!(pid_file(&path, conf).is_ok());
    fs::remove_file(&path).unwrap();
}
