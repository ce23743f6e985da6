//! A trace of single flows that can be switched on at run time.

use ff_flowmap::FlowKey;

use crate::time::Instant;

/// Direction of a traced segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the peer.
    In,
    /// To the peer.
    Out,
}

/// Takes the segments of traced flows: `(time, flow, direction, TCP header and
/// payload)`. Enough for a pcap or qlog writer; it must not call the engine.
pub trait TraceSink: Send {
    /// One segment of a traced flow.
    fn segment(&mut self, now: Instant, flow: &FlowKey, direction: Direction, tcp: &[u8]);
}
