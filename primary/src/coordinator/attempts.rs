//! What is to be told about reloads: those under way, and how the last one ended. The words in shared memory decide
//! what is done; nothing here does.

use ff_control::{HandoverStatus, LastReload, ReloadResult};
use ff_handover::EpochSlot;

/// Refused and aborted configurations that are remembered, so that whoever nginx starts for one of them again is told
/// at once.
const DISMISSED_MAX: usize = 16;

/// A reload under way.
#[derive(Debug, Clone, PartialEq)]
pub struct Begun {
    /// The new generation.
    pub new: EpochSlot,
    /// The one that it follows.
    pub old: EpochSlot,
    /// When its first worker came.
    pub begun_us: u64,
    /// When the new generation had all queues.
    pub handed_us: Option<u64>,
    /// When the old one was told to quit.
    pub settled_us: Option<u64>,
    /// How long queues were without a consumer.
    pub handover_us: HandoverStatus,
    /// The most packets found in an inbox of the old generation.
    pub ring_peak: u64,
    /// Packets forwarded to it so far.
    pub forwarded: u64,
    /// Why it is given up.
    pub reason: String,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Attempts {
    begun: Vec<Begun>,
    dismissed: Vec<(u32, u32, String)>,
    /// The last one that has ended.
    pub last: Option<LastReload>,
    /// How many have ended.
    pub ended: u64,
}

impl Attempts {
    /// A reload has begun.
    pub fn begin(&mut self, new: EpochSlot, old: EpochSlot, now_us: u64) {
        self.begun.push(Begun {
            new,
            old,
            begun_us: now_us,
            handed_us: None,
            settled_us: None,
            handover_us: HandoverStatus::default(),
            ring_peak: 0,
            forwarded: 0,
            reason: String::new(),
        });
    }

    /// The one whose new generation has this epoch.
    pub fn of_new(&mut self, epoch: u32) -> Option<&mut Begun> {
        self.begun.iter_mut().find(|begun| begun.new.epoch == epoch)
    }

    /// The one whose old generation has this epoch, and was relieved or is about to be.
    pub fn of_old(&mut self, epoch: u32) -> Option<&mut Begun> {
        self.begun.iter_mut().rev().find(|begun| begun.old.epoch == epoch)
    }

    /// The newest one under way.
    pub fn newest(&self) -> Option<&Begun> {
        self.begun.iter().max_by_key(|begun| begun.new.epoch)
    }

    /// All that are under way.
    pub fn under_way(&mut self) -> impl Iterator<Item = &mut Begun> {
        self.begun.iter_mut()
    }

    /// The reload to `epoch` has ended; what is to be logged of it.
    pub fn end(&mut self, epoch: u32, result: ReloadResult, now_us: u64) -> Option<&LastReload> {
        let position = self.begun.iter().position(|begun| begun.new.epoch == epoch)?;
        let begun = self.begun.remove(position);
        let since = |from_us: u64| now_us.saturating_sub(from_us) / 1_000;
        self.ended += 1;
        Some(self.last.insert(LastReload {
            epoch,
            result,
            reason: begun.reason,
            total_ms: since(begun.begun_us),
            handover_us: begun.handover_us,
            drain_ms: begun.handed_us.map_or(0, since),
            forwarded: begun.forwarded,
            relayed: 0,
            ring_peak: begun.ring_peak,
        }))
    }

    /// A reload was not begun.
    pub fn refuse(&mut self, reason: &str) {
        self.ended += 1;
        self.last = Some(LastReload {
            epoch: 0,
            result: ReloadResult::Refused,
            reason: reason.to_owned(),
            total_ms: 0,
            handover_us: HandoverStatus::default(),
            drain_ms: 0,
            forwarded: 0,
            relayed: 0,
            ring_peak: 0,
        });
    }

    /// Nobody of this master's configuration gets a place any more.
    pub fn dismiss(&mut self, master: u32, configuration: u32, reason: &str) {
        if self.dismissed(master, configuration).is_some() {
            return;
        }
        if self.dismissed.len() == DISMISSED_MAX {
            self.dismissed.remove(0);
        }
        self.dismissed.push((master, configuration, reason.to_owned()));
    }

    /// It serves after all.
    pub fn allow(&mut self, master: u32, configuration: u32) {
        self.dismissed.retain(|(of, number, _)| (*of, *number) != (master, configuration));
    }

    /// Why nobody of it does.
    pub fn dismissed(&self, master: u32, configuration: u32) -> Option<&str> {
        let (.., reason) =
            self.dismissed.iter().find(|(of, number, _)| (*of, *number) == (master, configuration))?;
        Some(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: EpochSlot = EpochSlot { epoch: 1, slot: 0 };
    const NEW: EpochSlot = EpochSlot { epoch: 2, slot: 1 };

    #[test]
    fn an_attempt_is_told_of_until_and_after_its_end() {
        let mut attempts = Attempts::default();
        attempts.begin(NEW, OLD, 1_000_000);
        attempts.of_new(2).unwrap().handed_us = Some(1_200_000);
        assert_eq!(attempts.of_old(1).unwrap().new, NEW);
        assert!(attempts.end(3, ReloadResult::Complete, 0).is_none());
        let last = attempts.end(2, ReloadResult::Complete, 1_500_000).unwrap();
        assert_eq!((last.total_ms, last.drain_ms), (500, 300));
        assert!(attempts.newest().is_none());
        assert_eq!(attempts.ended, 1);
    }

    #[test]
    fn the_oldest_dismissal_is_forgotten() {
        let mut attempts = Attempts::default();
        for configuration in 0..=DISMISSED_MAX as u32 {
            attempts.dismiss(7, configuration, "broken");
        }
        assert_eq!(attempts.dismissed(7, 0), None);
        assert_eq!(attempts.dismissed(7, 1), Some("broken"));
        assert_eq!(attempts.dismissed(8, 1), None);
    }
}
