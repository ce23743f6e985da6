//! Who owns something in shared memory.

use std::fmt;

/// An owner's tag: what is found after a kill can be traced to a generation
/// (`epoch`) and a process (`pid`) and, when that is dead, reclaimed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Owner {
    /// Epoch of the generation; 0 for the primary. Epochs grow by one and are
    /// never reused, which tells apart two processes with one process id.
    pub epoch: u32,
    /// Process id, never 0.
    pub pid: u32,
}

impl Owner {
    /// The tag as one word: epoch in the upper half, pid in the lower.
    pub const fn word(self) -> u64 {
        ((self.epoch as u64) << 32) | self.pid as u64
    }

    /// The owner that `word` names; `None` for nobody (pid 0).
    pub const fn from_word(word: u64) -> Option<Self> {
        let pid = (word & 0xffff_ffff) as u32;
        if pid == 0 { None } else { Some(Self { epoch: (word >> 32) as u32, pid }) }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {} of epoch {}", self.pid, self.epoch)
    }
}
