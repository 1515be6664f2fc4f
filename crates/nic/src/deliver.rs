//! The last step of the way in: LRO's output, as slices, to the host port.

use std::io::IoSlice;

use lro::{Aggregate, Discard, Pass, Sink, Slice};
use sys::frames::FramePool;
use wire::VirtioNetHdr;

use crate::counters::{Counters, Refused};
use crate::port::{Host, RxFrame};

/// Memory for one delivery, kept from one to the next; empty between them.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    frames: Vec<Slice<RxFrame>>,
    slices: Vec<IoSlice<'static>>,
}

/// A worker's host port as LRO's [`Sink`].
#[derive(Debug)]
pub(crate) struct ToHost<'a, H> {
    host: &'a mut H,
    pool: &'a FramePool,
    counters: &'a mut Counters,
    scratch: &'a mut Scratch,
}

impl<'a, H: Host> ToHost<'a, H> {
    /// Borrows what a delivery needs from the worker.
    pub(crate) fn new(
        host: &'a mut H,
        pool: &'a FramePool,
        counters: &'a mut Counters,
        scratch: &'a mut Scratch,
    ) -> Self {
        ToHost { host, pool, counters, scratch }
    }

    /// Counts a frame from the wire.
    #[inline]
    pub(crate) fn count_received(&mut self, received: &RxFrame) {
        self.counters.wire_in.count(received.frame.len() + received.overflow as usize);
    }

    /// Delivers a frame as it came.
    #[inline]
    pub(crate) fn frame(&mut self, received: RxFrame) {
        let bytes = self.pool.bytes(&received.frame);
        let vnet = if received.maybe_partial { partial(bytes) } else { received.vnet };
        self.deliver(&vnet, &[IoSlice::new(bytes)]);
        self.pool.free(received.frame);
    }

    /// Delivers a super-packet that arrived as one: the part in its frame, and the rest.
    pub(crate) fn super_packet(&mut self, received: RxFrame, rest: &[u8]) {
        let first = IoSlice::new(self.pool.bytes(&received.frame));
        self.deliver(&received.vnet, &[first, IoSlice::new(rest)]);
        self.pool.free(received.frame);
    }

    fn deliver(&mut self, vnet: &VirtioNetHdr, slices: &[IoSlice<'_>]) {
        match self.host.deliver(vnet, slices) {
            Ok(()) => self.counters.host_in.count(slices.iter().map(|s| s.len()).sum()),
            Err(error) => self.counters.refused[Refused::from_error(&error) as usize] += 1,
        }
    }
}

impl<H: Host> Sink<RxFrame> for ToHost<'_, H> {
    fn pass(&mut self, received: RxFrame, _why: Pass) {
        self.frame(received);
    }

    /// One `writev`: the rewritten header, then the payloads where they lie.
    fn aggregate(&mut self, mut aggregate: Aggregate<'_, RxFrame>) {
        let vnet = aggregate.vnet();
        let header = aggregate.header();
        let mut frames = std::mem::take(&mut self.scratch.frames);
        frames.extend(std::iter::from_fn(|| aggregate.next_slice()));

        let mut slices = reuse(std::mem::take(&mut self.scratch.slices));
        slices.push(IoSlice::new(header));
        slices.extend(frames.iter().map(|slice| {
            let bytes = self.pool.bytes(&slice.frame.frame);
            IoSlice::new(&bytes[slice.start..slice.start + slice.len])
        }));
        self.deliver(&vnet, &slices);

        self.scratch.slices = reuse(slices);
        for slice in frames.drain(..) {
            self.pool.free(slice.frame.frame);
        }
        self.scratch.frames = frames;
    }

    fn discard(&mut self, received: RxFrame, _why: Discard) {
        self.pool.free(received.frame);
    }
}

/// A frame whose checksum is the pseudo-header's sum alone is told as such, as AF_PACKET would.
fn partial(bytes: &[u8]) -> VirtioNetHdr {
    wire::partial_checksum(bytes).map_or_else(VirtioNetHdr::default, |(start, offset)| {
        VirtioNetHdr {
            needs_csum: true,
            csum_start: start,
            csum_offset: offset,
            ..VirtioNetHdr::default()
        }
    })
}

/// An empty vector with the memory of `used`, for slices of any lifetime: collecting in place
/// keeps the allocation.
pub(crate) fn reuse<'b>(mut used: Vec<IoSlice<'_>>) -> Vec<IoSlice<'b>> {
    used.clear();
    used.into_iter().map(|_| IoSlice::new(&[])).collect()
}
