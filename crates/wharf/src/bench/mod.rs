//! `wharf bench`: the measurements of the `bench` crate, as a table or as JSON lines.

mod lro;
mod report;

use crate::cli::{BenchArgs, BenchCommand};
use crate::error::Error;
pub(crate) use lro::BenchLroArgs;
use report::Printer;

/// Runs one scenario.
pub(crate) fn run(args: &BenchArgs) -> Result<(), Error> {
    let mut printer = Printer::new(args.json);
    match &args.command {
        BenchCommand::Lro(args) => lro::run(args, &mut printer)?,
        BenchCommand::LroThroughput(_) => {}
        BenchCommand::Reordering(_) | BenchCommand::Fairness(_) => {}
    }
    printer.finish()
}
