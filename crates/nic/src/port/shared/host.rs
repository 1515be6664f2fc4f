//! A worker's view of a port that it shares.

use std::io;
use std::os::fd::BorrowedFd;

use sys::frames::FrameReader;

use crate::port::{AggregateKinds, Delivered, Delivery, FromHost, Host, HostPacket};

use super::Requests;

/// The host port of one worker among several, which delivers by requests. One of the workers reads what the
/// host sends, and sends it through its own queue of the wire; the others receive nothing.
#[derive(Debug)]
pub struct SharedHost<H> {
    requests: Requests,
    reads: Option<H>,
    refuses: AggregateKinds,
}

impl<H: Host> SharedHost<H> {
    /// Delivers by `requests`, and reads from `reads` if this is the worker that reads.
    pub fn new(requests: Requests, reads: Option<H>) -> Self {
        SharedHost { requests, reads, refuses: AggregateKinds::NONE }
    }

    /// The same, in front of a kernel that was seen to refuse these aggregates.
    pub fn refusing(self, refuses: AggregateKinds) -> Self {
        SharedHost { refuses, ..self }
    }
}

impl<H: Host> Host for SharedHost<H> {
    fn deliver(&mut self, _memory: &FrameReader, packet: Delivery<'_>) -> io::Result<Delivered> {
        self.requests.put(packet).map(|()| Delivered::Later)
    }

    fn refuses(&self) -> AggregateKinds {
        self.refuses
    }

    fn requests(&self) -> Option<&Requests> {
        Some(&self.requests)
    }

    fn requests_mut(&mut self) -> Option<&mut Requests> {
        Some(&mut self.requests)
    }

    fn receive(&mut self) -> io::Result<FromHost<'_>> {
        self.reads.as_mut().map_or(Ok(FromHost::Empty), Host::receive)
    }

    fn again(&mut self) -> Option<HostPacket<'_>> {
        self.reads.as_mut().and_then(Host::again)
    }

    fn last(&self) -> &[u8] {
        self.reads.as_ref().map_or(&[], Host::last)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.reads.as_ref().and_then(Host::fd)
    }
}
