//! From which point on something takes less time than another.

use super::times::measured;
use super::{Point, Spread, Verdict, number};

pub(super) fn verdict(
    subjects: [&'static str; 2],
    baseline: &'static str,
    points: &[Point<'_>],
) -> Option<Verdict> {
    let [first, _] = subjects;
    let ratio = |point| Some((point, Point::over(point, first, baseline)?));
    let all: Vec<(&Point<'_>, Spread)> = points.iter().filter_map(ratio).collect();
    let (last, found) = *all.last()?;
    let other = last.label(baseline);
    let told = subjects.map(|subject| {
        let label = last.label(subject);
        let at = match crossover(subject, baseline, points) {
            Some((at, _)) => {
                // How much less: it may be within what the repetitions differ by.
                let there = at.over(subject, baseline).map_or(f64::NAN, |spread| spread.median);
                format!("takes less than {other} from {} on ({} times)", at.words(), number(there))
            }
            None => format!("takes less than {other} at none of the last points"),
        };
        let times = last.over(subject, baseline).map_or(f64::NAN, |spread| spread.median);
        format!("{label} {at}, and {} times as long with {}", number(times), last.words())
    });
    Some(Verdict {
        claimed: None,
        found: Some(found),
        measured: measured(&all),
        ratio: format!("no number in the paper, {} here, with {}", found.words(), last.words()),
        meaning: told.join("; ") + ".",
    })
}

/// The first of the last points at which it takes less, and how long it takes there.
pub(super) fn crossover<'a, 'b>(
    subject: &str,
    baseline: &str,
    points: &'b [Point<'a>],
) -> Option<(&'b Point<'a>, Spread)> {
    let is_less = |at: &&Point<'_>| at.over(subject, baseline).is_some_and(|it| it.median < 1.0);
    let at = points.iter().rev().take_while(is_less).last()?;
    Some((at, at.spread(subject)?))
}
