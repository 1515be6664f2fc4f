//! The Terminate message: why a stream ends, and the header of what failed (RFC 5040 section 4.8).

use core::fmt;

use super::ReadRequest;
use crate::ddp::{self, HEADER_MAX, TAGGED_LEN, TaggedError, UNTAGGED_LEN, UntaggedError};

/// The whole message at its longest: control field, length, and the headers of DDP and of a Read Request.
pub const TERMINATE_MAX: usize = 4 + 2 + UNTAGGED_LEN + ReadRequest::LEN;

/// Why a stream ends: layer, type and code (RFC 5040 section 4.8, RFC 5041 section 7.2, RFC 5044 section 8,
/// RFC 6581 section 8).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cause {
    /// RDMAP, 0x0: the local side cannot go on.
    Local,
    /// RDMAP, 0x1: a buffer is not to be used so.
    Protection(Protection),
    /// RDMAP, 0x2: a message is not to be sent so.
    Operation(Operation),
    /// DDP.
    Ddp(ddp::Error),
    /// MPA, the layer below DDP.
    Llp(Llp),
    /// A code that none of the RFCs has.
    Other {
        /// Four bits.
        layer: u8,
        /// Four bits.
        kind: u8,
        /// The code.
        code: u8,
    },
}

/// Remote protection errors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Protection {
    /// The STag is not that of a buffer.
    InvalidStag = 0x00,
    /// The access leaves the buffer.
    Bounds = 0x01,
    /// The buffer does not grant it.
    Access = 0x02,
    /// The STag is not for this stream.
    NotAssociated = 0x03,
    /// The offset passes 2^64.
    Wrap = 0x04,
    /// The STag cannot be invalidated by this stream.
    CannotInvalidate = 0x09,
    /// Any other.
    Unspecified = 0xff,
}

/// Remote operation errors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Operation {
    /// The version of RDMAP is another.
    Version = 0x05,
    /// The operation is none, or not expected now.
    Opcode = 0x06,
    /// The stream cannot go on.
    CatastrophicStream = 0x07,
    /// Nothing can go on.
    CatastrophicGlobal = 0x08,
    /// The STag cannot be invalidated.
    CannotInvalidate = 0x09,
    /// Any other.
    Unspecified = 0xff,
}

/// Errors of MPA.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Llp {
    /// The TCP connection is closed or lost.
    ConnectionLost = 0x01,
    /// A CRC is wrong.
    Crc = 0x02,
    /// A marker and the ULPDU length do not agree.
    Marker = 0x03,
    /// A request or reply is malformed.
    InvalidFrame = 0x04,
    /// RFC 6581: the local side cannot go on.
    Local = 0x05,
    /// RFC 6581: the responder's ORD is over the initiator's IRD.
    InsufficientIrd = 0x06,
    /// RFC 6581: no ready message in common.
    NoMatchingRtr = 0x07,
}

impl Protection {
    /// All of them.
    pub const ALL: [Protection; 7] = {
        use Protection::*;
        [InvalidStag, Bounds, Access, NotAssociated, Wrap, CannotInvalidate, Unspecified]
    };
}

impl Operation {
    /// All of them.
    pub const ALL: [Operation; 6] = {
        use Operation::*;
        [Version, Opcode, CatastrophicStream, CatastrophicGlobal, CannotInvalidate, Unspecified]
    };
}

impl Llp {
    /// All of them.
    pub const ALL: [Llp; 7] = {
        use Llp::*;
        [ConnectionLost, Crc, Marker, InvalidFrame, Local, InsufficientIrd, NoMatchingRtr]
    };
}

const LAYER_RDMAP: u8 = 0;
const LAYER_DDP: u8 = 1;
const LAYER_LLP: u8 = 2;

impl Cause {
    /// Layer, type and code.
    pub fn codes(self) -> (u8, u8, u8) {
        match self {
            Cause::Local => (LAYER_RDMAP, 0, 0),
            Cause::Protection(code) => (LAYER_RDMAP, 1, code as u8),
            Cause::Operation(code) => (LAYER_RDMAP, 2, code as u8),
            Cause::Ddp(ddp::Error::Catastrophic) => (LAYER_DDP, 0, 0),
            Cause::Ddp(ddp::Error::Tagged(code)) => (LAYER_DDP, 1, code as u8),
            Cause::Ddp(ddp::Error::Untagged(code)) => (LAYER_DDP, 2, code as u8),
            Cause::Llp(code) => (LAYER_LLP, 0, code as u8),
            Cause::Other { layer, kind, code } => (layer & 0xf, kind & 0xf, code),
        }
    }

    /// The cause with these numbers. The code of a catastrophic error says nothing.
    pub fn from_codes(layer: u8, kind: u8, code: u8) -> Self {
        let known = match (layer, kind) {
            (LAYER_RDMAP, 0) => Some(Cause::Local),
            (LAYER_RDMAP, 1) => {
                find(&Protection::ALL, |of| of as u8 == code).map(Cause::Protection)
            }
            (LAYER_RDMAP, 2) => find(&Operation::ALL, |of| of as u8 == code).map(Cause::Operation),
            (LAYER_DDP, 0) => Some(Cause::Ddp(ddp::Error::Catastrophic)),
            (LAYER_DDP, 1) => find(&TaggedError::ALL, |of| of as u8 == code)
                .map(|code| Cause::Ddp(ddp::Error::Tagged(code))),
            (LAYER_DDP, 2) => find(&UntaggedError::ALL, |of| of as u8 == code)
                .map(|code| Cause::Ddp(ddp::Error::Untagged(code))),
            (LAYER_LLP, 0) => find(&Llp::ALL, |of| of as u8 == code).map(Cause::Llp),
            _ => None,
        };
        known.unwrap_or(Cause::Other { layer, kind, code })
    }

    /// Whether the headers of the message that failed go with it: they do not if it cannot be told which it was
    /// (RFC 5040 section 4.8, its table of header control bits).
    fn names_message(self) -> bool {
        match self {
            Cause::Protection(_) | Cause::Operation(_) => true,
            Cause::Ddp(error) => error != ddp::Error::Catastrophic,
            Cause::Local | Cause::Llp(_) | Cause::Other { .. } => false,
        }
    }
}

fn find<T: Copy>(all: &[T], is: impl Fn(T) -> bool) -> Option<T> {
    all.iter().copied().find(|of| is(*of))
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (layer, kind, code) = self.codes();
        match self {
            Cause::Local => f.write_str("local catastrophic error"),
            Cause::Protection(of) => write!(f, "remote protection error: {of:?}"),
            Cause::Operation(of) => write!(f, "remote operation error: {of:?}"),
            Cause::Ddp(of) => write!(f, "DDP error: {of:?}"),
            Cause::Llp(of) => write!(f, "MPA error: {of:?}"),
            Cause::Other { .. } => f.write_str("an error that has no name"),
        }?;
        write!(f, " ({layer:#x}/{kind:#x}/{code:#04x})")
    }
}

impl From<TaggedError> for Cause {
    fn from(error: TaggedError) -> Self {
        Cause::Ddp(ddp::Error::Tagged(error))
    }
}

impl From<UntaggedError> for Cause {
    fn from(error: UntaggedError) -> Self {
        Cause::Ddp(ddp::Error::Untagged(error))
    }
}

/// The segment that failed, as a Terminate message repeats it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failed {
    /// The length of the DDP segment.
    pub segment_len: u16,
    /// Its header as it came, with zeros behind it.
    header: [u8; HEADER_MAX],
    /// The header of the Read Request that it carried.
    pub read: Option<ReadRequest>,
}

impl Failed {
    /// A segment with this header.
    pub fn new(segment_len: u16, header: ddp::Header, read: Option<ReadRequest>) -> Self {
        let mut bytes = [0; HEADER_MAX];
        match header {
            ddp::Header::Tagged(header) => bytes[..TAGGED_LEN].copy_from_slice(&header.encode()),
            ddp::Header::Untagged(header) => bytes.copy_from_slice(&header.encode()),
        }
        Self { segment_len, header: bytes, read }
    }

    /// The segment that these bytes begin, as it came; `None` if they are no whole header.
    pub fn of_bytes(segment_len: u16, bytes: &[u8]) -> Option<Self> {
        let len = ddp::Header::len_of(*bytes.first()?);
        let mut header = [0; HEADER_MAX];
        header[..len].copy_from_slice(bytes.get(..len)?);
        Some(Self { segment_len, header, read: None })
    }

    /// The header; `None` if it is of another version of DDP.
    pub fn header(&self) -> Option<ddp::Header> {
        ddp::Header::parse(&self.header)?.ok()
    }

    fn bytes(&self) -> &[u8] {
        &self.header[..ddp::Header::len_of(self.header[0])]
    }
}

/// A Terminate message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terminate {
    /// Why.
    pub cause: Cause,
    /// What failed, if that can be told.
    pub failed: Option<Failed>,
}

/// The length of the segment is valid.
const HAS_LENGTH: u8 = 0x80;
/// The DDP header is there.
const HAS_DDP: u8 = 0x40;
/// The RDMAP header is there.
const HAS_RDMAP: u8 = 0x20;

impl Terminate {
    /// A message for this cause; what failed goes with it if the cause is about a message.
    pub fn new(cause: Cause, failed: Option<Failed>) -> Self {
        Self { cause, failed: failed.filter(|_| cause.names_message()) }
    }

    /// Its bytes, in `buffer`.
    pub fn encode<'b>(&self, buffer: &'b mut [u8; TERMINATE_MAX]) -> &'b [u8] {
        let (layer, kind, code) = self.cause.codes();
        buffer.fill(0);
        buffer[..2].copy_from_slice(&[layer << 4 | kind, code]);
        let Some(failed) = self.failed else { return &buffer[..4] };
        buffer[2] = HAS_LENGTH | HAS_DDP;
        buffer[4..6].copy_from_slice(&failed.segment_len.to_be_bytes());
        let mut len = 6;
        let mut put = |bytes: &[u8]| {
            buffer[len..len + bytes.len()].copy_from_slice(bytes);
            len += bytes.len();
        };
        put(failed.bytes());
        if let Some(read) = failed.read {
            put(&read.encode());
            buffer[2] |= HAS_RDMAP;
        }
        &buffer[..len]
    }

    /// The message of these bytes; `None` if they are too few. What is behind the control field is taken if it is
    /// whole and of DDP, else left out: the stream ends in any case.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let ([first, code, bits, _], rest) = bytes.split_first_chunk()?;
        let cause = Cause::from_codes(first >> 4, first & 0xf, *code);
        let headers = HAS_LENGTH | HAS_DDP;
        let failed = (bits & headers == headers).then(|| Self::failed(rest, *bits)).flatten();
        Some(Self { cause, failed })
    }

    fn failed(bytes: &[u8], bits: u8) -> Option<Failed> {
        let (segment_len, rest) = bytes.split_first_chunk()?;
        let failed = Failed::of_bytes(u16::from_be_bytes(*segment_len), rest)?;
        let rest = rest.get(failed.bytes().len()..)?;
        let has_read = bits & HAS_RDMAP != 0;
        let read = rest.first_chunk().filter(|_| has_read).map(ReadRequest::parse);
        Some(Failed { read, ..failed })
    }
}

const _: () = assert!(TERMINATE_MAX >= 6 + TAGGED_LEN + ReadRequest::LEN);
