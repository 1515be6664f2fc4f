//! Payload whose bytes identify their place in a stream.

/// `len` bytes from `offset` of an endless stream, the same for every call. Pieces that are swapped, lost or
/// duplicated differ from it.
pub fn pattern(offset: usize, len: usize) -> Vec<u8> {
    (offset..offset + len).map(|i| ((i as u32).wrapping_mul(0x9e37_79b1) >> 23) as u8).collect()
}
