//! Everyone in turns, so that whatever else the machine does meets all of them, and what they gave
//! beside each other.

use serde_json::Value;

use super::system::{Entrant, System};
use super::{Case, Options, figure};
use crate::throughput::median;
use crate::{Error, Report};

/// What is measured of all entrants.
pub(super) struct Contest {
    pub(super) case: Case,
    /// What is done in it, such as `in`.
    pub(super) what: &'static str,
    pub(super) connections: u32,
    /// What it is won by, with its unit.
    pub(super) metric: (&'static str, &'static str),
    /// What else is measured.
    pub(super) beside: Option<(&'static str, &'static str)>,
    pub(super) entrants: Vec<Entrant>,
}

impl Contest {
    fn words(&self) -> String {
        format!("{} {}, {} connections", self.case.name(), self.what, self.connections)
    }

    /// Reports something of an entrant.
    fn tell(
        &self,
        entrant: Entrant,
        (metric, unit): (&'static str, &'static str),
        samples: Vec<f64>,
        report: &mut dyn Report,
    ) {
        let varied = [
            ("what", Value::from(self.what)),
            ("link", entrant.link.name().into()),
            ("connections", self.connections.into()),
        ];
        let (case, system) = (self.case.name(), entrant.system.name());
        let value = median(samples.iter().copied());
        report.figure(figure(case, system, varied, metric, unit, value, samples));
    }
}

/// What an entrant did in a round, and what else was measured.
pub(super) type Gave = (f64, f64);

/// Holds each contest in `options.repetitions` rounds. `measure` gives what an entrant does.
///
/// # Errors
/// The kernel or wharf did not do what it should. A peer that fails is left out with a notice.
pub(super) fn hold(
    contests: &[Contest],
    options: &Options,
    report: &mut dyn Report,
    mut measure: impl FnMut(&Contest, Entrant, usize, &mut dyn Report) -> Result<Gave, Error>,
) -> Result<(), Error> {
    for (done, contest) in contests.iter().enumerate() {
        let chosen = |entrant: &Entrant| {
            options.systems.contains(&entrant.system) && options.links.contains(&entrant.link)
        };
        let mut entrants: Vec<Entrant> = contest.entrants.iter().copied().filter(chosen).collect();
        let mut gave: Vec<(Entrant, Vec<Gave>)> =
            entrants.iter().map(|entrant| (*entrant, Vec::new())).collect();
        for round in 0..options.repetitions {
            let mut failed = Vec::new();
            for &entrant in &entrants {
                let name = entrant.system.name();
                let what = format!("{}, round {}, {name}", contest.words(), round + 1);
                report.progress(done, contests.len(), &what);
                match measure(contest, entrant, round, report) {
                    Ok(value) => gave
                        .iter_mut()
                        .filter(|(other, _)| *other == entrant)
                        .for_each(|(_, samples)| samples.push(value)),
                    Err(error) if entrant.system == System::Smoltcp => {
                        let words = contest.words();
                        report.notice(&format!("{words}, {name}: {error}; it is left out here"));
                        failed.push(entrant);
                    }
                    Err(error) => return Err(error),
                }
            }
            entrants.retain(|entrant| !failed.contains(entrant));
        }
        gave.retain(|(entrant, _)| entrants.contains(entrant));
        compare(contest, &gave, report);
    }
    Ok(())
}

/// Reports all, and the ratios of what two gave in the same round.
fn compare(contest: &Contest, gave: &[(Entrant, Vec<Gave>)], report: &mut dyn Report) {
    for (entrant, samples) in gave {
        let won_by = samples.iter().map(|gave| gave.0).collect();
        contest.tell(*entrant, contest.metric, won_by, report);
        if let Some(beside) = contest.beside {
            let samples = samples.iter().map(|gave| gave.1).collect();
            contest.tell(*entrant, beside, samples, report);
        }
        for (metric, rival) in entrant.rivals() {
            let of_rival = gave.iter().find(|(other, _)| *other == rival);
            let Some((_, theirs)) = of_rival.filter(|(other, _)| other != entrant) else {
                continue;
            };
            let ratios =
                samples.iter().zip(theirs).map(|(ours, theirs)| ours.0 / theirs.0).collect();
            contest.tell(*entrant, (metric, ""), ratios, report);
        }
    }
}
