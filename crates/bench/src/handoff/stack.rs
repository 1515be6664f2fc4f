//! What a packet costs the host's own stack without handoff, by layer, as Figure 1 of "TCP Offload through Connection
//! Handoff" has it: with copies and without, with checksums and without, with one connection and 1,024, near and far, and
//! of a web server.

use std::thread::sleep;
use std::time::Duration;

use super::packet::{self, Doubts, SEGMENT, Spent, WARM_UP};
use super::program::Work;
use super::testbed::Testbed;
use super::web::{Load, Site, Way};
use super::{Case, Options, Place, Reading, Varied, report_runs};
use crate::load::streams::Direction;
use crate::{Error, Report};

/// How the host is set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setup {
    /// The paper's letter.
    pub name: &'static str,
    /// Whether the system call copies.
    pub copies: bool,
    /// Whether the NIC computes checksums.
    pub checksum_offload: bool,
    /// What sends.
    pub sender: Sender,
}

/// What sends over connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sender {
    /// A program, as much as it can.
    Program {
        /// Connections that it sends over.
        connections: usize,
        /// One-way delay of the path, in each direction.
        one_way: Duration,
    },
    /// A web server, what it is asked for.
    Web(Load),
}

impl Setup {
    const A: Setup = Setup {
        name: "A",
        copies: true,
        checksum_offload: false,
        sender: Sender::Program { connections: 1, one_way: Duration::ZERO },
    };
    const B: Setup = Setup { name: "B", copies: false, ..Setup::A };
    const C: Setup = Setup { name: "C", checksum_offload: true, ..Setup::B };
    const D: Setup = Setup {
        name: "D",
        sender: Sender::Program { connections: 1_024, one_way: Duration::ZERO },
        ..Setup::C
    };
    const E: Setup = Setup {
        name: "E",
        sender: Sender::Program { connections: 1_024, one_way: Duration::from_millis(10) },
        ..Setup::C
    };
    const F: Setup = Setup { name: "F", sender: Sender::Web(Load::STACK), ..Setup::C };

    /// The paper's.
    pub const ALL: [Setup; 6] = [Setup::A, Setup::B, Setup::C, Setup::D, Setup::E, Setup::F];

    /// Connections at a time.
    pub const fn connections(&self) -> usize {
        match self.sender {
            Sender::Program { connections, .. } => connections,
            Sender::Web(load) => load.connections,
        }
    }

    fn varied(&self) -> Varied {
        let (one_way, requests, rate) = match self.sender {
            Sender::Program { one_way, .. } => (one_way, None, None),
            Sender::Web(load) => (load.one_way, Some(load.requests), load.rate),
        };
        vec![
            ("where", Place::Os.name().into()),
            ("setup", self.name.into()),
            ("copies", self.copies.into()),
            ("checksum_offload", self.checksum_offload.into()),
            ("connections", self.connections().into()),
            ("requests_each", requests.into()),
            ("rate", rate.into()),
            ("one_way_ms", (one_way.as_millis() as u64).into()),
        ]
    }
}

pub(super) fn measure(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    let all = options.setups.len() * options.repetitions;
    let mut runs = vec![Vec::new(); options.setups.len()];
    let (mut done, mut doubts) = (0, Doubts::default());
    let mut site = None;
    for _ in 0..options.repetitions {
        for (setup, runs) in options.setups.iter().zip(&mut runs) {
            report.progress(done, all, &format!("set up as {}", setup.name));
            done += 1;
            match setup.sender {
                Sender::Program { connections, one_way } => {
                    let path = (connections, one_way);
                    runs.push(run(options, setup, path, &mut doubts)?);
                }
                Sender::Web(load) => {
                    let site = match &mut site {
                        Some(site) => site,
                        none => none.insert(Site::write()?),
                    };
                    runs.extend(site.run(options, &load, Way::Os, &mut doubts)?);
                }
            }
        }
    }
    for (setup, runs) in options.setups.iter().zip(&runs) {
        report_runs(Case::Stack, &setup.varied(), runs, report);
    }
    doubts.tell(report);
    Ok(())
}

fn run(
    options: &Options,
    setup: &Setup,
    (connections, one_way): (usize, Duration),
    doubts: &mut Doubts,
) -> Result<Vec<Reading>, Error> {
    let testbed = Testbed::at_a_distance(options, connections, one_way)?;
    testbed.without_offloads()?;
    if !setup.checksum_offload {
        testbed.hosts.without_checksum_offload()?;
    }
    let work = if setup.copies { Work::Send } else { Work::SendZeroCopy };
    let mut program = testbed.program(Place::Os, "none", (work, connections, SEGMENT))?;
    let mut clients = testbed.clients(program.to, Direction::Send, connections)?;
    program.accepted()?;
    sleep(options.duration / WARM_UP);
    let before = Spent::read(&testbed, &mut program)?;
    sleep(options.duration);
    let after = Spent::read(&testbed, &mut program)?;
    let counts = packet::look(&testbed, &[program.id()], options.duration, doubts);
    if let Some(error) = clients.error() {
        return Err(error);
    }
    drop(clients);
    drop(program);
    testbed.stop()?;
    Ok(after.since(&before, &counts, options.duration, doubts))
}
