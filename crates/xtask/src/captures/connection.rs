//! A TCP connection as a capture shows it: bursts of segments that a path loses, delays and doubles,
//! and the acknowledgments of what came.

use testkit::packet::{PacketBuilder, pattern};
use wire::Flags;

use super::damage::Trouble;
use super::file::Packet;
use super::random::Random;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// How the IPv4 ID goes from packet to packet.
#[derive(Clone, Copy, Debug)]
enum Ids {
    Up,
    Fixed,
    Zero,
    Any,
}

/// One end.
#[derive(Clone, Debug)]
struct Side {
    next: u32,
    /// What it has from the other.
    acked: u32,
    id: u16,
    clock: u32,
}

/// What the path does to one packet of so many; 0: to none.
#[derive(Clone, Debug)]
struct Path {
    loses: u64,
    delays: u64,
    doubles: u64,
    marks: u64,
    round_trip: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Connection {
    v6: bool,
    host: u8,
    ports: [u16; 2],
    vlans: Vec<u16>,
    mss: usize,
    /// Segments longer than the MTU, as a sender with TSO shows them.
    super_packets: bool,
    timestamps: bool,
    sack: bool,
    ecn: bool,
    ids: Ids,
    /// Nanoseconds a tick of the clock of its timestamps.
    tick: u64,
    sides: [Side; 2],
    path: Path,
    trouble: Trouble,
    answers_ece: bool,
}

impl Connection {
    pub(super) fn any(random: &mut Random, number: usize, trouble: Trouble) -> Self {
        let side = |random: &mut Random| Side {
            // Sequence numbers and clocks wrap in some connections.
            next: if random.once_in(6) { u32::MAX - 20_000 } else { random.next() as u32 },
            acked: 0,
            id: random.next() as u16,
            clock: if random.once_in(6) { u32::MAX - 3 } else { random.next() as u32 },
        };
        let mut sides = [side(random), side(random)];
        (sides[0].acked, sides[1].acked) = (sides[1].next, sides[0].next);
        let vlans: &[&[u16]] = &[&[], &[], &[], &[], &[7], &[0x6007], &[100, 7]];
        Connection {
            v6: random.once_in(2),
            host: 1 + random.below(3) as u8,
            ports: [40_000 + number as u16, random.pick(&[80, 443, 5201])],
            vlans: random.pick(vlans).to_vec(),
            mss: random.pick(&[1460, 1448, 1448, 1428, 1220, 536, 100, 8948]),
            super_packets: random.once_in(4),
            timestamps: !random.once_in(3),
            sack: !random.once_in(3),
            ecn: random.once_in(3),
            ids: random.pick(&[Ids::Up, Ids::Up, Ids::Up, Ids::Fixed, Ids::Zero, Ids::Any]),
            tick: random.pick(&[MS, MS, 4 * MS, 10 * MS, 100 * MS]),
            sides,
            path: Path {
                loses: random.pick(&[0, 0, 100, 20]),
                delays: random.pick(&[0, 0, 50, 10, 3]),
                doubles: random.pick(&[0, 0, 60]),
                marks: random.pick(&[0, 0, 20]),
                round_trip: random.pick(&[200 * US, MS, 20 * MS]),
            },
            trouble,
            answers_ece: false,
        }
    }

    /// All packets from `start` on, in the order of sending, each with the time at which it comes.
    pub(super) fn packets(mut self, random: &mut Random, start: u64) -> Vec<Packet> {
        let mut packets = Vec::new();
        let mut now = start;
        if !random.once_in(4) {
            self.handshake(random, &mut now, &mut packets);
        }
        for _ in 0..random.within(2..12) {
            let from = usize::from(random.once_in(5));
            self.burst(random, from, &mut now, &mut packets);
            now += match random.below(8) {
                0 => random.within(200 * MS..3_000 * MS),
                1 | 2 => random.within(MS..20 * MS),
                _ => random.within(2 * US..300 * US),
            };
        }
        match random.below(8) {
            0 => self.control(random, Flags::RST, now, &mut packets),
            1..4 => self.control(random, Flags::FIN.with(Flags::ACK), now, &mut packets),
            _ => {}
        }
        packets
    }

    fn handshake(&mut self, random: &mut Random, now: &mut u64, packets: &mut Vec<Packet>) {
        for (from, flags) in [(0, Flags::SYN), (1, Flags::SYN.with(Flags::ACK))] {
            let mut options = vec![2, 4, (self.mss >> 8) as u8, self.mss as u8];
            if self.sack {
                options.extend([4, 2]);
            }
            if self.timestamps {
                options.extend([8, 10]);
                options.extend(self.clock(from, *now).to_be_bytes());
                options.extend(self.clock(1 - from, *now).to_be_bytes());
            }
            options.extend([1, 3, 3, 7]);
            let syn = self.builder(random, from, *now).flags(flags).options(&options);
            self.trouble.send(random, syn, *now, packets);
            self.sides[from].next = self.sides[from].next.wrapping_add(1);
            self.sides[1 - from].acked = self.sides[from].next;
            *now += self.path.round_trip / 2;
        }
        let ack = self.builder(random, 0, *now);
        self.trouble.send(random, ack, *now, packets);
    }

    fn control(&mut self, random: &mut Random, flags: Flags, now: u64, packets: &mut Vec<Packet>) {
        let packet = self.builder(random, 0, now).flags(flags);
        self.trouble.send(random, packet, now, packets);
    }

    /// Segments one behind the other, and what the other end answers.
    fn burst(
        &mut self,
        random: &mut Random,
        from: usize,
        now: &mut u64,
        packets: &mut Vec<Packet>,
    ) {
        let count = random.pick(&[1, 2, 3, 10, 20, 44, 48]);
        let spacing = random.pick(&[0, 1, 120, US, 12 * US]);
        let mut lost: Option<u32> = None;
        for n in 0..count {
            let len = self.len(random, n + 1 == count);
            let mut flags = Flags::ACK;
            if n + 1 == count || random.once_in(12) {
                flags = flags.with(Flags::PSH);
            }
            if self.ecn && self.answers_ece && n == 0 {
                flags = flags.with(Flags::CWR);
                self.answers_ece = false;
            }
            let seq = self.sides[from].next;
            let segment = self.builder(random, from, *now).flags(flags);
            let segment = segment.payload(&pattern(seq as usize, len));
            self.sides[from].next = seq.wrapping_add(len as u32);
            let is_lost = random.once_in(self.path.loses);
            if is_lost {
                lost.get_or_insert(seq);
                self.again(random, from, (seq, len), *now + self.path.round_trip, packets);
            } else {
                self.carry(random, segment, *now, packets);
            }
            if !is_lost && (lost.is_some() || n % 2 == 1) {
                self.acknowledge(random, 1 - from, lost, len as u32, *now + 20 * US, packets);
            }
            *now += spacing;
        }
        let end = self.sides[from].next;
        self.sides[1 - from].acked = end;
        let after = if lost.is_some() { self.path.round_trip + 30 * US } else { 40 * US };
        self.acknowledge(random, 1 - from, None, 0, *now + after, packets);
        self.probe(random, from, *now + after, packets);
    }

    fn len(&self, random: &mut Random, is_last: bool) -> usize {
        if self.super_packets && !random.once_in(4) {
            return random.within(1..60_000) as usize;
        }
        match random.below(16) {
            0 => random.within(1..self.mss as u64) as usize,
            1 | 2 if is_last => random.within(1..self.mss as u64) as usize,
            _ => self.mss,
        }
    }

    /// Sends a segment through the path: it may come late, twice, or with a mark of congestion.
    fn carry(
        &mut self,
        random: &mut Random,
        segment: PacketBuilder,
        now: u64,
        packets: &mut Vec<Packet>,
    ) {
        let mut segment = segment;
        if self.ecn {
            let is_marked = random.once_in(self.path.marks);
            self.answers_ece |= is_marked;
            segment = segment.tos(if is_marked { 3 } else { 2 });
        }
        let mut at = now;
        if random.once_in(self.path.delays) {
            at += random.pick(&[0, 1, 500, 10 * US, 100 * US, 900 * US, 5 * MS]);
        }
        self.trouble.send(random, segment.clone(), at, packets);
        if random.once_in(self.path.doubles) {
            let later = at + random.pick(&[0, 3, 50 * US, 3 * MS]);
            self.trouble.send(random, segment, later, packets);
        }
    }

    /// A lost segment comes again, at times with the same clock, or cut otherwise.
    fn again(
        &mut self,
        random: &mut Random,
        from: usize,
        (seq, len): (u32, usize),
        now: u64,
        packets: &mut Vec<Packet>,
    ) {
        let at = now + random.below(MS);
        let cut = if random.once_in(5) { random.within(1..len as u64 + 1) as usize } else { len };
        for (offset, len) in [(0, cut), (cut, len - cut)] {
            let seq = seq.wrapping_add(offset as u32);
            let segment = self.builder(random, from, at).seq(seq);
            if len > 0 {
                let segment = segment.payload(&pattern(seq as usize, len));
                self.trouble.send(random, segment, at, packets);
            }
        }
    }

    /// A pure acknowledgment; a duplicate one, with SACK where there is, if something is `lost`.
    fn acknowledge(
        &mut self,
        random: &mut Random,
        from: usize,
        lost: Option<u32>,
        len: u32,
        now: u64,
        packets: &mut Vec<Packet>,
    ) {
        let ack = lost.unwrap_or(self.sides[1 - from].next);
        let mut options = self.timestamps_option(from, now);
        if let (Some(_), true) = (lost, self.sack) {
            let end = self.sides[1 - from].next;
            options.extend([1, 1, 5, 10]);
            options.extend(end.wrapping_sub(len).to_be_bytes());
            options.extend(end.to_be_bytes());
        }
        let mut flags = Flags::ACK;
        if self.ecn && self.answers_ece {
            flags = flags.with(Flags::ECE);
        }
        let window = random.pick(&[501, 501, 501, 502, 480]);
        let packet = self.builder(random, from, now).ack(ack).flags(flags).window(window);
        self.trouble.send(random, packet.options(&options), now, packets);
    }

    /// Rare: a keepalive, a probe of a closed window, an urgent byte.
    fn probe(&mut self, random: &mut Random, from: usize, now: u64, packets: &mut Vec<Packet>) {
        let next = self.sides[from].next;
        let packet = self.builder(random, from, now);
        let packet = match random.below(40) {
            0 => packet.seq(next.wrapping_sub(1)),
            1 => packet.seq(next.wrapping_sub(1)).payload(&[0]),
            2 => packet.flags(Flags::ACK.with(Flags::URG)).urgent(1).payload(b"!"),
            _ => return,
        };
        self.trouble.send(random, packet, now, packets);
    }

    /// What its next packet looks like, without payload.
    fn builder(&mut self, random: &mut Random, from: usize, now: u64) -> PacketBuilder {
        let id = match self.ids {
            Ids::Up => self.sides[from].id,
            Ids::Fixed => 77,
            Ids::Zero => 0,
            Ids::Any => random.next() as u16,
        };
        let side = &mut self.sides[from];
        side.id = side.id.wrapping_add(1);
        let side = &self.sides[from];
        let mut v6 = [[0xfd; 16], [0xfc; 16]];
        v6[0][15] = self.host;
        let v4 = [[10, 0, 0, self.host], [10, 0, 1, 1]];
        let packet = if self.v6 { PacketBuilder::tcp6() } else { PacketBuilder::tcp4() };
        let packet = packet
            .addresses4(v4[from], v4[1 - from])
            .addresses6(v6[from], v6[1 - from])
            .ports(self.ports[from], self.ports[1 - from])
            .seq(side.next)
            .ack(side.acked)
            .id(id)
            .options(&self.timestamps_option(from, now));
        self.vlans.iter().fold(packet, |packet, tci| packet.vlan(*tci))
    }

    fn timestamps_option(&self, from: usize, now: u64) -> Vec<u8> {
        if !self.timestamps {
            return Vec::new();
        }
        let echo = self.clock(1 - from, now.saturating_sub(self.path.round_trip / 2));
        [&[1, 1, 8, 10], &self.clock(from, now).to_be_bytes()[..], &echo.to_be_bytes()].concat()
    }

    fn clock(&self, side: usize, now: u64) -> u32 {
        self.sides[side].clock.wrapping_add((now / self.tick) as u32)
    }
}
