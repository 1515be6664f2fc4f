//! A queue of the wire, with the memory of its frames: what arrives by it, and the one way out.

pub(crate) mod cut;

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use gso::{Refusal, Segmenter};
use lro::Nanos;
use sys::frames::{Frame, FramePool};
use sys::poll::Interest;
use wire::{Bytes, VirtioNetHdr};

use self::cut::Frames;
use crate::capture::live::{Captures, Passing};
use crate::port::{
    Limits, Outgoing, RxFrame, Traffic, Transmit, Transmitted, Whole, Wire, WireCounters, slice,
};

/// Frames that a super-packet may become: 64 KB in packets of the least MTU that IPv4 asks for.
const SUPER_PACKET_FRAMES: usize = 65_536 / 536 + 1;

/// A packet of the engine's, in the memory where it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'a> {
    /// Checksum state, and how it is to be cut.
    pub(crate) vnet: VirtioNetHdr,
    /// From the Ethernet header on.
    pub(crate) header: &'a [u8],
    /// What follows, in one or two pieces.
    pub(crate) payload: [Bytes<'a>; 2],
}

impl<'a> Packet<'a> {
    /// A frame in one piece.
    pub(crate) fn frame(vnet: VirtioNetHdr, bytes: &'a [u8]) -> Self {
        Packet { vnet, header: bytes, payload: [Bytes::default(); 2] }
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

/// What a queue of the wire counts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QueueCounters {
    /// Frames and bytes that arrived.
    pub received: Traffic,
    /// Frames and bytes that were sent.
    pub sent: Traffic,
    /// Times the wire was full and what was to be sent was made to wait.
    pub full: u64,
    /// Packets that fit no frame.
    pub too_long: u64,
    /// Frames for which there was no memory. Those of the same packet that were sent before count as sent.
    pub no_memory: u64,
    /// Frames that waited for room on the wire when the worker ended.
    pub lost: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct WireQueue<W> {
    wire: W,
    pub(crate) pool: FramePool,
    /// Frames of the batch at hand; empty between turns.
    pub(crate) received: VecDeque<RxFrame>,
    limits: Limits,
    /// The wire does not know of the limits yet.
    limits_changed: bool,
    /// Frames that the wire had no room for. What is sent later waits behind them.
    waiting: VecDeque<Frame>,
    /// A super-packet in one piece, for a wire that takes it whole.
    whole: Vec<u8>,
    /// What is said of it, and from which of its segments on the wire had no room for it.
    left: Option<(VirtioNetHdr, usize)>,
    /// A packet of the host lane's is with the wire in part. It lies with the host, and goes on from there.
    is_midway: bool,
    captures: Captures,
    /// The packet that is transmitted next was captured: the wire had no room for it.
    was_captured: bool,
    pub(crate) counters: QueueCounters,
}

impl<W: Wire> WireQueue<W> {
    /// Takes the wire and the memory of its frames.
    pub(crate) fn new(mut wire: W, pool: FramePool, limits: Limits) -> Self {
        wire.configure(limits);
        WireQueue {
            wire,
            pool,
            received: VecDeque::with_capacity(256),
            limits,
            limits_changed: false,
            waiting: VecDeque::new(),
            whole: Vec::new(),
            left: None,
            is_midway: false,
            captures: Captures::default(),
            was_captured: false,
            counters: QueueCounters::default(),
        }
    }

    /// What the wire is to go by, from the next packet on.
    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.limits_changed |= self.limits != limits;
        self.limits = limits;
    }

    /// What is to be copied of what passes, from the next packet on.
    pub(crate) fn set_captures(&mut self, captures: &Captures) {
        self.captures = captures.clone();
    }

    /// A packet begins: the rest of the one before was cut as its beginning was.
    #[inline]
    pub(crate) fn begin_packet(&mut self) {
        if self.limits_changed && self.is_clear() && !self.is_midway {
            self.limits_changed = false;
            self.wire.configure(self.limits);
        }
    }

    /// Whether the packet that was [transmitted](Self::transmit) last goes on later from where it is. Until then the
    /// limits stay, also for what others send.
    #[inline]
    pub(crate) fn set_midway(&mut self, is_midway: bool) {
        self.is_midway = is_midway;
    }

    /// So many frames may wait on the wire from now on.
    pub(crate) fn limit(&mut self, frames: usize) {
        self.wire.limit_queue(frames);
    }

    /// Receives a batch; returns whether more may wait.
    ///
    /// # Errors
    /// A port that has become useless.
    pub(crate) fn receive(&mut self, max: usize) -> io::Result<bool> {
        self.wire.receive(&mut self.pool, &mut self.received, max)?;
        for received in &self.received {
            self.counters.received.count(received.frame.len() + received.overflow as usize);
        }
        if !self.captures.is_empty() {
            self.capture_received();
        }
        Ok(self.received.len() >= max.min(self.wire.burst()))
    }

    #[cold]
    fn capture_received(&self) {
        for received in &self.received {
            let bytes = [self.pool.bytes(&received.frame), self.overflow(received), &[]];
            let pieces = bytes.map(Bytes::from);
            let RxFrame { vnet, maybe_partial, .. } = *received;
            self.captures.take(&Passing { vnet, maybe_partial, pieces });
        }
    }

    /// How many frames wait on the wire, where it can tell.
    pub(crate) fn waiting(&mut self) -> Option<u32> {
        self.wire.waiting()
    }

    /// The bytes of a received super-packet that did not fit into its frame.
    pub(crate) fn overflow(&self, received: &RxFrame) -> &[u8] {
        self.wire.overflow(received)
    }

    /// Whether nothing waits for the wire.
    #[inline]
    pub(crate) fn is_clear(&self) -> bool {
        self.waiting.is_empty() && self.left.is_none()
    }

    /// Whether all that was sent has left, as far as the port tells.
    pub(crate) fn has_left(&mut self) -> bool {
        self.is_clear() && !self.wire.is_pending()
    }

    /// Queues a packet that lies in one piece and stays there until all of it is with the wire.
    ///
    /// # Errors
    /// What cannot be cut is refused by name.
    #[inline]
    pub(crate) fn transmit(
        &mut self,
        packet: Outgoing<'_>,
        transmitted: &mut Transmitted,
    ) -> Result<Transmit, Refusal> {
        let (is_captured, position) = (!self.captures.is_empty(), packet.position);
        if is_captured {
            self.capture_sent(&packet);
        }
        let result = match self.is_clear() {
            true => self.wire.transmit(&mut self.pool, packet, transmitted),
            false => Ok(Transmit::Full { position: packet.position }),
        };
        self.counters.sent.add(transmitted.sent);
        self.counters.full += u64::from(matches!(result, Ok(Transmit::Full { .. })));
        if is_captured {
            let is_left = matches!(result, Ok(Transmit::Full { position: 0 }));
            self.was_captured = position == 0 && is_left;
        }
        result
    }

    #[cold]
    fn capture_sent(&self, packet: &Outgoing<'_>) {
        // One that is offered again, from the beginning or from where it is, is one packet.
        if packet.position == 0 && !self.was_captured {
            let Outgoing { vnet, ref bytes, .. } = *packet;
            let pieces = [&bytes[..], &[], &[]].map(Bytes::from);
            self.captures.take(&Passing { vnet, maybe_partial: false, pieces });
        }
    }

    /// See [`TxQueue::send`].
    fn send_pieces(&mut self, packet: &Packet<'_>) {
        self.begin_packet();
        let mut transmitted = Transmitted::default();
        let Packet { vnet, header, payload: [first, second] } = *packet;
        let pieces = [header.into(), first, second];
        if !self.captures.is_empty() {
            self.captures.take(&Passing { vnet, maybe_partial: false, pieces });
        }
        match self.wire.transmit_pieces(&mut self.pool, &vnet, pieces, &mut transmitted) {
            Whole::Done => self.counters.sent.add(transmitted.sent),
            Whole::Full => {
                self.whole.clear();
                for piece in pieces {
                    self.whole.extend_from_slice(slice(piece, &mut Vec::new()));
                }
                self.offer(vnet, 0);
            }
            Whole::Cut => self.send_frames(&Frames::of(packet).within(self.limits.mtu)),
        }
    }

    /// Offers the super-packet in `whole` from one of its segments on.
    fn offer(&mut self, vnet: VirtioNetHdr, position: usize) {
        let fragment_ids = 0.into();
        let packet = Outgoing { vnet, bytes: &mut self.whole, position, fragment_ids };
        let mut transmitted = Transmitted::default();
        match self.wire.transmit(&mut self.pool, packet, &mut transmitted) {
            Ok(Transmit::Done) => {}
            Ok(Transmit::Full { position }) => self.left = Some((vnet, position)),
            Err(_) => self.counters.too_long += 1,
        }
        self.counters.sent.add(transmitted.sent);
    }

    fn send_frames(&mut self, frames: &Frames<'_>) {
        if frames.longest() > self.pool.chunk_size() {
            self.counters.too_long += 1;
            return;
        }
        for number in 0..frames.count() {
            let Some(mut frame) = self.pool.alloc() else {
                self.counters.no_memory += (frames.count() - number) as u64;
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

    /// Makes the kernel take what was sent.
    ///
    /// # Errors
    /// A port that has become useless.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        // Which of the two is the older would not be known. Nothing is sent while one of them waits.
        debug_assert!(self.left.is_none() || self.waiting.is_empty());
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

    /// Whether little memory is left. No port tells when some has come back.
    pub(crate) fn is_short_of_memory(&self) -> bool {
        let least = SUPER_PACKET_FRAMES.min(self.pool.capacity() / 2) + self.pool.capacity() / 8;
        self.pool.available() < least
    }

    /// When the wire has something to do by itself.
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        self.wire.next_deadline()
    }

    /// What to sleep on, and for what; and when to try again where that does not tell, in so many nanoseconds.
    /// `read` says that what arrives may be taken, `write` that something waits for room.
    pub(crate) fn wait(
        &mut self,
        read: bool,
        write: bool,
    ) -> ([Option<(BorrowedFd<'_>, Interest)>; 2], Option<Nanos>) {
        let pending = write || !self.is_clear() || self.wire.is_pending();
        let retry = self.wire.retry_after().filter(|_| pending);
        let write = pending && retry.is_none();
        let interest = |read, write| match (read, write) {
            (true, true) => Some(Interest::ReadWrite),
            (true, false) => Some(Interest::Read),
            (false, true) => Some(Interest::Write),
            (false, false) => None,
        };
        let ports = match (self.wire.fd(), self.wire.transmit_fd()) {
            (fd, None) => [fd.zip(interest(read, write)), None],
            (fd, transmit) => [fd.zip(interest(read, false)), transmit.zip(interest(false, write))],
        };
        (ports, retry)
    }

    /// What the wire has counted.
    pub(crate) fn of_the_wire(&mut self) -> WireCounters {
        self.wire.counters()
    }

    /// The worker ends: what the wire has no room for is lost, and was not sent.
    pub(crate) fn give_up(&mut self) {
        for frame in self.waiting.drain(..) {
            self.counters.lost += 1;
            let mut waited = Traffic::default();
            waited.count(frame.len());
            self.counters.sent = self.counters.sent - waited;
            self.pool.free(frame);
        }
        if let Some((vnet, position)) = self.left.take() {
            self.counters.lost += frames_from(&self.whole, &vnet, self.limits.mtu, position);
        }
        self.wire.give_up(&mut self.pool);
    }

    /// The same of a packet that was [transmitted](Self::transmit) up to one of its segments, and lies elsewhere.
    pub(crate) fn give_up_rest(&mut self, packet: &[u8], vnet: &VirtioNetHdr, position: usize) {
        self.is_midway = false;
        self.counters.lost += frames_from(packet, vnet, self.limits.mtu, position);
    }

    /// Gives all memory back, and closes the wire.
    pub(crate) fn close(mut self) {
        for frame in self.waiting.drain(..).chain(self.received.drain(..).map(|r| r.frame)) {
            self.pool.free(frame);
        }
        self.wire.close(&mut self.pool);
    }
}

impl<W: Wire> TxQueue for WireQueue<W> {
    /// Some memory is left to receive into.
    fn has_room(&self) -> bool {
        self.is_clear() && !self.is_short_of_memory()
    }

    fn send(&mut self, packet: &Packet<'_>) {
        debug_assert!(self.is_clear(), "it would overtake what waits");
        self.send_pieces(packet);
    }
}

/// Frames that a packet would still have become, from one of its segments on.
fn frames_from(packet: &[u8], vnet: &VirtioNetHdr, mtu: usize, position: usize) -> u64 {
    let segments = Segmenter::with_mtu(packet, vnet, mtu, 0).map_or(1, |all| all.gso_segs());
    segments.saturating_sub(position).max(1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::GsoHardware;
    use crate::port::memory::MemoryWire;
    use testkit::packet::PacketBuilder;
    use wire::ETHERNET_LEN;

    fn queue(chunks: u32) -> (WireQueue<MemoryWire>, crate::port::memory::FarEnd) {
        let (wire, far) = MemoryWire::new();
        let pool = FramePool::new(chunks, 2048).unwrap();
        let limits = Limits { mtu: 1500, hardware: GsoHardware::Off };
        (WireQueue::new(wire, pool, limits), far)
    }

    /// Frames that were sent, lost at the end, and not sent for want of memory.
    fn fates<W>(queue: &WireQueue<W>) -> [u64; 3] {
        let QueueCounters { sent, no_memory, lost, .. } = &queue.counters;
        [sent.frames, *lost, *no_memory]
    }

    /// A packet of the engine's in two pieces.
    fn of_engine(bytes: &[u8], vnet: VirtioNetHdr, payload: usize) -> Packet<'_> {
        let (header, payload) = bytes.split_at(bytes.len() - payload);
        Packet { vnet, header, payload: [payload.into(), Bytes::default()] }
    }

    #[test]
    fn what_waits_at_the_end_is_lost_and_was_not_sent() {
        let (mut queue, far) = queue(64);
        let (bytes, vnet) = PacketBuilder::tcp4().payload_pattern(6000).super_packet(1000);
        far.set_room(Some(2));
        queue.send(&of_engine(&bytes, vnet, 6000));
        assert!(!queue.is_clear());
        queue.give_up();
        assert_eq!((fates(&queue), far.take().len()), ([2, 4, 0], 2));
        assert_eq!(queue.counters.sent.bytes, 2 * (bytes.len() - 5000) as u64);
        assert_eq!(queue.pool.available(), 64, "chunks are missing");
    }

    #[test]
    fn what_is_left_of_a_super_packet_at_the_end_is_lost() {
        let (mut queue, far) = queue(64);
        let (bytes, vnet) = PacketBuilder::tcp4().payload_pattern(6000).super_packet(1000);
        far.set_room(Some(1));
        queue.whole = bytes.clone();
        queue.offer(vnet, 0);
        assert!(!queue.is_clear());
        queue.give_up();
        assert_eq!((fates(&queue), queue.is_clear()), ([1, 5, 0], true));
        queue.give_up_rest(&bytes, &vnet, 4);
        assert_eq!(fates(&queue), [1, 7, 0]);
    }

    #[test]
    fn each_frame_is_sent_or_had_no_memory() {
        let (mut queue, far) = queue(4);
        let (bytes, vnet) = PacketBuilder::tcp4().payload_pattern(6000).super_packet(1000);
        far.set_room(Some(0));
        queue.send(&of_engine(&bytes, vnet, 6000));
        assert_eq!(fates(&queue), [4, 0, 2]);
        queue.give_up();
        assert_eq!((fates(&queue), queue.pool.available()), ([0, 4, 2], 4));
    }

    /// The rest of the host's packet is cut as its beginning was, though the engine sends in between and the MTU
    /// has become another.
    #[test]
    fn limits_stay_while_a_packet_of_the_hosts_is_midway() {
        let limits = |mtu| Limits { mtu, hardware: GsoHardware::Off };
        let (wire, far) = MemoryWire::new();
        let pool = FramePool::new(64, 2048).unwrap();
        let mut queue = WireQueue::new(wire, pool, limits(1500));
        let (mut bytes, vnet) = PacketBuilder::tcp4().payload_pattern(6000).super_packet(1000);
        far.set_room(Some(2));
        let offer = |queue: &mut WireQueue<MemoryWire>, bytes: &mut [u8], position| {
            let packet = Outgoing { vnet, bytes, position, fragment_ids: 0.into() };
            queue.transmit(packet, &mut Transmitted::default()).unwrap()
        };
        queue.begin_packet();
        assert_eq!(offer(&mut queue, &mut bytes, 0), Transmit::Full { position: 2 });
        queue.set_midway(true);
        queue.set_limits(limits(600));
        far.set_room(None);
        queue.send(&Packet::frame(VirtioNetHdr::default(), &[0x55; 60]));
        assert_eq!(offer(&mut queue, &mut bytes, 2), Transmit::Done);
        queue.set_midway(false);
        let sizes = |sent: Vec<(VirtioNetHdr, Vec<u8>)>| -> Vec<usize> {
            sent.into_iter().map(|(_, bytes)| bytes.len()).collect()
        };
        let whole = bytes.len() - 5000;
        assert_eq!(sizes(far.take()), [whole, whole, 60, whole, whole, whole, whole]);
        queue.begin_packet();
        assert_eq!(offer(&mut queue, &mut bytes, 0), Transmit::Done);
        assert!(sizes(far.take()).into_iter().all(|len| len <= ETHERNET_LEN + 600));
        queue.close();
    }
}
