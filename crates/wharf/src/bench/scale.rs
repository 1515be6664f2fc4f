//! `wharf bench scale`.

use std::time::Duration;

use bench::scale::{self, Case, Options};
use clap::Args;

use super::report::Printer;
use super::values::{self, named};
use crate::args::{Settings, seconds};
use crate::error::Error;
use crate::settings;

/// Workers beside each other: packets a second of 1, 2, ... workers, as far as the CPUs go
///
/// Each worker has a CPU and a wire in memory of its own, with flows of its own. host: LRO, and a host that
/// discards; these workers share nothing but the machine. engine: wharf's own TCP, whose workers share its
/// addresses. scaling is what they do together, of what one does alone times their number;
/// cpu_per_packet has the senders in it, which are in the worker's thread. Keep the machine quiet
/// meanwhile. With --model, rows of the system `model` follow: what a model in virtual time, with the costs just
/// measured, says of the same workers, and of more behind a fast line.
#[derive(Debug, Args)]
#[command(after_help = "Example: what it costs that packets come by another worker's queue:\n  \
                        wharf bench scale --case engine --strays 0,10,50\n\
                        Example: what 1, 8 and 64 workers would do with 100 Gb/s:\n  \
                        wharf bench scale --workers 2 --strays 0,10,50 --model 1,8,64")]
pub(crate) struct BenchScaleArgs {
    /// The lane: host, engine [default: both]
    #[arg(long = "case", value_name = "CASE,...", value_delimiter = ',', value_parser = case)]
    cases: Vec<Case>,
    /// Workers at most; without it as many as there are CPUs, and 8 at most. More than CPUs share them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: Option<u32>,
    /// TCP connections of each worker
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=16_384))]
    connections: u32,
    /// Per cent of the packets that come by another worker's queue, so that they go on to their own by a ring; of
    /// the engine's
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', default_value = "0",
          value_parser = clap::value_parser!(u32).range(0..=100))]
    strays: Vec<u32>,
    /// Numbers of workers of which a model says what they would do
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=64))]
    model: Vec<u32>,
    /// Gb/s of the model's line
    #[arg(long, value_name = "GBPS", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    line: u32,
    /// How long each run is measured; without it 1, with --quick 0.1
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Runs of which the median is shown; without it 5, with --quick 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    repetitions: Option<u32>,
    /// Fewer, shorter runs
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    settings: Settings,
}

/// Most workers, unless more are asked for.
const WORKERS: usize = 8;

pub(super) fn run(args: &BenchScaleArgs, printer: &mut Printer) -> Result<(), Error> {
    let duration = Duration::from_millis(if args.quick { 100 } else { 1_000 });
    let duration = args.seconds.unwrap_or(duration);
    let workers = args.workers.map(|n| n as usize);
    let options = Options {
        cases: values::or(&args.cases, &Case::ALL),
        workers: workers.unwrap_or_else(|| sys::affinity::count().min(WORKERS)),
        flows: args.connections as usize,
        strays: args.strays.clone(),
        warm_up: duration / 4,
        duration,
        model: args.model.iter().map(|n| *n as usize).collect(),
        line: args.line.into(),
        repetitions: args.repetitions.unwrap_or(if args.quick { 1 } else { 5 }) as usize,
        config: settings::load(&args.settings)?,
    };
    Ok(scale::scale(&options, printer)?)
}

fn case(text: &str) -> Result<Case, String> {
    named(text, &Case::ALL, Case::name)
}
