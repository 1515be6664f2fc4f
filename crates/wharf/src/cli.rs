//! The command line.

use clap::{Parser, Subcommand};
use clap_complete::Shell;

use crate::bench::BenchArgs;
use crate::connections::ConnectionsArgs;
use crate::degen::DegenArgs;
use crate::demo::DemoArgs;
use crate::doctor::DoctorArgs;
use crate::handoff::HandoffArgs;
use crate::log::LogLevel;
use crate::pcap::PcapArgs;
use crate::rdma::RdmaArgs;
use crate::run::RunArgs;
use crate::set::SetArgs;
use crate::stats::StatsArgs;
use crate::tcp::TcpArgs;
use crate::up::UpArgs;

/// A software NIC for Linux: it cuts large sends into packets (GSO) and joins received packets
/// into large ones (LRO), in front of an unmodified kernel.
#[derive(Debug, Parser)]
#[command(name = "wharf", version, max_term_width = 100)]
#[command(after_help = "Example: see what it is worth on this machine, without touching its \
                        network:\n  wharf demo")]
pub(crate) struct Cli {
    /// What to log on standard error: error, warn (the default), info, debug or trace
    #[arg(long, global = true, value_name = "LEVEL", hide_possible_values = true)]
    pub(crate) log: Option<LogLevel>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Up(UpArgs),
    Degen(DegenArgs),
    Tcp(TcpArgs),
    Run(RunArgs),
    Connections(ConnectionsArgs),
    Handoff(HandoffArgs),
    Rdma(RdmaArgs),
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
