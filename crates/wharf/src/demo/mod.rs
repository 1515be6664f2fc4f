//! `wharf demo`: what the offloads are worth, on this machine, with real kernel TCP.

mod broken;
mod dropped;
mod report;
mod traffic;

use std::io::{IsTerminal, Write};
use std::time::Duration;

use ::bench::hosts::Lab;
use nic::Nic;
use nic::config::{Config, WireMode};

use crate::cli::DemoArgs;
use crate::error::Error;
use crate::{print, settings};
pub(crate) use broken::Failure;
use dropped::Drops;
pub(crate) use report::Case;
use report::{Meter, OneWay, Row};
use traffic::Direction;

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
    let mut rows = Vec::new();
    let mut ports = None;
    for &connections in &args.connections {
        for &case in &args.cases {
            let connections = connections as usize;
            progress.show(case, connections);
            rows.push(measure(case, connections, args.seconds, &base, &mut ports)?);
        }
    }
    progress.clear();
    let text = if args.json { report::json(&rows) } else { report::table(&rows, ports.as_deref()) };
    print(text)
}

/// One case with so many connections, on hosts of its own.
fn measure(
    case: Case,
    connections: usize,
    duration: Duration,
    base: &Config,
    ports: &mut Option<String>,
) -> Result<Row, Error> {
    let lab = Lab::new()?;
    let nic = match case.offloads() {
        None => {
            lab.bare_kernel()?;
            None
        }
        Some((gso, lro)) => {
            let mut config = base.clone();
            config.gso.enable = gso;
            config.lro.enable = lro;
            Some(lab.wharf(config)?)
        }
    };
    if let Some(nic) = &nic {
        ports.get_or_insert_with(|| nic.ports().to_string());
    }
    let one_way = |direction| -> Result<OneWay, Error> {
        let drops = Drops::read(&lab, nic.as_ref());
        let before = Meter::read(&lab)?;
        let moved = traffic::run(&lab, direction, connections, duration)
            .map_err(|error| with_drops(error, &lab, nic.as_ref(), &drops))?;
        Ok(Meter::read(&lab)?.since(&before, moved))
    };
    let receive = one_way(Direction::Receive)?;
    let send = one_way(Direction::Send)?;
    if let Some(nic) = nic {
        nic.stop().map_err(Error::Io)?;
    }
    Ok(Row { case, connections, receive, send })
}

/// The same, with what was dropped since `before`, if it is of connections.
fn with_drops(error: Error, lab: &Lab, nic: Option<&Nic>, before: &Drops) -> Error {
    match error {
        Error::Traffic(failure) => {
            let dropped = Drops::read(lab, nic).since(before);
            Error::Traffic(Failure { dropped, ..failure })
        }
        other => other,
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
