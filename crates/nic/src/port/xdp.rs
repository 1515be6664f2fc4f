//! A wire port on one queue of an interface, by AF_XDP.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use gso::{Refusal, Segmenter};
use lro::Nanos;
use sys::frames::{Frame, FramePool};
use sys::xdp::XdpSocket;
use wire::{GsoType, VirtioNetHdr};

use crate::config::GsoHardware;

use super::{
    LINK_HEADER_MAX, Limits, Outgoing, RxFrame, SHORT_QUEUE, Traffic, Transmit, Transmitted, Wire,
    WireCounters,
};

/// Frames of a super-packet after which the kernel is called to send them. It takes as many at once, so this
/// makes no more system calls; but what it copies is still in the cache, and the next super-packet is written
/// to the same memory.
const KICK_AFTER: usize = 32;
/// Nanoseconds until an interface that is down is tried again.
const RETRY_DOWN: Nanos = 10_000_000;
/// Nanoseconds until it is checked again whether a driver has sent.
const RETRY_DRIVER: Nanos = 100_000;

/// One AF_XDP socket.
///
/// Its transmit memory is the UMEM, so the copy into it takes the place of a card's DMA: it is the only one
/// on the way out, and the checksum is computed while the bytes are in the cache.
#[derive(Debug)]
pub struct XdpWire {
    socket: XdpSocket,
    /// Received frames that become [`RxFrame`]s; empty between calls.
    frames: Vec<Frame>,
    /// Whether the peer may leave checksums partial: on a veth.
    virtual_wire: bool,
    /// Whether the interface was down when frames were last sent.
    down: bool,
    /// Frames over the interface's MTU, which some drivers drop without an error and others send.
    too_long: Traffic,
    limits: Limits,
    /// Bytes of the longest IP packet that fits a frame's memory behind Ethernet and two VLAN tags.
    longest: usize,
}

impl XdpWire {
    /// Takes the socket, and gives it memory of `pool` to receive into. `virtual_wire`: frames come from a
    /// kernel on this machine, which may not have computed their checksums.
    pub fn new(mut socket: XdpSocket, pool: &mut FramePool, virtual_wire: bool) -> Self {
        socket.limit_receive(SHORT_QUEUE);
        socket.refill(pool);
        let longest = pool.chunk_size() - LINK_HEADER_MAX;
        XdpWire {
            socket,
            frames: Vec::with_capacity(256),
            virtual_wire,
            down: false,
            too_long: Traffic::default(),
            limits: Limits { mtu: longest, hardware: GsoHardware::Off },
            longest,
        }
    }

    /// Whether the driver moves frames without copying.
    pub fn zero_copy(&self) -> bool {
        self.socket.zero_copy()
    }

    /// A frame to send from; if there is none, the kernel is asked to return some.
    fn frame_to_send(&mut self, pool: &mut FramePool) -> Option<Frame> {
        if self.socket.tx_room() == 0 || pool.available() == 0 {
            // An error occurs again, and is reported, at `flush`.
            let _ = self.socket.kick();
            self.socket.reap(pool);
            if self.socket.tx_room() == 0 {
                return None;
            }
        }
        pool.alloc()
    }

    /// Queues a packet that fits, with its checksum completed.
    fn queue_whole(
        &mut self,
        pool: &mut FramePool,
        packet: &[u8],
        vnet: &VirtioNetHdr,
        transmitted: &mut Transmitted,
    ) -> Result<Transmit, Refusal> {
        if packet.len() > pool.chunk_size() {
            return Err(Refusal::BufferTooSmall);
        }
        let Some(mut frame) = self.frame_to_send(pool) else {
            return Ok(Transmit::Full { position: 0 });
        };
        pool.set_range(&mut frame, 0, packet.len());
        if let Err(why) = gso::complete_checksum_into(pool.bytes_mut(&mut frame), packet, vnet) {
            pool.free(frame);
            return Err(why);
        }
        self.queue(pool, frame, &mut transmitted.sent);
        Ok(Transmit::Done)
    }

    fn queue(&mut self, pool: &mut FramePool, frame: Frame, sent: &mut Traffic) {
        let bytes = frame.len();
        match self.socket.transmit(frame) {
            Ok(()) => {
                sent.count(bytes);
            }
            Err(frame) => pool.free(frame), // cannot be: there was room, and it has bytes
        }
    }
}

impl Wire for XdpWire {
    fn receive(
        &mut self,
        pool: &mut FramePool,
        into: &mut VecDeque<RxFrame>,
        max: usize,
    ) -> io::Result<()> {
        self.socket.receive(pool, &mut self.frames, max);
        let maybe_partial = self.virtual_wire;
        into.extend(self.frames.drain(..).map(|frame| {
            let vnet = VirtioNetHdr::default();
            RxFrame { frame, vnet, overflow: 0, slot: 0, maybe_partial }
        }));
        self.socket.refill(pool);
        Ok(())
    }

    fn receive_stamped(
        &mut self,
        pool: &mut FramePool,
        into: &mut VecDeque<(RxFrame, Option<Nanos>)>,
        max: usize,
    ) -> io::Result<()> {
        self.socket.receive(pool, &mut self.frames, max);
        let maybe_partial = self.virtual_wire;
        into.extend(self.frames.drain(..).map(|frame| {
            let (vnet, stamp) = (VirtioNetHdr::default(), pool.take_stamp(&frame));
            (RxFrame { frame, vnet, overflow: 0, slot: 0, maybe_partial }, stamp)
        }));
        self.socket.refill(pool);
        Ok(())
    }

    fn configure(&mut self, limits: Limits) {
        let mtu = limits.mtu.min(self.longest);
        self.limits = Limits { mtu, hardware: GsoHardware::Off };
    }

    fn limit_queue(&mut self, frames: usize) {
        self.socket.limit_receive(frames);
    }

    fn waiting(&mut self) -> Option<u32> {
        Some(self.socket.waiting())
    }

    fn transmit(
        &mut self,
        pool: &mut FramePool,
        packet: Outgoing<'_>,
        transmitted: &mut Transmitted,
    ) -> Result<Transmit, Refusal> {
        let Outgoing { vnet, bytes, position, fragment_ids } = packet;
        if vnet.gso_type == GsoType::None && self.limits.surely_holds(bytes) {
            return self.queue_whole(pool, bytes, &vnet, transmitted);
        }
        let mut segments = Segmenter::with_mtu(bytes, &vnet, self.limits.mtu, fragment_ids)?;
        (transmitted.kind, transmitted.fragment_ids) = (segments.kind(), segments.fragment_ids());
        if segments.max_segment_len() > pool.chunk_size() {
            return Err(Refusal::BufferTooSmall);
        }
        segments.skip_to(position);
        while segments.position() < segments.gso_segs() {
            let Some(mut frame) = self.frame_to_send(pool) else {
                return Ok(Transmit::Full { position: segments.position() });
            };
            match segments.next_into(pool.chunk_mut(&mut frame)) {
                Ok(Some(len)) => {
                    pool.set_range(&mut frame, 0, len);
                    self.queue(pool, frame, &mut transmitted.sent);
                }
                Ok(None) => pool.free(frame),
                Err(why) => {
                    pool.free(frame);
                    return Err(why);
                }
            }
        }
        if self.socket.tx_queued() >= KICK_AFTER {
            // An error occurs again, and is reported, at `flush`.
            let _ = self.socket.kick();
            self.socket.reap(pool);
        }
        Ok(Transmit::Done)
    }

    fn send_frame(&mut self, pool: &mut FramePool, frame: Frame) -> Result<(), Frame> {
        if !self.limits.holds(pool.bytes(&frame)) {
            self.too_long.count(frame.len());
            pool.free(frame);
            return Ok(());
        }
        if self.socket.tx_room() == 0 {
            // An error occurs again, and is reported, at `flush`.
            let _ = self.socket.kick();
            self.socket.reap(pool);
        }
        self.socket.transmit(frame)
    }

    fn flush(&mut self, pool: &mut FramePool) -> io::Result<()> {
        self.down = false;
        if self.socket.tx_queued() > 0 {
            match self.socket.kick() {
                // The interface is down: frames wait, as they would in a card without a link.
                Err(error) if error.kind() == io::ErrorKind::NetworkDown => self.down = true,
                other => other?,
            }
        }
        self.socket.reap(pool);
        Ok(())
    }

    fn is_pending(&mut self) -> bool {
        self.socket.tx_queued() > 0
    }

    /// No thread is woken when the interface comes up, or when a driver that sends by itself (zero-copy) has
    /// sent: the socket is writable while half of its ring is free.
    fn retry_after(&self) -> Option<Nanos> {
        match (self.down, self.socket.zero_copy()) {
            (true, _) => Some(RETRY_DOWN),
            (false, true) => Some(RETRY_DRIVER),
            (false, false) => None,
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    /// The kernel reports that frames in its ring were dropped only when they are gone.
    ///
    /// Frames for which there was no memory (`rx_fill_ring_empty`) are among the first in copy mode;
    /// with zero-copy the card drops them and counts them (`rx_dropped`, `rx_missed` of `ip -s -s link`).
    fn counters(&mut self) -> WireCounters {
        let sys::xdp::Refused { frames, bytes } = self.socket.refused();
        let mut taken_back = Traffic { frames, bytes };
        taken_back.add(self.too_long);
        let dropped = self.socket.statistics().map_or(0, |s| s.rx_dropped + s.rx_ring_full);
        WireCounters { lost: taken_back.frames, taken_back, dropped, ..WireCounters::default() }
    }

    fn close(self, pool: &mut FramePool) {
        self.socket.close(pool);
    }
}
