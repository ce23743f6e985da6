//! Pacing of respawns: nginx's master forks a new worker the moment one dies, for ever. A worker that dies right after
//! its start gets its successor's attach delayed, twice as long each time, so that a crash loop costs nothing.

/// A worker that lived shorter than this after its attach counts as having failed.
const HEALTHY_AFTER_US: u64 = 1_000_000;
/// First delay.
const DELAY_FIRST_US: u64 = 10_000;
/// Longest delay.
const DELAY_MAX_US: u64 = 1_000_000;

/// Of one place, or of those who are refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pacing {
    failures: u32,
    not_before_us: u64,
}

impl Pacing {
    /// A process that had begun at `began_us` has ended, or was refused, at `now_us`.
    pub fn ended(&mut self, began_us: u64, now_us: u64) {
        if now_us.saturating_sub(began_us) >= HEALTHY_AFTER_US {
            *self = Self::default();
            return;
        }
        // Beyond seven doublings the maximum is reached.
        let delay_us = (DELAY_FIRST_US << self.failures.min(16)).min(DELAY_MAX_US);
        self.failures = self.failures.saturating_add(1);
        self.not_before_us = now_us + delay_us;
    }

    /// When the next one is answered: now, or later.
    pub fn answer_at_us(&self, now_us: u64) -> u64 {
        self.not_before_us.max(now_us)
    }

    /// Ends in a row that came too early.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_a_second() {
        let mut pacing = Pacing::default();
        let mut now_us = 5_000_000;
        assert_eq!(pacing.answer_at_us(now_us), now_us);
        let mut delays = Vec::new();
        for _ in 0..40 {
            pacing.ended(now_us, now_us + 100);
            now_us = pacing.answer_at_us(now_us + 100);
            delays.push(now_us);
        }
        let steps: Vec<u64> = delays.windows(2).map(|pair| pair[1] - pair[0] - 100).collect();
        assert_eq!(&steps[..7], &[20_000, 40_000, 80_000, 160_000, 320_000, 640_000, 1_000_000]);
        assert!(steps[7..].iter().all(|step| *step == 1_000_000));
    }

    #[test]
    fn who_lived_is_not_paced() {
        let mut pacing = Pacing::default();
        pacing.ended(0, 999_999);
        assert_eq!((pacing.failures(), pacing.answer_at_us(999_999)), (1, 1_009_999));
        pacing.ended(0, 1_000_000);
        assert_eq!((pacing.failures(), pacing.answer_at_us(1_000_000)), (0, 1_000_000));
    }
}
