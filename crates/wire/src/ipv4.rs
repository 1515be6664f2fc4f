//! IPv4 headers (RFC 791).

use crate::checksum::{self, Sum};
use crate::malformed::Malformed;
use crate::{be16, put16};

/// Bytes of an IPv4 header without options.
pub const IPV4_MIN_LEN: usize = 20;

/// A view of an IPv4 header and what follows it; the header, options included, is in range.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4<T>(T);

impl<T: AsRef<[u8]>> Ipv4<T> {
    /// Checks that `bytes` begin with a whole IPv4 header, and that its total length covers the header and
    /// does not exceed `bytes`.
    pub fn new(bytes: T) -> Result<Self, Malformed> {
        let view = Self::version_4(bytes)?;
        let header = view.header_len();
        let total = usize::from(view.total_len());
        if header < IPV4_MIN_LEN || header > total {
            return Err(Malformed::Ipv4HeaderLength);
        }
        if total > view.0.as_ref().len() {
            return Err(Malformed::Ipv4TotalLength);
        }
        Ok(view)
    }

    /// Checks that `bytes`, the first bytes of a packet, have a whole IPv4 header. The total length is not
    /// checked: the rest of the packet may be elsewhere.
    pub fn first(bytes: T) -> Result<Self, Malformed> {
        let view = Self::version_4(bytes)?;
        let header = view.header_len();
        if header < IPV4_MIN_LEN || header > view.0.as_ref().len() {
            return Err(Malformed::Ipv4HeaderLength);
        }
        Ok(view)
    }

    #[inline]
    fn version_4(bytes: T) -> Result<Self, Malformed> {
        let b = bytes.as_ref();
        if b.len() < IPV4_MIN_LEN {
            return Err(Malformed::ShortIpv4);
        }
        if b[0] >> 4 != 4 {
            return Err(Malformed::IpVersion);
        }
        Ok(Ipv4(bytes))
    }

    /// Header length in bytes, options included (IHL x 4).
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.0.as_ref()[0] & 0x0f) * 4
    }

    /// Type of service: DSCP and, in the low two bits, ECN (RFC 3168).
    #[inline]
    pub fn tos(&self) -> u8 {
        self.0.as_ref()[1]
    }

    /// Header and payload, in bytes.
    #[inline]
    pub fn total_len(&self) -> u16 {
        be16(self.0.as_ref(), 2)
    }

    /// Identification.
    #[inline]
    pub fn id(&self) -> u16 {
        be16(self.0.as_ref(), 4)
    }

    /// Flags and fragment offset as they stand: 0x4000 is DF, 0x2000 is MF.
    #[inline]
    pub fn fragment_field(&self) -> u16 {
        be16(self.0.as_ref(), 6)
    }

    /// Don't Fragment.
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        self.fragment_field() & 0x4000 != 0
    }

    /// Whether this is one fragment of a larger datagram (MF set or an offset other than 0).
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.fragment_field() & 0x3fff != 0
    }

    /// Time to live.
    #[inline]
    pub fn ttl(&self) -> u8 {
        self.0.as_ref()[8]
    }

    /// Protocol number of the payload.
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.0.as_ref()[9]
    }

    /// Source address.
    #[inline]
    pub fn source(&self) -> &[u8] {
        &self.0.as_ref()[12..16]
    }

    /// Destination address.
    #[inline]
    pub fn destination(&self) -> &[u8] {
        &self.0.as_ref()[16..20]
    }

    /// Whether the header checksum verifies.
    #[inline]
    pub fn checksum_ok(&self) -> bool {
        let header = &self.0.as_ref()[..self.header_len()];
        checksum::sum(header).fold() == 0xffff
    }

    /// The pseudo-header sum for an upper-layer packet of `len` bytes (RFC 9293 section 3.1).
    #[inline]
    pub fn pseudo_header(&self, len: usize) -> Sum {
        checksum::pseudo_v4(&self.0.as_ref()[12..20], self.protocol(), len)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv4<T> {
    /// Sets the total length. The checksum is left to be [filled](Self::fill_checksum).
    #[inline]
    pub fn set_total_len(&mut self, len: u16) {
        put16(self.0.as_mut(), 2, len);
    }

    /// Sets the identification.
    #[inline]
    pub fn set_id(&mut self, id: u16) {
        put16(self.0.as_mut(), 4, id);
    }

    /// Sets the type of service, and the checksum along with it: one that was wrong stays wrong
    /// (RFC 1624 section 3).
    #[inline]
    pub fn set_tos(&mut self, tos: u8) {
        let bytes = self.0.as_mut();
        let (before, checksum) = (be16(bytes, 0), be16(bytes, 10));
        bytes[1] = tos;
        let sum = Sum::default().plus_word(!checksum).plus_word(!before);
        let checksum = sum.plus_word(be16(bytes, 0)).complement();
        put16(bytes, 10, checksum);
    }

    /// Recomputes the header checksum.
    #[inline]
    pub fn fill_checksum(&mut self) {
        let len = self.header_len();
        let header = &mut self.0.as_mut()[..len];
        put16(header, 10, 0);
        let value = checksum::sum(header).complement();
        put16(header, 10, value);
    }
}
