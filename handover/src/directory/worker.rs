//! The words of a worker.

use ff_flowmap::sync::Ordering;
use ff_flowmap::{Line, Owner};

use crate::drops::{DROP_REASONS, DropReason};
use crate::words::ParkWord;

/// Line 0, written by the primary.
const ATTACH: usize = 0;
const ATTACHED: usize = 0; // owner tag
const ATTACHED_US: usize = 1;
const CPU: usize = 2;

/// Line 1, written by the worker: what others wait for.
const ANSWERS: usize = 1;
const READY: usize = 0;
const PARKED: usize = 1;
const HEARTBEAT_US: usize = 2;
const READY_US: usize = 3;

/// Line 2, written by the worker: the drain report.
const REPORT: usize = 2;
const REPORTED: usize = 0; // epoch << 32 | number of the report
const CONNS: usize = 1;
const UNSENT_BYTES: usize = 2;
const HALF_OPEN: usize = 3;
const UDP_FLOWS: usize = 4;
const REPORTED_US: usize = 5;

/// Lines 3 and 4: counters.
const COUNTERS: usize = 3;

/// Line 5: gauges.
const GAUGES: usize = 5;

/// Lines 6 to 9: drops by reason.
const DROPS: usize = 6;

/// Lines of a worker.
pub(crate) const WORKER_LINES: usize = DROPS + DROP_REASONS / 8;

/// What a worker counts since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkerCounter {
    /// Packets received from its queues.
    RxPackets,
    /// Packets sent.
    TxPackets,
    /// Bytes received from its queues.
    RxBytes,
    /// Bytes sent.
    TxBytes,
    /// Packets given to another worker that holds their flow.
    Forwarded,
    /// Packets sent for a generation without queues.
    Relayed,
    /// Passes of its loop.
    Passes,
    /// Passes that found work.
    BusyPasses,
    /// Times it went to sleep.
    Sleeps,
    /// Packets that other workers gave to it.
    ForwardedIn,
}

impl WorkerCounter {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::RxPackets,
        Self::TxPackets,
        Self::RxBytes,
        Self::TxBytes,
        Self::Forwarded,
        Self::Relayed,
        Self::Passes,
        Self::BusyPasses,
        Self::Sleeps,
        Self::ForwardedIn,
    ];
}

const _: () = assert!(WorkerCounter::ALL.len() <= (GAUGES - COUNTERS) * 8);

/// What a worker reports as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkerGauge {
    /// Flows in its TCP table.
    TcpFlows,
    /// Listeners.
    TcpListeners,
    /// Handshakes half done.
    HalfOpen,
    /// Connections that wait for accept.
    AcceptQueue,
    /// Part of the last second in which it worked, in millionths.
    CpuBusyPpm,
    /// Packet buffers of its pool that are in use.
    MbufInUse,
    /// The most packets that were ever found in one of its inboxes.
    InboxPeak,
    /// Bytes of its TCP buffers.
    BufferBytes,
}

impl WorkerGauge {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::TcpFlows,
        Self::TcpListeners,
        Self::HalfOpen,
        Self::AcceptQueue,
        Self::CpuBusyPpm,
        Self::MbufInUse,
        Self::InboxPeak,
        Self::BufferBytes,
    ];
}

const _: () = assert!(WorkerGauge::ALL.len() <= (DROPS - GAUGES) * 8);

/// What keeps a worker from quitting.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct DrainReport {
    /// Connections that nginx or the stack still works on.
    pub conns: u64,
    /// Bytes that were written and not yet acknowledged.
    pub unsent_bytes: u64,
    /// Handshakes half done, and connections not yet accepted.
    pub half_open: u64,
    /// UDP flows that are not idle.
    pub udp_flows: u64,
}

impl DrainReport {
    /// True if nothing is left.
    pub fn is_drained(&self) -> bool {
        *self == Self::default()
    }
}

/// The words of one worker of one slot.
#[derive(Clone, Copy, Debug)]
pub struct WorkerWords<'m> {
    lines: &'m [Line],
}

impl<'m> WorkerWords<'m> {
    pub(crate) fn over(lines: &'m [Line]) -> Self {
        Self { lines }
    }

    /// The process that attached as this worker. Acquire.
    pub fn attached(&self) -> Option<Owner> {
        Owner::from_word(self.load(ATTACH, ATTACHED, Ordering::Acquire))
    }

    /// When it attached.
    pub fn attached_us(&self) -> u64 {
        self.load(ATTACH, ATTACHED_US, Ordering::Relaxed)
    }

    /// The CPU that it is meant for.
    pub fn cpu(&self) -> u32 {
        self.load(ATTACH, CPU, Ordering::Relaxed) as u32
    }

    /// A new process attaches: READY, park answer, report and numbers of the one
    /// before are cleared first, so they are never taken for its own. Writer:
    /// the primary, while no process is attached or the last one is dead.
    pub fn attach(&self, owner: Owner, cpu: u32, now_us: u64) {
        self.detach();
        self.store(ATTACH, ATTACHED_US, now_us, Ordering::Relaxed);
        self.store(ATTACH, CPU, u64::from(cpu), Ordering::Relaxed);
        self.store(ATTACH, ATTACHED, owner.word(), Ordering::Release);
    }

    /// Clears everything. Writer: the primary, when the process is dead.
    pub fn detach(&self) {
        self.store(ANSWERS, READY, 0, Ordering::Release);
        for line in self.lines {
            for position in 0..8 {
                line.word(position).store(0, Ordering::Relaxed);
            }
        }
        self.store(ATTACH, ATTACHED, 0, Ordering::Release);
    }

    /// The process that said READY. Acquire: its listeners are open.
    pub fn ready(&self) -> Option<Owner> {
        Owner::from_word(self.load(ANSWERS, READY, Ordering::Acquire))
    }

    /// When it said so.
    pub fn ready_us(&self) -> u64 {
        self.load(ANSWERS, READY_US, Ordering::Relaxed)
    }

    /// READY: the last act of a worker's start, listeners included. Writer: the
    /// worker. Release.
    pub fn set_ready(&self, me: Owner, now_us: u64) {
        self.store(ANSWERS, READY_US, now_us, Ordering::Relaxed);
        self.store(ANSWERS, READY, me.word(), Ordering::Release);
    }

    /// The park order that this worker has followed last: it owns no queue any
    /// more. Acquire.
    pub fn parked(&self) -> Option<ParkWord> {
        ParkWord::from_word(self.load(ANSWERS, PARKED, Ordering::Acquire))
    }

    /// Writer: the worker, after it has given its queues away. Release.
    pub fn answer_park(&self, order: ParkWord) {
        self.store(ANSWERS, PARKED, order.word(), Ordering::Release);
    }

    /// When the worker last began a pass; 0 before the first. Relaxed.
    pub fn heartbeat_us(&self) -> u64 {
        self.load(ANSWERS, HEARTBEAT_US, Ordering::Relaxed)
    }

    /// Writer: the worker, at the top of each pass, also of one after a sleep.
    pub fn beat(&self, now_us: u64) {
        self.store(ANSWERS, HEARTBEAT_US, now_us, Ordering::Relaxed);
    }

    /// The last drain report of the generation of `epoch`; `None` if it has not
    /// made one. The numbers of two reports are never mixed: a report that is
    /// just being written counts as none.
    pub fn drain_report(&self, epoch: u32) -> Option<DrainReport> {
        let before = self.load(REPORT, REPORTED, Ordering::Acquire);
        // The lower half is even between reports.
        if (before >> 32) as u32 != epoch || before & 1 == 1 {
            return None;
        }
        let report = DrainReport {
            conns: self.load(REPORT, CONNS, Ordering::Relaxed),
            unsent_bytes: self.load(REPORT, UNSENT_BYTES, Ordering::Relaxed),
            half_open: self.load(REPORT, HALF_OPEN, Ordering::Relaxed),
            udp_flows: self.load(REPORT, UDP_FLOWS, Ordering::Relaxed),
        };
        ff_flowmap::sync::fence(Ordering::Acquire);
        (self.load(REPORT, REPORTED, Ordering::Relaxed) == before).then_some(report)
    }

    /// When the last report was made.
    pub fn reported_us(&self) -> u64 {
        self.load(REPORT, REPORTED_US, Ordering::Relaxed)
    }

    /// Writes a report, about once a second while draining. Writer: the worker
    /// of the generation of `epoch`.
    pub fn report_drain(&self, epoch: u32, report: DrainReport, now_us: u64) {
        let last = self.load(REPORT, REPORTED, Ordering::Relaxed) as u32;
        let tag = |number: u32| (u64::from(epoch) << 32) | u64::from(number);
        let writing = last.wrapping_add(1) | 1;
        self.store(REPORT, REPORTED, tag(writing), Ordering::Relaxed);
        ff_flowmap::sync::fence(Ordering::Release);
        self.store(REPORT, CONNS, report.conns, Ordering::Relaxed);
        self.store(REPORT, UNSENT_BYTES, report.unsent_bytes, Ordering::Relaxed);
        self.store(REPORT, HALF_OPEN, report.half_open, Ordering::Relaxed);
        self.store(REPORT, UDP_FLOWS, report.udp_flows, Ordering::Relaxed);
        self.store(REPORT, REPORTED_US, now_us, Ordering::Relaxed);
        // 0 would be the word of a worker that has never reported.
        let done = writing.wrapping_add(1);
        self.store(REPORT, REPORTED, tag(if done == 0 { 2 } else { done }), Ordering::Release);
    }

    /// A counter. Relaxed.
    pub fn counter(&self, counter: WorkerCounter) -> u64 {
        let position = counter as usize;
        self.load(COUNTERS + position / 8, position % 8, Ordering::Relaxed)
    }

    /// Adds `n`; no bus lock, since the worker is the only writer.
    pub fn add(&self, counter: WorkerCounter, n: u64) {
        let position = counter as usize;
        add(self.lines[COUNTERS + position / 8].word(position % 8), n);
    }

    /// A gauge. Relaxed.
    pub fn gauge(&self, gauge: WorkerGauge) -> u64 {
        self.load(GAUGES, gauge as usize, Ordering::Relaxed)
    }

    /// Writer: the worker.
    pub fn set_gauge(&self, gauge: WorkerGauge, value: u64) {
        self.store(GAUGES, gauge as usize, value, Ordering::Relaxed);
    }

    /// Packets dropped for `reason`. Relaxed.
    pub fn drops(&self, reason: DropReason) -> u64 {
        let position = reason as usize;
        self.load(DROPS + position / 8, position % 8, Ordering::Relaxed)
    }

    /// Counts `n` dropped packets. Writer: the worker.
    pub fn add_drops(&self, reason: DropReason, n: u64) {
        let position = reason as usize;
        add(self.lines[DROPS + position / 8].word(position % 8), n);
    }

    fn load(&self, line: usize, position: usize, ordering: Ordering) -> u64 {
        self.lines[line].word(position).load(ordering)
    }

    fn store(&self, line: usize, position: usize, value: u64, ordering: Ordering) {
        self.lines[line].word(position).store(value, ordering);
    }
}

fn add(word: &ff_flowmap::sync::AtomicU64, n: u64) {
    word.store(word.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

/// Positions that make up the layout of a worker's lines.
pub(crate) const WORKER_LAYOUT: [u64; 20] = [
    WORKER_LINES as u64,
    ATTACH as u64,
    ATTACHED as u64,
    ATTACHED_US as u64,
    CPU as u64,
    ANSWERS as u64,
    READY as u64,
    PARKED as u64,
    HEARTBEAT_US as u64,
    READY_US as u64,
    REPORT as u64,
    REPORTED as u64,
    CONNS as u64,
    UNSENT_BYTES as u64,
    HALF_OPEN as u64,
    UDP_FLOWS as u64,
    REPORTED_US as u64,
    COUNTERS as u64,
    GAUGES as u64,
    DROPS as u64,
];
