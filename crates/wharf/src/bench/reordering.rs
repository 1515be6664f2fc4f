//! `wharf bench reordering`.

use bench::throughput;

use super::report::Printer;
use super::runs;
use crate::cli::BenchReorderingArgs;
use crate::error::Error;

const CONNECTIONS: [u32; 2] = [1, 64];
const PERCENTS: [u32; 6] = [0, 1, 5, 10, 20, 30];
const QUICK: [u32; 3] = [0, 1, 30];

pub(super) fn run(args: &BenchReorderingArgs, printer: &mut Printer) -> Result<(), Error> {
    let options = runs::options(&args.runs, args.connections.as_deref(), &CONNECTIONS)?;
    let default: &[u32] = if args.runs.quick { &QUICK } else { &PERCENTS };
    let percents = args.percent.as_deref().unwrap_or(default);
    Ok(throughput::reordering(&options, percents, printer)?)
}
