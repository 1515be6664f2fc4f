//! Why a packet is not cut or completed.

use core::fmt;

use wire::Malformed;

/// Why a packet cannot be cut, or its checksum not be completed. Every reason has a counter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// Its headers cannot be walked.
    Malformed(Malformed),
    /// `gso_type` is none: there is nothing to cut.
    NotSuperPacket,
    /// `gso_type` asks for IP fragments of one UDP datagram (UFO), which need an ID and so
    /// [`Segmenter::with_mtu`](crate::Segmenter::with_mtu).
    Ufo,
    /// `gso_size` is 0.
    GsoSizeZero,
    /// `gso_type` names another protocol than the headers do, or UDP with the ECN bit.
    TypeMismatch,
    /// Already a fragment of an IP datagram.
    Fragment,
    /// More header bytes than [`MAX_HEADER_LEN`](crate::MAX_HEADER_LEN).
    HeaderTooLong,
    /// More than [`UDP_MAX_SEGMENTS`](crate::UDP_MAX_SEGMENTS) datagrams.
    TooManySegments,
    /// The UDP length of a super-packet differs from its IP payload.
    UdpLength,
    /// UDP without `NEEDS_CSUM`, which virtio and Linux require for it.
    ChecksumNotPartial,
    /// `csum_start` and `csum_offset` do not point at the transport's checksum.
    ChecksumPosition,
    /// `csum_start` and `csum_offset` point past the end of the packet.
    ChecksumRange,
    /// The caller's buffer is shorter than the frame.
    BufferTooSmall,
    /// Longer than the MTU, and not to be cut: a USO datagram in a tunnel, no IP, or an MTU that does
    /// not hold the headers.
    OverMtu,
    /// A super-packet in IP in IP, which `virtio_net_hdr` cannot describe.
    IpipTunnel,
    /// A super-packet in GRE, which `virtio_net_hdr` cannot describe.
    GreTunnel,
    /// A super-packet in a UDP tunnel, such as VXLAN, without the fields that describe it, or with
    /// such as are not true of it.
    UdpTunnel,
}

const MALFORMED: usize = Malformed::ALL.len();

impl Refusal {
    /// How many reasons there are, each kind of malformed headers counted.
    pub const COUNT: usize = MALFORMED + 16;

    /// All reasons, in the order of [`index`](Self::index).
    pub const ALL: [Refusal; Self::COUNT] = {
        let mut all = [Refusal::BufferTooSmall; Self::COUNT];
        let mut i = 0;
        while i < MALFORMED {
            all[i] = Refusal::Malformed(Malformed::ALL[i]);
            i += 1;
        }
        let own = [
            Refusal::NotSuperPacket,
            Refusal::Ufo,
            Refusal::GsoSizeZero,
            Refusal::TypeMismatch,
            Refusal::Fragment,
            Refusal::HeaderTooLong,
            Refusal::TooManySegments,
            Refusal::UdpLength,
            Refusal::ChecksumNotPartial,
            Refusal::ChecksumPosition,
            Refusal::ChecksumRange,
            Refusal::BufferTooSmall,
            Refusal::OverMtu,
            Refusal::IpipTunnel,
            Refusal::GreTunnel,
            Refusal::UdpTunnel,
        ];
        while i < Self::COUNT {
            all[i] = own[i - MALFORMED];
            i += 1;
        }
        all
    };

    /// The place in an array of counters, below [`COUNT`](Self::COUNT).
    pub const fn index(self) -> usize {
        match self {
            Refusal::Malformed(reason) => reason as usize,
            Refusal::NotSuperPacket => MALFORMED,
            Refusal::Ufo => MALFORMED + 1,
            Refusal::GsoSizeZero => MALFORMED + 2,
            Refusal::TypeMismatch => MALFORMED + 3,
            Refusal::Fragment => MALFORMED + 4,
            Refusal::HeaderTooLong => MALFORMED + 5,
            Refusal::TooManySegments => MALFORMED + 6,
            Refusal::UdpLength => MALFORMED + 7,
            Refusal::ChecksumNotPartial => MALFORMED + 8,
            Refusal::ChecksumPosition => MALFORMED + 9,
            Refusal::ChecksumRange => MALFORMED + 10,
            Refusal::BufferTooSmall => MALFORMED + 11,
            Refusal::OverMtu => MALFORMED + 12,
            Refusal::IpipTunnel => MALFORMED + 13,
            Refusal::GreTunnel => MALFORMED + 14,
            Refusal::UdpTunnel => MALFORMED + 15,
        }
    }

    /// The counter's name; that of a malformed header is the one that [`Malformed::name`] gives.
    pub const fn name(self) -> &'static str {
        match self {
            Refusal::Malformed(reason) => reason.name(),
            Refusal::NotSuperPacket => "not_super_packet",
            Refusal::Ufo => "ufo",
            Refusal::GsoSizeZero => "gso_size_zero",
            Refusal::TypeMismatch => "type_mismatch",
            Refusal::Fragment => "fragment",
            Refusal::HeaderTooLong => "header_too_long",
            Refusal::TooManySegments => "too_many_segments",
            Refusal::UdpLength => "udp_length_not_ip_payload",
            Refusal::ChecksumNotPartial => "checksum_not_partial",
            Refusal::ChecksumPosition => "checksum_position",
            Refusal::ChecksumRange => "checksum_range",
            Refusal::BufferTooSmall => "buffer_too_small",
            Refusal::OverMtu => "over_mtu",
            Refusal::IpipTunnel => "ipip_tunnel",
            Refusal::GreTunnel => "gre_tunnel",
            Refusal::UdpTunnel => "udp_tunnel",
        }
    }
}

impl From<Malformed> for Refusal {
    fn from(reason: Malformed) -> Refusal {
        Refusal::Malformed(reason)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_place_and_name() {
        for (place, reason) in Refusal::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), place);
            let namesakes = Refusal::ALL.into_iter().filter(|r| r.name() == reason.name()).count();
            assert_eq!(namesakes, 1, "{reason}");
        }
    }
}
