//! FPDUs come out of a stream as they went in, however it is cut; what is damaged does not come out.

extern crate std;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::deframe::{Cursor, Deframer, Malformed, Span};
use super::framing::{Framer, alone};
use super::layout::FPDU_MAX;

type Ulpdus = Vec<Vec<u8>>;

/// A stream of these ULPDUs. Payload is put, or left for later, in turn.
fn stream(ulpdus: &[Vec<u8>], markers: bool, crc: bool) -> Vec<u8> {
    let mut framer = Framer::new(markers, crc);
    let mut bytes = Vec::new();
    for (index, ulpdu) in ulpdus.iter().enumerate() {
        let start = bytes.len();
        bytes.resize(start + framer.len(ulpdu.len()), 0xee);
        let mut later = Vec::new();
        let mut fpdu = framer.begin(&mut bytes, start, ulpdu.len());
        let (head, tail) = ulpdu.split_at(ulpdu.len() / 3);
        fpdu.put(head);
        if index % 2 == 0 {
            fpdu.put(tail);
        } else {
            fpdu.leave(tail.len(), |at, len| later.push((at, len)));
        }
        let laid = fpdu.end();
        assert_eq!(laid.bytes, start..bytes.len());
        let mut tail = tail;
        for (at, len) in later {
            bytes[at..at + len].copy_from_slice(&tail[..len]);
            tail = &tail[len..];
        }
        framer.seal(&mut bytes, &laid);
        framer.advance(&laid);
    }
    bytes
}

fn ulpdu_of(slices: &[&[u8]], spans: &[Span]) -> Vec<u8> {
    spans.iter().flat_map(|span| span.of(slices)).copied().collect()
}

/// What comes out if the stream is given in parts, each in slices of its own.
fn deframed(
    bytes: &[u8],
    cuts: &[usize],
    markers: bool,
    crc: bool,
) -> Result<Ulpdus, (Ulpdus, Malformed)> {
    let mut deframer = Deframer::new(markers, crc);
    let (mut out, mut begun, mut have) = (Vec::new(), 0, 0);
    let mut cuts = cuts.iter().copied().cycle();
    while have < bytes.len() {
        have = (have + cuts.next().unwrap_or(1).max(1)).min(bytes.len());
        let mut given = &bytes[begun..have];
        let mut slices: Vec<&[u8]> = Vec::new();
        while !given.is_empty() {
            let (slice, rest) = given.split_at(cuts.next().unwrap_or(1).min(given.len()));
            slices.push(slice);
            given = rest;
            if slices.len() > 40 {
                slices.push(core::mem::take(&mut given));
            }
        }
        let mut cursor = Cursor::new(&slices);
        let all = cursor.left;
        loop {
            let mut spans = Vec::new();
            match deframer.next(&slices, &mut cursor, &mut spans) {
                Ok(true) => out.push(ulpdu_of(&slices, &spans)),
                Ok(false) => {
                    assert!(spans.is_empty());
                    break;
                }
                Err(malformed) => return Err((out, malformed)),
            }
        }
        begun += all - cursor.left;
        assert!(have - begun < FPDU_MAX);
    }
    assert_eq!(begun, bytes.len());
    Ok(out)
}

fn ulpdus() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let one = prop_oneof![
        4 => proptest::collection::vec(any::<u8>(), 0..64),
        2 => proptest::collection::vec(any::<u8>(), 400..1600),
        1 => proptest::collection::vec(any::<u8>(), 4000..9000),
    ];
    proptest::collection::vec(one, 1..8)
}

proptest! {
    #[test]
    fn what_goes_in_comes_out(
        ulpdus in ulpdus(),
        markers: bool,
        crc: bool,
        cuts in proptest::collection::vec(0usize..2000, 1..20),
    ) {
        let bytes = stream(&ulpdus, markers, crc);
        prop_assert_eq!(deframed(&bytes, &cuts, markers, crc), Ok(ulpdus));
    }

    /// RFC 5044 section 4.4: of an FPDU that is damaged, nothing is delivered. One bit is always found.
    #[test]
    fn a_bit_that_is_wrong(
        ulpdus in ulpdus(),
        markers: bool,
        at: prop::sample::Index,
        bit in 0u8..8,
    ) {
        let mut bytes = stream(&ulpdus, markers, true);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let mut deframer = Deframer::new(markers, true);
        let slices = [&bytes[..]];
        let mut cursor = Cursor::new(&slices);
        let mut out = Vec::new();
        loop {
            let mut spans = Vec::new();
            match deframer.next(&slices, &mut cursor, &mut spans) {
                Ok(true) => out.push(ulpdu_of(&slices, &spans)),
                // A length that became longer than all there is.
                Ok(false) => break,
                Err(_) => break,
            }
        }
        prop_assert!(out.len() < ulpdus.len());
        prop_assert_eq!(&out[..], &ulpdus[..out.len()]);
    }

    #[test]
    fn any_bytes_are_a_stream_or_none(
        bytes in proptest::collection::vec(any::<u8>(), 0..3000),
        markers: bool,
        crc: bool,
        cuts in proptest::collection::vec(1usize..700, 1..5),
    ) {
        let mut deframer = Deframer::new(markers, crc);
        let slices: Vec<&[u8]> = bytes.chunks(cuts[0]).collect();
        let mut cursor = Cursor::new(&slices);
        let mut spans = Vec::new();
        while let Ok(true) = deframer.next(&slices, &mut cursor, &mut spans) {
            prop_assert!(cursor.left < bytes.len());
        }
    }
}

/// RFC 5044 section 4.3: the first marker is where full operation begins, and each points to the ULPDU length.
#[test]
fn markers_where_the_rfc_has_them() {
    let bytes = stream(&[vec![0xaa; 1400], vec![0xbb; 90]], true, false);
    let marker = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    assert_eq!(marker(0), [0, 0, 0, 0]);
    assert_eq!(bytes[4..6], 1400u16.to_be_bytes());
    assert_eq!(marker(512), [0, 0, 0x01, 0xfc]);
    assert_eq!(marker(1024), [0, 0, 0x03, 0xfc]);
    // 2 + 1400 + 2 of padding + 4 of CRC, and three markers.
    assert_eq!(bytes[1420..1422], 90u16.to_be_bytes());
    // The second ends before the next marker is due.
    assert_eq!(bytes.len(), 1420 + 96);
}

/// An FPDU whose marker falls between padding and CRC, and one whose body ends where the next marker is due.
#[test]
fn markers_at_the_edges() {
    // The body of the first ends at 512: 4 of marker, 2 of length, ULPDU, 4 of CRC.
    let ends = vec![vec![1; 502], vec![2; 4]];
    let bytes = stream(&ends, true, true);
    assert_eq!(bytes[512..516], [0, 0, 0, 0], "it belongs to the second FPDU");
    assert_eq!(deframed(&bytes, &[7, 100], true, true), Ok(ends));
    // The CRC of the first begins at 512, where a marker is.
    let before_crc = vec![vec![1; 505], vec![2; 4]];
    let bytes = stream(&before_crc, true, true);
    assert_eq!(bytes[512..516], [0, 0, 0x01, 0xfc]);
    assert_eq!(deframed(&bytes, &[9], true, true), Ok(before_crc));
}

#[test]
fn a_marker_that_points_elsewhere() {
    let mut bytes = stream(&[vec![0; 1000]], true, false);
    bytes[515] ^= 4;
    assert_eq!(deframed(&bytes, &[4000], true, false), Err((vec![], Malformed::Marker)));
    // RFC 5044 section 4.3: the two lowest bits, and the reserved ones, are not looked at.
    bytes[515] ^= 4 | 3;
    bytes[512] = 0xff;
    assert_eq!(deframed(&bytes, &[4000], true, false).map(|out| out.len()), Ok(1));
}

/// RFC 5044 section 4.4: without CRCs the field is there, zero, and not looked at.
#[test]
fn without_crcs() {
    let mut bytes = alone(&[1, 2, 3], false, false);
    assert_eq!(bytes, [0, 3, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0]);
    bytes[11] = 9;
    assert_eq!(deframed(&bytes, &[5], false, false), Ok(vec![vec![1, 2, 3]]));
    assert_eq!(deframed(&bytes, &[5], false, true), Err((vec![], Malformed::Crc)));
}

/// The longest ULPDU that a length can say.
#[test]
fn the_longest_fpdu() {
    for markers in [false, true] {
        let longest = vec![vec![7; 65_535]];
        let bytes = stream(&longest, markers, true);
        assert!(bytes.len() <= FPDU_MAX);
        assert_eq!(deframed(&bytes, &[1448, 3000], markers, true), Ok(longest));
    }
}
