//! Active ACK (the paper, section V.C): what is said in the host's name, to whom, and when not.
//! What each acknowledgment must be is in [`world`].

mod world;

use lro::{ActiveAck, Config, Profile};
use proptest::prelude::*;
use proptest::sample::Index;

use world::{Offer, Setup, World};

#[derive(Clone, Debug)]
enum Action {
    Open(Setup),
    /// Sends so many bytes, or loses them.
    Send(u16, u32, bool),
    Finish(u16, u32),
    /// Something that was lost comes after all.
    Find(u16, Index),
    SendAgain(u16, Index),
    Tick(u16, u32),
    /// The host acknowledges what it has, with this window and so much data, so much later.
    Host(u16, u16, u32, u32),
    Reset(u16),
    BatchEnds,
    BurstEnds,
    Wait(u64),
    Suspend(bool),
    Interrupt,
    Mode(ActiveAck),
    Profile(Profile),
    Timeout(u32),
}

const PORTS: u16 = 3;

fn offers() -> impl Strategy<Value = Offer> {
    let shift = prop_oneof![1 => Just(None), 3 => (0u8..4).prop_map(Some), 1 => Just(Some(99))];
    let mostly = || prop::bool::weighted(0.8);
    (shift, mostly(), mostly(), prop::bool::weighted(0.2))
        .prop_map(|(shift, sack, timestamps, ecn)| Offer { shift, sack, timestamps, ecn })
}

fn setups() -> impl Strategy<Value = Setup> {
    let starts = || {
        let number = || prop_oneof![any::<u32>(), u32::MAX - 3_000..=u32::MAX];
        (number(), number())
    };
    let seen = prop_oneof![8 => Just([true; 2]), 1 => Just([true, false]), 1 => Just([false, true]),
        1 => Just([false; 2])];
    (
        (0..PORTS, proptest::option::weighted(0.2, 1u16..4), any::<bool>()),
        (offers(), offers(), starts(), starts(), seen),
    )
        .prop_map(
            |((port, vlan, host_opens), (sender, host, sender_starts, host_starts, seen))| {
                // A port has one version, so that connections follow one another there.
                let v6 = port == 0;
                Setup { port, v6, vlan, host_opens, sender, host, sender_starts, host_starts, seen }
            },
        )
}

fn modes() -> impl Strategy<Value = ActiveAck> {
    prop_oneof![
        5 => Just(ActiveAck::Safe),
        2 => Just(ActiveAck::Paper),
        1 => Just(ActiveAck::Off),
    ]
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let port = || 0..PORTS;
    let len = || prop_oneof![3 => Just(100u32), 1 => 1u32..300];
    let window =
        prop_oneof![4 => Just(5_000u16), 4 => 0u16..2_000, 1 => Just(0u16), 1 => any::<u16>()];
    let action = prop_oneof![
        2 => setups().prop_map(Action::Open),
        24 => (port(), len(), prop::bool::weighted(0.15)).prop_map(|(p, l, lose)| Action::Send(p, l, lose)),
        1 => (port(), len()).prop_map(|(p, l)| Action::Finish(p, l)),
        3 => (port(), any::<Index>()).prop_map(|(p, i)| Action::Find(p, i)),
        1 => (port(), any::<Index>()).prop_map(|(p, i)| Action::SendAgain(p, i)),
        3 => (port(), 0u32..5).prop_map(|(p, t)| Action::Tick(p, t)),
        8 => (port(), window, prop_oneof![3 => Just(0u32), 1 => 1u32..200], 0u32..5)
            .prop_map(|(p, w, l, t)| Action::Host(p, w, l, t)),
        1 => port().prop_map(Action::Reset),
        12 => Just(Action::BatchEnds),
        2 => Just(Action::BurstEnds),
        4 => prop_oneof![0u64..20_000, Just(2_000_000)].prop_map(Action::Wait),
        1 => any::<bool>().prop_map(Action::Suspend),
        1 => Just(Action::Interrupt),
        1 => modes().prop_map(Action::Mode),
        1 => prop_oneof![3 => Just(Profile::Endpoint), 1 => Just(Profile::Lossless)]
            .prop_map(Action::Profile),
        1 => (1u32..50).prop_map(Action::Timeout),
    ];
    proptest::collection::vec(action, 1..120)
}

fn act(world: &mut World, action: Action) {
    match action {
        Action::Open(setup) => {
            let host_opens = setup.host_opens;
            let port = setup.port;
            world.open(setup);
            if host_opens {
                world.host_sends(port, 1_000, 0, 0); // completes the handshake
            }
        }
        Action::Send(port, len, lose) => world.send(port, len, lose),
        Action::Finish(port, len) => world.finish(port, len),
        Action::Find(port, which) => world.find(port, |len| which.index(len)),
        Action::SendAgain(port, which) => world.send_again(port, |len| which.index(len)),
        Action::Tick(port, ticks) => world.tick(port, ticks),
        Action::Host(port, window, len, ticks) => world.host_sends(port, window, len, ticks),
        Action::Reset(port) => world.host_resets(port),
        Action::BatchEnds => world.batch_ends(),
        Action::BurstEnds => world.burst_ends(),
        Action::Wait(time) => world.wait(time),
        Action::Suspend(suspend) => world.suspend(suspend),
        Action::Interrupt => world.interrupt(),
        Action::Mode(mode) => world.reconfigure(|config| config.active_ack = mode),
        Action::Profile(profile) => world.reconfigure(|config| config.profile = profile),
        Action::Timeout(factor) => world.reconfigure(|config| config.timeout_factor = factor),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Nothing is said that the host would not say, nor that wharf cannot know.
    #[test]
    fn what_is_acknowledged_is_true(
        active_ack in modes(),
        flows in 1usize..4,
        held_frames in prop_oneof![3 => Just(64usize), 1 => 1usize..8],
        first in setups(),
        actions in actions(),
    ) {
        let config = Config { active_ack, flows, held_frames, ..CONFIG };
        let mut world = World::new(config);
        act(&mut world, Action::Open(first));
        for action in actions {
            act(&mut world, action);
        }
        world.wait(10_000_000);
        let counted: usize = world.connections.iter().map(|c| c.count).sum();
        prop_assert_eq!(world.counters().acknowledged, counted as u64);
    }
}

const CONFIG: Config = Config {
    profile: Profile::Endpoint,
    max_aggregate: 65_535,
    max_segments: 512,
    timeout_factor: 10,
    min_timeout: 20_000,
    max_timeout: 500_000,
    hole_timeout: 500_000,
    min_hole_timeout: 500_000,
    flush_on_psh: true,
    active_ack: ActiveAck::Safe,
    udp: false,
    flows: 8,
    held_frames: 256,
    flow_hash: wire::FlowHash::from_seed(7),
};

const OFFER: Offer = Offer { shift: Some(2), sack: true, timestamps: true, ecn: false };

/// A connection from the sender; the host has answered its first bytes.
fn setup() -> Setup {
    Setup {
        port: 0,
        v6: false,
        vlan: None,
        host_opens: false,
        sender: OFFER,
        host: OFFER,
        sender_starts: (1_000, 10),
        host_starts: (9_000, 90),
        seen: [true; 2],
    }
}

fn established(config: Config, setup: Setup) -> World {
    let mut world = World::new(config);
    let port = setup.port;
    world.open(setup);
    world.send(port, 100, false);
    world.wait(1_000_000);
    world.host_sends(port, 10_000, 0, 1);
    world
}

/// Acknowledgments of the connection that was opened last.
fn count(world: &World) -> usize {
    world.connections.last().unwrap().count
}

/// That the laws above are not kept by saying nothing: a side that may acknowledge does.
#[test]
fn data_that_is_held_is_acknowledged_once_a_batch() {
    let offers = [
        OFFER,
        Offer { shift: None, ..OFFER },
        Offer { sack: false, ..OFFER },
        Offer { timestamps: false, ..OFFER },
    ];
    for sender in offers {
        for host_opens in [false, true] {
            for (v6, vlan) in [(false, None), (true, Some(5))] {
                let setup = Setup { sender, host_opens, v6, vlan, ..setup() };
                let mut world = established(CONFIG, setup);
                for batch in 1..5 {
                    (0..10).for_each(|_| world.send(0, 100, false));
                    world.batch_ends();
                    assert_eq!(count(&world), batch);
                    world.batch_ends();
                    assert_eq!(count(&world), batch, "twice");
                }
            }
        }
    }
}

/// Long runs of data are many aggregates; the acknowledgments do not wait for the host's.
#[test]
fn acknowledgments_go_on_from_one_aggregate_to_the_next() {
    let mut world = established(Config { max_segments: 4, ..CONFIG }, setup());
    for batch in 1..20 {
        (0..3).for_each(|_| world.send(0, 100, false));
        world.batch_ends();
        // Every fourth batch ends with an aggregate, and nothing is held.
        assert_eq!(count(&world), batch - batch / 4);
    }
}

/// The same through a hole that is filled; its blocks are reported meanwhile.
#[test]
fn blocks_are_reported_and_what_fills_a_hole_is_acknowledged() {
    let mut world = established(CONFIG, setup());
    world.send(0, 100, false);
    world.send(0, 100, true);
    world.send(0, 100, false);
    world.send(0, 100, true);
    world.send(0, 100, false);
    world.batch_ends();
    assert_eq!(count(&world), 1);
    world.batch_ends();
    world.find(0, |_| 0);
    world.batch_ends();
    assert_eq!(count(&world), 2);
    world.find(0, |_| 0);
    world.batch_ends();
    assert_eq!(count(&world), 3);
}

#[test]
fn nothing_is_acknowledged_beyond_a_hole_that_was_given_up() {
    for active_ack in [ActiveAck::Safe, ActiveAck::Paper] {
        let mut world = established(Config { active_ack, ..CONFIG }, setup());
        world.send(0, 100, true);
        world.send(0, 100, false);
        world.wait(1_000_000);
        let before = count(&world);
        for _ in 0..5 {
            world.host_sends(0, 10_000, 0, 1); // duplicates
            world.send(0, 100, false);
            world.batch_ends();
        }
        assert_eq!(count(&world), before);
        // The lost segment comes, and the host says so.
        world.find(0, |_| 0);
        world.wait(1_000_000);
        world.host_sends(0, 10_000, 0, 1);
        world.send(0, 100, false);
        world.batch_ends();
        assert_eq!(count(&world), before + 1);
    }
}

/// PAWS (RFC 7323 section 5.3): what was overtaken by its own connection's retransmission is discarded by a
/// host that has taken the newer TSval. Acknowledged in its name it would be lost for ever.
#[test]
fn what_the_host_may_discard_as_an_old_duplicate_is_not_acknowledged() {
    let mut world = established(CONFIG, setup());
    world.tick(0, 100);
    world.send(0, 100, false);
    world.batch_ends();
    let before = count(&world);
    world.tick(0, 50_u32.wrapping_neg());
    for _ in 0..3 {
        world.send(0, 100, false);
        world.batch_ends();
    }
    assert_eq!(count(&world), before);
}

/// The paper's: one for each packet.
#[test]
fn the_paper_acknowledges_every_packet() {
    let mut world = established(Config { active_ack: ActiveAck::Paper, ..CONFIG }, setup());
    let before = count(&world);
    for n in 1..50 {
        world.send(0, 100, false);
        assert_eq!(count(&world), before + n);
    }
    // Duplicates ask for what is missing.
    world.send(0, 100, true);
    world.send(0, 100, false);
    world.send(0, 100, false);
    assert_eq!(count(&world), before + 51);
}

/// What the host has acknowledged is all that the paper's mode needs to know.
#[test]
fn the_paper_acknowledges_connections_picked_up_in_the_middle() {
    let config = Config { active_ack: ActiveAck::Paper, max_segments: 4, ..CONFIG };
    let mut world = established(config, Setup { seen: [false; 2], ..setup() });
    (0..40).for_each(|_| world.send(0, 100, false));
    assert!(count(&world) >= 30, "{}", count(&world));
}

#[test]
fn whoever_was_switched_on_in_the_middle_waits_for_the_next_connection() {
    for between in [ActiveAck::Off, ActiveAck::Paper] {
        let mut world = established(CONFIG, setup());
        world.reconfigure(|config| config.active_ack = between);
        world.reconfigure(|config| config.active_ack = ActiveAck::Safe);
        world.host_sends(0, 10_000, 0, 1);
        world.send(0, 100, false);
        world.batch_ends();
        assert_eq!(count(&world), 0);
        world.wait(1_000_000);
        world.open(Setup { sender_starts: (70_000, 99), ..setup() });
        world.host_sends(0, 10_000, 0, 1);
        world.send(0, 100, false);
        world.batch_ends();
        assert_eq!(count(&world), 1);
        // A change of something else changes nothing here.
        world.reconfigure(|config| config.timeout_factor = 11);
        world.host_sends(0, 10_000, 0, 1);
        world.send(0, 100, false);
        world.batch_ends();
        assert_eq!(count(&world), 2);
    }
}

/// As far as the window that the host has opened, and no more when it is closed.
#[test]
fn the_hosts_window_is_the_bound() {
    let mut world = established(CONFIG, setup());
    world.host_sends(0, 100, 0, 0); // 400 bytes
    (0..10).for_each(|_| world.send(0, 97, false));
    world.batch_ends();
    assert_eq!(count(&world), 0, "all that may be said would close the window");
    world.wait(1_000_000);
    world.host_sends(0, 100, 0, 0);
    world.send(0, 97, false);
    world.batch_ends();
    assert_eq!(count(&world), 1);
    world.wait(1_000_000);
    world.host_sends(0, 0, 0, 0);
    world.send(0, 1, false);
    world.batch_ends();
    assert_eq!(count(&world), 1);
}
