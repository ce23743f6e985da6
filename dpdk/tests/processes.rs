//! One primary, several secondaries, and kills. Needs root and hugepages; says so and fails without.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::{Duration, Instant};

use ff_dpdk::instance::{Layout, create_workers};
use ff_dpdk::mempool::{DATA_ROOM_BYTES, DriverHolds};
use ff_dpdk::names::{self, WorkerId};
use ff_dpdk::{Mbuf, Mempool, Memzone, Ring, eal, mbuf};
use support::{Channel, Instance, Process, run};

const WORKER: WorkerId = WorkerId { slot: 0, index: 0 };
const MBUFS: u32 = 4095;

fn main() {
    run(&[
        ("mbuf_geometry", mbuf_geometry),
        ("secondary_attaches", secondary_attaches),
        ("secondary_attaches_with_drivers_loaded", attaches_with_drivers_loaded),
        ("ring_carries_packets", ring_carries_packets),
        ("hundred_kills_do_not_shrink_the_pool", hundred_kills),
        ("reclaim_leaves_the_living_alone", reclaim_leaves_the_living_alone),
        ("largest_layouts_fit", largest_layouts),
        ("cost_of_a_packet", cost_of_a_packet),
        ("half_done_ring_operations_are_undone", ring_repair),
        ("second_primary_is_refused", second_primary),
    ]);
}

/// A primary that creates what the scenarios use, then answers until its channel closes.
fn primary(instance: &Instance, answer: impl Fn(&mut Channel, u64)) -> Process {
    let mut process = Process::start(|channel| {
        let eal = instance.primary();
        Mempool::create(eal, &names::worker_pool(WORKER), MBUFS, DATA_ROOM_BYTES).unwrap();
        for name in [names::wire_to_server(0, 0), names::wire_to_client(0, 0, 0)] {
            Ring::create(eal, &name, 1024).unwrap();
        }
        let zone = Memzone::create(eal, "ff_test", 4096).unwrap();
        // SAFETY: 4096 bytes of our own.
        unsafe { zone.as_ptr().write(42) };
        channel.send(1);
        while let Some(word) = channel.try_receive() {
            answer(channel, word);
        }
    });
    assert_eq!(process.channel.receive(), 1);
    process
}

fn idle(_: &mut Channel, _: u64) {}

fn mbuf_geometry() {
    let instance = Instance::new("geo");
    let process = Process::start(|_| {
        let eal = instance.primary();
        let pool = Mempool::create(eal, "geometry", 63, DATA_ROOM_BYTES).unwrap();
        assert!(Mempool::create(eal, "geometry", 63, DATA_ROOM_BYTES).is_err());
        assert_eq!((pool.size(), pool.available(), pool.frame_bytes_max()), (63, 63, 2048));
        let mut packet = pool.alloc().unwrap();
        assert_eq!((packet.data_len(), packet.capacity(), packet.headroom()), (0, 2048, 128));
        packet.append(4).unwrap().copy_from_slice(b"tail");
        packet.prepend(4).unwrap().copy_from_slice(b"head");
        assert_eq!(packet.data(), b"headtail");
        assert!(packet.trim_front(2) && packet.trim_back(2) && !packet.trim_back(9));
        assert_eq!((packet.data(), packet.packet_len()), (&b"adta"[..], 4));
        assert!(packet.prepend(200).is_none() && packet.append(4096).is_none());
        packet.set_len(packet.capacity());
        assert_eq!(packet.segments().map(<[u8]>::len).sum::<usize>(), packet.packet_len());
        assert_eq!(packet.owner(), std::process::id());
        drop(packet);
        // All of it, and not one more; then all of it again.
        for _ in 0..2 {
            let all: Vec<Mbuf> = std::iter::from_fn(|| pool.alloc()).collect();
            assert_eq!(all.len(), 63);
            drop(all);
            mbuf::flush_private_cache();
            assert_eq!(pool.available(), 63);
        }
        let other = std::thread::spawn(move || drop(pool.alloc().unwrap()));
        other.join().unwrap();
        assert_eq!(pool.available(), 63, "a thread that ends gives its cache back");
    });
    process.join();
}

fn secondary_attaches() {
    attach_five("att", false);
}

/// As in workers of a master that has loaded the drivers before it forked them.
fn attaches_with_drivers_loaded() {
    attach_five("atl", true);
}

fn cpu_us_used() -> u64 {
    let used = nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap();
    used.tv_sec() as u64 * 1_000_000 + used.tv_nsec() as u64 / 1000
}

fn attach_five(name: &str, preload: bool) {
    let instance = Instance::new(name);
    let mut primary = primary(&instance, idle);
    let (mut times_us, mut cpu_us) = (Vec::new(), Vec::new());
    for lcore in 1..6 {
        let mut secondary = Process::start(|channel| {
            if preload {
                assert!(eal::preload_drivers().unwrap() > 50);
            }
            let (started, cpu) = (Instant::now(), cpu_us_used());
            let eal = instance.secondary(lcore);
            channel.send(started.elapsed().as_micros() as u64);
            channel.send(cpu_us_used() - cpu);
            assert_eq!(eal.process_type(), ff_dpdk::ProcessType::Secondary);
            assert_eq!(eal.lcore(), Some(lcore));
            assert!(ff_dpdk::Eal::init(&[]).is_err(), "once per process");
            let zone = Memzone::lookup(eal, "ff_test").unwrap();
            // SAFETY: the primary wrote it and nobody writes now.
            assert_eq!((unsafe { zone.as_ptr().read() }, zone.len()), (42, 4096));
            Mempool::lookup(eal, &names::worker_pool(WORKER)).unwrap();
            let absent = Mempool::lookup(eal, "nothing").unwrap_err().to_string();
            assert!(absent.contains("no mempool named nothing"), "{absent}");
            let signals = std::fs::read_dir("/proc/self/task").unwrap().flatten().filter(|task| {
                let status = std::fs::read_to_string(task.path().join("status")).unwrap();
                let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
                u64::from_str_radix(mask.trim(), 16).unwrap() & 1 == 0
            });
            assert_eq!(signals.count(), 1, "EAL's own threads take no signal");
        });
        times_us.push(secondary.channel.receive());
        cpu_us.push(secondary.channel.receive());
        let pid = secondary.pid.as_raw() as u32;
        secondary.join();
        assert!(eal::sweep_dead(&instance.prefix, pid).unwrap() >= 1);
        assert_eq!(eal::sweep_dead(&instance.prefix, pid).unwrap(), 0);
    }
    times_us.sort_unstable();
    cpu_us.sort_unstable();
    println!(
        "attach: median {} us, worst {} us; processor time: median {} us",
        times_us[2], times_us[4], cpu_us[2]
    );
    assert!(eal::is_primary_alive(&instance.prefix));
    assert!(eal::remove_runtime(&instance.prefix).is_err(), "not under a living primary");
    primary.kill();
    assert!(!eal::is_primary_alive(&instance.prefix));
    eal::remove_runtime(&instance.prefix).unwrap();
    assert!(!eal::directory(&instance.prefix).exists());
    for mount in eal::hugetlbfs_mounts() {
        let left = std::fs::read_dir(mount).unwrap().flatten();
        let ours = left.filter(|file| file.file_name().to_string_lossy().starts_with(&instance.prefix));
        assert_eq!(ours.count(), 0, "no hugepage file is left");
    }
}

/// A secondary with the pool and both rings of the wire, as its server end.
fn server_end(instance: &Instance, lcore: u16) -> (Mempool, ff_dpdk::RingProducer, ff_dpdk::RingConsumer) {
    let eal = instance.secondary(lcore);
    let pool = Mempool::lookup(eal, &names::worker_pool(WORKER)).unwrap();
    let ring = |name: String| Ring::lookup(eal, &name).unwrap();
    let (to_client, to_server) = (ring(names::wire_to_client(0, 0, 0)), ring(names::wire_to_server(0, 0)));
    // SAFETY: one server at a time, and the primary repairs the rings after each that was killed.
    unsafe { (pool, to_client.producer(), to_server.consumer()) }
}

fn ring_carries_packets() {
    let instance = Instance::new("rng");
    let mut primary = primary(&instance, |channel, _| {
        mbuf::flush_private_cache();
        let eal = ff_dpdk::Eal::running().unwrap();
        let pool = Mempool::lookup(eal, &names::worker_pool(WORKER)).unwrap();
        channel.send(u64::from(pool.available()));
    });
    let server = Process::start(|_| {
        let (pool, mut to_client, _) = server_end(&instance, 1);
        let mut sent = 0u32;
        while sent < 100_000 {
            let mut burst: Vec<Mbuf> = (0..32).map_while(|_| pool.alloc()).collect();
            for packet in &mut burst {
                packet.append(4).unwrap().copy_from_slice(&sent.to_le_bytes());
                sent += 1;
            }
            while !burst.is_empty() {
                to_client.enqueue_burst(&mut burst);
            }
        }
        mbuf::flush_private_cache();
    });
    let client = Process::start(|_| {
        let eal = instance.secondary(2);
        let ring = Ring::lookup(eal, &names::wire_to_client(0, 0, 0)).unwrap();
        // SAFETY: the only client.
        let mut from_server = unsafe { ring.consumer() };
        let (mut expected, mut burst) = (0u32, Vec::new());
        while expected < 100_000 {
            from_server.dequeue_burst(&mut burst, 32);
            for packet in burst.drain(..) {
                assert_eq!(packet.data(), expected.to_le_bytes());
                assert_eq!(packet.owner(), std::process::id());
                expected += 1;
            }
        }
        mbuf::flush_private_cache();
    });
    server.join();
    client.join();
    primary.channel.send(0);
    assert_eq!(primary.channel.receive(), u64::from(MBUFS), "every mbuf is back");
}

/// Restores rings and pool after the server `pid` was killed, and answers with what the pool has now.
fn recover_after_kill(channel: &mut Channel, pid: u64) {
    let eal = ff_dpdk::Eal::running().unwrap();
    let pool = Mempool::lookup(eal, &names::worker_pool(WORKER)).unwrap();
    let ring = |name: String| Ring::lookup(eal, &name).unwrap();
    let (to_client, to_server) = (ring(names::wire_to_client(0, 0, 0)), ring(names::wire_to_server(0, 0)));
    // SAFETY: the server, the producer of one and the consumer of the other, is dead.
    unsafe {
        to_client.repair_producer();
        to_server.repair_consumer();
    }
    // The far end of the wire: takes what was sent, as a client would, so that nothing stays on the ring.
    // SAFETY: there is no other client.
    let mut client = unsafe { to_client.consumer() };
    let mut burst = Vec::new();
    let before = to_client.len();
    while client.dequeue_burst(&mut burst, 64) > 0 {}
    assert_eq!(burst.len(), before);
    let distinct: std::collections::HashSet<_> = burst.iter().map(|packet| packet.data().as_ptr()).collect();
    assert_eq!(distinct.len(), burst.len(), "no packet comes twice");
    drop(burst);
    mbuf::flush_private_cache();
    let lost = MBUFS - pool.available();
    // SAFETY: the server is dead, was the only one that allocated, and has no successor yet; this thread
    // is the only other that ever freed.
    let recovery = unsafe { pool.recover(eal, pid as u32, &[to_client, to_server], DriverHolds::Nothing) };
    assert!(recovery.complete, "{recovery:?}");
    assert_eq!(recovery.returned, lost);
    channel.send(u64::from(lost));
    channel.send(u64::from(pool.available()));
    eal::sweep_dead(&std::env::var("FF_TEST_PREFIX").unwrap(), pid as u32).unwrap();
}

fn hundred_kills() {
    let instance = Instance::new("kil");
    // SAFETY: the program has one thread.
    unsafe { std::env::set_var("FF_TEST_PREFIX", &instance.prefix) };
    let mut primary = primary(&instance, recover_after_kill);
    let (mut lost_most, mut lost_sum) = (0, 0);
    for round in 0..100u64 {
        let mut server = Process::start(|channel| {
            let (pool, mut to_client, _) = server_end(&instance, 1);
            channel.send(0);
            // Holds some, has some in its cache, some on the ring, some on their way: for ever.
            let mut held: Vec<Mbuf> = Vec::new();
            for turn in 0u64.. {
                let mut burst: Vec<Mbuf> = (0..1 + turn % 48).map_while(|_| pool.alloc()).collect();
                held.extend(burst.pop());
                to_client.enqueue_burst(&mut burst);
                if held.len() > 700 {
                    held.drain(..turn as usize % 600);
                }
            }
        });
        server.channel.receive();
        std::thread::sleep(Duration::from_micros(50 + round * 37 % 1500));
        server.kill();
        primary.channel.send(server.pid.as_raw() as u64);
        let (lost, available) = (primary.channel.receive(), primary.channel.receive());
        assert_eq!(available, u64::from(MBUFS), "round {round}");
        lost_sum += lost;
        lost_most = lost_most.max(lost);
    }
    println!("100 kills: {lost_sum} mbufs were lost and found, at most {lost_most} at once");
    assert!(lost_sum > 100, "the kills hit nothing");
    let left = std::fs::read_dir(eal::directory(&instance.prefix)).unwrap().count();
    assert!(left < 60, "{left} files in the runtime directory");
}

fn reclaim_leaves_the_living_alone() {
    let instance = Instance::new("liv");
    let mut primary = primary(&instance, |channel, pid| {
        let eal = ff_dpdk::Eal::running().unwrap();
        let pool = Mempool::lookup(eal, &names::worker_pool(WORKER)).unwrap();
        let ring = Ring::lookup(eal, &names::wire_to_client(0, 0, 0)).unwrap();
        // SAFETY: the process is dead, and was the ring's producer, which has no successor.
        let reclaimed = unsafe {
            ring.repair_producer();
            pool.reclaim(pid as u32, &[ring])
        };
        channel.send(u64::from(reclaimed));
        // SAFETY: as above; nobody frees at this moment, since the living one waits.
        let recovery = unsafe { pool.recover(eal, pid as u32, &[ring], DriverHolds::Nothing) };
        assert!(!recovery.complete, "a living process holds mbufs");
        channel.send(u64::from(recovery.in_other_hands));
    });
    let holder = |lcore: u16, count: usize, on_ring: usize| {
        let mut process = Process::start(|channel| {
            let eal = instance.secondary(lcore);
            let pool = Mempool::lookup(eal, &names::worker_pool(WORKER)).unwrap();
            let mut held: Vec<Mbuf> = (0..count + on_ring).map(|_| pool.alloc().unwrap()).collect();
            if on_ring > 0 {
                let ring = Ring::lookup(eal, &names::wire_to_client(0, 0, 0)).unwrap();
                // SAFETY: the only producer.
                unsafe { ring.producer() }.enqueue_burst(&mut held.split_off(count));
            }
            channel.send(0);
            channel.try_receive();
            assert!(held.iter().all(|packet| packet.owner() == std::process::id()));
        });
        process.channel.receive();
        process
    };
    let mut living = holder(1, 64, 0);
    let mut victim = holder(2, 100, 10);
    victim.kill();
    primary.channel.send(victim.pid.as_raw() as u64);
    // 110 of 128 that came in bulks of 32; 10 of them are on the ring.
    assert_eq!(primary.channel.receive(), 128 - 10);
    assert_eq!(primary.channel.receive(), 64 + 10);
    living.channel.send(0);
    living.join();
}

/// Processor time of what every packet on a wire costs beyond the stack: allocated, filled in, put on a ring,
/// taken off it, freed. Printed, and bounded loosely: debug builds on busy machines run this, too.
fn cost_of_a_packet() {
    const PACKETS: u64 = 3_200_000;
    let instance = Instance::new("cst");
    let process = Process::start(|_| {
        let eal = instance.primary();
        let pool = Mempool::create(eal, "cost", 1023, DATA_ROOM_BYTES).unwrap();
        let ring = Ring::create(eal, "cost", 512).unwrap();
        // SAFETY: the only users are here.
        let (mut producer, mut consumer) = unsafe { (ring.producer(), ring.consumer()) };
        let mut burst = Vec::new();
        let mut round = |on_ring: bool| {
            let before = cpu_us_used();
            for _ in 0..PACKETS / 32 {
                for _ in 0..32 {
                    let mut packet = pool.alloc().unwrap();
                    packet.append(64).unwrap()[0] = 1;
                    burst.push(packet);
                }
                if on_ring {
                    assert_eq!(producer.enqueue_burst(&mut burst), 32);
                    assert_eq!(consumer.dequeue_burst(&mut burst, 32), 32);
                }
                burst.clear();
            }
            (cpu_us_used() - before) * 1000 / PACKETS
        };
        let (without, with) = (round(false), round(true));
        println!("a packet: {without} ns allocated and freed, {with} ns with a hop over a ring");
        assert!(with < 1000, "{with} ns");
    });
    process.join();
}

/// DPDK's limits are where `names` says they are.
fn largest_layouts() {
    for (workers, slots) in [(11, 4), (31, 4)] {
        let instance = Instance::new("big");
        let process = Process::start(|_| {
            let eal = instance.primary();
            let layout = Layout { worker_mbufs: 63, inbox_slots: 64, ..Layout::new(workers, slots) };
            let started = Instant::now();
            create_workers(eal, &layout).unwrap();
            println!("{workers} workers in {slots} slots: created in {:?}", started.elapsed());
            let pairs = names::inbox_pairs(workers, slots).unwrap();
            assert!(pairs.iter().all(|&(to, from)| Ring::lookup(eal, &names::inbox(to, from)).is_ok()));
        });
        process.join();
    }
}

fn ring_repair() {
    let instance = Instance::new("rep");
    let process = Process::start(|_| {
        let eal = instance.primary();
        let pool = Mempool::create(eal, "repair", 63, DATA_ROOM_BYTES).unwrap();
        let ring = Ring::create(eal, "repair", 8).unwrap();
        // SAFETY: the only users are here.
        let (mut producer, mut consumer) = unsafe { (ring.producer(), ring.consumer()) };
        let mut packets: Vec<Mbuf> = (0..10).map(|_| pool.alloc().unwrap()).collect();
        for (number, packet) in packets.iter_mut().enumerate() {
            packet.append(1).unwrap()[0] = number as u8;
        }
        assert_eq!(producer.enqueue_burst(&mut packets), 7, "one slot fewer than slots");
        assert_eq!((packets.len(), ring.len(), ring.capacity()), (3, 7, 7));
        assert_eq!(packets[0].owner(), std::process::id());
        let mut taken = Vec::new();
        assert_eq!(consumer.dequeue_burst(&mut taken, 2), 2);
        // SAFETY: neither end is in the middle of something, so there is nothing to undo.
        unsafe {
            ring.repair_consumer();
            ring.repair_producer();
        }
        assert_eq!(ring.len(), 5);
        assert_eq!(producer.enqueue_burst(&mut packets), 2);
        assert_eq!(consumer.dequeue_burst(&mut taken, 64), 7);
        let numbers: Vec<u8> = taken.iter().map(|packet| packet.data()[0]).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    });
    process.join();
}

fn second_primary() {
    let instance = Instance::new("two");
    let _primary = primary(&instance, idle);
    let role = eal::args::Role::Primary { memory_mib: 0, vdevs: vec![] };
    let refused = |config: eal::args::EalConfig, sentence: &str| {
        Process::start(|_| {
            let error = ff_dpdk::Eal::start(&config).unwrap_err().to_string();
            assert!(error.contains(sentence), "{error}");
        })
        .join();
        // What EAL itself says of it, were it asked.
        Process::start(|_| {
            let error = ff_dpdk::Eal::init(&eal::args::arguments(&config).unwrap()).unwrap_err().to_string();
            assert!(error.contains("DPDK does not start"), "{error}");
        })
        .join();
    };
    refused(instance.config(role, 0), "is running already");
    let nobody = Instance::new("none");
    refused(nobody.config(eal::args::Role::Secondary, 1), "start it first");
}
