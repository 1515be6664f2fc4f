//! The lanes of a worker: where packets go that have arrived, and what comes from there.
//!
//! ```text
//!   steer ──> host:    lro ──> deliver ──> host port          (host)
//!         ──> engine:  lro ──> iface ──> tcp ──> app          (engine, node)
//!         ──> handoff: lro ──> iface ──> tcp ──> rings        (handoff, engine, node)
//! ```

pub(crate) mod counters;
mod deliver;
pub(crate) mod engine;
mod give_back;
pub(crate) mod handoff;
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
