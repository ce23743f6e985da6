//! The in-memory wire.

use std::time::{Duration, Instant};

use ff_dataplane::io::ring::{RingIo, WireClientIo, WireSeat};
use ff_dataplane::io::{ChecksumState, Frame, PacketIo, TxOffload, WorkerRef};
use ff_dpdk::instance::{Parts, create_wire};
use ff_dpdk::names;

use crate::support::{Instance, Process};
use crate::wire::{PEER, STACK, port_and_number, udp};
use crate::{available, layout, lcore, primary, restore, seat, until};

const SERVER: WireSeat = WireSeat { port: 0, mtu: 1500, mac: [2, 0, 0, 0, 0, 2] };
const CLIENT: WireSeat = WireSeat { port: 0, mtu: 1500, mac: [2, 0, 0, 0, 0, 1] };

fn start(instance: &Instance) -> Process {
    primary(instance, |eal| {
        create_wire(eal, &layout(), 0, 512, 1).unwrap();
        Parts { ports: vec![], wires: vec![(0, 1)] }
    })
}

fn server(instance: &Instance, index: u16) -> RingIo {
    let eal = instance.secondary(lcore(index));
    // SAFETY: the tests start each worker once, and after a kill only when memory was restored; each owns
    // the queue of its index.
    let mut io = unsafe { RingIo::attach(eal, &seat(index), &SERVER).unwrap() };
    io.set_owned_queues(&[index, index]);
    io
}

fn client(instance: &Instance, queue: u16) -> WireClientIo {
    let eal = instance.secondary(names::client_lcore_id(2, 2, 0).unwrap());
    // SAFETY: the only client, started once.
    unsafe { WireClientIo::attach(eal, &CLIENT, 2, 0, queue).unwrap() }
}

fn frame<I: PacketIo>(io: &mut I, bytes: &[u8]) -> Option<I::Frame> {
    let mut out = io.alloc()?;
    out.set_len(bytes.len());
    out.bytes_mut().copy_from_slice(bytes);
    Some(out)
}

pub fn ping_pong() {
    const ROUNDS: u32 = 200_000;
    let instance = Instance::new("wpp");
    let mut primary = start(&instance);
    let server = Process::start(|channel| {
        let mut io = server(&instance, 0);
        let (mut burst, mut echoed) = (Vec::new(), 0);
        while echoed < ROUNDS {
            io.receive(&mut burst);
            for received in burst.drain(..) {
                let expected = [ChecksumState::Unknown, ChecksumState::Good][echoed as usize % 2];
                assert_eq!(received.rx_checksum().l4, expected);
                let (_, number) = port_and_number(received.bytes());
                let reply = udp(STACK, (PEER, 9), number, 600);
                let out = frame(&mut io, &reply).unwrap();
                io.transmit(out);
                echoed += 1;
            }
            assert_eq!(io.flush().dropped, 0);
        }
        let counters = io.counters();
        assert_eq!((counters.rx_frames, counters.tx_frames), (u64::from(ROUNDS), u64::from(ROUNDS)));
        assert_eq!(counters.tx_bytes, u64::from(ROUNDS) * 600);
        drop(io);
        ff_dpdk::mbuf::flush_private_cache();
        channel.send(0);
    });
    let mut client = Process::start(|channel| {
        let mut io = client(&instance, 0);
        let (mut burst, mut sent, mut expected) = (Vec::new(), 0, 0);
        let offload = TxOffload { l2_len: 14, l3_len: 20, l4_len: 8, tcp_csum: true, ..TxOffload::default() };
        let started = Instant::now();
        while expected < ROUNDS {
            // 64 under way.
            while sent < ROUNDS && sent - expected < 64 {
                let mut out = frame(&mut io, &udp((PEER, 9), STACK, sent, 100)).unwrap();
                if sent % 2 == 1 {
                    out.request_tx_offload(offload);
                }
                io.transmit(out);
                sent += 1;
            }
            assert_eq!(io.flush().dropped, 0);
            io.receive(&mut burst);
            for received in burst.drain(..) {
                assert_eq!(port_and_number(received.bytes()).1, expected);
                assert_eq!(received.bytes().len(), 600);
                expected += 1;
            }
        }
        channel.send(started.elapsed().as_nanos() as u64 / u64::from(ROUNDS));
        drop(io);
        ff_dpdk::mbuf::flush_private_cache();
    });
    println!("wire: {} ns a round with 64 under way, two processes", client.channel.receive());
    client.join();
    server.join();
    assert_eq!(available(&mut primary, 0).0, 0, "every mbuf is back");
}

/// A server is killed in the middle of traffic from a living client and with a living sibling that it
/// forwards to, again and again; then all mbufs are back.
pub fn kills() {
    let instance = Instance::new("wki");
    let mut primary = start(&instance);
    let client = Process::start(|channel| {
        let mut io = client(&instance, 0);
        let (mut burst, mut number) = (Vec::new(), 0);
        while !crate::wire::readable(&[channel.descriptor()], Duration::ZERO)[0] {
            for _ in 0..32 {
                if let Some(out) = frame(&mut io, &udp((PEER, 9), STACK, number, 100)) {
                    io.transmit(out);
                    number += 1;
                }
            }
            io.flush();
            io.receive(&mut burst);
            burst.drain(..).for_each(|received| assert_eq!(received.bytes().len(), 200));
        }
        // Takes what is still on its way.
        while io.receive(&mut burst) > 0 {
            burst.clear();
        }
        drop(io);
        ff_dpdk::mbuf::flush_private_cache();
    });
    let sibling = Process::start(|channel| {
        let mut io = server(&instance, 1);
        let mut burst = Vec::new();
        while !crate::wire::readable(&[channel.descriptor()], Duration::ZERO)[0] {
            io.receive_forwarded(&mut burst);
            burst.drain(..).for_each(|received| assert_eq!(received.bytes().len(), 100));
        }
        while io.receive_forwarded(&mut burst) > 0 {
            burst.clear();
        }
        drop(io);
        ff_dpdk::mbuf::flush_private_cache();
    });
    let mut found = 0;
    for round in 0..50u64 {
        let mut worker = Process::start(|channel| {
            let mut io = server(&instance, 0);
            channel.send(0);
            let (mut held, mut burst) = (Vec::new(), Vec::new());
            for turn in 0usize.. {
                io.receive(&mut burst);
                for (at, received) in burst.drain(..).enumerate() {
                    match (turn + at) % 4 {
                        0 => drop(io.forward(WorkerRef { slot: 0, index: 1 }, received)),
                        1 => held.push(received),
                        _ => {
                            let (_, number) = port_and_number(received.bytes());
                            if let Some(out) = frame(&mut io, &udp(STACK, (PEER, 9), number, 200)) {
                                io.transmit(out);
                            }
                        }
                    }
                }
                io.flush();
                if held.len() > 100 {
                    held.clear();
                }
            }
        });
        worker.channel.receive();
        std::thread::sleep(Duration::from_micros(200 + round * 173 % 3000));
        worker.kill();
        found += restore(&mut primary, 0, &worker).0;
    }
    // The client first: what it has sent is on the ring, and the last worker takes it.
    client.stop();
    sibling.stop();
    let last = Process::start(|_| {
        let mut io = server(&instance, 0);
        let mut burst = Vec::new();
        until("an empty wire", || io.receive(&mut burst) == 0);
        drop(burst);
        drop(io);
        ff_dpdk::mbuf::flush_private_cache();
    });
    let pid = last.pid;
    last.join();
    let (late, pools) = restore(&mut primary, 0, &Process::gone(pid));
    println!("wire: 50 kills, {found} mbufs found at once, {late} later");
    assert_eq!(pools, 0);
    assert!(found > 50, "the kills hit nothing");
    let (short, _) = available(&mut primary, 0);
    // The client's pool is not the dead worker's: of it, what was between two hands at a kill is not found
    // while the client lives. That is a burst of 32 for each of the 50 kills at the very most; usually a tenth.
    assert!(short <= 50 * 32, "{short} mbufs are missing");
    println!("wire: {short} mbufs of the client's pool were between two hands");
}
