//! Work requests.

use super::access::Access;
use super::limits::MESSAGE_MAX;
use crate::memory::Handle;
use crate::rdmap::atomic::Operation;

/// Bytes of registered memory (`ibv_sge`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sge {
    /// The first byte, counted as the region's `iova` is.
    pub addr: u64,
    /// How many. Nothing is looked at if none.
    pub len: u32,
    /// The region.
    pub lkey: u32,
}

/// What a send queue is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// A message to a receive of the peer's.
    Send {
        /// The peer's STag that becomes invalid with it.
        invalidate: Option<u32>,
    },
    /// Bytes into the peer's memory.
    Write {
        /// The peer's STag.
        stag: u32,
        /// The tagged offset of the first byte.
        offset: u64,
    },
    /// As a write, and a receive of the peer's completes with four bytes (RFC 7306 section 6).
    WriteImmediate {
        /// The peer's STag.
        stag: u32,
        /// The tagged offset of the first byte.
        offset: u64,
        /// The four bytes, as the application has them in memory.
        immediate: [u8; 4],
    },
    /// Bytes out of the peer's memory, into one element.
    Read {
        /// The peer's STag.
        stag: u32,
        /// The tagged offset of the first byte.
        offset: u64,
    },
    /// An operation on eight bytes of the peer's memory; what was there goes into one element of eight bytes.
    Atomic {
        /// The peer's STag.
        stag: u32,
        /// The tagged offset, a multiple of eight.
        offset: u64,
        /// What is done.
        operation: Operation,
    },
    /// Binds a window.
    Bind(Bind),
    /// Makes a region of fast registration valid.
    FastRegister(FastRegister),
    /// Makes a region of fast registration, or a type 2 window, invalid.
    LocalInvalidate {
        /// Its STag.
        stag: u32,
    },
}

impl Work {
    /// Whether it can have a payload of so many bytes, in so many elements, or inline if `None`.
    #[inline]
    pub fn takes(&self, sges: Option<usize>, len: u64) -> bool {
        len <= u64::from(MESSAGE_MAX)
            && match self {
                Work::Send { .. } | Work::Write { .. } | Work::WriteImmediate { .. } => true,
                // The sink of a read is one buffer: its STag is in the request (RFC 5040 section 4.4).
                Work::Read { .. } => sges.is_some_and(|sges| sges <= 1),
                Work::Atomic { .. } => sges == Some(1) && len == 8,
                Work::Bind(_) | Work::FastRegister(_) | Work::LocalInvalidate { .. } => {
                    sges == Some(0)
                }
            }
    }
}

/// How a window is bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bind {
    /// The window's STag from now on: its index, and a key that the caller chooses.
    pub window: u32,
    /// The region.
    pub region: u32,
    /// The first byte, counted as the region's `iova` is.
    pub offset: u64,
    /// How many. None unbinds a type 1 window.
    pub len: u64,
    /// Remote rights.
    pub access: Access,
}

/// A fast registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FastRegister {
    /// The region's STag from now on: its index, and a key that the caller chooses.
    pub stag: u32,
    /// The tagged offset of its first byte.
    pub iova: u64,
    /// Its bytes.
    pub len: u64,
    /// Its rights.
    pub access: Access,
    /// The device's name for its memory.
    pub memory: Handle,
}

/// The bytes of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload<'a> {
    /// In registered memory, read when they are sent.
    Sges(&'a [Sge]),
    /// Here: they are copied when they are posted.
    Inline(&'a [u8]),
}

/// How work is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags {
    /// It completes with an entry in the completion queue. Failures do in any case.
    pub signaled: bool,
    /// The peer's completion is solicited.
    pub solicited: bool,
    /// It waits until all reads and atomics before it are done (the read fence).
    pub fence: bool,
    /// It waits until all work before it is done (the local fence).
    pub local_fence: bool,
}

/// A request for the send queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendRequest<'a> {
    /// What its completion is known by.
    pub wr_id: u64,
    /// What.
    pub work: Work,
    /// The bytes; none for work on regions and windows.
    pub payload: Payload<'a>,
    /// How.
    pub flags: Flags,
}

/// A request for a receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecvRequest<'a> {
    /// What its completion is known by.
    pub wr_id: u64,
    /// Where the message goes.
    pub sges: &'a [Sge],
}
