//! Random sequences of socket calls on a connection that moves between the kernel and the NIC, and on one that stays in
//! the kernel: both give the same.

mod found;
mod line;
mod model;
mod options;
mod pair;
mod program;
mod step;

use std::os::fd::{AsFd, AsRawFd};

use crate::handoff::library;
use crate::setup::{Plan, Port, wharf};

/// Has the program run so many sequences behind wharf, from this one on.
fn sequences(policy: &str, first: u64, count: u64) {
    behind_wharf(policy, first, count, false);
}

/// The same; `are_found` if they are those of `found`, and not drawn.
fn behind_wharf(policy: &str, first: u64, count: u64, are_found: bool) {
    let Some(up) = Plan::new(Port::Auto).up_with(&["--set", "workers=1"]) else { return };
    let client = up.hosts.client.namespace().as_fd().as_raw_fd();
    let mut run = wharf();
    run.env("WHARF_LIBRARY", library());
    run.env(program::PEERS, format!("/proc/{}/fd/{client}", std::process::id()));
    run.env(program::FIRST, first.to_string()).env(program::COUNT, count.to_string());
    if are_found {
        run.env(program::FOUND, "1");
    }
    run.args(["run", "--policy", policy, "--"]).arg(std::env::current_exe().unwrap());
    run.args(["--exact", program::NAME, "--ignored", "--nocapture", "--test-threads=1"]);
    let mut program = up.hosts.server.spawn(&mut run);
    let ended = program.line_within("differential: ", program::PATIENCE);
    let program = program.wait();
    assert_eq!(ended, format!("differential: {count} sequences agree"), "{program}");
    let have_moved = up.counter("handoff", "handoffs") > 0 && up.counter("handoff", "restored") > 0;
    // A short sequence may be over before anything moves.
    assert!(have_moved || count < 10);
    up.nothing_went_wrong();
}

#[test]
fn connections_that_move_by_hand_are_as_those_of_the_kernel() {
    sequences("by_hand", 0, 1000);
}

#[test]
fn connections_that_move_at_once_are_as_those_of_the_kernel() {
    sequences("at_accept", 1001, 1000);
}

#[test]
fn what_was_found_is_mended() {
    let count = found::all().len() as u64;
    behind_wharf("by_hand", 0, count, true);
    behind_wharf("at_accept", 0, count, true);
}

/// As many as `WHARF_CALLS_SEQUENCES` says, from `WHARF_CALLS_FIRST` on, with the policy `WHARF_CALLS_POLICY`, or else one
/// that the number chooses.
#[test]
fn as_many_as_asked_for() {
    let setting = |name| std::env::var(name).ok();
    let number = |name| setting(name).and_then(|text| text.parse().ok());
    let Some(count) = number("WHARF_CALLS_SEQUENCES") else { return };
    let first: u64 = number("WHARF_CALLS_FIRST").unwrap_or(0);
    let by_number = if first.is_multiple_of(2) { "by_hand" } else { "at_accept" };
    let policy = setting("WHARF_CALLS_POLICY").unwrap_or_else(|| by_number.to_owned());
    sequences(&policy, first, count);
}
