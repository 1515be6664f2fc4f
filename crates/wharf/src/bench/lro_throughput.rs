//! `wharf bench lro-throughput`.

use bench::throughput;

use super::report::Printer;
use super::runs;
use crate::cli::BenchLroThroughputArgs;
use crate::error::Error;

/// The papers' figure goes from 1 to 64.
const CONNECTIONS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

pub(super) fn run(args: &BenchLroThroughputArgs, printer: &mut Printer) -> Result<(), Error> {
    let options = runs::options(&args.runs, args.connections.as_deref(), &CONNECTIONS)?;
    Ok(throughput::lro_throughput(&options, &args.wires, printer)?)
}
