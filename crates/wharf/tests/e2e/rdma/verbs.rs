//! A program of the tests' own: each verb, each error with its status or errno, and what is left of programs that end.

use std::fs;
use std::path::Path;

use testkit::lab::{Host, Program, wait_until};

use super::{Pair, as_user, built};
use crate::setup::Ip;

#[test]
fn verbs_and_their_errors_are_as_specified() {
    let Some(verbs) = built("verbs.c") else { return };
    let Some(pair) = Pair::new(&[]) else { return };
    let ended = pair.call(&[verbs, &Ip::V4.client().to_string()]);
    assert!(ended.status.success(), "{ended}");
    assert_eq!(ended.stdout.lines().last(), Some("all"), "{ended}");
}

#[test]
fn verbs_are_the_same_on_memory_of_files() {
    let Some(verbs) = built("verbs.c") else { return };
    let Some(pair) = Pair::new(&[]) else { return };
    let words = ["env", "MEMORY=file", verbs, &Ip::V4.client().to_string()];
    let ended = pair.call(&words);
    assert!(ended.status.success(), "{ended}");
    assert_eq!(ended.stdout.lines().last(), Some("all"), "{ended}");
}

/// What a process has open, its threads, and its memory in kilobytes.
pub(super) fn usage(pid: u32) -> (usize, usize, u64) {
    let own = Path::new("/proc").join(pid.to_string());
    let count = |folder: &str| fs::read_dir(own.join(folder)).unwrap().count();
    let status = fs::read_to_string(own.join("status")).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let resident = resident.trim().trim_end_matches(" kB").parse().unwrap();
    (count("fd"), count("task"), resident)
}

/// A device whose memory tells how much it has: threads that come and go do not each have a heap of their own (mallopt(3)).
pub(super) fn of_one_heap(host: &Host) -> Program {
    let mut device = host.spawn(as_user(&["rdma"]).env("MALLOC_ARENA_MAX", "1"));
    device.line_with("serves");
    device
}

/// Runs programs of a device's again and again; it has no more descriptors, threads and memory in the end than it had after a
/// fourth of them.
pub(super) fn leave_nothing(device: &Program, rounds: u32, mut run: impl FnMut()) {
    /// What may come and go of memory that is kept for the next.
    const SLACK: u64 = 2048;
    let mut before = None;
    for round in 0..rounds {
        run();
        // The first ones fill what is kept.
        if round == rounds / 4 {
            assert!(wait_until(|| usage(device.id()).1 <= 2), "{:?}", usage(device.id()));
            before = Some(usage(device.id()));
        }
    }
    let (files, threads, memory) = before.unwrap();
    let is_as_before = || {
        let now = usage(device.id());
        now.0 <= files && now.1 <= threads && now.2 <= memory + SLACK
    };
    assert!(wait_until(is_as_before), "{before:?}, then {:?}", usage(device.id()));
    let after = usage(device.id());
    eprintln!("{rounds} rounds: {before:?} after a fourth of them, {after:?} after all");
}

/// `WHARF_RDMA_KILLS=500` is the long run: 10,000 connections, and each twentieth ends with its process.
#[test]
fn nothing_is_left_of_processes_that_are_killed() {
    let Some(verbs) = built("verbs.c") else { return };
    let Some(pair) = Pair::new(&[]) else { return };
    let kills = std::env::var("WHARF_RDMA_KILLS").map_or(16, |kills| kills.parse().unwrap());
    let device = of_one_heap(&pair.client);
    let to = Ip::V4.client().to_string();
    leave_nothing(&device, kills, || {
        let ended = pair.call(&[verbs, &to, "19"]);
        assert!(!ended.status.success() && ended.stdout.ends_with("killed\n"), "{ended}");
    });
}
