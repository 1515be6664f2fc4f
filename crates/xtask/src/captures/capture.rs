//! A whole capture: several connections and what else is on a wire, mixed by time.

use super::connection::Connection;
use super::damage::Trouble;
use super::file::{Format, Packet};
use super::other::{datagrams, fragments, noise};
use super::random::Random;

/// Autumn of 2025, in nanoseconds since 1970.
const START: u64 = 1_760_000_000_000_000_000;

/// A capture and the form in which it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Capture {
    pub(super) packets: Vec<Packet>,
    pub(super) format: Format,
    /// So many bytes are missing at its end, as if it was still written.
    pub(super) missing: usize,
}

impl Capture {
    pub(super) fn any(random: &mut Random) -> Self {
        let format = Format::any(random);
        let trouble = Trouble::any(random);
        let mut packets = Vec::new();
        for number in 0..random.within(1..6) as usize {
            let start = START + random.below(3_000_000);
            let connection = Connection::any(random, number, trouble);
            let mut more = connection.packets(random, start);
            // A queue of its own, whose packets are captured a little later.
            let late = if random.once_in(8) { random.below(40_000) } else { 0 };
            more.iter_mut().for_each(|packet| packet.time += late);
            packets.extend(more);
        }
        for _ in 0..random.below(4) {
            let start = START + random.below(20_000_000);
            packets.extend(match random.below(4) {
                0 | 1 => datagrams(random, trouble, start),
                2 => fragments(random, trouble, start),
                _ => noise(random, trouble, start),
            });
        }
        // Sorted by time, and as sent where that is the same.
        packets.sort_by_key(|packet| packet.time);
        if random.once_in(10) {
            turn_back(random, &mut packets);
        }
        let missing = if random.once_in(16) { random.within(1..40) as usize } else { 0 };
        Capture { packets, format, missing }
    }

    pub(super) fn file(&self) -> Vec<u8> {
        let mut file = self.format.write(&self.packets);
        file.truncate(file.len() - self.missing);
        file
    }
}

/// The time of some packets lies before that of the packet in front of them.
fn turn_back(random: &mut Random, packets: &mut [Packet]) {
    for packet in packets {
        if random.once_in(30) {
            packet.time -= random.below(2_000_000);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use testkit::verify;
    use wire::{Flags, Headers, Network, Tcp, Transport};

    use super::*;

    fn capture(seed: u64, number: u64) -> Capture {
        Capture::any(&mut Random::of(seed, number))
    }

    #[test]
    fn the_same_seed_makes_the_same_capture() {
        assert_eq!(capture(1, 2), capture(1, 2));
        assert_ne!(capture(1, 2), capture(1, 3));
        assert_ne!(capture(1, 2), capture(2, 2));
    }

    /// What is in a packet that a comparison is about.
    fn features(packet: &Packet, found: &mut BTreeSet<&'static str>) {
        if packet.bytes.len() < packet.original_len as usize {
            found.insert("captured in part");
            return;
        }
        let Ok(headers) = Headers::parse(&packet.bytes) else {
            found.insert("malformed");
            return;
        };
        if headers.network_at > 14 {
            found.insert("VLAN");
        }
        let is_right = verify::checksums(&packet.bytes).is_ok();
        if !is_right {
            found.insert("wrong checksum");
        }
        match (headers.network, headers.transport) {
            (_, Transport::Fragment) => found.insert("fragment"),
            (Network::Ipv4 { .. }, Transport::Udp) => found.insert("UDP over IPv4"),
            (Network::Ipv6 { .. }, Transport::Udp) => found.insert("UDP over IPv6"),
            (Network::Ipv4 { .. }, Transport::Tcp) => found.insert("TCP over IPv4"),
            (Network::Ipv6 { .. }, Transport::Tcp) => found.insert("TCP over IPv6"),
            _ => found.insert("other"),
        };
        if headers.transport != Transport::Tcp || !is_right {
            return;
        }
        let Ok(tcp) = Tcp::new(&packet.bytes[headers.transport_at..headers.end]) else { return };
        let flags = [(Flags::CWR, "CWR"), (Flags::ECE, "ECE"), (Flags::SYN, "SYN")];
        let flags = flags.into_iter().chain([(Flags::FIN, "FIN"), (Flags::RST, "RST")]);
        found.extend(flags.filter(|(flag, _)| tcp.flags().any(*flag)).map(|(_, name)| name));
        let options = &packet.bytes[headers.transport_at + 20..headers.payload_at];
        if options.starts_with(&[1, 1, 8, 10]) {
            found.insert("timestamps");
        }
        if options.windows(4).any(|option| option == [1, 1, 5, 10]) {
            found.insert("SACK");
        }
        if headers.payload_len() > 9000 {
            found.insert("super-packet");
        }
    }

    /// A comparison of captures that lack something shows nothing of it.
    #[test]
    fn captures_have_all_that_changes_what_the_offloads_do() {
        let captures: Vec<Capture> = (0..60).map(|number| capture(7, number)).collect();
        let mut found = BTreeSet::new();
        for packet in captures.iter().flat_map(|capture| &capture.packets) {
            features(packet, &mut found);
        }
        let expected = [
            "captured in part",
            "malformed",
            "VLAN",
            "wrong checksum",
            "fragment",
            "UDP over IPv4",
            "UDP over IPv6",
            "TCP over IPv4",
            "TCP over IPv6",
            "other",
            "CWR",
            "ECE",
            "SYN",
            "FIN",
            "RST",
            "timestamps",
            "SACK",
            "super-packet",
        ];
        assert_eq!(found, BTreeSet::from(expected));
        assert!(captures.iter().any(|capture| capture.missing > 0));
        for kind in [
            |format| matches!(format, Format::PcapNg { .. }),
            |format| matches!(format, Format::Pcap { unit: 1, .. }),
            |format| matches!(format, Format::Pcap { unit: 1_000, .. }),
        ] {
            assert!(captures.iter().any(|capture| kind(capture.format)));
        }
        // Segments of a connection come out of order, twice, and not at all.
        let is_back = |two: &[Packet]| two[0].time > two[1].time;
        assert!(captures.iter().any(|capture| capture.packets.windows(2).any(is_back)));
    }

    /// Most packets are those of orderly connections: there is something to join.
    #[test]
    fn most_packets_are_in_order() {
        let (mut of_tcp, mut whole) = (0, 0);
        for number in 0..20 {
            for packet in capture(9, number).packets {
                whole += 1;
                let headers = Headers::parse(&packet.bytes);
                of_tcp += u64::from(headers.is_ok_and(|h| h.transport == Transport::Tcp));
            }
        }
        assert!(of_tcp * 10 > whole * 7, "{of_tcp} of {whole}");
    }
}
