//! Ports in memory: both ends of a wire or a host in one process, for tests and measurements.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::slice;
use gso::{Refusal, Segmenter};
use sys::frames::{FramePool, FrameReader};
use wire::{Bytes, GsoType, VirtioNetHdr};

use super::{
    Delivered, Delivery, FromHost, Host, HostPacket, Limits, Outgoing, RxFrame, Transmit,
    Transmitted, Whole, Wire,
};

/// A packet and the header that goes with it.
pub type Packet = (VirtioNetHdr, Vec<u8>);

/// The far end of a port in memory.
#[derive(Clone, Debug, Default)]
pub struct FarEnd {
    queues: Arc<Mutex<Queues>>,
}

#[derive(Debug, Default)]
struct Queues {
    to_port: VecDeque<Packet>,
    from_port: VecDeque<Packet>,
    /// Frames the wire takes before it is full; `None` for no bound.
    room: Option<usize>,
}

impl FarEnd {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a packet for the port to receive.
    pub fn send(&self, vnet: VirtioNetHdr, bytes: Vec<u8>) {
        self.lock().to_port.push_back((vnet, bytes));
    }

    /// Takes all packets that the port has sent.
    pub fn take(&self) -> Vec<Packet> {
        self.lock().from_port.drain(..).collect()
    }

    /// How many packets the port has not received yet.
    pub fn waiting(&self) -> usize {
        self.lock().to_port.len()
    }

    /// Lets the port send `frames` more before it is full; `None` for no bound.
    pub fn set_room(&self, frames: Option<usize>) {
        self.lock().room = frames;
    }
}

/// A wire in memory.
#[derive(Debug)]
pub struct MemoryWire {
    far: FarEnd,
    limits: Limits,
    /// Whether super-packets in pieces are sent without being cut.
    whole: bool,
    /// The parts of the last batch that did not fit into frames.
    overflow: Vec<Vec<u8>>,
}

impl MemoryWire {
    /// A wire and its far end.
    pub fn new() -> (Self, FarEnd) {
        let far = FarEnd::default();
        let overflow = Vec::new();
        (MemoryWire { far: far.clone(), limits: Limits::NONE, whole: false, overflow }, far)
    }

    /// The same for a wire on which super-packets are cut later, as on a veth.
    pub fn with_offloads() -> (Self, FarEnd) {
        let (wire, far) = MemoryWire::new();
        (MemoryWire { whole: true, ..wire }, far)
    }
}

impl Wire for MemoryWire {
    fn receive(
        &mut self,
        pool: &mut FramePool,
        into: &mut VecDeque<RxFrame>,
        max: usize,
    ) -> io::Result<()> {
        let mut queues = self.far.lock();
        self.overflow.clear();
        for _ in 0..max.min(usize::from(u8::MAX)) {
            let Some(mut frame) = pool.alloc() else { break };
            let Some((vnet, bytes)) = queues.to_port.pop_front() else {
                pool.free(frame);
                break;
            };
            let (first, rest) = bytes.split_at(bytes.len().min(pool.chunk_size()));
            pool.set_range(&mut frame, 0, first.len());
            pool.bytes_mut(&mut frame).copy_from_slice(first);
            let (slot, overflow) = (self.overflow.len() as u8, rest.len() as u32);
            self.overflow.push(rest.to_vec());
            into.push_back(RxFrame { frame, vnet, overflow, slot, maybe_partial: false });
        }
        Ok(())
    }

    fn overflow(&self, received: &RxFrame) -> &[u8] {
        &self.overflow[usize::from(received.slot)]
    }

    fn waiting(&mut self) -> Option<u32> {
        u32::try_from(self.far.lock().to_port.len()).ok()
    }

    fn transmit_pieces(
        &mut self,
        _pool: &mut FramePool,
        vnet: &VirtioNetHdr,
        pieces: [Bytes<'_>; 3],
        transmitted: &mut Transmitted,
    ) -> Whole {
        if !self.whole || vnet.gso_size == 0 {
            return Whole::Cut;
        }
        let mut bytes = Vec::new();
        for piece in pieces {
            bytes.extend_from_slice(slice(piece, &mut Vec::new()));
        }
        transmitted.sent.count(bytes.len());
        self.far.lock().from_port.push_back((*vnet, bytes));
        Whole::Done
    }

    fn configure(&mut self, limits: Limits) {
        self.limits = limits;
    }

    fn transmit(
        &mut self,
        _pool: &mut FramePool,
        packet: Outgoing<'_>,
        transmitted: &mut Transmitted,
    ) -> Result<Transmit, Refusal> {
        let Outgoing { vnet, bytes, position, fragment_ids } = packet;
        let mut queues = self.far.lock();
        let mut send = |bytes: Vec<u8>| {
            if let Some(room) = &mut queues.room {
                if *room == 0 {
                    return false;
                }
                *room -= 1;
            }
            transmitted.sent.count(bytes.len());
            queues.from_port.push_back((VirtioNetHdr::default(), bytes));
            true
        };
        if vnet.gso_type == GsoType::None && self.limits.surely_holds(bytes) {
            // A copy is cut: the packet is offered again as it is.
            let mut frame = bytes.to_vec();
            gso::complete_checksum(&mut frame, &vnet)?;
            let taken = send(frame);
            return Ok(if taken { Transmit::Done } else { Transmit::Full { position: 0 } });
        }
        let mut segments = Segmenter::with_mtu(bytes, &vnet, self.limits.mtu, fragment_ids)?;
        (transmitted.kind, transmitted.fragment_ids) = (segments.kind(), segments.fragment_ids());
        segments.skip_to(position);
        let mut out = vec![0; segments.max_segment_len()];
        loop {
            let position = segments.position();
            let Some(len) = segments.next_into(&mut out)? else { return Ok(Transmit::Done) };
            if !send(out[..len].to_vec()) {
                return Ok(Transmit::Full { position });
            }
        }
    }

    fn flush(&mut self, _pool: &mut FramePool) -> io::Result<()> {
        Ok(())
    }

    fn is_pending(&mut self) -> bool {
        false
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn close(self, _pool: &mut FramePool) {}
}

/// A host in memory.
#[derive(Debug, Default)]
pub struct MemoryHost {
    far: FarEnd,
    last: Option<Packet>,
}

impl MemoryHost {
    /// A host port and its far end.
    pub fn new() -> (Self, FarEnd) {
        let host = MemoryHost::default();
        let far = host.far.clone();
        (host, far)
    }
}

impl Host for MemoryHost {
    fn deliver(&mut self, memory: &FrameReader, packet: Delivery<'_>) -> io::Result<Delivered> {
        let mut bytes = Vec::with_capacity(packet.bytes());
        packet.slices(memory).for_each(|slice| bytes.extend_from_slice(&slice));
        self.far.lock().from_port.push_back((packet.vnet, bytes));
        Ok(Delivered::Now)
    }

    fn receive(&mut self) -> io::Result<FromHost<'_>> {
        self.last = self.far.lock().to_port.pop_front();
        Ok(self.again().map_or(FromHost::Empty, FromHost::Packet))
    }

    fn again(&mut self) -> Option<HostPacket<'_>> {
        let (vnet, bytes) = self.last.as_mut()?;
        Some(HostPacket { vnet: *vnet, bytes })
    }

    fn last(&self) -> &[u8] {
        self.last.as_ref().map_or(&[], |(_, bytes)| bytes)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
