//! `wharf bench rdma`.

use std::time::Duration;

use bench::rdma::{self, Case, Memory, Options};
use clap::Args;

use super::report::Printer;
use super::values::{named, or};
use crate::args::seconds;
use crate::error::Error;
use crate::loaded::library::rdma_library;

/// Verbs by wharf's RDMA device, beside the kernel's TCP sockets and libfabric's TCP
///
/// write: RDMA writes of 64 KB with CRC, 16 at once. rate: RDMA writes of 8 bytes, inline, posted in lists of 32, of which
/// the last is signaled. latency: 8 bytes there and back, by writes with immediate data. Programs sleep where they wait.
/// Client and server have a device each, and are on a CPU each with their device (cores: two), or all on one. All goes
/// over TCP on the loopback interface. The CPU time of each process is told. It needs librdmacm-dev, gcc and make, for
/// libfabric libfabric-dev, and no root. Keep the machine quiet meanwhile.
#[derive(Debug, Args)]
#[command(after_help = "Example: everything, about four minutes:\n  \
                        wharf bench rdma --json > rdma.jsonl\n\n\
                        Example: round trips only, shorter:\n  \
                        wharf bench rdma --case latency --quick")]
pub(crate) struct BenchRdmaArgs {
    /// What is measured: write, rate, latency [default: all]
    #[arg(long = "case", value_name = "CASE,...", value_delimiter = ',', value_parser = case)]
    cases: Vec<Case>,
    /// What memory is registered: private, or file: that of a memfd, which the device reaches as a file
    #[arg(long, value_name = "MEMORY", default_value = "private", value_parser = memory)]
    memory: Memory,
    /// How long each run is measured; without it 2, with --quick 0.3
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Runs of which the median is shown; without it 7, with --quick 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    repetitions: Option<u32>,
    /// Fewer, shorter runs
    #[arg(long)]
    quick: bool,
}

pub(super) fn run(args: &BenchRdmaArgs, printer: &mut Printer) -> Result<(), Error> {
    let (milliseconds, repetitions) = if args.quick { (300, 1) } else { (2_000, 7) };
    let options = Options {
        cases: or(&args.cases, &Case::ALL),
        memory: args.memory,
        duration: args.seconds.unwrap_or(Duration::from_millis(milliseconds)),
        repetitions: args.repetitions.unwrap_or(repetitions) as usize,
        library: rdma_library()?,
    };
    Ok(rdma::rdma(&options, printer)?)
}

fn case(text: &str) -> Result<Case, String> {
    named(text, &Case::ALL, Case::name)
}

fn memory(text: &str) -> Result<Memory, String> {
    named(text, &Memory::ALL, Memory::name)
}
