//! HyStart++ (RFC 9406): leaves slow start when the round trip grows, by way
//! of conservative slow start.

use crate::seq::Seq;

const MIN_RTT_THRESH_US: u32 = 4_000;
const MAX_RTT_THRESH_US: u32 = 16_000;
const MIN_RTT_DIVISOR: u32 = 8;
const N_RTT_SAMPLE: u8 = 8;
const CSS_GROWTH_DIVISOR: u32 = 4;
const CSS_ROUNDS: u8 = 5;

/// State of one connection's slow start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HyStart {
    pub(crate) last_round_min_us: u32,
    pub(crate) round_min_us: u32,
    pub(crate) css_baseline_us: u32,
    pub(crate) window_end: Seq,
    pub(crate) samples: u8,
    pub(crate) css_round: u8,
    pub(crate) in_css: bool,
    pub(crate) started: bool,
}

impl Default for HyStart {
    fn default() -> Self {
        Self {
            last_round_min_us: u32::MAX,
            round_min_us: u32::MAX,
            css_baseline_us: u32::MAX,
            window_end: Seq(0),
            samples: 0,
            css_round: 0,
            in_css: false,
            started: false,
        }
    }
}

/// What slow start should do with an ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Growth {
    /// Grow by all that was acknowledged.
    Full,
    /// Conservative: grow by this part of it.
    Divided(u32),
    /// Go to congestion avoidance.
    Leave,
}

impl HyStart {
    /// An ACK up to `una`; `rtt_us` is a sample, if the ACK gave one.
    pub(crate) fn on_ack(&mut self, una: Seq, snd_nxt: Seq, rtt_us: Option<u32>) -> Growth {
        if !self.started || una.ge(self.window_end) {
            let css_round = self.css_round;
            self.window_end = snd_nxt;
            self.last_round_min_us = self.round_min_us;
            self.round_min_us = u32::MAX;
            self.samples = 0;
            if self.in_css && self.started {
                self.css_round = css_round + 1;
                if self.css_round >= CSS_ROUNDS {
                    return Growth::Leave;
                }
            }
            self.started = true;
        }
        if let Some(rtt) = rtt_us {
            self.round_min_us = self.round_min_us.min(rtt);
            self.samples = self.samples.saturating_add(1);
        }
        if self.samples >= N_RTT_SAMPLE && self.round_min_us != u32::MAX {
            if self.in_css {
                if self.round_min_us < self.css_baseline_us {
                    self.in_css = false;
                    self.css_baseline_us = u32::MAX;
                }
            } else if self.last_round_min_us != u32::MAX {
                let thresh =
                    (self.last_round_min_us / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH_US, MAX_RTT_THRESH_US);
                if self.round_min_us >= self.last_round_min_us.saturating_add(thresh) {
                    self.css_baseline_us = self.round_min_us;
                    self.in_css = true;
                    self.css_round = 0;
                }
            }
        }
        if self.in_css { Growth::Divided(CSS_GROWTH_DIVISOR) } else { Growth::Full }
    }
}
