//! What an operator sees of connections of programs: `wharf connections`.

use std::net::TcpStream;

use serde_json::Value;
use sys::process::Signal;
use testkit::lab::{have, wait_until};

use crate::handoff::{EVENTS, bytes, connect, echoes, ends, library, serve};
use crate::setup::{Ip, Plan, Port, Up, wharf};

/// With one worker and more words.
fn up_with(words: &[&str]) -> Option<Up> {
    if !have(&["python3"]) {
        return None;
    }
    Plan::new(Port::Auto).up_with(&[&["--set", "workers=1"], words].concat())
}

/// What `wharf connections --json` shows, with more words.
pub(crate) fn listed(up: &Up, words: &[&str]) -> Vec<Value> {
    let ended = up.hosts.wharf(&[&["connections", "--json"], words].concat());
    assert!(ended.status.success(), "{ended}");
    ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// That of a client's connection, if it is shown.
pub(crate) fn of(up: &Up, stream: &TcpStream) -> Option<Value> {
    let [local, remote] = [stream.peer_addr(), stream.local_addr()].map(|end| end.unwrap());
    let is_it =
        |one: &Value| one["local"] == local.to_string() && one["remote"] == remote.to_string();
    listed(up, &[]).into_iter().find(is_it)
}

/// Has all connections go to the NIC, by this stream as well, whose connection is there then.
pub(crate) fn to_nic(up: &Up, stream: &TcpStream) {
    let moved = wait_until(|| {
        let ended = up.hosts.wharf(&["handoff", "--to", "nic", "--all", "--no-wait"]);
        assert!(ended.status.success(), "{ended}");
        echoes(stream, &bytes(1000, 1));
        of(up, stream).is_some_and(|one| one["where"] == "nic")
    });
    assert!(moved, "{:?}", of(up, stream));
}

#[test]
fn a_connection_is_seen_wherever_it_is() {
    let Some(up) = up_with(&[]) else { return };
    let server = serve(&up.hosts, "by_hand", EVENTS);
    for ip in Ip::BOTH {
        let stream = connect(&up.hosts, ip);
        echoes(&stream, &bytes(1000, 1));
        assert!(wait_until(|| of(&up, &stream).is_some()), "{:?}", listed(&up, &[]));
        let one = of(&up, &stream).unwrap();
        assert_eq!((&one["where"], &one["pid"]), (&"os".into(), &server.id().into()), "{one}");
        let carried = || {
            let one = of(&up, &stream).unwrap();
            ["sent", "received"].map(|name| one[name].as_u64())
        };
        assert!(wait_until(|| carried() == [Some(1000); 2]), "{:?}", carried());
        assert!(
            ["nic", "cid", "refused", "restored"]
                .iter()
                .all(|name| one.get(name) == Some(&Value::Null))
        );
        let shown = up.hosts.wharf(&["connections"]).stdout;
        assert!(shown.lines().any(|line| line.ends_with("not offered")), "{shown}");
        // All that it has carried is counted, over all its stays.
        let mut all = 1000;
        let mut carries = |len: usize| {
            echoes(&stream, &bytes(len, 2));
            all += len as u64;
            let is_counted = wait_until(|| carried() == [Some(all); 2]);
            assert!(is_counted, "{:?}, not {all}: {:?}", carried(), of(&up, &stream));
        };
        let asked = ["handoff", "--to", "nic", "--all", "--no-wait"];
        let is_at = |place: &str| of(&up, &stream).is_some_and(|one| one["where"] == place);
        let mut moves = || {
            assert!(up.hosts.wharf(&asked).status.success());
            carries(1000);
            is_at("nic")
        };
        assert!(wait_until(&mut moves), "{:?}", of(&up, &stream));
        carries(3_000_000);
        let one = of(&up, &stream).unwrap();
        assert_eq!(
            (&one["state"], one["pid"].as_u64()),
            (&"ESTABLISHED".into(), Some(server.id().into()))
        );
        assert!(one["rtt"].as_u64() > Some(0) && one["cwnd"].as_u64() > Some(1000), "{one}");
        assert!(one["cid"].is_u64() && one["refused"].is_null() && one["restored"].is_null());

        let all_back = up.hosts.wharf(&["handoff", "--to", "os", "--all"]);
        assert!(all_back.status.success(), "{all_back}");
        assert!(wait_until(|| is_at("os")), "{:?}", of(&up, &stream));
        carries(1000);
        let one = of(&up, &stream).unwrap();
        assert_eq!((&one["restored"], &one["state"]), (&"command".into(), &"ESTABLISHED".into()));
        assert!(one["sent"].is_u64() && one["cid"].is_null() && one["cwnd"].as_u64() > Some(1000));
        let sides = ["os", "nic"].map(|side| listed(&up, &["--where", side]).len());
        assert_eq!(sides, [1, 0]);
        let mut moves = || {
            assert!(up.hosts.wharf(&asked).status.success());
            carries(1000);
            is_at("nic")
        };
        assert!(wait_until(&mut moves), "{:?}", of(&up, &stream));
        let pids = [server.id(), 1].map(|pid| listed(&up, &["--pid", &pid.to_string()]).len());
        assert_eq!(pids, [1, 0]);
        ends(stream);
        assert!(wait_until(|| listed(&up, &[]).is_empty()), "{:?}", listed(&up, &[]));
    }
    up.nothing_went_wrong();
}

#[test]
fn why_a_connection_was_refused_is_seen_while_it_is_open() {
    let Some(up) = up_with(&["--set", "handoff.connections_per_uid=1"]) else { return };
    let _server = serve(&up.hosts, "at_accept", EVENTS);
    let first = connect(&up.hosts, Ip::V4);
    let on_nic = || {
        echoes(&first, &bytes(1000, 1));
        of(&up, &first).is_some_and(|one| one["where"] == "nic")
    };
    assert!(wait_until(on_nic), "{:?}", of(&up, &first));
    let second = connect(&up.hosts, Ip::V4);
    echoes(&second, &bytes(1000, 1));
    let refused = || of(&up, &second).is_some_and(|one| one["refused"] == "quota");
    assert!(wait_until(refused), "{:?}", of(&up, &second));
    let ended = up.hosts.wharf(&["connections"]);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(lines.len() == 3 && lines[0].starts_with("LOCAL "), "{ended}");
    assert!(lines[1..].iter().any(|line| line.ends_with("refused: quota")), "{ended}");
    ends(second);
    assert!(wait_until(|| listed(&up, &["--where", "os"]).is_empty()));
    ends(first);
}

/// More than fit one line of the control socket.
#[test]
fn many_connections_are_all_seen() {
    let Some(up) = up_with(&[]) else { return };
    let _server = serve(&up.hosts, "at_accept", EVENTS);
    let streams: Vec<_> = (0..400).map(|at| connect(&up.hosts, Ip::BOTH[at % 2])).collect();
    let all = || {
        streams.iter().for_each(|stream| echoes(stream, b"x"));
        listed(&up, &["--where", "nic"]).iter().filter(|one| one["state"] == "ESTABLISHED").count()
    };
    assert!(wait_until(|| all() == 400), "{}", all());
    streams.into_iter().for_each(ends);
}

/// What `wharf handoff` says, and its exit status.
fn hands_off(up: &Up, words: &[&str]) -> (Option<i32>, String) {
    let ended = up.hosts.wharf(&[&["handoff"], words].concat());
    (ended.status.code(), ended.stdout + &ended.stderr)
}

/// One connection moves each way, and no other; so do those of one process.
#[test]
fn one_connection_moves_by_hand_and_those_of_one_process() {
    let Some(up) = up_with(&[]) else { return };
    let server = serve(&up.hosts, "by_hand", EVENTS);
    let streams: Vec<_> = (0..6).map(|at| connect(&up.hosts, Ip::BOTH[at % 2])).collect();
    streams.iter().for_each(|stream| echoes(stream, &bytes(1000, 1)));
    let names = |stream: &TcpStream| {
        [stream.peer_addr(), stream.local_addr()].map(|end| end.unwrap().to_string())
    };
    let on_nic = || {
        streams.iter().for_each(|stream| echoes(stream, &bytes(1000, 2)));
        let place = |stream| of(&up, stream).map(|one| one["where"] == "nic");
        streams.iter().map(place).map(|is| is == Some(true)).collect::<Vec<_>>()
    };
    let said = |words: &[&str], status: i32, part: &str| {
        let (ended, text) = hands_off(&up, words);
        assert!(ended == Some(status) && text.contains(part), "{words:?}: {ended:?}, {text}");
        // To the NIC, what has become of each comes behind that.
        let is_one_line = text.trim_end().lines().count() == 1;
        assert!(is_one_line || status == 0 && words[1] == "nic", "{text}");
    };
    for (at, stream) in streams.iter().enumerate().take(2) {
        let [local, remote] = names(stream);
        said(&["--to", "os", &local, &remote], 0, "it is at the kernel, or on the way there");
        said(&["--to", "nic", &local, &remote], 0, "1 program asked: it moves");
        // One that was just receiving is refused, and asked for again.
        let is_alone = || {
            hands_off(&up, &["--to", "nic", &local, &remote]);
            on_nic().iter().enumerate().all(|(which, is)| *is == (which == at))
        };
        assert!(wait_until(is_alone), "{at}: {:?}", on_nic());
        said(&["--to", "nic", &local, &remote], 0, "it is on the NIC, or on the way there");
        said(&["--to", "os", &local, &remote], 0, "1 connection on the way to the kernel");
        assert!(wait_until(|| on_nic().iter().all(|is| !is)), "{:?}", on_nic());
    }
    let pid = server.id().to_string();
    said(&["--to", "nic", "--pid", &pid], 0, "1 program asked: they move");
    let all_are = || {
        said(&["--to", "nic", "--pid", &pid], 0, "1 program asked");
        on_nic().iter().all(|is| *is)
    };
    assert!(wait_until(all_are), "{:?}", on_nic());
    said(&["--to", "nic", "--pid", "1"], 2, "process 1 is none that wharf run has started");
    said(&["--to", "os", "--pid", "1"], 0, "0 connections on the way to the kernel");
    let [local, remote] = names(&streams[0]);
    said(&["--to", "os", "--pid", "1", &local, &remote], 2, "there is no such connection");
    said(&["--to", "os", &remote, &local], 2, "there is no such connection: see wharf connections");
    said(&["--to", "nic", &remote, &local], 2, "there is no such connection");
    said(&["--to", "os", "--pid", &pid], 0, "6 connections on the way to the kernel");
    assert!(wait_until(|| on_nic().iter().all(|is| !is)), "{:?}", on_nic());
    streams.into_iter().for_each(ends);
    up.nothing_went_wrong();
}

/// What the command says of each connection, by the client's end.
fn outcomes(said: &str) -> Vec<(String, String)> {
    let rows = said.lines().skip_while(|line| !line.starts_with("LOCAL ")).skip(1);
    let words = |row: &str| row.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    rows.map(words).map(|words| (words[1].clone(), words[3..].join(" "))).collect()
}

/// Each connection that is asked to move is accounted for after a second, whatever has become of it by then.
#[test]
fn what_has_become_of_connections_is_said_of_each() {
    let Some(up) = up_with(&["--set", "handoff.connections_per_uid=1"]) else { return };
    let server = serve(&up.hosts, "by_hand", EVENTS);
    let streams: Vec<_> = (0..2).map(|_| connect(&up.hosts, Ip::V4)).collect();
    let mut ends_of: Vec<_> =
        streams.iter().map(|stream| stream.local_addr().unwrap().to_string()).collect();
    ends_of.sort();
    streams.iter().for_each(|stream| echoes(stream, &bytes(1000, 1)));
    let is_listed = || listed(&up, &[]).len() == 2;
    assert!(wait_until(is_listed), "{:?}", listed(&up, &[]));
    // A program that is stopped makes no call.
    let state = format!("/proc/{}/stat", server.id());
    server.signal(Signal::Stop);
    assert!(wait_until(|| std::fs::read_to_string(&state).unwrap().contains(") T ")));
    let (status, text) = hands_off(&up, &["--to", "nic", "--all"]);
    up.hosts.server.succeed("kill", &["-CONT", &server.id().to_string()]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("2 connections: 2 not yet offered by its program"), "{text}");
    let mut said = outcomes(&text);
    said.sort();
    let not_yet =
        ends_of.iter().map(|end| (end.clone(), "not yet offered by its program".to_owned()));
    assert_eq!(said, not_yet.collect::<Vec<_>>(), "{text}");
    // One moves, and the other finds no room.
    let (mut moved, mut refused) = (false, false);
    let are_said = wait_until(|| {
        streams.iter().for_each(|stream| echoes(stream, &bytes(1000, 2)));
        let (status, text) = hands_off(&up, &["--to", "nic", "--all"]);
        assert_eq!(status, Some(0), "{text}");
        let said = outcomes(&text);
        assert!(said.iter().all(|(end, _)| ends_of.contains(end)), "{text}");
        moved |= said.iter().any(|(_, now)| now == "on the NIC") || said.len() == 1;
        refused |= said.iter().any(|(_, now)| now == "refused: quota");
        moved && refused
    });
    assert!(are_said, "{:?}", listed(&up, &[]));
    let (status, text) = hands_off(&up, &["--to", "nic", "--all", "--no-wait"]);
    assert!(status == Some(0) && text.lines().count() == 1, "{text}");
    streams.into_iter().for_each(ends);
}

#[test]
fn the_help_of_connections_lists_the_reasons() {
    let output = wharf().args(["connections", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    use handoff::{Named, Refusal, RestoreReason};
    let names = Refusal::ALL.iter().map(|why| why.name());
    for name in names.chain(RestoreReason::ALL.iter().map(|why| why.name())) {
        let line = help.lines().find(|line| line.trim_start().starts_with(&format!("{name}: ")));
        assert!(line.is_some_and(|line| line.len() > name.len() + 8), "{name}: {help}");
    }
    assert!(help.contains("Example"), "{help}");
    // The short one stays short.
    let output = wharf().args(["connections", "-h"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(!help.contains("quota") && help.contains("wharf connections --help"), "{help}");
}

/// `handoff.policy` is that of programs that have none of their own, also when it changes while they run.
#[test]
fn a_policy_that_changes_reaches_programs_that_have_none() {
    let Some(up) = up_with(&["--set", "handoff.policy=none"]) else { return };
    let run = |more: &[&str], port: u16| {
        let script = EVENTS.replace("7000", &port.to_string());
        let mut run = wharf();
        run.env("WHARF_LIBRARY", library()).arg("run").args(more);
        let mut server = up.hosts.server.spawn(run.args(["--", "python3", "-u", "-c", &script]));
        server.line_with("listens");
        server
    };
    let _plain = run(&[], 7000);
    let _own = run(&["--policy", "by_hand"], 7001);
    let to = |port| {
        let end = std::net::SocketAddr::new(Ip::V4.server(), port);
        up.hosts.client.run(|| TcpStream::connect(end)).unwrap()
    };
    let streams = [7000, 7001].map(to);
    let place = |which: usize| {
        echoes(&streams[which], &bytes(100, 1));
        of(&up, &streams[which]).map_or_else(String::new, |one| one["where"].to_string())
    };
    let set = |policy: &str| {
        let ended = up.hosts.wharf(&["set", "handoff.policy", policy]);
        assert!(ended.status.success(), "{ended}");
    };
    let asked = || assert_eq!(hands_off(&up, &["--to", "nic", "--all"]).0, Some(0));
    // By its own the second may move by hand; the first may not.
    let moves = || {
        asked();
        place(1) == "\"nic\""
    };
    assert!(wait_until(moves), "{}", place(1));
    let is_not_offered = |stream: &TcpStream| {
        let one = of(&up, stream).unwrap();
        one["where"] == "os" && one["refused"].is_null() && one["restored"].is_null()
    };
    let has_not_moved = || {
        echoes(&streams[0], &bytes(100, 1));
        assert!(is_not_offered(&streams[0]), "{:?}", of(&up, &streams[0]));
    };
    has_not_moved();
    set("at_accept ports=7001");
    has_not_moved();
    set("at_accept ports=7000-7001");
    assert!(wait_until(|| place(0) == "\"nic\""), "{}", place(0));
    // The second has come back by hand, and stays whatever wharf's policy is.
    assert_eq!(hands_off(&up, &["--to", "os", "--all"]).0, Some(0));
    assert!(wait_until(|| [0, 1].iter().all(|which| place(*which) == "\"os\"")));
    let later = to(7001);
    echoes(&later, &bytes(200_000, 2));
    assert!(is_not_offered(&later), "its policy is by_hand: {:?}", of(&up, &later));
    let refused = up.hosts.wharf(&["set", "handoff.policy", "sometimes"]);
    assert_eq!(refused.status.code(), Some(2), "{refused}");
    assert!(refused.stderr.contains("no policy is called `sometimes`"), "{refused}");
    let shown = up.hosts.wharf(&["set", "handoff.policy"]).stdout;
    assert!(shown.contains("at_accept ports=7000-7001"), "{shown}");
    streams.into_iter().chain([later]).for_each(ends);
}
