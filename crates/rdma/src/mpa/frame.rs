//! The frames of connection set-up: MPA Request and Reply (RFC 5044 section 7.1, RFC 6581 section 9).

use alloc::vec::Vec;
use core::fmt;

/// The key of a request.
const REQUEST_KEY: [u8; 16] = *b"MPA ID Req Frame";
/// The key of a reply.
const REPLY_KEY: [u8; 16] = *b"MPA ID Rep Frame";
/// Key, flags, revision and length of the private data.
const HEADER_LEN: usize = 20;
/// Most private data in a frame, in bytes, the four of enhanced set-up included (RFC 5044 section 7.1.1).
pub const PRIVATE_DATA_MAX: usize = 512;
/// What enhanced set-up takes of the private data (RFC 6581 section 9).
pub const ENHANCED_LEN: usize = 4;
/// The value of IRD or ORD that says that they are not negotiated here (RFC 6581 section 9.1).
pub const NOT_NEGOTIATED: u16 = 0x3fff;

const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECT: u8 = 0x20;
const ENHANCED: u8 = 0x10;

/// Which of the two frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// From the initiator.
    Request,
    /// From the responder.
    Reply,
}

impl Kind {
    fn key(self) -> &'static [u8; 16] {
        match self {
            Kind::Request => &REQUEST_KEY,
            Kind::Reply => &REPLY_KEY,
        }
    }
}

/// The messages that may tell the responder that the initiator is ready (Ready-To-Receive, RFC 6581 section 9.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RtrKinds {
    /// A Send of no bytes.
    pub send: bool,
    /// An RDMA Write of no bytes.
    pub write: bool,
    /// An RDMA Read of no bytes.
    pub read: bool,
}

impl RtrKinds {
    /// All three.
    pub const ALL: RtrKinds = RtrKinds { send: true, write: true, read: true };

    /// Those that both have.
    #[must_use]
    pub fn and(self, other: RtrKinds) -> RtrKinds {
        RtrKinds {
            send: self.send && other.send,
            write: self.write && other.write,
            read: self.read && other.read,
        }
    }

    /// The one to use: a write, else a read, else a send, as Linux siw prefers them.
    pub fn preferred(self) -> Option<Rtr> {
        let of = [(self.write, Rtr::Write), (self.read, Rtr::Read), (self.send, Rtr::Send)];
        of.into_iter().find_map(|(has, kind)| has.then_some(kind))
    }
}

/// One of the [`RtrKinds`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rtr {
    /// A Send of no bytes.
    Send,
    /// An RDMA Write of no bytes.
    Write,
    /// An RDMA Read of no bytes.
    Read,
}

impl From<Rtr> for RtrKinds {
    fn from(kind: Rtr) -> Self {
        RtrKinds { send: kind == Rtr::Send, write: kind == Rtr::Write, read: kind == Rtr::Read }
    }
}

/// What enhanced set-up says (RFC 6581 section 9): the first four bytes of the private data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Enhanced {
    /// Inbound reads that the sender of the frame takes at once, 14 bits.
    pub ird: u16,
    /// Outbound reads that the sender of the frame has at once, 14 bits.
    pub ord: u16,
    /// The control flag A: either side may send first.
    pub peer_to_peer: bool,
    /// The control flags B, C and D.
    pub rtr: RtrKinds,
}

impl Enhanced {
    fn parse(bytes: [u8; ENHANCED_LEN]) -> Self {
        let [ird, ord] = [[bytes[0], bytes[1]], [bytes[2], bytes[3]]].map(u16::from_be_bytes);
        Self {
            ird: ird & NOT_NEGOTIATED,
            ord: ord & NOT_NEGOTIATED,
            peer_to_peer: ird & 0x8000 != 0,
            rtr: RtrKinds {
                send: ird & 0x4000 != 0,
                write: ord & 0x8000 != 0,
                read: ord & 0x4000 != 0,
            },
        }
    }

    fn encode(self) -> [u8; ENHANCED_LEN] {
        let bit = |flag: bool, bit: u16| if flag { bit } else { 0 };
        let ird = self.ird.min(NOT_NEGOTIATED)
            | bit(self.peer_to_peer, 0x8000)
            | bit(self.rtr.send, 0x4000);
        let ord =
            self.ord.min(NOT_NEGOTIATED) | bit(self.rtr.write, 0x8000) | bit(self.rtr.read, 0x4000);
        let [a, b] = ird.to_be_bytes();
        let [c, d] = ord.to_be_bytes();
        [a, b, c, d]
    }
}

/// A request or a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Request or reply.
    pub kind: Kind,
    /// The flag M: the sender of the frame wants markers in what it receives.
    pub markers: bool,
    /// The flag C: the sender of the frame wants CRCs.
    pub crc: bool,
    /// The flag R: the connection is rejected. Zero in a request.
    pub reject: bool,
    /// The revision: 1 (RFC 5044) or 2 (RFC 6581).
    pub revision: u8,
    /// The flag S and what it announces. Revision 2 only.
    pub enhanced: Option<Enhanced>,
    /// What the two users of the connection say to each other: 512 bytes at most, or 508 with `enhanced`.
    pub private_data: &'a [u8],
}

/// Why bytes are no frame of connection set-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameError {
    /// The key is another's.
    Key,
    /// The private data are longer than 512 bytes, or shorter than what enhanced set-up needs.
    Length,
    /// A request says that it rejects.
    Reject,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FrameError::Key => "not an MPA frame: its key is another's",
            FrameError::Length => "an MPA frame whose private data have an impossible length",
            FrameError::Reject => "an MPA request with the flag of a reject",
        })
    }
}

impl core::error::Error for FrameError {}

impl<'a> Frame<'a> {
    /// The frame that `bytes` begin with, and its length; `None` if more bytes are needed to tell.
    ///
    /// # Errors
    /// See [`FrameError`]; a wrong key is told by its first wrong byte.
    pub fn parse(kind: Kind, bytes: &'a [u8]) -> Result<Option<(Self, usize)>, FrameError> {
        // RFC 5044 section 7.1.1: the key MUST be checked, and the connection closed if it is another.
        if !bytes.iter().zip(kind.key()).all(|(a, b)| a == b) {
            return Err(FrameError::Key);
        }
        let Some(header) = bytes.first_chunk::<HEADER_LEN>() else { return Ok(None) };
        let [flags, revision] = [header[16], header[17]];
        let length = usize::from(u16::from_be_bytes([header[18], header[19]]));
        // RFC 5044 section 7.1.1: PD_Length MUST NOT be over 512.
        if length > PRIVATE_DATA_MAX {
            return Err(FrameError::Length);
        }
        // RFC 5044 section 7.1.1: R MUST be zero in a request.
        if kind == Kind::Request && flags & REJECT != 0 {
            return Err(FrameError::Reject);
        }
        // S is a reserved bit before revision 2, which is not looked at.
        let is_enhanced = revision >= 2 && flags & ENHANCED != 0;
        if is_enhanced && length < ENHANCED_LEN && flags & REJECT == 0 {
            return Err(FrameError::Length);
        }
        let Some(private_data) = bytes[HEADER_LEN..].get(..length) else { return Ok(None) };
        let (enhanced, private_data) = match private_data.split_first_chunk() {
            Some((first, rest)) if is_enhanced => (Some(Enhanced::parse(*first)), rest),
            _ => (None, private_data),
        };
        let frame = Self {
            kind,
            markers: flags & MARKERS != 0,
            crc: flags & CRC != 0,
            reject: flags & REJECT != 0,
            revision,
            enhanced,
            private_data,
        };
        Ok(Some((frame, HEADER_LEN + length)))
    }

    /// Its bytes. Reserved bits are zero (RFC 5044 section 7.1.1).
    pub fn encode(&self) -> Vec<u8> {
        let extra = if self.enhanced.is_some() { ENHANCED_LEN } else { 0 };
        debug_assert!(self.private_data.len() + extra <= PRIVATE_DATA_MAX);
        let bit = |flag: bool, bit: u8| if flag { bit } else { 0 };
        let flags = bit(self.markers, MARKERS)
            | bit(self.crc, CRC)
            | bit(self.reject, REJECT)
            | bit(self.enhanced.is_some(), ENHANCED);
        let length = (self.private_data.len() + extra) as u16;
        let mut bytes = Vec::with_capacity(HEADER_LEN + usize::from(length));
        bytes.extend_from_slice(self.kind.key());
        bytes.extend_from_slice(&[flags, self.revision]);
        bytes.extend_from_slice(&length.to_be_bytes());
        if let Some(enhanced) = self.enhanced {
            bytes.extend_from_slice(&enhanced.encode());
        }
        bytes.extend_from_slice(self.private_data);
        bytes
    }
}
