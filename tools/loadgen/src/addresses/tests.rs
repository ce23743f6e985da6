use super::*;

fn plan(addr: &str, prefix_len: u8) -> AddressPlan {
    AddressPlan { addr: addr.parse().unwrap(), prefix_len }
}

fn text(chosen: &[(IpAddr, u8)]) -> Vec<String> {
    chosen.iter().map(|(ip, len)| format!("{ip}/{len}")).collect()
}

#[test]
fn from_the_top_of_each_family() {
    let server = [plan("198.18.7.2", 24), plan("2001:2:0:7::2", 64), plan("198.18.9.2", 24)];
    let chosen = choose(&server, &[], 2);
    assert_eq!(
        text(&chosen),
        [
            "198.18.7.254/24",
            "198.18.7.253/24",
            "2001:2:0:7:ffff:ffff:ffff:fffe/64",
            "2001:2:0:7:ffff:ffff:ffff:fffd/64"
        ]
    );
}

#[test]
fn what_is_taken_is_left_out() {
    let server = [plan("198.18.7.254", 24)];
    let chosen = choose(&server, &["198.18.7.253".parse().unwrap()], 1);
    assert_eq!(text(&chosen), ["198.18.7.252/24"]);
}

#[test]
fn small_prefixes_give_what_they_have() {
    assert_eq!(text(&choose(&[plan("198.18.0.1", 30)], &[], 8)), ["198.18.0.2/30"]);
    assert_eq!(text(&choose(&[plan("198.18.0.1", 32)], &[], 8)), [] as [&str; 0]);
    assert_eq!(text(&choose(&[plan("198.18.0.0", 31)], &[], 8)), [] as [&str; 0]);
    assert_eq!(text(&choose(&[plan("2001:2::1", 128)], &[], 8)), [] as [&str; 0]);
    assert_eq!(text(&choose(&[plan("2001:2::1", 126)], &[], 8)), ["2001:2::2/126"]);
    assert!(choose(&[plan("2001:2::1", 0), plan("198.18.0.1", 0)], &[], 8).len() == 16);
}

#[test]
fn the_mac_differs_and_stays_unicast() {
    assert_eq!(client_mac([2, 0xff, 0, 0, 7, 2]), [2, 0xff, 0, 0, 7, 3]);
}
