//! The lanes of a worker: where packets go that have arrived, and what comes from there.
//!
//! ```text
//!   steer ──> host:    lro ──> deliver ──> host port          (host)
//!         ──> engine:  lro ──> iface ──> tcp ──> app          (engine, node)
//! ```

pub(crate) mod counters;
pub(crate) mod cut;
mod deliver;
pub(crate) mod engine;
mod give_back;
pub(crate) mod host;
pub(crate) mod node;
mod output;
#[cfg(test)]
mod tests;
pub(crate) mod trace;

use lro::{RxChecksum, Slice};
use sys::frames::Frame;
use wire::VirtioNetHdr;

use crate::port::RxFrame;

/// A packet that has arrived, in the memory where it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived<'a> {
    /// From the Ethernet header on, all headers included.
    pub(crate) bytes: &'a [u8],
    /// What follows, where it lies elsewhere.
    pub(crate) rest: &'a [&'a [u8]],
    /// What is known of the transport's checksum.
    pub(crate) checksum: RxChecksum,
    /// Payload bytes of each segment that it was made of; 0 if it is one.
    pub(crate) gso_size: u16,
}

/// A packet of the engine's, in the memory where it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'a> {
    /// Checksum state, and how it is to be cut.
    pub(crate) vnet: VirtioNetHdr,
    /// From the Ethernet header on.
    pub(crate) header: &'a [u8],
    /// What follows, in one or two pieces.
    pub(crate) payload: [&'a [u8]; 2],
}

impl<'a> Packet<'a> {
    /// A frame in one piece.
    pub(crate) fn frame(vnet: VirtioNetHdr, bytes: &'a [u8]) -> Self {
        Packet { vnet, header: bytes, payload: [&[], &[]] }
    }

    /// Bytes, from the Ethernet header on.
    pub(crate) fn len(&self) -> usize {
        self.header.len() + self.payload[0].len() + self.payload[1].len()
    }
}

/// Where the engine's packets leave.
pub(crate) trait TxQueue {
    /// Whether there is room for one more packet, however large.
    fn has_room(&self) -> bool;

    /// Takes a packet, for which there [is room](Self::has_room). What becomes of it is counted.
    fn send(&mut self, packet: &Packet<'_>);
}

/// Frames ahead of the one at hand whose headers are fetched into the cache, and those that are
/// announced to LRO, which by then must be there.
const PREFETCH_AHEAD: usize = 16;
const ANNOUNCE_AHEAD: usize = 12;

/// Whether a frame was merged already by what handed it over.
fn is_merged(received: &RxFrame) -> bool {
    received.overflow > 0 || received.vnet.gso_type != wire::GsoType::None
}

/// What a `virtio_net_hdr` says of a checksum. One that needs completing comes from this machine, and is
/// as right as its memory is.
fn checksum_of(vnet: &VirtioNetHdr, maybe_partial: bool) -> RxChecksum {
    if vnet.needs_csum || vnet.data_valid {
        RxChecksum::Verified
    } else if maybe_partial {
        RxChecksum::MaybePartial
    } else {
        RxChecksum::Unverified
    }
}

/// The frame, cut to the payload that the aggregate takes from it.
fn payload(slice: Slice<RxFrame>) -> Frame {
    let mut frame = slice.frame.frame;
    frame.trim_front(slice.start);
    frame.truncate(slice.len);
    frame
}
