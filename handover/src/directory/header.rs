//! The words of the instance as a whole.

use ff_flowmap::sync::Ordering;
use ff_flowmap::{HashKey, Line, Owner};

use crate::words::{EpochSlot, FsmWord, ParkWord};

/// Line 0: who and what.
const IDENTITY: usize = 0;
const PRIMARY_PID: usize = 0;
const STARTED_US: usize = 1;
const WORKERS: usize = 2;
const SLOTS: usize = 3;
const DEVICE_DIGEST: usize = 4;
const TCP_CAPACITY: usize = 5;
const UDP_CAPACITY: usize = 6;
const NEIGHBOUR_CAPACITY: usize = 7;

/// Line 1: the name, filled up with zero bytes.
const NAME: usize = 1;

/// Line 2: four keys of two words.
const SECRETS: usize = 2;

/// Line 3: what the coordinator tells; every worker reads it in every pass.
const COORDINATOR: usize = 3;
const PARK_ORDER: usize = 0;
const ACTIVE: usize = 1;
const TARGET: usize = 2;
const FSM: usize = 3;
const NEXT_EPOCH: usize = 4;
const WINDOW_OPENED_US: usize = 5;
const FSM_ENTERED_US: usize = 6;
const PRIMARY_HEARTBEAT_US: usize = 7;

/// Lines of these words.
pub(crate) const INSTANCE_LINES: usize = 4;

/// Bytes of an instance's name at most.
pub const NAME_BYTES_MAX: usize = 64;

/// The keys that all generations share, random bytes of the primary.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secrets {
    /// For initial sequence numbers (RFC 6528).
    pub isn: HashKey,
    /// For timestamp offsets (RFC 7323, section 5.4).
    pub timestamp: HashKey,
    /// For SYN cookies.
    pub cookie: HashKey,
    /// For the hash tables and the choice of ports.
    pub hash: HashKey,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets(..)")
    }
}

/// What is stored once, when the region is made.
#[derive(Clone, Debug)]
pub(crate) struct Identity<'a> {
    pub(crate) primary_pid: u32,
    pub(crate) started_us: u64,
    pub(crate) workers: u32,
    pub(crate) slots: u32,
    pub(crate) device_digest: u64,
    pub(crate) tcp_capacity: u32,
    pub(crate) udp_capacity: u32,
    pub(crate) neighbour_capacity: u32,
    pub(crate) name: &'a str,
    pub(crate) secrets: Secrets,
}

/// The words of the instance as a whole.
#[derive(Clone, Copy, Debug)]
pub struct InstanceWords<'m> {
    lines: &'m [Line],
}

impl<'m> InstanceWords<'m> {
    pub(super) fn over(lines: &'m [Line]) -> Self {
        Self { lines }
    }

    /// Only while the region is unfinished.
    pub(crate) fn write_identity(&self, identity: &Identity<'_>) {
        let numbers = [
            (PRIMARY_PID, u64::from(identity.primary_pid)),
            (STARTED_US, identity.started_us),
            (WORKERS, u64::from(identity.workers)),
            (SLOTS, u64::from(identity.slots)),
            (DEVICE_DIGEST, identity.device_digest),
            (TCP_CAPACITY, u64::from(identity.tcp_capacity)),
            (UDP_CAPACITY, u64::from(identity.udp_capacity)),
            (NEIGHBOUR_CAPACITY, u64::from(identity.neighbour_capacity)),
        ];
        for (position, number) in numbers {
            self.store(IDENTITY, position, number, Ordering::Relaxed);
        }
        let mut name = [0; NAME_BYTES_MAX];
        for (to, from) in name.iter_mut().zip(identity.name.bytes()) {
            *to = from;
        }
        self.store_bytes(NAME, &name);
        let secrets = &identity.secrets;
        let mut keys = [0; 64];
        for (to, from) in keys.as_chunks_mut::<16>().0.iter_mut().zip([
            secrets.isn,
            secrets.timestamp,
            secrets.cookie,
            secrets.hash,
        ]) {
            *to = from;
        }
        self.store_bytes(SECRETS, &keys);
        self.store(COORDINATOR, NEXT_EPOCH, 1, Ordering::Release);
    }

    /// The primary that made the region.
    pub fn primary_pid(&self) -> u32 {
        self.load(IDENTITY, PRIMARY_PID, Ordering::Relaxed) as u32
    }

    /// When it made it.
    pub fn started_us(&self) -> u64 {
        self.load(IDENTITY, STARTED_US, Ordering::Relaxed)
    }

    /// A primary that was started again, over a region that lives on, says so.
    /// Writer: the primary.
    pub fn set_primary(&self, pid: u32, started_us: u64) {
        self.store(IDENTITY, STARTED_US, started_us, Ordering::Relaxed);
        self.store(IDENTITY, PRIMARY_PID, u64::from(pid), Ordering::Release);
    }

    /// Workers of a generation, and receive queues.
    pub fn worker_count(&self) -> u32 {
        self.load(IDENTITY, WORKERS, Ordering::Relaxed) as u32
    }

    /// Slots for generations.
    pub fn slot_count(&self) -> u32 {
        self.load(IDENTITY, SLOTS, Ordering::Relaxed) as u32
    }

    /// Digest of the device-side keys of the configuration that it runs with.
    pub fn device_digest(&self) -> u64 {
        self.load(IDENTITY, DEVICE_DIGEST, Ordering::Relaxed)
    }

    pub(crate) fn capacities(&self) -> [u32; 3] {
        [TCP_CAPACITY, UDP_CAPACITY, NEIGHBOUR_CAPACITY]
            .map(|position| self.load(IDENTITY, position, Ordering::Relaxed) as u32)
    }

    /// The instance's name.
    pub fn name(&self) -> String {
        let bytes = self.load_bytes(NAME);
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }

    /// The keys that all generations share.
    pub fn secrets(&self) -> Secrets {
        let bytes = self.load_bytes(SECRETS);
        let [isn, timestamp, cookie, hash] = std::array::from_fn(|key| {
            let mut bytes_of_key = [0; 16];
            bytes_of_key.copy_from_slice(&bytes[key * 16..key * 16 + 16]);
            bytes_of_key
        });
        Secrets { isn, timestamp, cookie, hash }
    }

    /// The epoch that the next attempt gets. Acquire.
    pub fn next_epoch(&self) -> u32 {
        self.load(COORDINATOR, NEXT_EPOCH, Ordering::Acquire) as u32
    }

    /// Takes the next epoch: stored before it is used, so that a coordinator
    /// killed in between skips an epoch and never gives one twice. `None` once
    /// all 2³² − 1 are used up. Writer: the coordinator.
    pub fn take_epoch(&self) -> Option<u32> {
        let epoch = self.next_epoch();
        let next = epoch.checked_add(1)?;
        self.store(COORDINATOR, NEXT_EPOCH, u64::from(next), Ordering::Release);
        Some(epoch)
    }

    /// The generation that owns the receive side; `None` before the first. Acquire.
    pub fn active(&self) -> Option<EpochSlot> {
        EpochSlot::from_word(self.load(COORDINATOR, ACTIVE, Ordering::Acquire))
    }

    /// Writer: the coordinator. Release.
    pub fn set_active(&self, generation: Option<EpochSlot>) {
        self.store(COORDINATOR, ACTIVE, generation.map_or(0, EpochSlot::word), Ordering::Release);
    }

    /// The generation that is being started or takes over. Acquire.
    pub fn target(&self) -> Option<EpochSlot> {
        EpochSlot::from_word(self.load(COORDINATOR, TARGET, Ordering::Acquire))
    }

    /// Writer: the coordinator. Release.
    pub fn set_target(&self, generation: Option<EpochSlot>) {
        self.store(COORDINATOR, TARGET, generation.map_or(0, EpochSlot::word), Ordering::Release);
    }

    /// The machine's durable word. Acquire.
    pub fn fsm(&self) -> FsmWord {
        FsmWord::from_word(self.load(COORDINATOR, FSM, Ordering::Acquire))
    }

    /// Writer: the coordinator, before it acts on the new state. Release.
    pub fn set_fsm(&self, fsm: FsmWord, now_us: u64) {
        self.store(COORDINATOR, FSM_ENTERED_US, now_us, Ordering::Relaxed);
        self.store(COORDINATOR, FSM, fsm.word(), Ordering::Release);
    }

    /// When the machine entered its state.
    pub fn fsm_entered_us(&self) -> u64 {
        self.load(COORDINATOR, FSM_ENTERED_US, Ordering::Relaxed)
    }

    /// The order to hand queues over or back. Acquire: who sees it sees the
    /// target and its READY words.
    pub fn park_order(&self) -> Option<ParkWord> {
        ParkWord::from_word(self.load(COORDINATOR, PARK_ORDER, Ordering::Acquire))
    }

    /// Writer: the coordinator, after target and active. Release.
    pub fn set_park_order(&self, order: Option<ParkWord>) {
        self.store(COORDINATOR, PARK_ORDER, order.map_or(0, ParkWord::word), Ordering::Release);
    }

    /// When the window of the current or last handover was opened.
    pub fn window_opened_us(&self) -> u64 {
        self.load(COORDINATOR, WINDOW_OPENED_US, Ordering::Relaxed)
    }

    /// Writer: the coordinator.
    pub fn set_window_opened_us(&self, now_us: u64) {
        self.store(COORDINATOR, WINDOW_OPENED_US, now_us, Ordering::Relaxed);
    }

    /// When the primary was last seen at work.
    pub fn primary_heartbeat_us(&self) -> u64 {
        self.load(COORDINATOR, PRIMARY_HEARTBEAT_US, Ordering::Relaxed)
    }

    /// Writer: the primary.
    pub fn set_primary_heartbeat_us(&self, now_us: u64) {
        self.store(COORDINATOR, PRIMARY_HEARTBEAT_US, now_us, Ordering::Relaxed);
    }

    /// The primary as an owner of things: epoch 0.
    pub fn primary(&self) -> Owner {
        Owner { epoch: 0, pid: self.primary_pid() }
    }

    fn load(&self, line: usize, position: usize, ordering: Ordering) -> u64 {
        self.lines[line].word(position).load(ordering)
    }

    fn store(&self, line: usize, position: usize, value: u64, ordering: Ordering) {
        self.lines[line].word(position).store(value, ordering);
    }

    fn load_bytes(&self, line: usize) -> [u8; 64] {
        let mut bytes = [0; 64];
        for (position, chunk) in bytes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *chunk = self.load(line, position, Ordering::Relaxed).to_ne_bytes();
        }
        bytes
    }

    fn store_bytes(&self, line: usize, bytes: &[u8; 64]) {
        for (position, chunk) in bytes.as_chunks::<8>().0.iter().enumerate() {
            self.store(line, position, u64::from_ne_bytes(*chunk), Ordering::Relaxed);
        }
    }
}

/// Positions that make up the layout of these words.
pub(crate) const INSTANCE_LAYOUT: [u64; 21] = [
    INSTANCE_LINES as u64,
    IDENTITY as u64,
    PRIMARY_PID as u64,
    STARTED_US as u64,
    WORKERS as u64,
    SLOTS as u64,
    DEVICE_DIGEST as u64,
    TCP_CAPACITY as u64,
    UDP_CAPACITY as u64,
    NEIGHBOUR_CAPACITY as u64,
    NAME as u64,
    SECRETS as u64,
    COORDINATOR as u64,
    PARK_ORDER as u64,
    ACTIVE as u64,
    TARGET as u64,
    FSM as u64,
    NEXT_EPOCH as u64,
    WINDOW_OPENED_US as u64,
    FSM_ENTERED_US as u64,
    PRIMARY_HEARTBEAT_US as u64,
];
