//! degen, the paper on RDMA's emulator of a WAN.

use std::time::Duration;

use super::{Judge, Run, Scale, Scenario, Series, XAxis, YAxis};
use crate::degen::{Case, Options, degen};
use crate::paper::parameters::Parameters;
use crate::{Error, Report};

/// Frames a second in each direction.
const PACKETS_PER_SECOND: u32 = 100_000;

pub(in crate::paper) fn delay() -> Scenario {
    let series = |id, metric, label| Series { id, case: "delay", metric, label };
    Scenario {
        x: XAxis {
            label: "delay asked for",
            unit: "us",
            words: " us asked for",
            scale: Scale::Log10,
        },
        y: YAxis { label: "Off by", unit: "us", factor: 1.0, scale: Scale::Linear },
        series: vec![
            series("p50", "off_p50", "median packet"),
            series("p99", "off_p99", "99th percentile"),
            series("p999", "off_p999", "99.9th percentile"),
        ],
        points: vec![100, 1_000, 10_000, 100_000],
        quick: vec![1_000, 100_000],
        run: Run::Degen,
        // The kernel's namespaces, and those frames that are late.
        overhead: Duration::from_millis(900),
        at_least: Duration::ZERO,
        judge: Judge::Exact {
            subject: "p99",
            enough: 50,
            why: "a twentieth of a millisecond, in which the paper counts its delays",
        },
        differs: "The paper's degen is a router on a machine of its own; here two hosts and the bridge \
                  between them, with degen in it, share one machine, which sends and receives 100,000 \
                  frames a second in each direction meanwhile. degen runs in real time, on a CPU of its own \
                  and by AF_XDP where it may; between veths it takes AF_PACKET unless it is told \
                  otherwise, which is less exact. Where it has no time for that, frames \
                  wait for a CPU and not for degen. The paper does not say how exact its degen is.",
    }
}

pub(super) fn run(
    microseconds: u32,
    parameters: &Parameters,
    report: &mut dyn Report,
) -> Result<(), Error> {
    let options = Options {
        cases: vec![Case::Delay(u64::from(microseconds) * 1_000)],
        packets_per_second: PACKETS_PER_SECOND,
        duration: parameters.duration,
        // Of what is counted and not timed, which is not asked for.
        packets: 0,
        repetitions: parameters.repetitions,
        seed: parameters.seed,
        mode: Options::best_mode(),
        awake: false,
    };
    degen(&options, report)
}
