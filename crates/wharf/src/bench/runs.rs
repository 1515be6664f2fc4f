//! What the scenarios that measure a live receiver have in common.

use std::time::Duration;

use bench::Case;
use bench::throughput::Options;
use clap::Args;
use nic::config::{Config, WireMode};

use crate::args::{Settings, seconds};
use crate::error::Error;
use crate::settings;

/// How a throughput is measured.
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchRuns {
    /// Who merges: on, off (wharf's LRO) and kernel_gro
    #[arg(
        long = "case",
        value_name = "CASE,...",
        value_delimiter = ',',
        default_value = "on,off,kernel_gro"
    )]
    pub(crate) cases: Vec<Case>,
    /// How long each run is measured; without it 1, with --quick 0.3
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) seconds: Option<Duration>,
    /// Runs of which the median is shown; without it 3, with --quick 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repetitions: Option<u32>,
    /// Fewer, shorter runs
    #[arg(long)]
    pub(crate) quick: bool,
    /// With LRO, acknowledge what it holds as the paper on LRO does (section V.C): each segment,
    /// with a window of 0xFFFF
    #[arg(long)]
    pub(crate) paper_ack: bool,
    #[command(flatten)]
    pub(crate) settings: Settings,
}

/// Connections of a quick run.
const QUICK: [u32; 3] = [1, 8, 64];

/// The options that the command line asks for, with `connections` unless it names some.
pub(super) fn options(
    args: &BenchRuns,
    connections: Option<&[u32]>,
    default: &[u32],
) -> Result<Options, Error> {
    let mut config = prepare(&args.settings)?;
    config.lro.paper_ack = args.paper_ack;
    let default = if args.quick { &QUICK } else { default };
    let seconds = if args.quick { 0.3 } else { 1.0 };
    let repetitions = if args.quick { 1 } else { 3 };
    Ok(Options {
        connections: connections.unwrap_or(default).iter().map(|n| *n as usize).collect(),
        cases: args.cases.clone(),
        duration: args.seconds.unwrap_or(Duration::from_secs_f64(seconds)),
        repetitions: args.repetitions.unwrap_or(repetitions) as usize,
        seed: 1,
        config,
    })
}

/// The settings. An ordinary user goes on in a user namespace, where network namespaces may be
/// made; before any thread is started.
pub(super) fn prepare(settings: &Settings) -> Result<Config, Error> {
    let mut config = settings::load(settings)?;
    if !sys::process::has_net_admin() {
        sys::netns::unshare_user_net()?;
        // BPF asks for rights in the first user namespace.
        config.wire.mode = WireMode::Packet;
    }
    Ok(config)
}
