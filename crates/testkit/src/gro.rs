//! The local kernel's GRO as an oracle: frames go in, and the packets above GRO come out.
//!
//! Frames are written one by one into a TAP with `IFF_NAPI`, so they pass through GRO as a network card's do,
//! and are observed by an AF_PACKET socket with `PACKET_VNET_HDR`.
//!
//! # Why nothing here depends on timing
//! Each write is one NAPI poll. While `gro_flush_timeout` is long, the end of a poll flushes only
//! what was held since before the current jiffy; with 0 it flushes everything. So
//! [`deliver`](KernelGro::deliver) writes the frames with a long timeout, sets it to 0 and writes a frame
//! that is not IP: once that frame and one more after it have been received, everything was flushed.
//!
//! A jiffy may still pass in the middle. [`witnessed`](KernelGro::witnessed) puts one segment of a connection
//! of its own first and its continuation last. What GRO held first is flushed first, by age or for lack of
//! room; so if the two come out as one packet, nothing in between was flushed but by packets of its own flow.
//! Otherwise the sequence is delivered again.

use std::io::{self, IoSlice};
use std::time::{Duration, Instant};

use sys::ethtool::Ethtool;
use sys::frames::FramePool;
use sys::netns::Namespace;
use sys::packet::{Config, PacketSocket, Received};
use sys::sysfs::{Setting, Sysfs};
use sys::tap::{Tap, VNET_HDR_LEN};
use wire::{Flags, VirtioNetHdr};

use crate::missing::lacks;
use crate::packet::{DESTINATION_MAC, PacketBuilder, SOURCE_MAC};

/// How many aggregates and packets the kernel holds at most where all packets have the same hash,
/// as those from a TAP have (`MAX_GRO_SKBS`).
pub const BUCKET: usize = 8;

const NAME: &str = "gro0";
/// Nanoseconds, longer than any sequence takes.
const LONG: &str = "10000000000";
/// A local experimental EtherType (IEEE 802), for which there is no GRO.
const MARK: [u8; 2] = [0x88, 0xb6];
/// Most deliveries of a sequence until its witness comes out as one packet.
const TRIES: usize = 200;
/// Time after which a frame counts as lost by the kernel.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why the kernel's GRO cannot be used.
pub type Unavailable = Box<dyn std::error::Error + Send + Sync>;

/// A packet as the stack above GRO receives it.
#[derive(Clone, PartialEq, Eq)]
pub struct Seen {
    /// The header that the kernel gives with it.
    pub vnet: VirtioNetHdr,
    /// The frame, from its Ethernet header on.
    pub bytes: Vec<u8>,
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let head = &self.bytes[..self.bytes.len().min(94)];
        write!(f, "{} bytes, {:?}: {head:02x?}", self.bytes.len(), self.vnet)
    }
}

/// The kernel's GRO, in the network namespace that it was made in.
#[derive(Debug)]
pub struct KernelGro {
    tap: Tap,
    socket: PacketSocket,
    pool: FramePool,
    received: Vec<Received>,
    timeout: Setting,
    marks: u64,
    retries: u64,
}

impl KernelGro {
    /// Sets it up in the calling thread's network namespace, which should have no other user.
    ///
    /// # Errors
    /// Without root (sysfs is mounted), `/dev/net/tun`, or `IFF_NAPI`.
    pub fn new() -> Result<Self, Unavailable> {
        let tap = Tap::create_napi(NAME)?;
        let timeout = Sysfs::mount()?.setting(NAME, "gro_flush_timeout")?;
        sys::sysctl::set_ipv6_conf(NAME, "disable_ipv6", "1")?;
        sys::interface::set_up(NAME)?;
        let socket = PacketSocket::open(tap.ifindex, Config::default())?;
        let pool = FramePool::new(256, 8192)?;
        let received = Vec::with_capacity(sys::packet::BATCH);
        Ok(Self { tap, socket, pool, received, timeout, marks: 0, retries: 0 })
    }

    /// Runs `test` with the kernel's GRO in a namespace of its own. Returns `None` where that cannot be, and
    /// reports why.
    pub fn with<T: Send>(test: impl FnOnce(KernelGro) -> T + Send) -> Option<T> {
        let attempt = Namespace::new().map_err(Unavailable::from).and_then(|namespace| {
            namespace.run(|| KernelGro::new().map(test)).map_err(Unavailable::from)?
        });
        attempt.inspect_err(|why| lacks(why)).ok()
    }

    /// Merges UDP datagrams, too, whether a socket waits for them or not (`NETIF_F_GRO_UDP_FWD`), and makes
    /// no aggregates beyond `max_aggregate` bytes of IP packet.
    ///
    /// # Errors
    /// Without that feature (Linux 5.12) or that attribute (5.19).
    pub fn join_datagrams(&self, max_aggregate: u32) -> Result<(), Unavailable> {
        Ethtool::open(NAME)?.set_feature("rx-udp-gro-forwarding", true)?;
        // `skb_gro_receive` wants the sum to stay below it.
        Ok(sys::interface::set_gro_max_size(NAME, max_aggregate + 1)?)
    }

    /// The first and the last frame of a [`witnessed`](Self::witnessed) sequence: two segments of
    /// one connection that nothing else should use, of which the second completes an aggregate.
    pub fn witness() -> [Vec<u8>; 2] {
        let first = PacketBuilder::tcp4()
            .addresses4([192, 0, 2, 1], [192, 0, 2, 2])
            .ports(9, 9)
            .payload_pattern(8);
        let second = first.clone().seq(9).id(2).flags(Flags::ACK.with(Flags::PSH));
        [first.build(), second.build()]
    }

    /// The packets that GRO makes of these frames, in the order in which they come out, if the frames arrive
    /// on an idle interface and everything held is flushed after the last. The kernel holds the witness as
    /// well, so one less than [`BUCKET`] is left to them.
    ///
    /// # Errors
    /// If the witness failed in every try: the frames need the whole bucket.
    pub fn witnessed(&mut self, frames: &[Vec<u8>]) -> io::Result<Vec<Seen>> {
        let [first, last] = Self::witness();
        let around = [std::slice::from_ref(&first), frames, &[last]].concat();
        let is_witness = |seen: &Seen| seen.bytes.get(26..38) == first.get(26..38);
        for _ in 0..TRIES {
            let mut seen = self.deliver(&around)?;
            let before = seen.len();
            let merged = seen.iter().any(|s| is_witness(s) && s.bytes.len() > first.len());
            seen.retain(|seen| !is_witness(seen));
            if merged && before == seen.len() + 1 {
                return Ok(seen);
            }
            self.retries += 1;
        }
        Err(io::Error::other("the kernel flushed a witness in every try"))
    }

    /// Writes the frames, then has everything flushed. A jiffy that passes in between changes the result; see
    /// [`witnessed`](Self::witnessed).
    ///
    /// # Errors
    /// If the kernel refuses a frame, or loses one.
    pub fn deliver(&mut self, frames: &[Vec<u8>]) -> io::Result<Vec<Seen>> {
        let mut seen = Vec::with_capacity(frames.len());
        self.timeout.set(LONG)?;
        for frame in frames {
            self.write(frame)?;
        }
        self.timeout.set("0")?;
        // The first mark's own poll flushes what is held, after the mark; a poll that is
        // started when the first has been seen comes after that.
        self.mark(&mut seen)?;
        self.mark(&mut seen)?;
        Ok(seen)
    }

    /// Number of sequences that were delivered again because their witness had failed.
    pub fn retries(&self) -> u64 {
        self.retries
    }

    fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        self.tap.queues[0].writev(&[IoSlice::new(&[0; VNET_HDR_LEN]), IoSlice::new(frame)])
    }

    /// Writes a frame that GRO does not hold, and collects packets until it was received.
    fn mark(&mut self, seen: &mut Vec<Seen>) -> io::Result<()> {
        self.marks += 1;
        let mac = [DESTINATION_MAC, SOURCE_MAC].concat();
        let mark = [&mac[..], &MARK, &self.marks.to_be_bytes(), &[0; 38]].concat();
        self.write(&mark)?;
        let start = Instant::now();
        loop {
            self.receive(seen)?;
            if let Some(at) = seen.iter().position(|seen| seen.bytes == mark) {
                seen.remove(at);
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                return Err(io::Error::other("the kernel has lost a frame"));
            }
            std::thread::yield_now(); // the poll may have been left to ksoftirqd
        }
    }

    fn receive(&mut self, seen: &mut Vec<Seen>) -> io::Result<()> {
        self.socket.receive(&mut self.pool, &mut self.received, sys::packet::BATCH)?;
        for received in self.received.drain(..) {
            let mut bytes = self.pool.bytes(&received.frame).to_vec();
            bytes.extend(self.socket.overflow(received.slot, received.overflow));
            self.pool.free(received.frame);
            let vnet = VirtioNetHdr::decode_legacy(&received.vnet)
                .map_err(|kind| io::Error::other(format!("{kind:?}")))?;
            seen.push(Seen { vnet, bytes });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_of_one_flow_are_merged() {
        let segment = |n: u16| {
            let seq = 1 + u32::from(n) * 1000;
            PacketBuilder::tcp4().seq(seq).id(n).payload_pattern(1000).build()
        };
        KernelGro::with(|mut kernel| {
            let frames: Vec<Vec<u8>> = [0, 1, 2, 5, 6].map(segment).into();
            let seen = kernel.witnessed(&frames).expect("the kernel takes frames");
            let sizes: Vec<usize> = seen.iter().map(|seen| seen.bytes.len() - 54).collect();
            assert_eq!(sizes, [3000, 2000], "{seen:?}");
            assert_eq!(seen[0].vnet.gso_size, 1000);
            // Nothing is left for the next sequence.
            let seen = kernel.witnessed(&[segment(7)]).expect("the kernel takes frames");
            assert_eq!(seen.iter().map(|s| &s.bytes).collect::<Vec<_>>(), [&segment(7)]);
        });
    }
}
