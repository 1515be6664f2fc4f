//! Two stacks and a bad network between them, in virtual time: whatever the network and the
//! applications do, all bytes arrive in order, or there is an end with a reason.
//!
//! `WHARF_SIM_RUNS=10000` makes that many runs instead of a thousand, and `WHARF_SIM_FIRST` is the
//! seed of the first. A run that fails prints its
//! seed; `WHARF_SIM_SEED=17 WHARF_SIM_TRACE=1` repeats that one and prints its packets. Seeds that once
//! failed stand in `kept.rs` and are run each time.

mod app;
mod attack;
mod frame;
mod host;
mod jitter;
mod kept;
mod plan;
mod run;
mod shelf;
mod trace;
mod transparency;
mod watch;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use plan::Plan;
use run::{Outcome, Run};
use trace::Trace;

/// Runs if no more are asked for.
const RUNS: u64 = 1_000;
/// Failures that are printed before it stops.
const FAILURES_MAX: usize = 10;

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {value}")))
}

/// One run, a panic of which is an error.
fn run(plan: &Plan, trace: Trace) -> Result<run::Report, String> {
    let seed = plan.seed;
    let result = catch_unwind(AssertUnwindSafe(|| Run::new(plan, trace).run()));
    let result = result.unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().cloned();
        let words = words.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        Err(format!("panic: {}", words.unwrap_or_default()))
    });
    result.map_err(|law| format!("seed {seed}: {law}\n  WHARF_SIM_SEED={seed} WHARF_SIM_TRACE=1"))
}

#[derive(Debug, Default)]
struct Sums {
    runs: u64,
    complete: u64,
    abrupt: u64,
    gave_up: u64,
    packets: u64,
    bytes: u64,
    frozen: u64,
}

impl Sums {
    fn add(&mut self, report: &run::Report) {
        self.runs += 1;
        match report.outcome {
            Outcome::Complete => self.complete += 1,
            Outcome::Abrupt => self.abrupt += 1,
            Outcome::GaveUp => self.gave_up += 1,
        }
        self.packets += report.packets;
        self.bytes += report.bytes;
        self.frozen += u64::from(report.frozen);
    }
}

/// All seeds of a range, on all processors.
fn run_all(seeds: std::ops::Range<u64>, plan: fn(u64) -> Plan) -> (Sums, Vec<String>) {
    let next = AtomicU64::new(seeds.start);
    let results = Mutex::new((Sums::default(), Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || results.lock().unwrap().1.len() >= FAILURES_MAX {
                        return;
                    }
                    let result = run(&plan(seed), Trace::default());
                    let mut results = results.lock().unwrap();
                    match result {
                        Ok(report) => results.0.add(&report),
                        Err(law) => results.1.push(law),
                    }
                }
            });
        }
    });
    results.into_inner().unwrap()
}

#[test]
fn all_bytes_arrive_or_there_is_a_reason() {
    if let Some(seed) = number("WHARF_SIM_SEED") {
        let trace = match number("WHARF_SIM_TRACE") {
            Some(1..) => Trace::on(),
            _ => Trace::default(),
        };
        println!("{:?}", Plan::new(seed));
        run(&Plan::new(seed), trace).map(drop).unwrap_or_else(|law| panic!("{law}"));
        return;
    }
    let runs = number("WHARF_SIM_RUNS").unwrap_or(RUNS);
    let first = number("WHARF_SIM_FIRST").unwrap_or(0);
    let (sums, failures) = run_all(first..first + runs, Plan::new);
    println!("{sums:?}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    // The runs are worth something: most of them end well, though some do not.
    assert!(sums.complete * 2 > runs, "{sums:?}");
    assert!(sums.gave_up * 50 < runs, "{sums:?}");
    assert!(sums.frozen * 2 > runs, "{sums:?}");
}

/// With little memory the same arrives, and what is spent keeps within the bound at any instant.
#[test]
fn all_bytes_arrive_where_memory_is_short() {
    let runs = number("WHARF_SIM_RUNS").unwrap_or(RUNS) / 4;
    let first = number("WHARF_SIM_FIRST").unwrap_or(0);
    let (sums, failures) = run_all(first..first + runs, Plan::short);
    println!("{sums:?}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(sums.complete * 2 > runs, "{sums:?}");
}

#[test]
fn what_once_failed_does_not_fail_again() {
    let failures: Vec<String> = kept::SEEDS
        .iter()
        .filter_map(|seed| run(&Plan::new(*seed), Trace::default()).map(drop).err())
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
