//! How much less there is of something, in per cent, in the paper and here.

use super::{Point, Spread, Verdict, number};
use crate::paper::scenario::SAVED;

/// What is less than this much apart is the same, in per cent of all: the papers' values have two digits.
const SAME: f64 = 1.0;

/// A point, what is saved there, and what the paper says of it.
type Found<'a, 'b> = (&'b Point<'a>, Spread, Option<f64>);

pub(super) fn verdict(subject: &str, baseline: &str, points: &[Point<'_>]) -> Option<Verdict> {
    let saved = |left: f64| 100.0 * (1.0 - left);
    let found = |at| {
        let left = Point::over(at, subject, baseline)?;
        let spread =
            Spread { median: saved(left.median), min: saved(left.max), max: saved(left.min) };
        Some((at, spread, claimed(at)))
    };
    let all: Vec<Found<'_, '_>> = points.iter().filter_map(found).collect();
    let both = || all.iter().filter(|(.., claimed)| claimed.is_some());
    // That where the paper saves most.
    let claim = |one: &&Found<'_, '_>| one.2.unwrap_or(f64::NEG_INFINITY);
    let (at, most, claimed) =
        *all.iter().max_by(|one, other| claim(one).total_cmp(&claim(other)))?;
    let unit = at.scenario.y.unit;
    let measured: Vec<String> = all
        .iter()
        .filter_map(|(at, ..)| {
            let (with, without) = (at.median(subject)?, at.median(baseline)?);
            let (with, without) = (number(with), number(without));
            Some(format!("{}: {without} {unit} without, {with} {unit} with", at.words()))
        })
        .collect();
    let percent = number(most.median.abs());
    let saves = match most.median < 0.0 {
        true => format!("costs {percent} % more"),
        false => format!("saves {percent} %"),
    };
    let (with, words) = (at.label(subject), at.words());
    let meaning = match claimed {
        Some(claimed) => {
            let kept =
                both().filter(|(_, found, claim)| claim.is_some_and(|c| found.median + SAME >= c));
            let (kept, all) = (kept.count(), both().count());
            format!(
                "{with} {saves} with {words}, where the paper's saves {} %; it saves as much as \
                 the paper's or more at {kept} of {all} points.",
                number(claimed)
            )
        }
        None => format!("{with} {saves} with {words}; the paper gives no number."),
    };
    let here = most.words();
    let ratio = match claimed {
        Some(claimed) => {
            format!("{} % saved in the paper, {here} % here, with {words}", number(claimed))
        }
        None => format!("no number in the paper, {here} % saved here, with {words}"),
    };
    Some(Verdict {
        claimed: claimed.map(|percent| 1.0 - percent / 100.0),
        found: at.over(subject, baseline),
        measured: measured.join("; ") + ".",
        ratio,
        meaning,
    })
}

/// What the paper saves there, in per cent.
fn claimed(at: &Point<'_>) -> Option<f64> {
    let x = f64::from(at.row.point);
    let there = |one: &&crate::paper::registry::Published| one.series == SAVED && one.x == Some(x);
    at.entry.published.iter().find(there).map(|published| published.value)
}
