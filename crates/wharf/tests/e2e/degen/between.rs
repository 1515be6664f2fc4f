//! Whatever crosses a wire crosses degen.

use testkit::lab::{have, wait_until};

use super::{Counters, Frames, LEFT, Middle, RIGHT, forward, other_words};
use crate::setup::{Ip, may_have_room, ping};
use crate::tagged::{Tap, frames};
use crate::traffic::{Direction, datagrams, transfer};
use crate::tunnels::{ADDRESSES, bulk, dig};
use crate::udp::{Datagrams, Shape};

const MB: u64 = 1 << 20;

/// Neither direction lost a frame for any reason.
fn nothing_dropped(counters: &Counters) {
    let bad = ["lost", "queue_full", "codel_dropped", "refused", "no_memory", "rx_dropped"];
    let bad = |(_, name): &(String, String)| bad.contains(&name.as_str()) || name == "tx_lost";
    let dropped: Vec<_> = counters.iter().filter(|(key, value)| bad(key) && **value > 0).collect();
    assert!(dropped.is_empty(), "{dropped:?}");
}

/// Both kernels leave checksums and segmentation to their interfaces, as a veth is made: what
/// crosses is what a wire of the MTU would carry.
fn everything_passes(mtu: u32, mode: &str) {
    if !have(&["sha256sum"]) {
        return;
    }
    let Some(middle) = Middle::as_made(mtu, mtu) else { return };
    let degen = middle.degen(&["--delay", "200us", "--mode", mode]);
    let (largest4, largest6) = (mtu as usize - 28, mtu as usize - 48);
    for ip in Ip::BOTH {
        // The first of these are preceded by ARP, or by neighbour discovery.
        let largest = if ip == Ip::V4 { largest4 } else { largest6 };
        ping(&middle.hosts.client, ip.server(), &["-M", "do", "-s", &largest.to_string()]);
        transfer(&middle.hosts, ip, Direction::In, 8 * MB + 1234);
        transfer(&middle.hosts, ip, Direction::Out, 8 * MB + 1234);
    }
    // What is lost of these is not sent again.
    middle.queues_of_its_own();
    for ip in Ip::BOTH {
        let around = [largest4, largest4 + 1, largest6, largest6 + 1];
        datagrams(&middle.hosts, ip, &[0, 1, 17, 18, 19, 512]);
        datagrams(&middle.hosts, ip, &around);
        datagrams(&middle.hosts, ip, &[20_000, 65_000]);
    }
    let counters = degen.counters();
    nothing_dropped(&counters);
    // Two transfers went there. In frames of the MTU, with headers of 54 bytes at least.
    let [arrived, bytes] = forward(&counters, ["arrived", "arrived_bytes"]);
    assert!(bytes > 16 * MB && arrived > 16 * MB / u64::from(mtu), "{arrived} of {bytes} bytes");
    assert!(bytes <= arrived * (u64::from(mtu) + 14), "{arrived} of {bytes} bytes");
    for host in [&middle.hosts.client, &middle.hosts.server] {
        assert!(testkit::snmp::trouble(host).is_empty(), "{:?}", testkit::snmp::trouble(host));
    }
}

#[test]
fn connections_datagrams_and_neighbours_pass() {
    everything_passes(1500, "auto");
}

#[test]
fn connections_datagrams_and_neighbours_pass_by_af_xdp() {
    if sys::process::has_bpf() {
        everything_passes(1500, "xdp");
    }
}

#[test]
fn jumbo_frames_pass() {
    everything_passes(9000, "auto");
}

/// Super-packets in tunnels, for which AF_PACKET has no words, and those of UDP.
#[test]
fn tunnels_and_datagrams_of_one_write_pass() {
    let Some(middle) = Middle::new(1500, 1500) else { return };
    let degen = middle.degen(&[]);
    if may_have_room() {
        for ip in Ip::BOTH {
            let segment = if ip == Ip::V4 { 1472 } else { 1452 };
            for segment in [segment, 333] {
                let writes = vec![segment, 2 * segment, 2 * segment + 1, 1, 44 * segment];
                let shape = Shape { segment: Some(segment as u16), writes, mtu: 1500 };
                let load = Datagrams::start(&middle.hosts, ip, Direction::In, &shape, Some(MB));
                load.finish();
            }
        }
    }
    for checksums in ["udpcsum", "noudpcsum"] {
        if have(&["ip"]) && dig(&middle.hosts, [LEFT[0], RIGHT[0]], checksums) {
            for address in ADDRESSES {
                bulk(&middle.hosts.client, &middle.hosts.server, address.parse().unwrap());
            }
            for host in [&middle.hosts.client, &middle.hosts.server] {
                host.succeed("ip", &["link", "delete", "tunnel0"]);
            }
        }
    }
    nothing_dropped(&degen.counters());
}

/// Loss, copies, damage and disorder at once: TCP makes good what happens to it.
#[test]
fn tcp_survives_everything_at_once() {
    if !have(&["sha256sum"]) {
        return;
    }
    let Some(middle) = Middle::new(1500, 1500) else { return };
    for mode in Middle::modes() {
        survives_everything(&middle, *mode);
    }
}

fn survives_everything(middle: &Middle, mode: [&str; 2]) {
    let words = [
        mode,
        ["--delay", "300us"],
        ["--jitter", "100us"],
        ["--loss", "0.2%"],
        ["--duplicate", "1%"],
        ["--corrupt", "0.2%"],
        ["--reorder", "1%"],
        ["--reorder-wait", "1ms"],
        ["--seed", "1"],
    ];
    let degen = middle.degen(&words.concat());
    for ip in Ip::BOTH {
        for direction in [Direction::In, Direction::Out] {
            transfer(&middle.hosts, ip, direction, 4 * MB + 1);
        }
    }
    let counters = degen.counters();
    for direction in ["forward", "reverse"] {
        for name in ["lost", "duplicated", "corrupted", "reordered"] {
            assert!(counters[&(direction.to_owned(), name.to_owned())] > 0, "{direction} {name}");
        }
    }
}

/// VLAN tags, unknown protocols and frames shorter than Ethernet's shortest.
#[test]
fn tagged_and_unknown_frames_pass_untouched_and_in_order() {
    let Some(middle) = Middle::silent() else { return };
    let _degen = middle.degen(&["--delay", "100us"]);
    let mut client = Tap::open(&middle.hosts.client, LEFT[0]);
    let mut server = Tap::open(&middle.hosts.server, RIGHT[0]);
    let frames = frames();
    frames.iter().for_each(|frame| client.send(frame));
    assert_eq!(server.receive(frames.len(), |_| true), frames, "from the left to the right");
    frames.iter().for_each(|frame| server.send(frame));
    assert_eq!(client.receive(frames.len(), |_| true), frames, "from the right to the left");
}

/// What the narrower wire cannot carry is lost, and counted, as degen said at its start.
#[test]
fn frames_over_the_smaller_mtu_are_lost_and_counted() {
    let Some(middle) = Middle::new(3000, 1500) else { return };
    for mode in Middle::modes() {
        let degen = middle.degen(mode);
        assert!(wait_until(|| degen.program.errors().contains("MTU")), "it says nothing");
        let told = degen.program.errors();
        assert_eq!(other_words(&told).len(), 1, "{told}");
        for part in ["smaller MTU", "left1", "3000", "right1", "1500"] {
            assert!(told.contains(part), "{part:?} is not in {told:?}");
        }
        // What is as long as the wire passes.
        ping(&middle.hosts.client, Ip::V4.server(), &["-s", "1472"]);
        assert_eq!(degen.counter("second", "tx_lost"), 0, "{mode:?}");
        let mut frames = Frames::of(&middle);
        let mut long = super::numbered(1).remove(0);
        long.resize(14 + 1501, 7);
        frames.send(&[long]);
        let lost = || degen.counter("second", "tx_lost");
        assert!(wait_until(|| lost() == 1), "{mode:?}: {:#?}", degen.counters());
        // A connection's ends agree on what both can receive.
        if have(&["sha256sum"]) {
            transfer(&middle.hosts, Ip::V4, Direction::In, MB);
            transfer(&middle.hosts, Ip::V4, Direction::Out, MB);
        }
    }
}
