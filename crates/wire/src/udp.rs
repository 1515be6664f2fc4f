//! UDP headers (RFC 768).

use crate::malformed::Malformed;
use crate::{be16, put16};

/// Bytes of a UDP header.
pub const UDP_LEN: usize = 8;

/// A view of a UDP header.
#[derive(Clone, Copy, Debug)]
pub struct Udp<T>(T);

impl<T: AsRef<[u8]>> Udp<T> {
    /// Checks that `bytes` (the IP payload) hold a whole UDP header and the bytes of its length.
    pub fn new(bytes: T) -> Result<Self, Malformed> {
        let b = bytes.as_ref();
        if b.len() < UDP_LEN {
            return Err(Malformed::ShortUdp);
        }
        let len = usize::from(be16(b, 4));
        if len < UDP_LEN || len > b.len() {
            return Err(Malformed::UdpLength);
        }
        Ok(Udp(bytes))
    }

    /// Source port.
    #[inline]
    pub fn source(&self) -> u16 {
        be16(self.0.as_ref(), 0)
    }

    /// Destination port.
    #[inline]
    pub fn destination(&self) -> u16 {
        be16(self.0.as_ref(), 2)
    }

    /// Header and payload, in bytes.
    #[inline]
    pub fn length(&self) -> u16 {
        be16(self.0.as_ref(), 4)
    }

    /// The checksum field; 0 means that the sender computed none (IPv4 only).
    #[inline]
    pub fn checksum(&self) -> u16 {
        be16(self.0.as_ref(), 6)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Udp<T> {
    /// Sets the length field.
    #[inline]
    pub fn set_length(&mut self, len: u16) {
        put16(self.0.as_mut(), 4, len);
    }

    /// Sets the checksum field, a computed 0 as 0xFFFF (RFC 768: 0 would mean "none").
    #[inline]
    pub fn set_checksum(&mut self, value: u16) {
        put16(self.0.as_mut(), 6, if value == 0 { 0xffff } else { value });
    }
}
