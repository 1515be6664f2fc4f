//! Ethernet frames for tests, written field by field.
//!
//! [`PacketBuilder`] starts from sane defaults and builds byte by byte, by the RFCs and without
//! `wire`'s views, so that a test of those views does not test them against themselves.
//!
//! ```
//! use testkit::packet::PacketBuilder;
//! // A plain segment with complete checksums, and the same bytes as a host hands them over.
//! let segment = PacketBuilder::tcp4().seq(1000).timestamps(7, 8).payload_pattern(1448);
//! let frame = segment.build();
//! assert_eq!(frame.len(), 14 + 20 + 32 + 1448);
//! testkit::verify::checksums(&frame).unwrap();
//! // A super-packet: partial checksum and the header with the sizes to cut it.
//! let (packet, hdr) = segment.payload_pattern(10_000).super_packet(1448);
//! assert_eq!((packet.len(), hdr.gso_size, hdr.csum_start), (14 + 20 + 32 + 10_000, 1448, 34));
//! ```

use wire::{Flags, GsoType, VirtioNetHdr, protocol};

pub use crate::pattern::pattern;
use crate::verify::{ones_complement_sum, pseudo_header};

/// The source MAC address of every packet, unless another is set.
pub const SOURCE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// The destination MAC address of every packet, unless another is set.
pub const DESTINATION_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// IP addresses, and fields of one IP version only.
#[derive(Clone, Debug)]
enum Ip {
    V4 {
        addresses: [[u8; 4]; 2],
        id: u16,
        dont_fragment: bool,
        options: Vec<u8>,
    },
    V6 {
        addresses: [[u8; 16]; 2],
        flow_label: u32,
        /// Kind and length in bytes.
        extensions: Vec<(u8, usize)>,
    },
}

/// TCP fields; the other protocols have none.
#[derive(Clone, Debug)]
struct Tcp {
    seq: u32,
    ack: u32,
    flags: Flags,
    reserved: u8,
    window: u16,
    urgent: u16,
    options: Vec<u8>,
}

/// How the transport's checksum field is filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Checksum {
    Complete,
    /// The folded sum of the pseudo-header (`NEEDS_CSUM`).
    Partial,
    Wrong,
    /// 0: in UDP, no checksum.
    Zero,
}

/// Builds one Ethernet frame. Setters for fields that the packet does not have (`seq` of UDP, `id` of IPv6)
/// do nothing, so that one chain of calls serves all kinds.
#[derive(Clone, Debug)]
pub struct PacketBuilder {
    macs: [[u8; 6]; 2],
    vlans: Vec<u16>,
    ip: Ip,
    tos: u8,
    ttl: u8,
    /// Offset in bytes, and whether more fragments follow.
    fragment: Option<(u16, bool)>,
    protocol: u8,
    ports: [u16; 2],
    tcp: Tcp,
    payload: Vec<u8>,
    padding: usize,
    checksum: Checksum,
    wrong_ip_checksum: bool,
}

/// How to start.
impl PacketBuilder {
    /// TCP over IPv4, 10.0.0.1:40000 to 10.0.0.2:5201: ACK, no options, no payload, DF set.
    pub fn tcp4() -> Self {
        Self::ip4(protocol::TCP)
    }

    /// TCP over IPv6, fd00::1 port 40000 to fd00::2 port 5201: ACK, no options, no payload.
    pub fn tcp6() -> Self {
        Self::ip6(protocol::TCP)
    }

    /// UDP over IPv4, addresses and ports as [`tcp4`](Self::tcp4).
    pub fn udp4() -> Self {
        Self::ip4(protocol::UDP)
    }

    /// UDP over IPv6, addresses and ports as [`tcp6`](Self::tcp6).
    pub fn udp6() -> Self {
        Self::ip6(protocol::UDP)
    }

    /// Any protocol over IPv4; other than TCP and UDP, the payload follows the IP header.
    pub fn ip4(protocol: u8) -> Self {
        let addresses = [[10, 0, 0, 1], [10, 0, 0, 2]];
        Self::new(protocol, Ip::V4 { addresses, id: 1, dont_fragment: true, options: Vec::new() })
    }

    /// Any protocol over IPv6; other than TCP and UDP, the payload follows the IP headers.
    pub fn ip6(protocol: u8) -> Self {
        let address = |last| {
            let mut address = [0; 16];
            (address[0], address[15]) = (0xfd, last);
            address
        };
        let addresses = [address(1), address(2)];
        Self::new(protocol, Ip::V6 { addresses, flow_label: 0, extensions: Vec::new() })
    }

    fn new(protocol: u8, ip: Ip) -> Self {
        PacketBuilder {
            macs: [SOURCE_MAC, DESTINATION_MAC],
            vlans: Vec::new(),
            ip,
            tos: 0,
            ttl: 64,
            fragment: None,
            protocol,
            ports: [40000, 5201],
            tcp: Tcp {
                seq: 1,
                ack: 1,
                flags: Flags::ACK,
                reserved: 0,
                window: 501,
                urgent: 0,
                options: Vec::new(),
            },
            payload: Vec::new(),
            padding: 0,
            checksum: Checksum::Complete,
            wrong_ip_checksum: false,
        }
    }
}

/// Ethernet and IP.
impl PacketBuilder {
    /// Source and destination MAC address.
    pub fn macs(mut self, source: [u8; 6], destination: [u8; 6]) -> Self {
        self.macs = [source, destination];
        self
    }

    /// Adds a VLAN tag (priority, DEI and VLAN number) inside those already there. Where there
    /// are several, all but the innermost are service tags (802.1ad).
    pub fn vlan(mut self, tci: u16) -> Self {
        self.vlans.push(tci);
        self
    }

    /// Source and destination IPv4 address.
    pub fn addresses4(mut self, source: [u8; 4], destination: [u8; 4]) -> Self {
        if let Ip::V4 { addresses, .. } = &mut self.ip {
            *addresses = [source, destination];
        }
        self
    }

    /// Source and destination IPv6 address.
    pub fn addresses6(mut self, source: [u8; 16], destination: [u8; 16]) -> Self {
        if let Ip::V6 { addresses, .. } = &mut self.ip {
            *addresses = [source, destination];
        }
        self
    }

    /// IPv4 identification.
    pub fn id(mut self, value: u16) -> Self {
        if let Ip::V4 { id, .. } = &mut self.ip {
            *id = value;
        }
        self
    }

    /// Don't Fragment; set by default.
    pub fn dont_fragment(mut self, value: bool) -> Self {
        if let Ip::V4 { dont_fragment, .. } = &mut self.ip {
            *dont_fragment = value;
        }
        self
    }

    /// IPv4 options; a multiple of four bytes, at most 40.
    pub fn ip_options(mut self, bytes: &[u8]) -> Self {
        assert!(bytes.len().is_multiple_of(4) && bytes.len() <= 40, "IPv4 options: bad length");
        if let Ip::V4 { options, .. } = &mut self.ip {
            *options = bytes.to_vec();
        }
        self
    }

    /// IPv6 flow label, 20 bits.
    pub fn flow_label(mut self, value: u32) -> Self {
        if let Ip::V6 { flow_label, .. } = &mut self.ip {
            *flow_label = value & 0x000f_ffff;
        }
        self
    }

    /// Adds an IPv6 extension header of `len` bytes (a multiple of eight) after those already
    /// there: Hop-by-Hop and Destination options are filled with padding, others with zeros.
    pub fn extension(mut self, kind: u8, len: usize) -> Self {
        assert!(len.is_multiple_of(8) && (8..=2048).contains(&len), "extension: bad length");
        if let Ip::V6 { extensions, .. } = &mut self.ip {
            extensions.push((kind, len));
        }
        self
    }

    /// IPv4 type of service or IPv6 traffic class: DSCP and ECN.
    pub fn tos(mut self, value: u8) -> Self {
        self.tos = value;
        self
    }

    /// Time to live or hop limit.
    pub fn ttl(mut self, value: u8) -> Self {
        self.ttl = value;
        self
    }

    /// Makes the packet a fragment: `offset` in bytes (a multiple of eight), and whether more
    /// follow. The transport header is built all the same.
    pub fn fragment(mut self, offset: u16, more: bool) -> Self {
        self.fragment = Some((offset, more));
        self
    }
}

/// Transport and payload.
impl PacketBuilder {
    /// Source and destination port.
    pub fn ports(mut self, source: u16, destination: u16) -> Self {
        self.ports = [source, destination];
        self
    }

    /// TCP sequence number.
    pub fn seq(mut self, value: u32) -> Self {
        self.tcp.seq = value;
        self
    }

    /// TCP acknowledgment number.
    pub fn ack(mut self, value: u32) -> Self {
        self.tcp.ack = value;
        self
    }

    /// TCP control bits, replacing the default, which is ACK.
    pub fn flags(mut self, value: Flags) -> Self {
        self.tcp.flags = value;
        self
    }

    /// The four bits between TCP data offset and flags; the lowest is AccECN's AE.
    pub fn reserved(mut self, value: u8) -> Self {
        self.tcp.reserved = value & 0x0f;
        self
    }

    /// TCP window field, unscaled.
    pub fn window(mut self, value: u16) -> Self {
        self.tcp.window = value;
        self
    }

    /// TCP urgent pointer; URG is a flag of its own.
    pub fn urgent(mut self, value: u16) -> Self {
        self.tcp.urgent = value;
        self
    }

    /// TCP options, padded with End-of-Options to a multiple of four; at most 40 bytes.
    pub fn options(mut self, bytes: &[u8]) -> Self {
        assert!(bytes.len() <= 40, "TCP options: more than 40 bytes");
        self.tcp.options = bytes.to_vec();
        self.tcp.options.resize(bytes.len().next_multiple_of(4), 0);
        self
    }

    /// TCP timestamps as every stack lays them out (RFC 7323 appendix A): NOP, NOP, option.
    /// Replaces all options.
    pub fn timestamps(self, value: u32, echo: u32) -> Self {
        let mut options = vec![1, 1, 8, 10];
        options.extend(value.to_be_bytes());
        options.extend(echo.to_be_bytes());
        self.options(&options)
    }

    /// The payload.
    pub fn payload(mut self, bytes: &[u8]) -> Self {
        self.payload = bytes.to_vec();
        self
    }

    /// `len` bytes of [`pattern`] as the payload.
    pub fn payload_pattern(mut self, len: usize) -> Self {
        self.payload = pattern(0, len);
        self
    }

    /// Appends bytes that belong to no header, as Ethernet does to reach 60 bytes. They are not zeros, so
    /// that a checksum over them would be wrong.
    pub fn padding(mut self, len: usize) -> Self {
        self.padding = len;
        self
    }

    /// Leaves the transport's checksum to be completed (`NEEDS_CSUM`).
    pub fn partial_checksum(mut self) -> Self {
        self.checksum = Checksum::Partial;
        self
    }

    /// Makes the transport's checksum wrong.
    pub fn wrong_checksum(mut self) -> Self {
        self.checksum = Checksum::Wrong;
        self
    }

    /// Leaves the transport's checksum 0: in UDP, no checksum.
    pub fn zero_checksum(mut self) -> Self {
        self.checksum = Checksum::Zero;
        self
    }

    /// Makes the IPv4 header checksum wrong.
    pub fn wrong_ip_checksum(mut self) -> Self {
        self.wrong_ip_checksum = true;
        self
    }
}

/// Output.
impl PacketBuilder {
    /// The frame.
    pub fn build(&self) -> Vec<u8> {
        let mut frame = self.ethernet();
        let transport = self.transport();
        match &self.ip {
            Ip::V4 { .. } => frame.extend(self.ipv4(transport.len())),
            Ip::V6 { .. } => frame.extend(self.ipv6(transport.len())),
        }
        frame.extend(transport);
        frame.extend(std::iter::repeat_n(0xa5, self.padding));
        frame
    }

    /// The frame with a partial checksum, and the header that asks to complete it.
    pub fn partial(&self) -> (Vec<u8>, VirtioNetHdr) {
        let frame = self.clone().partial_checksum().build();
        let hdr = VirtioNetHdr {
            needs_csum: true,
            csum_start: self.transport_at() as u16,
            csum_offset: if self.protocol == protocol::UDP { 6 } else { 16 },
            ..VirtioNetHdr::default()
        };
        (frame, hdr)
    }

    /// The frame as a super-packet: with a partial checksum, and the header that asks to cut it
    /// into `gso_size` bytes of payload each. For TCP and UDP (as USO) only.
    pub fn super_packet(&self, gso_size: u16) -> (Vec<u8>, VirtioNetHdr) {
        let (frame, hdr) = self.partial();
        let gso_type = match (self.protocol, &self.ip) {
            (protocol::UDP, _) => GsoType::UdpL4,
            (_, Ip::V4 { .. }) => GsoType::Tcpv4,
            (_, Ip::V6 { .. }) => GsoType::Tcpv6,
        };
        let ecn = gso_type != GsoType::UdpL4 && self.tcp.flags.any(Flags::CWR);
        let hdr_len = (frame.len() - self.payload.len() - self.padding) as u16;
        (frame, VirtioNetHdr { gso_type, gso_size, ecn, hdr_len, ..hdr })
    }

    /// Offset of the transport header.
    pub fn transport_at(&self) -> usize {
        let ip = match &self.ip {
            Ip::V4 { options, .. } => 20 + options.len(),
            Ip::V6 { extensions, .. } => 40 + extensions.iter().map(|(_, len)| len).sum::<usize>(),
        };
        let fragment_header = match self.ip {
            Ip::V6 { .. } if self.fragment.is_some() => 8,
            _ => 0,
        };
        14 + 4 * self.vlans.len() + ip + fragment_header
    }

    fn ethernet(&self) -> Vec<u8> {
        let mut bytes = [self.macs[1], self.macs[0]].concat();
        for (i, tci) in self.vlans.iter().enumerate() {
            let service = i + 1 < self.vlans.len();
            bytes.extend(if service { [0x88, 0xa8] } else { [0x81, 0x00] });
            bytes.extend(tci.to_be_bytes());
        }
        bytes.extend(match self.ip {
            Ip::V4 { .. } => [0x08, 0x00],
            Ip::V6 { .. } => [0x86, 0xdd],
        });
        bytes
    }

    fn ipv4(&self, transport_len: usize) -> Vec<u8> {
        let Ip::V4 { addresses, id, dont_fragment, options } = &self.ip else { unreachable!() };
        let total = u16::try_from(20 + options.len() + transport_len).expect("more than 65,535");
        let (offset, more) = self.fragment.unwrap_or((0, false));
        let flags = u16::from(*dont_fragment) << 14 | u16::from(more) << 13;
        let mut bytes = vec![0x45 + (options.len() / 4) as u8, self.tos];
        bytes.extend(total.to_be_bytes());
        bytes.extend(id.to_be_bytes());
        bytes.extend((flags | (offset / 8)).to_be_bytes());
        bytes.extend([self.ttl, self.protocol, 0, 0]);
        bytes.extend(addresses.concat());
        bytes.extend(options);
        let checksum = !ones_complement_sum(&bytes) ^ u16::from(self.wrong_ip_checksum);
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    fn ipv6(&self, transport_len: usize) -> Vec<u8> {
        let Ip::V6 { addresses, flow_label, extensions } = &self.ip else { unreachable!() };
        let mut chain = extensions.clone();
        if self.fragment.is_some() {
            chain.push((protocol::FRAGMENT, 8));
        }
        let extensions_len: usize = chain.iter().map(|(_, len)| len).sum();
        let payload = u16::try_from(extensions_len + transport_len).expect("more than 65,535");
        let following = |i: usize| chain.get(i).map_or(self.protocol, |(kind, _)| *kind);

        let mut bytes = (6 << 28 | u32::from(self.tos) << 20 | flow_label).to_be_bytes().to_vec();
        bytes.extend(payload.to_be_bytes());
        bytes.extend([following(0), self.ttl]);
        bytes.extend(addresses.concat());
        for (i, (kind, len)) in chain.iter().enumerate() {
            let mut header = vec![0; *len];
            header[0] = following(i + 1);
            match *kind {
                protocol::FRAGMENT => {
                    let (offset, more) = self.fragment.unwrap_or((0, false));
                    header[2..4].copy_from_slice(&(offset | u16::from(more)).to_be_bytes());
                }
                protocol::HOP_BY_HOP | protocol::DESTINATION => {
                    header[1] = (len / 8 - 1) as u8;
                    pad_options(&mut header[2..]);
                }
                _ => header[1] = (len / 8 - 1) as u8,
            }
            bytes.extend(header);
        }
        bytes
    }

    /// Transport header and payload.
    fn transport(&self) -> Vec<u8> {
        let (mut bytes, checksum_at) = match self.protocol {
            protocol::TCP => (self.tcp_header(), 16),
            protocol::UDP => (self.udp_header(), 6),
            _ => return self.payload.clone(),
        };
        bytes.extend(&self.payload);
        let pseudo = match &self.ip {
            Ip::V4 { addresses, .. } => {
                pseudo_header(&addresses.concat(), self.protocol, bytes.len())
            }
            Ip::V6 { addresses, .. } => {
                pseudo_header(&addresses.concat(), self.protocol, bytes.len())
            }
        };
        let complete = !ones_complement_sum(&[&pseudo[..], &bytes].concat());
        let complete = match (self.protocol, complete) {
            (protocol::UDP, 0) => 0xffff,
            (_, sum) => sum,
        };
        let value = match self.checksum {
            Checksum::Complete => complete,
            Checksum::Partial => ones_complement_sum(&pseudo),
            Checksum::Wrong => complete ^ 0x0101,
            Checksum::Zero => 0,
        };
        bytes[checksum_at..checksum_at + 2].copy_from_slice(&value.to_be_bytes());
        bytes
    }

    fn tcp_header(&self) -> Vec<u8> {
        let tcp = &self.tcp;
        let mut bytes = self.ports.map(u16::to_be_bytes).concat();
        bytes.extend(tcp.seq.to_be_bytes());
        bytes.extend(tcp.ack.to_be_bytes());
        let words = (20 + tcp.options.len()) / 4;
        bytes.extend([(words as u8) << 4 | tcp.reserved, tcp.flags.0]);
        bytes.extend(tcp.window.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(tcp.urgent.to_be_bytes());
        bytes.extend(&tcp.options);
        bytes
    }

    fn udp_header(&self) -> Vec<u8> {
        let len = u16::try_from(8 + self.payload.len()).expect("more than 65,535");
        let mut bytes = self.ports.map(u16::to_be_bytes).concat();
        bytes.extend(len.to_be_bytes());
        bytes.extend([0, 0]);
        bytes
    }
}

/// Fills `bytes` with PadN options (RFC 8200 section 4.2), each of at most 257 bytes.
fn pad_options(bytes: &mut [u8]) {
    for pad in bytes.chunks_mut(256) {
        match pad {
            [only] => *only = 0,
            [kind, len, rest @ ..] => (*kind, *len) = (1, rest.len() as u8),
            [] => {}
        }
    }
}
