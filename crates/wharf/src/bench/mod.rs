//! `wharf bench`: the measurements of the `bench` crate, as a table or as JSON lines.

mod report;

use crate::cli::{BenchArgs, BenchCommand};
use crate::error::Error;
use report::Printer;

/// Runs one scenario.
pub(crate) fn run(args: &BenchArgs) -> Result<(), Error> {
    let printer = Printer::new(args.json);
    match &args.command {
        BenchCommand::Lro(_) | BenchCommand::LroThroughput(_) => {}
        BenchCommand::Reordering(_) | BenchCommand::Fairness(_) => {}
    }
    printer.finish()
}
