//! What packets begin with: Ethernet, or IP itself, as a TUN gives and takes them.
//!
//! It is a type and not a setting, so that every place in a header stays a constant: neither kind of packet
//! pays for the other.

use wire::{ETHERNET_LEN, FirstFlow, Glance, Headers, Malformed, Packet};

/// What the packets of an [`Lro`](crate::Lro) begin with: [`Ethernet`] or [`NoLink`].
pub trait Link: sealed::Sealed {}

/// Packets begin with an Ethernet header, and VLAN tags perhaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ethernet;

/// Packets begin with their IP header: those of a TUN, or of a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoLink;

impl Link for Ethernet {}
impl Link for NoLink {}

pub(crate) mod sealed {
    use super::{FirstFlow, Glance, Headers, Malformed, Packet};

    /// What the stages ask of a link layer.
    pub trait Sealed {
        /// Bytes before the IP header of the usual packet.
        const LEN: usize;
        /// Parses the headers of a packet.
        fn parse(bytes: &[u8]) -> Result<Headers, Malformed>;
        /// Parses a packet.
        fn packet(bytes: &[u8]) -> Result<Packet<'_>, Malformed>;
        /// The flow of a packet of which only the first bytes may be here.
        fn first(bytes: &[u8]) -> FirstFlow;
        /// Looks at a packet, of which only the first bytes may be here.
        fn glance(bytes: &[u8]) -> Glance<'_>;
    }
}

impl sealed::Sealed for Ethernet {
    const LEN: usize = ETHERNET_LEN;

    #[inline(always)]
    fn parse(bytes: &[u8]) -> Result<Headers, Malformed> {
        Headers::parse(bytes)
    }

    fn packet(bytes: &[u8]) -> Result<Packet<'_>, Malformed> {
        Packet::parse(bytes)
    }

    fn first(bytes: &[u8]) -> FirstFlow {
        FirstFlow::of_frame(bytes)
    }

    #[inline(always)]
    fn glance(bytes: &[u8]) -> Glance<'_> {
        Glance::at_frame(bytes)
    }
}

impl sealed::Sealed for NoLink {
    const LEN: usize = 0;

    #[inline(always)]
    fn parse(bytes: &[u8]) -> Result<Headers, Malformed> {
        Headers::parse_ip(bytes)
    }

    fn packet(bytes: &[u8]) -> Result<Packet<'_>, Malformed> {
        Packet::parse_ip(bytes)
    }

    fn first(bytes: &[u8]) -> FirstFlow {
        FirstFlow::of_packet(bytes)
    }

    #[inline(always)]
    fn glance(bytes: &[u8]) -> Glance<'_> {
        Glance::at_packet(bytes)
    }
}
