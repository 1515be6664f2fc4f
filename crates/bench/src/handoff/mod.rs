//! `handoff`: TCP connections that the NIC runs, beside the host's, of the same program through the same wharf.
//!
//! What moving them costs (`handoff`), what a program's calls cost its host (`profile`), what a packet costs host and NIC
//! (`packet`) and in instructions (`instructions`), what it costs the host's own stack (`stack`), what a web server delivers (`web`), what a proxy moves
//! (`splice`), and how long a byte takes there and back (`echo`). wharf's worker has a CPU of its own; the program and its
//! client share the others.

mod cpu;
mod echo;
mod installed;
mod instructions;
mod moves;
mod packet;
mod profile;
pub mod program;
mod splice;
mod stack;
mod testbed;
mod web;

use std::path::PathBuf;
use std::time::Duration;

use nic::config::Config;
use serde_json::Value;

pub use self::instructions::count;
pub use self::packet::Mix;
pub use self::stack::{Sender, Setup};
pub use self::web::{Load, respond};
use crate::throughput::median;
use crate::{Error, Figure, Report};

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Case {
    /// Moving connections to the NIC and back.
    Handoff,
    /// What the host has to do for a program's calls.
    Profile,
    /// What a packet costs by layer, and how many messages.
    Packet,
    /// Instructions a packet of the bypass layer and of the NIC, by callgrind.
    Instructions,
    /// What a packet costs the host's own stack by layer.
    Stack,
    /// What a web server delivers, and what a packet costs by layer.
    Web,
    /// The same with all connections at the NIC, and with those that policies give it.
    Policies,
    /// What a proxy moves from one connection to another, and what a byte costs.
    Splice,
    /// One byte there and back.
    Echo,
}

impl Case {
    /// All, in the order in which they are run.
    pub const ALL: [Case; 9] = [
        Case::Handoff,
        Case::Profile,
        Case::Packet,
        Case::Instructions,
        Case::Stack,
        Case::Web,
        Case::Policies,
        Case::Splice,
        Case::Echo,
    ];

    /// Its name in figures and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Case::Handoff => "handoff",
            Case::Profile => "profile",
            Case::Packet => "packet",
            Case::Instructions => "instructions",
            Case::Stack => "stack",
            Case::Web => "web",
            Case::Policies => "policies",
            Case::Splice => "splice",
            Case::Echo => "echo",
        }
    }
}

/// Who runs the connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The host's kernel, of a program without `libwharf.so`.
    Os,
    /// wharf.
    Nic,
}

impl Place {
    /// Both, in the order in which they take turns.
    pub const ALL: [Place; 2] = [Place::Os, Place::Nic];

    /// Its name in figures.
    pub const fn name(self) -> &'static str {
        match self {
            Place::Os => "os",
            Place::Nic => "nic",
        }
    }
}

/// The parameters of the scenario.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is measured.
    pub cases: Vec<Case>,
    /// Numbers of connections of [`Case::Profile`].
    pub connections: Vec<usize>,
    /// Connections of [`Case::Packet`].
    pub mixes: Vec<Mix>,
    /// Numbers of connections of [`Case::Instructions`].
    pub counted: Vec<usize>,
    /// How the host is set up in [`Case::Stack`].
    pub setups: Vec<Setup>,
    /// How the server of [`Case::Web`] and [`Case::Policies`] is loaded.
    pub loads: Vec<Load>,
    /// Numbers of connections of the proxy of [`Case::Splice`], each of which has one behind it.
    pub proxied: Vec<usize>,
    /// Connections that are moved at once in [`Case::Handoff`].
    pub idle: usize,
    /// Moves of one connection.
    pub moves: usize,
    /// How long each run is measured.
    pub duration: Duration,
    /// Runs of which the median counts.
    pub repetitions: usize,
    /// `libwharf.so`.
    pub library: PathBuf,
    /// wharf's settings.
    pub config: Config,
}

/// Most connections: what one client's ports suffice for.
const CONNECTIONS_MAX: usize = 28_000;

/// One value of one run.
#[derive(Clone, Copy, Debug)]
struct Reading {
    metric: &'static str,
    unit: &'static str,
    value: f64,
}

impl Reading {
    fn new(metric: &'static str, unit: &'static str, value: f64) -> Reading {
        Reading { metric, unit, value }
    }
}

/// A kind of run, by what varies.
type Varied = Vec<(&'static str, Value)>;

/// Reports the median of each metric over the runs of one kind.
fn report_runs(case: Case, varied: &Varied, runs: &[Vec<Reading>], report: &mut dyn Report) {
    let Some(first) = runs.first() else { return };
    for Reading { metric, unit, .. } in first {
        let of = |run: &Vec<Reading>| run.iter().find(|r| r.metric == *metric).map(|r| r.value);
        let samples: Vec<f64> = runs.iter().filter_map(of).collect();
        report.figure(Figure {
            bench: "handoff",
            case: case.name().to_owned(),
            system: "wharf".to_owned(),
            varied: varied.clone(),
            metric,
            unit,
            value: median(samples.iter().copied()),
            samples,
        });
    }
}

/// The value below which such a part of the sorted ones is.
fn quantile(sorted: &[u64], part: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * part) as usize).map_or(f64::NAN, |value| *value as f64)
}

/// Measures every case of `options`.
///
/// # Errors
/// What the kernel says, or the NIC; a number of connections that cannot be.
pub fn handoff(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    let mixed = || options.mixes.iter().map(|mix| mix.connections);
    let set_up = || options.setups.iter().map(Setup::connections);
    let loaded = || options.loads.iter().map(|load| load.connections);
    let some = || options.connections.iter().chain(&options.counted);
    let others = || some().chain(&options.proxied).chain([&options.idle]);
    let counts = || others().copied().chain(mixed()).chain(set_up()).chain(loaded());
    if counts().any(|count| !(1..=CONNECTIONS_MAX).contains(&count)) {
        return Err(Error::Usage(format!("there can be 1 to {CONNECTIONS_MAX} connections")));
    }
    if options.repetitions == 0 || options.moves == 0 {
        return Err(Error::Usage("there is one repetition, and one move, at least".to_owned()));
    }
    // The NIC's: clients have tables of their own, but for those that a proxy has behind it.
    let proxied = options.proxied.iter().map(|count| splice::DESCRIPTORS * count);
    let most = counts().chain(proxied).max().unwrap_or(0) as u64;
    sys::process::allow_open_files(most + 1_024)
        .map_err(|cause| Error::Io { what: "open a descriptor for each connection", cause })?;
    for case in &options.cases {
        match case {
            Case::Handoff => moves::measure(options, report)?,
            Case::Profile => profile::measure(options, report)?,
            Case::Packet => packet::measure(options, report)?,
            Case::Instructions => instructions::measure(options, report)?,
            Case::Stack => stack::measure(options, report)?,
            Case::Web => web::measure(options, report)?,
            Case::Policies => web::policies(options, report)?,
            Case::Splice => splice::measure(options, report)?,
            Case::Echo => echo::measure(options, report)?,
        }
    }
    Ok(())
}
