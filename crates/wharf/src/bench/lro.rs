//! `wharf bench lro`: the LRO core by itself, beside its peers.

use std::time::Duration;

use bench::lro::{self, Case, FLOWS_MAX, Ip, Options, Setting, instructions};
use bench::{Report, System};
use clap::Args;

use super::values::{named, or, seconds};
use crate::error::Error;
use crate::print;

/// What LRO costs for each packet, and how much it joins
///
/// Packets of 1,448 bytes from so many flows that take turns, in order and in several kinds of
/// disorder, for wharf and for the receive offloads of tun-rs, wireguard-go, gVisor and DPDK. The
/// last three are built here if `go` or Debian's libdpdk-dev is installed, and named if not.
/// `ns_per_packet` is the time in the offload alone, on one core; `mean_aggregate` is payload for
/// each packet that comes out.
#[derive(Debug, Args)]
#[command(after_help = "Example: wharf beside DPDK, in order, as JSON lines:\n  \
                        wharf bench lro --json --case in_order --system wharf,dpdk --verify off\n\n\
                        Example: what callgrind counts, the same on a busy machine:\n  \
                        wharf bench lro --instructions --case in_order,reversed64 --flows 1,1024")]
pub(crate) struct BenchLroArgs {
    /// In which order packets arrive: in_order, swap, reversed64, displaced1, displaced10,
    /// displaced30 [default: all]
    #[arg(long = "case", value_name = "CASE,...", value_delimiter = ',', value_parser = case)]
    cases: Vec<Case>,
    /// How many flows take turns [default: 1,64,1024,65536]
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=i64::from(FLOWS_MAX)))]
    flows: Vec<u32>,
    /// IP versions [default: 4,6]
    #[arg(long, value_name = "VERSION,...", value_delimiter = ',', value_parser = ip)]
    ip: Vec<Ip>,
    /// Checksum verification: on, off [default: both]
    #[arg(long, value_name = "ON,OFF", value_delimiter = ',', value_parser = on_or_off)]
    verify: Vec<bool>,
    /// Who takes part: wharf, tun-rs, wireguard-go, gvisor, dpdk [default: all]
    #[arg(long = "system", value_name = "SYSTEM,...", value_delimiter = ',', value_parser = system)]
    systems: Vec<System>,
    /// How long each system runs for one figure; longer where a round of all flows takes longer
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = seconds)]
    seconds: Duration,
    /// A first look: a tenth of the time; 1 and 64 flows and IPv4 unless others are given
    #[arg(long)]
    quick: bool,
    /// Count wharf's instructions with callgrind (Debian's valgrind) instead of measuring time
    #[arg(long, conflicts_with = "systems")]
    instructions: bool,
    /// What `--instructions` runs under callgrind
    #[arg(long, hide = true, conflicts_with = "instructions")]
    under_callgrind: bool,
}

/// Measures, or counts.
pub(super) fn run(args: &BenchLroArgs, report: &mut dyn Report) -> Result<(), Error> {
    let options = options(args);
    if args.under_callgrind {
        return print(format!("{}\n", instructions::count(&options)?));
    }
    if args.instructions {
        let program = std::env::current_exe().map_err(Error::Io)?;
        instructions::run(&options, &program, under_callgrind, report)?;
    } else {
        lro::run(&options, report)?;
    }
    Ok(())
}

fn options(args: &BenchLroArgs) -> Options {
    let (flows, ips): (&[u32], &[Ip]) = if args.quick {
        (&[1, 64], &[Ip::V4])
    } else {
        (&[1, 64, 1024, 65_536], &[Ip::V4, Ip::V6])
    };
    Options {
        cases: or(&args.cases, &Case::ALL),
        flows: or(&args.flows, flows),
        ips: or(&args.ip, ips),
        verify: or(&args.verify, &[true, false]),
        systems: or(&args.systems, &lro::SYSTEMS),
        time: if args.quick { args.seconds / 10 } else { args.seconds },
    }
}

/// The command line of one case at one setting.
fn under_callgrind(case: Case, setting: Setting) -> Vec<String> {
    let Setting { flows, ip, verify } = setting;
    let verify = if verify { "on" } else { "off" };
    let words = format!(
        "bench lro --under-callgrind --case {} --flows {flows} --ip {} --verify {verify}",
        case.name(),
        ip.number(),
    );
    words.split(' ').map(str::to_owned).collect()
}

fn case(text: &str) -> Result<Case, String> {
    named(text, &Case::ALL, Case::name)
}

fn system(text: &str) -> Result<System, String> {
    named(text, &lro::SYSTEMS, System::name)
}

fn ip(text: &str) -> Result<Ip, String> {
    named(text, &[Ip::V4, Ip::V6], |ip| if ip == Ip::V4 { "4" } else { "6" })
}

fn on_or_off(text: &str) -> Result<bool, String> {
    named(text, &[true, false], |on| if on { "on" } else { "off" })
}
