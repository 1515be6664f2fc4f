//! `wharf bench latency`.

use bench::latency::{self, Options};

use super::report::Printer;
use super::runs;
use crate::cli::BenchLatencyArgs;
use crate::error::Error;

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
