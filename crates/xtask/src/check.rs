//! `cargo xtask check`: the steps, one after the other, each with its time.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::outcome::Outcome;
use crate::tree::Tree;
use crate::{Failure, cargo, explore, fuzz, imports, object, programs, purity, source};

/// Something that must hold.
struct Step {
    name: &'static str,
    what: &'static str,
    run: fn(&Tree) -> Outcome,
}

/// Cheap ones first.
const STEPS: &[Step] = &[
    Step { name: "format", what: "every Rust file is as rustfmt writes it", run: cargo::format },
    Step { name: "sizes", what: "no Rust file is over 600 lines", run: source::sizes },
    Step {
        name: "unsafe",
        what: "unsafe code only in the rooms for it",
        run: source::unsafe_rooms,
    },
    Step {
        name: "imports",
        what: "no circle of modules, and docs/modules.md is what they are",
        run: imports::check,
    },
    Step {
        name: "purity",
        what: "wire, lro, gso, degen, iface, tcp, handoff and rdma need no std and no OS",
        run: purity::check,
    },
    Step { name: "xdp-object", what: "redirect.o is what redirect.c says", run: object::check },
    Step {
        name: "clippy",
        what: "every target of every crate, without warnings",
        run: cargo::clippy,
    },
    Step { name: "docs", what: "the documentation, without warnings", run: cargo::docs },
    Step { name: "fuzz-targets", what: "the fuzz targets compile", run: fuzz::compile },
    Step { name: "programs", what: "what the tests run is installed", run: programs::install },
    Step { name: "tests", what: "unit and property tests", run: cargo::tests },
    Step {
        name: "loom",
        what: "handoff's rings in all orders in which two threads can see each other",
        run: cargo::loom,
    },
    Step { name: "kept", what: "what exploring once found", run: explore::check },
    Step {
        name: "e2e",
        what: "end-to-end tests in network namespaces and a browser",
        run: cargo::end_to_end,
    },
];

pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    let Some(steps) = chosen(arguments)? else {
        for step in STEPS {
            println!("{:<14}{}", step.name, step.what);
        }
        return Ok(());
    };
    let tree = Tree::of_this_build();
    let mut done = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        println!("[{}/{}] {}: {}", number + 1, steps.len(), step.name, step.what);
        let started = Instant::now();
        let outcome = (step.run)(&tree);
        let took = started.elapsed();
        match outcome {
            Ok(left_out) => {
                left_out.iter().for_each(|words| println!("    left out: {words}"));
                println!("    ok, {}", seconds(took));
                done.push((step.name, took, left_out));
            }
            Err(why) => {
                // What the step's programs wrote to standard output comes first.
                let _ = std::io::stdout().flush();
                eprintln!("    FAILED, {}: {why}", seconds(took));
                eprintln!("    again, alone: cargo xtask check --only {}", step.name);
                let left = steps.len() - number - 1;
                let failed = format!("{} passed, 1 failed ({}), {left} not run", number, step.name);
                return Err(Failure::Failed(failed));
            }
        }
    }
    summary(&done);
    Ok(())
}

/// The steps that the command line asks for; `None` if it asks for the list of them.
fn chosen(arguments: &[&str]) -> Result<Option<Vec<&'static Step>>, Failure> {
    let (mut only, mut skip) = (Vec::new(), Vec::new());
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let names = match *argument {
            "--list" => return Ok(None),
            "--only" => &mut only,
            "--skip" => &mut skip,
            other => return Err(Failure::Usage(format!("check has no option `{other}`"))),
        };
        let name = *rest.next().ok_or_else(|| Failure::Usage(format!("{argument} what?")))?;
        if !STEPS.iter().any(|step| step.name == name) {
            let known: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
            let known = known.join(", ");
            return Err(Failure::Usage(format!("no step is called `{name}`; there are {known}")));
        }
        names.push(name);
    }
    let asked_for =
        |step: &&Step| (only.is_empty() || only.contains(&step.name)) && !skip.contains(&step.name);
    Ok(Some(STEPS.iter().filter(asked_for).collect()))
}

fn summary(done: &[(&str, Duration, Vec<String>)]) {
    println!();
    for (name, took, left_out) in done {
        println!("{:<14}{:>9}", name, seconds(*took));
        left_out.iter().for_each(|words| println!("{:<14}{:>9}  left out: {words}", "", ""));
    }
    let total = done.iter().map(|(_, took, _)| *took).sum();
    println!("{} passed, 0 failed, {}", done.len(), seconds(total));
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(arguments: &[&str]) -> Vec<&'static str> {
        chosen(arguments).unwrap().unwrap().iter().map(|step| step.name).collect()
    }

    #[test]
    fn steps_are_chosen_by_name() {
        assert_eq!(names(&[]).len(), STEPS.len());
        assert_eq!(names(&["--only", "e2e", "--only", "format"]), ["format", "e2e"]);
        assert_eq!(names(&["--skip", "e2e"]).len(), STEPS.len() - 1);
        assert!(chosen(&["--list"]).unwrap().is_none());
    }

    #[test]
    fn what_is_not_a_step_is_told() {
        for arguments in [&["--only"][..], &["--only", "nothing"], &["e2e"]] {
            assert!(matches!(chosen(arguments), Err(Failure::Usage(_))), "{arguments:?}");
        }
    }
}
