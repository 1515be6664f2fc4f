//! What an endpoint needs of the place where its packets come from and go to: a host's kernel behind a
//! TAP or a veth ([`HostPort`]), or a wire ([`WirePort`](super::wire_port::WirePort)).

use std::io;
use std::os::fd::BorrowedFd;

use lro::{Nanos, RxChecksum};
use sys::poll::Interest;
use wire::VirtioNetHdr;

use super::counters::PortCounters;
use crate::port::{FromHost, Pieces, Refused};

/// A packet that has arrived, in the memory where it lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived<'a> {
    /// From the Ethernet header on, all headers included.
    pub(super) bytes: &'a [u8],
    /// What follows, where it lies elsewhere.
    pub(super) rest: &'a [&'a [u8]],
    /// What is known of the transport's checksum.
    pub(super) checksum: RxChecksum,
    /// Payload bytes of each segment that it was made of; 0 if it is one.
    pub(super) gso_size: u16,
}

/// A packet to send, in the memory where it lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet<'a> {
    /// Checksum state, and how it is to be cut.
    pub(super) vnet: VirtioNetHdr,
    /// From the Ethernet header on.
    pub(super) header: &'a [u8],
    /// What follows, in one or two pieces.
    pub(super) payload: [&'a [u8]; 2],
}

impl<'a> Packet<'a> {
    /// A frame in one piece.
    pub(super) fn frame(vnet: VirtioNetHdr, bytes: &'a [u8]) -> Self {
        Packet { vnet, header: bytes, payload: [&[], &[]] }
    }

    /// Bytes, from the Ethernet header on.
    pub(super) fn len(&self) -> usize {
        self.header.len() + self.payload[0].len() + self.payload[1].len()
    }
}

/// See the module's documentation. Nothing here blocks.
pub(super) trait Port {
    /// Hands over what has arrived, at most `max` packets and not many more bytes than
    /// [`TURN_BYTES`]; returns how many arrived.
    ///
    /// # Errors
    /// Only what makes the port useless.
    fn receive(
        &mut self,
        max: usize,
        now: Nanos,
        take: impl FnMut(Arrived<'_>),
    ) -> io::Result<usize>;

    /// Nothing more comes for now: hands over what was kept to be joined with more.
    fn idle(&mut self, now: Nanos, take: impl FnMut(Arrived<'_>));

    /// Whether there is room for one more packet, however large.
    fn has_room(&mut self) -> bool;

    /// Takes a packet, for which there [is room](Self::has_room). What becomes of it is counted.
    fn send(&mut self, packet: &Packet<'_>);

    /// Makes the kernel take what was sent.
    ///
    /// # Errors
    /// Only what makes the port useless.
    fn flush(&mut self) -> io::Result<()>;

    /// When the port has something to do by itself.
    fn next_deadline(&self) -> Option<Nanos>;

    /// What to sleep on, and for what, and how long at most. `waits` says that there is something to
    /// send and was no room.
    fn wait(&mut self, waits: bool) -> (Option<(BorrowedFd<'_>, Interest)>, Option<Nanos>);

    /// What the port has counted.
    fn counters(&mut self) -> PortCounters;

    /// The port is not used afterwards.
    fn close(self);
}

/// Bytes after which a turn has received enough: what it has to say to them is to leave first.
pub(super) const TURN_BYTES: usize = 256 << 10;

/// What a `virtio_net_hdr` says of a checksum. One that needs completing comes from this machine, and is
/// as right as its memory is.
pub(super) fn checksum_of(vnet: &VirtioNetHdr, maybe_partial: bool) -> RxChecksum {
    if vnet.needs_csum || vnet.data_valid {
        RxChecksum::Verified
    } else if maybe_partial {
        RxChecksum::MaybePartial
    } else {
        RxChecksum::Unverified
    }
}

/// A kernel behind a TAP or a veth. Super-packets go both ways, and payload is copied by the kernel
/// alone.
#[derive(Debug)]
pub(super) struct HostPort<H> {
    host: H,
    counters: PortCounters,
}

impl<H: Pieces> HostPort<H> {
    /// Takes the port.
    pub(super) fn new(host: H) -> Self {
        HostPort { host, counters: PortCounters::default() }
    }
}

impl<H: Pieces> Port for HostPort<H> {
    fn receive(
        &mut self,
        max: usize,
        _now: Nanos,
        mut take: impl FnMut(Arrived<'_>),
    ) -> io::Result<usize> {
        let (mut count, mut bytes) = (0, 0);
        while count < max && bytes < TURN_BYTES {
            match self.host.receive()? {
                FromHost::Packet(packet) => {
                    bytes += packet.bytes.len();
                    self.counters.received.count(packet.bytes.len());
                    take(Arrived {
                        bytes: packet.bytes,
                        rest: &[],
                        checksum: checksum_of(&packet.vnet, false),
                        gso_size: packet.vnet.gso_size,
                    });
                }
                FromHost::Unreadable => self.counters.unreadable += 1,
                FromHost::Empty => break,
            }
            count += 1;
        }
        Ok(count)
    }

    fn idle(&mut self, _now: Nanos, _take: impl FnMut(Arrived<'_>)) {}

    fn has_room(&mut self) -> bool {
        true
    }

    fn send(&mut self, packet: &Packet<'_>) {
        let [first, second] = packet.payload;
        match self.host.send(packet.vnet, [packet.header, first, second]) {
            Ok(()) => self.counters.sent.count(packet.len()),
            Err(error) => self.counters.refused[Refused::from_error(&error) as usize] += 1,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn next_deadline(&self) -> Option<Nanos> {
        None
    }

    fn wait(&mut self, _waits: bool) -> (Option<(BorrowedFd<'_>, Interest)>, Option<Nanos>) {
        (self.host.fd().map(|fd| (fd, Interest::Read)), None)
    }

    fn counters(&mut self) -> PortCounters {
        self.counters.clone()
    }

    fn close(self) {}
}
