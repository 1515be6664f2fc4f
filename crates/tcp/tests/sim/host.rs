//! A side: a stack with its own clock, and the application on it.

use std::net::SocketAddr;
use std::sync::Arc;

use tcp::config::{MILLISECOND, SECOND};
use tcp::{
    Config, Events, FourTuple, Id, Info, Nanos, Options, Segment, Snapshot, Stack, StackConfig,
    State, Transmit,
};
use wire::{Seq, icmp};

use super::app::{App, Phase, Stream};
use super::frame::Arrival;
use super::plan::{Dice, Freeze, Opening, Plan, Side, Wrap};
use super::shelf::Shelf;
use super::watch::Limits;

/// Bytes of a snapshot, and when they are to be a connection again.
#[derive(Debug)]
struct AtRest {
    bytes: Vec<u8>,
    until: Nanos,
    moves: Option<Nanos>,
    /// The application has released it.
    released: bool,
}

/// See the module's documentation.
pub(crate) struct Host {
    number: usize,
    pub(crate) stack: Stack,
    pub(crate) app: App,
    pub(crate) path: FourTuple,
    pub(crate) id: Option<Id>,
    config: Arc<Config>,
    opening: Opening,
    secrets: Dice,
    /// What the clock shows when the run begins; modulo 2^64, if it has begun since.
    clock: Nanos,
    at_rest: Option<AtRest>,
    /// Its connection is lent when it is thawed.
    lends: bool,
    /// The bytes of its connection, if that is lent.
    shelf: Option<Shelf>,
    /// Times in a row that the stack woke up for nothing, and since when.
    idle_wakes: (u32, Nanos),
    pub(crate) frozen: u32,
    ticks_together: bool,
    accepted: bool,
}

/// Most wake-ups in a row without work, within a second: a deadline may have moved back since it was
/// returned.
const IDLE_WAKES_MAX: u32 = 10;

impl Host {
    pub(crate) fn new(plan: &Plan, number: usize) -> Host {
        let side = &plan.sides[number];
        let ends: [SocketAddr; 2] = match plan.v6 {
            false => [([10, 0, 0, 1], 40_000).into(), ([10, 0, 0, 2], 80).into()],
            true => ["[fd00::1]:40000", "[fd00::2]:80"].map(|end| match end.parse() {
                Ok(end) => end,
                Err(error) => panic!("{error}"),
            }),
        };
        let mut secrets = Dice::new(plan.seed, 30 + number as u64);
        let stack_config = stack_config(&mut secrets, plan.opening);
        let path = FourTuple { local: ends[number], remote: ends[1 - number] };
        let mut app = App::new(plan.seed, number as u64, side);
        app.short = plan.memory.is_some();
        Host {
            number,
            stack: match plan.memory {
                Some(memory) => Stack::new(stack_config).with_memory(memory),
                None => Stack::new(stack_config),
            },
            app,
            path,
            id: None,
            config: Arc::new(side.config.clone()),
            opening: plan.opening,
            secrets,
            clock: clock(side, stack_config, path),
            at_rest: None,
            lends: plan.lends,
            shelf: None,
            idle_wakes: (0, 0),
            frozen: 0,
            ticks_together: plan.ticks_together,
            accepted: false,
        }
    }

    /// The time that its clock shows.
    fn time(&self, now: Nanos) -> Nanos {
        self.clock.wrapping_add(now)
    }

    pub(crate) fn limits(&self) -> Limits {
        let config = &self.config;
        Limits { mtu: config.mtu, mss: config.mss, probes_mtu: config.probe_mtu }
    }

    /// Whether what all connections take is within the bound.
    pub(crate) fn keeps_its_bound(&self) -> Result<(), String> {
        let memory = self.stack.memory();
        let spent = memory.sending + memory.promised + memory.tables + memory.kept;
        let sums = memory.received <= memory.promised && spent <= memory.limit;
        let none = !self.stack.is_empty() || spent == memory.kept && memory.received == 0;
        if sums && none { Ok(()) } else { Err(format!("side {}: {memory:?}", self.number)) }
    }

    /// Connects or listens.
    pub(crate) fn open(&mut self, now: Nanos) {
        let now = self.time(now);
        if self.number == 1 && self.opening != Opening::Simultaneous {
            let address = Some(self.path.local.ip());
            let listener =
                self.stack.listen(address, self.path.local.port(), Arc::clone(&self.config));
            assert!(listener.is_ok(), "{listener:?}");
            return;
        }
        match self.stack.connect(self.path, Arc::clone(&self.config), now) {
            Ok(id) => self.id = Some(id),
            Err(error) => panic!("{error:?}"),
        }
    }

    /// When it has something to do.
    pub(crate) fn next_time(&self) -> Option<Nanos> {
        let stack = self.stack.next_deadline().map(|at| at.wrapping_sub(self.clock));
        let app = if self.at_rest.is_none() { self.app.next_time() } else { None };
        let thaw = self.at_rest.as_ref().map(|at_rest| at_rest.until);
        [stack, app, thaw].into_iter().flatten().min()
    }

    /// Packets of one moment, of which some may be merged.
    pub(crate) fn receive(&mut self, packets: &[Arrival], merge: bool, now: Nanos) {
        if self.at_rest.is_some() {
            return;
        }
        if !packets.is_empty() {
            self.idle_wakes = (0, now);
        }
        let now = self.time(now);
        let mut rest = packets;
        while let Some(first) = rest.first() {
            let size = first.payload().len();
            let mut count = 1;
            let mut bytes = size;
            while merge
                && let Some(next) = rest.get(count)
                && rest[count - 1].merges_with(next, size)
                && bytes + next.payload().len() < 65_000
            {
                bytes += next.payload().len();
                count += 1;
            }
            let (together, others) = rest.split_at(count);
            let payload: Vec<&[u8]> = together.iter().map(Arrival::payload).collect();
            let mut segment = Segment::new(&first.tcp(), &payload);
            segment.gso_size = if count > 1 { size as u16 } else { 0 };
            segment.ce = first.ce;
            let placement = self.stack.receive(&first.path, &segment, now);
            assert!(self.shelf.is_some() || placement.is_none(), "nothing is lent");
            if let (Some(shelf), Some(placement)) = (&mut self.shelf, placement) {
                shelf.place(placement, &segment);
            }
            rest = others;
        }
    }

    /// A router sends an ICMP message about a packet of ours.
    pub(crate) fn unreachable(&mut self, icmp: icmp::Error, seq: Seq, now: Nanos) {
        if self.at_rest.is_none() {
            self.stack.unreachable(&self.path, icmp, seq, self.time(now));
        }
    }

    /// Runs timers, events and the application, and gives what is to be sent to `send`. Returns whether
    /// anything was done.
    pub(crate) fn work(
        &mut self,
        peer: &Stream,
        now: Nanos,
        mut send: impl FnMut(&Transmit<'_>),
    ) -> Result<bool, String> {
        self.thaw_if_due(now)?;
        let time = self.time(now);
        let woken = self.stack.next_deadline().is_some_and(|at| at <= time);
        if woken {
            self.stack.on_time(time);
        }
        let mut busy = false;
        for _ in 0..1_000 {
            let mut again = false;
            while let Some((id, events)) = self.stack.next_event() {
                self.event(id, events, time)?;
                again = true;
            }
            if let Some(id) = self.id
                && let Some(mut socket) = self.stack.socket(id, time)
            {
                self.app.act(&mut socket, self.shelf.as_mut(), peer, now);
            }
            while let Some(mut transmit) = self.stack.poll_transmit(time) {
                if let (Some(shelf), len @ 1..) = (&self.shelf, transmit.lent) {
                    transmit.payload = [shelf.sent(transmit.seq, len), &[]];
                    transmit.lent = 0;
                }
                send(&transmit);
                again = true;
            }
            busy |= again;
            if !again {
                self.look_at_window()?;
                if woken || busy {
                    self.look_at_deadline(!busy, now)?;
                }
                return Ok(busy);
            }
        }
        Err(format!("side {} has never done at one moment", self.number))
    }

    fn event(&mut self, id: Id, events: Events, time: Nanos) -> Result<(), String> {
        if events.any(Events::ACCEPTED) {
            let path = self.stack.connection(id).map(|connection| connection.path());
            if path != Some(self.path) {
                return Err(format!("{path:?} was accepted"));
            }
            if self.accepted {
                return self.accepts_again(id, time);
            }
            self.accepted = true;
            self.id = Some(id);
        }
        if self.id != Some(id) {
            return Err(format!("{events:?} of an unknown connection"));
        }
        self.app.on_events(events);
        Ok(())
    }

    /// A cookie that comes twice opens two connections, one after the other: it is not remembered that it
    /// came. No other way leads here.
    fn accepts_again(&mut self, id: Id, time: Nanos) -> Result<(), String> {
        if self.opening != Opening::Cookies {
            return Err(format!("side {} has accepted again", self.number));
        }
        if let Some(mut socket) = self.stack.socket(id, time) {
            socket.abort();
        }
        Ok(())
    }

    /// After a stack has done what there was to do, its next deadline lies ahead.
    fn look_at_deadline(&mut self, idle: bool, now: Nanos) -> Result<(), String> {
        let time = self.time(now);
        if let Some(at) = self.stack.next_deadline()
            && at <= time
        {
            return Err(format!("side {} wants to be woken {} ns ago", self.number, time - at));
        }
        let (count, since) = self.idle_wakes;
        let long_ago = now - since > SECOND;
        self.idle_wakes = match idle {
            true if !long_ago => (count + 1, since),
            idle => (u32::from(idle), now),
        };
        if count > IDLE_WAKES_MAX {
            return Err(format!("side {} woke {count} times for nothing", self.number));
        }
        Ok(())
    }

    /// A side that has read everything has offered its window to the peer.
    fn look_at_window(&self) -> Result<(), String> {
        let Some(connection) = self.id.and_then(|id| self.stack.connection(id)) else {
            return Ok(());
        };
        let closed = connection.info().rcv_wnd == 0 && connection.state().may_receive();
        if closed && connection.readable_len() == 0 {
            return Err(format!("side {} has an empty buffer and offers no window", self.number));
        }
        Ok(())
    }

    /// Takes the connection out of its stack, if there is one.
    pub(crate) fn freeze(&mut self, freeze: &Freeze, now: Nanos) -> Result<bool, String> {
        let Some(id) = self.id else { return Ok(false) };
        if self.stack.connection(id).is_none_or(|connection| connection.end().is_some()) {
            return Ok(false);
        }
        let before = self.stack.len();
        let time = self.time(now);
        let una = self.stack.connection(id).map(|connection| connection.standing().snd_una);
        let frozen = match (self.shelf.take(), una) {
            (Some(shelf), Some(una)) => {
                let mut lend = |queue, offset, len| shelf.lend(una, queue, offset, len);
                self.stack.freeze_lent(id, &mut lend, time)
            }
            _ => self.stack.freeze(id, time),
        };
        let Some(snapshot) = frozen else {
            return Err("a living connection cannot be frozen".to_owned());
        };
        if self.stack.len() + 1 != before || self.stack.connection(id).is_some() {
            return Err("a frozen connection is still there".to_owned());
        }
        let bytes = snapshot.encode();
        match Snapshot::decode(&bytes) {
            Ok(read) if read == snapshot => {}
            Ok(_) => return Err("a snapshot is another one when decoded".to_owned()),
            Err(error) => return Err(format!("{error} ({error:?}): {}", words(snapshot))),
        }
        self.id = None;
        let released = self.app.phase == Phase::Over;
        let until = now + freeze.gap;
        self.at_rest = Some(AtRest { bytes, until, moves: freeze.moves, released });
        self.frozen += 1;
        self.thaw_if_due(now)?;
        Ok(true)
    }

    pub(crate) fn is_at_rest(&self) -> bool {
        self.at_rest.is_some()
    }

    fn thaw_if_due(&mut self, now: Nanos) -> Result<(), String> {
        let Some(at_rest) = self.at_rest.take_if(|at_rest| at_rest.until <= now) else {
            return Ok(());
        };
        if let Some(clock) = at_rest.moves {
            let within = self.time(now) % MILLISECOND;
            let clock = if self.ticks_together {
                clock / MILLISECOND * MILLISECOND + within
            } else {
                clock
            };
            self.clock = clock.wrapping_sub(now);
            self.stack = Stack::new(stack_config(&mut self.secrets, self.opening));
        }
        let snapshot = Snapshot::decode(&at_rest.bytes).map_err(|error| error.to_string())?;
        let time = self.time(now);
        let state = snapshot.state;
        let config = Arc::clone(&self.config);
        let id = if self.lends && snapshot.state >= State::Established {
            self.shelf = Some(Shelf::of(&snapshot));
            self.stack.thaw_lent(&snapshot, config, u32::MAX >> 1, time)
        } else {
            self.stack.thaw(&snapshot, config, time)
        };
        let id = id.map_err(|error| format!("{error:?} of {}", words(snapshot)))?;
        self.id = Some(id);
        self.app.moved(state);
        if at_rest.released
            && let Some(mut socket) = self.stack.socket(id, time)
        {
            socket.close();
        }
        Ok(())
    }

    /// The application waits no longer.
    pub(crate) fn give_up(&mut self, now: Nanos) {
        let time = self.time(now);
        if let Some(id) = self.id
            && let Some(mut socket) = self.stack.socket(id, time)
        {
            self.app.give_up(&mut socket);
        }
        self.app.phase = Phase::Over;
    }

    /// What its connection is like, if there is one.
    pub(crate) fn info(&self) -> Option<Info> {
        Some(self.stack.connection(self.id?)?.info())
    }

    /// What its connection is like, in words.
    pub(crate) fn words(&self) -> String {
        format!(
            "side {}: {:?}, end {:?}, wrote {} of {}, read {} (eof {}), {:?}",
            self.number,
            self.app.phase,
            self.app.end,
            self.app.stream.sent,
            self.app.stream.total,
            self.app.reading.place,
            self.app.reading.eof,
            self.info(),
        )
    }
}

fn stack_config(secrets: &mut Dice, opening: Opening) -> StackConfig {
    let mut secret = [0; 16];
    secret.fill_with(|| secrets.below(256) as u8);
    let half_open = if opening == Opening::Cookies { 0 } else { 16 };
    StackConfig { secret, half_open, connections: 16 }
}

/// A clock by which numbers wrap around as the plan wants it: a stack like this one is asked which
/// numbers a connection has at a time. They count up with it: sequence numbers each 4 microseconds,
/// timestamps each millisecond.
fn clock(side: &Side, stack_config: StackConfig, path: FourTuple) -> Nanos {
    let mut scratch = Stack::new(stack_config);
    let config = Config { timestamps: true, ..Config::default() };
    let id = scratch.connect(path, Arc::new(config), side.clock);
    assert!(id.is_ok(), "{id:?}");
    let Some(syn) = scratch.poll_transmit(side.clock) else { panic!("no SYN") };
    let timestamps = Options::parse(syn.options.as_slice()).timestamps;
    match (side.wrap, timestamps) {
        (Some(Wrap::Sequence(before)), _) => {
            side.clock + Nanos::from(Seq(0) - (syn.seq + before)) * 4_000
        }
        (Some(Wrap::Timestamps(before)), Some(timestamps)) => {
            side.clock + Nanos::from(Seq(0) - (timestamps.value + before)) * MILLISECOND
        }
        _ => side.clock,
    }
}

/// A snapshot without the bytes in it.
fn words(mut snapshot: Snapshot) -> String {
    let queues = [snapshot.send.queue.len(), snapshot.receive.queue.len()];
    snapshot.send.queue.clear();
    snapshot.receive.queue.clear();
    snapshot.receive.out_of_order.iter_mut().for_each(|(_, bytes)| bytes.clear());
    format!("{snapshot:?} with queues of {queues:?}")
}

#[test]
fn numbers_wrap_around_where_the_plan_wants_it() {
    let mut seen = [false; 2];
    for plan in (0..50).map(Plan::new) {
        let mut host = Host::new(&plan, 0);
        host.open(0);
        let Some(syn) = host.stack.poll_transmit(host.time(0)) else { panic!("no SYN") };
        match plan.sides[0].wrap {
            Some(Wrap::Sequence(before)) => {
                assert_eq!(syn.seq + before, Seq(0));
                seen[0] = true;
            }
            Some(Wrap::Timestamps(before)) if plan.sides[0].config.timestamps => {
                let timestamps = Options::parse(syn.options.as_slice()).timestamps.unwrap();
                assert_eq!(timestamps.value + before, Seq(0));
                seen[1] = true;
            }
            _ => {}
        }
    }
    assert_eq!(seen, [true; 2]);
}
