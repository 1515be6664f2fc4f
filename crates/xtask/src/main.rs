//! `cargo xtask`: what the project asks of itself.
#![forbid(unsafe_code)]

mod captures;
mod cargo;
mod check;
mod explore;
mod fuzz;
mod gro;
mod imports;
mod object;
mod outcome;
mod packetdrill;
mod process;
mod programs;
mod purity;
mod siw;
mod smoke;
mod source;
mod tree;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask: what the project asks of itself

  cargo xtask captures --before PATH [--after PATH] [--captures N] [--seed S] [--first N] [--all]
                                     compare what two wharfs make of the same random captures (1,000);
                                     without --after the second is this tree's. It ends with the
                                     first that differs; --all goes on and tells each
  cargo xtask check                  what must hold: format, lints, laws, and an end-to-end test of each
                                     command and kind of program
  cargo xtask check --all            everything: all end-to-end tests, docs, loom, fuzz targets as well
  cargo xtask check --list           the steps
  cargo xtask check --only STEP      one step (may be repeated)
  cargo xtask check --skip STEP      all but this one (may be repeated)
                                     What a test needs and this machine lacks fails; with
                                     WHARF_MAY_LACK=1 in the environment it is left out and named
  cargo xtask explore [--minutes N] [--only NAME]
                                     property tests, the TCP simulation, comparisons with the
                                     kernel and fuzz targets from new seeds, in turn, 10 minutes
                                     in all; what fails is kept for the check (--list: the names)
  cargo xtask fuzz --list            the fuzz targets
  cargo xtask fuzz [TARGET] [--seconds N]
                                     fuzz one target or all, 60 seconds each
  cargo xtask gro [--sequences N] [--seed S] [--first N] [--json]
                                     compare random sequences (a million) with the local kernel's
                                     GRO; as root
  cargo xtask imports [--circles | --write]
                                     which crate and which module uses which, users above what they
                                     use; only circles of them; or written to docs/modules.md
  cargo xtask packetdrill --binary PATH --scripts DIR [--report FILE]
                                     run packetdrill scripts, which you have, against the local
                                     kernel and against the TCP engine; as root
  cargo xtask siw [PATTERN] [--minutes N]
                                     wharf's RDMA device beside Linux siw, in a QEMU guest that it
                                     builds of Debian's packages (in target/siw) and boots; what has
                                     PATTERN in its line of the table, and is begun in that time

Example: the end-to-end tests alone:
  cargo xtask check --only e2e
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["captures", rest @ ..] => captures::run(rest),
        ["check", rest @ ..] => check::run(rest),
        ["explore", rest @ ..] => explore::run(rest),
        ["fuzz", rest @ ..] => fuzz::run(rest),
        ["gro", rest @ ..] => gro::run(rest),
        ["imports", rest @ ..] => imports::run(rest),
        ["packetdrill", rest @ ..] => packetdrill::run(rest),
        ["siw", rest @ ..] => siw::run(rest),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(())
        }
        [] => Err(Failure::Usage("what to do?".to_owned())),
        [other, ..] => Err(Failure::Usage(format!("there is no `{other}`"))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(message)) => {
            eprint!("xtask: {message}\n\n{USAGE}");
            ExitCode::from(2)
        }
        Err(Failure::Failed(message)) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Why `cargo xtask` ends with another status than 0.
#[derive(Debug)]
enum Failure {
    /// The command line makes no sense; status 2.
    Usage(String),
    /// Something does not hold; status 1.
    Failed(String),
}
