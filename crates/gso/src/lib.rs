//! Generic segmentation offload as a pure core: it cuts a super-packet, as a host hands it over
//! with a `virtio_net_hdr`, into frames that fit the MTU, each with complete checksums.
//!
//! A [`Segmenter`] walks the headers once, keeps them as a template with the sums of everything
//! that stays the same, and per segment writes only what changes: lengths, IPv4 ID, sequence
//! number, flags, checksums. It comes in two ways, for two kinds of wire port:
//! [`Segmenter::next_segment`] writes the headers and hands out the payload as a slice of the
//! super-packet (read once, for its checksum; never copied), [`Segmenter::next_into`] writes the
//! whole frame into memory that the port owns, copying the payload and summing the copy.
//!
//! Packets that are no super-packets but lack their checksum are finished by
//! [`complete_checksum`].
//!
//! Nothing is trusted: what cannot be cut is refused by name ([`Refusal`]), so that it can be
//! counted. There is no allocation, no clock and no IO here.
//!
//! ```
//! use gso::{MAX_HEADER_LEN, Segmenter};
//! use wire::{GsoType, VirtioNetHdr};
//!
//! // Ethernet, IPv4, TCP: 1,500 bytes from 10.0.0.1 to 10.0.0.2, sequence number 1, PSH and ACK.
//! let mut packet = vec![2; 12];
//! packet.extend([0x08, 0x00]);
//! packet.extend([0x45, 0, 0x06, 0x04, 0, 7, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
//! packet.extend([0, 80, 0x1f, 0x90, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
//! packet.extend([b'x'; 1500]);
//! // The checksum field holds the sum of the pseudo-header, as NEEDS_CSUM says.
//! let l4_len = packet.len() - 34;
//! let pseudo = wire::checksum::pseudo_v4(&packet[26..34], wire::protocol::TCP, l4_len).fold();
//! packet[50..52].copy_from_slice(&pseudo.to_be_bytes());
//! let hdr = VirtioNetHdr {
//!     needs_csum: true,
//!     gso_type: GsoType::Tcpv4,
//!     gso_size: 1000,
//!     csum_start: 34,
//!     csum_offset: 16,
//!     ..VirtioNetHdr::default()
//! };
//!
//! let mut segmenter = Segmenter::new(&packet, &hdr)?;
//! assert_eq!(segmenter.gso_segs(), 2);
//! let mut header = [0; MAX_HEADER_LEN];
//! while let Some(segment) = segmenter.next_segment(&mut header) {
//!     // What a port would give to `sendmsg` as two slices.
//!     let frame = [&header[..segment.header_len], segment.payload].concat();
//!     let tcp = &frame[34..];
//!     let sum = wire::checksum::pseudo_v4(&frame[26..34], wire::protocol::TCP, tcp.len())
//!         .plus(wire::checksum::sum(tcp));
//!     assert_eq!(sum.fold(), 0xffff);
//! }
//! # Ok::<(), gso::Refusal>(())
//! ```
//!
//! # Alone, in a VPN or a proxy
//!
//! A TUN opened with `IFF_VNET_HDR`, its headers made [`VNET_LEN`](wire::VNET_LEN) bytes long by
//! `TUNSETVNETHDRSZ`, and told by `TUNSETOFFLOAD` that its reader does the offloads, gives
//! super-packets that begin with IP. [`Segmenter::of_ip`] cuts them, and one `sendmmsg` sends
//! the segments without a copy. What else is longer than the tunnel's MTU becomes IP fragments, so the
//! TUN's own MTU may be larger. `cargo run -p lro --example tun` is a whole tunnel around
//! this, with LRO for the other direction:
//!
//! ```no_run
//! use std::io::{self, IoSlice, Read};
//! use std::net::UdpSocket;
//!
//! use gso::{FragmentIds, MAX_HEADER_LEN, Segmenter};
//! use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};
//! use wire::{VNET_LEN, VirtioNetHdr};
//!
//! /// Reads one super-packet and sends its segments to the peer, one datagram each.
//! fn carry(
//!     tun: &mut impl Read,
//!     peer: &UdpSocket,
//!     mtu: usize,
//!     fragment_ids: &mut FragmentIds,
//! ) -> io::Result<()> {
//!     let mut buffer = vec![0; VNET_LEN + 65_535];
//!     let len = tun.read(&mut buffer)?;
//!     let Some((hdr, packet)) = buffer[..len].split_first_chunk() else { return Ok(()) };
//!     let hdr = VirtioNetHdr::decode(hdr).map_err(|_| io::ErrorKind::InvalidData)?;
//!     let mut segmenter =
//!         Segmenter::of_ip(packet, &hdr, mtu, *fragment_ids).map_err(io::Error::other)?;
//!     fragment_ids.advance(segmenter.fragment_ids());
//!
//!     let mut headers = [[0; MAX_HEADER_LEN]; 64];
//!     while segmenter.position() < segmenter.gso_segs() {
//!         let first = segmenter.position();
//!         let mut slices = Vec::new();
//!         for header in &mut headers {
//!             let Some(segment) = segmenter.next_segment(header) else { break };
//!             let header = IoSlice::new(&header[..segment.header_len]);
//!             slices.push([header, IoSlice::new(segment.payload)]);
//!         }
//!         let mut control: Vec<_> =
//!             slices.iter().map(|_| SendAncillaryBuffer::default()).collect();
//!         let mut messages: Vec<_> = slices
//!             .iter()
//!             .zip(&mut control)
//!             .map(|(slices, control)| MMsgHdr::new(slices, control))
//!             .collect();
//!         // A socket that is full takes fewer; the rest is cut again.
//!         let sent = sendmmsg(peer, &mut messages, SendFlags::empty())?;
//!         segmenter.skip_to(first + sent);
//!     }
//!     Ok(())
//! }
//! ```
#![no_std]
#![forbid(unsafe_code)]

mod completion;
mod datagrams;
mod dispatch;
mod fragment;
mod fragment_ids;
mod invariants;
mod ip;
mod kind;
mod piece;
mod refusal;
mod sctp;
mod segmenter;
mod tcp;
mod tunnel;
mod udp;

pub use completion::{complete_checksum, complete_checksum_into};
pub use fragment_ids::FragmentIds;
pub use kind::Kind;
pub use piece::MAX_HEADER_LEN;
pub use refusal::Refusal;
pub use segmenter::{Segment, Segmenter};
pub use udp::UDP_MAX_SEGMENTS;

/// Reads a big-endian `u16` at `at`.
#[inline]
fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Writes a big-endian `u16` at `at`.
#[inline]
fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// A computed checksum of 0 is sent as 0xFFFF, since 0 would mean "none" (RFC 768).
#[inline]
fn never_zero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}
