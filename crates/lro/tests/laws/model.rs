//! What comes out, and when: the crate's documentation and the paper's section IV written anew,
//! slowly and without looking at the crate. A connection is a list of packets in order and a list
//! of those that came early; everything else is asked of the packets each time.

use lro::{Config, Nanos, Profile};

use super::naive::{ACK, CWR, FIN, Key, PSH, SYN, Tcp};
use super::rules::{self, Order, Verdict, is_before};
use super::run::{START, Step};
use super::sent::Sent;

mod holes;
mod piece;

use holes::Holes;
use piece::Piece;

/// Packets that come out as one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Group {
    pub(crate) key: Option<Key>,
    pub(crate) now: Nanos,
    /// Steps that brought the frames, with the part of each payload that counts.
    pub(crate) parts: Vec<(usize, std::ops::Range<usize>)>,
    /// What an aggregate's header says; `None` for a frame as it came.
    pub(crate) header: Option<(u32, Told)>,
}

/// What a segment tells besides its data. Of an aggregate: the first's TSval, else the last's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Told {
    pub(crate) ack: u32,
    pub(crate) window: usize,
    /// TSval and TSecr.
    pub(crate) timestamps: Option<(u32, u32)>,
}

impl Told {
    pub(crate) fn by(packet: &Tcp) -> Told {
        let timestamps = packet.timestamps();
        Told { ack: packet.ack(), window: packet.window(), timestamps }
    }

    fn is_older_than(&self, other: &Told) -> bool {
        matches!((self.timestamps, other.timestamps), (Some(a), Some(b)) if is_before(a.0, b.0))
    }
}

/// Predicts what comes out, given room for all flows and frames.
pub(crate) fn groups(config: &Config, steps: &[Step]) -> Vec<Group> {
    let world = World { config: config.clone(), now: START, out: Vec::new() };
    let mut model = Model { world, connections: Vec::new() };
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Frame(frame) => model.receive(number, frame),
            Step::Host(frame) => model.host(frame),
            Step::Wait(time) => {
                let end = model.world.now + time;
                model.each(|connection, world| connection.wait(end, world));
                model.world.now = end;
            }
            Step::BurstEnds => model.each(|connection, world| {
                if connection.pushed {
                    connection.flush_run(world);
                }
            }),
            Step::Idle => model.each(Connection::flush_run),
            Step::FlushAll => model.each(Connection::flush),
            Step::Interrupt => model.forget(),
            Step::InterruptFlow(bytes) => model.forget_one(bytes),
            Step::Reconfigure(config) => {
                model.forget();
                model.world.config = config.clone();
            }
        }
    }
    model.each(Connection::flush);
    model.world.out
}

struct World {
    config: Config,
    now: Nanos,
    out: Vec<Group>,
}

impl World {
    fn limit(&self) -> usize {
        (self.config.max_aggregate as usize).min(65_535)
    }

    fn pass(&mut self, key: Option<Key>, number: usize, len: usize) {
        let parts = vec![(number, 0..len)];
        self.out.push(Group { key, now: self.now, parts, header: None });
    }
}

struct Model {
    world: World,
    connections: Vec<Connection>,
}

impl Model {
    fn each(&mut self, mut act: impl FnMut(&mut Connection, &mut World)) {
        for connection in &mut self.connections {
            act(connection, &mut self.world);
        }
        self.connections.retain(|connection| !connection.closed);
    }

    fn forget(&mut self) {
        self.each(Connection::flush);
        self.connections.iter_mut().for_each(|connection| connection.place = None);
    }

    fn forget_one(&mut self, bytes: &[u8]) {
        let Some(packet) = Tcp::read(bytes) else { return };
        if let Some(at) = self.find(&packet.key()) {
            self.connections[at].makes_way(&packet, Order::Unread, &mut self.world);
        }
    }

    fn receive(&mut self, number: usize, frame: &super::run::Frame) {
        match rules::verdict(&self.world.config, frame) {
            Verdict::Discard => {}
            Verdict::Pass => self.world.pass(None, number, 0),
            Verdict::PassAfter(packet, order) => self.pass(number, &packet, order),
            Verdict::Hold(packet) => self.hold(number, packet),
        }
    }

    fn find(&mut self, key: &Key) -> Option<usize> {
        self.connections.retain(|connection| !connection.closed);
        self.connections.iter().position(|connection| connection.key == *key)
    }

    fn find_or_open(&mut self, key: &Key) -> &mut Connection {
        let at = self.find(key).unwrap_or_else(|| {
            self.connections.push(Connection::new(key.clone()));
            self.connections.len() - 1
        });
        &mut self.connections[at]
    }

    fn pass(&mut self, number: usize, packet: &Tcp, order: Order) {
        let key = packet.key();
        if let Some(at) = self.find(&key) {
            self.connections[at].makes_way(packet, order, &mut self.world);
        }
        if order == Order::Syn {
            let connection = self.find_or_open(&key);
            let data = end_of(packet).wrapping_add(1);
            if connection.holes.hears_wire(packet, data, connection.last.is_some()) {
                connection.begins_at(data);
            }
        }
        self.world.pass(Some(key), number, packet.payload.len());
    }

    /// A packet of the host's tells what it has sent.
    fn host(&mut self, frame: &super::run::Frame) {
        let Some(packet) = Tcp::read(&frame.bytes) else { return };
        if self.world.config.profile == Profile::Endpoint
            && let Some(at) = self.find(&packet.reversed_key())
        {
            self.connections[at].sent.hear(&packet);
            if packet.has(SYN) {
                let connection = &mut self.connections[at];
                connection.holes.hears_host(&packet, connection.last.is_some());
            }
        }
    }

    fn hold(&mut self, number: usize, packet: Tcp) {
        let key = packet.key();
        let now = self.world.now;
        let len = packet.payload.len();
        let told = Told::by(&packet);
        let times = (now, Nanos::MAX);
        let piece = Piece { number, packet, skip: 0, len, times, told, raised: false };
        let connection = self.find_or_open(&key);
        connection.arrives(now);
        let at = self.find(&key).unwrap();
        let (connection, world) = (&mut self.connections[at], &mut self.world);
        let left = match world.config.profile {
            Profile::Endpoint => connection.reorder(piece, world),
            Profile::Lossless => connection.in_order_only(piece, world),
        };
        // Everything went, the connection with it: this begins another.
        if let Some(piece) = left {
            let connection = self.find_or_open(&key);
            connection.arrives(now);
            let at = self.find(&key).unwrap();
            self.connections[at].add(piece, &mut self.world);
        }
    }
}

fn end_of(packet: &Tcp) -> u32 {
    packet.seq().wrapping_add(packet.payload.len() as u32)
}

fn distance(a: u32, b: u32) -> i64 {
    i64::from(a.wrapping_sub(b) as i32)
}

const FAR: i64 = 1 << 24;

struct Connection {
    key: Key,
    /// What continues it, and the highest that was put in order or handed on.
    place: Option<(u32, u32)>,
    /// The latest in order.
    last: Option<Told>,
    run: Vec<Piece>,
    /// By sequence number, without overlaps.
    early: Vec<Piece>,
    holes: Holes,
    last_arrival: Nanos,
    average_interval: Nanos,
    pushed: bool,
    closed: bool,
    sent: Sent,
    /// The acknowledgment of what was held first, and whether the host takes it for sure.
    first_ack: (u32, bool),
}

impl Connection {
    fn new(key: Key) -> Connection {
        Connection {
            key,
            place: None,
            last: None,
            run: Vec::new(),
            early: Vec::new(),
            holes: Holes::default(),
            last_arrival: 0,
            average_interval: 0,
            pushed: false,
            closed: false,
            sent: Sent::default(),
            first_ack: (0, false),
        }
    }

    /// What comes is to be held, with what is.
    fn begins_to_hold(&mut self, ack: u32) {
        if self.held().is_none() {
            self.first_ack = (ack, self.sent.accepts(ack));
        }
    }

    /// Section IV.E.
    fn arrives(&mut self, now: Nanos) {
        if self.last_arrival != 0 && now != self.last_arrival {
            self.average_interval = (self.average_interval + now - self.last_arrival) / 2;
        }
        self.last_arrival = now;
    }

    /// When everything must go, and when the run must.
    fn deadlines(&self, config: &Config) -> (Option<Nanos>, Option<Nanos>) {
        let Config { min_timeout, max_timeout, timeout_factor, .. } = *config;
        let latest = self.run.iter().map(|p| p.times.0.saturating_add(max_timeout)).min();
        let usual = self.average_interval.saturating_mul(timeout_factor.into());
        let idle = self.last_arrival.saturating_add(usual.max(min_timeout).min(max_timeout));
        (self.early.iter().map(|p| p.times.1).min(), latest.map(|latest| latest.min(idle)))
    }

    fn wait(&mut self, end: Nanos, world: &mut World) {
        let start = world.now;
        loop {
            let (all, run) = self.deadlines(&world.config);
            let Some(next) = all.into_iter().chain(run).min().filter(|next| *next <= end) else {
                world.now = start;
                return;
            };
            world.now = start.max(next);
            let hole_is_over = all.is_some_and(|all| all <= world.now);
            if hole_is_over { self.give_up_due(world) } else { self.flush_run(world) }
        }
    }

    fn held(&self) -> Option<&Tcp> {
        self.run.first().or(self.early.first()).map(|piece| &piece.packet)
    }

    /// A packet that is not held comes by.
    fn makes_way(&mut self, packet: &Tcp, order: Order, world: &mut World) {
        match order {
            Order::Ack => self.flush_run(world),
            _ => self.flush(world),
        }
        if packet.has(ACK) && order != Order::Unread {
            self.sent.acknowledged(packet.ack());
        }
        match order {
            Order::Unread => {
                self.place = None;
                self.sent.loses_sight();
            }
            Order::End => self.closed = true,
            Order::Data => self.goes_on_at(end_of(packet)),
            Order::Ack | Order::Syn => {}
        }
    }

    fn goes_on_at(&mut self, end: u32) {
        if let Some((next, frontier)) = &mut self.place {
            *next = end;
            if distance(end, *frontier) > 0 || distance(end, *frontier) < -FAR {
                *frontier = end;
            }
        }
    }

    fn in_order_only(&mut self, piece: Piece, world: &mut World) -> Option<Piece> {
        let held: Vec<&Tcp> = self.run.iter().map(|piece| &piece.packet).collect();
        let joins = held.last().is_some_and(|last| {
            end_of(last) == piece.seq()
                && rules::same_headers(held[0], &piece.packet)
                && rules::restorable(&held, &piece.packet)
        });
        if !joins {
            self.flush_run(world);
        }
        self.add(piece, world);
        None
    }

    fn begins_at(&mut self, data: u32) {
        (self.place, self.last) = (Some((data, data)), None);
        self.sent.loses_sight();
    }

    /// Where it belongs. What is given back is the first of a new connection.
    fn reorder(&mut self, mut piece: Piece, world: &mut World) -> Option<Piece> {
        self.may_begin_anew(&piece);
        let Some((next, frontier)) = self.place else {
            self.add(piece, world);
            return None;
        };
        if piece.seq() == next && self.held().is_none() {
            self.add(piece, world);
            return None;
        }
        if distance(piece.seq(), frontier).abs() > FAR {
            return self.start_over(piece, world);
        }
        if piece.seq() != next && distance(piece.end(), frontier) <= 0 {
            self.old(&piece, false, world);
            return None;
        }
        let doubted = self.last.is_some_and(|last| piece.told.is_older_than(&last));
        if doubted || !self.held().is_none_or(|held| self.like(held, &piece)) {
            return self.start_over(piece, world);
        }
        let in_order = piece.seq() == next || distance(piece.seq(), frontier) <= 0;
        let run_from = self.run.first().map(Piece::seq);
        if run_from.is_some_and(|from| distance(piece.seq(), from) >= 0)
            && distance(piece.seq(), next) < 0
        {
            piece.trim_front(next);
        }
        for (start, end) in self.blocks() {
            if distance(start, piece.seq()) <= 0 && distance(piece.seq(), end) < 0 {
                if distance(piece.end(), end) <= 0 {
                    self.old(&piece, true, world);
                    return None;
                }
                piece.trim_front(end);
            }
            if distance(start, piece.seq()) > 0 && distance(piece.end(), start) > 0 {
                if distance(piece.end(), end) > 0 || piece.packet.has(FIN) {
                    return self.start_over(piece, world);
                }
                piece.trim_back(start);
            }
        }
        if in_order {
            self.add(piece, world);
        } else {
            self.begins_to_hold(piece.told.ack);
            let touches = |(start, end)| end == piece.seq() || start == piece.end();
            if !self.blocks().into_iter().any(touches) {
                piece.times.1 = world.now + self.holes.wait_for(world);
            }
            self.early.push(piece);
            self.early.sort_by_key(|p| p.seq().wrapping_sub(frontier));
            self.age_blocks();
            self.give_up_due(world);
        }
        None
    }

    fn like(&self, held: &Tcp, piece: &Piece) -> bool {
        rules::same_headers(held, &piece.packet)
            && rules::same_kinds(held, &piece.packet)
            && self.shares_acknowledgments(piece.told.ack)
    }

    /// The host takes both or neither.
    fn shares_acknowledgments(&self, ack: u32) -> bool {
        let (first, acceptable) = self.first_ack;
        let known = acceptable && self.sent.accepts(ack);
        match self.run.last() {
            Some(last) => last.told.ack == ack || known && !is_before(ack, last.told.ack),
            None => first == ack || known,
        }
    }

    /// Start and end of what came early and touches.
    fn blocks(&self) -> Vec<(u32, u32)> {
        let mut blocks: Vec<(u32, u32)> = Vec::new();
        for piece in &self.early {
            match blocks.last_mut() {
                Some((_, end)) if *end == piece.seq() => *end = piece.end(),
                _ => blocks.push((piece.seq(), piece.end())),
            }
        }
        blocks
    }

    /// What touches is as old as the oldest of it.
    fn age_blocks(&mut self) {
        for (start, end) in self.blocks() {
            let is_on = |p: &Piece| distance(p.seq(), start) >= 0 && distance(p.seq(), end) < 0;
            let on = || self.early.iter().filter(|p| is_on(p));
            let oldest = on().map(|p| p.times.0).min().unwrap();
            let first = on().map(|p| p.times.1).min().unwrap();
            self.early.iter_mut().filter(|p| is_on(p)).for_each(|p| p.times = (oldest, first));
        }
    }

    fn start_over(&mut self, piece: Piece, world: &mut World) -> Option<Piece> {
        self.flush(world);
        if self.closed {
            return Some(piece);
        }
        if let Some((_, frontier)) = &mut self.place
            && distance(piece.seq(), *frontier).abs() > FAR
        {
            *frontier = piece.seq();
        }
        self.add(piece, world);
        None
    }

    /// Data that came before, in what is handed on or, `waits`, in a block. What waits does not let
    /// data sent after it overtake it.
    fn old(&mut self, piece: &Piece, waits: bool, world: &mut World) {
        let finishes = piece.packet.has(FIN);
        self.holes.is_filled(piece, world);
        self.sent.acknowledged(piece.told.ack);
        let newer = self.last.map_or(piece.told.timestamps.is_some(), |last| {
            last.is_older_than(&piece.told)
                || last.timestamps.is_none() && piece.told.timestamps.is_some()
        });
        if finishes || waits || newer {
            self.flush(world)
        } else {
            self.flush_run(world)
        }
        self.closed |= finishes;
        self.goes_on_at(end_of(&piece.packet));
        world.pass(Some(self.key.clone()), piece.number, piece.packet.payload.len());
    }

    fn fits(&self, len: usize, world: &World) -> bool {
        self.run.len() < world.config.max_segments as usize && self.ip_len() + len <= world.limit()
    }

    /// Bytes of the IP packet that the run would be.
    fn ip_len(&self) -> usize {
        let first = &self.run[0].packet;
        first.ip.len() + first.tcp.len() + self.run.iter().map(|p| p.len).sum::<usize>()
    }

    /// Puts a piece in order, and what waited for it behind it.
    fn add(&mut self, piece: Piece, world: &mut World) {
        let continues = self.place.is_some_and(|(next, _)| next == piece.seq());
        if !self.run.is_empty() && (!continues || !self.fits(piece.len, world)) {
            self.flush_run(world);
        }
        let doubted = world.config.profile == Profile::Endpoint
            && self.run.is_empty()
            && self.last.is_some_and(|last| piece.told.is_older_than(&last));
        if self.place.is_none() {
            self.sent.loses_sight();
        }
        self.begins_to_hold(piece.told.ack);
        self.append(piece, world);
        if doubted {
            self.flush_run(world);
        }
        self.join_early(world);
    }

    fn append(&mut self, piece: Piece, world: &mut World) {
        let (end, flags) = (piece.end(), piece.packet.flags());
        let frontier = self.place.map_or(piece.seq(), |(_, frontier)| frontier);
        let frontier = if distance(end, frontier) > 0 { end } else { frontier };
        self.place = Some((end, frontier));
        self.last = Some(piece.told);
        self.run.push(piece);
        let goes_singly = self.holes.goes_singly(self.run.last().unwrap());
        if goes_singly || self.is_complete(flags, world) {
            self.flush_run(world);
        } else if world.config.flush_on_psh && flags & PSH != 0 {
            self.pushed = true;
        }
    }

    fn is_complete(&self, flags: u8, world: &World) -> bool {
        let lossless = world.config.profile == Profile::Lossless;
        let largest = self.run.iter().map(|p| p.len).max().unwrap();
        flags & FIN != 0
            || !lossless && flags & CWR != 0
            || lossless && flags & PSH != 0
            || lossless && self.run[self.run.len() - 1].len < largest
            || self.run.len() >= world.config.max_segments as usize
            || !lossless && self.ip_len() + largest > world.limit()
    }

    fn join_early(&mut self, world: &mut World) {
        while let Some((next, _)) = self.place
            && self.early.first().is_some_and(|piece| piece.seq() == next)
        {
            let mut piece = self.early.remove(0);
            let cwr = piece.packet.has(CWR);
            if !self.run.is_empty() && (cwr || !self.fits(piece.len, world)) {
                self.flush_run(world);
            }
            if let Some(last) = self.last {
                piece.catches_up(&last, !self.run.is_empty());
            }
            self.append(piece, world);
        }
    }

    fn flush(&mut self, world: &mut World) {
        self.flush_run(world);
        while !self.early.is_empty() {
            self.give_up(world);
        }
    }

    /// What waits for the first hole goes.
    fn give_up(&mut self, world: &mut World) {
        let (start, frontier) = (self.early[0].seq(), self.place.unwrap().1);
        self.place = Some((start, frontier));
        self.join_early(world);
        self.flush_run(world);
    }

    /// All up to the last whose time is over.
    fn give_up_due(&mut self, world: &mut World) {
        let Some(last) = self.early.iter().rposition(|p| p.times.1 <= world.now) else { return };
        let last = self.early[last].seq();
        self.flush_run(world);
        while self.early.first().is_some_and(|p| distance(p.seq(), last) <= 0) {
            let since = self.early.iter().map(|p| p.times.0).min().unwrap();
            self.holes.watch(self.place.unwrap().1, &self.early[0], since, world);
            self.holes.begin_singles(self.early[0].seq());
            self.give_up(world);
        }
    }

    fn flush_run(&mut self, world: &mut World) {
        let run = std::mem::take(&mut self.run);
        self.pushed = false;
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return };
        let alone = run.len() == 1 && !first.raised;
        let mut told = last.told;
        told.timestamps = first.told.timestamps.zip(told.timestamps).map(|(f, l)| (f.0, l.1));
        self.sent.acknowledged(last.told.ack);
        let part = |p: &Piece| (p.number, p.skip..p.skip + p.len);
        world.out.push(Group {
            key: Some(self.key.clone()),
            now: world.now,
            parts: run.iter().map(part).collect(),
            header: (!alone).then(|| (first.seq(), told)),
        });
        if last.packet.has(FIN) {
            self.flush(world);
            self.closed = true;
        }
    }
}
