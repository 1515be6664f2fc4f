//! The mark of congestion, as frames bear it and as the receiver's kernel counts it.

use testkit::lab::{have, wait_until};
use testkit::packet::PacketBuilder;

use super::{Frames, Middle, forward};
use crate::setup::{Ip, ping};

const NOT_ECT: u8 = 0b00;
const ECT1: u8 = 0b01;
const ECT0: u8 = 0b10;
const CE: u8 = 0b11;

/// Packets of each kind with these two bits, below a DSCP.
fn packets(ecn: u8) -> Vec<Vec<u8>> {
    let tos = 0b1010_1000 | ecn;
    [
        PacketBuilder::udp4().payload_pattern(40),
        PacketBuilder::tcp4().timestamps(1, 2).payload_pattern(41),
        PacketBuilder::udp6().payload_pattern(42),
        PacketBuilder::tcp6().payload_pattern(43).vlan(7),
        PacketBuilder::udp4().payload_pattern(44).vlan(9),
    ]
    .map(|packet| packet.tos(tos).build())
    .to_vec()
}

/// What comes out, when what went in has come through.
fn through(middle: &Middle, words: &[&str], frames: &[Vec<u8>]) -> (Vec<Vec<u8>>, [u64; 3]) {
    let degen = middle.degen(words);
    let mut wire = Frames::of(middle);
    wire.send(frames);
    let counters = degen.settled(frames.len() as u64);
    let counted = forward(&counters, ["departed", "lost", "marked"]);
    (wire.received(counted[0]), counted)
}

#[test]
fn what_may_be_marked_is_marked_and_nothing_else() {
    let Some(middle) = Middle::silent() else { return };
    let mut sent: Vec<_> = [NOT_ECT, ECT1, ECT0, CE].into_iter().flat_map(packets).collect();
    sent.extend(super::numbered(1));
    let mut expected: Vec<_> = [NOT_ECT, CE, CE, CE].into_iter().flat_map(packets).collect();
    expected.extend(super::numbered(1));
    // Header checksums, too, are those that the builder writes.
    let (received, counted) = through(&middle, &["--mark", "100%"], &sent);
    assert_eq!((received, counted), (expected, [21, 0, 15]));
}

#[test]
fn what_may_be_marked_is_marked_instead_of_lost() {
    let Some(middle) = Middle::silent() else { return };
    let sent: Vec<_> = [NOT_ECT, ECT1, ECT0, CE].into_iter().flat_map(packets).collect();
    let expected: Vec<_> = [CE, CE, CE].into_iter().flat_map(packets).collect();
    for words in
        [&["--loss", "100%", "--ecn"][..], &["--gilbert-p", "100%", "--gilbert-k", "0", "--ecn"]]
    {
        let (received, counted) = through(&middle, words, &sent);
        assert_eq!((&received, counted), (&expected, [15, 5, 15]), "{words:?}");
    }
}

/// CoDel judges what has waited, so packets must leave at some rate; how fast does not matter, as
/// long as several wait at the same time.
#[test]
fn codel_marks_what_it_would_lose() {
    let Some(middle) = Middle::silent() else { return };
    let words = ["--rate", "40kbit", "--queue", "codel", "--codel-target", "1us"];
    let words = [&words[..], &["--codel-interval", "1us", "--ecn"]].concat();
    for (ecn, counter) in [(ECT0, "marked"), (NOT_ECT, "codel_dropped")] {
        let degen = middle.degen(&words);
        let mut wire = Frames::of(&middle);
        let frame = PacketBuilder::udp4().payload_pattern(60).tos(ecn).build();
        wire.send(&vec![frame; 100]);
        assert!(wait_until(|| degen.counter("forward", counter) > 0), "{counter}");
        // The rest need not wait.
        degen.set("rate", "0");
        let counters = degen.settled(100);
        let [arrived, departed, marked, dropped] =
            forward(&counters, ["arrived", "departed", "marked", "codel_dropped"]);
        assert_eq!((arrived, departed + dropped), (100, 100));
        assert!(if ecn == ECT0 { dropped == 0 } else { marked == 0 }, "{counters:#?}");
        let received = wire.received(departed);
        let ce = received.iter().filter(|frame| frame[15] & CE == CE).count() as u64;
        assert_eq!((received.len() as u64, ce), (departed, marked));
    }
}

/// A kernel that receives a mark counts it, and answers: the header's checksum is right.
#[test]
fn the_receivers_kernel_sees_the_mark() {
    if !have(&["ping"]) {
        return;
    }
    let Some(middle) = Middle::new(1500, 1500) else { return };
    let _degen = middle.degen(&["--forward", "mark=100%"]);
    for (ip, counter) in [(Ip::V4, "IpExtInCEPkts"), (Ip::V6, "Ip6InCEPkts")] {
        let seen = || testkit::snmp::counters(&middle.hosts.server)[counter];
        ping(&middle.hosts.client, ip.server(), &[]);
        assert_eq!(seen(), 0, "{counter}");
        ping(&middle.hosts.client, ip.server(), &["-Q", "2"]);
        assert_eq!(seen(), 5, "{counter}");
    }
}
