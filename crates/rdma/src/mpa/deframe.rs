//! FPDUs out of a stream (RFC 5044 sections 4 and 6), where they lie: nothing is copied.

use alloc::vec::Vec;
use wire::checksum::Crc32c;

use super::layout::{
    CRC_LEN, LENGTH_LEN, MARKER_INTERVAL, MARKER_LEN, body_len, to_marker, wire_len,
};

/// A piece of what was received: bytes of one slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) slice: u32,
    pub(crate) start: u32,
    pub(crate) len: u32,
}

impl Span {
    /// Its bytes.
    pub(crate) fn of<'a>(&self, slices: &[&'a [u8]]) -> &'a [u8] {
        let start = self.start as usize;
        slices
            .get(self.slice as usize)
            .and_then(|slice| slice.get(start..start + self.len as usize))
            .unwrap_or_default()
    }
}

/// What is wrong with an FPDU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Malformed {
    /// The CRC is that of other bytes.
    Crc,
    /// A marker does not point to where the FPDU begins.
    Marker,
}

/// A place in the slices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    slice: usize,
    offset: usize,
    /// Bytes from here to the end.
    pub(crate) left: usize,
}

impl Cursor {
    pub(crate) fn new(slices: &[&[u8]]) -> Self {
        Self { slice: 0, offset: 0, left: slices.iter().map(|slice| slice.len()).sum() }
    }

    /// What is left of this slice, and its place; the next slice if that is nothing.
    fn chunk<'a>(&mut self, slices: &[&'a [u8]]) -> &'a [u8] {
        while let Some(slice) = slices.get(self.slice) {
            if self.offset < slice.len() {
                return &slice[self.offset..];
            }
            self.slice += 1;
            self.offset = 0;
        }
        &[]
    }

    fn advance(&mut self, len: usize) {
        self.offset += len;
        self.left -= len;
    }

    /// The next bytes, gathered from as many slices as they lie in. So many must be left.
    fn array<const N: usize>(&mut self, slices: &[&[u8]]) -> [u8; N] {
        let mut array = [0; N];
        let mut have = 0;
        while have < N {
            let chunk = self.chunk(slices);
            let len = chunk.len().min(N - have);
            if len == 0 {
                break;
            }
            array[have..have + len].copy_from_slice(&chunk[..len]);
            self.advance(len);
            have += len;
        }
        array
    }
}

/// The receiving end of a stream in full operation.
#[derive(Clone, Debug)]
pub(crate) struct Deframer {
    markers: bool,
    crc: bool,
    /// Bytes of the stream that are behind, since full operation began.
    position: u64,
}

impl Deframer {
    pub(crate) fn new(markers: bool, crc: bool) -> Self {
        Self { markers, crc, position: 0 }
    }

    /// The next FPDU: the spans of its ULPDU are appended to `spans`, and the cursor is behind it. `false` if it
    /// is not all there; nothing has changed then. An FPDU that is returned has been checked: nothing of it is
    /// used before (RFC 5044 section 4.4: data of an FPDU whose CRC is wrong MUST NOT be delivered).
    pub(crate) fn next(
        &mut self,
        slices: &[&[u8]],
        cursor: &mut Cursor,
        spans: &mut Vec<Span>,
    ) -> Result<bool, Malformed> {
        if !self.markers {
            let chunk = cursor.chunk(slices);
            if let Some(length) = chunk.first_chunk::<LENGTH_LEN>() {
                let ulpdu = usize::from(u16::from_be_bytes(*length));
                let body = body_len(ulpdu);
                if let Some((before, sum)) =
                    chunk.get(..body).and_then(|fpdu| fpdu.split_last_chunk::<CRC_LEN>())
                {
                    self.verify(Crc32c::new().plus(before), *sum)?;
                    let start = cursor.offset + LENGTH_LEN;
                    push(spans, cursor.slice, start, ulpdu);
                    cursor.advance(body);
                    self.position = self.position.wrapping_add(body as u64);
                    return Ok(true);
                }
            }
        }
        self.next_in_pieces(slices, cursor, spans)
    }

    fn verify(&self, crc: Crc32c, sum: [u8; CRC_LEN]) -> Result<(), Malformed> {
        // RFC 5044 section 4.4: without CRCs the field is there and MUST NOT be looked at.
        if self.crc && crc.finish().to_le_bytes() != sum {
            return Err(Malformed::Crc);
        }
        Ok(())
    }

    /// An FPDU with markers, or one that lies in several slices.
    fn next_in_pieces(
        &mut self,
        slices: &[&[u8]],
        cursor: &mut Cursor,
        spans: &mut Vec<Span>,
    ) -> Result<bool, Malformed> {
        let mut at = *cursor;
        let leads = self.markers && to_marker(self.position) == 0;
        if at.left < LENGTH_LEN + if leads { MARKER_LEN } else { 0 } {
            return Ok(false);
        }
        let mut crc = Crc32c::new();
        if leads {
            // A marker before the length belongs to this FPDU, and points to the length that follows.
            let marker: [u8; MARKER_LEN] = at.array(slices);
            crc = crc.plus(&marker);
            check_marker(marker, 0)?;
        }
        let length: [u8; LENGTH_LEN] = at.array(slices);
        let ulpdu = usize::from(u16::from_be_bytes(length));
        let body = body_len(ulpdu);
        let len = wire_len(self.position, body, self.markers);
        if cursor.left < len {
            return Ok(false);
        }
        crc = crc.plus(&length);
        let begun = spans.len();
        let result = self.walk(slices, &mut at, spans, Walk { crc, ulpdu, body });
        match result {
            Ok(()) => {
                debug_assert_eq!(cursor.left - at.left, len);
                *cursor = at;
                self.position = self.position.wrapping_add(len as u64);
                Ok(true)
            }
            Err(malformed) => {
                spans.truncate(begun);
                Err(malformed)
            }
        }
    }

    /// What is behind the length: the rest of the body, with the markers in it.
    fn walk(
        &self,
        slices: &[&[u8]],
        at: &mut Cursor,
        spans: &mut Vec<Span>,
        Walk { mut crc, ulpdu, body }: Walk,
    ) -> Result<(), Malformed> {
        let leads = self.markers && to_marker(self.position) == 0;
        // From the length field on, in bytes of the stream and of the body.
        let (mut stream, mut done) = (LENGTH_LEN, LENGTH_LEN);
        let mut until_marker = match (self.markers, leads) {
            (false, _) => usize::MAX,
            (true, true) => MARKER_INTERVAL - MARKER_LEN - LENGTH_LEN,
            (true, false) => to_marker(self.position) - LENGTH_LEN,
        };
        while done < body - CRC_LEN {
            if until_marker == 0 {
                crc = self.marker(slices, at, crc, &mut stream)?;
                until_marker = MARKER_INTERVAL - MARKER_LEN;
            }
            let chunk = at.chunk(slices);
            let len = chunk.len().min(body - CRC_LEN - done).min(until_marker);
            if len == 0 {
                debug_assert!(false, "the whole FPDU is there");
                return Err(Malformed::Marker);
            }
            crc = crc.plus(&chunk[..len]);
            let of_ulpdu = len.min((LENGTH_LEN + ulpdu).saturating_sub(done));
            if of_ulpdu > 0 {
                push(spans, at.slice, at.offset, of_ulpdu);
            }
            at.advance(len);
            (done, stream) = (done + len, stream + len);
            until_marker = until_marker.saturating_sub(len);
        }
        // RFC 5044 section 4.4: a marker right before the CRC is covered by it.
        if until_marker == 0 {
            crc = self.marker(slices, at, crc, &mut stream)?;
        }
        let sum = at.array(slices);
        self.verify(crc, sum)
    }

    fn marker(
        &self,
        slices: &[&[u8]],
        at: &mut Cursor,
        crc: Crc32c,
        stream: &mut usize,
    ) -> Result<Crc32c, Malformed> {
        let marker: [u8; MARKER_LEN] = at.array(slices);
        check_marker(marker, *stream)?;
        *stream += MARKER_LEN;
        Ok(crc.plus(&marker))
    }
}

struct Walk {
    crc: Crc32c,
    ulpdu: usize,
    body: usize,
}

/// RFC 5044 section 4.3: the pointer is the distance from the ULPDU length to the marker, and its two lowest bits
/// MUST be taken for zero. The other 16 bits are reserved, and not looked at.
fn check_marker(marker: [u8; MARKER_LEN], distance: usize) -> Result<(), Malformed> {
    let pointer = usize::from(u16::from_be_bytes([marker[2], marker[3]]) & !3);
    // An FPDU is longer than 16 bits can say only in its last marker or two.
    if pointer == distance & 0xfffc { Ok(()) } else { Err(Malformed::Marker) }
}

fn push(spans: &mut Vec<Span>, slice: usize, start: usize, len: usize) {
    spans.push(Span { slice: slice as u32, start: start as u32, len: len as u32 });
}
