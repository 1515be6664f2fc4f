//! Traces of senders that mean no harm, and of a network that does what networks do: packets are
//! lost, doubled, late and out of order, marked and padded, and sent again, perhaps cut differently.

use std::collections::BTreeMap;

use lro::{Config, Profile};
use proptest::prelude::*;
use wire::Flags;

use super::naive::{FIN, Key, Tcp};
use super::rules::is_before;
use super::run::Step;
use super::trace::{Action, Change, Fate, Move, Sender, sender, steps};

fn change() -> impl Strategy<Value = Change> {
    let flag = |flags: Flags| Just(Change::Flags(flags));
    prop_oneof![
        30 => Just(Change::Nothing),
        3 => flag(Flags::PSH),
        1 => flag(Flags::ECE),
        1 => flag(Flags::CWR),
        3 => any::<u16>().prop_map(Change::Window),
        6 => (0i32..9000).prop_map(Change::Ack),
        12 => Just(Change::AckSent(0)),
        6 => (0i32..50).prop_map(Change::Clock),
        1 => any::<u32>().prop_map(Change::Echo),
        2 => Just(Change::Tos(3)), // congestion experienced
        1 => any::<u8>().prop_map(Change::Ttl),
        1 => (1usize..40).prop_map(Change::Padding),
        1 => Just(Change::Options(vec![1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2])), // SACK
    ]
}

fn action() -> impl Strategy<Value = Action> {
    let control = prop::sample::select(vec![Flags::ACK, Flags::ACK.with(Flags::ECE)]);
    prop_oneof![
        30 => change().prop_map(|change| Action::Data(None, change)),
        4 => ((1usize..2000), change()).prop_map(|(len, change)| Action::Data(Some(len), change)),
        1 => (1u8..4).prop_map(Action::Lose),
        4 => (prop_oneof![0u32..3000, 0u32..40_000], 1usize..9000, any::<bool>())
            .prop_map(|(back, len, same)| Action::Resend(back, len, same)),
        3 => control.prop_map(Action::Control),
        1 => any::<u16>().prop_map(Action::Update),
        1 => any::<bool>().prop_map(Action::Probe),
    ]
}

/// What ends a connection, or means to; whatever comes then, the host must see what it would have.
fn end() -> impl Strategy<Value = Action> {
    let flag = |flags: Flags| Just(Action::Data(None, Change::Flags(flags)));
    let control = prop::sample::select(vec![Flags::RST, Flags::SYN, Flags::FIN.with(Flags::ACK)]);
    prop_oneof![
        3 => flag(Flags::FIN),
        1 => flag(Flags::URG),
        3 => control.prop_map(Action::Control),
    ]
}

fn one_move() -> impl Strategy<Value = Move> {
    let fate = || {
        prop_oneof![
            30 => Just(Fate::Arrives),
            2 => Just(Fate::Doubled),
            3 => (1usize..4).prop_map(Fate::Late),
            2 => (1usize..40).prop_map(Fate::Late),
        ]
    };
    let shuffle = proptest::collection::vec(any::<u8>(), 2..33);
    let between = |step: Step| Just(Move::Between(step));
    prop_oneof![
        60 => (any::<prop::sample::Index>(), action(), fate()).prop_map(|(i, a, f)| Move::Act(i, a, f)),
        1 => (any::<prop::sample::Index>(), end(), fate()).prop_map(|(i, a, f)| Move::Act(i, a, f)),
        3 => (any::<prop::sample::Index>(), shuffle).prop_map(|(i, order)| Move::Shuffled(i, order)),
        8 => (any::<prop::sample::Index>(), 1usize..9000)
            .prop_map(|(i, len)| Move::Host(i, 0, len, Flags::ACK)),
        5 => prop_oneof![0u64..2000, 0u64..150_000].prop_map(|time| Move::Between(Step::Wait(time))),
        3 => between(Step::BurstEnds),
        2 => between(Step::Idle),
        1 => between(Step::Interrupt),
    ]
}

fn honest_sender() -> impl Strategy<Value = Sender> {
    (sender(), prop_oneof![Just(1448usize), 1usize..300]).prop_map(|(sender, mss)| Sender {
        mss,
        timestamps: true,
        ..sender
    })
}

/// A trace, with the time to let all of it go.
pub(crate) fn honest_traces(senders: usize, moves: usize) -> impl Strategy<Value = Vec<Step>> {
    (
        proptest::collection::vec(honest_sender(), 1..=senders),
        proptest::collection::vec(one_move(), 1..=moves),
    )
        .prop_map(|(senders, moves)| nothing_behind_fin(steps(&senders, &moves)))
}

/// Leaves out what no sender sends: data behind its FIN, and another FIN.
fn nothing_behind_fin(mut steps: Vec<Step>) -> Vec<Step> {
    let end = |packet: &Tcp| packet.seq().wrapping_add(packet.payload.len() as u32);
    let read = |step: &Step| match step {
        Step::Frame(frame) => Tcp::read(&frame.bytes),
        _ => None,
    };
    let mut fins: BTreeMap<Key, u32> = BTreeMap::new();
    for packet in steps.iter().filter_map(read).filter(|packet| packet.has(FIN)) {
        let fin = fins.entry(packet.key()).or_insert(end(&packet));
        if is_before(end(&packet), *fin) {
            *fin = end(&packet);
        }
    }
    steps.retain(|step| {
        let Some(packet) = read(step) else { return true };
        let Some(fin) = fins.get(&packet.key()) else { return true };
        end(&packet) == *fin || is_before(end(&packet), *fin) && !packet.has(FIN)
    });
    steps
}

/// Configurations of the endpoint profile.
pub(crate) fn endpoints() -> impl Strategy<Value = Config> {
    super::trace::configs().prop_map(|config| Config { profile: Profile::Endpoint, ..config })
}
