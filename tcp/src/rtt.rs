//! Round-trip estimation and the retransmission time-out (RFC 6298) in
//! microseconds, and the windowed minimum that RACK wants (RFC 8985).

use crate::time::Instant;

/// How long a minimum stands.
const MIN_RTT_WINDOW_US: u64 = 300_000_000;

/// The estimator of one connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rtt {
    /// Smoothed, 0 before the first sample.
    pub(crate) srtt_us: u32,
    pub(crate) rttvar_us: u32,
    /// `u32::MAX` before the first sample.
    pub(crate) min_us: u32,
    pub(crate) min_at: Instant,
    /// Without back-off.
    pub(crate) rto_us: u32,
    /// The last sample.
    pub(crate) latest_us: u32,
}

impl Rtt {
    pub(crate) fn new(rto_initial_us: u64) -> Self {
        Self {
            srtt_us: 0,
            rttvar_us: 0,
            min_us: u32::MAX,
            min_at: Instant(0),
            rto_us: rto_initial_us.min(u64::from(u32::MAX)) as u32,
            latest_us: 0,
        }
    }

    /// Takes a sample. `segments_per_rtt` weakens each of the samples of one
    /// round trip, as RFC 7323 (appendix G) asks.
    pub(crate) fn sample(
        &mut self,
        now: Instant,
        rtt_us: u64,
        segments_per_rtt: u32,
        rto_min_us: u64,
        rto_max_us: u64,
    ) {
        let r = rtt_us.clamp(1, 1 << 30) as u32;
        self.latest_us = r;
        if r <= self.min_us || now.micros_since(self.min_at) > MIN_RTT_WINDOW_US {
            self.min_us = r;
            self.min_at = now;
        }
        if self.srtt_us == 0 {
            self.srtt_us = r;
            self.rttvar_us = r / 2;
        } else {
            let n = i64::from(segments_per_rtt.clamp(1, 64).div_ceil(2));
            let error = i64::from(r) - i64::from(self.srtt_us);
            let var = i64::from(self.rttvar_us);
            self.rttvar_us = (var + (error.abs() - var) / (4 * n)).max(0) as u32;
            self.srtt_us = (i64::from(self.srtt_us) + error / (8 * n)).max(1) as u32;
        }
        // The variation's share has a floor, as Linux has it: with a steady RTT
        // the time-out stays the floor above it instead of sinking onto it.
        let margin = u64::from(self.rttvar_us) * 4;
        let rto = u64::from(self.srtt_us) + margin.max(rto_min_us);
        self.rto_us = rto.min(rto_max_us) as u32;
    }

    /// The time-out after `backoff` doublings.
    pub(crate) fn rto_backed_off_us(&self, backoff: u8, rto_max_us: u64) -> u64 {
        (u64::from(self.rto_us) << backoff.min(32)).min(rto_max_us)
    }
}
