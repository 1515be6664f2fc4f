//! The slides' four tables.

use std::time::Duration;

use super::{Headline, Judge, Run, Scale, Scenario, Series, XAxis, YAxis};
use crate::gso_throughput::{self, Case, Protocol, gso_throughput};
use crate::paper::parameters::Parameters;
use crate::{Error, Report};

/// What each of the slides' frequencies, 2.93 to 0.45 GHz, is of the highest, in per cent. A bound
/// on CPU time stands in for it here.
pub(in crate::paper) const CPU_PERCENTS: [u32; 6] = [100, 86, 68, 50, 36, 15];

pub(in crate::paper) fn throughput(protocol: Protocol) -> Scenario {
    let all = [
        Series::of("none", "throughput", "none"),
        Series::of("gso", "throughput", "GSO"),
        Series::of("kernel", "throughput", "kernel's GSO"),
        Series::of("tso", "throughput", "TSO"),
    ];
    let has =
        |series: &Series| Case::ALL.iter().any(|c| c.name() == series.case && protocol.has(*c));
    Scenario {
        x: XAxis { label: "CPU", unit: "%", words: " % of a CPU", scale: Scale::Linear },
        y: YAxis { label: "Throughput", unit: "Gb/s", factor: 1e-9, scale: Scale::Linear },
        series: all.into_iter().filter(has).collect(),
        points: CPU_PERCENTS.to_vec(),
        quick: vec![100, 36],
        run: Run::GsoThroughput(protocol),
        overhead: Duration::from_millis(700),
        at_least: Duration::ZERO,
        judge: Judge::Ratio {
            subject: "gso",
            baseline: "none",
            peer: protocol.has(Case::Kernel).then_some("kernel"),
            headline: Headline::Best,
        },
        differs: "The slides lower the frequency of the sender's CPU, with a 10 Gb/s card that is the \
                  bound at the upper end; here sender and wharf share a part of one core's time, and a \
                  veth bounds nothing. The slides' cases meet in one kernel; here every packet of none \
                  and kernel's GSO also crosses the TAP between the kernel and wharf. TSO is a veth's, \
                  which copies nothing and cuts nothing.",
    }
}

pub(super) fn run(
    protocol: Protocol,
    cpu_percent: u32,
    parameters: &Parameters,
    report: &mut dyn Report,
) -> Result<(), Error> {
    let options = gso_throughput::Options {
        cases: Case::ALL.to_vec(),
        protocols: vec![protocol],
        cpu_percents: vec![cpu_percent],
        duration: parameters.duration,
        repetitions: parameters.repetitions,
        config: parameters.config.clone(),
    };
    gso_throughput(&options, report)
}
