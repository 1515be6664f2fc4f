//! A sender, a host and between them an LRO that speaks for the host, in virtual time; every
//! acknowledgment is held against what sender and host know.

use lro::{ActiveAck, Aggregate, Config, Discard, Lro, Nanos, Pass, Profile, RxChecksum, Sink};
use testkit::packet::{DESTINATION_MAC, PacketBuilder, SOURCE_MAC, pattern};
use testkit::verify;
use wire::Flags;

use crate::laws::naive;
use crate::laws::rules::is_before;

/// What the options of a SYN say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Offer {
    pub(crate) shift: Option<u8>,
    pub(crate) sack: bool,
    pub(crate) timestamps: bool,
    pub(crate) ecn: bool,
}

/// How a connection begins.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Of few, so that connections follow one another.
    pub(crate) port: u16,
    pub(crate) v6: bool,
    pub(crate) vlan: Option<u16>,
    pub(crate) host_opens: bool,
    pub(crate) sender: Offer,
    pub(crate) host: Offer,
    /// Each side's initial sequence number and clock.
    pub(crate) sender_starts: (u32, u32),
    pub(crate) host_starts: (u32, u32),
    /// Whether the SYN comes by LRO: the sender's, and the host's.
    pub(crate) seen: [bool; 2],
}

/// A data segment on its way, or held: its connection, place in the stream, and payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    connection: usize,
    at: u32,
    len: u32,
    payload_at: usize,
    /// When it arrived, as a number of arrivals.
    arrival: usize,
}

/// One connection, seen by someone who sees all.
pub(crate) struct Connection {
    setup: Setup,
    /// Which SYNs, and whether anything else of the host's, have come by since the mode was last changed.
    seen: [bool; 2],
    heard: bool,
    reset: bool,
    /// Segments that were sent, lost or not: place and length.
    sent: Vec<(u32, u32)>,
    astray: Vec<(u32, u32)>,
    finished: bool,
    clock: u32,
    /// Bytes that have arrived at LRO, and those that the host was given.
    received: Vec<bool>,
    given: Vec<bool>,
    host_next: u32,
    host_clock: u32,
    /// The last right edge that the host advertised.
    edge: u32,
    /// The newest acknowledgment that the sender has seen (Last.ACK.sent), and TS.Recent.
    acknowledged: u32,
    recent: Option<u32>,
    /// Whether nothing has come out of turn so far.
    in_order: bool,
    /// What was acknowledged in the host's name, and when.
    promised: Vec<(u32, Nanos)>,
    pub(crate) count: usize,
}

impl Connection {
    fn new(setup: Setup) -> Self {
        let first = setup.sender_starts.0.wrapping_add(1);
        Connection {
            seen: [false; 2],
            heard: false,
            reset: false,
            sent: Vec::new(),
            astray: Vec::new(),
            finished: false,
            clock: setup.sender_starts.1,
            received: Vec::new(),
            given: Vec::new(),
            host_next: setup.host_starts.0.wrapping_add(1),
            host_clock: setup.host_starts.1,
            edge: first,
            acknowledged: first,
            recent: None,
            in_order: true,
            promised: Vec::new(),
            count: 0,
            setup,
        }
    }

    fn seq(&self, at: u32) -> u32 {
        self.setup.sender_starts.0.wrapping_add(1).wrapping_add(at)
    }

    fn place(&self, seq: u32) -> u32 {
        seq.wrapping_sub(self.seq(0))
    }

    fn end(&self) -> u32 {
        self.sent.last().map_or(0, |(at, len)| at + len)
    }

    fn timestamps(&self) -> bool {
        self.setup.sender.timestamps && self.setup.host.timestamps
    }

    fn sack(&self) -> bool {
        self.setup.sender.sack && self.setup.host.sack
    }

    fn shift(&self) -> u8 {
        match (self.setup.sender.shift, self.setup.host.shift) {
            (Some(_), Some(shift)) => shift.min(14),
            _ => 0,
        }
    }

    /// What a packet of the sender begins with.
    fn of_sender(&self) -> PacketBuilder {
        let Setup { port, v6, vlan, .. } = self.setup;
        let packet = if v6 { PacketBuilder::tcp6() } else { PacketBuilder::tcp4() };
        let packet = packet.ports(port, 80).ack(self.host_next);
        vlan.into_iter().fold(packet, PacketBuilder::vlan)
    }

    /// What a packet of the host begins with.
    fn of_host(&self) -> PacketBuilder {
        let Setup { port, v6, vlan, .. } = self.setup;
        let packet = match v6 {
            true => PacketBuilder::tcp6().addresses6(address6(2), address6(1)),
            false => PacketBuilder::tcp4().addresses4([10, 0, 0, 2], [10, 0, 0, 1]),
        };
        let packet = packet.macs(DESTINATION_MAC, SOURCE_MAC).ports(80, port).seq(self.host_next);
        vlan.into_iter().fold(packet, PacketBuilder::vlan)
    }
}

fn address6(last: u8) -> [u8; 16] {
    let mut address = [0; 16];
    (address[0], address[15]) = (0xfd, last);
    address
}

/// How many from the start are true.
fn prefix(bytes: &[bool]) -> u32 {
    bytes.iter().take_while(|byte| **byte).count() as u32
}

fn set(bytes: &mut Vec<bool>, at: u32, len: u32) {
    let end = (at + len) as usize;
    bytes.resize(bytes.len().max(end), false);
    bytes[at as usize..end].fill(true);
}

#[derive(Debug)]
enum Out {
    Given(Piece, u32, u32),
    Acknowledged(Vec<u8>),
}

#[derive(Debug, Default)]
struct Outs(Vec<Out>);

impl Sink<Option<Piece>> for Outs {
    fn pass(&mut self, frame: Option<Piece>, _: Pass) {
        self.0.extend(frame.map(|piece| Out::Given(piece, piece.at, piece.len)));
    }

    fn aggregate(&mut self, mut aggregate: Aggregate<'_, Option<Piece>>) {
        while let Some(slice) = aggregate.next_slice() {
            let piece = slice.frame.unwrap();
            let skipped = (slice.start - piece.payload_at) as u32;
            self.0.push(Out::Given(piece, piece.at + skipped, slice.len as u32));
        }
    }

    fn discard(&mut self, frame: Option<Piece>, why: Discard) {
        panic!("{frame:?} discarded: {}", why.name());
    }

    fn acknowledge(&mut self, frame: &[u8]) {
        self.0.push(Out::Acknowledged(frame.to_vec()));
    }
}

/// All of it.
pub(crate) struct World {
    lro: Lro<Option<Piece>>,
    now: Nanos,
    suspended: bool,
    /// All connections there have been, and those that use each port now.
    pub(crate) connections: Vec<Connection>,
    held: Vec<Piece>,
    arrivals: usize,
}

impl World {
    pub(crate) fn new(config: Config) -> Self {
        World {
            lro: Lro::new(config),
            now: 1_000,
            suspended: false,
            connections: Vec::new(),
            held: Vec::new(),
            arrivals: 0,
        }
    }

    /// The connection that uses a port.
    fn current(&mut self, port: u16) -> Option<usize> {
        self.connections.iter().rposition(|c| c.setup.port == port)
    }

    pub(crate) fn counters(&self) -> &lro::Counters {
        self.lro.counters()
    }

    /// A SYN of the sender's comes the way of its data: only that of the first connection of a port
    /// may have come before the LRO was there. No two of the host's begin with one number.
    pub(crate) fn open(&mut self, mut setup: Setup) {
        setup.seen[0] |= self.current(setup.port).is_some();
        let number = &mut setup.host_starts.0;
        *number = number.wrapping_add(self.connections.len() as u32 * 100_000);
        let connection = Connection::new(setup.clone());
        let syn = |offer: Offer, clock: u32| {
            let mut options = vec![2, 4, 5, 180];
            options.extend(offer.shift.iter().flat_map(|shift| [1, 3, 3, *shift]));
            options.extend(offer.sack.then_some([1, 1, 4, 2]).into_iter().flatten());
            if offer.timestamps {
                options.extend([1, 1, 8, 10]);
                options.extend(clock.to_be_bytes());
                options.extend([0; 4]);
            }
            options
        };
        let flags = |first: bool, ecn: bool| match (first, ecn) {
            (true, true) => Flags::SYN.with(Flags::ECE).with(Flags::CWR),
            (true, false) => Flags::SYN,
            (false, ecn) => {
                Flags::SYN.with(Flags::ACK).with(if ecn { Flags::ECE } else { Flags(0) })
            }
        };
        let (isn, clock) = setup.sender_starts;
        let sender = connection.of_sender().seq(isn).options(&syn(setup.sender, clock));
        let sender = sender.flags(flags(!setup.host_opens, setup.sender.ecn));
        let (isn, clock) = setup.host_starts;
        let host = connection.of_host().seq(isn).ack(connection.seq(0));
        let host =
            host.options(&syn(setup.host, clock)).flags(flags(setup.host_opens, setup.host.ecn));
        let [sees_sender, sees_host] = setup.seen;
        self.connections.push(connection);
        let mut steps = [(sees_sender, false, sender), (sees_host, true, host)];
        if setup.host_opens {
            steps.reverse();
        }
        for (_, is_host, packet) in steps.iter().filter(|(seen, ..)| *seen) {
            if *is_host { self.observe(packet) } else { self.receive(packet, None) }
        }
        let connection = self.connections.last_mut().unwrap();
        connection.seen = setup.seen;
        if connection.timestamps() {
            connection.recent = Some(setup.sender_starts.1);
        }
    }

    fn observe(&mut self, packet: &PacketBuilder) {
        self.lro.observe(&packet.build());
    }

    fn receive(&mut self, packet: &PacketBuilder, piece: Option<Piece>) {
        let bytes = packet.build();
        self.held.extend(piece);
        let mut outs = Outs::default();
        self.lro.receive(piece, &bytes, RxChecksum::Unverified, self.now, &mut outs);
        self.take(outs);
    }

    /// What came out: data for the host, acknowledgments for the sender.
    fn take(&mut self, outs: Outs) {
        for out in outs.0 {
            match out {
                Out::Given(piece, at, len) => {
                    self.held.retain(|held| held.arrival != piece.arrival);
                    set(&mut self.connections[piece.connection].given, at, len);
                }
                Out::Acknowledged(frame) => self.check(&frame),
            }
        }
    }

    /// Sends the next bytes, or loses them.
    pub(crate) fn send(&mut self, port: u16, len: u32, lose: bool) {
        let Some(index) = self.current(port) else { return };
        let connection = &mut self.connections[index];
        if connection.finished {
            return;
        }
        let at = connection.end();
        connection.sent.push((at, len));
        if lose {
            connection.astray.push((at, len));
        } else {
            self.arrive(index, at, len);
        }
    }

    /// The last bytes.
    pub(crate) fn finish(&mut self, port: u16, len: u32) {
        let Some(index) = self.current(port) else { return };
        let connection = &mut self.connections[index];
        if !connection.finished {
            let at = connection.end();
            connection.sent.push((at, len));
            connection.finished = true;
            self.arrive(index, at, len);
        }
    }

    /// Something that was lost comes after all.
    pub(crate) fn find(&mut self, port: u16, which: impl FnOnce(usize) -> usize) {
        let Some(index) = self.current(port) else { return };
        let astray = &mut self.connections[index].astray;
        if !astray.is_empty() {
            let (at, len) = astray.remove(which(astray.len()));
            self.arrive(index, at, len);
        }
    }

    /// Something is sent again, with what follows it.
    pub(crate) fn send_again(&mut self, port: u16, which: impl FnOnce(usize) -> usize) {
        let Some(index) = self.current(port) else { return };
        let sent = &self.connections[index].sent;
        if !sent.is_empty() {
            let which = which(sent.len());
            let (at, len) = sent[which];
            let more = sent.get(which + 1).map_or(0, |(_, len)| *len);
            self.arrive(index, at, len + more);
        }
    }

    /// The sender's clock goes on.
    pub(crate) fn tick(&mut self, port: u16, ticks: u32) {
        if let Some(index) = self.current(port) {
            let clock = &mut self.connections[index].clock;
            *clock = clock.wrapping_add(ticks);
        }
    }

    fn arrive(&mut self, index: usize, at: u32, len: u32) {
        self.arrivals += 1;
        let connection = &mut self.connections[index];
        let seq = connection.seq(at);
        let mut packet =
            connection.of_sender().seq(seq).payload(&pattern(at as usize, len as usize));
        if connection.timestamps() {
            packet = packet.timestamps(connection.clock, connection.host_clock);
            // RFC 7323 section 4.3.
            if !is_before(connection.acknowledged, seq)
                && connection.recent.is_none_or(|recent| !is_before(connection.clock, recent))
            {
                connection.recent = Some(connection.clock);
            }
        }
        if connection.finished && at + len == connection.end() {
            packet = packet.flags(Flags::ACK.with(Flags::FIN));
        }
        connection.in_order &=
            at == prefix(&connection.received) && at as usize == connection.received.len();
        set(&mut connection.received, at, len);
        let payload_at = packet.build().len() - len as usize;
        let piece = Piece { connection: index, at, len, payload_at, arrival: self.arrivals };
        self.receive(&packet, Some(piece));
    }

    /// The host acknowledges what it was given, with some data of its own.
    pub(crate) fn host_sends(&mut self, port: u16, window: u16, len: u32, ticks: u32) {
        let Some(index) = self.current(port) else { return };
        let connection = &mut self.connections[index];
        if connection.reset {
            return;
        }
        connection.host_clock = connection.host_clock.wrapping_add(ticks);
        let given = prefix(&connection.given);
        let fin = u32::from(connection.finished && given == connection.end());
        let ack = connection.seq(given + fin);
        let mut packet = connection.of_host().ack(ack).window(window).payload_pattern(len as usize);
        if connection.timestamps() {
            packet = packet.timestamps(connection.host_clock, connection.recent.unwrap_or(0));
        }
        connection.host_next = connection.host_next.wrapping_add(len);
        connection.edge = ack.wrapping_add(u32::from(window) << connection.shift());
        connection.heard = true;
        if is_before(connection.acknowledged, ack) {
            connection.acknowledged = ack;
        }
        self.observe(&packet);
    }

    /// The host will have no more of it.
    pub(crate) fn host_resets(&mut self, port: u16) {
        let Some(index) = self.current(port) else { return };
        self.connections[index].reset = true;
        let packet = self.connections[index].of_host().flags(Flags::RST.with(Flags::ACK));
        self.observe(&packet);
    }

    pub(crate) fn batch_ends(&mut self) {
        let mut outs = Outs::default();
        self.lro.acknowledge(&mut outs);
        self.take(outs);
    }

    pub(crate) fn burst_ends(&mut self) {
        let mut outs = Outs::default();
        self.lro.burst_ends(&mut outs);
        self.take(outs);
    }

    pub(crate) fn interrupt(&mut self) {
        let mut outs = Outs::default();
        self.lro.interrupt(&mut outs);
        self.take(outs);
        assert!(self.held.is_empty());
    }

    pub(crate) fn suspend(&mut self, suspend: bool) {
        self.suspended = suspend;
        self.lro.suspend_acknowledgments(suspend);
    }

    /// Another configuration; what happened to connections in the meantime is unknown.
    pub(crate) fn reconfigure(&mut self, change: impl FnOnce(&mut Config)) {
        let old = self.lro.config().clone();
        let mut config = old.clone();
        change(&mut config);
        if (old.active_ack, old.profile) != (config.active_ack, config.profile) {
            for connection in &mut self.connections {
                connection.seen = [false; 2];
                connection.heard = false;
            }
        }
        let mut outs = Outs::default();
        self.lro.reconfigure(config, &mut outs);
        self.take(outs);
    }

    /// Time passes, and deadlines are kept.
    pub(crate) fn wait(&mut self, time: Nanos) {
        let end = self.now + time;
        while let Some(deadline) = self.lro.next_deadline().filter(|d| *d <= end) {
            self.now = self.now.max(deadline);
            let mut outs = Outs::default();
            self.lro.expire(self.now, &mut outs);
            self.take(outs);
        }
        self.now = end;
        let max_timeout = self.lro.config().max_timeout;
        for connection in &self.connections {
            let given = prefix(&connection.given);
            for (ack, when) in &connection.promised {
                let late = self.now >= when + max_timeout;
                assert!(!late || *ack <= given, "{ack} acknowledged at {when}, {given} given");
            }
        }
    }

    /// One acknowledgment, by what everyone knows.
    fn check(&mut self, frame: &[u8]) {
        assert_eq!(verify::checksums(frame), Ok(()));
        let packet = naive::Tcp::read(frame).expect("an acknowledgment that is no TCP");
        assert_eq!(packet.bytes(), frame, "bytes behind the packet");
        let port = u16::from_be_bytes([packet.tcp[2], packet.tcp[3]]);
        let index = self.current(port).expect("an acknowledgment of no connection");
        self.check_addresses(&packet, index);
        let config = self.lro.config();
        let safe = match config.active_ack {
            ActiveAck::Off => panic!("an acknowledgment, with active ACK off"),
            ActiveAck::Safe => true,
            ActiveAck::Paper => false,
        };
        assert_eq!(config.profile, Profile::Endpoint);
        assert!(!self.suspended, "an acknowledgment while suspended");
        let connection = &self.connections[index];
        assert!(!connection.reset, "an acknowledgment for a host that has reset the connection");
        let ack = connection.place(packet.ack());
        let received = prefix(&connection.received);
        assert!(ack <= received, "{ack} acknowledged, {received} received in order");
        if safe {
            self.check_safe(&packet, connection);
        } else {
            assert_eq!(packet.window(), 0xffff);
        }
        self.check_options(&packet, connection, safe);
        let now = self.now;
        let connection = &mut self.connections[index];
        if is_before(connection.acknowledged, packet.ack()) {
            connection.acknowledged = packet.ack();
        }
        connection.promised.push((ack, now));
        connection.count += 1;
    }

    /// It goes to the sender, from the host.
    fn check_addresses(&self, packet: &naive::Tcp, index: usize) {
        let reply = naive::Tcp::read(&self.connections[index].of_host().build()).unwrap();
        assert_eq!((packet.key(), &packet.link), (reply.key(), &reply.link));
        assert_eq!(packet.flags(), naive::ACK);
        assert!(packet.payload.is_empty());
        assert_eq!(packet.urgent(), 0);
    }

    fn check_safe(&self, packet: &naive::Tcp, connection: &Connection) {
        assert_eq!(connection.seen, [true; 2], "an LRO that has not seen both SYNs cannot know");
        assert!(connection.heard);
        assert!(!(connection.setup.sender.ecn && connection.setup.host.ecn), "CE may be missed");
        assert_eq!(packet.seq(), connection.host_next);
        assert!(is_before(connection.acknowledged, packet.ack()), "nothing new");
        let window = (packet.window() as u32) << connection.shift();
        let edge = packet.ack().wrapping_add(window);
        assert!(!is_before(connection.edge, edge), "{edge} is beyond {}", connection.edge);
        assert_ne!(packet.window(), 0, "this stops the sender instead of helping it on");
    }

    fn check_options(&self, packet: &naive::Tcp, connection: &Connection, safe: bool) {
        let mut options = packet.options();
        if connection.timestamps() {
            let times = options.split_off(..12).unwrap();
            assert_eq!(times[..4], [1, 1, 8, 10]);
            let word = |at: usize| u32::from_be_bytes(times[at..at + 4].try_into().unwrap());
            if safe {
                let recent = connection.recent.unwrap();
                assert_eq!(word(4), connection.host_clock);
                assert!(!is_before(recent, word(8)), "{} is after {recent}", word(8));
                assert!(!connection.in_order || word(8) == recent, "{} is not {recent}", word(8));
            }
        }
        if !safe && options.is_empty() {
            return; // the flow was forgotten since
        }
        let expected = self.blocks(connection, packet.ack());
        if expected.is_empty() || !connection.sack() || connection.seen != [true; 2] {
            assert!(options.is_empty(), "SACK blocks without out-of-order data or agreement");
            return;
        }
        let blocks: Vec<(u32, u32)> = options[4..]
            .chunks(8)
            .map(|b| {
                let word = |at: usize| u32::from_be_bytes(b[at..at + 4].try_into().unwrap());
                (connection.place(word(0)), connection.place(word(4)))
            })
            .collect();
        assert_eq!(options[..4], [1, 1, 5, 2 + 8 * blocks.len() as u8]);
        assert_eq!(blocks.len(), expected.len().min(3), "{blocks:?} for {expected:?}");
        let latest = expected.iter().max_by_key(|block| block.2).unwrap();
        assert_eq!(blocks[0], (latest.0, latest.1), "{expected:?}");
        let mut places: Vec<(u32, u32)> = expected.iter().map(|i| (i.0, i.1)).collect();
        for block in blocks {
            let at = places.iter().position(|place| *place == block);
            places.remove(at.unwrap_or_else(|| panic!("{block:?} twice or not in {expected:?}")));
        }
    }

    /// What is held behind the place up to which all has come: where each part starts and ends,
    /// and its latest arrival.
    fn blocks(&self, connection: &Connection, ack: u32) -> Vec<(u32, u32, usize)> {
        let own = |p: &&Piece| std::ptr::eq(&self.connections[p.connection], connection);
        let mut held: Vec<&Piece> = self.held.iter().filter(own).collect();
        held.sort_by_key(|piece| piece.at);
        let mut blocks: Vec<(u32, u32, usize)> = Vec::new();
        for piece in held {
            let end = piece.at + piece.len;
            match blocks.last_mut().filter(|block| piece.at <= block.1) {
                Some(block) => {
                    *block = (block.0, block.1.max(end), block.2.max(piece.arrival));
                }
                None => blocks.push((piece.at, end, piece.arrival)),
            }
        }
        blocks.retain(|block| connection.place(ack) < block.0);
        blocks
    }
}
