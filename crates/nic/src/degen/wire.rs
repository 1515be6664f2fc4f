//! A wire around a wire.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use degen::Nanos;
use gso::{Refusal, Segmenter};
use sys::frames::{Frame, FramePool};
use wire::{GsoType, VirtioNetHdr};

use super::directions::Directions;
use super::handle::Handle;
use super::settings::{Direction, Settings};
use crate::port::{Limits, Outgoing, RxFrame, Transmit, Transmitted, Wire, WireCounters};

/// A wire that has a WAN behind it: what is sent goes by the settings' forward direction, what is
/// received came by the other. `C` is the clock, so that it runs in virtual time as well.
#[derive(Debug)]
pub struct DegenWire<W, C> {
    inner: W,
    clock: C,
    directions: Directions,
    limits: Limits,
    /// Received, on the way into degen; empty between calls.
    received: VecDeque<RxFrame>,
    /// A frame that has come out and that the wire had no room for.
    waiting: Option<Frame>,
    /// The last packet waits for memory.
    starved: bool,
}

/// How long until a packet that waits for memory is tried again: it comes back from everywhere.
const RETRY_MEMORY: Nanos = 100_000;

impl<W: Wire, C: Fn() -> Nanos> DegenWire<W, C> {
    /// Puts degen around a wire. `handle` is the way to change it later.
    pub fn new(inner: W, settings: &Settings, handle: Arc<Handle>, clock: C) -> Self {
        let directions = Directions::new(settings, handle, clock());
        DegenWire {
            inner,
            clock,
            directions,
            limits: Limits::NONE,
            received: VecDeque::with_capacity(256),
            waiting: None,
            starved: false,
        }
    }

    /// A frame to fill. Some memory is left to receive into: as long as there is no more, the host
    /// waits.
    fn frame(&mut self, pool: &mut FramePool) -> Option<Frame> {
        let frame = if pool.available() > pool.capacity() / 4 { pool.alloc() } else { None };
        self.starved = frame.is_none();
        frame
    }

    /// A packet of its own size.
    fn queue(
        &mut self,
        pool: &mut FramePool,
        packet: &[u8],
        vnet: &VirtioNetHdr,
        transmitted: &mut Transmitted,
    ) -> Result<Transmit, Refusal> {
        if packet.len() > pool.chunk_size() {
            return Err(Refusal::BufferTooSmall);
        }
        let Some(mut frame) = self.frame(pool) else {
            return Ok(Transmit::Full { position: 0 });
        };
        pool.set_range(&mut frame, 0, packet.len());
        if let Err(why) = gso::complete_checksum_into(pool.bytes_mut(&mut frame), packet, vnet) {
            pool.free(frame);
            return Err(why);
        }
        self.set_out(pool, frame, transmitted);
        Ok(Transmit::Done)
    }

    fn set_out(&mut self, pool: &mut FramePool, frame: Frame, transmitted: &mut Transmitted) {
        transmitted.sent.count(frame.len());
        let now = (self.clock)();
        self.directions.arrive_plain(Direction::Forward, pool, frame, now);
    }
}

impl<W: Wire, C: Fn() -> Nanos> Wire for DegenWire<W, C> {
    fn receive(
        &mut self,
        pool: &mut FramePool,
        into: &mut VecDeque<RxFrame>,
        max: usize,
    ) -> io::Result<()> {
        self.directions.take_up_changes();
        self.inner.receive(pool, &mut self.received, max)?;
        let now = (self.clock)();
        for received in self.received.drain(..) {
            let overflow = self.inner.overflow(&received);
            self.directions.arrive(Direction::Reverse, pool, received, overflow, now);
        }
        for _ in 0..max {
            let Some(frame) = self.directions.depart(Direction::Reverse, pool, now) else { break };
            // Checksums are complete, and may be wrong by now.
            let vnet = VirtioNetHdr::default();
            into.push_back(RxFrame { frame, vnet, overflow: 0, slot: 0, maybe_partial: false });
        }
        Ok(())
    }

    fn configure(&mut self, limits: Limits) {
        self.limits = limits;
        self.inner.configure(limits);
    }

    fn limit_queue(&mut self, frames: usize) {
        self.inner.limit_queue(frames);
    }

    /// degen stands on the wire, so packets are cut before they go into it.
    fn transmit(
        &mut self,
        pool: &mut FramePool,
        packet: Outgoing<'_>,
        transmitted: &mut Transmitted,
    ) -> Result<Transmit, Refusal> {
        let Outgoing { vnet, bytes, position, fragment_ids } = packet;
        if vnet.gso_type == GsoType::None && self.limits.surely_holds(bytes) {
            return self.queue(pool, bytes, &vnet, transmitted);
        }
        let mut segments = Segmenter::with_mtu(bytes, &vnet, self.limits.mtu, fragment_ids)?;
        (transmitted.kind, transmitted.fragment_ids) = (segments.kind(), segments.fragment_ids());
        if segments.max_segment_len() > pool.chunk_size() {
            return Err(Refusal::BufferTooSmall);
        }
        segments.skip_to(position);
        while segments.position() < segments.gso_segs() {
            let Some(mut frame) = self.frame(pool) else {
                return Ok(Transmit::Full { position: segments.position() });
            };
            match segments.next_into(pool.chunk_mut(&mut frame)) {
                Ok(Some(len)) => {
                    pool.set_range(&mut frame, 0, len);
                    self.set_out(pool, frame, transmitted);
                }
                other => {
                    pool.free(frame);
                    return other.map(|_| Transmit::Done);
                }
            }
        }
        Ok(Transmit::Done)
    }

    fn send_frame(&mut self, pool: &mut FramePool, frame: Frame) -> Result<(), Frame> {
        self.set_out(pool, frame, &mut Transmitted::default());
        Ok(())
    }

    fn flush(&mut self, pool: &mut FramePool) -> io::Result<()> {
        let now = (self.clock)();
        let due = |directions: &mut Directions, pool: &mut FramePool| {
            directions.depart(Direction::Forward, pool, now)
        };
        while let Some(frame) = self.waiting.take().or_else(|| due(&mut self.directions, pool)) {
            if let Err(frame) = self.inner.send_frame(pool, frame) {
                self.waiting = Some(frame);
                break;
            }
        }
        self.directions.publish_sometimes(now);
        self.inner.flush(pool)
    }

    fn next_deadline(&self) -> Option<Nanos> {
        // What waits for the wire is not due at any time.
        let forward = match self.waiting {
            Some(_) => None,
            None => self.directions.next_deadline_of(Direction::Forward),
        };
        let due =
            forward.into_iter().chain(self.directions.next_deadline_of(Direction::Reverse)).min();
        due.into_iter().chain(self.inner.next_deadline()).min()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.fd()
    }

    fn transmit_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.transmit_fd()
    }

    fn is_pending(&mut self) -> bool {
        self.waiting.is_some() || self.inner.is_pending()
    }

    fn retry_after(&self) -> Option<Nanos> {
        self.inner.retry_after().or_else(|| self.starved.then_some(RETRY_MEMORY))
    }

    fn counters(&mut self) -> WireCounters {
        self.directions.publish();
        self.inner.counters()
    }

    fn close(mut self, pool: &mut FramePool) {
        self.directions.close(pool);
        self.waiting.take().into_iter().for_each(|frame| pool.free(frame));
        self.inner.close(pool);
    }
}
