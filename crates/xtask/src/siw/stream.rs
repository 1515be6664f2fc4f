//! The FPDUs (RFC 5044) that this side has sent, by the frames of a wire: an oracle beside siw's. siw takes a CRC for a wrong one
//! that is cut by the end of a TCP segment.

use std::collections::{BTreeMap, BTreeSet};

use super::network::HERE;

/// What one connection's stream has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Stream {
    pub(super) fpdus: u32,
    /// FPDUs whose CRC is not right.
    pub(super) wrong: u32,
    /// Those whose padding and CRC a segment's end cuts.
    pub(super) cut: u32,
}

/// Of Ethernet, and where its payload begins.
const IPV4: [u8; 2] = [8, 0];
const ETHERNET: usize = 14;
const TCP: u8 = 6;
const SYN: u8 = 2;
/// Of MPA's frames for start-up: what they begin with, and their length without private data.
const MPA: &[u8] = b"MPA ID Re";
const MPA_LEN: usize = 20;

/// Those of these frames that this side has sent: of each the segments, by where they begin behind the SYN.
pub(super) fn of(frames: &[&[u8]]) -> Vec<Stream> {
    let mut first: BTreeMap<[u8; 4], u32> = BTreeMap::new();
    let mut segments: BTreeMap<[u8; 4], Vec<(u32, &[u8])>> = BTreeMap::new();
    for (ports, number, is_syn, payload) in frames.iter().filter_map(|frame| segment(frame)) {
        if is_syn {
            first.insert(ports, number.wrapping_add(1));
        } else if let Some(first) = first.get(&ports).filter(|_| !payload.is_empty()) {
            let begins = number.wrapping_sub(*first);
            segments.entry(ports).or_default().push((begins, payload));
        }
    }
    segments.into_values().filter_map(stream).collect()
}

/// Ports, sequence number, whether it is a SYN, and payload of a segment of this side's.
fn segment(frame: &[u8]) -> Option<([u8; 4], u32, bool, &[u8])> {
    if frame.get(12..ETHERNET)? != IPV4 {
        return None;
    }
    let ip = frame.get(ETHERNET..)?;
    let source = ip.get(12..16)?;
    let source = format!("{}.{}.{}.{}", source[0], source[1], source[2], source[3]);
    if ip[9] != TCP || source != HERE {
        return None;
    }
    let length = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    // Behind it is what pads a short frame.
    let tcp = ip.get(usize::from(ip[0] & 0xf) * 4..length)?;
    let ports = *tcp.first_chunk::<4>()?;
    let number = u32::from_be_bytes(tcp.get(4..8)?.try_into().ok()?);
    let payload = tcp.get(usize::from(tcp.get(12)? >> 4) * 4..)?;
    Some((ports, number, tcp[13] & SYN != 0, payload))
}

/// A stream of MPA's.
fn stream(segments: Vec<(u32, &[u8])>) -> Option<Stream> {
    let (mut bytes, mut ends) = (Vec::new(), BTreeSet::new());
    for (begins, payload) in segments {
        // What was sent once more has come before; nothing is lost where QEMU writes it down.
        let known = bytes.len().checked_sub(begins as usize)?;
        bytes.extend_from_slice(payload.get(known..).unwrap_or_default());
        ends.insert(begins as usize + payload.len());
    }
    if !bytes.starts_with(MPA) {
        return None;
    }
    let private = u16::from_be_bytes([*bytes.get(18)?, *bytes.get(19)?]);
    let mut at = MPA_LEN + usize::from(private);
    let mut found = Stream::default();
    while let Some(length) = bytes.get(at..at + 2) {
        let trailer = at + 2 + usize::from(u16::from_be_bytes([length[0], length[1]]));
        // FPDUs are multiples of four bytes.
        let crc = at + (trailer - at).next_multiple_of(4);
        let Some(sent) = bytes.get(crc..crc + 4) else { break };
        found.fpdus += 1;
        found.wrong += u32::from(sent != crc32c(&bytes[at..crc]).to_le_bytes());
        found.cut += u32::from(ends.range(trailer + 1..crc + 4).next().is_some());
        at = crc + 4;
    }
    Some(found)
}

/// CRC32c (RFC 3385), bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let bit = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| bit(crc)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of this side's with this payload.
    fn frame(number: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u16::try_from(40 + payload.len()).unwrap().to_be_bytes();
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0, length[0], length[1], 0, 0, 0, 0, 64, TCP, 0, 0, 10, 0, 2, 2]);
        frame.extend([10, 0, 2, 15, 1, 2, 3, 4]);
        frame.extend(number.to_be_bytes());
        frame.extend([0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
        frame.extend(payload);
        frame
    }

    fn fpdu(body: &[u8]) -> Vec<u8> {
        let mut fpdu = u16::try_from(body.len()).unwrap().to_be_bytes().to_vec();
        fpdu.extend(body);
        fpdu.resize(fpdu.len().next_multiple_of(4), 0);
        let crc = crc32c(&fpdu);
        fpdu.extend(crc.to_le_bytes());
        fpdu
    }

    fn judged(payloads: &[&[u8]]) -> Vec<Stream> {
        let mut number = u32::MAX;
        let mut frames = vec![frame(number, SYN, &[])];
        number = number.wrapping_add(1);
        for payload in payloads {
            frames.push(frame(number, 0x10, payload));
            number = number.wrapping_add(u32::try_from(payload.len()).unwrap());
        }
        // What is sent behind a FIN.
        frames.push(frame(number.wrapping_add(1), 0x10, &[]));
        let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        of(&frames)
    }

    #[test]
    fn crc32c_of_nine_digits() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn fpdus_are_found_with_their_faults() {
        let request = [&b"MPA ID Req Frame"[..], &[0x40, 1, 0, 2, 7, 7]].concat();
        let (one, other) = (fpdu(b"a body of odd length."), fpdu(b"one more"));
        let whole = Stream { fpdus: 2, wrong: 0, cut: 0 };
        assert_eq!(judged(&[&request, &[&one[..], &other].concat()]), [whole]);
        assert_eq!(judged(&[&request, &one[..9], &[&one[9..], &other].concat()]), [whole]);
        for left in 1..5 {
            let (begins, ends) = one.split_at(one.len() - left);
            assert_eq!(judged(&[&request, begins, ends, &other]), [Stream { cut: 1, ..whole }]);
        }
        let mut broken = one.clone();
        broken[5] ^= 1;
        assert_eq!(judged(&[&request, &broken, &other]), [Stream { wrong: 1, ..whole }]);
        assert_eq!(judged(&[b"GET / HTTP/1.0\r\n\r\n"]), []);
    }
}
