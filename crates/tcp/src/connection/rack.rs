//! RACK and TLP: losses by time, and a probe where nothing else would reveal them (RFC 8985).

use wire::Seq;

use crate::Nanos;
use crate::connection::ack::Delivery;
use crate::connection::recovery::DUP_THRESH;
use crate::connection::timers::{NOT_YET, Pending};
use crate::connection::{Connection, Context};
use crate::rtt::LONGEST;
use crate::snapshot::RecoveryState;

/// Recoveries for which a wider reordering window lasts (RFC 8985 section 6.2, step 4).
const PERSIST: u8 = 16;
/// Bound of the reordering window, in smoothed round-trip times. RFC 8985 section 6.2 recommends one. But the segments of
/// a burst are acknowledged in the order of their delays, and the smoothed time follows within some ten of them: while the
/// first are acknowledged it is far below the average.
const BOUND: Nanos = 2;

impl Connection {
    /// Steps 2 and 3 of RFC 8985 section 6.2: the latest segment delivered, and whether segments were
    /// reordered.
    pub(crate) fn update_rack(&mut self, delivery: &Delivery, now: Nanos) {
        let recovery = &mut self.recovery;
        if let Some((at, end)) = delivery.latest {
            // The round trip is that of the last one looked at, as in the RFC and in Linux, which looks
            // at SACK first: what waited behind a hole makes it long, and RACK patient.
            let sent = delivery.by_number.or(delivery.by_sack.map(|(at, _)| at)).unwrap_or(at);
            recovery.rack_rtt = now.saturating_sub(sent).min(LONGEST);
            let later =
                at > recovery.rack_at || at == recovery.rack_at && end.after(recovery.rack_end);
            if later {
                recovery.rack_at = at;
                recovery.rack_end = end;
            }
        }
        if let Some(end) = delivery.once_first
            && end.before(recovery.fack)
        {
            recovery.reordering = true;
        }
        if let Some(end) = delivery.once_end
            && end.after(recovery.fack)
        {
            recovery.fack = end;
        }
        if recovery.fack.before(self.hot.snd_una) {
            recovery.fack = self.hot.snd_una;
        }
    }

    /// Step 4: how long reordering is waited for.
    pub(crate) fn reorder_window(&self) -> Nanos {
        let recovery = &self.recovery;
        if !recovery.reordering {
            let recovering = !matches!(recovery.state, RecoveryState::Open | RecoveryState::Marked);
            let full = u32::from(self.hot.mss);
            if recovering || self.flight.sacked() >= DUP_THRESH * full {
                return 0;
            }
        }
        self.widest_window().min(self.rtt.srtt.saturating_mul(BOUND))
    }

    /// The same without its bound.
    fn widest_window(&self) -> Nanos {
        self.recovery.reorder_window.max(self.rtt.min / 4)
    }

    /// Step 5: what was sent more than the reordering window before what was delivered is lost. Returns newly
    /// lost bytes.
    pub(crate) fn detect_loss_by_rack(&mut self, now: Nanos) -> u32 {
        let (at, end) = (self.recovery.rack_at, self.recovery.rack_end);
        if at == NOT_YET || self.flight.is_empty() {
            return 0;
        }
        let open = matches!(self.recovery.state, RecoveryState::Open | RecoveryState::Marked);
        if open && self.flight.sacked() == 0 && self.hot.pending != Pending::Reorder {
            // All that has arrived was sent before all that is left.
            return 0;
        }
        let limit = self.recovery.rack_rtt + self.reorder_window();
        let (lost, last) = self.flight.lose_before((at, end), limit, now);
        if let Some(last) = last {
            self.set_pending(Pending::Reorder, last.saturating_add(limit).max(now + 1));
        } else if self.hot.pending == Pending::Reorder {
            self.rearm_rto(now);
        }
        lost
    }

    /// The reordering timer has expired.
    pub(crate) fn on_reorder_timeout(&mut self, context: &mut Context<'_>) {
        let now = context.now;
        let lost = self.detect_loss_by_rack(now);
        if lost > 0 {
            let open = matches!(self.recovery.state, RecoveryState::Open | RecoveryState::Marked);
            if open && !self.flight.is_probe_lost() {
                self.enter_recovery(context);
            }
            if self.recovery.state == RecoveryState::Recovery {
                self.reduce_proportionally(&Delivery::default(), lost);
            }
        }
        if self.hot.pending == Pending::None {
            self.rearm_rto(now);
        }
    }

    /// Widens the reordering window if a first transmission arrived after it had been taken for lost. The window was too
    /// short by the time since then; as others will be later still, it grows by twice as much and by the step of RFC
    /// 8985. That document (section 6.2, step 4) knows D-SACK only, and takes one step for each round trip with a D-SACK,
    /// up to the smoothed round trip: on a path with much jitter that never suffices.
    pub(crate) fn on_late_original(&mut self, delivery: &Delivery) {
        let Some((late, seq)) = delivery.late else { return };
        // A time-out gives segments up without regard to the window, and a tail probe gives up nothing.
        let recovery = &self.recovery;
        let is_new = recovery.duplicate_round.is_none_or(|round| !seq.before(round));
        if recovery.state == RecoveryState::Recovery && is_new {
            let wider = self.reorder_window() + 2 * late + self.rtt.min / 4;
            self.widen_reorder_window(wider);
        }
    }

    /// Widens the reordering window for the next [`PERSIST`] recoveries. Segments that were sent before have no further
    /// effect on it: they were judged by the window as it was (RACK.dsack_round).
    fn widen_reorder_window(&mut self, window: Nanos) {
        let recovery = &mut self.recovery;
        recovery.duplicate_round = Some(self.hot.snd_nxt);
        recovery.reordering = true;
        recovery.reorder_window = recovery.reorder_window.max(window).min(LONGEST);
        recovery.reorder_persist = PERSIST;
    }

    /// A D-SACK: our retransmission was needless, and reordering may be wider than thought (step 4).
    pub(crate) fn on_duplicate_report(&mut self, delivery: &Delivery) {
        let Some(block) = delivery.duplicate else { return };
        let una = self.hot.snd_una;
        let recovery = &mut self.recovery;
        if block.end.after(recovery.undo_from) && !block.end.after(recovery.point) {
            recovery.undo_bytes = recovery.undo_bytes.saturating_sub(block.len());
        }
        if self.recovery.tlp_end.is_some_and(|end| block.end == end) {
            // The probe was the duplicate (RFC 8985 section 7.4.2).
            self.recovery.tlp_end = None;
            return;
        }
        let round = self.recovery.duplicate_round;
        if round.is_none_or(|round| !una.before(round) && !block.start.before(round)) {
            let wider = self.widest_window() + self.rtt.min / 4;
            self.widen_reorder_window(wider.min(self.rtt.srtt));
        }
    }

    /// Sends a tail loss probe (RFC 8985 section 7.3): new data if there is some, else the last segment
    /// again.
    pub(crate) fn send_tail_probe(&mut self, now: Nanos) {
        let mss = self.full_segment();
        if self.unsent_len() > 0 && self.window_space() >= self.unsent_len().min(mss) {
            self.recovery.tlp_retransmitted = false;
            self.hot.bits.set_push_small(true);
            self.window.cwnd = self.window.cwnd.max(self.in_flight() + mss);
        } else if let Some(last) = self.flight.last() {
            self.recovery.tlp_retransmitted = true;
            let len = last.len().min(mss);
            self.tail_probe = Some((Seq(last.end.0.wrapping_sub(len)), len));
        }
        self.recovery.tlp_end = Some(self.hot.snd_nxt);
        self.rearm_rto(now);
    }

    /// Whether the probe repaired a loss (RFC 8985 section 7.4).
    pub(crate) fn on_tail_probe_ack(&mut self, delivery: &Delivery, now: Nanos) {
        let Some(end) = self.recovery.tlp_end else { return };
        if self.hot.snd_una.before(end) {
            return;
        }
        if !self.recovery.tlp_retransmitted || delivery.duplicate.is_some() {
            self.recovery.tlp_end = None;
        } else if self.hot.snd_una.after(end) {
            // Original or probe was lost: that is congestion, although it is repaired.
            self.recovery.tlp_end = None;
            if self.recovery.state == RecoveryState::Open {
                self.reduce_once(now);
            }
        } else if !delivery.advanced && delivery.bytes == 0 {
            // Both arrived: a duplicate acknowledgment of the same number.
            self.recovery.tlp_end = None;
        }
    }
}
