//! The long run of the comparison with the local kernel's GRO.

use std::os::fd::AsFd;
use std::process::Stdio;

use crate::cargo::cargo;
use crate::process::{is_root, number, run as run_program};
use crate::tree::Tree;
use crate::{Failure, Failure::Usage};

const DEFAULT_SEQUENCES: &str = "1000000";

/// `cargo xtask gro [--sequences N] [--seed S] [--first N] [--json]`: the test that compares random
/// sequences, built for release, with its settings in the environment.
pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    let tree = Tree::of_this_build();
    let mut test = cargo(&tree);
    test.args(["test", "--release", "-p", "lro", "--test", "suite", "--"]);
    test.args(["--exact", "kernel::random::as_many_as_asked_for", "--nocapture"]);
    test.env("WHARF_GRO_SEQUENCES", DEFAULT_SEQUENCES);
    let mut json = false;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let setting = match *argument {
            "--sequences" => "WHARF_GRO_SEQUENCES",
            "--seed" => "WHARF_GRO_SEED",
            "--first" => "WHARF_GRO_FIRST",
            "--json" => {
                json = true;
                continue;
            }
            other => return Err(Usage(format!("gro has no option `{other}`"))),
        };
        let value = rest.next().filter(|text| number(text).is_some());
        test.env(setting, value.ok_or_else(|| Usage(format!("{argument} takes a number")))?);
    }
    if !is_root() {
        return Err(Failure::Failed("the kernel's GRO can be asked by root only".to_owned()));
    }
    if !json {
        return run_program(&mut test).map_err(Failure::Failed);
    }
    // Standard output is for the lines alone; the test harness has words of its own.
    let errors = std::io::stderr().as_fd().try_clone_to_owned();
    test.stdout(errors.map_or_else(|_| Stdio::null(), Stdio::from));
    let path = tree.path("target").join(format!("gro-{}.jsonl", std::process::id()));
    test.env("WHARF_GRO_JSON", &path);
    std::fs::create_dir_all(tree.path("target")).map_err(failed)?;
    run_program(&mut test).map_err(Failure::Failed)?;
    print!("{}", std::fs::read_to_string(&path).map_err(failed)?);
    std::fs::remove_file(&path).map_err(failed)
}

fn failed(error: std::io::Error) -> Failure {
    Failure::Failed(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_told_before_anything_is_built() {
        for arguments in [&["--seed"][..], &["--seed", "x"], &["--sequences", "-1"], &["1000"]] {
            assert!(matches!(run(arguments), Err(Usage(_))), "{arguments:?}");
        }
    }
}
