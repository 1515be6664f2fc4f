//! The ratio of two series, in the paper and here.

use std::cmp::Ordering;

use super::{Point, Spread, Verdict, number};
use crate::paper::registry::Entry;
use crate::paper::scenario::{Headline, Scenario};

/// Ratios that differ by less are the same: the papers' values have two digits or three.
const SAME: f64 = 0.02;

/// What is compared; see [`Judge::Ratio`](crate::paper::Judge::Ratio).
#[derive(Clone, Copy, Debug)]
pub(super) struct Ratio {
    pub(super) subject: &'static str,
    pub(super) baseline: &'static str,
    pub(super) peer: Option<&'static str>,
    pub(super) headline: Headline,
}

/// A point with its ratio.
type Found<'a, 'b> = (&'b Point<'a>, Spread);

fn by_ratio(one: &&Found<'_, '_>, other: &&Found<'_, '_>) -> Ordering {
    one.1.median.total_cmp(&other.1.median)
}

impl Ratio {
    pub(super) fn verdict(self, points: &[Point<'_>]) -> Option<Verdict> {
        let ratio = |point| Some((point, Point::over(point, self.subject, self.baseline)?));
        let all: Vec<Found<'_, '_>> = points.iter().filter_map(ratio).collect();
        let best = self.headline == Headline::Best;
        let (at, found) = match self.headline {
            Headline::Last => *all.last()?,
            Headline::Best => *all.iter().max_by(by_ratio)?,
            Headline::Worst => *all.iter().min_by(by_ratio)?,
        };
        let claimed = self.claim(at.entry, at.scenario);
        let mut meaning = format!(
            "{}{} gives {} times what {} gives, at {}",
            match self.headline {
                Headline::Best => "At best ",
                Headline::Worst => "At worst ",
                Headline::Last => "",
            },
            at.label(self.subject),
            number(found.median),
            at.label(self.baseline),
            at.words()
        );
        meaning += &claimed.map_or(String::new(), |claimed| beside(found, claimed));
        if found.median < 1.0 {
            meaning += "; it is a loss here";
        }
        if best {
            meaning += &self.everywhere(&all);
        }
        meaning += &self.beside_peer(at).unwrap_or_default();
        meaning.push('.');
        let paper = claimed.map_or("no number".to_owned(), number);
        Some(Verdict {
            claimed,
            found: Some(found),
            measured: measured(&all)?,
            ratio: format!("{paper} in the paper, {} here, at {}", found.words(), at.words()),
            meaning,
        })
    }

    /// The paper's ratio at `x`: of its values there, or of those that hold everywhere.
    fn claimed_at(self, entry: &Entry, x: u32) -> Option<f64> {
        let value = |id: &str| {
            let of_it = entry.published.iter().filter(|published| published.series == id);
            let mut there = of_it.filter(|it| it.x.is_none_or(|at| at == f64::from(x)));
            there.next().map(|published| published.value)
        };
        Some(value(self.subject)? / value(self.baseline)?)
    }

    /// The paper's ratio that stands for the figure.
    fn claim(self, entry: &Entry, scenario: &Scenario) -> Option<f64> {
        let mut all = scenario.points.iter().map(|&point| self.claimed_at(entry, point));
        match self.headline {
            Headline::Best => all.flatten().reduce(f64::max),
            Headline::Worst => all.flatten().reduce(f64::min),
            Headline::Last => all.next_back().flatten(),
        }
    }

    /// At how many points, of those that the paper has as well, the ratio is above the paper's.
    fn everywhere(self, all: &[Found<'_, '_>]) -> String {
        let more = |(at, found): &Found<'_, '_>| {
            Some(found.median > self.claimed_at(at.entry, at.row.point)?)
        };
        let more: Vec<bool> = all.iter().filter_map(more).collect();
        let ahead = more.iter().filter(|more| **more).count();
        match (ahead, more.len()) {
            (_, 0 | 1) => String::new(),
            (ahead, all) if ahead == all => {
                format!("; it is more than the paper's at all {all} points")
            }
            (ahead, all) => format!("; it is more than the paper's at {ahead} of {all} points"),
        }
    }

    /// How the kernel's own does at the same point.
    fn beside_peer(self, at: &Point<'_>) -> Option<String> {
        let peer = self.peer?;
        let share = at.over(peer, self.subject)?.median;
        let (peer, subject) = (at.label(peer), at.label(self.subject));
        let times = number(share);
        Some(if share > 1.0 + SAME {
            format!("; {peer} is ahead, with {times} times what {subject} gives")
        } else if share < 1.0 - SAME {
            format!("; {peer} gives {times} times what {subject} gives")
        } else {
            format!("; {peer} gives as much as {subject}")
        })
    }
}

/// How the ratio found stands to the paper's.
fn beside(found: Spread, claimed: f64) -> String {
    let share = found.median / claimed;
    let paper = number(claimed);
    if (share - 1.0).abs() < SAME {
        return format!(", as many as in the paper ({paper})");
    }
    let within = if (found.min..=found.max).contains(&claimed) {
        ", though repetitions differ by more than that"
    } else {
        ""
    };
    if share > 1.0 {
        format!(", more than the paper's {paper}{within}")
    } else {
        format!(", less than the paper's {paper}: {} % of that{within}", number(share * 100.0))
    }
}

/// Every series at the first point and at the last.
fn measured(all: &[Found<'_, '_>]) -> Option<String> {
    let ((first, _), (last, _)) = (all.first()?, all.last()?);
    let unit = first.scenario.y.unit;
    let values = first.scenario.series.iter().filter_map(|series| {
        let (from, to) = (number(first.median(series.id)?), number(last.median(series.id)?));
        let label = series.label;
        Some(if all.len() == 1 {
            format!("{label} {to} {unit}")
        } else {
            format!("{label} {from} to {to} {unit}")
        })
    });
    let values = values.collect::<Vec<_>>().join(", ");
    Some(if all.len() == 1 {
        format!("At {}: {values}.", last.words())
    } else {
        format!("From {} to {}: {values}.", first.words(), last.words())
    })
}
