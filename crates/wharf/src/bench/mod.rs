//! `wharf bench`: the measurements of the `bench` crate, as a table or as JSON lines.

mod degen;
mod fairness;
mod gso;
mod gso_throughput;
mod latency;
mod lro;
mod lro_throughput;
mod paper;
mod reordering;
mod report;
mod runs;
mod tcp;
mod tcp_goodput;
mod values;

use crate::cli::{BenchArgs, BenchCommand};
use crate::error::Error;
pub(crate) use degen::BenchDegenArgs;
pub(crate) use gso::BenchGsoArgs;
pub(crate) use gso_throughput::BenchGsoThroughputArgs;
pub(crate) use lro::BenchLroArgs;
pub(crate) use paper::BenchPaperArgs;
use report::Printer;
pub(crate) use tcp::BenchTcpArgs;
pub(crate) use tcp_goodput::BenchTcpGoodputArgs;

/// Runs one scenario.
pub(crate) fn run(args: &BenchArgs) -> Result<(), Error> {
    let mut printer = Printer::new(args.json);
    match &args.command {
        BenchCommand::Paper(paper) => return paper::run(paper, args.json),
        BenchCommand::LroThroughput(args) => lro_throughput::run(args, &mut printer)?,
        BenchCommand::Reordering(args) => reordering::run(args, &mut printer)?,
        BenchCommand::Fairness(args) => fairness::run(args, &mut printer)?,
        BenchCommand::Latency(args) => latency::run(args, &mut printer)?,
        BenchCommand::GsoThroughput(args) => gso_throughput::run(args, &mut printer)?,
        BenchCommand::Degen(args) => degen::run(args, &mut printer)?,
        BenchCommand::Lro(args) => lro::run(args, &mut printer)?,
        BenchCommand::Gso(args) => gso::run(args, &mut printer)?,
        BenchCommand::Tcp(args) => tcp::run(args, &mut printer)?,
        BenchCommand::TcpGoodput(args) => tcp_goodput::run(args, &mut printer)?,
    }
    printer.finish()
}
