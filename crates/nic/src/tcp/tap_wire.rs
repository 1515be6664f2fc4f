//! A host port as a wire of plain frames, so that what goes around a wire (degen) goes around it, too.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use gso::Refusal;
use sys::frames::{Frame, FramePool};
use wire::VirtioNetHdr;

use crate::port::{FromHost, Outgoing, Pieces, Put, RxFrame, Transmit, Wire};

/// A host's kernel, which leaves nothing to be done to what it sends.
#[derive(Debug)]
pub(super) struct TapWire<H> {
    host: H,
    /// Frames that the host did not take, or that no chunk holds.
    lost: u64,
    dropped: u64,
}

impl<H: Pieces> TapWire<H> {
    /// Takes the port.
    pub(super) fn new(host: H) -> Self {
        TapWire { host, lost: 0, dropped: 0 }
    }

    fn put(&mut self, bytes: &[u8]) {
        let sent = self.host.send(VirtioNetHdr::default(), [bytes, &[], &[]]);
        self.lost += u64::from(sent.is_err());
    }
}

impl<H: Pieces> Wire for TapWire<H> {
    fn receive(
        &mut self,
        pool: &mut FramePool,
        into: &mut VecDeque<RxFrame>,
        max: usize,
    ) -> io::Result<()> {
        for _ in 0..max {
            let Some(mut frame) = pool.alloc() else { break };
            match self.host.receive() {
                Ok(FromHost::Packet(packet)) if packet.bytes.len() <= pool.chunk_size() => {
                    pool.set_range(&mut frame, 0, packet.bytes.len());
                    pool.bytes_mut(&mut frame).copy_from_slice(packet.bytes);
                    let vnet = packet.vnet;
                    let (overflow, slot, maybe_partial) = (0, 0, false);
                    into.push_back(RxFrame { frame, vnet, overflow, slot, maybe_partial });
                }
                Ok(FromHost::Empty) => {
                    pool.free(frame);
                    break;
                }
                Ok(_) => {
                    pool.free(frame);
                    self.dropped += 1;
                }
                Err(error) => {
                    pool.free(frame);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Only complete frames come this way: [`WirePort`](super::wire_port::WirePort) cuts.
    fn transmit(
        &mut self,
        _pool: &mut FramePool,
        packet: Outgoing<'_>,
        put: &mut Put,
    ) -> Result<Transmit, Refusal> {
        gso::complete_checksum(packet.bytes, &packet.vnet)?;
        self.put(packet.bytes);
        put.sent.count(packet.bytes.len());
        Ok(Transmit::Done)
    }

    fn send_frame(&mut self, pool: &mut FramePool, frame: Frame) -> Result<(), Frame> {
        self.put(pool.bytes(&frame));
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

    fn lost(&self) -> u64 {
        self.lost
    }

    fn dropped(&mut self) -> u64 {
        self.dropped
    }

    fn close(self, _pool: &mut FramePool) {}
}
