//! Everyone does everything, in turns.

use std::time::Duration;

use super::{Runner, Sample, System, Total, Workload};
use crate::{Error, Report};

/// How often each system does each workload.
const REPETITIONS: u32 = 5;

/// Workloads that take turns.
pub(crate) struct Group<W> {
    /// What they have in common, for the progress line.
    pub(crate) name: String,
    pub(crate) workloads: Vec<W>,
}

/// Measures, one group after the other; each runner runs each workload for `time`. Tells which
/// workloads a runner leaves out and why.
///
/// # Errors
/// wharf itself did not do what it should. Peers that fail are left out with a notice.
pub(crate) fn take_turns<W: Workload>(
    groups: &[Group<W>],
    mut runners: Vec<Box<dyn Runner<W>>>,
    time: Duration,
    report: &mut dyn Report,
) -> Result<(), Error> {
    let systems: Vec<System> = runners.iter().map(|runner| runner.system()).collect();
    let mut reported = Vec::new();
    for (done, Group { name, workloads }) in groups.iter().enumerate() {
        report_left_out(&runners, workloads, &mut reported, report);
        let mut samples = Samples::default();
        for repetition in 0..REPETITIONS {
            let what = format!("{name}, {} of {REPETITIONS}", repetition + 1);
            report.progress(done, groups.len(), &what);
            samples.repeat(workloads, &mut runners, time / REPETITIONS, report)?;
        }
        for (n, workload) in workloads.iter().enumerate() {
            for &system in &systems {
                let total = samples.total(n, system);
                let figures = total.map(|total| workload.figures(system, total));
                figures.into_iter().flatten().for_each(|figure| report.figure(figure));
            }
        }
    }
    Ok(())
}

/// Says of each runner once what it leaves out and why.
fn report_left_out<W>(
    runners: &[Box<dyn Runner<W>>],
    workloads: &[W],
    reported: &mut Vec<String>,
    report: &mut dyn Report,
) {
    for runner in runners {
        for why in workloads.iter().filter_map(|workload| runner.left_out(workload)) {
            let words = format!("{}: left out {why}", runner.system().name());
            if !reported.contains(&words) {
                report.notice(&words);
                reported.push(words);
            }
        }
    }
}

/// The outcome of a group's repetitions, by the number of the workload and by system.
#[derive(Default)]
struct Samples(Vec<(usize, System, Sample)>);

impl Samples {
    /// Each workload by each system, once. A peer that fails takes no further part.
    fn repeat<W>(
        &mut self,
        workloads: &[W],
        runners: &mut Vec<Box<dyn Runner<W>>>,
        time: Duration,
        report: &mut dyn Report,
    ) -> Result<(), Error> {
        for (n, workload) in workloads.iter().enumerate() {
            let mut failed = Vec::new();
            for runner in runners.iter_mut() {
                let system = runner.system();
                if runner.left_out(workload).is_some() {
                    continue;
                }
                match runner.slice(workload, time) {
                    Ok(sample) => self.0.push((n, system, sample)),
                    Err(error) if system.is_wharf() => return Err(error),
                    Err(error) => {
                        report.notice(&format!("{error}; it is left out from here"));
                        failed.push(system);
                    }
                }
            }
            runners.retain(|runner| !failed.contains(&runner.system()));
        }
        Ok(())
    }

    /// `None` if there was nothing to repeat.
    fn total(&self, n: usize, system: System) -> Option<Total> {
        let of = |sample: &&(usize, System, Sample)| (sample.0, sample.1) == (n, system);
        let samples: Vec<Sample> = self.0.iter().filter(of).map(|sample| sample.2).collect();
        let times = samples.iter().map(|sample| sample.ns_per_packet).collect();
        (!samples.is_empty()).then(|| Total {
            ns_per_packet: median(times),
            packets: samples.iter().map(|sample| sample.packets).sum(),
            large: samples.iter().map(|sample| sample.large).sum(),
        })
    }
}

/// Of an odd number the one in the middle, of an even number the larger of the two.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
