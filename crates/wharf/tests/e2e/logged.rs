//! What wharf tells on standard error, by `--log` and in the journal.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use sys::process::Signal;
use testkit::lab::wait_until;

use super::running::set;
use super::setup::{HOST, Hosts, Ip, PEER, Plan, Port, Up, WIRE, give, wharf};
use super::traffic::{Direction, transfer};

/// A wharf with more words, at which what an operator may want to know has happened: what it told.
fn told(hosts: Hosts, words: &[&str]) -> String {
    let wharf = hosts.wharf_up(words);
    give(&hosts.server, HOST, &Ip::BOTH, Ip::server);
    let up = Up { wharf, hosts };
    set(&up, "lro.enable", "false");
    up.hosts.ip(&format!("link set {WIRE} mtu 1400"));
    assert!(wait_until(|| up.hosts.ip(&format!("link show {HOST}")).contains("mtu 1400")));
    up.hosts.client.succeed("ip", &["link", "set", PEER, "down"]);
    assert!(wait_until(|| up.hosts.ip(&format!("link show {HOST}")).contains("NO-CARRIER")));
    up.wharf.signal(Signal::Interrupt);
    let ended = up.wharf.wait();
    assert!(ended.status.success(), "{ended}");
    ended.stderr
}

#[test]
fn without_log_only_what_is_not_as_it_should_be_is_told() {
    let Some(hosts) = Plan::new(Port::Packet).hosts() else { return };
    let text = told(hosts, &[]);
    let mtu = format!("wharf: the MTU of {WIRE} is 1400 now, and that of {HOST} 1400");
    assert!(text.lines().any(|line| line == mtu), "{text}");
    for line in text.lines() {
        assert!(line.starts_with("wharf: "), "{line}");
        for part in ["open by", "has started", "guards", "set by process", "carrier"] {
            assert!(!line.contains(part), "{line}");
        }
    }
}

#[test]
fn log_error_leaves_notices_out() {
    let Some(hosts) = Plan::new(Port::Packet).hosts() else { return };
    assert_eq!(told(hosts, &["--log", "error"]), "");
}

#[test]
fn log_info_tells_what_is_opened_changed_started_and_ended() {
    let Some(hosts) = Plan::new(Port::Packet).hosts() else { return };
    let text = told(hosts, &["--log", "info"]);
    for (level, part) in [
        ("INFO", format!("wharf: {WIRE} is open by AF_PACKET")),
        ("INFO", format!("guards {WIRE}")),
        ("INFO", "wharf: worker 0 has started".to_owned()),
        ("INFO", "wharf: lro.enable is false now: set by process".to_owned()),
        ("INFO", format!("wharf: the MTU of {WIRE} was 1500 and is 1400")),
        ("WARN", format!("wharf: the MTU of {WIRE} is 1400 now, and that of {HOST} 1400")),
        ("INFO", format!("wharf: {WIRE} has lost its carrier")),
        ("INFO", "wharf: worker 0 has ended".to_owned()),
        ("INFO", format!("wharf: the guard has put back {WIRE}")),
    ] {
        let is = |line: &str| line.contains(&format!(" {level} ")) && line.contains(&part);
        assert!(text.lines().any(is), "no {level} {part:?} in:\n{text}");
    }
    for line in text.lines() {
        // 2026-11-23T01:02:03.456789Z
        let (time, _) = line.split_once(' ').unwrap();
        assert!(time.ends_with('Z') && time.contains('T'), "{line}");
        assert!(!line.contains("DEBUG") && !line.contains("TRACE"), "{line}");
    }
}

#[test]
fn no_level_tells_of_each_packet() {
    let Some(up) = Plan::new(Port::Packet).up_with(&["--log", "trace"]) else { return };
    transfer(&up.hosts, Ip::V4, Direction::In, 4 << 20);
    transfer(&up.hosts, Ip::V4, Direction::Out, 4 << 20);
    let text = up.wharf.errors();
    assert!(text.lines().count() < 200, "{text}");
}

/// sd-daemon(3): the journal reads priorities, and has the time.
#[test]
fn lines_for_the_journal_begin_with_their_priority() {
    let path = std::env::temp_dir().join(format!("wharf-journal-{}", std::process::id()));
    let run = |stream: &dyn Fn(&File) -> String, words: &[&str]| {
        let file = File::create(&path).unwrap();
        let mut command = wharf();
        command.args(words).args(["stats", "--host", "none0"]);
        command.env("JOURNAL_STREAM", stream(&file)).stderr(file);
        assert!(!command.status().unwrap().success());
        std::fs::read_to_string(&path).unwrap()
    };
    let this = |file: &File| {
        let file = file.metadata().unwrap();
        format!("{}:{}", file.dev(), file.ino())
    };
    // Standard error was redirected since the journal's stream was made.
    let another = |_: &File| "1:1".to_owned();
    for words in [&[][..], &["--log", "debug"]] {
        let text = run(&this, words);
        assert!(text.starts_with("<3>wharf: "), "{text}");
    }
    assert!(run(&another, &[]).starts_with("wharf: "));
    let _ = std::fs::remove_file(&path);
}
