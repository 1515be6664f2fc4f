//! Guarantees for programs that poll memory, and the order of work at its responder: a program of the tests' own.

use std::process::Command;

use serde_json::Value;
use testkit::lab::{Host, wait_until};

use super::{Pair, as_user, built};
use crate::setup::Ip;

fn case(name: &str, count: u32) {
    let Some(program) = built("order.c") else { return };
    let Some(pair) = Pair::new(&[]) else { return };
    let ended = pair.call(&[program, &Ip::V4.client().to_string(), name, &count.to_string()]);
    assert!(ended.status.success(), "{ended}");
    assert_eq!(ended.stdout.lines().last(), Some("all"), "{ended}");
    eprint!("{}", ended.stdout);
}

/// `WHARF_RDMA_WORDS=100000` writes so many words of each kind.
#[test]
fn no_word_is_seen_in_part() {
    let words = std::env::var("WHARF_RDMA_WORDS").map_or(2_000, |words| words.parse().unwrap());
    case("words", words);
}

#[test]
fn a_read_shows_nothing_of_an_atomic_operation_behind_it() {
    case("atomics", 500);
}

#[test]
fn numbers_of_queue_pairs_have_24_bits() {
    case("numbers", 100);
}

/// A program may wait for a read of its own before it posts the receive for what has come before the response.
#[test]
fn a_response_passes_a_message_that_waits_for_a_receive() {
    case("late", 100);
}

#[test]
fn posts_without_pause_keep_the_device_from_no_request() {
    case("busy", 200);
}

/// FPDUs and messages that the host's device has sent.
fn sent(host: &Host) -> [u64; 2] {
    let told = host.output(&mut as_user(&["rdma", "stats", "--json"]));
    assert!(told.status.success(), "{told}");
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    let counters = &told["processes"][0]["counters"];
    ["fpdus_out", "messages_out"].map(|name| counters[name].as_u64().unwrap_or(0))
}

/// RFC 5044 section 4.5: when the largest segment of the connection is another, the next FPDU is as long as it allows.
#[test]
fn fpdus_are_as_long_as_the_segments_of_the_path_are_now() {
    const LEN: u64 = 1 << 16;
    let Some(program) = built("order.c") else { return };
    let Some(pair) = Pair::new(&["ip"]) else { return };
    let mut device = pair.client.spawn(&mut as_user(&["rdma"]));
    device.line_with("serves");
    let own = Ip::V4.client().to_string();
    let _writes = pair.client.spawn(&mut pair.run(&[program, &own, "writes", "0"]));
    let are_of = |segment: u64| {
        let before = sent(&pair.client);
        wait_until(|| sent(&pair.client)[1] > before[1]) && {
            let [fpdus, messages] = sent(&pair.client);
            // There may be a message in parts.
            let each = (fpdus - before[0]) / (messages - before[1]);
            each >= LEN / segment && each <= 2 * LEN / segment
        }
    };
    let set_mtu = |mtu: &str| {
        let mut ip = Command::new("ip");
        let ended = pair.client.output(ip.args(["link", "set", "lo", "mtu", mtu]));
        assert!(ended.status.success(), "{ended}");
    };
    assert!(wait_until(|| are_of(LEN)));
    set_mtu("1500");
    assert!(wait_until(|| are_of(1448)));
    set_mtu("65536");
    assert!(wait_until(|| are_of(LEN)));
}
