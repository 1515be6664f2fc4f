//! What one call needs and leaves behind empty: allocated once, not for each call.

use alloc::vec::Vec;

use super::cq::Completion;
use crate::memory::{Extent, Placed};
use crate::mpa::deframe::Span;
use crate::mpa::framing::Laid;

#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The ULPDU at hand.
    pub(crate) spans: Vec<Span>,
    /// What is to be placed.
    pub(crate) placed: Vec<Placed>,
    /// Values among it that do not lie in the stream as they are stored.
    pub(crate) values: Vec<[u8; 8]>,
    /// What is told when it has been placed.
    pub(crate) deliveries: Vec<Delivery>,
    /// What is to be gathered.
    pub(crate) extents: Vec<Extent>,
    /// Bytes that replace gathered ones.
    pub(crate) patches: Vec<Patch>,
    /// What FPDUs are laid out.
    pub(crate) records: Vec<Record>,
}

/// Something that is told once so many pieces are placed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    pub(crate) after: usize,
    pub(crate) what: Delivered,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Delivered {
    /// A receive is complete.
    Receive { completion: Completion, solicited: bool },
    /// A read or atomic is.
    Request { place: u32 },
}

/// A part of eight bytes, and where it goes: a place in the buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patch {
    pub(crate) at: usize,
    pub(crate) bytes: [u8; 8],
    pub(crate) begin: usize,
    pub(crate) end: usize,
}

/// An FPDU that is laid out.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) laid: Laid,
    /// The extents of this FPDU, and of those before it.
    pub(crate) extents: usize,
    /// The work that is in the stream whole with it.
    pub(crate) completes: Option<u32>,
    /// The work whose bytes these are; `None` for responses.
    pub(crate) of: Option<u32>,
}
