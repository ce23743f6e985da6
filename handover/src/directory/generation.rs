//! The words of a generation.

use ff_flowmap::Line;
use ff_flowmap::sync::{AtomicU64, Ordering};

use crate::machine::ReloadState;
use crate::words::{EpochSlot, GenerationState};

/// Lines of a generation.
pub(crate) const GENERATION_LINES: usize = 2;

const EPOCH: usize = 0;
const STATE: usize = 1;
const MASTER_PID: usize = 2;
const FLAGS: usize = 3;
const STARTED_US: usize = 4;
const READY_US: usize = 5;
const STATE_SINCE_US: usize = 6;
const DEADLINE_US: usize = 7;

/// The second line: the attempt that this generation is.
const ATTEMPT: usize = 8;
const PREDECESSOR: usize = 9;
const ATTEMPT_SINCE_US: usize = 10;
const STEPS: usize = 11;
const END: usize = 12; // one past the last word

/// The generation in one slot. Writer of all of it: the coordinator.
#[derive(Clone, Copy, Debug)]
pub struct GenerationWords<'m> {
    lines: &'m [Line],
}

impl<'m> GenerationWords<'m> {
    pub(crate) fn over(lines: &'m [Line]) -> Self {
        Self { lines }
    }

    fn word(&self, position: usize) -> &'m AtomicU64 {
        self.lines[position / 8].word(position % 8)
    }

    /// Its epoch; 0 in a free slot. Acquire.
    pub fn epoch(&self) -> u32 {
        self.word(EPOCH).load(Ordering::Acquire) as u32
    }

    /// What it is doing, for people: follows from the attempts, see
    /// [`crate::coordinator::Words::role`]. Acquire.
    pub fn state(&self) -> GenerationState {
        GenerationState::from_number(self.word(STATE).load(Ordering::Acquire))
    }

    /// Since when.
    pub fn state_since_us(&self) -> u64 {
        self.word(STATE_SINCE_US).load(Ordering::Relaxed)
    }

    /// The nginx master that forked its workers.
    pub fn master_pid(&self) -> u32 {
        self.word(MASTER_PID).load(Ordering::Relaxed) as u32
    }

    /// Bits for the coordinator; 0 when the slot is taken.
    pub fn flags(&self) -> u64 {
        self.word(FLAGS).load(Ordering::Relaxed)
    }

    /// When its slot was taken.
    pub fn started_us(&self) -> u64 {
        self.word(STARTED_US).load(Ordering::Relaxed)
    }

    /// When all its workers were READY; 0 before.
    pub fn ready_us(&self) -> u64 {
        self.word(READY_US).load(Ordering::Relaxed)
    }

    /// When the current state has to end; 0 for no deadline.
    pub fn deadline_us(&self) -> u64 {
        self.word(DEADLINE_US).load(Ordering::Relaxed)
    }

    /// Where the attempt stands that this generation is: durable. Acquire. A
    /// state that this version does not know counts as giving back: the way to
    /// one serving generation that is right from everywhere.
    pub fn attempt(&self) -> ReloadState {
        let number = self.word(ATTEMPT).load(Ordering::Acquire);
        u32::try_from(number).ok().and_then(ReloadState::from_number).unwrap_or(ReloadState::GivingBack)
    }

    /// Since when.
    pub fn attempt_since_us(&self) -> u64 {
        self.word(ATTEMPT_SINCE_US).load(Ordering::Relaxed)
    }

    /// The generation that it follows; `None` for the first.
    pub fn predecessor(&self) -> Option<EpochSlot> {
        EpochSlot::from_word(self.word(PREDECESSOR).load(Ordering::Relaxed))
    }

    /// How many things were done so far of those that its state does one after
    /// the other (QUIT, TERM, KILL).
    pub fn steps(&self) -> u32 {
        self.word(STEPS).load(Ordering::Acquire) as u32
    }

    /// Takes the slot for the generation of `epoch`, which follows
    /// `predecessor`: attempt T1, the epoch stored last.
    pub fn begin(&self, epoch: u32, predecessor: Option<EpochSlot>, master_pid: u32, now_us: u64) {
        self.free(now_us);
        self.word(MASTER_PID).store(u64::from(master_pid), Ordering::Relaxed);
        self.word(PREDECESSOR).store(predecessor.map_or(0, EpochSlot::word), Ordering::Relaxed);
        self.word(STARTED_US).store(now_us, Ordering::Relaxed);
        self.set_attempt(ReloadState::Spawning, now_us);
        self.set_state(GenerationState::Spawning, now_us);
        self.word(EPOCH).store(u64::from(epoch), Ordering::Release);
    }

    /// Frees the slot: the epoch goes first.
    pub fn free(&self, now_us: u64) {
        self.word(EPOCH).store(0, Ordering::Release);
        for position in (0..END).filter(|position| *position != EPOCH) {
            self.word(position).store(0, Ordering::Relaxed);
        }
        self.set_state(GenerationState::Free, now_us);
    }

    /// Moves the attempt to `state`, with no step of it done.
    pub fn set_attempt(&self, state: ReloadState, now_us: u64) {
        self.word(STEPS).store(0, Ordering::Relaxed);
        self.word(ATTEMPT_SINCE_US).store(now_us, Ordering::Relaxed);
        self.word(ATTEMPT).store(u64::from(state.number()), Ordering::Release);
    }

    /// Notes that one more step of the state is done, and when.
    pub fn set_steps(&self, steps: u32, now_us: u64) {
        self.word(ATTEMPT_SINCE_US).store(now_us, Ordering::Relaxed);
        self.word(STEPS).store(u64::from(steps), Ordering::Release);
    }

    /// Moves to `state`.
    pub fn set_state(&self, state: GenerationState, now_us: u64) {
        self.word(STATE_SINCE_US).store(now_us, Ordering::Relaxed);
        self.word(STATE).store(state.number(), Ordering::Release);
    }

    /// Stores when all its workers were READY.
    pub fn set_ready_us(&self, now_us: u64) {
        self.word(READY_US).store(now_us, Ordering::Relaxed);
    }

    /// Stores when the current state has to end.
    pub fn set_deadline_us(&self, deadline_us: u64) {
        self.word(DEADLINE_US).store(deadline_us, Ordering::Relaxed);
    }

    /// Stores the flags.
    pub fn set_flags(&self, flags: u64) {
        self.word(FLAGS).store(flags, Ordering::Relaxed);
    }
}

/// Positions that make up the layout of a generation's line.
pub(crate) const GENERATION_LAYOUT: [u64; 14] = [
    GENERATION_LINES as u64,
    EPOCH as u64,
    STATE as u64,
    MASTER_PID as u64,
    FLAGS as u64,
    STARTED_US as u64,
    READY_US as u64,
    STATE_SINCE_US as u64,
    DEADLINE_US as u64,
    ATTEMPT as u64,
    PREDECESSOR as u64,
    ATTEMPT_SINCE_US as u64,
    STEPS as u64,
    END as u64,
];
