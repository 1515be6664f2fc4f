//! A host port as a wire, so that a lane for a wire can serve a kernel as well.
//!
//! Super-packets are not copied: of those that the kernel sends only the headers are ([`Wire::overflow`]),
//! and those to the kernel are written from where they lie ([`Wire::transmit_pieces`]).

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use super::slice;
use gso::Refusal;
use sys::frames::{Frame, FramePool};
use wire::{Bytes, VirtioNetHdr};

use super::{
    CuttingHost, Delivered, Delivery, FromHost, Host, Outgoing, Refused, RxFrame, Traffic,
    Transmit, Transmitted, Whole, Wire, WireCounters,
};

/// Bytes of a super-packet that are copied into its frame: more than its headers.
const HEAD: usize = 512;

/// See the module's documentation.
#[derive(Debug)]
pub struct HostWire<H> {
    host: CuttingHost<H>,
    takes_whole: bool,
    counters: WireCounters,
}

impl<H: Host> HostWire<H> {
    /// Takes the port of a kernel that sends and accepts super-packets.
    pub fn new(host: H) -> Self {
        HostWire {
            host: CuttingHost::new(host),
            takes_whole: true,
            counters: WireCounters::default(),
        }
    }

    /// The same for a kernel that sends and receives complete frames only.
    pub fn plain(host: H) -> Self {
        HostWire { takes_whole: false, ..HostWire::new(host) }
    }

    /// Moves the last packet into a frame, or only its headers if it is long.
    fn fill(&mut self, pool: &mut FramePool, mut frame: Frame, vnet: VirtioNetHdr) -> RxFrame {
        let bytes = self.host.last();
        let len = if bytes.len() > pool.chunk_size() { HEAD } else { bytes.len() };
        pool.set_range(&mut frame, 0, len);
        pool.bytes_mut(&mut frame).copy_from_slice(&bytes[..len]);
        let overflow = (bytes.len() - len) as u32;
        RxFrame { frame, vnet, overflow, slot: 0, maybe_partial: false }
    }

    /// Returns what the kernel accepted. What it refused is counted by reason.
    fn deliver(&mut self, pool: &FramePool, vnet: VirtioNetHdr, pieces: [&[u8]; 3]) -> Traffic {
        let [header, first, second] = pieces;
        let packet = Delivery { vnet, header, frames: &mut Vec::new(), rest: [first, second] };
        let mut sent = Traffic::default();
        let bytes = packet.bytes();
        match self.host.deliver(pool.reader(), packet) {
            Ok(Delivered::Cut(cut)) => {
                sent.add(cut.taken);
                self.counters.refused[Refused::HostRefused as usize] += cut.refused;
            }
            Ok(Delivered::Now | Delivered::Later) => sent.count(bytes),
            Err(error) => self.counters.refused[Refused::from_error(&error) as usize] += 1,
        }
        sent
    }
}

impl<H: Host> Wire for HostWire<H> {
    /// A packet that does not fit into a frame stays in the port's buffer, so it is the last of its batch.
    fn receive(
        &mut self,
        pool: &mut FramePool,
        into: &mut VecDeque<RxFrame>,
        max: usize,
    ) -> io::Result<()> {
        for _ in 0..max {
            let Some(frame) = pool.alloc() else { break };
            let vnet = match self.host.receive() {
                Ok(FromHost::Packet(packet)) => packet.vnet,
                Ok(FromHost::Unreadable) => {
                    pool.free(frame);
                    self.counters.unreadable += 1;
                    continue;
                }
                Ok(FromHost::Empty) => {
                    pool.free(frame);
                    break;
                }
                Err(error) => {
                    pool.free(frame);
                    return Err(error);
                }
            };
            let received = self.fill(pool, frame, vnet);
            let is_last = received.overflow > 0;
            into.push_back(received);
            if is_last {
                break;
            }
        }
        Ok(())
    }

    fn overflow(&self, received: &RxFrame) -> &[u8] {
        let bytes = self.host.last();
        &bytes[bytes.len() - received.overflow as usize..]
    }

    /// Packets on this path fit the kernel's interface: they were cut before, if they had to be.
    fn transmit(
        &mut self,
        pool: &mut FramePool,
        packet: Outgoing<'_>,
        transmitted: &mut Transmitted,
    ) -> Result<Transmit, Refusal> {
        let Outgoing { mut vnet, bytes, .. } = packet;
        if !self.takes_whole {
            gso::complete_checksum(bytes, &vnet)?;
            vnet = VirtioNetHdr::default();
        }
        transmitted.sent.add(self.deliver(pool, vnet, [bytes, &[], &[]]));
        Ok(Transmit::Done)
    }

    fn transmit_pieces(
        &mut self,
        pool: &mut FramePool,
        vnet: &VirtioNetHdr,
        pieces: [Bytes<'_>; 3],
        transmitted: &mut Transmitted,
    ) -> Whole {
        if !self.takes_whole {
            return Whole::Cut;
        }
        let mut copies: [Vec<u8>; 3] = Default::default();
        let [header, first, second] = &mut copies;
        let copies = [header, first, second];
        let mut slices = pieces.into_iter().zip(copies).map(|(piece, copy)| slice(piece, copy));
        let slices = [(); 3].map(|()| slices.next().unwrap_or_default());
        transmitted.sent.add(self.deliver(pool, *vnet, slices));
        Whole::Done
    }

    fn send_frame(&mut self, pool: &mut FramePool, frame: Frame) -> Result<(), Frame> {
        let sent = self.deliver(pool, VirtioNetHdr::default(), [pool.bytes(&frame), &[], &[]]);
        let mut offered = Traffic::default();
        offered.count(frame.len());
        self.counters.taken_back.add(offered - sent);
        pool.free(frame);
        Ok(())
    }

    fn flush(&mut self, _pool: &mut FramePool) -> io::Result<()> {
        Ok(())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.host.fd()
    }

    fn is_pending(&mut self) -> bool {
        false
    }

    fn counters(&mut self) -> WireCounters {
        self.counters.clone()
    }

    fn close(self, _pool: &mut FramePool) {}
}
