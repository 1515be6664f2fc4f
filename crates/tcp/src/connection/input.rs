//! A segment arrives (RFC 9293 section 3.10.7.4): the questions in the order of the RFC.

use wire::Flags;

use crate::config::{MILLISECOND, SECOND};
use crate::connection::timers::{NEVER, NOT_YET};
use crate::connection::validate::Fit;
use crate::connection::{Connection, Context, Events};
use crate::options::Block;
use crate::{Nanos, Reason, Segment, State};

/// Shortest time between two challenge ACKs of a connection (RFC 5961 section 7).
const CHALLENGE_INTERVAL: Nanos = 500 * MILLISECOND;
/// TS.Recent is outdated after so long without a segment (RFC 7323 section 5.5).
const TIMESTAMPS_OUTDATED: Nanos = 24 * 24 * 3600 * SECOND;
/// Most milliseconds by which an echo may be ahead of the clock. More is no echo of the connection's.
const TIMESTAMPS_AHEAD: u32 = 600_000;

/// The answer to a segment, where it is none of the connection's own segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    None,
    /// A reset for this very segment (RFC 9293 section 3.5.2).
    Reset,
}

impl Answer {
    /// A reset is never answered by one.
    pub(crate) fn reset_unless_reset(segment: &Segment<'_>) -> Answer {
        if segment.flags.any(Flags::RST) { Answer::None } else { Answer::Reset }
    }
}

impl Connection {
    /// A segment for this connection has come.
    #[inline]
    pub(crate) fn on_segment(
        &mut self,
        segment: &Segment<'_>,
        context: &mut Context<'_>,
    ) -> Answer {
        match self.hot.state {
            State::Closed => Answer::reset_unless_reset(segment),
            State::SynSent => self.on_syn_sent(segment, context),
            _ => self.on_any(segment, context),
        }
    }

    fn on_any(&mut self, segment: &Segment<'_>, context: &mut Context<'_>) -> Answer {
        if self.hot.state == State::SynReceived && segment.flags.any(Flags::SYN) {
            match self.classify_syn(segment) {
                Crossing::Again => {
                    self.hot.bits.set_syn_due(true);
                    return Answer::None;
                }
                Crossing::Completes => {
                    self.open_by(segment, 0, context.now);
                    return Answer::None;
                }
                Crossing::Neither => {}
            }
        }
        if !self.passes_timestamps(segment, context) || !self.is_acceptable(segment, context) {
            return Answer::None;
        }
        if segment.flags.any(Flags::RST) {
            self.on_reset(segment, context);
            return Answer::None;
        }
        if segment.flags.any(Flags::SYN) {
            // RFC 5961 section 4.2.
            context.counters.challenged_syns += 1;
            self.challenge(context.now);
            return Answer::None;
        }
        if !segment.flags.any(Flags::ACK) {
            context.counters.without_ack += 1;
            return Answer::None;
        }
        if self.hot.state == State::SynReceived {
            if !segment.ack.after(self.hot.snd_una) || segment.ack.after(self.hot.snd_nxt) {
                context.counters.bad_acks += 1;
                return Answer::Reset;
            }
            self.open_by(segment, self.hot.snd_shift, context.now);
        }
        if !self.is_ack_acceptable(segment) {
            context.counters.bad_acks += 1;
            self.challenge(context.now);
            return Answer::None;
        }
        // All checks are passed. A segment that fails one may be forged, and changes nothing but that an acknowledgment is
        // due: it keeps no dead connection alive.
        self.keepalive_probes = 0;
        if let Some(seconds) = segment.options.user_timeout {
            self.take_user_timeout(seconds);
        }
        self.on_ack(segment, context);
        if self.hot.state == State::Closed {
            return Answer::None;
        }
        self.take_timestamps(segment, context.now);
        self.hot.last_received = context.now;
        self.after_ack(context.now);
        if self.hot.state == State::Closed {
            return Answer::None;
        }
        self.on_urgent(segment, context);
        self.on_text(segment, context)
    }

    /// Our SYN is acknowledged in SYN-RECEIVED: the connection opens. The window of a SYN is not shifted.
    fn open_by(&mut self, segment: &Segment<'_>, shift: u8, now: Nanos) {
        self.acknowledge_syn(segment, now);
        let event = if self.listener.is_some() { Events::ACCEPTED } else { Events::CONNECTED };
        self.hot.events.add(event);
        self.establish(now);
        self.hot.snd_wnd = u32::from(segment.window) << shift;
        self.max_snd_wnd = self.max_snd_wnd.max(self.hot.snd_wnd);
    }

    /// What a segment with SYN is in SYN-RECEIVED.
    fn classify_syn(&self, segment: &Segment<'_>) -> Crossing {
        if segment.seq != self.irs || segment.flags.any(Flags::RST) {
            Crossing::Neither
        } else if !segment.flags.any(Flags::ACK) {
            // Our SYN-ACK was lost.
            Crossing::Again
        } else if segment.ack == self.hot.snd_nxt {
            // The answer to ours, where both opened at once (RFC 9293 section 3.5, figure 8).
            Crossing::Completes
        } else {
            Crossing::Neither
        }
    }

    /// RFC 7323 sections 3.2 and 5.3.
    fn passes_timestamps(&mut self, segment: &Segment<'_>, context: &mut Context<'_>) -> bool {
        if !self.hot.bits.timestamps() || segment.flags.any(Flags::RST) {
            return true;
        }
        let Some(timestamps) = segment.options.timestamps else {
            // By RFC 7323 section 3.2 it SHOULD be dropped. Linux takes it, and some middleboxes strip
            // options: so do we.
            context.counters.without_timestamp += 1;
            return true;
        };
        let recent = self.recent_timestamp(context.now);
        let age = recent.wrapping_sub(timestamps.value.0) as i32;
        if age <= 0 || recent == 0 {
            return true;
        }
        context.counters.old_timestamps += 1;
        if segment.payload_len() == 0 && !segment.flags.any(Flags::SYN.with(Flags::FIN)) {
            // A pure acknowledgment that was reordered is not answered.
            if segment.seq == self.hot.rcv_nxt && !segment.ack.after(self.hot.snd_una) {
                return false;
            }
            self.challenge(context.now);
        } else {
            self.note_duplicate(segment);
            self.acknowledge_now();
        }
        false
    }

    /// Returns true for a segment that [fits](Self::fit) the window. Another one is answered.
    fn is_acceptable(&mut self, segment: &Segment<'_>, context: &mut Context<'_>) -> bool {
        let fit = self.fit(segment);
        if fit == Fit::Inside {
            return true;
        }
        let len = segment.len();
        context.counters.out_of_window += 1;
        if segment.flags.any(Flags::RST) {
            return false;
        }
        if len > u32::from(segment.flags.any(Flags::SYN)) {
            if fit == Fit::Old {
                self.note_duplicate(segment);
            }
            let end = segment.seq + len;
            let fin_again = segment.flags.any(Flags::FIN) && end == self.hot.rcv_nxt;
            if self.hot.state == State::TimeWait && fin_again && self.is_ack_acceptable(segment) {
                // The peer sends its FIN again: our last acknowledgment was lost (RFC 9293 section 3.10.7.4).
                self.arm_slow(context.now);
            }
            self.acknowledge_now();
        } else {
            self.challenge(context.now);
        }
        false
    }

    /// RFC 9293 section 3.10.7.4, second check, with RFC 5961 section 3.2.
    fn on_reset(&mut self, segment: &Segment<'_>, context: &mut Context<'_>) {
        if segment.seq != self.hot.rcv_nxt {
            context.counters.challenged_resets += 1;
            self.challenge(context.now);
            return;
        }
        match self.hot.state {
            State::TimeWait => self.finish(Reason::Closed),
            State::SynReceived if self.listener.is_none() => self.finish(Reason::Refused),
            _ => self.finish(Reason::Reset),
        }
    }

    /// Makes a challenge ACK due, which a true peer answers with an exact reset or acknowledgment (RFC 5961),
    /// at most once in [`CHALLENGE_INTERVAL`].
    pub(crate) fn challenge(&mut self, now: Nanos) {
        if self.last_challenge != NOT_YET
            && now.saturating_sub(self.last_challenge) < CHALLENGE_INTERVAL
        {
            return;
        }
        self.last_challenge = now;
        self.acknowledge_now();
    }

    #[inline]
    pub(crate) fn acknowledge_now(&mut self) {
        self.hot.bits.set_ack_now(true);
    }

    /// TS.Recent, or 0 for none, as in Linux: the timestamps that the peer has sent are unknown here, or outdated (RFC 7323
    /// section 5.5).
    fn recent_timestamp(&self, now: Nanos) -> u32 {
        let outdated = now.saturating_sub(self.hot.last_received) > TIMESTAMPS_OUTDATED;
        if outdated { 0 } else { self.hot.ts_recent }
    }

    /// Updates TS.Recent if the segment covers what was acknowledged last (RFC 7323 section 4.3, (2)), and the clock if the
    /// echo is ahead of it. The segment is acceptable, and `last_received` is the time of the one before it.
    #[inline]
    pub(crate) fn take_timestamps(&mut self, segment: &Segment<'_>, now: Nanos) {
        let Some(timestamps) = segment.options.timestamps.filter(|_| self.hot.bits.timestamps())
        else {
            return;
        };
        if (timestamps.echo.0.wrapping_sub(self.ts_clock(now)) as i32) > 0 {
            self.go_beyond(timestamps.echo.0, now);
        }
        if !segment.seq.after(self.hot.rcv_acked) {
            let recent = self.recent_timestamp(now);
            let latest = timestamps.value.max(wire::Seq(recent)).0;
            self.hot.ts_recent = if recent == 0 { timestamps.value.0 } else { latest };
        }
    }

    /// Timestamps must not go back (RFC 7323 section 5.3), or the peer drops the segments. The kernel may have sent a later one
    /// than it told when it gave the connection away. The peer echoes it: the next is later than that.
    #[cold]
    fn go_beyond(&mut self, echo: u32, now: Nanos) {
        let ahead = echo.wrapping_sub(self.ts_clock(now));
        if self.first_timestamp.is_some() && ahead < TIMESTAMPS_AHEAD {
            self.hot.ts_offset = self.hot.ts_offset.wrapping_add(ahead + 1);
            self.ts_ahead = self.ts_ahead.wrapping_add(ahead + 1);
            self.first_timestamp = Some(echo.wrapping_add(1));
        }
    }

    /// The next acknowledgment reports to the peer that this came twice (RFC 2883 section 4).
    pub(crate) fn note_duplicate(&mut self, segment: &Segment<'_>) {
        let end = segment.seq + segment.payload_len();
        let block = Block { start: segment.seq, end: end.min(self.hot.rcv_nxt) };
        if self.hot.bits.sack() && block.start.before(block.end) {
            self.duplicate = Some(block);
            self.hot.bits.set_reports(true);
        }
    }

    /// Our FIN may be acknowledged now (RFC 9293 section 3.10.7.4, fifth check).
    fn after_ack(&mut self, now: Nanos) {
        if !self.is_fin_acknowledged() {
            return;
        }
        match self.hot.state {
            State::FinWait1 => {
                self.hot.state = State::FinWait2;
                self.arm_slow(now);
            }
            State::Closing => self.enter_time_wait(now),
            State::LastAck => self.finish(Reason::Closed),
            _ => {}
        }
    }

    pub(crate) fn enter_time_wait(&mut self, now: Nanos) {
        self.hot.state = State::TimeWait;
        self.set_pending(crate::connection::timers::Pending::None, NEVER);
        self.arm_slow(now);
    }

    /// Ends the connection.
    pub(crate) fn finish(&mut self, reason: Reason) {
        self.end = Some(reason);
        self.ended_in = self.hot.state;
        self.hot.state = State::Closed;
        self.set_pending(crate::connection::timers::Pending::None, NEVER);
        self.slow_deadline = NEVER;
        self.hot.ack_deadline = NEVER;
        self.hot.bits.set_ack_now(false);
        self.forget_dup_acks();
        self.hot.bits.set_syn_due(false);
        self.hot.bits.set_probe_due(false);
        self.hot.events.add(Events::CLOSED);
        self.hot.events.add(Events::READABLE);
    }
}

enum Crossing {
    Again,
    Completes,
    Neither,
}
