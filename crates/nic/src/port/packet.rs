//! A wire port by AF_PACKET: needs no BPF and works in an unprivileged user namespace.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use gso::{MAX_HEADER_LEN, Refusal, Segmenter};
use lro::Nanos;
use sys::frames::{Frame, FramePool};
use sys::packet::{BATCH, Message, PacketSocket, Received, VNET_HDR_LEN};
use wire::{Bytes, ETHERNET_LEN, GsoType, VirtioNetHdr};

use super::patience::Patience;
use super::{
    Limits, Outgoing, RxFrame, Traffic, Transmit, Transmitted, Whole, Wire, WireCounters, vlan_tags,
};
use crate::config::GsoHardware;
use crate::port::hardware::{Hardware, SuperPacket};

const ENOBUFS: i32 = 105;
const EMSGSIZE: i32 = 90;

/// The header of a complete frame: no offload is asked for.
const PLAIN: [u8; VNET_HDR_LEN] = [0; VNET_HDR_LEN];

/// Time until the interface's queue is tried again. Sleeping meanwhile leaves the CPU to the thread that
/// empties it.
const RETRY_QUEUE: Nanos = 50_000;

/// One AF_PACKET socket with `virtio_net_hdr`.
#[derive(Debug)]
pub struct PacketWire {
    socket: PacketSocket,
    /// Received packets that become [`RxFrame`]s; empty between calls.
    received: Vec<Received>,
    /// Complete packets that wait for [`Wire::flush`], so that one system call sends many.
    queued: VecDeque<Frame>,
    /// Headers of the segments of one `sendmmsg`.
    headers: Box<[[u8; MAX_HEADER_LEN]; BATCH]>,
    /// State of the frame that was dropped behind the socket, until it is taken or given up.
    patience: Patience,
    lost: u64,
    /// Length of the shortest frame that sendmsg(2) has refused as too long though it fits the MTU, with two VLAN tags.
    long: usize,
    /// Lost frames that had been queued, and counted as sent.
    taken_back: Traffic,
    limits: Limits,
    hardware: Hardware,
}

impl PacketWire {
    /// Takes the socket of an interface that can segment what is in `hardware`.
    pub fn new(socket: PacketSocket, hardware: Hardware) -> Self {
        PacketWire {
            socket,
            received: Vec::with_capacity(BATCH),
            queued: VecDeque::with_capacity(BATCH),
            headers: Box::new([[0; MAX_HEADER_LEN]; BATCH]),
            patience: Patience::default(),
            lost: 0,
            long: usize::MAX,
            taken_back: Traffic::default(),
            limits: Limits::NONE,
            hardware,
        }
    }

    fn take(&mut self, pool: &mut FramePool, max: usize) -> io::Result<()> {
        match self.socket.receive(pool, &mut self.received, max) {
            // The interface went down; it may come up again.
            Err(error) if error.kind() == io::ErrorKind::NetworkDown => Ok(()),
            other => other.map(drop),
        }
    }

    /// Whether the first of several frames, which was refused, is lost, or is to be offered again.
    fn is_lost(&mut self, error: &io::Error) -> bool {
        let lost =
            error.raw_os_error() != Some(ENOBUFS) || self.patience.is_at_its_end(sys::clock::now());
        self.lost += u64::from(lost);
        lost
    }

    /// Sends what is queued; a frame that the interface refuses is lost. Returns whether the kernel has taken
    /// all now.
    fn send_queued(&mut self, pool: &FramePool) -> bool {
        while let Some(first) = self.queued.front() {
            let mut messages = [Message { vnet: PLAIN, header: &[], payload: &[] }; BATCH];
            let is_long = first.len() >= self.long;
            let count = if is_long { 1 } else { self.queued.len().min(BATCH) };
            for (message, frame) in messages[..count].iter_mut().zip(&self.queued) {
                message.header = pool.bytes(frame);
            }
            let sent = match is_long {
                true => self.socket.send_long([messages[0].header, &[]]).map(|()| 1),
                false => self.socket.send(&messages[..count]),
            };
            let done = match sent {
                Ok(0) => return false,
                Ok(taken) => {
                    self.patience.rewarded();
                    taken
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error)
                    if self.may_be_long(&error, messages[0].header, messages[0].header.len()) =>
                {
                    continue;
                }
                Err(error) if self.is_lost(&error) => {
                    self.taken_back.count(self.queued.front().map_or(0, Frame::len));
                    1
                }
                Err(_) => return false,
            };
            for frame in self.queued.drain(..done) {
                pool.free(frame);
            }
        }
        true
    }

    /// Queues one packet that is no super-packet, completed as a frame.
    fn queue(
        &mut self,
        pool: &mut FramePool,
        packet: &[u8],
        vnet: &VirtioNetHdr,
        sent: &mut Traffic,
    ) -> Result<Transmit, Refusal> {
        if self.queued.len() >= BATCH && !self.send_queued(pool) {
            return Ok(Transmit::Full { position: 0 });
        }
        let Some(mut frame) = pool.alloc() else {
            return Ok(Transmit::Full { position: 0 });
        };
        pool.set_range(&mut frame, 0, packet.len());
        if let Err(why) = gso::complete_checksum_into(pool.bytes_mut(&mut frame), packet, vnet) {
            pool.free(frame);
            return Err(why);
        }
        self.queued.push_back(frame);
        sent.count(packet.len());
        Ok(Transmit::Done)
    }

    /// Sends up to a batch of segments by one system call, payloads from where they lie. Returns how many the
    /// kernel took, and of how many.
    fn send_segments(
        &mut self,
        segments: &mut Segmenter<'_>,
        sent: &mut Traffic,
    ) -> io::Result<(usize, usize)> {
        let mut pieces: [(usize, &[u8]); BATCH] = [(0, &[]); BATCH];
        let mut count = 0;
        for (header, piece) in self.headers.iter_mut().zip(&mut pieces) {
            let Some(segment) = segments.next_segment(header) else { break };
            *piece = (segment.header_len, segment.payload);
            count += 1;
        }
        let mut messages = [Message { vnet: PLAIN, header: &[], payload: &[] }; BATCH];
        for ((message, header), (len, payload)) in
            messages.iter_mut().zip(self.headers.iter()).zip(pieces)
        {
            message.header = &header[..len];
            message.payload = payload;
        }
        let taken = self.socket.send(&messages[..count])?;
        if taken > 0 {
            self.patience.rewarded();
        }
        for (len, payload) in &pieces[..taken] {
            sent.count(len + payload.len());
        }
        Ok((taken, count))
    }

    /// Sends one segment that sendmsg(2) refuses as too long. Returns as [`send_segments`](Self::send_segments).
    fn send_long_segment(
        &mut self,
        segments: &mut Segmenter<'_>,
        sent: &mut Traffic,
    ) -> io::Result<(usize, usize)> {
        let Some(segment) = segments.next_segment(&mut self.headers[0]) else { return Ok((0, 0)) };
        let (len, payload) = (segment.header_len, segment.payload);
        match self.socket.send_long([&self.headers[0][..len], payload]) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok((0, 1)),
            Err(error) => return Err(error),
        }
        self.patience.rewarded();
        sent.count(len + payload.len());
        Ok((1, 1))
    }

    /// Returns true if a frame of `len` bytes, which begins with `front`, was refused as too long for its second VLAN
    /// tag: it is to be sent by another way from now on, and those that are as long.
    fn may_be_long(&mut self, error: &io::Error, front: &[u8], len: usize) -> bool {
        let is_long =
            error.raw_os_error() == Some(EMSGSIZE) && len < self.long && vlan_tags(front) == 2;
        if is_long {
            self.long = len;
        }
        is_long
    }

    /// Sends a super-packet for the interface to segment. `None` if it refuses, as when its features have
    /// changed since they were read.
    fn send_whole(
        &mut self,
        packet: &[u8],
        whole: &SuperPacket,
        transmitted: &mut Transmitted,
    ) -> Option<Transmit> {
        let message = Message { vnet: whole.vnet.encode_legacy(), header: &[], payload: packet };
        match self.socket.send(&[message]) {
            Ok(0) => return Some(Transmit::Full { position: 0 }),
            Ok(_) => self.patience.rewarded(),
            Err(error) if error.raw_os_error() != Some(ENOBUFS) => return None,
            Err(error) if !self.is_lost(&error) => return Some(Transmit::Full { position: 0 }),
            Err(_) => {
                // One is counted already.
                self.lost += whole.on_the_wire(packet.len()).frames - 1;
                return Some(Transmit::Done);
            }
        }
        let sent = whole.on_the_wire(packet.len());
        *transmitted =
            Transmitted { sent, kind: Some(whole.kind), hardware: true, fragment_ids: 0 };
        Some(Transmit::Done)
    }
}

impl PacketWire {
    /// Kinds of super-packets that are left to the interface, or to the kernel in front of it.
    fn hardware(&self) -> Hardware {
        match self.limits.hardware {
            GsoHardware::Auto => self.hardware,
            GsoHardware::Kernel => Hardware::KERNEL,
            GsoHardware::Off => Hardware::NONE,
        }
    }
}

fn received(received: Received) -> RxFrame {
    RxFrame {
        // The kernel wrote the header itself, so it is valid; an invalid one counts as empty.
        vnet: VirtioNetHdr::decode_legacy(&received.vnet).unwrap_or_default(),
        overflow: received.overflow,
        slot: received.slot,
        maybe_partial: false,
        frame: received.frame,
    }
}

impl Wire for PacketWire {
    fn receive(
        &mut self,
        pool: &mut FramePool,
        into: &mut VecDeque<RxFrame>,
        max: usize,
    ) -> io::Result<()> {
        self.take(pool, max)?;
        into.extend(self.received.drain(..).map(received));
        Ok(())
    }

    fn receive_stamped(
        &mut self,
        pool: &mut FramePool,
        into: &mut VecDeque<(RxFrame, Option<Nanos>)>,
        max: usize,
    ) -> io::Result<()> {
        self.take(pool, max)?;
        let stamped = |frame: Received| (frame.stamp, received(frame));
        into.extend(self.received.drain(..).map(stamped).map(|(stamp, frame)| (frame, stamp)));
        Ok(())
    }

    fn overflow(&self, received: &RxFrame) -> &[u8] {
        self.socket.overflow(received.slot, received.overflow)
    }

    fn configure(&mut self, limits: Limits) {
        self.limits = limits;
        self.long = usize::MAX;
    }

    fn transmit(
        &mut self,
        pool: &mut FramePool,
        packet: Outgoing<'_>,
        transmitted: &mut Transmitted,
    ) -> Result<Transmit, Refusal> {
        let Outgoing { vnet, bytes, position, fragment_ids } = packet;
        // A packet that fits no frame, as the wire's MTU has grown, is sent from where it lies.
        let fits = bytes.len() <= pool.chunk_size();
        if vnet.gso_type == GsoType::None && fits && self.limits.surely_holds(bytes) {
            return self.queue(pool, bytes, &vnet, &mut transmitted.sent);
        }
        // Frames that were queued before go first.
        if !self.send_queued(pool) {
            return Ok(Transmit::Full { position });
        }
        if position == 0
            && let Some(whole) = self.hardware().leave(bytes, &vnet, self.limits.mtu)
            && let Some(result) = self.send_whole(bytes, &whole, transmitted)
        {
            return Ok(result);
        }
        let mut segments = Segmenter::with_mtu(bytes, &vnet, self.limits.mtu, fragment_ids)?;
        (transmitted.kind, transmitted.fragment_ids) = (segments.kind(), segments.fragment_ids());
        segments.skip_to(position);
        while segments.position() < segments.gso_segs() {
            let start = segments.position();
            let sent = match segments.max_segment_len() >= self.long {
                true => self.send_long_segment(&mut segments, &mut transmitted.sent),
                false => self.send_segments(&mut segments, &mut transmitted.sent),
            };
            match sent {
                Ok((taken, count)) if taken == count => {}
                Ok((taken, _)) => return Ok(Transmit::Full { position: start + taken }),
                Err(error) if self.may_be_long(&error, bytes, segments.max_segment_len()) => {
                    segments.skip_to(start);
                }
                Err(error) if self.is_lost(&error) => segments.skip_to(start + 1),
                Err(_) => return Ok(Transmit::Full { position: start }),
            }
        }
        Ok(Transmit::Done)
    }

    fn transmit_pieces(
        &mut self,
        pool: &mut FramePool,
        vnet: &VirtioNetHdr,
        pieces: [Bytes<'_>; 3],
        transmitted: &mut Transmitted,
    ) -> Whole {
        let [headers, first, second] = pieces.map(Bytes::len);
        // Connections go by the MTU of their beginning. The kernel cuts as it is told, whatever the MTU is now.
        let room = self.limits.mtu.saturating_add(ETHERNET_LEN).saturating_sub(headers);
        let gso_size = usize::from(vnet.gso_size).min(room);
        if gso_size == 0 || !(self.hardware().tcp4 && self.hardware().tcp6) {
            return Whole::Cut;
        }
        // Frames that were queued before go first.
        let header = VirtioNetHdr { gso_size: gso_size as u16, ..*vnet }.encode_legacy();
        if !self.send_queued(pool) || self.socket.send_bytes(&header, &pieces).is_err() {
            return Whole::Full;
        }
        self.patience.rewarded();
        let frames = (first + second).div_ceil(gso_size);
        let bytes = headers * frames + first + second;
        transmitted.sent.add(Traffic { frames: frames as u64, bytes: bytes as u64 });
        transmitted.hardware = true;
        Whole::Done
    }

    fn send_frame(&mut self, pool: &mut FramePool, frame: Frame) -> Result<(), Frame> {
        if self.queued.len() >= BATCH && !self.send_queued(pool) {
            return Err(frame);
        }
        self.queued.push_back(frame);
        Ok(())
    }

    fn flush(&mut self, pool: &mut FramePool) -> io::Result<()> {
        self.send_queued(pool);
        Ok(())
    }

    fn is_pending(&mut self) -> bool {
        !self.queued.is_empty()
    }

    fn retry_after(&self) -> Option<Nanos> {
        self.patience.is_tried().then_some(RETRY_QUEUE)
    }

    fn burst(&self) -> usize {
        BATCH
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn counters(&mut self) -> WireCounters {
        let dropped =
            self.socket.statistics().map_or(0, |s| s.dropped + s.truncated + s.unreadable);
        let (lost, taken_back) = (self.lost, self.taken_back);
        WireCounters { lost, taken_back, dropped, ..WireCounters::default() }
    }

    /// The kernel would not take later what it does not take now.
    fn give_up(&mut self, pool: &mut FramePool) {
        self.send_queued(pool);
        for frame in self.queued.drain(..) {
            self.lost += 1;
            self.taken_back.count(frame.len());
            pool.free(frame);
        }
    }

    fn close(mut self, pool: &mut FramePool) {
        self.give_up(pool);
        self.socket.close(pool);
    }
}

#[cfg(test)]
mod tests {
    use sys::interface::{self, Interface};
    use sys::netlink::link::{VethEnd, create_veth};
    use sys::netns::Namespace;
    use sys::packet::Config;
    use testkit::packet::PacketBuilder;

    use super::*;

    /// Two ends of a veth.
    fn ends() -> sys::Result<[u32; 2]> {
        create_veth(&VethEnd::new("near"), &VethEnd::new("far"))?;
        for end in ["near", "far"] {
            sys::sysctl::set_ipv6_conf(end, "disable_ipv6", "1")?;
            interface::set_up(end)?;
        }
        while !Interface::by_name("near")?.operational || !Interface::by_name("far")?.operational {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Ok([interface::index("near")?, interface::index("far")?])
    }

    /// A connection goes on with the segments of its beginning, and the kernel cuts to what it is told.
    #[test]
    fn pieces_are_left_to_be_cut_to_an_mtu_that_became_smaller() {
        let Ok(namespace) = Namespace::new() else { return };
        let sizes = namespace.run(|| {
            let [near, far] = ends().unwrap();
            let open = |index, send_only| {
                let config = Config { send_only, ..Config::default() };
                PacketWire::new(PacketSocket::open(index, config).unwrap(), Hardware::KERNEL)
            };
            let (mut near, mut far) = (open(near, true), open(far, false));
            let mut pool = FramePool::new(256, 2048).unwrap();
            let (bytes, vnet) = PacketBuilder::tcp4().payload_pattern(6000).super_packet(1400);
            let header = bytes.len() - 6000;
            let mut sizes = Vec::new();
            for (mtu, frames) in [(1500, 5), (600, 11), (1500, 5)] {
                near.configure(Limits { mtu, hardware: GsoHardware::Kernel });
                let mut transmitted = Transmitted::default();
                let pieces = [&bytes[..header], &bytes[header..3000], &bytes[3000..]];
                let whole = near.transmit_pieces(
                    &mut pool,
                    &vnet,
                    pieces.map(Bytes::from),
                    &mut transmitted,
                );
                assert_eq!((whole, transmitted.sent.frames), (Whole::Done, frames));
                assert_eq!(transmitted.sent.bytes, 6000 + frames * header as u64);
                let mut received = VecDeque::new();
                while received.is_empty() {
                    far.receive(&mut pool, &mut received, 1).unwrap();
                }
                for received in received {
                    sizes.push((usize::from(received.vnet.gso_size) + header, mtu));
                    pool.free(received.frame);
                }
            }
            near.close(&mut pool);
            far.close(&mut pool);
            sizes
        });
        let sizes = sizes.unwrap();
        assert_eq!(sizes.len(), 3, "one packet each, whole");
        assert!(sizes.iter().all(|(len, mtu)| *len <= mtu + ETHERNET_LEN), "{sizes:?}");
        assert_eq!(sizes[1].0, 600 + ETHERNET_LEN);
    }
}
