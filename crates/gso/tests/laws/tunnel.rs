//! Super-packets in UDP tunnels: what the local kernel makes of them is what wharf makes of them. A
//! TAP is given them as a guest gives them to its host (Linux 6.17), a bridge carries them to a TAP
//! that has no offloads on, and the kernel cuts on the way.

use std::io::IoSlice;
use std::process::Command;
use std::time::{Duration, Instant};

use gso::{MAX_HEADER_LEN, Refusal, Segmenter};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use sys::netns::Namespace;
use sys::tap::{Offloads, Tap};
use testkit::missing::lacks;
use testkit::packet::{DESTINATION_MAC, PacketBuilder, SOURCE_MAC};
use testkit::verify;
use wire::{Headers, UdpTunnel, VNET_LEN, VirtioNetHdr};

const VXLAN_PORT: u16 = 4789;
const CASES: usize = 150;

/// A super-packet of the inner builder in VXLAN, as a host leaves it: the outer checksum, if there
/// is to be one, and the inner one are sums of pseudo-headers.
fn in_vxlan(inner: &PacketBuilder, gso_size: u16, v6: bool, csum: bool) -> (Vec<u8>, VirtioNetHdr) {
    let (inner, inner_hdr) = inner.super_packet(gso_size);
    let vxlan = [&[8, 0, 0, 0, 0, 0, 42, 0], &inner[..]].concat();
    let outer = if v6 { PacketBuilder::udp6() } else { PacketBuilder::udp4() };
    let outer = outer.ports(50_000, VXLAN_PORT).id(0xfffe).payload(&vxlan);
    let (mut packet, outer_hdr) = outer.partial();
    let outer_th_offset = outer_hdr.csum_start;
    if !csum {
        packet[usize::from(outer_th_offset) + 6..][..2].fill(0);
    }
    let inner_at = outer_th_offset + 8 + 8;
    let tunnel = UdpTunnel { v6, csum, outer_th_offset, inner_nh_offset: inner_at + 14 };
    let hdr = VirtioNetHdr {
        hdr_len: inner_at + inner_hdr.hdr_len,
        csum_start: inner_at + inner_hdr.csum_start,
        tunnel: Some(tunnel),
        ..inner_hdr
    };
    (packet, hdr)
}

/// All frames, by both ways.
fn wharf(packet: &[u8], hdr: &VirtioNetHdr) -> Vec<Vec<u8>> {
    let mut segmenter = Segmenter::new(packet, hdr).unwrap();
    let mut slices = segmenter.clone();
    let mut header = [0; MAX_HEADER_LEN];
    let mut out = vec![0; segmenter.max_segment_len()];
    let mut frames = Vec::new();
    while let Some(len) = segmenter.next_into(&mut out).unwrap() {
        let segment = slices.next_segment(&mut header).unwrap();
        assert_eq!([&header[..segment.header_len], segment.payload].concat(), out[..len]);
        frames.push(out[..len].to_vec());
    }
    frames
}

/// Inner packets, and how they are wrapped: `gso_size`, outer IPv6, outer checksum.
fn cases() -> impl Strategy<Value = (PacketBuilder, u16, bool, bool)> {
    let kind = (any::<bool>(), any::<bool>());
    let size = (100u16..1400, 1usize..20, 0usize..3);
    let fields = (any::<u32>(), any::<u16>(), 0usize..=10, any::<u8>());
    (kind, size, fields, any::<(bool, bool)>()).prop_map(
        |((tcp, v4), (size, segments, odd), (seq, id, options, flags), (v6, csum))| {
            let builder = match (tcp, v4) {
                (true, true) => PacketBuilder::tcp4(),
                (true, false) => PacketBuilder::tcp6(),
                (false, true) => PacketBuilder::udp4(),
                (false, false) => PacketBuilder::udp6(),
            };
            // One segment more than asked for, so that there are two at least.
            let payload = usize::from(size) * segments + 1 + odd;
            let flags = wire::Flags(flags).without(wire::Flags::CWR);
            let builder = builder.seq(seq).id(id).flags(flags).options(&vec![1; options * 4]);
            (builder.payload_pattern(payload), size, v6, csum)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// What is in the tunnel is what would be without it, and every length and checksum is right.
    #[test]
    fn a_tunnel_changes_nothing_within((inner, gso_size, v6, csum) in cases()) {
        let (packet, hdr) = in_vxlan(&inner, gso_size, v6, csum);
        let (plain, plain_hdr) = inner.super_packet(gso_size);
        let frames = wharf(&packet, &hdr);
        let inner_at = usize::from(hdr.tunnel.unwrap().inner_nh_offset) - 14;
        let inner: Vec<&[u8]> = frames.iter().map(|frame| &frame[inner_at..]).collect();
        prop_assert_eq!(inner, wharf(&plain, &plain_hdr));
        for frame in &frames {
            // IPv6 does without the checksum of a tunnel (RFC 6935).
            if csum || !v6 {
                prop_assert_eq!(verify::checksums(frame), Ok(()));
            }
            prop_assert_eq!(verify::checksums(&frame[inner_at..]), Ok(()));
            prop_assert_eq!(&frame[14 + if v6 { 40 } else { 20 } + 8..inner_at], &packet[inner_at - 8..inner_at]);
        }
    }

    /// Fields that are not true of the packet are refused, and whatever they are nothing panics.
    #[test]
    fn fields_that_lie_are_refused(
        (inner, gso_size, v6, csum) in cases(),
        outer_th_offset: u16,
        inner_nh_offset in 0u16..200,
        csum_start: u16,
    ) {
        let (packet, hdr) = in_vxlan(&inner, gso_size, v6, csum);
        let true_fields = hdr.tunnel.unwrap();
        let with = |tunnel| VirtioNetHdr { tunnel: Some(tunnel), ..hdr };
        let other_version = with(UdpTunnel { v6: !v6, ..true_fields });
        prop_assert_eq!(Segmenter::new(&packet, &other_version).err(), Some(Refusal::UdpTunnel));
        if outer_th_offset != true_fields.outer_th_offset {
            let lies = with(UdpTunnel { outer_th_offset, ..true_fields });
            prop_assert_eq!(Segmenter::new(&packet, &lies).err(), Some(Refusal::UdpTunnel));
        }
        if inner_nh_offset != true_fields.inner_nh_offset {
            let lies = with(UdpTunnel { inner_nh_offset, ..true_fields });
            prop_assert!(Segmenter::new(&packet, &lies).is_err());
        }
        if csum_start != hdr.csum_start {
            let lies = VirtioNetHdr { csum_start, ..hdr };
            prop_assert_eq!(Segmenter::new(&packet, &lies).err(), Some(Refusal::ChecksumPosition));
        }
    }
}

#[test]
fn the_mtu_holds_the_tunnel() {
    let (packet, hdr) = in_vxlan(&PacketBuilder::tcp4().payload_pattern(9000), 4000, true, true);
    let mut segments = Segmenter::with_mtu(&packet, &hdr, 1500, 0).unwrap();
    let mut frame = [0; 1514];
    assert_eq!(segments.next_into(&mut frame), Ok(Some(1514)));
    assert_eq!(verify::checksums(&frame), Ok(()));
}

/// Two TAPs and a bridge between them.
struct Kernel {
    from: Tap,
    to: Tap,
    buffer: Vec<u8>,
}

impl Kernel {
    /// In the calling thread's network namespace. An error where something is missing.
    fn new() -> Result<Kernel, Box<dyn std::error::Error + Send + Sync>> {
        let (from, to) = (Tap::create("from0", 1)?, Tap::create("to0", 1)?);
        if !from.set_offload(Offloads::ALL)?.udp_tunnel {
            return Err("the kernel knows no tunnels in virtio_net_hdr".into());
        }
        let ip = |words: &str| -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
            let ended = Command::new("ip").args(words.split(' ')).output()?;
            let words = String::from_utf8_lossy(&ended.stderr).into_owned();
            if ended.status.success() { Ok(()) } else { Err(words.into()) }
        };
        ip("link add br0 type bridge mcast_snooping 0")?;
        for name in ["br0", "from0", "to0"] {
            sys::sysctl::set_ipv6_conf(name, "disable_ipv6", "1")?;
            sys::interface::set_mtu(name, 9000)?;
            sys::interface::set_up(name)?;
        }
        ip("link set from0 master br0")?;
        ip("link set to0 master br0")?;
        Ok(Kernel { from, to, buffer: vec![0; 70_000] })
    }

    /// The frames that the kernel makes of `packet`; `expected` of them, or what comes in time.
    fn cut(&mut self, packet: &[u8], hdr: &VirtioNetHdr, expected: usize) -> Vec<Vec<u8>> {
        let header = hdr.encode();
        self.from.queues[0].writev(&[IoSlice::new(&header), IoSlice::new(packet)]).unwrap();
        let mut frames = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(5);
        while frames.len() < expected && Instant::now() < deadline {
            let Some(len) = self.to.queues[0].read(&mut self.buffer).unwrap() else { continue };
            let frame = &self.buffer[VNET_LEN..len];
            if frame.starts_with(&[DESTINATION_MAC, SOURCE_MAC].concat()) {
                frames.push(frame.to_vec());
            }
        }
        frames
    }
}

#[test]
fn as_the_kernel_cuts() {
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(error) => return lacks(error),
    };
    let ran = namespace.run(|| {
        let mut kernel = match Kernel::new() {
            Ok(kernel) => kernel,
            Err(error) => return lacks(error),
        };
        let mut runner = TestRunner::new(ProptestConfig::default());
        for _ in 0..CASES {
            let (inner, gso_size, v6, csum) = cases().new_tree(&mut runner).unwrap().current();
            let (packet, hdr) = in_vxlan(&inner, gso_size, v6, csum);
            let ours = wharf(&packet, &hdr);
            let theirs = kernel.cut(&packet, &hdr, ours.len());
            let headers = Headers::parse(&packet).unwrap();
            assert_eq!(ours.len(), theirs.len(), "{hdr:?} {headers:?}");
            for (n, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
                let at = ours.iter().zip(theirs).position(|(a, b)| a != b);
                assert!(ours == theirs, "frame {n} differs at {at:?}: {hdr:?} {headers:?}");
            }
        }
    });
    ran.unwrap();
}
