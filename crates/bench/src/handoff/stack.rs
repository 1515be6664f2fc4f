//! What a packet costs the host's own stack without handoff, by layer, as Figure 1 of "TCP Offload through Connection
//! Handoff" has it: with copies and without, with checksums and without, with one connection and 1,024, near and far.

use std::thread::sleep;
use std::time::Duration;

use super::packet::{self, Doubts, SEGMENT, Spent, WARM_UP};
use super::program::Work;
use super::testbed::Testbed;
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
    /// Connections that send.
    pub connections: usize,
    /// One-way delay of the path, in each direction.
    pub one_way: Duration,
}

impl Setup {
    const A: Setup = Setup {
        name: "A",
        copies: true,
        checksum_offload: false,
        connections: 1,
        one_way: Duration::ZERO,
    };
    const B: Setup = Setup { name: "B", copies: false, ..Setup::A };
    const C: Setup = Setup { name: "C", checksum_offload: true, ..Setup::B };
    const D: Setup = Setup { name: "D", connections: 1_024, ..Setup::C };
    const E: Setup = Setup { name: "E", one_way: Duration::from_millis(10), ..Setup::D };

    /// The paper's, but for the last, F, which is a web server.
    pub const ALL: [Setup; 5] = [Setup::A, Setup::B, Setup::C, Setup::D, Setup::E];

    fn varied(&self) -> Varied {
        vec![
            ("where", Place::Os.name().into()),
            ("setup", self.name.into()),
            ("copies", self.copies.into()),
            ("checksum_offload", self.checksum_offload.into()),
            ("connections", self.connections.into()),
            ("one_way_ms", (self.one_way.as_millis() as u64).into()),
        ]
    }
}

pub(super) fn measure(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    let all = options.setups.len() * options.repetitions;
    let mut runs = vec![Vec::new(); options.setups.len()];
    let (mut done, mut doubts) = (0, Doubts::default());
    for _ in 0..options.repetitions {
        for (setup, runs) in options.setups.iter().zip(&mut runs) {
            report.progress(done, all, &format!("set up as {}", setup.name));
            done += 1;
            runs.push(run(options, setup, &mut doubts)?);
        }
    }
    for (setup, runs) in options.setups.iter().zip(&runs) {
        report_runs(Case::Stack, &setup.varied(), runs, report);
    }
    doubts.tell(report);
    Ok(())
}

fn run(options: &Options, setup: &Setup, doubts: &mut Doubts) -> Result<Vec<Reading>, Error> {
    let testbed = Testbed::at_a_distance(options, setup.connections, setup.one_way)?;
    testbed.without_offloads()?;
    if !setup.checksum_offload {
        testbed.hosts.without_checksum_offload()?;
    }
    let work = if setup.copies { Work::Send } else { Work::SendZeroCopy };
    let mut program = testbed.program(Place::Os, "none", (work, setup.connections, SEGMENT))?;
    let mut clients = testbed.clients(program.to, Direction::Send, setup.connections)?;
    program.accepted()?;
    sleep(options.duration / WARM_UP);
    let before = Spent::read(&testbed, &mut program)?;
    sleep(options.duration);
    let after = Spent::read(&testbed, &mut program)?;
    let counts = packet::look(&testbed, program.id(), options.duration, doubts);
    if let Some(error) = clients.error() {
        return Err(error);
    }
    drop(clients);
    drop(program);
    testbed.stop()?;
    Ok(after.since(&before, &counts, options.duration, doubts))
}
