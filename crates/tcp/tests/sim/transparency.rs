//! A connection that was frozen and thawed again goes on as if nothing had been: its peer sees the same
//! packets at the same times.

use std::panic::{AssertUnwindSafe, catch_unwind};

use wire::Seq;

use crate::frame::Arrival;
use crate::plan::{Dice, Freeze, Plan};
use crate::run::{Run, Sent};
use crate::trace::{self, Trace};

/// A run without freezes of its own.
fn plan(seed: u64) -> Plan {
    let mut plan = Plan::new(seed);
    plan.freezes.clear();
    plan.ticks_together = true;
    // One who was moved is told that there may be room, and would write earlier than it had.
    plan.sides.iter_mut().for_each(|side| side.polls = true);
    plan
}

fn wire(plan: &Plan) -> Result<Vec<Sent>, String> {
    let run = || Run::new(plan, Trace::default()).keeping().run();
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(report) => report.map(|report| report.wire),
        Err(_) => Err("panic".to_owned()),
    }
}

fn differ(plain: &[Sent], frozen: &[Sent]) -> Option<String> {
    if plain == frozen {
        return None;
    }
    let at = plain.iter().zip(frozen).position(|(a, b)| a != b);
    let at = at.unwrap_or(plain.len().min(frozen.len()));
    let words = |sent: Option<&Sent>| {
        let Some(sent) = sent else { return "nothing".to_owned() };
        let packet = Arrival::parse(sent.frame.clone());
        let packet = packet.map(|packet| trace::words(&packet, Seq(0), Seq(0)));
        format!("{} ns, side {}: {}", sent.at, sent.side, packet.unwrap_or_default())
    };
    Some(format!("packet {at}:\n  {}\n  {}", words(plain.get(at)), words(frozen.get(at))))
}

fn look(seeds: impl Iterator<Item = u64>) {
    let mut failures = Vec::new();
    for seed in seeds {
        let mut plan = plan(seed);
        // Runs that fail by themselves are another test's.
        let Ok(plain) = wire(&plan) else { continue };
        let dice = &mut Dice::new(seed, 60);
        let side = dice.below(2) as usize;
        let most = plain.iter().filter(|sent| sent.side != side).count() as u64;
        let moves =
            dice.once_in(2).then(|| dice.below(1 << 40) / (1 << dice.below(40)) * 1_000_000);
        let every = dice.once_in(3);
        let packets = if every {
            1..=most
        } else {
            let at = dice.between(1, most);
            at..=at
        };
        plan.freezes.extend(packets.map(|packet| Freeze {
            side,
            packet,
            gap: 0,
            moves: if every { None } else { moves },
        }));
        let law = match wire(&plan) {
            Ok(frozen) => differ(&plain, &frozen),
            Err(law) => Some(law),
        };
        if let Some(law) = law {
            let freezes: Vec<_> = plan.freezes.iter().take(2).collect();
            failures.push(format!("seed {seed}, {freezes:?} (every {every}): {law}"));
        }
        if failures.len() >= 5 {
            break;
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_peer_sees_nothing_of_a_freeze() {
    let runs = crate::number("WHARF_SIM_RUNS").unwrap_or(300) / 3;
    look((0..runs).map(|seed| seed + 1_000_000));
}
