//! What the local kernel makes of a packet that IP has to cut is what wharf makes of it, byte for
//! byte: its UFO in software, its routing of IPv4, and its own large IPv6 datagrams. IPv6 routers
//! do not fragment.

use std::io::IoSlice;
use std::net::{Ipv6Addr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config as ProptestConfig, TestRunner};
use sys::netns::Namespace;
use sys::tap::Tap;
use testkit::lab::have;
use testkit::missing::lacks;
use testkit::packet::{DESTINATION_MAC, PacketBuilder};
use testkit::reassemble::reassemble;
use wire::{GsoType, Headers, Ipv4, Network, VNET_LEN, VirtioNetHdr};

use crate::fragments::{Carried, Case, cases};
use crate::kernel::{Kernel, with_kernel};
use crate::outcome::Given;

const CASES: usize = 400;
/// What the TAP's transmit queue (1,000 packets) holds with some room left.
pub(crate) const MOST_FRAGMENTS: usize = 900;

/// The largest MTU of a TAP: a packet of 65,535 bytes with its Ethernet header.
const MTU_MAX: usize = 65_521;

/// Random packets, the same in every run.
fn random(v4: bool, wanted: impl Fn(&Case) -> bool + 'static) -> impl Iterator<Item = Case> {
    let strategy = cases(v4).prop_filter("not for this test", wanted);
    let mut runner = TestRunner::new(ProptestConfig::default());
    std::iter::repeat_with(move || strategy.new_tree(&mut runner).unwrap().current()).take(CASES)
}

fn assert_same(ours: &[Vec<u8>], theirs: &[Vec<u8>], case: &Case) {
    for (n, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        if ours != theirs {
            let at = ours.iter().zip(theirs).position(|(a, b)| a != b);
            let headers = Headers::parse(&case.packet).unwrap();
            let lens = (ours.len(), theirs.len());
            panic!("frame {n} of {lens:?} differs at byte {at:?}; {headers:?}, {case:?}");
        }
    }
    assert_eq!(ours.len(), theirs.len(), "{case:?}");
}

/// The same packet as UFO, and what both make of it.
fn ufo(kernel: &mut Kernel, case: &Case, gso_size: u16) {
    // Linux takes Ethernet padding for payload.
    let end = Headers::parse(&case.packet).unwrap().end;
    let case = &Case { packet: case.packet[..end].to_vec(), ..case.clone() };
    let hdr = VirtioNetHdr { gso_type: GsoType::Udp, gso_size, ..case.hdr };
    let wharf = |fragment_id| Given::new(&case.packet, hdr, usize::MAX, fragment_id).cut().unwrap();
    let v4 = matches!(Headers::parse(&case.packet).unwrap().network, Network::Ipv4 { .. });
    let expected = wharf(0).frames.len();
    let theirs = kernel.cut(&case.packet, &hdr, expected);
    assert!(!theirs.is_empty(), "{gso_size}, {case:?}");
    // Linux keeps the packet's ID with IPv4, and makes one up with IPv6.
    let first: Vec<_> = theirs.iter().map(|frame| &frame[ip_at(&case.packet)..]).collect();
    let id = if expected > 1 { reassemble(&first).unwrap().id } else { 0 };
    if v4 && expected > 1 {
        let own = Ipv4::new(&case.packet[ip_at(&case.packet)..]).unwrap().id();
        assert_eq!(id, u32::from(own));
    }
    assert_same(&wharf(id).frames, &theirs, case);
}

fn ip_at(packet: &[u8]) -> usize {
    Headers::parse(packet).unwrap().network_at
}

/// What Linux does otherwise when it makes fragments of UFO in software, and the RFCs do not allow:
///
/// - Every fragment has all IPv4 options. RFC 791 section 3.1 wants those without the copied flag in
///   the first alone, which is what Linux does too where it routes (see [`routed`]).
/// - With IPv6 extension headers the offsets count their bytes (`ipv6_gso_segment` adds up payload
///   lengths), so that no host can put the fragments together. RFC 8200 section 4.5 counts from the
///   start of the fragmentable part.
fn linux_obeys(case: &Case) -> bool {
    let headers = Headers::parse(&case.packet).unwrap();
    match headers.network {
        Network::Ipv4 { .. } => {
            let options = headers.network_at + 20..headers.transport_at;
            let hdr = VirtioNetHdr { gso_type: GsoType::Udp, gso_size: 8, ..case.hdr };
            let frames = Given::new(&case.packet, hdr, usize::MAX, 0).cut().unwrap().frames;
            frames.iter().all(|frame| frame[options.clone()] == case.packet[options.clone()])
        }
        _ => headers.transport_at - headers.network_at == 40,
    }
}

/// Sizes around which mistakes hide; few enough fragments for the TAP's queue.
fn ufo_all(v4: bool) {
    with_kernel(|mut kernel| {
        let udp = |case: &Case| case.carried == Carried::UdpPartial && linux_obeys(case);
        for (n, case) in random(v4, udp).enumerate() {
            let headers = Headers::parse(&case.packet).unwrap();
            let len = headers.end - headers.transport_at;
            let least = len / MOST_FRAGMENTS + 8;
            let size =
                [8 * (n + 1), len & !7, (len - 1) & !7, len / 2, 1480][n % 5].max(least) & !7;
            ufo(&mut kernel, &case, size.min(8896) as u16);
        }
    });
}

#[test]
fn ufo4() {
    ufo_all(true);
}

#[test]
fn ufo6() {
    ufo_all(false);
}

/// What is no UFO for one is none for the other, and a checksum that was computed to 0 is 0xFFFF.
#[test]
fn ufo_of_one_fragment_and_a_byte_more() {
    with_kernel(|mut kernel| {
        for builder in [PacketBuilder::udp4(), PacketBuilder::udp6()] {
            for (len, id) in [(792, 0xffff), (793, 0xffff), (1592, 0), (1593, 0), (0, 1)] {
                let zero_sum = |builder: &PacketBuilder| {
                    // What the checksum lacks to 0xFFFF, the payload gives.
                    let at = builder.transport_at() + 6;
                    let checksum = builder.build()[at..at + 2].to_vec();
                    let mut payload = vec![0; len];
                    payload[..len.min(2)].copy_from_slice(&checksum[..len.min(2)]);
                    builder.clone().payload(&payload)
                };
                let zeros = builder.clone().id(id).payload(&vec![0; len]);
                for builder in [zeros.clone(), zero_sum(&zeros)] {
                    let (packet, hdr) = builder.partial();
                    let carried = Carried::UdpPartial;
                    let case = Case { packet, hdr, mtu: usize::MAX, fragment_id: 0, carried };
                    ufo(&mut kernel, &case, 800);
                }
            }
        }
    });
}

/// The kernel as a router: what comes in by one TAP goes out by another, whose MTU is smaller.
pub(crate) struct Router {
    near: Tap,
    far: Tap,
    buffer: Vec<u8>,
    mtu: usize,
}

impl Router {
    fn new() -> Result<Router, Box<dyn std::error::Error + Send + Sync>> {
        let tap = |name| -> Result<Tap, Box<dyn std::error::Error + Send + Sync>> {
            let tap = Tap::create(name, 1)?;
            sys::sysctl::set_ipv6_conf(name, "disable_ipv6", "1")?;
            sys::sysctl::set_ipv4_conf(name, "rp_filter", "0")?;
            sys::interface::set_mac(name, DESTINATION_MAC)?;
            sys::interface::set_mtu(name, MTU_MAX as u32)?;
            sys::interface::set_up(name)?;
            Ok(tap)
        };
        sys::sysctl::write(&["ipv4", "ip_forward"], "1")?;
        sys::sysctl::set_ipv4_conf("all", "rp_filter", "0")?;
        let (near, far) = (tap("near")?, tap("far")?);
        ip("address add 10.9.9.9/32 dev near");
        ip("route add 10.0.0.0/24 dev far");
        ip("neighbour add 10.0.0.2 lladdr 02:00:00:00:00:07 dev far nud permanent");
        Ok(Router { near, far, buffer: vec![0; 70_000], mtu: MTU_MAX })
    }

    /// What it makes of an IPv4 packet, which `hdr` describes as if Ethernet were before it, and whose
    /// frames may have `mtu` bytes of IP: IP packets, with the time to live as it was.
    pub(crate) fn cut(
        &mut self,
        ip: &[u8],
        hdr: &VirtioNetHdr,
        mtu: usize,
        expected: usize,
    ) -> Vec<Vec<u8>> {
        if mtu != self.mtu {
            sys::interface::set_mtu("far", mtu as u32).unwrap();
            self.mtu = mtu;
        }
        let link = [&DESTINATION_MAC[..], &[2, 0, 0, 0, 0, 9], &[8, 0]].concat();
        let hdr = hdr.encode();
        let slices = [&hdr[..], &link, ip].map(IoSlice::new);
        self.near.queues[0].writev(&slices).unwrap();
        let mut packets = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(5);
        while packets.len() < expected && Instant::now() < deadline {
            self.drain(&mut packets);
        }
        self.drain(&mut packets);
        packets
    }

    fn drain(&mut self, packets: &mut Vec<Vec<u8>>) {
        while let Some(len) = self.far.queues[0].read(&mut self.buffer).unwrap() {
            let frame = &self.buffer[VNET_LEN..len];
            // An MTU that was below IPv6's and grows brings IPv6 back, which speaks at once.
            if frame[12..14] != [8, 0] {
                continue;
            }
            let mut ip = frame[14..].to_vec();
            assert!(Ipv4::new(&ip).unwrap().checksum_ok());
            ip[8] += 1;
            Ipv4::new(&mut ip[..]).unwrap().fill_checksum();
            packets.push(ip);
        }
    }
}

fn ip(line: &str) {
    let run = Command::new("ip").args(line.split_whitespace()).output().unwrap();
    assert!(run.status.success(), "ip {line}: {}", String::from_utf8_lossy(&run.stderr));
}

/// Runs `test` with a router in a namespace of its own, or says why not.
pub(crate) fn with_router(test: impl FnOnce(Router) + Send) {
    if !have(&["ip"]) {
        return;
    }
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(error) => return lacks(error),
    };
    let ran = namespace.run(|| match Router::new() {
        Ok(router) => test(router),
        Err(error) => lacks(error),
    });
    ran.unwrap();
}

/// Compares one packet without its Ethernet header.
fn route(router: &mut Router, case: &Case) {
    let given =
        Given { packet: &case.packet[ip_at(&case.packet)..], bare_ip: true, ..case.given() };
    let ours = given.cut().unwrap().frames;
    let end = Ipv4::new(given.packet).unwrap().total_len().into();
    let theirs = router.cut(&given.packet[..end], &VirtioNetHdr::default(), case.mtu, ours.len());
    // Padding is the link's: what goes whole has it still.
    let ours: Vec<Vec<u8>> =
        ours.into_iter().map(|packet| packet[..packet.len().min(end)].to_vec()).collect();
    assert_same(&ours, &theirs, case);
}

/// Whether Linux routes it. By default it makes nothing smaller of what may not be cut.
fn routes(case: &Case) -> bool {
    let packet = &case.packet[ip_at(&case.packet)..];
    let ip = Ipv4::new(packet).unwrap();
    (68..=MTU_MAX).contains(&case.mtu)
        && ip.ttl() > 1
        && case.carried != Carried::UdpPartial
        && given_fragments(case) <= MOST_FRAGMENTS
        && (!ip.dont_fragment() || usize::from(ip.total_len()) <= case.mtu)
}

fn given_fragments(case: &Case) -> usize {
    case.given().segmenter().map_or(0, |segmenter| segmenter.gso_segs())
}

/// Options of both kinds, other protocols, UDP with and without checksum, fragments of fragments;
/// MTUs that are no multiple of eight.
#[test]
fn routed() {
    with_router(|mut router| {
        for case in random(true, routes) {
            route(&mut router, &case);
        }
    });
}

#[test]
fn routed_exactly_and_one_byte_more() {
    with_router(|mut router| {
        for mtu in [68, 575, 576, 1499, 1500, 9000] {
            for len in [mtu - 20, mtu - 19, 2 * mtu - 40, 2 * mtu - 39, 3 * ((mtu - 20) & !7) + 1] {
                let builder = PacketBuilder::ip4(253).id(0xffff).dont_fragment(false);
                let packet = builder.payload_pattern(len).build();
                let (hdr, carried) = (VirtioNetHdr::default(), Carried::Unknown);
                let case = Case { packet, hdr, mtu, fragment_id: 3, carried };
                route(&mut router, &case);
            }
        }
    });
}

/// Linux's own UDP over IPv6, cut for the MTU: put together and cut again by wharf it is the same.
///
/// Of MTUs that leave a multiple of eight bytes: for others Linux, which lays out what a socket sends
/// before it knows where it ends, may send a last fragment in two that would have fitted one.
#[test]
fn sent_over_ipv6() {
    if !have(&["ip"]) {
        return;
    }
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(error) => return lacks(error),
    };
    let ran = namespace.run(|| match Tap::create("gso6", 1) {
        Ok(tap) => send_over_ipv6(&tap),
        Err(error) => lacks(error),
    });
    ran.unwrap();
}

fn send_over_ipv6(tap: &Tap) {
    sys::interface::set_up("gso6").unwrap();
    ip("address add fd00::1/64 dev gso6 nodad");
    ip("neighbour add fd00::2 lladdr 02:00:00:00:00:07 dev gso6 nud permanent");
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
    let to = (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2), 5201);
    let mut buffer = vec![0; 70_000];
    for mtu in [1280usize, 1400, 1496, 9000] {
        sys::interface::set_mtu("gso6", mtu as u32).unwrap();
        let room = mtu - 48;
        for len in [room, room + 1, 2 * room - 8, 2 * room - 7, 2 * room - 19, 20_000, 60_001] {
            let payload = testkit::packet::pattern(len, len);
            socket.send_to(&payload, to).unwrap();
            let mut theirs = Vec::new();
            let deadline = Instant::now() + Duration::from_secs(5);
            let mut sent = 0;
            while sent < len + 8 && Instant::now() < deadline {
                let Some(len) = tap.queues[0].read(&mut buffer).unwrap() else { continue };
                let frame = &buffer[VNET_LEN..len];
                // Not what the kernel says of its own: neighbours, groups.
                if frame.starts_with(&[2, 0, 0, 0, 0, 7]) {
                    let fragment_header = if frame[20] == 44 { 8 } else { 0 };
                    sent += frame.len() - 54 - fragment_header;
                    theirs.push(frame.to_vec());
                }
            }
            let (packet, id) = match theirs.len() {
                1 => (theirs[0][14..].to_vec(), 0),
                _ => {
                    let fragments: Vec<&[u8]> = theirs.iter().map(|frame| &frame[14..]).collect();
                    let whole = reassemble(&fragments).unwrap();
                    (whole.packet, whole.id)
                }
            };
            assert!(packet.ends_with(&payload));
            let packet = [&theirs[0][..14], &packet].concat();
            let (hdr, carried) = (VirtioNetHdr::default(), Carried::UdpComplete);
            let case = Case { packet, hdr, mtu, fragment_id: id, carried };
            assert_same(&case.given().cut().unwrap().frames, &theirs, &case);
        }
    }
}
