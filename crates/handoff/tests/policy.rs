//! Policies: as text and back, which connections they pick, and how many the load allows.

use handoff::policy::carried::{Carried, look_again};
use handoff::policy::{LoadControl, LoadSettings, Policy, Ports, Seen, When, idle_longest};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

fn policy(text: &str) -> Policy {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let after = (proptest::option::of(any::<u64>()), proptest::option::of(any::<u64>()))
        .prop_filter("one of both", |(bytes, time)| bytes.is_some() || time.is_some())
        .prop_map(|(bytes, time)| When::After { bytes, time });
    let range = (1_u16.., 0_u16..100).prop_map(|(first, more)| (first, first.saturating_add(more)));
    let ports = proptest::collection::vec(range, 1..20).prop_map(|ranges| Ports::new(&ranges));
    let ports = prop_oneof![Just(None), ports];
    let plain = [When::Never, When::ByHand, When::Learned, When::AtAccept];
    let when = prop_oneof![proptest::sample::select(plain.to_vec()), after];
    (when, ports).prop_map(|(when, ports)| {
        let nothing = matches!(when, When::Never | When::ByHand);
        Policy { when, ports: ports.filter(|_| !nothing) }
    })
}

proptest! {
    #[test]
    fn a_policy_is_read_as_it_is_written(policy in any_policy()) {
        let text = policy.to_string();
        prop_assert_eq!(text.parse::<Policy>(), Ok(policy), "{}", text);
    }

    #[test]
    fn any_text_is_refused_in_one_line_or_is_a_policy(text in "\\PC{0,60}") {
        crate::given::policy(&text);
    }

    #[test]
    fn texts_of_known_words_are_too(
        words in proptest::collection::vec(
            prop::sample::select(vec![
                "none", "by_hand", "at_accept", "learned", "after=", "64KB", "2s", ",", "ports=", "80", "-", " ", "0",
                "99999999999999999999", "65536", "KiB", "ms",
            ]),
            0..8,
        ),
    ) {
        crate::given::policy(&words.concat());
    }

    #[test]
    fn ports_are_those_of_the_ranges(ranges in proptest::collection::vec((0_u16..300, 0_u16..300), 1..8)) {
        let ranges: Vec<_> = ranges.into_iter().map(|(a, b)| (a.min(b), a.max(b))).collect();
        let ports = Ports::new(&ranges).expect("they are ranges");
        for port in 0..310 {
            let is_there = ranges.iter().any(|(first, last)| (*first..=*last).contains(&port));
            prop_assert_eq!(ports.has(port), is_there, "{} of {}", port, ports);
        }
    }

    /// Whatever the load and the time, the limit is within its bounds, and rises no sooner than it may after it fell.
    #[test]
    fn the_limit_is_bounded(
        turns in proptest::collection::vec((any::<u32>(), any::<bool>(), any::<u32>(), 0_u64..SECOND), 0..300),
    ) {
        let settings = LoadSettings { max: 1_000, ..LoadSettings::default() };
        let mut load = LoadControl::new(settings, 0);
        let (mut now, mut fell, mut changed) = (0, None::<u64>, 0);
        for (waiting, worked, connections, passed) in turns {
            now += passed;
            let before = load.limit();
            if load.turn(now, worked, waiting) {
                load.decide(connections);
            }
            let limit = load.limit();
            prop_assert!(limit <= 1_000);
            prop_assert!(load.room(connections) == 0 || load.excess(connections) == 0);
            if limit != before {
                prop_assert!(now - changed >= settings.interval);
                changed = now;
            }
            if limit < before {
                fell = Some(now);
            } else if limit > before {
                prop_assert!(fell.is_none_or(|fell| now - fell >= settings.rest));
            }
        }
    }
}

#[test]
fn what_a_policy_is_written_like() {
    assert_eq!(Policy::default().to_string(), "learned");
    assert_eq!(
        policy("after=2s,64KiB ports=443,80,81").to_string(),
        "after=64KiB,2s ports=80-81,443"
    );
    assert_eq!(policy("ports=80"), policy("at_accept ports=80"));
    assert_eq!(policy("none").when, When::Never);
    for (text, error) in [
        (
            "",
            "no policy is called ``: there are none, by_hand, learned, at_accept, after=64KB, after=2s and ports=80,443",
        ),
        ("after=5x", "after=5x: write bytes, a time or both, as in after=64KB,2s"),
        ("after=1s,2s", "after=1s,2s: write bytes, a time or both, as in after=64KB,2s"),
        ("ports=0", "ports=: there is no port 0: ports are 1 to 65535"),
        ("at_accept ports=80,99999", "ports=: there is no port 99999: ports are 1 to 65535"),
        ("ports=80-70000", "ports=: there is no port 70000: ports are 1 to 65535"),
        ("ports=8100-8000", "ports=: 8100-8000 is turned round: write 8000-8100"),
        (
            "ports=http",
            "ports=: `http` is neither a port nor a range: write them as in ports=80,443,8000-8100",
        ),
        (
            "ports=80,,443",
            "ports=: `` is neither a port nor a range: write them as in ports=80,443,8000-8100",
        ),
        ("none at_accept", "`at_accept` is one word too many: a policy has one"),
        ("by_hand ports=80", "ports= has no meaning with none or by_hand: leave one of them out"),
    ] {
        assert_eq!(
            text.parse::<Policy>().map_err(|error| error.to_string()),
            Err(error.to_owned())
        );
    }
    let many = (1..=65).map(|at| (2 * at).to_string()).collect::<Vec<_>>().join(",");
    assert_eq!(
        format!("ports={many}").parse::<Policy>().unwrap_err().to_string(),
        "ports=: 65 ports and ranges are too many: write at most 64, neighbours as one range"
    );
    assert!(
        many.rsplit_once(',')
            .is_some_and(|(fewer, _)| format!("ports={fewer}").parse::<Policy>().is_ok())
    );
    // As options are written.
    assert_eq!(policy("at-accept"), policy("at_accept"));
    assert_eq!(policy("by-hand"), policy("by_hand"));
}

#[test]
fn a_connection_is_picked_when_it_is_worth_it() {
    let seen = Seen { local_port: 80, remote_port: 5_000, since: SECOND, ..Seen::default() };
    let sent = Seen { sent: 64_000, ..seen };
    let received = Seen { received: 64_000, ..seen };
    let either_way = policy("after=64KB");
    let never = |_| unreachable!("it does not learn");
    assert!(!either_way.picks(&Seen { sent: 63_999, received: 63_999, ..seen }, 9 * SECOND, never));
    assert!(either_way.picks(&sent, SECOND, never) && either_way.picks(&received, SECOND, never));
    let timed = policy("after=64KB,2s");
    assert!(!timed.picks(&seen, 3 * SECOND - 1, never) && timed.picks(&seen, 3 * SECOND, never));
    assert_eq!(
        (timed.next_deadline(&seen), either_way.next_deadline(&seen)),
        (Some(3 * SECOND), None)
    );
    for (text, picks) in [("none", false), ("by_hand", false), ("at_accept", true)] {
        assert_eq!(policy(text).picks(&sent, SECOND, never), picks, "{text}");
    }
    // The peer's port, too: that of a service that is connected to.
    for (text, picks) in [("ports=80", true), ("ports=4999-5001", true), ("ports=81", false)] {
        assert_eq!(policy(text).picks(&seen, SECOND, never), picks, "{text}");
    }
    // Whichever are more.
    let learned = |seen, least| policy("learned").picks(seen, SECOND, |carried| carried >= least);
    assert!(learned(&sent, 64_000) && learned(&received, 64_000) && !learned(&sent, 64_001));
    assert!(!policy("none").allows_by_hand() && policy("by_hand").allows_by_hand());
}

/// Else it would go to and fro.
#[test]
fn what_the_nic_gave_back_is_not_picked_again() {
    let seen = Seen { sent: 1 << 30, given_back: true, ..Seen::default() };
    assert!(!Policy::default().picks(&seen, SECOND, |_| true));
}

/// A NIC in virtual time: turns of a millisecond.
struct Nic {
    load: LoadControl,
    now: u64,
}

impl Nic {
    fn new() -> Nic {
        Nic { load: LoadControl::new(LoadSettings::default(), 0), now: 0 }
    }

    /// So many milliseconds in which it works or not, finds so many packets waiting, and has all that it may have of so
    /// many connections.
    fn run(&mut self, ms: u64, worked: bool, waiting: u32, connections: u32) {
        for _ in 0..ms {
            self.now += 1_000_000;
            if self.load.turn(self.now, worked, waiting) {
                self.load.decide(connections.min(self.load.limit()));
            }
        }
    }
}

#[test]
fn the_number_of_connections_follows_the_load() {
    let settings = LoadSettings::default();
    let mut nic = Nic::new();
    assert!(nic.load.is_unlimited());
    // It works all the time, but leaves nothing waiting; or much waits while it sleeps.
    nic.run(5_000, true, settings.low, 1_000);
    nic.run(5_000, false, settings.high * 2, 1_000);
    // Between the marks it stays.
    nic.run(5_000, true, settings.high, 1_000);
    assert!(nic.load.is_unlimited());
    nic.run(3_000, true, settings.each * 1_000 + 100, 1_000);
    assert!(nic.load.limit() < 100 && nic.load.excess(1_000) > 900, "{:?}", nic.load);
    let fell = nic.load.limit();
    // It rests first; a NIC that is not full learns nothing from having no load.
    nic.run(1_800, true, 0, 1_000);
    assert_eq!(nic.load.limit(), fell);
    nic.run(5_000, true, 0, fell - 1);
    assert_eq!(nic.load.limit(), fell);
    nic.run(10_000, true, 0, u32::MAX);
    assert!(nic.load.is_unlimited(), "{:?}", nic.load);
}

/// The queue before a NIC that keeps up is as long as its connections' windows let it be: that is no reason to shed any.
#[test]
fn windows_that_fill_the_queue_are_no_load() {
    let settings = LoadSettings::default();
    for connections in [1, 16, 256, 1024, 16_384] {
        let full = settings.high.max(settings.each * connections);
        let mut nic = Nic::new();
        nic.run(10_000, true, full, connections);
        assert!(nic.load.is_unlimited(), "{connections}: {:?}", nic.load);
        nic.run(400, true, full + 1, connections);
        assert!(nic.load.excess(connections) > 0, "{connections}: {:?}", nic.load);
    }
}

/// One burst is no load.
#[test]
fn a_burst_alone_changes_nothing() {
    let settings = LoadSettings::default();
    let mut nic = Nic::new();
    for _ in 0..10 {
        nic.run(20, true, settings.each * 4_000, 1_000);
        nic.run(180, true, 0, 1_000);
    }
    assert!(nic.load.is_unlimited());
}

#[test]
fn those_go_first_that_were_idle_longest() {
    let last = [('a', 50), ('b', 10), ('c', 40), ('d', 20)];
    assert_eq!(idle_longest(&last, 2), ['b', 'd']);
    assert_eq!(idle_longest(&last, 9), ['b', 'd', 'c', 'a']);
    assert_eq!(idle_longest::<char>(&[], 1), []);
    assert_eq!(idle_longest(&last, 0), []);
}

/// Connections of a service that have ended, each of so many bytes.
fn ended(all: &[(u32, u64)]) -> Carried {
    let carried = Carried::new();
    // In turn, as they end.
    for number in 0..all.iter().map(|(count, _)| *count).max().unwrap_or(0) {
        for (_, bytes) in all.iter().filter(|(count, _)| number < *count) {
            carried.ended(*bytes);
        }
    }
    carried
}

#[test]
fn a_connection_moves_when_it_is_likely_to_be_worth_it() {
    let is_worth = |carried: &Carried, at: &[u64]| -> Vec<bool> {
        at.iter().map(|bytes| carried.is_worth(*bytes)).collect()
    };
    for few in [&[][..], &[(7, 1_000_000)]] {
        assert_eq!(is_worth(&ended(few), &[0, 63_999, 64_000]), [false, false, true], "too few");
    }
    let short = ended(&[(500, 45_000)]);
    assert_eq!(
        is_worth(&short, &[0, 1_000, 44_000, 64_000, 128_000]),
        [false, false, false, true, true]
    );
    let long = ended(&[(500, 100_000)]);
    assert_eq!(is_worth(&long, &[0, 50_000, 53_000, 90_000]), [true, true, false, false]);
    assert_eq!((look_again(0), look_again(2_000), look_again(40_000)), (2_000, 4_000, 64_000));
    // One in twenty carries a hundred times as much: those that have carried a little more than others move.
    let mixed = ended(&[(400, 1_500), (20, 10_000_000)]);
    assert_eq!(is_worth(&mixed, &[0, 1_500, 2_000, 9_990_000]), [false, false, true, false]);
}

#[test]
fn a_service_that_changes_is_learned_anew() {
    let carried = ended(&[(10_000, 40_000)]);
    (0..1000).for_each(|_| carried.ended(100_000_000));
    assert!(carried.is_worth(0));
    (0..100_000).for_each(|_| carried.ended(40_000));
    assert!(!carried.is_worth(0));
}

proptest! {
    /// Where all carry the same, one that has not carried it yet is worth it by what is left, whatever was carried before.
    #[test]
    fn what_is_left_counts(total in 0_u64..1 << 40, at in 0_u64..1 << 40, count in 8_u32..3000) {
        let carried = ended(&[(count, total)]);
        let at = at.min(total);
        prop_assert_eq!(carried.is_worth(at), total - at >= 48_000, "{} of {}", at, total);
        prop_assert!(look_again(at) > at);
    }
}
