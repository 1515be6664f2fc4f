//! SCTP packets (RFC 9260), written field by field, and their checksum by its definition.

use crate::pattern::pattern;

/// Protocol number.
pub const SCTP: u8 = 132;

/// CRC32c, a bit at a time (RFC 9260 appendix A); sent with its least significant byte first.
pub fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    !crc
}

/// A packet, common header first, of these chunks and with its checksum.
pub fn packet(chunks: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = [40000u16.to_be_bytes(), 5201u16.to_be_bytes()].concat();
    bytes.extend(0xfeed_beefu32.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(chunks.concat());
    let crc = crc32c(&bytes);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// A chunk of `len` bytes, its header included and its padding not; padded to a multiple of four.
pub fn chunk(kind: u8, len: usize) -> Vec<u8> {
    let value = len.checked_sub(4).expect("a chunk has four bytes of header");
    let mut bytes = vec![kind, 3];
    bytes.extend(u16::try_from(len).expect("more than 65,535").to_be_bytes());
    bytes.extend(pattern(usize::from(kind), value));
    bytes.resize(len.next_multiple_of(4), 0);
    bytes
}

/// The chunks of a packet, without their padding.
///
/// # Errors
/// If it has no common header, its checksum does not verify, or a chunk is cut short.
pub fn chunks(packet: &[u8]) -> Result<Vec<&[u8]>, String> {
    if packet.len() < 12 {
        return Err("no SCTP header".into());
    }
    verify(packet)?;
    let (mut rest, mut all) = (&packet[12..], Vec::new());
    while !rest.is_empty() {
        let header = rest.first_chunk::<4>().ok_or("a chunk header cut short")?;
        let len = usize::from(header[2]) << 8 | usize::from(header[3]);
        let chunk = rest.get(..len).filter(|chunk| chunk.len() >= 4).ok_or("a chunk cut short")?;
        all.push(chunk);
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(all)
}

/// Checks the checksum of a packet of at least twelve bytes.
pub(crate) fn verify(packet: &[u8]) -> Result<(), String> {
    let there = u32::from_le_bytes([packet[8], packet[9], packet[10], packet[11]]);
    let crc = crc32c(&[&packet[..8], &[0; 4], &packet[12..]].concat());
    if crc == there { Ok(()) } else { Err(format!("SCTP checksum: {there:#x} is not {crc:#x}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720 appendix B.4.
    #[test]
    fn the_examples_of_rfc_3720() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn chunks_are_those_that_went_in() {
        let packet = packet(&[chunk(0, 17), chunk(3, 4)]);
        let lens = chunks(&packet).map(|chunks| chunks.iter().map(|c| c.len()).collect::<Vec<_>>());
        assert_eq!((packet.len(), lens), (12 + 20 + 4, Ok(vec![17, 4])));
    }
}
