//! NewReno's window (RFC 5681, section 3.1), with byte counting (RFC 3465).

use super::{AckSample, Control, Window};
use crate::time::Instant;

/// State: bytes acknowledged towards the next segment of window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct NewReno {
    pub(crate) acked_bytes: u32,
}

impl Control for NewReno {
    fn on_ack(&mut self, window: &mut Window, sample: &AckSample) {
        self.acked_bytes = self.acked_bytes.saturating_add(sample.acked_bytes);
        if self.acked_bytes >= window.cwnd {
            self.acked_bytes -= window.cwnd;
            window.cwnd = window.cwnd.saturating_add(window.mss);
        }
    }

    fn on_congestion(&mut self, window: &Window, in_flight_bytes: u32, _now: Instant) -> u32 {
        self.acked_bytes = 0;
        (in_flight_bytes.min(window.cwnd) / 2).max(2 * window.mss)
    }

    fn on_undo(&mut self) {}

    fn on_restart(&mut self) {
        self.acked_bytes = 0;
    }
}
