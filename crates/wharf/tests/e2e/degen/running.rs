//! A degen that runs is watched and changed.

use testkit::lab::{have, wait_until};

use super::{Degen, File, Frames, LEFT, Middle, RIGHT, counters, forward, numbered};
use crate::setup::{Ip, ping, wharf};
use crate::traffic::{Direction, Load};

#[test]
fn a_connection_outlives_a_while_in_which_everything_is_lost() {
    if !have(&["sha256sum"]) {
        return;
    }
    let Some(middle) = Middle::new(1500, 1500) else { return };
    let degen = middle.degen(&["--delay", "100us"]);
    let load = Load::start(&middle.hosts, Ip::V4, Direction::In, None);
    load.goes_on();
    for (key, direction) in
        [("loss", "forward"), ("forward.loss", "forward"), ("reverse.loss", "reverse")]
    {
        let lost = degen.counter(direction, "lost");
        degen.set(key, "100%");
        assert!(wait_until(|| degen.counter(direction, "lost") > lost), "{key}");
        degen.set(key, "0");
        load.goes_on();
    }
    for (key, value) in
        [("delay", "1ms"), ("jitter_reorders", "off"), ("jitter", "1ms"), ("delay", "0")]
    {
        degen.set(key, value);
        load.goes_on();
    }
    load.finish();
}

#[test]
fn settings_are_shown_as_they_are_in_force() {
    let Some(middle) = Middle::silent() else { return };
    let degen =
        middle.degen(&["--delay", "5ms", "--forward", "loss=1.5%", "--reverse", "rate=10mbit"]);
    let get = |words: &[&str]| middle.wharf(&[&["set"], words].concat());
    assert_eq!(get(&["delay"]).stdout, "forward.delay 5ms\nreverse.delay 5ms\n");
    assert_eq!(get(&["forward.loss"]).stdout, "1.5%\n");
    assert_eq!(get(&["reverse.loss"]).stdout, "0\n");
    degen.set("reverse.loss", "25%");
    degen.set("queue", "codel");
    assert_eq!(get(&["loss"]).stdout, "forward.loss 1.5%\nreverse.loss 25%\n");
    let all = get(&[]);
    assert!(all.status.success() && all.stderr.is_empty(), "{all}");
    let row = |key: &str| {
        let line = all.stdout.lines().find(|line| line.split_whitespace().next() == Some(key));
        line.unwrap().split_whitespace().take(3).collect::<Vec<_>>().join(" ")
    };
    for expected in [
        "DEGEN FORWARD REVERSE",
        "delay 5ms 5ms",
        "loss 1.5% 25%",
        "rate 0 10mbit",
        "queue codel codel",
        "ecn false false",
        "reorder_distance 3 3",
    ] {
        assert_eq!(row(expected.split(' ').next().unwrap()), expected);
    }
    for key in degen::keys::KEYS {
        assert!(all.stdout.contains(key.help), "{}", key.name);
    }
}

#[test]
fn what_cannot_be_set_changes_nothing() {
    let Some(middle) = Middle::silent() else { return };
    let _degen = middle.degen(&["--delay", "5ms"]);
    let before = middle.wharf(&["set"]).stdout;
    for (words, part) in [
        (&["delay", "-5ms"][..], "negative"),
        (&["loss", "101%"], "100%"),
        (&["loss", "much"], "percentage"),
        (&["forward.los", "1%"], "did you mean `forward.loss`?"),
        (&["forward.los"], "did you mean `forward.loss`?"),
        (&["los", "1%"], "did you mean `loss`?"),
        (&["sideways.loss", "1%"], "sideways.loss"),
        (&["reorder_distance", "0"], "from 1"),
        (&["seed", "5"], "seed"),
        (&["lro.enable", "false"], "lro.enable"),
        (&["degen.loss", "1%"], "degen.loss"),
        (&["delay", "1ms", "--host", "left1"], "left1:right1"),
    ] {
        let ended = middle.wharf(&[&["set"], words].concat());
        assert_eq!(ended.status.code(), Some(2), "{ended}");
        assert_eq!((ended.stderr.lines().count(), &*ended.stdout), (1, ""), "{ended}");
        assert!(ended.stderr.contains(part), "{part:?} is not in: {ended}");
    }
    assert_eq!(middle.wharf(&["set"]).stdout, before);
}

#[test]
fn stats_tell_what_was_done_in_words_and_in_json() {
    let Some(middle) = Middle::silent() else { return };
    let degen = middle.degen(&["--forward", "loss=100%"]);
    Frames::of(&middle).send(&numbered(10));
    let counted = degen.settled(10);
    assert_eq!(forward(&counted, ["arrived", "arrived_bytes", "lost"]), [10, 1000, 10]);
    let text = middle.wharf(&["stats"]);
    assert!(text.status.success() && text.stdout.contains("left1:right1"), "{text}");
    let row = |name: &str| text.stdout.lines().find(|line| line.contains(name)).unwrap();
    assert!(row("lost").ends_with(" 10") && row("arrived_bytes").ends_with(" 1,000"), "{text}");
}

/// A time of 0 s is when degen begins, whatever the machine does meanwhile.
#[test]
fn a_schedule_rules_until_something_is_set() {
    let Some(middle) = Middle::silent() else { return };
    let file = File::of(
        "loss = \"0\"\nforward.duplicate = \"100%\"\n\
         [[schedule]]\nat = \"0s\"\nloss = \"100%\"\nreverse.loss = \"0\"\n\
         [[schedule]]\nat = \"3600s\"\nloss = \"0\"\n",
    );
    let degen = middle.degen(&["--file", file.path()]);
    let mut wire = Frames::of(&middle);
    let frames = numbered(20);
    wire.send(&frames);
    let counted = degen.settled(20);
    assert_eq!(forward(&counted, ["lost", "departed"]), [20, 0]);
    frames.iter().for_each(|frame| wire.server.send(frame));
    assert_eq!(wire.client.receive(20, |_| true), frames, "the other way nothing is lost");
    assert_eq!(middle.wharf(&["set", "loss"]).stdout, "forward.loss 100%\nreverse.loss 0\n");
    degen.set("loss", "0");
    wire.send(&frames);
    degen.settled(40);
    assert_eq!(wire.received(40).len(), 40, "each twice");
}

/// Options go over the file, and those of one direction over both.
#[test]
fn the_command_line_goes_over_the_file() {
    let Some(middle) = Middle::silent() else { return };
    let file = File::of(
        "forward.delay = \"3ms\"\ndelay = \"1ms\"\nloss = \"5%\"\nseed = 77\njitter = \"1us\"\n\
         [reverse]\njitter = \"2us\"\n",
    );
    let words = ["--file", file.path(), "--loss", "6%", "--reverse", "loss=7%"];
    let mut degen = middle.degen(&words);
    let get = |key| middle.wharf(&["set", key]).stdout;
    assert_eq!(get("delay"), "forward.delay 3ms\nreverse.delay 1ms\n");
    assert_eq!(get("loss"), "forward.loss 6%\nreverse.loss 7%\n");
    assert_eq!(get("jitter"), "forward.jitter 1us\nreverse.jitter 2us\n");
    assert!(degen.program.runs());
}

#[test]
fn two_degens_are_told_apart() {
    let Some(middle) = Middle::new(1500, 1500) else { return };
    for (far, host) in [("one", &middle.hosts.client), ("other", &middle.hosts.server)] {
        let wire = testkit::lab::Wire { near: far, far, mtu: 1500, queues: 1, offloads: true };
        wire.lay(host, &middle.host);
    }
    let _first = middle.degen(&[]);
    let words = ["degen", "--between", "one", "other", "--delay", "7ms"];
    let mut second = middle.host.spawn(wharf().args(words));
    second.line_with("degen: one <-> other");
    for words in [&["stats"][..], &["set"], &["set", "loss", "1%"]] {
        let ended = middle.wharf(words);
        assert_eq!(ended.status.code(), Some(2), "{ended}");
        for part in ["--host", "left1:right1", "one:other"] {
            assert!(ended.stderr.contains(part), "{part:?} is not in: {ended}");
        }
    }
    let ended = middle.wharf(&["set", "forward.delay", "--host", "one:other"]);
    assert_eq!(ended.stdout, "7ms\n", "{ended}");
    assert!(middle.wharf(&["set", "loss", "100%", "--host", "one:other"]).status.success());
    ping(&middle.hosts.client, Ip::V4.server(), &[]);
    let stats = counters(&middle.wharf(&["stats", "--json", "--host", "left1:right1"]));
    assert_eq!(forward(&stats, ["lost"]), [0]);
}

/// An interface that goes down and comes up again is no end.
#[test]
fn a_wire_may_go_down_for_a_while() {
    let Some(middle) = Middle::new(1500, 1500) else { return };
    let mut degen = middle.degen(&[]);
    ping(&middle.hosts.client, Ip::V4.server(), &[]);
    for name in [LEFT[1], RIGHT[1]] {
        middle.ip(&format!("link set {name} down"));
        assert!(middle.wharf(&["stats"]).status.success());
        middle.ip(&format!("link set {name} up"));
        let up = || {
            let look = || sys::interface::Interface::by_name(name).unwrap();
            middle.host.run(look).operational
        };
        assert!(wait_until(up), "{name}");
    }
    let peers = [(&middle.hosts.client, LEFT[0]), (&middle.hosts.server, RIGHT[0])];
    for (host, name) in peers {
        let up = || host.run(|| sys::interface::Interface::by_name(name).unwrap().operational);
        assert!(wait_until(up), "{name}");
    }
    ping(&middle.hosts.client, Ip::V4.server(), &[]);
    assert!(degen.program.runs());
}

/// Frames of a window, as degen is judged.
const WINDOW: u64 = 1_000;

fn signal(middle: &Middle, degen: &Degen<'_>, name: &str) {
    let command = format!("kill -{name} {}", degen.program.id());
    middle.host.succeed("sh", &["-c", &command]);
}

/// Stops a degen with a delay of 300 ms while frames are in flight, so that they leave late on any machine.
fn make_late(middle: &Middle, degen: &Degen<'_>, wire: &mut Frames<'_>, frames: u32) {
    wire.send(&numbered(frames));
    signal(middle, degen, "STOP");
    std::thread::sleep(std::time::Duration::from_millis(400));
    signal(middle, degen, "CONT");
    degen.settled(frames.into());
}

const DOES_NOT_KEEP: &str = "degen does not keep its times";

#[test]
fn frames_that_leave_late_are_told_of_once_and_at_the_end() {
    let Some(middle) = Middle::silent() else { return };
    let degen = middle.degen(&["--delay", "300ms"]);
    let mut wire = Frames::of(&middle);
    // Those that were gone before it was stopped were in time, and it is judged once a second.
    let is_told = wait_until(|| {
        make_late(&middle, &degen, &mut wire, WINDOW as u32);
        degen.program.errors().contains(DOES_NOT_KEEP)
    });
    assert!(is_told, "{:#?}", degen.counters());
    degen.program.signal(sys::process::Signal::Terminate);
    let ended = degen.program.wait();
    assert!(ended.status.success(), "{ended}");
    assert_eq!(ended.stderr.matches(DOES_NOT_KEEP).count(), 1, "{ended}");
    let last = ended.stderr.lines().last().unwrap_or_default();
    assert!(
        last.contains("in all: ") && last.contains(" frames left more than 50 us late"),
        "{ended}"
    );
}

/// A few frames that leave late, and any number where no time was asked for, are no fault of the machine.
#[test]
fn what_is_no_measurement_is_not_called_late() {
    let Some(middle) = Middle::silent() else { return };
    let degen = middle.degen(&["--delay", "300ms"]);
    let mut wire = Frames::of(&middle);
    let late = wait_until(|| {
        make_late(&middle, &degen, &mut wire, 20);
        degen.counter("forward", "late") >= 10
    });
    assert!(late, "{:#?}", degen.counters());
    assert!(degen.counter("forward", "departed") < WINDOW, "{:#?}", degen.counters());
    degen.program.signal(sys::process::Signal::Terminate);
    let ended = degen.program.wait();
    assert!(!ended.stderr.contains(DOES_NOT_KEEP), "{ended}");
    assert!(ended.stderr.contains("degen, in all: "), "{ended}");

    let degen = middle.degen(&["--loss", "1%"]);
    let mut wire = Frames::of(&middle);
    signal(&middle, &degen, "STOP");
    wire.send(&numbered(100));
    std::thread::sleep(std::time::Duration::from_millis(10));
    signal(&middle, &degen, "CONT");
    degen.settled(100);
    assert_eq!(degen.counter("forward", "late"), 0, "{:#?}", degen.counters());
    degen.program.signal(sys::process::Signal::Terminate);
    let ended = degen.program.wait();
    assert!(ended.status.success(), "{ended}");
    assert!(!ended.stderr.contains(" late"), "{ended}");
}

#[test]
fn the_death_of_a_degen_is_logged_for_both_interfaces() {
    let Some(middle) = Middle::silent() else { return };
    let degen = middle.degen(&[]);
    degen.program.signal(sys::process::Signal::Kill);
    for name in [LEFT[1], RIGHT[1]] {
        let line = format!("wharf has died: {name} is as it was before");
        let errors = || degen.program.errors();
        assert!(wait_until(|| errors().contains(&line)), "{}", errors());
    }
}
