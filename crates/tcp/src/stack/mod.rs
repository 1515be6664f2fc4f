//! All connections of one worker: the connection of each segment, those that may transmit, and their
//! deadlines.
//!
//! ```text
//!   receive ── table ── connection ──┬─ ready ────── poll_transmit
//!   on_time ── deadlines ────────────┤
//!   socket ── the application ───────┴─ eventful ─── next_event
//! ```

mod budget;
mod deadlines;
mod error;
mod freeze;
mod lent;
mod listen;
mod reply;
mod secret;
mod slots;
mod socket;
mod table;
mod time;
mod trace;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use wire::{Flags, Seq, icmp};

pub use error::{ConnectError, ThawError};
pub use lent::Placement;
pub use listen::ListenError;
pub use slots::Id;
pub use socket::Socket;

use crate::config::{Config, SECOND};
use crate::connection::{Answer, Connection, Context, Events, Key, Planned, Standing};
use crate::counters::Counters;
use crate::options::Block;
use crate::pool::Pool;
use crate::segment::{FourTuple, Segment, Transmit};
use crate::{Nanos, Reason, State};
use deadlines::Deadlines;
use listen::Listener;
use reply::Reply;
use secret::Secret;
use slots::Slots;
use table::Table;
use trace::Trace;

/// Connections that are fetched into the cache at once, at most.
const BATCH: usize = 32;

/// What is added to the time that comes in. A thawed connection remembers what was long before the clock
/// here began to count, and no event is at `NOT_YET`.
const EPOCH: Nanos = 1 << 62;

/// Settings of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StackConfig {
    /// Key of sequence numbers and cookies: random, and kept secret.
    pub secret: [u8; 16],
    /// Half-open connections at most; further SYNs are answered with cookies (RFC 4987 section 3.6).
    pub half_open: u32,
    /// Connections at most.
    pub connections: u32,
}

/// A segment that is to be sent now: [`Stack::segment`].
#[derive(Clone, Copy, Debug)]
pub struct Due(What);

#[derive(Clone, Copy, Debug)]
enum What {
    Reply(Reply),
    /// Of the connection in this slot.
    Of(u32, Planned),
}

/// What has become of a connection in a [`Stack`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// It is there now.
    Begun(FourTuple),
    /// It is not there any more.
    Ended(FourTuple),
}

/// All connections of one worker; see the crate's documentation.
#[derive(Debug)]
pub struct Stack {
    config: StackConfig,
    secret: Secret,
    slots: Slots,
    table: Table,
    deadlines: Deadlines,
    listeners: Vec<Option<Listener>>,
    half_open: u32,
    /// When the last cookie was sent.
    last_cookie: Option<Nanos>,
    ready: VecDeque<u32>,
    eventful: VecDeque<u32>,
    /// Those that wait for memory to queue more, the first of them first.
    starved: VecDeque<u32>,
    replies: VecDeque<Reply>,
    /// Changes for [`next_change`](Stack::next_change); `None` if they are not recorded.
    changes: Option<VecDeque<Change>>,
    pool: Pool,
    counters: Counters,
    /// Of the segment at hand; `None` between calls.
    placed: Option<(Block, u32)>,
    trace: Option<Box<Trace>>,
}

impl Stack {
    /// A stack without connections.
    pub fn new(config: StackConfig) -> Self {
        let secret = Secret::new(config.secret);
        Stack {
            config,
            secret,
            slots: Slots::default(),
            table: Table::new(secret.flow_hash()),
            deadlines: Deadlines::default(),
            listeners: Vec::new(),
            half_open: 0,
            last_cookie: None,
            ready: VecDeque::new(),
            eventful: VecDeque::new(),
            starved: VecDeque::new(),
            replies: VecDeque::new(),
            changes: None,
            pool: Pool::default(),
            counters: Counters::default(),
            placed: None,
            trace: None,
        }
    }

    /// Records each connection that begins or ends, for [`next_change`](Self::next_change).
    #[must_use]
    pub fn with_changes(mut self) -> Self {
        self.changes = Some(VecDeque::new());
        self
    }

    /// The next connection that has begun, in whatever state, or has ended, in the order in which that
    /// happened. To be called after each batch until it returns `None`: changes that are not taken are kept.
    pub fn next_change(&mut self) -> Option<Change> {
        self.changes.as_mut().and_then(VecDeque::pop_front)
    }

    /// Connections, in whatever state.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What has happened since the stack was made.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The connection, if it is there still.
    pub fn connection(&self, id: Id) -> Option<&Connection> {
        self.slots.get(id)
    }

    /// The connection, for its application.
    pub fn socket(&mut self, id: Id, now: Nanos) -> Option<Socket<'_>> {
        self.slots.get(id)?;
        Some(Socket::new(self, id, now + EPOCH))
    }

    /// Opens a connection (RFC 9293 section 3.10.1). An old one in TIME-WAIT makes way, if timestamps
    /// keep the two apart (RFC 6191).
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn connect(
        &mut self,
        path: FourTuple,
        config: Arc<Config>,
        now: Nanos,
    ) -> Result<Id, ConnectError> {
        let now = now + EPOCH;
        let key = Key::new(&path);
        self.check(&path)?;
        let buffer = self.first_buffer(&config).ok_or(ConnectError::Memory)?;
        let mut isn = self.secret.isn(&key, now);
        let mut recent = None;
        if let Some(slot) = self.lookup(&key) {
            let Some(old) = self.slots.at(slot) else { return Err(ConnectError::InUse) };
            let quiet = now.saturating_sub(old.hot.last_received) >= SECOND;
            let apart = old.hot.bits.timestamps() && quiet;
            if old.state() != State::TimeWait || !old.hot.bits.released() || !apart {
                return Err(ConnectError::InUse);
            }
            recent = Some(old.hot.ts_recent);
            isn = beyond(isn, old.hot.snd_nxt);
            self.trace_end(slot, Reason::Closed, now);
            self.remove(slot);
        }
        let mut connection = Connection::connect(&path, config, isn, self.secret.ts_offset(&key));
        connection.hot.ts_recent = recent.unwrap_or(0);
        connection.hot.buffer = buffer;
        self.counters.active_opens += 1;
        Ok(self.insert(connection, now))
    }

    /// Whether there can be a new connection between these two.
    fn check(&self, path: &FourTuple) -> Result<(), ConnectError> {
        let (local, remote) = (path.local.ip(), path.remote.ip());
        let single = |address: IpAddr| {
            let all = address == IpAddr::V4(Ipv4Addr::BROADCAST);
            !address.is_multicast() && !address.is_unspecified() && !all
        };
        let ports = path.local.port() != 0 && path.remote.port() != 0;
        if path.local == path.remote
            || local.is_ipv4() != remote.is_ipv4()
            || !single(local)
            || !single(remote)
            || !ports
        {
            return Err(ConnectError::BadAddress);
        }
        if self.slots.len() >= self.config.connections as usize {
            return Err(ConnectError::Full);
        }
        Ok(())
    }

    /// Starts loading into the cache what the next segments of these connections will need, all at once
    /// instead of one after the other. Worth it where there are more than some hundred connections.
    pub fn announce(&self, paths: impl IntoIterator<Item = FourTuple>) {
        let mut paths = paths.into_iter();
        let mut hashes = [0; BATCH];
        loop {
            let mut count = 0;
            for (hash, path) in hashes.iter_mut().zip(&mut paths) {
                *hash = self.table.hash(&Key::new(&path));
                self.table.fetch(*hash);
                count += 1;
            }
            for &hash in &hashes[..count] {
                if let Some(slot) = self.table.find(hash, |_| true) {
                    self.slots.fetch(slot);
                }
            }
            if count < BATCH {
                return;
            }
        }
    }

    #[inline]
    fn lookup(&self, key: &Key) -> Option<u32> {
        let slots = &self.slots;
        let is = |slot| slots.at(slot).is_some_and(|connection| connection.key == *key);
        self.table.find(self.table.hash(key), is)
    }

    fn insert(&mut self, mut connection: Connection, now: Nanos) -> Id {
        let hash = self.table.hash(&connection.key);
        self.pay_for(&mut connection);
        if connection.hot.state == State::SynReceived {
            self.half_open += 1;
        }
        if let Some(changes) = &mut self.changes {
            changes.push_back(Change::Begun(connection.key.path()));
        }
        let id = self.slots.insert(connection);
        self.table.insert(hash, id.slot());
        self.trace_begin(id.slot(), now);
        self.settle(id.slot());
        id
    }

    fn remove(&mut self, slot: u32) -> Option<Connection> {
        let mut connection = self.slots.remove(slot)?;
        if connection.hot.state == State::SynReceived {
            self.half_open -= 1;
        }
        if let Some(changes) = &mut self.changes {
            changes.push_back(Change::Ended(connection.key.path()));
        }
        self.take_back(&mut connection);
        self.table.remove(self.table.hash(&connection.key), slot);
        self.deadlines.remove(slot);
        let slots = &self.slots;
        let waits =
            |slot| slots.at(slot).is_some_and(|connection| connection.hot.bits.ack_queued());
        self.deadlines.forget_acks(|slot| !waits(slot));
        Some(connection)
    }

    /// Processes a segment that was received. `path.local` is its destination. Of a [lent](Self::thaw_lent) connection it
    /// says which bytes of the segment are to be stored where, before the stack is asked for anything else.
    #[inline]
    pub fn receive(
        &mut self,
        path: &FourTuple,
        segment: &Segment<'_>,
        now: Nanos,
    ) -> Option<Placement> {
        let now = now + EPOCH;
        self.counters.segments_in += 1;
        self.pool.now = now;
        let key = Key::new(path);
        let found = self.lookup(&key);
        let answer = match found {
            Some(slot) if self.slots.at(slot).is_some_and(|at| at.is_predicted(segment)) => {
                let mut context = Context {
                    now,
                    pool: &mut self.pool,
                    counters: &mut self.counters,
                    placed: &mut self.placed,
                };
                let connection = self.slots.expect_mut(slot);
                connection.on_predicted(segment, &mut context);
                if connection.hot.bits.traced() {
                    self.trace_received(slot, segment, now);
                }
                self.settle_received(slot);
                Answer::None
            }
            Some(slot) if !self.makes_way(slot, segment) => {
                let (answer, traced) = self.with(slot, now, |connection, context| {
                    let answer = connection.on_segment(segment, context);
                    (answer, connection.hot.bits.traced())
                });
                if traced {
                    self.trace_received(slot, segment, now);
                }
                self.settle(slot);
                answer
            }
            Some(slot) => {
                self.trace_end(slot, Reason::Closed, now);
                let old = self.remove(slot).map(|old| old.hot.snd_nxt);
                self.trace_unknown(&key, segment, now);
                self.on_unknown(path, &key, segment, old, now)
            }
            None => {
                self.trace_unknown(&key, segment, now);
                self.on_unknown(path, &key, segment, None, now)
            }
        };
        if answer == Answer::Reset {
            self.reset(path, segment);
        }
        self.placement(found)
    }

    /// Whether it is a new SYN for an old connection in TIME-WAIT: see [`Connection::makes_way`].
    fn makes_way(&self, slot: u32, segment: &Segment<'_>) -> bool {
        if !segment.flags.any(Flags::SYN) {
            return false;
        }
        let Some(old) = self.slots.at(slot).filter(|old| old.makes_way(segment)) else {
            return false;
        };
        // Without a listener nothing would come of it; and an application may have data to read still.
        old.hot.bits.released() && self.listener(&old.path()).is_some()
    }

    /// Processes an ICMP error that quotes a segment of ours between these two ends, with this sequence
    /// number.
    pub fn unreachable(&mut self, path: &FourTuple, icmp: icmp::Error, seq: Seq, now: Nanos) {
        let now = now + EPOCH;
        match self.lookup(&Key::new(path)) {
            Some(slot) => {
                self.with(slot, now, |connection, context| connection.on_icmp(icmp, seq, context));
                if self.is_traced(slot) {
                    self.trace_icmp(slot, icmp, now);
                }
                self.settle(slot);
            }
            None => self.counters.bad_icmp += 1,
        }
    }

    /// Calls `call` with a connection and its context.
    #[inline]
    pub(crate) fn with<R>(
        &mut self,
        slot: u32,
        now: Nanos,
        call: impl FnOnce(&mut Connection, &mut Context<'_>) -> R,
    ) -> R {
        self.pool.now = now;
        let mut context = Context {
            now,
            pool: &mut self.pool,
            counters: &mut self.counters,
            placed: &mut self.placed,
        };
        let connection = self.slots.expect_mut(slot);
        let before = connection.hot.state;
        let result = call(connection, &mut context);
        connection.debug_check();
        if before == State::SynReceived && connection.hot.state != State::SynReceived {
            self.half_open -= 1;
        } else if before != State::SynReceived && connection.hot.state == State::SynReceived {
            self.half_open += 1;
        }
        result
    }

    pub(crate) fn expect(&self, id: Id) -> &Connection {
        self.slots.expect(id.slot())
    }

    /// Updates the stack's queues after a change of a connection: it may transmit, it has events, it has
    /// another deadline, or it is gone.
    #[inline]
    pub(crate) fn settle(&mut self, slot: u32) {
        self.settle_received(slot);
        let Some(connection) = self.slots.at_mut(slot) else { return };
        connection.arm(slot, &mut self.deadlines);
        let gone = connection.hot.state == State::Closed
            && connection.end.is_some()
            && connection.hot.bits.released()
            && !connection.hot.bits.reset_due()
            && !connection.hot.bits.ready();
        if gone {
            self.bury(slot);
        } else if connection.has_spare() || connection.hot.bits.starved() {
            self.settle_memory(slot);
        }
    }

    /// The part of that which an in-order segment needs.
    #[inline]
    fn settle_received(&mut self, slot: u32) {
        let Some(connection) = self.slots.at_mut(slot) else { return };
        if !connection.hot.bits.ready() && connection.may_transmit() {
            connection.hot.bits.set_ready(true);
            self.ready.push_back(slot);
        }
        let has_events = !connection.hot.events.is_empty() && !connection.hot.bits.released();
        if !connection.hot.bits.eventful() && has_events {
            connection.hot.bits.set_eventful(true);
            self.eventful.push_back(slot);
        }
        connection.arm_ack(slot, &mut self.deadlines);
    }

    fn bury(&mut self, slot: u32) {
        if let Some(connection) = self.remove(slot)
            && connection.end != Some(Reason::Closed)
        {
            self.counters.failures += 1;
        }
    }

    /// The next segment to send, which then counts as sent; `None` if there is none now. Connections take
    /// turns.
    pub fn poll_transmit(&mut self, now: Nanos) -> Option<Transmit<'_>> {
        let due = self.poll_due(now)?;
        Some(self.segment(&due))
    }

    /// [`poll_transmit`](Self::poll_transmit) in two steps, for one that looks at the connection in between: this
    /// says what is next, which then counts as sent, and [`segment`](Self::segment) makes it.
    pub fn poll_due(&mut self, now: Nanos) -> Option<Due> {
        let now = now + EPOCH;
        if let Some(reply) = self.replies.pop_front() {
            self.counters.segments_out += 1;
            self.trace_reply(&reply.transmit(), now);
            return Some(Due(What::Reply(reply)));
        }
        while let Some(slot) = self.ready.pop_front() {
            let Some(connection) = self.slots.at_mut(slot) else { continue };
            if !connection.hot.bits.ready() {
                continue;
            }
            connection.hot.bits.set_ready(false);
            let planned = self.with(slot, now, |connection, context| connection.plan(context));
            let Some(planned) = planned else {
                self.settle_waiting(slot);
                continue;
            };
            self.settle_sent(slot, &planned, now);
            self.counters.segments_out += 1;
            return Some(Due(What::Of(slot, planned)));
        }
        None
    }

    /// The segment that is due, to be asked for before anything else is done with the stack.
    #[inline]
    pub fn segment(&self, due: &Due) -> Transmit<'_> {
        match &due.0 {
            What::Reply(reply) => reply.transmit(),
            What::Of(slot, planned) => self.slots.expect(*slot).transmit(planned),
        }
    }

    /// The connection whose segment is due, and where it stands; `None` of a segment that belongs to none.
    #[inline]
    pub fn standing_of(&self, due: &Due) -> Option<(Id, Standing)> {
        match &due.0 {
            What::Reply(_) => None,
            What::Of(slot, _) => Some((self.slots.id(*slot), self.slots.expect(*slot).standing())),
        }
    }

    /// The connection whose segment is due; `None` of a segment that belongs to none.
    #[inline]
    pub fn id_of(&self, due: &Due) -> Option<Id> {
        match &due.0 {
            What::Reply(_) => None,
            What::Of(slot, _) => Some(self.slots.id(*slot)),
        }
    }

    /// After a segment: there may be more, and a connection that is only waiting for its reset to go
    /// stays until the next call.
    fn settle_sent(&mut self, slot: u32, sent: &Planned, now: Nanos) {
        let Some(connection) = self.slots.at_mut(slot) else { return };
        let over = connection.hot.state == State::Closed && connection.end.is_some();
        if connection.may_transmit() || over {
            connection.hot.bits.set_ready(true);
            self.ready.push_back(slot);
        }
        if connection.is_sending() || over {
            connection.arm(slot, &mut self.deadlines);
        }
        if connection.hot.bits.traced() {
            self.trace_sent(slot, sent, now);
        }
    }

    /// Nothing to send now: what window or Nagle hold back does not make it ready again.
    fn settle_waiting(&mut self, slot: u32) {
        let Some(connection) = self.slots.at_mut(slot) else { return };
        if connection.is_sending() {
            connection.arm(slot, &mut self.deadlines);
        }
        let over = connection.hot.state == State::Closed;
        if over && connection.end.is_some() && connection.hot.bits.released() {
            self.bury(slot);
        }
    }

    /// A connection with events, and which; `None` if there is none.
    pub fn next_event(&mut self) -> Option<(Id, Events)> {
        self.feed();
        while let Some(slot) = self.eventful.pop_front() {
            let id = self.slots.id(slot);
            let Some(connection) = self.slots.at_mut(slot) else { continue };
            if !connection.hot.bits.eventful() {
                continue;
            }
            connection.hot.bits.set_eventful(false);
            let events = core::mem::take(&mut connection.hot.events);
            if !events.is_empty() && !connection.hot.bits.released() {
                return Some((id, events));
            }
        }
        None
    }
}

/// `isn`, moved beyond anything that the old connection sent (RFC 9293 section 3.4.3).
fn beyond(isn: Seq, old: Seq) -> Seq {
    if isn.after(old) { isn } else { old + 65_537 }
}
