//! The file format: what is tolerated.

use super::{PORT0, clean};
use crate::Config;

#[test]
fn blanks_comments_and_line_ends_do_not_matter() {
    let plain = "[dpdk]\nidle_sleep=7\npkt_tx_delay=3\n";
    let same = [
        "  [dpdk]  \n\t idle_sleep =  7 \n pkt_tx_delay\t=3",
        "[ dpdk ]\r\nidle_sleep=7\r\npkt_tx_delay=3\r\n",
        "# first\n; second\n[dpdk] # third\nidle_sleep=7 ; fourth\n   # fifth\npkt_tx_delay=3\t#",
        "\u{feff}[dpdk]\nidle_sleep=7\n\n\npkt_tx_delay=3",
        "[dpdk]\npkt_tx_delay=3\nidle_sleep=7",
        "[dpdk]\nidle_sleep=07\npkt_tx_delay=3",
    ];
    for text in same {
        assert_eq!(clean(text), clean(plain), "{text:?}");
    }
}

#[test]
fn a_semicolon_without_a_blank_separates_and_with_one_begins_a_comment() {
    let ports = |value: &str| clean(&format!("[kernel]\ntcp_ports={value}")).kernel.tcp_ports;
    assert_eq!(ports("80;443;8000-8080"), [(80, 80), (443, 443), (8000, 8080)]);
    assert_eq!(ports("80; 443;"), [(80, 80), (443, 443)]);
    assert_eq!(ports("80 ;443"), [(80, 80)]);
}

#[test]
fn quotes_keep_comment_characters_in_arguments() {
    let options = |value: &str| clean(&format!("[nginx]\noptions={value}")).nginx.options;
    assert_eq!(options("-g 'daemon off ;' # why"), ["-g", "daemon off ;"]);
    assert_eq!(options(r#"-g "a #b;" -q"#), ["-g", "a #b;", "-q"]);
    assert_eq!(options(r"-g a\ \;b"), ["-g", "a ;b"]);
    assert_eq!(options(r#"-g "say \" #x" ; end"#), ["-g", "say \" #x"]);
}

#[test]
fn a_value_may_hold_an_equals_sign() {
    let config = clean("[dpdk]\nextra_eal_args=--vdev=net_null0,size=64 --no-telemetry");
    assert_eq!(config.dpdk.extra_eal_args, ["--vdev=net_null0,size=64", "--no-telemetry"]);
}

#[test]
fn a_duplicate_section_is_read_as_one() {
    let checked = Config::parse("f", &format!("[dpdk]\nidle_sleep=7\n{PORT0}[dpdk]\npkt_tx_delay=3"));
    assert_eq!(checked.findings.len(), 1);
    assert_eq!((checked.config.dpdk.idle_sleep_us, checked.config.dpdk.pkt_tx_delay_us), (7, 3));
}

#[test]
fn load_reads_a_file_and_says_why_it_cannot() {
    let dir = std::env::temp_dir().join(format!("ff-config-load-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("f-stack.conf");

    let absent = Config::load(&file).unwrap_err().to_string();
    assert!(
        absent.starts_with(&format!("cannot read the configuration {}: No such file", file.display())),
        "{absent}"
    );

    std::fs::write(&file, PORT0).unwrap();
    assert_eq!(Config::load(&file).unwrap(), Config::parse(&file.display().to_string(), PORT0));

    std::fs::write(&file, b"[dpdk]\n\xff").unwrap();
    let binary = Config::load(&file).unwrap_err().to_string();
    assert!(binary.contains("is no UTF-8 text (byte 7)"), "{binary}");

    std::fs::write(&file, vec![b'#'; (crate::FILE_BYTES_MAX + 1) as usize]).unwrap();
    let large = Config::load(&file).unwrap_err().to_string();
    assert!(large.contains("is larger than 1048576 bytes"), "{large}");

    std::fs::remove_dir_all(&dir).unwrap();
}
