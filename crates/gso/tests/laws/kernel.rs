//! What the local kernel's own segmentation makes of a super-packet is what wharf makes of it,
//! byte for byte. The kernel cuts in software what an AF_PACKET socket sends into a TAP that has
//! no offloads on; the frames are read from the TAP.
//!
//! The kernels at hand have no SCTP (CONFIG_IP_SCTP is off), so SCTP is held to its RFC alone.

use std::time::{Duration, Instant};

use gso::{Refusal, Segmenter, complete_checksum};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config as ProptestConfig, TestRunner};
use sys::netns::Namespace;
use sys::packet::{Config, Message, PacketSocket};
use sys::tap::Tap;
use testkit::missing::lacks;
use testkit::packet::{DESTINATION_MAC, PacketBuilder, SOURCE_MAC};
use wire::{Flags, Headers, VNET_LEN, VirtioNetHdr};

use crate::super_packets::{Case, super_packets};

/// What the TAP's transmit queue (1,000 packets) holds with some room left.
const MOST_SEGMENTS: usize = 900;
const CASES: usize = 500;

/// The kernel, as a segmenter.
pub(crate) struct Kernel {
    tap: Tap,
    pub(crate) socket: PacketSocket,
    buffer: Vec<u8>,
}

impl Kernel {
    /// In the calling thread's network namespace.
    fn new() -> Result<Kernel, Box<dyn std::error::Error + Send + Sync>> {
        let tap = Tap::create("gso0", 1)?;
        sys::sysctl::set_ipv6_conf("gso0", "disable_ipv6", "1")?;
        sys::interface::set_mtu("gso0", 9000)?;
        sys::interface::set_up("gso0")?;
        let socket = PacketSocket::open(tap.ifindex, Config::default())?;
        Ok(Kernel { tap, socket, buffer: vec![0; 70_000] })
    }

    /// The frames that the kernel makes of `packet`, `expected` of them or how many it will be.
    pub(crate) fn cut(
        &mut self,
        packet: &[u8],
        hdr: &VirtioNetHdr,
        expected: usize,
    ) -> Vec<Vec<u8>> {
        let message = Message { vnet: hdr.encode_legacy(), header: packet, payload: &[] };
        assert_eq!(self.socket.send(&[message]).unwrap(), 1);
        let mut frames = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(5);
        while frames.len() < expected && Instant::now() < deadline {
            self.drain(&mut frames);
        }
        self.drain(&mut frames);
        frames
    }

    /// Reads what waits; of that, what came from the socket.
    fn drain(&mut self, frames: &mut Vec<Vec<u8>>) {
        while let Some(len) = self.tap.queues[0].read(&mut self.buffer).unwrap() {
            let (hdr, frame) = self.buffer[..len].split_at(VNET_LEN);
            if frame.starts_with(&[DESTINATION_MAC, SOURCE_MAC].concat()) {
                // DATA_VALID is no more than a word about the checksum.
                assert_eq!([hdr[0] & !2, hdr[1]], [0, 0], "the kernel left something to be done");
                frames.push(frame.to_vec());
            }
        }
    }
}

/// Runs `test` with the kernel in a namespace of its own, or says why not.
pub(crate) fn with_kernel(test: impl FnOnce(Kernel) + Send) {
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(error) => return lacks(error),
    };
    let ran = namespace.run(|| match Kernel::new() {
        Ok(kernel) => test(kernel),
        Err(error) => lacks(error),
    });
    ran.unwrap();
}

fn wharf(packet: &[u8], hdr: &VirtioNetHdr) -> Vec<Vec<u8>> {
    let mut segmenter = Segmenter::new(packet, hdr).unwrap();
    let mut out = vec![0; segmenter.max_segment_len()];
    std::iter::from_fn(|| {
        let len = segmenter.next_into(&mut out).unwrap()?;
        Some(out[..len].to_vec())
    })
    .collect()
}

fn compare(kernel: &mut Kernel, packet: &[u8], hdr: &VirtioNetHdr) {
    let ours = wharf(packet, hdr);
    let theirs = kernel.cut(packet, hdr, ours.len());
    assert_eq!(ours.len(), theirs.len(), "{hdr:?}");
    for (n, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        if ours != theirs {
            let at = ours.iter().zip(theirs).position(|(a, b)| a != b);
            let headers = Headers::parse(packet).unwrap();
            panic!("frame {n} differs at byte {at:?}; {hdr:?}, {headers:?}");
        }
    }
}

/// Leaves out what wharf knowingly does otherwise: Linux counts TCP options as payload when it
/// asks whether there is more than one segment, and then refuses the single segment it finds.
fn same_in_linux(case: &Case) -> bool {
    let (packet, _) = case.builder.super_packet(case.gso_size);
    let headers = Headers::parse(&packet).unwrap();
    let options = headers.payload_at - headers.transport_at - if case.tcp { 20 } else { 8 };
    let size = usize::from(case.gso_size);
    case.payload.len() > size || case.payload.len() + options <= size
}

/// Random super-packets of one kind, the same in every run.
fn cases(tcp: bool, v4: bool) -> impl Iterator<Item = Case> {
    let kind = move |case: &Case| case.tcp == tcp && case.v4 == v4;
    let small = |case: &Case| case.segments() <= MOST_SEGMENTS;
    let strategy = super_packets()
        .prop_filter("kind", kind)
        .prop_filter("fits the queue", small)
        .prop_filter("as Linux counts", same_in_linux);
    let mut runner = TestRunner::new(ProptestConfig::default());
    std::iter::repeat_with(move || strategy.new_tree(&mut runner).unwrap().current()).take(CASES)
}

fn compare_all(tcp: bool, v4: bool) {
    with_kernel(|mut kernel| {
        for case in cases(tcp, v4) {
            // Linux takes Ethernet padding for payload.
            let (packet, hdr) = case.builder.padding(0).super_packet(case.gso_size);
            compare(&mut kernel, &packet, &hdr);
        }
    });
}

#[test]
fn tcp4() {
    compare_all(true, true);
}

#[test]
fn tcp6() {
    compare_all(true, false);
}

#[test]
fn uso4() {
    compare_all(false, true);
}

#[test]
fn uso6() {
    compare_all(false, false);
}

#[test]
fn cwr_without_the_ecn_bit() {
    with_kernel(|mut kernel| {
        let flags = Flags::ACK.with(Flags::CWR).with(Flags::FIN).with(Flags::PSH);
        let builder = PacketBuilder::tcp4().flags(flags).id(0xffff).payload_pattern(3500);
        let (packet, hdr) = builder.super_packet(1000);
        for ecn in [false, true] {
            compare(&mut kernel, &packet, &VirtioNetHdr { ecn, ..hdr });
        }
    });
}

#[test]
fn partial_checksums_of_plain_packets() {
    with_kernel(|mut kernel| {
        for (tcp, v4) in [(true, true), (true, false), (false, true), (false, false)] {
            for case in cases(tcp, v4).take(100).filter(|c| c.payload.len() < 8000) {
                let (mut packet, hdr) = case.builder.padding(0).partial();
                let theirs = kernel.cut(&packet, &hdr, 1);
                complete_checksum(&mut packet, &hdr).unwrap();
                assert_eq!(theirs, [packet]);
            }
        }
    });
}

/// A payload whose first segment's checksum is 0: UDP says 0xFFFF, TCP says 0.
#[test]
fn checksums_of_zero() {
    with_kernel(|mut kernel| {
        for builder in [PacketBuilder::tcp4(), PacketBuilder::udp4(), PacketBuilder::udp6()] {
            let super_packet =
                |first: [u8; 2]| builder.clone().payload(&[first, [1, 2]].concat()).super_packet(2);
            let (packet, hdr) = super_packet([0, 0]);
            let at = usize::from(hdr.csum_start + hdr.csum_offset);
            let checksum = |frame: &[u8]| [frame[at], frame[at + 1]];
            // What the checksum lacks to 0xFFFF, the payload gives.
            let (packet, hdr) = super_packet(checksum(&wharf(&packet, &hdr)[0]));
            assert!(matches!(checksum(&wharf(&packet, &hdr)[0]), [0, 0] | [0xff, 0xff]));
            compare(&mut kernel, &packet, &hdr);
        }
    });
}

/// What wharf refuses in a header, the kernel refuses too.
#[test]
fn refusals() {
    with_kernel(|mut kernel| {
        let (packet, hdr) = PacketBuilder::udp4().payload_pattern(3000).super_packet(1000);
        let lying = [
            (VirtioNetHdr { gso_size: 0, ..hdr }, Refusal::GsoSizeZero),
            (VirtioNetHdr { ecn: true, ..hdr }, Refusal::TypeMismatch),
            (VirtioNetHdr { needs_csum: false, ..hdr }, Refusal::ChecksumNotPartial),
            (VirtioNetHdr { csum_offset: 16, ..hdr }, Refusal::ChecksumPosition),
        ];
        for (hdr, refusal) in lying {
            assert_eq!(Segmenter::new(&packet, &hdr).err(), Some(refusal));
            let message = Message { vnet: hdr.encode_legacy(), header: &packet, payload: &[] };
            kernel.socket.send(&[message]).unwrap_err();
        }
    });
}
