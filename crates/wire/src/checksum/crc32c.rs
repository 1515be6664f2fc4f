//! CRC32c (Castagnoli), as SCTP (RFC 9260 appendix A), iSCSI and iWARP (RFC 5044) use it.

/// The polynomial 0x1EDC6F41, its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// A CRC32c in progress.
///
/// ```
/// use wire::checksum::Crc32c;
/// // RFC 3720 appendix B.4: 32 bytes of zeros.
/// assert_eq!(Crc32c::new().plus(&[0; 32]).finish().to_le_bytes(), [0xaa, 0x36, 0x91, 0x8a]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Crc32c(u32);

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

impl Crc32c {
    /// The CRC of no bytes.
    pub const fn new() -> Crc32c {
        Crc32c(u32::MAX)
    }

    /// The CRC after `bytes` are appended.
    #[inline]
    pub fn plus(self, bytes: &[u8]) -> Crc32c {
        #[cfg(target_arch = "x86_64")]
        if let Some(crc) = super::x86::crc32c(self.0, bytes) {
            return Crc32c(crc);
        }
        Crc32c(by_table(self.0, bytes))
    }

    /// The checksum. The protocols send it with its least significant byte first.
    pub const fn finish(self) -> u32 {
        !self.0
    }
}

/// Effect of each byte on the register, at each of eight distances from its end.
static TABLE: [[u32; 256]; 8] = {
    let mut table = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (POLYNOMIAL * (crc & 1));
            bit += 1;
        }
        table[0][byte] = crc;
        byte += 1;
    }
    let mut distance = 1;
    while distance < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = table[distance - 1][byte];
            table[distance][byte] = (before >> 8) ^ table[0][(before & 0xff) as usize];
            byte += 1;
        }
        distance += 1;
    }
    table
};

/// By table, eight bytes a step: for CPUs without a CRC32c instruction.
fn by_table(mut crc: u32, bytes: &[u8]) -> u32 {
    let (eights, rest) = bytes.as_chunks::<8>();
    for eight in eights {
        let word = u64::from_le_bytes(*eight) ^ u64::from(crc);
        crc = 0;
        for (distance, byte) in word.to_le_bytes().into_iter().enumerate() {
            crc ^= TABLE[7 - distance][usize::from(byte)];
        }
    }
    for byte in rest {
        crc = (crc >> 8) ^ TABLE[0][usize::from(crc as u8 ^ byte)];
    }
    crc
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;

    /// The definition, a bit at a time.
    fn by_bits(mut crc: u32, bytes: &[u8]) -> u32 {
        for byte in bytes {
            crc ^= u32::from(*byte);
            for _ in 0..8 {
                crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            }
        }
        crc
    }

    /// RFC 3720 appendix B.4.
    #[test]
    fn the_examples_of_rfc_3720() {
        let crc = |bytes: &[u8]| Crc32c::new().plus(bytes).finish();
        assert_eq!(crc(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc(&[0xff; 32]), 0x62a8_ab43);
        let up: std::vec::Vec<u8> = (0..32).collect();
        assert_eq!(crc(&up), 0x46dd_794e);
        assert_eq!(crc(b"123456789"), 0xe306_9283);
    }

    proptest! {
        #[test]
        fn every_path_agrees_with_the_definition(
            bytes in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..300),
                // Longer than three parts, and than twice as many.
                proptest::collection::vec(any::<u8>(), 700..1700),
            ],
            at: prop::sample::Index,
            start: u32,
        ) {
            let expected = by_bits(start, &bytes);
            let (a, b) = bytes.split_at(at.index(bytes.len() + 1));
            prop_assert_eq!(Crc32c(start).plus(a).plus(b).0, expected);
            prop_assert_eq!(by_table(by_table(start, a), b), expected);
        }
    }
}
