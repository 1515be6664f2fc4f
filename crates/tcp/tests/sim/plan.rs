//! What is to happen in one run: all of it follows from a seed.

use degen::{Discipline, Distribution, Probability, Random};
use tcp::config::{MILLISECOND, SECOND};
use tcp::{Algorithm, Config, Ecn, Keepalive, Nanos};

/// Numbers for decisions.
#[derive(Debug)]
pub(crate) struct Dice(Random);

impl Dice {
    /// A stream of its own for each purpose.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        Dice(Random::stream(seed, purpose))
    }

    /// From 0 to `bound` - 1.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        let number = self.0.below(0, bound);
        self.0.next();
        number
    }

    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// Once in `of`.
    pub(crate) fn once_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    pub(crate) fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// How a connection comes about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Opening {
    /// Side 0 connects to side 1, which listens.
    Passive,
    /// The same, and side 1 keeps no state of half-open connections.
    Cookies,
    /// Both connect to each other at once (RFC 9293 section 3.5, figure 7).
    Simultaneous,
}

/// How an application ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// Shuts down when all is written, reads to the end, closes.
    Orderly,
    /// Reads to the peer's end before it shuts down.
    AfterPeer,
    /// Closes as soon as all is written, whatever is unread.
    Hasty,
    /// Closes when so many bytes were written and read.
    CloseAt(u64),
    /// Aborts then.
    AbortAt(u64),
}

impl Ending {
    /// Whether all bytes arrive with this.
    pub(crate) fn is_orderly(self) -> bool {
        matches!(self, Ending::Orderly | Ending::AfterPeer)
    }
}

/// What wraps in the middle of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wrap {
    /// Sequence numbers, after so many bytes.
    Sequence(u32),
    /// Timestamps, after so many milliseconds.
    Timestamps(u32),
}

/// One end.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    pub(crate) config: Config,
    /// What its clock shows at the beginning; later, if something is to wrap around.
    pub(crate) clock: Nanos,
    pub(crate) wrap: Option<Wrap>,
    /// Bytes that it sends.
    pub(crate) total: u64,
    /// Most bytes of one write and of one read.
    pub(crate) write_max: u64,
    pub(crate) read_max: u64,
    /// Rests between writes, and between reads: one in so many (0: none), of so long at most.
    pub(crate) write_rest: (u64, Nanos),
    pub(crate) read_rest: (u64, Nanos),
    /// It reads nothing until so long after the opening.
    pub(crate) read_from: Nanos,
    /// When so many bytes were read, it reads nothing for so long.
    pub(crate) pause: Option<(u64, Nanos)>,
    /// One write of so many is an urgent byte; 0 for none.
    pub(crate) urgent: u64,
    /// One write of so many turns TCP_CORK on or off; 0 for none.
    pub(crate) cork: u64,
    /// It looks at everything whenever anything happens, and waits for no event.
    pub(crate) polls: bool,
    pub(crate) ending: Ending,
}

/// A connection is taken from its stack and put into one again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Freeze {
    pub(crate) side: usize,
    /// When so many packets have come to that side.
    pub(crate) packet: u64,
    /// For how long it is in no stack. What comes then is lost.
    pub(crate) gap: Nanos,
    /// It goes to another stack, whose clock shows this.
    pub(crate) moves: Option<Nanos>,
}

/// Everything.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) v6: bool,
    pub(crate) opening: Opening,
    pub(crate) sides: [Side; 2],
    /// From side 0 and from side 1.
    pub(crate) ways: [degen::Config; 2],
    /// MTU of the router in the middle, from these times on.
    pub(crate) mtus: Vec<(Nanos, u16)>,
    /// The router sends no message about what it drops for its size.
    pub(crate) black_hole: bool,
    /// Packets are received together, at multiples of this time.
    pub(crate) interrupts: Nanos,
    /// Segments that came together are merged.
    pub(crate) merge: bool,
    /// One packet of so many brings a forged one along; 0 for none.
    pub(crate) forged: u64,
    pub(crate) freezes: Vec<Freeze>,
    /// Clocks that a connection moves to have their milliseconds at the same time as its own, so that
    /// its timestamps are the same ones.
    pub(crate) ticks_together: bool,
    /// Memory that each stack has; `None` for the default.
    pub(crate) memory: Option<u64>,
    /// The queues of a connection that is thawed are lent.
    pub(crate) lends: bool,
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Plan {
        let dice = &mut Dice::new(seed, 1);
        let v6 = dice.once_in(3);
        let opening = match dice.below(8) {
            0 => Opening::Simultaneous,
            1 => Opening::Cookies,
            _ => Opening::Passive,
        };
        let black_hole = dice.once_in(8);
        let mtus = mtus(dice, v6, black_hole);
        let ways = ways(&mut Dice::new(seed, 2));
        let endings = endings(&mut Dice::new(seed, 3), opening);
        let side = |number: u64| {
            let mut side = side(&mut Dice::new(seed, 4 + number), endings[number as usize]);
            side.config.probe_mtu |= black_hole;
            side.wrap = wrap(&mut Dice::new(seed, 7 + number));
            side
        };
        let sides = [side(0), side(1)];
        let is_urgent = sides.iter().any(|side| side.urgent > 0);
        Plan {
            seed,
            v6,
            opening,
            sides,
            ways,
            mtus,
            black_hole,
            interrupts: dice.one_of(&[0, 0, 50_000, MILLISECOND]),
            merge: dice.once_in(2),
            forged: dice.one_of(&[0, 0, 0, 10]),
            freezes: freezes(&mut Dice::new(seed, 6)),
            ticks_together: false,
            memory: None,
            lends: !is_urgent && Dice::new(seed, 50).once_in(2),
        }
    }

    /// The same with little memory.
    pub(crate) fn short(seed: u64) -> Plan {
        let memory = Dice::new(seed, 40).one_of(&[400 << 10, 700 << 10, 2 << 20, 6 << 20]);
        Plan { memory: Some(memory), lends: false, ..Plan::new(seed) }
    }

    /// Loses packets, beyond what two queues hold.
    pub(crate) fn loses(&self) -> bool {
        let never = Probability::NEVER;
        let lossy = |way: &degen::Config| {
            way.loss != never
                || way.gilbert_p != never
                || way.corrupt != never
                || way.queue == Discipline::CoDel
                || way.rate > 0
        };
        self.ways.iter().any(lossy)
            || self.mtus.len() > 1
            || self.freezes.iter().any(|freeze| freeze.gap > 0)
            || self.opening == Opening::Cookies
    }

    /// Parts of a thousand that are lost on the worse way.
    pub(crate) fn loss(&self) -> u32 {
        let loss = |way: &degen::Config| {
            let bursts = if way.gilbert_p == Probability::NEVER { 0 } else { 200 };
            (way.loss.parts() + way.corrupt.parts()) / 1_000_000 + bursts
        };
        loss(&self.ways[0]).max(loss(&self.ways[1]))
    }

    /// Longest rest that an application makes.
    pub(crate) fn longest_rest(&self) -> Nanos {
        let rests = self.sides.iter().flat_map(|side| {
            let pause = side.pause.map_or(0, |(_, long)| long);
            [side.read_from, side.write_rest.1, side.read_rest.1, pause]
        });
        rests.max().unwrap_or(0)
    }

    /// Whether all bytes are to arrive.
    pub(crate) fn is_orderly(&self) -> bool {
        self.sides.iter().all(|side| side.ending.is_orderly())
    }
}

fn mtus(dice: &mut Dice, v6: bool, black_hole: bool) -> Vec<(Nanos, u16)> {
    let sizes: &[u16] = if v6 { &[1280, 1400, 1500] } else { &[576, 1006, 1280, 1492, 1500] };
    let mut mtus = vec![(0, 9000)];
    if black_hole || dice.once_in(3) {
        let mut at = 0;
        for _ in 0..dice.between(1, 3) {
            mtus.push((at, dice.one_of(sizes)));
            at += dice.between(MILLISECOND, 2 * SECOND);
        }
    }
    mtus
}

/// Percentages, as parts of 10^9.
fn percent(dice: &mut Dice, most: u64) -> Probability {
    Probability::from_parts(dice.between(1, most * 10_000_000)).unwrap_or_default()
}

fn ways(dice: &mut Dice) -> [degen::Config; 2] {
    let delay = dice.one_of(&[0, 100_000, MILLISECOND, 10 * MILLISECOND, 100 * MILLISECOND]);
    let delay = delay + dice.below(delay / 4 + 1);
    let harsh = dice.one_of(&[0, 0, 1, 3, 10, 30]);
    [way(dice, delay, harsh), way(dice, delay, harsh)]
}

fn way(dice: &mut Dice, delay: Nanos, harsh: u64) -> degen::Config {
    let mut way = degen::Config { delay, ..degen::Config::default() };
    if harsh > 0 && dice.once_in(2) {
        way.loss = percent(dice, harsh);
    }
    if harsh > 0 && dice.once_in(6) {
        way.gilbert_p = percent(dice, 2);
        way.gilbert_r = Probability::percent(30.0).unwrap_or_default();
    }
    if harsh > 0 && dice.once_in(4) {
        way.corrupt = percent(dice, harsh.min(10));
    }
    if dice.once_in(4) {
        way.duplicate = percent(dice, 20);
    }
    if dice.once_in(4) {
        way.reorder = percent(dice, 20);
        way.reorder_distance = dice.between(1, 30) as u32;
    }
    if dice.once_in(3) {
        way.jitter = dice.below(delay + 1);
        way.jitter_distribution =
            dice.one_of(&[Distribution::Uniform, Distribution::Normal, Distribution::Pareto]);
        way.jitter_reorders = dice.once_in(2);
    }
    if dice.once_in(4) {
        way.rate = dice.one_of(&[1_000_000, 10_000_000, 100_000_000, 1_000_000_000]);
        way.queue_packets = dice.one_of(&[10, 50, 1000]);
        way.queue = dice.one_of(&[Discipline::TailDrop, Discipline::CoDel]);
    }
    way.ecn = dice.once_in(2);
    if dice.once_in(8) {
        way.mark = percent(dice, 20);
    }
    way
}

fn endings(dice: &mut Dice, opening: Opening) -> [Ending; 2] {
    let mut ending = || match dice.below(12) {
        0 => Ending::Hasty,
        1 => Ending::CloseAt(dice.below(100_000)),
        2 => Ending::AbortAt(dice.below(100_000)),
        3..=5 => Ending::AfterPeer,
        _ => Ending::Orderly,
    };
    let mut endings = [ending(), ending()];
    // One side has to begin. With cookies the client has: only it has the connection if its
    // first acknowledgment is lost.
    if endings[1] == Ending::AfterPeer || opening == Opening::Cookies {
        endings[0] = match endings[0] {
            Ending::AfterPeer => Ending::Orderly,
            other => other,
        };
    }
    endings
}

fn wrap(dice: &mut Dice) -> Option<Wrap> {
    match dice.below(6) {
        0 => Some(Wrap::Sequence(dice.below(50_000) as u32)),
        1 => Some(Wrap::Timestamps(dice.below(3_000) as u32)),
        _ => None,
    }
}

/// Clocks that have begun long ago, or just now.
fn clock(dice: &mut Dice) -> Nanos {
    let most = dice.one_of(&[1, MILLISECOND, SECOND, 1 << 50, 1 << 60]);
    dice.below(most)
}

fn size(dice: &mut Dice) -> u64 {
    match dice.below(20) {
        0..=1 => 0,
        2..=6 => dice.below(2_000),
        7..=14 => dice.below(50_000),
        15..=18 => dice.below(200_000),
        _ => dice.below(1_000_000),
    }
}

fn side(dice: &mut Dice, ending: Ending) -> Side {
    let rest = |dice: &mut Dice, long: Nanos| match dice.below(4) {
        0 => (dice.between(1, 20), dice.between(1, long)),
        _ => (0, 0),
    };
    Side {
        config: config(dice),
        clock: clock(dice),
        wrap: None,
        total: size(dice),
        write_max: dice.one_of(&[10, 1_000, 4_000, 100_000]),
        read_max: dice.one_of(&[100, 3_000, 65_536, 65_536]),
        write_rest: rest(dice, 50 * MILLISECOND),
        read_rest: rest(dice, 50 * MILLISECOND),
        read_from: if dice.once_in(6) { dice.below(5 * SECOND) } else { 0 },
        pause: dice.once_in(4).then(|| (dice.below(50_000), dice.between(1, 30 * SECOND))),
        urgent: if dice.once_in(8) { dice.between(2, 50) } else { 0 },
        cork: if dice.once_in(6) { dice.between(2, 20) } else { 0 },
        polls: false,
        ending,
    }
}

fn config(dice: &mut Dice) -> Config {
    let standard = Config::default();
    let receive_buffer = dice.one_of(&[2_000, 5_000, 65_536, 65_536, 200_000]);
    Config {
        mtu: dice.one_of(&[1500, 1500, 1500, 1400, 9000, 576, 1280]).max(576),
        mss: if dice.once_in(8) { dice.between(200, 1460) as u16 } else { 0 },
        send_buffer: dice.one_of(&[1_000, 10_000, 100_000, standard.send_buffer]),
        receive_buffer,
        receive_buffer_max: receive_buffer.max(dice.one_of(&[2_000, 100_000, 6 << 20])),
        congestion: dice.one_of(&[Algorithm::Cubic, Algorithm::Cubic, Algorithm::NewReno]),
        initial_window: dice.one_of(&[1, 2, 4, 0, 10]),
        timestamps: !dice.once_in(3),
        sack: !dice.once_in(3),
        window_scaling: !dice.once_in(4),
        ecn: dice.one_of(&[Ecn::Off, Ecn::Passive, Ecn::On]),
        delayed_ack: dice.one_of(&[0, 10 * MILLISECOND, 40 * MILLISECOND, 200 * MILLISECOND]),
        max_rto: dice.one_of(&[2 * SECOND, 10 * SECOND, 60 * SECOND]),
        retries: dice.one_of(&[15, 30, 100]),
        keepalive: dice.once_in(4).then(|| Keepalive {
            idle: dice.between(SECOND, 10 * SECOND),
            interval: dice.between(SECOND, 10 * SECOND),
            // Enough that no path of ours loses all.
            probes: 30,
        }),
        no_delay: dice.once_in(3),
        time_wait: dice.one_of(&[SECOND, 60 * SECOND]),
        fin_wait_2: dice.one_of(&[5 * SECOND, 60 * SECOND]),
        burst: dice.one_of(&[1, 5_000, standard.burst, standard.burst]),
        probe_mtu: dice.once_in(8),
        urgent_inline: dice.once_in(2),
        ..standard
    }
}

fn freezes(dice: &mut Dice) -> Vec<Freeze> {
    let mut freezes = Vec::new();
    let count = dice.one_of(&[0, 0, 1, 2, 5]);
    for _ in 0..count {
        freezes.push(Freeze {
            side: dice.below(2) as usize,
            packet: dice.one_of(&[5, 30, 300]) * dice.below(100) / 100,
            gap: if dice.once_in(4) { dice.below(300 * MILLISECOND) } else { 0 },
            moves: dice.once_in(2).then(|| clock(dice)),
        });
    }
    freezes
}
