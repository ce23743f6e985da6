//! Unit tests of the parts against simple models.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::buffers::{Pool, Ring, Use};
use crate::header::{HeaderOut, OptionWriter, Segment};
use crate::reassembly::{Inserted, Reassembly};
use crate::seq::Seq;
use crate::slab::Slab;
use crate::time::Instant;
use crate::timers::Wheel;

proptest! {
    /// The wheel fires every node within a tick of its deadline, in order, and
    /// never says that it can sleep longer than that.
    #[test]
    fn wheel_fires_like_a_sorted_map(ops in prop::collection::vec((0u32..50, 0u64..20_000_000_000, 0u64..3_000_000), 1..200)) {
        let mut wheel = Wheel::new();
        let mut model: BTreeMap<u32, u64> = BTreeMap::new();
        let mut now = 1_000_000u64;
        for (node, ahead, step) in ops {
            // The deadline counts as the earliest that was asked for.
            let at = now + ahead / if node % 2 == 0 { 1 } else { 10_000 };
            wheel.at_latest(node, Instant(at));
            model.entry(node).and_modify(|m| *m = (*m).min(at)).or_insert(at);
            if node % 7 == 0 {
                wheel.cancel(node);
                model.remove(&node);
            }
            now += step;
            if let Some(&first) = model.values().min() {
                prop_assert!(wheel.next_deadline().unwrap().0 <= first + 64);
            } else {
                prop_assert_eq!(wheel.next_deadline(), None);
            }
            while let Some(n) = wheel.pop_due(Instant(now)) {
                let at = model.remove(&n);
                prop_assert!(at.is_some_and(|at| at <= now));
            }
            prop_assert!(model.values().all(|&at| at + 64 > now));
        }
    }

    /// Ranges are what a set of numbers says, and the told blocks are held.
    #[test]
    fn reassembly_is_a_set(ops in prop::collection::vec((1u32..300, 1u32..20), 1..80), base in any::<u32>()) {
        let mut r = Reassembly::default();
        let mut model: BTreeSet<u32> = BTreeSet::new();
        let at = |n: u32| Seq(base.wrapping_add(n));
        for (start, len) in ops {
            let new = (start..start + len).any(|n| !model.contains(&n));
            model.extend(start..start + len);
            let got = r.insert(at(start), at(start + len));
            prop_assert_eq!(got == Inserted::New, new);
            prop_assert_eq!(r.sacks()[0], r.containing(at(start)).unwrap());
            let held: Vec<u32> = r.ranges().flat_map(|(s, e)| (0..e.since(s)).map(move |i| s.add(i).0)).collect();
            let want: Vec<u32> = model.iter().map(|n| at(*n).0).collect();
            prop_assert_eq!(held, want);
            for &(s, e) in r.sacks() {
                prop_assert!(r.containing(s).is_some_and(|x| x.0 == s && x.1 == e));
            }
        }
        let mut edge = 0;
        while model.contains(&edge) || edge == 0 {
            edge += 1;
        }
        let first = *model.iter().next().unwrap();
        let mut end = first;
        while model.contains(&end) {
            end += 1;
        }
        prop_assert_eq!(r.advance(at(first)), at(end));
    }

    /// A ring is a queue of bytes, and gives all memory back.
    #[test]
    fn ring_is_a_queue(ops in prop::collection::vec((any::<bool>(), 1usize..3_000), 1..60)) {
        let mut pool = Pool::new(1 << 24, 1 << 20);
        let mut ring = Ring::default();
        let mut model = std::collections::VecDeque::new();
        let mut next = 0u8;
        for (push, n) in ops {
            if push {
                let bytes: Vec<u8> = (0..n).map(|_| { next = next.wrapping_add(7); next }).collect();
                prop_assert!(ring.push(&mut pool, &bytes, Use::InOrder));
                model.extend(bytes);
            } else {
                let mut out = vec![0; n];
                let got = ring.copy_out(0, &mut out);
                prop_assert_eq!(got, n.min(model.len()));
                let want: Vec<u8> = model.drain(..got).collect();
                prop_assert_eq!(&out[..got], &want[..]);
                ring.consume(&mut pool, got as u32, true);
            }
            prop_assert_eq!(ring.len() as usize, model.len());
        }
        ring.clear(&mut pool);
        prop_assert_eq!(pool.in_use_bytes(), 0);
    }

    /// No bytes make the parser panic; what it reads lies within them.
    #[test]
    fn parser_takes_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        if let Some(s) = Segment::parse(&bytes) {
            prop_assert!(s.payload.len() + 20 <= bytes.len());
            prop_assert!(s.options.sacks().len() <= 4);
        }
    }

    /// What is written is read back.
    #[test]
    fn header_round_trip(seq in any::<u32>(), ack in any::<u32>(), flags in any::<u8>(), window in any::<u16>(), ts in any::<Option<(u32, u32)>>(), blocks in 0usize..4) {
        let mut o = OptionWriter::new();
        if let Some((v, e)) = ts {
            o.timestamps(v, e);
        }
        let sacks: Vec<_> = (0..blocks as u32).map(|i| (Seq(i * 10), Seq(i * 10 + 5))).collect();
        o.sacks(&sacks);
        let mut buf = [0; 80];
        let h = HeaderOut { src_port: 1, dst_port: 2, seq: Seq(seq), ack: Seq(ack), flags, window };
        let len = h.emit(o.finish(), &mut buf).unwrap();
        let s = Segment::parse(&buf[..len]).unwrap();
        prop_assert_eq!((s.seq, s.ack, s.flags, s.window), (Seq(seq), Seq(ack), flags, window));
        prop_assert_eq!(s.options.timestamp, ts);
        prop_assert_eq!(s.options.sacks(), &sacks[..]);
    }
}

#[test]
fn slab_tells_generations_apart() {
    let mut slab = Slab::new();
    let (i, g) = slab.insert("first");
    assert_eq!(slab.remove(i), Some("first"));
    let (j, h) = slab.insert("second");
    assert_eq!(i, j);
    assert_ne!(g, h);
    assert_eq!(slab.get_checked(i, g), None);
    assert_eq!(slab.get_checked(j, h), Some(&"second"));
    let more: Vec<_> = (0..1_000).map(|_| slab.insert("x")).collect();
    assert_eq!(slab.iter().count(), 1_001);
    for (i, _) in more {
        slab.remove(i);
    }
    assert_eq!((slab.len(), slab.get(j)), (1, Some(&"second")));
}

#[test]
fn the_pool_refuses_the_less_urgent_first() {
    let mut pool = Pool::new(64 * 1024, 0);
    let mut rings: Vec<Ring> = Vec::new();
    let mut fill = |purpose: Use, pool: &mut Pool| {
        let mut n = 0;
        loop {
            let mut ring = Ring::default();
            if !ring.push(pool, &[0; 1_024], purpose) {
                return n;
            }
            rings.push(ring);
            n += 1;
        }
    };
    let ooo = fill(Use::OutOfOrder, &mut pool);
    let write = fill(Use::Write, &mut pool);
    let in_order = fill(Use::InOrder, &mut pool);
    assert_eq!((ooo, write, in_order), (48, 8, 8));
}
