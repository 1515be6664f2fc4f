//! Every form that a packet of a TCP connection, or about one, can have: IPv4 with and without options, IPv6 with each
//! extension header, fragments, VLAN tags, and ICMP errors that quote any of these.

use std::net::SocketAddr;

use wire::{Flags, protocol};

use crate::icmp::{error4, error6};
use crate::packet::PacketBuilder;

/// What a packet tells of a TCP connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meaning {
    /// It is a segment.
    Segment {
        /// Where it comes from, and where it goes.
        ends: (SocketAddr, SocketAddr),
        /// Its control bits.
        flags: Flags,
        /// Its sequence number.
        seq: u32,
    },
    /// It is an ICMP error that quotes a segment.
    Error {
        /// Where the quoted segment comes from, and where it goes.
        ends: (SocketAddr, SocketAddr),
        /// The quoted segment's sequence number.
        seq: u32,
    },
    /// Nothing.
    Nothing,
}

/// A frame and its meaning.
#[derive(Clone, Debug)]
pub struct Form {
    /// A name, for messages.
    pub name: String,
    /// The frame.
    pub frame: Vec<u8>,
    /// It has VLAN tags.
    pub is_tagged: bool,
    /// It is TCP with nothing between Ethernet, IP and TCP.
    pub is_plain: bool,
    /// What it tells.
    pub meaning: Meaning,
}

/// Values that differ from test to test.
#[derive(Clone, Copy, Debug)]
pub struct Values {
    /// IPv4 identification.
    pub id: u16,
    /// Control bits of segments.
    pub flags: Flags,
    /// Sequence number of segments.
    pub seq: u32,
    /// Bytes of payload of segments.
    pub len: usize,
}

const PORTS: [u16; 2] = [40_000, 5201];

fn ends(v6: bool) -> (SocketAddr, SocketAddr) {
    let [from, to] = match v6 {
        true => ["[fd00::1]:40000", "[fd00::2]:5201"],
        false => ["10.0.0.1:40000", "10.0.0.2:5201"],
    };
    (from.parse().expect("an address"), to.parse().expect("an address"))
}

/// Headers between IP and the transport, each with a name; the last are fragments.
fn around(builder: &PacketBuilder, v6: bool) -> Vec<(&'static str, PacketBuilder)> {
    let with = |kinds: &[u8]| {
        kinds.iter().fold(builder.clone(), |builder, kind| builder.extension(*kind, 8))
    };
    let mut all = vec![("plain", builder.clone())];
    if v6 {
        use protocol::{DESTINATION, HOP_BY_HOP, ROUTING};
        all.extend([
            ("hop-by-hop", with(&[HOP_BY_HOP])),
            ("routing", with(&[ROUTING])),
            ("destination", with(&[DESTINATION])),
            ("three extensions", with(&[HOP_BY_HOP, ROUTING, DESTINATION])),
        ]);
    } else {
        all.push(("options", builder.clone().ip_options(&[1, 1, 1, 0])));
        all.push(("long options", builder.clone().ip_options(&[1; 40])));
    }
    all.push(("first fragment", builder.clone().fragment(0, true)));
    all.push(("later fragment", builder.clone().fragment(64, false)));
    all
}

/// All forms of one IP version.
pub fn all(v6: bool, values: Values) -> Vec<Form> {
    let Values { id, flags, seq, len } = values;
    let ip = |kind| if v6 { PacketBuilder::ip6(kind) } else { PacketBuilder::ip4(kind) };
    let segment =
        |kind| ip(kind).ports(PORTS[0], PORTS[1]).id(id).flags(flags).seq(seq).payload_pattern(len);
    let ends = ends(v6);
    let mut contents: Vec<(String, PacketBuilder, Meaning)> = vec![
        ("TCP".to_owned(), segment(protocol::TCP), Meaning::Segment { ends, flags, seq }),
        ("UDP".to_owned(), segment(protocol::UDP), Meaning::Nothing),
        ("SCTP".to_owned(), segment(protocol::SCTP), Meaning::Nothing),
    ];
    let icmp = |kind, quoted: &[u8]| match v6 {
        true => {
            let address = |last| {
                let mut address = [0; 16];
                (address[0], address[15]) = (0xfd, last);
                address
            };
            let code = if kind == 1 { 4 } else { 0 };
            let message = error6([address(1), address(2)], (kind, code), 1400, quoted);
            ip(protocol::ICMPV6).payload(&message)
        }
        false => ip(protocol::ICMP).payload(&error4(3, kind, 1400, quoted)),
    };
    for (transport, kind) in [("TCP", protocol::TCP), ("UDP", protocol::UDP)] {
        for (name, quoted) in around(&segment(kind), v6) {
            let quotes = kind == protocol::TCP
                && !name.contains("later")
                && !(v6 && name.contains("fragment"));
            let meaning = if quotes { Meaning::Error { ends, seq } } else { Meaning::Nothing };
            let quoted = quoted.build();
            for (error, icmp_kind) in
                [("too big", if v6 { 2 } else { 4 }), ("port", if v6 { 1 } else { 3 })]
            {
                // Cut as a router cuts it.
                let quoted = &quoted[14..quoted.len().min(14 + 500)];
                let name = format!("ICMP {error} that quotes {transport}, {name}");
                contents.push((name, icmp(icmp_kind, quoted), meaning));
            }
        }
    }
    let echo = if v6 { 128 } else { 8 };
    let quoted = segment(protocol::TCP).build();
    let message = [&[echo, 0, 0, 0, 0, 0, 0, 0], &quoted[14..]].concat();
    let kind = if v6 { protocol::ICMPV6 } else { protocol::ICMP };
    contents.push(("echo request".to_owned(), ip(kind).payload(&message), Meaning::Nothing));
    let mut forms = Vec::new();
    for (content, builder, meaning) in contents {
        for (name, builder) in around(&builder, v6) {
            for tags in 0..3 {
                let builder = (0..tags).fold(builder.clone(), |builder, tag| builder.vlan(7 + tag));
                let is_fragment = name.contains("fragment");
                forms.push(Form {
                    name: format!("{content}, {name}, {tags} tags"),
                    frame: builder.build(),
                    is_tagged: tags > 0,
                    is_plain: content == "TCP" && name == "plain" && tags == 0,
                    meaning: if is_fragment { Meaning::Nothing } else { meaning },
                });
            }
        }
    }
    forms
}
