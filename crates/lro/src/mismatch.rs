//! Why segments do not become one.

/// Why a segment does not join what is held; what is held then goes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Mismatch {
    /// It does not continue the held sequence numbers (lossless), or comes after data was sent
    /// again (endpoint).
    Sequence,
    /// MAC addresses or VLAN tags differ.
    Link,
    /// IP version, TOS or traffic class, flow label, TTL, DF or extension headers differ.
    Network,
    /// IPv4 IDs neither count up by one nor stay the same (lossless).
    Id,
    /// CWR or ECE, or another flag that must be equal.
    Flags,
    /// The acknowledgment number goes back, or differs and is not known to be one that the host takes
    /// (endpoint); or differs (lossless).
    Ack,
    /// The window differs (lossless).
    Window,
    /// Options differ in kind or bytes, or TSval goes back.
    Options,
    /// Larger than the first segment, or after one that was smaller (lossless).
    Uneven,
    /// A stale urgent pointer that differs (lossless).
    Urgent,
    /// It overlaps what is held in more ways than trimming its ends can mend (endpoint).
    Overlap,
    /// Its flow has as many holes already as are kept in mind (endpoint).
    Holes,
    /// So far from where the flow was that it is none of its holes or repetitions (endpoint).
    Far,
    /// A checksum of 0xFFFF, which verifies where 0 does but would be restored as 0 (lossless).
    Checksum,
}

impl Mismatch {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [Mismatch; 14] = [
        Mismatch::Sequence,
        Mismatch::Link,
        Mismatch::Network,
        Mismatch::Id,
        Mismatch::Flags,
        Mismatch::Ack,
        Mismatch::Window,
        Mismatch::Options,
        Mismatch::Uneven,
        Mismatch::Urgent,
        Mismatch::Overlap,
        Mismatch::Holes,
        Mismatch::Far,
        Mismatch::Checksum,
    ];

    /// The counter's name.
    pub const fn name(self) -> &'static str {
        match self {
            Mismatch::Sequence => "sequence",
            Mismatch::Link => "link",
            Mismatch::Network => "network",
            Mismatch::Id => "id",
            Mismatch::Flags => "flags",
            Mismatch::Ack => "ack",
            Mismatch::Window => "window",
            Mismatch::Options => "options",
            Mismatch::Uneven => "uneven",
            Mismatch::Urgent => "urgent",
            Mismatch::Overlap => "overlap",
            Mismatch::Holes => "holes",
            Mismatch::Far => "far",
            Mismatch::Checksum => "checksum",
        }
    }
}
