//! Timers: at most one for what was sent, one for the delayed acknowledgment, and a slow one for keep-alive,
//! FIN-WAIT-2 and TIME-WAIT. A connection has one deadline, the earliest; an idle one has none.

use crate::config::{Keepalive, MILLISECOND, SECOND};
use crate::connection::{Connection, Context};
use crate::snapshot::RecoveryState;
use crate::{Nanos, Reason, State};

/// An instant that has not come about: nothing was sent, received or tried yet. A stack's clock begins at
/// its `EPOCH`, so that no event has it.
pub(crate) const NOT_YET: Nanos = 0;

/// No deadline.
pub(crate) const NEVER: Nanos = Nanos::MAX;

/// Delay of a peer's acknowledgment that a tail probe allows for (RFC 8985 section 7.2).
pub(crate) const WORST_DELAYED_ACK: Nanos = 200 * MILLISECOND;
/// How long an orphan, a connection without an application, waits for the peer's window to open.
const ORPHAN_STALL: Nanos = 600 * SECOND;
/// Added to a probe's time-out, for clocks and schedulers.
pub(crate) const PROBE_SLACK: Nanos = 2 * MILLISECOND;

/// What the retransmission timer is for: one thing at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub(crate) enum Pending {
    /// Nothing; it is off.
    #[default]
    None = 0,
    /// Retransmission time-out (RFC 6298).
    Rto = 1,
    /// Tail loss probe (RFC 8985 section 7).
    TailProbe = 2,
    /// Segments that may be reordered are lost then (RFC 8985 section 6.2, step 5).
    Reorder = 3,
    /// The peer's window is closed, or too small to be worth a segment (RFC 9293 section 3.8.6.1).
    Persist = 4,
}

impl Connection {
    /// When [`on_time`](Self::on_time) is to be called.
    #[inline]
    pub(crate) fn deadline(&self) -> Nanos {
        self.retransmit_deadline.min(self.hot.ack_deadline).min(self.slow_deadline)
    }

    /// Starts or stops the retransmission timer.
    pub(crate) fn set_pending(&mut self, pending: Pending, deadline: Nanos) {
        self.hot.pending = pending;
        self.retransmit_deadline = if pending == Pending::None { NEVER } else { deadline };
    }

    /// Starts the retransmission timer anew if anything is in flight, else stops it (RFC 6298 section 5).
    pub(crate) fn rearm_rto(&mut self, now: Nanos) {
        if self.flight.is_empty() {
            self.set_pending(Pending::None, NEVER);
        } else {
            let rto = self.rtt.rto(&self.config);
            self.set_pending(Pending::Rto, self.no_later_than_user(now.saturating_add(rto)));
        }
    }

    /// The same for what is in flight already when more is sent: the timer runs from when the first of it
    /// was sent (RFC 6298 section 5.1: a segment starts the timer only if it is not running).
    pub(crate) fn keep_rto(&mut self, now: Nanos) {
        self.rearm_rto(now);
        if let (Pending::Rto, Some(first)) = (self.hot.pending, self.flight.first()) {
            let running = first.at.saturating_add(self.rtt.rto(&self.config));
            self.retransmit_deadline = self.retransmit_deadline.min(running.max(now + 1));
        }
    }

    /// The user timeout ends a wait that would be longer (RFC 5482 section 3.1).
    fn no_later_than_user(&self, deadline: Nanos) -> Nanos {
        if self.user_timeout == 0 || self.retransmits == 0 {
            return deadline;
        }
        deadline.min(self.retransmit_since.saturating_add(self.user_timeout))
    }

    /// Puts a tail loss probe before the retransmission time-out (RFC 8985 section 7.2).
    pub(crate) fn schedule_tail_probe(&mut self, now: Nanos) {
        let open = matches!(self.recovery.state, RecoveryState::Open | RecoveryState::Marked);
        if !self.hot.bits.sack()
            || !open
            || self.flight.is_empty()
            || self.flight.sacked() > 0
            || self.recovery.tlp_end.is_some()
            || self.rtt.srtt == 0
        {
            return;
        }
        let mut timeout = 2 * self.rtt.srtt + PROBE_SLACK;
        if self.flight.outstanding() <= u32::from(self.hot.mss) {
            timeout += WORST_DELAYED_ACK;
        }
        // The probe comes in place of the time-out, if not before it.
        if self.hot.pending == Pending::Rto {
            let deadline = self.retransmit_deadline.min(now + timeout).max(now + 1);
            self.set_pending(Pending::TailProbe, deadline);
        }
    }

    /// Waits for a window, or for a reason to send less than a segment, where nothing else would wake
    /// the connection.
    pub(crate) fn arm_persist(&mut self, now: Nanos) {
        if self.hot.pending == Pending::None
            && self.flight.is_empty()
            && self.hot.state.transmits()
            && (self.unsent_len() > 0 || self.is_fin_waiting())
        {
            let timeout = self.rtt.rto(&self.config).max(self.config.min_rto);
            self.set_pending(Pending::Persist, now.saturating_add(timeout));
            self.stalled_since = now;
        }
    }

    /// Starts the slow timer, if the state needs it.
    pub(crate) fn arm_slow(&mut self, now: Nanos) {
        self.slow_deadline = match self.hot.state {
            State::TimeWait => now.saturating_add(self.config.time_wait),
            State::FinWait2 if self.hot.bits.released() => {
                now.saturating_add(self.config.fin_wait_2)
            }
            State::Closed | State::SynSent | State::SynReceived => NEVER,
            _ => match self.keepalive {
                Some(keepalive) => now + keepalive.idle,
                None => NEVER,
            },
        };
    }

    /// Runs what is due.
    pub(crate) fn on_time(&mut self, context: &mut Context<'_>) {
        let now = context.now;
        if self.hot.ack_deadline <= now {
            self.hot.ack_deadline = NEVER;
            self.hot.bits.set_ack_now(true);
            context.counters.delayed_acks += 1;
        }
        if self.retransmit_deadline <= now {
            self.on_pending(context);
        }
        if self.slow_deadline <= now {
            self.on_slow(now);
        }
    }

    fn on_pending(&mut self, context: &mut Context<'_>) {
        let now = context.now;
        match self.hot.pending {
            Pending::None => self.retransmit_deadline = NEVER,
            Pending::Rto => self.on_rto(context),
            Pending::TailProbe => {
                context.counters.tail_probes += 1;
                self.send_tail_probe(now);
            }
            Pending::Reorder => {
                self.set_pending(Pending::None, NEVER);
                self.on_reorder_timeout(context);
            }
            Pending::Persist => self.on_persist(context),
        }
    }

    fn on_rto(&mut self, context: &mut Context<'_>) {
        let now = context.now;
        if self.flight.is_empty() {
            self.set_pending(Pending::None, NEVER);
            return;
        }
        if self.retransmits == 0 {
            // R2 counts from when the segment was sent (RFC 9293 section 3.8.3).
            self.retransmit_since = self.flight.first().map_or(now, |first| first.at);
        }
        // A peer that has shrunk its window and announces that each time is alive (RFC 9293 MUST-37).
        let answers = self.hot.snd_wnd == 0
            && !self.hot.bits.released()
            && self.user_timeout == 0
            && self.flight.first().is_some_and(|first| self.hot.last_received > first.at);
        if answers {
            self.retransmits = 0;
            self.retransmit_since = now;
        }
        if self.is_given_up(now) {
            self.finish(if self.unreachable { Reason::Unreachable } else { Reason::TimedOut });
            return;
        }
        self.retransmits = self.retransmits.saturating_add(1);
        context.counters.timeouts += 1;
        if self.hot.state <= State::SynReceived {
            self.hot.bits.set_syn_due(true);
        } else {
            self.enter_loss(now);
            self.on_black_hole(context);
        }
        self.rtt.backoff = self.rtt.backoff.saturating_add(1);
        self.rearm_rto(now);
    }

    /// Whether it has been tried often or long enough (RFC 9293 section 3.8.3).
    fn is_given_up(&self, now: Nanos) -> bool {
        let tries = match self.hot.state {
            State::SynSent => self.config.syn_retries,
            State::SynReceived => self.config.syn_ack_retries,
            _ => self.config.retries,
        };
        let waited = now.saturating_sub(self.retransmit_since);
        if self.user_timeout > 0 {
            return self.retransmits > 0 && waited >= self.user_timeout;
        }
        self.retransmits >= tries
    }

    fn on_persist(&mut self, context: &mut Context<'_>) {
        let now = context.now;
        if !self.flight.is_empty() || (self.unsent_len() == 0 && !self.is_fin_waiting()) {
            self.rearm_rto(now);
            return;
        }
        if self.retransmits == 0 {
            self.retransmit_since = now;
        }
        // A peer that answers keeps the connection for as long as it likes (RFC 9293 MUST-37).
        if self.user_timeout > 0
            && now.saturating_sub(self.hot.last_received) >= self.user_timeout
            && self.retransmits > 0
            || self.retransmits > self.config.retries
        {
            self.finish(Reason::TimedOut);
            return;
        }
        let stalled = now.saturating_sub(self.stalled_since) >= ORPHAN_STALL;
        if self.hot.bits.released() && stalled && self.window_space() == 0 {
            // No application waits for it, and a peer must not keep it alive for ever.
            self.hot.bits.set_reset_due(true);
            self.finish(Reason::TimedOut);
            return;
        }
        if self.window_space() > 0 {
            // SWS avoidance on our side must not wait for ever (RFC 9293 section 3.8.6.2.1).
            self.hot.bits.set_push_small(true);
        } else {
            self.hot.bits.set_probe_due(true);
            self.retransmits = self.retransmits.saturating_add(1);
            self.rtt.backoff = self.rtt.backoff.saturating_add(1);
            context.counters.window_probes += 1;
        }
        let timeout = self.rtt.rto(&self.config).max(self.config.min_rto);
        self.set_pending(
            Pending::Persist,
            self.no_later_than_user(now.saturating_add(timeout)).max(now + MILLISECOND),
        );
    }

    fn on_slow(&mut self, now: Nanos) {
        self.slow_deadline = NEVER;
        match self.hot.state {
            State::TimeWait | State::FinWait2 if self.is_waiting_out() => {
                self.finish(Reason::Closed)
            }
            State::Closed | State::SynSent | State::SynReceived => {}
            _ => {
                if let Some(keepalive) = self.keepalive {
                    self.on_keepalive(keepalive, now);
                }
            }
        }
    }

    fn is_waiting_out(&self) -> bool {
        self.hot.state == State::TimeWait || self.hot.bits.released()
    }

    /// RFC 9293 section 3.8.4. A probe is a segment without data from just before the window
    /// (SHLD-6: peers answer it; no garbage byte).
    fn on_keepalive(&mut self, keepalive: Keepalive, now: Nanos) {
        let idle = now.saturating_sub(self.hot.last_received);
        let busy = !self.flight.is_empty() || self.unsent_len() > 0;
        if busy || idle < keepalive.idle {
            self.keepalive_probes = 0;
            let wait = if busy { keepalive.idle } else { keepalive.idle - idle };
            self.slow_deadline = now + wait.max(MILLISECOND);
            if busy && self.retransmit_deadline != NEVER {
                // Until the retransmission timer expires there is nothing to probe for.
                self.slow_deadline = self.slow_deadline.max(self.retransmit_deadline + SECOND);
            }
            return;
        }
        let over = if self.user_timeout > 0 {
            idle >= self.user_timeout && self.keepalive_probes > 0
        } else {
            self.keepalive_probes >= keepalive.probes
        };
        if over {
            self.hot.bits.set_reset_due(true);
            self.finish(Reason::TimedOut);
            return;
        }
        self.keepalive_probes = self.keepalive_probes.saturating_add(1);
        self.hot.bits.set_probe_due(true);
        self.slow_deadline = now + keepalive.interval.max(MILLISECOND);
    }

    /// Gives back memory that an idle connection does not need.
    pub(crate) fn rest(&mut self) {
        self.flight.shrink();
    }
}
