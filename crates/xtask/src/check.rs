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
    part_of: Part,
}

/// Which checks have a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Both,
    /// `cargo xtask check` alone: `--all` has more of the same.
    Short,
    /// `cargo xtask check --all` alone.
    All,
}

/// Cheap ones first.
const STEPS: &[Step] = &[
    Step {
        name: "format",
        what: "every Rust file is as rustfmt writes it",
        run: cargo::format,
        part_of: Part::Both,
    },
    Step {
        name: "sizes",
        what: "no Rust file is over 600 lines",
        run: source::sizes,
        part_of: Part::Both,
    },
    Step {
        name: "unsafe",
        what: "unsafe code only in the rooms for it",
        run: source::unsafe_rooms,
        part_of: Part::Both,
    },
    Step {
        name: "imports",
        what: "no circle of modules, and docs/modules.md is what they are",
        run: imports::check,
        part_of: Part::Both,
    },
    Step {
        name: "purity",
        what: "wire, lro, gso, degen, iface, tcp, handoff and rdma need no std and no OS",
        run: purity::check,
        part_of: Part::Both,
    },
    Step {
        name: "xdp-object",
        what: "redirect.o is what redirect.c says",
        run: object::check,
        part_of: Part::Both,
    },
    Step {
        name: "programs",
        what: "what the tests run is installed",
        run: programs::install,
        part_of: Part::Both,
    },
    Step {
        name: "clippy",
        what: "every target of every crate, without warnings",
        run: cargo::clippy,
        part_of: Part::Both,
    },
    Step {
        name: "docs",
        what: "the documentation, without warnings",
        run: cargo::docs,
        part_of: Part::All,
    },
    Step {
        name: "fuzz-targets",
        what: "the fuzz targets compile",
        run: fuzz::compile,
        part_of: Part::All,
    },
    Step {
        name: "tests",
        what: "unit tests, property tests and simulations",
        run: cargo::tests,
        part_of: Part::Both,
    },
    Step {
        name: "doc-tests",
        what: "the examples in the documentation",
        run: cargo::doc_tests,
        part_of: Part::All,
    },
    Step {
        name: "loom",
        what: "handoff's rings in all orders in which two threads can see each other",
        run: cargo::loom,
        part_of: Part::All,
    },
    Step {
        name: "kept",
        what: "what exploring once found",
        run: explore::check,
        part_of: Part::All,
    },
    Step {
        name: "smoke",
        what: "an end-to-end test of each command and of each kind of program",
        run: cargo::smoke,
        part_of: Part::Short,
    },
    Step {
        name: "e2e",
        what: "end-to-end tests in network namespaces and a browser",
        run: cargo::end_to_end,
        part_of: Part::All,
    },
];

pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    let Some(steps) = chosen(arguments)? else {
        for step in STEPS {
            let only_all = if step.part_of == Part::All { " (with --all)" } else { "" };
            println!("{:<14}{}{only_all}", step.name, step.what);
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
    let (mut only, mut skip, mut part) = (Vec::new(), Vec::new(), Part::Short);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let names = match *argument {
            "--list" => return Ok(None),
            "--all" => {
                part = Part::All;
                continue;
            }
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
    let is_in_part = |step: &Step| step.part_of == Part::Both || step.part_of == part;
    let asked_for = |step: &&Step| {
        let is_chosen = if only.is_empty() { is_in_part(step) } else { only.contains(&step.name) };
        is_chosen && !skip.contains(&step.name)
    };
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
        let (short, all) = (names(&[]), names(&["--all"]));
        assert!(short.contains(&"smoke") && !short.contains(&"e2e"), "{short:?}");
        assert_eq!(all.len(), STEPS.len() - 1, "all but the short form of one");
        assert!(!all.contains(&"smoke"), "{all:?}");
        assert_eq!(names(&["--only", "e2e", "--only", "format"]), ["format", "e2e"]);
        assert_eq!(names(&["--all", "--skip", "e2e"]).len(), all.len() - 1);
        assert!(chosen(&["--list"]).unwrap().is_none());
    }

    #[test]
    fn what_is_not_a_step_is_told() {
        for arguments in [&["--only"][..], &["--only", "nothing"], &["e2e"]] {
            assert!(matches!(chosen(arguments), Err(Failure::Usage(_))), "{arguments:?}");
        }
    }
}
