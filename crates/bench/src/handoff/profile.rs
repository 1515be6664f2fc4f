//! What a program's calls cost its host: CPU time of the program and of the kernel that works for it, for each call's
//! bytes. With a TAP the host's kernel receives, and acknowledges, within the worker's calls, whose time is the host's.

use std::thread::sleep;
use std::time::Duration;

use super::cpu::Cpu;
use super::program::Work;
use super::testbed::{Program, Testbed};
use super::{Case, Options, Place, Reading, report_runs};
use crate::load::streams::Direction;
use crate::{Error, Report};

/// Payload of one full segment, and of one call.
const SEGMENT: usize = 1_448;
/// Bytes of large calls.
const LARGE: usize = 65_536;
/// Part of the time that is not measured.
const WARM_UP: u32 = 4;
/// Numbers of connections up to which all calls are measured; beyond, those of one segment alone.
const ALL_CALLS: usize = 256;

/// What varies between runs.
#[derive(Clone, Copy, Debug)]
struct Kind {
    direction: Direction,
    call: usize,
    offloads: bool,
    connections: usize,
}

fn kinds(options: &Options) -> Vec<Kind> {
    let mut kinds = Vec::new();
    for &connections in &options.connections {
        for direction in [Direction::Receive, Direction::Send] {
            for (call, offloads) in [(SEGMENT, true), (SEGMENT, false), (LARGE, true)] {
                if call == SEGMENT || connections <= ALL_CALLS {
                    kinds.push(Kind { direction, call, offloads, connections });
                }
            }
        }
    }
    kinds
}

impl Kind {
    const fn direction(self) -> &'static str {
        match self.direction {
            Direction::Receive => "receive",
            Direction::Send => "send",
        }
    }
}

pub(super) fn measure(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    let kinds = kinds(options);
    let all = kinds.len() * options.repetitions * Place::ALL.len();
    let mut done = 0;
    for kind in kinds {
        let mut runs = [Vec::new(), Vec::new()];
        for _ in 0..options.repetitions {
            for (place, runs) in Place::ALL.into_iter().zip(&mut runs) {
                let Kind { call, connections, .. } = kind;
                let (direction, place_name) = (kind.direction(), place.name());
                let what = format!("{direction}, {connections} x {call} bytes, {place_name}");
                report.progress(done, all, &what);
                done += 1;
                runs.push(run(options, kind, place)?);
            }
        }
        for (place, runs) in Place::ALL.into_iter().zip(&runs) {
            let varied = vec![
                ("where", place.name().into()),
                ("direction", kind.direction().into()),
                ("connections", kind.connections.into()),
                ("call", kind.call.into()),
                ("offloads", kind.offloads.into()),
            ];
            report_runs(Case::Profile, &varied, runs, report);
        }
    }
    Ok(())
}

fn run(options: &Options, kind: Kind, place: Place) -> Result<Vec<Reading>, Error> {
    let Kind { direction, call, connections, offloads } = kind;
    let testbed = Testbed::new(options, connections)?;
    if !offloads {
        testbed.without_offloads()?;
    }
    let work = match direction {
        Direction::Receive => Work::Receive,
        Direction::Send => Work::Send,
    };
    let mut program = testbed.program(place, "at_accept", (work, connections, call))?;
    let mut clients = testbed.clients(program.to, direction, connections)?;
    program.accepted()?;
    if place == Place::Nic {
        testbed.wait("handing off", || testbed.at_nic() >= connections)?;
    }
    sleep(options.duration / WARM_UP);
    let before = Spent::read(&testbed, &mut program)?;
    sleep(options.duration);
    let after = Spent::read(&testbed, &mut program)?;
    if let Some(error) = clients.error() {
        return Err(error);
    }
    if place == Place::Nic && testbed.at_nic() < connections {
        return Err(testbed.stayed());
    }
    drop(clients);
    drop(program);
    testbed.stop()?;
    Ok(after.since(&before, call, options.duration))
}

/// Bytes and CPU time at one time.
#[derive(Clone, Copy, Debug)]
struct Spent {
    done: u64,
    cpu: Cpu,
}

impl Spent {
    fn read(testbed: &Testbed, program: &mut Program) -> Result<Spent, Error> {
        let done = program.done()?;
        Ok(Spent { done, cpu: Cpu::read(testbed, program.cpu()) })
    }

    fn since(&self, before: &Spent, call: usize, duration: Duration) -> Vec<Reading> {
        let bytes = (self.done - before.done).max(1) as f64;
        let Cpu { program, kernel, worker, all, .. } = self.cpu.since(before.cpu);
        let each = |time: u64| time as f64 / bytes * call as f64;
        vec![
            Reading::new("host_time_per_segment", "ns", each(program) + each(kernel)),
            Reading::new("program_time_per_segment", "ns", each(program)),
            Reading::new("worker_time_per_segment", "ns", each(worker)),
            Reading::new("cpu_time_per_segment", "ns", each(all)),
            Reading::new("throughput", "bit/s", bytes * 8.0 / duration.as_secs_f64()),
        ]
    }
}
