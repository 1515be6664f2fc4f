//! A model of verbs, and random programs on two devices over streams that are cut anywhere: what is on the wire, in
//! memory, in the completion queues and among the events is what the model says, after each step.
//!
//! `WHARF_SIM_RUNS=100000` makes that many runs instead of 1,000, and `WHARF_SIM_FIRST` is the seed of the first. A
//! run that fails prints its seed; `WHARF_SIM_SEED=17 WHARF_SIM_TRACE=1` repeats that one and prints what
//! happens.

mod deliver;
mod ends;
mod order;
mod program;
mod rng;
mod run;
mod send;
mod side;
mod tap;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use run::{Report, Run};

/// Runs if no more are asked for.
const RUNS: u64 = 1_000;
/// Steps of a run.
const STEPS: u64 = 600;
/// Failures that are printed before it stops.
const FAILURES_MAX: usize = 10;

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {value}")))
}

/// One run, a panic of which is an error.
fn run(seed: u64, trace: bool) -> Result<Report, String> {
    let result = catch_unwind(AssertUnwindSafe(|| Run::new(seed, trace).run(STEPS)));
    let result = result.unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().cloned();
        let words = words.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        Err(format!("panic: {}", words.unwrap_or_default()))
    });
    result.map_err(|law| format!("seed {seed}: {law}\n  WHARF_SIM_SEED={seed} WHARF_SIM_TRACE=1"))
}

#[test]
fn both_sides_do_what_the_model_says() {
    if let Some(seed) = number("WHARF_SIM_SEED") {
        let trace = number("WHARF_SIM_TRACE").is_some_and(|level| level > 0);
        run(seed, trace).map(drop).unwrap_or_else(|law| panic!("{law}"));
        return;
    }
    let first = number("WHARF_SIM_FIRST").unwrap_or(0);
    let end = first + number("WHARF_SIM_RUNS").unwrap_or(RUNS);
    let next = AtomicU64::new(first);
    let results = Mutex::new((Report::default(), Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end || results.lock().unwrap().1.len() >= FAILURES_MAX {
                        return;
                    }
                    let result = run(seed, false);
                    let mut results = results.lock().unwrap();
                    match result {
                        Ok(report) => add(&mut results.0, &report),
                        Err(law) => results.1.push(law),
                    }
                }
            });
        }
    });
    let (sums, failures) = results.into_inner().unwrap();
    println!("{sums:?}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    // The runs are worth something: messages arrive, work succeeds, and streams end by errors, too.
    let runs = end - first;
    assert!(sums.messages > 20 * runs && sums.successes > 10 * runs, "{sums:?}");
    assert!(
        sums.errors > runs && sums.terminates > runs / 2 && sums.atomics > runs / 4,
        "{sums:?}"
    );
    // So do messages that wait, streams that one side loses first, and queue pairs that are destroyed.
    assert!(sums.waits > runs / 4 && sums.lost > runs / 4 && sums.destroyed > runs / 4, "{sums:?}");
}

fn add(sums: &mut Report, report: &Report) {
    sums.messages += report.messages;
    sums.successes += report.successes;
    sums.errors += report.errors;
    sums.terminates += report.terminates;
    sums.streams += report.streams;
    sums.atomics += report.atomics;
    sums.waits += report.waits;
    sums.destroyed += report.destroyed;
    sums.lost += report.lost;
}
