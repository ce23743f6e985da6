//! The loop that joins conversations to a network: opens, sends, reads, counts. It reads no clock: time comes in with
//! each step.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use crate::conversation::{Answer, Conversation, Job};
use crate::failure::Failure;
use crate::network::{Network, Received};
use crate::request::Target;
use crate::schedule::Schedule;
use crate::statistics::{Statistics, Window};

/// Bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;
/// First wait before a connection that failed is tried again; it doubles up to [`RETRY_US_MAX`].
const RETRY_US: u64 = 1_000;
const RETRY_US_MAX: u64 = 100_000;
/// Connections opened in one step, so that answers do not wait behind them.
const OPENS_PER_STEP: usize = 64;
/// How long the end waits for the server's acknowledgements of closed connections.
const LINGER_US: u64 = 2_000_000;

/// What load is made.
#[derive(Debug, Clone)]
pub struct Load {
    /// Where to; connection i goes to number i modulo their count. At least one.
    pub remotes: Vec<SocketAddr>,
    /// From where; connection i from number i modulo the count of those of the remote's family. Empty: the network
    /// chooses.
    pub sources: Vec<IpAddr>,
    /// Connections at once, at least 1.
    pub connections: usize,
    /// Requests on one connection, at least 1; `u32::MAX` is as many as there are.
    pub requests_per_connection: u32,
    /// Requests a second, open loop; `None`: every connection asks again as soon as it has its answer.
    pub rate_per_s: Option<f64>,
    /// Time before anything is measured, in microseconds.
    pub warmup_us: u64,
    /// Time in which requests begin and are measured, in microseconds.
    pub duration_us: u64,
    /// Requests begun at most.
    pub requests_max: u64,
    /// Longest wait for an answer, in microseconds.
    pub timeout_us: u64,
    /// Handshakes at once at most, at least 1.
    pub handshakes_max: usize,
    /// Header whose values are remembered by time.
    pub record_header: Option<String>,
    /// Step of the timeline in microseconds; 0 keeps none.
    pub interval_us: u64,
}

/// A place for a connection.
struct Slot<C> {
    open: Option<Open<C>>,
    /// Number of the connection in this place: events of an earlier one are told by it.
    number: u32,
    /// Failures in a row.
    failed: u32,
}

struct Open<C> {
    conn: C,
    conversation: Conversation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Requests begin.
    Running,
    /// Those that began get their answers.
    Draining,
    /// Connections are closed; the server's acknowledgements are waited for, until then.
    Lingering {
        until_us: u64,
    },
    Done,
}

/// What a step did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// There was something to do.
    pub busy: bool,
    /// The run is over; further steps do nothing.
    pub done: bool,
}

/// A run.
pub struct Driver<N: Network> {
    network: N,
    load: Load,
    targets: Vec<Target>,
    statistics: Statistics,
    slots: Vec<Slot<N::Conn>>,
    /// Places that may begin a request, the longest idle first.
    idle: VecDeque<u32>,
    /// Places that wait after a failure, by when they may go on.
    resting: BinaryHeap<Reverse<(u64, u32)>>,
    schedule: Option<Schedule>,
    stage: Stage,
    next_target: usize,
    handshakes: usize,
    /// Connections that something is waited for on.
    waiting: usize,
    /// Where the search for overdue answers goes on.
    overdue_at: usize,
    buffer: Box<[u8]>,
}

impl<N: Network> Driver<N> {
    /// A run that starts at `now_us`.
    ///
    /// # Panics
    /// If there is no target, no remote address or no connection.
    pub fn new(network: N, load: Load, targets: Vec<Target>, now_us: u64) -> Self {
        assert!(!targets.is_empty() && !load.remotes.is_empty() && load.connections > 0);
        let from_us = now_us.saturating_add(load.warmup_us);
        let window = Window { start_us: now_us, from_us, to_us: from_us.saturating_add(load.duration_us) };
        let count = load.connections.min(u32::MAX as usize);
        Self {
            network,
            statistics: Statistics::new(window, load.interval_us),
            slots: (0..count).map(|_| Slot { open: None, number: 0, failed: 0 }).collect(),
            idle: (0..count as u32).collect(),
            resting: BinaryHeap::new(),
            schedule: load.rate_per_s.map(|rate| Schedule::new(now_us, rate)),
            stage: Stage::Running,
            next_target: 0,
            handshakes: 0,
            waiting: 0,
            overdue_at: 0,
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            load,
            targets,
        }
    }

    /// What was counted so far.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// The network.
    pub fn network(&self) -> &N {
        &self.network
    }

    /// The network and what was counted, after the run.
    pub fn into_parts(mut self) -> (N, Statistics) {
        self.statistics.end_interval();
        (self.network, self.statistics)
    }

    /// No request becomes due any more; the run ends when those that are due by now have their answers.
    pub fn stop(&mut self, now_us: u64) {
        if self.stage == Stage::Running {
            self.statistics.end_window(now_us);
            self.stage = Stage::Draining;
        }
    }

    /// When the next step is due although nothing arrives, microseconds; the network's own deadlines not included.
    pub fn next_us(&self) -> Option<u64> {
        self.schedule.as_ref().filter(|_| self.stage == Stage::Running).map(Schedule::next_us)
    }

    /// One step at `now_us`, which never goes back.
    pub fn step(&mut self, now_us: u64) -> Step {
        let mut busy = self.network.take_in(now_us);
        while let Some(event) = self.network.next_event() {
            busy = true;
            self.event(now_us, event.user, event.readable);
        }
        self.wake_rested(now_us);
        match self.stage {
            Stage::Running => {
                busy |= self.begin_requests(now_us, now_us);
                let window = self.statistics.window();
                if now_us >= window.to_us {
                    self.stop(window.to_us);
                } else if self.statistics.begun >= self.load.requests_max {
                    // The answers to the last requests are measured too.
                    self.stage = Stage::Draining;
                }
            }
            Stage::Draining => {
                let end_us = self.statistics.window().to_us;
                let mut not_begun = 0;
                if let Some(schedule) = self.schedule {
                    let left = self.load.requests_max - self.statistics.begun;
                    not_begun = schedule.overdue(end_us.min(now_us)).min(left);
                }
                if not_begun > 0 && now_us.saturating_sub(end_us) <= self.load.timeout_us {
                    // They were due in time and only waited for a connection.
                    busy |= self.begin_requests(now_us, end_us);
                } else if self.waiting == 0 {
                    self.statistics.not_begun = not_begun;
                    self.statistics.end_window(now_us);
                    self.close_all(now_us);
                }
            }
            Stage::Lingering { until_us } => {
                if now_us >= until_us || self.network.lingering() == 0 {
                    self.stage = Stage::Done;
                }
            }
            Stage::Done => {}
        }
        self.find_overdue(now_us);
        busy |= self.network.send_out(now_us);
        Step { busy, done: self.stage == Stage::Done }
    }

    /// Begins what is due by `due_us` and has a place to begin on. True if anything began.
    fn begin_requests(&mut self, now_us: u64, due_us: u64) -> bool {
        let mut opens = 0;
        let mut began = false;
        // Each place at most once: one whose connection cannot be opened goes back to the end of the line.
        for _ in 0..self.idle.len() {
            if self.statistics.begun >= self.load.requests_max {
                break;
            }
            let Some(&place) = self.idle.front() else { break };
            let is_open = self.slots[place as usize].open.is_some();
            if !is_open && (opens == OPENS_PER_STEP || self.handshakes >= self.load.handshakes_max) {
                break;
            }
            let intended_us = match &mut self.schedule {
                None => now_us,
                Some(schedule) => match schedule.take(due_us) {
                    None => break,
                    Some(due_us) => due_us,
                },
            };
            self.idle.pop_front();
            let job = Job { target: self.next_target, intended_us };
            self.next_target = (self.next_target + 1) % self.targets.len();
            self.statistics.begun += 1;
            began = true;
            if is_open {
                self.ask(now_us, place, job);
            } else {
                opens += 1;
                self.open(now_us, place, job);
            }
        }
        began
    }

    fn ask(&mut self, now_us: u64, place: u32, job: Job) {
        let Some(open) = &mut self.slots[place as usize].open else { return };
        open.conversation.begin(now_us, job);
        self.waiting += 1;
        self.send(now_us, place);
    }

    fn open(&mut self, now_us: u64, place: u32, job: Job) {
        let load = &self.load;
        let remote = load.remotes[place as usize % load.remotes.len()];
        let of_family = load.sources.iter().filter(|source| source.is_ipv4() == remote.is_ipv4());
        let source = match of_family.clone().count() {
            0 => None,
            count => of_family.copied().nth(place as usize % count),
        };
        let slot = &mut self.slots[place as usize];
        slot.number = slot.number.wrapping_add(1);
        let user = u64::from(slot.number) << 32 | u64::from(place);
        match self.network.open(source, remote, user) {
            Ok(conn) => {
                let conversation = Conversation::open(now_us, load.requests_per_connection, job);
                slot.open = Some(Open { conn, conversation });
                self.statistics.opened += 1;
                self.handshakes += 1;
                self.waiting += 1;
            }
            Err(failure) => {
                self.statistics.failed(now_us, now_us, failure, false);
                self.rest(now_us, place);
            }
        }
    }

    fn event(&mut self, now_us: u64, user: u64, readable: bool) {
        let place = user as u32;
        let number = (user >> 32) as u32;
        let Some(slot) = self.slots.get_mut(place as usize).filter(|slot| slot.number == number) else {
            return;
        };
        let Some(open) = &mut slot.open else { return };
        if open.conversation.is_opening() {
            // Established or failed: the first read tells. A network gives no event for less.
            if readable && !self.receive(now_us, place) {
                return;
            }
            let slot = &mut self.slots[place as usize];
            let Some(open) = &mut slot.open else { return };
            if open.conversation.set_established() {
                self.handshakes -= 1;
                slot.failed = 0;
                self.statistics.connected(now_us, open.conversation.opened_us());
            }
            self.send(now_us, place);
            return;
        }
        if readable && !self.receive(now_us, place) {
            return;
        }
        self.send(now_us, place);
    }

    /// Sends what there is of the request.
    fn send(&mut self, now_us: u64, place: u32) {
        let Some(open) = &mut self.slots[place as usize].open else { return };
        loop {
            let unsent = open.conversation.unsent(&self.targets);
            if unsent.is_empty() {
                return;
            }
            match self.network.send(open.conn, unsent) {
                Ok(0) => return,
                Ok(len) => open.conversation.sent(len),
                Err(failure) => return self.fail(now_us, place, failure),
            }
        }
    }

    /// Reads all there is. False when the connection is gone.
    fn receive(&mut self, now_us: u64, place: u32) -> bool {
        loop {
            let Some(open) = &mut self.slots[place as usize].open else { return false };
            let record_header = self.load.record_header.as_deref();
            match self.network.receive(open.conn, &mut self.buffer) {
                Ok(Received::Nothing) => return true,
                Ok(Received::Bytes(len)) => {
                    let bytes = &self.buffer[..len];
                    match open.conversation.receive(now_us, bytes, &mut self.targets, record_header) {
                        Ok(None) => {}
                        Ok(Some(answer)) => self.answered(now_us, place, &answer),
                        Err(failure) => {
                            self.fail(now_us, place, failure);
                            return false;
                        }
                    }
                }
                Ok(Received::End) => {
                    match open.conversation.end(&mut self.targets, record_header) {
                        Ok(answer) => self.ended(now_us, place, answer),
                        Err(failure) => self.fail(now_us, place, failure),
                    }
                    return false;
                }
                Err(failure) => {
                    self.fail(now_us, place, failure);
                    return false;
                }
            }
        }
    }

    fn answered(&mut self, now_us: u64, place: u32, answer: &Answer) {
        let Some(open) = &self.slots[place as usize].open else { return };
        let conversation = &open.conversation;
        let version = self.load.record_header.as_ref().map(|_| conversation.recorded());
        self.statistics.answered(now_us, conversation.opened_us(), answer, version);
        if conversation.is_idle() {
            self.waiting -= 1;
            self.idle.push_back(place);
        }
    }

    /// The server has closed, as it may.
    fn ended(&mut self, now_us: u64, place: u32, answer: Option<Answer>) {
        let was_idle =
            self.slots[place as usize].open.as_ref().is_some_and(|open| open.conversation.is_idle());
        if let Some(answer) = answer {
            self.answered(now_us, place, &answer);
        }
        let Some(open) = self.slots[place as usize].open.take() else { return };
        self.network.close(open.conn);
        if was_idle {
            // The place is in the line already, and opens anew when its turn comes.
            self.statistics.idle_closed += 1;
        } else {
            self.waiting -= 1;
            self.idle.push_back(place);
        }
    }

    fn fail(&mut self, now_us: u64, place: u32, failure: Failure) {
        let Some(open) = self.slots[place as usize].open.take() else { return };
        let conversation = &open.conversation;
        self.network.abort(open.conn);
        if conversation.is_opening() {
            self.handshakes -= 1;
        }
        if conversation.is_idle() {
            // Its place is in the line already. Bytes that nobody asked for are wrong, an end is the server's right.
            if failure == Failure::WrongBytes {
                self.statistics.failed(now_us, conversation.opened_us(), failure, true);
            } else {
                self.statistics.idle_closed += 1;
            }
            return;
        }
        self.waiting -= 1;
        if conversation.is_closing() && failure != Failure::WrongBytes && failure != Failure::Timeout {
            // Every byte of the answer is there, and the connection was to end.
            self.idle.push_back(place);
            return;
        }
        self.statistics.failed(now_us, conversation.opened_us(), failure, !conversation.is_opening());
        self.rest(now_us, place);
    }

    /// Keeps a place from failing again and again at full speed.
    fn rest(&mut self, now_us: u64, place: u32) {
        let slot = &mut self.slots[place as usize];
        let wait_us = (RETRY_US << slot.failed.min(10)).min(RETRY_US_MAX);
        slot.failed += 1;
        self.resting.push(Reverse((now_us + wait_us, place)));
    }

    fn wake_rested(&mut self, now_us: u64) {
        while let Some(&Reverse((at_us, place))) = self.resting.peek()
            && at_us <= now_us
        {
            self.resting.pop();
            self.idle.push_back(place);
        }
    }

    /// Looks at some connections for answers that do not come: all of them within a small part of the time allowed.
    fn find_overdue(&mut self, now_us: u64) {
        if self.waiting == 0 {
            return;
        }
        for _ in 0..(self.slots.len() / 256 + 1) {
            let place = self.overdue_at;
            self.overdue_at = (self.overdue_at + 1) % self.slots.len();
            let Some(open) = &self.slots[place].open else { continue };
            let since_us = open.conversation.waiting_since_us();
            if since_us.is_some_and(|since_us| now_us.saturating_sub(since_us) > self.load.timeout_us) {
                self.fail(now_us, place as u32, Failure::Timeout);
            }
        }
    }

    fn close_all(&mut self, now_us: u64) {
        for slot in &mut self.slots {
            if let Some(open) = slot.open.take() {
                self.network.close(open.conn);
            }
        }
        self.stage = Stage::Lingering { until_us: now_us + LINGER_US };
    }
}

#[cfg(test)]
mod tests;
