//! What is to be run, and how long that will take.

use std::time::Duration;

use super::parameters::Parameters;
use super::registry::Entry;
use super::store::Store;

/// How far a run is.
#[derive(Clone, PartialEq, Debug)]
pub struct Progress {
    /// Points that are behind it, those of earlier runs included.
    pub done: usize,
    /// All points.
    pub total: usize,
    /// How long the rest will take, judged by how long the points before it took.
    pub left: Duration,
    /// What is being done.
    pub what: String,
}

/// A point of a figure.
#[derive(Clone, Copy, Debug)]
struct Step {
    name: &'static str,
    point: u32,
    /// How long its scenario expects it to take.
    estimate: Duration,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    Waits,
    Took(Duration),
    GivenUp,
}

/// All points of a run.
#[derive(Clone, Debug)]
pub(super) struct Plan(Vec<Step>);

impl Plan {
    pub(super) fn new(entries: &[&Entry], parameters: &Parameters, store: &Store) -> Plan {
        let mut steps = Vec::new();
        for entry in entries {
            let Some(scenario) = entry.scenario() else { continue };
            for &point in scenario.points(parameters) {
                let row = store.rows(entry.name).iter().find(|row| row.point == point);
                let took = row.map(|row| Duration::try_from_secs_f64(row.took).unwrap_or_default());
                steps.push(Step {
                    name: entry.name,
                    point,
                    estimate: scenario.estimate(parameters),
                    state: took.map_or(State::Waits, State::Took),
                });
            }
        }
        Plan(steps)
    }

    /// A point is complete, after so long.
    pub(super) fn took(&mut self, name: &str, point: u32, took: Duration) {
        let step = self.0.iter_mut().find(|step| step.name == name && step.point == point);
        step.into_iter().for_each(|step| step.state = State::Took(took));
    }

    /// Those points of a figure that wait will not be run.
    pub(super) fn give_up(&mut self, name: &str) {
        let of_it = |step: &&mut Step| step.name == name && step.state == State::Waits;
        self.0.iter_mut().filter(of_it).for_each(|step| step.state = State::GivenUp);
    }

    /// A point will not be run.
    pub(super) fn skip(&mut self, name: &str, point: u32) {
        let step = self.0.iter_mut().find(|step| step.name == name && step.point == point);
        step.into_iter().for_each(|step| step.state = State::GivenUp);
    }

    /// How far it is, `under_way` into the point that runs.
    pub(super) fn progress(&self, under_way: Duration, what: String) -> Progress {
        let waits = |step: &&Step| step.state == State::Waits;
        let rest =
            self.0.iter().filter(waits).map(|step| step.estimate.mul_f64(self.pace(step.name)));
        Progress {
            done: self.0.iter().filter(|step| !waits(step)).count(),
            total: self.0.len(),
            left: rest.sum::<Duration>().saturating_sub(under_way),
            what,
        }
    }

    /// How long points took for each second of their estimates: those of the figure, or else of all.
    fn pace(&self, name: &str) -> f64 {
        let taken = |of_it: &dyn Fn(&Step) -> bool| {
            let (mut took, mut estimate) = (0.0, 0.0);
            for step in self.0.iter().filter(|step| of_it(step)) {
                if let State::Took(time) = step.state {
                    took += time.as_secs_f64();
                    estimate += step.estimate.as_secs_f64();
                }
            }
            (estimate > 0.0).then(|| took / estimate)
        };
        taken(&|step| step.name == name).or_else(|| taken(&|_| true)).unwrap_or(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn plan() -> Plan {
        let step = |name, point, estimate: u32| {
            let estimate = SECOND * estimate;
            Step { name, point, estimate, state: State::Waits }
        };
        Plan(vec![step("a", 1, 10), step("a", 2, 10), step("b", 1, 20), step("b", 2, 20)])
    }

    fn left(plan: &Plan, under_way: u32) -> (usize, u64) {
        let progress = plan.progress(SECOND * under_way, String::new());
        (progress.done, progress.left.as_secs())
    }

    #[test]
    fn what_points_took_corrects_what_is_left() {
        let mut plan = plan();
        assert_eq!(left(&plan, 0), (0, 60));
        assert_eq!(left(&plan, 7), (0, 53));
        plan.took("a", 1, SECOND * 15);
        assert_eq!(left(&plan, 0), (1, 75), "half as long again, for all");
        plan.took("b", 1, SECOND * 10);
        assert_eq!(left(&plan, 0), (2, 25), "15 for a, 10 for b");
        assert_eq!(left(&plan, 40), (2, 0), "longer than was thought");
    }

    #[test]
    fn what_is_given_up_takes_no_time() {
        let mut plan = plan();
        plan.took("b", 1, SECOND * 20);
        plan.give_up("b");
        assert_eq!(left(&plan, 0), (2, 20));
    }
}
