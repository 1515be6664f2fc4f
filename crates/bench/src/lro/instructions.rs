//! Instructions for each packet, counted by callgrind: the same on a busy machine.
//!
//! wharf runs itself under `valgrind --tool=callgrind`, which counts only while `Lro` is at work
//! (the two functions at the end of `wharf.rs`). Opening each flow once is among what is counted.

use std::process::Command;

use super::workload::Workload;
use super::{Case, Options, Setting, figure, wharf};
use crate::side_by_side::callgrind;
use crate::{Error, Report, System};

/// What callgrind counts, callees included.
const COUNTED: [&str; 2] = ["--toggle-collect=*receive_burst*", "--toggle-collect=*flush_lap*"];

/// What runs under callgrind: each case at each setting once, without looking at the time. Gives
/// the packets.
///
/// # Errors
/// wharf itself did not do what it should.
pub fn count(options: &Options) -> Result<u64, Error> {
    let mut packets = 0;
    for setting in options.settings() {
        for &case in &options.cases {
            packets += wharf::Wharf::default().run_a_lap(&Workload::new(case, setting))?;
        }
    }
    Ok(packets)
}

/// Counts for each case and setting. `program` and the arguments that `arguments` returns must call
/// [`count`] with just that case and setting, and print the result.
///
/// # Errors
/// valgrind is not here, or counted nothing.
pub fn run(
    options: &Options,
    program: &std::path::Path,
    arguments: impl Fn(Case, Setting) -> Vec<String>,
    report: &mut dyn Report,
) -> Result<(), Error> {
    let settings = options.settings();
    let total = settings.len() * options.cases.len();
    for (at, &setting) in settings.iter().enumerate() {
        for (n, &case) in options.cases.iter().enumerate() {
            let done = at * options.cases.len() + n;
            report.progress(done, total, &format!("{}, {setting}", case.name()));
            let mut valgrind = Command::new("valgrind");
            valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).args(COUNTED);
            let per_packet =
                callgrind::counted(valgrind.arg(program).args(arguments(case, setting)))?;
            let metric = "instructions_per_packet";
            report.figure(figure(case, setting, System::Wharf, metric, per_packet));
        }
    }
    Ok(())
}
