//! `wharf bench paper`: the papers' figures, measured again.

mod ended;
mod list;
mod page;
mod progress;

use std::path::PathBuf;
use std::time::Duration;

use bench::paper::{
    Entry, Gaps, Header, Here, Observer, Parameters, Progress, Store, StoreError, registry,
};
use bench::rdma_wan::Carrier;
use clap::Args;
use xxhash_rust::xxh3::xxh3_64;

use self::progress::Line;
use super::rdma_wan::carrier;
use super::runs;
use super::values::setting;
use crate::args::{Settings, seconds};
use crate::error::Error;
use crate::loaded::library::{handoff_library, rdma_library};
use crate::{print, settings};

/// The page, in the directory of a run.
const PAGE: &str = "report.html";
/// Fewer repetitions are said to be few.
const ENOUGH: u32 = 5;

/// Measure the papers' figures again: every one that wharf can run, beside what the paper says
///
/// Writes into a directory: report.html, one page with each figure's claim, measurement, ratio and
/// what it means; FIGURE.svg; and FIGURE.jsonl, the raw figures with all their repetitions. run.json
/// says on which machine and with what. The page and the drawings are brought up to date after each
/// point. What is interrupted goes on where it was when the same command is given again; at most the
/// point that was being measured is lost.
///
/// All cases of a point are run in turns within each repetition, and ratios are those of runs that
/// followed each other. Keep the machine quiet meanwhile. As root everything runs; without, what
/// needs AF_XDP, /dev/net/tun or control groups is left out and said to be.
#[derive(Debug, Args)]
#[command(after_help = "Example: all of it, an hour and a quarter, or on from where it was:\n  \
                        wharf bench paper\n\n\
                        Example: a first look at two figures:\n  \
                        wharf bench paper --quick --figure lro-throughput-memory,gso-tcp4 --out look\n\n\
                        Example: what there is, and what the rest needs:\n  \
                        wharf bench paper --list")]
pub(crate) struct BenchPaperArgs {
    /// Which figures to run; --list names them [default: all]
    #[arg(long = "figure", value_name = "NAME,...", value_delimiter = ',')]
    figures: Vec<String>,
    /// Where results are kept; the same command goes on with what is there
    #[arg(long, value_name = "DIR", default_value = "paper-results")]
    out: PathBuf,
    /// Fewer points, and shorter runs unless --seconds is given
    #[arg(long)]
    quick: bool,
    /// Runs of each case, of which the median counts
    #[arg(long, value_name = "N", default_value_t = ENOUGH,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    repetitions: u32,
    /// How long each run is measured; without it 1, with --quick 0.3
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    /// What random numbers are drawn from: of senders in memory the lengths of their bursts
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// What degen does beside delaying in the figures on RDMA, such as loss=1% or reorder=1%
    #[arg(long, value_name = "KEY=VALUE,...", value_delimiter = ',', value_parser = setting)]
    path: Vec<(String, String)>,
    /// What carries the bytes of verbs in the figures on RDMA: TCP of the kernel, or of a `wharf up` on each node (nic)
    #[arg(long, value_name = "WHO", default_value = "kernel", value_parser = carrier)]
    carrier: Carrier,
    /// List all figures of the papers, and what is missing for those that cannot run
    #[arg(long)]
    list: bool,
    /// Discard what is in the directory, with --figure of those figures only, and begin anew
    #[arg(long)]
    restart: bool,
    #[command(flatten)]
    settings: Settings,
}

pub(super) fn run(args: &BenchPaperArgs, json: bool) -> Result<(), Error> {
    let all = registry();
    let chosen = choose(&all, &args.figures)?;
    if args.list {
        return print(list::list(&chosen, json));
    }
    // Rights that nothing is measured with are not asked for.
    let measures = chosen.iter().any(|entry| entry.scenario().is_some());
    let config = if measures { runs::prepare } else { settings::load };
    let parameters = Parameters {
        repetitions: args.repetitions as usize,
        duration: args.seconds.unwrap_or(Duration::from_millis(if args.quick {
            300
        } else {
            1000
        })),
        quick: args.quick,
        seed: args.seed,
        library: handoff_library().ok(),
        rdma_library: rdma_library().ok(),
        path: args.path.clone(),
        carrier: args.carrier,
        config: config(&args.settings)?,
    };
    let names: Vec<&'static str> = all.iter().map(|entry| entry.name).collect();
    let header = Header::of_this(&parameters, &build());
    // Whatever is wrong with the directory is for the caller to put right.
    let discarded: Vec<&'static str> = match args.restart {
        true => chosen.iter().map(|entry| entry.name).collect(),
        false => Vec::new(),
    };
    let mut store = Store::open(&args.out, header, &names, &discarded)
        .map_err(|error| Error::Usage(error.to_string()))?;
    let mut shown = Shown { all: &all, parameters: &parameters, line: Line::new() };
    let gaps = bench::paper::run(&chosen, &parameters, &mut store, &mut Here, &mut shown);
    shown.line.clear();
    let gaps = gaps.map_err(Error::Results)?;
    page::write(&all, &parameters, &store, &gaps).map_err(Error::Results)?;
    print(ended::table(&chosen, &store, &gaps, json))?;
    if gaps.is_empty() {
        return Ok(());
    }
    let why: Vec<&str> = gaps.values().flatten().map(String::as_str).collect();
    Err(Error::Incomplete(why.join("; ")))
}

/// Those with the names that were given, or all.
fn choose<'a>(all: &'a [Entry], names: &[String]) -> Result<Vec<&'a Entry>, Error> {
    let unknown = names.iter().find(|name| all.iter().all(|entry| entry.name != **name));
    if let Some(unknown) = unknown {
        let known: Vec<&str> = all.iter().map(|entry| entry.name).collect();
        let what = format!("there is no figure {unknown}; the figures are {}", known.join(", "));
        return Err(Error::Usage(what));
    }
    let wanted = |entry: &&Entry| names.is_empty() || names.iter().any(|name| name == entry.name);
    Ok(all.iter().filter(wanted).collect())
}

/// Tells this program from others: a hash of it.
fn build() -> String {
    let program = std::fs::read("/proc/self/exe");
    program.map_or("unknown".to_owned(), |program| format!("{:016x}", xxh3_64(&program)))
}

/// Keeps the page up to date and says how far the run is.
struct Shown<'a> {
    all: &'a [Entry],
    parameters: &'a Parameters,
    line: Line,
}

impl Observer for Shown<'_> {
    fn progress(&mut self, progress: &Progress) {
        self.line.show(progress);
    }

    fn notice(&mut self, name: &str, text: &str) {
        self.line.notice(&format!("{name}: {text}"));
    }

    fn kept(&mut self, store: &Store, gaps: &Gaps) -> Result<(), StoreError> {
        page::write(self.all, self.parameters, store, gaps)
    }
}
