//! `wharf bench lro-throughput`.

use bench::throughput::{self, WireKind};
use clap::Args;

use super::report::Printer;
use super::runs::{self, BenchRuns};
use crate::error::Error;

/// How fast a kernel TCP receiver is behind wharf, against the number of connections
///
/// Over a wire in memory, whose senders cost next to nothing, so that the receiver is what is
/// measured; and over veth, where real kernels send and share this machine with the receiver. On
/// and off are wharf's LRO; kernel_gro is the kernel's own on the same wire. Every byte is compared
/// before anything is timed.
#[derive(Debug, Args)]
#[command(after_help = "Example: is it worth it here? A few seconds:\n  \
                        wharf bench lro-throughput --quick\n\n\
                        Example: the whole figure, for a program:\n  \
                        wharf bench lro-throughput --json > lro-throughput.jsonl")]
pub(crate) struct BenchLroThroughputArgs {
    /// How many TCP connections at a time, one round each; without it 1,2,4,8,16,32,64
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub(crate) connections: Option<Vec<u32>>,
    /// What the frames come over: memory, veth
    #[arg(
        long = "wire",
        value_name = "WIRE,...",
        value_delimiter = ',',
        default_value = "memory,veth"
    )]
    pub(crate) wires: Vec<WireKind>,
    #[command(flatten)]
    pub(crate) runs: BenchRuns,
}

/// The papers' figure goes from 1 to 64.
const CONNECTIONS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

pub(super) fn run(args: &BenchLroThroughputArgs, printer: &mut Printer) -> Result<(), Error> {
    let options = runs::options(&args.runs, args.connections.as_deref(), &CONNECTIONS)?;
    Ok(throughput::lro_throughput(&options, &args.wires, printer)?)
}
