//! `scale`: what several workers do together, beside what one does alone.
//!
//! Each worker is on a thread and a CPU of its own and has a wire in memory, whose senders cost little, with flows
//! of its own. Workers with a host's lane share nothing but the machine; workers with an engine share its addresses,
//! and with them the index that says whose a packet is, and the rings by which strays go to their owners.

mod board;
mod flow;
mod model;
mod predicted;
mod run;
mod wire;

use std::time::Duration;

use nic::config::Config;
use serde_json::Value;

use self::run::Outcome;
use self::wire::Plan;
use crate::throughput::median;
use crate::{Error, Figure, Report};

/// Most workers.
pub const WORKERS_MAX: usize = 64;
/// Most flows of each.
pub const FLOWS_MAX: usize = 16_384;

/// The lane that the packets go to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Case {
    /// The host's: LRO, and a host that discards what it is given.
    Host,
    /// The engine's: LRO, wharf's own TCP, and a service that reads and discards.
    Engine,
}

impl Case {
    /// Every one.
    pub const ALL: [Case; 2] = [Case::Host, Case::Engine];

    /// Its name in the figures' `case`.
    pub const fn name(self) -> &'static str {
        match self {
            Case::Host => "host",
            Case::Engine => "engine",
        }
    }
}

/// What is measured, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Lanes.
    pub cases: Vec<Case>,
    /// Workers at most; all numbers from 1 on are measured.
    pub workers: usize,
    /// Flows of each worker.
    pub flows: usize,
    /// Per cent of the packets that come by another worker's queue, one round each, for [`Case::Engine`].
    pub strays: Vec<u32>,
    /// How long each run goes before it is measured.
    pub warm_up: Duration,
    /// How long it is measured.
    pub duration: Duration,
    /// Rounds of which the median is shown. In each, all numbers of workers take turns.
    pub repetitions: usize,
    /// What a model says of so many workers behind a line, from what was measured; empty for no model.
    pub model: Vec<usize>,
    /// Of that line, in bits per nanosecond.
    pub line: f64,
    /// wharf's settings.
    pub config: Config,
}

/// Runs it.
///
/// # Errors
/// What the operating system says, numbers that cannot be, or that a worker did not do what it should.
pub fn scale(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    options.check()?;
    let cpus = sys::affinity::cpus().map_err(crate::sink::io("list the CPUs"))?;
    if options.workers > cpus.len() {
        report.notice(&format!(
            "{} workers share {} CPUs: what they do together says nothing about scaling",
            options.workers,
            cpus.len()
        ));
    }
    let rows = options.rows();
    let total = rows.len() * options.repetitions;
    let mut outcomes: Vec<Vec<Outcome>> = rows.iter().map(|_| Vec::new()).collect();
    for round in 0..options.repetitions {
        for (at, (row, outcomes)) in rows.iter().zip(&mut outcomes).enumerate() {
            report.progress(round * rows.len() + at, total, &row.words());
            let time = (options.warm_up, options.duration);
            outcomes.push(run::run(row.plan(options.flows), &cpus, &options.config, time)?);
        }
    }
    for (row, own) in rows.iter().zip(&outcomes) {
        let alone = rows.iter().zip(&outcomes).find(|(other, _)| other.is_alone_of(row));
        let alone = alone.map_or(&[][..], |(_, outcomes)| outcomes);
        row.report(own, alone, options.flows, report);
    }
    if !options.model.is_empty() {
        let all: Vec<_> = rows.into_iter().zip(outcomes.iter().map(Vec::as_slice)).collect();
        predicted::report(options, &all, report);
    }
    Ok(())
}

impl Options {
    fn check(&self) -> Result<(), Error> {
        let wrong = |what: String| Err(Error::Usage(what));
        if !(1..=WORKERS_MAX).contains(&self.workers) {
            return wrong(format!("there can be 1 to {WORKERS_MAX} workers"));
        }
        if !(1..=FLOWS_MAX).contains(&self.flows) {
            return wrong(format!("there can be 1 to {FLOWS_MAX} connections a worker"));
        }
        if self.strays.iter().any(|percent| *percent > 100) {
            return wrong("strays are 0 to 100 per cent".to_owned());
        }
        if self.model.iter().any(|workers| !(1..=WORKERS_MAX).contains(workers)) {
            return wrong(format!("the model is of 1 to {WORKERS_MAX} workers"));
        }
        if !(self.line > 0.0 && self.line.is_finite()) {
            return wrong("the line's rate must be above 0".to_owned());
        }
        if self.strays.is_empty() || self.repetitions == 0 || self.cases.is_empty() {
            return wrong("there must be one case, share and repetition at least".to_owned());
        }
        Ok(())
    }

    /// What is measured. A worker alone has no strays.
    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for &case in &self.cases {
            rows.push(Row { case, workers: 1, strays: 0 });
            let shares = if case == Case::Engine { &self.strays[..] } else { &[0] };
            for workers in 2..=self.workers {
                rows.extend(shares.iter().map(|&strays| Row { case, workers, strays }));
            }
        }
        rows
    }
}

/// What is measured together.
#[derive(Clone, Copy, Debug)]
struct Row {
    case: Case,
    workers: usize,
    strays: u32,
}

impl Row {
    fn words(self) -> String {
        format!("{}, {} workers, {} % strays", self.case.name(), self.workers, self.strays)
    }

    fn plan(self, flows: usize) -> Plan {
        let engine = self.case == Case::Engine;
        Plan { workers: self.workers, flows, engine, strays: self.strays }
    }

    fn is_alone_of(self, other: &Row) -> bool {
        self.case == other.case && self.workers == 1
    }

    fn varied(self, flows: usize) -> Vec<(&'static str, Value)> {
        let mut varied = vec![("workers", self.workers.into()), ("connections", flows.into())];
        if self.case == Case::Engine {
            varied.push(("strays", self.strays.into()));
        }
        varied
    }

    /// The figures of all rounds, and their ratio to those of one worker `alone`, round by round.
    fn report(self, own: &[Outcome], alone: &[Outcome], flows: usize, report: &mut dyn Report) {
        let sum = |of: fn(&Outcome) -> u64| -> u64 { own.iter().map(of).sum() };
        let (dropped, repeated) = (sum(|run| run.dropped), sum(|run| run.repeated));
        if dropped + repeated > 0 {
            let words = self.words();
            report.notice(&format!(
                "{words}: {dropped} strays found no room, and flows went back {repeated} times"
            ));
        }
        let varied = self.varied(flows);
        let each = |of: fn(&Outcome) -> f64| -> Vec<f64> { own.iter().map(of).collect() };
        let workers = self.workers as f64;
        let least = |run: &Outcome| run.workers.iter().copied().fold(f64::INFINITY, f64::min);
        let ratio = |(own, alone): (&Outcome, &Outcome)| own.total() / (workers * alone.total());
        let mut metrics = vec![
            ("packets_per_second", "1/s", each(Outcome::total)),
            ("worker_mean", "1/s", own.iter().map(|run| run.total() / workers).collect()),
            ("worker_least", "1/s", each(least)),
            ("scaling", "", own.iter().zip(alone).map(ratio).collect()),
            ("cpu_per_packet", "ns", each(|run| run.cpu)),
        ];
        if self.case == Case::Engine {
            metrics.push(("strayed", "%", each(|run| run.strays)));
        }
        for (metric, unit, samples) in metrics {
            report.figure(Figure {
                bench: "scale",
                case: self.case.name().to_owned(),
                system: "wharf".to_owned(),
                varied: varied.clone(),
                metric,
                unit,
                value: median(samples.iter().copied()),
                samples,
            });
        }
    }
}
