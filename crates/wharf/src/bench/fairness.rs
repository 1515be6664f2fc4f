//! `wharf bench fairness`.

use std::time::Duration;

use bench::fairness::{self, Options};
use clap::Args;
use clap::builder::PossibleValuesParser;
use nic::config::Choice;
use nic::config::Order;

use super::report::Printer;
use super::runs;
use crate::args::{Settings, seconds};
use crate::error::Error;

/// Whether new connections get through to a host port that others saturate
///
/// A few connections send all they can over wires in memory, one for each worker, to a host port
/// with one queue and the kernel's TCP behind it; then others try to open, with three SYNs each,
/// the first two of which they repeat after 0.2 and 0.4 s. round_robin is wharf's scheduler, lifo
/// the stack of requests that the paper on LRO found to starve new connections.
#[derive(Debug, Args)]
#[command(after_help = "Example: as in the paper, where LRO is on:\n  \
                        wharf bench fairness --lro on")]
pub(crate) struct BenchFairnessArgs {
    /// How long each round is measured at least
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// Workers that share the host port
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(2..=64))]
    pub(crate) workers: u32,
    /// Packets of each worker that may wait for it: host.requests, which is less by default. In a
    /// short stack nothing stays at the bottom for long
    #[arg(long, value_name = "N", default_value_t = 1024,
          value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub(crate) requests: u32,
    /// Connections that saturate it
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(1..=8_192))]
    pub(crate) heavy: u32,
    /// Connections that try to open meanwhile
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=8_192))]
    pub(crate) openers: u32,
    /// With LRO and without: on, off
    #[arg(long, value_name = "ON,...", value_delimiter = ',', default_value = "off,on",
          value_parser = PossibleValuesParser::new(["on", "off"]))]
    pub(crate) lro: Vec<String>,
    #[command(flatten)]
    pub(crate) settings: Settings,
}

pub(super) fn run(args: &BenchFairnessArgs, printer: &mut Printer) -> Result<(), Error> {
    let options = Options {
        duration: args.seconds,
        workers: args.workers as usize,
        requests: args.requests,
        heavy: args.heavy as usize,
        openers: args.openers as usize,
        lro: args.lro.iter().map(|on| on == "on").collect(),
        orders: Order::VALUES.to_vec(),
        repetitions: 1,
        config: runs::prepare(&args.settings)?,
    };
    Ok(fairness::fairness(&options, printer)?)
}
