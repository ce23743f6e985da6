//! What a connection does when one of its deadlines has come.

use crate::conn::{AckDue, Conn, NEVER, RtxTimer};
use crate::error::ConnError;
use crate::host::Host;
use crate::info::State;
use crate::time::Instant;

impl Conn {
    /// Runs all deadlines that have come.
    pub(crate) fn on_deadline(&mut self, host: &mut Host, now: Instant) {
        if self.delack_at <= now.0 {
            self.delack_at = NEVER;
            if self.ack_due == AckDue::Delayed {
                host.counters.delayed_acks += 1;
                self.ack_due = AckDue::Now;
                self.want_output(host);
            }
        }
        if self.cork_until <= now.0 {
            self.cork_until = NEVER;
            self.cork_release = true;
            self.want_output(host);
        }
        if self.pace_until != 0 && self.pace_until <= now.0 {
            self.pace_until = 0;
            self.want_output(host);
        }
        if self.rtx_at <= now.0 {
            self.on_rtx_timer(host, now);
        }
        if self.keep_at <= now.0 {
            self.on_keepalive(host, now);
        }
        if self.life_at <= now.0 && self.state != State::Closed {
            // FIN-WAIT-2 without a FIN: forgotten in silence, as Linux does.
            host.counters.timeouts += 1;
            self.shut_down(host);
        }
    }

    fn on_rtx_timer(&mut self, host: &mut Host, now: Instant) {
        let timer = self.rtx_timer;
        self.rtx_at = NEVER;
        self.rtx_timer = RtxTimer::None;
        match timer {
            RtxTimer::None => {}
            RtxTimer::Rto => self.on_rto(host, now),
            RtxTimer::Tlp => {
                host.counters.tlp_probes += 1;
                self.tlp_pending = true;
                self.arm_rto(host, now);
                self.want_output(host);
            }
            RtxTimer::Reorder => self.on_reorder_timer(host, now),
            RtxTimer::Persist => self.on_persist(host, now),
        }
    }

    /// The error of a connection that got no answer: what ICMP said, if it did.
    fn give_up(&mut self, host: &mut Host) {
        host.counters.timeouts += 1;
        let error = self.soft_error.unwrap_or(ConnError::TimedOut);
        self.fail(host, error);
    }

    fn on_rto(&mut self, host: &mut Host, now: Instant) {
        let Some(head) = self.records.front().copied() else { return };
        host.counters.rto_timeouts += 1;
        if self.stalled_since == 0 {
            self.stalled_since = head.sent_us.max(1);
        }
        let limit = match self.state {
            State::SynSent | State::SynReceived => host.config.syn_retries,
            _ if self.orphan => host.config.orphan_retries,
            _ => host.config.data_retries,
        };
        let stalled_us = now.0.saturating_sub(self.stalled_since);
        let user_timeout = self.options.user_timeout_us;
        let over = if user_timeout > 0 { stalled_us >= user_timeout } else { self.retransmits >= limit };
        if over {
            return self.give_up(host);
        }
        self.retransmits = self.retransmits.saturating_add(1);
        self.on_mtu_timeout(host);
        self.enter_loss(host, now);
        self.backoff = self.backoff.saturating_add(1).min(32);
        self.arm_rto(host, now);
        if user_timeout > 0 {
            // The last wait is not longer than what is left.
            self.rtx_at = self.rtx_at.min(self.stalled_since.saturating_add(user_timeout).max(now.0 + 1_000));
        }
        self.want_output(host);
    }

    /// Arms the probe of a window that lets nothing out.
    pub(crate) fn arm_persist(&mut self, host: &Host, now: Instant) {
        let rto = self.rtt.rto_backed_off_us(self.backoff, host.config.rto_max_us);
        self.arm(RtxTimer::Persist, now.0 + rto.max(host.config.rto_min_us));
    }

    fn on_persist(&mut self, host: &mut Host, now: Instant) {
        let waiting = self.snd_nxt != self.data_end() || self.fin_queued && !self.fin_sent;
        if !self.records.is_empty() || !waiting {
            self.probes = 0;
            return;
        }
        let limit = if self.orphan { host.config.orphan_retries } else { host.config.data_retries };
        let user_timeout = self.options.user_timeout_us;
        let silent_us = now.0.saturating_sub(self.stats.last_ack_recv_us.max(self.last_recv.0));
        let over = if user_timeout > 0 && self.probes > 0 {
            silent_us >= user_timeout
        } else {
            self.probes >= limit
        };
        // A peer that answers and never opens its window holds a user's connection as long as the user likes, but
        // nobody waits for an orphan: it ends once the probes have reached their longest distance, as on Linux.
        let rto = self.rtt.rto_backed_off_us(self.backoff, host.config.rto_max_us);
        let stuck = self.orphan && self.backoff >= limit && rto >= host.config.rto_max_us;
        if over || stuck {
            return self.give_up(host);
        }
        self.probes = self.probes.saturating_add(1);
        self.backoff = self.backoff.saturating_add(1).min(32);
        host.counters.window_probes += 1;
        self.window_probe = true;
        self.arm_persist(host, now);
        self.want_output(host);
    }

    fn on_keepalive(&mut self, host: &mut Host, now: Instant) {
        let k = self.options.keepalive;
        self.keep_at = NEVER;
        if !k.enabled
            || matches!(self.state, State::Closed | State::TimeWait | State::SynSent | State::SynReceived)
        {
            return;
        }
        // Data in flight has its own timer.
        if !self.records.is_empty() || self.snd_nxt != self.data_end() {
            self.keep_at = now.0.saturating_add(k.idle_us);
            return;
        }
        let idle = now.micros_since(self.last_recv);
        if idle < k.idle_us {
            self.probes = 0;
            self.keep_at = self.last_recv.0.saturating_add(k.idle_us);
            return;
        }
        let user_timeout = self.options.user_timeout_us;
        let over =
            if user_timeout > 0 { idle >= user_timeout && self.probes > 0 } else { self.probes >= k.count };
        if over {
            self.send_rst(host, now);
            return self.give_up(host);
        }
        self.probes = self.probes.saturating_add(1);
        host.counters.keepalive_probes += 1;
        self.keep_probe = true;
        self.keep_at = now.0.saturating_add(k.interval_us.max(1_000_000));
        self.want_output(host);
    }
}
