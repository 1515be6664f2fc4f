//! The view of a packet, and a glance at it: one law for every form of packet.

use proptest::prelude::*;
use testkit::forms::{Form, Meaning, Values, all};
use testkit::packet::PacketBuilder;
use wire::{FirstFlow, Flags, FlowKey, Glance, Headers, Packet, Seq};

fn values() -> impl Strategy<Value = Values> {
    (any::<u16>(), any::<u8>(), any::<u32>(), 0..1400_usize)
        .prop_map(|(id, flags, seq, len)| Values { id, flags: Flags(flags), seq, len })
}

/// The meaning that a view gives a packet.
fn seen(packet: Packet<'_>) -> Meaning {
    match packet {
        Packet::Tcp(packet) => {
            let tcp = packet.tcp();
            assert_eq!(tcp.flags(), packet.flags());
            assert_eq!(packet.key(), FlowKey::tcp(packet.ends().0, packet.ends().1));
            Meaning::Segment { ends: packet.ends(), flags: tcp.flags(), seq: tcp.seq().0 }
        }
        Packet::Icmp(message) => message.error().map_or(Meaning::Nothing, |error| {
            let quoted = error.quoted;
            assert_eq!(quoted.key(), FlowKey::tcp(quoted.source, quoted.destination));
            let ends = (quoted.source, quoted.destination);
            Meaning::Error { ends, seq: quoted.seq.0 }
        }),
        Packet::Udp(_) | Packet::Other(_) => Meaning::Nothing,
    }
}

fn a_form_means_what_it_is(form: &Form) {
    let Form { name, frame, .. } = form;
    let whole = Packet::parse(frame).unwrap();
    assert_eq!(seen(whole), form.meaning, "{name}");
    // Of the first bytes, and behind other link layers.
    let flow = FirstFlow::of_frame(&frame[..frame.len().min(whole.headers().transport_at + 4)]);
    match (whole.key(), whole.headers().transport) {
        (Some(key), _) => assert_eq!(flow, FirstFlow::Of(key), "{name}"),
        (None, wire::Transport::Fragment) => assert_eq!(flow, FirstFlow::Unknown, "{name}"),
        (None, _) => assert_eq!(flow, FirstFlow::None, "{name}"),
    }
    let first = Packet::parse_first(frame).unwrap();
    assert_eq!((first.headers(), seen(first)), (whole.headers(), form.meaning), "{name}");
    if !form.is_tagged {
        assert_eq!(seen(Packet::parse_ip(&frame[14..]).unwrap()), form.meaning, "{name}");
    }
}

fn a_glance_is_right_or_unclear(form: &Form) {
    let Form { name, frame, .. } = form;
    let packet = || if form.is_tagged { Glance::Unclear } else { Glance::at_packet(&frame[14..]) };
    for glance in [Glance::at_frame(frame), packet()] {
        match glance {
            Glance::Tcp(plain) => {
                let Packet::Tcp(packet) = Packet::parse(frame).unwrap() else { panic!("{name}") };
                assert!(form.is_plain, "{name}");
                assert_eq!((plain.key(), plain.ends()), (packet.key(), packet.ends()), "{name}");
                let len = Some(packet.payload_len());
                let tcp = packet.tcp();
                let header = (plain.flags(), plain.seq(), plain.payload_len());
                assert_eq!(header, (tcp.flags(), tcp.seq(), len), "{name}");
            }
            Glance::Neither => {
                assert!(matches!(form.meaning, Meaning::Nothing), "{name}");
                let transport = Headers::parse(frame).unwrap().transport;
                assert_ne!(transport, wire::Transport::Tcp, "{name}");
            }
            Glance::Unclear => {}
        }
    }
    let is_seen = matches!(Glance::at_frame(frame), Glance::Tcp(_));
    assert_eq!(is_seen, form.is_plain, "{name}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_form_of_packet_has_one_meaning(values in values(), v6: bool) {
        for form in all(v6, values) {
            a_form_means_what_it_is(&form);
            a_glance_is_right_or_unclear(&form);
        }
    }

    /// Wherever a packet is cut, the first bytes give the same headers or none.
    #[test]
    fn the_first_bytes_of_a_packet_give_its_headers_or_none(values in values(), v6: bool) {
        for Form { name, frame, .. } in all(v6, values) {
            let whole = Headers::parse(&frame).unwrap();
            for len in (0..frame.len()).take(200) {
                match Headers::parse_first(&frame[..len]) {
                    Ok(first) => prop_assert_eq!(first, whole, "{} bytes of {}", len, name),
                    Err(_) => prop_assert!(len < whole.payload_at, "{} bytes of {}", len, name),
                }
            }
        }
    }

    #[test]
    fn any_bytes_have_a_view_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0..4_usize) {
        let mut bytes = bytes;
        if let Some(place) = bytes.get_mut(12..15) {
            place.copy_from_slice(&[[8, 0, 0x45], [8, 0, 0x4f], [0x86, 0xdd, 0x60], [0x81, 0, 0]][kind]);
        }
        for packet in [Packet::parse(&bytes), Packet::parse_first(&bytes), Packet::parse_ip(&bytes)]
            .into_iter()
            .flatten()
        {
            let _ = (seen(packet), packet.key());
            if let Packet::Tcp(packet) = packet {
                let _ = (packet.checksum_ok(&[]), packet.payload());
            }
        }
        let _ = (FirstFlow::of_frame(&bytes), FirstFlow::of_packet(&bytes));
        for glance in [Glance::at_frame(&bytes), Glance::at_packet(&bytes)] {
            let _ = glance.plain().map(|plain| (plain.ends(), plain.key(), plain.payload_len()));
        }
    }

    /// The checksum verifies however the packet is cut into pieces, and does not if a byte is another one.
    #[test]
    fn a_checksum_is_that_of_all_pieces(len in 1..3000_usize, at: prop::sample::Index, wrong: prop::sample::Index, v6: bool) {
        let builder = if v6 { PacketBuilder::tcp6() } else { PacketBuilder::tcp4() };
        let frame = builder.payload_pattern(len).build();
        let header = frame.len() - len;
        let cut = header + at.index(len);
        let check = |frame: &[u8]| {
            let rest = &frame[cut..];
            let Ok(Packet::Tcp(packet)) = Packet::parse_pieces(&frame[..cut], &[rest]) else { panic!() };
            assert_eq!(packet.payload(), &frame[header..cut]);
            packet.checksum_ok(&[rest])
        };
        prop_assert!(check(&frame));
        let mut other = frame.clone();
        other[header + wrong.index(len)] ^= 0x10;
        prop_assert!(!check(&other));
    }
}

/// The report of a router that forwards a segment of which it has no more than it must quote.
#[test]
fn the_fewest_bytes_that_are_quoted_name_the_flow() {
    let segment = PacketBuilder::tcp4().seq(9).payload_pattern(100).build();
    let message = testkit::icmp::error4(3, 4, 1400, &segment[14..14 + 28]);
    let frame = PacketBuilder::ip4(wire::protocol::ICMP).payload(&message).build();
    let Packet::Icmp(message) = Packet::parse(&frame).unwrap() else { panic!("ICMP") };
    assert_eq!(message.error().unwrap().quoted.seq, Seq(9));
}

/// A kernel leaves the CRC32c of SCTP to a card as 0 (`sctp_packet_pack` in Linux), and no other value.
#[test]
fn an_sctp_checksum_of_zero_is_partial() {
    let packet = testkit::sctp::packet(&[testkit::sctp::chunk(0, 100)]);
    for builder in
        [PacketBuilder::ip4(132), PacketBuilder::ip6(132), PacketBuilder::ip4(132).vlan(7)]
    {
        let whole = builder.clone().payload(&packet).build();
        assert_eq!(wire::partial_checksum(&whole), None);
        let mut zero = packet.clone();
        zero[8..12].fill(0);
        let frame = builder.clone().payload(&zero).build();
        let start = frame.len() - packet.len();
        assert_eq!(wire::partial_checksum(&frame), Some((start as u16, 8)));
        let short = builder.payload(&zero[..11]).build();
        assert_eq!(wire::partial_checksum(&short), None);
    }
}
