//! When requests are due: constant rate, open loop.
//!
//! A request that cannot start when it is due starts late, and its latency counts from when it was due; otherwise a
//! stalled server would be asked less just when it is slow.

/// The times of requests at a constant rate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Schedule {
    start_us: u64,
    rate_per_s: f64,
    taken: u64,
}

impl Schedule {
    /// `rate_per_s` requests a second from `start_us` on; above 0.
    pub fn new(start_us: u64, rate_per_s: f64) -> Self {
        Self { start_us, rate_per_s, taken: 0 }
    }

    /// When the next request is due. No rounding accumulates: it is computed from the start.
    pub fn next_us(&self) -> u64 {
        self.start_us + (self.taken as f64 * 1e6 / self.rate_per_s) as u64
    }

    /// Takes the next request if it is due at `now_us`, and gives its intended time.
    pub fn take(&mut self, now_us: u64) -> Option<u64> {
        let due_us = self.next_us();
        if due_us > now_us {
            return None;
        }
        self.taken += 1;
        Some(due_us)
    }

    /// Requests that are due at `now_us` and not taken.
    pub fn overdue(&self, now_us: u64) -> u64 {
        let due = 1 + (now_us.saturating_sub(self.start_us) as f64 * self.rate_per_s / 1e6) as u64;
        due.saturating_sub(self.taken)
    }
}

#[cfg(test)]
mod tests;
