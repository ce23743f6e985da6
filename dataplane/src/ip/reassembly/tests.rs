//! Fragments in any order become the packet; anything else becomes nothing.

use std::net::SocketAddr;

use super::*;
use crate::io::ChecksumState;
use crate::io::memory::Rng;
use crate::ip::parse::Cast;

const NOW: Instant = Instant(1_000_000);

/// An IPv4 fragment as a frame that begins with its IP header.
fn fragment(id: u32, offset: usize, part: &[u8], more: bool) -> (Parsed, Vec<u8>) {
    let mut bytes = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2];
    bytes.extend_from_slice(part);
    let local: SocketAddr = "198.18.0.2:0".parse().expect("an address");
    let remote: SocketAddr = "198.18.0.1:0".parse().expect("an address");
    let parsed = Parsed {
        key: FlowKey::new(17, local, remote),
        class: Class::Fragment(Fragment { id, offset: offset as u16, more, next_header_at: 0, header_at: 0 }),
        cast: Cast::Unicast,
        l3: 0,
        l4: 20,
        end: bytes.len() as u32,
        traffic_class: 0,
        hop_limit: 64,
        source_mac: [0; 6],
        l4_checksum: ChecksumState::Unknown,
    };
    (parsed, bytes)
}

fn reassembler(limits: ReassemblyLimits) -> Reassembler {
    Reassembler::new(limits)
}

fn push(r: &mut Reassembler, id: u32, offset: usize, part: &[u8], more: bool) -> Outcome {
    let (parsed, bytes) = fragment(id, offset, part, more);
    r.push(NOW, &parsed, &bytes)
}

fn payload(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(5).fill(&mut bytes);
    bytes
}

#[test]
fn every_order_gives_the_packet() {
    let whole = payload(1_000);
    let mut rng = Rng::new(11);
    for _ in 0..200 {
        let mut r = reassembler(ReassemblyLimits::default());
        let part = 8 * (1 + rng.up_to(20) as usize);
        let mut starts: Vec<usize> = (0..whole.len()).step_by(part).collect();
        for i in (1..starts.len()).rev() {
            starts.swap(i, rng.up_to(i as u64) as usize);
        }
        let count = starts.len();
        for (n, start) in starts.into_iter().enumerate() {
            let end = (start + part).min(whole.len());
            let outcome = push(&mut r, 1, start, &whole[start..end], end < whole.len());
            if n + 1 < count {
                assert_eq!(outcome, Outcome::Kept);
                continue;
            }
            let Outcome::Whole(packet) = outcome else { panic!("{outcome:?}") };
            assert_eq!(packet[20..], whole[..]);
            assert_eq!(packet[2..4], 1_020u16.to_be_bytes());
            assert_eq!(packet[6..8], [0, 0]);
        }
        assert!(r.is_empty() && r.bytes() == 0);
    }
}

#[test]
fn a_repeated_fragment_does_no_harm_but_an_overlap_does() {
    let whole = payload(64);
    let mut r = reassembler(ReassemblyLimits::default());
    assert_eq!(push(&mut r, 1, 0, &whole[..32], true), Outcome::Kept);
    assert_eq!(push(&mut r, 1, 0, &whole[..32], true), Outcome::Kept);
    assert_eq!(push(&mut r, 1, 8, &whole[8..24], true), Outcome::Kept, "part of what is there, and the same");
    assert!(matches!(push(&mut r, 1, 32, &whole[32..], false), Outcome::Whole(_)));

    let bad = Outcome::Dropped(DropReason::BadFragment);
    assert_eq!(push(&mut r, 2, 0, &whole[..32], true), Outcome::Kept);
    assert_eq!(push(&mut r, 2, 24, &whole[24..40], true), bad);
    assert_eq!(push(&mut r, 2, 32, &whole[32..], false), bad, "what comes later is dropped too (RFC 5722)");
    assert_eq!(r.bytes(), 0);
    // The same range with other contents.
    assert_eq!(push(&mut r, 3, 0, &whole[..32], true), Outcome::Kept);
    assert_eq!(push(&mut r, 3, 0, &whole[8..40], true), bad);
}

#[test]
fn ends_that_contradict_each_other() {
    let whole = payload(96);
    let bad = Outcome::Dropped(DropReason::BadFragment);
    let mut r = reassembler(ReassemblyLimits::default());
    assert_eq!(push(&mut r, 1, 32, &whole[32..64], false), Outcome::Kept);
    assert_eq!(push(&mut r, 1, 64, &whole[64..], true), bad, "behind the end");
    assert_eq!(push(&mut r, 2, 64, &whole[64..], true), Outcome::Kept);
    assert_eq!(push(&mut r, 2, 0, &whole[..32], false), bad, "an end before what is there");
    assert_eq!(push(&mut r, 3, 32, &whole[32..64], false), Outcome::Kept);
    assert_eq!(push(&mut r, 3, 0, &whole[..24], false), bad, "another end");
}

#[test]
fn impossible_fragments() {
    let bad = Outcome::Dropped(DropReason::BadFragment);
    let mut r = reassembler(ReassemblyLimits::default());
    assert_eq!(push(&mut r, 1, 0, &[], true), bad, "empty");
    assert_eq!(push(&mut r, 1, 0, &[1; 12], true), bad, "not a multiple of 8");
    assert_eq!(push(&mut r, 1, 65_528, &[1; 100], false), bad, "the whole would be too long");
    assert!(r.is_empty());
}

#[test]
fn bounds() {
    let limits = ReassemblyLimits { packets_max: 4, bytes_max: 4_000, pieces_max: 3, timeout_us: 1_000 };
    let mut r = reassembler(limits);
    for id in 0..100 {
        assert_eq!(push(&mut r, id, 0, &[1; 8], true), Outcome::Kept);
        assert!(r.len() <= 4);
    }
    assert_eq!(r.take_evicted(), 96);
    // Holes cost memory too: the place of what is missing counts.
    let mut r = reassembler(limits);
    for id in 0..10 {
        push(&mut r, id, 2_000, &[1; 8], true);
        assert!(r.bytes() <= 4_000);
    }
    // The packet that gives way may be the one that wants room; then it needs room for all of itself.
    let mut r = reassembler(limits);
    for (id, offset) in [(1, 2_000), (2, 1_000), (1, 3_496)] {
        push(&mut r, id, offset, &[1; 8], true);
        assert!(r.bytes() <= 4_000, "{} bytes", r.bytes());
    }
    let mut r = reassembler(limits);
    for n in 0..3 {
        assert_eq!(push(&mut r, 1, n * 16, &[1; 8], true), Outcome::Kept);
    }
    assert_eq!(push(&mut r, 1, 48, &[1; 8], true), Outcome::Dropped(DropReason::BadFragment));
}

#[test]
fn time_is_up() {
    let mut r = reassembler(ReassemblyLimits { timeout_us: 1_000, ..ReassemblyLimits::default() });
    push(&mut r, 1, 0, &[7; 8], true);
    push(&mut r, 2, 8, &[8; 8], true);
    assert_eq!(r.next_deadline(), Some(NOW + 1_000));
    assert_eq!(r.expire(NOW + 999, |_| panic!("not yet")), 0);
    let mut told = Vec::new();
    assert_eq!(r.expire(NOW + 1_000, |packet| told.push(packet)), 2);
    assert_eq!(told.len(), 1, "only the one whose first fragment was there is told of");
    assert_eq!(told[0][20..], [7; 8]);
    assert!(r.is_empty() && r.bytes() == 0 && r.next_deadline().is_none());
}
