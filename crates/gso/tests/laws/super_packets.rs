//! Super-packets of every kind.

use proptest::prelude::*;
use testkit::packet::{PacketBuilder, pattern};
use wire::{Flags, protocol};

/// A packet that a host may transmit, and how it is to be cut.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// The packet, payload included.
    pub(crate) builder: PacketBuilder,
    /// Its payload.
    pub(crate) payload: Vec<u8>,
    /// Bytes of payload per segment.
    pub(crate) gso_size: u16,
    /// TCP, or UDP as USO.
    pub(crate) tcp: bool,
    /// IPv4, or IPv6.
    pub(crate) v4: bool,
}

impl Case {
    /// Segments by arithmetic.
    pub(crate) fn segments(&self) -> usize {
        self.payload.len().div_ceil(usize::from(self.gso_size)).max(1)
    }
}

/// Sizes around which mistakes hide: nothing, exactly some segments, one byte either way, any.
fn sizes() -> impl Strategy<Value = (u16, usize)> {
    let size = prop_oneof![1u16..64, 500u16..1500, Just(1448), Just(8948), any::<u16>()];
    (size.prop_filter("0 is refused", |s| *s > 0), 1usize..=64, any::<prop::sample::Index>())
        .prop_flat_map(|(size, segments, any_len)| {
            let whole = usize::from(size) * segments;
            prop_oneof![Just(whole), Just(whole + 1), Just(whole - 1), Just(any_len.index(30_000))]
                .prop_map(move |len| (size, len.min(64_000)))
        })
}

/// Ethernet and IP: VLAN, QinQ, IPv4 options, IPv6 extension headers, ID about to wrap.
fn network(v4: bool, tcp: bool) -> impl Strategy<Value = PacketBuilder> {
    let tags = proptest::collection::vec(any::<u16>(), 0..=2);
    let options = proptest::collection::vec(Just(1u8), 0..=10);
    let kinds = prop_oneof![
        Just(protocol::HOP_BY_HOP),
        Just(protocol::ROUTING),
        Just(protocol::DESTINATION)
    ];
    let extensions = proptest::collection::vec((kinds, 1usize..=4), 0..=2);
    let id = prop_oneof![any::<u16>(), 0xfff0u16..=0xffff];
    (tags, options, extensions, id, any::<(u8, u8, u32, bool)>()).prop_map(
        move |(tags, options, extensions, id, (tos, ttl, label, df))| {
            let mut p = match (v4, tcp) {
                (true, true) => PacketBuilder::tcp4(),
                (true, false) => PacketBuilder::udp4(),
                (false, true) => PacketBuilder::tcp6(),
                (false, false) => PacketBuilder::udp6(),
            };
            for tci in tags {
                p = p.vlan(tci);
            }
            for (kind, units) in extensions {
                p = p.extension(kind, units * 8);
            }
            let options = vec![1; options.len() * 4];
            p.ip_options(&options).id(id).tos(tos).ttl(ttl).flow_label(label).dont_fragment(df)
        },
    )
}

/// Transport: ports, sequence numbers about to wrap, all flags, up to 40 bytes of options.
fn transport(p: PacketBuilder) -> impl Strategy<Value = PacketBuilder> {
    let seq = prop_oneof![any::<u32>(), 0xffff_0000u32..=u32::MAX];
    let options = proptest::collection::vec(any::<u8>(), 0..=40);
    (any::<(u16, u16, u32, u8, u8, u16, u16)>(), seq, options).prop_map(
        move |((source, destination, ack, flags, reserved, window, urgent), seq, options)| {
            p.clone()
                .ports(source, destination)
                .seq(seq)
                .ack(ack)
                .flags(Flags(flags))
                .reserved(reserved)
                .window(window)
                .urgent(urgent)
                .options(&options)
        },
    )
}

/// Any super-packet.
pub(crate) fn super_packets() -> impl Strategy<Value = Case> {
    (any::<(bool, bool)>(), sizes(), 0usize..100, any::<bool>()).prop_flat_map(
        |((v4, tcp), (gso_size, len), padding, padded)| {
            let limit = if tcp { len } else { len.min(usize::from(gso_size) * 128) };
            let padding = if padded { padding } else { 0 };
            network(v4, tcp).prop_flat_map(transport).prop_map(move |builder| {
                let payload = pattern(len, limit);
                let builder = builder.payload(&payload).padding(padding);
                Case { builder, payload, gso_size, tcp, v4 }
            })
        },
    )
}
