//! A capture of what passes a wire that is in use.
//!
//! A worker that is told of one copies what passes its queue of the wire: frames as they arrive, packets as they are
//! handed over to leave, whole also where they are cut later. What the reader is too slow for is dropped and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use ::lro::Nanos;
use tcp::FourTuple;
use wire::{Bytes, VirtioNetHdr};

use super::{Packet, complete};
use crate::steer::{self, Subject};

/// Packets that wait for the reader at most, and their bytes.
const PACKETS: usize = 4096;
const BYTES: u64 = 16 << 20;

/// What is to be captured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Only packets of the connection with these ends, both ways, and ICMP errors about it.
    pub path: Option<FourTuple>,
    /// Bytes of each packet at most.
    pub snaplen: u32,
}

/// A packet that passes the wire, in pieces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passing<'a> {
    pub(crate) vnet: VirtioNetHdr,
    /// Its checksum may be one of the pseudo-header alone, and `vnet` does not say.
    pub(crate) maybe_partial: bool,
    pub(crate) pieces: [Bytes<'a>; 3],
}

impl Passing<'_> {
    fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }

    /// Whether it is of the connection with these ends, of which the first is this machine's.
    fn is_of(&self, path: &FourTuple) -> bool {
        // What another process may change is payload, which does not say whose it is.
        let [bytes, rest, _] = self.pieces.map(|piece| piece.as_slice().unwrap_or_default());
        let key = steer::key_of_path(path);
        Subject::of(bytes, rest).is_some_and(|subject| {
            let found = *subject.key();
            found == key || found.reversed() == key
        })
    }
}

/// What one reader captures, as workers have it.
#[derive(Debug)]
pub(crate) struct Capture {
    wanted: Wanted,
    sender: SyncSender<Waiting>,
    /// Bytes that wait.
    waiting: AtomicU64,
    captured: AtomicU64,
    dropped: AtomicU64,
}

#[derive(Debug)]
struct Waiting {
    /// On the clock that does not jump.
    time: Nanos,
    vnet: VirtioNetHdr,
    maybe_partial: bool,
    original_len: u32,
    data: Vec<u8>,
}

impl Capture {
    /// One, and the end to read it from.
    pub(crate) fn new(wanted: Wanted) -> (Arc<Self>, Captured) {
        let (sender, receiver) = sync_channel(PACKETS);
        let zero = AtomicU64::default;
        let (waiting, captured, dropped) = (zero(), zero(), zero());
        let capture = Arc::new(Capture { wanted, sender, waiting, captured, dropped });
        // Packets have times of the calendar.
        let offset = sys::clock::real_ahead();
        let own = Arc::clone(&capture);
        (capture, Captured { capture: own, receiver, offset })
    }

    /// Takes a packet, if it is wanted.
    fn take(&self, packet: &Passing<'_>, time: Nanos) {
        if self.wanted.path.as_ref().is_some_and(|path| !packet.is_of(path)) {
            return;
        }
        let (len, snaplen) = (packet.len(), self.wanted.snaplen as usize);
        let taken = len.min(snaplen) as u64;
        // Several workers may be past the bound by a packet each.
        let has_room = self.waiting.load(Ordering::Relaxed) + taken <= BYTES;
        if has_room && self.send(packet, time, len, snaplen) {
            self.waiting.fetch_add(taken, Ordering::Relaxed);
            self.captured.fetch_add(1, Ordering::Relaxed);
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn send(&self, packet: &Passing<'_>, time: Nanos, len: usize, snaplen: usize) -> bool {
        let mut data = Vec::with_capacity(len.min(snaplen));
        for piece in packet.pieces {
            let start = data.len();
            let piece = piece.part(0, snaplen - start);
            data.resize(start + piece.len(), 0);
            piece.copy_to(&mut data[start..]);
        }
        let Passing { vnet, maybe_partial, .. } = *packet;
        let original_len = u32::try_from(len).unwrap_or(u32::MAX);
        self.sender.try_send(Waiting { time, vnet, maybe_partial, original_len, data }).is_ok()
    }
}

/// All that are under way; mostly there is none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Captures(Option<Arc<[Arc<Capture>]>>);

impl Captures {
    pub(crate) fn new(all: &[Arc<Capture>]) -> Self {
        Captures((!all.is_empty()).then(|| all.into()))
    }

    /// Whether nobody captures.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// A packet passes.
    #[cold]
    pub(crate) fn take(&self, packet: &Passing<'_>) {
        let now = sys::clock::now();
        self.0.iter().flat_map(|all| all.iter()).for_each(|capture| capture.take(packet, now));
    }
}

/// Packets that were captured, in the order of each worker.
#[derive(Debug)]
pub struct Captured {
    capture: Arc<Capture>,
    receiver: Receiver<Waiting>,
    offset: Nanos,
}

impl Captured {
    /// The next packet, whose checksum is complete if all of it was captured; `None` if none comes for so long.
    pub fn next(&self, patience: Duration) -> Option<Packet> {
        match self.receiver.recv_timeout(patience) {
            Ok(waiting) => Some(self.packet(waiting)),
            // This has a way to it itself, so that the other end is never gone.
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        }
    }

    fn packet(&self, waiting: Waiting) -> Packet {
        let Waiting { time, vnet, maybe_partial, original_len, data } = waiting;
        self.capture.waiting.fetch_sub(data.len() as u64, Ordering::Relaxed);
        let mut packet = Packet { time: time + self.offset, original_len, data };
        if vnet.needs_csum && !packet.is_cut_short() {
            // One that cannot be completed is shown as it is.
            let _ = ::gso::complete_checksum(&mut packet.data, &vnet);
        } else if maybe_partial {
            complete(&mut packet);
        }
        packet
    }

    /// Packets that were captured so far, and that were dropped as too many waited.
    pub fn counts(&self) -> (u64, u64) {
        let Capture { captured, dropped, .. } = &*self.capture;
        (captured.load(Ordering::Relaxed), dropped.load(Ordering::Relaxed))
    }

    /// As workers have it.
    pub(crate) fn capture(&self) -> &Arc<Capture> {
        &self.capture
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::packet::PacketBuilder;

    const AT_ONCE: Duration = Duration::ZERO;

    fn passing(bytes: &[u8]) -> Passing<'_> {
        let vnet = VirtioNetHdr::default();
        let (first, rest) = bytes.split_at(bytes.len() / 2);
        Passing { vnet, maybe_partial: false, pieces: [first, rest, &[]].map(Bytes::from) }
    }

    #[test]
    fn both_directions_of_one_connection_are_captured_and_no_other() {
        let there = PacketBuilder::tcp4().payload_pattern(100).build();
        let path = steer::path_of(&there).unwrap();
        let other = FourTuple { local: path.local, remote: ([9, 9, 9, 9], 9).into() };
        let turned = FourTuple { local: path.remote, remote: path.local };
        for (path, count) in [(Some(path), 1), (Some(turned), 1), (Some(other), 0), (None, 1)] {
            let (capture, captured) = Capture::new(Wanted { path, snaplen: 60 });
            Captures::new(&[capture]).take(&passing(&there));
            let packet = captured.next(AT_ONCE);
            assert_eq!((packet.is_some(), captured.counts()), (count == 1, (count, 0)));
            if let Some(packet) = packet {
                assert_eq!(
                    (&packet.data[..], packet.original_len),
                    (&there[..60], there.len() as u32)
                );
                assert!(
                    packet.time.abs_diff(sys::clock::now() + sys::clock::real_ahead())
                        < 1_000_000_000
                );
            }
        }
    }

    #[test]
    fn a_reader_that_is_too_slow_costs_no_more_than_the_bound() {
        let (capture, captured) = Capture::new(Wanted { path: None, snaplen: 1 << 18 });
        let captures = Captures::new(&[Arc::clone(&capture)]);
        let bytes = vec![7; 60_000];
        (0..1000).for_each(|_| captures.take(&passing(&bytes)));
        let (kept, dropped) = captured.counts();
        assert_eq!((kept, kept + dropped), (BYTES / 60_000, 1000));
        let small = [7; 60];
        while captured.next(AT_ONCE).is_some() {}
        (0..PACKETS + 5).for_each(|_| captures.take(&passing(&small)));
        assert_eq!(captured.counts(), (kept + PACKETS as u64, dropped + 5));
    }

    #[test]
    fn checksums_are_completed() {
        let (bytes, vnet) = PacketBuilder::tcp4().payload_pattern(3000).super_packet(1000);
        let (capture, captured) = Capture::new(Wanted { path: None, snaplen: 1 << 18 });
        let captures = Captures::new(&[capture]);
        captures.take(&Passing { vnet, ..passing(&bytes) });
        let mut whole = bytes.clone();
        gso::complete_checksum(&mut whole, &vnet).unwrap();
        assert!(vnet.needs_csum && whole != bytes);
        assert_eq!(captured.next(AT_ONCE).unwrap().data, whole);
    }
}
