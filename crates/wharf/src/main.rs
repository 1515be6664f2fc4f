//! wharf: a software NIC for Linux, in front of an unmodified kernel.

mod args;
mod bench;
mod cli;
mod connections;
mod degen;
mod demo;
mod doctor;
mod error;
mod guard;
mod handoff;
mod lateness;
mod loaded;
mod log;
mod outcome;
mod pcap;
mod rdma;
mod run;
mod serve;
mod service_manager;
mod serving;
mod set;
mod settings;
mod stats;
mod table;
mod tcp;
mod text;
mod trace;
mod units;
mod up;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use cli::{Cli, Command};
use error::Error;

/// Flow tables are large, and looked up at random.
#[global_allocator]
static ALLOCATOR: sys::allocator::HugePages = sys::allocator::HugePages;

fn main() -> ExitCode {
    // Neither the guard nor a supervisor is a command: help and completions do not show them.
    let ended = if guard::is_this() {
        log::start(None);
        guard::run()
    } else if run::pair::is_this() {
        log::start(None);
        run::pair::run()
    } else {
        let cli = Cli::parse();
        log::start(cli.log);
        run(cli)
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output has had enough of it.
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(Error::LeftToOthers(error)) => {
            tracing::info!("{error}");
            error.exit_code()
        }
        Err(error) => {
            // With stderr gone too, the exit status still tells.
            tracing::error!("{error}");
            error.exit_code()
        }
    }
}

fn run(cli: Cli) -> Result<(), Error> {
    match cli.command {
        Command::Up(args) => up::run(&args),
        Command::Degen(args) => degen::run(&args),
        Command::Tcp(args) => tcp::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Connections(args) => connections::run(&args),
        Command::Handoff(args) => handoff::run(&args),
        Command::Rdma(args) => rdma::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Set(args) => set::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Pcap(args) => pcap::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "wharf", &mut script);
            print(&script)
        }
    }
}

/// Writes to stdout, where a reader that went away is no failure.
fn print(text: impl AsRef<[u8]>) -> Result<(), Error> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_ref()).and_then(|()| stdout.flush()).map_err(Error::Stdout)
}
