//! `wharf bench gso-throughput`.

use std::time::Duration;

use bench::gso_throughput::{self, Case, Options, Protocol};
use clap::Args;

use super::report::Printer;
use super::runs;
use crate::args::{Settings, seconds};
use crate::error::Error;

/// The slides' frequencies from 2.93 to 0.45 GHz, in per cent of the highest.
const CPU_PERCENTS: [u32; 6] = [100, 86, 68, 50, 36, 15];
const QUICK: [u32; 2] = [100, 36];

/// How fast a sender with little CPU time is, with and without GSO, and with a card's TSO
///
/// A kernel's sockets and wharf's worker share one core and, by a control group, a part of its time;
/// the receiver has another core, behind a veth. none: the sender's TCP and IP make packets of the
/// MTU, which all below handles; kernel: its own GSO cuts, right above wharf; gso: wharf cuts; tso:
/// the card does, for which the veth stands in. udp4 and udp6 are datagrams of 60,000 bytes that
/// become IP fragments, uso4 and uso6 are many datagrams sent at once (UDP_SEGMENT). TCP's congestion
/// control is cubic, whatever the machine's is. Throughput is what the receiver got; sender_cpu and
/// receiver_cpu tell who was the bottleneck. Every byte is compared before anything is timed. Needs
/// root.
#[derive(Debug, Args)]
#[command(after_help = "Example: is it worth it here? Less than a minute:\n  \
                        wharf bench gso-throughput --quick\n\n\
                        Example: the slides' tables, for a program:\n  \
                        wharf bench gso-throughput --json > gso-throughput.jsonl")]
pub(crate) struct BenchGsoThroughputArgs {
    /// Who cuts: none, kernel, gso, tso
    #[arg(
        long = "case",
        value_name = "CASE,...",
        value_delimiter = ',',
        default_value = "none,kernel,gso,tso"
    )]
    cases: Vec<Case>,
    /// What is sent: tcp4, tcp6, udp4, udp6, uso4, uso6
    #[arg(
        long = "protocol",
        value_name = "PROTOCOL,...",
        value_delimiter = ',',
        default_value = "tcp4,tcp6,udp4,udp6"
    )]
    protocols: Vec<Protocol>,
    /// The sender's CPU time in per cent of a core, one round each; without it 100,86,68,50,36,15,
    /// with --quick 100,36
    #[arg(long, value_name = "P,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(i64::from(gso_throughput::LEAST_CPU)..=100))]
    cpu_percent: Option<Vec<u32>>,
    /// How long each run is measured; without it 1, with --quick 0.3
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Runs of which the median is shown; without it 3, with --quick 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    repetitions: Option<u32>,
    /// Fewer, shorter runs
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    settings: Settings,
}

pub(super) fn run(args: &BenchGsoThroughputArgs, printer: &mut Printer) -> Result<(), Error> {
    let config = runs::prepare(&args.settings)?;
    let percents: &[u32] = if args.quick { &QUICK } else { &CPU_PERCENTS };
    let seconds = if args.quick { 0.3 } else { 1.0 };
    let repetitions = if args.quick { 1 } else { 3 };
    let options = Options {
        cases: args.cases.clone(),
        protocols: args.protocols.clone(),
        cpu_percents: args.cpu_percent.as_deref().unwrap_or(percents).to_vec(),
        duration: args.seconds.unwrap_or(Duration::from_secs_f64(seconds)),
        repetitions: args.repetitions.unwrap_or(repetitions) as usize,
        config,
    };
    Ok(gso_throughput::gso_throughput(&options, printer)?)
}
