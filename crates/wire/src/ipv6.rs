//! IPv6 headers and extension headers (RFC 8200).

use crate::checksum::{self, Sum};
use crate::malformed::Malformed;
use crate::{be16, be32, protocol, put16};

/// Bytes of the fixed IPv6 header.
pub const IPV6_LEN: usize = 40;

/// Most extension headers of a packet that is not malformed; real chains have one or two.
pub const EXTENSIONS_MAX: usize = 8;

/// A view of an IPv6 header and what follows it; the payload it announces is in range, unless the view is of the
/// packet's [first](Self::first) bytes.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6<T>(T);

/// The end of a chain of extension headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extensions {
    /// Bytes of all extension headers together.
    pub len: usize,
    /// The first next-header value that is not one of the extension headers parsed here.
    pub protocol: u8,
    /// A Fragment header was found; `protocol` is then [`protocol::FRAGMENT`].
    pub fragment: bool,
}

impl<T: AsRef<[u8]>> Ipv6<T> {
    /// Checks that `bytes` begin with an IPv6 header whose payload length does not exceed them. Jumbograms
    /// (payload length 0 with a Hop-by-Hop option, RFC 2675) count as empty.
    pub fn new(bytes: T) -> Result<Self, Malformed> {
        let view = Self::first(bytes)?;
        if IPV6_LEN + usize::from(view.payload_len()) > view.0.as_ref().len() {
            return Err(Malformed::Ipv6PayloadLength);
        }
        Ok(view)
    }

    /// Checks that `bytes`, the first bytes of a packet, have a whole fixed IPv6 header. The payload length is
    /// not checked: the rest of the packet may be elsewhere.
    #[inline]
    pub fn first(bytes: T) -> Result<Self, Malformed> {
        let b = bytes.as_ref();
        if b.len() < IPV6_LEN {
            return Err(Malformed::ShortIpv6);
        }
        if b[0] >> 4 != 6 {
            return Err(Malformed::IpVersion);
        }
        Ok(Ipv6(bytes))
    }

    /// Traffic class: DSCP and, in the low two bits, ECN.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        (be16(self.0.as_ref(), 0) >> 4) as u8
    }

    /// Flow label, 20 bits.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        be32(self.0.as_ref(), 0) & 0x000f_ffff
    }

    /// Bytes after the fixed header, extension headers included.
    #[inline]
    pub fn payload_len(&self) -> u16 {
        be16(self.0.as_ref(), 4)
    }

    /// Type of what follows the fixed header.
    #[inline]
    pub fn next_header(&self) -> u8 {
        self.0.as_ref()[6]
    }

    /// Hop limit.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.0.as_ref()[7]
    }

    /// Source address.
    #[inline]
    pub fn source(&self) -> &[u8] {
        &self.0.as_ref()[8..24]
    }

    /// Destination address.
    #[inline]
    pub fn destination(&self) -> &[u8] {
        &self.0.as_ref()[24..40]
    }

    /// Parses Hop-by-Hop, Routing and Destination headers up to the upper layer, or up to a Fragment header
    /// (RFC 8200 section 4.1). All of them must be in the view's bytes.
    pub fn extensions(&self) -> Result<Extensions, Malformed> {
        let bytes = &self.0.as_ref()[IPV6_LEN..];
        let bytes = &bytes[..bytes.len().min(self.payload_len().into())];
        let mut next = self.next_header();
        let mut len = 0;
        for _ in 0..=EXTENSIONS_MAX {
            match next {
                protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION => {}
                _ => {
                    let fragment = next == protocol::FRAGMENT;
                    return Ok(Extensions { len, protocol: next, fragment });
                }
            }
            let [following, units, ..] = bytes[len..] else {
                return Err(Malformed::Ipv6Extension);
            };
            next = following;
            len += 8 + usize::from(units) * 8;
            if len > bytes.len() {
                return Err(Malformed::Ipv6Extension);
            }
        }
        Err(Malformed::Ipv6Extension)
    }

    /// The pseudo-header sum for an upper-layer packet of `len` bytes (RFC 8200 section 8.1).
    ///
    /// With a Routing header the final destination counts; packets met by their final receiver
    /// carry it in the fixed header, which is what is read here.
    #[inline]
    pub fn pseudo_header(&self, protocol: u8, len: usize) -> Sum {
        checksum::pseudo_v6(&self.0.as_ref()[8..40], protocol, len)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv6<T> {
    /// Sets the payload length.
    #[inline]
    pub fn set_payload_len(&mut self, len: u16) {
        put16(self.0.as_mut(), 4, len);
    }

    /// Sets the traffic class.
    #[inline]
    pub fn set_traffic_class(&mut self, class: u8) {
        let bytes = self.0.as_mut();
        let first = be16(bytes, 0) & 0xf00f | u16::from(class) << 4;
        put16(bytes, 0, first);
    }
}
