use std::collections::HashMap;

use super::*;

fn with(vars: &[(&str, &str)]) -> Option<Environment> {
    let vars: HashMap<String, OsString> =
        vars.iter().map(|(name, value)| ((*name).to_owned(), OsString::from(value))).collect();
    parse(|name| vars.get(name).cloned())
}

#[test]
fn without_an_instance_there_is_nothing() {
    assert!(with(&[]).is_none());
    assert!(with(&[(INSTANCE_DIR, "")]).is_none());
}

#[test]
fn loopback_stays_with_the_kernel_by_default() {
    let environment = with(&[(INSTANCE_DIR, "/run/x")]).unwrap();
    assert!(environment.kernel.keeps_tcp("127.0.0.1:80".parse().unwrap()));
    assert!(environment.kernel.keeps_udp("[::1]:53".parse().unwrap()));
    assert!(!environment.kernel.keeps_tcp("0.0.0.0:80".parse().unwrap()));
    assert_eq!(environment.attach, AttachWhen::Worker);
}

#[test]
fn a_check_never_attaches() {
    let environment = with(&[(INSTANCE_DIR, "/run/x"), (CHECK, "1"), (ATTACH, "listen")]).unwrap();
    assert_eq!(environment.attach, AttachWhen::Never);
    let environment = with(&[(INSTANCE_DIR, "/run/x"), (CHECK, "0"), (ATTACH, "listen")]).unwrap();
    assert_eq!(environment.attach, AttachWhen::Listen);
}

#[test]
fn inherited_sockets_come_back() {
    let socket = InheritedSocket {
        fd: 6,
        ipv6: true,
        stream: true,
        address: "[::]:80".parse().unwrap(),
        backlog: Some(511),
        nonblocking: true,
        options: vec![(1, 2, vec![1, 0, 0, 0])],
    };
    let json = serde_json::to_string(&[&socket]).unwrap();
    let environment = with(&[(INSTANCE_DIR, "/run/x"), (INHERITED, &json), (PRELOAD, "/lib/a.so")]).unwrap();
    assert_eq!(environment.inherited, vec![socket]);
    assert!(environment.to_hand_on.iter().any(|line| line.as_bytes() == b"LD_PRELOAD=/lib/a.so"));
    assert!(!environment.to_hand_on.iter().any(|line| line.as_bytes().starts_with(b"FF_INHERITED")));
}
