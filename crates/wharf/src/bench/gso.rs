//! `wharf bench gso`: the GSO core by itself, beside its peers.

use std::time::Duration;

use bench::gso::{self, Case, GSO_SIZES, Options, instructions};
use bench::{Report, System};
use clap::Args;

use super::values::{named, or, seconds};
use crate::error::Error;
use crate::print;

/// What GSO costs for each segment
///
/// Super-packets of just under 64 KB, in the cache, are cut into TCP segments, UDP datagrams and IP
/// fragments by wharf, tun-rs, wireguard-go and DPDK. The last two are built here if `go` or
/// Debian's libdpdk-dev is installed, and named if not. `ns_per_segment` is the time on one core.
/// wharf and DPDK write headers and leave payload where it lies, wharf-copy and the others write
/// whole packets; all but DPDK compute checksums.
#[derive(Debug, Args)]
#[command(after_help = "Example: wharf beside DPDK, TCP over IPv4, as JSON lines:\n  \
                        wharf bench gso --json --case tcp4 --system wharf,dpdk\n\n\
                        Example: what callgrind counts, the same on a busy machine:\n  \
                        wharf bench gso --instructions --gso-size 1448")]
pub(crate) struct BenchGsoArgs {
    /// What is cut: tcp4, tcp6, uso4, uso6, frag4, frag6 [default: all]
    #[arg(long = "case", value_name = "CASE,...", value_delimiter = ',', value_parser = case)]
    cases: Vec<Case>,
    /// Bytes of payload in a segment, in fragments less what is no multiple of 8
    /// [default: 536,1448,8948]
    #[arg(long = "gso-size", value_name = "BYTES,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u16)
              .range(*GSO_SIZES.start() as i64..=*GSO_SIZES.end() as i64))]
    gso_sizes: Vec<u16>,
    /// Who takes part: wharf, wharf-copy, tun-rs, wireguard-go, dpdk [default: all]
    #[arg(long = "system", value_name = "SYSTEM,...", value_delimiter = ',', value_parser = system)]
    systems: Vec<System>,
    /// How long each system runs for one figure
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = seconds)]
    seconds: Duration,
    /// A first look: a tenth of the time; 1448 bytes unless others are given
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
pub(super) fn run(args: &BenchGsoArgs, report: &mut dyn Report) -> Result<(), Error> {
    let options = options(args);
    if args.under_callgrind {
        return print(format!("{}\n", instructions::count(&options)?));
    }
    if args.instructions {
        let program = std::env::current_exe().map_err(Error::Io)?;
        instructions::run(&options, &program, under_callgrind, report)?;
    } else {
        gso::run(&options, report)?;
    }
    Ok(())
}

fn options(args: &BenchGsoArgs) -> Options {
    let gso_sizes: &[u16] = if args.quick { &[1448] } else { &[536, 1448, 8948] };
    Options {
        cases: or(&args.cases, &Case::ALL),
        gso_sizes: or(&args.gso_sizes, gso_sizes),
        systems: or(&args.systems, &gso::SYSTEMS),
        time: if args.quick { args.seconds / 10 } else { args.seconds },
    }
}

/// The command line of one case at one gso_size by one system.
fn under_callgrind(case: Case, gso_size: u16, system: System) -> Vec<String> {
    let words = format!(
        "bench gso --under-callgrind --case {} --gso-size {gso_size} --system {}",
        case.name(),
        system.name(),
    );
    words.split(' ').map(str::to_owned).collect()
}

fn case(text: &str) -> Result<Case, String> {
    named(text, &Case::ALL, Case::name)
}

fn system(text: &str) -> Result<System, String> {
    named(text, &gso::SYSTEMS, System::name)
}
