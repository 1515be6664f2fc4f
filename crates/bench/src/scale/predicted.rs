//! The [model](super::model) beside what was measured: its costs are of one worker, of two, and of two with the most
//! strays; what it says of two with fewer was measured, too. Then what it says of more workers behind a line.

use super::model::{self, Costs, Outcome, PAYLOAD, Setup, Spread};
use super::run::Outcome as Measured;
use super::{Options, Row};
use crate::throughput::median;
use crate::{Figure, Report};

/// Of the line and what is behind it, in nanoseconds.
const ROUND_TRIP: u64 = 50_000;
/// What flows may have in flight there, in packets: four times what fills a line of 100 Gb/s.
const WINDOW: u32 = 2_048;
/// Connections there, all together.
const CONNECTIONS: [usize; 2] = [1_024, 16_384];
/// How long the model runs, and before it counts, in nanoseconds.
const DURATION: u64 = 20_000_000;
const WARM_UP: u64 = 20_000_000;

/// Packets a second of all workers.
fn rate(outcomes: &[Measured]) -> f64 {
    median(outcomes.iter().map(Measured::total))
}

/// What a packet takes of a worker that does nothing else, in nanoseconds.
fn each(row: &Row, outcomes: &[Measured]) -> f64 {
    row.workers as f64 * 1e9 / rate(outcomes)
}

/// Costs as they were measured, if one and two workers were.
fn costs(rows: &[(Row, &[Measured])]) -> Option<Costs> {
    let of = |workers: usize| rows.iter().filter(move |(row, _)| row.workers == workers);
    let (alone, two) = (of(1).next()?, of(2).find(|(row, _)| row.strays == 0)?);
    let packet = each(&alone.0, alone.1);
    let shared = (each(&two.0, two.1) - packet).max(0.0);
    let most = of(2).max_by_key(|(row, _)| row.strays).filter(|(row, _)| row.strays > 0);
    let stray = most.map_or(0.0, |(row, measured)| {
        let share = median(measured.iter().map(|run| run.strays)) / 100.0;
        (each(row, measured) - packet - shared).max(0.0) / share.max(1e-9)
    });
    Some(Costs { packet, shared, stray })
}

/// Tells what the model says of each lane that was measured.
pub(super) fn report(options: &Options, all: &[(Row, &[Measured])], report: &mut dyn Report) {
    for &case in &options.cases {
        let rows: Vec<_> = all.iter().filter(|(row, _)| row.case == case).copied().collect();
        let Some(costs) = costs(&rows) else {
            report
                .notice("the model needs what two workers cost: --workers 2, and 0 among --strays");
            return;
        };
        for (row, measured) in rows.iter().filter(|(row, _)| row.workers > 1) {
            let strayed = median(measured.iter().map(|run| run.strays)) / 100.0;
            let setup = measured_setup(row, options.flows, costs, strayed);
            let said = model::run(setup, WARM_UP, DURATION);
            let metrics = [
                ("packets_per_second", "1/s", said.rate),
                ("times_measured", "", said.rate / rate(measured)),
            ];
            put(row, options.flows, &metrics, report);
        }
        for &workers in &options.model {
            for connections in CONNECTIONS {
                behind_line(options, Row { case, workers, strays: 0 }, costs, connections, report);
            }
        }
    }
}

/// As the wires in memory have it: senders that wait for nothing.
fn measured_setup(row: &Row, flows: usize, costs: Costs, strays: f64) -> Setup {
    Setup {
        workers: row.workers,
        flows: row.workers * flows,
        costs,
        strays,
        spread: Spread::Even,
        line: f64::INFINITY,
        round_trip: 0,
        window: 32,
        seed: 1,
    }
}

fn behind_line(
    options: &Options,
    row: Row,
    costs: Costs,
    connections: usize,
    report: &mut dyn Report,
) {
    let setup = Setup {
        workers: row.workers,
        flows: connections,
        costs,
        strays: 0.0,
        spread: Spread::Hashed,
        line: options.line,
        round_trip: ROUND_TRIP,
        window: WINDOW,
        seed: 1,
    };
    let Outcome { rate, busy, dropped, p99_wait } = model::run(setup, WARM_UP, DURATION);
    let mean = busy.iter().sum::<f64>() / busy.len() as f64;
    let most = busy.iter().copied().fold(0.0, f64::max);
    let metrics = [
        ("packets_per_second", "1/s", rate),
        ("throughput", "bit/s", rate * PAYLOAD * 8.0),
        ("busy_mean", "%", mean * 100.0),
        ("busy_most", "%", most * 100.0),
        ("dropped", "%", dropped * 100.0),
        ("p99_wait", "us", p99_wait / 1e3),
    ];
    put(&row, connections / row.workers, &metrics, report);
}

fn put(
    row: &Row,
    flows: usize,
    metrics: &[(&'static str, &'static str, f64)],
    report: &mut dyn Report,
) {
    for &(metric, unit, value) in metrics {
        report.figure(Figure {
            bench: "scale",
            case: row.case.name().to_owned(),
            system: "model".to_owned(),
            varied: row.varied(flows),
            metric,
            unit,
            value,
            samples: Vec::new(),
        });
    }
}
