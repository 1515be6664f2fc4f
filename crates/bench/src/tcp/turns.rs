//! All systems in turns, so that other load of the machine meets all of them, and what they measured
//! beside each other.

use serde_json::Value;

use super::system::{Contender, System};
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
    pub(super) contenders: Vec<Contender>,
}

impl Contest {
    fn words(&self) -> String {
        format!("{} {}, {} connections", self.case.name(), self.what, self.connections)
    }

    /// Reports something of an entrant.
    fn report(
        &self,
        contender: Contender,
        (metric, unit): (&'static str, &'static str),
        samples: Vec<f64>,
        report: &mut dyn Report,
    ) {
        let varied = [
            ("what", Value::from(self.what)),
            ("link", contender.link.name().into()),
            ("connections", self.connections.into()),
        ];
        let (case, system) = (self.case.name(), contender.system.name());
        let value = median(samples.iter().copied());
        report.figure(figure(case, system, varied, metric, unit, value, samples));
    }
}

/// What an entrant did in a round, and what else was measured.
pub(super) type Outcome = (f64, f64);

/// Holds each contest in `options.repetitions` rounds. `measure` returns the rate of a contender.
///
/// # Errors
/// The kernel or wharf did not do what it should. A peer that fails is left out with a notice.
pub(super) fn hold(
    contests: &[Contest],
    options: &Options,
    report: &mut dyn Report,
    mut measure: impl FnMut(&Contest, Contender, usize, &mut dyn Report) -> Result<Outcome, Error>,
) -> Result<(), Error> {
    for (done, contest) in contests.iter().enumerate() {
        let chosen = |contender: &Contender| {
            options.systems.contains(&contender.system) && options.links.contains(&contender.link)
        };
        let mut contenders: Vec<Contender> =
            contest.contenders.iter().copied().filter(chosen).collect();
        let mut outcomes: Vec<(Contender, Vec<Outcome>)> =
            contenders.iter().map(|contender| (*contender, Vec::new())).collect();
        for round in 0..options.repetitions {
            let mut failed = Vec::new();
            for &contender in &contenders {
                let name = contender.system.name();
                let what = format!("{}, round {}, {name}", contest.words(), round + 1);
                report.progress(done, contests.len(), &what);
                match measure(contest, contender, round, report) {
                    Ok(value) => outcomes
                        .iter_mut()
                        .filter(|(other, _)| *other == contender)
                        .for_each(|(_, samples)| samples.push(value)),
                    Err(error) if contender.system == System::Smoltcp => {
                        let words = contest.words();
                        report.notice(&format!("{words}, {name}: {error}; it is left out here"));
                        failed.push(contender);
                    }
                    Err(error) => return Err(error),
                }
            }
            contenders.retain(|contender| !failed.contains(contender));
        }
        outcomes.retain(|(contender, _)| contenders.contains(contender));
        compare(contest, &outcomes, report);
    }
    Ok(())
}

/// Reports all, and the ratios of two in the same round.
fn compare(contest: &Contest, outcomes: &[(Contender, Vec<Outcome>)], report: &mut dyn Report) {
    for (contender, samples) in outcomes {
        let won_by = samples.iter().map(|outcomes| outcomes.0).collect();
        contest.report(*contender, contest.metric, won_by, report);
        if let Some(beside) = contest.beside {
            let samples = samples.iter().map(|outcomes| outcomes.1).collect();
            contest.report(*contender, beside, samples, report);
        }
        for (metric, rival) in contender.rivals() {
            let of_rival = outcomes.iter().find(|(other, _)| *other == rival);
            let Some((_, theirs)) = of_rival.filter(|(other, _)| other != contender) else {
                continue;
            };
            let ratios =
                samples.iter().zip(theirs).map(|(ours, theirs)| ours.0 / theirs.0).collect();
            contest.report(*contender, (metric, ""), ratios, report);
        }
    }
}
