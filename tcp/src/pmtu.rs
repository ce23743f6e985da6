//! Path MTU: ICMP reports (RFC 1191, 8201) and probing by the engine itself
//! where they are filtered (RFC 4821).

use ff_flowmap::FlowKey;

use crate::config::MtuProbing;
use crate::conn::{Conn, ip_header_bytes, mss_for_mtu};
use crate::host::Host;
use crate::info::CaState;
use crate::recovery::Record;
use crate::seq::Seq;
use crate::time::Instant;

/// Time-outs in a row that mean a black hole.
const BLACKHOLE_TIMEOUTS: u8 = 3;
/// Difference of sizes at which the search ends.
const SEARCH_STEP_BYTES: u16 = 8;
/// After a search, until a larger size is tried again (RFC 4821, 7.3).
const SEARCH_AGAIN_US: u64 = 600_000_000;
/// Lost probes of one size that end the search from above.
const PROBE_TRIES: u8 = 3;

/// The search of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Probing {
    pub(crate) enabled: bool,
    /// Sizes of IP packets: known to pass, and not known to fail.
    pub(crate) low: u16,
    pub(crate) high: u16,
    /// Size of the probe in flight, 0 for none.
    pub(crate) size: u16,
    pub(crate) seq: Seq,
    pub(crate) tries: u8,
    pub(crate) next_us: u64,
}

impl Probing {
    pub(crate) fn start(&mut self, host: &Host, peer_mss: u16, key: &FlowKey, pmtu: u16) {
        let headers = ip_header_bytes(key) + 20;
        self.high = host.config.mtu.min(peer_mss.saturating_add(headers));
        self.low = pmtu.min(host.config.mss_base + headers);
        self.enabled = host.config.mtu_probing == MtuProbing::Always;
    }
}

impl Conn {
    /// ICMP says that `mtu` is what the path carries; `seq` was quoted.
    /// RFC 5927: only what is in flight can have been too big.
    pub(crate) fn on_too_big(&mut self, host: &mut Host, mtu: u16, seq: Option<Seq>) -> bool {
        let in_flight = seq.is_some_and(|s| s.ge(self.snd_una) && s.lt(self.snd_nxt));
        if !in_flight {
            return false;
        }
        let headers = ip_header_bytes(&self.key) + 20;
        let floor = if self.key.family == 4 { host.config.mss_min.max(512) + headers } else { 1_280 };
        let mtu = mtu.max(floor);
        if self.probe.size != 0 && mtu < self.probe.size {
            self.probe.high = mtu.max(self.pmtu);
            self.fail_mtu_probe();
        }
        if mtu >= self.pmtu {
            return mtu >= floor;
        }
        self.pmtu = mtu;
        self.probe.high = self.probe.high.min(mtu);
        self.probe.low = self.probe.low.min(mtu);
        host.counters.pmtu_reductions += 1;
        self.sync_mss(host);
        self.resend_oversized(host);
        true
    }

    /// A retransmission time-out: after some in a row, full segments are
    /// suspected not to pass, and smaller ones are tried.
    pub(crate) fn on_mtu_timeout(&mut self, host: &mut Host) {
        if self.probe.size != 0 {
            self.fail_mtu_probe();
        }
        if host.config.mtu_probing == MtuProbing::Off || self.retransmits < BLACKHOLE_TIMEOUTS {
            return;
        }
        let base = mss_for_mtu(&self.key, self.pmtu).min(host.config.mss_base);
        let headers = ip_header_bytes(&self.key) + 20;
        let floor = if self.key.family == 4 { 512 } else { 1_220 };
        // Only a segment that the smaller size would cut can be stuck in a hole.
        let head = self.records.front().map_or(0, |r| r.len);
        let Some(next) = [base, floor].into_iter().find(|&n| head > u32::from(n)) else { return };
        let mtu = next + headers;
        if mtu >= self.pmtu {
            return;
        }
        host.counters.pmtu_blackholes += 1;
        self.probe.enabled = true;
        self.probe.high = self.pmtu;
        self.probe.low = mtu;
        self.pmtu = mtu;
        self.probe.next_us = 0;
        self.sync_mss(host);
    }

    /// The size of a probe to send now, as payload, or `None`. A probe is data
    /// that is due anyway, sent in one large segment, with enough behind it to
    /// notice its loss.
    pub(crate) fn mtu_probe_payload(
        &mut self,
        host: &Host,
        now: Instant,
        unsent: u32,
        usable: u32,
    ) -> Option<u32> {
        let p = &self.probe;
        if !p.enabled || p.size != 0 || self.ca_state != CaState::Open || now.0 < p.next_us {
            return None;
        }
        if p.high.saturating_sub(p.low.max(self.pmtu)) < SEARCH_STEP_BYTES {
            if self.probe.high < host.config.mtu.min(self.agreed.peer_mss + ip_header_bytes(&self.key) + 20) {
                self.probe.high = host.config.mtu.min(self.agreed.peer_mss + ip_header_bytes(&self.key) + 20);
                self.probe.next_us = now.0 + SEARCH_AGAIN_US;
            }
            return None;
        }
        let size = p.low.max(self.pmtu).midpoint(p.high).max(self.pmtu + 1);
        let overhead =
            u32::from(ip_header_bytes(&self.key) + 20) + if self.agreed.timestamps { 12 } else { 0 };
        let payload = u32::from(size).saturating_sub(overhead);
        let behind = 3 * self.window.mss;
        let wanted = payload + behind;
        if payload <= self.window.mss || unsent < wanted || usable < wanted {
            return None;
        }
        if self.window.cwnd < 11 * self.window.mss || self.pipe() + wanted > self.window.cwnd {
            return None;
        }
        Some(payload)
    }

    pub(crate) fn mtu_probe_sent(&mut self, host: &mut Host, payload: u32, seq: Seq) {
        let overhead =
            u32::from(ip_header_bytes(&self.key) + 20) + if self.agreed.timestamps { 12 } else { 0 };
        self.probe.size = (payload + overhead).min(u32::from(u16::MAX)) as u16;
        self.probe.seq = seq;
        host.counters.mtu_probes += 1;
    }

    /// The probe came through.
    pub(crate) fn on_mtu_probe_acked(&mut self, host: &mut Host, r: &Record) {
        if self.probe.size == 0 || r.seq != self.probe.seq {
            return;
        }
        host.counters.mtu_probe_success += 1;
        self.pmtu = self.probe.size;
        self.probe.low = self.probe.size;
        self.probe.size = 0;
        self.probe.tries = 0;
        self.sync_mss(host);
    }

    /// The probe was lost: that says nothing about congestion.
    pub(crate) fn fail_mtu_probe(&mut self) {
        self.probe.tries = self.probe.tries.saturating_add(1);
        if self.probe.tries >= PROBE_TRIES {
            self.probe.high = self.probe.size.saturating_sub(1).max(self.probe.low);
            self.probe.tries = 0;
        }
        self.probe.size = 0;
    }
}
