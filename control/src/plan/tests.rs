use super::*;

fn prefix(text: &str, prefix_len: u8) -> AddressPlan {
    AddressPlan { addr: text.parse().unwrap(), prefix_len }
}

#[test]
fn prefixes_cover_what_they_say() {
    for (net, len, addr, inside) in [
        ("127.0.0.0", 8, "127.255.255.255", true),
        ("127.0.0.0", 8, "128.0.0.0", false),
        ("0.0.0.0", 0, "198.18.0.1", true),
        ("198.18.0.1", 32, "198.18.0.1", true),
        ("198.18.0.1", 32, "198.18.0.2", false),
        ("::", 0, "2001:2::1", true),
        ("2001:2::", 48, "2001:2:0:ffff::1", true),
        ("2001:2::", 48, "2001:2:1::1", false),
        ("::1", 128, "::1", true),
        ("::1", 128, "::2", false),
        ("::", 0, "127.0.0.1", false),
    ] {
        assert_eq!(prefix(net, len).contains(addr.parse().unwrap()), inside, "{addr} in {net}/{len}");
    }
}

#[test]
fn what_the_kernel_keeps() {
    let kernel = KernelPlan {
        addresses: vec![prefix("127.0.0.0", 8), prefix("::1", 128)],
        tcp_ports: vec![(22, 22), (8000, 8010)],
        udp_ports: vec![(53, 53)],
    };
    let tcp = |text: &str| kernel.keeps_tcp(text.parse().unwrap());
    let udp = |text: &str| kernel.keeps_udp(text.parse().unwrap());
    assert!(tcp("127.0.0.1:80") && tcp("[::ffff:127.0.0.1]:80") && tcp("[::1]:80"));
    assert!(tcp("198.18.0.2:22") && tcp("0.0.0.0:8000") && tcp("[::]:8010"));
    assert!(!tcp("198.18.0.2:80") && !tcp("0.0.0.0:8011") && !tcp("[::]:53"));
    assert!(udp("198.18.0.2:53") && !udp("198.18.0.2:22"));
}
