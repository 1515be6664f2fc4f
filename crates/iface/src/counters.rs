//! Counters of a host.

/// Why a packet that arrived, or was to be sent, was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Dropped {
    /// Its destination Ethernet address is that of another host.
    OtherHost,
    /// It is in a VLAN.
    Vlan,
    /// Neither IP nor ARP.
    NotIp,
    /// Its headers cannot be parsed.
    Malformed,
    /// A fragment of an IP datagram: fragments are not reassembled.
    Fragment,
    /// The checksum of the IPv4 header is wrong.
    IpChecksum,
    /// The checksum of the TCP segment is wrong.
    TcpChecksum,
    /// The checksum of the ICMP message is wrong.
    IcmpChecksum,
    /// Its destination is none of the host's addresses.
    OtherAddress,
    /// Its source is no host's address (RFC 1122 section 3.2.1.3), or one of this host's own.
    BadSource,
    /// Its protocol is neither TCP nor ICMP.
    Protocol,
    /// An ICMP message that a host does not act on.
    Icmp,
    /// An ARP message for another host, or a malformed one.
    Arp,
    /// There is no route to its destination: a gateway is missing.
    NoRoute,
    /// Too many neighbours have not answered yet.
    TooManyNeighbours,
    /// Too many replies wait to be sent.
    TooManyReplies,
}

impl Dropped {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [Dropped; 16] = [
        Dropped::OtherHost,
        Dropped::Vlan,
        Dropped::NotIp,
        Dropped::Malformed,
        Dropped::Fragment,
        Dropped::IpChecksum,
        Dropped::TcpChecksum,
        Dropped::IcmpChecksum,
        Dropped::OtherAddress,
        Dropped::BadSource,
        Dropped::Protocol,
        Dropped::Icmp,
        Dropped::Arp,
        Dropped::NoRoute,
        Dropped::TooManyNeighbours,
        Dropped::TooManyReplies,
    ];

    /// The counter's name, in snake case.
    pub const fn name(self) -> &'static str {
        match self {
            Dropped::OtherHost => "other_host",
            Dropped::Vlan => "vlan",
            Dropped::NotIp => "not_ip",
            Dropped::Malformed => "malformed",
            Dropped::Fragment => "fragment",
            Dropped::IpChecksum => "ip_checksum",
            Dropped::TcpChecksum => "tcp_checksum",
            Dropped::IcmpChecksum => "icmp_checksum",
            Dropped::OtherAddress => "other_address",
            Dropped::BadSource => "bad_source",
            Dropped::Protocol => "protocol",
            Dropped::Icmp => "icmp",
            Dropped::Arp => "arp",
            Dropped::NoRoute => "no_route",
            Dropped::TooManyNeighbours => "too_many_neighbours",
            Dropped::TooManyReplies => "too_many_replies",
        }
    }
}

/// Counters of a host, since it was made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// ARP requests and neighbour solicitations for an own address that were answered.
    pub resolutions: u64,
    /// ARP requests and neighbour solicitations sent.
    pub solicitations: u64,
    /// Echo requests that were answered.
    pub pings: u64,
    /// ICMP errors that were handed to the transport.
    pub icmp_errors: u64,
    /// Packets dropped because their neighbour did not answer in time.
    pub neighbour_silent: u64,
    /// Neighbours in the cache: known, or not answered yet. A gauge.
    pub neighbours: u64,
    /// Packets that were dropped, by reason.
    pub dropped: [u64; Dropped::ALL.len()],
}

impl Counters {
    /// Counts a packet that is dropped.
    #[inline]
    pub(crate) fn drop(&mut self, why: Dropped) {
        self.dropped[why as usize] += 1;
    }
}
