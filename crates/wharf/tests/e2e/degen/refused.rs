//! What cannot be is refused: one line that says what to do, exit status 2, nothing left behind.

use testkit::lab::{Ended, have, wait_until};

use super::{LEFT, Middle, RIGHT};
use crate::setup::{Ip, ping, wharf};

#[track_caller]
fn is_refusal(ended: &Ended, parts: &[&str]) {
    assert_eq!(ended.status.code(), Some(2), "{ended}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
    for part in parts {
        assert!(ended.stderr.contains(part), "{part:?} is not in: {ended}");
    }
    assert_eq!(ended.stdout, "", "{ended}");
}

#[test]
fn interfaces_that_are_no_two_are_refused() {
    if !have(&["ip"]) {
        return;
    }
    let Some(middle) = Middle::new(1500, 1500) else { return };
    middle.ip("link property add dev left1 altname west");
    middle.ip("link add veth0 type veth peer name veth1");
    let before = middle.ip("-d link show");
    let between = |one, other| middle.wharf(&["degen", "--between", one, other]);
    is_refusal(&between("left1", "left1"), &["two", "left1"]);
    is_refusal(&between("left1", "west"), &["two", "left1", "west"]);
    is_refusal(&between("west", "left1"), &["two", "left1", "west"]);
    is_refusal(&between("left1", "nowhere0"), &["nowhere0", "left1, right1"]);
    is_refusal(&between("lo", "right1"), &["lo", "Ethernet"]);
    is_refusal(&between("left1", "a/b"), &["a/b"]);
    is_refusal(&between("", "left1"), &["--between"]);
    // Whatever leaves at one arrives at the other, for ever.
    is_refusal(&between("veth0", "veth1"), &["veth0", "veth1", "each other"]);
    assert_eq!(middle.ip("-d link show"), before);
    assert!(wait_until(|| middle.host.processes().is_empty()), "a process stays behind");
}

#[test]
fn an_interface_by_its_other_name_is_the_same() {
    if !have(&["ip"]) {
        return;
    }
    let Some(middle) = Middle::new(1500, 1500) else { return };
    middle.ip("link property add dev left1 altname west");
    let mut degen =
        middle.host.spawn(wharf().args(["degen", "--no-real-time", "--between", "west", "right1"]));
    degen.line_with("degen: left1 <-> right1");
    ping(&middle.hosts.client, Ip::V4.server(), &[]);
    assert!(middle.wharf(&["stats", "--host", "left1:right1"]).status.success());
}

#[test]
fn an_interface_has_one_wharf() {
    if !have(&["ip"]) {
        return;
    }
    let Some(middle) = Middle::new(1500, 1500) else { return };
    middle.ip("link add veth0 type veth peer name veth1");
    let mut degen = middle.degen(&[]);
    let before = middle.ip("-d link show");
    let (one, other) = (LEFT[1], RIGHT[1]);
    for (between, taken) in [
        ([one, other], one),
        ([other, one], other),
        ([other, "veth0"], other),
        (["veth0", one], one),
    ] {
        let ended = middle.wharf(&["degen", "--between", between[0], between[1]]);
        is_refusal(&ended, &["degen", taken, "already", "stop it"]);
        assert!(!ended.stderr.contains("--wire"), "{ended}");
    }
    for wire in [one, other] {
        let ended = middle.wharf(&["up", "--wire", wire, "--host", "host0"]);
        is_refusal(&ended, &[wire, "already", "--wire"]);
    }
    assert_eq!(middle.ip("-d link show"), before);
    ping(&middle.hosts.client, Ip::V4.server(), &[]);
    assert!(degen.program.runs());
    drop(degen);
    assert!(wait_until(|| middle.host.processes().is_empty()), "a process stays behind");
    let words = ["up", "--wire", one, "--host", "host0", "--set", "wire.mode=packet"];
    let mut up = middle.host.spawn(wharf().args(words));
    up.line_with("up: ");
    is_refusal(&middle.wharf(&["degen", "--between", other, one]), &[one, "already"]);
    assert!(up.runs());
}

#[test]
fn frames_that_af_xdp_has_no_room_for_are_for_af_packet() {
    if !have(&["ip"]) || !sys::process::has_bpf() {
        return;
    }
    let Some(middle) = Middle::new(1500, 9000) else { return };
    let before = middle.ip("-d link show");
    let ended = middle.wharf(&["degen", "--between", LEFT[1], RIGHT[1], "--mode", "xdp"]);
    // That the MTUs differ is said before.
    let last = ended.stderr.lines().last().unwrap_or_default();
    assert!(last.contains("right1") && last.contains("9000") && last.contains("--mode"), "{ended}");
    assert_eq!((ended.status.code(), &*ended.stdout), (Some(2), ""), "{ended}");
    assert_eq!(middle.ip("-d link show"), before);
    assert!(wait_until(|| middle.host.processes().is_empty()), "a process stays behind");
}

#[test]
fn without_privilege_degen_says_what_it_needs() {
    if !have(&["ip", "setpriv"]) || !sys::process::has_bpf() {
        eprintln!("skipped unless root: it gives its privilege up");
        return;
    }
    let Some(middle) = Middle::new(1500, 1500) else { return };
    let before = middle.ip("-d link show");
    let Some(program) = crate::demo::for_everyone() else { return };
    let mut command = crate::demo::as_nobody(program.path());
    let ended = middle.host.output(command.args(["degen", "--between", LEFT[1], RIGHT[1]]));
    is_refusal(&ended, &["root"]);
    assert_eq!(middle.ip("-d link show"), before);
    assert!(wait_until(|| middle.host.processes().is_empty()), "a process stays behind");
}
