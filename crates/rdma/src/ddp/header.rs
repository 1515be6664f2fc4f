//! The two headers of a DDP segment (RFC 5041 sections 4.1 to 4.3).

use super::error::{Error, Tagged as TaggedError, Untagged as UntaggedError};

/// A tagged header, the byte and the control field of RDMAP included.
pub const TAGGED_LEN: usize = 14;
/// An untagged header, with what RDMAP has of it.
pub const UNTAGGED_LEN: usize = 18;
/// The longer of the two.
pub const HEADER_MAX: usize = UNTAGGED_LEN;

const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
/// The version of DDP (RFC 5041 section 4.1), in the lowest two bits.
const VERSION: u8 = 1;
const VERSION_MASK: u8 = 0x03;

/// The header of a segment for a tagged buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tagged {
    /// The flag L: the last segment of its message.
    pub last: bool,
    /// RsvdULP: RDMAP's control field.
    pub ulp: u8,
    /// The steering tag: the buffer.
    pub stag: u32,
    /// The tagged offset of the first byte.
    pub offset: u64,
}

/// The header of a segment for an untagged buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Untagged {
    /// The flag L: the last segment of its message.
    pub last: bool,
    /// The first byte of RsvdULP: RDMAP's control field.
    pub ulp: u8,
    /// The rest of RsvdULP: the STag to invalidate, or zero.
    pub ulp_word: u32,
    /// The queue number.
    pub queue: u32,
    /// The message sequence number.
    pub msn: u32,
    /// The offset in the message of the first byte.
    pub offset: u32,
}

/// Either header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header {
    /// For a tagged buffer.
    Tagged(Tagged),
    /// For an untagged buffer.
    Untagged(Untagged),
}

fn control(tagged: bool, last: bool) -> u8 {
    VERSION | if tagged { TAGGED } else { 0 } | if last { LAST } else { 0 }
}

impl Tagged {
    /// Its bytes. Reserved bits are zero (RFC 5041 section 4.1).
    #[inline]
    pub fn encode(self) -> [u8; TAGGED_LEN] {
        let mut bytes = [0; TAGGED_LEN];
        bytes[0] = control(true, self.last);
        bytes[1] = self.ulp;
        bytes[2..6].copy_from_slice(&self.stag.to_be_bytes());
        bytes[6..].copy_from_slice(&self.offset.to_be_bytes());
        bytes
    }

    #[inline]
    fn parse(bytes: &[u8; TAGGED_LEN]) -> Self {
        let [control, ulp, a, b, c, d, offset @ ..] = *bytes;
        Self {
            last: control & LAST != 0,
            ulp,
            stag: u32::from_be_bytes([a, b, c, d]),
            offset: u64::from_be_bytes(offset),
        }
    }
}

impl Untagged {
    /// Its bytes. Reserved bits are zero (RFC 5041 section 4.1).
    #[inline]
    pub fn encode(self) -> [u8; UNTAGGED_LEN] {
        let mut bytes = [0; UNTAGGED_LEN];
        bytes[0] = control(false, self.last);
        bytes[1] = self.ulp;
        bytes[2..6].copy_from_slice(&self.ulp_word.to_be_bytes());
        bytes[6..10].copy_from_slice(&self.queue.to_be_bytes());
        bytes[10..14].copy_from_slice(&self.msn.to_be_bytes());
        bytes[14..].copy_from_slice(&self.offset.to_be_bytes());
        bytes
    }

    #[inline]
    fn parse(bytes: &[u8; UNTAGGED_LEN]) -> Self {
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Self {
            last: bytes[0] & LAST != 0,
            ulp: bytes[1],
            ulp_word: word(2),
            queue: word(6),
            msn: word(10),
            offset: word(14),
        }
    }
}

impl Header {
    /// The header that a ULPDU begins with; `None` if it is shorter than one.
    ///
    /// # Errors
    /// The version is another (RFC 5041 section 7: it MUST be checked).
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Result<Header, Error>> {
        let first = *bytes.first()?;
        let is_tagged = first & TAGGED != 0;
        let header = if is_tagged {
            Header::Tagged(Tagged::parse(bytes.first_chunk()?))
        } else {
            Header::Untagged(Untagged::parse(bytes.first_chunk()?))
        };
        Some(match (first & VERSION_MASK == VERSION, is_tagged) {
            (true, _) => Ok(header),
            (false, true) => Err(Error::Tagged(TaggedError::Version)),
            (false, false) => Err(Error::Untagged(UntaggedError::Version)),
        })
    }

    /// The length of the header that begins with this byte.
    #[inline]
    pub fn len_of(first: u8) -> usize {
        if first & TAGGED != 0 { TAGGED_LEN } else { UNTAGGED_LEN }
    }

    /// Its length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Header::Tagged(_) => TAGGED_LEN,
            Header::Untagged(_) => UNTAGGED_LEN,
        }
    }

    /// Never: a header has bytes.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The flag L: the last segment of its message.
    #[inline]
    pub fn is_last(&self) -> bool {
        match self {
            Header::Tagged(header) => header.last,
            Header::Untagged(header) => header.last,
        }
    }

    /// The control field of RDMAP.
    #[inline]
    pub fn ulp(&self) -> u8 {
        match self {
            Header::Tagged(header) => header.ulp,
            Header::Untagged(header) => header.ulp,
        }
    }
}
