//! What it takes to measure a figure: its points, how one of them is run, and how what comes out is
//! drawn and judged.

pub(super) mod gso;
pub(super) mod lro;

use std::time::Duration;

use nic::config::Config;

use crate::{Error, Report};

/// What a run of the evaluation is asked for.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// Runs of each case, of which the median counts; the cases take turns.
    pub repetitions: usize,
    /// How long each run is measured.
    pub duration: Duration,
    /// Fewer points.
    pub quick: bool,
    /// What scenarios draw random numbers from.
    pub seed: u64,
    /// wharf's settings.
    pub config: Config,
}

/// How a figure is measured. All cases of a point are run together, taking turns, by the scenario of
/// [`bench`](crate) that measures it otherwise, too.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What is varied along the figure.
    pub x: XAxis,
    /// What is measured.
    pub y: YAxis,
    /// What is compared at each point.
    pub series: Vec<Series>,
    /// All points of the x axis.
    pub points: Vec<u32>,
    /// Those of a quick run.
    pub quick: Vec<u32>,
    /// How a point is run.
    pub run: Run,
    /// How long a run takes beside the time that is measured.
    pub overhead: Duration,
    /// How long a run is measured at least.
    pub at_least: Duration,
    /// How what was measured is compared with what the paper claims.
    pub judge: Judge,
    /// What differs from the paper's experiment.
    pub differs: &'static str,
}

/// How a point is run.
#[derive(Clone, Copy, Debug)]
pub enum Run {
    /// The papers' throughput on LRO, at so many connections.
    LroThroughput(crate::throughput::WireKind),
    /// The papers' DMA load balance; the point is LRO off (0) or on (1).
    Starvation,
    /// A slide on GSO, with so many per cent of a CPU.
    GsoThroughput(crate::gso_throughput::Protocol),
}

/// What is varied along a figure.
#[derive(Clone, Debug)]
pub struct XAxis {
    /// What it is.
    pub label: &'static str,
    /// The unit of its numbers; empty for counts.
    pub unit: &'static str,
    /// How it is laid out.
    pub scale: Scale,
}

/// How an x axis is laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Numbers.
    Linear,
    /// Numbers that double.
    Log2,
    /// Names, of which points are the indices.
    Names(&'static [&'static str]),
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct YAxis {
    /// The metric of the scenario's figures.
    pub metric: &'static str,
    /// What it is.
    pub label: &'static str,
    /// Its unit in plots and words.
    pub unit: &'static str,
    /// What a value of the metric is multiplied by for that unit.
    pub factor: f64,
}

/// One of the things that are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Series {
    /// The case of the scenario's figures.
    pub case: &'static str,
    /// Its name in plots and words.
    pub label: &'static str,
}

/// How what was measured is compared with what the paper claims.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Judge {
    /// The case that the paper is about.
    pub subject: &'static str,
    /// The case without it, that it is measured against.
    pub baseline: &'static str,
    /// A case to name beside them: the kernel's own.
    pub peer: Option<&'static str>,
    /// The figure's one ratio.
    pub headline: Headline,
}

/// Which ratio stands for a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Headline {
    /// That at the last point: where a curve has become flat.
    Last,
    /// The best of all points, for a table.
    Best,
    /// The worst that the baseline does at any point; the subject should be whole (100 %) at all.
    Cure,
}

impl Scenario {
    /// The points that are asked for.
    pub fn points(&self, parameters: &Parameters) -> &[u32] {
        if parameters.quick { &self.quick } else { &self.points }
    }

    /// How long a point takes, as far as can be told beforehand.
    pub fn estimate(&self, parameters: &Parameters) -> Duration {
        let runs = u32::try_from(parameters.repetitions * self.series.len()).unwrap_or(u32::MAX);
        (parameters.duration.max(self.at_least) + self.overhead).saturating_mul(runs)
    }

    /// A point in words, such as `64 connections`.
    pub fn words(&self, point: u32) -> String {
        match self.x.scale {
            Scale::Names(names) => names.get(point as usize).copied().unwrap_or("?").to_owned(),
            _ if self.x.unit.is_empty() && point == 1 => {
                format!("1 {}", self.x.label.trim_end_matches('s'))
            }
            _ if self.x.unit.is_empty() => format!("{point} {}", self.x.label),
            _ => format!("{point} {} of a {}", self.x.unit, self.x.label),
        }
    }

    /// The label of a case.
    pub fn label(&self, case: &str) -> &'static str {
        self.series.iter().find(|series| series.case == case).map_or("?", |series| series.label)
    }

    /// Runs all cases at a point, with the repetitions that are asked for.
    ///
    /// # Errors
    /// As the scenario's own.
    pub fn run(
        &self,
        point: u32,
        parameters: &Parameters,
        report: &mut dyn Report,
    ) -> Result<(), Error> {
        match self.run {
            Run::LroThroughput(wire) => lro::run_throughput(wire, point, parameters, report),
            Run::Starvation => lro::run_starvation(point == 1, parameters, report),
            Run::GsoThroughput(protocol) => gso::run(protocol, point, parameters, report),
        }
    }
}
