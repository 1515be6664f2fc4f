//! `wharf bench latency`.

use bench::latency::{self, Options};
use clap::Args;

use super::report::Printer;
use super::runs;
use crate::args::Settings;
use crate::error::Error;

/// Whether holding segments back costs an application time: request and response over veth
///
/// One connection sends a message and waits for an answer as long. LRO is turned on and off on the
/// same connection, round by round; kernel_gro is a bare veth beside it.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  wharf bench latency --bytes 1,1024")]
pub(crate) struct BenchLatencyArgs {
    /// Lengths of the messages, one after the other
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,1024",
          value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(crate) bytes: Vec<u32>,
    /// Round trips in each round
    #[arg(long, value_name = "N", default_value_t = 500,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) messages: u32,
    /// Rounds of each case; without it 40, with --quick 6
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: Option<u32>,
    /// Fewer rounds
    #[arg(long)]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) settings: Settings,
}

pub(super) fn run(args: &BenchLatencyArgs, printer: &mut Printer) -> Result<(), Error> {
    let config = runs::prepare(&args.settings)?;
    let rounds = args.rounds.unwrap_or(if args.quick { 6 } else { 40 });
    let options = Options {
        bytes: args.bytes.iter().map(|bytes| *bytes as usize).collect(),
        messages: args.messages as usize,
        rounds: rounds as usize,
        config,
    };
    Ok(latency::latency(&options, printer)?)
}
