//! The worker on its bench: ports in memory, a pool small enough to be short of, a clock.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use lro::Lro;
use nic::config::Config;
use nic::port::memory::{FarEnd, MemoryHost, MemoryWire};
use nic::port::{Delivered, Delivery, FromHost, Host, HostPacket, RxFrame};
use nic::worker::{self, Handle, Worker};
use sys::frames::{FramePool, FrameReader};
use testkit::packet::PacketBuilder;
use wire::{Headers, VirtioNetHdr};

/// Chunks in the pool; LRO may hold three eighths of them.
pub(crate) const CHUNKS: u32 = 64;

/// A host that refuses with an error number, as long as it is not 0: everything, or aggregates whose last segment is short.
#[derive(Debug)]
pub(crate) struct Moody {
    inner: MemoryHost,
    errno: Arc<AtomicI32>,
    short_only: Arc<AtomicBool>,
}

/// Whether it is an aggregate whose last segment is shorter than the others.
fn has_short_tail(packet: &Delivery<'_>) -> bool {
    let size = usize::from(packet.vnet.gso_size);
    size > 0 && !(packet.bytes() - usize::from(packet.vnet.hdr_len)).is_multiple_of(size)
}

impl Host for Moody {
    fn deliver(&mut self, memory: &FrameReader, packet: Delivery<'_>) -> io::Result<Delivered> {
        let spared = self.short_only.load(Ordering::Relaxed) && !has_short_tail(&packet);
        match self.errno.load(Ordering::Relaxed) {
            _ if spared => self.inner.deliver(memory, packet),
            0 => self.inner.deliver(memory, packet),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    fn receive(&mut self) -> io::Result<FromHost<'_>> {
        self.inner.receive()
    }

    fn again(&mut self) -> Option<HostPacket<'_>> {
        self.inner.again()
    }

    fn last(&self) -> &[u8] {
        self.inner.last()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A worker and the far ends of its ports.
pub(crate) struct Rig {
    pub(crate) worker: Worker<MemoryWire, Moody>,
    pub(crate) handle: Arc<Handle>,
    pub(crate) wire: FarEnd,
    pub(crate) host: FarEnd,
    pub(crate) errno: Arc<AtomicI32>,
    pub(crate) short_only: Arc<AtomicBool>,
    pub(crate) now: u64,
    chunks: u32,
}

impl Rig {
    pub(crate) fn new(config: &Config) -> Rig {
        Rig::with_chunks(config, CHUNKS)
    }

    /// A pool of so many.
    pub(crate) fn with_chunks(config: &Config, chunks: u32) -> Rig {
        let (near_wire, wire) = MemoryWire::new();
        let (inner, host) = MemoryHost::new();
        let errno = Arc::new(AtomicI32::new(0));
        let short_only = Arc::new(AtomicBool::new(false));
        let near_host =
            Moody { inner, errno: Arc::clone(&errno), short_only: Arc::clone(&short_only) };
        let handle = Arc::new(worker::handle(config.clone(), 1500).unwrap());
        let pool = FramePool::new(chunks, 32_768).unwrap();
        let worker = Worker::new(Arc::clone(&handle), config.clone(), near_wire, near_host, pool);
        Rig { worker, handle, wire, host, errno, short_only, now: 1_000_000, chunks }
    }

    /// One turn, now.
    pub(crate) fn turn(&mut self) -> bool {
        self.worker.turn(self.now).unwrap()
    }

    /// Turns until nothing more happens and every deadline has passed.
    pub(crate) fn settle(&mut self) {
        while self.turn() {}
        self.now += 1_000_000_000;
        self.turn();
        assert_eq!(self.worker.pool().available(), self.chunks as usize, "chunks are missing");
    }

    /// What the host was given so far.
    pub(crate) fn delivered(&self) -> Vec<(VirtioNetHdr, Vec<u8>)> {
        self.host.take()
    }

    /// What was put on the wire so far.
    pub(crate) fn sent(&self) -> Vec<Vec<u8>> {
        self.wire.take().into_iter().map(|(_, bytes)| bytes).collect()
    }

    /// A frame arrives on the wire.
    pub(crate) fn arrive(&self, packet: &PacketBuilder) {
        self.wire.send(VirtioNetHdr::default(), packet.build());
    }

    pub(crate) fn lro(&self) -> &Lro<RxFrame> {
        self.worker.lro().unwrap()
    }

    /// The published value of a counter, after publishing.
    pub(crate) fn counter(&mut self, group: &str, name: &str) -> u64 {
        let counters = self.worker.counters();
        let own = counters.entries().map(|e| (e.group, e.name, e.value));
        let mut all = own.chain(self.lro().counters().entries());
        all.find(|(g, n, _)| (*g, *n) == (group, name)).unwrap().2
    }

    /// The sum of all counters of a group.
    pub(crate) fn group(&self, group: &str) -> u64 {
        let counters = self.worker.counters();
        let own = counters.entries().map(|e| (e.group, e.value));
        let lro = self.lro().counters().entries().map(|(g, _, value)| (g, value));
        own.chain(lro).filter(|(g, _)| *g == group).map(|(_, value)| value).sum()
    }
}

/// Segment `n` of 1,000 bytes of connection `port`.
pub(crate) fn segment(port: u16, n: u32) -> PacketBuilder {
    let payload = testkit::packet::pattern(n as usize * 1000, 1000);
    PacketBuilder::tcp4().ports(port, 80).seq(n * 1000).id(n as u16).payload(&payload)
}

/// The sequence number and payload of a TCP packet over IPv4.
pub(crate) fn read(bytes: &[u8]) -> (u32, &[u8]) {
    let headers = Headers::parse(bytes).unwrap();
    let at = headers.transport_at;
    let seq = u32::from_be_bytes(bytes[at + 4..at + 8].try_into().unwrap());
    (seq, &bytes[headers.payload_at..headers.end])
}

/// The payload of all packets, one after the other; each must begin where the last one ended.
pub(crate) fn stream<'a>(packets: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut stream = Vec::new();
    for bytes in packets {
        let (seq, payload) = read(bytes);
        assert_eq!(seq as usize, stream.len(), "not the next of its connection");
        stream.extend(payload);
    }
    stream
}
