//! A connection that was frozen and thawed goes on unchanged: its peer sees the same packets at the same
//! times.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tcp::config::MILLISECOND;
use wire::Seq;

use super::frame::Arrival;
use super::kept::FREEZES;
use super::plan::{Dice, Freeze, Plan};
use super::run::{Run, Sent};
use super::trace::{self, Trace};
use super::{RUNS, number};

/// A run without freezes of its own.
fn plan(seed: u64) -> Plan {
    let mut plan = Plan::new(seed);
    plan.freezes.clear();
    plan.ticks_together = true;
    // An application whose connection was thawed looks for room, and would write earlier than it had.
    plan.sides.iter_mut().for_each(|side| side.polls = true);
    plan
}

fn wire(plan: &Plan, trace: Trace) -> Result<Vec<Sent>, String> {
    let run = || Run::new(plan, trace).keeping().run();
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

/// What a freeze of `side` at these packets changes, if anything.
fn change(
    plan: &Plan,
    plain: &[Sent],
    side: usize,
    packets: std::ops::RangeInclusive<u64>,
    moves: Option<u64>,
) -> Option<String> {
    let mut plan = plan.clone();
    let freeze = |packet| Freeze { side, packet, gap: 0, moves };
    plan.freezes.extend(packets.clone().map(freeze));
    let law = match wire(&plan, Trace::default()) {
        Ok(frozen) => differ(plain, &frozen),
        Err(law) => Some(law),
    };
    law.map(|law| format!("side {side} at packets {packets:?}, to {moves:?}: {law}"))
}

/// One run, with and without freezes: at one packet, or at all of them.
fn look(seed: u64, trace: Trace) -> Option<String> {
    let plan = plan(seed);
    let plain = match wire(&plan, trace) {
        Ok(plain) => plain,
        Err(law) => return Some(law),
    };
    let dice = &mut Dice::new(seed, 60);
    let side = dice.below(2) as usize;
    let most = plain.iter().filter(|sent| sent.side != side).count() as u64;
    if dice.once_in(3) {
        let all = change(&plan, &plain, side, 1..=most, None)?;
        // Perhaps one of them is enough.
        let one = (1..=most).find_map(|at| change(&plan, &plain, side, at..=at, None));
        return Some(one.unwrap_or(all));
    }
    let clock = dice.below(1 << 40) / (1 << dice.below(40)) * MILLISECOND;
    let at = dice.between(1, most);
    let moves = dice.once_in(2).then_some(clock);
    change(&plan, &plain, side, at..=at, moves)
}

#[test]
fn the_peer_sees_nothing_of_a_freeze() {
    if let Some(seed) = number("WHARF_SIM_SEED") {
        let trace =
            if number("WHARF_SIM_TRACE").is_some() { Trace::on() } else { Trace::default() };
        let change = look(seed, trace);
        assert_eq!(change, None, "seed {seed}");
        return;
    }
    let runs = number("WHARF_SIM_RUNS").unwrap_or(RUNS) / 3;
    let first = number("WHARF_SIM_FIRST").unwrap_or(1_000_000);
    let seeds = (first..first + runs).chain(FREEZES.iter().copied());
    let failures = seeds
        .filter_map(|seed| look(seed, Trace::default()).map(|law| format!("seed {seed}, {law}")));
    let failures: Vec<String> = failures.take(5).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
