//! CUBIC's window (RFC 9438).

use super::{AckSample, Control, Window};
use crate::time::Instant;

/// C of section 4.1, in segments per second cubed.
const C: f64 = 0.4;
/// Multiplicative decrease, section 4.6.
const BETA: f64 = 0.7;
/// Additive increase of the Reno-friendly region, section 4.3.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// State, in segments and seconds where the RFC has them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cubic {
    /// Window before the last reduction.
    pub(crate) w_max: f64,
    /// Time from the epoch's start to `w_max`.
    pub(crate) k: f64,
    /// Reno's estimate.
    pub(crate) w_est: f64,
    /// Window at the last congestion event.
    pub(crate) cwnd_prior: f64,
    /// Growth not yet given, segments.
    pub(crate) credit: f64,
    /// Start of the epoch, µs; 0 is none.
    pub(crate) epoch_us: u64,
    /// `w_max` and `cwnd_prior` before the last event, for an undo.
    pub(crate) undo: (f64, f64),
}

impl Control for Cubic {
    fn on_ack(&mut self, window: &mut Window, sample: &AckSample) {
        let mss = f64::from(window.mss);
        let cwnd = f64::from(window.cwnd) / mss;
        if self.epoch_us == 0 {
            self.epoch_us = sample.now.0.max(1);
            self.w_est = cwnd;
            self.credit = 0.0;
            if self.w_max <= cwnd {
                self.w_max = cwnd;
                self.k = 0.0;
            } else {
                self.k = ((self.w_max - cwnd) / C).cbrt();
            }
        }
        let acked = f64::from(sample.acked_bytes) / mss;
        let t = (sample.now.0.saturating_sub(self.epoch_us)) as f64 / 1e6;
        let ahead = t + f64::from(sample.srtt_us) / 1e6 - self.k;
        let target = (C * ahead * ahead * ahead + self.w_max).clamp(cwnd, 1.5 * cwnd);
        let alpha = if self.w_est >= self.cwnd_prior { 1.0 } else { ALPHA };
        self.w_est += alpha * acked / cwnd;
        self.credit += (target - cwnd) / cwnd * acked;
        // Section 4.3: the Reno-friendly region is where Reno would be ahead.
        let reno = self.w_est - cwnd;
        let grow = if reno > self.credit { reno } else { self.credit };
        if grow >= 1.0 {
            let whole = grow.floor().min(acked.max(1.0));
            self.credit = (self.credit - whole).max(0.0);
            window.cwnd = window.cwnd.saturating_add((whole * mss) as u32);
        }
    }

    fn on_congestion(&mut self, window: &Window, _in_flight_bytes: u32, _now: Instant) -> u32 {
        let mss = f64::from(window.mss);
        let cwnd = f64::from(window.cwnd) / mss;
        self.undo = (self.w_max, self.cwnd_prior);
        self.epoch_us = 0;
        // Section 4.7, fast convergence.
        self.w_max = if cwnd < self.w_max { cwnd * (1.0 + BETA) / 2.0 } else { cwnd };
        self.cwnd_prior = cwnd;
        ((f64::from(window.cwnd) * BETA) as u32).max(2 * window.mss)
    }

    fn on_undo(&mut self) {
        (self.w_max, self.cwnd_prior) = self.undo;
        self.epoch_us = 0;
    }

    fn on_restart(&mut self) {
        self.epoch_us = 0;
    }
}
