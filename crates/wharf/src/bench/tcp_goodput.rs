//! `wharf bench tcp-goodput`.

use bench::tcp::goodput::{Options, Peer, Way, goodput};
use clap::Args;

use super::report::Printer;
use super::runs;
use super::values::{named, or, setting};
use crate::args::Settings;
use crate::error::Error;

/// How fast other TCPs move bytes through a path that loses packets, to and from wharf's and the kernel's
///
/// send: the peer sends to the kernel's TCP, and to wharf's. receive: it receives of them. lro: it sends
/// to a kernel, with wharf's LRO in front of it (wharf) and without (kernel). Between them is degen, with
/// a round trip of 20 ms, and 0.5 % lost each way (lro: 1 %). Each seed loses the same packets of both;
/// kernel and wharf are the medians, ratio is that of the medians, and quartile1 and quartile3 are of the
/// ratios of each seed. A transfer that fails counts as 0.
///
/// lwIP is Debian's (liblwip-dev, pkg-config, gcc, make), gVisor is built with `go`, smoltcp is compiled
/// in; one that is missing is named. It needs root. Transfers wait most of the time, so some go on at once.
#[derive(Debug, Args)]
#[command(after_help = "Example: is lwIP as fast to wharf as to this kernel?\n  \
                        wharf bench tcp-goodput --only lwip\n\n\
                        Example: what LRO costs a host without SACK where 2 % are lost:\n  \
                        wharf bench tcp-goodput --case lro --only linux-nosack --path loss=2%")]
pub(crate) struct BenchTcpGoodputArgs {
    /// What is measured: send, receive, lro [default: all]
    #[arg(long = "case", value_name = "CASE,...", value_delimiter = ',', value_parser = way)]
    ways: Vec<Way>,
    /// Whose TCP is at the other end: linux, linux-nosack, linux-notimestamps, linux-noscaling,
    /// linux-reno, linux-bbr, linux-mtu576, linux-mtu9000, lwip, smoltcp, gvisor [default: all]
    #[arg(long = "only", value_name = "PEER,...", value_delimiter = ',', value_parser = peer)]
    peers: Vec<Peer>,
    /// Transfers of each, with seeds from 1 to N
    #[arg(long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,
    /// Bytes of a transfer
    #[arg(long, value_name = "N", default_value_t = 5_000_000,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    bytes: u64,
    /// Transfers at a time
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u64).range(1..=64))]
    jobs: u64,
    /// What degen does, besides or instead of loss and delay, such as loss=1%,delay=50ms,rate=20mbit
    #[arg(long, value_name = "KEY=VALUE,...", value_delimiter = ',', value_parser = setting)]
    path: Vec<(String, String)>,
    #[command(flatten)]
    settings: Settings,
}

pub(super) fn run(args: &BenchTcpGoodputArgs, printer: &mut Printer) -> Result<(), Error> {
    let options = Options {
        ways: or(&args.ways, &Way::ALL),
        peers: or(&args.peers, &Peer::ALL),
        seeds: args.seeds,
        bytes: args.bytes,
        jobs: args.jobs as usize,
        path: args.path.clone(),
        config: runs::prepare(&args.settings)?,
    };
    Ok(goodput(&options, printer)?)
}

fn way(text: &str) -> Result<Way, String> {
    named(text, &Way::ALL, Way::name)
}

fn peer(text: &str) -> Result<Peer, String> {
    named(text, &Peer::ALL, Peer::name)
}
