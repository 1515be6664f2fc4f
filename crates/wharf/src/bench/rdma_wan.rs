//! `wharf bench rdma-wan`.

use std::time::Duration;

use bench::rdma_wan::{self, Carrier, Case, Options, Placement};
use clap::Args;

use super::report::Printer;
use super::runs;
use super::values::{named, or, setting};
use crate::args::{Settings, seconds};
use crate::error::Error;
use crate::loaded::library::rdma_library;

/// RDMA beside sockets between two nodes with degen between them, as the paper on RDMA over IP has it
///
/// latency: one way, half of a ping-pong by RDMA writes. lan: the same without the router. overlap: how much of its time a
/// client computes that does so between ping and pong. progress: fetching from a node that computes, by RDMA read. cpu: a
/// computation on a node that 40 clients write to without pause. rendezvous: messages whose sender does not know where
/// they belong, by the paper's two protocols beside copies. Sockets are the kernel's TCP and do not block; verbs are
/// wharf's device over the kernel's TCP, or over that of a `wharf up` on each node. Programs poll where they wait, and give way meanwhile. It needs librdmacm-dev,
/// gcc, make and two CPUs. Keep the machine quiet meanwhile.
#[derive(Debug, Args)]
#[command(after_help = "Example: everything, about three minutes:\n  \
                        wharf bench rdma-wan --json > rdma-wan.jsonl\n\n\
                        Example: fetching from a busy node over a path that loses packets, shorter:\n  \
                        wharf bench rdma-wan --case progress --delay 1,16 --path loss=1% --quick")]
pub(crate) struct BenchRdmaWanArgs {
    /// What is measured: latency, overlap, progress, cpu, lan, rendezvous [default: all]
    #[arg(long = "case", value_name = "CASE,...", value_delimiter = ',', value_parser = case)]
    cases: Vec<Case>,
    /// Bytes of a message [default: 1 to 65536, by case]
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    bytes: Vec<u32>,
    /// Milliseconds by which degen delays packets, each way [default: 0]
    #[arg(long = "delay", value_name = "MS,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(0..=1_000))]
    delays: Vec<u32>,
    /// Microseconds of the computation (overlap, cpu), or of the remote node's load (progress)
    /// [default: 242000, 500000, 16000]
    #[arg(long = "time", value_name = "US,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(0..=10_000_000))]
    times: Vec<u32>,
    /// Where what computes is: alone on a CPU, or with all else of its node (nodes) [default: both]
    #[arg(long = "placement", value_name = "WHERE,...", value_delimiter = ',', value_parser = placement)]
    placements: Vec<Placement>,
    /// What carries the bytes of verbs: TCP of the kernel, or of a `wharf up` on each node (nic)
    #[arg(long, value_name = "WHO", default_value = "kernel", value_parser = carrier)]
    carrier: Carrier,
    /// What degen does beside delaying, such as loss=1% or reorder=1%
    #[arg(long, value_name = "KEY=VALUE,...", value_delimiter = ',', value_parser = setting)]
    path: Vec<(String, String)>,
    /// How long each run is measured; without it 0.5, with --quick 0.1
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Runs of which the median is shown; without it 5, with --quick 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    repetitions: Option<u32>,
    /// Fewer, shorter runs
    #[arg(long)]
    quick: bool,
    /// Where chance begins in degen
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

pub(super) fn run(args: &BenchRdmaWanArgs, printer: &mut Printer) -> Result<(), Error> {
    let (milliseconds, repetitions) = if args.quick { (100, 1) } else { (500, 5) };
    runs::prepare(&Settings::default())?;
    let options = Options {
        cases: or(&args.cases, &Case::ALL),
        bytes: args.bytes.clone(),
        delays: args.delays.clone(),
        times: args.times.clone(),
        placements: args.placements.clone(),
        path: args.path.clone(),
        carrier: args.carrier,
        duration: args.seconds.unwrap_or(Duration::from_millis(milliseconds)),
        repetitions: args.repetitions.unwrap_or(repetitions) as usize,
        seed: args.seed,
        mode: bench::degen::Options::best_mode(),
        library: rdma_library()?,
    };
    Ok(rdma_wan::rdma_wan(&options, printer)?)
}

fn case(text: &str) -> Result<Case, String> {
    named(text, &Case::ALL, Case::name)
}

fn placement(text: &str) -> Result<Placement, String> {
    named(text, &Placement::ALL, Placement::name)
}

pub(super) fn carrier(text: &str) -> Result<Carrier, String> {
    named(text, &Carrier::ALL, Carrier::name)
}
