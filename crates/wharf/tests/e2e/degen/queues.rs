//! Interfaces with many queues, each of which AF_XDP reads by itself.

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use testkit::lab::{Host, have, wait_until};
use testkit::missing::lacks;

use super::{LEFT, Middle, RIGHT, other_words};
use crate::setup::{Ip, ping};

fn may_use_af_xdp() -> bool {
    if !sys::process::has_bpf() {
        lacks("root, for AF_XDP");
        return false;
    }
    have(&["ping"])
}

/// So many flows go there and back, one after the other: the kernel spreads them over the queues.
fn flows_pass(middle: &Middle, count: u32) {
    let open = |host: &Host, address: IpAddr| {
        let socket = host.run(|| UdpSocket::bind((address, 0))).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket
    };
    let server = open(&middle.hosts.server, Ip::V4.server());
    for number in 0..count {
        let client = open(&middle.hosts.client, Ip::V4.client());
        client.send_to(&number.to_be_bytes(), server.local_addr().unwrap()).unwrap();
        let mut received = [0; 8];
        let (length, from) = server.recv_from(&mut received).unwrap();
        assert_eq!(received[..length], number.to_be_bytes());
        server.send_to(&received[..length], from).unwrap();
        assert_eq!(client.recv(&mut received).unwrap(), length, "flow {number}");
    }
}

/// With a waker that is one more to wait for than a set of descriptors had room for.
#[test]
fn sixteen_queues_of_each_interface_are_read_by_af_xdp() {
    if !may_use_af_xdp() {
        return;
    }
    let Some(middle) = Middle::with_queues(16) else { return };
    let mut degen = middle.degen(&["--mode", "xdp", "--delay", "1ms", "--frames", "16384"]);
    ping(&middle.hosts.client, Ip::V4.server(), &[]);
    flows_pass(&middle, 100);
    assert!(degen.program.runs());
}

/// As many as `wharf up` serves; and the memory asked for would not do for all of them.
#[test]
fn sixty_four_queues_of_each_interface_are_read_by_af_xdp() {
    if !may_use_af_xdp() {
        return;
    }
    let Some(middle) = Middle::with_queues(64) else { return };
    let mut degen = middle.degen(&["--mode", "xdp", "--frames", "1024"]);
    let notice = "1024 frames are too few for all queues of left1 and right1; there are 32768";
    assert!(wait_until(|| degen.program.errors().contains(notice)), "{}", degen.program.errors());
    flows_pass(&middle, 300);
    assert!(degen.program.runs());
}

#[test]
fn queues_that_nothing_reads_end_it_with_a_word() {
    if !may_use_af_xdp() || !have(&["ip", "ethtool"]) {
        return;
    }
    for [near, far] in [LEFT, RIGHT] {
        let Some(middle) = Middle::with_queues(4) else { return };
        let peer = if near == LEFT[0] { &middle.hosts.client } else { &middle.hosts.server };
        // The driver wants a queue for each that the peer sends to.
        peer.succeed("ethtool", &["-L", near, "tx", "1"]);
        middle.host.succeed("ethtool", &["-L", far, "rx", "1"]);
        let degen = middle.degen(&["--mode", "xdp", "--frames", "16384"]);
        ping(&middle.hosts.client, Ip::V4.server(), &[]);
        middle.host.succeed("ethtool", &["-L", far, "rx", "4"]);
        let ended = degen.program.wait();
        assert_eq!(ended.status.code(), Some(1), "{ended}");
        let [word] = other_words(&ended.stderr)[..] else { panic!("{ended}") };
        let queues = format!("{far} has 4 receive queues now (ethtool -L)");
        assert!(word.contains(&queues), "{ended}");
        assert!(word.ends_with("start it again, and it serves all of them"), "{ended}");
        assert!(!middle.ip("link").contains("xdp"));
        assert!(wait_until(|| middle.host.processes().is_empty()), "a process stays behind");
    }
}
