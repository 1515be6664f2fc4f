//! `wharf bench reordering`.

use bench::throughput;
use clap::Args;

use super::report::Printer;
use super::runs::{self, BenchRuns};
use crate::error::Error;

/// How fast the receiver stays when the wire reorders
///
/// As lro-throughput over the wire in memory, which displaces some segments by 1 to 32 positions of
/// their connection. Its senders do not take reordering for loss.
#[derive(Debug, Args)]
#[command(after_help = "Example: one segment in ten comes late:\n  \
                        wharf bench reordering --percent 0,10 --quick")]
pub(crate) struct BenchReorderingArgs {
    /// How many of 100 segments are displaced, one round each; without it 0,1,5,10,20,30
    #[arg(long, value_name = "P,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) percent: Option<Vec<u32>>,
    /// How many TCP connections at a time, one round each; without it 1 and 64
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub(crate) connections: Option<Vec<u32>>,
    #[command(flatten)]
    pub(crate) runs: BenchRuns,
}

const CONNECTIONS: [u32; 2] = [1, 64];
const PERCENTS: [u32; 6] = [0, 1, 5, 10, 20, 30];
const QUICK: [u32; 3] = [0, 1, 30];

pub(super) fn run(args: &BenchReorderingArgs, printer: &mut Printer) -> Result<(), Error> {
    let options = runs::options(&args.runs, args.connections.as_deref(), &CONNECTIONS)?;
    let default: &[u32] = if args.runs.quick { &QUICK } else { &PERCENTS };
    let percents = args.percent.as_deref().unwrap_or(default);
    Ok(throughput::reordering(&options, percents, printer)?)
}
