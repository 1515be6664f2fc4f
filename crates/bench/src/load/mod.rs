//! `load`: a host behind wharf, and the same host's bare kernel, at the edges of what hosts do: one
//! connection and thousands, small messages, datagrams, a path that reorders.
//!
//! Client and server are two kernels, joined by a veth that carries frames of its MTU with complete
//! checksums. A veth has room for 256 frames and drops what does not fit; with a transmit queue at the client's end
//! they wait there, as at a card. Systems take turns within each repetition, so that a machine that grows slower does so
//! for both; what is reported is the median of the repetitions.

mod connections;
mod redis;
pub(crate) mod request_response;
pub(crate) mod streams;
mod testbed;
mod udp;

use std::time::Duration;

use nic::config::Config;
use serde_json::Value;

use crate::throughput::median;
use crate::{Error, Figure, Report};
use testbed::Testbed;

/// What the host does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Case {
    /// It receives over many TCP connections.
    Connections,
    /// It sends over them.
    Send,
    /// It receives over a path that reorders.
    Reordering,
    /// It answers messages of one byte, one after the other.
    RequestResponse,
    /// It receives UDP datagrams at a rate.
    Udp,
    /// It runs redis, for one client.
    Redis,
}

impl Case {
    /// All, in the order in which they are run.
    pub const ALL: [Case; 6] = [
        Case::Connections,
        Case::Send,
        Case::Reordering,
        Case::RequestResponse,
        Case::Udp,
        Case::Redis,
    ];

    /// Its name in figures and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Case::Connections => "connections",
            Case::Send => "send",
            Case::Reordering => "reordering",
            Case::RequestResponse => "request_response",
            Case::Udp => "udp",
            Case::Redis => "redis",
        }
    }
}

/// Who receives what the wire brings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    /// The kernel behind wharf.
    Wharf,
    /// The bare kernel, with GRO.
    Kernel,
}

impl System {
    /// Both, in the order in which they take turns.
    pub const ALL: [System; 2] = [System::Wharf, System::Kernel];

    /// Its name in figures and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            System::Wharf => "wharf",
            System::Kernel => "kernel",
        }
    }
}

/// The parameters of the scenario.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is measured.
    pub cases: Vec<Case>,
    /// Of whom.
    pub systems: Vec<System>,
    /// Numbers of connections of [`Case::Connections`].
    pub connections: Vec<usize>,
    /// Numbers of connections of [`Case::Send`].
    pub senders: Vec<usize>,
    /// Percentages of displaced packets of [`Case::Reordering`].
    pub displaced: Vec<u32>,
    /// Most threads of each host's application; each has its share of the connections.
    pub threads: usize,
    /// Packets that may wait at the client's end of the wire; 0: it drops what it cannot carry at once.
    pub wire_queue: u32,
    /// How long each run is measured.
    pub duration: Duration,
    /// Runs of which the median counts.
    pub repetitions: usize,
    /// wharf's settings.
    pub config: Config,
}

impl Options {
    fn check(&self) -> Result<(), Error> {
        let counts = || self.connections.iter().chain(&self.senders);
        if counts().any(|count| !(1..=CONNECTIONS_MAX).contains(count)) {
            return Err(Error::Usage(format!("there can be 1 to {CONNECTIONS_MAX} connections")));
        }
        if self.displaced.iter().any(|percent| *percent > 100) {
            return Err(Error::Usage("0 to 100 % of all packets can be displaced".to_owned()));
        }
        if self.repetitions == 0 || self.threads == 0 {
            return Err(Error::Usage(
                "there is one repetition, and one thread, at least".to_owned(),
            ));
        }
        Ok(())
    }

    /// Descriptors for one end of all connections, and for the rest.
    fn open_files(&self) -> u64 {
        let most = self.connections.iter().chain(&self.senders).max();
        most.map_or(0, |most| *most as u64) + 1_024
    }
}

/// Most connections: what one client's ports (`ip_local_port_range`) suffice for.
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

/// What a run gives, or why it gives nothing on this machine.
type Readings = Result<Vec<Reading>, Error>;

/// One row of the table: what varies, and how one run of a system is made.
struct Row<'a> {
    case: Case,
    varied: Vec<(&'static str, Value)>,
    run: Box<dyn Fn(System) -> Readings + 'a>,
}

impl Row<'_> {
    fn new<'a>(
        case: Case,
        varied: Vec<(&'static str, Value)>,
        run: impl Fn(System) -> Readings + 'a,
    ) -> Row<'a> {
        Row { case, varied, run: Box::new(run) }
    }

    /// Whether it is over the wire itself.
    fn has_queue(&self) -> bool {
        self.case != Case::Reordering
    }

    fn title(&self) -> String {
        let varied = self.varied.iter().map(|(name, value)| format!(", {name} {value}"));
        format!("{}{}", self.case.name(), varied.collect::<String>())
    }

    /// Runs the systems in turns.
    fn measure(
        &self,
        options: &Options,
        done: &mut usize,
        all: usize,
        report: &mut dyn Report,
    ) -> Result<(), Error> {
        let mut runs: Vec<Vec<Vec<Reading>>> = vec![Vec::new(); options.systems.len()];
        for _ in 0..options.repetitions {
            for (system, runs) in options.systems.iter().zip(&mut runs) {
                report.progress(*done, all, &format!("{}, {}", self.title(), system.name()));
                *done += 1;
                runs.push((self.run)(*system)?);
            }
        }
        for (system, runs) in options.systems.iter().zip(&runs) {
            self.report(*system, runs, report);
        }
        Ok(())
    }

    /// Reports the median of each metric.
    fn report(&self, system: System, runs: &[Vec<Reading>], report: &mut dyn Report) {
        let Some(first) = runs.first() else { return };
        for Reading { metric, unit, .. } in first {
            let of = |run: &Vec<Reading>| run.iter().find(|r| r.metric == *metric).map(|r| r.value);
            let samples: Vec<f64> = runs.iter().filter_map(of).collect();
            report.figure(Figure {
                bench: "load",
                case: self.case.name().to_owned(),
                system: system.name().to_owned(),
                varied: self.varied.clone(),
                metric,
                unit,
                value: median(samples.iter().copied()),
                samples,
            });
        }
    }
}

/// Measures every case of `options`.
///
/// # Errors
/// What the kernel says, or the NIC; a number of connections that cannot be.
pub fn load(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    options.check()?;
    sys::process::allow_open_files(options.open_files())
        .map_err(|cause| Error::Io { what: "open a descriptor for each connection", cause })?;
    let mut rows = Vec::new();
    for &case in &options.cases {
        match case {
            Case::Connections => rows.extend(connections::receive(options)),
            Case::Send => rows.extend(connections::send(options)),
            Case::Reordering => rows.extend(connections::reordering(options)),
            Case::RequestResponse => rows.extend(request_response::rows(options)),
            Case::Udp => rows.push(udp::row(options)),
            Case::Redis => match redis::missing() {
                None => rows.push(redis::row(options)),
                Some(program) => report.notice(&format!("redis is left out: no {program} here")),
            },
        }
    }
    let all = rows.len() * options.repetitions * options.systems.len();
    let mut done = 0;
    for row in &mut rows {
        if row.has_queue() {
            row.varied.push(("wire_queue", options.wire_queue.into()));
        }
        row.measure(options, &mut done, all, report)?;
    }
    Ok(())
}
