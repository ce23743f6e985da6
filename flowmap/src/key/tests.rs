use super::*;

const KEY: HashKey = *b"0123456789abcdef";

fn v4() -> FlowKey {
    FlowKey::new(6, "198.18.0.2:80".parse().unwrap(), "198.18.0.1:40000".parse().unwrap())
}

fn v6() -> FlowKey {
    FlowKey::new(17, "[2001:2::2]:53".parse().unwrap(), "[2001:2::1]:5353".parse().unwrap())
}

#[test]
fn addresses_come_back() {
    assert_eq!(v4().local_addr(), "198.18.0.2:80".parse().unwrap());
    assert_eq!(v4().remote_addr(), "198.18.0.1:40000".parse().unwrap());
    assert_eq!(v6().local_addr(), "[2001:2::2]:53".parse().unwrap());
    assert_eq!(v6().remote_addr(), "[2001:2::1]:5353".parse().unwrap());
    assert_eq!((v4().family, v6().family), (4, 6));
}

#[test]
fn mapped_addresses_are_ipv4() {
    let mapped = FlowKey::new(
        6,
        "[::ffff:198.18.0.2]:80".parse().unwrap(),
        "[::ffff:198.18.0.1]:40000".parse().unwrap(),
    );
    assert_eq!(mapped, v4());
}

#[test]
fn reversed_is_the_peers_view() {
    assert_eq!(v4().reversed().local_addr(), v4().remote_addr());
    assert_eq!(v4().reversed().reversed(), v4());
    assert_ne!(v4().reversed(), v4());
}

#[test]
fn words_hold_every_field() {
    for key in [v4(), v6()] {
        assert_eq!(FlowKey::from_words(key.words()), key);
    }
    let mut other = v4();
    other.protocol = 17;
    assert_ne!(other.words(), v4().words());
    assert_ne!(other.hash_with(&KEY), v4().hash_with(&KEY));
    assert_ne!(v4().hash_with(&KEY), v4().hash_with(&[0; 16]));
}

#[test]
fn heap_index_replaces_and_refuses() {
    let mut index = HeapIndex::with_capacity(KEY, 1);
    assert!(index.is_empty());
    index.insert(&v4(), FlowRef(1)).unwrap();
    index.insert(&v4(), FlowRef(2)).unwrap();
    assert_eq!(index.lookup(&v4()), Some(FlowRef(2)));
    assert_eq!(index.insert(&v6(), FlowRef(3)), Err(TableFull));
    assert!(index.remove(&v4()));
    assert!(!index.remove(&v4()));
    assert_eq!(index.len(), 0);
}
