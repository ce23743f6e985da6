//! What all connections of an engine share: settings, memory, queues, clock.

use std::collections::VecDeque;
use std::hash::Hasher;

use ff_flowmap::FlowKey;
use siphasher::sip::SipHasher13;

use crate::buffers::Pool;
use crate::config::{EngineConfig, Secrets};
use crate::header::{HeaderOut, OptionWriter};
use crate::info::Counters;
use crate::reassembly::{Range, Reassembly};
use crate::recovery::Record;
use crate::seq::Seq;
use crate::socket::Ecn;
use crate::time::Instant;
use crate::timers::Wheel;

/// Control segments that may wait to be sent.
const REPLIES_MAX: usize = 8_192;
/// Empty scoreboards and reassembly tables that are kept for reuse.
const SPARE_MAX: usize = 1_024;

/// A segment without data that no connection has to remember.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bare {
    pub(crate) key: FlowKey,
    pub(crate) seq: Seq,
    pub(crate) ack: Seq,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    pub(crate) timestamps: Option<(u32, u32)>,
    pub(crate) sacks: Sacks,
}

/// SACK blocks that one segment carries.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sacks {
    blocks: [Range; 4],
    len: u8,
}

impl Sacks {
    pub(crate) fn push(&mut self, block: Range) {
        if let Some(slot) = self.blocks.get_mut(self.len as usize) {
            *slot = block;
            self.len += 1;
        }
    }

    pub(crate) fn as_slice(&self) -> &[Range] {
        &self.blocks[..self.len as usize]
    }
}

impl Bare {
    /// Writes it; returns its length.
    pub(crate) fn emit(&self, buf: &mut [u8]) -> Option<usize> {
        let mut options = OptionWriter::new();
        if let Some((val, ecr)) = self.timestamps {
            options.timestamps(val, ecr);
        }
        options.sacks(self.sacks.as_slice());
        HeaderOut {
            src_port: self.key.local_port,
            dst_port: self.key.remote_port,
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: self.window,
        }
        .emit(options.finish(), buf)
    }
}

/// What waits to be sent outside of any connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reply {
    /// RST, ACK of TIME-WAIT and the like.
    Bare(Bare),
    /// The SYN-ACK of a request: slab index and generation.
    SynAck(u32, u32),
    /// A SYN-ACK that is a cookie.
    Cookie {
        /// The flow, and the sequence numbers of both ends.
        key: FlowKey,
        /// Ours.
        seq: Seq,
        /// The peer's next.
        ack: Seq,
        /// Window scale that is offered, if any.
        wscale: Option<u8>,
        /// SACK is offered.
        sack: bool,
        /// ECN is granted.
        ecn: bool,
        /// Timestamps.
        timestamps: Option<(u32, u32)>,
    },
}

/// Shared by all connections of an engine.
pub(crate) struct Host {
    pub(crate) config: EngineConfig,
    pub(crate) secrets: Secrets,
    pub(crate) counters: Counters,
    pub(crate) pool: Pool,
    pub(crate) wheel: Wheel,
    /// Connections whose timer is to be set, each once. Most deadlines of a
    /// pass are gone at its end: the delayed ACK went with the response.
    pub(crate) stale_timers: Vec<u32>,
    /// The latest time that a caller named.
    pub(crate) now: Instant,
    /// Connections with something to send, each once.
    pub(crate) work: VecDeque<u32>,
    pub(crate) replies: VecDeque<Reply>,
    /// Connections with events, each once: index and generation.
    pub(crate) conn_events: VecDeque<(u32, u32)>,
    /// Connections whose writer found no memory: index and generation.
    pub(crate) memory_waiters: VecDeque<(u32, u32)>,
    pub(crate) orphans: u32,
    spare_records: Vec<VecDeque<Record>>,
    #[allow(clippy::vec_box)] // The boxes themselves are what is reused.
    spare_reassembly: Vec<Box<Reassembly>>,
    challenge_second: u64,
    challenge_left: u32,
}

impl Host {
    pub(crate) fn new(config: EngineConfig, secrets: Secrets) -> Self {
        Self {
            pool: Pool::new(config.memory_limit_bytes, config.pool_keep_bytes),
            config,
            secrets,
            counters: Counters::default(),
            wheel: Wheel::new(),
            stale_timers: Vec::new(),
            now: Instant(0),
            work: VecDeque::new(),
            replies: VecDeque::new(),
            conn_events: VecDeque::new(),
            memory_waiters: VecDeque::new(),
            orphans: 0,
            spare_records: Vec::new(),
            spare_reassembly: Vec::new(),
            challenge_second: u64::MAX,
            challenge_left: 0,
        }
    }

    /// Queues a segment outside of any connection.
    pub(crate) fn reply(&mut self, reply: Reply) {
        if self.replies.len() >= REPLIES_MAX {
            self.counters.drop_reply_queue += 1;
            return;
        }
        self.replies.push_back(reply);
    }

    /// Whether a challenge ACK may go out now (RFC 5961, section 7). The budget
    /// of each second varies under a key, or it could be read from outside.
    pub(crate) fn challenge_allowed(&mut self, now: Instant) -> bool {
        let second = now.0 / 1_000_000;
        if second != self.challenge_second {
            self.challenge_second = second;
            let limit = self.config.challenge_ack_per_s;
            let mut hasher = SipHasher13::new_with_key(&self.secrets.isn);
            hasher.write_u64(second);
            let half = limit.div_ceil(2);
            self.challenge_left = half + (hasher.finish() % u64::from(limit.max(1))) as u32;
        }
        if self.challenge_left == 0 {
            self.counters.challenge_acks_limited += 1;
            return false;
        }
        self.challenge_left -= 1;
        self.counters.challenge_acks += 1;
        true
    }

    pub(crate) fn take_records(&mut self) -> VecDeque<Record> {
        self.spare_records.pop().unwrap_or_else(|| VecDeque::with_capacity(2))
    }

    pub(crate) fn put_records(&mut self, mut records: VecDeque<Record>) {
        records.clear();
        if records.capacity() > 0 && records.capacity() <= 4_096 && self.spare_records.len() < SPARE_MAX {
            self.spare_records.push(records);
        }
    }

    pub(crate) fn take_reassembly(&mut self) -> Box<Reassembly> {
        self.spare_reassembly.pop().unwrap_or_default()
    }

    pub(crate) fn put_reassembly(&mut self, mut reassembly: Box<Reassembly>) {
        reassembly.clear();
        if self.spare_reassembly.len() < SPARE_MAX {
            self.spare_reassembly.push(reassembly);
        }
    }

    /// The millisecond clock of timestamps, without a flow's offset.
    pub(crate) fn timestamp_clock(now: Instant) -> u32 {
        now.millis() as u32
    }

    /// The ECN codepoint of segments with data.
    pub(crate) fn data_ecn(ecn_on: bool) -> Ecn {
        if ecn_on { Ecn::Ect0 } else { Ecn::NotEct }
    }
}
