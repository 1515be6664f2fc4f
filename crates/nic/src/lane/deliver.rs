//! The last step of the way in: LRO's output, where it lies, to the host port.

use std::collections::VecDeque;
use std::io;

use gso::{MAX_HEADER_LEN, Segmenter};
use lro::{Aggregate, Discard, Nanos, Pass, Sink};
use sys::frames::{Frame, FramePool};
use wire::{GsoType, UdpTunnel, VirtioNetHdr};

use super::payload;
use crate::counters::HostCounters;
use crate::port::{AggregateKind, CuttingHost, Delivered, Delivery, Host, Refused, RxFrame};

/// Offset of the checksum in SCTP's header (RFC 9260 section 3.1): those of TCP and UDP are others.
const SCTP_CHECKSUM: u16 = 8;

/// How soon to offer again what the host did not take.
const RETRY_AFTER: Nanos = 1_000_000;

/// What is kept from one delivery to the next.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Memory for the frames of one delivery; empty between them.
    frames: Vec<Frame>,
    /// Memory for a packet in one piece; what is in it means nothing.
    joined: Vec<u8>,
    /// Acknowledgments to be put on the wire.
    pub(crate) acknowledgments: Acknowledgments,
    /// With active ACK, a packet that the host does not take may be acknowledged already, so that
    /// it will not be sent again: it is kept, and offered until it is taken.
    keep: bool,
    /// No more than LRO holds and one batch, as nothing is taken from the wire meanwhile.
    undelivered: VecDeque<(VirtioNetHdr, Vec<u8>)>,
}

impl Scratch {
    /// Whether the host does not take what it was given.
    pub(crate) fn is_stuck(&self) -> bool {
        !self.undelivered.is_empty()
    }

    /// When to offer it again.
    pub(crate) fn retry_after(&self) -> Option<Nanos> {
        self.is_stuck().then_some(RETRY_AFTER)
    }

    /// Sets whether packets that the host does not take are kept from now on. What is kept stays.
    pub(crate) fn keep_undelivered(&mut self, keep: bool) {
        self.keep = keep;
    }

    /// Gives up what the host did not take, and returns how many packets that were.
    pub(crate) fn give_up(&mut self) -> u64 {
        self.undelivered.drain(..).count() as u64
    }
}

/// Frames in memory that is used again.
#[derive(Debug, Default)]
pub(crate) struct Acknowledgments {
    bytes: Vec<u8>,
    lens: Vec<usize>,
}

impl Acknowledgments {
    fn push(&mut self, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
        self.lens.push(frame.len());
    }

    /// All of them, in order.
    pub(crate) fn each(&mut self, mut work: impl FnMut(&mut [u8])) {
        let mut rest = &mut self.bytes[..];
        for len in self.lens.drain(..) {
            let (frame, behind) = rest.split_at_mut(len);
            work(frame);
            rest = behind;
        }
        self.bytes.clear();
    }
}

/// A worker's host port as LRO's [`Sink`].
#[derive(Debug)]
pub(crate) struct ToHost<'a, H> {
    host: &'a mut CuttingHost<H>,
    pool: &'a FramePool,
    counters: &'a mut HostCounters,
    scratch: &'a mut Scratch,
}

impl<'a, H: Host> ToHost<'a, H> {
    /// Borrows what a delivery needs from the worker.
    pub(crate) fn new(
        host: &'a mut CuttingHost<H>,
        pool: &'a FramePool,
        counters: &'a mut HostCounters,
        scratch: &'a mut Scratch,
    ) -> Self {
        ToHost { host, pool, counters, scratch }
    }

    /// Whether the host's kernel takes what this frame may be merged into, as far as is known.
    #[inline]
    pub(crate) fn may_merge(&self, received: &RxFrame) -> bool {
        let refused = self.counters.refusals.stopped();
        refused.is_empty()
            || !refused.has(AggregateKind::of_frame(self.pool.bytes(&received.frame)))
    }

    /// Delivers a frame as it came.
    #[inline]
    pub(crate) fn frame(&mut self, received: RxFrame) {
        let vnet = match received.maybe_partial {
            true => partial(self.pool.bytes(&received.frame)),
            false => received.vnet,
        };
        if vnet.needs_csum && vnet.csum_offset == SCTP_CHECKSUM {
            return self.frame_with_crc(received, &vnet);
        }
        self.scratch.frames.push(received.frame);
        self.deliver(vnet, &[], &[]);
    }

    /// Delivers an SCTP packet whose checksum its sender left to a card. No header of a host port tells a CRC32c from an
    /// Internet checksum: the kernel would complete it as the latter where it forwards the packet (`skb_checksum_help`).
    #[cold]
    fn frame_with_crc(&mut self, received: RxFrame, vnet: &VirtioNetHdr) {
        let mut packet = std::mem::take(&mut self.scratch.joined);
        packet.clear();
        packet.extend_from_slice(self.pool.bytes(&received.frame));
        self.pool.free(received.frame);
        // Its headers were parsed, and have room for the checksum.
        let _ = gso::complete_checksum(&mut packet, vnet);
        self.deliver(VirtioNetHdr::default(), &packet, &[]);
        self.scratch.joined = packet;
    }

    /// Delivers a super-packet that arrived as one: the part in its frame, and the rest.
    pub(crate) fn super_packet(&mut self, received: RxFrame, rest: &[u8]) {
        if let Some(tunnel) = self.tunnel_of(&received, rest) {
            self.pool.free(received.frame);
            let packet = std::mem::take(&mut self.scratch.joined);
            self.cut(&packet, &VirtioNetHdr { tunnel: Some(tunnel), ..received.vnet });
            self.scratch.joined = packet;
            return;
        }
        self.scratch.frames.push(received.frame);
        self.deliver(received.vnet, &[], rest);
    }

    /// The tunnel that a super-packet is in, which is then in `joined`.
    fn tunnel_of(&mut self, received: &RxFrame, rest: &[u8]) -> Option<UdpTunnel> {
        let first = self.pool.bytes(&received.frame);
        let VirtioNetHdr { gso_type, needs_csum, csum_start, .. } = received.vnet;
        if gso_type == GsoType::None || !needs_csum || wire::is_outermost(first, csum_start) {
            return None;
        }
        let packet = &mut self.scratch.joined;
        packet.clear();
        packet.extend_from_slice(first);
        packet.extend_from_slice(rest);
        wire::vxlan_tunnel(packet, csum_start)
    }

    /// Delivers the segments of a super-packet in a tunnel: not every host port has words for it.
    fn cut(&mut self, packet: &[u8], vnet: &VirtioNetHdr) {
        let mut segments = match Segmenter::new(packet, vnet) {
            Ok(segments) => segments,
            Err(why) => {
                self.counters.gso_refused.0[why.index()] += 1;
                return;
            }
        };
        let mut header = [0; MAX_HEADER_LEN];
        while let Some(segment) = segments.next_segment(&mut header) {
            let header = &header[..segment.header_len];
            self.deliver(VirtioNetHdr::default(), header, segment.payload);
        }
    }

    /// Hands over a packet of `header`, then the frames, then `rest`.
    fn deliver(&mut self, vnet: VirtioNetHdr, header: &[u8], rest: &[u8]) {
        if self.scratch.is_stuck() {
            // Nothing overtakes what waits.
            self.keep(vnet, header, rest);
        } else {
            let packet =
                Delivery { vnet, header, frames: &mut self.scratch.frames, rest: [rest, &[]] };
            let bytes = packet.bytes();
            match self.host.deliver(self.pool.reader(), packet) {
                Ok(delivered) => self.count(delivered, bytes),
                Err(error) if self.scratch.keep && may_pass(&error) => {
                    self.keep(vnet, header, rest);
                }
                Err(error) => self.counters.refused[Refused::from_error(&error) as usize] += 1,
            }
        }
        for frame in self.scratch.frames.drain(..) {
            self.pool.free(frame);
        }
    }

    #[inline]
    fn count(&mut self, delivered: Delivered, bytes: usize) {
        self.counters.count(delivered, bytes);
    }

    /// Keeps a copy of a packet that the host does not take.
    #[cold]
    fn keep(&mut self, vnet: VirtioNetHdr, header: &[u8], rest: &[u8]) {
        let frames = self.scratch.frames.iter().map(|frame| self.pool.bytes(frame));
        let mut bytes = header.to_vec();
        frames.chain([rest]).for_each(|part| bytes.extend_from_slice(part));
        self.scratch.undelivered.push_back((vnet, bytes));
    }

    /// Whether the host does not take what it was given.
    pub(crate) fn is_stuck(&self) -> bool {
        self.scratch.is_stuck()
    }

    /// Offers what the host did not take once more, in order.
    pub(crate) fn deliver_again(&mut self) {
        while let Some((vnet, bytes)) = self.scratch.undelivered.front() {
            let frames = &mut self.scratch.frames;
            let packet = Delivery { vnet: *vnet, header: bytes, frames, rest: [&[]; 2] };
            match self.host.deliver(self.pool.reader(), packet) {
                Ok(delivered) => {
                    let bytes = bytes.len();
                    self.count(delivered, bytes);
                }
                Err(error) if may_pass(&error) => return,
                Err(error) => self.counters.refused[Refused::from_error(&error) as usize] += 1,
            }
            self.scratch.undelivered.pop_front();
        }
    }
}

impl<H: Host> Sink<RxFrame> for ToHost<'_, H> {
    fn pass(&mut self, received: RxFrame, _why: Pass) {
        self.frame(received);
    }

    /// The rewritten header, then the payloads where they lie.
    fn aggregate(&mut self, mut aggregate: Aggregate<'_, RxFrame>) {
        self.scratch.frames.extend(std::iter::from_fn(|| aggregate.next_slice()).map(payload));
        self.deliver(aggregate.vnet(), aggregate.header(), &[]);
    }

    fn acknowledge(&mut self, frame: &[u8]) {
        self.scratch.acknowledgments.push(frame);
    }

    fn discard(&mut self, received: RxFrame, _why: Discard) {
        self.pool.free(received.frame);
    }
}

/// Whether the host is likely to take the same packet later.
fn may_pass(error: &io::Error) -> bool {
    Refused::from_error(error) != Refused::HostRefused
}

/// A frame whose checksum is the pseudo-header's sum alone is told as such, as AF_PACKET would.
pub(crate) fn partial(bytes: &[u8]) -> VirtioNetHdr {
    wire::partial_checksum(bytes).map_or_else(VirtioNetHdr::default, |(start, offset)| {
        VirtioNetHdr {
            needs_csum: true,
            csum_start: start,
            csum_offset: offset,
            ..VirtioNetHdr::default()
        }
    })
}
