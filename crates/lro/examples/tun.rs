//! IP over UDP, in the clear: what a VPN does around its cryptography, with GSO out and LRO in.
//!
//! ```text
//! cargo run -p lro --example tun -- tun0 192.0.2.1:5000 192.0.2.2:5000
//! ip address add 10.8.0.1/24 dev tun0 && ip link set tun0 mtu 1400 up
//! ```
//!
//! The host hands super-packets to the TUN; each is cut here into IP packets of the tunnel's MTU, which go
//! to the peer by `sendmmsg`, headers and payload where they lie. What comes from the peer is merged, put in
//! order and written to the TUN as super-packets. The loop is that of `lro::Lro`'s documentation.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, IoSlice};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use gso::{FragmentIds, MAX_HEADER_LEN, Segmenter};
use lro::{Aggregate, Config, Discard, Lro, Nanos, NoLink, Pass, RxChecksum, Sink};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};
use tun_rs::{DeviceBuilder, SyncDevice};
use wire::{FlowHash, VNET_LEGACY_LEN, VirtioNetHdr};

/// Packets of one turn, and segments of one `sendmmsg`.
const BATCH: usize = 64;
/// `virtio_net_hdr` and the longest IP packet.
const READ_MAX: usize = VNET_LEGACY_LEN + 65_535;
/// Frames that LRO may hold.
const HELD: usize = 4096;
/// How long until `run` looks whether it is to stop.
const LOOK_EVERY: Nanos = 50_000_000;

/// The memory of packets from the peer, named by numbers.
struct Pool {
    memory: Vec<u8>,
    /// Bytes of each buffer: one more than a packet has, which tells those that are too long.
    size: usize,
    lengths: Vec<usize>,
}

impl Pool {
    fn buffer(&mut self, token: usize) -> &mut [u8] {
        &mut self.memory[token * self.size..][..self.size]
    }

    fn packet(&self, token: usize) -> &[u8] {
        &self.memory[token * self.size..][..self.lengths[token]]
    }
}

/// What became of packets.
#[derive(Default, Debug)]
pub(crate) struct Counters {
    /// Super-packets of the host's that were cut.
    pub(crate) cut: u64,
    /// Aggregates that the host was given.
    pub(crate) aggregates: u64,
    /// Packets that could not be sent, or that the host did not take.
    pub(crate) dropped: u64,
    /// Packets with a wrong checksum.
    pub(crate) damaged: u64,
}

/// Writes to the TUN what leaves the LRO, and takes its memory back.
struct Host<'a> {
    tun: &'a SyncDevice,
    pool: &'a Pool,
    free: &'a mut Vec<usize>,
    counters: &'a mut Counters,
}

impl Host<'_> {
    /// One packet. A host that does not take it, as its TUN is down, loses it as a wire would.
    fn write(&mut self, slices: &[IoSlice<'_>]) {
        self.counters.dropped += u64::from(self.tun.send_vectored(slices).is_err());
    }
}

impl Sink<usize> for Host<'_> {
    fn pass(&mut self, token: usize, _: Pass) {
        let complete = VirtioNetHdr::default().encode_legacy();
        self.write(&[IoSlice::new(&complete), IoSlice::new(self.pool.packet(token))]);
        self.free.push(token);
    }

    fn aggregate(&mut self, mut aggregate: Aggregate<'_, usize>) {
        let (vnet, header) = (aggregate.vnet().encode_legacy(), aggregate.header());
        let mut slices = Vec::with_capacity(2 + aggregate.segments());
        slices.extend([IoSlice::new(&vnet), IoSlice::new(header)]);
        while let Some(part) = aggregate.next_slice() {
            slices.push(IoSlice::new(&self.pool.packet(part.frame)[part.start..][..part.len]));
            self.free.push(part.frame); // nothing is received before this is written
        }
        self.write(&slices);
        self.counters.aggregates += 1;
    }

    fn discard(&mut self, token: usize, _: Discard) {
        self.counters.damaged += 1;
        self.free.push(token);
    }
}

/// A TUN at one end, a connected UDP socket at the other.
pub(crate) struct Tunnel {
    tun: SyncDevice,
    socket: UdpSocket,
    /// Longest IP packet that the tunnel carries.
    mtu: usize,
    /// The IDs of IP fragments.
    fragment_ids: FragmentIds,
    lro: Lro<usize, NoLink>,
    pool: Pool,
    free: Vec<usize>,
    buffer: Vec<u8>,
    clock: Instant,
    pub(crate) counters: Counters,
}

impl Tunnel {
    /// Creates the TUN `name`, which hands its reader super-packets and packets without checksums.
    pub(crate) fn new(name: &str, socket: UdpSocket, mtu: usize) -> io::Result<Tunnel> {
        let tun = DeviceBuilder::new().name(name).offload(true).build_sync()?;
        tun.set_nonblocking(true)?;
        socket.set_nonblocking(true)?;
        let random = RandomState::new();
        let config = Config {
            held_frames: HELD,
            flow_hash: FlowHash::from_seed(random.hash_one("flows")),
            ..Config::default()
        };
        let lro = Lro::of_ip(config);
        // A packet that comes while all that may be held is held makes room first.
        let buffers = HELD + 1;
        let size = mtu + 1;
        Ok(Tunnel {
            tun,
            socket,
            mtu,
            fragment_ids: FragmentIds::new(random.hash_one("fragments")),
            lro,
            pool: Pool { memory: vec![0; buffers * size], size, lengths: vec![0; buffers] },
            free: (0..buffers).collect(),
            buffer: vec![0; READ_MAX],
            clock: Instant::now(),
            counters: Counters::default(),
        })
    }

    fn now(&self) -> Nanos {
        self.clock.elapsed().as_nanos() as Nanos
    }

    /// Carries packets both ways until `stop`.
    pub(crate) fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            let now = self.now();
            let came = self.receive(now)?;
            let went = self.transmit()?;
            self.lro(|lro, host| lro.expire(now, host));
            if !came && !went {
                self.sleep()?;
            }
        }
        self.lro(|lro, host| lro.flush_all(host));
        Ok(())
    }

    fn lro<T>(&mut self, call: impl FnOnce(&mut Lro<usize, NoLink>, &mut Host<'_>) -> T) -> T {
        let Tunnel { tun, pool, free, counters, .. } = self;
        call(&mut self.lro, &mut Host { tun, pool, free, counters })
    }

    /// One batch from the peer: IP packets, complete with their checksums. Returns whether any came.
    fn receive(&mut self, now: Nanos) -> io::Result<bool> {
        let mut count = 0;
        while count < BATCH
            && let Some(&token) = self.free.last()
        {
            match self.socket.recv(self.pool.buffer(token)) {
                Ok(len) if len > self.mtu => self.counters.dropped += 1,
                Ok(len) => {
                    self.free.pop();
                    self.pool.lengths[token] = len;
                    let unknown = RxChecksum::Unverified;
                    let Tunnel { tun, pool, free, counters, .. } = self;
                    let mut host = Host { tun, pool, free, counters };
                    self.lro.receive(token, pool.packet(token), unknown, now, &mut host);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // There is no listener at the other end yet.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error),
            }
            count += 1;
        }
        if count < BATCH {
            self.lro(|lro, host| lro.burst_ends(host));
        }
        Ok(count > 0)
    }

    /// One batch of what the host sends: `virtio_net_hdr` and an IP packet of up to 64 KB each. Returns
    /// whether there was any.
    fn transmit(&mut self) -> io::Result<bool> {
        for count in 0..BATCH {
            let len = match self.tun.recv(&mut self.buffer) {
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(count > 0),
                Err(error) => return Err(error),
            };
            let Some((hdr, packet)) = self.buffer[..len].split_first_chunk() else { continue };
            let segmenter = VirtioNetHdr::decode_legacy(hdr)
                .ok()
                .and_then(|hdr| Segmenter::of_ip(packet, &hdr, self.mtu, self.fragment_ids).ok());
            let Some(segmenter) = segmenter else {
                self.counters.dropped += 1;
                continue;
            };
            self.lro.observe(packet);
            self.fragment_ids.advance(segmenter.fragment_ids());
            self.counters.cut += u64::from(segmenter.gso_segs() > 1);
            send(&self.socket, segmenter)?;
        }
        Ok(true)
    }

    /// Sleeps until there is a packet, or a hole has been waited for.
    fn sleep(&mut self) -> io::Result<()> {
        self.lro(|lro, host| lro.idle(host));
        let now = self.now();
        let due = self.lro.next_deadline().map_or(LOOK_EVERY, |due| due.saturating_sub(now));
        let patience = Timespec { tv_sec: 0, tv_nsec: due.min(LOOK_EVERY) as i64 };
        let tun = PollFd::new(&self.tun, PollFlags::IN);
        let socket = PollFd::new(&self.socket, PollFlags::IN);
        match poll(&mut [tun, socket], Some(&patience)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Sends every segment as one datagram. The headers are written here, the payload stays where the
/// TUN was read to.
fn send(socket: &UdpSocket, mut segmenter: Segmenter<'_>) -> io::Result<()> {
    let mut headers = [[0; MAX_HEADER_LEN]; BATCH];
    while segmenter.position() < segmenter.gso_segs() {
        let first = segmenter.position();
        let mut slices = Vec::with_capacity(BATCH);
        for header in &mut headers {
            let Some(segment) = segmenter.next_segment(header) else { break };
            let header = IoSlice::new(&header[..segment.header_len]);
            slices.push([header, IoSlice::new(segment.payload)]);
        }
        let mut control: Vec<_> = slices.iter().map(|_| SendAncillaryBuffer::default()).collect();
        let mut messages: Vec<_> =
            slices.iter().zip(&mut control).map(|(slices, c)| MMsgHdr::new(slices, c)).collect();
        match sendmmsg(socket, &mut messages, SendFlags::empty()) {
            // Where a full socket stopped it goes on.
            Ok(sent) => segmenter.skip_to(first + sent),
            Err(rustix::io::Errno::AGAIN) => {
                segmenter.skip_to(first);
                poll(&mut [PollFd::new(socket, PollFlags::OUT)], None)?;
            }
            // There is no listener at the other end yet.
            Err(rustix::io::Errno::CONNREFUSED) => segmenter.skip_to(first),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg_attr(test, allow(dead_code))] // a test runs what it calls
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, here, there] = &arguments[..] else {
        return Err("usage: tun NAME HERE:PORT THERE:PORT".into());
    };
    let socket = UdpSocket::bind(here)?;
    socket.connect(there)?;
    Ok(Tunnel::new(name, socket, 1400)?.run(&AtomicBool::new(false))?)
}
