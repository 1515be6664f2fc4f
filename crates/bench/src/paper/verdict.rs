//! What was measured beside what the paper claims, in numbers and in a sentence. All of it is
//! computed from the measured values: which words are chosen depends on nothing else.

mod crossover;
mod cure;
mod exact;
mod published;
mod ratio;
mod saved;
mod steps;
mod times;

use super::registry::Entry;
use super::scenario::{Judge, Scenario};
use super::store::Row;
use crate::throughput::median;

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
    let points = points(entry, scenario, rows);
    match scenario.judge {
        Judge::Ratio { subject, baseline, peer, headline } => {
            ratio::Ratio { subject, baseline, peer, headline }.verdict(&points)
        }
        Judge::Cure { subject, baseline } => cure::verdict(subject, baseline, &points),
        Judge::Saved { subject, baseline } => saved::verdict(subject, baseline, &points),
        Judge::Steps { subject, steps, parts } => steps::verdict(subject, steps, parts, &points),
        Judge::Times { subject, baseline, peer, most } => {
            times::Times { subject, baseline, peer, most }.verdict(&points)
        }
        Judge::Crossover { subjects, baseline } => crossover::verdict(subjects, baseline, &points),
        Judge::Published { subjects } => published::verdict(subjects, &points),
        Judge::Exact { subject, enough, why } => exact::verdict(subject, enough, why, &points),
    }
}

/// Where a figure is marked: the points from which on something takes less time than another.
pub fn marks(entry: &Entry, rows: &[Row]) -> Vec<(u32, Spread)> {
    let Some(scenario) = entry.scenario() else { return Vec::new() };
    let Judge::Crossover { subjects, baseline } = scenario.judge else { return Vec::new() };
    let points = points(entry, scenario, rows);
    let of = |subject| {
        let (at, spread) = crossover::crossover(subject, baseline, &points)?;
        Some((at.row.point, spread))
    };
    subjects.into_iter().filter_map(of).collect()
}

/// Those that are complete, in the order of the figure.
fn points<'a>(entry: &'a Entry, scenario: &'a Scenario, rows: &'a [Row]) -> Vec<Point<'a>> {
    let row = |point: &u32| rows.iter().find(|row| row.point == *point);
    let rows = scenario.points.iter().filter_map(row);
    rows.map(|row| Point { entry, scenario, row }).collect()
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

/// The outcome of one point.
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

    fn label(&self, id: &str) -> &'static str {
        self.scenario.series(id).map_or("?", |series| series.label)
    }

    /// The values of all repetitions of a series, in the unit of the y axis.
    fn spread(&self, id: &str) -> Option<Spread> {
        Spread::of(&self.scenario.samples(self.row, id)?)
    }

    fn median(&self, id: &str) -> Option<f64> {
        Some(self.spread(id)?.median)
    }

    /// The ratio of one series to another, of each repetition by itself. The cases
    /// took turns, so the two ran one shortly after the other. `None` where that is no number.
    fn over(&self, id: &str, other: &str) -> Option<Spread> {
        let over = self.scenario.samples(self.row, id)?;
        let under = self.scenario.samples(self.row, other)?;
        let ratios: Vec<f64> = over.iter().zip(&under).map(|(over, under)| over / under).collect();
        Spread::of(&ratios).filter(|_| ratios.iter().all(|ratio| ratio.is_finite()))
    }
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
