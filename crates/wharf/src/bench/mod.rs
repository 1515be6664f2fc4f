//! `wharf bench`: the measurements of the `bench` crate, as a table or as JSON lines.

mod degen;
mod fairness;
mod gso;
mod gso_throughput;
mod handoff;
mod latency;
mod load;
mod lro;
mod lro_throughput;
mod paper;
mod rdma;
mod rdma_wan;
mod reordering;
mod report;
mod runs;
mod scale;
mod tcp;
mod tcp_goodput;
mod values;

use clap::{Args, Subcommand};

use degen::BenchDegenArgs;
use fairness::BenchFairnessArgs;
use gso::BenchGsoArgs;
use gso_throughput::BenchGsoThroughputArgs;
use handoff::{BenchHandoffArgs, HandoffProgramArgs, HandoffResponderArgs};
use latency::BenchLatencyArgs;
use load::BenchLoadArgs;
use lro::BenchLroArgs;
use lro_throughput::BenchLroThroughputArgs;
use paper::BenchPaperArgs;
use rdma::BenchRdmaArgs;
use rdma_wan::BenchRdmaWanArgs;
use reordering::BenchReorderingArgs;
use scale::BenchScaleArgs;
use tcp::BenchTcpArgs;
use tcp_goodput::BenchTcpGoodputArgs;

use crate::error::Error;

/// Measure wharf, beside its peers where they are installed
///
/// Each scenario measures everything that it compares in one run; compare figures of one run only.
#[derive(Debug, Args)]
#[command(after_help = "Example: LRO by itself, in nanoseconds a packet, as JSON lines:\n  \
                        wharf bench lro --json")]
pub(crate) struct BenchArgs {
    /// One JSON object a line, as soon as it is known, instead of a table
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    Lro(BenchLroArgs),
    Gso(BenchGsoArgs),
    LroThroughput(BenchLroThroughputArgs),
    Reordering(BenchReorderingArgs),
    Fairness(BenchFairnessArgs),
    Latency(BenchLatencyArgs),
    Load(BenchLoadArgs),
    Scale(BenchScaleArgs),
    GsoThroughput(BenchGsoThroughputArgs),
    Degen(BenchDegenArgs),
    Tcp(BenchTcpArgs),
    TcpGoodput(BenchTcpGoodputArgs),
    Handoff(BenchHandoffArgs),
    #[command(hide = true)]
    HandoffProgram(HandoffProgramArgs),
    #[command(hide = true)]
    HandoffResponder(HandoffResponderArgs),
    Rdma(BenchRdmaArgs),
    RdmaWan(BenchRdmaWanArgs),
    Paper(BenchPaperArgs),
}
use report::Printer;

/// Runs one scenario.
pub(crate) fn run(args: &BenchArgs) -> Result<(), Error> {
    let mut printer = Printer::new(args.json);
    match &args.command {
        BenchCommand::Paper(paper) => return paper::run(paper, args.json),
        BenchCommand::LroThroughput(args) => lro_throughput::run(args, &mut printer)?,
        BenchCommand::Reordering(args) => reordering::run(args, &mut printer)?,
        BenchCommand::Fairness(args) => fairness::run(args, &mut printer)?,
        BenchCommand::Latency(args) => latency::run(args, &mut printer)?,
        BenchCommand::HandoffProgram(args) => return handoff::serve(args),
        BenchCommand::HandoffResponder(args) => return handoff::respond(args),
        BenchCommand::Handoff(args) => handoff::run(args, &mut printer)?,
        BenchCommand::Rdma(args) => rdma::run(args, &mut printer)?,
        BenchCommand::RdmaWan(args) => rdma_wan::run(args, &mut printer)?,
        BenchCommand::Load(args) => load::run(args, &mut printer)?,
        BenchCommand::Scale(args) => scale::run(args, &mut printer)?,
        BenchCommand::GsoThroughput(args) => gso_throughput::run(args, &mut printer)?,
        BenchCommand::Degen(args) => degen::run(args, &mut printer)?,
        BenchCommand::Lro(args) => lro::run(args, &mut printer)?,
        BenchCommand::Gso(args) => gso::run(args, &mut printer)?,
        BenchCommand::Tcp(args) => tcp::run(args, &mut printer)?,
        BenchCommand::TcpGoodput(args) => tcp_goodput::run(args, &mut printer)?,
    }
    printer.finish()
}
