//! `degen`: whether what degen adds is what was asked for.
//!
//! Two hosts stand on either side of a bridge with degen in it, each a network namespace. Frames carry
//! the time at which they were sent; the kernel stamps them when it receives them, so that what waits
//! for a CPU at the receiver is not measured. TCP is two kernels'.

mod case;
mod stream;
mod tcp;
mod wan;

use std::time::Duration;

use nic::config::{Choice, WireMode};
use serde_json::Value;

pub use case::Case;

use crate::throughput::median;
use crate::{Error, Figure, Report};
use case::Measured;

/// What is measured, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is asked of degen.
    pub cases: Vec<Case>,
    /// Frames a second in each direction, for delays.
    pub packets_per_second: u32,
    /// How long a delay, and TCP, are measured.
    pub duration: Duration,
    /// Frames in each direction, for all that is counted.
    pub packets: u64,
    /// Runs of which the median is shown.
    pub repetitions: usize,
    /// Where chance begins; each repetition goes on from there.
    pub seed: u64,
    /// What degen's frames come and go by.
    pub mode: WireMode,
    /// Whether degen's thread stays awake.
    pub awake: bool,
}

impl Options {
    /// AF_XDP, which costs degen less, where this process may use it.
    pub fn best_mode() -> WireMode {
        if sys::process::has_bpf() { WireMode::Xdp } else { WireMode::Packet }
    }
}

/// Runs it.
///
/// # Errors
/// What the kernel says.
pub fn degen(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    if options.repetitions == 0 || options.cases.is_empty() {
        return Err(Error::Usage("there must be a case and a repetition at least".to_owned()));
    }
    let total = options.cases.len() * options.repetitions;
    let mut outcomes: Vec<Vec<Measured>> = vec![Vec::new(); options.cases.len()];
    for repetition in 0..options.repetitions {
        for (number, case) in options.cases.iter().enumerate() {
            let done = repetition * options.cases.len() + number;
            report.progress(done, total, &case.words());
            outcomes[number].push(case.measure(options, options.seed + repetition as u64)?);
        }
    }
    for (case, outcomes) in options.cases.iter().zip(&outcomes) {
        report_case(case, outcomes, options, report);
    }
    Ok(())
}

/// Reports the runs of one case: all have measured the same metrics.
fn report_case(case: &Case, outcomes: &[Measured], options: &Options, report: &mut dyn Report) {
    let Some(first) = outcomes.first() else { return };
    warn(case, outcomes, options, report);
    for (at, (metric, unit, _)) in first.iter().enumerate() {
        let samples: Vec<f64> = outcomes.iter().map(|run| run[at].2).collect();
        report.figure(Figure {
            bench: "degen",
            case: case.name().to_owned(),
            system: "wharf".to_owned(),
            varied: vec![
                ("port", Value::from(options.mode.name())),
                ("awake", Value::from(options.awake)),
                ("asked", Value::from(case.asked())),
            ],
            metric,
            unit,
            value: median(samples.iter().copied()),
            samples,
        });
    }
}

/// Warns where something else was measured than what was asked for.
fn warn(case: &Case, outcomes: &[Measured], options: &Options, report: &mut dyn Report) {
    let runs = |name: &str| -> Vec<f64> {
        let values = outcomes.iter().flatten().filter(|(metric, ..)| *metric == name);
        values.map(|(.., value)| *value).collect()
    };
    let least = |values: &[f64]| values.iter().copied().reduce(f64::min);
    if let Some(arrived) = least(&runs("arrived")).filter(|arrived| *arrived < 99.9) {
        let case = case.words();
        report.notice(&format!("{case}: {arrived:.1} % of the frames arrived, at the least"));
    }
    let asked = f64::from(options.packets_per_second);
    if let Some(rate) = least(&runs("packets_per_second")).filter(|rate| *rate < 0.99 * asked) {
        report.notice(&format!(
            "{}: {rate:.0} frames a second in each direction, at the least, of {asked} asked for",
            case.words()
        ));
    }
}
