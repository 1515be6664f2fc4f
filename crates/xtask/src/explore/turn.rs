//! One turn of a subject: its tests from a new seed, and what becomes of what they find.

use std::process::Command;
use std::time::Duration;

use super::build::Programs;
use super::kept::{Case, keep, keep_input};
use super::said::{calls, failed, inputs, lacks, seeds, sequence};
use super::subject::{Subject, Target};
use crate::fuzz;
use crate::process::run_captured;
use crate::tree::Tree;

/// A few seconds' worth each.
const SIMULATIONS: u64 = 2_000;
const SEQUENCES: u64 = 20_000;
const FUZZ_TIME: Duration = Duration::from_secs(20);
/// The test that compares as many sequences as it is told.
const GRO: &str = "kernel::random::as_many_as_asked_for";
/// The same of sequences of calls, of which there are so many in a turn.
const CALLS: &str = "differential::as_many_as_asked_for";
const CALL_SEQUENCES: u64 = 1000;

/// Runs it once. One line for each thing that it found.
pub(super) fn take(
    tree: &Tree,
    programs: &Programs,
    subject: &Subject,
    seed: u64,
    left: Duration,
) -> Result<Vec<String>, String> {
    let before = regressions(tree)?;
    let (succeeded, said) = run_captured(&mut command(tree, programs, subject, seed, left)?)?;
    if succeeded {
        return Ok(Vec::new());
    }
    let log = log(tree, subject, seed, &said)?;
    if let Some(what) = lacks(&said) {
        let failed = failed(&said).join(", ");
        return Ok(vec![format!("{what}; nothing is kept of {failed}; see {log}")]);
    }
    let mut found = match subject {
        Subject::Fuzz(target) => {
            let inputs = inputs(&said);
            inputs
                .iter()
                .map(|input| keep_input(tree, target, input))
                .collect::<Result<Vec<_>, _>>()?
        }
        Subject::Properties(target) => {
            let after = regressions(tree)?;
            let files = after.iter().filter(|file| !before.contains(file));
            let files: Vec<&str> = files.map(|(path, _)| path.as_str()).collect();
            if files.is_empty() {
                keep_all(tree, &failed(&said), target, |_| format!("PROPTEST_RNG_SEED={seed}"))?
            } else {
                vec![format!("{} kept in {}", failed(&said).join(", "), files.join(", "))]
            }
        }
        Subject::Simulation(_) => {
            let mut found = Vec::new();
            for (test, seed) in seeds(&said) {
                let setting = |_: &str| format!("WHARF_SIM_SEED={seed}");
                found.extend(keep_all(tree, &[test], &target(subject), setting)?);
            }
            found
        }
        Subject::Gro => {
            let test: Vec<String> = sequence(&said).map(|_| GRO.to_owned()).into_iter().collect();
            let number = sequence(&said).unwrap_or_default();
            keep_all(tree, &test, &target(subject), |_| {
                let one = format!("WHARF_GRO_FIRST={number},WHARF_GRO_SEQUENCES=1");
                format!("WHARF_GRO_SEED={seed:#x},{one}")
            })?
        }
        Subject::Calls => {
            let test: Vec<String> = calls(&said).map(|_| CALLS.to_owned()).into_iter().collect();
            let number = calls(&said).unwrap_or_default();
            keep_all(tree, &test, &target(subject), |_| {
                let one = format!("WHARF_CALLS_FIRST={number},WHARF_CALLS_SEQUENCES=1");
                format!("WHARF_CALLS_POLICY={},{one}", policy(seed))
            })?
        }
    };
    if found.is_empty() {
        found.push("it failed, and no case was found in what it wrote".to_owned());
    }
    Ok(found.into_iter().map(|line| format!("{line}; see {log}")).collect())
}

/// Runs the subject from a seed.
fn command(
    tree: &Tree,
    programs: &Programs,
    subject: &Subject,
    seed: u64,
    left: Duration,
) -> Result<Command, String> {
    if let Subject::Fuzz(name) = subject {
        let seconds = FUZZ_TIME.min(left).as_secs().max(1);
        let mut fuzz = fuzz::command(tree, &["run", name, "--"]);
        fuzz.arg(format!("-max_total_time={seconds}")).arg(format!("-seed={}", seed as u32));
        return Ok(fuzz);
    }
    let mut test = programs.command(tree, &target(subject))?;
    match subject {
        Subject::Simulation(target) => test
            .args(target.filter())
            // Half of all seeds: there is room behind the first.
            .env("WHARF_SIM_FIRST", (seed >> 1).to_string())
            .env("WHARF_SIM_RUNS", SIMULATIONS.to_string()),
        Subject::Gro => test
            .env("WHARF_GRO_SEED", format!("{seed:#x}"))
            .env("WHARF_GRO_SEQUENCES", SEQUENCES.to_string())
            .args(["--exact", GRO]),
        Subject::Calls => test
            .env("WHARF_CALLS_FIRST", (seed >> 1).to_string())
            .env("WHARF_CALLS_SEQUENCES", CALL_SEQUENCES.to_string())
            .env("WHARF_CALLS_POLICY", policy(seed))
            .args(["--exact", CALLS]),
        _ => test.args(target(subject).filter()).env("PROPTEST_RNG_SEED", seed.to_string()),
    };
    Ok(test)
}

/// When connections move.
fn policy(seed: u64) -> &'static str {
    if seed.is_multiple_of(2) { "by_hand" } else { "at_accept" }
}

fn target(subject: &Subject) -> Target {
    match subject {
        Subject::Properties(target) | Subject::Simulation(target) => target.clone(),
        Subject::Gro => Target::of_suite("lro", "kernel"),
        Subject::Calls => Target::new("wharf", Some("e2e")),
        Subject::Fuzz(target) => Target::new("fuzz", Some(target)),
    }
}

fn keep_all(
    tree: &Tree,
    tests: &[String],
    target: &Target,
    setting: impl Fn(&str) -> String,
) -> Result<Vec<String>, String> {
    let cases = tests.iter().map(|test| Case::new(setting(test), target, test));
    cases.map(|case| keep(tree, &case)).collect()
}

/// Where property tests keep their cases, and what is there.
fn regressions(tree: &Tree) -> Result<Vec<(String, String)>, String> {
    let mut files = tree.files("crates", ".txt")?;
    files.retain(|path| path.contains("/proptest-regressions/"));
    files.extend(tree.files("crates", ".proptest-regressions")?);
    files.into_iter().map(|path| tree.read(&path).map(|text| (path, text))).collect()
}

/// What the program wrote, in a file of its own.
fn log(tree: &Tree, subject: &Subject, seed: u64, said: &str) -> Result<String, String> {
    let name = format!("target/explore/{}-{seed:016x}.txt", subject.name().replace('/', "-"));
    let written = std::fs::create_dir_all(tree.path("target/explore"))
        .and_then(|()| std::fs::write(tree.path(&name), said));
    written.map(|()| name.clone()).map_err(|error| format!("{name}: {error}"))
}
