//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use bench::Case;
use bench::throughput::WireKind;
use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use nic::config::{Choice, LroProfile};

use crate::bench::{
    BenchDegenArgs, BenchGsoArgs, BenchGsoThroughputArgs, BenchLroArgs, BenchPaperArgs,
    BenchTcpArgs, BenchTcpGoodputArgs,
};
use crate::degen::DegenArgs;
use crate::demo::Case as DemoCase;
use crate::tcp::TcpArgs;

/// A software NIC for Linux: it cuts large sends into packets (GSO) and joins received packets
/// into large ones (LRO), in front of an unmodified kernel.
#[derive(Debug, Parser)]
#[command(name = "wharf", version, max_term_width = 100)]
#[command(after_help = "Example: see what it is worth on this machine, without touching its \
                        network:\n  wharf demo")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Up(UpArgs),
    Degen(DegenArgs),
    Tcp(TcpArgs),
    Demo(DemoArgs),
    Stats(StatsArgs),
    Set(SetArgs),
    Doctor(DoctorArgs),
    Pcap(PcapArgs),
    Bench(BenchArgs),
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  wharf completions bash > \
                            ~/.local/share/bash-completion/completions/wharf")]
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// Put wharf between an interface and this machine
///
/// The kernel then uses the host interface that wharf makes instead of the wire. wharf runs
/// until it is stopped (Ctrl-C); everything it made goes with it.
#[derive(Debug, Args)]
#[command(after_help = "Example: take over eth0, its addresses and routes included:\n  \
                        wharf up --wire eth0 --host nic0 --take-addresses\n\n\
                        Example: no LRO, and a file for the rest:\n  \
                        wharf up --wire eth0 --host nic0 --config wharf.toml --set lro.enable=false")]
pub(crate) struct UpArgs {
    /// Ethernet interface that faces the network
    #[arg(long, value_name = "IF")]
    pub(crate) wire: String,
    /// Name of the interface to make for this machine
    #[arg(long, value_name = "NAME")]
    pub(crate) host: String,
    /// Move addresses and routes from the wire to the host interface while wharf runs
    #[arg(long)]
    pub(crate) take_addresses: bool,
    /// A WAN between the wire and wharf: a settings file of `wharf degen`, whose forward direction is
    /// that of what this machine sends
    #[arg(long, value_name = "FILE")]
    pub(crate) degen: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: Settings,
}

/// Where settings come from: the file first, then the command line.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Settings {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// One setting, over what the file says; `wharf set --defaults` lists all keys
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    pub(crate) set: Vec<(String, String)>,
}

fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) => Ok((key.trim().to_owned(), value.trim().to_owned())),
        None => Err("a setting is KEY=VALUE, such as lro.enable=false".to_owned()),
    }
}

/// Measure what the offloads are worth on this machine
///
/// Builds two hosts out of network namespaces, puts wharf in front of one of them and drives
/// real kernel TCP through it, with GSO and LRO on and off, and over the bare kernel. Nothing of
/// this machine's own network is touched, and nothing stays behind. Needs no privilege where
/// user namespaces are allowed; as root it uses AF_XDP.
#[derive(Debug, Args)]
#[command(after_help = "Example: a quick look at one and at 64 connections:\n  \
                        wharf demo --connections 1,64 --seconds 1")]
pub(crate) struct DemoArgs {
    /// How many TCP connections at a time, one round each
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,8,64",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) connections: Vec<u32>,
    /// Which ways to run the server: none, gso, lro, gso_lro (wharf) and kernel (without it)
    #[arg(long = "case", value_name = "CASE,...", value_delimiter = ',',
          default_value = "none,gso,lro,gso_lro,kernel", value_parser = DemoCase::parse)]
    pub(crate) cases: Vec<DemoCase>,
    /// How long each measurement sends
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// JSON lines instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) settings: Settings,
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("it is a number of seconds from 0.1 to 3600".to_owned()),
    }
}

/// Show the counters of a wharf that runs here
#[derive(Debug, Args)]
#[command(after_help = "Example: watch the rates, once a second:\n  wharf stats --watch")]
pub(crate) struct StatsArgs {
    /// Host interface of the wharf, or the two of a degen (eth1:eth2), if several run here
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Option<String>,
    /// One JSON object a line instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// Once a second until stopped, with rates (per_second in JSON, from the second line on)
    #[arg(long)]
    pub(crate) watch: bool,
    /// Counters that are zero, too
    #[arg(long)]
    pub(crate) all: bool,
}

/// Show or change the settings of a wharf that runs here
///
/// Without KEY it lists all settings, with KEY it prints one, with VALUE it changes one.
#[derive(Debug, Args)]
#[command(after_help = "Example: hold segments back for at most 50 microseconds:\n  \
                        wharf set lro.max_timeout 50us\n\n\
                        Example: a degen loses one packet in a hundred on the way back:\n  \
                        wharf set reverse.loss 1%")]
pub(crate) struct SetArgs {
    /// Host interface of the wharf, or the two of a degen (eth1:eth2), if several run here
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Option<String>,
    /// List all keys with their defaults, or KEY with its own; no wharf needs to run
    #[arg(long, conflicts_with_all = ["value", "host"])]
    pub(crate) defaults: bool,
    /// The setting, such as lro.enable
    pub(crate) key: Option<String>,
    /// Its new value
    #[arg(allow_hyphen_values = true)]
    pub(crate) value: Option<String>,
}

/// Find out what this machine can do, and what to do about what is missing
///
/// Tries each thing that wharf uses, in network namespaces of its own, which leave nothing
/// behind.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  wharf doctor")]
pub(crate) struct DoctorArgs {
    /// One JSON object a line instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// Run the offloads over a capture file, in virtual time
///
/// Reads pcap and pcapng with Ethernet frames and writes pcap. The packets' own timestamps are
/// the clock, so the same input always gives the same output.
#[derive(Debug, Args)]
#[command(after_help = "Example: what would LRO have made of this?\n  \
                        wharf pcap lro in.pcap out.pcap")]
pub(crate) struct PcapArgs {
    #[command(subcommand)]
    pub(crate) command: PcapCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PcapCommand {
    /// Join the TCP segments that LRO would join
    #[command(after_help = "Example: only what Linux GRO may merge:\n  \
                            wharf pcap lro in.pcap out.pcap --profile lossless")]
    Lro {
        #[command(flatten)]
        files: PcapFiles,
        /// Which segments may become one; over what the settings say
        #[arg(long, value_name = "PROFILE", value_parser = profile())]
        profile: Option<String>,
        #[command(flatten)]
        settings: Settings,
    },
    /// Cut the TCP packets that are longer than the MTU
    #[command(after_help = "Example: a capture made on a host with TSO, as its wire saw it:\n  \
                            wharf pcap gso in.pcap out.pcap --mtu 1500")]
    Gso {
        #[command(flatten)]
        files: PcapFiles,
        /// Longest IP packet to write, in bytes
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(68..))]
        mtu: u16,
    },
    /// Join losslessly, cut again, and count the packets that came back bit for bit
    #[command(after_help = "Example:\n  wharf pcap roundtrip in.pcap out.pcap")]
    Roundtrip {
        #[command(flatten)]
        files: PcapFiles,
        #[command(flatten)]
        settings: Settings,
    },
}

/// Measure wharf, beside its peers where they are installed
///
/// Each scenario measures everything that it compares in one run; compare figures of one run only.
#[derive(Debug, Args)]
#[command(after_help = "Example: LRO by itself, in nanoseconds a packet, as JSON lines:\n  \
                        wharf bench lro --json")]
pub(crate) struct BenchArgs {
    /// One JSON object a line, as soon as it is known, instead of a table
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    Lro(BenchLroArgs),
    Gso(BenchGsoArgs),
    LroThroughput(BenchLroThroughputArgs),
    Reordering(BenchReorderingArgs),
    Fairness(BenchFairnessArgs),
    Latency(BenchLatencyArgs),
    GsoThroughput(BenchGsoThroughputArgs),
    Degen(BenchDegenArgs),
    Tcp(BenchTcpArgs),
    TcpGoodput(BenchTcpGoodputArgs),
    Paper(BenchPaperArgs),
}

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

/// How fast the receiver stays when the wire reorders
///
/// As lro-throughput over the wire in memory, which displaces some segments by 1 to 32 positions of
/// their connection. Its senders do not take reordering for loss.
#[derive(Debug, Args)]
#[command(after_help = "Example: one segment in ten comes late:\n  \
                        wharf bench reordering --percent 0,10 --quick")]
pub(crate) struct BenchReorderingArgs {
    /// How many of 100 segments are displaced, one round each; without it 0,1,5,10,20,30
    #[arg(long, value_name = "P,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) percent: Option<Vec<u32>>,
    /// How many TCP connections at a time, one round each; without it 1 and 64
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub(crate) connections: Option<Vec<u32>>,
    #[command(flatten)]
    pub(crate) runs: BenchRuns,
}

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
    #[command(flatten)]
    pub(crate) settings: Settings,
}

/// Whether holding segments back costs an application time: request and response over veth
///
/// One connection sends a message and waits for an answer as long. LRO is turned on and off on the
/// same connection, round by round; kernel_gro is a bare veth beside it.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  wharf bench latency --bytes 1,1024")]
pub(crate) struct BenchLatencyArgs {
    /// Lengths of the messages, one after the other
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,1024",
          value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(crate) bytes: Vec<u32>,
    /// Round trips in each round
    #[arg(long, value_name = "N", default_value_t = 500,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) messages: u32,
    /// Rounds of each case; without it 40, with --quick 6
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: Option<u32>,
    /// Fewer rounds
    #[arg(long)]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) settings: Settings,
}

/// Whether new connections get through to a host port that others saturate
///
/// A few connections send all they can over wires in memory, one for each worker, to a host port
/// with one queue and the kernel's TCP behind it; then others try to open, with three SYNs each,
/// the first two of which they repeat after 0.2 and 0.4 s. round_robin is wharf's scheduler, lifo
/// the stack of requests that the paper on LRO found to starve new connections.
#[derive(Debug, Args)]
#[command(after_help = "Example: as in the paper, where LRO is on:\n  \
                        wharf bench fairness --lro on")]
pub(crate) struct BenchFairnessArgs {
    /// How long each round is measured at least
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// Workers that share the host port
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(2..=64))]
    pub(crate) workers: u32,
    /// Packets of each worker that may wait for it: host.requests, which is less by default. In a
    /// short stack nothing stays at the bottom for long
    #[arg(long, value_name = "N", default_value_t = 1024,
          value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub(crate) requests: u32,
    /// Connections that saturate it
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(1..=8_192))]
    pub(crate) heavy: u32,
    /// Connections that try to open meanwhile
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=8_192))]
    pub(crate) openers: u32,
    /// With LRO and without: on, off
    #[arg(long, value_name = "ON,...", value_delimiter = ',', default_value = "off,on",
          value_parser = PossibleValuesParser::new(["on", "off"]))]
    pub(crate) lro: Vec<String>,
    #[command(flatten)]
    pub(crate) settings: Settings,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct PcapFiles {
    /// Capture to read; - is standard input. What comes before a packet that it ends in is taken
    #[arg(value_name = "IN")]
    pub(crate) input: PathBuf,
    /// Capture to write, another file than IN; it appears when it is complete. - is standard output;
    /// the summary then goes to standard error
    #[arg(value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// One JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

fn profile() -> PossibleValuesParser {
    PossibleValuesParser::new(<LroProfile as Choice>::NAMES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_help_has_an_example() {
        fn check(command: &mut clap::Command) {
            let help = command.render_long_help().to_string();
            assert!(help.contains("Example"), "{}:\n{help}", command.get_name());
            let shown = |command: &&mut clap::Command| {
                !command.is_hide_set() && command.get_name() != "help"
            };
            command.get_subcommands_mut().filter(shown).for_each(check);
        }
        check(&mut Cli::command());
    }
}
