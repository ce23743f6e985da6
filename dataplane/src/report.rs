//! What other processes see of a worker: heartbeat, counters, gauges.

use ff_flowmap::FlowIndex;
use ff_handover::{DROP_REASONS, DropReason, WorkerCounter, WorkerGauge, WorkerWords};
use ff_tcp::Instant;

use crate::io::{IoCounters, PacketIo};
use crate::stack::{PassReport, Stack};

/// Between two updates of the counters. The heartbeat is written every pass.
const COUNTERS_INTERVAL_US: u64 = 100_000;
/// Over which the busy part is measured.
const BUSY_INTERVAL_US: u64 = 1_000_000;

/// The state of the reporting.
pub(crate) struct Report {
    words: Option<WorkerWords<'static>>,
    next: Instant,
    reported_io: IoCounters,
    reported_tcp: [u64; 2],
    drops_before: [u64; DROP_REASONS],
    passes: u64,
    busy_passes: u64,
    sleeps: u64,
    /// Begin of the last pass, and whether it found work.
    last_pass: Instant,
    was_busy: bool,
    busy_us: u64,
    busy_since: Instant,
}

impl Report {
    pub(crate) fn new(words: Option<WorkerWords<'static>>) -> Self {
        Self {
            words,
            next: Instant(0),
            reported_io: IoCounters::default(),
            reported_tcp: [0; 2],
            drops_before: [0; DROP_REASONS],
            passes: 0,
            busy_passes: 0,
            sleeps: 0,
            last_pass: Instant(0),
            was_busy: false,
            busy_us: 0,
            busy_since: Instant(0),
        }
    }

    /// At the top of a pass, before [`begin`](Self::begin): when packets were last looked for. A worker that sleeps
    /// looks for them until it wakes.
    pub(crate) fn last_poll(&self, now: Instant) -> Instant {
        if self.was_busy { self.last_pass } else { now }
    }

    /// At the top of a pass.
    pub(crate) fn begin(&mut self, now: Instant) {
        if let Some(words) = &self.words {
            words.beat(now.0);
        }
        if self.passes > 0 && self.was_busy {
            self.busy_us += now.micros_since(self.last_pass);
        }
        self.last_pass = now;
        self.passes += 1;
    }

    /// At the end of a pass.
    pub(crate) fn end(&mut self, pass: &PassReport) {
        self.was_busy = pass.rx > 0 || pass.tx > 0 || pass.events || pass.more;
        self.busy_passes += u64::from(self.was_busy);
    }

    pub(crate) fn drops_before(&self, reason: DropReason) -> u64 {
        self.drops_before[reason as usize]
    }
}

impl<P: PacketIo, I: FlowIndex> Stack<P, I> {
    /// The worker goes to sleep: its time does not count as busy.
    pub fn note_sleep(&mut self) {
        self.report.sleeps += 1;
        self.report.was_busy = false;
    }

    /// Writes the counters if it is time.
    pub(crate) fn report_if_due(&mut self) {
        if self.now < self.report.next {
            return;
        }
        self.report.next = self.now + COUNTERS_INTERVAL_US;
        self.report_counters();
    }

    /// Writes the counters to the worker's words now: also for a worker that is about to end.
    pub fn report_counters(&mut self) {
        let Some(words) = self.report.words else { return };
        let io = self.io.counters();
        let before = std::mem::replace(&mut self.report.reported_io, io);
        let report = &mut self.report;
        for (counter, delta) in [
            (WorkerCounter::RxPackets, io.rx_frames - before.rx_frames),
            (WorkerCounter::RxBytes, io.rx_bytes - before.rx_bytes),
            (WorkerCounter::TxPackets, io.tx_frames - before.tx_frames),
            (WorkerCounter::TxBytes, io.tx_bytes - before.tx_bytes),
            (WorkerCounter::Forwarded, io.forwarded - before.forwarded),
            (WorkerCounter::ForwardedIn, io.rx_forwarded - before.rx_forwarded),
            (WorkerCounter::Passes, std::mem::take(&mut report.passes)),
            (WorkerCounter::BusyPasses, std::mem::take(&mut report.busy_passes)),
            (WorkerCounter::Sleeps, std::mem::take(&mut report.sleeps)),
        ] {
            if delta > 0 {
                words.add(counter, delta);
            }
        }
        self.ip.drops.add(DropReason::TxFull, io.tx_dropped - before.tx_dropped);
        self.ip.drops.add(DropReason::NoMbuf, io.no_memory - before.no_memory);
        self.ip.drops.add(DropReason::Oversize, io.rx_truncated - before.rx_truncated);
        self.ip.drops.add(DropReason::Vlan, io.rx_vlan - before.rx_vlan);
        let tcp = self.engine.counters();
        let full = [
            tcp.drop_syn_backlog + tcp.drop_syn_accept_queue + tcp.drop_ack_accept_queue,
            tcp.drop_syn_table_full,
        ];
        let full_before = std::mem::replace(&mut report.reported_tcp, full);
        self.ip.drops.add(DropReason::BacklogFull, full[0] - full_before[0]);
        self.ip.drops.add(DropReason::FlowTableFull, full[1] - full_before[1]);
        for reason in DropReason::ALL.iter().copied() {
            let n = self.ip.drops.take(reason);
            if n > 0 {
                words.add_drops(reason, n);
                report.drops_before[reason as usize] += n;
            }
        }
        let elapsed_us = self.now.micros_since(report.busy_since);
        if elapsed_us >= BUSY_INTERVAL_US {
            let ppm = (report.busy_us.min(elapsed_us) * 1_000_000).checked_div(elapsed_us).unwrap_or(0);
            words.set_gauge(WorkerGauge::CpuBusyPpm, ppm);
            (report.busy_us, report.busy_since) = (0, self.now);
        }
        words.set_gauge(WorkerGauge::TcpFlows, self.engine.index().len() as u64);
        words.set_gauge(WorkerGauge::TcpListeners, self.listener_count() as u64);
        words.set_gauge(WorkerGauge::HalfOpen, self.engine.request_count() as u64);
        words.set_gauge(WorkerGauge::AcceptQueue, self.accept_queue_len() as u64);
        words.set_gauge(WorkerGauge::BufferBytes, self.engine.memory_bytes());
    }
}
