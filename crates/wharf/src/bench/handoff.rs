//! `wharf bench handoff`, and the program that it starts.

use std::path::PathBuf;
use std::time::Duration;

use bench::handoff::program::{self, Work};
use bench::handoff::{self, Case, Load, Mix, Options, Setup};
use clap::Args;

use super::report::Printer;
use super::runs;
use super::values::{named, or};
use crate::args::{Settings, seconds};
use crate::error::Error;
use crate::loaded::library::handoff_library;
use crate::print;

/// TCP connections that wharf runs for a program, beside the host's own
///
/// handoff: how long a connection stands still that moves, with so many bytes unread, how many connections move in a
/// second, and how long a byte of another program's takes there and back meanwhile. profile: what the host has to do for
/// the bytes of one call, of 1,448 and of 65,536 bytes: the program's CPU time and that of the kernel's TCP, which with a
/// TAP works within wharf's calls; cpu_time_per_segment is that of all processes, the client's and wharf's too. packet: what a
/// packet costs the host and the NIC, by layer where perf(1) is there, and how many messages they exchange for it, with
/// room for all connections at the NIC and for some. instructions: how many instructions a packet takes of the bypass layer and of
/// each part of the NIC, outside the kernel, with all connections at the NIC, and how many cache misses, in the paper's caches:
/// by callgrind, where valgrind is there. stack: what a packet
/// costs the host's own stack, by layer, with copies and without, with checksums and without, with one connection and
/// 1,024, near and 20 ms away, and of nginx for 256 clients of 400 Kb/s. web: what nginx delivers of SPECweb99's static files, and with
/// dynamic content by FastCGI, and what a packet costs then. policies: the same with
/// all connections at the NIC, and with those that policies give it. splice: what haproxy passes on, and what a byte costs host and
/// NIC, by the kernel's splice(2), on the NIC, and where the NIC moves the bytes itself (`wharf run --splice`).
/// echo: one byte there and back. where says who runs the connections: the kernel (os), or wharf (nic). It needs the rights to make
/// a TAP. Keep the machine quiet meanwhile.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: everything, about forty minutes:\n  wharf bench handoff --json > handoff.jsonl\n\n\
                        Example: what receiving over 256 connections costs:\n  \
                        wharf bench handoff --case profile --connections 256"
)]
pub(crate) struct BenchHandoffArgs {
    /// What is measured: handoff, profile, packet, instructions, stack, web, policies, splice, echo [default: all]
    #[arg(long = "case", value_name = "CASE,...", value_delimiter = ',', value_parser = case)]
    cases: Vec<Case>,
    /// Numbers of connections of profile, with --quick 1, of instructions, without it 1 and 256, and of splice, without it 1
    /// and 64
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=28_000))]
    connections: Option<Vec<u32>>,
    /// Connections that move at once; without it 10000, with --quick 100
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=28_000))]
    idle: Option<u32>,
    /// Moves of one connection each way; without it 500, with --quick 20
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    moves: Option<u32>,
    /// How long each run is measured; without it 2, with --quick 0.3
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Runs of which the median is shown; without it 5, with --quick 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    repetitions: Option<u32>,
    /// Fewer, shorter runs
    #[arg(long)]
    quick: bool,
    /// What instructions runs under callgrind, which writes into this folder
    #[arg(long, value_name = "FOLDER", hide = true)]
    counted: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

const CONNECTIONS: [u32; 4] = [1, 256, 1_024, 16_384];
const COUNTED: [u32; 2] = [1, 256];
const PROXIED: [u32; 2] = [1, 64];

pub(super) fn run(args: &BenchHandoffArgs, printer: &mut Printer) -> Result<(), Error> {
    let of = |given: Option<u32>, usual: u32, quick: u32| {
        given.unwrap_or(if args.quick { quick } else { usual }) as usize
    };
    let connections = |usual: &[u32]| -> Vec<usize> {
        let all = match (&args.connections, args.quick) {
            (Some(given), _) => given,
            (None, true) => &usual[..1],
            (None, false) => usual,
        };
        all.iter().map(|count| *count as usize).collect()
    };
    let options = Options {
        cases: or(&args.cases, &Case::ALL),
        connections: connections(&CONNECTIONS),
        counted: connections(&COUNTED),
        proxied: connections(&PROXIED),
        mixes: Mix::ALL[..if args.quick { 1 } else { Mix::ALL.len() }].to_vec(),
        setups: Setup::ALL[..if args.quick { 1 } else { Setup::ALL.len() }].to_vec(),
        loads: if args.quick { vec![Load::ALL[0]] } else { Load::ALL.to_vec() },
        idle: of(args.idle, 10_000, 100),
        moves: of(args.moves, 500, 20),
        duration: args.seconds.unwrap_or(Duration::from_millis(if args.quick {
            300
        } else {
            2_000
        })),
        repetitions: of(args.repetitions, 5, 1),
        library: handoff_library()?,
        config: runs::prepare(&args.settings)?,
    };
    if let Some(folder) = &args.counted {
        return print(format!("{}\n", handoff::count(&options, folder)?));
    }
    Ok(handoff::handoff(&options, printer)?)
}

fn case(text: &str) -> Result<Case, String> {
    named(text, &Case::ALL, Case::name)
}

/// The server's program of a run of `wharf bench handoff`, which starts it
#[derive(Debug, Args)]
pub(crate) struct HandoffProgramArgs {
    work: Work,
    connections: usize,
    call: usize,
}

pub(super) fn serve(args: &HandoffProgramArgs) -> Result<(), Error> {
    program::run(args.work, args.connections, args.call).map_err(Error::Io)
}

/// The responder of the web server of a run of `wharf bench handoff`, which starts it
#[derive(Debug, Args)]
pub(crate) struct HandoffResponderArgs {
    files: PathBuf,
}

pub(super) fn respond(args: &HandoffResponderArgs) -> Result<(), Error> {
    handoff::respond(&args.files).map_err(Error::Io)
}
