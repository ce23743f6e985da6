//! Congestion control behind one small interface.
//!
//! A control decides how the window grows on acknowledgements and where it
//! falls to on congestion. When that is (RACK, duplicate ACKs, time-outs, ECN)
//! and how it is spread over a round trip (PRR) belongs to `recovery`.

mod cubic;
mod hystart;
mod newreno;

pub(crate) use cubic::Cubic;
pub(crate) use hystart::{Growth, HyStart};
pub(crate) use newreno::NewReno;

use crate::time::Instant;

/// Which congestion control a connection uses (TCP_CONGESTION).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Algorithm {
    /// RFC 9438.
    #[default]
    Cubic,
    /// RFC 5681 and 6582.
    NewReno,
}

impl Algorithm {
    /// By the name that TCP_CONGESTION and `net.inet.tcp.cc.algorithm` use.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "cubic" => Some(Algorithm::Cubic),
            "newreno" | "reno" => Some(Algorithm::NewReno),
            _ => None,
        }
    }

    /// The name that TCP_CONGESTION uses.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Cubic => "cubic",
            Algorithm::NewReno => "reno",
        }
    }
}

/// The window itself, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) cwnd: u32,
    pub(crate) ssthresh: u32,
    pub(crate) mss: u32,
}

impl Window {
    pub(crate) fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }
}

/// What an acknowledgement of new data says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckSample {
    pub(crate) now: Instant,
    pub(crate) acked_bytes: u32,
    pub(crate) srtt_us: u32,
}

/// How a window grows and falls.
pub(crate) trait Control {
    /// Data was acknowledged outside of recovery while the window was the limit.
    fn on_ack(&mut self, window: &mut Window, sample: &AckSample);
    /// Congestion: returns the new slow start threshold in bytes.
    fn on_congestion(&mut self, window: &Window, in_flight_bytes: u32, now: Instant) -> u32;
    /// The reduction was a mistake and is taken back.
    fn on_undo(&mut self);
    /// Sending begins again after an idle time, or after a time-out.
    fn on_restart(&mut self);
}

/// The control of one connection, without a heap allocation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Controller {
    Cubic(Cubic),
    NewReno(NewReno),
}

impl Controller {
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Cubic => Controller::Cubic(Cubic::default()),
            Algorithm::NewReno => Controller::NewReno(NewReno::default()),
        }
    }

    pub(crate) fn algorithm(&self) -> Algorithm {
        match self {
            Controller::Cubic(_) => Algorithm::Cubic,
            Controller::NewReno(_) => Algorithm::NewReno,
        }
    }

    fn inner(&mut self) -> &mut dyn Control {
        match self {
            Controller::Cubic(c) => c,
            Controller::NewReno(c) => c,
        }
    }
}

impl Control for Controller {
    fn on_ack(&mut self, window: &mut Window, sample: &AckSample) {
        self.inner().on_ack(window, sample);
    }
    fn on_congestion(&mut self, window: &Window, in_flight_bytes: u32, now: Instant) -> u32 {
        self.inner().on_congestion(window, in_flight_bytes, now)
    }
    fn on_undo(&mut self) {
        self.inner().on_undo();
    }
    fn on_restart(&mut self) {
        self.inner().on_restart();
    }
}
