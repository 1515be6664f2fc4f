//! What was measured beside what the paper claims, in numbers and in a sentence. All of it is
//! computed from the measured values: which words are chosen depends on nothing else.

use super::registry::Entry;
use super::scenario::{Headline, Judge, Scenario};
use super::store::Row;
use crate::throughput::median;

/// Ratios that differ by less are the same: the papers' values have two digits or three.
const SAME: f64 = 0.02;
/// From so many per cent on every connection has opened.
const ALL: f64 = 99.99;

/// The median of all repetitions, and their extremes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// The middle value.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

/// See the module's documentation.
#[derive(Clone, PartialEq, Debug)]
pub struct Verdict {
    /// The paper's ratio of what it is about to what it compares that with.
    pub claimed: Option<f64>,
    /// The same here; of the repetitions of one point, each by itself.
    pub found: Option<Spread>,
    /// What was measured, with units.
    pub measured: String,
    /// Both ratios in words.
    pub ratio: String,
    /// What it means, in one sentence.
    pub meaning: String,
}

/// Judges the points of an entry that are complete; `None` where there is nothing to judge by.
pub fn verdict(entry: &Entry, rows: &[Row]) -> Option<Verdict> {
    let scenario = entry.scenario()?;
    let mut points: Vec<Point<'_>> = Vec::new();
    for &point in &scenario.points {
        let row = rows.iter().find(|row| row.point == point);
        points.extend(row.map(|row| Point { entry, scenario, row }));
    }
    let judge = scenario.judge;
    points.retain(|point| point.ratios(judge).is_some());
    match judge.headline {
        Headline::Last => by_ratio(points.last()?, &points),
        Headline::Best => by_ratio(best(&points)?, &points),
        Headline::Cure => by_cure(&points),
    }
}

impl Spread {
    /// That of at least one value.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let min = values.iter().copied().reduce(f64::min)?;
        let max = values.iter().copied().reduce(f64::max)?;
        Some(Spread { median: median(values.iter().copied()), min, max })
    }

    fn words(&self) -> String {
        if self.min == self.max {
            return number(self.median);
        }
        format!("{} ({} to {})", number(self.median), number(self.min), number(self.max))
    }
}

/// What one point gave.
#[derive(Clone, Copy)]
struct Point<'a> {
    entry: &'a Entry,
    scenario: &'a Scenario,
    row: &'a Row,
}

impl Point<'_> {
    fn words(&self) -> String {
        self.scenario.words(self.row.point)
    }

    /// What each repetition of a case gave, in the unit of the y axis.
    fn samples(&self, case: &str) -> Option<Vec<f64>> {
        let samples = self.row.samples(case, self.scenario.y.metric)?;
        Some(samples.into_iter().map(|value| value * self.scenario.y.factor).collect())
    }

    fn median(&self, case: &str) -> Option<f64> {
        Some(Spread::of(&self.samples(case)?)?.median)
    }

    /// Of each repetition: how many times as much the first case gave as the second. The cases took
    /// turns, so the two ran one shortly after the other.
    fn over(&self, case: &str, other: &str) -> Option<Vec<f64>> {
        let (over, under) = (self.samples(case)?, self.samples(other)?);
        Some(over.iter().zip(&under).map(|(over, under)| over / under).collect())
    }

    fn ratios(&self, judge: Judge) -> Option<Vec<f64>> {
        self.over(judge.subject, judge.baseline)
    }

    fn found(&self) -> Option<Spread> {
        Spread::of(&self.ratios(self.scenario.judge)?).filter(|found| found.max.is_finite())
    }

    fn claimed(&self) -> Option<f64> {
        claimed_at(self.entry, self.scenario.judge, f64::from(self.row.point))
    }
}

/// The paper's ratio there: of its values at that point, or of those that hold for all points.
fn claimed_at(entry: &Entry, judge: Judge, x: f64) -> Option<f64> {
    let value = |case: &str| {
        let of_it = entry.published.iter().filter(|published| published.series == case);
        let mut there = of_it.filter(|published| published.x.is_none_or(|at| at == x));
        there.next().map(|published| published.value)
    };
    Some(value(judge.subject)? / value(judge.baseline)?)
}

/// The paper's ratio that stands for the figure, as the headline chooses.
fn claim(entry: &Entry, scenario: &Scenario) -> Option<f64> {
    let mut all =
        scenario.points.iter().map(|&point| claimed_at(entry, scenario.judge, f64::from(point)));
    match scenario.judge.headline {
        Headline::Best => all.flatten().reduce(f64::max),
        Headline::Last | Headline::Cure => all.next_back().flatten(),
    }
}

fn best<'a, 'b>(points: &'b [Point<'a>]) -> Option<&'b Point<'a>> {
    let median = |point: &&Point<'_>| point.found().map_or(f64::MIN, |found| found.median);
    points.iter().max_by(|one, other| median(one).total_cmp(&median(other)))
}

fn by_ratio(at: &Point<'_>, points: &[Point<'_>]) -> Option<Verdict> {
    let (entry, scenario, judge) = (at.entry, at.scenario, at.scenario.judge);
    let (found, claimed) = (at.found()?, claim(entry, scenario));
    let (subject, baseline) = (scenario.label(judge.subject), scenario.label(judge.baseline));
    let mut meaning = if judge.headline == Headline::Best { "At best " } else { "" }.to_owned();
    meaning += &format!(
        "{subject} gives {} times what {baseline} gives, at {}",
        number(found.median),
        at.words()
    );
    meaning += &claimed.map_or(String::new(), |claimed| beside(found, claimed));
    if found.median < 1.0 {
        meaning += "; it is a loss here";
    }
    if judge.headline == Headline::Best {
        meaning += &everywhere(points);
    }
    meaning += &judge.peer.and_then(|peer| beside_peer(at, peer)).unwrap_or_default();
    meaning.push('.');
    let paper = claimed.map_or("no number".to_owned(), number);
    Some(Verdict {
        claimed,
        found: Some(found),
        measured: measured(points),
        ratio: format!("{paper} in the paper, {} here, at {}", found.words(), at.words()),
        meaning,
    })
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

/// At how many points, of those that the paper has as well, the ratio is above the paper's.
fn everywhere(points: &[Point<'_>]) -> String {
    let both = points.iter().filter_map(|point| Some((point.found()?.median, point.claimed()?)));
    let more: Vec<bool> = both.map(|(found, claimed)| found > claimed).collect();
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
fn beside_peer(at: &Point<'_>, peer: &str) -> Option<String> {
    let judge = at.scenario.judge;
    let share = Spread::of(&at.over(peer, judge.subject)?)?.median;
    let (peer, subject) = (at.scenario.label(peer), at.scenario.label(judge.subject));
    let times = number(share);
    Some(match share {
        share if share > 1.0 + SAME => {
            format!("; {peer} is ahead, with {times} times what {subject} gives")
        }
        share if share < 1.0 - SAME => format!("; {peer} gives {times} times what {subject} gives"),
        _ => format!("; {peer} gives as much as {subject}"),
    })
}

/// Every series at the first point and at the last.
fn measured(points: &[Point<'_>]) -> String {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return String::new() };
    let (scenario, unit) = (first.scenario, first.scenario.y.unit);
    let values = scenario.series.iter().filter_map(|series| {
        let (from, to) = (number(first.median(series.case)?), number(last.median(series.case)?));
        let label = series.label;
        Some(if points.len() == 1 {
            format!("{label} {to} {unit}")
        } else {
            format!("{label} {from} to {to} {unit}")
        })
    });
    let values: Vec<String> = values.collect();
    if points.len() == 1 {
        return format!("At {}: {}.", last.words(), values.join(", "));
    }
    format!("From {} to {}: {}.", first.words(), last.words(), values.join(", "))
}

fn by_cure(points: &[Point<'_>]) -> Option<Verdict> {
    let scenario = points.first()?.scenario;
    let judge = scenario.judge;
    let shares: Vec<(&Point<'_>, f64, f64)> = points
        .iter()
        .filter_map(|at| Some((at, at.median(judge.subject)?, at.median(judge.baseline)?)))
        .collect();
    let (worst, cured, ill) =
        shares.iter().copied().min_by(|one, other| one.2.total_cmp(&other.2))?;
    let (subject, baseline) = (scenario.label(judge.subject), scenario.label(judge.baseline));
    let starves = |share: f64| share < ALL;
    let uncured: Vec<String> = shares
        .iter()
        .filter(|(_, subject, _)| starves(*subject))
        .map(|(at, subject, _)| format!("{} % with {}", number(*subject), at.words()))
        .collect();
    let meaning = if !uncured.is_empty() {
        format!(
            "With {subject} not all connections open ({}), with {baseline} {} %: the cure is not as \
             complete as in the paper.",
            uncured.join(", "),
            number(ill)
        )
    } else if starves(ill) {
        let spared: Vec<String> = shares
            .iter()
            .filter(|(_, _, baseline)| !starves(*baseline))
            .map(|(at, ..)| at.words())
            .collect();
        let but = if spared.is_empty() {
            String::new()
        } else {
            format!(", and all with {}", spared.join(", "))
        };
        format!(
            "With {subject} every connection opens, with {baseline} {} % at worst, with {}{but}: the \
             paper's starvation shows, and its cure works.",
            number(ill),
            worst.words()
        )
    } else {
        format!(
            "Every connection opens with {subject} and with {baseline}: the starvation that the \
             paper tells of does not show here."
        )
    };
    let measured: Vec<String> = shares
        .iter()
        .map(|(at, cured, ill)| {
            let (cured, ill, unit) = (number(*cured), number(*ill), scenario.y.unit);
            format!("{}: {subject} {cured} {unit}, {baseline} {ill} {unit}", at.words())
        })
        .collect();
    Some(Verdict {
        claimed: None,
        found: worst.found(),
        measured: measured.join("; ") + ".",
        ratio: format!("no number in the paper, {} % to {} % here", number(cured), number(ill)),
        meaning,
    })
}

/// Three digits, no more decimals than two.
pub fn number(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests;
