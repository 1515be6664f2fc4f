//! Where a segment lies, and the room for its headers.

/// The most header bytes that a segment may have: Ethernet, two VLAN tags, IPv6 and a TCP header
/// full of options are 122; the rest is room for IPv6 extension headers.
pub const MAX_HEADER_LEN: usize = 256;

/// Where one segment lies in the super-packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    pub(crate) header_len: usize,
    /// Bytes of what is cut before it.
    pub(crate) offset: usize,
    /// Without what stands in its header.
    pub(crate) payload: &'a [u8],
    pub(crate) first: bool,
    pub(crate) last: bool,
    /// Where the piece after it begins.
    pub(crate) next_offset: usize,
}
