//! Packet sockets over a veth pair.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use ff_dataplane::io::af_packet::{
    AfPacketFrame, AfPacketIo, PacketSeat, RingSizes, open_queue, open_queues, open_sender,
};
use ff_dataplane::io::{ChecksumState, Frame, PacketIo, TxOffload, WorkerRef};
use ff_dpdk::instance::Parts;

use crate::support::{Instance, Process};
use crate::wire::{KernelEnd, PEER, STACK, ip, port_and_number, readable, sum, tcp, udp};
use crate::{PATIENCE, available, lcore, primary, restore, seat, until};

/// A veth pair that goes when this does.
struct Veth {
    stack: String,
    peer: String,
}

impl Veth {
    fn new() -> Self {
        let pid = std::process::id();
        let veth = Self { stack: format!("fft{pid}s"), peer: format!("fft{pid}p") };
        ip(&format!("link add {} type veth peer name {}", veth.stack, veth.peer));
        ip(&format!("link set {} up", veth.stack));
        ip(&format!("link set {} up", veth.peer));
        veth
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        ip(&format!("link del {}", self.stack));
    }
}

fn sizes() -> RingSizes {
    RingSizes { rx_frames: 256, tx_frames: 64, ..RingSizes::default() }
}

/// The sockets that a primary opens: both queues, and a sender for each worker.
struct Sockets {
    interface: String,
    queues: Vec<OwnedFd>,
    senders: Vec<OwnedFd>,
}

impl Sockets {
    fn open(veth: &Veth) -> Self {
        let queues = open_queues(&veth.stack, 2, 7, &sizes()).unwrap();
        let senders = (0..2).map(|_| open_sender(&veth.stack, &sizes()).unwrap()).collect();
        Self { interface: veth.stack.clone(), queues, senders }
    }

    fn attach(&self, instance: &Instance, index: u16) -> AfPacketIo {
        let eal = instance.secondary(lcore(index));
        let copy = |socket: &OwnedFd| socket.try_clone().unwrap();
        let packet = PacketSeat {
            interface: self.interface.clone(),
            sizes: sizes(),
            queues: self.queues.iter().map(copy).collect(),
            sender: copy(&self.senders[usize::from(index)]),
        };
        // SAFETY: the tests start each worker once, and after a kill only when memory was restored; no two
        // own a queue at a time.
        unsafe { AfPacketIo::attach(eal, &seat(index), packet).unwrap() }
    }
}

fn send(io: &mut AfPacketIo, bytes: &[u8], offload: Option<TxOffload>) {
    let mut frame = io.alloc().unwrap();
    frame.set_len(bytes.len());
    frame.bytes_mut().copy_from_slice(bytes);
    if let Some(offload) = offload {
        frame.request_tx_offload(offload);
    }
    io.transmit(frame);
}

/// UDP datagrams among what was received; other traffic on a fresh link is the kernel's.
fn datagrams(burst: &mut Vec<AfPacketFrame>) -> Vec<(u16, u32)> {
    let is_ours = |frame: &AfPacketFrame| frame.bytes()[12..14] == [8, 0] && frame.bytes()[23] == 17;
    burst.drain(..).filter(is_ours).map(|frame| port_and_number(frame.bytes())).collect()
}

pub fn queues_share_the_flows() {
    const FLOWS: u16 = 64;
    const EACH: u32 = 50;
    let (veth, instance) = (Veth::new(), Instance::new("afq"));
    let _primary = primary(&instance, |_| Parts::default());
    let sockets = Sockets::open(&veth);
    let kernel = KernelEnd::open(&veth.peer, false);
    assert!(open_queue("nosuch0", 0, 7, &sizes()).unwrap_err().to_string().contains("nosuch0"));
    let mut workers: Vec<Process> = (0..2)
        .map(|index| {
            Process::start(|channel| {
                let started = Instant::now();
                let mut io = sockets.attach(&instance, index);
                channel.send(started.elapsed().as_micros() as u64);
                io.set_owned_queues(&[index]);
                let caps = io.capabilities();
                assert!(caps.tso && caps.tx_l4_checksum && caps.mtu == 1500, "{caps:?}");
                let (mut burst, mut next, mut count) = (Vec::new(), HashMap::new(), 0u64);
                channel.send(0);
                while !readable(&[channel.descriptor()], Duration::ZERO)[0] {
                    readable(io.wait_fds(), Duration::from_millis(20));
                    io.receive(&mut burst);
                    for (port, number) in datagrams(&mut burst) {
                        let expected = next.entry(port).or_insert(0);
                        assert_eq!(number, *expected, "flow {port} in order, nothing lost or twice");
                        *expected += 1;
                        count += 1;
                        send(&mut io, &udp(STACK, (PEER, port), number, 100), None);
                    }
                    assert_eq!(io.flush().dropped, 0);
                }
                channel.receive();
                channel.send(count);
                channel.send(next.len() as u64);
                assert!(next.values().all(|&count| count == EACH), "whole flows: {next:?}");
            })
        })
        .collect();
    let attach_us: Vec<u64> = workers.iter_mut().map(|worker| worker.channel.receive()).collect();
    workers.iter_mut().for_each(|worker| assert_eq!(worker.channel.receive(), 0));
    let mut echoed = HashMap::new();
    for number in 0..EACH {
        for port in 0..FLOWS {
            assert!(kernel.send(&udp((PEER, 3000 + port), STACK, number, 80)));
        }
        for _ in 0..FLOWS {
            let frame = kernel.receive(PATIENCE).expect("an echo");
            let port = u16::from_be_bytes([frame[36], frame[37]]);
            *echoed.entry((port, port_and_number(&frame).1)).or_insert(0) += 1;
        }
    }
    assert_eq!(echoed.len(), usize::from(FLOWS) * EACH as usize);
    workers.iter_mut().for_each(|worker| worker.channel.send(0));
    let shares: Vec<(u64, u64)> =
        workers.iter_mut().map(|worker| (worker.channel.receive(), worker.channel.receive())).collect();
    println!("af_packet: attach {attach_us:?} us, (datagrams, flows) of each queue {shares:?}");
    assert_eq!(shares.iter().map(|share| share.0).sum::<u64>(), u64::from(FLOWS) * u64::from(EACH));
    assert!(shares.iter().all(|share| share.1 > 8), "both queues have flows");
    workers.into_iter().for_each(Process::join);
}

/// Large segments and partial checksums, both ways and over an inbox.
pub fn offload() {
    const PAYLOAD: usize = 30_000;
    const MSS: u16 = 1448;
    let (veth, instance) = (Veth::new(), Instance::new("afo"));
    let mut primary = primary(&instance, |_| Parts::default());
    let sockets = Sockets::open(&veth);
    let kernel = KernelEnd::open(&veth.peer, true);
    let large = tcp((PEER, 5000), STACK, 7, PAYLOAD);
    let reply = tcp(STACK, (PEER, 5000), 9, PAYLOAD);

    let mut second = Process::start(|channel| {
        let mut io = sockets.attach(&instance, 1);
        channel.send(0);
        let (mut burst, mut payload) = (Vec::new(), Vec::new());
        until("all segments", || {
            io.receive_forwarded(&mut burst);
            for frame in burst.drain(..) {
                let bytes = frame.bytes();
                assert!(bytes.len() <= 54 + usize::from(MSS));
                assert_eq!(frame.rx_checksum().l4, ChecksumState::Good);
                assert_eq!(sum(&bytes[14..34]), 0, "a right IPv4 header");
                let seq = u32::from_be_bytes(bytes[38..42].try_into().unwrap());
                assert_eq!(seq as usize, 7 + payload.len(), "in order");
                payload.extend_from_slice(&bytes[54..]);
            }
            payload.len() == PAYLOAD
        });
        assert_eq!(payload, large[54..]);
        drop(io);
        ff_dpdk::mbuf::flush_private_cache();
    });
    second.channel.receive();
    let mut first = Process::start(|channel| {
        let mut io = sockets.attach(&instance, 0);
        io.set_owned_queues(&[0, 1]);
        channel.send(0);
        let mut burst = Vec::new();
        let mut next = |io: &mut AfPacketIo| {
            until("a frame", || {
                io.receive(&mut burst);
                !burst.is_empty()
            });
            burst.remove(0)
        };
        let frame = next(&mut io);
        assert_eq!(frame.bytes(), large, "one merged frame, as it was sent");
        assert_eq!(frame.rx_checksum().l4, ChecksumState::Good);
        assert!(io.forward(WorkerRef { slot: 0, index: 1 }, frame).is_ok());
        // With a plain frame in between, whose checksum nobody has verified.
        let frame = next(&mut io);
        assert_eq!(frame.rx_checksum().l4, ChecksumState::Unknown);
        assert!(io.forward(WorkerRef { slot: 0, index: 0 }, frame).is_err(), "there is no way to oneself");

        let offload = TxOffload {
            l2_len: 14,
            l3_len: 20,
            l4_len: 20,
            ip_csum: false,
            tcp_csum: true,
            tso_mss: Some(MSS),
            ipv6: false,
        };
        send(&mut io, &reply, Some(offload));
        send(&mut io, &reply[..600], Some(TxOffload { tso_mss: None, ..offload }));
        send(&mut io, &reply[..100], None);
        let report = io.flush();
        assert_eq!((report.sent, report.dropped), (3, 0));
        assert_eq!(io.counters().forwarded as usize, PAYLOAD.div_ceil(usize::from(MSS)));
        drop(io);
        ff_dpdk::mbuf::flush_private_cache();
    });
    first.channel.receive();
    let header = |flags: u8, gso: u8, hdr_len: u16, mss: u16| {
        let mut header = [0; 10];
        (header[0], header[1]) = (flags, gso);
        header[2..4].copy_from_slice(&hdr_len.to_le_bytes());
        header[4..6].copy_from_slice(&mss.to_le_bytes());
        if flags == 1 {
            header[6] = 34;
            header[8] = 16;
        }
        header
    };
    assert!(kernel.send_with_header(header(1, 1, 54, MSS), &large));
    assert!(kernel.send_with_header(header(0, 0, 0, 0), &large[..100]));
    let frame = kernel.receive(PATIENCE).expect("the large segment");
    assert_eq!((frame[0] & 1, frame[1] & 0x7f), (1, 1), "checksum and segmentation left to do");
    assert_eq!(u16::from_le_bytes([frame[4], frame[5]]), MSS);
    assert_eq!(frame[10..], reply);
    let frame = kernel.receive(PATIENCE).expect("the segment without a checksum");
    assert_eq!((frame[0] & 1, frame[1], &frame[10..]), (1, 0, &reply[..600]));
    let frame = kernel.receive(PATIENCE).expect("the plain frame");
    assert_eq!((frame[0] & 1, frame[1], &frame[10..]), (0, 0, &reply[..100]));
    first.join();
    second.join();
    assert_eq!(available(&mut primary, 0).0, 0, "every mbuf is back");
}

/// Of tagged frames only those with a priority and no VLAN arrive; the kernel takes the tag out of them.
pub fn vlans() {
    let (veth, instance) = (Veth::new(), Instance::new("afv"));
    let _primary = primary(&instance, |_| Parts::default());
    let sockets = Sockets::open(&veth);
    let kernel = KernelEnd::open(&veth.peer, false);
    let mut worker = Process::start(|channel| {
        let mut io = sockets.attach(&instance, 0);
        io.set_owned_queues(&[0, 1]);
        channel.send(0);
        let (mut burst, mut numbers) = (Vec::new(), Vec::new());
        // A tag may lead a frame into the other queue.
        until("all of them", || {
            io.receive(&mut burst);
            numbers.extend(datagrams(&mut burst).into_iter().map(|(_, number)| number));
            numbers.len() as u64 + io.counters().rx_vlan == 6
        });
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 9]);
    });
    worker.channel.receive();
    let plain = |number| udp((PEER, 4000), STACK, number, 80);
    let tagged = |tag: [u8; 4], number| {
        let plain = plain(number);
        [&plain[..12], &tag, &plain[12..]].concat()
    };
    assert!(kernel.send(&plain(0)));
    assert!(kernel.send(&tagged([0x81, 0, 0xe0, 0], 1)));
    for (tag, number) in [([0x81, 0, 0, 7], 2), ([0x81, 0, 0xef, 0xff], 3), ([0x88, 0xa8, 0, 7], 4)] {
        assert!(kernel.send(&tagged(tag, number)));
    }
    assert!(kernel.send(&plain(9)));
    worker.join();
}

/// A frame of the stack's own goes to another worker, and what came out of an inbox goes on to the next: as a record of
/// a connection does, and a packet that arrives after it.
pub fn forwards_frames_of_every_kind() {
    let (veth, instance) = (Veth::new(), Instance::new("aff"));
    // What peers send has to fit into an mbuf, whatever the link could carry.
    ip(&format!("link set {} mtu 9000", veth.stack));
    let mut primary = primary(&instance, |_| Parts::default());
    let sockets = Sockets::open(&veth);
    let worker = |index| WorkerRef { slot: 0, index };
    let forwarded = |io: &mut AfPacketIo| {
        let mut burst = Vec::new();
        until("a frame of the inbox", || io.receive_forwarded(&mut burst) > 0);
        assert_eq!(burst.len(), 1);
        burst.remove(0)
    };
    let mut second = Process::start(|channel| {
        let mut io = sockets.attach(&instance, 1);
        channel.send(0);
        let frame = forwarded(&mut io);
        assert_eq!(frame.bytes(), [7; 1400]);
        assert!(io.forward(worker(0), frame).is_ok());
        assert_eq!((io.counters().forwarded, io.counters().no_memory), (1, 0));
        channel.try_receive();
        drop(io);
        ff_dpdk::mbuf::flush_private_cache();
    });
    second.channel.receive();
    let mut first = Process::start(|channel| {
        let mut io = sockets.attach(&instance, 0);
        assert_eq!(io.capabilities().mtu, 2034);
        let mut frame = io.alloc().unwrap();
        frame.set_len(1400);
        frame.bytes_mut().fill(7);
        assert!(io.forward(worker(1), frame).is_ok());
        assert_eq!(forwarded(&mut io).bytes(), [7; 1400]);
        // Too long for an mbuf: given back as it was.
        let mut frame = io.alloc().unwrap();
        frame.set_len(frame.capacity());
        assert!(frame.capacity() > 2048);
        assert!(io.forward(worker(1), frame).is_err());
        channel.send(0);
        drop(io);
        ff_dpdk::mbuf::flush_private_cache();
    });
    first.channel.receive();
    first.join();
    second.channel.send(0);
    second.join();
    assert_eq!(available(&mut primary, 0).0, 0, "every mbuf is back");
}

/// A queue goes from one living worker to another, and from a killed one to its successor, while datagrams
/// arrive: none is lost, and after a kill at most one burst comes twice.
pub fn handover_and_kill() {
    let (veth, instance) = (Veth::new(), Instance::new("afh"));
    let mut primary = primary(&instance, |_| Parts::default());
    let sockets = Sockets::open(&veth);
    let kernel = KernelEnd::open(&veth.peer, false);
    // Receives until it has `number`, from both queues; tells the first and the last number.
    let receiver = |index: u16, stale: bool, hold: bool| {
        let mut process = Process::start(|channel| {
            let mut io = sockets.attach(&instance, index);
            io.set_owned_queues(&[0, 1]);
            channel.send(if stale { u64::from(io.release_stale()) } else { 0 });
            let (mut burst, mut held, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
            while !readable(&[channel.descriptor()], Duration::ZERO)[0] {
                io.receive(&mut burst);
                numbers.extend(
                    burst
                        .iter()
                        .filter(|frame| frame.bytes()[12..14] == [8, 0])
                        .map(|frame| u64::from(port_and_number(frame.bytes()).1)),
                );
                if hold && held.len() < 40 {
                    held.append(&mut burst);
                }
                burst.clear();
            }
            io.set_owned_queues(&[]);
            channel.receive();
            channel.send(numbers.len() as u64);
            numbers.iter().for_each(|&number| channel.send(number));
            channel.try_receive();
        });
        let released = process.channel.receive();
        (process, released)
    };
    let numbers = |process: &mut Process| -> Vec<u64> {
        process.channel.send(0);
        let count = process.channel.receive();
        (0..count).map(|_| process.channel.receive()).collect()
    };
    let mut next = 0u32;
    let mut send = |count: u32| {
        for number in next..next + count {
            assert!(kernel.send(&udp((PEER, 4000 + (number % 8) as u16), STACK, number, 80)));
            if number.is_multiple_of(16) {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        next += count;
    };
    let mut seen = Vec::new();
    // Handed over twelve times among two living workers, with datagrams arriving in between.
    for round in 0..12 {
        let (mut process, _) = receiver(round % 2, false, false);
        send(100);
        std::thread::sleep(Duration::from_millis(20));
        seen.append(&mut numbers(&mut process));
        send(20);
        process.stop();
    }
    let (mut process, _) = receiver(0, false, false);
    std::thread::sleep(Duration::from_millis(50));
    seen.append(&mut numbers(&mut process));
    process.stop();
    seen.sort_unstable();
    assert_eq!(seen, (0..12 * 120).collect::<Vec<u64>>(), "each datagram once");

    // Killed thirty times with slots in its hands; more slots than the ring has pass by.
    let mut released = 0;
    for _ in 0..30 {
        let (mut victim, stale) = receiver(0, true, true);
        released += stale;
        send(60);
        std::thread::sleep(Duration::from_millis(5));
        victim.kill();
        restore(&mut primary, 0, &victim);
    }
    let (mut process, stale) = receiver(0, true, false);
    released += stale;
    std::thread::sleep(Duration::from_millis(20));
    numbers(&mut process);
    process.stop();
    // Nothing is stuck: the whole ring can be filled again, several times.
    let (mut process, _) = receiver(1, false, false);
    send(2000);
    std::thread::sleep(Duration::from_millis(100));
    let mut last = numbers(&mut process);
    process.stop();
    last.sort_unstable();
    let from = 12 * 120 + 30 * 60;
    assert_eq!(last, (from..from + 2000).collect::<Vec<u64>>(), "each datagram once again");
    println!("af_packet: 30 kills, {released} stale slots freed");
    assert!(released > 200, "the kills hit nothing");
    assert_eq!(available(&mut primary, 0).0, 0);
}
