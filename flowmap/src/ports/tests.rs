use std::collections::HashSet;

use super::*;

const SECRET: HashKey = [9; 16];

fn local() -> IpAddr {
    "198.18.0.2".parse().unwrap()
}

fn remote() -> SocketAddr {
    "198.18.0.1:8080".parse().unwrap()
}

fn share(slots: u16, slot: u16, workers: u16, worker: u16) -> PortShare {
    PortShare { slots, slot, workers, worker }
}

#[test]
fn two_slots_are_even_and_odd() {
    for slot in 0..2 {
        let mut ports = EphemeralPorts::new(SECRET, share(2, slot, 1, 0), EPHEMERAL_PORTS);
        assert_eq!(ports.count(), 27_768);
        for _ in 0..1_000 {
            let port = ports.choose(local(), remote(), |_| false).unwrap();
            assert_eq!(port % 2, slot);
            assert!(EPHEMERAL_PORTS.contains(&port));
        }
    }
}

#[test]
fn shares_cover_the_range_and_do_not_meet() {
    let mut seen = HashSet::new();
    for slot in 0..4 {
        for worker in 0..3 {
            let share = share(4, slot, 3, worker);
            let mut ports = EphemeralPorts::new(SECRET, share, 10_000..=10_100);
            while let Some(port) = ports.choose(local(), remote(), |port| seen.contains(&port)) {
                assert!(share.holds(port) && port % 4 == slot);
                assert!(seen.insert(port));
            }
        }
    }
    assert_eq!(seen.len(), 101);
}

#[test]
fn choosing_walks_through_all_ports_before_one_comes_again() {
    let mut ports = EphemeralPorts::new(SECRET, share(2, 1, 4, 2), EPHEMERAL_PORTS);
    let mut seen = HashSet::new();
    for _ in 0..ports.count() {
        assert!(seen.insert(ports.choose(local(), remote(), |_| false).unwrap()));
    }
    assert!(seen.contains(&ports.choose(local(), remote(), |_| false).unwrap()));
}

#[test]
fn the_secret_moves_the_first_port() {
    let first = |secret| {
        EphemeralPorts::new(secret, share(1, 0, 1, 0), EPHEMERAL_PORTS).choose(local(), remote(), |_| false)
    };
    assert_ne!(first([1; 16]), first([2; 16]));
}

#[test]
fn an_empty_share_gives_none() {
    let mut ports = EphemeralPorts::new(SECRET, share(8, 7, 64, 63), 10_000..=10_001);
    assert_eq!(ports.count(), 0);
    assert_eq!(ports.choose(local(), remote(), |_| false), None);
}
