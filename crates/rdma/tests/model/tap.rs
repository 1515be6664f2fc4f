//! What is on the wire, read by rules of its own: markers are taken out by their places, CRCs come from the
//! polynomial, and headers are taken apart by hand.

/// A DDP segment.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) opcode: u8,
    pub(crate) last: bool,
    pub(crate) to: To,
    pub(crate) payload: Vec<u8>,
    /// Where its FPDU ends in the stream, since full operation began.
    pub(crate) end: u64,
}

/// Where it goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum To {
    Tagged { stag: u32, offset: u64 },
    Untagged { queue: u32, msn: u32, offset: u32, word: u32 },
}

/// One direction of a stream, as it is written.
#[derive(Clone, Debug)]
pub(crate) struct Tap {
    pub(crate) markers: bool,
    crc: bool,
    position: u64,
}

impl Tap {
    pub(crate) fn new(markers: bool, crc: bool) -> Self {
        Self { markers, crc, position: 0 }
    }

    /// The FPDUs of what was written; it is whole ones.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<Vec<Segment>, String> {
        let mut all = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let (segment, len) = self.fpdu(rest)?;
            self.position += len as u64;
            all.push(Segment { end: self.position, ..segment });
            rest = &rest[len..];
        }
        Ok(all)
    }

    /// The FPDU at the begin, and its length with its markers.
    fn fpdu(&self, bytes: &[u8]) -> Result<(Segment, usize), String> {
        // Body bytes with their places in `bytes`, and markers with theirs.
        let (mut body, mut markers, mut covered) = (Vec::new(), Vec::new(), Vec::new());
        let mut at = 0;
        let mut need = 2;
        while body.len() < need {
            let place = self.position + at as u64;
            if self.markers && place.is_multiple_of(512) {
                let marker = bytes.get(at..at + 4).ok_or("a marker is cut")?;
                markers.push((at, marker.to_vec()));
                covered.extend_from_slice(marker);
                at += 4;
                continue;
            }
            body.push(*bytes.get(at).ok_or("an FPDU is cut")?);
            covered.push(bytes[at]);
            at += 1;
            if body.len() == 2 {
                let len = usize::from(u16::from_be_bytes([body[0], body[1]]));
                need = (2 + len).div_ceil(4) * 4 + 4;
            }
        }
        let begin = if markers.first().is_some_and(|(at, _)| *at == 0) { 4 } else { 0 };
        for (at, marker) in &markers {
            let pointer = at.saturating_sub(begin) as u16;
            let expected = [0, 0, pointer.to_be_bytes()[0], pointer.to_be_bytes()[1]];
            if marker[..] != expected {
                return Err(format!("marker {marker:?} at {at}, not {expected:?}"));
            }
        }
        let sum = &body[need - 4..];
        let expected = if self.crc { crc32c(&covered[..covered.len() - 4]) } else { 0 };
        if sum != expected.to_le_bytes() {
            return Err(format!("CRC {sum:?}, not {:?}", expected.to_le_bytes()));
        }
        let len = usize::from(u16::from_be_bytes([body[0], body[1]]));
        if body[2 + len..need - 4].iter().any(|byte| *byte != 0) {
            return Err("padding is not zero".to_owned());
        }
        Ok((segment(&body[2..2 + len])?, at))
    }
}

fn segment(ulpdu: &[u8]) -> Result<Segment, String> {
    let number = |at: usize, len: usize| {
        ulpdu[at..at + len].iter().fold(0u64, |all, byte| all << 8 | u64::from(*byte))
    };
    let is_tagged = ulpdu.first().ok_or("an empty ULPDU")? & 0x80 != 0;
    let header = if is_tagged { 14 } else { 18 };
    if ulpdu.len() < header {
        return Err(format!("a header of {} bytes", ulpdu.len()));
    }
    // Version 1 of both, and reserved bits zero.
    if ulpdu[0] & 0x3f != 1 || ulpdu[1] & 0xf0 != 0x40 {
        return Err(format!("control fields {:02x?}", &ulpdu[..2]));
    }
    let to = if is_tagged {
        To::Tagged { stag: number(2, 4) as u32, offset: number(6, 8) }
    } else {
        let [word, queue, msn, offset] = [2, 6, 10, 14].map(|at| number(at, 4) as u32);
        To::Untagged { queue, msn, offset, word }
    };
    Ok(Segment {
        opcode: ulpdu[1] & 0xf,
        last: ulpdu[0] & 0x40 != 0,
        to,
        payload: ulpdu[header..].to_vec(),
        end: 0,
    })
}

/// By its definition, with a table for each byte so that long runs end.
fn crc32c(bytes: &[u8]) -> u32 {
    static TABLE: std::sync::LazyLock<[u32; 256]> = std::sync::LazyLock::new(|| {
        std::array::from_fn(|byte| {
            (0..8).fold(byte as u32, |crc, _| (crc >> 1) ^ (0x82f6_3b78 * (crc & 1)))
        })
    });
    !bytes.iter().fold(u32::MAX, |crc, byte| (crc >> 8) ^ TABLE[usize::from(crc as u8 ^ byte)])
}
