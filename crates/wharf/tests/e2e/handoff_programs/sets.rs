//! Threads that share an epoll set, and wait in it before it has a connection.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use sys::process::Signal;
use testkit::lab::{Program, wait_until};

use super::{Stage, connect};
use crate::handoff::{bytes, echoes, ends};

const PORT: u16 = 7000;
const KINDS: [&str; 5] = ["level", "edge", "once", "edge_once", "exclusive"];
const THREADS: &str = "3";

fn serve(stage: &Stage, policy: &str, words: &[&str]) -> Program {
    let program = stage.build("sets.c", &["gcc", "-O1", "-pthread"], &[]);
    let all = [&[program.as_str(), "7000", THREADS], words].concat();
    let mut server = stage.hosts.server.spawn(&mut stage.wharf_run(policy, &all));
    server.line_with("listens");
    server
}

/// Bytes of which none is a word to the server by itself.
fn data(len: usize, seed: u64) -> Vec<u8> {
    bytes(len, seed).into_iter().map(|byte| byte % 32).collect()
}

fn echo_each(streams: &[TcpStream], rounds: u64) {
    thread::scope(|scope| {
        for (number, stream) in (0..).zip(streams) {
            scope.spawn(move || {
                (0..rounds).for_each(|round| echoes(stream, &data(20_000, number + 100 * round)));
            });
        }
    });
}

/// Several threads wait before the first connection is there, and get no event but the program's.
fn are_served(policy: &str) {
    let Some(stage) = Stage::new(&["gcc"]) else { return };
    for kind in KINDS {
        println!("{kind}");
        let mut server = serve(&stage, policy, &[kind]);
        let streams: Vec<_> = (0..8).map(|_| connect(&stage.hosts, PORT)).collect();
        echo_each(&streams, 20);
        if policy == "at_accept" && kind != "exclusive" {
            stage.shows(PORT, streams.len());
        }
        streams.into_iter().for_each(ends);
        assert!(server.runs(), "{kind}: {}", server.wait());
        server.signal(Signal::Kill);
        server.wait();
    }
}

#[test]
fn threads_that_waited_before_get_no_event_but_the_programs() {
    are_served("at_accept");
}

#[test]
fn threads_that_waited_before_get_no_event_but_the_programs_where_connections_are_learned() {
    are_served("learned");
}

/// A thread is in its handler, and others waited in the set since before it had a connection of the NIC's.
#[test]
fn an_event_does_not_wait_for_another_threads_handler() {
    let Some(stage) = Stage::new(&["gcc"]) else { return };
    for kind in KINDS {
        println!("{kind}");
        let mut server = serve(&stage, "at_accept", &[kind]);
        let streams: Vec<_> = (0..3).map(|_| connect(&stage.hosts, PORT)).collect();
        echo_each(&streams, 1);
        if kind != "exclusive" {
            stage.shows(PORT, streams.len());
        }
        let [mut first, mut second, mut third] = <[TcpStream; 3]>::try_from(streams).unwrap();
        for round in 0..20 {
            let mut byte = [0];
            for busy in [&mut first, &mut second] {
                busy.write_all(b"B").unwrap();
                busy.read_exact(&mut byte).unwrap();
                assert_eq!(byte, *b"b", "{kind}, round {round}");
            }
            for _ in 0..2 {
                third.write_all(b"R").unwrap();
                third.read_exact(&mut byte).unwrap();
                assert_eq!(byte, *b"R", "{kind}, round {round}");
            }
            for busy in [&mut first, &mut second] {
                busy.read_exact(&mut byte).unwrap();
                assert_eq!(byte, *b"B", "{kind}, round {round}");
            }
        }
        assert!(server.runs(), "{kind}: {}", server.wait());
        server.signal(Signal::Kill);
        server.wait();
    }
}

/// A child has its parent's set, and goes on with it alone.
#[test]
fn a_child_gets_no_event_of_its_parents_session() {
    let Some(stage) = Stage::new(&["gcc"]) else { return };
    for kind in ["level", "edge", "once"] {
        println!("{kind}");
        let mut server = serve(&stage, "at_accept", &[kind, "child"]);
        let mut first = connect(&stage.hosts, PORT);
        first.write_all(b"x").unwrap();
        server.line_with("forked");
        let mut streams: Vec<_> = (0..3).map(|_| connect(&stage.hosts, PORT)).collect();
        streams.push(first);
        echo_each(&streams, 20);
        assert!(server.runs(), "{kind}: {}", server.wait());
        server.signal(Signal::Kill);
        server.wait();
    }
}

/// A thread has one shot's event and is in its handler, while the connection moves, and more bytes come.
fn is_reported_once(has_proc: bool) {
    let Some(stage) = Stage::new(&["gcc", "unshare"]) else { return };
    let program = stage.build("sets.c", &["gcc", "-O1", "-pthread"], &[]);
    let hides = "umount -l /proc && exec \"$0\" \"$@\"";
    let around = if has_proc { &[][..] } else { &["unshare", "-m", "sh", "-c", hides] };
    for kind in ["once", "edge_once"] {
        let words = [around, &[program.as_str(), "7000", THREADS, kind]].concat();
        let mut server = stage.hosts.server.spawn(&mut stage.wharf_run("by_hand", &words));
        server.line_with("listens");
        let [mut first, mut second] = [(); 2].map(|()| connect(&stage.hosts, PORT));
        for (round, to) in (0..6).zip(["nic", "os"].into_iter().cycle()) {
            let mut byte = [0];
            first.write_all(b"B").unwrap();
            first.read_exact(&mut byte).unwrap();
            assert_eq!(byte, *b"b", "{kind}, round {round}");
            let ended = stage.hosts.wharf(&["handoff", "--to", to, "--all"]);
            assert!(ended.status.success(), "{ended}");
            let all = if to == "nic" { 2 } else { 0 };
            assert!(wait_until(|| stage.on_nic(PORT) == all), "{:?}", stage.counters());
            first.write_all(b"more").unwrap();
            // The other threads have looked for events meanwhile.
            (0..10).for_each(|seed| echoes(&second, &data(100, seed)));
            second.write_all(b"R").unwrap();
            second.read_exact(&mut byte).unwrap();
            assert_eq!(byte, *b"R", "{kind}, round {round}");
            let mut rest = [0; 5];
            first.read_exact(&mut rest).unwrap();
            assert_eq!(rest, *b"Bmore", "{kind}, round {round}");
        }
        assert!(server.runs(), "{kind}: {}", server.wait());
        server.signal(Signal::Kill);
        server.wait();
    }
}

#[test]
fn one_shot_is_reported_once_while_its_connection_moves() {
    is_reported_once(true);
}

#[test]
fn one_shot_is_reported_once_where_there_is_no_proc() {
    is_reported_once(false);
}

/// Threads take events while connections move between NIC and kernel: none is lost, none is reported twice.
#[test]
fn one_shot_is_reported_once_by_threads_that_race_with_moves() {
    let Some(stage) = Stage::new(&["gcc"]) else { return };
    for kind in ["once", "edge_once"] {
        let mut server = serve(&stage, "by_hand", &[kind]);
        let streams: Vec<_> = (0..8).map(|_| connect(&stage.hosts, PORT)).collect();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let echoing = scope.spawn(|| {
                echo_each(&streams, 200);
                is_over.store(true, Ordering::Relaxed);
            });
            for to in ["nic", "os"].into_iter().cycle() {
                let ended = stage.hosts.wharf(&["handoff", "--to", to, "--all"]);
                assert!(ended.status.success(), "{ended}");
                if is_over.load(Ordering::Relaxed) || echoing.is_finished() {
                    break;
                }
            }
            echoing.join().unwrap();
        });
        assert!(server.runs(), "{kind}: {}", server.wait());
        stage.were_handed_off(0, 1);
        streams.into_iter().for_each(ends);
        server.signal(Signal::Kill);
        server.wait();
    }
}

/// A signal comes while the thread is woken again and again for connections of another set.
#[test]
fn a_signal_ends_each_wait() {
    let Some(stage) = Stage::new(&["gcc"]) else { return };
    let program = stage.build("sets.c", &["gcc", "-O1", "-pthread"], &[]);
    for how in ["epoll_wait", "epoll_pwait", "epoll_pwait2"] {
        println!("{how}");
        let words = [&program, "7000", "signals", how];
        let mut server = stage.hosts.server.spawn(&mut stage.wharf_run("at_accept", &words));
        server.line_with("listens");
        let streams: Vec<_> = (0..3).map(|_| connect(&stage.hosts, PORT)).collect();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for stream in &streams[1..] {
                let is_over = &is_over;
                scope.spawn(move || {
                    let rounds = (0..).take_while(|_| !is_over.load(Ordering::Relaxed));
                    rounds.for_each(|round| echoes(stream, &data(1, round)));
                });
            }
            let lines = thread::Builder::new();
            let waiting = lines.spawn_scoped(scope, || server.line_with("interrupted")).unwrap();
            let is_done = waiting.join().is_ok();
            is_over.store(true, Ordering::Relaxed);
            assert!(is_done, "{how}: a signal came to nothing");
        });
        stage.shows(PORT, streams.len());
        server.signal(Signal::Kill);
        server.wait();
    }
}

/// Another program gets the set, which has the layer's own registrations, and events of theirs. wharf is stopped, so that it
/// does not let go of what the layer shares with it.
fn gets_no_event(how: &str) {
    let Some(stage) = Stage::new(&["gcc"]) else { return };
    let program = stage.build("sets.c", &["gcc", "-O1", "-pthread"], &[]);
    let mut run = stage.wharf_run("by_hand", &[&program, "7000", how]);
    let mut server = stage.hosts.server.spawn(&mut run);
    server.line_with("listens");
    let _stream = connect(&stage.hosts, PORT);
    server.line_with("registered");
    stage.wharf.signal(Signal::Stop);
    server.signal(Signal::HangUp);
    let line = server.line_with("");
    assert_eq!(line, "events: 1");
    server.signal(Signal::Kill);
    server.wait();
}

#[test]
fn a_program_that_is_executed_gets_no_event_of_what_it_replaces() {
    gets_no_event("exec");
}

#[test]
fn a_process_gets_no_event_of_the_one_that_sends_it_a_set() {
    gets_no_event("pass");
}
