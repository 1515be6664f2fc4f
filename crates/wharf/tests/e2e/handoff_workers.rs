//! Programs whose connections the NIC runs with several workers: packets come and go by queues that change.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sys::process::Signal;
use testkit::lab::{have, wait_until};

use super::ends::guards;
use super::handoff::{EVENTS, THREADS, bytes, connect, echoes, ends, serve};
use super::setup::{HOST, Hosts, Ip, PEER, Plan, Port, Up, WIRE, give, lasting_refusals};

/// Each with a queue of the wire.
const WORKERS: &str = "workers=2";

fn plan(port: Port) -> Plan {
    Plan { queues: 2, ..Plan::new(port) }
}

fn up(port: Port, more: &[&str]) -> Option<Up> {
    if !have(&["python3"]) {
        return None;
    }
    plan(port).up_with(&[&["--set", WORKERS], more].concat())
}

fn streams(hosts: &Hosts, count: usize) -> Vec<TcpStream> {
    (0..count).map(|at| connect(hosts, Ip::BOTH[at % 2])).collect()
}

/// All at once, each with bytes of its own.
fn all_echo(streams: &[TcpStream], len: usize, seed: u64) {
    std::thread::scope(|scope| {
        for (number, stream) in (0..).zip(streams) {
            scope.spawn(move || echoes(stream, &bytes(len, seed + number)));
        }
    });
}

/// What one worker hands to another arrives there. (It drops what finds no room, as where a worker does not run for long.)
fn strays_arrive(up: &Up) {
    let of = |name| up.counter("strays", name);
    assert!(
        wait_until(|| {
            up.all_counted();
            of("sent") == of("received")
        }),
        "{} of {} strays arrived",
        of("received"),
        of("sent")
    );
}

#[test]
fn connections_run_on_the_nic_with_two_workers() {
    for port in Port::EACH {
        let Some(up) = up(port, &[]) else { continue };
        let _server = serve(&up.hosts, "at_accept", THREADS);
        let all = streams(&up.hosts, 12);
        all_echo(&all, 1_000_000, 1);
        assert!(wait_until(|| up.counter("handoff", "handoffs") == 12), "{port:?}");
        all_echo(&all, 1_000_000, 50);
        all.into_iter().for_each(ends);
        let lasting = lasting_refusals(&up.hosts, HOST);
        assert!(lasting.is_empty(), "{port:?}: {lasting:?}");
        assert_eq!(up.counter("handoff", "abandoned"), 0, "{port:?}");
        strays_arrive(&up);
        up.nothing_went_wrong();
    }
}

/// The peer's packets come by one queue, by the other, and by both again, while connections go to and fro.
#[test]
fn connections_whose_packets_change_queues_go_to_and_fro() {
    if !have(&["ethtool"]) {
        return;
    }
    let Some(up) = up(Port::Xdp, &[]) else { return };
    let _server = serve(&up.hosts, "by_hand", EVENTS);
    // So many that some have each queue.
    let all = streams(&up.hosts, 16);
    let queues = |count: &str| up.hosts.client.succeed("ethtool", &["-L", PEER, "tx", count]);
    let moved = |words: &[&str]| {
        let ended = up.hosts.wharf(&[&["handoff"], words].concat());
        assert!(ended.status.success(), "{ended}");
    };
    let have_strayed = || up.counter("strays", "sent") > 0;
    // On a busy machine nothing may come between two changes that follow each other at once.
    let time_to_stray = || {
        let until = Instant::now() + Duration::from_secs(2);
        while !have_strayed() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let rounds = (0..).take_while(|round| *round < 6 || *round < 60 && !have_strayed());
    for round in rounds {
        moved(&["--to", "nic", "--all"]);
        let are_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (number, stream) in (0..).zip(&all) {
                let are_done = &are_done;
                scope.spawn(move || {
                    // For as long as the queues change, and not for ever where that fails.
                    for _ in 0..1000 {
                        echoes(stream, &bytes(1_000_000, round * 16 + number));
                        if are_done.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(20));
            queues("1");
            std::thread::sleep(Duration::from_millis(20));
            if round % 2 == 1 {
                time_to_stray();
            } else {
                moved(&["--to", "os", "--all"]);
            }
            queues("2");
            are_done.store(true, Ordering::Relaxed);
        });
    }
    all.into_iter().for_each(ends);
    let are_counted =
        || up.counter("handoff", "handoffs") > 16 && up.counter("handoff", "restored") > 16;
    assert!(wait_until(are_counted), "not often enough");
    assert!(have_strayed(), "no packet came by another queue");
    strays_arrive(&up);
    up.nothing_went_wrong();
}

/// Two workers, and a queue of the host's that both share.
#[test]
fn workers_that_share_a_host_queue_run_connections() {
    let Some(up) = up(Port::Auto, &["--set", "host.queues=1"]) else { return };
    let _server = serve(&up.hosts, "after=64KB", EVENTS);
    let all = streams(&up.hosts, 8);
    for round in 0..3 {
        all_echo(&all, 1_000_000, round * 8);
        let ended =
            up.hosts.wharf(&["handoff", "--to", if round == 0 { "os" } else { "nic" }, "--all"]);
        assert!(ended.status.success(), "{ended}");
    }
    all.into_iter().for_each(ends);
    assert!(wait_until(|| up.counter("handoff", "handoffs") >= 8));
    strays_arrive(&up);
    up.nothing_went_wrong();
}

/// The wire loses its carrier: the kernel has the connections of all workers then.
#[test]
fn connections_of_all_workers_return_when_the_wire_goes_down() {
    let Some(up) = up(Port::Auto, &[]) else { return };
    let _server = serve(&up.hosts, "at_accept", THREADS);
    let all = streams(&up.hosts, 8);
    all_echo(&all, 100_000, 1);
    assert!(wait_until(|| up.counter("handoff", "handoffs") == 8));
    up.hosts.client.succeed("ip", &["link", "set", PEER, "down"]);
    assert!(
        wait_until(|| up.counter("handoff_restored", "link_down") == 8),
        "{} are back",
        up.counter("handoff_restored", "link_down")
    );
    up.hosts.client.succeed("ip", &["link", "set", PEER, "up"]);
    give(&up.hosts.client, PEER, &[Ip::V6], Ip::client);
    all_echo(&all, 100_000, 50);
    all.into_iter().for_each(ends);
}

/// wharf ends while its connections are busy: they go on in the kernel, and neither end notices.
#[test]
fn connections_of_two_workers_outlive_their_wharf() {
    if !have(&["python3"]) {
        return;
    }
    for (port, signal) in
        [(Port::Xdp, Signal::Kill), (Port::Packet, Signal::Kill), (Port::Auto, Signal::Interrupt)]
    {
        let Some(hosts) = plan(port).hosts() else { continue };
        give(&hosts.server, WIRE, &Ip::BOTH, Ip::server);
        let wharf = hosts.wharf_up(&["--set", WORKERS, "--take-addresses"]);
        let _server = serve(&hosts, "at_accept", EVENTS);
        let all = streams(&hosts, 8);
        all_echo(&all, 300_000, 1);
        std::thread::scope(|scope| {
            for (number, stream) in (0..).zip(&all) {
                scope.spawn(move || echoes(stream, &bytes(10_000_000, number)));
            }
            std::thread::sleep(Duration::from_millis(50));
            wharf.signal(signal);
            let ended = wharf.wait();
            assert!(ended.status.success() || signal == Signal::Kill, "{ended}");
        });
        all_echo(&all, 1000, 20);
        all.into_iter().for_each(ends);
        assert!(wait_until(|| guards(&hosts).is_empty()), "the guard does not end");
    }
}
