//! The last step of the way in: LRO's output, where it lies, to the host port.

use lro::{Aggregate, Discard, Pass, Sink, Slice};
use sys::frames::{Frame, FramePool};
use wire::VirtioNetHdr;

use crate::counters::{Counters, Refused};
use crate::port::{Delivered, Delivery, Host, RxFrame};

/// Memory for the frames of one delivery, kept from one to the next; empty between them.
#[derive(Debug, Default)]
pub(crate) struct Scratch(Vec<Frame>);

/// A worker's host port as LRO's [`Sink`].
#[derive(Debug)]
pub(crate) struct ToHost<'a, H> {
    host: &'a mut H,
    pool: &'a FramePool,
    counters: &'a mut Counters,
    frames: &'a mut Vec<Frame>,
}

impl<'a, H: Host> ToHost<'a, H> {
    /// Borrows what a delivery needs from the worker.
    pub(crate) fn new(
        host: &'a mut H,
        pool: &'a FramePool,
        counters: &'a mut Counters,
        scratch: &'a mut Scratch,
    ) -> Self {
        ToHost { host, pool, counters, frames: &mut scratch.0 }
    }

    /// Counts a frame from the wire.
    #[inline]
    pub(crate) fn count_received(&mut self, received: &RxFrame) {
        self.counters.wire_in.count(received.frame.len() + received.overflow as usize);
    }

    /// Delivers a frame as it came.
    #[inline]
    pub(crate) fn frame(&mut self, received: RxFrame) {
        let vnet = match received.maybe_partial {
            true => partial(self.pool.bytes(&received.frame)),
            false => received.vnet,
        };
        self.frames.push(received.frame);
        self.deliver(vnet, &[], &[]);
    }

    /// Delivers a super-packet that arrived as one: the part in its frame, and the rest.
    pub(crate) fn super_packet(&mut self, received: RxFrame, rest: &[u8]) {
        self.frames.push(received.frame);
        self.deliver(received.vnet, &[], rest);
    }

    /// Hands over a packet of `header`, then `self.frames`, then `rest`.
    fn deliver(&mut self, vnet: VirtioNetHdr, header: &[u8], rest: &[u8]) {
        let packet = Delivery { vnet, header, frames: self.frames, rest };
        let bytes = packet.bytes();
        match self.host.deliver(self.pool.reader(), packet) {
            Ok(Delivered::Now) => self.counters.host_in.count(bytes),
            Ok(Delivered::Later) => self.counters.requests += 1,
            Err(error) => self.counters.refused[Refused::from_error(&error) as usize] += 1,
        }
        for frame in self.frames.drain(..) {
            self.pool.free(frame);
        }
    }
}

impl<H: Host> Sink<RxFrame> for ToHost<'_, H> {
    fn pass(&mut self, received: RxFrame, _why: Pass) {
        self.frame(received);
    }

    /// The rewritten header, then the payloads where they lie.
    fn aggregate(&mut self, mut aggregate: Aggregate<'_, RxFrame>) {
        self.frames.extend(std::iter::from_fn(|| aggregate.next_slice()).map(payload));
        self.deliver(aggregate.vnet(), aggregate.header(), &[]);
    }

    fn discard(&mut self, received: RxFrame, _why: Discard) {
        self.pool.free(received.frame);
    }
}

/// The frame, cut to the payload that the aggregate takes from it.
fn payload(slice: Slice<RxFrame>) -> Frame {
    let mut frame = slice.frame.frame;
    frame.trim_front(slice.start);
    frame.truncate(slice.len);
    frame
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
