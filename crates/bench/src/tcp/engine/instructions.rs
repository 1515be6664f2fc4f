//! Instructions for each segment, counted by callgrind: the same on a busy machine.

use std::path::Path;
use std::process::Command;

use super::{Bench, Work};
use crate::side_by_side::callgrind;
use crate::tcp::{Options, figure};
use crate::{Error, Report};

/// What callgrind counts, callees included.
const COUNTED: &str = "--toggle-collect=*engine::clock::timed*";
/// Segments that are counted at least.
const SEGMENTS: u64 = 20_000;

/// What runs under callgrind: each kind of work at each number of connections, once, without looking at
/// the time. Gives the segments.
///
/// # Errors
/// The engine did not do what it should.
pub fn count(options: &Options) -> Result<u64, Error> {
    let mut segments = 0;
    for &connections in &options.connections {
        for &work in &options.works {
            let mut bench = Bench::new(work, connections)?;
            let end = segments + SEGMENTS;
            while segments < end {
                segments += bench.lap()?.packets;
            }
        }
    }
    Ok(segments)
}

/// Counts for each kind of work and number of connections. `program` and the arguments that `arguments`
/// returns must call [`count`] with just those, and print the result.
///
/// # Errors
/// valgrind is not here, or counted nothing.
pub fn run(
    options: &Options,
    program: &Path,
    arguments: impl Fn(Work, u32) -> Vec<String>,
    report: &mut dyn Report,
) -> Result<(), Error> {
    let total = options.connections.len() * options.works.len();
    let mut done = 0;
    for &connections in &options.connections {
        for &work in &options.works {
            report.progress(done, total, &format!("{}, {connections} connections", work.name()));
            done += 1;
            let mut valgrind = Command::new("valgrind");
            valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", COUNTED]);
            // valgrind counts `rep movsb` once for each byte.
            valgrind.env("GLIBC_TUNABLES", "glibc.cpu.x86_rep_movsb_threshold=1000000000");
            valgrind.arg(program).args(arguments(work, connections));
            let outcome = callgrind::counted(&mut valgrind)?;
            let varied = [
                ("what", work.name().into()),
                ("link", "".into()),
                ("connections", connections.into()),
            ];
            let metric = "instructions_per_segment";
            report.figure(figure("engine", "wharf", varied, metric, "", outcome, Vec::new()));
        }
    }
    Ok(())
}
