//! A WAN between the wire and `wharf up`.

use testkit::lab::{Ended, have, wait_until};

use super::{File, counters};
use crate::setup::{HOST, Ip, PEER, Plan, Port, Up, WIRE, ping};
use crate::tagged::Tap;
use crate::traffic::{Direction, datagrams, transfer};

const MB: u64 = 1 << 20;

fn up(plan: Plan, file: &File) -> Option<Up> {
    plan.up_with(&["--degen", file.path()])
}

fn set(up: &Up, words: &[&str]) -> Ended {
    up.hosts.wharf(&[&["set"], words].concat())
}

/// Every kind of wire and host, and what a kernel sends whole or with partial checksums.
fn everything_passes(port: Port, offloads: bool) {
    if !have(&["sha256sum"]) {
        return;
    }
    let file = File::of("delay = \"200us\"\nloss = \"0.1%\"\nduplicate = \"1%\"\nseed = 4\n");
    let Some(up) = up(Plan { offloads, ..Plan::new(port) }, &file) else { return };
    for ip in Ip::BOTH {
        transfer(&up.hosts, ip, Direction::In, 4 * MB + 1234);
        transfer(&up.hosts, ip, Direction::Out, 4 * MB + 1234);
    }
    assert!(set(&up, &["degen.loss", "0"]).status.success());
    for ip in Ip::BOTH {
        ping(&up.hosts.client, ip.server(), &["-s", "8000"]);
        // Each comes once and its copy may, so no answer is waited for that could be a copy's.
        assert!(set(&up, &["degen.duplicate", "0"]).status.success());
        datagrams(&up.hosts, ip, &[0, 1, 1472, 1473, 9000, 65_000]);
    }
    let counted = counters(&up.hosts.wharf(&["stats", "--json"]));
    for direction in ["degen.forward", "degen.reverse"] {
        let count = |name: &str| counted[&(direction.to_owned(), name.to_owned())];
        assert!(count("arrived") > 4 * MB / 1500 && count("duplicated") > 0, "{counted:#?}");
        assert!(count("arrived_bytes") <= count("arrived") * 1514, "{direction}: wire frames");
        assert_eq!((count("refused"), count("no_memory")), (0, 0), "{direction}");
        // As what was lost was sent again, all else passed.
        let (arrived, copies, lost) = (count("arrived"), count("duplicated"), count("lost"));
        assert_eq!(count("departed") + count("held"), arrived + copies - lost, "{direction}");
    }
}

#[test]
fn everything_passes_by_af_xdp() {
    everything_passes(Port::Xdp, true);
}

#[test]
fn everything_passes_by_af_packet() {
    everything_passes(Port::Packet, true);
}

#[test]
fn everything_passes_by_veth() {
    everything_passes(Port::Veth, false);
}

/// Forward is what the host sends.
#[test]
fn each_direction_is_lost_by_itself() {
    for port in Port::EACH {
        let file = File::of("[forward]\nloss = \"100%\"\n");
        let Some(up) = up(Plan::new(port), &file) else { continue };
        let mut peer = Tap::open(&up.hosts.client, PEER);
        let mut host = Tap::open(&up.hosts.server, HOST);
        let frames = super::numbered(20);
        let ours = |frame: &[u8]| frame[12..14] == super::EXPERIMENT;
        frames.iter().for_each(|frame| peer.send(frame));
        assert_eq!(host.receive(20, ours), frames, "{port:?}: to the host");
        frames.iter().for_each(|frame| host.send(frame));
        let lost = |direction: &str| up.counter(&format!("degen.{direction}"), "lost");
        assert!(wait_until(|| lost("forward") >= 20), "{port:?}");
        assert_eq!(
            set(&up, &["degen.loss"]).stdout,
            "degen.forward.loss 100%\ndegen.reverse.loss 0\n"
        );
        // The other way round.
        assert!(set(&up, &["degen.reverse.loss", "100%"]).status.success());
        assert!(set(&up, &["degen.forward.loss", "0"]).status.success());
        assert_eq!(set(&up, &["degen.forward.loss"]).stdout, "0\n");
        frames.iter().for_each(|frame| host.send(frame));
        assert_eq!(peer.receive(20, ours), frames, "{port:?}: to the wire");
        let before = lost("reverse");
        frames.iter().for_each(|frame| peer.send(frame));
        assert!(wait_until(|| lost("reverse") >= before + 20), "{port:?}");
    }
}

#[test]
fn settings_and_counters_are_shown_beside_the_others() {
    let file = File::of("delay = \"1ms\"\nforward.rate = \"1gbit\"\n");
    let Some(up) = up(Plan::new(Port::Auto), &file) else { return };
    ping(&up.hosts.client, Ip::V4.server(), &[]);
    let all = set(&up, &[]).stdout;
    for part in ["lro.enable", "DEGEN", "1gbit", "queue_packets"] {
        assert!(all.contains(part), "{part:?} is not in {all}");
    }
    assert!(up.hosts.wharf(&["stats"]).stdout.contains("degen.forward"));
    for (words, part) in [
        (&["degen.forward.los", "1%"][..], "did you mean `degen.forward.loss`?"),
        (&["degen.forward.los"], "did you mean `degen.forward.loss`?"),
        (&["degen.loss", "101%"], "100%"),
        (&["loss", "1%"], "did you mean `degen.loss`?"),
        (&["loss"], "did you mean `degen.loss`?"),
    ] {
        let ended = set(&up, words);
        assert_eq!((ended.status.code(), ended.stderr.lines().count()), (Some(2), 1), "{ended}");
        assert!(ended.stderr.contains(part), "{part:?} is not in: {ended}");
    }
}

#[test]
fn a_wharf_without_a_wan_says_so() {
    let Some(up) = Plan::new(Port::Packet).up() else { return };
    for words in [&["degen.loss", "1%"][..], &["degen.forward.loss"], &["degen.los"]] {
        let ended = set(&up, words);
        assert_eq!((ended.status.code(), ended.stderr.lines().count()), (Some(2), 1), "{ended}");
        assert!(ended.stderr.contains("degen"), "{ended}");
    }
    let ended = set(&up, &["degen.loss", "1%"]);
    assert!(ended.stderr.contains("wharf up --degen"), "{ended}");
}

#[test]
fn what_cannot_be_is_refused() {
    let wrong = File::of("delay = \"-1ms\"\n");
    let right = File::of("delay = \"1ms\"\n");
    let plan = Plan { queues: 2, ..Plan::new(Port::Packet) };
    let Some(hosts) = plan.hosts() else { return };
    let before = hosts.server.run(sys::interface::list).unwrap().len();
    let up = ["up", "--wire", WIRE, "--host", HOST, "--set", "wire.mode=packet"];
    for (words, parts) in [
        (&["--degen", wrong.path()][..], &[wrong.path(), ":1:9", "negative"][..]),
        (&["--degen", "/no/such.toml"], &["/no/such.toml", "No such file"]),
        (&["--degen", right.path(), "--set", "workers=2"], &[WIRE, "2", "workers=1"]),
    ] {
        let ended = hosts.wharf(&[&up, words].concat());
        assert_eq!(ended.status.code(), Some(2), "{ended}");
        assert_eq!((ended.stderr.lines().count(), &*ended.stdout), (1, ""), "{ended}");
        for part in parts {
            assert!(ended.stderr.contains(part), "{part:?} is not in: {ended}");
        }
    }
    assert!(wait_until(|| hosts.server.processes().is_empty()), "a process stays behind");
    assert_eq!(hosts.server.run(sys::interface::list).unwrap().len(), before);
}
