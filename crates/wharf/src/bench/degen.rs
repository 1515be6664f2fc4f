//! `wharf bench degen`.

use std::time::Duration;

use bench::degen::{self, Case, Options};
use clap::Args;
use nic::config::{Choice, WireMode};

use super::report::Printer;
use super::runs;
use super::values::{named, or};
use crate::args::{Settings, seconds};
use crate::error::Error;

/// Whether degen adds what it is asked for: delay, loss, duplication, rate
///
/// Frames at a steady rate go through a degen from both sides at the same time, between two veths;
/// delays are from the sender's stamp to that of the receiver's kernel. `off_p99` is by how much the
/// delay of the worst frame but 1 % was off, either way; `left_out` is the share of frames with which the
/// sender itself was interrupted, of which that is not known. tcp is one connection with Reno through a
/// round trip of 10 ms and a loss, beside the throughput that theory gives for it (Mathis et al.,
/// 1997). It takes two idle CPUs.
#[derive(Debug, Args)]
#[command(after_help = "Example: how exact is a delay of 5 ms here?\n  \
                        wharf bench degen --case delay=5ms --quick")]
pub(crate) struct BenchDegenArgs {
    /// What is asked for: delay=TIME, loss=P%, duplicate=P%, rate=RATE, tcp=P%; without it delays of 0.1
    /// to 100 ms and one of each other kind
    #[arg(long = "case", value_name = "CASE,...", value_delimiter = ',')]
    cases: Vec<Case>,
    /// Frames a second in each direction, for delays
    #[arg(long, value_name = "N", default_value_t = 100_000,
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    packets_per_second: u32,
    /// How long delays and TCP are measured; without it 5, with --quick 1
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Frames in each direction, for all else; without it 1000000, with --quick 100000
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    packets: Option<u64>,
    /// Runs of which the median is shown; without it 3, with --quick 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    repetitions: Option<u32>,
    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// What degen's frames come and go by: xdp or packet; without it xdp, where it is allowed
    #[arg(long, value_name = "MODE", value_parser = mode)]
    mode: Option<WireMode>,
    /// degen's thread stays awake, as with `wharf degen --awake`
    #[arg(long)]
    awake: bool,
    /// Fewer, shorter runs
    #[arg(long)]
    quick: bool,
}

pub(super) fn run(args: &BenchDegenArgs, printer: &mut Printer) -> Result<(), Error> {
    runs::prepare(&Settings::default())?;
    let options = Options {
        cases: or(&args.cases, &Case::DEFAULT),
        packets_per_second: args.packets_per_second,
        duration: args.seconds.unwrap_or(Duration::from_secs(if args.quick { 1 } else { 5 })),
        packets: args.packets.unwrap_or(if args.quick { 100_000 } else { 1_000_000 }),
        repetitions: args.repetitions.unwrap_or(if args.quick { 1 } else { 3 }) as usize,
        seed: args.seed,
        mode: args.mode.unwrap_or_else(Options::best_mode),
        awake: args.awake,
    };
    Ok(degen::degen(&options, printer)?)
}

fn mode(text: &str) -> Result<WireMode, String> {
    named(text, &[WireMode::Xdp, WireMode::Packet], Choice::name)
}
