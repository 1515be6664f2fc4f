//! What IP cuts: fragments of anything that is longer than the MTU, and UFO super-packets. Put
//! together again by RFC 791 and RFC 8200 they are the packet.

use std::fmt;

use gso::{Kind, Refusal};
use proptest::prelude::*;
use testkit::packet::PacketBuilder;
use testkit::reassemble::reassemble;
use wire::{GsoType, Headers, VirtioNetHdr, protocol};

use crate::outcome::{Given, Outcome};

/// What travels in the datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carried {
    /// UDP with the checksum left to be completed, complete, or none (IPv4).
    UdpPartial,
    UdpComplete,
    UdpNone,
    /// ICMP, or ICMPv6.
    Icmp,
    /// A protocol that no host knows (RFC 3692).
    Unknown,
    /// A fragment of this offset in units of eight bytes, with or without more behind it.
    Fragment(u16, bool),
}

/// A packet that is longer than its MTU, or almost.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) packet: Vec<u8>,
    pub(crate) hdr: VirtioNetHdr,
    pub(crate) mtu: usize,
    pub(crate) fragment_id: u32,
    pub(crate) carried: Carried,
}

/// Without the payload.
impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { packet, hdr, mtu, fragment_id, carried } = self;
        let start = &packet[..packet.len().min(120)];
        write!(f, "{carried:?}, MTU {mtu}, ID {fragment_id:#x}, {} bytes: ", packet.len())?;
        write!(f, "{start:02x?}, {hdr:?}")
    }
}

impl Case {
    pub(crate) fn given(&self) -> Given<'_> {
        Given::new(&self.packet, self.hdr, self.mtu, self.fragment_id)
    }
}

/// IPv4 options as hosts and routers accept them: copied ones, others, no-operations, and whatever
/// pads them. `copied_only` leaves out what only first fragments have.
fn ip_options(copied_only: bool) -> impl Strategy<Value = Vec<u8>> {
    // Experiment (RFC 4727) and stream identifier, of any length; no-operation.
    let kinds = if copied_only { vec![158u8, 136, 1] } else { vec![158u8, 30, 136, 94, 1] };
    let option = (prop::sample::select(kinds), 2usize..=11).prop_map(|(kind, len)| match kind {
        1 => vec![1],
        136 => vec![136, 4, 0, 7],
        _ => [&[kind, len as u8][..], &vec![0xe5; len - 2]].concat(),
    });
    (proptest::collection::vec(option, 0..=6), any::<bool>()).prop_map(|(options, end)| {
        let mut bytes: Vec<u8> = Vec::new();
        for option in options.into_iter().filter(|option| option[0] != 136 || option.len() == 4) {
            // A stream identifier comes once.
            let again = option[0] == 136 && bytes.windows(4).any(|four| four == [136, 4, 0, 7]);
            if !again && bytes.len() + option.len() <= 40 {
                bytes.extend(option);
            }
        }
        bytes.resize(bytes.len().next_multiple_of(4), if end { 0 } else { 1 });
        bytes
    })
}

fn carried(v4: bool) -> BoxedStrategy<Carried> {
    let common = prop_oneof![
        3 => Just(Carried::UdpPartial),
        1 => Just(Carried::UdpComplete),
        1 => Just(Carried::Icmp),
        1 => Just(Carried::Unknown),
    ];
    let fragment = (prop_oneof![Just(0u16), 1u16..600], any::<bool>())
        .prop_filter("a fragment", |(offset, more)| *offset > 0 || *more)
        .prop_map(|(offset, more)| Carried::Fragment(offset, more));
    if v4 {
        prop_oneof![4 => common, 1 => Just(Carried::UdpNone), 1 => fragment].boxed()
    } else {
        prop_oneof![4 => common, 1 => fragment].boxed()
    }
}

/// Bytes of IP payload in a frame, and how many there are: around some whole fragments.
fn sizes() -> impl Strategy<Value = (usize, usize)> {
    let room = prop_oneof![8usize..80, 500usize..1500, Just(1480), Just(1452), 8000usize..9000];
    (room, 1usize..=12, 0usize..=18, any::<prop::sample::Index>()).prop_flat_map(
        |(room, fragments, more, any_len)| {
            let whole = (room & !7) * fragments + more;
            prop_oneof![4 => Just(whole), 1 => Just(any_len.index(room * 30))]
                .prop_map(move |len| (room, len.clamp(20, 63_000)))
        },
    )
}

fn extensions() -> impl Strategy<Value = Vec<(u8, usize)>> {
    let kinds = [protocol::HOP_BY_HOP, protocol::ROUTING, protocol::DESTINATION];
    proptest::collection::vec((prop::sample::select(kinds.to_vec()), 1usize..=3), 0..=3)
        .prop_map(|chain| chain.into_iter().map(|(kind, units)| (kind, units * 8)).collect())
}

/// Random packets of one version of IP.
pub(crate) fn cases(v4: bool) -> impl Strategy<Value = Case> {
    let ip = (carried(v4), any::<(u8, u32, u16, bool)>(), extensions(), any::<bool>());
    let tags = proptest::collection::vec(any::<u16>(), 0..=2);
    (ip, tags, sizes(), any::<u32>()).prop_flat_map(
        move |((carried, fields, extensions, padded), tags, (room, len), fragment_id)| {
            let (tos, label, id, df) = fields;
            let later = matches!(carried, Carried::Fragment(1.., _));
            ip_options(later).prop_map(move |options| {
                let mut p = start(v4, carried, len).ip_options(&options).tos(tos).id(id);
                p = p.dont_fragment(df).flow_label(label).padding(if padded { 7 } else { 0 });
                for tci in &tags {
                    p = p.vlan(*tci);
                }
                for (kind, len) in &extensions {
                    p = p.extension(*kind, *len);
                }
                finish(p, carried, room, fragment_id)
            })
        },
    )
}

/// `len` bytes of IP payload, as far as the transport's header lets it.
fn start(v4: bool, carried: Carried, len: usize) -> PacketBuilder {
    let of = |v4_number, v6_number| {
        if v4 { PacketBuilder::ip4(v4_number) } else { PacketBuilder::ip6(v6_number) }
    };
    match carried {
        Carried::UdpPartial | Carried::UdpComplete => {
            of(protocol::UDP, protocol::UDP).payload_pattern(len - 8)
        }
        Carried::UdpNone => PacketBuilder::udp4().zero_checksum().payload_pattern(len - 8),
        Carried::Icmp => of(1, protocol::ICMPV6).payload_pattern(len),
        Carried::Unknown => of(253, 253).payload_pattern(len),
        Carried::Fragment(offset, more) => {
            let len = len.min(65_528 - usize::from(offset) * 8);
            let len = if more { len & !7 } else { len };
            of(253, 253).payload_pattern(len).fragment(offset * 8, more)
        }
    }
}

fn finish(p: PacketBuilder, carried: Carried, room: usize, fragment_id: u32) -> Case {
    let (packet, hdr) = match carried {
        Carried::UdpPartial => p.partial(),
        _ => (p.build(), VirtioNetHdr::default()),
    };
    let at = Headers::parse(&packet).unwrap();
    let fragment_header = if packet[at.network_at] >> 4 == 6 { 8 } else { 0 };
    let mtu = at.transport_at - at.network_at + fragment_header + room;
    Case { packet, hdr, mtu, fragment_id, carried }
}

fn check(case: &Case) -> Outcome {
    let headers = Headers::parse(&case.packet).unwrap();
    let outcome = case.given().cut().unwrap();
    let fits = headers.end - headers.network_at <= case.mtu;
    assert_eq!(outcome.kind.is_none(), fits);
    // What verifies as a whole still does: the checksum was completed before it was cut.
    if !fits && matches!(case.carried, Carried::UdpPartial) {
        let ip: Vec<_> = outcome.frames.iter().map(|frame| &frame[headers.network_at..]).collect();
        let whole = reassemble(&ip).unwrap().packet;
        let kind = if whole[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
        testkit::verify::checksums(&[&[0; 12], &kind[..], &whole].concat()).unwrap();
    }
    outcome
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn fragments_are_the_packet_in_pieces_ipv4(case in cases(true)) {
        let outcome = check(&case);
        prop_assert!(matches!(outcome.kind, None | Some(Kind::Frag4)));
    }

    #[test]
    fn fragments_are_the_packet_in_pieces_ipv6(case in cases(false)) {
        let outcome = check(&case);
        prop_assert!(matches!(outcome.kind, None | Some(Kind::Frag6)));
    }

    /// UFO: at most `gso_size` bytes of IP payload each, whatever the MTU, and never more than it.
    #[test]
    fn ufo_is_cut_by_its_gso_size(
        case in prop_oneof![cases(true), cases(false)],
        // Enough for the first to have all headers (RFC 7112).
        gso_size in 80u16..2000,
        mtu in prop_oneof![Just(usize::MAX), Just(65_535), 200usize..3000],
    ) {
        prop_assume!(matches!(case.carried, Carried::UdpPartial | Carried::UdpComplete));
        let hdr = VirtioNetHdr { gso_type: GsoType::Udp, gso_size, ..case.hdr };
        let outcome = Given::new(&case.packet, hdr, mtu, case.fragment_id).cut().unwrap();
        let headers = Headers::parse(&case.packet).unwrap();
        if headers.end - headers.transport_at <= gso_size.into() && outcome.kind.is_none() {
            prop_assert!(headers.end - headers.network_at <= mtu);
        } else {
            for frame in &outcome.frames {
                prop_assert!(reassembled_len(frame, &headers) <= usize::from(gso_size));
            }
        }
    }
}

/// Bytes of IP payload in a fragment, all that is put together counted.
fn reassembled_len(frame: &[u8], original: &Headers) -> usize {
    let ip = Headers::parse(frame).unwrap();
    let per_fragment = ip.transport_at - ip.network_at;
    let fragment_header = if frame[original.network_at] >> 4 == 6 { 8 } else { 0 };
    ip.end - ip.network_at - per_fragment - fragment_header
}

fn cut(builder: &PacketBuilder, mtu: usize, fragment_id: u32) -> Vec<Vec<u8>> {
    let (packet, hdr) = builder.partial();
    Given::new(&packet, hdr, mtu, fragment_id).cut().unwrap().frames
}

/// RFC 791's procedure: what is left goes as the last fragment as soon as it fits, and there is no rounding
/// its length.
#[test]
fn one_byte_more_than_fits_is_two_fragments() {
    // IP's header, bytes in all fragments but the last, most bytes in the last.
    for (builder, mtu, header, others, last) in [
        (PacketBuilder::udp4(), 1500, 20, 1480, 1480),
        (PacketBuilder::udp4(), 9000, 20, 8976, 8980),
        (PacketBuilder::udp6(), 1500, 40, 1448, 1452),
        (PacketBuilder::udp6(), 1492, 40, 1440, 1444),
    ] {
        let whole = mtu - header;
        let cases = [
            (whole, vec![whole]),
            (whole + 1, vec![others, whole + 1 - others]),
            (others + last, vec![others, last]),
            (others + last + 1, vec![others, others, last + 1 - others]),
        ];
        for (len, expected) in cases {
            let frames = cut(&builder.clone().payload_pattern(len - 8), mtu, 5);
            let extra = if frames.len() > 1 && header == 40 { 8 } else { 0 };
            let lens: Vec<_> = frames.iter().map(|f| f.len() - 14 - header - extra).collect();
            assert_eq!(lens, expected, "{len} bytes");
        }
    }
}

/// RFC 6864: the ID counts where the packet may be fragmented on its way, or is a fragment.
#[test]
fn ids_are_the_packet_s_own_or_the_caller_s() {
    let builder = PacketBuilder::udp4().id(0xabcd).payload_pattern(3000);
    let ids = |builder: PacketBuilder| {
        let frames = cut(&builder, 1500, 0x9999_1234);
        frames.iter().map(|f| u16::from_be_bytes([f[18], f[19]])).collect::<Vec<_>>()
    };
    assert_eq!(ids(builder.clone().dont_fragment(true)), [0x1234; 3]);
    assert_eq!(ids(builder.clone().dont_fragment(false)), [0xabcd; 3]);
    let fragment = PacketBuilder::ip4(253).id(0xabcd).payload_pattern(2000).fragment(800, false);
    let (packet, hdr) = (fragment.dont_fragment(true).build(), VirtioNetHdr::default());
    for frame in Given::new(&packet, hdr, 1500, 0x1234).cut().unwrap().frames {
        assert_eq!(frame[18..20], [0xab, 0xcd]);
    }
    let frames = cut(&PacketBuilder::udp6().payload_pattern(3000), 1500, 0x9999_1234);
    assert!(frames.iter().all(|frame| frame[58..62] == [0x99, 0x99, 0x12, 0x34]));
}

/// Written by hand: security (copied), record route (not copied), end of options.
#[test]
fn options_that_are_not_copied_are_in_the_first_only() {
    let options = [130, 3, 9, 1, 7, 7, 8, 1, 1, 1, 1, 0];
    let frames = cut(&PacketBuilder::udp4().ip_options(&options).payload_pattern(3000), 1500, 1);
    let of = |frame: &Vec<u8>| frame[34..46].to_vec();
    assert_eq!(of(&frames[0]), options);
    let later = [130, 3, 9, 1, 1, 1, 1, 1, 1, 1, 1, 0];
    assert!(frames.len() == 3 && frames[1..].iter().all(|frame| of(frame) == later));
}

/// What follows an option whose length lies is left as it is, as in Linux.
#[test]
fn options_that_lie_stay() {
    for lie in [[7, 0, 7, 3, 1, 1, 1, 1], [7, 1, 7, 3, 1, 1, 1, 1], [7, 9, 7, 3, 1, 1, 1, 1]] {
        let frames = cut(&PacketBuilder::udp4().ip_options(&lie).payload_pattern(3000), 1500, 1);
        assert!(frames.iter().all(|frame| frame[34..42] == lie));
    }
}

/// RFC 8200 section 4.5: Hop-by-Hop and Routing in every fragment, what is for the final receiver in
/// the first; "the Next Header value that identifies the first header after the Per-Fragment
/// headers".
#[test]
fn ipv6_headers_for_the_way_are_in_every_fragment() {
    let (hop, routing, destination) =
        (protocol::HOP_BY_HOP, protocol::ROUTING, protocol::DESTINATION);
    for (chain, per_fragment, next) in [
        (vec![], 0, protocol::UDP),
        (vec![hop], 8, protocol::UDP),
        (vec![hop, routing], 16, protocol::UDP),
        (vec![hop, destination, routing, destination], 24, destination),
        (vec![routing, destination], 8, destination),
        // Either is right by the RFC, where nothing is routed; this is what Linux does.
        (vec![destination], 8, protocol::UDP),
    ] {
        let mut builder = PacketBuilder::udp6().payload_pattern(3000);
        for kind in &chain {
            builder = builder.extension(*kind, 8);
        }
        let frames = cut(&builder, 1280, 7);
        let (original, _) = builder.partial();
        for frame in &frames {
            let fragment = &frame[14 + 40 + per_fragment..];
            assert_eq!((fragment[0], fragment[1]), (next, 0), "{chain:?}");
            // Up to the field that names the Fragment header, nothing but the length changed.
            let names = if per_fragment == 0 { 20 } else { 14 + 40 + per_fragment - 8 };
            assert_eq!(frame[names], protocol::FRAGMENT);
            assert_eq!((&frame[..18], &frame[20..names]), (&original[..18], &original[20..names]));
        }
    }
}

/// The checksum field may lie behind the first fragment's end: there is no place for it then.
#[test]
fn a_first_fragment_without_room_for_the_checksum_is_refused() {
    let builder = PacketBuilder::udp6().extension(43, 8).extension(60, 16).payload_pattern(100);
    let (packet, hdr) = builder.partial();
    for (mtu, fits) in [(79, false), (80, true)] {
        // 48 bytes for every fragment and 8 of Fragment header, then 16 and 8 up to the checksum.
        let outcome = Given::new(&packet, hdr, mtu, 1).cut();
        assert_eq!(outcome.map_err(|why| why == Refusal::OverMtu).is_ok(), fits, "{mtu}");
    }
}
