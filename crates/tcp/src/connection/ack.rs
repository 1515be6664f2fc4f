//! Acknowledgments: what is delivered, the peer's window, and the round-trip time (RFC 9293 section 3.10.7.4,
//! fifth check; RFC 5961 section 5; RFC 2018, RFC 2883, RFC 6298).

use wire::{Flags, Seq};

use crate::connection::{Connection, Context, Events};
use crate::flight::Sent;
use crate::options::Block;
use crate::{Nanos, Segment};

/// What one acknowledgment delivers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivery {
    /// Bytes newly delivered, by number or by SACK.
    pub(crate) bytes: u32,
    /// Of these, bytes that SACK reported.
    pub(crate) sacked: u32,
    /// SND.UNA has moved.
    pub(crate) advanced: bool,
    /// Of the delivered records, the one sent last (RACK_sent_after): when, and its end. A retransmission
    /// that was sent less than a round trip ago does not count: the first transmission may be the one
    /// acknowledged.
    pub(crate) latest: Option<(Nanos, Seq)>,
    /// Send times of the last record that was acknowledged by number, and of the last by SACK.
    pub(crate) by_number: Option<Nanos>,
    pub(crate) by_sack: Option<(Nanos, Seq)>,
    /// When it came.
    pub(crate) now: Nanos,
    /// Now, less the shortest round-trip time: what was sent again later cannot have been acknowledged yet.
    pub(crate) round_trip_ago: Nanos,
    /// When the last of the records that were sent once was sent.
    pub(crate) once: Option<Nanos>,
    /// Highest end of a record that was sent once.
    pub(crate) once_end: Option<Seq>,
    /// Lowest end of a record that was sent once: for reordering.
    pub(crate) once_first: Option<Seq>,
    /// The duplicate that the peer reported (D-SACK, RFC 2883).
    pub(crate) duplicate: Option<Block>,
    /// It is a duplicate acknowledgment in the sense of RFC 5681 section 2.
    pub(crate) repeats: bool,
    /// Bytes in flight before the acknowledgment.
    pub(crate) in_flight: u32,
    /// The round-trip time that was measured, if it was.
    pub(crate) rtt: Option<Nanos>,
    /// The peer saw congestion (ECE, RFC 3168).
    pub(crate) echo: bool,
    /// Timestamp echoed, if there is one.
    pub(crate) ts_echo: Option<u32>,
    /// Milliseconds of our clock when the echoed timestamp was sent; `None` if that is unknown.
    pub(crate) echo_sent: Option<u32>,
    /// Time from a retransmission to the arrival of the first transmission, the longest, and the sequence number.
    pub(crate) late: Option<(Nanos, Seq)>,
    /// Of `bytes`, those that duplicate acknowledgments stood for already, where there is no SACK.
    pub(crate) counted: u32,
    /// The end of an MTU probe, if one was delivered.
    pub(crate) probe: Option<Seq>,
}

impl Delivery {
    fn add(&mut self, record: &Sent, by_sack: bool) {
        self.bytes += record.len();
        if record.probe {
            self.probe = Some(record.end);
        }
        self.add_for_rack(record, by_sack);
        if record.retransmitted {
            self.add_late(record, by_sack);
        } else {
            self.once = Some(self.once.map_or(record.at, |at| at.max(record.at)));
            if self.once_end.is_none_or(|end| record.end.after(end)) {
                self.once_end = Some(record.end);
            }
            if self.once_first.is_none_or(|end| record.end.before(end)) {
                self.once_first = Some(record.end);
            }
        }
    }
}

impl Delivery {
    /// Notes how late a first transmission is, if the acknowledgment proves that it and not the retransmission has arrived:
    /// it echoes a timestamp from before the retransmission (RFC 3522), or comes sooner than any round trip after it. The
    /// echo belongs to what is acknowledged by number (RFC 7323 section 4.3).
    fn add_late(&mut self, record: &Sent, by_sack: bool) {
        let sent = (record.at / 1_000_000) as u32;
        let by_echo =
            !by_sack && self.echo_sent.is_some_and(|echo| (echo.wrapping_sub(sent) as i32) < 0);
        if by_echo || record.at > self.round_trip_ago {
            let late = self.now.saturating_sub(record.at);
            if self.late.is_none_or(|(longest, _)| late > longest) {
                self.late = Some((late, record.start));
            }
        }
    }

    /// RFC 8985 section 6.2, step 2, for each segment that is newly delivered. An acknowledgment that comes
    /// sooner than any round trip after a retransmission is for the first transmission.
    fn add_for_rack(&mut self, record: &Sent, by_sack: bool) {
        if record.retransmitted && record.at > self.round_trip_ago {
            return;
        }
        if self.latest.is_none_or(|(at, end)| record.sent_after(at, end)) {
            self.latest = Some((record.at, record.end));
        }
        if !by_sack {
            self.by_number = Some(record.at);
        } else if self.by_sack.is_none_or(|(_, end)| record.end.after(end)) {
            self.by_sack = Some((record.at, record.end));
        }
    }
}

impl Connection {
    /// Processes the acknowledgment of a segment, which [is acceptable](Self::is_ack_acceptable).
    pub(crate) fn on_ack(&mut self, segment: &Segment<'_>, context: &mut Context<'_>) {
        let ack = segment.ack;
        let una = self.hot.snd_una;
        let mut delivery = Delivery {
            in_flight: self.flight.pipe(),
            advanced: ack.after(una),
            echo: self.hot.bits.ecn() && segment.flags.any(Flags::ECE),
            ts_echo: segment.options.timestamps.map(|timestamps| timestamps.echo.0),
            echo_sent: self.time_of_echo(segment),
            now: context.now,
            round_trip_ago: context.now.saturating_sub(self.rtt.min),
            ..Delivery::default()
        };
        let moved = self.update_window(segment);
        if self.hot.bits.ecn() && segment.flags.any(Flags::CWR) {
            self.hot.bits.set_ecn_echo(false);
        }
        // RFC 3168 section 6.1.4: marks on data count.
        if segment.ce && self.hot.bits.ecn() && segment.payload_len() > 0 {
            self.hot.bits.set_ecn_echo(true);
            self.acknowledge_now();
        }
        if self.flight.is_empty() {
            self.on_idle_ack(ack);
            if segment.options.sack.is_empty() {
                return;
            }
        }
        delivery.repeats = ack == una
            && !moved
            && segment.payload_len() == 0
            && !segment.flags.any(Flags::FIN)
            && segment.options.sack.is_empty();
        if delivery.advanced {
            self.advance(ack, &mut delivery, context);
        }
        if !segment.options.sack.is_empty() && self.hot.bits.sack() {
            self.take_sack(segment, ack, &mut delivery);
        }
        self.measure(&mut delivery, context.now);
        self.recover(&mut delivery, context);
        if delivery.advanced {
            self.after_advance(context.now);
        }
    }

    /// Milliseconds of our clock when the timestamp was sent that a segment echoes.
    fn time_of_echo(&self, segment: &Segment<'_>) -> Option<u32> {
        let echo = segment.options.timestamps.filter(|_| self.hot.bits.timestamps())?.echo.0;
        // The clock of a connection that came from another host may still be put ahead.
        (echo != 0 && self.first_timestamp.is_none()).then(|| echo.wrapping_sub(self.hot.ts_offset))
    }

    /// An acknowledgment while nothing is in flight: all that it can do is open the window.
    fn on_idle_ack(&mut self, ack: Seq) {
        if ack == self.hot.snd_una && self.window_space() > 0 && self.hot.bits.probe_due() {
            self.hot.bits.set_probe_due(false);
        }
        if self.hot.pending == crate::connection::timers::Pending::Persist {
            // The peer is alive; the window that it announces is what counts.
            self.retransmits = 0;
            let full = u32::from(self.hot.mss);
            if self.window_space() > 0 && self.window_space() >= self.unsent_len().min(full) {
                self.rtt.backoff = 0;
                self.set_pending(
                    crate::connection::timers::Pending::None,
                    crate::connection::timers::NEVER,
                );
            }
        }
    }

    /// RFC 9293 section 3.10.7.4: only a segment that is newer than the last update may change the
    /// window. Returns whether it did.
    fn update_window(&mut self, segment: &Segment<'_>) -> bool {
        let hot = &mut self.hot;
        let newer = hot.snd_wl1.before(segment.seq)
            || hot.snd_wl1 == segment.seq && !hot.snd_wl2.after(segment.ack)
            || segment.ack.after(hot.snd_una);
        if !newer || segment.ack.before(hot.snd_una) {
            return false;
        }
        hot.snd_wl1 = segment.seq;
        hot.snd_wl2 = segment.ack;
        let window = u32::from(segment.window) << hot.snd_shift;
        let changed = window != hot.snd_wnd;
        hot.snd_wnd = window;
        self.max_snd_wnd = self.max_snd_wnd.max(window);
        changed
    }

    /// SND.UNA moves to `ack`.
    fn advance(&mut self, ack: Seq, delivery: &mut Delivery, context: &mut Context<'_>) {
        let end = self.queue_end();
        let from = self.queue_start();
        let mut again = false;
        self.flight.acknowledge(ack, |record| {
            again |= record.retransmitted;
            delivery.add(record, false);
        });
        if again {
            // Bytes behind a hole were delivered earlier: they measure the hole, not the path.
            delivery.once = None;
        }
        let data_end = ack.min(end);
        if data_end.after(from) {
            self.hot.send.consume(data_end - from, false, context.pool);
        }
        self.bytes_acked = self.bytes_acked.saturating_add(ack - self.hot.snd_una);
        self.hot.snd_una = ack;
        if self.tail_probe.is_some_and(|(start, _)| start.before(ack)) {
            self.tail_probe = None;
        }
        if self.snd_small.before(ack) {
            self.snd_small = ack;
        }
        if self.snd_urgent.is_some_and(|up| !up.after(ack)) {
            self.snd_urgent = None;
        }
        if self.wants_space && self.send_space() >= self.send_limit() as usize / 3 {
            self.wants_space = false;
            self.hot.events.add(Events::WRITABLE);
        }
        if self.hot.bits.tells_acks() {
            self.hot.events.add(Events::ACKNOWLEDGED);
        }
    }

    /// The SACK blocks of a segment (RFC 2018 section 5.1). The first may report a duplicate (RFC 2883
    /// section 4).
    fn take_sack(&mut self, segment: &Segment<'_>, ack: Seq, delivery: &mut Delivery) {
        let blocks = segment.options.sack.as_slice();
        let (una, nxt) = (self.hot.snd_una, self.hot.snd_nxt);
        let mut rest = blocks;
        if let Some((first, others)) = blocks.split_first() {
            let below = !first.end.after(ack) && first.start.before(first.end);
            let within = others.first().is_some_and(|second| second.contains(*first));
            if below || within {
                delivery.duplicate = Some(*first);
                rest = others;
            }
        }
        let before = self.flight.sacked();
        for block in rest {
            let start = block.start.max(una);
            let sane = block.start.before(block.end) && start.before(block.end);
            if sane && !block.end.after(nxt) {
                self.flight
                    .sack(Block { start, end: block.end }, |record| delivery.add(record, true));
            }
        }
        delivery.sacked = self.flight.sacked().saturating_sub(before);
    }

    /// Round-trip time: by what was sent once (Karn's algorithm, RFC 6298 section 3), else by the
    /// timestamp (RFC 7323 section 4).
    fn measure(&mut self, delivery: &mut Delivery, now: Nanos) {
        if let Some(at) = delivery.once {
            let rtt = now.saturating_sub(at);
            self.rtt.measure(rtt, now);
            delivery.rtt = Some(rtt.max(1));
        } else if delivery.advanced
            && self.hot.bits.timestamps()
            && let Some(echo) = delivery.ts_echo
        {
            self.measure_by_timestamp(echo, now);
        }
    }

    /// The time since this timestamp was sent, unless that was by another's clock.
    pub(crate) fn measure_by_timestamp(&mut self, echo: u32, now: Nanos) {
        let ticks = self.ts_clock(now).wrapping_sub(echo);
        if let Some(first) = self.first_timestamp {
            if (echo.wrapping_sub(first) as i32) < 0 || (ticks as i32) < 0 {
                return;
            }
            self.first_timestamp = None;
        }
        // An echo from the future, or of hours ago, is no measurement.
        if echo != 0 && ticks < 1 << 24 {
            self.rtt.measure(Nanos::from(ticks.max(1)) * 1_000_000, now);
        }
    }

    /// What was sent has been acknowledged: timers start anew (RFC 6298 section 5.3).
    fn after_advance(&mut self, now: Nanos) {
        self.retransmits = 0;
        if self.hot.pending != crate::connection::timers::Pending::Reorder || self.flight.is_empty()
        {
            self.rearm_rto(now);
            self.schedule_tail_probe(now);
        }
    }
}
