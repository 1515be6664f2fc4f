//! The one list of what wharf does otherwise than the kernel, and why. Rules have the numbers of
//! docs/kernel-rules.md.

/// A difference between the kernel's GRO and the lossless profile. Each is a switch of the
/// [`model`](super::model): off is the kernel's way, on is wharf's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Reason {
    Padding,
    Lying,
    IpOptions,
    ExtensionChecksum,
    ReservedBit,
    Vlan,
    OneHeldPerConnection,
    NoAck,
    TcpOptions,
    LongHeader,
    Urgent,
    MinusZero,
    Bucket,
    Cwr,
    FixedId,
}

/// Whether wharf's way makes more packets into one, or fewer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    More,
    Fewer,
}

/// Reason, name, effect, explanation.
pub(crate) const TABLE: [(Reason, &str, Effect, &str); 15] = [
    (
        Reason::Padding,
        "padding",
        Effect::More,
        "the kernel merges no frame that is longer than its IP packet; wharf leaves Ethernet \
         padding out (rule 3), as a card's driver does before GRO",
    ),
    (
        Reason::Lying,
        "lying_length",
        Effect::More,
        "the kernel reads ports behind an IP length that lies and flushes that flow; wharf \
         takes no part of such a packet for true, so it goes by and the flow stays held",
    ),
    (
        Reason::IpOptions,
        "ip_options",
        Effect::Fewer,
        "the kernel lets a packet with IPv4 options overtake what is held of its flow; wharf \
         keeps the flow's order",
    ),
    (
        Reason::ExtensionChecksum,
        "extension_checksum",
        Effect::Fewer,
        "a packet with IPv6 extension headers whose checksum does not verify overtakes its flow \
         in the kernel; it may be right by another address (RFC 8200 section 8.1), so wharf keeps \
         the flow's order",
    ),
    (
        Reason::ReservedBit,
        "reserved_bit",
        Effect::More,
        "the kernel merges no packet with the reserved bit of the IPv4 fragment field; wharf does \
         if all have it, and cutting restores it",
    ),
    (
        Reason::Vlan,
        "vlan",
        Effect::More,
        "a kernel without 802.1Q merges nothing whose tag is in the frame; wharf merges equal tags",
    ),
    (
        Reason::OneHeldPerConnection,
        "one_held_per_connection",
        Effect::Fewer,
        "packets of one connection that differ in MAC addresses, tags, flow label or extension \
         headers are several flows to the kernel, held side by side; to wharf one, so the held \
         go first and order is kept",
    ),
    (
        Reason::NoAck,
        "no_ack",
        Effect::Fewer,
        "no established connection sends data without ACK; wharf passes it on as it came",
    ),
    (
        Reason::TcpOptions,
        "malformed_tcp_options",
        Effect::Fewer,
        "the kernel compares option bytes without reading them; wharf passes on what it cannot read",
    ),
    (
        Reason::LongHeader,
        "long_header",
        Effect::Fewer,
        "wharf keeps 128 bytes of headers per flow; what has more passes as it came",
    ),
    (
        Reason::Urgent,
        "urgent_pointer",
        Effect::Fewer,
        "the kernel ignores an urgent pointer without URG and loses all but the first; wharf \
         merges only where cutting restores each packet",
    ),
    (
        Reason::MinusZero,
        "checksum_ffff",
        Effect::Fewer,
        "a checksum of 0xFFFF verifies like 0 but is restored as 0; wharf merges only where \
         cutting restores each packet",
    ),
    (
        Reason::Bucket,
        "bucket",
        Effect::More,
        "the kernel holds eight flows a bucket and lets the oldest go for a ninth; wharf's table \
         has room for all",
    ),
    (
        Reason::Cwr,
        "cwr",
        Effect::Fewer,
        "before Accurate ECN (Linux 6.18) the kernel appended segments to one with CWR",
    ),
    (
        Reason::FixedId,
        "fixed_id",
        Effect::More,
        "kernels before 6.18 took a fixed IPv4 ID only with DF; wharf marks such aggregates",
    ),
];

impl Reason {
    pub(crate) fn name(self) -> &'static str {
        TABLE[self as usize].1
    }
}

/// A set of reasons.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reasons(u32);

impl Reasons {
    pub(crate) const NONE: Reasons = Reasons(0);
    pub(crate) const ALL: Reasons = Reasons((1 << TABLE.len()) - 1);

    pub(crate) fn has(self, reason: Reason) -> bool {
        self.0 & 1 << reason as u32 != 0
    }

    pub(crate) fn with(self, reason: Reason) -> Reasons {
        Reasons(self.0 | 1 << reason as u32)
    }
}

#[test]
fn the_table_is_in_the_order_of_the_reasons() {
    for (at, (reason, name, ..)) in TABLE.iter().enumerate() {
        assert_eq!((*reason as usize, reason.name()), (at, *name));
    }
}
