//! Loss recovery: fast recovery by SACK and RACK (RFC 6675, RFC 8985) or by duplicates (RFC 6582),
//! proportional rate reduction (RFC 6937), retransmission time-outs with F-RTO (RFC 5682), and undo of
//! reductions that were spurious (RFC 3522, RFC 3708).

use wire::Seq;

use crate::Nanos;
use crate::congestion::Acked;
use crate::connection::ack::Delivery;
use crate::connection::timers::{NOT_YET, Pending};
use crate::connection::{Connection, Context};
use crate::snapshot::RecoveryState;

/// Duplicates after which a segment is lost (RFC 5681 section 3.2).
pub(crate) const DUP_THRESH: u32 = 3;
/// Bytes that no congestion window exceeds.
const CWND_MAX: u32 = 1 << 30;

/// What loss recovery remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Recovery {
    pub(crate) state: RecoveryState,
    /// RecoveryPoint: recovery ends when this is acknowledged (RFC 6675 section 2).
    pub(crate) point: Seq,
    // The window and the threshold before the reduction, for undo.
    pub(crate) prior_cwnd: u32,
    pub(crate) prior_ssthresh: u32,
    /// The reduction can be undone.
    pub(crate) undo: bool,
    /// Congestion control has reduced its window for this recovery, and not for a congestion mark before it.
    pub(crate) reduced: bool,
    /// SND.UNA when recovery began: duplicates of what was acknowledged by then do not count.
    pub(crate) undo_from: Seq,
    /// Retransmitted bytes of which no duplicate was reported.
    pub(crate) undo_bytes: u32,
    /// Timestamp of the first retransmission (RFC 3522).
    pub(crate) undo_ts: Option<u32>,
    // RFC 6937 section 3.
    pub(crate) prr_delivered: u32,
    pub(crate) prr_out: u32,
    pub(crate) prr_flight: u32,
    /// F-RTO is deciding (RFC 5682 section 3).
    pub(crate) frto: bool,
    /// New data goes before retransmissions, for F-RTO.
    pub(crate) frto_new: bool,
    /// Duplicate acknowledgments in a row, where there is no SACK.
    pub(crate) duplicates: u32,
    // RACK (RFC 8985 section 5.3).
    pub(crate) rack_at: Nanos,
    pub(crate) rack_end: Seq,
    pub(crate) rack_rtt: Nanos,
    pub(crate) fack: Seq,
    pub(crate) reordering: bool,
    /// RACK.reo_wnd as it was learnt; 0 as long as the first one, a quarter of the shortest round trip, has sufficed.
    pub(crate) reorder_window: Nanos,
    /// RACK.reo_wnd_persist.
    pub(crate) reorder_persist: u8,
    /// RACK.dsack_round.
    pub(crate) duplicate_round: Option<Seq>,
    // TLP (RFC 8985 section 7.1).
    pub(crate) tlp_end: Option<Seq>,
    pub(crate) tlp_retransmitted: bool,
}

impl Connection {
    /// Updates loss recovery and the congestion window for an acknowledgment.
    pub(crate) fn recover(&mut self, delivery: &mut Delivery, context: &mut Context<'_>) {
        let now = context.now;
        self.recovery.frto_new = false;
        self.count_duplicates(delivery);
        self.update_rack(delivery, now);
        self.on_late_original(delivery);
        self.on_duplicate_report(delivery);
        self.on_tail_probe_ack(delivery, now);
        self.on_probe_result(delivery);
        let state = self.recovery.state;
        if state != RecoveryState::Open && self.is_recovered() {
            self.leave_recovery(delivery, context);
        } else if state == RecoveryState::Open
            && self.hot.snd_una.distance(self.recovery.point) > 1 << 30
        {
            // RecoveryPoint stays within half of the sequence space, where numbers compare.
            self.recovery.point = Seq(self.hot.snd_una.0.wrapping_sub(1));
        }
        let mut lost = 0;
        match self.recovery.state {
            RecoveryState::Open | RecoveryState::Marked => {
                if self.recovery.state == RecoveryState::Open && self.is_undone_late(delivery) {
                    self.undo();
                    context.counters.undone += 1;
                }
                lost = self.detect_loss(now);
                if self.flight.lost() > 0 && !self.flight.is_probe_lost() {
                    self.enter_recovery(context);
                }
            }
            RecoveryState::Recovery => {
                if self.is_spurious(delivery) {
                    self.undo();
                    context.counters.undone += 1;
                } else {
                    lost = self.detect_loss(now) + self.on_partial_ack(delivery);
                }
            }
            RecoveryState::Loss => self.on_ack_in_loss(delivery, context),
        }
        if delivery.echo {
            self.on_congestion_echo(now);
        }
        self.adapt_window(delivery, lost, now);
    }

    fn is_recovered(&self) -> bool {
        !self.hot.snd_una.before(self.recovery.point)
    }

    /// Without SACK every duplicate stands for a segment that has left the network (RFC 5681 section
    /// 3.2).
    fn count_duplicates(&mut self, delivery: &mut Delivery) {
        if self.hot.bits.sack() {
            return;
        }
        if delivery.advanced {
            // What the duplicates stood for is acknowledged now.
            delivery.counted = self.recovery.duplicates.saturating_mul(u32::from(self.hot.mss));
            self.recovery.duplicates = 0;
        } else if delivery.repeats {
            self.recovery.duplicates = self.recovery.duplicates.saturating_add(1);
        }
    }

    /// Bytes in flight, those that duplicates stand for taken off.
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        let pipe = self.flight.pipe();
        if self.recovery.duplicates == 0 {
            return pipe;
        }
        pipe.saturating_sub(self.recovery.duplicates.saturating_mul(u32::from(self.hot.mss)))
    }

    /// Detects losses after this acknowledgment. Returns newly lost bytes.
    pub(crate) fn detect_loss(&mut self, now: Nanos) -> u32 {
        if self.hot.bits.sack() {
            return self.detect_loss_by_rack(now);
        }
        if self.recovery.duplicates >= DUP_THRESH
            && self.recovery.state != RecoveryState::Recovery
            && self.may_recover_again()
        {
            return self.flight.mark_first_lost(u32::from(self.hot.mss));
        }
        0
    }

    /// RFC 6582 section 3.2, step 2: duplicates of what was sent before the last recovery do not begin
    /// another.
    fn may_recover_again(&self) -> bool {
        self.hot.snd_una.after(self.recovery.point) || self.recovery.prior_cwnd == 0
    }

    /// RFC 6582 section 3.2, step 3: an acknowledgment of a part shows the next hole.
    fn on_partial_ack(&mut self, delivery: &Delivery) -> u32 {
        if self.hot.bits.sack() || !delivery.advanced || self.flight.lost() > 0 {
            return 0;
        }
        self.flight.mark_first_lost(u32::from(self.hot.mss))
    }

    /// Saves what [`undo`](Self::undo) restores.
    fn remember(&mut self) {
        let recovery = &mut self.recovery;
        if recovery.state == RecoveryState::Open || recovery.state == RecoveryState::Marked {
            recovery.prior_cwnd = self.window.cwnd;
            recovery.prior_ssthresh = self.window.ssthresh;
        }
        recovery.undo = true;
        recovery.undo_from = self.hot.snd_una;
        recovery.undo_bytes = 0;
        recovery.undo_ts = None;
        recovery.point = self.hot.snd_nxt;
    }

    pub(crate) fn enter_recovery(&mut self, context: &mut Context<'_>) {
        context.counters.recoveries += 1;
        let (flight, now) = (self.flight.outstanding(), context.now);
        let marked = self.recovery.state == RecoveryState::Marked;
        self.remember();
        self.recovery.reduced = !marked;
        if !marked {
            let control = self.congestion.control();
            self.window.ssthresh = control.on_congestion(&self.window, flight, now);
            if self.hot.bits.ecn() {
                self.hot.bits.set_cwr_due(true);
            }
        }
        if self.hot.pending == Pending::TailProbe {
            // In recovery the retransmission timer runs.
            self.rearm_rto(now);
        }
        self.tail_probe = None;
        let recovery = &mut self.recovery;
        recovery.state = RecoveryState::Recovery;
        recovery.prr_delivered = 0;
        recovery.prr_out = 0;
        recovery.prr_flight = flight.max(1);
        recovery.tlp_end = None;
    }

    fn leave_recovery(&mut self, delivery: &Delivery, context: &mut Context<'_>) {
        let state = self.recovery.state;
        if state != RecoveryState::Marked && self.is_spurious(delivery) {
            self.undo();
            context.counters.undone += 1;
            return;
        }
        if state == RecoveryState::Recovery {
            // RFC 6937 section 3: at the end the window is the threshold.
            self.window.cwnd = self.window.ssthresh.clamp(u32::from(self.hot.mss), CWND_MAX);
        }
        self.recovery.state = RecoveryState::Open;
        self.recovery.frto = false;
        self.recovery.duplicates = 0;
        if self.recovery.reorder_persist > 0 {
            self.recovery.reorder_persist -= 1;
        } else {
            self.recovery.reorder_window = 0;
        }
    }

    /// Whether the recovery was spurious: all retransmissions were reported as duplicates (RFC 3708), or the
    /// first acknowledgment echoes a timestamp from before them (RFC 3522).
    fn is_spurious(&self, delivery: &Delivery) -> bool {
        let recovery = &self.recovery;
        if !recovery.undo {
            return false;
        }
        let by_time = delivery.advanced
            && self.hot.bits.timestamps()
            && matches!((recovery.undo_ts, delivery.ts_echo), (Some(first), Some(echo))
                if echo != 0 && (echo.wrapping_sub(first) as i32) < 0);
        let by_duplicates =
            delivery.duplicate.is_some() && recovery.undo_ts.is_some() && recovery.undo_bytes == 0;
        // What was missing came before anything was sent again.
        let by_itself = delivery.advanced && recovery.undo_ts.is_none() && self.flight.lost() == 0;
        by_time || by_duplicates || by_itself
    }

    /// The duplicates of all retransmissions were reported after recovery had ended (RFC 3708).
    fn is_undone_late(&self, delivery: &Delivery) -> bool {
        delivery.duplicate.is_some() && self.is_spurious(delivery)
    }

    /// Undoes the reduction.
    pub(crate) fn undo(&mut self) {
        self.flight.clear_lost();
        self.window.cwnd = self.window.cwnd.max(self.recovery.prior_cwnd);
        self.window.ssthresh = self.window.ssthresh.max(self.recovery.prior_ssthresh);
        if self.recovery.reduced {
            self.congestion.control().undo();
        }
        self.recovery.state = RecoveryState::Open;
        self.recovery.undo = false;
        self.recovery.frto = false;
        self.recovery.duplicates = 0;
    }

    /// The retransmission timer has run out (RFC 6298 section 5.4, RFC 8985 section 6.3).
    pub(crate) fn enter_loss(&mut self, now: Nanos) {
        let state = self.recovery.state;
        let first = state != RecoveryState::Loss || self.is_recovered();
        if self.flight.first().is_some_and(|first| first.sacked) {
            // The peer has discarded what it had reported by SACK (RFC 2018 section 8).
            self.flight.renege();
        }
        if first {
            let flight = self.flight.outstanding();
            let reduced = state == RecoveryState::Recovery;
            self.remember();
            if !reduced {
                self.recovery.reduced = true;
                let control = self.congestion.control();
                self.window.ssthresh = control.on_timeout(&self.window, flight, now);
            }
        }
        self.recovery.frto = first;
        self.recovery.frto_new = false;
        self.recovery.point = self.hot.snd_nxt;
        self.recovery.state = RecoveryState::Loss;
        self.recovery.duplicates = 0;
        self.recovery.tlp_end = None;
        let limit = self.recovery.rack_rtt + self.reorder_window();
        let head = self.flight.first().map(|first| first.start);
        let by_time = self.hot.bits.sack() && self.recovery.rack_rtt > 0;
        self.flight.mark_lost(|record| {
            Some(record.start) == head || !by_time || record.at.saturating_add(limit) <= now
        });
        if self.hot.bits.ecn() {
            self.hot.bits.set_cwr_due(true);
        }
        // RFC 5681 section 3.1: the loss window, above what is still believed to be in flight.
        self.window.cwnd = self.flight.pipe() + u32::from(self.hot.mss);
        self.hot.bits.set_cwnd_limited(true);
    }

    /// RFC 5682 section 3.1, the variant with SACK: what was sent before the time-out and only once
    /// still arrives, so nothing was lost.
    fn on_ack_in_loss(&mut self, delivery: &Delivery, context: &mut Context<'_>) {
        let old = delivery.once_first.is_some_and(|end| !end.after(self.recovery.point));
        if self.recovery.frto {
            if old && (delivery.advanced || delivery.sacked > 0) && self.hot.bits.sack() {
                self.undo();
                context.counters.spurious_timeouts += 1;
                return;
            }
            if self.hot.snd_nxt.after(self.recovery.point) {
                // Step 3.a and 3.b, after new data was sent.
                if !self.hot.bits.sack() && delivery.advanced && old {
                    self.undo();
                    context.counters.spurious_timeouts += 1;
                    return;
                }
                if delivery.sacked > 0 || delivery.repeats {
                    self.recovery.frto = false;
                }
            } else if delivery.advanced {
                // Step 2.b: try with new data.
                self.recovery.point = self.hot.snd_nxt;
                if self.unsent_len() > 0 && self.window_space() > 0 {
                    self.recovery.frto_new = true;
                    return;
                }
                self.recovery.frto = false;
            }
        }
        if self.is_spurious(delivery) {
            self.undo();
            context.counters.spurious_timeouts += 1;
            return;
        }
        if self.hot.bits.sack() {
            self.detect_loss_by_rack(context.now);
        }
    }

    /// RFC 3168 section 6.1.2: once a round trip, as for a loss.
    fn on_congestion_echo(&mut self, now: Nanos) {
        if self.recovery.state == RecoveryState::Open {
            self.reduce_once(now);
            self.hot.bits.set_cwr_due(true);
        }
    }

    /// The window after a mark, or after a loss that is repaired already.
    pub(crate) fn reduce_once(&mut self, now: Nanos) {
        let flight = self.flight.pipe();
        self.window.ssthresh = self.congestion.control().on_congestion(&self.window, flight, now);
        self.window.cwnd = self.window.cwnd.min(self.window.ssthresh);
        self.recovery.point = self.hot.snd_nxt;
        self.recovery.state = RecoveryState::Marked;
        self.recovery.undo = false;
    }

    /// The congestion window after an acknowledgment.
    fn adapt_window(&mut self, delivery: &Delivery, lost: u32, now: Nanos) {
        match self.recovery.state {
            RecoveryState::Recovery => self.reduce_proportionally(delivery, lost),
            RecoveryState::Marked => {}
            RecoveryState::Open | RecoveryState::Loss => {
                // RFC 5681 section 3.1 counts bytes that are acknowledged by number. Where most segments are overtaken,
                // most bytes are delivered by SACK first (tcp_may_raise_cwnd in Linux).
                let counts = delivery.advanced || self.recovery.reorder_window > 0;
                let bytes = if counts { self.newly_delivered(delivery) } else { 0 };
                // An acknowledgment by number ends a wait for the slowest segment. HyStart++ looks for the shortest
                // delay of a round, and needs those that SACK shows.
                let measures = delivery.rtt.is_some() && self.window.in_slow_start();
                if bytes == 0 && !measures {
                    return;
                }
                let acked = Acked {
                    now,
                    bytes,
                    srtt: self.rtt.srtt,
                    rtt: delivery.rtt,
                    in_flight: delivery.in_flight,
                    cwnd_limited: self.hot.bits.cwnd_limited()
                        || self.window.in_slow_start()
                            && self.window.cwnd < self.most_out.saturating_mul(2),
                    snd_nxt: self.hot.snd_nxt,
                    snd_una: self.hot.snd_una,
                };
                self.congestion.control().on_ack(&mut self.window, &acked);
                self.window.cwnd = self.window.cwnd.min(CWND_MAX);
            }
        }
    }

    /// Bytes that were not known to be delivered before. Without SACK the duplicates have stood for all but
    /// the hole that is filled (RFC 6582 section 3.2), and a segment was sent for each (RFC 3042 section 2):
    /// the acknowledgment of the same segments must not make room for them once more.
    fn newly_delivered(&self, delivery: &Delivery) -> u32 {
        if delivery.counted == 0 {
            return delivery.bytes;
        }
        let hole = u32::from(self.hot.mss).min(delivery.bytes);
        delivery.bytes.saturating_sub(delivery.counted).max(hole)
    }

    /// RFC 6937 section 3.1, with the slow start reduction bound while nothing more is lost (RFC 9937).
    pub(crate) fn reduce_proportionally(&mut self, delivery: &Delivery, lost: u32) {
        let mss = u32::from(self.hot.mss);
        let without_sack = if self.hot.bits.sack() || !delivery.repeats { 0 } else { mss };
        let delivered = self.newly_delivered(delivery) + without_sack;
        let pipe = self.in_flight();
        let recovery = &mut self.recovery;
        recovery.prr_delivered = recovery.prr_delivered.saturating_add(delivered);
        let ssthresh = self.window.ssthresh;
        let mut count = if pipe > ssthresh {
            let due = (u64::from(recovery.prr_delivered) * u64::from(ssthresh))
                .div_ceil(u64::from(recovery.prr_flight));
            u32::try_from(due).unwrap_or(u32::MAX).saturating_sub(recovery.prr_out)
        } else {
            let mut limit = recovery.prr_delivered.saturating_sub(recovery.prr_out).max(delivered);
            if delivery.advanced && lost == 0 {
                limit = limit.saturating_add(mss);
            }
            limit.min(ssthresh - pipe)
        };
        if recovery.prr_out == 0 || pipe == 0 {
            // The fast retransmission goes in any case, and what is in flight must not die out.
            count = count.max(mss);
        }
        self.window.cwnd = pipe.saturating_add(count).clamp(mss, CWND_MAX);
    }

    /// The congestion window after a pause (RFC 5681 section 4.1): halved for each time-out that has
    /// gone by, not below the initial window.
    pub(crate) fn restart_after_idle(&mut self, now: Nanos) {
        let idle = now.saturating_sub(self.last_sent);
        // Without the doublings of a closed window, as in Linux: they would let the result depend on how
        // often it was asked meanwhile.
        let rto = self.rtt.first_rto(&self.config);
        if !self.flight.is_empty() || idle <= rto || self.last_sent == NOT_YET {
            return;
        }
        let least = initial_window(self).min(self.window.cwnd);
        self.window.ssthresh = self.window.ssthresh.max(self.window.cwnd / 4 * 3);
        let halvings = idle / rto.max(1);
        let shift = u32::try_from(halvings).unwrap_or(31).min(31);
        self.window.cwnd = (self.window.cwnd >> shift).max(least);
        // Each time-out counts once, however often it is tried to send.
        let counted = halvings.saturating_mul(rto);
        self.congestion.control().on_idle(counted);
        self.last_sent = self.last_sent.saturating_add(counted);
    }
}

/// The initial window (RFC 6928 section 2), or as many segments as are asked for, however long they are:
/// Linux sends ten of any MSS (TCP_INIT_CWND).
pub(crate) fn initial_window(connection: &Connection) -> u32 {
    let mss = u32::from(connection.hot.mss);
    match connection.config.initial_window {
        0 => (10 * mss).min((2 * mss).max(14_600)),
        segments => segments.saturating_mul(mss).clamp(mss, CWND_MAX),
    }
}
