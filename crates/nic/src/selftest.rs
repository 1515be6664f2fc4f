//! A test whether the wire's interface segments as wharf would, before segmentation is left to it. It runs
//! where the interface's frames can be received: at the other end of a veth, or on a card whose loopback
//! feature is on.
//!
//! A veth passes super-packets on whole. Received packets are therefore cut in software if they are
//! super-packets, and then compared.

use std::io;
use std::time::{Duration, Instant};

use gso::Segmenter;
use sys::ethtool::Ethtool;
use sys::frames::FramePool;
use sys::interface::Interface;
use sys::packet::{BATCH, Config, Message, PacketSocket};
use sys::poll::{Interest, PollSet};
use wire::{ETHERNET_LEN, EtherType, GsoType, IPV4_MIN_LEN, IPV6_LEN};
use wire::{TCP_MIN_LEN, UDP_LEN, VirtioNetHdr, protocol};

use crate::port::hardware::Hardware;

/// How long a packet may take to arrive.
const PATIENCE: Duration = Duration::from_millis(100);
/// Payload bytes of a segment, and of the packet: three segments and a short one.
const GSO_SIZE: usize = 400;
const PAYLOAD: usize = 3 * GSO_SIZE + 7;
/// Locally administered addresses, so that no host accepts the packets.
const SOURCE: [u8; 6] = *b"\x02wharf";
const DESTINATION: [u8; 6] = *b"\x02nobdy";
/// RFC 5737 and RFC 3849: addresses that no host has. Ports 9 (discard).
const ADDRESSES_V4: [u8; 8] = [192, 0, 2, 1, 192, 0, 2, 2];
const NET_V6: [u8; 4] = [0x20, 0x01, 0x0d, 0xb8];

/// A packet as it arrived: its header and its bytes.
type Arrived = (VirtioNetHdr, Vec<u8>);

/// Those of `hardware` that the interface does right. The others become notices.
pub(crate) fn passed(wire: &Interface, hardware: Hardware, notices: &mut Vec<String>) -> Hardware {
    let name = &wire.name;
    let Some(end) = where_it_is_seen(wire) else {
        tracing::info!("what {name} cuts cannot be seen from here: it is not tried");
        return hardware;
    };
    let mut path = match Path::open(wire.index, end) {
        Ok(path) => path,
        Err(error) => {
            tracing::info!("what {name} cuts is not tried: {error}");
            return hardware;
        }
    };
    let mut passed = hardware;
    for (feature, on, probe) in [
        ("tx-tcp-segmentation", &mut passed.tcp4, Probe::tcp4()),
        ("tx-tcp6-segmentation", &mut passed.tcp6, Probe::tcp6()),
        ("tx-udp-segmentation", &mut passed.uso, Probe::uso()),
    ] {
        if !*on {
            tracing::debug!("{name} does not cut ({feature} is off): wharf cuts");
            continue;
        }
        // A packet that has not arrived completely proves nothing.
        let arrived = path.carry(&probe).unwrap_or_default();
        if probe.payload_of(&arrived) >= PAYLOAD && !probe.is_cut_right(&arrived) {
            *on = false;
            notices
                .push(format!("{name} cuts packets wrongly ({feature}): wharf cuts them itself"));
        } else {
            tracing::info!("{name} cuts packets as it should ({feature})");
        }
    }
    passed
}

/// The index of the interface that receives the frames of `wire`, if one does.
fn where_it_is_seen(wire: &Interface) -> Option<u32> {
    let is_veth = wire.kind.as_deref() == Some("veth") && wire.link_netnsid.is_none();
    if let Some(peer) = wire.link.filter(|_| is_veth) {
        let peer = Interface::by_index(peer).ok()?;
        // The port of a bridge would forward the packets.
        return (peer.operational && peer.master.is_none()).then_some(peer.index);
    }
    let features = Ethtool::open(&wire.name).and_then(|ethtool| ethtool.features()).ok()?;
    (features.get("loopback") == Some(&true)).then_some(wire.index)
}

/// From an interface to the one that receives its frames.
struct Path {
    near: PacketSocket,
    far: PacketSocket,
    pool: FramePool,
}

impl Path {
    fn open(wire: u32, end: u32) -> io::Result<Path> {
        let send_only = Config { send_only: true, ..Config::default() };
        Ok(Path {
            near: PacketSocket::open(wire, send_only)?,
            far: PacketSocket::open(end, Config::default())?,
            pool: FramePool::new(2 * BATCH as u32, sys::frames::MIN_CHUNK_SIZE)?,
        })
    }

    /// Sends a packet, and returns what arrives.
    fn carry(&mut self, probe: &Probe) -> io::Result<Vec<Arrived>> {
        let vnet = probe.vnet.encode_legacy();
        self.near.send(&[Message { vnet, header: &probe.packet, payload: &[] }])?;
        let end = Instant::now() + PATIENCE;
        let mut arrived: Vec<Arrived> = Vec::new();
        while probe.payload_of(&arrived) < PAYLOAD {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let mut set = PollSet::new();
            set.add(std::os::fd::AsFd::as_fd(&self.far), Interest::Read)?;
            set.wait(Some(left.as_nanos() as u64))?;
            self.receive(&mut arrived)?;
        }
        Ok(arrived)
    }

    fn receive(&mut self, arrived: &mut Vec<Arrived>) -> io::Result<()> {
        let mut received = Vec::new();
        self.far.receive(&mut self.pool, &mut received, BATCH)?;
        for packet in received {
            let rest = self.far.overflow(packet.slot, packet.overflow);
            let bytes = [self.pool.bytes(&packet.frame), rest].concat();
            self.pool.free(packet.frame);
            let is_probe = bytes.get(..12) == Some(&[DESTINATION, SOURCE].concat());
            if let (true, Ok(vnet)) = (is_probe, VirtioNetHdr::decode_legacy(&packet.vnet)) {
                arrived.push((vnet, bytes));
            }
        }
        Ok(())
    }
}

/// A super-packet for the test.
struct Probe {
    packet: Vec<u8>,
    vnet: VirtioNetHdr,
}

impl Probe {
    fn tcp4() -> Probe {
        Self::new(GsoType::Tcpv4, protocol::TCP, true)
    }

    fn tcp6() -> Probe {
        Self::new(GsoType::Tcpv6, protocol::TCP, false)
    }

    fn uso() -> Probe {
        Self::new(GsoType::UdpL4, protocol::UDP, true)
    }

    fn header_len(&self) -> usize {
        self.vnet.hdr_len.into()
    }

    /// Payload bytes in the packets that have arrived.
    fn payload_of(&self, arrived: &[Arrived]) -> usize {
        let header_len = self.header_len();
        arrived.iter().map(|(_, packet)| packet.len().saturating_sub(header_len)).sum()
    }

    fn new(gso_type: GsoType, number: u8, v4: bool) -> Probe {
        let (l4_header, csum_offset) = match number {
            protocol::TCP => (TCP_MIN_LEN, 16),
            _ => (UDP_LEN, 6),
        };
        let l4_len = l4_header + PAYLOAD;
        let mut ip = if v4 { ipv4(number, l4_len) } else { ipv6(number, l4_len) };
        let partial = match v4 {
            true => wire::checksum::pseudo_v4(&ADDRESSES_V4, number, l4_len),
            false => wire::checksum::pseudo_v6(&ip[8..40], number, l4_len),
        };
        let mut l4 = vec![0; l4_header];
        l4[..4].copy_from_slice(&[0, 9, 0, 9]);
        match number {
            // A sequence number about to wrap, the data offset, PSH and ACK; CWR is another feature.
            protocol::TCP => {
                l4[4..8].copy_from_slice(&0xffff_ff00_u32.to_be_bytes());
                l4[12..16].copy_from_slice(&[0x50, 0x18, 1, 0]);
            }
            _ => l4[4..6].copy_from_slice(&(l4_len as u16).to_be_bytes()),
        }
        l4[csum_offset..csum_offset + 2].copy_from_slice(&partial.fold().to_be_bytes());
        let kind = if v4 { EtherType::IPV4 } else { EtherType::IPV6 };
        let mut packet = [DESTINATION, SOURCE].concat();
        packet.extend(kind.0.to_be_bytes());
        let csum_start = ETHERNET_LEN + ip.len();
        packet.append(&mut ip);
        packet.append(&mut l4);
        let hdr_len = packet.len() as u16;
        packet.extend((0..PAYLOAD).map(|n| (n * 31) as u8));
        let vnet = VirtioNetHdr {
            needs_csum: true,
            gso_type,
            hdr_len,
            gso_size: GSO_SIZE as u16,
            csum_start: csum_start as u16,
            csum_offset: csum_offset as u16,
            ..VirtioNetHdr::default()
        };
        Probe { packet, vnet }
    }

    /// Whether the packets that have arrived are those that wharf makes.
    fn is_cut_right(&self, arrived: &[Arrived]) -> bool {
        let mut frames = Vec::new();
        for (vnet, packet) in arrived {
            match frames_of(packet, vnet) {
                Some(cut) => frames.extend(cut),
                None => return false,
            }
        }
        frames_of(&self.packet, &self.vnet) == Some(frames)
    }
}

/// The frames into which software cuts a packet.
fn frames_of(packet: &[u8], vnet: &VirtioNetHdr) -> Option<Vec<Vec<u8>>> {
    let mut segments = Segmenter::with_mtu(packet, vnet, usize::MAX, 0).ok()?;
    let mut frames = Vec::new();
    let mut frame = vec![0; segments.max_segment_len()];
    while let Some(len) = segments.next_into(&mut frame).ok()? {
        frames.push(frame[..len].to_vec());
    }
    Some(frames)
}

fn ipv4(number: u8, l4_len: usize) -> Vec<u8> {
    let mut ip = vec![0x45, 0, 0, 0, 0xff, 0xfe, 0x40, 0, 64, number, 0, 0];
    ip.extend(ADDRESSES_V4);
    let total = (IPV4_MIN_LEN + l4_len) as u16;
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    let sum = wire::checksum::sum(&ip).complement();
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    ip
}

fn ipv6(number: u8, l4_len: usize) -> Vec<u8> {
    let mut ip = vec![0; IPV6_LEN];
    ip[0] = 0x60;
    ip[4..6].copy_from_slice(&(l4_len as u16).to_be_bytes());
    (ip[6], ip[7]) = (number, 64);
    for (at, last) in [(8, 1), (24, 2)] {
        ip[at..at + 4].copy_from_slice(&NET_V6);
        ip[at + 15] = last;
    }
    ip
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of a device that cuts right, after `wrong` has changed them.
    fn after(probe: &Probe, wrong: impl FnOnce(&mut Vec<Vec<u8>>)) -> Vec<Arrived> {
        let mut frames = frames_of(&probe.packet, &probe.vnet).unwrap();
        wrong(&mut frames);
        frames.into_iter().map(|frame| (VirtioNetHdr::default(), frame)).collect()
    }

    #[test]
    fn a_device_that_cuts_rightly_or_not_at_all_passes() {
        for probe in [Probe::tcp4(), Probe::tcp6(), Probe::uso()] {
            let frames = after(&probe, |_| {});
            assert_eq!(frames.len(), 4);
            assert!(probe.is_cut_right(&frames));
            assert!(probe.is_cut_right(&[(probe.vnet, probe.packet.clone())]));
        }
    }

    /// A veth is a path, and cuts right; behind the port of a bridge nothing can be received.
    #[test]
    fn a_veth_is_tried() {
        use sys::netlink::link::{VethEnd, create_veth};
        let Ok(namespace) = sys::netns::Namespace::new() else { return };
        let made = namespace.run(|| -> sys::Result<()> {
            create_veth(&VethEnd::new("near"), &VethEnd::new("far"))?;
            sys::interface::set_up("near")?;
            sys::interface::set_up("far")?;
            let since = Instant::now();
            while !Interface::by_name("far")?.operational {
                assert!(since.elapsed() < Duration::from_secs(60), "it does not come up");
                std::thread::sleep(Duration::from_millis(1));
            }
            let near = Interface::by_name("near")?;
            let far = where_it_is_seen(&near).unwrap();
            let mut path = Path::open(near.index, far).unwrap();
            for probe in [Probe::tcp4(), Probe::tcp6(), Probe::uso()] {
                let arrived = path.carry(&probe).unwrap();
                assert!(probe.is_cut_right(&arrived));
            }
            let mut notices = Vec::new();
            let hardware = Hardware::read("near");
            assert_eq!(passed(&near, hardware, &mut notices), hardware);
            assert!(hardware.tcp4 && notices.is_empty());
            Ok(())
        });
        made.unwrap().unwrap();
    }

    /// Each byte of each header counts, and order and number of the packets.
    #[test]
    fn a_device_that_cuts_wrongly_fails() {
        for probe in [Probe::tcp4(), Probe::tcp6(), Probe::uso()] {
            for at in 0..probe.header_len() {
                for n in 0..4 {
                    assert!(!probe.is_cut_right(&after(&probe, |frames| frames[n][at] ^= 1)));
                }
            }
            assert!(!probe.is_cut_right(&after(&probe, |frames| frames.swap(1, 2))));
            assert!(!probe.is_cut_right(&after(&probe, |frames| drop(frames.pop()))));
            assert!(!probe.is_cut_right(&after(&probe, |frames| frames.push(frames[3].clone()))));
            assert!(!probe.is_cut_right(&after(&probe, |frames| frames[0].truncate(400))));
            let other_size = VirtioNetHdr { gso_size: 500, ..probe.vnet };
            assert!(!probe.is_cut_right(&[(other_size, probe.packet.clone())]));
        }
    }
}
