use super::*;

fn settings(text: &str) -> Settings {
    let checked = Config::parse("f-stack.conf", text);
    assert!(checked.errors().next().is_none(), "{:?}", checked.findings);
    Settings {
        config: checked.config,
        config_path: "f-stack.conf".into(),
        workers: 2,
        cpus: vec![4, 5],
        allowed_cpus: vec![0, 1],
    }
}

const PORT: &str = "[port0]\naddr=198.18.0.2\nnetmask=255.255.255.0\n";

#[test]
fn every_worker_has_an_lcore_of_its_own_and_a_cpu() {
    let settings = settings(PORT);
    let lcores = |slot, index| {
        let arguments = settings.worker_arguments(slot, index).unwrap();
        arguments.into_iter().find(|argument| argument.starts_with("--lcores")).unwrap()
    };
    assert_eq!(lcores(0, 0), "--lcores=1@(4)");
    assert_eq!(lcores(0, 1), "--lcores=2@(5)");
    assert_eq!(lcores(3, 1), "--lcores=8@(5)");
    let client = settings.client_arguments(0).unwrap();
    assert!(client.contains(&"--lcores=9@(0,1)".to_owned()), "{client:?}");
    let primary = settings.primary_arguments(100 << 20);
    assert_eq!((primary.lcore, primary.cpus.as_slice()), (0, [0, 1].as_slice()));
    assert!(primary.extra.contains(&"--huge-dir=/dev/hugepages".to_owned()));
    assert!(primary.extra.contains(&"--iova-mode=va".to_owned()));
}

#[test]
fn what_the_file_says_of_dpdk() {
    let text = format!(
        "[dpdk]\nlog_level=pmd.net.tap:debug\nchannel=4\nmemory=256\n{PORT}device=pci:0000:02:00.0\n"
    );
    let settings = settings(&text);
    let primary = settings.primary_arguments(100 << 20);
    assert_eq!(primary.pci, ["0000:02:00.0"]);
    assert_eq!(primary.log_level, LOG_LEVEL);
    assert!(primary.extra.contains(&"--log-level=pmd.net.tap:debug".to_owned()));
    assert!(
        primary.extra.contains(&"-n4".to_owned()) && !primary.extra.contains(&"--iova-mode=va".to_owned())
    );
    assert!(matches!(primary.role, Role::Primary { memory_mib: 256, .. }));
    let larger = settings.primary_arguments((300 << 20) + 1);
    assert!(matches!(larger.role, Role::Primary { memory_mib: 301, .. }));
    // A worker needs no more than what it shares.
    let worker = settings.worker_arguments(0, 0).unwrap();
    assert!(
        !worker.iter().any(|argument| argument.starts_with("-n") && argument != "--no-telemetry"),
        "{worker:?}"
    );
}

#[test]
fn the_mac_is_local_and_stays() {
    let mac = settings(PORT).own_mac();
    assert_eq!(mac, settings(PORT).own_mac());
    assert_eq!((mac[0], mac[5] & 1), (0x02, 0));
    assert_ne!(mac, settings(&format!("[instance]\nname=other\n{PORT}")).own_mac());
    assert_ne!(mac, settings(&format!("{PORT}device=tap:ff9\n")).own_mac());
}

#[test]
fn buffers_are_bounded_as_the_configuration_says() {
    let text = format!("[limits]\nrcv_buf_max=1048576\n[freebsd.sysctl]\nnet.inet.tcp.msl=2000\n{PORT}");
    let tcp = settings(&text).tcp();
    assert_eq!((tcp.rcv_buf_max_bytes, tcp.msl_ms), (1_048_576, 2_000));
    assert_eq!((tcp.congestion.as_str(), tcp.ecn.as_str()), ("cubic", "off"));
    assert_eq!(tcp.time_wait_max, 131_072);
}
