//! FPDUs into a stream (RFC 5044 section 4).

use alloc::vec::Vec;
use core::ops::Range;
use wire::checksum::Crc32c;

use super::layout::{
    CRC_LEN, LENGTH_LEN, MARKER_INTERVAL, MARKER_LEN, body_len, to_marker, wire_len,
};

/// The sending end of a stream in full operation.
#[derive(Clone, Debug)]
pub(crate) struct Framer {
    markers: bool,
    crc: bool,
    /// Bytes of the stream that are laid out, since full operation began.
    position: u64,
}

/// An FPDU that is laid out, and sealed when its payload is in place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Laid {
    /// Its bytes of the buffer.
    pub(crate) bytes: Range<usize>,
}

impl Framer {
    pub(crate) fn new(markers: bool, crc: bool) -> Self {
        Self { markers, crc, position: 0 }
    }

    /// What a ULPDU of this length takes of the stream now.
    pub(crate) fn len(&self, ulpdu: usize) -> usize {
        wire_len(self.position, body_len(ulpdu), self.markers)
    }

    /// Begins an FPDU of this ULPDU length at `start`; there must be room for all of it.
    pub(crate) fn begin<'b>(&self, buffer: &'b mut [u8], start: usize, ulpdu: usize) -> Fpdu<'b> {
        let end = start + self.len(ulpdu);
        let mut fpdu = Fpdu {
            buffer,
            start,
            length_at: start,
            at: start,
            end,
            padding: body_len(ulpdu) - CRC_LEN - LENGTH_LEN - ulpdu,
            until_marker: if self.markers { to_marker(self.position) } else { usize::MAX },
        };
        if fpdu.until_marker == 0 {
            fpdu.length_at += MARKER_LEN;
            fpdu.marker();
        }
        debug_assert!(ulpdu <= usize::from(u16::MAX));
        fpdu.put(&(ulpdu as u16).to_be_bytes());
        fpdu
    }

    /// The FPDU is laid out: the stream goes on behind it.
    pub(crate) fn advance(&mut self, laid: &Laid) {
        self.position = self.position.wrapping_add(laid.bytes.len() as u64);
    }

    /// What was laid out from here on is not sent.
    pub(crate) fn back(&mut self, bytes: usize) {
        self.position = self.position.wrapping_sub(bytes as u64);
    }

    /// Writes the CRC, when all before it is in place. Without CRCs the field is zero.
    pub(crate) fn seal(&self, buffer: &mut [u8], laid: &Laid) {
        if !self.crc {
            return;
        }
        let fpdu = &mut buffer[laid.bytes.clone()];
        if let Some((before, sum)) = fpdu.split_last_chunk_mut::<CRC_LEN>() {
            *sum = Crc32c::new().plus(before).finish().to_le_bytes();
        }
    }
}

/// An FPDU that is being laid out.
#[derive(Debug)]
pub(crate) struct Fpdu<'b> {
    buffer: &'b mut [u8],
    start: usize,
    /// Where the ULPDU length is: markers point to it.
    length_at: usize,
    at: usize,
    end: usize,
    padding: usize,
    until_marker: usize,
}

impl Fpdu<'_> {
    /// RFC 5044 section 4.3: reserved bits zero, and the distance from the ULPDU length.
    fn marker(&mut self) {
        let distance = (self.at.saturating_sub(self.length_at)) as u16;
        debug_assert_eq!(distance % 4, 0);
        let [high, low] = distance.to_be_bytes();
        self.buffer[self.at..self.at + MARKER_LEN].copy_from_slice(&[0, 0, high, low]);
        self.at += MARKER_LEN;
        self.until_marker = MARKER_INTERVAL - MARKER_LEN;
    }

    /// Appends bytes of the ULPDU.
    #[inline]
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        let mut bytes = bytes;
        while !bytes.is_empty() {
            if self.until_marker == 0 {
                self.marker();
            }
            let (now, later) = bytes.split_at(bytes.len().min(self.until_marker));
            self.buffer[self.at..self.at + now.len()].copy_from_slice(now);
            self.at += now.len();
            self.until_marker -= now.len();
            bytes = later;
        }
    }

    /// Leaves room for bytes of the ULPDU that come later, and says where: `each` is given the places and lengths.
    #[inline]
    pub(crate) fn leave(&mut self, len: usize, mut each: impl FnMut(usize, usize)) {
        let mut left = len;
        while left > 0 {
            if self.until_marker == 0 {
                self.marker();
            }
            let now = left.min(self.until_marker);
            each(self.at, now);
            self.at += now;
            self.until_marker -= now;
            left -= now;
        }
    }

    /// Ends it: padding, which MUST be zero (RFC 5044 section 4.1), and room for the CRC.
    pub(crate) fn end(mut self) -> Laid {
        let padding = self.padding;
        self.put(&[0; 3][..padding]);
        if self.until_marker == 0 {
            self.marker();
        }
        self.buffer[self.at..self.at + CRC_LEN].fill(0);
        self.at += CRC_LEN;
        debug_assert_eq!(self.at, self.end);
        Laid { bytes: self.start..self.end }
    }
}

/// A whole FPDU by itself, as the first of a stream.
pub(crate) fn alone(ulpdu: &[u8], markers: bool, crc: bool) -> Vec<u8> {
    let framer = Framer::new(markers, crc);
    let mut bytes = alloc::vec![0; framer.len(ulpdu.len())];
    let mut fpdu = framer.begin(&mut bytes, 0, ulpdu.len());
    fpdu.put(ulpdu);
    let laid = fpdu.end();
    framer.seal(&mut bytes, &laid);
    bytes
}
