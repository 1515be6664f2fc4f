//! The trace of one connection. A bit in the connection's hot state marks it: other
//! connections pay for a look at that bit, in a cache line that is loaded in any case.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::mem::take;
use core::net::SocketAddr;

use wire::{Flags, Seq, icmp};

use super::{EPOCH, Stack};
use crate::connection::{Connection, Key, NEVER, Pending, Planned};
use crate::segment::{FourTuple, Segment, Transmit};
use crate::snapshot::RecoveryState;
use crate::trace::{Event, Header, QUEUE_MAX, Record, Timer};
use crate::{Nanos, Reason, State};

/// A trace that is on.
#[derive(Debug)]
pub(super) struct Trace {
    /// What was asked for.
    path: FourTuple,
    /// The connection that it is; `None` until one fits.
    key: Option<Key>,
    records: VecDeque<Record>,
    /// Records that were dropped since the last one that was kept.
    dropped: u32,
    /// The connection as of the last record.
    last: Last,
}

/// What changes of a connection are found by.
#[derive(Clone, Copy, Debug)]
struct Last {
    state: State,
    recovery: RecoveryState,
    /// RecoveryPoint: another one is that of another recovery.
    point: Seq,
    lost: u32,
    snd_nxt: Seq,
}

impl Last {
    fn of(connection: &Connection) -> Self {
        Last {
            state: connection.state(),
            recovery: connection.recovery.state,
            point: connection.recovery.point,
            lost: connection.flight.lost_ever(),
            snd_nxt: connection.hot.snd_nxt,
        }
    }
}

impl Trace {
    /// Whether this is the connection. The first that fits is, from then on.
    fn is_of(&mut self, key: &Key) -> bool {
        match &self.key {
            Some(this) => this == key,
            None => {
                let path = key.path();
                let fits = fits(self.path.local, path.local) && fits(self.path.remote, path.remote);
                self.key = fits.then_some(*key);
                fits
            }
        }
    }

    fn push(&mut self, at: Nanos, event: Event, connection: Option<&Connection>) {
        let Some(path) = self.key.as_ref().map(Key::path) else { return };
        if self.records.len() >= QUEUE_MAX {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        let after = connection.map(Connection::info);
        let dropped = take(&mut self.dropped);
        let at = at.saturating_sub(EPOCH);
        self.records.push_back(Record { at, path, dropped, event, after });
    }

    /// Records what has changed since the last record: losses, loss recovery, the state.
    fn compare(&mut self, at: Nanos, connection: &Connection) {
        let (before, now) = (self.last, Last::of(connection));
        self.last = now;
        let bytes = now.lost.wrapping_sub(before.lost);
        if bytes > 0 {
            self.push(at, Event::Lost { bytes }, Some(connection));
        }
        let another = now.recovery == RecoveryState::Recovery && now.point != before.point;
        if now.recovery != before.recovery || another {
            let event = Event::Recovery { from: before.recovery, to: now.recovery };
            self.push(at, event, Some(connection));
        }
        if now.state != before.state {
            let end = connection.end();
            let event = Event::State { from: before.state, to: now.state, end };
            self.push(at, event, Some(connection));
        }
    }
}

/// Port 0 and the unspecified address stand for any.
fn fits(wanted: SocketAddr, end: SocketAddr) -> bool {
    (wanted.ip().is_unspecified() || wanted.ip() == end.ip())
        && (wanted.port() == 0 || wanted.port() == end.port())
}

/// Whether an end stands for one alone.
fn is_one(end: SocketAddr) -> bool {
    !end.ip().is_unspecified() && end.port() != 0
}

impl Stack {
    /// Records from now on what happens between these two ends, whether there is a connection already or
    /// not: its segments, timers, losses and states. `None` ends that, and what was not fetched is gone.
    ///
    /// Port 0 and the unspecified address stand for any: the first connection that fits and begins from
    /// now on is the one, and no other after it.
    pub fn trace(&mut self, path: Option<FourTuple>) {
        if let Some(key) = self.trace.take().and_then(|old| old.key)
            && let Some(slot) = self.lookup(&key)
        {
            self.slots.expect_mut(slot).hot.bits.set_traced(false);
        }
        let Some(path) = path else { return };
        let key = (is_one(path.local) && is_one(path.remote)).then(|| Key::new(&path));
        let mut last = Last {
            state: State::Closed,
            recovery: RecoveryState::Open,
            point: Seq(0),
            lost: 0,
            snd_nxt: Seq(0),
        };
        if let Some(slot) = key.and_then(|key| self.lookup(&key)) {
            let connection = self.slots.expect_mut(slot);
            connection.hot.bits.set_traced(true);
            last = Last::of(connection);
        }
        self.trace =
            Some(Box::new(Trace { path, key, records: VecDeque::new(), dropped: 0, last }));
    }

    /// The next record of the trace. They are to be fetched at least as often as segments are exchanged:
    /// after [`QUEUE_MAX`] no more are kept.
    pub fn next_trace(&mut self) -> Option<Record> {
        self.trace.as_deref_mut()?.records.pop_front()
    }

    #[inline]
    pub(super) fn is_traced(&self, slot: u32) -> bool {
        self.slots.at(slot).is_some_and(|connection| connection.hot.bits.traced())
    }

    /// A connection begins, and is the one perhaps.
    pub(super) fn trace_begin(&mut self, slot: u32, now: Nanos) {
        let Some(trace) = &mut self.trace else { return };
        let connection = self.slots.expect_mut(slot);
        if !trace.is_of(&connection.key) {
            return;
        }
        connection.hot.bits.set_traced(true);
        trace.last = Last { state: State::Closed, ..Last::of(connection) };
        trace.compare(now, connection);
    }

    /// A connection leaves before its end: it is frozen, or makes way for another.
    pub(super) fn trace_end(&mut self, slot: u32, reason: Reason, now: Nanos) {
        if self.is_traced(slot)
            && let Some(trace) = &mut self.trace
            && trace.last.state != State::Closed
        {
            let from = trace.last.state;
            trace.push(now, Event::State { from, to: State::Closed, end: Some(reason) }, None);
        }
    }

    /// Records what a call has changed of the connection and has no event of its own.
    #[cold]
    pub(super) fn trace_changes(&mut self, slot: u32, now: Nanos) {
        if let Some(trace) = &mut self.trace {
            trace.compare(now, self.slots.expect(slot));
        }
    }

    #[cold]
    fn trace_event(&mut self, slot: u32, event: Event, now: Nanos) {
        if let Some(trace) = &mut self.trace {
            let connection = self.slots.expect(slot);
            trace.push(now, event, Some(connection));
            trace.compare(now, connection);
        }
    }

    /// A segment came for a connection that is traced, and was looked at.
    #[cold]
    pub(super) fn trace_received(&mut self, slot: u32, segment: &Segment<'_>, now: Nanos) {
        self.trace_event(slot, Event::Received(Header::from(segment)), now);
    }

    /// An ICMP message came for a connection that is traced.
    #[cold]
    pub(super) fn trace_icmp(&mut self, slot: u32, icmp: icmp::Error, now: Nanos) {
        self.trace_event(slot, Event::Icmp(icmp), now);
    }

    /// A segment came for no connection.
    pub(super) fn trace_unknown(&mut self, key: &Key, segment: &Segment<'_>, now: Nanos) {
        let Some(trace) = &mut self.trace else { return };
        // One that opens nothing is no connection to settle on.
        let may_open = segment.flags.any(Flags::SYN) && !segment.flags.any(Flags::RST);
        if (trace.key.is_some() || may_open) && trace.is_of(key) {
            trace.push(now, Event::Received(Header::from(segment)), None);
        }
    }

    /// An answer goes out that belongs to no connection: a reset, or a SYN-ACK with a cookie.
    pub(super) fn trace_reply(&mut self, transmit: &Transmit<'_>, now: Nanos) {
        if let Some(trace) = &mut self.trace
            && trace.key == Some(Key::new(&transmit.path))
        {
            let header = Header::from(transmit);
            trace.push(now, Event::Sent { header, retransmission: false }, None);
        }
    }

    /// A segment of a connection that is traced goes out.
    #[cold]
    pub(super) fn trace_sent(&mut self, slot: u32, planned: &Planned, now: Nanos) {
        let Some(trace) = &self.trace else { return };
        let header = Header::from(&self.slots.expect(slot).transmit(planned));
        let space = header.len > 0 || header.flags.any(Flags::SYN.with(Flags::FIN));
        let retransmission = space && header.seq.before(trace.last.snd_nxt);
        self.trace_event(slot, Event::Sent { header, retransmission }, now);
    }

    /// Timers of a connection that is traced have run out.
    #[cold]
    pub(super) fn trace_timers(&mut self, slot: u32, due: Due, now: Nanos) {
        let Some(trace) = &mut self.trace else { return };
        let connection = self.slots.expect(slot);
        for timer in due.0.into_iter().flatten() {
            trace.push(now, Event::Timer(timer), Some(connection));
        }
        trace.compare(now, connection);
    }
}

/// The timers of a connection that are due, in the order in which they are run.
pub(super) struct Due([Option<Timer>; 3]);

impl Due {
    #[cold]
    pub(super) fn of(connection: &Connection, now: Nanos) -> Self {
        let retransmission = match connection.hot.pending {
            Pending::None => None,
            Pending::Rto => Some(Timer::Retransmission),
            Pending::TailProbe => Some(Timer::TailProbe),
            Pending::Reorder => Some(Timer::Reordering),
            Pending::Persist => Some(Timer::Persist),
        };
        let slow = match connection.state() {
            State::TimeWait => Timer::Linger,
            State::FinWait2 if connection.hot.bits.released() => Timer::Linger,
            _ => Timer::Keepalive,
        };
        let is_due = |deadline: Nanos| deadline != NEVER && deadline <= now;
        Due([
            is_due(connection.hot.ack_deadline).then_some(Timer::DelayedAck),
            retransmission.filter(|_| is_due(connection.retransmit_deadline)),
            is_due(connection.slow_deadline).then_some(slow),
        ])
    }
}
