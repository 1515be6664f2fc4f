//! Identifiers and events of the connection manager, as their man pages say: a program of the tests' own.

use super::Pair;
use super::verbs::Built;
use crate::setup::Ip;

/// One case of the program's.
fn case(name: &str) {
    let Some(program) = Built::new("manager.c", name) else { return };
    let Some(pair) = Pair::new(&[]) else { return };
    let ended = pair.call(&[&program.path(), &Ip::V4.client().to_string(), name]);
    assert!(ended.status.success(), "{ended}");
    assert_eq!(ended.stdout.lines().last(), Some("done"), "{ended}");
}

#[test]
fn what_cannot_listen_goes_on_as_it_is() {
    case("listen_twice");
}

#[test]
fn without_a_queue_pair_the_peer_hears_nothing() {
    case("without_queue_pair");
}

#[test]
fn a_connection_that_was_told_of_outlives_the_listener() {
    case("listener_ends");
}

#[test]
fn a_connection_ends_with_its_identifier() {
    case("connected_ends");
}

#[test]
fn unread_events_end_with_their_identifier() {
    case("unread_events_end");
}

#[test]
fn unread_events_move_with_their_identifier() {
    case("migrate");
}
