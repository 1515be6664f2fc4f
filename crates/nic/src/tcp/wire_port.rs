//! An endpoint's port on a wire: LRO in front of the engine, and frames of the wire's MTU behind it.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use lro::{Aggregate, Discard, Lro, Nanos, Pass, RxChecksum, Sink, Slice};
use sys::frames::{Frame, FramePool};
use sys::poll::Interest;
use wire::{GsoType, VirtioNetHdr};

use super::counters::PortCounters;
use super::cut::Frames;
use super::port::{Arrived, Packet, Port, TURN_BYTES, checksum_of};
use crate::config::{Config, GsoHardware};
use crate::port::{Limits, Outgoing, Put, RxFrame, Sent, Transmit, Wire};

/// Frames that a super-packet may become: 64 KB in packets of the least MTU that IPv4 asks for.
const SUPER_PACKET_FRAMES: usize = 65_536 / 536 + 1;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct WirePort<W> {
    wire: W,
    pool: FramePool,
    /// `None` if it is turned off.
    lro: Option<Lro<RxFrame>>,
    /// Frames of the current batch; empty between turns.
    received: VecDeque<RxFrame>,
    /// Frames that the wire had no room for.
    waiting: VecDeque<Frame>,
    /// A super-packet in one piece, for a wire that takes it whole.
    whole: Vec<u8>,
    /// What is said of it, and from which of its segments on the wire had no room for it.
    left: Option<(VirtioNetHdr, usize)>,
    /// Frames of the aggregate at hand; kept for its memory.
    frames: Vec<Frame>,
    /// Its payload; empty between calls, kept for its memory.
    slices: Vec<&'static [u8]>,
    counters: PortCounters,
    burst: usize,
}

impl<W: Wire> WirePort<W> {
    /// Takes the wire, whose MTU in bytes this is, and the memory of its frames.
    pub(super) fn new(mut wire: W, pool: FramePool, config: &Config, mtu: u32) -> Self {
        // What is the engine's own cannot be wrong, and the kernel cuts in one go what it sends in one go.
        let hardware = match config.gso.hardware {
            GsoHardware::Off => GsoHardware::Off,
            GsoHardware::Auto | GsoHardware::Kernel => GsoHardware::Kernel,
        };
        wire.configure(Limits { mtu: mtu as usize, hardware });
        let held_frames = pool.capacity() / 4;
        let lro = lro::Config {
            held_frames,
            // Nothing that the engine takes goes on to others.
            profile: lro::Profile::Endpoint,
            active_ack: lro::ActiveAck::Off,
            udp: false,
            ..config.lro()
        };
        WirePort {
            burst: wire.burst(),
            wire,
            pool,
            lro: config.lro.enable.then(|| Lro::new(lro)),
            received: VecDeque::with_capacity(256),
            waiting: VecDeque::with_capacity(SUPER_PACKET_FRAMES),
            whole: Vec::new(),
            left: None,
            frames: Vec::with_capacity(1024),
            slices: Vec::with_capacity(1024),
            counters: PortCounters::default(),
        }
    }

    /// Calls `work` with the LRO, if there is one, and a place for what leaves it.
    /// Offers the super-packet in `whole` from one of its segments on.
    fn offer(&mut self, vnet: VirtioNetHdr, position: usize) {
        let fragment_ids = 0.into();
        let packet = Outgoing { vnet, bytes: &mut self.whole, position, fragment_ids };
        let mut put = Put::default();
        match self.wire.transmit(&mut self.pool, packet, &mut put) {
            Ok(Transmit::Done) => {}
            Ok(Transmit::Full { position }) => self.left = Some((vnet, position)),
            Err(_) => self.counters.too_long += 1,
        }
        self.counters.sent.add(put.sent);
    }

    fn with_lro<T: FnMut(Arrived<'_>)>(
        &mut self,
        take: T,
        work: impl FnOnce(&mut Lro<RxFrame>, &mut Intake<'_, T>),
    ) {
        let Some(lro) = &mut self.lro else { return };
        let (frames, slices) = (&mut self.frames, &mut self.slices);
        let refused = &mut self.counters.lro_discarded;
        work(lro, &mut Intake { pool: &self.pool, frames, slices, refused, take });
    }
}

impl<W: Wire> Port for WirePort<W> {
    fn receive(
        &mut self,
        max: usize,
        now: Nanos,
        take: impl FnMut(Arrived<'_>),
    ) -> io::Result<usize> {
        // A batch of frames is no more than a turn should take.
        let max = max.min(TURN_BYTES / self.pool.chunk_size()).max(1);
        self.wire.receive(&mut self.pool, &mut self.received, max)?;
        let count = self.received.len();
        let (frames, slices) = (&mut self.frames, &mut self.slices);
        let refused = &mut self.counters.lro_discarded;
        let mut intake = Intake { pool: &self.pool, frames, slices, refused, take };
        while let Some(received) = self.received.pop_front() {
            self.counters.received.count(received.frame.len() + received.overflow as usize);
            let merged = received.overflow > 0 || received.vnet.gso_type != GsoType::None;
            match &mut self.lro {
                Some(lro) if !merged => {
                    let checksum = checksum_of(&received.vnet, received.maybe_partial);
                    let bytes = self.pool.bytes(&received.frame);
                    lro.receive(received, bytes, checksum, now, &mut intake);
                }
                lro => {
                    // Merged elsewhere already.
                    if let Some(lro) = lro {
                        lro.interrupt_flow(self.pool.bytes(&received.frame), &mut intake);
                    }
                    let rest = self.wire.overflow(&received);
                    intake.frame(received, rest);
                }
            }
        }
        if let Some(lro) = &mut self.lro {
            if count < max.min(self.burst) {
                lro.burst_ends(&mut intake);
            }
            lro.expire(now, &mut intake);
        }
        Ok(count)
    }

    fn idle(&mut self, _now: Nanos, take: impl FnMut(Arrived<'_>)) {
        self.with_lro(take, |lro, intake| lro.idle(intake));
    }

    fn has_room(&mut self) -> bool {
        // Some memory is left to receive into.
        self.waiting.is_empty()
            && self.left.is_none()
            && self.pool.available() >= SUPER_PACKET_FRAMES + self.pool.capacity() / 8
    }

    fn send(&mut self, packet: &Packet<'_>) {
        if let Some(lro) = &mut self.lro {
            lro.observe(packet.header);
        }
        if packet.vnet.gso_size > 0 && self.wire.takes_whole() && self.waiting.is_empty() {
            let [first, second] = packet.payload;
            let pieces = [packet.header, first, second].map(IoSlice::new);
            if self.left.is_none()
                && self.wire.transmit_pieces(&mut self.pool, &packet.vnet, &pieces)
            {
                let frames =
                    (first.len() + second.len()).div_ceil(usize::from(packet.vnet.gso_size));
                let bytes = packet.header.len() * frames + first.len() + second.len();
                self.counters.sent.add(Sent { frames: frames as u64, bytes: bytes as u64 });
                return;
            }
            self.whole.clear();
            self.whole.extend_from_slice(packet.header);
            self.whole.extend_from_slice(packet.payload[0]);
            self.whole.extend_from_slice(packet.payload[1]);
            self.offer(packet.vnet, 0);
            return;
        }
        let frames = Frames::of(packet);
        if frames.longest() > self.pool.chunk_size() {
            self.counters.too_long += 1;
            return;
        }
        for number in 0..frames.count() {
            let Some(mut frame) = self.pool.alloc() else {
                self.counters.no_memory += 1;
                return;
            };
            let len = frames.write(number, self.pool.chunk_mut(&mut frame));
            self.pool.set_range(&mut frame, 0, len);
            self.counters.sent.count(len);
            let refused = match self.waiting.is_empty() {
                true => self.wire.send_frame(&mut self.pool, frame).err(),
                false => Some(frame),
            };
            self.waiting.extend(refused);
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Some((vnet, position)) = self.left.take() {
            self.offer(vnet, position);
        }
        while let Some(frame) = self.waiting.pop_front() {
            if let Err(frame) = self.wire.send_frame(&mut self.pool, frame) {
                self.waiting.push_front(frame);
                break;
            }
        }
        self.wire.flush(&mut self.pool)
    }

    fn next_deadline(&self) -> Option<Nanos> {
        let held = self.lro.as_ref().and_then(Lro::next_deadline);
        held.into_iter().chain(self.wire.next_deadline()).min()
    }

    fn wait(&mut self, waits: bool) -> (Option<(BorrowedFd<'_>, Interest)>, Option<Nanos>) {
        let behind = !self.waiting.is_empty() || self.left.is_some();
        let pending = waits || behind || self.wire.is_pending();
        let retry = self.wire.retry_after().filter(|_| pending);
        let interest = match pending && retry.is_none() {
            true => Interest::ReadWrite,
            false => Interest::Read,
        };
        (self.wire.fd().map(|fd| (fd, interest)), retry)
    }

    fn counters(&mut self) -> PortCounters {
        self.wire.publish();
        let (lost, dropped) = (self.wire.lost(), self.wire.dropped());
        let sent = self.counters.sent - self.wire.taken_back();
        PortCounters { sent, lost, dropped, ..self.counters.clone() }
    }

    fn close(mut self) {
        self.with_lro(|_: Arrived<'_>| {}, |lro, intake| lro.flush_all(intake));
        for frame in self.waiting.drain(..) {
            self.pool.free(frame);
        }
        self.wire.close(&mut self.pool);
    }
}

/// What leaves LRO, on its way into the engine.
struct Intake<'a, T> {
    pool: &'a FramePool,
    frames: &'a mut Vec<Frame>,
    slices: &'a mut Vec<&'static [u8]>,
    refused: &'a mut u64,
    take: T,
}

impl<T: FnMut(Arrived<'_>)> Intake<'_, T> {
    /// A frame as it came, with what did not fit into it.
    fn frame(&mut self, received: RxFrame, rest: &[u8]) {
        let rest = if rest.is_empty() { &[][..] } else { &[rest][..] };
        (self.take)(Arrived {
            bytes: self.pool.bytes(&received.frame),
            rest,
            checksum: checksum_of(&received.vnet, received.maybe_partial),
            gso_size: received.vnet.gso_size,
        });
        self.pool.free(received.frame);
    }
}

impl<T: FnMut(Arrived<'_>)> Sink<RxFrame> for Intake<'_, T> {
    fn pass(&mut self, received: RxFrame, _why: Pass) {
        self.frame(received, &[]);
    }

    fn aggregate(&mut self, mut aggregate: Aggregate<'_, RxFrame>) {
        self.frames.extend(std::iter::from_fn(|| aggregate.next_slice()).map(payload));
        let mut slices = reuse(std::mem::take(self.slices));
        slices.extend(self.frames.iter().map(|frame| self.pool.bytes(frame)));
        (self.take)(Arrived {
            bytes: aggregate.header(),
            rest: &slices,
            checksum: RxChecksum::Verified,
            gso_size: aggregate.vnet().gso_size,
        });
        *self.slices = reuse(slices);
        for frame in self.frames.drain(..) {
            self.pool.free(frame);
        }
    }

    fn discard(&mut self, received: RxFrame, _why: Discard) {
        *self.refused += 1;
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

/// An empty vector with the memory of `used`, for slices of any lifetime: collecting in place keeps the
/// allocation.
fn reuse<'b>(mut used: Vec<&[u8]>) -> Vec<&'b [u8]> {
    used.clear();
    used.into_iter().map(|_| -> &[u8] { &[] }).collect()
}
