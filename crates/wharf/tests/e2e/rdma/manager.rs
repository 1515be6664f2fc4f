//! Identifiers and events of the connection manager, as their man pages say: a program of the tests' own. And connections
//! of peers that say nothing.

use std::fs;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::lab::wait_until;

use super::lives::Peer;
use super::verbs::usage;
use super::{Pair, as_user, built, ordinary};
use crate::setup::{Ip, wharf};

fn case(name: &str) {
    case_of("manager.c", name);
}

/// One case of a program's.
pub(super) fn case_of(source: &str, name: &str) {
    let Some(program) = built(source) else { return };
    let Some(pair) = Pair::new(&[]) else { return };
    let ended = pair.call(&[program, &Ip::V4.client().to_string(), name]);
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

#[test]
fn options_of_identifiers_are_obeyed() {
    case("options");
}

#[test]
fn identifiers_of_a_device_have_a_domain() {
    case("has_domain");
}

#[test]
fn whoever_is_rejected_has_its_receives_back() {
    case("rejected_is_flushed");
}

#[test]
fn queue_pairs_of_the_programs_own_are_connected() {
    case("own_queue_pairs");
}

#[test]
fn the_shared_queue_of_an_identifier_is_its_queue_pairs() {
    case("shared_queue_of_id");
}

#[test]
fn what_cannot_listen_stays_bound() {
    case("listen_again");
}

#[test]
fn a_request_that_is_not_answered_is_rejected() {
    case("unanswered");
}

#[test]
fn there_is_no_route_to_what_has_no_address() {
    case("no_route");
}

#[test]
fn a_message_without_a_receive_does_not_delay_a_disconnect() {
    case("message_waits");
}

#[test]
fn each_message_has_its_time_to_wait_for_a_receive() {
    case("messages_wait");
}

/// Peers that say nothing have few of the device's descriptors. The others wait, and nobody looks for them again and again.
#[test]
fn peers_that_say_nothing_keep_no_cpu_busy_and_no_program_away() {
    const FILES: usize = 64;
    const LIMIT: &str = "--nofile=64:64";
    /// An eighth of the descriptors.
    const PLACES: usize = 8;
    /// How often it may look in a second: ten times for a place, and for some time whether that has brought something. Whoever
    /// looked again and again would do so 100,000 times.
    const LOOKS_MAX: u64 = 2_000;
    let Some(peer) = Peer::new("silent") else { return };
    let program = wharf();
    let limited = ["prlimit", LIMIT, program.get_program().to_str().unwrap(), "rdma"];
    let mut device = peer.pair.server.spawn(&mut ordinary(&limited));
    device.line_with("serves");
    let threads = || usage(device.id()).1;
    let server = peer.serve("exit");
    let to = (Ip::V4.server(), 5001);
    let connect = || TcpStream::connect_timeout(&to.into(), Duration::from_secs(5));
    let descriptors = format!("/proc/{}/fd", device.id());
    let files = || fs::read_dir(&descriptors).unwrap().count();
    // It has its own, and one for the server: whoever only looked whether there is a device is gone.
    assert!(wait_until(|| threads() == 2), "{}", threads());
    let (mut silent, idle) = (Vec::new(), files());
    peer.pair.client.run(|| {
        silent.extend((0..PLACES).map(|_| connect().unwrap()));
        assert!(wait_until(|| files() >= idle + PLACES));
        // Those that it does not accept, of which few may wait.
        silent.extend((0..2).filter_map(|_| connect().ok()));
    });
    let looks = || {
        let told = peer.pair.server.output(&mut as_user(&["rdma", "stats", "--json"]));
        assert!(told.status.success(), "{told}");
        let told: Value = serde_json::from_str(&told.stdout).unwrap();
        told["processes"][0]["counters"]["waits"].as_u64().unwrap()
    };
    let (since, before) = (Instant::now(), looks());
    std::thread::sleep(Duration::from_secs(1));
    let (times, looks) = (since.elapsed().as_secs() + 1, looks() - before);
    assert!(looks < times * LOOKS_MAX, "{looks} in {times} s");
    assert!(files() < FILES / 2, "{} of {FILES}", files());
    let asked = peer.pair.server.output(&mut as_user(&["rdma", "list"]));
    assert!(asked.status.success(), "{asked}");
    drop(silent);
    assert!(wait_until(|| files() <= idle));
    let mut client = peer.call("call");
    peer.go();
    assert_eq!(client.line_with("status"), "status 0");
    assert!(client.wait().status.success());
    drop(server);
}
