//! IP over UDP, in the clear: what a VPN does around its cryptography. The host hands super-packets
//! to a TUN; each is cut here into IP packets of the tunnel's MTU, which go to the peer by
//! `sendmmsg`, headers and payload where they lie.
//!
//! ```text
//! cargo run --example tun -- tun0 192.0.2.1:5000 192.0.2.2:5000
//! ip address add 10.8.0.1/24 dev tun0 && ip link set tun0 mtu 1400 up
//! ```

use std::hash::{BuildHasher, RandomState};
use std::io::{self, IoSlice};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use gso::{FragmentIds, MAX_HEADER_LEN, Segmenter};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};
use sys::tap::{Offloads, Tap};
use wire::{VNET_LEN, VirtioNetHdr};

/// Segments of one `sendmmsg`.
const BATCH: usize = 64;
/// `virtio_net_hdr` and the longest IP packet.
const READ_MAX: usize = VNET_LEN + 65_535;

/// A TUN at one end, a connected UDP socket at the other.
pub(crate) struct Tunnel {
    tun: Tap,
    socket: UdpSocket,
    /// Longest IP packet that the tunnel carries.
    mtu: usize,
    /// The IDs of IP fragments.
    fragment_ids: FragmentIds,
    /// Super-packets that were cut, and packets that could not be sent.
    pub(crate) cut: u64,
    pub(crate) dropped: u64,
}

impl Tunnel {
    /// Tells the host that it may leave checksums and segments to the reader of `tun`.
    pub(crate) fn new(tun: Tap, socket: UdpSocket, mtu: usize) -> io::Result<Tunnel> {
        tun.set_offload(Offloads { udp_tunnel: false, udp_tunnel_csum: false, ..Offloads::ALL })
            .map_err(io::Error::other)?;
        socket.set_nonblocking(true)?;
        let secret = RandomState::new().hash_one(mtu);
        let fragment_ids = FragmentIds::new(secret);
        Ok(Tunnel { tun, socket, mtu, fragment_ids, cut: 0, dropped: 0 })
    }

    /// Carries packets both ways until `stop`.
    pub(crate) fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        let mut buffer = vec![0; READ_MAX];
        let patience = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        while !stop.load(Ordering::Relaxed) {
            let tun = PollFd::from_borrowed_fd(self.tun.queues[0].as_fd(), PollFlags::IN);
            let socket = PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN);
            poll(&mut [tun, socket], Some(&patience))?;
            while let Some(len) = self.tun.queues[0].read(&mut buffer)? {
                self.outward(&buffer[..len])?;
            }
            while let Ok(len) = self.socket.recv(&mut buffer) {
                self.inward(&buffer[..len])?;
            }
        }
        Ok(())
    }

    /// What the host sends: `virtio_net_hdr` and an IP packet of up to 64 KB.
    fn outward(&mut self, read: &[u8]) -> io::Result<()> {
        let Some((hdr, packet)) = read.split_first_chunk::<VNET_LEN>() else { return Ok(()) };
        let Ok(hdr) = VirtioNetHdr::decode(hdr) else { return Ok(()) };
        match Segmenter::of_ip(packet, &hdr, self.mtu, self.fragment_ids) {
            Ok(segmenter) => {
                self.fragment_ids.advance(segmenter.fragment_ids());
                self.cut += u64::from(segmenter.gso_segs() > 1);
                send(&self.socket, segmenter)
            }
            Err(refusal) => {
                self.dropped += 1;
                eprintln!("dropped: {refusal}");
                Ok(())
            }
        }
    }

    /// What comes from the peer: an IP packet, complete with its checksums. `lro` would join them
    /// before they go to the host.
    fn inward(&self, packet: &[u8]) -> io::Result<()> {
        let complete = VirtioNetHdr::default().encode();
        self.tun.queues[0].writev(&[IoSlice::new(&complete), IoSlice::new(packet)])
    }
}

/// Sends every segment as one datagram. The headers are written here, the payload stays where the
/// TUN was read to.
pub(crate) fn send(socket: &UdpSocket, mut segmenter: Segmenter<'_>) -> io::Result<()> {
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
    let tunnel = Tunnel::new(Tap::create_tun(name)?, socket, 1400);
    Ok(tunnel?.run(&AtomicBool::new(false))?)
}
