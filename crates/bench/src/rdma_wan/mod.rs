//! `rdma-wan`: the measurements of "Performance Evaluation of RDMA over IP" on its testbed: a node, a router with degen
//! in it, and a node, each a network namespace. Verbs by `wharf rdma` beside the kernel's TCP sockets.
//!
//! Programs poll where they wait, and give way to others of their CPU meanwhile. [`Placement`] says which CPU has what.

mod case;
mod measured;
mod placement;
mod testbed;

use std::path::PathBuf;
use std::time::Duration;

use nic::config::WireMode;

pub use case::{By, Carrier, Case, Placement};

use crate::throughput::median;
use crate::{Error, Figure, Report, peers};
use measured::{Reading, ratio, slowdown, value};
use placement::Cpus;
use testbed::{Ready, Task};

/// Clients of the case `cpu` (section 4.4).
pub const CLIENTS: u32 = 40;

/// What is measured, and how. What is left empty is as the case has it.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is measured.
    pub cases: Vec<Case>,
    /// Sizes of messages, in bytes.
    pub bytes: Vec<u32>,
    /// What degen delays packets by in each direction, in milliseconds.
    pub delays: Vec<u32>,
    /// Computation of the client between ping and pong (`overlap`), load of the remote node (`progress`) or the
    /// computation beside the clients (`cpu`), in microseconds.
    pub times: Vec<u32>,
    /// Where what computes is.
    pub placements: Vec<Placement>,
    /// What degen does beside delaying, in both directions: keys of its settings and their values.
    pub path: Vec<(String, String)>,
    /// What carries the bytes of verbs.
    pub carrier: Carrier,
    /// How long each run is measured, if it is no computation.
    pub duration: Duration,
    /// Runs of which the median counts.
    pub repetitions: usize,
    /// Where chance begins in degen; each repetition goes on from there.
    pub seed: u64,
    /// What degen's frames come and go by.
    pub mode: WireMode,
    /// `libwharf_rdma.so`.
    pub library: PathBuf,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
struct Point {
    case: Case,
    bytes: u32,
    delay: u32,
    time: u32,
}

/// What is compared at a point, with the readings of each repetition.
#[derive(Debug)]
struct Compared {
    by: By,
    placement: Placement,
    runs: Vec<Vec<Reading>>,
}

/// Measures every case of `options`, at all points that it asks for.
///
/// # Errors
/// What the kernel says; the program of verbs cannot be built, or fails.
pub fn rdma_wan(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    if options.repetitions == 0 || options.cases.is_empty() {
        return Err(Error::Usage("there must be a case and a repetition at least".to_owned()));
    }
    let Some(cpus) = Cpus::here()? else {
        report.notice("all of it is left out: two nodes need two CPUs");
        return Ok(());
    };
    let program = peers::rdma_wan().map_err(Error::Usage)?;
    let ready = Ready::new(options, program, cpus)?;
    let points: Vec<Point> = options.cases.iter().flat_map(|case| options.points(*case)).collect();
    for (done, point) in points.iter().enumerate() {
        point.measure(&ready, (done, points.len()), report)?;
    }
    Ok(())
}

impl Options {
    /// All combinations of what is varied.
    fn points(&self, case: Case) -> Vec<Point> {
        let or = |given: &[u32], usual: &[u32]| match given {
            [] => usual.to_vec(),
            _ => given.to_vec(),
        };
        let delays = match case {
            // There is no router.
            Case::Lan => vec![0],
            _ => or(&self.delays, &[0]),
        };
        let times = match case.times() {
            [] => vec![0],
            usual => or(&self.times, usual),
        };
        let mut points = Vec::new();
        for &bytes in &or(&self.bytes, case.bytes()) {
            for &delay in &delays {
                points.extend(times.iter().map(|&time| Point { case, bytes, delay, time }));
            }
        }
        points
    }

    fn placements(&self, case: Case) -> Vec<Placement> {
        let usual = case.placements();
        let asked = usual.iter().filter(|one| self.placements.contains(one)).copied();
        match &self.placements[..] {
            [] => usual.to_vec(),
            // Where nothing computes there is one placement.
            _ if usual.len() == 1 => usual.to_vec(),
            _ => asked.collect(),
        }
    }

    fn path_words(&self) -> String {
        let words = self.path.iter().map(|(key, value)| format!("{key}={value}"));
        words.collect::<Vec<_>>().join(",")
    }
}

impl Point {
    fn title(&self) -> String {
        format!("{}, {} bytes, {} ms, {} us", self.case.name(), self.bytes, self.delay, self.time)
    }

    /// Runs all that is compared in turns.
    fn measure(
        &self,
        ready: &Ready<'_>,
        (done, all): (usize, usize),
        report: &mut dyn Report,
    ) -> Result<(), Error> {
        let options = ready.options;
        let mut compared: Vec<Compared> = Vec::new();
        for placement in options.placements(self.case) {
            let of = |&by: &By| Compared { by, placement, runs: Vec::new() };
            compared.extend(self.case.by().iter().map(of));
        }
        for repetition in 0..options.repetitions {
            let seed = options.seed + repetition as u64;
            let mut unloaded: Vec<(Placement, f64)> = Vec::new();
            let idle = match self.case {
                Case::Cpu => Some(ready.alone(self.time)?),
                _ => None,
            };
            for one in &mut compared {
                let step = done * options.repetitions + repetition;
                let what = format!("{}, {}", self.title(), one.by.name());
                report.progress(step, all * options.repetitions, &what);
                let task = Task { point: *self, by: one.by, placement: one.placement, seed };
                let mut readings = ready.measure(&task)?;
                if let Some(idle) = idle {
                    readings.extend(slowdown(&readings, idle));
                }
                // RDMA read from a node that is idle, in the same repetition.
                if (self.case, one.by) == (Case::Progress, By::Rdma) {
                    let beside = match self.time {
                        0 => value(&readings, "fetch"),
                        _ => {
                            let idle = Task { point: Point { time: 0, ..*self }, ..task };
                            value(&ready.measure(&idle)?, "fetch")
                        }
                    };
                    unloaded.extend(beside.map(|beside| (one.placement, beside)));
                }
                if let Some((_, beside)) = unloaded.iter().find(|it| it.0 == one.placement) {
                    readings.extend(ratio(&readings, "fetch", *beside));
                }
                one.runs.push(readings);
            }
        }
        compared.iter().for_each(|one| self.report(one, options, report));
        Ok(())
    }

    /// Reports the median of each metric.
    fn report(&self, compared: &Compared, options: &Options, report: &mut dyn Report) {
        let Compared { by, placement, runs } = compared;
        let Some(first) = runs.first() else { return };
        for Reading { metric, unit, .. } in first {
            let samples: Vec<f64> = runs.iter().filter_map(|run| value(run, metric)).collect();
            report.figure(Figure {
                bench: "rdma-wan",
                case: self.case.name().to_owned(),
                system: by.system().to_owned(),
                varied: vec![
                    ("by", by.name().into()),
                    ("placement", placement.name().into()),
                    ("bytes", self.bytes.into()),
                    ("delay_ms", self.delay.into()),
                    ("time_us", self.time.into()),
                    ("path", options.path_words().into()),
                    ("carrier", options.carrier.name().into()),
                ],
                metric,
                unit,
                value: median(samples.iter().copied()),
                samples,
            });
        }
    }
}
