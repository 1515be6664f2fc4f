//! Programs of the tests' own that have connections with themselves: operations that others do not use, random calls, and
//! what calls cost.

use serde_json::Value;
use sys::process::Signal;
use testkit::lab::wait_until;

use super::{Pair, as_user, built};
use crate::setup::Ip;

/// Runs a program to its end; its last line.
fn last_line(source: &str, words: &[&str]) -> Option<String> {
    let program = built(source)?;
    let pair = Pair::new(&[])?;
    let own = Ip::V4.client().to_string();
    let ended = pair.call(&[&[program, &own], words].concat());
    assert!(ended.status.success(), "{ended}");
    Some(ended.stdout.lines().last().unwrap().to_owned())
}

#[test]
fn operations_that_programs_do_not_use_are_as_specified() {
    let Some(last) = last_line("operations.c", &[]) else { return };
    assert_eq!(last, "all");
}

#[test]
fn what_is_destroyed_waits_for_acknowledgements() {
    let Some(last) = last_line("waits.c", &[]) else { return };
    assert_eq!(last, "all");
}

/// `WHARF_RDMA_SEEDS=100` tries so many seeds.
#[test]
fn random_calls_leave_a_session_that_works() {
    const CALLS: &str = "200";
    let seeds = std::env::var("WHARF_RDMA_SEEDS").ok().map(|seeds| seeds.parse().unwrap());
    let rounds = if seeds.is_some() { "40" } else { "12" };
    let Some(program) = built("random.c") else { return };
    let Some(pair) = Pair::new(&[]) else { return };
    let own = Ip::V4.client().to_string();
    // One device, which all of them leave as it was.
    let mut device = pair.client.spawn(&mut as_user(&["rdma"]));
    device.line_with("serves");
    for seed in 1..=seeds.unwrap_or(1) {
        let ended = pair.call(&[program, &own, &seed.to_string(), rounds, CALLS]);
        assert!(ended.status.success(), "seed {seed}: {ended}");
        assert!(ended.stdout.starts_with("calls "), "seed {seed}: {ended}");
    }
    assert!(device.runs());
}

/// A message needs no system call, but one that wakes a device which sleeps.
#[test]
fn messages_need_no_system_call_while_the_device_is_awake() {
    let Some(program) = built("calls.c") else { return };
    let Some(pair) = Pair::new(&[]) else { return };
    let mut device = pair.client.spawn(&mut as_user(&["rdma"]));
    device.line_with("serves");
    let (own, pid) = (Ip::V4.client().to_string(), device.id().to_string());
    let mut run = pair.run(&[program, &own, &pid, "200"]);
    let mut calls = pair.client.spawn(&mut run);
    let sleeps = || {
        let told = pair.client.output(&mut as_user(&["rdma", "stats", "--json"]));
        assert!(told.status.success(), "{told}");
        let told: Value = serde_json::from_str(&told.stdout).unwrap();
        told["processes"][0]["counters"]["sleeps"].as_u64().unwrap()
    };
    calls.line_with("ready");
    let before = sleeps();
    calls.signal(Signal::HangUp);
    let line = calls.line_with("rings");
    let words: Vec<&str> = line.split_whitespace().collect();
    let rings: u64 = words[1].parse().unwrap();
    assert_eq!(words[2..4], ["others", "0"], "{line}");
    // How often it sleeps depends on what else the machine does. The sleep that lasts is not told of yet, neither before nor
    // afterwards.
    let is_by_sleep = || rings <= sleeps() - before;
    assert!(wait_until(is_by_sleep), "{line}, {} sleeps, {before} before", sleeps());
}
