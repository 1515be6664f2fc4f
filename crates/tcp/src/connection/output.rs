//! What is to be sent next, and whether it may be (RFC 9293 sections 3.7.4, 3.8.6 and 3.10.7.4).

use wire::{Flags, Seq, Timestamps};

use crate::block::SEND_BLOCK;
use crate::config::MILLISECOND;
use crate::connection::timers::{NEVER, Pending};
use crate::connection::{Connection, Context};
use crate::options::{Encoded, Options};
use crate::segment::Transmit;
use crate::snapshot::RecoveryState;
use crate::{Nanos, State};

/// Small segments that may be in flight beside a full congestion window.
const CROWD: usize = 64;

/// Windows up to this are not cut in half: the smallest MSS that all hosts take (RFC 9293 section 3.7.1).
const SMALL_WINDOW: u32 = 536;

/// A segment to be sent now; its payload still lies in the send queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    seq: Seq,
    flags: Flags,
    /// Where the payload begins in the send queue.
    offset: u32,
    len: u32,
    gso_size: u16,
    window: u16,
    urgent: u16,
    options: Encoded,
    ect: bool,
}

impl Connection {
    /// The next segment, if there is one to send now. It counts as sent.
    pub(crate) fn plan(&mut self, context: &mut Context<'_>) -> Option<Planned> {
        let now = context.now;
        if self.hot.bits.syn_due() {
            return Some(self.plan_syn(now));
        }
        if self.hot.bits.reset_due() {
            self.hot.bits.set_reset_due(false);
            return Some(self.plan_bare(self.acceptable_seq(), Flags::RST.with(Flags::ACK), now));
        }
        if self.hot.bits.dup_acks_due() {
            return Some(self.plan_dup_ack(context));
        }
        if self.hot.state.transmits() && self.is_sending() {
            if let Some(planned) = self.plan_data(context) {
                return Some(planned);
            }
            self.arm_persist(now);
        }
        if self.hot.state < State::Established {
            // What is to be acknowledged in SYN-RECEIVED is the SYN: the answer to it was lost.
            let again = self.hot.state == State::SynReceived && self.hot.bits.ack_now();
            self.hot.bits.set_ack_now(false);
            return again.then(|| self.plan_syn(now));
        }
        if self.hot.bits.probe_due() {
            self.hot.bits.set_probe_due(false);
            let before = Seq(self.hot.snd_una.0.wrapping_sub(1));
            return Some(self.plan_bare(before, Flags::ACK, now));
        }
        if self.hot.bits.ack_now() {
            context.counters.pure_acks += 1;
            return Some(self.plan_bare(self.acceptable_seq(), Flags::ACK, now));
        }
        None
    }

    /// SND.NXT, unless the peer has taken back the window before it: there it would not look at our
    /// acknowledgment (RFC 9293 section 3.10.7.4, first check; tcp_acceptable_seq in Linux).
    pub(crate) fn acceptable_seq(&self) -> Seq {
        self.hot.snd_nxt.min(self.hot.snd_una + self.hot.snd_wnd)
    }

    /// Whether [`plan`](Self::plan) might give something.
    #[inline]
    pub(crate) fn may_transmit(&self) -> bool {
        let bits = self.hot.bits;
        bits.ack_now()
            || bits.dup_acks_due()
            || bits.syn_due()
            || bits.probe_due()
            || self.hot.bits.reset_due()
            || self.hot.state.transmits()
                && (self.is_sending() && (self.flight.lost() > 0 || self.tail_probe.is_some())
                    || self.unsent_len() > 0
                    || self.is_fin_waiting())
    }

    /// Whether [`Stack::poll_due`](crate::Stack::poll_due) has yet to ask it for what it may send.
    pub fn waits_for_turn(&self) -> bool {
        self.hot.bits.ready()
    }

    /// Whether anything is in flight or waiting, without a look at what few segments need.
    #[inline]
    pub(crate) fn is_sending(&self) -> bool {
        self.hot.snd_una != self.hot.snd_nxt || !self.hot.send.is_empty() || self.is_fin_waiting()
    }

    /// The next segment with data, new or retransmitted, or with a FIN.
    fn plan_data(&mut self, context: &mut Context<'_>) -> Option<Planned> {
        let now = context.now;
        let open = matches!(self.recovery.state, RecoveryState::Open | RecoveryState::Marked);
        if let Some((start, len)) = self.tail_probe.take()
            && open
            && !start.before(self.hot.snd_una)
            && !self.flight.is_empty()
        {
            return Some(self.plan_retransmission(start, len, context));
        }
        let again = self.flight.lost() > 0 && !self.recovery.frto_new;
        if again && let Some((start, len)) = self.next_retransmission() {
            return Some(self.plan_retransmission(start, len, context));
        }
        let planned = self.plan_new(now);
        self.hot.bits.set_push_small(false);
        let tried = self.hot.snd_nxt.after(self.recovery.point);
        if planned.is_none() && self.recovery.frto_new && !tried {
            // RFC 5682 section 2.1, step 2.b: where no new data can be sent, lost data is retransmitted.
            self.recovery.frto_new = false;
            self.recovery.frto = false;
            let (start, len) = self.next_retransmission()?;
            return Some(self.plan_retransmission(start, len, context));
        }
        planned
    }

    /// The next lost bytes that window and congestion window permit.
    fn next_retransmission(&mut self) -> Option<(Seq, u32)> {
        let mss = self.full_segment();
        let record = self.flight.next_lost()?;
        let room = self.window.cwnd.saturating_sub(self.in_flight());
        if room < record.len().min(mss) {
            return None;
        }
        let mut len = record.len().min((room / mss).max(1) * mss).min(self.burst(mss));
        // What lies beyond a window that was shrunk waits; the first byte is retransmitted in any case (RFC
        // 9293 section 3.8.6.1).
        let edge = self.hot.snd_una + self.hot.snd_wnd;
        if record.start != self.hot.snd_una {
            if !record.start.before(edge) {
                return None;
            }
            len = len.min(edge - record.start);
        }
        Some((record.start, len))
    }

    fn plan_retransmission(&mut self, start: Seq, len: u32, context: &mut Context<'_>) -> Planned {
        let now = context.now;
        context.counters.retransmissions += 1;
        context.counters.retransmitted_bytes += u64::from(len);
        self.flight.retransmitted(start, len, self.full_segment(), now);
        self.recovery.prr_out = self.recovery.prr_out.saturating_add(len);
        self.recovery.undo_bytes = self.recovery.undo_bytes.saturating_add(len);
        if self.recovery.undo_ts.is_none() {
            self.recovery.undo_ts = Some(self.ts_clock(now));
        }
        if matches!(self.hot.pending, Pending::None | Pending::Persist) {
            self.rearm_rto(now);
        }
        self.plan_range(start, len, false, now)
    }

    /// Bytes that the peer's window has room for behind SND.NXT.
    #[inline]
    pub(crate) fn window_space(&self) -> u32 {
        let edge = self.hot.snd_una + self.hot.snd_wnd;
        if edge.after(self.hot.snd_nxt) { edge - self.hot.snd_nxt } else { 0 }
    }

    /// Whether the application has closed, and the FIN was not sent yet.
    #[inline]
    pub(crate) fn is_fin_waiting(&self) -> bool {
        self.hot.bits.fin_queued() && !self.hot.bits.fin_sent()
    }

    /// New data, as much of it as a burst may have.
    fn plan_new(&mut self, now: Nanos) -> Option<Planned> {
        let unsent = self.unsent_len();
        let fin = self.is_fin_waiting();
        if unsent == 0 {
            // A FIN alone needs a place in the window, and no congestion window.
            return (fin && self.window_space() > 0).then(|| self.send_new(0, now));
        }
        self.restart_after_idle(now);
        if self.hot.bits.mtu_bounded() {
            self.forget_mtu(now);
        }
        if let Some(len) = self.next_mtu_probe(unsent, now) {
            return Some(self.send_new(len, now));
        }
        let full = self.full_segment();
        let room = self.window.cwnd.saturating_sub(self.in_flight());
        let space = self.window_space();
        let room = if self.is_crowded() { 0 } else { room };
        let most = unsent.min(room).min(space).min(self.burst(full));
        if most >= full {
            let whole = most - most % full;
            let part = most - whole;
            let goes = most == unsent || most == space && self.is_worth(part, full);
            let len = if goes && self.may_send_part(part) { most } else { whole };
            return Some(self.send_new(len, now));
        }
        if room < unsent.min(full).min(space) || self.is_crowded() {
            self.note_usage(true);
            if self.in_flight() > 0 {
                return None;
            }
        }
        let part = unsent.min(space);
        let worth = if part == unsent {
            self.may_send_part(part)
        } else {
            // RFC 9293 section 3.8.6.2.1: at least half of the largest window.
            part >= self.max_snd_wnd / 2 || self.hot.bits.push_small()
        };
        (part > 0 && worth).then(|| self.send_new(part.min(full), now))
    }

    /// Into a window of less than two segments, the rest of it goes with a full one, as from Linux
    /// (tcp_mss_split_point): a receiver that gets one segment delays its acknowledgment. Less than a quarter
    /// of a segment would be silly (RFC 9293 section 3.8.6.2.1).
    fn is_worth(&self, part: u32, full: u32) -> bool {
        self.hot.snd_wnd < 2 * self.largest_segment() && part >= full / 4
    }

    /// Most payload of one transmission. Urgent pointers differ from segment to segment, which cards do
    /// not know of: such data goes a segment at a time.
    fn burst(&self, full: u32) -> u32 {
        if self.snd_urgent.is_some() {
            return full;
        }
        // Whole segments, and half of the window at most, so that acknowledgments keep coming; as Linux.
        let most = self.config.burst.min(SEND_BLOCK as u32);
        (most.min(self.window.cwnd / 2) / full * full).max(full)
    }

    /// Whether the last part of the queue, less than a segment, may go (RFC 9293 section 3.7.4, in Minshall's
    /// variant: not while another small segment is in flight).
    fn may_send_part(&self, part: u32) -> bool {
        let bits = self.hot.bits;
        if part == 0 || bits.fin_queued() || bits.push_small() || self.snd_urgent.is_some() {
            return true;
        }
        if bits.cork() {
            return false;
        }
        bits.no_delay() || !self.snd_small.after(self.hot.snd_una)
    }

    /// Payload of a full segment: what the path takes, and no more than half of the largest window that
    /// the peer ever offered, so that two are in flight (the Fs of RFC 9293 section 3.8.6.2.1).
    /// Otherwise a window of one and a half segments would take one in each round trip. As in Linux
    /// (tcp_bound_to_half_wnd), windows of one segment of 536 bytes stay whole.
    pub(crate) fn full_segment(&self) -> u32 {
        let largest = self.largest_segment();
        // Mostly the current window shows that the largest, far away in memory, is not needed.
        if self.hot.snd_wnd >= 2 * largest || self.max_snd_wnd <= SMALL_WINDOW {
            return largest;
        }
        largest.min(self.max_snd_wnd.div_ceil(2))
    }

    /// Payload of the largest segment that the path takes, beside the options that the next one has.
    pub(crate) fn largest_segment(&self) -> u32 {
        u32::from(self.hot.mss) - self.sack_len()
    }

    /// Bytes that SACK takes of the next segment.
    fn sack_len(&self) -> u32 {
        if !self.hot.bits.sack() || !self.hot.bits.reports() {
            return 0;
        }
        let blocks =
            self.out_of_order.recent().as_slice().len() + usize::from(self.duplicate.is_some());
        let most = if self.hot.bits.timestamps() { 3 } else { 4 };
        4 + 8 * blocks.min(most) as u32
    }

    /// Records how much of the congestion window was used in this round (RFC 7661, as tcp_cwnd_validate in
    /// Linux): a window that is not filled does not grow.
    fn note_usage(&mut self, limited: bool) {
        let out = self.flight.outstanding();
        let new_round = !self.hot.snd_una.before(self.round_end);
        if new_round || limited || !self.hot.bits.cwnd_limited() && out > self.most_out {
            self.hot.bits.set_cwnd_limited(limited);
            self.most_out = out;
            self.round_end = self.hot.snd_nxt;
        }
    }

    /// Whether more segments are in flight than full ones fit into the congestion window. It counts bytes;
    /// other hosts count packets, and small ones are packets, too.
    fn is_crowded(&self) -> bool {
        let most = (self.window.cwnd / self.window.mss.max(1)) as usize + CROWD;
        // What SACK has is not in flight, but it takes memory.
        self.flight.count() > most || self.flight.held() > 2 * most
    }

    fn send_new(&mut self, len: u32, now: Nanos) -> Planned {
        let seq = self.hot.snd_nxt;
        let last = len == self.unsent_len();
        let fin = self.is_fin_waiting() && last;
        let end = seq + len + u32::from(fin);
        let probe = self.is_mtu_probe(len);
        let size = if probe { len } else { self.full_segment() };
        self.flight.push(seq, end, now, size, probe);
        self.hot.snd_nxt = end;
        self.recovery.prr_out = self.recovery.prr_out.saturating_add(len);
        if !len.is_multiple_of(self.full_segment().max(1)) {
            self.snd_small = end;
        }
        if fin {
            self.hot.bits.set_fin_sent(true);
        }
        let full = u32::from(self.hot.mss);
        self.note_usage(self.in_flight() + full > self.window.cwnd);
        let mut planned = self.plan_range(seq, len + u32::from(fin), true, now);
        if probe {
            planned.gso_size = 0;
            planned.flags = planned.flags.without(Flags::PSH);
        }
        match self.hot.pending {
            Pending::Persist => {
                self.rtt.backoff = 0;
                self.rearm_rto(now);
            }
            Pending::None => self.rearm_rto(now),
            Pending::TailProbe => self.keep_rto(now),
            Pending::Rto | Pending::Reorder => {}
        }
        if self.recovery.tlp_end == Some(seq) && !self.recovery.tlp_retransmitted {
            // The probe is new data, and ends here (RFC 8985 section 7.3).
            self.recovery.tlp_end = Some(end);
        }
        self.schedule_tail_probe(now);
        planned
    }

    /// A segment of `len` of the sequence space from `start` on, which ends with the FIN if that is part
    /// of it.
    fn plan_range(&mut self, start: Seq, len: u32, new: bool, now: Nanos) -> Planned {
        let queue_end = self.queue_end();
        let end = start + len;
        let fin = self.hot.bits.fin_sent() && end.after(queue_end);
        let payload = len - u32::from(fin);
        let mut flags = Flags::ACK;
        if fin {
            flags = flags.with(Flags::FIN);
        }
        if payload > 0 && start + payload == queue_end {
            flags = flags.with(Flags::PSH);
        }
        let mut urgent = 0;
        // An urgent byte beyond the reach of the pointer is announced by a later segment, as in Linux.
        if let Some(up) = self.snd_urgent
            && up.after(start)
            && let Ok(ahead) = u16::try_from(up - start)
        {
            flags = flags.with(Flags::URG);
            urgent = ahead;
        }
        let ect = self.hot.bits.ecn() && new && payload > 0;
        if ect && self.hot.bits.cwr_due() {
            self.hot.bits.set_cwr_due(false);
            flags = flags.with(Flags::CWR);
        }
        let offset = if payload > 0 { start - self.queue_start() } else { 0 };
        let full = self.full_segment();
        let mut planned = self.plan_bare(start, flags, now);
        planned.offset = offset;
        planned.len = payload;
        planned.urgent = urgent;
        planned.ect = ect;
        if payload > full {
            planned.gso_size = full as u16;
            // PSH at the end of a burst, as in Linux: a receiver that merges segments flushes there.
            // Retransmissions are no such burst.
            if new {
                planned.flags = planned.flags.with(Flags::PSH);
            }
        }
        // Data is answered within the delay of an acknowledgment: the exchange is interactive.
        if new && payload > 0 && self.hot.bits.unanswered() {
            let soon = now.saturating_sub(self.hot.last_received) < 40 * MILLISECOND;
            self.hot.bits.set_interactive(self.hot.bits.interactive() || soon);
            self.hot.bits.set_unanswered(false);
        }
        self.last_sent = now;
        planned
    }

    fn plan_syn(&mut self, now: Nanos) -> Planned {
        self.hot.bits.set_syn_due(false);
        let again = !self.flight.is_empty();
        if again {
            self.flight.retransmitted(self.iss, 1, 1, now);
        } else {
            self.flight.push(self.iss, self.iss + 1, now, 1, false);
            self.hot.snd_nxt = self.iss + 1;
        }
        if !again || self.hot.pending == Pending::None {
            self.rearm_rto(now);
        }
        self.hot.rcv_acked = self.hot.rcv_nxt;
        Planned {
            seq: self.iss,
            flags: self.syn_flags(),
            offset: 0,
            len: 0,
            gso_size: 0,
            window: self.first_window(),
            urgent: 0,
            options: self.syn_options(now).encode(),
            ect: false,
        }
    }

    /// A segment without payload; every segment acknowledges all there is (RFC 9293 section 3.10.4).
    pub(crate) fn plan_bare(&mut self, seq: Seq, flags: Flags, now: Nanos) -> Planned {
        let mut options = Options::default();
        if self.hot.bits.timestamps() {
            options.timestamps =
                Some(Timestamps { value: Seq(self.ts_clock(now)), echo: Seq(self.hot.ts_recent) });
        }
        if self.hot.bits.sack() && self.hot.bits.reports() && !flags.any(Flags::RST) {
            self.hot.bits.set_reports(!self.out_of_order.is_empty());
            if let Some(duplicate) = self.duplicate.take() {
                options.sack.push(duplicate);
            }
            for &block in self.out_of_order.recent().as_slice() {
                options.sack.push(block);
            }
        }
        let window = self.offer_window();
        self.hot.rcv_acked = self.hot.rcv_nxt;
        self.hot.ack_deadline = NEVER;
        self.hot.bits.set_ack_now(false);
        let echo = self.hot.bits.ecn_echo() && !flags.any(Flags::RST);
        Planned {
            seq,
            flags: if echo { flags.with(Flags::ECE) } else { flags },
            offset: 0,
            len: 0,
            gso_size: 0,
            window,
            urgent: 0,
            options: options.encode(),
            ect: false,
        }
    }

    /// The segment with its payload.
    #[inline]
    pub(crate) fn transmit(&self, planned: &Planned) -> Transmit<'_> {
        // A SYN and a RST without a connection acknowledge nothing.
        let acknowledges = planned.flags.any(Flags::ACK);
        Transmit {
            path: self.key.path(),
            seq: planned.seq,
            ack: if acknowledges { self.hot.rcv_nxt } else { Seq(0) },
            flags: planned.flags,
            window: planned.window,
            urgent: planned.urgent,
            options: planned.options,
            payload: self.hot.send.slices(planned.offset, planned.len),
            lent: if self.hot.send.is_lent() { planned.len } else { 0 },
            gso_size: planned.gso_size,
            ect: planned.ect,
        }
    }
}
