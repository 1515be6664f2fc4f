//! `wharf bench tcp`.

use std::time::Duration;

use bench::tcp::engine::{self, Work};
use bench::tcp::{Case, Link, Options, System, tcp};
use clap::Args;
use nic::config::{Choice, WireMode};

use super::report::Printer;
use super::runs;
use super::values::{named, or};
use crate::args::{Settings, seconds};
use crate::error::Error;
use crate::print;

/// What the TCP engine costs and gives, beside Linux's TCP and smoltcp
///
/// engine: by itself, in cycles for each segment of 1,448 bytes, receiving and sending, in single segments
/// and in aggregates of 44. bulk: throughput of one connection in (a kernel sends) and out (a kernel
/// receives). rr: how often a byte goes there and back. connect: how often a connection is opened, used
/// for a byte, and closed. recovery: goodput where 1 % of the packets are lost, at a round trip of 20 ms,
/// between kernels and in virtual time. fairness: 8 connections of wharf and 8 of the kernel share 100
/// Mb/s and 20 ms, with CUBIC all.
///
/// The client is always a kernel in a network namespace of its own. Linux and wharf are behind a veth
/// without offloads, smoltcp and wharf behind a TAP; where the link says offloads, packets stay whole.
/// times_kernel and times_smoltcp are wharf's share of what these gave in the same round.
#[derive(Debug, Args)]
#[command(after_help = "Example: is the engine as fast as this kernel?\n  \
                        wharf bench tcp --case bulk,rr,connect\n\n\
                        Example: what a segment costs inside the engine:\n  \
                        wharf bench tcp --case engine --connections 1,100000\n\n\
                        Example: what callgrind counts, the same on a busy machine:\n  \
                        wharf bench tcp --instructions --what receive --connections 1")]
pub(crate) struct BenchTcpArgs {
    /// What is measured: engine, bulk, rr, connect, recovery, fairness [default: all]
    #[arg(long = "case", value_name = "CASE,...", value_delimiter = ',', value_parser = case)]
    cases: Vec<Case>,
    /// Who takes part: kernel, wharf, smoltcp [default: all]
    #[arg(long = "system", value_name = "SYSTEM,...", value_delimiter = ',', value_parser = system)]
    systems: Vec<System>,
    /// What joins them to the client: veth, veth_offloads, tap, tap_offloads, wan, virtual [default: all]
    #[arg(long = "link", value_name = "LINK,...", value_delimiter = ',', value_parser = link)]
    links: Vec<Link>,
    /// What wharf's frames come and go by on veth and wan: auto, xdp or packet
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = mode)]
    mode: WireMode,
    /// bulk, rr, connect: give the server one CPU and the client another, each with what its kernel does
    /// to receive, as if they were two machines; without it the kernel places them as it likes
    #[arg(long)]
    own_cpus: bool,
    /// engine: what it does: receive, receive_lro, send, send_lro, or receive through the worker of
    /// a NIC: worker [default: all]
    #[arg(long = "what", value_name = "WORK,...", value_delimiter = ',', value_parser = work)]
    works: Vec<Work>,
    /// engine: how many connections take turns [default: 1,1000,100000]
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: Vec<u32>,
    /// How long each system runs for one figure, and ten times that for recovery and fairness; without
    /// it 1, with --quick 0.3
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Rounds of which the median is shown, but for engine; without it 5, with --quick 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    repetitions: Option<u32>,
    /// A first look: shorter; 1 and 1,000 connections unless others are given
    #[arg(long)]
    quick: bool,
    /// Count the engine's instructions with callgrind (Debian's valgrind) instead of measuring time
    #[arg(long)]
    instructions: bool,
    /// What `--instructions` runs under callgrind
    #[arg(long, hide = true, conflicts_with = "instructions")]
    under_callgrind: bool,
}

pub(super) fn run(args: &BenchTcpArgs, printer: &mut Printer) -> Result<(), Error> {
    let options = options(args);
    if args.under_callgrind {
        return print(format!("{}\n", engine::count(&options)?));
    }
    if args.instructions {
        let program = std::env::current_exe().map_err(Error::Io)?;
        return Ok(engine::instructions(&options, &program, under_callgrind, printer)?);
    }
    if options.cases.iter().any(|case| *case != Case::Engine) {
        runs::prepare(&Settings::default())?;
    }
    Ok(tcp(&options, printer)?)
}

fn options(args: &BenchTcpArgs) -> Options {
    let connections: &[u32] = if args.quick { &[1, 1000] } else { &[1, 1000, 100_000] };
    let seconds = if args.quick { 0.3 } else { 1.0 };
    Options {
        cases: or(&args.cases, &Case::ALL),
        duration: args.seconds.unwrap_or(Duration::from_secs_f64(seconds)),
        repetitions: args.repetitions.unwrap_or(if args.quick { 1 } else { 5 }) as usize,
        systems: or(&args.systems, &System::ALL),
        mode: args.mode,
        own_cpus: args.own_cpus,
        links: or(&args.links, &Link::ALL),
        works: or(&args.works, &Work::ALL),
        connections: or(&args.connections, connections),
    }
}

/// The command line of one kind of work at one number of connections.
fn under_callgrind(work: Work, connections: u32) -> Vec<String> {
    let words =
        format!("bench tcp --under-callgrind --what {} --connections {connections}", work.name());
    words.split(' ').map(str::to_owned).collect()
}

fn case(text: &str) -> Result<Case, String> {
    named(text, &Case::ALL, Case::name)
}

fn system(text: &str) -> Result<System, String> {
    named(text, &System::ALL, System::name)
}

fn mode(text: &str) -> Result<WireMode, String> {
    named(text, &[WireMode::Auto, WireMode::Xdp, WireMode::Packet], Choice::name)
}

fn link(text: &str) -> Result<Link, String> {
    named(text, &Link::ALL, Link::name)
}

fn work(text: &str) -> Result<Work, String> {
    named(text, &Work::ALL, Work::name)
}
