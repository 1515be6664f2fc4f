//! What it takes to measure a figure: its points, how one of them is run, and how what comes out is
//! drawn and judged.

pub(super) mod degen;
pub(super) mod gso;
pub(super) mod handoff;
pub(super) mod instructions;
pub(super) mod lro;
pub(super) mod rdma;
pub(super) mod web;

use std::collections::BTreeSet;
use std::time::Duration;

use super::parameters::Parameters;
use super::store::Row;
use crate::handoff::Case;
use crate::{Error, Report};

/// The series of published values that say how much is saved.
pub(super) const SAVED: &str = "saved";

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
    /// A delay of so many microseconds by degen.
    Degen,
    /// What a packet costs with connections at the OS and at the NIC; the point is the mix, or a web server's load.
    Packet,
    /// Instructions a packet with so many connections at the NIC.
    Instructions,
    /// What a packet costs the host's own stack; the point is how that is set up.
    Stack,
    /// A web server; the point is how it is loaded.
    Web,
    /// The same with policies; the point is how it is loaded.
    Policies,
    /// RDMA beside sockets on its paper's testbed; the point is what is varied.
    RdmaWan(crate::rdma_wan::Case, rdma::Varied),
}

/// What is varied along a figure.
#[derive(Clone, Debug)]
pub struct XAxis {
    /// What it is.
    pub label: &'static str,
    /// The unit of its numbers; empty for counts.
    pub unit: &'static str,
    /// What stands behind a number to make it a point in words: ` connections`.
    pub words: &'static str,
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
    /// Powers of ten.
    Log10,
    /// Names, of which points are the indices.
    Names(&'static [&'static str]),
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct YAxis {
    /// What it is.
    pub label: &'static str,
    /// Its unit in plots and words.
    pub unit: &'static str,
    /// What a value of a series' metric is multiplied by for that unit.
    pub factor: f64,
    /// How it is laid out; not by names.
    pub scale: Scale,
}

/// One of the things that are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Series {
    /// What it is known by here.
    pub id: &'static str,
    /// The case of the scenario's figures.
    pub case: &'static str,
    /// The metric of these.
    pub metric: &'static str,
    /// Its name in plots and words.
    pub label: &'static str,
}

/// How what was measured is compared with what the paper claims. Series go by their ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judge {
    /// The ratio of the two.
    Ratio {
        /// What the paper is about.
        subject: &'static str,
        /// The same without it.
        baseline: &'static str,
        /// What to name beside them: the kernel's own.
        peer: Option<&'static str>,
        /// The figure's one ratio.
        headline: Headline,
    },
    /// By whether one is whole (100 %) at all points where the other is not.
    Cure {
        /// What the paper does.
        subject: &'static str,
        /// What it did before.
        baseline: &'static str,
    },
    /// By how much less there is of one than of the other, in per cent. Published values say it by the series `saved`.
    Saved {
        /// What the paper is about.
        subject: &'static str,
        /// The same without it.
        baseline: &'static str,
    },
    /// By how many times as much there is at one point as at another, the first for the figure.
    Steps {
        /// What is judged.
        subject: &'static str,
        /// From which point to which.
        steps: &'static [(u32, u32)],
        /// What of it is told beside that, of other series, from which point to which.
        parts: &'static [(&'static str, (u32, u32))],
    },
    /// By how many times as long one takes as the other, where that is most.
    Times {
        /// What the paper is about.
        subject: &'static str,
        /// What it is compared with.
        baseline: &'static str,
        /// What to name beside them.
        peer: Option<&'static str>,
        /// How much longer is as long, in per cent, if that is asked for. Where the baseline itself takes that much
        /// longer in one of its repetitions, so may the subject.
        most: Option<u32>,
    },
    /// By the point from which each of some takes less time than another.
    Crossover {
        /// What may take less.
        subjects: [&'static str; 2],
        /// What takes less before.
        baseline: &'static str,
    },
    /// By how far a time is off, in microseconds, where it is off most.
    Exact {
        /// The series that is judged.
        subject: &'static str,
        /// What is exact enough.
        enough: u32,
        /// Why.
        why: &'static str,
    },
    /// By how much there is at the last point of what the paper has a number of for all.
    Published {
        /// What is judged; the first stands for the figure.
        subjects: &'static [&'static str],
    },
}

/// Which ratio stands for a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Headline {
    /// That at the last point: where a curve has become flat.
    Last,
    /// The best of all points, for a table.
    Best,
    /// The worst of all points, for what is never to be a loss.
    Worst,
}

impl Series {
    /// One that is a case's only one.
    pub(super) const fn of(case: &'static str, metric: &'static str, label: &'static str) -> Self {
        Series::new(case, case, metric, label)
    }

    pub(super) const fn new(
        id: &'static str,
        case: &'static str,
        metric: &'static str,
        label: &'static str,
    ) -> Self {
        Series { id, case, metric, label }
    }
}

impl Scenario {
    /// The points that are asked for.
    pub fn points(&self, parameters: &Parameters) -> &[u32] {
        if parameters.quick { &self.quick } else { &self.points }
    }

    /// How long a point takes, as far as is known beforehand.
    pub fn estimate(&self, parameters: &Parameters) -> Duration {
        let cases: BTreeSet<&str> = self.series.iter().map(|series| series.case).collect();
        let runs = u32::try_from(parameters.repetitions * cases.len()).unwrap_or(u32::MAX);
        (parameters.duration.max(self.at_least) + self.overhead).saturating_mul(runs)
    }

    /// A point in words, such as `64 connections`.
    pub fn words(&self, point: u32) -> String {
        match self.x.scale {
            Scale::Names(names) => names.get(point as usize).copied().unwrap_or("?").to_owned(),
            _ if point == 1 => format!("1{}", self.x.words.trim_end_matches('s')),
            _ => format!("{point}{}", self.x.words),
        }
    }

    /// The series with that id.
    pub fn series(&self, id: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.id == id)
    }

    /// The value of each repetition of a series at a point, in the unit of the y axis.
    pub fn samples(&self, row: &Row, id: &str) -> Option<Vec<f64>> {
        let series = self.series(id)?;
        let samples = row.samples(series.case, series.metric)?;
        Some(samples.into_iter().map(|value| value * self.y.factor).collect())
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
            Run::Degen => degen::run(point, parameters, report),
            Run::Packet => handoff::run(point, parameters, report),
            Run::Instructions => instructions::run(point, parameters, report),
            Run::Web => handoff::run_web(Case::Web, point, parameters, report),
            Run::Policies => handoff::run_web(Case::Policies, point, parameters, report),
            Run::RdmaWan(case, varied) => rdma::run((case, varied), point, parameters, report),
            Run::Stack => handoff::run_stack(point, parameters, report),
        }
    }
}
