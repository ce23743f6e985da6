//! The words of a generation.

use ff_flowmap::Line;
use ff_flowmap::sync::Ordering;

use crate::words::GenerationState;

/// Lines of a generation.
pub(crate) const GENERATION_LINES: usize = 1;

const EPOCH: usize = 0;
const STATE: usize = 1;
const MASTER_PID: usize = 2;
const FLAGS: usize = 3;
const STARTED_US: usize = 4;
const READY_US: usize = 5;
const STATE_SINCE_US: usize = 6;
const DEADLINE_US: usize = 7;

/// The generation in one slot. Writer of all of it: the coordinator.
#[derive(Clone, Copy, Debug)]
pub struct GenerationWords<'m> {
    line: &'m Line,
}

impl<'m> GenerationWords<'m> {
    pub(crate) fn over(line: &'m Line) -> Self {
        Self { line }
    }

    /// Its epoch; 0 in a slot that was never used. Acquire.
    pub fn epoch(&self) -> u32 {
        self.line.word(EPOCH).load(Ordering::Acquire) as u32
    }

    /// What it is doing. Acquire.
    pub fn state(&self) -> GenerationState {
        GenerationState::from_number(self.line.word(STATE).load(Ordering::Acquire))
    }

    /// Since when.
    pub fn state_since_us(&self) -> u64 {
        self.line.word(STATE_SINCE_US).load(Ordering::Relaxed)
    }

    /// The nginx master that forked its workers.
    pub fn master_pid(&self) -> u32 {
        self.line.word(MASTER_PID).load(Ordering::Relaxed) as u32
    }

    /// Bits for the coordinator; 0 when the slot is taken.
    pub fn flags(&self) -> u64 {
        self.line.word(FLAGS).load(Ordering::Relaxed)
    }

    /// When its slot was taken.
    pub fn started_us(&self) -> u64 {
        self.line.word(STARTED_US).load(Ordering::Relaxed)
    }

    /// When all its workers were READY; 0 before.
    pub fn ready_us(&self) -> u64 {
        self.line.word(READY_US).load(Ordering::Relaxed)
    }

    /// When the current state has to end; 0 for no deadline.
    pub fn deadline_us(&self) -> u64 {
        self.line.word(DEADLINE_US).load(Ordering::Relaxed)
    }

    /// Takes the slot for the generation of `epoch`: state spawning, stored last.
    pub fn begin(&self, epoch: u32, master_pid: u32, now_us: u64) {
        self.line.word(STATE).store(GenerationState::Free.number(), Ordering::Release);
        self.line.word(EPOCH).store(u64::from(epoch), Ordering::Release);
        self.line.word(MASTER_PID).store(u64::from(master_pid), Ordering::Relaxed);
        self.line.word(FLAGS).store(0, Ordering::Relaxed);
        self.line.word(STARTED_US).store(now_us, Ordering::Relaxed);
        self.line.word(READY_US).store(0, Ordering::Relaxed);
        self.line.word(DEADLINE_US).store(0, Ordering::Relaxed);
        self.set_state(GenerationState::Spawning, now_us);
    }

    /// Moves to `state`.
    pub fn set_state(&self, state: GenerationState, now_us: u64) {
        self.line.word(STATE_SINCE_US).store(now_us, Ordering::Relaxed);
        self.line.word(STATE).store(state.number(), Ordering::Release);
    }

    /// Stores when all its workers were READY.
    pub fn set_ready_us(&self, now_us: u64) {
        self.line.word(READY_US).store(now_us, Ordering::Relaxed);
    }

    /// Stores when the current state has to end.
    pub fn set_deadline_us(&self, deadline_us: u64) {
        self.line.word(DEADLINE_US).store(deadline_us, Ordering::Relaxed);
    }

    /// Stores the flags.
    pub fn set_flags(&self, flags: u64) {
        self.line.word(FLAGS).store(flags, Ordering::Relaxed);
    }
}

/// Positions that make up the layout of a generation's line.
pub(crate) const GENERATION_LAYOUT: [u64; 9] = [
    GENERATION_LINES as u64,
    EPOCH as u64,
    STATE as u64,
    MASTER_PID as u64,
    FLAGS as u64,
    STARTED_US as u64,
    READY_US as u64,
    STATE_SINCE_US as u64,
    DEADLINE_US as u64,
];
