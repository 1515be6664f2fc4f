//! Programs of the tests' own that have connections with themselves: operations that others do not use.

use super::Pair;
use super::verbs::Built;
use crate::setup::Ip;

/// Runs a program to its end; its last line.
fn last_line(source: &str, name: &str, words: &[&str]) -> Option<String> {
    let program = Built::new(source, name)?;
    let pair = Pair::new(&[])?;
    let own = Ip::V4.client().to_string();
    let ended = pair.call(&[&[&program.path()[..], &own], words].concat());
    assert!(ended.status.success(), "{ended}");
    Some(ended.stdout.lines().last().unwrap().to_owned())
}

#[test]
fn operations_that_programs_do_not_use_are_as_specified() {
    let Some(last) = last_line("operations.c", "operations", &[]) else { return };
    assert_eq!(last, "all");
}

#[test]
fn what_is_destroyed_waits_for_acknowledgements() {
    let Some(last) = last_line("waits.c", "waits", &[]) else { return };
    assert_eq!(last, "all");
}
