//! A worker's pass.

use ff_flowmap::FlowIndex;
use ff_tcp::Instant;

use crate::io::{BURST, PacketIo};
use crate::stack::{PassReport, Stack};

impl<P: PacketIo, I: FlowIndex> Stack<P, I> {
    /// One pass: takes what the device has (at most a burst from the queues and one from the inboxes), serves
    /// the timers that are due, sends what is ready (bounded), and writes the worker's words.
    pub fn pass(&mut self, now: Instant) -> PassReport {
        let rx = self.take(now);
        let unsent = self.send_segments();
        let tx = self.io.flush().sent;
        self.end_pass(rx, tx, unsent)
    }

    /// A pass that sends nothing. For a program that acts on the events at once and then calls
    /// [`transmit`](Self::transmit): what it writes takes the acknowledgements along, one frame instead of two.
    pub fn receive_pass(&mut self, now: Instant) -> PassReport {
        let rx = self.take(now);
        self.end_pass(rx, 0, false)
    }

    /// Receives, and serves the timers.
    fn take(&mut self, now: Instant) -> usize {
        self.now = self.now.max(now);
        self.read_orders();
        let rx = self.receive();
        self.ip.tick(&mut self.io, self.now);
        self.give_leaving();
        self.give_time_waits();
        self.report_unreachable();
        if self.engine.next_deadline().is_some_and(|deadline| deadline <= self.now) {
            self.engine.on_deadline(self.now);
        }
        rx
    }

    fn end_pass(&mut self, rx: usize, tx: usize, unsent: bool) -> PassReport {
        self.collect_tcp_events();
        let report = PassReport {
            rx,
            tx,
            events: !self.events.is_empty(),
            more: unsent || rx >= BURST || self.ip.has_looped(),
        };
        self.report.end(&report);
        self.report_if_due();
        report
    }

    /// Sends what socket calls have made ready, without receiving: for a program that would otherwise do
    /// something long before its next pass. Says how many frames went out.
    pub fn transmit(&mut self, now: Instant) -> usize {
        self.now = self.now.max(now);
        self.send_segments();
        self.io.flush().sent
    }

    /// When the next pass is due although nothing arrives.
    pub fn next_deadline(&self) -> Option<Instant> {
        [self.engine.next_deadline(), self.ip.next_deadline()].into_iter().flatten().min()
    }
}
