//! A proxy that moves bytes from one connection to another by splice(2), which the NIC goes on to do by itself.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use sys::process::Signal;
use testkit::lab::{Program, wait_until};

use super::{Stage, connect};
use crate::ends::guards;
use crate::handoff::{bytes, echoes, ends};
use crate::setup::{Hosts, Ip};

const PORT: u16 = 7010;
const BEHIND: u16 = 7011;

fn listener(hosts: &Hosts) -> TcpListener {
    let at = SocketAddr::new(Ip::V4.client(), BEHIND);
    hosts.client.run(|| TcpListener::bind(at)).unwrap()
}

/// A server at the client's host that echoes.
fn echo(hosts: &Hosts) {
    let listener = listener(hosts);
    let serve = |mut stream: TcpStream| {
        let mut room = vec![0; 1 << 17];
        while let Ok(count @ 1..) = stream.read(&mut room) {
            if stream.write_all(&room[..count]).is_err() {
                return;
            }
        }
        // It is closed by the peer, or broken.
        let _ = stream.shutdown(Shutdown::Write);
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream));
        }
    });
}

fn proxy(stage: &Stage, threads: u32, timeout: &str, options: &[&str]) -> Program {
    let behind = SocketAddr::new(Ip::V4.client(), BEHIND);
    let text = format!(
        "global\n nbthread {threads}\n\
         defaults\n mode tcp\n option splice-auto\n option splice-request\n option splice-response\n \
         timeout connect 5s\n timeout client {timeout}\n timeout server {timeout}\n\
         listen all\n bind :{PORT}\n server behind {behind}\n"
    );
    fs::write(stage.folder.path("proxy.cfg"), text).unwrap();
    let words = ["haproxy", "-db", "-f", "proxy.cfg"];
    stage.serves(stage.wharf_run_with("at_accept", options, &words), PORT)
}

fn stage() -> Option<Stage> {
    Stage::new(&["haproxy"])
}

/// What a proxy moves the NIC moves, both ways at a time, and the ends of the stream come behind it.
#[test]
fn the_nic_moves_what_a_proxy_moves() {
    let Some(stage) = stage() else { return };
    echo(&stage.hosts);
    let _proxy = proxy(&stage, 1, "30s", &["--splice"]);
    std::thread::scope(|scope| {
        for number in 0..3 {
            let hosts = &stage.hosts;
            scope.spawn(move || {
                let stream = connect(hosts, PORT);
                echoes(&stream, &bytes(30_000_000, number));
                // Little at a time.
                (0..50).for_each(|round| echoes(&stream, &bytes(700, round)));
                ends(stream);
            });
        }
    });
    let moved = stage.counter("handoff", "spliced_bytes");
    assert!(moved > 1_000_000, "{moved} of 180 MB: {:?}", stage.counters());
    stage.all_stayed();
}

/// Without being told so, it does not.
#[test]
fn a_proxy_moves_by_itself() {
    let Some(stage) = stage() else { return };
    echo(&stage.hosts);
    let _proxy = proxy(&stage, 1, "30s", &[]);
    let stream = connect(&stage.hosts, PORT);
    echoes(&stream, &bytes(5_000_000, 1));
    ends(stream);
    assert_eq!(stage.counter("handoff", "splices"), 0);
}

/// The program's time-outs do not end what goes on without it.
#[test]
fn a_proxy_sees_that_its_connections_are_busy() {
    let Some(stage) = stage() else { return };
    echo(&stage.hosts);
    let _proxy = proxy(&stage, 1, "5s", &["--splice"]);
    let stream = connect(&stage.hosts, PORT);
    for round in 0..180 {
        echoes(&stream, &bytes(200_000, round));
        std::thread::sleep(Duration::from_millis(40));
    }
    assert!(stage.counter("handoff", "splices_over") > 0, "{:?}", stage.counters());
    ends(stream);
}

/// Connections move without a pause while the NIC moves what they receive.
#[test]
fn connections_move_while_the_nic_moves_their_bytes() {
    let Some(stage) = stage() else { return };
    echo(&stage.hosts);
    let _proxy = proxy(&stage, 2, "30s", &["--splice"]);
    let streams: Vec<_> = (0..2).map(|_| connect(&stage.hosts, PORT)).collect();
    std::thread::scope(|scope| {
        let echoed: Vec<_> = streams
            .iter()
            .map(|stream| scope.spawn(move || echoes(stream, &bytes(40_000_000, 3))))
            .collect();
        for round in 0.. {
            if echoed.iter().all(|one| one.is_finished()) {
                break;
            }
            let to = if round % 2 == 0 { "os" } else { "nic" };
            std::thread::sleep(Duration::from_millis(20 + 37 * (round % 5)));
            let ended = stage.hosts.wharf(&["handoff", "--to", to, "--all"]);
            assert!(ended.status.success(), "{ended}");
        }
    });
    streams.into_iter().for_each(ends);
    let count = |name| stage.counter("handoff", name);
    assert!(count("spliced_bytes") > 0 && count("restored") > 1, "{:?}", stage.counters());
}

/// wharf is killed while it moves bytes between connections, and none is lost, nor comes twice.
#[test]
fn what_the_nic_moves_outlives_a_wharf_that_is_killed() {
    for late in [30, 110, 190] {
        let Some(stage) = stage() else { return };
        echo(&stage.hosts);
        let _proxy = proxy(&stage, 1, "30s", &["--splice"]);
        let streams: Vec<_> = (0..3).map(|_| connect(&stage.hosts, PORT)).collect();
        std::thread::scope(|scope| {
            for (number, stream) in streams.iter().enumerate() {
                scope.spawn(move || echoes(stream, &bytes(40_000_000, number as u64)));
            }
            assert!(wait_until(|| stage.counter("handoff", "spliced_bytes") > 1_000_000));
            std::thread::sleep(Duration::from_millis(late));
            stage.wharf.signal(Signal::Kill);
        });
        assert!(wait_until(|| guards(&stage.hosts).is_empty()));
        streams.iter().for_each(|stream| echoes(stream, &bytes(1000, 5)));
        streams.into_iter().for_each(ends);
    }
}

/// Who does not read keeps the other end from sending, and one that resets its connection ends the other.
#[test]
fn what_nobody_reads_waits_and_a_reset_goes_on() {
    const MOST: usize = 48 << 20;
    let Some(stage) = stage() else { return };
    let listener = listener(&stage.hosts);
    let _proxy = proxy(&stage, 1, "30s", &["--splice"]);
    for resets in [false, true] {
        let mut stream = connect(&stage.hosts, PORT);
        let (mut behind, _) = listener.accept().unwrap();
        let sent = bytes(2 * MOST, 9);
        let mut first = vec![0; 8 << 20];
        std::thread::scope(|scope| {
            scope.spawn(|| behind.read_exact(&mut first).unwrap());
            stream.write_all(&sent[..8 << 20]).unwrap();
        });
        assert!(first == sent[..8 << 20], "other bytes");
        stream.set_nonblocking(true).unwrap();
        let mut count = 8 << 20;
        let mut waits = 0;
        while waits < 10 && count < sent.len() {
            match stream.write(&sent[count..]) {
                Ok(put) => (count, waits) = (count + put, 0),
                Err(_) => {
                    waits += 1;
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
        assert!(count < MOST, "{count} bytes were taken");
        stream.set_nonblocking(false).unwrap();
        if resets {
            // With bytes that are unread.
            drop(behind);
            let ended = stream.read(&mut [0; 1]);
            assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
            let kind = ended.err().map(|error| error.kind());
            assert_ne!(kind, Some(std::io::ErrorKind::WouldBlock), "it goes on");
            continue;
        }
        stream.shutdown(Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        behind.read_to_end(&mut rest).unwrap();
        assert!(rest == sent[8 << 20..count], "{} bytes, or others", rest.len());
        drop(behind);
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "more came than was sent");
    }
    let are_moved = || stage.counter("handoff", "spliced_bytes") > 1 << 20;
    assert!(wait_until(are_moved), "{:?}", stage.counters());
}
