//! Segments forged by one who knows the ports of a connection, but neither of its numbers, are as
//! nothing to a host behind LRO if they are to it without (RFC 5961 section 5.2): it takes the same
//! bytes and the same acknowledgments. The host is Linux, as far as that goes.
//!
//! The forger sprays, so his sequence numbers may be any, and of those that do harm there are many
//! here; but not his acknowledgments as well, or he is let in by the host itself.

use lro::{Config, Profile};
use proptest::prelude::*;
use testkit::packet::{PacketBuilder, pattern};
use wire::Flags;

use super::honest::endpoints;
use super::host::{merged, unmerged};
use super::receiver::{Receiver, Segment};
use super::run::{Step, run};

/// What each side may send unacknowledged.
const WINDOW: u32 = 1 << 16;

#[derive(Clone, Debug)]
enum Event {
    /// The peer sends so much, which arrives after so many others.
    Data(usize, Flags, usize),
    /// It acknowledges.
    Acknowledge,
    Lose(u32),
    /// The host sends so much.
    Host(u32),
    /// A forged segment: where from the peer's place, or anywhere; its acknowledgment, beyond what the
    /// host has sent or before what it takes; its length, flags, and clock from the peer's.
    Forged(Place, Bad, usize, Flags, i32),
    Between(Step),
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Near(i32),
    Any(u32),
}

/// An acknowledgment that the host does not take, whatever it sends meanwhile.
#[derive(Clone, Copy, Debug)]
enum Bad {
    /// So far beyond all.
    Future(u32),
    /// So far before.
    Old(u32),
    /// Forged before: the same again.
    Again,
}

fn bads() -> impl Strategy<Value = Bad> {
    let far = || prop_oneof![1u32..5, 1u32..100_000, 1u32..0x7ff0_0000];
    prop_oneof![3 => far().prop_map(Bad::Future), 2 => far().prop_map(Bad::Old), 1 => Just(Bad::Again)]
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let ack = || Just(Flags::ACK);
    let push = || Just(Flags::ACK.with(Flags::PSH));
    let late = prop_oneof![6 => Just(0usize), 1 => 1usize..4, 1 => 1usize..30];
    let len = || prop_oneof![3 => Just(1000usize), 1 => 1usize..1500];
    let place = prop_oneof![
        2 => Just(Place::Near(0)),
        6 => (-3_000i32..20_000).prop_map(Place::Near),
        2 => (-70_000i32..20_000_000).prop_map(Place::Near),
        1 => any::<u32>().prop_map(Place::Any),
    ];
    let flags = prop_oneof![8 => ack(), 2 => push(), 1 => Just(Flags::ACK.with(Flags::FIN))];
    let clock = prop_oneof![4 => Just(0), 1 => any::<i32>()];
    let between = |step: Step| Just(Event::Between(step));
    let event = prop_oneof![
        40 => (len(), prop_oneof![8 => ack(), 1 => push()], late)
            .prop_map(|(len, flags, late)| Event::Data(len, flags, late)),
        2 => Just(Event::Acknowledge),
        1 => (1u32..3000).prop_map(Event::Lose),
        15 => (1u32..1500).prop_map(Event::Host),
        15 => (place, bads(), prop_oneof![6 => len(), 1 => Just(0)], flags, clock)
            .prop_map(|(p, b, l, f, c)| Event::Forged(p, b, l, f, c)),
        3 => prop_oneof![0u64..2_000, 0u64..3_000_000].prop_map(|t| Event::Between(Step::Wait(t))),
        2 => between(Step::BurstEnds),
        1 => between(Step::Idle),
        1 => between(Step::Interrupt),
    ];
    proptest::collection::vec(event, 1..150)
}

/// Both sides of a connection, and the forger.
struct World {
    timestamps: bool,
    v6: bool,
    seq: u32,
    /// What the host has sent, and will have in the end.
    host: u32,
    host_end: u32,
    host_start: u32,
    forged: u32,
}

const CLOCK: u32 = 5_000;

impl World {
    fn packet(&self, seq: u32, ack: u32, clock: u32) -> PacketBuilder {
        let p = if self.v6 { PacketBuilder::tcp6() } else { PacketBuilder::tcp4() };
        let p = if self.timestamps { p.timestamps(clock, 9) } else { p };
        p.seq(seq).ack(ack)
    }

    fn host_sends(&mut self, len: u32) -> Step {
        let address6 = |last: u8| {
            let mut address = [0; 16];
            (address[0], address[15]) = (0xfd, last);
            address
        };
        let p = match self.v6 {
            true => PacketBuilder::tcp6().addresses6(address6(2), address6(1)),
            false => PacketBuilder::tcp4().addresses4([10, 0, 0, 2], [10, 0, 0, 1]),
        };
        let p = p.ports(5201, 40_000).seq(self.host).payload_pattern(len as usize);
        self.host = self.host.wrapping_add(len);
        Step::Host(p.build().into())
    }

    fn forge(&mut self, place: Place, bad: Bad) -> (u32, u32) {
        let seq = match place {
            Place::Near(by) => self.seq.wrapping_add_signed(by),
            Place::Any(seq) => seq,
        };
        self.forged = match bad {
            Bad::Future(by) => self.host_end.wrapping_add(by),
            Bad::Old(by) => self.host_start.wrapping_sub(WINDOW + by),
            Bad::Again => self.forged,
        };
        (seq, self.forged)
    }
}

fn play(world: &mut World, events: Vec<Event>) -> Vec<Step> {
    let (mut steps, mut late) = (Vec::new(), Vec::<(usize, Step)>::new());
    for event in events {
        match event {
            Event::Data(len, flags, others) => {
                let data = world.packet(world.seq, world.host, CLOCK).flags(flags);
                let data = data.payload(&pattern(world.seq as usize, len));
                late.push((others, Step::Frame(data.build().into())));
                world.seq = world.seq.wrapping_add(len as u32);
            }
            Event::Acknowledge => {
                let ack = world.packet(world.seq, world.host, CLOCK);
                steps.push(Step::Frame(ack.build().into()));
            }
            Event::Lose(len) => world.seq = world.seq.wrapping_add(len),
            Event::Host(len) => steps.push(world.host_sends(len)),
            Event::Forged(place, bad, len, flags, clock) => {
                let (seq, ack) = world.forge(place, bad);
                let p = world.packet(seq, ack, CLOCK.wrapping_add_signed(clock)).flags(flags);
                steps.push(Step::Frame(p.payload(&vec![0xee; len]).build().into()));
            }
            Event::Between(step) => steps.push(step),
        }
        steps.extend(late.extract_if(.., |(others, _)| *others == 0).map(|(_, frame)| frame));
        late.iter_mut().for_each(|(others, _)| *others -= 1);
    }
    steps.extend(late.into_iter().map(|(_, frame)| frame));
    steps
}

/// The connection as both have it when it is first looked at.
fn beginning(world: &World) -> Receiver {
    let first = world.packet(world.seq, world.host, CLOCK).build();
    let first = super::naive::Tcp::read(&first).unwrap();
    Receiver::expecting(&first, 1 << 20).having_sent(world.host, WINDOW)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn a_forger_gets_no_further_than_without(
        config in endpoints(),
        (timestamps, v6) in any::<(bool, bool)>(),
        (seq, host) in (prop_oneof![any::<u32>(), 0xffff_0000u32..], any::<u32>()),
        events in events(),
    ) {
        // No more than its peer has room for.
        let mut sent = 0;
        let mut may = |event: &Event| match event {
            Event::Host(len) => {
                sent += len;
                sent < WINDOW / 2
            }
            _ => true,
        };
        let events: Vec<Event> = events.into_iter().filter(|event| may(event)).collect();
        let total: u32 = events.iter().map(|e| if let Event::Host(len) = e { *len } else { 0 }).sum();
        let host_end = host.wrapping_add(total);
        let mut world = World { timestamps, v6, seq, host, host_end, host_start: host, forged: host_end.wrapping_add(1) };
        let without = beginning(&world);
        let steps = play(&mut world, events);
        check(&config, &steps, without);
    }
}

/// The host takes these segments, and sends meanwhile what it sends.
fn take(host: &mut Receiver, steps: &[Step], segments: &[Segment]) {
    let mut at = 0;
    for segment in segments {
        host.sends(&steps[at..segment.step]);
        at = segment.step;
        host.receive(segment);
    }
}

/// Plays a trace both ways and compares.
fn check(config: &Config, steps: &[Step], host: Receiver) {
    let config = Config { profile: Profile::Endpoint, ..config.clone() };
    let run = run(&config, steps);
    let (mut without, mut with) = (host.clone(), host);
    take(&mut without, steps, &unmerged(steps));
    take(&mut with, steps, &merged(&run, steps));
    let bytes = |host: &Receiver| -> Vec<Option<u8>> {
        host.stream.iter().map(|byte| byte.map(|(byte, _)| byte)).collect()
    };
    assert!(bytes(&without) == bytes(&with), "other bytes");
    assert_eq!(without.finished, with.finished, "FIN");
    assert_eq!(without.snd_una, with.snd_una, "SND.UNA");
}
