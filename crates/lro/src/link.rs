//! What packets begin with: Ethernet, or IP itself, as a TUN gives and takes them.
//!
//! It is a type and not a setting, so that every place in a header stays a constant: neither kind of packet
//! pays for the other.

use wire::{ETHERNET_LEN, EtherType, Headers, Malformed, VLAN_LEN};

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
    use super::{Headers, Malformed};

    /// What the stages ask of a link layer.
    pub trait Sealed {
        /// Bytes before the IP header of the usual packet.
        const LEN: usize;
        /// Where the headers lie.
        fn parse(bytes: &[u8]) -> Result<Headers, Malformed>;
        /// Where the IP header begins, and its version by what stands before it, or else by itself; needs
        /// no more of the packet than that.
        fn network(bytes: &[u8]) -> Option<(usize, u8)>;
        /// The version of IP in the usual packet, or 0.
        fn usual_version(bytes: &[u8]) -> u8;
    }
}

impl sealed::Sealed for Ethernet {
    const LEN: usize = ETHERNET_LEN;

    #[inline(always)]
    fn parse(bytes: &[u8]) -> Result<Headers, Malformed> {
        Headers::parse(bytes)
    }

    fn network(bytes: &[u8]) -> Option<(usize, u8)> {
        let kind =
            |at: usize| Some(EtherType(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?)));
        let mut at = ETHERNET_LEN;
        while kind(at - 2)?.is_vlan() {
            at += VLAN_LEN;
        }
        match kind(at - 2)? {
            EtherType::IPV4 => Some((at, 4)),
            EtherType::IPV6 => Some((at, 6)),
            _ => None,
        }
    }

    #[inline(always)]
    fn usual_version(bytes: &[u8]) -> u8 {
        match bytes.get(12..14) {
            Some([0x08, 0x00]) => 4,
            Some([0x86, 0xdd]) => 6,
            _ => 0,
        }
    }
}

impl sealed::Sealed for NoLink {
    const LEN: usize = 0;

    #[inline(always)]
    fn parse(bytes: &[u8]) -> Result<Headers, Malformed> {
        Headers::parse_ip(bytes)
    }

    fn network(bytes: &[u8]) -> Option<(usize, u8)> {
        Some((0, Self::usual_version(bytes)))
    }

    #[inline(always)]
    fn usual_version(bytes: &[u8]) -> u8 {
        bytes.first().map_or(0, |first| first >> 4)
    }
}
