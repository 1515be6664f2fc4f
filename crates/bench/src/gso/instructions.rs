//! Instructions for each segment, counted by callgrind: the same on a busy machine.
//!
//! wharf runs itself under `valgrind --tool=callgrind`, which counts only while a super-packet is
//! cut (the two functions at the end of `wharf.rs`). What a super-packet costs once is among it.

use std::process::Command;

use super::workload::Workload;
use super::{Case, Options, figure, wharf};
use crate::side_by_side::callgrind;
use crate::{Error, Report, System};

/// The systems whose instructions are counted.
pub const SYSTEMS: [System; 2] = [System::Wharf, System::WharfCopy];

/// What callgrind counts, callees included.
const COUNTED: [&str; 2] = ["--toggle-collect=*cut_to_slices*", "--toggle-collect=*cut_to_frames*"];

/// What runs under callgrind: each case at each gso_size once, without looking at the time. Gives
/// the segments.
///
/// # Errors
/// wharf itself did not do what it should.
pub fn count(options: &Options) -> Result<u64, Error> {
    let mut segments = 0;
    for workload in options.workloads() {
        for &system in &options.systems {
            segments += match system {
                System::Wharf => wharf::Slices::default().lap(&workload)?.packets,
                System::WharfCopy => wharf::Copies::default().lap(&workload)?.packets,
                _ => 0,
            };
        }
    }
    Ok(segments)
}

/// Counts for each case, gso_size and system. `program` and the arguments that `arguments` returns
/// must call [`count`] with just these, and print the result.
///
/// # Errors
/// valgrind is not here, or counted nothing.
pub fn run(
    options: &Options,
    program: &std::path::Path,
    arguments: impl Fn(Case, u16, System) -> Vec<String>,
    report: &mut dyn Report,
) -> Result<(), Error> {
    let workloads: Vec<Workload> = options.workloads().collect();
    for (done, workload) in workloads.iter().enumerate() {
        let Workload { case, gso_size, .. } = *workload;
        for system in SYSTEMS {
            report.progress(done, workloads.len(), &format!("{}, {gso_size}", case.name()));
            let mut valgrind = Command::new("valgrind");
            valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).args(COUNTED);
            valgrind.arg(program).args(arguments(case, gso_size, system));
            let per_segment = callgrind::counted(&mut valgrind)?;
            report.figure(figure(workload, system, "instructions_per_segment", per_segment));
        }
    }
    Ok(())
}
