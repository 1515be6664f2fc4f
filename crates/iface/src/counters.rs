//! What a host counts.

/// Why a packet that arrived, or was to leave, went nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Dropped {
    /// Its Ethernet address is another's.
    OtherHost,
    /// It is in a VLAN.
    Vlan,
    /// Neither IP nor ARP.
    NotIp,
    /// Its headers cannot be walked.
    Malformed,
    /// A fragment of an IP datagram; peers are to find out the path's MTU.
    Fragment,
    /// The checksum of the IPv4 header is wrong.
    IpChecksum,
    /// The checksum of the TCP segment is wrong.
    TcpChecksum,
    /// The checksum of the ICMP message is wrong.
    IcmpChecksum,
    /// Its destination is none of the host's addresses.
    OtherAddress,
    /// No host has the address that it comes from (RFC 1122 section 3.2.1.3), or this one has.
    BadSource,
    /// Neither TCP nor ICMP.
    Protocol,
    /// An ICMP message that has nothing to say to a host.
    Icmp,
    /// An ARP message for others, or that cannot be read.
    Arp,
    /// There is no way to where it is to go: a gateway is missing.
    NoRoute,
    /// Too many neighbours are being looked for.
    TooManyNeighbours,
    /// Too many answers wait to be sent.
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

    /// The counter's name.
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

/// See the module's documentation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Requests for an own address that were answered.
    pub resolutions: u64,
    /// Questions where a neighbour is.
    pub questions: u64,
    /// Echo requests that were answered.
    pub pings: u64,
    /// ICMP errors that were handed to the transport.
    pub icmp_errors: u64,
    /// Packets whose neighbour did not answer in time.
    pub neighbour_silent: u64,
    /// Neighbours that are known or being asked.
    pub neighbours: u64,
    /// Packets that went nowhere, by reason.
    pub dropped: [u64; Dropped::ALL.len()],
}

impl Counters {
    /// Counts a packet that goes nowhere.
    #[inline]
    pub(crate) fn drop(&mut self, why: Dropped) {
        self.dropped[why as usize] += 1;
    }
}
