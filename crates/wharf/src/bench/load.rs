//! `wharf bench load`.

use std::path::PathBuf;
use std::time::Duration;

use bench::load::{self, Case, Options, System};
use clap::Args;

use super::report::Printer;
use super::runs;
use super::values::named;
use crate::args::{Settings, seconds};
use crate::error::Error;

/// A host at the edges of its work, behind wharf and as the bare kernel
///
/// connections: it receives over so many TCP connections. send: it sends over them. reordering: it
/// receives over 8 through degen, which displaces packets. request_response: it answers one byte at a
/// time; cpus says whether the kernel places client, wharf and server (free), wharf and server share
/// a CPU (two), or each has its own (each). udp: it receives datagrams of 1,448 bytes at 1 Gb/s into a
/// socket with default buffers. redis: one client's GETs a second, where redis is installed.
///
/// CPU time is that of client, server and wharf together; worker_cpu_per_gigabyte is wharf's part of it.
/// longest_silence is the longest time in which a connection received nothing, least_share the least
/// that one received, of its equal share. Keep the machine quiet meanwhile.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: everything, about forty minutes, with a drawing of cost against connections:\n  \
                        wharf bench load --json --plot cost.svg > load.jsonl\n\n\
                        Example: is it worth it for a thousand connections?\n  \
                        wharf bench load --case connections --connections 1000 --repetitions 3"
)]
pub(crate) struct BenchLoadArgs {
    /// What is measured: connections, send, reordering, request_response, udp, redis [default: all]
    #[arg(long = "case", value_name = "CASE,...", value_delimiter = ',', value_parser = case)]
    cases: Vec<Case>,
    /// Who receives: wharf, kernel
    #[arg(long = "system", value_name = "SYSTEM,...", value_delimiter = ',',
          default_value = "wharf,kernel", value_parser = system)]
    systems: Vec<System>,
    /// Numbers of connections to receive over; with --quick 1,64
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=28_000))]
    connections: Option<Vec<u32>>,
    /// Numbers of connections to send over; with --quick 8
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=28_000))]
    senders: Option<Vec<u32>>,
    /// Per cent of the client's packets that are displaced; with --quick 0,10
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(0..=100))]
    reordered: Option<Vec<u32>>,
    /// Most threads of each host's application, which share its connections
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=4_096))]
    threads: u32,
    /// Packets that may wait at the client's end of the wire until it has room, as at a card; without it what a
    /// veth has no room for (256 frames) is dropped
    #[arg(long, value_name = "PACKETS", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    wire_queue: u32,
    /// How long each run is measured; without it 10, with --quick 0.5
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Runs of which the median is shown; without it 5, with --quick 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    repetitions: Option<u32>,
    /// Fewer, shorter runs
    #[arg(long)]
    quick: bool,
    /// Draw CPU time a gigabyte against the number of connections into this file (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

const CONNECTIONS: [u32; 7] = [1, 8, 64, 256, 1_000, 4_000, 16_000];
const SENDERS: [u32; 3] = [1, 8, 64];
const REORDERED: [u32; 4] = [0, 1, 10, 30];

pub(super) fn run(args: &BenchLoadArgs, printer: &mut Printer) -> Result<(), Error> {
    let quick = |all: &[u32], few: &[u32]| if args.quick { few.to_vec() } else { all.to_vec() };
    let numbers = |given: &Option<Vec<u32>>, all: &[u32], few: &[u32]| {
        given.clone().unwrap_or_else(|| quick(all, few))
    };
    let counts = |numbers: Vec<u32>| numbers.into_iter().map(|n| n as usize).collect();
    let options = Options {
        cases: super::values::or(&args.cases, &Case::ALL),
        systems: args.systems.clone(),
        connections: counts(numbers(&args.connections, &CONNECTIONS, &[1, 64])),
        senders: counts(numbers(&args.senders, &SENDERS, &[8])),
        displaced: numbers(&args.reordered, &REORDERED, &[0, 10]),
        threads: args.threads as usize,
        wire_queue: args.wire_queue,
        duration: args.seconds.unwrap_or(Duration::from_millis(if args.quick {
            500
        } else {
            10_000
        })),
        repetitions: args.repetitions.unwrap_or(if args.quick { 1 } else { 5 }) as usize,
        config: runs::prepare(&args.settings)?,
    };
    if let Some(file) = &args.plot {
        plot::check(file, &options)?;
    }
    load::load(&options, printer)?;
    match &args.plot {
        Some(file) => plot::write(file, printer.figures()),
        None => Ok(()),
    }
}

fn case(text: &str) -> Result<Case, String> {
    named(text, &Case::ALL, Case::name)
}

fn system(text: &str) -> Result<System, String> {
    named(text, &System::ALL, System::name)
}

/// Cost against connections, drawn.
mod plot {
    use std::fs::{self, OpenOptions};
    use std::io;
    use std::path::Path;

    use bench::Figure;
    use bench::load::{Case, Options, System};
    use report::{Axis, Plot, Point, Series};

    use crate::error::Error;

    pub(super) fn write(file: &Path, figures: &[Figure]) -> Result<(), Error> {
        fs::write(file, report::svg(&plot(figures))).map_err(unwritable(file))
    }

    /// Whether there will be something to draw, and somewhere to: it is said before anything is measured.
    pub(super) fn check(file: &Path, options: &Options) -> Result<(), Error> {
        if !options.cases.contains(&Case::Connections) {
            let why = "--plot draws the case connections, which is not among those of --case";
            return Err(Error::Usage(why.to_owned()));
        }
        OpenOptions::new().append(true).create(true).open(file).map_err(unwritable(file))?;
        Ok(())
    }

    fn unwritable(file: &Path) -> impl Fn(io::Error) -> Error {
        move |cause| Error::Usage(format!("cannot write {}: {cause}", file.display()))
    }

    fn plot(figures: &[Figure]) -> Plot {
        Plot {
            title: "CPU time to receive a gigabyte".to_owned(),
            x: Axis::log2("Connections", ""),
            y: Axis::linear("CPU time", "s/GB"),
            series: System::ALL.into_iter().map(|system| series(figures, system)).collect(),
        }
    }

    fn series(figures: &[Figure], system: System) -> Series {
        let of = figures.iter().filter(|figure| {
            figure.case == Case::Connections.name()
                && figure.metric == "cpu_per_gigabyte"
                && figure.system == system.name()
        });
        let points = of.filter_map(|figure| {
            let connections = figure.varied.iter().find(|(name, _)| *name == "connections")?;
            Point::of(connections.1.as_f64()?, &figure.samples)
        });
        Series::measured(system.name(), points.collect())
    }
}
