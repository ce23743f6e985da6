//! What a worker does about generations: at the top of each pass it gives away queues that are another's by now,
//! takes up those that it was given, answers the park order, and looks who else lives; and it reports what it
//! still holds.

use ff_flowmap::{FlowIndex, Owner, Publication};
use ff_handover::{DrainReport, Instance, InstanceError, WorkerWords};
use ff_tcp::Instant;

use crate::dispatch::Peer;
use crate::io::{PacketIo, WorkerRef};
use crate::stack::Stack;

/// Between two reports of a worker that owns a queue.
const REPORT_INTERVAL_US: u64 = 1_000_000;
/// Between two reports of one that does not: others wait for what is in them.
const DRAIN_INTERVAL_US: u64 = 20_000;

/// A worker's view of the directory.
pub struct Orders {
    instance: Instance<'static>,
    me: Owner,
    worker: WorkerRef,
    words: WorkerWords<'static>,
    /// Queues that this worker receives from.
    owned: Vec<u16>,
    /// Epochs by slot, as `others` of the view were made for.
    epochs: Vec<u32>,
    next_report: Instant,
    /// It has given away all that it owned.
    parked: bool,
    /// Nothing was done yet.
    fresh: bool,
}

impl Orders {
    /// The orders for `worker` of the instance, whose process is `me`. It owns no queue yet.
    ///
    /// # Errors
    /// The region has no such worker.
    pub fn new(instance: &Instance<'static>, me: Owner, worker: WorkerRef) -> Result<Self, InstanceError> {
        let directory = instance.directory();
        let (slot, index) = (usize::from(worker.slot), usize::from(worker.index));
        let words = directory.worker(slot, index).ok_or(InstanceError::NoWorker { slot, worker: index })?;
        Ok(Self {
            instance: *instance,
            me,
            worker,
            words,
            owned: Vec::new(),
            epochs: vec![0; directory.slot_count()],
            next_report: Instant(0),
            parked: false,
            fresh: true,
        })
    }

    /// The worker that took this one's queues over, once it has none: of the same index, and READY.
    pub(crate) fn successor(&self) -> Option<WorkerRef> {
        let directory = self.instance.directory();
        let receiver = directory.receiver().filter(|receiver| receiver.epoch > self.me.epoch)?;
        directory.ready_worker(receiver, usize::from(self.worker.index))?;
        self.parked.then_some(WorkerRef { slot: receiver.slot as u16, index: self.worker.index })
    }

    /// A newer generation has the receive side: whatever comes for the first time goes there.
    pub(crate) fn is_superseded(&self) -> bool {
        let receiver = self.instance.directory().receiver();
        self.parked && receiver.is_some_and(|receiver| receiver.epoch > self.me.epoch)
    }

    /// Readers of the tables of all workers of the other generations that live; `None` when those are the same as
    /// at the last call.
    fn others(&mut self) -> Option<Vec<Peer>> {
        let directory = self.instance.directory();
        let mut changed = false;
        for (generation, known) in directory.generations().zip(&mut self.epochs) {
            let epoch = generation.epoch();
            changed |= epoch != *known;
            *known = epoch;
        }
        changed.then(|| {
            let mine = usize::from(self.worker.slot);
            let mut slots: Vec<usize> =
                (0..self.epochs.len()).filter(|slot| *slot != mine && self.epochs[*slot] != 0).collect();
            // The newest first: it has the most flows.
            slots.sort_by_key(|slot| std::cmp::Reverse(self.epochs[*slot]));
            let instance = self.instance;
            slots
                .into_iter()
                .flat_map(|slot| (0..directory.worker_count()).map(move |index| (slot, index)))
                .filter_map(|(slot, index)| {
                    Some(Peer {
                        worker: WorkerRef { slot: slot as u16, index: index as u16 },
                        tcp: instance.tcp_reader(slot, index).ok()?,
                        udp: instance.udp_reader(slot, index).ok()?,
                    })
                })
                .collect()
        })
    }
}

impl<P: PacketIo, I: FlowIndex> Stack<P, I> {
    /// The top of the pass: tells the others that we live, and does what they ask of us.
    pub(crate) fn read_orders(&mut self) {
        let last_poll = self.report.last_poll(self.now);
        self.report.begin(self.now);
        let Some(mut orders) = self.orders.take() else { return };
        self.follow(&mut orders, last_poll);
        if self.now >= orders.next_report {
            self.report_drain(&mut orders);
        }
        self.orders = Some(orders);
    }

    fn follow(&mut self, orders: &mut Orders, last_poll: Instant) {
        if let Some(others) = orders.others() {
            self.view.others = others;
        }
        let directory = orders.instance.directory();
        // Read before the queues: what is answered below covers all that was read before it.
        let order = directory.unanswered_order(orders.words);
        let mut changed = false;
        for (position, queue) in directory.queues().enumerate() {
            let number = position as u16;
            let held = orders.owned.contains(&number);
            if !queue.is_mine(orders.me) {
                if held {
                    // Fenced off as dead: the queue is another's.
                    orders.owned.retain(|owned| *owned != number);
                    self.io.set_owned_queues(&orders.owned);
                }
                continue;
            }
            match directory.successor_of(orders.me, position) {
                Some(successor) => {
                    // The last burst was finished and sent by the pass before this one. From here on the queue is
                    // not touched any more, and only then its word changes hands.
                    if held {
                        orders.owned.retain(|owned| *owned != number);
                        self.io.set_owned_queues(&orders.owned);
                    }
                    if orders.owned.is_empty() {
                        // Before the word: who sees it changed sees what is half done here.
                        self.report_drain(orders);
                        orders.parked = true;
                    }
                    queue.hand_to(orders.me, successor, last_poll.0);
                    if orders.parked {
                        self.publish_udp(Publication::Publishing { window: successor.epoch });
                    }
                }
                None if !held => {
                    orders.owned.push(number);
                    changed = true;
                }
                None => {}
            }
        }
        if changed {
            orders.parked = false;
            // Whoever had the queue before may have answered SYNs by cookies.
            self.engine.expect_cookies(self.now);
            self.publish_udp(Publication::None);
            self.io.set_owned_queues(&orders.owned);
            for queue in orders.owned.iter().filter_map(|queue| directory.queue(usize::from(*queue))) {
                queue.first_poll(orders.me, self.now.0);
            }
        }
        if let Some(order) = order {
            orders.words.answer_park(order);
        }
        orders.fresh = false;
    }

    fn report_drain(&mut self, orders: &mut Orders) {
        let draining = orders.owned.is_empty() && !orders.fresh;
        orders.next_report = self.now + if draining { DRAIN_INTERVAL_US } else { REPORT_INTERVAL_US };
        let (mut conns, mut unsent_bytes) = (0, 0);
        if draining {
            for conn in self.engine.connections().filter(|conn| !conn.unaccepted) {
                conns += 1;
                unsent_bytes += u64::from(conn.unsent_bytes);
            }
        } else {
            conns = self.engine.conn_count() as u64;
        }
        let report = DrainReport {
            conns,
            unsent_bytes,
            half_open: (self.engine.request_count() + self.accept_queue_len()) as u64,
            udp_flows: 0,
        };
        orders.words.report_drain(orders.me.epoch, report, self.now.0);
    }
}
