//! A flood of forged SYNs.

use std::io::{Read, Write};

use sys::interface::Interface;
use testkit::packet::PacketBuilder;
use wire::Flags;

use super::super::setup::Ip;
use super::super::tagged::Tap;
use super::crowd::memory_of;
use super::{Lab, TAP, counter};

const SYNS: u32 = 20_000;

/// A SYN from an address of a network without hosts (RFC 5737, RFC 3849), as the host sends it.
fn syn(number: u32, ip: Ip, macs: ([u8; 6], [u8; 6])) -> Vec<u8> {
    let (low, high) = (number as u8, (number >> 8) as u8);
    let builder = match (ip, ip.server()) {
        (Ip::V4, std::net::IpAddr::V4(to)) => {
            PacketBuilder::tcp4().addresses4([198, 51, 100, low], to.octets())
        }
        (_, std::net::IpAddr::V6(to)) => {
            let mut from = [0; 16];
            from[..4].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
            from[15] = low;
            PacketBuilder::tcp6().addresses6(from, to.octets())
        }
        _ => unreachable!(),
    };
    let port = 1024 + u16::from(high) * 200 + (number >> 16) as u16;
    let options = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];
    let builder =
        builder.macs(macs.0, macs.1).ports(port, 7).seq(number.wrapping_mul(2_654_435_761));
    builder.ack(0).flags(Flags::SYN).window(65_535).options(&options).payload(&[]).build()
}

/// Where the host is on the interface, and where the engine is.
fn macs(lab: &Lab) -> ([u8; 6], [u8; 6]) {
    let own = lab.host.run(|| Interface::by_name(TAP)).unwrap().mac.unwrap();
    let address = Ip::V4.server().to_string();
    let shown = lab.host.succeed("ip", &["neigh", "show", &address, "dev", TAP]);
    let mac = shown.split_whitespace().skip_while(|word| *word != "lladdr").nth(1).unwrap();
    let mut bytes = mac.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap());
    (own, std::array::from_fn(|_| bytes.next().unwrap()))
}

/// Memory stays, connections that are open go on, and new ones get through by cookies.
#[test]
fn a_flood_of_syns_takes_no_memory_and_stops_nobody() {
    if !testkit::lab::have(&["ip"]) {
        return;
    }
    let words = "echo --port 7 --json --gateway 10.77.0.1 --gateway fd77::1 --set tcp.half_open=64";
    let Some(lab) = Lab::start(words) else { return };
    let mut old = lab.connect(Ip::V4, 7);
    let mut say = |text: &[u8]| {
        old.write_all(text).unwrap();
        let mut received = vec![0; text.len()];
        old.read_exact(&mut received).unwrap();
        assert_eq!(received, text);
    };
    say(b"before");
    let macs = macs(&lab);
    let mut tap = Tap::open(&lab.host, TAP);
    let mut flood = |from: u32| {
        for number in from..from + SYNS / 2 {
            tap.send(&syn(number, Ip::BOTH[number as usize % 2], macs));
        }
    };
    flood(0);
    let before = memory_of(lab.engine.id());
    flood(SYNS / 2);
    say(b"while it is flooded");
    // What is kept of a cookie's connection is in the cookie: they are used, as the table stays full.
    for ip in Ip::BOTH {
        for number in 0..20 {
            let mut new = lab.connect(ip, 7);
            let text = format!("new {number}");
            new.write_all(text.as_bytes()).unwrap();
            let mut received = vec![0; text.len()];
            new.read_exact(&mut received).unwrap();
            assert_eq!(received, text.as_bytes());
        }
    }
    let grown = memory_of(lab.engine.id()).saturating_sub(before);
    assert!(grown < 8 << 10, "{grown} KB for {} SYNs", SYNS / 2);
    let (ended, _host) = lab.end();
    let tcp = |name| counter(&ended, "tcp", name);
    // How much of the flood comes is up to the queue of the interface; enough to need cookies does.
    assert!(tcp("cookies_sent") > 0 && tcp("cookies_accepted") >= 1, "{ended}");
    assert_eq!(counter(&ended, "service", "begun"), 41);
}
