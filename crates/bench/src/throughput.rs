//! `lro-throughput` and `reordering`: how fast a kernel TCP receiver is, with and without LRO.
//!
//! The first is the figure of the papers on LRO: throughput against the number of connections. It
//! is taken over two wires. In memory the senders cost next to nothing, so that the receiver is
//! what is measured; over veth real kernels send, and share the machine with the receiver. The
//! second varies how much a wire in memory reorders.
//!
//! Cases take turns within each repetition, so that a machine that grows slower does so for all of
//! them; what is reported is the median of the repetitions.

use std::str::FromStr;
use std::time::Duration;

use nic::config::Config;
use serde_json::Value;

use crate::case::Case;
use crate::memory::Run;
use crate::meter::Measured;
use crate::{Error, Figure, Report, memory, sender, veth};

/// What the frames come over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WireKind {
    /// Senders in memory.
    Memory,
    /// Real kernels' TCP.
    Veth,
}

impl WireKind {
    /// Its name in figures and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            WireKind::Memory => "memory",
            WireKind::Veth => "veth",
        }
    }
}

impl FromStr for WireKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "memory" => Ok(WireKind::Memory),
            "veth" => Ok(WireKind::Veth),
            _ => Err("the wires are memory and veth".to_owned()),
        }
    }
}

/// The parameters of both scenarios.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many connections, one round each.
    pub connections: Vec<usize>,
    /// Who merges.
    pub cases: Vec<Case>,
    /// How long each run is measured.
    pub duration: Duration,
    /// Runs of which the median counts.
    pub repetitions: usize,
    /// What the lengths of the bursts of senders in memory are drawn from.
    pub seed: u64,
    /// wharf's settings.
    pub config: Config,
}

/// One row: what varies, and how a run of each case is made.
struct Row<'a> {
    bench: &'static str,
    varied: Vec<(&'static str, Value)>,
    what: String,
    run: &'a dyn Fn(Case) -> Result<Measured, Error>,
}

/// `lro-throughput` over each of `wires`.
///
/// # Errors
/// What the kernel says, or that a byte did not arrive as it was sent.
pub fn lro_throughput(
    options: &Options,
    wires: &[WireKind],
    report: &mut dyn Report,
) -> Result<(), Error> {
    options.check()?;
    let mut steps = Steps::new(wires.len() * options.connections.len(), options);
    for &wire in wires {
        let cases = match wire {
            WireKind::Memory => checked(options, 0, report)?,
            WireKind::Veth => options.cases.clone(),
        };
        for &connections in &options.connections {
            let nanoseconds = options.nanoseconds();
            let run = |case| match wire {
                WireKind::Memory => {
                    let run = Run { case, connections, reordered: 0, seed: options.seed };
                    memory::measure(run, &options.config, nanoseconds)
                }
                WireKind::Veth => veth::measure(case, connections, &options.config, nanoseconds),
            };
            let row = Row {
                bench: "lro-throughput",
                varied: vec![("wire", wire.name().into()), ("connections", connections.into())],
                what: format!("{} wire, {connections} connections", wire.name()),
                run: &run,
            };
            row.measure(options.repetitions, &cases, &mut steps, report)?;
        }
    }
    Ok(())
}

/// `reordering` with each of `percents` of the segments displaced by up to 32 positions.
///
/// # Errors
/// As [`lro_throughput`].
pub fn reordering(
    options: &Options,
    percents: &[u32],
    report: &mut dyn Report,
) -> Result<(), Error> {
    options.check()?;
    let mut steps = Steps::new(percents.len() * options.connections.len(), options);
    for &reordered in percents {
        let cases = checked(options, reordered, report)?;
        for &connections in &options.connections {
            let run = |case| {
                let run = Run { case, connections, reordered, seed: options.seed };
                memory::measure(run, &options.config, options.nanoseconds())
            };
            let row = Row {
                bench: "reordering",
                varied: vec![
                    ("wire", "memory".into()),
                    ("connections", connections.into()),
                    ("reordered", reordered.into()),
                ],
                what: format!("{reordered} % reordered, {connections} connections"),
                run: &run,
            };
            row.measure(options.repetitions, &cases, &mut steps, report)?;
        }
    }
    Ok(())
}

/// Checks, before anything is timed, that every byte arrives where it belongs; the cases that can be had.
fn checked(options: &Options, reordered: u32, report: &mut dyn Report) -> Result<Vec<Case>, Error> {
    let connections = options.connections.iter().copied().max().unwrap_or(1);
    let mut cases = Vec::new();
    for &case in &options.cases {
        report.progress(0, 1, &format!("compares every byte, {}", case.name()));
        let run = Run { case, connections, reordered, seed: options.seed };
        match memory::check(run, &options.config) {
            Ok(()) => cases.push(case),
            Err(Error::Sys(error)) if case == Case::KernelGro && error.is_permission() => {
                report.notice(&format!("no kernel_gro over the wire in memory: {error}"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(cases)
}

impl Options {
    fn nanoseconds(&self) -> u64 {
        u64::try_from(self.duration.as_nanos()).unwrap_or(u64::MAX)
    }

    fn check(&self) -> Result<(), Error> {
        let most = sender::MOST;
        if self.connections.iter().any(|n| !(1..=most).contains(n)) {
            return Err(Error::Usage(format!("there can be 1 to {most} connections")));
        }
        if self.repetitions == 0 {
            return Err(Error::Usage("there must be one repetition at least".to_owned()));
        }
        Ok(())
    }
}

/// How far the scenario is.
struct Steps {
    done: usize,
    total: usize,
}

impl Steps {
    fn new(rows: usize, options: &Options) -> Self {
        Steps { done: 0, total: rows * options.repetitions * options.cases.len() }
    }
}

impl Row<'_> {
    /// Runs all cases of the row and reports them.
    fn measure(
        &self,
        repetitions: usize,
        cases: &[Case],
        steps: &mut Steps,
        report: &mut dyn Report,
    ) -> Result<(), Error> {
        let mut outcomes: Vec<Vec<Measured>> = vec![Vec::new(); cases.len()];
        for _ in 0..repetitions {
            for (&case, outcomes) in cases.iter().zip(&mut outcomes) {
                steps.done += 1;
                report.progress(
                    steps.done,
                    steps.total,
                    &format!("{}, {}", self.what, case.name()),
                );
                outcomes.push((self.run)(case)?);
            }
        }
        for (&case, outcomes) in cases.iter().zip(&outcomes) {
            self.report(case, outcomes, report);
        }
        Ok(())
    }

    fn report(&self, case: Case, outcomes: &[Measured], report: &mut dyn Report) {
        let repeated: u64 = outcomes.iter().map(|run| run.repeated).sum();
        if repeated > 0 {
            let (what, case) = (&self.what, case.name());
            report.notice(&format!(
                "{what}, {case}: the receiver lost segments; senders went back {repeated} times"
            ));
        }
        let each = |value: fn(&Measured) -> Option<f64>| outcomes.iter().map(value).collect();
        let metrics: [(_, _, Option<Vec<f64>>); 4] = [
            ("throughput", "bit/s", each(|run| Some(run.throughput))),
            ("mean_aggregate", crate::figure::BYTES, each(|run| Some(run.mean_aggregate))),
            ("cpu_per_gigabyte", "s/GB", each(|run| Some(run.cpu_per_gigabyte))),
            ("worker_cpu_per_gigabyte", "s/GB", each(|run| run.worker_cpu_per_gigabyte)),
        ];
        for (metric, unit, samples) in metrics {
            let Some(samples) = samples else { continue };
            report.figure(Figure {
                bench: self.bench,
                case: case.name().to_owned(),
                system: case.system().to_owned(),
                varied: self.varied.clone(),
                metric,
                unit,
                value: median(samples.iter().copied()),
                samples,
            });
        }
    }
}

/// The middle value, or the mean of the middle two.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        len if len % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([5.0, 1.0, 9.0].into_iter()), 5.0);
        assert_eq!(median([4.0, 1.0, 2.0, 9.0].into_iter()), 3.0);
    }
}
