//! `wharf demo`: what the offloads are worth, on this machine, with real kernel TCP.

mod broken;
mod dropped;
mod report;
mod traffic;

use std::io::{IsTerminal, Write};
use std::time::Duration;

use ::bench::hosts::Hosts;
use clap::Args;
use nic::Nic;
use nic::config::{Config, WireMode};

use crate::args::{Settings, seconds};
use crate::error::Error;
use crate::{print, settings};
use broken::Failure;
use dropped::Drops;
pub(crate) use report::Case;
use report::{Meter, OneWay, Row};
use traffic::{Direction, RunError};

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
          default_value = "none,gso,lro,gso_lro,kernel", value_parser = Case::parse)]
    pub(crate) cases: Vec<Case>,
    /// How long each measurement sends
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// JSON lines instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) settings: Settings,
}

/// Runs all cases and prints what they gave.
pub(crate) fn run(args: &DemoArgs) -> Result<(), Error> {
    let mut base = settings::load(&args.settings)?;
    let ordinary_user = !sys::process::has_net_admin();
    if ordinary_user {
        sys::netns::unshare_user_net()?;
    }
    if ordinary_user {
        // BPF asks for rights in the first user namespace.
        base.wire.mode = WireMode::Packet;
    }
    let runs = args.connections.len() * args.cases.len();
    let mut progress = Progress::new(runs, args.seconds);
    let mut rows: Vec<Row> = Vec::new();
    let mut ports = Vec::new();
    if !args.json {
        print(report::heading(args.cases.iter().any(|case| case.offloads().is_some())))?;
    }
    for &connections in &args.connections {
        for &case in &args.cases {
            let connections = connections as usize;
            progress.show(case, connections);
            let row = measure(case, connections, args.seconds, &base, &mut ports)?;
            progress.clear();
            // Each row at once: the next one takes seconds, and the reader may be a pipe.
            print(match args.json {
                true => report::json(&row),
                false => report::line(&row, rows.last()),
            })?;
            rows.push(row);
        }
    }
    if args.json { Ok(()) } else { print(report::end(&rows, &ports)) }
}

/// One case with so many connections, on hosts of its own.
fn measure(
    case: Case,
    connections: usize,
    duration: Duration,
    base: &Config,
    ports: &mut Vec<String>,
) -> Result<Row, Error> {
    let hosts = Hosts::new()?;
    let nic = match case.offloads() {
        None => {
            hosts.bare_kernel()?;
            None
        }
        Some((gso, lro)) => {
            let mut config = base.clone();
            config.gso.enable = gso;
            config.lro.enable = lro;
            Some(hosts.wharf(config)?)
        }
    };
    if let Some(nic) = &nic {
        // The way out depends on what the host may hand over.
        let used = nic.ports().to_string();
        if !ports.contains(&used) {
            ports.push(used);
        }
    }
    let one_way = |direction| -> Result<OneWay, Error> {
        let drops = Drops::read(&hosts, nic.as_ref());
        let before = Meter::read(&hosts)?;
        let moved = traffic::run(&hosts, direction, connections, duration)
            .map_err(|error| with_drops(error, &hosts, nic.as_ref(), &drops))?;
        Ok(Meter::read(&hosts)?.since(&before, moved))
    };
    let receive = one_way(Direction::Receive)?;
    let send = one_way(Direction::Send)?;
    if let Some(nic) = nic {
        nic.stop().map_err(Error::Io)?;
    }
    Ok(Row { case, connections, receive, send })
}

/// The error of a run, with what was dropped since `before`, if it is of connections.
fn with_drops(error: RunError, hosts: &Hosts, nic: Option<&Nic>, before: &Drops) -> Error {
    match error {
        RunError::Connections(failure) => {
            let dropped = Drops::read(hosts, nic).since(before);
            Error::Traffic(Failure { dropped, ..failure }.to_string())
        }
        RunError::Other(error) => error,
    }
}

/// A line on a terminal that says how far things are.
struct Progress {
    runs: usize,
    done: usize,
    seconds: f64,
    shown: bool,
}

impl Progress {
    fn new(runs: usize, run: Duration) -> Self {
        let seconds = 2.0 * run.as_secs_f64() + 0.2;
        Progress { runs, done: 0, seconds, shown: std::io::stderr().is_terminal() }
    }

    fn show(&mut self, case: Case, connections: usize) {
        let left = (self.runs - self.done) as f64 * self.seconds;
        self.done += 1;
        if self.shown {
            let (done, runs) = (self.done, self.runs);
            let s = if connections == 1 { "" } else { "s" };
            eprint!(
                "\r\x1b[K[{done}/{runs}] {}, {connections} connection{s}, {left:.0} s left",
                case.title()
            );
            let _ = std::io::stderr().flush();
        }
    }

    fn clear(&self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }
}
