//! How many times as much there is of something at one point as at another, in the paper and here.

use super::{Point, Spread, Verdict, number};

/// From a point to another, what is found there, and what the paper says.
struct Step<'a, 'b> {
    from: &'b Point<'a>,
    to: &'b Point<'a>,
    found: Spread,
    claimed: Option<f64>,
}

pub(super) fn verdict(
    subject: &str,
    steps: &[(u32, u32)],
    parts: &[(&str, (u32, u32))],
    points: &[Point<'_>],
) -> Option<Verdict> {
    let at = |point| points.iter().find(|at| at.row.point == point);
    let step = |series: &str, (from, to): (u32, u32)| {
        let (from, to) = (at(from)?, at(to)?);
        let (before, after) = (from.spread(series)?, to.spread(series)?);
        let found = Spread {
            median: after.median / before.median,
            min: after.min / before.max,
            max: after.max / before.min,
        };
        let claimed = claimed(to, series).zip(claimed(from, series));
        let is_number = [found.median, found.min, found.max].iter().all(|ratio| ratio.is_finite());
        is_number.then(|| Step { from, to, found, claimed: claimed.map(|(to, from)| to / from) })
    };
    let all: Vec<Step<'_, '_>> = steps.iter().filter_map(|at| step(subject, *at)).collect();
    let first = all.first()?;
    let paper = |step: &Step<'_, '_>| step.claimed.map_or("no number".to_owned(), number);
    let told = all.iter().map(|step| {
        let (from, to, found) = (step.from.words(), step.to.words(), number(step.found.median));
        format!("{to} takes {found} times what {from} takes, {} in the paper", paper(step))
    });
    let parts = parts.iter().filter_map(|(series, at)| {
        let step = step(series, *at)?;
        let (from, to, found) = (step.from.words(), step.to.words(), number(step.found.median));
        let (part, paper) = (step.to.label(series), paper(&step));
        Some(format!(
            "{part} takes with {to} {found} times what it takes with {from}, {paper} in the paper"
        ))
    });
    let unit = first.to.scenario.y.unit;
    let measured = points
        .iter()
        .filter_map(|at| Some(format!("{}: {} {unit}", at.words(), number(at.median(subject)?))));
    Some(Verdict {
        claimed: first.claimed,
        found: Some(first.found),
        measured: measured.collect::<Vec<_>>().join("; ") + ".",
        ratio: format!(
            "{} in the paper, {} here, of {} to {}",
            paper(first),
            first.found.words(),
            first.to.words(),
            first.from.words()
        ),
        meaning: told.chain(parts).collect::<Vec<_>>().join("; ") + ".",
    })
}

/// The paper's value there.
fn claimed(at: &Point<'_>, subject: &str) -> Option<f64> {
    let x = f64::from(at.row.point);
    let mut there =
        at.entry.published.iter().filter(|one| one.series == subject && one.x == Some(x));
    there.next().map(|published| published.value)
}
