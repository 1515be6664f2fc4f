//! RDMAP: what a message is (RFC 5040), with atomic operations and immediate data (RFC 7306).
//!
//! This module has the control field and the headers of requests; [`terminate`] has the message that ends a stream.

pub mod atomic;
pub mod terminate;

use crate::ddp::{QUEUE_ATOMIC, QUEUE_READ, QUEUE_SEND, QUEUE_TERMINATE};

/// The version of RDMAP (RFC 5040 section 4.1).
const VERSION: u8 = 1;

/// What a message is (RFC 5040 section 4.1 and RFC 7306 section 4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Opcode {
    /// RDMA Write.
    Write = 0x0,
    /// RDMA Read Request.
    ReadRequest = 0x1,
    /// RDMA Read Response.
    ReadResponse = 0x2,
    /// Send.
    Send = 0x3,
    /// Send with Invalidate.
    SendInvalidate = 0x4,
    /// Send with Solicited Event.
    SendSolicited = 0x5,
    /// Send with Solicited Event and Invalidate.
    SendSolicitedInvalidate = 0x6,
    /// Terminate.
    Terminate = 0x7,
    /// Immediate Data.
    Immediate = 0x8,
    /// Immediate Data with Solicited Event.
    ImmediateSolicited = 0x9,
    /// Atomic Request.
    AtomicRequest = 0xa,
    /// Atomic Response.
    AtomicResponse = 0xb,
}

/// Why a control field is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControlError {
    /// The version is another.
    Version,
    /// The operation is none, or not one for this kind of buffer or queue.
    Opcode,
}

impl Opcode {
    /// All of them, in the order of their numbers.
    pub const ALL: [Opcode; 12] = {
        use Opcode::*;
        [
            Write,
            ReadRequest,
            ReadResponse,
            Send,
            SendInvalidate,
            SendSolicited,
            SendSolicitedInvalidate,
            Terminate,
            Immediate,
            ImmediateSolicited,
            AtomicRequest,
            AtomicResponse,
        ]
    };

    /// The control field. Reserved bits are zero (RFC 5040 section 4.1).
    #[inline]
    pub fn control(self) -> u8 {
        VERSION << 6 | self as u8
    }

    /// The operation of a control field. Reserved bits are not looked at.
    ///
    /// # Errors
    /// See [`ControlError`] (RFC 5040 section 7.2: version and operation MUST be checked).
    #[inline]
    pub fn parse(control: u8) -> Result<Opcode, ControlError> {
        if control >> 6 != VERSION {
            return Err(ControlError::Version);
        }
        Self::ALL.get(usize::from(control & 0x0f)).copied().ok_or(ControlError::Opcode)
    }

    /// The untagged queue of its messages; `None` if they go to tagged buffers (RFC 5040 section 4.2).
    #[inline]
    pub fn queue(self) -> Option<u32> {
        use Opcode::*;
        match self {
            Write | ReadResponse => None,
            Send | SendInvalidate | SendSolicited | SendSolicitedInvalidate => Some(QUEUE_SEND),
            Immediate | ImmediateSolicited => Some(QUEUE_SEND),
            ReadRequest | AtomicRequest => Some(QUEUE_READ),
            Terminate => Some(QUEUE_TERMINATE),
            AtomicResponse => Some(QUEUE_ATOMIC),
        }
    }

    /// A Send of the four kinds.
    #[inline]
    pub fn send(solicited: bool, invalidate: bool) -> Opcode {
        match (solicited, invalidate) {
            (false, false) => Opcode::Send,
            (false, true) => Opcode::SendInvalidate,
            (true, false) => Opcode::SendSolicited,
            (true, true) => Opcode::SendSolicitedInvalidate,
        }
    }

    /// Whether the receiver's solicited events are meant (RFC 5040 section 5.3).
    #[inline]
    pub fn is_solicited(self) -> bool {
        use Opcode::*;
        matches!(self, SendSolicited | SendSolicitedInvalidate | ImmediateSolicited)
    }

    /// Whether the message names an STag to invalidate.
    #[inline]
    pub fn invalidates(self) -> bool {
        matches!(self, Opcode::SendInvalidate | Opcode::SendSolicitedInvalidate)
    }
}

/// Immediate data (RFC 7306 section 6.2). Verbs use the first four bytes.
pub const IMMEDIATE_LEN: usize = 8;

/// The header of an RDMA Read Request (RFC 5040 section 4.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadRequest {
    /// Where the response goes.
    pub sink_stag: u32,
    /// The tagged offset of its first byte.
    pub sink_offset: u64,
    /// The bytes to read.
    pub len: u32,
    /// What is read.
    pub source_stag: u32,
    /// The tagged offset of the first byte.
    pub source_offset: u64,
}

impl ReadRequest {
    /// Its length in bytes.
    pub const LEN: usize = 28;

    /// Its bytes.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.sink_stag.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.sink_offset.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.len.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.source_stag.to_be_bytes());
        bytes[20..].copy_from_slice(&self.source_offset.to_be_bytes());
        bytes
    }

    /// The request of these bytes.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Self {
        Self {
            sink_stag: word(bytes, 0),
            sink_offset: double(bytes, 4),
            len: word(bytes, 12),
            source_stag: word(bytes, 16),
            source_offset: double(bytes, 20),
        }
    }
}

/// The number at `at`; there must be four bytes.
fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |word| u32::from_be_bytes(*word))
}

/// The number at `at`; there must be eight bytes.
fn double(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |double| u64::from_be_bytes(*double))
}
