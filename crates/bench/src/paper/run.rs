//! Running what is not there yet, point by point, and keeping what comes out.

use std::collections::BTreeMap;
use std::time::Instant;

use super::parameters::Parameters;
use super::plan::{Plan, Progress};
use super::registry::Entry;
use super::scenario::Scenario;
use super::store::{Row, Store, StoreError};
use crate::{Error, Figure, Report};

/// Receives what a run reports.
pub trait Observer {
    /// It goes on.
    fn progress(&mut self, progress: &Progress);

    /// Something that the reader must know to read the figures of an entry.
    fn notice(&mut self, name: &str, text: &str);

    /// A point has been kept.
    ///
    /// # Errors
    /// Any ends the run.
    fn kept(&mut self, store: &Store, gaps: &Gaps) -> Result<(), StoreError>;
}

/// Runs points.
pub trait Runner {
    /// Runs all cases at a point and reports their figures.
    ///
    /// # Errors
    /// As the scenario's own.
    fn run(
        &mut self,
        scenario: &Scenario,
        point: u32,
        parameters: &Parameters,
        report: &mut dyn Report,
    ) -> Result<(), Error>;
}

/// Runs them on this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Here;

impl Runner for Here {
    fn run(
        &mut self,
        scenario: &Scenario,
        point: u32,
        parameters: &Parameters,
        report: &mut dyn Report,
    ) -> Result<(), Error> {
        scenario.run(point, parameters, report)
    }
}

/// Why points of figures could not be measured, by the figure's name.
pub type Gaps = BTreeMap<&'static str, Vec<String>>;

/// Runs every point of `entries` that `store` does not have. A point that fails ends its figure, but
/// not the others.
///
/// # Errors
/// What keeps results from being written.
pub fn run(
    entries: &[&Entry],
    parameters: &Parameters,
    store: &mut Store,
    runner: &mut dyn Runner,
    observer: &mut dyn Observer,
) -> Result<Gaps, StoreError> {
    let mut gaps = Gaps::new();
    let mut plan = Plan::new(entries, parameters, store);
    for entry in entries {
        let Some(scenario) = entry.scenario() else { continue };
        for &point in scenario.points(parameters) {
            if store.has(entry.name, point) {
                continue;
            }
            let what = format!("{}, {}", entry.name, scenario.words(point));
            let mut taken = Taken::new(entry.name, what, &plan, observer);
            let ended = runner.run(scenario, point, parameters, &mut taken);
            let (what, since) = (taken.what, taken.since);
            let (figures, notices) = (taken.figures, taken.notices);
            let mut gap = |why: &str| {
                gaps.entry(entry.name).or_default().push(format!("{what}: {why}"));
            };
            match ended {
                Err(error) => {
                    gap(&error.to_string());
                    plan.give_up(entry.name);
                    break;
                }
                Ok(()) if figures.is_empty() => {
                    gap(&notices.join("; "));
                    plan.skip(entry.name, point);
                }
                Ok(()) => {
                    let took = since.elapsed();
                    plan.took(entry.name, point, took);
                    let row = Row::new(entry.name, point, &figures, notices, took.as_secs_f64());
                    store.keep(entry.name, row)?;
                    observer.kept(store, &gaps)?;
                }
            }
        }
    }
    Ok(gaps)
}

/// What the scenario of one point reports.
struct Taken<'a> {
    name: &'static str,
    what: String,
    since: Instant,
    plan: &'a Plan,
    observer: &'a mut dyn Observer,
    figures: Vec<Figure>,
    notices: Vec<String>,
}

impl<'a> Taken<'a> {
    fn new(
        name: &'static str,
        what: String,
        plan: &'a Plan,
        observer: &'a mut dyn Observer,
    ) -> Taken<'a> {
        let since = Instant::now();
        let (figures, notices) = (Vec::new(), Vec::new());
        Taken { name, what, since, plan, observer, figures, notices }
    }
}

impl Report for Taken<'_> {
    fn figure(&mut self, figure: Figure) {
        self.figures.push(figure);
    }

    fn progress(&mut self, done: usize, total: usize, what: &str) {
        let what = format!("{} ({done}/{total}: {what})", self.what);
        self.observer.progress(&self.plan.progress(self.since.elapsed(), what));
    }

    fn notice(&mut self, text: &str) {
        self.notices.push(text.to_owned());
        self.observer.notice(self.name, text);
    }
}

#[cfg(test)]
mod tests;
