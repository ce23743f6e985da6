//! The TAP device.

use std::time::{Duration, Instant};

use ff_dataplane::io::dpdk::{DpdkIo, PortSeat};
use ff_dataplane::io::{Frame, PacketIo, RxChecksum, WorkerRef};
use ff_dpdk::instance::{Parts, create_tap_port};
use ff_dpdk::port::Offloads;

use crate::support::{Instance, Process};
use crate::wire::{KernelEnd, PEER, STACK, ip, port_and_number, readable, udp};
use crate::{PATIENCE, available, layout, lcore, primary, restore, seat, until};

const MAC: [u8; 6] = [2, 0, 0, 0, 0xff, 2];

fn interface() -> String {
    format!("fft{}", std::process::id())
}

/// A primary with a TAP port, and its kernel end.
fn start(instance: &Instance, interface: &str) -> (Process, KernelEnd) {
    let primary = primary(instance, |eal| {
        let port = create_tap_port(eal, &layout(), 0, interface, MAC, 1500).unwrap();
        assert_eq!(port.device.mac().unwrap(), MAC);
        assert!(create_tap_port(eal, &layout(), 1, interface, MAC, 1500).is_err(), "the name is taken");
        Parts { ports: vec![port], wires: vec![] }
    });
    ip(&format!("link set {interface} up"));
    (primary, KernelEnd::open(interface, false))
}

fn attach(instance: &Instance, interface: &str, index: u16) -> DpdkIo {
    let eal = instance.secondary(lcore(index));
    let port = PortSeat { port: 0, tap_interface: Some(interface.into()), offloads: Offloads::default() };
    // SAFETY: the tests start each worker once, and after a kill only when memory was restored; each owns
    // the queue of its index.
    let mut io = unsafe { DpdkIo::attach(eal, &seat(index), &port).unwrap() };
    assert!(io.wait_fds().is_empty());
    io.set_owned_queues(&[index]);
    assert_eq!(io.wait_fds().len(), 1);
    // SAFETY: asks for flags of an open descriptor.
    let flags = unsafe { libc::fcntl(io.wait_fds()[0], libc::F_GETFL) };
    assert_eq!(flags & libc::O_ASYNC, 0, "the primary gets no signal for each packet");
    io
}

fn send(io: &mut DpdkIo, frame: &[u8]) {
    let mut out = io.alloc().unwrap();
    out.set_len(frame.len());
    out.bytes_mut().copy_from_slice(frame);
    io.transmit(out);
    let report = io.flush();
    assert_eq!((report.sent, report.dropped), (1, 0));
}

/// Sends from flow `port` until its replies come in on the own queue: the kernel sends a flow to the queue
/// that it came from.
fn echo_rounds(io: &mut DpdkIo, port: u16, rounds: u32) {
    let mut burst = Vec::new();
    for number in 0..rounds {
        send(io, &udp((STACK.0, port), (PEER, 9), number, 200));
        until("an echo", || {
            if io.receive(&mut burst) == 0 {
                readable(io.wait_fds(), Duration::from_millis(50));
            }
            burst.drain(..).any(|frame| {
                assert_eq!(frame.rx_checksum(), RxChecksum::UNKNOWN);
                let bytes = frame.bytes();
                let is_echo = bytes[12..14] == [8, 0] && bytes[36..38] == port.to_be_bytes();
                is_echo && port_and_number(bytes).1 == number
            })
        });
    }
}

/// The kernel end's part: sends every datagram back.
fn echo(kernel: &KernelEnd, count: u32) {
    for _ in 0..count {
        let frame = kernel.receive(PATIENCE).expect("a frame from the stack");
        let (port, number) = port_and_number(&frame);
        assert_eq!(frame.len(), 200);
        assert!(kernel.send(&udp((PEER, 9), (STACK.0, port), number, 200)));
    }
}

pub fn ping_pong() {
    const ROUNDS: u32 = 2000;
    let (instance, interface) = (Instance::new("tpp"), interface());
    let (mut primary, kernel) = start(&instance, &interface);
    let mut workers: Vec<Process> = (0..2)
        .map(|index| {
            Process::start(|channel| {
                let started = Instant::now();
                let mut io = attach(&instance, &interface, index);
                channel.send(started.elapsed().as_micros() as u64);
                let caps = io.capabilities();
                assert_eq!((caps.mac, caps.mtu, caps.tx_l4_checksum), (MAC, 1500, false));
                let started = Instant::now();
                echo_rounds(&mut io, 1000 + index, ROUNDS);
                channel.send(started.elapsed().as_nanos() as u64 / u64::from(ROUNDS));
                let counters = io.counters();
                assert_eq!((counters.tx_frames, counters.tx_bytes), (2000, 400_000));
                assert!(counters.rx_frames >= 2000 && counters.tx_dropped == 0);
                drop(io);
                ff_dpdk::mbuf::flush_private_cache();
            })
        })
        .collect();
    let attach_us: Vec<u64> = workers.iter_mut().map(|worker| worker.channel.receive()).collect();
    echo(&kernel, 2 * ROUNDS);
    let round_ns: Vec<u64> = workers.iter_mut().map(|worker| worker.channel.receive()).collect();
    println!("tap: attach {attach_us:?} us (two at once), round trip {round_ns:?} ns");
    workers.into_iter().for_each(Process::join);
    let descriptors = u64::from(layout().descriptors);
    assert_eq!(available(&mut primary, 2), (0, vec![2047 - descriptors; 2]));
}

pub fn wakes_the_owner_only() {
    let (instance, interface) = (Instance::new("twk"), interface());
    let (_primary, kernel) = start(&instance, &interface);
    let mut workers: Vec<Process> = (0..2)
        .map(|index| {
            Process::start(|channel| {
                let mut io = attach(&instance, &interface, index);
                echo_rounds(&mut io, 1000 + index, 1);
                let mut burst = Vec::new();
                while io.receive(&mut burst) > 0 {}
                burst.clear();
                channel.send(0);
                while let Some(expected) = channel.try_receive() {
                    let woken = readable(
                        io.wait_fds(),
                        Duration::from_millis(if expected == 1 { 5000 } else { 100 }),
                    );
                    assert_eq!(woken, [expected == 1]);
                    while io.receive(&mut burst) > 0 {}
                    assert_eq!(burst.len() as u64, expected);
                    burst.clear();
                    channel.send(0);
                }
            })
        })
        .collect();
    echo(&kernel, 2);
    workers.iter_mut().for_each(|worker| assert_eq!(worker.channel.receive(), 0));
    for round in 0..6usize {
        let target = round % 2;
        for (index, worker) in workers.iter_mut().enumerate() {
            worker.channel.send(u64::from(index == target));
        }
        assert!(kernel.send(&udp((PEER, 9), (STACK.0, 1000 + target as u16), round as u32, 60)));
        workers.iter_mut().for_each(|worker| assert_eq!(worker.channel.receive(), 0));
    }
    workers.into_iter().for_each(Process::stop);
}

pub fn hundred_kills() {
    let (instance, interface) = (Instance::new("tki"), interface());
    let (mut primary, kernel) = start(&instance, &interface);
    let descriptors = u64::from(layout().descriptors);
    // Keeps both queues busy until it is killed.
    let mut flood = Process::start(|_| {
        for number in 0u32.. {
            let port = 2000 + (number % 64) as u16;
            kernel.send(&udp((PEER, port), STACK, number, 300));
            if number.is_multiple_of(32) {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    });
    let sibling = Process::start(|channel| {
        let mut io = attach(&instance, &interface, 1);
        let mut burst = Vec::new();
        while !readable(&[channel.descriptor()], Duration::ZERO)[0] {
            io.receive(&mut burst);
            io.receive_forwarded(&mut burst);
            burst.clear();
        }
        drop(io);
        ff_dpdk::mbuf::flush_private_cache();
    });
    let (mut found, mut incomplete) = (0, 0);
    for round in 0..100u64 {
        let mut worker = Process::start(|channel| {
            let mut io = attach(&instance, &interface, 0);
            channel.send(0);
            let (mut held, mut burst) = (Vec::new(), Vec::new());
            for turn in 0u32.. {
                io.receive(&mut burst);
                for frame in burst.drain(..) {
                    match turn % 4 {
                        0 => held.push(frame),
                        1 => drop(io.forward(WorkerRef { slot: 0, index: 1 }, frame)),
                        _ => drop(frame),
                    }
                }
                let mut out = io.alloc().unwrap();
                out.set_len(60);
                out.bytes_mut().copy_from_slice(&udp(STACK, (PEER, 9), turn, 60)[..60]);
                if turn % 3 == 0 {
                    io.transmit(out);
                    io.flush();
                } else if held.len() < 300 {
                    held.push(out);
                } else {
                    held.clear();
                }
            }
        });
        worker.channel.receive();
        std::thread::sleep(Duration::from_micros(300 + round * 91 % 4000));
        worker.kill();
        let (mbufs, pools) = restore(&mut primary, 0, &worker);
        found += mbufs;
        incomplete += pools;
    }
    flood.kill();
    sibling.stop();
    // Once more with nobody there: what was between two hands while the sibling held some of the pool.
    let nobody = Process::start(|_| {});
    let pid = nobody.pid;
    nobody.join();
    let (late, pools) = restore(&mut primary, 0, &Process::gone(pid));
    println!("tap: 100 kills, {found} mbufs found at once, {late} later, {incomplete} pools incomplete then");
    assert_eq!(pools, 0);
    assert!(found > 100, "the kills hit nothing");
    assert_eq!(available(&mut primary, 2), (0, vec![2047 - descriptors; 2]));
}
